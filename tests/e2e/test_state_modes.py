"""Whatever the umask, what Travois keeps is for its owner only."""

from __future__ import annotations

import os
import stat
from base64 import b64decode
from pathlib import Path
from typing import Any

from tests.e2e.program import Program

FREE = ("--permission-mode", "bypass")
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)


def too_open(folder: Path) -> list[str]:
    """What in a folder others could read or change."""
    found: list[str] = []
    theirs = folder / "tmp"  # what commands make in their /tmp is as open as they want
    for path in (folder, *folder.rglob("*")):
        if path.parent != theirs and theirs in path.parents:
            continue
        mode = path.lstat().st_mode
        shared = path.is_file() and path.stat().st_nlink > 1  # a hard link to the user's own git
        if not stat.S_ISLNK(mode) and mode & 0o077 and not shared:
            found.append(f"{stat.filemode(mode)} {path.relative_to(folder)}")
    return found


def use(name: str, **given: Any) -> dict[str, Any]:
    return {"say": [{"tool_use": {"name": name, "input": given}}]}


def test_all_that_is_kept_is_for_its_owner_only(program: Program) -> None:
    program.launcher = ("sh", "-c", 'umask 000 && exec "$@"', "sh", *program.launcher)
    program.folder.joinpath("p.png").write_bytes(b64decode(PICTURE))
    script = [
        use("Write", file_path="a.txt", content="one\n"),
        use("Read", file_path="p.png"),
        use("Edit", file_path="a.txt", old_string="one", new_string="two"),
        use("Bash", command="seq 1 100000; touch b.txt; echo > /tmp/here"),
        use("Bash", command="sleep 0.1", run_in_background=True),
        use("TaskCreate", subject="x", description="y"),
        use("Agent", description="d", prompt="look", subagent_type="general"),
        "I looked.",
        "Done.",
        *["[]"] * 6,
    ]
    with program.served(script):
        done = program.ask("remember that I like tea", *FREE)
        assert done.code == 0, done.err
        for argv in (
            ("-p", "again", "--continue", *program.model, *FREE),
            ("sessions", "list"),
            ("search", "tea"),
            ("memory", "add", "tea", "--text", "I like tea"),
            ("rewind", "--list"),
            ("doctor",),
        ):
            program.run(*argv)
    assert "\n".join(too_open(program.home)) == ""


def test_what_was_too_open_before_is_closed_by_the_next_start(program: Program) -> None:
    with program.served(["ok", "ok"]):
        program.ask("go")
        for path in (program.home, program.home / "sessions"):
            os.chmod(path, 0o755)
        program.ask("go")
    assert too_open(program.home) == []
