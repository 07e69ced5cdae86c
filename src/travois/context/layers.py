"""Switches and limits of the context layers; each can be turned off alone.

Model sees: nothing of this.
Tokens: these numbers bound those of all layers.
Cache: never moves the prefix.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.tool_names import canonical_name

MIN_RESULT_TOKENS = 250
NO_CAP = 1 << 40
MCP_TOOLS = "mcp__*"
"""Stands for every tool of a server, among the caps."""
MCP_RESOURCE_TOOLS = ("McpCall", "ReadMcpResource")
"""Tools of ours that bring what a server has."""
RESULT_CAPS = {"Read": 25_000, "WebFetch": 12_000, "Browser": 12_000, MCP_TOOLS: 25_000}
"""The most tokens that a result may take, of tools that need more or less than the others.

Read counts the file's own text and not the line numbers before it.
"""


IdlePolicy = Literal["normal", "cheap", "off"]
NotesMode = bool | Literal["auto"]


class ContextLayers(msgspec.Struct, frozen=True):
    """The switches and limits of the context layers; numbers are upper limits in tokens.

    What a compaction keeps or adds is also limited to a share of the room between head and
    threshold; how much of results is shown depends on what is free (`context.tool_results`).
    """

    offload: bool = True
    clear: bool = True
    compact: bool = True
    """Start compaction automatically."""
    shorten: bool = True
    """Allow compaction at all; without it, a full window is the end of a conversation."""
    draft: bool = True
    """Let the model add its own text to the ledger."""
    notes: NotesMode = "auto"
    """Let the model keep notes while it works, instead of one draft before a compaction;
    `auto` if that costs less by the prices of the model."""
    notes_template: str = ""
    notes_prompt: str = ""
    """Files of the user's own that take the place of ours."""
    restore: bool = True
    result: int = 8_000
    """The most of one result that is shown, where no cap is known for its tool."""
    caps: dict[str, int] = {}
    """The same for single tools, by name, before `RESULT_CAPS`; 0 for no cap."""
    reply: int = 100_000
    """All results of one reply together."""
    shown: int = 2_500
    """A result that gives way to others of its reply is not made shorter than this."""
    tail: int = 40_000
    """The newest part of the conversation that a compaction keeps verbatim."""
    ledger: int = 12_000
    code: int = 6_000
    """The declarations that were seen in what a compaction sets aside."""
    contents: int = 12_000
    task: int = 40_000
    """The most of a sub-agent's task that a compaction repeats word for word."""
    received: int = 6_000
    """The same of mail, reports and hook notes."""
    threshold: int = 0
    """The size at which compaction starts; 0 to derive it from the window."""
    percent: float = 0.0
    """The same as a share of the window less the room for a reply, in percent; zero for none."""
    hard_limit: int = 0
    """The size beyond which nothing more is sent; 0 for the end of the window."""
    off_by: str = ""
    """The setting or variable that turned compaction off, as the user knows it."""
    window: int = 0
    """The most of the model's window that is to be used; zero means all of it."""
    idle: IdlePolicy = "normal"
    """The pause that makes room: an hour or a half-full window (`normal`), any after which the
    cache is gone (`cheap`), or none (`off`)."""
    idle_seconds: float = 3_600.0
    """The pause after which old results are cleared, however few tokens are in use."""
    cold: int = 45_000
    """With `cheap`, a conversation beyond this is compacted when the cache is gone anyway."""
    kept: int = 5
    """The number of newest results that are never cleared."""
    cleared: int = 5_000
    """Clearing after a pause that frees less than this is not worth it."""
    pressure: bool = True
    """Clear old results between the warning and the threshold, where that pays off."""
    pressed_kept: int = 3
    pressed_tokens: int = 40_000
    """Under pressure, the number of newest results and of their tokens that stay."""
    pressed_cleared: int = 20_000
    """The fewest tokens that clearing under pressure must free; less is left to compaction."""
    server: bool = True
    """Let the provider clear for us, which keeps thinking valid."""
    inputs: bool = False
    """Clear long arguments of old calls that wrote files along with their results."""
    thinking: bool = True
    """Keep only the last turn's thinking after an hour's pause."""
    collapse: bool = False
    """Fold old calls into one line each before a compaction; if that makes enough room,
    there is no compaction."""
    snip: bool = False
    """Let folding drop the oldest of these lines."""
    signed: bool = False
    """Add the provider's own summary, which keeps thinking valid, to ours."""
    lifetime: bool = True
    """Choose the prompt cache lifetime from the pauses in the session."""
    keep_warm: int = 0
    """The number of times that the cache is renewed while waiting for a prompt."""

    @property
    def is_automatic(self) -> bool:
        """Return whether compaction may start by itself."""
        return self.compact and self.shorten

    def result_cap(self, tool: str) -> int:
        """Return the token limit of this tool's results, if there is room."""
        own = canonical_name(tool)
        names = (
            (tool, MCP_TOOLS)
            if tool.startswith("mcp__") or tool in MCP_RESOURCE_TOOLS
            else (tool, own)
        )
        known = (caps[name] for caps in (self.caps, RESULT_CAPS) for name in names if name in caps)
        return next(known, self.result) or NO_CAP

    def scale_to_room(self, room: int) -> ContextLayers:
        """Return these limits scaled down to the given room."""
        fits = {name: min(getattr(self, name), int(room * share)) for name, share in ROOM_SHARES}
        return replace(self, **{name: max(MIN_RESULT_TOKENS, most) for name, most in fits.items()})


ROOM_SHARES = (
    ("tail", 0.25),
    ("ledger", 0.2),
    ("code", 0.1),
    ("contents", 0.12),
    ("task", 0.4),
    ("received", 0.08),
    ("pressed_tokens", 0.12),
    ("pressed_cleared", 0.1),
)
