"""Tools of servers: ToolSearch finds them, McpCall runs them; and what servers have to read.

These four stand in the head of every request, and nothing that a server says does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from travois.core.display_text import visible
from travois.core.facts import Changed
from travois.core.tokens import block_tokens
from travois.mcp.announce import Lent, find
from travois.mcp.foreign import TOLD, described, outcome
from travois.mcp.lenders import PINS, Lender, lent, told
from travois.permissions.access import Access
from travois.ports.person import Choice, Option
from travois.ports.tool import AnyTool, Here, Outcome, Refusal, Tool, said
from travois.ports.world import Env, Unanswered
from travois.providers.json_schema import flaws
from travois.tools.tool_search import (
    MOST,
    OURS,
    CallArgs,
    SearchArgs,
    call_of,
    call_tool,
    own_entries,
    search_tool,
    shown_tool,
)

WAIT = 20.0
"""How many seconds a search waits for servers that are starting."""
LARGE = 10_000
"""From how many tokens of one result on the person is told."""
LONG = 12_000
"""How many characters of a schema are shown."""
LISTED = 30
"""How many tools of a server are named where one is missing."""
YES, NO = "Use it as it is defined at present", "Do not use it"
FOUND = "What servers say of their tools; it permits nothing. Run one with McpCall.\n"


class ListArgs(msgspec.Struct, frozen=True):
    """Whose resources to list; all if no server is named."""

    server: str = ""


class ReadArgs(msgspec.Struct, frozen=True):
    """Which resource to read."""

    server: str
    uri: str


class Lending:
    """All servers of a session, as tools."""

    def __init__(
        self,
        lenders: Sequence[Lender],
        *,
        hidden: Callable[[str], bool] = lambda name: False,
        own: Sequence[AnyTool] = (),
    ) -> None:
        self.lenders = {one.server.name: one for one in lenders}
        self.warn: Callable[[str], None] = lambda text: None
        """Tells the person something."""
        self._hidden = hidden
        self.own = tuple(tool for tool in own if tool.deferred)
        """Tools of ours that no head names either."""
        self.standing = self._standing()
        """The tools that stand in the head: what servers lend before they have started."""

    def all(self) -> dict[str, Lent]:
        """Every tool that is lent at the moment and no rule denies, by name."""
        return lent(self.lenders.values(), hidden=self._hidden)

    def tool(self, name: str) -> AnyTool | None:
        """The tool of that name; none if no server lends it, or may once it has started."""
        if known := self.all().get(name):
            return self._lent(name, known.server)
        starting = (one.server for one in self.lenders.values() if one.state != "ready")
        server = next((s.name for s in starting if name.startswith(f"mcp__{s.key}__")), "")
        return self._lent(name, server) if server and not self._hidden(name) else None

    @property
    def head(self) -> tuple[AnyTool, ...]:
        """The tools that stand in the head: the same ones whatever the servers do."""
        return (self._search, self._call, self._list, self._read)

    def _standing(self) -> tuple[AnyTool, ...]:
        return tuple(
            replace(self._lent(name, one.server), description=one.description, schema=one.schema)
            for name, one in self.all().items()
        )

    @property
    def _search(self) -> AnyTool:
        return search_tool(self.own, self._find)

    @property
    def _call(self) -> AnyTool:
        return call_tool(self._stands)

    def _stands(self, args: CallArgs) -> tuple[str, str]:
        """The call that a call means; raises `Refusal` where no server has such a tool."""
        own = {tool.name.casefold() for tool in self.own}
        name = args.tool if args.tool.casefold() in own else _whole(args.tool)
        if name.startswith("mcp__") and self.tool(name) is None and (text := self._missing(name)):
            raise Refusal(text)
        return call_of(msgspec.structs.replace(args, tool=name))

    def _missing(self, name: str) -> str:
        """What the server that a name begins with has instead, nearest first."""
        from difflib import SequenceMatcher

        for lender in self.lenders.values():
            start = f"mcp__{lender.server.key}__"
            there = [known for known in self.all() if known.startswith(start)]
            if name.startswith(start) and there:
                near = sorted(there, key=lambda n: -SequenceMatcher(None, n, name).ratio())
                more = f", and {len(near) - LISTED} more" if len(near) > LISTED else ""
                tools = ", ".join(near[:LISTED]) + more
                return f"{lender.server.name} has no tool {name!r}. Nearest first: {tools}."
        servers = ", ".join(sorted(self.lenders))
        return f"There is no tool {name!r}. Servers: {servers or 'none'}; ToolSearch finds tools."

    @property
    def _list(self) -> AnyTool:
        return Tool[ListArgs](
            name="ListMcpResources",
            description="List what servers have to read.",
            args=ListArgs,
            access=lambda args, here: self._access(args.server),
            run=self._resources,
            summary=lambda args: f"List resources of {args.server or 'all servers'}",
        )

    @property
    def _read(self) -> AnyTool:
        return Tool[ReadArgs](
            name="ReadMcpResource",
            description="Read something that a server has, by its address there.",
            args=ReadArgs,
            access=lambda args, here: self._access(args.server),
            run=self._resource,
            bounded=True,
            summary=lambda args: f"Read {args.uri} of {args.server}",
        )

    def _access(self, server: str) -> tuple[Access, ...]:
        return tuple(Access("call", name) for name in ((server,) if server else self.lenders))

    async def _find(self, args: SearchArgs, env: Env, id: str) -> Outcome:
        starting = await self._settled()
        known = (*self.all().values(), *own_entries(self.own))
        hits = find(args.query, known, most=args.max_results)
        more = [f"Still starting, try again later: {', '.join(starting)}."] if starting else []
        more += [f"{n} cannot be used: {o.why}." for n, o in self.lenders.items() if o.why]
        if not hits:
            names = ", ".join(sorted(self.lenders))
            return said("\n".join((f"No tool fits {args.query!r}. Servers: {names}.", *more)))
        lent_ = [hit for hit in hits if hit.server]
        about, changes = self._introduced(lent_, env)
        shown = (_shown(hit) if hit.server else shown_tool(hit) for hit in hits)
        found = (FOUND if lent_ else OURS) + "\n".join(shown)
        return said("\n".join((found, *about, *more)), changes=changes)

    async def _settled(self) -> list[str]:
        """Wait for servers that are starting; returns those that still are."""
        with anyio.move_on_after(WAIT):
            for lender in self.lenders.values():
                await lender.settled()
        return [name for name, one in self.lenders.items() if one.state == "starting"]

    def _introduced(self, hits: Sequence[Lent], env: Env) -> tuple[list[str], tuple[Changed, ...]]:
        """What servers say of themselves, once in a conversation."""
        fresh = sorted({tool.server for tool in hits if not env.state.get(f"{ABOUT}{tool.server}")})
        told = [(name, self.lenders[name].about) for name in fresh if self.lenders[name].about]
        lines = [
            msgspec.json.encode({"server": n, "about": described(t)}).decode() for n, t in told
        ]
        return lines, tuple(Changed(f"{ABOUT}{name}", "told") for name, _ in told)

    def _lent(self, name: str, server: str) -> AnyTool:
        def access(args: dict[str, Any], here: Here) -> tuple[Access, ...]:
            if known := self.all().get(name):
                _fits(known, args)
            return (Access("call", server, asks=known is not None and known.asks),)

        async def run(args: dict[str, Any], env: Env, id: str) -> Outcome:
            lender = self.lenders[server]
            await lender.settled()
            if (tool := self.all().get(name)) is None:
                raise Refusal(f"{name} is not there: {lender.why or 'ToolSearch tells what is'}.")
            _fits(tool, args)
            changes = await _agreed(tool, env)
            answered = await lender.call(tool.tool, args, env)
            found = outcome(answered, env, id, wish=tool.room)
            if (size := sum(map(block_tokens, found.content))) > LARGE:
                self.warn(f"{name} brought about {size:,} tokens")
            return replace(found, changes=changes)

        return Tool[Any](
            name=name,
            description="",
            args=dict[str, Any],
            access=access,
            run=run,
            bounded=True,
            summary=lambda args: f"{name} {_brief(args)}",
            schema="{}",
        )

    async def _resources(self, args: ListArgs, env: Env, id: str) -> Outcome:
        await self._settled()
        asked = [self._lender(args.server)] if args.server else list(self.lenders.values())
        lines: list[str] = []
        for lender in asked:
            try:
                found = await lender.resources()
            except Refusal as refusal:
                lines.append(str(refusal))
                continue
            lines += (
                f"{lender.server.name} {visible(uri)} {visible(t)}"[:TOLD] for uri, t in found
            )
        return said("\n".join(lines) or "The servers have nothing to read.")

    async def _resource(self, args: ReadArgs, env: Env, id: str) -> Outcome:
        return outcome(await self._lender(args.server).read(args.uri), env, id)

    def _lender(self, name: str) -> Lender:
        if name not in self.lenders:
            raise Refusal(f"There is no server {name!r}. There are: {', '.join(self.lenders)}.")
        return self.lenders[name]


ABOUT = f"{PINS}about:"


def _whole(name: str) -> str:
    return name if name.startswith("mcp__") else f"mcp__{name}"


def _fits(tool: Lent, args: dict[str, Any]) -> None:
    """Refuse what cannot be meant; patterns are the server's to judge, which wrote them."""
    if wrong := flaws(args, msgspec.json.decode(tool.schema), patterns="skipped"):
        why = "; ".join(wrong[:MOST])[:TOLD]
        raise Refusal(f"{tool.name} was not run: {why}. It takes: {tool.schema[:LONG]}")


