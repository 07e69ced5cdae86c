"""ToolSearch and McpCall: finding tools that are not loaded, and running them.

Our own rare tools are left out of the head of every request, as all MCP tools are. A search returns
their schemas; then a model calls one by its name or, where its provider lets it call only what the
head names, through McpCall.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any

import msgspec

from travois.engine.tool_definitions import tool_schema
from travois.mcp.announce import McpToolSpec, search_tools
from travois.ports.tool import AnyTool, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env

DEFAULT_SEARCH_RESULTS = 5
"""Default number of tools in a search result."""
TOOL_SEARCH_NAME = "ToolSearch"
MCP_CALL_NAME = "McpCall"
OWN_TOOLS_PREAMBLE = "Call a tool by its name, or with McpCall.\n"


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
        description="Find more tools by what they do; shows their arguments."
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
