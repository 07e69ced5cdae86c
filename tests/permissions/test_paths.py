"""Where paths lie, what patterns may mean, and what readers of whole folders may come across."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from travois.compose.explain import PermissionCase, RuleTexts, decide_case
from travois.permissions.paths import pattern_reaches_folder


@pytest.mark.parametrize(
    ("pattern", "folder", "found"),
    [
        ("./secrets/**", "/w", True),
        ("./secrets/**", "/w/secrets", True),
        ("./secrets/**", "/w/secrets/deep", True),
        ("./secrets/**", "/w/src", False),
        ("./secrets/**", "/w/secrets-not", False),
        ("./Secrets/", "/W/SECRETS", True),
        ("./a*/key", "/w/src", True),
        ("./src/a*/key", "/w/docs", False),
        ("~/.ssh/**", "/w", False),
        ("~/.ssh/**", "/home/u", True),
        ("//etc/passwd", "/etc", True),
        ("//etc/passwd", "/", True),
        ("//etc/passwd", "/w", False),
        ("**/.env", "/w/src", True),
        (".env", "/w/src", True),
        (".env", "/", True),
        (".env", "/elsewhere", False),
    ],
)
def test_a_folder_may_hold_what_a_pattern_means(pattern: str, folder: str, *, found: bool) -> None:
    assert pattern_reaches_folder(pattern, folder, root="/w", home="/home/u") is found


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    for name in ("secrets/a.key", "src/app.py", "docs/a.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("needle\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("needle\n")
    (folder / "docs" / "link.md").symlink_to(tmp_path / "out" / "a.txt")
    (folder / "out").symlink_to(tmp_path / "out")
    return folder


@pytest.mark.parametrize(
    ("command", "effect"),
    [
        ("grep -r needle src", "allow"),
        ("grep -r needle .", "ask"),
        ("rg needle", "ask"),
        ("rg needle src", "allow"),
        ("cat src/*", "allow"),
        ("cat secrets/*", "deny"),
        ("cat secrets/a.key", "deny"),
        ("cat docs/*.md", "ask"),
        ("cat docs/link.md", "ask"),
        ("grep -r needle out", "ask"),
        ("find out -name a.txt", "ask"),
        ("cat out/a.txt", "ask"),
        ("head -n 1 docs/*", "ask"),
    ],
)
def test_commands_that_read_many_files_ask_if_one_of_them_is_another_matter(
    command: str, effect: str, ground: Path
) -> None:
    case = PermissionCase(
        input=json.dumps({"command": command}).encode(),  # type: ignore[arg-type]
        rules=RuleTexts(deny=("Read(./secrets/**)",)),
        workspace=str(ground),
    )
    assert decide_case(case, own=()).effect == effect
