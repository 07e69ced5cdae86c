"""What an edit changed, as lines with numbers and colours."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from travois.tools.diff import Hunk, Patch
from travois.tui.cells import clean, cut
from travois.tui.themes import Role, Theme

MOST = 40
"""How many lines of one edit are shown before the rest is only counted."""
SIGNS: dict[str, Role] = {"+": "good", "-": "bad"}


def patch(detail: str) -> Patch | None:
    """The patch that a result tells of, if it tells of one."""
    try:
        return msgspec.json.decode(detail, type=Patch)
    except msgspec.DecodeError:
        return None


def tally(change: Patch, theme: Theme) -> str:
    """How many lines came and went."""
    came = theme.mark(f"+{change.added}", "good") if change.added or not change.removed else ""
    went = theme.mark(f"-{change.removed}", "bad") if change.removed else ""
    return " ".join(part for part in (came, went) if part)


def lines(change: Patch, theme: Theme, columns: int, *, most: int = MOST) -> list[str]:
    """The change line by line; what is too long is counted."""
    shown = [line for hunk in change.structured_patch for line in _hunk(hunk, theme, columns)]
    rest = len(shown) - most
    if change.truncated:
        return [theme.mark("    too long to be shown", "quiet")]
    more = [theme.mark(f"    … {rest} more lines", "quiet")] if rest > 0 else []
    return shown[:most] + more


def unified(diff: str, theme: Theme, columns: int, *, most: int = MOST) -> list[str]:
    """A unified diff, without the lines that only say where it stands."""
    kept = [line for line in diff.splitlines() if not line.startswith(("---", "+++", "@@"))]
    return [_line(line, "", theme, columns) for line in kept[:most]]


def _hunk(hunk: Hunk, theme: Theme, columns: int) -> Iterator[str]:
    old, new = hunk.old_start, hunk.new_start
    digits = len(str(max(old + hunk.old_lines, new + hunk.new_lines)))
    for line in hunk.lines:
        number = old if line.startswith("-") else new
        yield _line(line, f"{number:>{digits}}", theme, columns)
        old += not line.startswith("+")
        new += not line.startswith("-")


def _line(line: str, number: str, theme: Theme, columns: int) -> str:
    sign, text = line[:1], clean(line[1:])
    body = cut(text, columns - len(number) - 7)
    at = f"    {theme.mark(number, 'quiet')} " if number else "    "
    role = SIGNS.get(sign)
    return at + (theme.mark(f"{sign} {body}", role) if role else f"  {body}")
