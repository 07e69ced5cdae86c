"""Notes by the real program: kept while it works, shown, taken by a compaction, and never torn."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import travois_lab as lab
from tests.e2e.program import Program, read
from tests.e2e.test_kill import mortal
from travois.context.session_memory.notes import decode_notes
from travois.core.content import extract_text
from travois.core.facts import Compacted, Ended, Entry, Noted, Spawned
from travois_lab import Prompt, call, text

ASKED = "keeps notes on this conversation in one file"
SIZE = ("--model", "anthropic/claude-opus-5-5[40k]")
COMPACTS = ("--settings", json.dumps({"context": {"clearPressure": False}}))
"""A compaction comes where clearing old results would do."""
FREE = (*SIZE, *COMPACTS, "--permission-mode", "bypass")
READS = 50


def model(prompt: Prompt, state: dict[str, Any]) -> list[dict[str, Any]]:
    """Reads one file after another; asked for notes, it edits them and tries one thing more."""
    if ASKED in prompt.last_text:
        path = re.findall(r"in one file, (\S+?),", prompt.last_text)[-1]
        held = prompt.last_text.rpartition("<notes>")[2]
        line = re.findall(r"^# Worklog\n(.*)$", held, flags=re.MULTILINE)[-1]
        fresh = f"{'' if line.startswith('(') else line + '; '}update {held.count('update')}"
        edit = call("Edit", file_path=path, old_string=line, new_string=fresh)
        return [edit, call("Bash", command="touch made-by-notes")]
    if prompt.last_text.startswith("Not run:") or "may only make partial edits" in prompt.last_text:
        return [text("")]
    if "done" in prompt.last_text:
        return [text("done")]
    step = state["step"] = state.get("step", 0) + 1
    return [call("Read", file_path=f"f{step % READS}.txt")] if step % READS else [text("done")]


def furnish(program: Program) -> Program:
    program.folder.mkdir(parents=True, exist_ok=True)
    for number in range(READS):
        lines = (f"{number}-{line}: words of file {number}, (x + {line});\n" for line in range(90))
        (program.folder / f"f{number}.txt").write_text("".join(lines))
    return program


def updates(entries: list[Entry]) -> list[Entry]:
    return [e for e in entries if isinstance(e.fact, Noted) and e.fact.what == "notes"]


def test_notes_are_kept_shown_and_taken_by_a_compaction(program: Program) -> None:
    furnish(program)
    with program.served(model) as api:
        done = program.run("-p", "read them all", *FREE)
        assert (done.code, done.out) == (0, "done\n"), done.err
        api.no_invalid()
        api.no_orphans()
    entries = program.facts()
    held = [decode_notes(e.fact.text) for e in updates(entries) if isinstance(e.fact, Noted)]
    assert held and "update 0" in held[0].text
    assert not (program.folder / "made-by-notes").exists()
    assert program.run("notes").out.startswith("# Title\n")
    (told,) = json.loads(program.run("notes", "--json").out)
    assert (told["text"], told["covers"]) == (held[-1].text, held[-1].covers)
    (file,) = program.home.glob("sessions/*/*/tool-results/notes.md")
    assert file.read_text("utf-8") == held[-1].text
    cuts = [e.fact for e in entries if isinstance(e.fact, Compacted)]
    asked = [e.fact.what for e in entries if isinstance(e.fact, Spawned)]
    assert (
        cuts
        and "Worklog" in extract_text(cuts[0].summary)
        and "update 0" in extract_text(cuts[0].summary)
    )
    assert "summary" not in asked


def test_killed_during_an_update_notes_are_as_they_were_or_as_they_are(
    program: Program, tmp_path: Path
) -> None:
    with lab.server(model) as api:
        place = scene(program, "whole", api)
        assert place.run("-p", "read them all", *FREE).code == 0
        entries = place.facts()
    begun = next(e.seq for e in entries if isinstance(e.fact, Spawned) and e.fact.what == "notes")
    noted = updates(entries)[0].seq
    for fatal, manner in ((begun, "after"), (noted, "before"), (noted, "torn"), (noted, "after")):
        with lab.server(model) as api:
            place = scene(program, f"{manner}{fatal}", api)
            done = mortal(place, fatal, manner, tmp_path / "acks").run("-p", "read all", *FREE)
            assert done.code == -9, done.err
            survived(place, api)


def scene(program: Program, name: str, api: lab.Api) -> Program:
    folder, home = program.folder / name, program.home / name
    return furnish(replace(program, folder=folder, home=home, url=api.url))


def survived(place: Program, api: lab.Api) -> None:
    """What was noted is whole, the session goes on, and notes are kept again."""
    (log,) = place.logs()
    done = place.run("-p", "go on", "-c", "--permission-mode", "bypass")
    assert (done.code, done.out) == (0, "done\n"), done.err
    entries = read(log)
    assert any(isinstance(entry.fact, Ended) for entry in entries)
    for entry in updates(entries):
        assert isinstance(entry.fact, Noted)
        assert "# Title\n" in decode_notes(entry.fact.text).text
    assert updates(entries)
    api.no_orphans()
    api.no_invalid()