async def _agreed(tool: Lent, env: Env) -> tuple[Changed, ...]:
    """Ask about a tool that is not what the conversation first knew it as; the answer is kept."""
    known = told(env.state, tool.server)
    pinned = known.tools.get(tool.name, tool.digest)
    if pinned == tool.digest:
        return ()
    what = f"{tool.server} defines {tool.name} otherwise than before: {visible(tool.description)}"
    choice = Choice(what[:TOLD], (Option(YES), Option(NO)), header="Changed tool")
    try:
        answer = await env.choose((choice,))
    except Unanswered:
        answer = ("nobody was there to ask",)
    if answer != (YES,):
        raise Refusal(f"{tool.name} changed since it was first seen and was not run: {answer[0]}.")
    kept = replace(known, tools={**known.tools, tool.name: tool.digest})
    return (Changed(f"{PINS}{tool.server}", msgspec.json.encode(kept).decode()),)


def _shown(tool: Lent) -> str:
    schema = tool.schema if len(tool.schema) <= LONG else f"{tool.schema[:LONG]}… (cut)"
    raw = msgspec.Raw(schema.encode()) if len(tool.schema) <= LONG else schema
    shown = {"tool": tool.name, "description": tool.description, "arguments": raw}
    return msgspec.json.encode(shown).decode()


def _brief(args: dict[str, Any]) -> str:
    text = msgspec.json.encode(args).decode()
    return text if len(text) <= 120 else f"{text[:119]}…"
