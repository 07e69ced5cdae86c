"""Which programs another one has started, as the kernel tells of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def kin(of: int) -> dict[int, str]:
    """The living descendants of a process, with their command lines."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            parents |= {int(folder.name): int(parent)} if state not in "ZX" else {}
    found = {of}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: line(pid) for pid in found - {of}}


def line(pid: int) -> str:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
