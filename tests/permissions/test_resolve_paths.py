"""Facts of the disk: repositories that have git start programs, and the two meanings of /tmp."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from travois.permissions.access import Access
from travois.permissions.resolve_paths import LocatedPath, PathUser, locate_path, plan_command_lines
from travois.ports.tool import CallLocation, ToolError

BY: tuple[PathUser, ...] = ("tool", "command")
TRAPS = (
    ("core.fsmonitor", "./evil.sh"),
    ("diff.external", "./evil.sh"),
    ("diff.x.textconv", "./evil.sh"),
    ("filter.x.clean", "./evil.sh"),
    ("core.pager", "./evil.sh"),
    ("include.path", "../evil"),
)


def looks(folder: Path) -> bool:
    (plan,) = plan_command_lines(
        (Access("exec", "git status"),), CallLocation(str(folder), str(folder))
    )
    return plan.is_read_only


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def test_a_plain_repository_may_be_looked_at(repository: Path) -> None:
    assert looks(repository)


@pytest.mark.parametrize(("key", "value"), TRAPS)
def test_a_repository_that_names_programs_may_not(repository: Path, key: str, value: str) -> None:
    subprocess.run(["git", "-C", str(repository), "config", key, value], check=True)
    assert not looks(repository)


def test_nor_one_whose_hook_runs_when_the_index_is_refreshed(repository: Path) -> None:
    folder = repository / ".husky"
    folder.mkdir()
    subprocess.run(["git", "-C", str(repository), "config", "core.hooksPath", ".husky"], check=True)
    assert looks(repository)
    (folder / "post-index-change").write_text("#!/bin/sh\n")
    assert not looks(repository)


# --- /tmp ----------------------------------------------------------------------------------------


@pytest.fixture
def machine() -> Iterator[Path]:
    """A folder in the machine's own /tmp, with a file in it."""
    folder = Path(tempfile.mkdtemp(prefix="travois-machine-", dir="/tmp"))
    (folder / "a").write_text("a")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def here(tmp_path: Path) -> CallLocation:
    for name in ("work", "private"):
        (tmp_path / name).mkdir()
    return CallLocation(str(tmp_path / "work"), str(tmp_path / "work"), str(tmp_path / "private"))


def test_a_new_path_of_tmp_is_private_to_the_session(here: CallLocation) -> None:
    for by in BY:
        for name in ("/tmp/made/here", "/var/tmp/made/here"):
            assert locate_path(name, here, by=by) == LocatedPath(
                f"{here.temp}/made/here", "private"
            )
        assert locate_path("/tmp", here, by=by) == LocatedPath(here.temp, "private")


def test_a_file_tool_sees_the_machines_file_until_the_session_has_one(
    here: CallLocation, machine: Path
) -> None:
    path = str(machine / "a")
    private = f"{here.temp}/{machine.name}/a"
    assert locate_path(path, here, by="tool") == LocatedPath(path, "machine")
    assert locate_path(path, here, by="command") == LocatedPath(private, "private")
    os.makedirs(os.path.dirname(private))
    Path(private).write_text("mine")
    assert locate_path(path, here, by="tool") == LocatedPath(private, "private")


def test_workspace_and_folders_apart_are_what_they_are_below_tmp(
    here: CallLocation, machine: Path
) -> None:
    apart = CallLocation(here.root, here.cwd, here.temp, (str(machine / "x"),))
    for by in BY:
        assert locate_path(f"{here.root}/a", apart, by=by) == LocatedPath(f"{here.root}/a")
        assert locate_path(str(machine / "x/new"), apart, by=by) == LocatedPath(
            str(machine / "x/new")
        )
    # What the sandbox mounts such a folder on is no folder of the session's.
    os.makedirs(f"{here.temp}/{machine.name}/x")
    assert locate_path(str(machine), apart, by="tool") == LocatedPath(str(machine), "machine")


def test_a_link_leads_to_the_tmp_that_a_command_would_find_there(
    here: CallLocation, machine: Path
) -> None:
    os.symlink("/tmp/made", f"{here.root}/link")
    os.symlink("/tmp/made", f"{here.temp}/inner")
    os.symlink(str(machine / "a"), f"{here.root}/theirs")
    made = LocatedPath(f"{here.temp}/made", "private")
    for by in BY:
        assert locate_path(f"{here.root}/link", here, by=by) == made
        assert locate_path("/tmp/inner", here, by=by) == made
    assert locate_path(f"{here.root}/theirs", here, by="tool") == LocatedPath(
        str(machine / "a"), "machine"
    )


def test_links_that_go_round_in_a_circle_are_refused(here: CallLocation) -> None:
    os.symlink("/tmp/two/x", f"{here.temp}/one")
    os.symlink("/tmp/one/x", f"{here.temp}/two")
    with pytest.raises(ToolError):
        locate_path("/tmp/one", here, by="command")


def test_without_a_private_folder_tmp_is_the_machines(machine: Path) -> None:
    for by in BY:
        assert locate_path(str(machine / "b"), CallLocation("/w", "/w"), by=by) == LocatedPath(
            str(machine / "b")
        )
