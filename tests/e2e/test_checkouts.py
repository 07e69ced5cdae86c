"""Other checkouts of a repository in the real program: read without a question, never written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.glass import use
from tests.e2e.program import Program, has_landlock_backend
from tests.e2e.test_hands import results
from tests.permissions.test_checkouts import forge, git

AUTO = ("--permission-mode", "auto")


@pytest.fixture
def tree(program: Program) -> Iterator[Program]:
    """The program in a worktree, with the main checkout and another repository beside it."""
    with TemporaryDirectory(prefix=".travois-test-", dir=Path.home()) as name:
        for folder in (Path(name, "main"), Path(name, "other")):
            folder.mkdir()
            git(folder, "init", "-q")
            (folder / "a.txt").write_text(f"text of {folder.name}")
            git(folder, "add", "a.txt")
            git(folder, "commit", "-q", "-m", "first")
        git(Path(name, "main"), "worktree", "add", "-q", "--detach", str(Path(name, "tree")))
        yield replace(program, folder=Path(name, "tree"))


def ask(program: Program, *lines: str) -> list[str]:
    """Let the model run these commands one after the other; returns what it is told of each."""
    calls = ({"say": [use("Bash", command=line)]} for line in lines)
    with program.served([*calls, {"say": [{"text": "ok"}]}]):
        assert program.ask("go", *AUTO).out == "ok\n"
    return results(program)


def test_the_main_checkout_is_read_and_not_written_and_others_ask(tree: Program) -> None:
    if has_landlock_backend():
        pytest.skip("without namespaces no command runs unasked in mode auto that reads outside")
    main, other = tree.folder.parent / "main", tree.folder.parent / "other"
    told = ask(
        tree,
        f"cat {main}/a.txt",
        f"cat {other}/a.txt",
        f"python3 -c 'import sys; print(open(sys.argv[1]).read())' {main}/a.txt",
        f'python3 -c \'open("{main}/c", "w")\' {main}/a.txt',
    )
    assert "text of main" in told[0]
    assert "text of other" not in told[1]
    assert "text of main" in told[2]
    assert "Read-only file system" in told[3]
    assert sorted(path.name for path in main.iterdir()) == [".git", "a.txt"]


def test_a_forged_git_file_opens_no_other_repository(tree: Program) -> None:
    main, forged = tree.folder.parent / "main", tree.folder.parent / "forged"
    forge(forged, main, "the git folder")
    told = ask(
        replace(tree, folder=forged),
        f'python3 -c \'open("{main}/.git/planted", "w")\'',
        f"python3 -c 'print(open(\"{main}/a.txt\").read())'",
    )
    assert not (main / ".git" / "planted").exists()
    assert "text of main" not in "".join(told)
