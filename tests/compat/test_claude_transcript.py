"""A session in the lines of another agent, as its reader and programs for hooks find it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from travois.compat.claude_transcript import ClaudeTranscriptWriter, encode_claude_transcript
from travois.compat.sessions import claude
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.content import Media, Text
from travois.core.facts import Compacted, Entry, Rewound, User
from travois.testing import Scripted, call, calls, say

LAST = """
import json, sys
event = json.load(sys.stdin)
lines = [json.loads(line) for line in open(event["transcript_path"])]
said = [l["message"]["content"][0] for l in lines if l["type"] == "assistant"]
print(said[-1].get("text", said[-1]["type"]), file=open("last", "a"))
"""


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("needle\n")
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return Options(cwd=str(folder), sandbox=False)


def talk(options: Options, *lines: Any) -> tuple[list[Entry], str]:
    """What a session came to, and where programs read it."""

    async def main() -> tuple[list[Entry], str]:
        async with LiveSession(options, model=Scripted(*lines)) as session:
            await session.ask("look at both")
            agent = session.runtime.agent
            return agent.session.all_entries(), agent.hooks.write_transcript()

    return anyio.run(main)


def read(lines: list[bytes], folder: Path) -> list[tuple[str, str]]:
    """The conversation as the reader of that format has it; notes are left out."""
    path = folder / "exported.jsonl"
    path.write_bytes(b"".join(lines))
    return [(turn.who, turn.text) for turn in claude.read_session(path).turns if turn.who != "note"]


def nothing(name: str) -> bytes:
    raise KeyError(name)


def test_the_reader_of_that_format_finds_the_conversation_in_its_order(
    options: Options, tmp_path: Path
) -> None:
    both = calls(("Read", {"file_path": "a.txt"}), ("Read", {"file_path": "gone.txt"}))
    entries, path = talk(options, both, say("One is gone."))
    found = read(encode_claude_transcript(ClaudeTranscriptWriter("s1", nothing), entries), tmp_path)
    assert [who for who, _ in found] == ["user", "model", "model", "tool", "tool", "model"]
    assert (found[0][1], found[-1][1]) == ("look at both", "One is gone.")
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    answers = [one for one in lines if "sourceToolAssistantUUID" in one]
    named = {one["uuid"]: one["message"]["content"][0] for one in lines if "message" in one}
    for one in answers:
        (block,) = one["message"]["content"]
        assert named[one["sourceToolAssistantUUID"]]["id"] == block["tool_use_id"]


def test_the_file_that_grows_is_what_would_be_written_at_once(options: Options) -> None:
    hook = {"type": "command", "command": "true"}
    listening = json.dumps({"hooks": {"PreToolUse": [{"hooks": [hook]}]}})
    heard = replace(options, settings=listening)
    _, before = talk(heard, call("Read", file_path="a.txt"), say("One."))
    Path(before).unlink()
    entries, path = talk(replace(heard, latest=True), say("Two."))
    again = encode_claude_transcript(ClaudeTranscriptWriter(Path(path).stem, nothing), entries)
    assert Path(path).read_bytes() == b"".join(again)
    assert Path(path).stat().st_mode & 0o777 == 0o600


def test_a_program_that_reads_the_transcript_finds_the_last_words(options: Options) -> None:
    script = Path(options.cwd, "last.py")
    script.write_text(LAST)
    hook = {"type": "command", "command": f"{sys.executable} {script}"}
    tree = {"hooks": {event: [{"hooks": [hook]}] for event in ("PreToolUse", "Stop")}}
    heard = replace(options, settings=json.dumps(tree))
    talk(heard, call("Read", file_path="a.txt"), say("There is a needle."))
    assert Path(options.cwd, "last").read_text() == "tool_use\nThere is a needle.\n"


def test_what_was_taken_back_is_no_part_of_the_branch_and_a_summary_begins_another(
    options: Options, tmp_path: Path
) -> None:
    entries, _ = talk(options, say("First."))
    last = entries[-1]
    human = next(e.seq for e in entries if isinstance(e.fact, User) and e.fact.origin == "human")
    facts = (
        Rewound(human),
        User((Text("again"),)),
        Compacted(human, human, (Text("They wanted both."),), "model", before=900),
        User((Text("and a picture"), Media("image", "image/png", "b", 1))),
    )
    more = [Entry(last.seq + n, last.at, fact) for n, fact in enumerate(facts, 1)]
    lines = encode_claude_transcript(
        ClaudeTranscriptWriter("s1", lambda name: b"png"), [*entries, *more]
    )
    found = read(lines, tmp_path)
    assert [text for who, text in found if who == "user"][-2:] == ["again", "and a picture"]
    assert "First." not in [text for _, text in found]
    (compaction,) = claude.read_session(tmp_path / "exported.jsonl").compactions
    assert (compaction.summary, compaction.kept, compaction.tokens) == ("They wanted both.", 1, 900)
    picture = json.loads(lines[-1])["message"]["content"][1]["source"]
    assert picture == {"type": "base64", "media_type": "image/png", "data": "cG5n"}
