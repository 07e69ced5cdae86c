"""Git folders of checkouts count only where both name each other."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from travois.permissions.resolve_paths import find_sibling_checkout, shared_git_folder
from travois.sessions.home import find_verified_repository


def git(folder: Path, *args: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    local = ("-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, *local, *args], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """A repository with a worktree beside it and a submodule in it."""
    for name in ("library", "main"):
        (tmp_path / name).mkdir()
        git(tmp_path / name, "init", "-q")
        git(tmp_path / name, "commit", "-q", "--allow-empty", "-m", "first")
    folder = tmp_path / "main"
    git(folder, "worktree", "add", "-q", str(tmp_path / "tree"))
    git(folder, "submodule", "add", "-q", str(tmp_path / "library"), "sub")
    git(folder / "sub", "worktree", "add", "-q", str(tmp_path / "sub-tree"))
    return folder


def test_checkouts_that_git_made_are_recognised(tmp_path: Path, main: Path) -> None:
    modules = main / ".git" / "modules" / "sub"
    found = {
        folder: shared_git_folder(str(folder))
        for folder in (main, tmp_path / "tree", main / "sub", tmp_path / "sub-tree")
    }
    assert found == {
        main: str(main / ".git"),
        tmp_path / "tree": str(main / ".git"),
        main / "sub": str(modules),
        tmp_path / "sub-tree": str(modules),
    }
    assert find_verified_repository(str(tmp_path / "tree")) == (
        str(tmp_path / "tree"),
        str(main / ".git"),
    )


def test_links_by_relative_paths_are_recognised(tmp_path: Path, main: Path) -> None:
    tree, own = tmp_path / "tree", main / ".git" / "worktrees" / "tree"
    (tree / ".git").write_text(f"gitdir: {os.path.relpath(own, tree)}\n")
    (own / "gitdir").write_text(f"{os.path.relpath(tree / '.git', own)}\n")
    assert shared_git_folder(str(tree)) == str(main / ".git")


def forge(folder: Path, main: Path, how: str) -> None:
    """Make a folder say that the git folder of somebody else's repository is its own."""
    own = folder / "own"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "gitdir").write_text(f"{folder}/.git\n")
    (own / "config").write_text(f'[core]\n\tworktree = "{folder}"\n')
    if how.startswith("own"):
        (own / "commondir").write_text(f"{main}/.git\n")
    if how == "own, by a link":
        (folder / "worktrees").symlink_to(main / ".git" / "worktrees")
    told = {
        "the git folder": main / ".git",
        "a worktree": main / ".git" / "worktrees" / "tree",
        "a submodule": main / ".git" / "modules" / "sub",
        "own": own,
        "own, by a link": folder / "worktrees" / "tree",
        "a link to the git folder": folder / "link",
    }
    (folder / "link").symlink_to(main / ".git")
    (folder / ".git").write_text(f"gitdir: {told[how]}\n")


@pytest.mark.parametrize(
    "how",
    [
        *("the git folder", "a worktree", "a submodule", "own", "own, by a link"),
        "a link to the git folder",
    ],
)
def test_a_forged_git_file_gives_no_right_over_another_repository(
    tmp_path: Path, main: Path, how: str
) -> None:
    folder = tmp_path / "forged"
    forge(folder, main, how)
    assert shared_git_folder(str(folder)) == ""
    assert find_verified_repository(str(folder))[1] == ""
    assert find_sibling_checkout(str(main / "x"), str(folder), home="/home/u") == ""
    assert find_sibling_checkout(str(folder / "x"), str(main), home="/home/u") == ""


def test_a_git_file_that_is_a_pipe_or_a_link_is_none(tmp_path: Path, main: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    os.mkfifo(folder / ".git")
    assert shared_git_folder(str(folder)) == ""
    (folder / ".git").unlink()
    (folder / ".git").symlink_to(tmp_path / "tree" / ".git")
    assert shared_git_folder(str(folder)) == ""


def test_other_checkouts_of_the_repository_are_siblings(tmp_path: Path, main: Path) -> None:
    tree, home = tmp_path / "tree", "/home/u"
    assert find_sibling_checkout(str(main / "src" / "x"), str(tree), home=home) == str(main)
    assert find_sibling_checkout(str(tree / "x"), str(main), home=home) == str(tree)
    assert find_sibling_checkout(str(main / "x"), str(main), home=home) == ""
    assert find_sibling_checkout(str(tmp_path / "library" / "x"), str(main), home=home) == ""
    assert find_sibling_checkout(str(tree / "x"), str(main), home=str(tree / "home")) == ""
    # A worktree that only the git folder names any more is none.
    (tree / ".git").unlink()
    assert find_sibling_checkout(str(tree / "x"), str(main), home=home) == ""


def test_a_link_to_the_git_folder_of_another_repository_shows_nothing_of_it(
    tmp_path: Path, main: Path
) -> None:
    forged = tmp_path / "forged"
    forged.mkdir()
    (forged / ".git").symlink_to(main / ".git")
    assert shared_git_folder(str(forged)) == ""
    assert find_sibling_checkout(str(main / "file"), str(forged), home="/home/none") == ""
