"""Who writes the model's part of a summary: prepared, asked for, asked for again, or nobody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from tests.context.test_manage import DONE, look, shown, weighed, working
from tests.engine.fakes import facts, play
from travois.context.compaction import summary_call, summary_prompt
from travois.context.compaction.compact import (
    compact_conversation,
    describe_compaction,
    prepare_compaction,
)
from travois.context.compaction.cut import UNATTENDED_INSTRUCTION, cut_from_entry, cut_up_to_entry
from travois.context.layers import ContextLayers
from travois.core.content import Media, Text
from travois.core.facts import Compacted, Noted, Rewound, Spawned, User
from travois.engine.agent import Agent
from travois.ports.world import CompactionProgress, Event
from travois.providers.replies import ApiError
from travois.providers.request import Request
from travois.testing import Scripted, ScriptLine, calls, say

NINE = """<draft>I think about the lexer first.</draft>
## 1. Request and intent
They want a parser.
## 2. Technical concepts
Recursive descent.
## 3. Files and code
- lexer.py: the tokens are made here.
## 6. All user messages
- invented words
## 8. Current work
The lexer is half done.
## 9. Next step
Finish the lexer: "look at sixty things"."""
SHORT = "## 8. Current work\nNow at the lexer.\n## 9. Next step\nTest it."


def ready(folder: Path, rounds: int = 30, **more: Any) -> Agent:
    """An agent that has worked for so many rounds, of about 1,000 tokens each."""
    one, _ = working(folder, rounds, **({"layers": ContextLayers()} | more))
    assert play(one, "Never touch main.py. Look at sixty things.") == "end"
    return one


def asked(one: Agent) -> list[str]:
    """The requests that were made since the model was last changed."""
    assert isinstance(one.model, Scripted)
    return [request.body.decode() for request in one.model.requests]


def compacted(one: Agent, *lines: ScriptLine, **more: Any) -> Compacted:
    one.model = Scripted(*lines)
    more.setdefault("trigger", "auto")
    fact = anyio.run(lambda: compact_conversation(one, **more))
    assert fact is not None
    return fact


def test_one_document_with_nine_parts_each_filled_by_whoever_knows_best(tmp_path: Path) -> None:
    one = ready(tmp_path)
    fact = compacted(one, say(NINE))
    assert (fact.by, fact.source, fact.why) == ("model", "fork", "")
    text = shown(one)
    places = [
        text.index(part)
        for part in (
            "# Summary of what was set aside\nMade on 20",
            "was written by the model (lab/echo-1), which knew the conversation up to entry",
            "## 1. Request and intent\nThey want a parser.\n\n### Rules that the human gave",
            "## 2. Technical concepts\nRecursive descent.",
            "## 3. Files and code\n- lexer.py: the tokens are made here.",
            "## 6. All user messages\n### What the human said, in order\n- > Never touch main.py.",
            "## 8. Current work\nThe lexer is half done.",
            "## 9. Next step\nFinish the lexer",
            "## Where what was set aside can be read\nThe files are in ",
        )
    ]
    assert places == sorted(places)
    assert "invented words" not in text, "the log knows them word for word"
    assert "I think about" not in text, "the drafting block is thrown away"


def test_text_alone_is_said_at_the_start_and_at_the_end_after_all_wishes(tmp_path: Path) -> None:
    one = ready(tmp_path)
    compacted(one, say(NINE), trigger="manual", focus="the lexer")
    (body,) = asked(one)
    request = body[body.index("This is the harness") :]
    first, focus, last = (
        request.index(w) for w in ("Answer with text alone", "the lexer", "Call no tools.")
    )
    assert first < focus < last
    assert request.count("Answer with text alone") == 2


FAILURES: dict[str, ScriptLine] = {
    "500": ApiError("server", "oops", status=500),
    "529": ApiError("overloaded", "busy", status=529),
    "empty": say(""),
    "only a draft": say("<draft>hm</draft>"),
    "tool calls": calls(("Look", {"path": "1"})),
    "too long": say("word " * 60_000),
    "too long a prompt": ApiError("overflow", "too long", tokens=32_000, limit=30_000),
    "garbled": ApiError("garbled", "the stream ended early"),
    "cut off": ApiError("network", "the connection broke"),
    "refused": ApiError("invalid", "no"),
}
TRIGGERS = ("auto", "manual", "cold")


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("what", FAILURES)
def test_a_fork_that_fails_is_followed_by_a_direct_call_with_its_own_limit(
    tmp_path: Path, what: str, trigger: str
) -> None:
    one = ready(tmp_path)
    fact = compacted(one, FAILURES[what], say(NINE), trigger=trigger)
    assert (fact.by, fact.source) == ("model", "direct")
    assert fact.why.startswith("fork: ")
    assert "summary by the model, in a separate request (fork: " in describe_compaction(fact)
    assert "The lexer is half done." in shown(one)
    direct = asked(one)[1]
    assert '"tools"' not in direct and "<conversation>" in direct
    assert '"max_tokens":4000' in direct, "the model's own limit is below 20,000"
    assert "result 29 " in direct and "Never touch main.py." in direct


@pytest.mark.parametrize("fails", [2, 3, 4])
@pytest.mark.parametrize("what", [one for one in FAILURES if one != "cut off"])
def test_then_the_oldest_rounds_are_left_out_three_times_at_most(
    tmp_path: Path, what: str, fails: int
) -> None:
    one = ready(tmp_path)
    fact = compacted(one, *[FAILURES[what]] * fails, say(NINE))
    assert (fact.by, fact.source) == ("model", "cut head")
    assert fact.why.count(";") == fails - 1
    assert "summary by the model, without the oldest rounds (fork: " in describe_compaction(fact)
    bodies = asked(one)
    sizes = [len(body) for body in bodies[1:]]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == fails
    assert "oldest rounds of this conversation are omitted here" in bodies[-1]
    assert "result 29 " in bodies[-1] and "result 1 " not in bodies[-1]


def test_the_gap_that_the_provider_names_is_what_is_left_out(tmp_path: Path) -> None:
    one = ready(tmp_path)
    told = ApiError("overflow", "too long", tokens=40_000, limit=30_000)
    compacted(one, told, told, say(NINE))
    whole, cut = asked(one)[1:]
    gone = sum(f"result {n} " in whole and f"result {n} " not in cut for n in range(30))
    assert 8 <= gone <= 20, "about 10,000 tokens, in rounds of about 800"


@pytest.mark.parametrize("what", FAILURES)
def test_where_every_call_fails_the_log_stands_alone_and_says_so(tmp_path: Path, what: str) -> None:
    one = ready(tmp_path)
    fact = compacted(one, *[FAILURES[what]] * 9)
    assert (fact.by, fact.source) == ("ledger", "ledger")
    assert len(asked(one)) == (2 if what == "cut off" else 5)
    assert "; summary from the log, without a model (fork: " in describe_compaction(fact)
    assert "No model took part in it (fork: " in shown(one)
    assert "Never touch main.py." in shown(one)


@pytest.mark.parametrize("kind", ["auth", "billing", "quota", "forbidden", "missing"])
def test_nobody_asks_again_where_that_cannot_help(tmp_path: Path, kind: Any) -> None:
    one = ready(tmp_path)
    fact = compacted(one, ApiError(kind, "no"), say(NINE))
    assert (fact.source, len(asked(one))) == ("ledger", 1)


def test_a_provider_on_this_machine_that_does_not_listen_is_asked_once(tmp_path: Path) -> None:
    one = ready(tmp_path)
    fact = compacted(one, ApiError("network", "refused", refused=True), say(NINE))
    assert (fact.source, len(asked(one))) == ("ledger", 1)


def test_an_overflow_asks_with_what_fits_and_not_with_what_was_refused(tmp_path: Path) -> None:
    one = ready(tmp_path)
    fact = compacted(one, say(NINE), trigger="overflow", goal=15_000)
    assert (fact.by, fact.source) == ("model", "direct")
    assert "<conversation>" in asked(one)[0]


def test_a_conversation_that_no_longer_fits_the_window_is_asked_about_without_its_head(
    tmp_path: Path,
) -> None:
    one = ready(tmp_path, 30)
    assert one.session.view.epoch is not None
    epoch = one.session.view.epoch
    one.session.append(replace(epoch, model=replace(epoch.model, window=16_000), why="narrow"))
    fact = compacted(one, say(SHORT), trigger="overflow")
    assert fact.source == "cut head"
    (body,) = asked(one)
    assert len(body) < 16_000 * 4 and "result 29 " in body


def test_media_and_our_own_notes_are_no_part_of_a_direct_call(tmp_path: Path) -> None:
    one = ready(tmp_path, 5)
    picture = Media("image", "image/png", "blob-1", size=3, name="a.png")
    one.session.append(User((Text("see this"), picture)))
    one.session.append(User((Text("<memories>old</memories>"),), origin="note"))
    fact = compacted(one, FAILURES["500"], say(NINE))
    assert fact.source == "direct"
    assert "see this" in asked(one)[1] and "<memories>" not in asked(one)[1]


def test_with_the_switch_off_nobody_is_asked_and_that_is_told(tmp_path: Path) -> None:
    one = ready(tmp_path, layers=ContextLayers(draft=False))
    fact = compacted(one, say(NINE))
    assert (fact.source, fact.why, asked(one)) == ("ledger", "context.draft is off", [])


def test_cheap_asks_nobody_after_a_pause(tmp_path: Path) -> None:
    one = ready(tmp_path, layers=ContextLayers(idle="cheap"))
    fact = compacted(one, say(NINE), trigger="cold")
    assert (fact.source, asked(one)) == ("ledger", [])
    assert "context.idle = cheap" in fact.why


# --- prepared beforehand, and brought up to date --------------------------------------------------


def drafted(one: Agent, text: str = NINE) -> None:
    """Let the model prepare its part now."""
    jobs: list[Callable[[], Awaitable[None]]] = []
    one.runtime.background = jobs.append
    one.model = Scripted(weighed(say(text)))
    prepare_compaction(one)

    async def run() -> None:
        for job in jobs:
            await job()

    anyio.run(run)
    one.runtime.background = None
    assert one.session.draft


def go_on(one: Agent, rounds: int) -> None:
    one.model = Scripted(*(look(200 + n) for n in range(rounds)), DONE)
    assert play(one, "go on") == "end"


def test_a_draft_is_used_as_it_is_while_all_that_came_since_stays_word_for_word(
    tmp_path: Path,
) -> None:
    one = ready(tmp_path, 60)
    drafted(one)
    go_on(one, 5)
    fact = compacted(one, say("nobody asks"))
    assert (fact.by, fact.source, asked(one)) == ("model", "draft", [])
    assert "The lexer is half done." in shown(one)
    assert all(f"result {200 + n} " in shown(one) for n in range(5))


def test_a_draft_that_is_older_than_the_kept_tail_is_brought_up_to_date(tmp_path: Path) -> None:
    one = ready(tmp_path, 40)
    drafted(one)
    go_on(one, 60)
    fact = compacted(one, say(SHORT))
    assert (fact.by, fact.source) == ("model", "draft and fork")
    (body,) = asked(one)
    assert "Recursive descent." in body, "what was written is not written again"
    text = shown(one)
    assert "Now at the lexer." in text and "The lexer is half done." not in text
    assert "Recursive descent." in text and "They want a parser." in text


def test_what_brings_it_up_to_date_reads_the_conversations_cache(tmp_path: Path) -> None:
    one = ready(tmp_path, 40)
    drafted(one)
    go_on(one, 60)
    assert isinstance(one.model, Scripted)
    before = one.model.requests[-1]
    compacted(one, say(SHORT))
    assert isinstance(one.model, Scripted)
    (request,) = one.model.requests
    assert request.body[: len(before.body) // 2] == before.body[: len(before.body) // 2]


def test_if_that_fails_it_is_asked_for_anew_and_the_old_draft_is_not_used(tmp_path: Path) -> None:
    one = ready(tmp_path, 40)
    drafted(one, "## 8. Current work\nstep 102")
    go_on(one, 60)
    fact = compacted(one, FAILURES["500"], say(NINE))
    assert fact.source == "fork"
    assert "step 102" not in shown(one)
    one = ready(tmp_path, 40)
    drafted(one, "## 8. Current work\nstep 102")
    go_on(one, 60)
    fact = compacted(one, *[FAILURES["500"]] * 9)
    assert fact.source == "ledger" and "step 102" not in shown(one)


def test_where_the_tail_has_no_room_the_draft_is_brought_up_to_date_after_all(
    tmp_path: Path,
) -> None:
    one = ready(tmp_path, 60)
    drafted(one)
    go_on(one, 20)
    fact = compacted(one, say(SHORT), goal=8_000)
    assert fact.source == "draft and fork"
    assert "Now at the lexer." in shown(one)


def test_a_draft_that_comes_after_its_compaction_is_dropped(tmp_path: Path) -> None:
    one = ready(tmp_path, 40)
    jobs: list[Callable[[], Awaitable[None]]] = []
    one.runtime.background = jobs.append
    prepare_compaction(one)

    def answers(request: Request) -> Any:
        first = one.session.view.items[0].seq
        one.session.append(Compacted(first, first, (Text("s"),), "ledger"))
        return say(NINE)

    one.model = Scripted(answers)

    async def run() -> None:
        await jobs[0]()

    anyio.run(run)
    assert one.session.draft == ""
    assert [note for note in facts(one, Noted) if note.what == "draft"] == []


def test_a_draft_of_what_was_taken_back_is_dropped(tmp_path: Path) -> None:
    one = ready(tmp_path, 40)
    at = one.session.seq
    go_on(one, 5)
    drafted(one)
    one.session.append(Rewound(at))
    assert (one.session.draft, one.session.drafted) == ("", False)


# --- a chosen part, nobody there, signs of life ---------------------------------------------------


def test_each_chosen_part_has_a_prompt_and_parts_of_its_own(tmp_path: Path) -> None:
    one = ready(tmp_path)
    middle = one.session.view.items[20].seq
    part = cut_up_to_entry(one.session.view, middle)
    ends = NINE.replace("8. Current work", "8. Work completed")
    ends = ends.replace("9. Next step", "9. Context for continuing")
    fact = compacted(one, say(ends), trigger="manual", part=part)
    assert fact.source == "fork"
    assert "set aside the beginning of this conversation, up to the" in asked(one)[0]
    assert "## 9. Context for continuing\nFinish the lexer" in shown(one)
    one = ready(tmp_path)
    part = cut_from_entry(one.session.view, one.session.view.items[20].seq)
    compacted(one, say(NINE), trigger="manual", part=part)
    assert "set aside the later part of this conversation, from your message" in asked(one)[0]
    note = one.session.view.items[-1].fact
    assert "They stood here, after the messages above, which are unchanged" in str(note.content)
    assert str(note.content).count("Never touch main.py.") == 1, "the rule; the message stays above"


def test_a_run_that_nobody_watches_is_told_so_more_strongly(tmp_path: Path) -> None:
    one = ready(tmp_path)
    compacted(one, say(NINE))
    assert (
        UNATTENDED_INSTRUCTION not in shown(one)
        and summary_prompt.UNATTENDED_NOTE not in asked(one)[0]
    )
    one = ready(tmp_path)
    one.permissions.is_attended = False
    compacted(one, say(NINE))
    assert UNATTENDED_INSTRUCTION in shown(one) and summary_prompt.UNATTENDED_NOTE in asked(one)[0]
    one = ready(tmp_path)
    one.permissions.is_attended = False
    compacted(one, say(NINE), trigger="manual")
    assert UNATTENDED_INSTRUCTION not in shown(one), "whoever asked for it is there"


def test_it_says_that_it_is_alive_while_the_model_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary_call, "PROGRESS_INTERVAL_SECONDS", 0.01)
    one = ready(tmp_path)

    async def slowly() -> list[Event]:
        waited, seen = anyio.Event(), list[Event]()

        class Slow(Scripted):
            def stream(self, request: Request) -> Any:
                return Delayed(waited, super().stream(request))

        one.model = Slow(say(NINE))
        with one.session.watch() as events:
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: compact_conversation(one, trigger="auto"))
                while sum(isinstance(e, CompactionProgress) for e in seen) < 3:
                    seen.append(await events.receive())
                waited.set()
                while not (isinstance(seen[-1], CompactionProgress) and seen[-1].over):
                    seen.append(await events.receive())
                group.cancel_scope.cancel()
        return seen

    seen = [event for event in anyio.run(slowly) if isinstance(event, CompactionProgress)]
    assert seen[0] == CompactionProgress(0.0, tokens=seen[0].tokens) and seen[0].tokens > 10_000
    assert seen[-1] == CompactionProgress(over=True)
    assert [event.seconds for event in seen[:3]] == sorted({event.seconds for event in seen[:3]})


class Delayed:
    """A stream that begins only when something has happened."""

    def __init__(self, waited: anyio.Event, stream: Any) -> None:
        self._waited, self._stream = waited, stream

    async def __aenter__(self) -> Any:
        await self._waited.wait()
        return await self._stream.__aenter__()

    async def __aexit__(self, *error: object) -> Any:
        return await self._stream.__aexit__(*error)


def test_what_is_not_shown_whole_is_in_a_file_that_is_written_and_named(tmp_path: Path) -> None:
    one, disk = working(tmp_path, 5)
    said = [f"Message {n}. " + f"This is sentence {n} of many words. " * 40 for n in range(150)]
    for text in said:
        one.model = Scripted(DONE)
        play(one, text)
    fact = anyio.run(lambda: compact_conversation(one, trigger="auto"))
    assert fact is not None
    (path,) = [path for path in disk.held if "record-" in path]
    assert f"- {path}" in shown(one).splitlines()
    seen = " ".join(f"{disk.held[path]} {shown(one)}".replace(">", " ").split())
    assert [text for text in said if " ".join(text.split()) not in seen] == []


def test_a_drafts_call_is_told_apart_from_a_summarys(tmp_path: Path) -> None:
    one = ready(tmp_path, 40)
    drafted(one)
    go_on(one, 60)
    compacted(one, say(SHORT))
    assert [fork.what for fork in facts(one, Spawned)] == ["draft", "summary"]
