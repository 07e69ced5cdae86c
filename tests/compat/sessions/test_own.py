"""Sessions of Travois, as they are searched."""

from __future__ import annotations

from pathlib import Path

from tests.sessions.sample import EPOCH, opened, write
from travois.compat.sessions import read_recorded_session
from travois.compat.sessions.format import RecordedSession, RecordedTurn
from travois.compat.sessions.own import find_sessions
from travois.core.content import Call, Text
from travois.core.facts import AnyFact, Assistant, Changed, Compacted, Result, Rewound, User
from travois.sessions.home import TravoisHome

TALK: list[AnyFact] = [
    EPOCH,
    User((Text("why did we drop redis"),)),
    Assistant((Text("Let me look."), Call("c", "Bash", "{}")), "calls"),
    Result("c", (Text("no such file"),), error=True),
    Assistant((Text("It lost writes."),), "end"),
]


def only(home: Path) -> RecordedSession:
    (found,) = find_sessions({"TRAVOIS_HOME": str(home)})
    recorded = read_recorded_session(found)
    assert recorded is not None
    return recorded


def said(recorded: RecordedSession) -> list[str]:
    return [turn.text for turn in recorded.turns]


def test_a_session_is_what_was_said_in_it(tmp_path: Path) -> None:
    folder = TravoisHome(tmp_path).session_folder("dir-1", "s1")
    write(folder, then=[*TALK, Changed("name", "goodbye redis")])
    at = 1_700_000_000.0
    turns = (
        RecordedTurn("user", "why did we drop redis", at + 2),
        RecordedTurn("model", "Let me look.", at + 3, (Call("c", "Bash", "{}"),)),
        RecordedTurn("tool", "no such file", at + 4, answers="c", error=True),
        RecordedTurn("model", "It lost writes.", at + 5),
    )
    path = folder / "log.jsonl"
    expected = RecordedSession("travois", "s1", path, "/w", at + 5, "goodbye redis", turns)
    assert only(tmp_path) == expected


def test_compacted_words_are_there_and_rewound_ones_are_not(tmp_path: Path) -> None:
    then: list[AnyFact] = [
        *TALK,
        Compacted(3, 6, (Text("a summary"),), by="notes"),
        User((Text("use memcached"),)),
        Rewound(7),
        User((Text("use postgres"),)),
    ]
    write(TravoisHome(tmp_path).session_folder("dir-1", "s1"), then=then)
    recorded = only(tmp_path)
    assert said(recorded)[0] == "why did we drop redis"
    assert said(recorded)[-1] == "use postgres"
    assert "use memcached" not in said(recorded)


def test_a_fork_has_only_its_own_words(tmp_path: Path) -> None:
    home = TravoisHome(tmp_path)
    write(home.session_folder("dir-1", "s1"), then=TALK)
    first = opened("s2", parent="s1", at=6)
    write(home.session_folder("dir-1", "s2"), first=first, then=[User((Text("another way"),))])
    texts = {
        one.path.parent.name: read_recorded_session(one)
        for one in find_sessions({"TRAVOIS_HOME": str(tmp_path)})
    }
    fork = texts["s2"]
    assert fork is not None
    assert (fork.title, said(fork)) == ("another way", ["another way"])


def test_a_torn_end_and_an_unreadable_file_do_no_harm(tmp_path: Path) -> None:
    folder = TravoisHome(tmp_path).session_folder("dir-1", "s1")
    write(folder, then=TALK)
    whole = said(only(tmp_path))
    with (folder / "log.jsonl").open("ab") as file:
        file.write(b'{"seq": 99, "fa')
    assert said(only(tmp_path)) == whole
    (found,) = find_sessions({"TRAVOIS_HOME": str(tmp_path)})
    found.path.unlink()
    assert read_recorded_session(found) is None
