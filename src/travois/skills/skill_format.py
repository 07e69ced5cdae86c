"""The open format of skills (agentskills.io): what in a SKILL.md deviates from it.

Model sees: nothing; a skill that deviates is used all the same.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from travois.files.front_matter import FrontMatter, parse_front_matter
from travois.skills.command_text import join_front_matter_value

MISSING_NAME = "the name is missing"
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1_024
MAX_COMPATIBILITY_CHARS = 500
FORMAT_FIELDS = frozenset(
    ("name", "description", "license", "allowed-tools", "metadata", "compatibility")
)
EXTENSION_FIELDS = frozenset(
    (
        *("when_to_use", "argument-hint", "arguments", "disallowed-tools", "paths", "hooks"),
        *("disable-model-invocation", "user-invocable", "context", "agent", "background"),
        *("model", "effort", "shell", "subtask"),
    )
)
"""Fields that work here and in some other agents, but not in all."""
UNQUOTED_COLON = re.compile(r"(?m)^([A-Za-z_][\w-]*):[ \t]+[^\s\"'\[{|>#].*?:[ \t]")


def find_skill_flaws(text: str, folder: str) -> tuple[str, ...]:
    """Return how a SKILL.md in a folder of this name deviates from the format."""
    head = parse_front_matter(text)
    if not head.lines:
        return tuple(what for _, what in head.flaws)
    front = text[: len(text) - len(head.body)]
    unquoted = (
        f"{found[1]} contains `: `; put its value in quotes"
        for found in UNQUOTED_COLON.finditer(front)
    )
    return (
        *(f"line {line}: {what}" for line, what in head.flaws),
        *unquoted,
        *_find_name_flaws(_text_of(head, "name"), folder),
        *_find_text_flaws(head),
        *(
            f"unknown field {key}; put it below `metadata`"
            for key in head.lines
            if key not in FORMAT_FIELDS | EXTENSION_FIELDS
        ),
    )


def find_extensions(text: str) -> tuple[str, ...]:
    """Return the fields of a SKILL.md that agents which know only the format ignore."""
    return tuple(key for key in parse_front_matter(text).lines if key in EXTENSION_FIELDS)


def _text_of(head: FrontMatter, key: str) -> str:
    return join_front_matter_value(head.values.get(key)).strip()


def _find_name_flaws(given: str, folder: str) -> Iterator[str]:
    """Yield what is wrong with a skill's name."""
    name = unicodedata.normalize("NFKC", given)
    if not name:
        yield MISSING_NAME
        return
    if len(name) > MAX_NAME_CHARS:
        yield f"the name has {len(name)} characters; {MAX_NAME_CHARS} are allowed"
    if name != name.lower():
        yield f"the name {name} has capital letters"
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield f"the name {name} has a hyphen at its start or end, or two in a row"
    if not all(char.isalnum() or char == "-" for char in name):
        yield f"the name {name} has characters other than letters, digits and hyphens"
    if name != unicodedata.normalize("NFKC", folder):
        yield f"the name {name} differs from the folder's, {folder}"


def _find_text_flaws(head: FrontMatter) -> Iterator[str]:
    """Yield what is wrong with a skill's texts: missing, or too long."""
    description = _text_of(head, "description")
    if not description:
        yield "the description is missing"
    if len(description) > MAX_DESCRIPTION_CHARS:
        many = f"{len(description):,} characters; {MAX_DESCRIPTION_CHARS:,} are allowed"
        yield f"the description has {many}"
    if len(_text_of(head, "compatibility")) > MAX_COMPATIBILITY_CHARS:
        yield f"compatibility has more than {MAX_COMPATIBILITY_CHARS} characters"
