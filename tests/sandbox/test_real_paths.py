"""Real paths that are looked up once per folder are the real paths."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from travois.sandbox.hidden_files import cache_real_paths, real_path

NAMES = ("a", "b", "c")


def _grow(root: Path, chance: random.Random) -> list[str]:
    """A tree with folders, files and links: sideways, up, absolute, broken and in circles."""
    folders = [root]
    for _ in range(14):
        place = chance.choice(folders) / chance.choice(NAMES)
        if os.path.lexists(place):
            continue
        match chance.randrange(4):
            case 0:
                place.write_text("x")
            case 1 | 2:
                place.mkdir()
                folders.append(place)
            case _:
                goal = chance.choice(
                    (
                        chance.choice(NAMES),
                        f"../{chance.choice(NAMES)}",
                        str(chance.choice(folders)),
                    )
                )
                place.symlink_to(goal)
    names = [chance.choices(NAMES, k=chance.randint(1, 4)) for _ in range(60)]
    return [os.path.join(root, *parts) for parts in names]


@pytest.mark.parametrize("seed", range(40))
def test_a_remembered_path_is_the_real_one(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    paths = _grow(tmp_path, chance)
    paths += [f"{path}/" for path in paths[:5]] + [f"{path}/../a" for path in paths[:5]]
    with cache_real_paths():
        assert {path: real_path(path) for path in paths} == {p: os.path.realpath(p) for p in paths}


def test_nothing_is_remembered_afterwards(tmp_path: Path) -> None:
    link = tmp_path / "link"
    with cache_real_paths():
        assert real_path(str(link)) == str(link)
    link.symlink_to("elsewhere")
    with cache_real_paths():
        assert real_path(str(link)) == str(tmp_path / "elsewhere")
    assert real_path(str(link)) == str(tmp_path / "elsewhere")
