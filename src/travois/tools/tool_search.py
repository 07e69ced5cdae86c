"""ToolSearch and McpCall: finding tools that are not loaded, and running them.

Rare tools of ours are left out of the head of every request, as all tools of servers are. A search
tells what they take; then a model calls one by its name or, where its provider lets it call only
what the head names, through McpCall.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any

import msgspec

from travois.engine.tool_definitions import tool_schema
from travois.mcp.announce import Lent, find
from travois.ports.tool import AnyTool, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env

MOST = 5
"""Default number of tools in a search result."""
SEARCH = "ToolSearch"
CALL = "McpCall"
OURS = "Call a tool by its name, or with McpCall.\n"


class SearchArgs(msgspec.Struct, frozen=True):
    """A description of the tool to find."""

    query: Annotated[str, msgspec.Meta(description="what the tool does, or select:NAME,NAME")]
    max_results: Annotated[int, msgspec.Meta(ge=1, le=25)] = MOST


class CallArgs(msgspec.Struct, frozen=True):
    """A tool to run, and its arguments."""

    tool: str
    arguments: dict[str, Any] = {}


def search_tool(
    tools: Iterable[AnyTool], run: Callable[[SearchArgs, Env, str], Awaitable[ToolOutcome]]
) -> AnyTool:
    """Return ToolSearch; it names the tools of ours that it finds."""
    names = ", ".join(sorted(tool.name for tool in tools))
    return Tool[SearchArgs](
        name=SEARCH,
        description="Find more tools by what they do; shows their arguments."
        + (f" Among them: {names}." if names else ""),
        args=SearchArgs,
        access=lambda args, here: (),
        run=run,
        summary=lambda args: f"Search tools: {args.query}",
    )


def call_tool(stands: Callable[[CallArgs], tuple[str, str]]) -> AnyTool:
    """Return McpCall, which stands for the call of another tool."""
    return Tool[CallArgs](
        name=CALL,
        description="Run a tool that ToolSearch found.",
        args=CallArgs,
        access=lambda args, here: (),
        run=_absent,
        bounded=True,
        summary=lambda args: args.tool,
        stands=stands,
    )


async def _absent(args: CallArgs, env: Env, id: str) -> ToolOutcome:
    raise AssertionError("McpCall stands for the tool that it names")


def own_search(tools: Iterable[AnyTool]) -> tuple[AnyTool, ...]:
    """Return the two tools where no server is: they find and run rare tools of ours."""
    rare = tuple(tool for tool in tools if tool.deferred)

    async def search(args: SearchArgs, env: Env, id: str) -> ToolOutcome:
        hits = find(args.query, own_entries(rare), most=args.max_results)
        if not hits:
            names = ", ".join(sorted(tool.name for tool in rare))
            return text_outcome(f"No tool matches {args.query!r}. Tools: {names}.")
        return text_outcome(OURS + "\n".join(shown_tool(hit) for hit in hits))

    return (search_tool(rare, search), call_tool(call_of)) if rare else ()


def own_entries(tools: Iterable[AnyTool]) -> list[Any]:
    """Return tools of ours as a search knows those of servers."""
    return [Lent(one.name, "", one.name, one.description, tool_schema(one)) for one in tools]


def shown_tool(tool: Any) -> str:
    """Return a tool that was found, as the model is told of it."""
    told = {"tool": tool.name, "description": tool.description}
    return msgspec.json.encode(told | {"arguments": msgspec.Raw(tool.schema.encode())}).decode()


def call_of(args: CallArgs) -> tuple[str, str]:
    """Return the call of one of our own tools that a call stands for; raises `Refusal`."""
    if args.tool.casefold() == CALL.casefold():
        raise ToolError("McpCall runs other tools, not itself.")
    return args.tool, msgspec.json.encode(args.arguments).decode()
