"""MCP tools announced to the model: kept out of the head, and named in a note.

What a server says of its tools is pinned when the model is first told of them. A tool whose
definition changes later is another tool: that is announced, and a person is asked before it runs.

Model sees: a note on the servers and their tools, as far as there is room; later what changed.
Tokens: at most 1,700 for all servers together, and what five definitions take for one search.
Cache: never moves the prefix; the head has the same few tools however many there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec

from travois.prompt.environment import escape_line

NOTE_OPENING = "<servers>\n"
NOTE_CLOSING = "\n</servers>"
USAGE_LINE = (
    "MCP servers offer more tools: ToolSearch shows what they do and take, McpCall runs one. "
    "The servers chose the names.\n"
)
STARTING_STATE = "starting"
MAX_ANNOUNCEMENT_CHARS = 4_000
"""Maximum characters of the announcement of all servers."""
MAX_LINE_CHARS = 240
MAX_FIELD_CHARS = 40


class McpToolSpec(msgspec.Struct, frozen=True):
    """A tool of an MCP server, as the model may see it."""

    name: str
    """As it is called here."""
    server: str
    tool: str
    """As its server calls it."""
    description: str
    schema: str
    fields: tuple[str, ...] = ()
    """The names of its arguments; those that may be left out end with a question mark."""
    room: int = 0
    """The result characters that it wants shown; 0 if it does not say."""
    asks: bool = False
    """True if a person has to approve each use of it."""

    @property
    def digest(self) -> str:
        """Return a short hash of the tool's definition, to notice when it changes."""
        said = "\0".join((self.tool, self.description, self.schema))
        return blake2b(said.encode(errors="replace"), digest_size=8).hexdigest()


class AnnouncedServer(msgspec.Struct, frozen=True):
    """A server's state and tools as last announced to the model."""

    state: str = ""
    tools: dict[str, str] = {}
    """The pinned digest of each tool, by its name."""
    changed: tuple[str, ...] = ()
    """Digests that are not the pinned ones, and of which it was told."""


def announce_servers(
    states: Mapping[str, str], tools: Sequence[McpToolSpec], told: Mapping[str, AnnouncedServer]
) -> tuple[str, dict[str, AnnouncedServer]]:
    """Announce what changed on MCP servers; return the note and new state, either may be empty."""
    after: dict[str, AnnouncedServer] = {}
    lines: list[str] = []
    fresh: list[McpToolSpec] = []
    for server, state in sorted(states.items()):
        was, own = (
            told.get(server, AnnouncedServer()),
            [tool for tool in tools if tool.server == server],
        )
        here = _merge_announced(was, state, own)
        if here == was:
            continue
        after[server] = here
        added = [tool for tool in own if tool.name not in was.tools]
        fresh += added
        lends = f", {len(added)} tools" if added else ""
        lines.append(f"{escape_line(server)}: {escape_line(here.state)}{lends}")
        others = [tool.name for tool in own if tool.digest in {*here.changed} - {*was.changed}]
        lines += (f"{name} has a new definition" for name in others)
    return (
        f"{NOTE_OPENING}{USAGE_LINE}{_fit_tool_list(lines, fresh)}{NOTE_CLOSING}" if after else ""
    ), after


def _merge_announced(
    was: AnnouncedServer, state: str, own: Sequence[McpToolSpec]
) -> AnnouncedServer:
    """Return an MCP server's announced state after a note; a restart is not announced."""
    pinned = {tool.name: was.tools.get(tool.name, tool.digest) for tool in own}
    changed = tuple(sorted(tool.digest for tool in own if tool.digest != pinned[tool.name]))
    state = was.state if was.state and state == STARTING_STATE else state
    return AnnouncedServer(
        state, {**was.tools, **pinned}, tuple(dict.fromkeys((*was.changed, *changed)))
    )


def _fit_tool_list(lines: Sequence[str], tools: Sequence[McpToolSpec]) -> str:
    """Fit the MCP tool list into the announcement: with arguments, names only, or some names.

    Descriptions are shown only by a search: they are text of the servers, of any length.
    """
    head = "\n".join(line[:MAX_LINE_CHARS] for line in lines)[: MAX_ANNOUNCEMENT_CHARS // 2]
    names = sorted(tool.name for tool in tools)
    brief = sorted(f"{tool.name}({', '.join(map(_shorten_field, tool.fields))})" for tool in tools)
    for listed in (brief, names):
        text = ", ".join(listed)
        if len(head) + len(text) < MAX_ANNOUNCEMENT_CHARS:
            return f"{head}\n{text}".strip()
    kept = 0
    while (
        sum(len(name) + 2 for name in names[: kept + 1])
        < MAX_ANNOUNCEMENT_CHARS - len(head) - MAX_LINE_CHARS
    ):
        kept += 1
    return f"{head}\n{', '.join(names[:kept])}, and {len(names) - kept} more"


def _shorten_field(field: str) -> str:
    return escape_line(field)[:MAX_FIELD_CHARS]
