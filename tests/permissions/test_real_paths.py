"""Paths are judged by where they lead: compared with a real disk."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import msgspec
import pytest

from travois.compose.explain import PermissionCase, RuleTexts, decide_case
from travois.permissions.paths import is_inside, pattern_allows_path, pattern_mentions_path

PARTS = ("a", "b", "..", ".", "", "link", "out", "up", "self", "A", "b.", " a")


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A workspace with links inside it, out of it, and to itself, beside another folder."""
    work, other = tmp_path / "ws", tmp_path / "ws-other"
    (work / "a" / "b").mkdir(parents=True)
    (work / "b").mkdir()
    (other / "a").mkdir(parents=True)
    for name, target in (("link", "a"), ("out", "../ws-other"), ("up", ".."), ("self", ".")):
        (work / name).symlink_to(target)
    (work / "a" / "out").symlink_to(other / "a")
    for folder in (work, work / "a", work / "b", other, other / "a"):
        (folder / "f").write_text("x")
    return work


def effect(disk: Path, tool: str, path: str) -> str:
    given = {"file_path": path} | ({"content": "x"} if tool == "Write" else {})
    raw = msgspec.Raw(json.dumps(given).encode())
    case = PermissionCase("", tool, raw, "accept-edits", RuleTexts(), workspace=str(disk))
    return decide_case(case, own=(str(disk.parent / "own"),)).effect


@pytest.mark.parametrize("tool", ["Read", "Write"])
@pytest.mark.parametrize("seed", range(6))
def test_a_path_is_free_exactly_where_the_disk_says_it_is_inside(
    disk: Path, tool: str, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        path = "/".join((*chance.choices(PARTS, k=chance.randint(1, 5)), "f"))
        spelt = path.lstrip("/") if chance.random() < 0.5 else f"{disk}/{path}"
        meant = os.path.normpath(f"{disk}/{path}")  # what is judged is also what is opened
        real = os.path.realpath(meant)
        within = real.startswith(f"{os.path.realpath(disk)}/")
        assert (effect(disk, tool, spelt) == "allow") <= within, spelt
        if within and os.path.exists(meant):
            assert effect(disk, tool, spelt) == "allow", spelt


@pytest.mark.parametrize("tool", ["Read", "Write"])
@pytest.mark.parametrize(
    "path", ["/proc/self/root/etc/passwd", "/proc/self/environ", "//etc/passwd", "~/x", "../f"]
)
def test_ways_around_the_workspace_are_not_free(disk: Path, tool: str, path: str) -> None:
    assert effect(disk, tool, path) != "allow"


@pytest.mark.parametrize("sibling", ["ws-other/f", "ws/../ws-other/f", "wsx", "WS-OTHER/f"])
def test_a_sibling_with_the_same_beginning_is_outside(disk: Path, sibling: str) -> None:
    assert not is_inside(str(disk.parent / sibling), str(disk))


@pytest.mark.parametrize("spelling", [".env", ".ENV", "./.env", "a/../.env", ".e\u00adnv", "．env"])
def test_a_deny_rule_means_every_spelling(spelling: str) -> None:
    assert pattern_mentions_path("./.env", f"/w/{spelling}", root="/w", home="/h")


@pytest.mark.parametrize("stars", range(1, 7))
def test_many_stars_match_long_paths_in_linear_steps(stars: int) -> None:
    pattern = "//" + "**/a*a*a/" * stars + "z"
    path = "/" + "aaaaaaaaab/" * 300 + "y"
    assert not pattern_mentions_path(pattern, path, root="/w", home="/h")
    assert not pattern_allows_path(pattern, path, root="/w", home="/h")
    assert pattern_mentions_path(pattern, "/" + "x/aaaa/" * stars + "z", root="/w", home="/h")
