"""Writes the licences of all packages that Travois needs at run time into NOTICE.

`python scripts/notice.py` writes them; with `--check` it only tells what NOTICE lacks and ends
with 1 then. Packages that only another platform or Python needs stay as long as the lock file has
them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from inventory import Package, normalised, runtime_packages

ROOT = Path(__file__).parent.parent
NOTICE = ROOT / "NOTICE"
LOCK = ROOT / "requirements-dev.lock"
OWN = ("travois", "travois-lab")
HEADING = """\
The packages that Travois needs at run time, optional ones included, and their licences (SPDX). They
are installed beside Travois and are not part of it. Written by scripts/notice.py.
"""
ENTRY = re.compile(r"^  (\S+): (.+)$", re.MULTILINE)


def main(args: list[str]) -> int:
    """Write or check the list; ends with 1 where something is missing or wrong."""
    packages = {name: each for name, each in runtime_packages().items() if name not in OWN}
    unknown = [each.name for each in packages.values() if not each.licence]
    if unknown:
        return complain(f"no licence is told by the metadata of {', '.join(unknown)}")
    text = NOTICE.read_text("utf-8")
    wanted = render(text, packages, locked(LOCK.read_text("utf-8")))
    if "--check" in args:
        return 0 if text == wanted else complain("NOTICE is out of date; run: make notice")
    NOTICE.write_text(wanted, "utf-8")
    return 0


def render(text: str, packages: dict[str, Package], kept: frozenset[str]) -> str:
    """Return NOTICE with this list of packages; `kept` ones stay if they stand there."""
    own, _, listed = text.partition(HEADING)
    before = {name: told for name, told in ENTRY.findall(listed) if name in kept}
    licences = before | {each.name: each.licence for each in packages.values()}
    lines = "".join(f"  {name}: {told}\n" for name, told in sorted(licences.items()))
    return f"{own.rstrip()}\n\n{HEADING}\n{lines}"


def locked(text: str) -> frozenset[str]:
    """Return the names of all packages in a lock file."""
    return frozenset(
        normalised(name) for name in re.findall(r"^([\w.-]+)(?:\[.*\])?==", text, re.MULTILINE)
    )


def complain(why: str) -> int:
    """Tell on standard error what is wrong."""
    sys.stderr.write(f"notice: {why}\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
