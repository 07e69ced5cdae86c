"""Where the files of a configured program lie, so that its sandbox can show them."""

from __future__ import annotations

import os
import re

WORD = re.compile(r"[^\s'\"=;|&()<>{},`]+")


def find_folders(*texts: str) -> tuple[str, ...]:
    """Return the folders of the files that a command line names by absolute path.

    A whole home, or a folder at the top of the disk, is never one of them.
    """
    found: dict[str, None] = {}
    home = os.path.expanduser("~")
    for word in (word for text in texts for word in WORD.findall(text)):
        path = os.path.expanduser(os.path.expandvars(word))
        folder = os.path.realpath(os.path.dirname(path))
        deep = folder.count(os.sep) > 1 and folder != os.path.realpath(home)
        if os.path.isabs(path) and os.path.isfile(path) and deep:
            found[folder] = None
    return tuple(found)
