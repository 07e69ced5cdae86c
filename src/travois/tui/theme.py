"""Themes: the colours of text roles, code and diffs, at the depth that the terminal has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports

with lazy_imports():
    from travois.sessions import home


TextRole = Literal["accent", "good", "bad", "warn", "quiet", "strong", "frame"]
ThemeBase = Literal["dark", "light", "none"]
ColourDepth = Literal[0, 4, 8, 24]
"""Bits of a colour: none, the terminal's own 16, 256, all."""
AUTO_THEME = "auto"
RESET_CODE = "\x1b[0m"
THEMES_FOLDER = Path(__file__).parent / "themes"
HEX_PATTERN = re.compile(r"#[0-9a-fA-F]{6}")
BRIGHT_BACKGROUNDS = ("7", "15")
"""What `COLORFGBG` says of a light terminal."""
LIGHT_LUMINANCE = 0.18
"""On a brighter background black text is easier to read than white."""
PLAIN_CODES = {"quiet": "2", "frame": "2", "strong": "1", "changed": "1"}
"""Without colours."""
ANSI_CODES: dict[ThemeBase, dict[str, str]] = {
    "dark": {
        "accent": "36",
        "good": "32",
        "bad": "31",
        "warn": "33",
        "added": "32",
        "removed": "31",
        "keyword": "35",
        "string": "32",
        "number": "36",
        "name": "34",
        "comment": "2",
        "type": "33",
        **PLAIN_CODES,
        "changed": "1;4",
    },
    "light": {
        "accent": "34",
        "good": "32",
        "bad": "31",
        "warn": "35",
        "added": "32",
        "removed": "31",
        "keyword": "35",
        "string": "34",
        "number": "34",
        "name": "36",
        "comment": "2",
        "type": "31",
        **PLAIN_CODES,
        "changed": "1;4",
    },
    "none": PLAIN_CODES,
}
"""With 16 colours the terminal's own scheme decides how each looks."""
GROUND_ROLES = ("added", "removed", "added-word", "removed-word")
"""Backgrounds; all other roles are text."""
COLOUR_ROLES = (
    *("accent", "good", "bad", "warn", "quiet", "frame", "text", *GROUND_ROLES),
    *("keyword", "string", "number", "name", "type", "comment"),
)
CUBE_LEVELS = (0, 95, 135, 175, 215, 255)


class ThemeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A theme as it is written in a file; roles that it leaves out are those of its base."""

    base: Literal["dark", "light"]
    colors: dict[str, str | tuple[str, int]]
    """`#rrggbb` for each role; a pair names the entry of the 256-colour table to use instead."""


class Theme(msgspec.Struct, frozen=True):
    """The colours of all roles as terminal codes."""

    name: str
    base: ThemeBase
    depth: ColourDepth
    codes: Mapping[str, str]

    def mark(self, text: str, role: TextRole) -> str:
        """Return the text in the colour of a role."""
        code = self.codes.get(role, "")
        return f"\x1b[{code}m{text}{RESET_CODE}" if code and text else text

    @property
    def has_grounds(self) -> bool:
        """True if changed lines of a diff have a coloured background."""
        return self.depth > 4


def own_themes_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the user's own colour themes."""
    return Path(home.locate_home(environ).config, "themes")


