"""Kinds of agents: what one is for, what it is told, and what it may use.

Model sees: one line for each kind in the description of the Agent tool, frozen with the tools.
Tokens: at most 1,500.
Cache: part of the head; kinds that change count from the next session on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from travois.core.tokens import estimate
from travois.prompt.environment import plain

FORK = "fork"
"""A child that goes on with the whole conversation; no kind may be called so."""
ALIASES = {"general-purpose": "general", "": "general"}
BUDGET = 1_500
PERSONAL = (
    *("AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "EnterWorktree", "ExitWorktree"),
    "StructuredOutput",
)
"""Tools that need the person, whom only the agent that they talk to may call."""
LENT = ("ToolSearch", "McpCall")
"""What tools of servers are found and run by."""
BACKGROUND = ("BashOutput", "KillShell", "Monitor", "TaskOutput", "TaskStop", "BashInput")
"""What comes along with Bash: a command that outlives its timeout goes on in the background."""
WIDTHS = (300, 200, 120, 80, 40)
"""How many characters a description may have; narrower where there are many kinds."""


class Kind(msgspec.Struct, frozen=True):
    """One kind of agent."""

    name: str
    description: str
    prompt: str
    """Its system prompt."""
    tools: tuple[str, ...] | None = None
    """The tools that it may use, of those that its parent has; None for all of them."""
    denied: tuple[str, ...] = ()
    model: str = ""
    """Empty for that of its parent."""
    effort: str = ""
    """How much it thinks; empty for as much as its parent."""
    skills: tuple[str, ...] = ()
    """Skills that it knows from the beginning."""
    spawns: tuple[str, ...] = ()
    """The only kinds that it may start; empty for all."""
    hooks: dict[str, object] = {}
    """Who listens to it, as settings write it."""
    apart: bool = False
    """Whether only people talk to it: no agent is told that it is there."""
    greeting: str = ""
    """What it is told first, where a person talks to it."""
    mode: str = ""
    """Its permission mode, where that is no wider than its parent's."""
    max_turns: int = 0
    background: bool = False
    worktree: bool = False
    memory: str = ""
    """Where it remembers things: `user`, `project`, `local`, or nowhere."""
    instructions: bool = True
    """Whether it is told what instruction files say."""
    origin: str = ""
    """The file that describes it."""


def named(kinds: Iterable[Kind], name: str) -> Kind | None:
    """The kind that is meant, however its name is spelt."""
    wanted = name.strip().casefold()
    by_name = {kind.name.casefold(): kind for kind in kinds}
    return by_name.get(wanted) or by_name.get(ALIASES.get(wanted, ""))


def usable(kind: Kind, names: Iterable[str]) -> tuple[str, ...]:
    """Which of these tools an agent of this kind may use, in the same order."""
    given, denied = ("*",) if kind.tools is None else kind.tools, (*kind.denied, *PERSONAL)
    given = (*given, *LENT) if any(word.startswith("mcp__") for word in given) else given
    given = (*given, *BACKGROUND) if _means(given, "Bash") else given
    return tuple(name for name in names if _means(given, name) and not _means(denied, name))


def listing(kinds: Sequence[Kind]) -> str:
    """The kinds as a model is told of them, a line each, by name."""
    ordered = sorted(kinds, key=lambda kind: (kind.name.casefold(), kind.name))
    for width in WIDTHS:
        text = "\n".join(f"- {plain(kind.name)}: {_line(kind, width)}" for kind in ordered)
        if estimate(text) <= BUDGET:
            return text
    return _names(ordered)


def _names(kinds: Sequence[Kind]) -> str:
    """As many names as there is room for, and how many there are besides."""
    count = len(kinds)
    while True:
        rest = f", and {len(kinds) - count} more" if count < len(kinds) else ""
        text = "- " + ", ".join(plain(kind.name) for kind in kinds[:count]) + rest
        if estimate(text) <= BUDGET or not count:
            return text
        count = count * 3 // 4


def _line(kind: Kind, width: int) -> str:
    """The beginning of a description: other agents put whole dialogues behind it, with `\\n`."""
    first = kind.description.replace("\\n", "\n").strip().partition("\n")[0]
    text = plain(" ".join(first.split()))
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def _means(words: Sequence[str], name: str) -> bool:
    """Whether one of these means the tool; `mcp__server` means all tools of a server."""
    return any(fnmatchcase(name, word) or name.startswith(f"{word}__") for word in words)
