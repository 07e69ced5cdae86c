"""Files of a repository are found by their names, symbols, words and past commits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.local import Local
from travois.permissions.decide import Permissions
from travois.permissions.resolve_paths import hidden_path_filter
from travois.permissions.rules import parse_permission_rule
from travois.tools import code_index
from travois.tools.code_index import CodeIndex, CodeProgress
from travois.tools.codebase_search import CODEBASE_SEARCH

FILES = {
    "till/ledger.py": "class Ledger:\n    def append_entry(self): ...\n",
    "till/retry.py": "def wait_before_retry(attempt):\n    return 2 ** attempt\n",
    "till/money.py": "ROUNDING = 2\n\n\ndef round_money(amount):\n    return amount\n",
    "docs/weather.md": "It rains.\n",
}


def git(root: Path, *args: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(("git", *who, *args), cwd=root, check=True, capture_output=True)


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    for path, text in FILES.items():
        write(root, path, text)
    git(root, "init", "-q")
    return root


@pytest.fixture
def index(tmp_path: Path, root: Path) -> CodeIndex:
    return CodeIndex(tmp_path / "index.db", str(root))


def found(index: CodeIndex, text: str) -> list[str]:
    return [match.path for match in index.search(text, limit=3)]


def always(progress: CodeProgress) -> bool:
    return True


def test_a_file_is_found_by_path_by_symbol_and_by_text(index: CodeIndex) -> None:
    assert index.refresh(always) == CodeProgress(ready=len(FILES), left=0)
    assert found(index, "the ledger")[0] == "till/ledger.py"
    assert found(index, "how long to wait before the next retry")[0] == "till/retry.py"
    assert found(index, "round amounts of money")[0] == "till/money.py"
    assert found(index, "zebra") == []


def test_a_match_shows_the_line_that_tells(index: CodeIndex) -> None:
    index.refresh(always)
    match = index.search("round_money", limit=1)[0]
    assert (match.line, match.lines) == (4, ("ROUNDING = 2", "def round_money(amount):"))


def test_what_commits_said_of_a_file_finds_it(index: CodeIndex, root: Path) -> None:
    git(root, "add", "till/retry.py")
    git(root, "commit", "-qm", "survive a flaky network")
    git(root, "add", ".")
    git(root, "commit", "-qm", "everything else")
    index.refresh(always)
    assert found(index, "flaky network")[0] == "till/retry.py"
    write(root, "docs/weather.md", "It snows.\n")
    git(root, "commit", "-qam", "tell of the blizzard")
    index.refresh(always)
    assert found(index, "blizzard")[0] == "docs/weather.md"
    git(root, "reset", "-q", "--hard", "HEAD~1")
    git(root, "commit", "-q", "--allow-empty", "-m", "another way")
    index.refresh(always)
    assert found(index, "blizzard") == []


def test_a_file_that_changes_with_the_best_one_is_found_but_not_one_that_only_changes_often(
    index: CodeIndex, root: Path
) -> None:
    git(root, "add", "till/ledger.py", "till/money.py")
    git(root, "commit", "-qm", "begin")
    for number in range(5):
        write(root, "till/retry.py", f"TRIES = {number}\n")
        git(root, "add", "till/retry.py")
        git(root, "commit", "-qm", "tune")
    index.refresh(always)
    assert found(index, "ledger") == ["till/ledger.py", "till/money.py"]
    write(root, "till/ledger.py", "class Tally: ...\n")
    git(root, "commit", "-qam", "rename")
    index.refresh(always)
    assert index._read_history() == [
        ["till/ledger.py", "till/money.py"], *[["till/retry.py"]] * 5, ["till/ledger.py"],
    ]  # fmt: skip


def test_only_what_changed_is_read_again(
    index: CodeIndex, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.refresh(always)
    read: list[str] = []
    real = CodeIndex._read_source_text
    monkeypatch.setattr(
        CodeIndex, "_read_source_text", lambda self, path: read.append(path) or real(self, path)
    )
    write(root, "till/ledger.py", "class Tally: ...\n")
    (root / "till/money.py").unlink()
    assert index.refresh(always) == CodeProgress(ready=3, left=0)
    assert read == ["till/ledger.py"]
    assert found(index, "tally")[0] == "till/ledger.py"
    assert found(index, "append_entry") == []
    assert "till/money.py" not in found(index, "round money")


def test_ignored_binary_and_large_files_have_no_text(index: CodeIndex, root: Path) -> None:
    write(root, ".gitignore", "secret.txt\n")
    write(root, "secret.txt", "the zebra\n")
    (root / "picture.bin").write_bytes(b"\0 the zebra")
    write(root, "large.txt", "the zebra\n" * code_index.MAX_INDEXED_FILE_BYTES)
    (root / "link.txt").symlink_to(root / "secret.txt")
    index.refresh(always)
    assert found(index, "zebra") == []


def test_what_is_left_is_read_the_next_time(
    index: CodeIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_index, "FILES_PER_BATCH", 1)
    assert index.refresh(lambda progress: False) == CodeProgress(ready=1, left=3)
    assert index.refresh(always) == CodeProgress(ready=4, left=0)


def test_a_damaged_index_is_made_again(index: CodeIndex, tmp_path: Path) -> None:
    index.refresh(always)
    index.close()
    (tmp_path / "index.db").write_bytes(b"junk" * 4096)
    assert index.refresh(always).left == 0
    assert found(index, "ledger")[0] == "till/ledger.py"


def test_the_tool_answers_and_hides_what_rules_deny(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    world = Local(root)
    assert "till/retry.py:1" in world.say(CODEBASE_SEARCH, query="wait before retry").split("\n")
    assert not list(root.glob("**/*.db")), "the index lies outside the repository"
    rule = parse_permission_rule("Read(till/retry.py)", "deny")
    world.hidden = hidden_path_filter(Permissions(rules=(rule,)), "CodebaseSearch", root=str(root))
    said = world.say(CODEBASE_SEARCH, query="wait before retry")
    assert "till/retry.py" not in said
    assert "denied by a permission rule" in said


def test_the_command_prints_files_and_their_lines(tmp_path: Path, root: Path) -> None:
    done = subprocess.run(
        (sys.executable, "-P", "-m", "travois", "search", "--code", "append an entry"),
        cwd=root,
        env={**os.environ, "TRAVOIS_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("till/ledger.py:2\n    def append_entry(self): ...\n")
