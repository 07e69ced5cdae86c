"""Commands of the user's own: a file is a prompt, with places for what is typed after its name.

Model sees: the filled text, as a prompt of the person.
Tokens: those of the file and of what it brings in.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeGuard

import msgspec
from msgspec.structs import replace

from travois.files import front_matter as front
from travois.files.front_matter import nested

TYPED = re.compile(r"/([^\W_][\w:.-]*)(?:\s+(.*))?", re.DOTALL)
"""How a command is written at the prompt: its name, and the rest."""
INSERT = (
    r"(?sm)^```!\s*\n(?P<block>.*?)^```\s*$"
    r"|(?<![^\s])!`(?P<line>[^`\n]+)`"
    r"|(?<![^\s])@(?P<file>[\w./~-]*\w)"
)
PLACE = (
    r"\\\$|\$ARGUMENTS\[(?P<nth>\d+)\]|\$ARGUMENTS\b|\$(?P<digit>\d+)"
    r"|\$\{(?P<variable>[A-Z_]+)\}|\$(?P<name>[A-Za-z_][\w-]*)"
)
ALL, FIRST_PARAGRAPH = "$ARGUMENTS", 100
YES = ("true", "yes", "on", "1")
NO = ("false", "no", "off", "0")
Whose = Literal["claude", "opencode", "codex"]
"""The agent that a file was written for."""


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
    hooks: dict[str, object] = {}
    """Who listens from its first use on till the session ends, as settings write it."""
    paths: tuple[str, ...] = ()
    """Patterns of files: the model hears of it once one of these is worked with; none for ever."""
    trusted: bool = True
    """Whether the commands in its text may run."""
    plugin: str = ""
    """The folder of the plugin that it belongs to."""
    keeps: str = ""
    """The folder in which that plugin keeps things."""
    model: str = ""
    """The model that does it, if an agent of its own does."""
    effort: str = ""
    """How much that one thinks."""
    runner: str = ""
    """What runs the commands in its text: the usual shell if empty, nothing if `off`."""


class Part(msgspec.Struct, frozen=True):
    """A piece of a filled text: as it is, or what a command or a file has to say."""

    text: str
    kind: Literal["text", "command", "file"] = "text"


def read(text: str, *, origin: str, whose: Whose = "claude") -> Custom:
    """What a file says of a command or a skill; what is flawed in its front matter is left out."""
    head = front.read(text)
    values = {key: said(value).strip() for key, value in head.values.items()}
    named = head.values.get("arguments", ())
    names = tuple(named.split()) if isinstance(named, str) else named
    hooks = nested(text, "hooks") if "hooks" in head.lines else None
    subtask = values.get("subtask", "true" if whose == "opencode" and "agent" in values else "")
    apart = values.get("context") == "fork" or subtask.lower() in YES
    return Custom(
        name=values.get("name", ""),
        body=head.body.strip() if head.lines else text.strip(),
        description=values.get("description", ""),
        hint=values.get("argument-hint") or " ".join(f"[{one}]" for one in names),
        names=names,
        origin=origin,
        when=values.get("when_to_use", ""),
        allowed=values.get("allowed-tools", ""),
        denied=values.get("disallowed-tools", ""),
        automatic=values.get("disable-model-invocation", "").lower() not in YES,
        typed=values.get("user-invocable", "").lower() not in NO,
        agent=(values.get("agent") or "general") if apart else "",
        background=apart and values.get("background", "").lower() in YES,
        hooks={str(key): value for key, value in hooks.items()} if _is_table(hooks) else {},
        model="" if values.get("model") == "inherit" else values.get("model", ""),
        effort=values.get("effort", ""),
        runner="" if values.get("shell") == "bash" else values.get("shell", ""),
    )


def parse(name: str, text: str, *, origin: str, whose: Whose = "claude") -> Custom:
    """A command from its file; the model may use those that say what they are for, as there."""
    told = read(text, origin=origin, whose=whose)
    about = told.description or " ".join(told.body.split())[:FIRST_PARAGRAPH]
    first = 0 if re.search(r"(?<!\\)\$0\b|\$ARGUMENTS\[0\]", told.body) else 1
    known = told.automatic and bool(told.description) and whose == "claude"
    return replace(told, name=name, description=about, first=first, automatic=known)


def parse_table(name: str, table: Mapping[str, object], *, origin: str) -> Custom:
    """A command from a table with `prompt` and `description`, whose places look different."""
    body = str(table.get("prompt") or "").strip().replace("{{args}}", ALL)
    body = re.sub(r"@\{([^{}\n]+)\}", r"@\1", re.sub(r"!\{([^{}\n]+)\}", r"!`\1`", body))
    about = str(table.get("description") or "")
    return Custom(name, body, about, origin=origin, automatic=False)


def filled(custom: Custom, typed: str, variables: Mapping[str, str]) -> tuple[Part, ...]:
    """The text with what was typed in its places; what was typed names no commands or files."""
    body = custom.body
    if not any(_takes(found, custom) for found in re.finditer(PLACE, body)) and typed:
        body = f"{body}\n\nARGUMENTS: {ALL}"
    return tuple(_parts(body, lambda text: _fill(text, custom, typed=typed, variables=variables)))


def _parts(body: str, fill: Callable[[str], str]) -> Iterator[Part]:
    end = 0
    for found in re.finditer(INSERT, body):
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

    return re.sub(PLACE, put, text)


def _takes(found: re.Match[str], custom: Custom) -> bool:
    """Whether a place is one for what was typed."""
    if found["name"]:
        return found["name"] in custom.names
    return found[0] != "\\$" and not found["variable"]


def _words(typed: str) -> list[str]:
    try:
        from shlex import split

        return split(typed)
    except ValueError:
        return typed.split()


def _nth(words: list[str], place: int) -> str:
    return words[place] if 0 <= place < len(words) else ""


def said(value: front.Value | None) -> str:
    """A value of front matter as one text."""
    return " ".join(value) if isinstance(value, tuple) else value or ""


def _is_table(value: object) -> TypeGuard[dict[object, object]]:
    return isinstance(value, dict)
