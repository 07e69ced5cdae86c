"""ToolSearch and McpCall: finding tools that are not loaded, and running them.

Our own rare tools are left out of the head of every request, as all MCP tools are. A search returns
their schemas; then a model calls one by its name or, where its provider lets it call only what the
head names, through McpCall.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from math import log
from typing import Annotated, Any

import msgspec

from travois.core.patterns import compile_lazily
from travois.engine.tool_definitions import tool_schema
from travois.mcp.announce import McpToolSpec
from travois.ports.tool import AnyTool, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env

DEFAULT_SEARCH_RESULTS = 5
"""Default number of tools in a search result."""
TOOL_SEARCH_NAME = "ToolSearch"
MCP_CALL_NAME = "McpCall"
OWN_TOOLS_PREAMBLE = "Call a tool by its name, or with McpCall.\n"


WORD_PATTERN = compile_lazily(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
NAME_WEIGHT = 4.0
DESCRIPTION_WEIGHT = 1.0
SIMILAR_WEIGHT = 0.5
"""Weights of a word in a tool's name, in its description, and if only similar."""
MIN_SIMILAR_CHARS = 3
"""Minimum common letters at the start of similar words."""


class SearchArgs(msgspec.Struct, frozen=True):
    """A description of the tool to find."""

    query: Annotated[str, msgspec.Meta(description="what the tool does, or select:NAME,NAME")]
    max_results: Annotated[int, msgspec.Meta(ge=1, le=25)] = DEFAULT_SEARCH_RESULTS


class CallArgs(msgspec.Struct, frozen=True):
    """A tool to run, and its arguments."""

    tool: str
    arguments: dict[str, Any] = {}


def create_tool_search(
    tools: Iterable[AnyTool], run: Callable[[SearchArgs, Env, str], Awaitable[ToolOutcome]]
) -> AnyTool:
    """Create the ToolSearch tool, which finds MCP tools and rare built-in tools."""
    names = ", ".join(sorted(tool.name for tool in tools))
    return Tool[SearchArgs](
        name=TOOL_SEARCH_NAME,
        description="Find more tools by what they do."
        + (f" Among them: {names}." if names else ""),
        args=SearchArgs,
        access=lambda args, here: (),
        run=run,
        summary=lambda args: f"Search tools: {args.query}",
    )


def create_mcp_call(stands: Callable[[CallArgs], tuple[str, str]]) -> AnyTool:
    """Create the McpCall tool, which calls a tool that ToolSearch found."""
    return Tool[CallArgs](
        name=MCP_CALL_NAME,
        description="Run a tool that ToolSearch found.",
        args=CallArgs,
        access=lambda args, here: (),
        run=_refuse_direct_run,
        bounded=True,
        summary=lambda args: args.tool,
        stands=stands,
    )


async def _refuse_direct_run(args: CallArgs, env: Env, id: str) -> ToolOutcome:
    raise AssertionError("McpCall stands for the tool that it names")


def create_own_tool_search(tools: Iterable[AnyTool]) -> tuple[AnyTool, ...]:
    """Create ToolSearch and McpCall for sessions that have no MCP server."""
    rare = tuple(tool for tool in tools if tool.deferred)

    async def search(args: SearchArgs, env: Env, id: str) -> ToolOutcome:
        hits = search_tools(args.query, own_tool_specs(rare), most=args.max_results)
        if not hits:
            names = ", ".join(sorted(tool.name for tool in rare))
            return text_outcome(f"No tool matches {args.query!r}. Tools: {names}.")
        return text_outcome(OWN_TOOLS_PREAMBLE + "\n".join(render_own_tool(hit) for hit in hits))

    return (create_tool_search(rare, search), create_mcp_call(resolve_own_call)) if rare else ()


def own_tool_specs(tools: Iterable[AnyTool]) -> list[Any]:
    """Return the specifications of built-in tools that ToolSearch can load."""
    return [McpToolSpec(one.name, "", one.name, one.description, tool_schema(one)) for one in tools]


def render_own_tool(tool: Any) -> str:
    """Render a built-in tool that ToolSearch found, with its schema."""
    told = {"tool": tool.name, "description": tool.description}
    return msgspec.json.encode(told | {"arguments": msgspec.Raw(tool.schema.encode())}).decode()


def resolve_own_call(args: CallArgs) -> tuple[str, str]:
    """Return the built-in tool call that an McpCall stands for; raises `ToolError`."""
    if args.tool.casefold() == MCP_CALL_NAME.casefold():
        raise ToolError("McpCall runs other tools, not itself.")
    return args.tool, msgspec.json.encode(args.arguments).decode()


def search_tools(query: str, tools: Iterable[McpToolSpec], *, most: int) -> list[McpToolSpec]:
    """Find the MCP tools that match a query, best first; `select:a,b` names them exactly."""
    known = list(tools)
    if query.startswith("select:"):
        wanted = [name.strip() for name in query.removeprefix("select:").split(",")]
        return [tool for name in wanted for tool in known if name in (tool.name, tool.tool)][:most]
    asked = set(split_words(query))
    texts = [
        (set(split_words(f"{t.server} {t.tool}")), set(split_words(t.description))) for t in known
    ]
    rare = {word: _word_rarity(word, texts) for word in asked}
    scores = [sum(rare[word] * _word_weight(word, *text) for word in asked) for text in texts]
    ranked = sorted(zip(scores, known, strict=True), key=lambda pair: (-pair[0], pair[1].name))
    return [tool for score, tool in ranked if score > 0][:most]


def split_words(text: str) -> list[str]:
    """Split a text or name into lower-case words without plural endings for ToolSearch."""
    return [_strip_plural(word.casefold()) for word in WORD_PATTERN.findall(text)]


def _strip_plural(word: str) -> str:
    plural = word.endswith("s") and not word.endswith("ss") and len(word) > MIN_SIMILAR_CHARS
    return word[:-1] if plural else word


def _word_rarity(word: str, texts: Sequence[tuple[set[str], set[str]]]) -> float:
    having = sum(word in name or word in about for name, about in texts)
    return log(1 + (len(texts) + 1) / (having + 0.5))


def _word_weight(word: str, name: set[str], about: set[str]) -> float:
    """Return how much a ToolSearch query word found in an MCP tool's name or description counts."""
    if word in name:
        return NAME_WEIGHT
    if word in about:
        return DESCRIPTION_WEIGHT
    return SIMILAR_WEIGHT if any(_has_common_start(word, other) for other in name | about) else 0.0


def _has_common_start(one: str, other: str) -> bool:
    short = min(len(one), len(other))
    return short >= MIN_SIMILAR_CHARS and (one.startswith(other) or other.startswith(one))
