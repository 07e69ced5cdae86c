"""Custom commands: prompt files with placeholders for arguments, commands and files.

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

from travois.core.patterns import compile_lazily
from travois.files import front_matter
from travois.files.front_matter import parse_nested_value
from travois.lazy_imports import lazy_imports

with lazy_imports():
    import shlex


TYPED_COMMAND = compile_lazily(r"/([^\W_][\w:.-]*)(?:\s+(.*))?", re.DOTALL)
"""A command as typed at the prompt: its name, and the rest."""
INSERT_PATTERN = (
    r"(?sm)^```!\s*\n(?P<block>.*?)^```\s*$"
    r"|(?<![^\s])!`(?P<line>[^`\n]+)`"
    r"|(?<![^\s])@(?P<file>[\w./~-]*\w)"
)
PLACEHOLDER_PATTERN = (
    r"\\\$|\$ARGUMENTS\[(?P<nth>\d+)\]|\$ARGUMENTS\b|\$(?P<digit>\d+)"
    r"|\$\{(?P<variable>[A-Z_]+)\}|\$(?P<name>[A-Za-z_][\w-]*)"
)
ALL_ARGUMENTS = "$ARGUMENTS"
MAX_ABOUT_CHARS = 100
"""Characters of a body that serve as a missing description."""
TRUE_WORDS = ("true", "yes", "on", "1")
FALSE_WORDS = ("false", "no", "off", "0")
SourceAgent = Literal["claude", "opencode", "codex"]
"""The agent that a file was written for."""


class CustomCommand(msgspec.Struct, frozen=True):
    """One command or skill; `first` is the number of its first argument, 0 or 1."""

    name: str
    body: str
    description: str = ""
    hint: str = ""
    """A hint about the arguments."""
    names: tuple[str, ...] = ()
    """The names of its arguments in the text."""
    first: Literal[0, 1] = 1
    origin: str = ""
    when: str = ""
    """A note on when the model should use it, besides the description."""
    allowed: str = ""
    """Rules, parted by spaces or commas, that hold during the turn in which it is used."""
    denied: str = ""
    """Rules for what may not be done in that turn."""
    automatic: bool = True
    """True if the model may use it by itself."""
    typed: bool = True
    """True if the user may type it."""
    agent: str = ""
    """The kind of agent that does it, with a conversation of its own; empty for none."""
    background: bool = False
    """True if that agent works in the background."""
    hooks: dict[str, object] = {}
    """Hooks that are active from its first use until the session ends, as in settings."""
    paths: tuple[str, ...] = ()
    """Patterns of files: the model hears of it once one of these is worked with; none for ever."""
    trusted: bool = True
    """True if the commands in its text may run."""
    plugin: str = ""
    """The folder of the plugin that it belongs to."""
    keeps: str = ""
    """The folder in which that plugin keeps things."""
    model: str = ""
    """The model that does it, if an agent of its own does."""
    effort: str = ""
    """The effort of that model."""
    flaws: tuple[str, ...] = ()
    """How the file of a skill deviates from the open format."""
    extensions: tuple[str, ...] = ()
    """Fields of a skill's file that only some agents know."""
    is_skill: bool = False
    """True for a skill with a file of its own, False for a command."""
    runner: str = ""
    """The shell for commands in its text: the usual one if empty, none if `off`."""


class CommandPart(msgspec.Struct, frozen=True):
    """A part of an expanded command: text, a shell command to run, or a file to read."""

    text: str
    kind: Literal["text", "command", "file"] = "text"


def parse_prompt_file(text: str, *, origin: str, agent: SourceAgent = "claude") -> CustomCommand:
    """Parse a command or skill file; invalid front matter is ignored."""
    head = front_matter.parse_front_matter(text)
    values = {key: join_front_matter_value(value).strip() for key, value in head.values.items()}
    named = head.values.get("arguments", ())
    names = tuple(named.split()) if isinstance(named, str) else named
    hooks = parse_nested_value(text, "hooks") if "hooks" in head.lines else None
    subtask = values.get("subtask", "true" if agent == "opencode" and "agent" in values else "")
    apart = values.get("context") == "fork" or subtask.lower() in TRUE_WORDS
    return CustomCommand(
        name=values.get("name", ""),
        body=head.body.strip() if head.lines else text.strip(),
        description=values.get("description", ""),
        hint=values.get("argument-hint") or " ".join(f"[{one}]" for one in names),
        names=names,
        origin=origin,
        when=values.get("when_to_use", ""),
        allowed=values.get("allowed-tools", ""),
        denied=values.get("disallowed-tools", ""),
        automatic=values.get("disable-model-invocation", "").lower() not in TRUE_WORDS,
        typed=values.get("user-invocable", "").lower() not in FALSE_WORDS,
        agent=(values.get("agent") or "general") if apart else "",
        background=apart and values.get("background", "").lower() in TRUE_WORDS,
        hooks={str(key): value for key, value in hooks.items()} if _is_table(hooks) else {},
        model="" if values.get("model") == "inherit" else values.get("model", ""),
        effort=values.get("effort", ""),
        runner="" if values.get("shell") == "bash" else values.get("shell", ""),
    )


