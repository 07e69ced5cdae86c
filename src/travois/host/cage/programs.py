"""Where programs in use lie below /tmp, which the full sandbox covers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from travois.policy.cage import TMP
from travois.policy.paths import inside

PACKAGE = str(Path(__file__).absolute().parents[2])


def find_own_below_tmp() -> tuple[str, ...]:
    """Return the folders below /tmp that hold this program: part of it runs in the sandbox."""
    python = os.path.dirname(os.path.realpath(sys.executable))
    return _below_tmp((sys.prefix, sys.base_prefix, python, PACKAGE))


def find_programs_below_tmp() -> tuple[str, ...]:
    """Return the folders below /tmp that hold this program, its libraries and those on PATH."""
    return tuple(dict.fromkeys((*find_own_below_tmp(), *_below_tmp(sys.path + os.get_exec_path()))))


def _below_tmp(paths: Iterable[str]) -> tuple[str, ...]:
    """Of these folders, those below /tmp; where a link leads to one, under both names."""
    named = filter(os.path.isabs, paths)
    both = (one for path in named for one in (os.path.normpath(path), os.path.realpath(path)))
    roots = {*TMP, *map(os.path.realpath, TMP)}
    below = (path for path in dict.fromkeys(both) if any(inside(path, root) for root in roots))
    return tuple(path for path in below if path not in roots and os.path.isdir(path))
