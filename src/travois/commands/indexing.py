"""Indexing in the background, in a process that outlives the command that starts it."""

from __future__ import annotations

import sys

from travois.lazy_imports import lazy_imports
from travois.terminal import print_warning

with lazy_imports():
    import subprocess


def start_indexing(*flags: str, quietly: bool = False) -> None:
    """Start indexing recorded sessions in another process, which ends if one is running."""
    if not quietly:
        print_warning("the rest is being indexed in the background; --wait waits for it")
    subprocess.Popen(
        (sys.executable, "-P", "-m", "travois", "search", *flags, "--catch-up"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
