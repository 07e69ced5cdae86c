"""Two copies of a session, compacted by the program: the second one asks nobody."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.program import Program
from travois_lab import Prompt, call, text


def model(prompt: Prompt, state: dict[str, Any]) -> list[dict[str, Any]]:
    last = str(prompt.messages[-1])
    if "will soon be set aside" in last or "set aside" in last:
        state["asked"] = state.get("asked", 0) + 1
        return [text(f"Summary number {state['asked']}.")]
    if "read" in prompt.last_text and not prompt.results:
        return [call("Read", file_path="a.txt")]
    return [text("done")]


def test_a_copy_reuses_the_summary_of_its_original(program: Program) -> None:
    (program.folder / "a.txt").write_text("words of a file\n" * 400)
    quiet = '{"context":{"notes":false}}'
    with program.served(model) as api:
        assert program.ask("read a.txt", "--settings", quiet).code == 0
        (first,) = json.loads(program.run("sessions", "--json").out)
        for number in range(3):
            assert program.run("-p", f"more {number}", "-c").code == 0
        copied = program.run("-p", "hello", "-r", first["id"], "--fork-session")
        assert copied.code == 0, copied.err
        ids = [one["id"] for one in json.loads(program.run("sessions", "--json").out)]
        (copy,) = [id for id in ids if id != first["id"]]
        before = len(api.bodies)
        original = program.run("compact", first["id"], "--settings", quiet)
        assert original.code == 0, original.err
        asked = len(api.bodies) - before
        again = program.run("compact", copy, "--settings", quiet)
        assert again.code == 0, again.err
        assert asked == 1
        assert len(api.bodies) - before == asked
    (folder,) = (program.home / "summaries").glob("*/*")
    assert len([*folder.iterdir()]) == 1
    assert (folder.stat().st_mode & 0o777) == 0o700
