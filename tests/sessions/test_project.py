from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from travois.sessions import home as project
from travois.sessions.home import Project, TravoisHome, identify_project


@pytest.fixture
def home(tmp_path: Path) -> TravoisHome:
    return TravoisHome(tmp_path / "home").prepare()


def git(folder: Path, *args: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True)


def repository(folder: Path, *, commit: str = "first") -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", commit)
    return folder


def test_a_moved_repository_keeps_its_key(tmp_path: Path, home: TravoisHome) -> None:
    folder = repository(tmp_path / "one")
    before = identify_project(home, str(folder))
    moved = folder.rename(tmp_path / "two")
    assert identify_project(home, str(moved)) == Project(before.key, str(moved))


def test_clones_worktrees_and_folders_inside_share_the_key(
    tmp_path: Path, home: TravoisHome
) -> None:
    main = repository(tmp_path / "main")
    git(tmp_path, "clone", "-q", str(main), "clone")
    git(main, "worktree", "add", "-q", str(tmp_path / "tree"))
    (main / "src").mkdir()
    places = [main, tmp_path / "clone", tmp_path / "tree", main / "src"]
    found = [identify_project(home, str(place)) for place in places]
    roots = [main, tmp_path / "clone", tmp_path / "tree", main]
    assert found == [Project(found[0].key, str(root)) for root in roots]


def test_merging_another_history_does_not_change_the_key(tmp_path: Path, home: TravoisHome) -> None:
    main = repository(tmp_path / "main")
    other = repository(tmp_path / "other", commit="unrelated")
    before = identify_project(home, str(main))
    git(main, "fetch", "-q", str(other))
    git(main, "merge", "-q", "--allow-unrelated-histories", "-m", "both", "FETCH_HEAD")
    shutil.rmtree(home.projects)
    assert identify_project(home, str(main)) == before


def test_git_is_not_asked_twice(
    tmp_path: Path, home: TravoisHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(tmp_path / "one")
    before = identify_project(home, str(folder))
    monkeypatch.setenv("PATH", "")
    assert identify_project(home, str(folder)) == before


def test_another_repository_in_the_same_place_has_another_key(
    tmp_path: Path, home: TravoisHome
) -> None:
    before = identify_project(home, str(repository(tmp_path / "one")))
    shutil.rmtree(tmp_path / "one")
    after = identify_project(home, str(repository(tmp_path / "one", commit="something else")))
    assert after.key != before.key


def test_sessions_from_before_the_first_commit_still_belong(
    tmp_path: Path, home: TravoisHome
) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    plain = identify_project(home, str(folder))
    git(folder, "init", "-q")
    assert identify_project(home, str(folder)) == plain
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    after = identify_project(home, str(folder))
    assert after.key.startswith("git-")
    assert after.also == (plain.key,)


def test_without_git_a_repository_is_known_by_its_path(
    tmp_path: Path, home: TravoisHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository(tmp_path / "one")
    (folder / "src").mkdir()
    monkeypatch.setenv("PATH", "")
    found = identify_project(home, str(folder / "src"))
    assert found == Project(found.key, str(folder))
    assert found.key.startswith("dir-")


def test_a_moved_folder_keeps_its_key(tmp_path: Path, home: TravoisHome) -> None:
    (tmp_path / "one").mkdir()
    before = identify_project(home, str(tmp_path / "one"))
    (tmp_path / "one").rename(tmp_path / "two")
    assert identify_project(home, str(tmp_path / "two")) == Project(
        before.key, str(tmp_path / "two")
    )
    (tmp_path / "two").rename(tmp_path / "three")
    assert identify_project(home, str(tmp_path / "three")).key == before.key


def test_a_folder_in_the_place_of_a_moved_one_is_another(tmp_path: Path, home: TravoisHome) -> None:
    (tmp_path / "one").mkdir()
    before = identify_project(home, str(tmp_path / "one"))
    (tmp_path / "one").rename(tmp_path / "two")
    identify_project(home, str(tmp_path / "two"))
    (tmp_path / "one").mkdir()
    assert identify_project(home, str(tmp_path / "one")).key != before.key


def test_a_folder_that_got_the_inode_of_a_deleted_one_is_another(
    tmp_path: Path, home: TravoisHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    births = iter(["monday", "tuesday"])
    monkeypatch.setattr(project, "_inode_and_birth", lambda folder: ("1-2", next(births)))
    (tmp_path / "one").mkdir()
    before = identify_project(home, str(tmp_path / "one"))
    (tmp_path / "one").rmdir()
    (tmp_path / "two").mkdir()
    assert identify_project(home, str(tmp_path / "two")).key != before.key


def test_a_birth_is_told_and_stays(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    born = project._birth_time(str(tmp_path / "one"))
    (tmp_path / "one").rename(tmp_path / "two")
    assert project._birth_time(str(tmp_path / "two")) == born
    assert project._birth_time("/") != born


def test_a_home_that_cannot_be_written_to_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = TravoisHome(tmp_path / "file" / "home")
    assert identify_project(home, str(tmp_path)) == identify_project(home, str(tmp_path))


def test_a_link_to_a_folder_is_that_folder(tmp_path: Path, home: TravoisHome) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    assert identify_project(home, str(tmp_path / "link")) == identify_project(
        home, str(tmp_path / "one")
    )


def test_sessions_are_found_after_the_repository_was_removed(
    tmp_path: Path, home: TravoisHome
) -> None:
    folder = repository(tmp_path / "a")
    before = identify_project(home, str(folder))
    shutil.rmtree(folder / ".git")
    assert before.key in identify_project(home, str(folder)).keys


def test_git_is_asked_only_where_there_may_be_a_commit(
    tmp_path: Path, home: TravoisHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, programs = tmp_path / "work", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    git(folder, "init", "-q")
    fake = programs / "git"
    fake.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexit 1\n")
    fake.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        assert identify_project(home, str(folder)).key.startswith("dir-")
        assert not (tmp_path / "asked").exists()
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    git(folder, "pack-refs", "--all")
    assert identify_project(home, str(folder)).key.startswith("git-")
