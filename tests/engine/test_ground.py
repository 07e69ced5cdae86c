"""Looking at a repository that would have git start programs needs a question."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from travois.engine.ground import understood
from travois.engine.tool import Here
from travois.policy.access import Access

TRAPS = (
    ("core.fsmonitor", "./evil.sh"),
    ("diff.external", "./evil.sh"),
    ("diff.x.textconv", "./evil.sh"),
    ("filter.x.clean", "./evil.sh"),
    ("core.pager", "./evil.sh"),
    ("include.path", "../evil"),
)


def looks(folder: Path) -> bool:
    (plan,) = understood((Access("exec", "git status"),), Here(str(folder), str(folder)))
    return plan.looks


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
