"""The facts that a session log can contain, each an immutable value.

Facts in the first group determine what the model sees; those in the second are for audit, resume
and the screen, and the view shows nothing of them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from travois.core.content import AnyBlock, TextOrMedia
from travois.core.models import ModelCard, Usage


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag=str.lower):
    """One thing that happened or was decided; never changed, never withdrawn."""


class ToolSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A tool as defined to the model; the schema is JSON text."""

    name: str
    description: str
    schema: str
    grammar: str = ""
    """The grammar of its one argument, for tools that take plain text instead of JSON."""


# --- what the model sees -------------------------------------------------------------------------


class Epoch(Fact, frozen=True):
    """The frozen head of every request until the next epoch."""

    model: ModelCard
    system: str
    tools: tuple[ToolSpec, ...] = ()
    why: str = "start"
    unbind: bool = False
    """True if thinking before this point is dropped although the head stays the same."""
    toolset: str = ""
    """The toolset that names its tools; empty for our own."""


MessageOrigin = Literal["human", "note", "hook", "mail", "task"]


class User(Fact, frozen=True):
    """Something said to the model, by a person or by the harness (`origin` tells who)."""

    content: tuple[TextOrMedia, ...]
    origin: MessageOrigin = "human"
    mail: str = ""
    """The id of a mail message; one that is in the log is not delivered again."""


StopReason = Literal[
    "end",  # the model has said its last word
    "calls",  # it waits for tool results
    "pause",  # the provider paused a long turn: send the history again
    "length",  # the output limit cut it
    "window",  # the context window cut it
    "refusal",  # it will not answer
    "compaction",  # the provider compacted
    "unknown",
]


IMPORTED_DETAIL = "imported"
"""The detail of a reply that was given elsewhere: no request of ours, and so no head, led to it."""


class Assistant(Fact, frozen=True):
    """One whole reply of the model."""

    content: tuple[AnyBlock, ...]
    stop: StopReason
    usage: Usage = Usage()
    model: str = ""
    id: str = ""
    request: str = ""
    detail: str = ""


class Result(Fact, frozen=True):
    """The answer to one tool call. `detail` is structured JSON for programs, not for the model."""

    call: str
    content: tuple[TextOrMedia, ...]
    error: bool = False
    detail: str = ""
    lines: int = -1
    """The lines of the result, for display; negative to count the shown lines."""


class Offloaded(Fact, frozen=True):
    """A result that the model has not seen yet is shown as this preview; the blob has it whole."""

    call: str
    blob: str
    preview: str


class Cleared(Fact, frozen=True):
    """Old results are shown as this text (`local`), or the provider leaves them out (`server`).

    `{call}` in the text stands for the id of each call. Where the provider clears, the text is
    told at the tail. `inputs` are the long arguments of calls, `thinking` is all up to `until`.
    """

    calls: tuple[str, ...]
    text: str
    where: Literal["local", "server"] = "local"
    what: Literal["results", "inputs", "thinking"] = "results"
    until: int = 0
    """The last entry whose thinking is no longer shown."""


class Compacted(Fact, frozen=True):
    """The span from entry `first` to entry `last`, as shown, is replaced by a summary."""

    first: int
    last: int
    summary: tuple[AnyBlock, ...]
    by: Literal["ledger", "model", "provider", "dropped", "folded", "notes"]
    """The author: rules from the log alone, the model with them, the provider; `dropped` left
    only pictures out, `folded` only made lines of old calls. Logs of earlier versions say `notes`
    for `ledger`."""
    trigger: str = ""
    before: int = 0
    """The window in use, in tokens, when it was decided."""
    after: int = 0
    """The expected size afterwards; the next reply brings the real one."""
    seconds: float = 0.0
    files: tuple[str, ...] = ()
    """Files with the replaced items."""
    titles: tuple[str, ...] = ()
    """The title of each of these files."""
    limit: int = 0
    """The size at which it was to start by itself."""
    source: str = ""
    """The source of the model's part: notes, draft, draft and fork, inherited, fork, direct,
    cut head, or ledger if there is none."""
    why: str = ""
    """The reason why a better source failed, if one was tried."""


class Rewound(Fact, frozen=True):
    """The session continues from entry `to`, as if nothing after it had been said."""

    to: int


class Restored(Fact, frozen=True):
    """The items that this compaction replaced are shown again."""

    compaction: int


# --- for audit, resume and the screen ------------------------------------------------------------


class Opened(Fact, frozen=True):
    """A session began, from nothing or as a fork of entry `at` of `parent`."""

    session: str
    cwd: str
    project: str
    version: str
    parent: str = ""
    at: int = 0


class Sent(Fact, frozen=True):
    """A request left: how many pieces, the digest of their chain, and that of all that was said."""

    pieces: int
    chain: str
    digest: str
    size: int
    tokens: int = 0
    output: int = 0
    """The requested reply length, if it was less than the model's maximum."""


class Failed(Fact, frozen=True):
    """A request failed; `wait` is the pause before the next try, negative when there is none."""

    kind: str
    message: str
    status: int = 0
    attempt: int = 1
    wait: float = -1.0
    request: str = ""


EndReason = Literal["end", "failed", "aborted", "turns", "budget", "refusal", "hook", "crashed"]


class Ended(Fact, frozen=True):
    """A turn is over."""

    why: EndReason
    detail: str = ""
    limit: str = ""
    """The limit that was reached, such as `dollars`; empty for none."""


class Asked(Fact, frozen=True):
    """A person was asked whether a call may run."""

    call: str
    question: str
    digest: str = ""
    """Of exactly what was shown."""


class Decided(Fact, frozen=True):
    """The permission decision on a tool call and its reason; written before the call starts."""

    call: str
    verdict: Literal["allow", "deny"]
    because: str
    by: Literal["rule", "mode", "person", "hook", "schema", "sandbox", "loop"] = "rule"


class Hooked(Fact, frozen=True):
    """A hook ran."""

    event: str
    command: str
    outcome: str
    call: str = ""


class Spawned(Fact, frozen=True):
    """A child (agent or background job) was started."""

    id: str
    kind: str
    what: str
    call: str = ""


class Finished(Fact, frozen=True):
    """A child ended; `usage` is what it cost us."""

    id: str
    outcome: str
    usage: Usage = Usage()
    dollars: float | None = None
    """The cost, where it is known; else it follows from the current model's prices."""
    turns: int = 0
    """The model calls of an agent and of all that it started."""


class Changed(Fact, frozen=True):
    """A change of session state to `value`: `cwd`, `name`, `mode`, `todos`, `seen`."""

    what: str
    value: str


class Noted(Fact, frozen=True):
    """Something worth logging that is neither of the above."""

    what: str
    text: str


class Unknown(Fact, frozen=True):
    """A fact of a later version that may be ignored."""

    raw: str


ShapingFact = (
    Epoch | User | Assistant | Result | Offloaded | Cleared | Compacted | Rewound | Restored
)
AnyFact = (
    ShapingFact
    | Opened
    | Sent
    | Failed
    | Ended
    | Asked
    | Decided
    | Hooked
    | Spawned
    | Finished
    | Changed
    | Noted
    | Unknown
)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A fact with its number, which orders it, and the time, which does not."""

    seq: int
    at: float
    fact: AnyFact
