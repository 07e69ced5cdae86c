"""Agent types: purpose, system prompt, and allowed tools.

Model sees: one line for each kind in the description of the Agent tool, frozen with the tools.
Tokens: at most 1,500.
Cache: part of the head; kinds that change count from the next session on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from travois.core.tokens import estimate_tokens
from travois.prompt.environment import escape_line

FORK_TYPE = "fork"
"""A child that goes on with the whole conversation; no kind may be called so."""
AGENT_TYPE_ALIASES = {"general-purpose": "general", "": "general"}
MAX_LISTING_TOKENS = 1_500
MAIN_AGENT_TOOLS = (
    *("AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "EnterWorktree", "ExitWorktree"),
    "StructuredOutput",
)
"""Tools that need the person, whom only the agent that they talk to may call."""
MCP_TOOL_NAMES = ("ToolSearch", "McpCall")
"""The tools that find and run MCP tools."""
BACKGROUND_JOB_TOOLS = ("BashOutput", "KillShell", "Monitor", "TaskOutput", "TaskStop", "BashInput")
"""Tools granted with Bash: a command that outlives its timeout goes on in the background."""
DESCRIPTION_WIDTHS = (300, 200, 120, 80, 40)
"""Maximum characters of a description, reduced where there are many types."""


class AgentType(msgspec.Struct, frozen=True):
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
    """Its reasoning effort; empty for its parent's."""
    skills: tuple[str, ...] = ()
    """Skills that it knows from the beginning."""
    spawns: tuple[str, ...] = ()
    """The only kinds that it may start; empty for all."""
    hooks: dict[str, object] = {}
    """Its hooks, in the format of settings."""
    apart: bool = False
    """True if only people may start it: agents do not see it."""
    greeting: str = ""
    """Its first prompt, where a person talks to it."""
    mode: str = ""
    """Its permission mode, where that is no wider than its parent's."""
    max_turns: int = 0
    background: bool = False
    worktree: bool = False
    memory: str = ""
    """Its memory scope: `user`, `project`, `local`, or none."""
    instructions: bool = True
    """True if it gets the instruction files."""
    origin: str = ""
    """The file that describes it."""


def find_agent_type(kinds: Iterable[AgentType], name: str) -> AgentType | None:
    """Find the agent type with this name, in any spelling."""
    wanted = name.strip().casefold()
    by_name = {kind.name.casefold(): kind for kind in kinds}
    return by_name.get(wanted) or by_name.get(AGENT_TYPE_ALIASES.get(wanted, ""))


def select_agent_tools(kind: AgentType, names: Iterable[str]) -> tuple[str, ...]:
    """Select the tools that an agent type may use, in the same order."""
    given, denied = ("*",) if kind.tools is None else kind.tools, (*kind.denied, *MAIN_AGENT_TOOLS)
    given = (*given, *MCP_TOOL_NAMES) if any(word.startswith("mcp__") for word in given) else given
    given = (*given, *BACKGROUND_JOB_TOOLS) if _matches_any_tool(given, "Bash") else given
    return tuple(
        name
        for name in names
        if _matches_any_tool(given, name) and not _matches_any_tool(denied, name)
    )


def render_agent_types(kinds: Sequence[AgentType]) -> str:
    """Render the agent types as a list for the model, a line each."""
    ordered = sorted(kinds, key=lambda kind: (kind.name.casefold(), kind.name))
    for width in DESCRIPTION_WIDTHS:
        text = "\n".join(
            f"- {escape_line(kind.name)}: {_summarize_description(kind, width)}" for kind in ordered
        )
        if estimate_tokens(text) <= MAX_LISTING_TOKENS:
            return text
    return _render_type_names(ordered)


def _render_type_names(kinds: Sequence[AgentType]) -> str:
    """Render as many agent type names as fit, and the number of the others."""
    count = len(kinds)
    while True:
        rest = f", and {len(kinds) - count} more" if count < len(kinds) else ""
        text = "- " + ", ".join(escape_line(kind.name) for kind in kinds[:count]) + rest
        if estimate_tokens(text) <= MAX_LISTING_TOKENS or not count:
            return text
        count = count * 3 // 4


def _summarize_description(kind: AgentType, width: int) -> str:
    """Return the start of an agent type's description; some contain whole dialogues."""
    first = kind.description.replace("\\n", "\n").strip().partition("\n")[0]
    text = escape_line(" ".join(first.split()))
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def _matches_any_tool(words: Sequence[str], name: str) -> bool:
    """Return whether an agent type's tool list names a tool; `mcp__server` means all of it."""
    return any(fnmatchcase(name, word) or name.startswith(f"{word}__") for word in words)
