"""MCP tools announced to the model: kept out of the head, found by ToolSearch.

What a server says of its tools is pinned when the model is first told of them. A tool whose
definition changes later is another tool: that is said, and a person is asked before it runs.

Model sees: a note on the servers with what they lend, as far as there is room; later what changed.
Tokens: at most 1,700 for all servers together, and what five definitions take for one search.
Cache: never moves the prefix; the head has the same few tools however many are lent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from math import log

import msgspec

from travois.prompt.environment import plain

OPENING = "<servers>\n"
CLOSING = "\n</servers>"
HOW = (
    "MCP servers offer more tools: ToolSearch shows what they do and take, McpCall runs one. "
    "The servers chose the names.\n"
)
STARTING = "starting"
ROOM = 4_000
"""Maximum characters of the announcement of all servers."""
LINE = 240
LONGEST = 40
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
NAMED = 4.0
DESCRIBED = 1.0
ALIKE = 0.5
"""Weights of a word in a tool's name, in its description, and if only similar."""
LEAST = 3
"""Minimum common letters at the start of similar words."""


class Lent(msgspec.Struct, frozen=True):
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
        """The definition in a few letters: another one has others."""
        said = "\0".join((self.tool, self.description, self.schema))
        return blake2b(said.encode(errors="replace"), digest_size=8).hexdigest()


class Told(msgspec.Struct, frozen=True):
    """A server's state and tools as last announced to the model."""

    state: str = ""
    tools: dict[str, str] = {}
    """The pinned digest of each tool, by its name."""
    changed: tuple[str, ...] = ()
    """Digests that are not the pinned ones, and of which it was told."""


def announced(
    states: Mapping[str, str], tools: Sequence[Lent], told: Mapping[str, Told]
) -> tuple[str, dict[str, Told]]:
    """Announce what changed since the last note, and return the new state; both may be empty."""
    after: dict[str, Told] = {}
    lines: list[str] = []
    fresh: list[Lent] = []
    for server, state in sorted(states.items()):
        was, own = told.get(server, Told()), [tool for tool in tools if tool.server == server]
        here = _after(was, state, own)
        if here == was:
            continue
        after[server] = here
        added = [tool for tool in own if tool.name not in was.tools]
        fresh += added
        lends = f", {len(added)} tools" if added else ""
        lines.append(f"{plain(server)}: {plain(here.state)}{lends}")
        others = [tool.name for tool in own if tool.digest in {*here.changed} - {*was.changed}]
        lines += (f"{name} has a new definition" for name in others)
    return (f"{OPENING}{HOW}{_fitting(lines, fresh)}{CLOSING}" if after else ""), after


def _after(was: Told, state: str, own: Sequence[Lent]) -> Told:
    """Return the announced state of a server after this note; a restart is not announced."""
    pinned = {tool.name: was.tools.get(tool.name, tool.digest) for tool in own}
    changed = tuple(sorted(tool.digest for tool in own if tool.digest != pinned[tool.name]))
    state = was.state if was.state and state == STARTING else state
    return Told(state, {**was.tools, **pinned}, tuple(dict.fromkeys((*was.changed, *changed))))


def _fitting(lines: Sequence[str], tools: Sequence[Lent]) -> str:
    """Fit the tool list into the announcement: with arguments, names only, or some names.

    What they are for is told by a search only: that is text of the servers, at any length.
    """
    head = "\n".join(line[:LINE] for line in lines)[: ROOM // 2]
    names = sorted(tool.name for tool in tools)
    brief = sorted(f"{tool.name}({', '.join(map(_short, tool.fields))})" for tool in tools)
    for listed in (brief, names):
        text = ", ".join(listed)
        if len(head) + len(text) < ROOM:
            return f"{head}\n{text}".strip()
    kept = 0
    while sum(len(name) + 2 for name in names[: kept + 1]) < ROOM - len(head) - LINE:
        kept += 1
    return f"{head}\n{', '.join(names[:kept])}, and {len(names) - kept} more"


def _short(field: str) -> str:
    return plain(field)[:LONGEST]


def find(query: str, tools: Iterable[Lent], *, most: int) -> list[Lent]:
    """Find the tools that match a query, best first; `select:a,b` names them exactly."""
    known = list(tools)
    if query.startswith("select:"):
        wanted = [name.strip() for name in query.removeprefix("select:").split(",")]
        return [tool for name in wanted for tool in known if name in (tool.name, tool.tool)][:most]
    asked = set(words(query))
    texts = [(set(words(f"{t.server} {t.tool}")), set(words(t.description))) for t in known]
    rare = {word: _rarity(word, texts) for word in asked}
    scores = [sum(rare[word] * _weight(word, *text) for word in asked) for text in texts]
    ranked = sorted(zip(scores, known, strict=True), key=lambda pair: (-pair[0], pair[1].name))
    return [tool for score, tool in ranked if score > 0][:most]


def words(text: str) -> list[str]:
    """Return the words of a text or of a name in code, in small letters and without a plural."""
    return [_singular(word.casefold()) for word in WORDS.findall(text)]


def _singular(word: str) -> str:
    plural = word.endswith("s") and not word.endswith("ss") and len(word) > LEAST
    return word[:-1] if plural else word


def _rarity(word: str, texts: Sequence[tuple[set[str], set[str]]]) -> float:
    having = sum(word in name or word in about for name, about in texts)
    return log(1 + (len(texts) + 1) / (having + 0.5))


def _weight(word: str, name: set[str], about: set[str]) -> float:
    if word in name:
        return NAMED
    if word in about:
        return DESCRIBED
    return ALIKE if any(_alike(word, other) for other in name | about) else 0.0


def _alike(one: str, other: str) -> bool:
    short = min(len(one), len(other))
    return short >= LEAST and (one.startswith(other) or other.startswith(one))
