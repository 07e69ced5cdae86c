"""Landlock rulesets are built once for a profile, and again when what they rest on changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.sandbox.caged import Scene, scene, walls
from travois.process.local_processes import LocalProcesses
from travois.sandbox.rulesets import SETTLED_NS

SETTLED = SETTLED_NS / 1e9 + 0.1
HOME_FILES = 50


def in_home(act: Callable[[Scene, Path, Reader], None]) -> None:
    """Play in a workspace that is a home with much in it, whose keys are hidden."""
    behind = walls("partial")
    with scene() as held:
        home = held.work
        for number in range(HOME_FILES):
            (home / f"file{number}").write_text(f"text {number}")
        hidden = tuple(str(home / name) for name in (".ssh", ".netrc"))
        (home / ".ssh").mkdir()
        (home / ".ssh" / "key").write_text("SECRET")
        caged = Scene(home, held.outside, held.but(hidden=hidden, shown=(str(home),)))
        processes = LocalProcesses(support=behind)
        with anyio.from_thread.start_blocking_portal() as portal:
            try:
                act(caged, home, Reader(caged, processes, portal))
            finally:
                portal.call(processes.aclose)


class Reader:
    """Runs commands in the sandbox, and knows how often its rules were built."""

    def __init__(
        self, held: Scene, processes: LocalProcesses, portal: anyio.from_thread.BlockingPortal
    ) -> None:
        self._held, self._processes, self._portal = held, processes, portal

    def sh(self, line: str) -> str:
        done = self._portal.call(lambda: self._processes.run(self._held.sh(line), timeout=60))
        return done.output.head_and_tail().decode().strip()

    @property
    def builds(self) -> int:
        assert self._processes._rulesets is not None
        return self._processes._rulesets.builds


def test_commands_in_a_home_that_nobody_changes_share_one_ruleset() -> None:
    def act(held: Scene, home: Path, reader: Reader) -> None:
        time.sleep(SETTLED)
        quiet = [parent.stat().st_mtime_ns for parent in home.parents]
        for number in range(5):
            told = reader.sh(f"cat file{number}; echo; cat .ssh/key")
            assert told.startswith(f"text {number}\ncat:")
            reader.sh(f"echo changed > file{number}")  # a change of a file moves nothing
        still = [parent.stat().st_mtime_ns for parent in home.parents]
        assert reader.builds == 1 or quiet != still  # other tests work in the folders above

    in_home(act)


@pytest.mark.parametrize("name", [".netrc", ".ssh/other"])
def test_a_hidden_file_that_comes_later_is_hidden(name: str) -> None:
    def act(held: Scene, home: Path, reader: Reader) -> None:
        time.sleep(SETTLED)
        assert reader.sh("cat file1") == "text 1"
        (home / name).write_text("SECRET")
        assert "SECRET" not in reader.sh(f"cat {name}")

    in_home(act)


def test_a_home_without_anything_hidden_hides_what_comes_later() -> None:
    def act(held: Scene, home: Path, reader: Reader) -> None:
        (home / ".ssh" / "key").unlink()
        (home / ".ssh").rmdir()
        time.sleep(SETTLED)
        assert reader.sh("echo made > new; cat new") == "made"  # so nothing is left out here
        (home / ".netrc").write_text("SECRET")
        assert "SECRET" not in reader.sh("cat .netrc")
        assert reader.sh("cat new") == "made"

    in_home(act)


def test_a_file_that_moved_to_a_hidden_place_is_hidden() -> None:
    def act(held: Scene, home: Path, reader: Reader) -> None:
        time.sleep(SETTLED)
        assert reader.sh("cat file1") == "text 1"
        os.rename(home / "file1", home / ".ssh" / "file1")
        assert "text 1" not in reader.sh("cat .ssh/file1")
        os.link(home / "file2", home / "again")
        os.rename(home / "again", home / ".ssh" / "again")
        assert reader.sh("cat file3") == "text 3"

    in_home(act)


def test_a_hidden_link_that_leads_elsewhere_hides_what_it_leads_to() -> None:
    def act(held: Scene, home: Path, reader: Reader) -> None:
        (home / "project").mkdir()
        (home / "project" / "keys").write_text("SECRET")
        (home / "first").write_text("first")
        (home / ".netrc").symlink_to(home / "first")
        time.sleep(SETTLED)
        assert reader.sh("cat project/keys; cat first 2>/dev/null") == "SECRET"
        (home / ".netrc").unlink()
        (home / ".netrc").symlink_to(home / "project" / "keys")
        assert "SECRET" not in reader.sh("cat project/keys .netrc")

    in_home(act)


def test_new_and_replaced_files_can_be_used_by_the_next_command() -> None:
    def act(held: Scene, home: Path, reader: Reader) -> None:
        time.sleep(SETTLED)
        assert reader.sh("cat file1") == "text 1"
        for number in range(4):  # at any moment, also right after the rules were built
            (home / f"new{number}").write_text(f"new {number}")
            assert reader.sh(f"cat new{number}") == f"new {number}"
            (home / "swap").write_text(f"swapped {number}")
            os.replace(home / "swap", home / "file1")
            assert reader.sh("cat file1; echo x >> file1; tail -c 2 file1") == (
                f"swapped {number}x"
            )

    in_home(act)


def test_a_workspace_that_was_made_anew_is_the_workspace() -> None:
    def act(held: Scene, home: Path, reader: Reader) -> None:
        (home / "file1").write_text("old")
        time.sleep(SETTLED)
        assert reader.sh("cat file1") == "old"
        os.rename(home, home.with_name("old"))
        home.mkdir()
        (home / "file1").write_text("new")
        assert reader.sh("cat file1") == "new"

    in_home(act)
