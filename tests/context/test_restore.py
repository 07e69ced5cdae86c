"""What the model is told again, and what comes back, when a conversation was compacted."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from tests.engine.fakes import MemoryLog, agent, begun, facts, log, play, with_parts
from travois.context.compaction.compact import compact_conversation
from travois.context.layers import ContextLayers
from travois.core.content import Text, extract_text
from travois.core.facts import Compacted, Result, User
from travois.core.models import Usage
from travois.core.tokens import estimate_tokens
from travois.engine.agent import Agent
from travois.hooks.events import AnyHookEvent, InstructionsLoaded
from travois.hooks.output import NO_DECISION, HookContext, HookDecision
from travois.permissions.decide import Permissions
from travois.permissions.rules import parse_permission_rule
from travois.permissions.secrets import Secrets
from travois.ports.world import UserWarned
from travois.prompt.briefing import INSTRUCTIONS_STATE_PREFIX, rebuild_briefing
from travois.prompt.environment import Environment, render_environment
from travois.prompt.instruction_files import InstructionLibrary, InstructionPlaces
from travois.providers.replies import Reply
from travois.providers.request import Request
from travois.sessions.session import Session
from travois.testing import Scripted, call, calls, say
from travois.tools.edit import EDIT, WRITE
from travois.tools.read import READ
from travois.tools.shell.bash import BASH

TOOLS = (READ, EDIT, WRITE, BASH)


def wired(one: Agent, **more: Any) -> Agent:
    """The same agent with instruction files and surroundings, as the app puts them together."""
    root = one.world.root
    places = InstructionPlaces(root, root, etc=Path(root, "no-etc"), **more)
    with_parts(
        one, library=InstructionLibrary(places, hidden=lambda path: path.endswith("hidden.md"))
    )
    with_parts(one, around=lambda: Environment(root, "linux", "2026-01-01"))
    with_parts(one, baseline=rebuild_briefing)
    return one


def working(folder: Path, *lines: Reply, **more: Any) -> Agent:
    """An agent with real tools whose spans go to a folder beside the workspace."""
    session = begun((), window=more.pop("window", 200_000))
    one = agent(folder, *lines, session=session, **more)
    with_parts(one, tools={tool.name: tool for tool in TOOLS})
    kept = Path(f"{folder}-kept")
    kept.mkdir(exist_ok=True)

    def spill(name: str, data: bytes) -> str:
        (kept / name).write_bytes(data)
        return str(kept / name)

    one.world = replace(one.world, spill=spill)
    session.append(render_environment(Environment(one.world.root, "linux", "2026-01-01")))
    return wired(one)


def bodies(one: Agent) -> list[Any]:
    assert isinstance(one.model, Scripted)
    return [msgspec.json.decode(request.body) for request in one.model.requests]


def texts(body: Any) -> list[str]:
    """Every text that a request says to the model, but results."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block["text"] for block in blocks if block["type"] == "text"]


def file_text(body: Any, path: Path) -> str:
    """What the request's one copy of an instruction file says."""
    opening = f'<file path="{path}" from="'
    found = [text for text in texts(body) if opening in text]
    assert len(found) == 1, f"{len(found)} texts show {path}"
    head, _, rest = found[0].partition(opening)[2].partition(">\n")
    mark = head.rpartition('sha256="')[2].rstrip('"')
    return rest.partition(f"\n</file {mark}>")[0]


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def squeeze(one: Agent) -> Compacted:
    fact = anyio.run(lambda: compact_conversation(one, trigger="cold"))
    assert fact is not None
    return fact


