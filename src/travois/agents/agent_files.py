"""What an agent file says of its kind of agents, and what of that does not count."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from travois.agents.types import FORK, Kind
from travois.compat.opencode import APART
from travois.files import front_matter as front
from travois.files.front_matter import Front
from travois.permissions.decide import ALIASES, MODES
from travois.permissions.rules import split
from travois.settings.validate import nearest

BUILT_IN = Path(__file__).parent / "built_in"
LONGEST = 100_000
NAME = re.compile(r"[^\W_][\w .-]{0,63}")
SCOPES = ("user", "project", "local")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0", "")
USED = (
    "name", "description", "tools", "disallowedTools", "model", "permissionMode", "maxTurns",
    "memory", "background", "isolation", "omitClaudeMd", "effort", "skills", "hooks",
    "initialPrompt", "mcpServers",
)  # fmt: skip
UNUSED = ("autoCompactWindow", "observer", "observerMessage", "criticalSystemReminder_EXPERIMENTAL")
"""What agents of other programs have besides and ours do not; a colour is no loss."""


class Flaw(ValueError):
    """A file that describes no agent: at which key, and why."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key = key


def described(told: Front, origin: str, notices: list[str], *, trusted: bool) -> Kind | None:
    """The kind that a file describes; None if it does not, and then the user is told why."""
    if told.flaws:
        notices += (f"{origin}:{line}: {why}" for line, why in told.flaws)
        return None
    try:
        kind = _kind(told, origin)
    except Flaw as flaw:
        notices.append(f"{at(origin, told, flaw.key)}: {flaw}")
        return None
    notices += (f"{at(origin, told, key)}: {why}" for key, why in _remarks(told))
    if trusted:
        return kind
    for key, value in (("model", kind.model), ("memory", kind.memory)):
        if value:
            why = f"{key} counts only in a folder that `travois trust` trusts; it is left out"
            notices.append(f"{at(origin, told, key)}: {why}")
    return replace(kind, model="", memory="")


def _kind(told: Front, origin: str) -> Kind:
    model = _words(told, "model")
    return Kind(
        name=_name(told),
        description=_needed(told, "description"),
        prompt=_prompt(told),
        tools=_tools(told),
        denied=tuple(_tool(word)[0] for word in _listed(told, "disallowedTools")),
        model="" if model.lower() == "inherit" else model,
        effort=effort if (effort := _words(told, "effort").lower()) in EFFORTS else "",
        skills=tuple(_listed(told, "skills")),
        spawns=tuple(_spawns(told)),
        greeting=_words(told, "initialPrompt"),
        apart=_yes(told, APART),
        mode=_mode(told),
        max_turns=_count(told, "maxTurns"),
        background=_yes(told, "background"),
        worktree=_choice(told, "isolation", ("worktree",)) == "worktree",
        memory=_choice(told, "memory", SCOPES),
        instructions=not _yes(told, "omitClaudeMd"),
        origin="built-in" if origin.startswith(str(BUILT_IN)) else origin,
    )


def _name(told: Front) -> str:
    name = _needed(told, "name")
    if not NAME.fullmatch(name):
        raise Flaw("name", f"{name!r} is no name; use letters, digits, spaces and -_. only")
    if name.casefold() == FORK:
        raise Flaw("name", f"{FORK} means a copy of the conversation; choose another name")
    return name


def _needed(told: Front, key: str) -> str:
    if text := _words(told, key):
        return text
    raise Flaw(key, f"{key} is missing; add a line `{key}: …`")


def _prompt(told: Front) -> str:
    text = told.body.strip()
    if not text:
        raise Flaw("", "the agent is told nothing; write its instructions below the front matter")
    if len(text) > LONGEST:
        raise Flaw("", f"{len(text):,} characters are too many; keep below {LONGEST:,}")
    return text


def _mode(told: Front) -> str:
    mode = _words(told, "permissionMode")
    return ALIASES.get(mode) or _choice(told, "permissionMode", MODES)


def _choice(told: Front, key: str, among: Sequence[str]) -> str:
    word = _words(told, key)
    if word and word not in among:
        raise Flaw(key, f"{key} cannot be {word!r}; it is one of {', '.join(among)}")
    return word


def _yes(told: Front, key: str) -> bool:
    word = _words(told, key).lower()
    if word not in YES and word not in NO:
        raise Flaw(key, f"{key} cannot be {word!r}; it is true or false")
    return word in YES


def _count(told: Front, key: str) -> int:
    word = _words(told, key)
    if word and not (word.isdecimal() and int(word)):
        raise Flaw(key, f"{key} cannot be {word!r}; it is a number from 1 on")
    return int(word or 0)


def _tools(told: Front) -> tuple[str, ...] | None:
    """The tools that are given whole; None if all are."""
    words = _listed(told, "tools")
    if "tools" not in told.values or "*" in words:
        return None
    return tuple(name for name, whole in map(_tool, words) if whole)


def _spawns(told: Front) -> Iterator[str]:
    """The kinds of agents that `Agent(a, b)` names."""
    for word in _listed(told, "tools"):
        name, _, among = word.rstrip(")").partition("(")
        if name in ("Agent", "Task"):
            yield from (one for one in front.split(among) if one != "*")


def _tool(word: str) -> tuple[str, bool]:
    """The name of a tool, and whether all uses of it are meant."""
    name, _, use = word.partition("(")
    name = "Agent" if name == "Task" else name
    return name, name == "Agent" or use in ("", "*)")


def _listed(told: Front, key: str) -> list[str]:
    value = told.values.get(key, ())
    return split(value) if isinstance(value, str) else [word.strip() for word in value]


def _words(told: Front, key: str) -> str:
    value = told.values.get(key, "")
    return value.strip() if isinstance(value, str) else ", ".join(value)


def _remarks(told: Front) -> Iterator[tuple[str, str]]:
    """What of a file does not count, by key."""
    if (effort := _words(told, "effort")) and effort.lower() not in EFFORTS:
        yield "effort", f"effort cannot be {effort!r}; it is one of {', '.join(EFFORTS)}"
    if any(":" in word for word in _listed(told, "mcpServers")):
        yield "mcpServers", "servers count that .mcp.json or settings describe; these are left out"
    for key in told.values:
        if key in UNUSED:
            yield key, f"{key} means nothing to agents here; it is left out"
        elif key not in (*USED, "color", APART):
            near = nearest(key, USED)
            yield (
                key,
                f"{key} is no key of agent files" + (f"; did you mean {near}?" if near else ""),
            )
    for key in ("tools", "disallowedTools"):
        words = _listed(told, key)
        if strange := [word for word in words if not _known(_tool(word)[0])]:
            yield key, f"there is no tool {', '.join(strange)}; it is left out"
        if parts := [word for word in words if not _tool(word)[1]]:
            what = "left out" if key == "tools" else "denied whole"
            yield key, f"{', '.join(parts)}: a tool is given whole or not, so it is {what}"


def _known(name: str) -> bool:
    from travois.tools.catalog import TOOLS

    return name in ("*", "Agent") or name.startswith("mcp__") or any(t.name == name for t in TOOLS)


def at(origin: str, told: Front, key: str) -> str:
    """The place of a key, as editors and people say it; the command line has no lines."""
    return f"{origin}:{told.lines.get(key, 1)}" if told.lines else origin