def list_themes(folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """List all theme names, the user's own last."""
    own = (path.stem for folder in folders for path in sorted(folder.glob("*.json")))
    shipped = sorted(path.stem for path in THEMES_FOLDER.glob("*.json"))
    return tuple(dict.fromkeys((AUTO_THEME, *shipped, "none", *own)))


def resolve_theme(
    name: str,
    environ: Mapping[str, str],
    *,
    folders: Sequence[Path] = (),
    background: tuple[int, int, int] | None = None,
) -> Theme:
    """Return the theme of this name; for "auto", one that suits the terminal's background."""
    if name == "none" or (name == AUTO_THEME and environ.get("NO_COLOR")):
        return Theme("none", "none", 0, PLAIN_CODES)
    if name == AUTO_THEME:
        name = "light" if _is_light(background, environ) else "dark"
    chosen, depth = _read_theme(name, folders), detect_colour_depth(environ)
    if depth == 4:
        return Theme(name, chosen.base, depth, ANSI_CODES[chosen.base])
    colours = {**_read_theme(chosen.base, ()).colors, **chosen.colors}
    codes = {role: _encode_colour(role, colour, depth) for role, colour in colours.items()}
    return Theme(name, chosen.base, depth, {**codes, "strong": "1", "changed": "1"})


def choose_theme(
    name: str, environ: Mapping[str, str], *, background: tuple[int, int, int] | None = None
) -> Theme:
    """Return the theme of this name, which may be the user's own."""
    folders = (own_themes_folder(environ),)
    return resolve_theme(name, environ, folders=folders, background=background)


def detect_colour_depth(environ: Mapping[str, str]) -> ColourDepth:
    """Detect how many colours the terminal supports, for the theme."""
    term = environ.get("TERM", "")
    if environ.get("COLORTERM", "") in ("truecolor", "24bit") or term.endswith("-direct"):
        return 24
    return 8 if "256" in term else 4


def read_background_reply(reply: str) -> tuple[int, int, int] | None:
    """Read the terminal's answer to the question about its background colour (OSC 11)."""
    found = re.search(r"rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)", reply)
    if found is None:
        return None
    red, green, blue = (
        round(int(part, 16) * 255 / (16 ** len(part) - 1)) for part in found.groups()
    )
    return red, green, blue


def luminance(colour: tuple[int, int, int]) -> float:
    """Return a theme colour's relative luminance (WCAG 2)."""
    parts = [part / 255 for part in colour]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def parse_hex(colour: str) -> tuple[int, int, int]:
    """Parse a theme's colour `#rrggbb`."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def find_table_colour(number: int) -> tuple[int, int, int]:
    """Return a colour of the terminal's 256-colour table: from 16 on, a cube, then grays."""
    if number >= 232:
        gray = 8 + 10 * (number - 232)
        return gray, gray, gray
    at = number - 16
    return CUBE_LEVELS[at // 36], CUBE_LEVELS[at // 6 % 6], CUBE_LEVELS[at % 6]


def find_nearest_number(colour: tuple[int, int, int]) -> int:
    """Return the number in the 256-colour table nearest to a theme's colour."""

    def distance(number: int) -> int:
        other = find_table_colour(number)
        return sum((one - two) ** 2 for one, two in zip(colour, other, strict=True))

    cube = (min(range(6), key=lambda at: abs(CUBE_LEVELS[at] - part)) for part in colour)
    red, green, blue = cube
    gray = min(max(round((sum(colour) / 3 - 8) / 10), 0), 23)
    return min(16 + 36 * red + 6 * green + blue, 232 + gray, key=distance)


def _is_light(background: tuple[int, int, int] | None, environ: Mapping[str, str]) -> bool:
    if background is not None:
        return luminance(background) > LIGHT_LUMINANCE
    return environ.get("COLORFGBG", "").rpartition(";")[2] in BRIGHT_BACKGROUNDS


def _encode_colour(role: str, colour: str | tuple[str, int], depth: ColourDepth) -> str:
    """Encode a theme role's colour as a terminal code."""
    where = "48" if role in GROUND_ROLES else "38"
    exact, number = colour if isinstance(colour, tuple) else (colour, None)
    if depth == 24:
        return ";".join((where, "2", *map(str, parse_hex(exact))))
    return f"{where};5;{find_nearest_number(parse_hex(exact)) if number is None else number}"


def _read_theme(name: str, folders: Sequence[Path]) -> ThemeFile:
    """Read a theme file; raise `UserError` if it is missing or invalid."""
    file = next(
        (
            path
            for folder in (*folders, THEMES_FOLDER)
            if (path := folder / f"{name}.json").is_file()
        ),
        None,
    )
    if file is None or "/" in name:
        known = ", ".join(list_themes(folders))
        raise UserError(f"Unknown theme {name!r}", fix=f"Choose one of: {known}.")
    try:
        theme = msgspec.json.decode(file.read_bytes(), type=ThemeFile)
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(f"The theme {file} cannot be used", why=str(error)) from None
    for role, colour in theme.colors.items():
        exact, number = colour if isinstance(colour, tuple) else (colour, 16)
        if role not in COLOUR_ROLES or not HEX_PATTERN.fullmatch(exact) or not 16 <= number < 256:
            raise UserError(
                f"The theme {file} cannot be used",
                why=f"colors.{role}: {colour!r}",
                fix=f"Write #rrggbb for any of: {', '.join(COLOUR_ROLES)}.",
            )
    return theme