def parse_command(
    name: str, text: str, *, origin: str, agent: SourceAgent = "claude"
) -> CustomCommand:
    """Parse a custom command file; the model may use those that have a description."""
    told = parse_prompt_file(text, origin=origin, agent=agent)
    about = told.description or " ".join(told.body.split())[:MAX_ABOUT_CHARS]
    first = 0 if re.search(r"(?<!\\)\$0\b|\$ARGUMENTS\[0\]", told.body) else 1
    known = told.automatic and bool(told.description) and agent == "claude"
    return replace(told, name=name, description=about, first=first, automatic=known)


def parse_command_table(name: str, table: Mapping[str, object], *, origin: str) -> CustomCommand:
    """Parse a TOML custom command, and convert its placeholders."""
    body = str(table.get("prompt") or "").strip().replace("{{args}}", ALL_ARGUMENTS)
    body = re.sub(r"@\{([^{}\n]+)\}", r"@\1", re.sub(r"!\{([^{}\n]+)\}", r"!`\1`", body))
    about = str(table.get("description") or "")
    return CustomCommand(name, body, about, origin=origin, automatic=False)


def fill_command(
    custom: CustomCommand, typed: str, variables: Mapping[str, str]
) -> tuple[CommandPart, ...]:
    """Fill in a custom command's arguments, which never run as commands or open files."""
    body = custom.body
    if (
        not any(_takes_arguments(found, custom) for found in re.finditer(PLACEHOLDER_PATTERN, body))
        and typed
    ):
        body = f"{body}\n\nARGUMENTS: {ALL_ARGUMENTS}"
    return tuple(
        _split_inserts(
            body, lambda text: _fill_placeholders(text, custom, typed=typed, variables=variables)
        )
    )


def _split_inserts(body: str, fill: Callable[[str], str]) -> Iterator[CommandPart]:
    """Yield the text of a custom command, and the commands and files to insert in it."""
    end = 0
    for found in re.finditer(INSERT_PATTERN, body):
        yield CommandPart(fill(body[end : found.start()]))
        command = found["block"] or found["line"]
        yield (
            CommandPart(fill(command), "command") if command else CommandPart(found["file"], "file")
        )
        end = found.end()
    yield CommandPart(fill(body[end:]))


def _fill_placeholders(
    text: str, custom: CustomCommand, *, typed: str, variables: Mapping[str, str]
) -> str:
    """Replace the argument and variable placeholders of a custom command with what was typed."""
    words = _split_arguments(typed)

    def replace_placeholder(found: re.Match[str]) -> str:
        if found[0] == "\\$":
            return "$"
        if found["variable"]:
            return variables.get(found["variable"], found[0])
        if found["name"]:
            name = found["name"]
            return (
                _pick_argument(words, custom.names.index(name))
                if name in custom.names
                else found[0]
            )
        if found["nth"]:
            return _pick_argument(words, int(found["nth"]))
        return (
            _pick_argument(words, int(found["digit"]) - custom.first) if found["digit"] else typed
        )

    return re.sub(PLACEHOLDER_PATTERN, replace_placeholder, text)


def _takes_arguments(found: re.Match[str], custom: CustomCommand) -> bool:
    """Return whether a custom command's placeholder stands for arguments."""
    if found["name"]:
        return found["name"] in custom.names
    return found[0] != "\\$" and not found["variable"]


def _split_arguments(typed: str) -> list[str]:
    """Split the arguments of a custom command as a shell would, or at spaces if quotes are open."""
    try:
        return shlex.split(typed)
    except ValueError:
        return typed.split()


def _pick_argument(words: list[str], place: int) -> str:
    return words[place] if 0 <= place < len(words) else ""


def join_front_matter_value(value: front_matter.FrontMatterValue | None) -> str:
    """Join a custom command's front matter value to one text."""
    return " ".join(value) if isinstance(value, tuple) else value or ""


def _is_table(value: object) -> TypeGuard[dict[object, object]]:
    return isinstance(value, dict)
