"""Where programs in use lie below /tmp, which the full sandbox covers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from travois.policy.cage import TMP
from travois.policy.paths import inside


def find_programs_below_tmp() -> tuple[str, ...]:
    """Return the folders below /tmp that hold this program and those on PATH.

    A folder that a link leads to is named under both names: PATH uses that of the link.
    """
    python = (sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)))
    package = str(Path(__file__).absolute().parents[2])
    named = filter(os.path.isabs, (*python, package, *sys.path, *os.get_exec_path()))
    both = (one for path in named for one in (os.path.normpath(path), os.path.realpath(path)))
    roots = {*TMP, *map(os.path.realpath, TMP)}
    below = (path for path in dict.fromkeys(both) if any(inside(path, root) for root in roots))
    return tuple(path for path in below if path not in roots and os.path.isdir(path))