def weighed(reply: Reply) -> Callable[[Request], Reply]:
    """The same reply with an honest count: three bytes are a token."""

    def count(request: Request) -> Reply:
        output = len(extract_text(reply.content)) // 3
        return replace(reply, usage=Usage(input=len(request.body) // 3, output=output))

    return count


def filler(one: Agent, number: int) -> None:
    """A turn that gives a compaction something to drop."""
    one.model = Scripted(weighed(say("so it is " * 4_000)))
    play(one, f"{number}: tell me more about it")


RULES = "".join(f"- Rule {n}: never rename column c{n * 7919}.\r\n" for n in range(20))


def test_twenty_rules_survive_five_compactions_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_bytes(RULES.encode())
    one = working(tmp_path, say("hi"))
    play(one)
    assert digest(file_text(bodies(one)[0], path)) == digest(RULES)
    text = RULES
    for number in range(5):
        filler(one, number)
        if number in (2, 3):
            text = f"{RULES}- Added {number}: é, \u2028, <tag>\n"
            path.write_bytes(text.encode())
        with_parts(one, layers=ContextLayers(tail=100))
        squeeze(one)
        resumed = wired(agent(tmp_path, say("on"), session=Session(MemoryLog(log(one).entries))))
        for each in (resumed, one):
            each.model = Scripted(say("on"))
            play(each, "go on")
            assert digest(file_text(bodies(each)[0], path)) == digest(text)
        one.session = resumed.session
    assert len(facts(one, Compacted)) == 5


def test_a_compaction_stays_one_fact(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text(RULES)
    one = working(tmp_path)
    filler(one, 1)
    before = len(log(one).entries)
    with_parts(one, layers=ContextLayers(tail=100, draft=False))
    squeeze(one)
    assert [type(entry.fact) for entry in log(one).entries[before:]] == [Compacted]


def test_a_file_that_changed_is_told_before_the_next_prompt_and_only_then(tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_text("Use tabs.\n")
    one = working(tmp_path, say("ok"))
    play(one)
    play(one)
    assert sum("Use tabs." in text for text in texts(bodies(one)[1])) == 1
    path.write_text("Use spaces.\n")
    play(one)
    play(one)
    notes = [text for text in texts(bodies(one)[3]) if text.startswith("<instructions>")]
    assert ["Use tabs." in notes[0], "Use spaces." in notes[1], len(notes)] == [True, True, 2]
    first, last = (request.body for request in one.model.requests[::3])  # type: ignore[attr-defined]
    assert last.startswith(first[: first.index(b'"messages"')])


def test_what_changed_around_is_told_at_the_tail(tmp_path: Path) -> None:
    one = working(tmp_path, say("ok"))
    play(one)
    with_parts(one, around=lambda: Environment(one.world.root, "linux", "2026-01-02", "topic"))
    play(one)
    play(one)
    told = "<environment>\nDate: 2026-01-02\nGit branch: topic\n</environment>"
    assert [text == told for text in texts(bodies(one)[2])].count(True) == 1
    with_parts(one, layers=ContextLayers(tail=100))
    filler(one, 1)
    summary = squeeze(one).summary[0]
    assert isinstance(summary, Text)
    assert "Date: 2026-01-02\nGit branch: topic" in summary.text
    count = len(facts(one, User))
    filler(one, 2)
    assert len(facts(one, User)) == count + 1


def nested_notes(one: Agent) -> list[str]:
    notes = [extract_text(fact.content) for fact in facts(one, User) if fact.origin == "note"]
    return [note for note in notes if note.startswith("<instructions>")]


def below(folder: Path) -> Path:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "AGENTS.md").write_text("In pkg: no prints. See @more.md\n")
    (folder / "pkg" / "more.md").write_text("More for pkg.\n")
    for name in ("a.py", "b.py", "c.py"):
        (folder / "pkg" / name).write_text(f"# {name}\n")
    return folder / "pkg" / "AGENTS.md"


@pytest.mark.parametrize(
    "touch",
    [
        call("Read", file_path="pkg/a.py"),
        call("Edit", file_path="pkg/a.py", old_string="# a.py", new_string="# A.py"),
        call("Write", file_path="pkg/fresh.py", content="1\n"),
        call("Bash", command="cat pkg/a.py"),
        calls(("Read", {"file_path": "pkg/a.py"}), ("Read", {"file_path": "pkg/b.py"})),
    ],
)
def test_instructions_below_come_after_the_results_and_once(tmp_path: Path, touch: Reply) -> None:
    path = below(tmp_path)
    one = working(tmp_path, touch, call("Read", file_path="pkg/b.py"), say("done"))
    assert play(one) == "end"
    (note,) = nested_notes(one)
    assert path.read_text() in note
    assert "More for pkg.\n" in note
    assert one.session.state[f"{INSTRUCTIONS_STATE_PREFIX}{path}"] == "Project"
    last = bodies(one)[1]["messages"][-1]
    assert [block["type"] for block in last["content"]][-2:] == ["tool_result", "text"]
    resumed = wired(agent(tmp_path, session=Session(MemoryLog(log(one).entries))))
    with_parts(resumed, tools=one.tools.by_name)
    resumed.model = Scripted(call("Read", file_path="pkg/c.py"), say("again"))
    play(resumed)
    assert nested_notes(resumed) == [note]


def test_instructions_below_come_back_after_each_compaction(tmp_path: Path) -> None:
    path = below(tmp_path)
    one = working(tmp_path, call("Read", file_path="pkg/a.py"), say("done"))
    play(one)
    with_parts(one, layers=ContextLayers(tail=100))
    for number in range(3):
        filler(one, number)
        path.write_text(f"In pkg, the {number}th time. See @more.md\n")
        squeeze(one)
        one.model = Scripted(say("on"))
        play(one, "go on")
        assert file_text(bodies(one)[0], path) == path.read_text()
        assert file_text(bodies(one)[0], tmp_path / "pkg/more.md") == "More for pkg.\n"
    one.model = Scripted(call("Read", file_path="pkg/b.py"), say("done"))
    play(one)
    assert len(nested_notes(one)) == 1


def test_a_denied_call_brings_no_instructions(tmp_path: Path) -> None:
    below(tmp_path)
    guard = Permissions(
        folders=(str(tmp_path),), rules=(parse_permission_rule("Read(pkg/**)", "deny"),)
    )
    one = working(tmp_path, call("Read", file_path="pkg/a.py"), say("ok"), guard=guard)
    play(one)
    assert nested_notes(one) == []


class Ears:
    """Hooks that only listen."""

    def __init__(self) -> None:
        self.heard: list[InstructionsLoaded] = []

    async def fire(
        self, occasion: AnyHookEvent, around: HookContext, **ignored: Any
    ) -> HookDecision:
        if isinstance(occasion, InstructionsLoaded):
            self.heard.append(occasion)
        return NO_DECISION


def test_hooks_hear_of_every_file_and_why_it_was_read(tmp_path: Path) -> None:
    path, top = below(tmp_path), tmp_path / "CLAUDE.local.md"
    top.write_text("Mine.\n")
    one = working(tmp_path, call("Read", file_path="pkg/a.py"), say("done"))
    ears = Ears()
    one.hooks.active = ears
    play(one)
    filler(one, 1)
    with_parts(one, layers=ContextLayers(tail=100))
    squeeze(one)
    started = InstructionsLoaded(str(top), "Local", "session_start")
    nested = InstructionsLoaded(str(path), "Project", "nested_traversal")
    more = InstructionsLoaded(str(tmp_path / "pkg/more.md"), "Project", "include")
    again = [replace(each, load_reason="compact") for each in (started, nested, more)]
    assert ears.heard == [started, nested, more, *again]


def test_files_that_are_too_long_or_not_shown_are_told_to_the_user(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("first line\n" + "rule " * 10_000 + "\n")
    (tmp_path / "CLAUDE.md").write_text("Keep it short.\nSee @/etc/hostname\n")
    one = working(tmp_path, say("ok"), window=16_000)
    warned: list[str] = []
    with one.session.watch() as events:
        play(one)
        play(one)
        while events.statistics().current_buffer_used:
            event = events.receive_nowait()
            warned += [event.text] if isinstance(event, UserWarned) else []
    assert warned == [
        f"/etc/hostname is ignored: it is outside {tmp_path}; `travois trust` would allow it",
        f"{tmp_path}/AGENTS.md is too long; the model sees only its first lines",
    ]
    (note,) = nested_notes(one)
    assert "Keep it short.\n" in note
    assert f"first line\n[1 of 2 lines. Read {tmp_path}/AGENTS.md for the rest.]" in note


# --- files ----------------------------------------------------------------------------------------


def reading(folder: Path, names: Iterable[str], **more: Any) -> Agent:
    """An agent that has read these files, one after the other, and then talked."""
    lines = [call("Read", file_path=name) for name in names]
    one = working(folder, *lines, say("done"), **more)
    play(one)
    filler(one, 1)
    with_parts(one, layers=ContextLayers(tail=100))
    return one


def shown_files(fact: Compacted) -> str:
    blocks = [block.text for block in fact.summary if isinstance(block, Text)]
    return "".join(text for text in blocks if text.startswith("<files>"))


def put(folder: Path, count: int, text: str = "content") -> list[str]:
    names = [f"f{number}.txt" for number in range(count)]
    for name in names:
        (folder / name).write_text(f"{text} of {name}\n")
    return names


def test_the_last_files_come_back_as_they_are_on_disk(tmp_path: Path) -> None:
    one = reading(tmp_path, put(tmp_path, 16))
    (tmp_path / "f14.txt").write_text("changed meanwhile\n")
    (tmp_path / "f13.txt").unlink()
    text = shown_files(squeeze(one))
    back = [n for n in range(16) if f"/f{n}.txt" in text]
    assert back == [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15]
    assert "changed meanwhile\n</file" in text
    assert "content of f15.txt\n</file" in text


def test_long_files_share_the_room_and_short_ones_stand_whole(tmp_path: Path) -> None:
    names = put(tmp_path, 8, text="some words that fill a file\n" * 4_000)
    (tmp_path / names[3]).write_text("short\n")
    text = shown_files(squeeze(reading(tmp_path, names, window=64_000)))
    parts = re.findall(r'<file path="[^"]*/(f\d).txt".*?</file \w+>', text, re.DOTALL)
    sizes = [estimate_tokens(part) for part in re.findall(r"<file .*?</file \w+>", text, re.DOTALL)]
    assert parts == names_of(names)
    assert sizes[3] < 100 and "\nshort\n</file" in text
    longer = [size for number, size in enumerate(sizes) if number != 3]
    assert max(longer) - min(longer) < 50, "an even share each"


def names_of(files: list[str]) -> list[str]:
    return [name.removesuffix(".txt") for name in files]


def test_files_still_shown_instructions_secrets_and_what_rules_hide_do_not_come_back(
    tmp_path: Path,
) -> None:
    (tmp_path / "AGENTS.md").write_text("Rules.\n")
    (tmp_path / "env.txt").write_text("KEY=sk-secret-value\n")
    outside = tmp_path.parent / f"{tmp_path.name}-outside.txt"
    outside.write_text("outside\n")
    names = ["AGENTS.md", "env.txt", str(outside), *put(tmp_path, 2)]
    one = reading(tmp_path, names, guard=Permissions(mode="bypass", folders=(str(tmp_path),)))
    one.session.secrets = Secrets((("KEY", "sk-secret-value"),))
    one.permissions.guard = replace(
        one.permissions.guard, rules=(parse_permission_rule("Read(f0.txt)", "deny"),)
    )
    one.model = Scripted(call("Read", file_path="f1.txt"), weighed(say("ok")))
    play(one)
    with_parts(one, layers=ContextLayers(tail=400))
    text = shown_files(squeeze(one))
    assert "KEY=[redacted: KEY]" in text
    for hidden in ("AGENTS.md", "outside", "f0.txt", "f1.txt"):
        assert hidden not in text


def test_a_file_that_is_shown_but_has_changed_since_comes_back(tmp_path: Path) -> None:
    (name,) = put(tmp_path, 1)
    one = working(tmp_path)
    filler(one, 1)
    one.model = Scripted(call("Read", file_path=name), weighed(say("ok")))
    play(one)
    with_parts(one, layers=ContextLayers(tail=400))
    (tmp_path / name).write_text("someone else was here\n")
    assert "someone else was here" in shown_files(squeeze(one))


def test_long_files_come_back_from_where_they_were_read(tmp_path: Path) -> None:
    lines = [f"line {number} with some words in it" for number in range(1, 4_001)]
    (tmp_path / "long.txt").write_text("\n".join(lines) + "\n")
    one = working(tmp_path, call("Read", file_path="long.txt", offset=2_000), say("ok"))
    play(one)
    filler(one, 1)
    filler(one, 2)
    with_parts(one, layers=ContextLayers(tail=100))
    text = shown_files(squeeze(one))
    assert 'lines="2000-' in text
    assert "\nline 2000 with" in text
    assert "line 1999 with" not in text
    assert 4_000 < estimate_tokens(text) < 5_200


def test_only_lines_that_were_asked_for_come_back(tmp_path: Path) -> None:
    lines = [f"line {number} with some words in it" for number in range(1, 4_001)]
    (tmp_path / "long.txt").write_text("\n".join(lines) + "\n")
    asked: list[dict[str, object]] = [
        {"file_path": "long.txt", "offset": at, "limit": 5} for at in (2_000, 3_000)
    ]
    one = working(tmp_path, calls(*(("Read", args) for args in asked)), say("ok"))
    play(one)
    filler(one, 1)
    filler(one, 2)
    with_parts(one, layers=ContextLayers(tail=100))
    text = shown_files(squeeze(one))
    assert re.findall(r'lines="(\S+) of', text) == ["2000-2004", "3000-3004"]


def test_a_file_whose_page_was_cut_for_want_of_room_comes_back_from_there_on(
    tmp_path: Path,
) -> None:
    """The page is still shown, but not what the model had asked for beyond it."""
    lines = [f"line {number} with some words in it" for number in range(1, 6_001)]
    (tmp_path / "long.txt").write_text("\n".join(lines) + "\n")
    one = working(tmp_path, window=1_000_000)
    for number in range(5):
        filler(one, number)
    one.model = Scripted(call("Read", file_path="long.txt"), weighed(say("ok")))
    play(one)
    page = extract_text(facts(one, Result)[-1].content)
    assert (stopped := re.search(r"lines 1-(\d+) of 6,000; continue with", page))
    with_parts(one, layers=ContextLayers(tail=40_000))
    fact = squeeze(one)
    assert page in "".join(extract_text(item.fact.content) for item in one.session.view.items)
    assert f'lines="{int(stopped[1]) + 1}-' in shown_files(fact)


def test_a_page_that_was_asked_for_and_is_shown_does_not_come_back(tmp_path: Path) -> None:
    lines = [f"line {number} with some words in it" for number in range(1, 401)]
    (tmp_path / "long.txt").write_text("\n".join(lines) + "\n")
    one = working(tmp_path)
    filler(one, 1)
    one.model = Scripted(call("Read", file_path="long.txt", limit=5), weighed(say("ok")))
    play(one)
    with_parts(one, layers=ContextLayers(tail=5_000))
    assert shown_files(squeeze(one)) == ""


@pytest.mark.parametrize("window", [16_000, 64_000, 200_000])
def test_files_take_at_most_an_eighth_of_the_window(tmp_path: Path, window: int) -> None:
    names = put(tmp_path, 5, text="some words that fill a file\n" * 4_000)
    one = reading(tmp_path, names, window=window)
    text = shown_files(squeeze(one))
    assert 0 < estimate_tokens(text) <= 0.12 * window + 300


def test_restoring_can_be_switched_off(tmp_path: Path) -> None:
    one = reading(tmp_path, put(tmp_path, 2))
    with_parts(one, layers=ContextLayers(tail=100, restore=False))
    assert shown_files(squeeze(one)) == ""


def test_a_fifo_in_the_place_of_a_file_holds_nothing_up(tmp_path: Path) -> None:
    one = reading(tmp_path, put(tmp_path, 1))
    (tmp_path / "f0.txt").unlink()
    os.mkfifo(tmp_path / "f0.txt")
    assert shown_files(squeeze(one)) == ""
