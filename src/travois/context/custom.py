"""Commands of the user's own: a file is a prompt, with places for what is typed after its name.

Model sees: the filled text, as a prompt of the person.
Tokens: those of the file and of what it brings in.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec

from travois.context import front

TYPED = re.compile(r"/([^\W_][\w:.-]*)(?:\s+(.*))?", re.DOTALL)
"""How a command is written at the prompt: its name, and the rest."""
INSERT = re.compile(
    r"(?m)^```!\s*\n(?P<block>.*?)^```\s*$"
    r"|(?<![^\s])!`(?P<line>[^`\n]+)`"
    r"|(?<![^\s])@(?P<file>[\w./~-]*\w)",
    re.DOTALL,
)
PLACE = re.compile(
    r"\\\$|\$ARGUMENTS\[(?P<nth>\d+)\]|\$ARGUMENTS\b|\$(?P<digit>\d+)"
    r"|\$\{(?P<variable>[A-Z_]+)\}|\$(?P<name>[A-Za-z_][\w-]*)"
)
ALL, FIRST_PARAGRAPH = "$ARGUMENTS", 100


class Custom(msgspec.Struct, frozen=True):
    """One command; `first` is the number of its first argument, which other agents disagree on."""

    name: str
    body: str
    description: str = ""
    hint: str = ""
    """What may be typed after it."""
    names: tuple[str, ...] = ()
    """What its arguments are called in the text."""
    first: Literal[0, 1] = 1
    origin: str = ""
    when: str = ""
    """When the model should use it, besides what its description says."""
    allowed: str = ""
    """Rules, parted by spaces or commas, that hold during the turn in which it is used."""
    denied: str = ""
    """Rules for what may not be done in that turn."""
    automatic: bool = True
    """Whether the model may use it unasked."""
    typed: bool = True
    """Whether the person may type it."""
    agent: str = ""
    """The kind of agent that does it, with a conversation of its own; empty for none."""
    background: bool = False
    """Whether that agent works beside the conversation."""
    ignored: tuple[str, ...] = ()
    """What it says of itself that means nothing here."""
    paths: tuple[str, ...] = ()
    """Patterns of files: the model hears of it once one of these is worked with; none for ever."""
    trusted: bool = True
    """Whether the commands in its text may run."""
    plugin: str = ""
    """The folder of the plugin that it belongs to."""


class Part(msgspec.Struct, frozen=True):
    """A piece of a filled text: as it is, or what a command or a file has to say."""

    text: str
    kind: Literal["text", "command", "file"] = "text"


def parse(name: str, text: str, *, origin: str) -> Custom:
    """A command from its file; what is flawed in the front matter is left out of it."""
    head = front.read(text)
    body = head.body.strip() if head.values else text.strip()
    about = said(head.values.get("description")) or " ".join(body.split())[:FIRST_PARAGRAPH]
    named = head.values.get("arguments", ())
    names = tuple(named.split()) if isinstance(named, str) else named
    hint = said(head.values.get("argument-hint")) or " ".join(f"[{one}]" for one in names)
    first = 0 if re.search(r"(?<!\\)\$0\b|\$ARGUMENTS\[0\]", body) else 1
    allowed = said(head.values.get("allowed-tools"))
    return Custom(name, body, about, hint, names, first, origin, allowed=allowed)


def parse_table(name: str, table: Mapping[str, object], *, origin: str) -> Custom:
    """A command from a table with `prompt` and `description`, whose places look different."""
    body = str(table.get("prompt") or "").strip().replace("{{args}}", ALL)
    body = re.sub(r"@\{([^{}\n]+)\}", r"@\1", re.sub(r"!\{([^{}\n]+)\}", r"!`\1`", body))
    return Custom(name, body, str(table.get("description") or ""), origin=origin)


def filled(custom: Custom, typed: str, variables: Mapping[str, str]) -> tuple[Part, ...]:
    """The text with what was typed in its places; what was typed names no commands or files."""
    body = custom.body
    if not any(_takes(found, custom) for found in PLACE.finditer(body)) and typed:
        body = f"{body}\n\nARGUMENTS: {ALL}"
    return tuple(_parts(body, lambda text: _fill(text, custom, typed=typed, variables=variables)))


def _parts(body: str, fill: Callable[[str], str]) -> Iterator[Part]:
    end = 0
    for found in INSERT.finditer(body):
        yield Part(fill(body[end : found.start()]))
        command = found["block"] or found["line"]
        yield Part(fill(command), "command") if command else Part(found["file"], "file")
        end = found.end()
    yield Part(fill(body[end:]))


def _fill(text: str, custom: Custom, *, typed: str, variables: Mapping[str, str]) -> str:
    words = _words(typed)

    def put(found: re.Match[str]) -> str:
        if found[0] == "\\$":
            return "$"
        if found["variable"]:
            return variables.get(found["variable"], found[0])
        if found["name"]:
            name = found["name"]
            return _nth(words, custom.names.index(name)) if name in custom.names else found[0]
        if found["nth"]:
            return _nth(words, int(found["nth"]))
        return _nth(words, int(found["digit"]) - custom.first) if found["digit"] else typed

    return PLACE.sub(put, text)


def _takes(found: re.Match[str], custom: Custom) -> bool:
    """Whether a place is one for what was typed."""
    if found["name"]:
        return found["name"] in custom.names
    return found[0] != "\\$" and not found["variable"]


def _words(typed: str) -> list[str]:
    try:
        return shlex.split(typed)
    except ValueError:
        return typed.split()


def _nth(words: list[str], place: int) -> str:
    return words[place] if 0 <= place < len(words) else ""


def said(value: front.Value | None) -> str:
    """A value of front matter as one text."""
    return " ".join(value) if isinstance(value, tuple) else value or ""
