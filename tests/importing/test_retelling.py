"""What was recorded elsewhere, as facts: paired, in order, and nothing invented."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from tests.compat.sessions.writing import Line, claude, put, stamp
from travois.compat.sessions.claude import read_session
from travois.compat.sessions.format import (
    RecordedCompaction,
    RecordedMedia,
    RecordedSession,
    RecordedTurn,
)
from travois.core.content import AnyBlock, Call, Media, Text
from travois.core.facts import Assistant, Compacted, Ended, Entry, Opened, Result, User
from travois.core.view import open_calls
from travois.importing.sessions import (
    IMPORTED_NOTE,
    NO_RESULT_NOTE,
    SESSION_START_NOTE,
    STRAY_RESULT_NOTE,
    append_recorded_session,
    translate_foreign_call,
)
from travois.sessions.log_file import SessionLog
from travois.sessions.session import Session


def told(folder: Path, recorded: RecordedSession) -> Session:
    """The session that a recorded one becomes; its last note is left out of what is looked at."""
    times = [0.0]
    with SessionLog.create(
        folder / "s", Opened("s", "/", "p", "0"), clock=lambda: times[-1]
    ) as log:
        session = Session(log)
        append_recorded_session(recorded, session, keep=lambda data: data.hex(), tell=times.append)
    note = session.view.items.pop().fact
    assert note == User((Text(IMPORTED_NOTE.format(agent=recorded.agent)),), origin="note")
    return session


def recorded(
    *turns: RecordedTurn, compactions: tuple[RecordedCompaction, ...] = ()
) -> RecordedSession:
    return RecordedSession("codex", "id", Path("f"), "/", 9.0, "title", turns, compactions)


def shown(session: Session) -> list[tuple[str, ...]]:
    """What the model sees, in short."""
    return [_short(item.fact) for item in session.view.items]


def _short(fact: User | Assistant | Result) -> tuple[str, ...]:
    said = tuple(_word(block) for block in fact.content)
    match fact:
        case User():
            return (fact.origin, *said)
        case Assistant():
            return ("model", *said)
        case Result():
            return (f"of {fact.call}" + "!" * fact.error, *said)


def _word(block: AnyBlock) -> str:
    match block:
        case Text():
            return block.text
        case Call():
            return f"{block.name} {block.id}"
        case Media():
            return f"{block.kind} {block.mime} {block.blob} {block.size}"
        case _:
            return "?"


def call(id: str, name: str = "Bash") -> Call:
    return Call(id, name, "{}")


def test_parts_of_a_reply_are_one_and_results_stand_in_the_order_asked(tmp_path: Path) -> None:
    session = told(
        tmp_path,
        recorded(
            RecordedTurn("user", "both", 1.0),
            RecordedTurn("model", "Looking.", 2.0, (call("a"),)),
            RecordedTurn("model", "", 2.0, (call("b"),)),
            RecordedTurn("tool", "of b", 3.0, answers="b", error=True),
            RecordedTurn("note", "be quick", 3.0),
            RecordedTurn("tool", "of a", 4.0, answers="a"),
            RecordedTurn("model", "Done.", 5.0),
        ),
    )
    assert shown(session) == [
        ("human", "both"),
        ("model", "Looking.", "Bash a", "Bash b"),
        ("of a", "of a"),
        ("of b!", "of b"),
        ("note", "be quick"),
        ("model", "Done."),
    ]


def test_a_call_without_a_result_gets_one_that_says_so(tmp_path: Path) -> None:
    turns = (
        RecordedTurn("model", "", 1.0, (call("a"),)),
        RecordedTurn("user", "stop", 2.0),
        RecordedTurn("tool", "nobody asked", 3.0, answers="zz"),
    )
    session = told(tmp_path, recorded(*turns))
    assert shown(session) == [
        ("note", SESSION_START_NOTE),
        ("model", "Bash a"),
        ("of a!", NO_RESULT_NOTE),
        ("human", "stop"),
        ("note", STRAY_RESULT_NOTE.format(text="nobody asked")),
    ]
    assert open_calls(session.view) == ()
    ends = [entry.fact for entry in session.all_entries() if isinstance(entry.fact, Ended)]
    assert [end.why for end in ends] == ["aborted", "aborted"]


def test_an_id_that_was_used_again_is_another_call(tmp_path: Path) -> None:
    turns = (
        RecordedTurn("model", "", 1.0, (call("a"),)),
        RecordedTurn("tool", "one", 1.0, answers="a"),
        RecordedTurn("tool", "one again", 1.0, answers="a"),
        RecordedTurn("model", "", 2.0, (call("a"), call(""))),
        RecordedTurn("tool", "none", 2.0, answers=""),
    )
    session = told(tmp_path, recorded(*turns))
    assert shown(session)[1:] == [
        ("model", "Bash a"),
        ("of a", "one"),
        ("model", "Bash a_1", "Bash call_1"),
        ("of a_1", "one again"),
        ("of call_1", "none"),
    ]


def test_images_are_kept_as_blobs_and_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    picture = RecordedMedia("image/png", b64encode(b"png").decode())
    turns = (
        RecordedTurn(
            "user", "look", 1.0, pictures=(picture, RecordedMedia("application/pdf", "AAA"))
        ),
        RecordedTurn("model", "", 2.0, (call("a"),)),
        RecordedTurn("tool", "", 3.0, answers="a", pictures=(picture,)),
    )
    session = told(tmp_path, recorded(*turns))
    image = f"image image/png {b'png'.hex()} 3"
    lost = "(A recorded document, application/pdf, could not be read.)"
    said = [("human", "look", image, lost), ("model", "Bash a"), ("of a", image)]
    assert shown(session) == said


def test_a_compaction_shows_the_summary_and_what_was_kept(tmp_path: Path) -> None:
    turns = (
        RecordedTurn("user", "one", 1.0),
        RecordedTurn("model", "1", 2.0),
        RecordedTurn("user", "two", 3.0),
        RecordedTurn("model", "2", 4.0),
        RecordedTurn("note", "in short", 5.0),
        RecordedTurn("user", "three", 6.0),
    )
    short = (RecordedCompaction(4, "in short", kept=2, tokens=1000),)
    session = told(tmp_path, recorded(*turns, compactions=short))
    assert shown(session) == [
        ("note", "in short"),
        ("human", "two"),
        ("model", "2"),
        ("human", "three"),
    ]
    (fact,) = (e.fact for e in session.all_entries() if isinstance(e.fact, Compacted))
    assert (fact.by, fact.trigger, fact.before) == ("model", "imported", 1000)
    assert session.draft == "in short"


def test_a_session_that_begins_with_a_summary_shows_it(tmp_path: Path) -> None:
    short = (RecordedCompaction(0, "in short"), RecordedCompaction(1, ""))
    session = told(tmp_path, recorded(RecordedTurn("user", "go", 1.0), compactions=short))
    assert shown(session) == [("note", "in short"), ("human", "go")]


def test_facts_have_the_times_at_which_things_were_said(tmp_path: Path) -> None:
    turns = (RecordedTurn("user", "a", 5.0), RecordedTurn("model", "b", 7.0))
    session = told(tmp_path, recorded(*turns))
    said = [e for e in session.all_entries() if isinstance(e.fact, User | Assistant)]
    assert [entry.at for entry in said[:2]] == [5.0, 7.0]


def test_tools_that_mean_the_same_are_called_by_our_names() -> None:
    cases = {
        ("shell", '{"command":["bash","-lc","ls -la"]}'): ("Bash", '{"command":"ls -la"}'),
        ("exec_command", '{"cmd":"ls"}'): ("Bash", '{"command":"ls"}'),
        ("shell", '{"command":["git","log","a b"]}'): ("Bash", '{"command":"git log \'a b\'"}'),
        ("read", '{"filePath":"/a"}'): ("Read", '{"file_path":"/a"}'),
        ("edit", '{"path":"/a","old_str":"b","new_str":"c"}'): (
            "Edit",
            '{"file_path":"/a","old_string":"b","new_string":"c"}',
        ),
        ("edit", '{"search":"b"}'): ("edit", '{"search":"b"}'),
        ("apply_patch", '{"input":"x"}'): ("apply_patch", '{"input":"x"}'),
        ("bash", "not json"): ("bash", "not json"),
        ("Read", '{"file_path":"/a"}'): ("Read", '{"file_path":"/a"}'),
    }
    found = {(name, args): translate_foreign_call(Call("c", name, args)) for name, args in cases}
    assert {key: (call.name, call.args) for key, call in found.items()} == cases


def line(uuid: str, parent: str | None, **more: object) -> Line:
    about: Line = {"uuid": uuid, "parentUuid": parent, "timestamp": stamp(1), "sessionId": "s"}
    return about | more


def said(role: str, *blocks: Line, id: str = "") -> Line:
    return {"role": role, "id": id, "content": list(blocks)}


def use(id: str) -> Line:
    return {"type": "tool_use", "id": id, "name": "Read", "input": {"file_path": id}}


def result(id: str) -> Line:
    return {"type": "tool_result", "tool_use_id": id, "content": f"of {id}"}


def test_a_claude_transcript_with_boundaries_and_parallel_results_is_paired(tmp_path: Path) -> None:
    """Two calls of one reply whose results interleave, a boundary that keeps a reply, a sidechain,
    a call that was interrupted, and thinking with a signature."""
    text: Line = {"type": "text", "text": "Both are fine."}
    thinking: Line = {"type": "thinking", "thinking": "hm", "signature": "theirs"}
    kept = {"preservedMessages": {"anchorUuid": "bd", "uuids": ["a3"]}, "preTokens": 150_000}
    lines = [
        *claude([RecordedTurn("user", "read both", 1.0)]),
        line("a1", "u0", type="assistant", message=said("assistant", thinking, use("x"), id="m1")),
        line("r1", "a1", type="user", message=said("user", result("x"))),
        line("side", "a1", type="user", isSidechain=True, message=said("user", text)),
        line("a2", "a1", type="assistant", message=said("assistant", use("y"), id="m1")),
        line("r2", "a2", type="user", message=said("user", result("y"))),
        line("a3", "r2", type="assistant", message=said("assistant", text, id="m2")),
        line("bd", None, type="system", subtype="compact_boundary", logicalParentUuid="a3")
        | {"compactMetadata": kept},
        line("s1", "bd", type="user", isCompactSummary=True)
        | {"message": {"role": "user", "content": "In short: x and y were read."}},
        line("u9", "s1", type="user", message={"role": "user", "content": "and z?"}),
        line("a4", "u9", type="assistant", message=said("assistant", use("z"), id="m3")),
    ]
    session = told(tmp_path, read_session(put(tmp_path / "t.jsonl", lines)))
    assert shown(session) == [
        ("note", "In short: x and y were read."),
        ("model", "Both are fine."),
        ("human", "and z?"),
        ("model", "Read z"),
        ("of z!", NO_RESULT_NOTE),
    ]
    history = [entry for entry in session.all_entries() if _talk(entry)]
    assert [_short(entry.fact) for entry in history[:5]] == [  # type: ignore[arg-type]
        ("human", "read both"),
        ("model", "Read x", "Read y"),
        ("of x", "of x"),
        ("of y", "of y"),
        ("model", "Both are fine."),
    ]


def _talk(entry: Entry) -> bool:
    return isinstance(entry.fact, User | Assistant | Result)
