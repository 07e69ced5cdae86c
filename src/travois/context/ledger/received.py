"""Messages to an agent that are not from its user: its task, mail, reports and hook notes.

They are kept verbatim. A task is never omitted; of the rest the newest are shown in full, and those
that do not fit are in a named file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Literal

import msgspec

from travois.context.ledger.extractors import ToolAction
from travois.core.content import extract_text
from travois.core.facts import Changed, Entry, User
from travois.core.tokens import estimate_tokens
from travois.core.tool_names import canonical_name

ReceivedKind = Literal["task", "mail", "report", "hook"]
FORK_MARK = "fork"
"""The state that a fork's log sets where its own part begins."""
JOB_MAIL_PREFIX = "job:"
"""Before the id of a background command, in the letter that tells of its end."""
EXCERPT_CHARS = 240
"""The characters shown of a message that does not fit."""
RECEIVED_TITLE = "## What other agents and hooks told you, the newest last"
INHERITED_LABEL = "before the fork, to the original"


class ReceivedMessage(msgspec.Struct, frozen=True):
    """One message; `inherited` if a fork's original got it, before the fork began."""

    seq: int
    kind: ReceivedKind
    text: str
    inherited: bool = False


class RenderedMessages(msgspec.Struct, frozen=True):
    """The messages that fit, and in full all that are not shown in full."""

    text: str = ""
    overflow: str = ""


def find_fork_start(entries: Iterable[Entry]) -> int:
    """Return the entry that begins a fork's own messages; 0 if this is not a fork."""
    states = (e for e in entries if isinstance(e.fact, Changed) and e.fact.what == FORK_MARK)
    return max((entry.seq for entry in states), default=0)


def extract_received(
    entries: Iterable[Entry],
    acts: Iterable[ToolAction],
    *,
    fork: int,
    earlier: Iterable[ReceivedMessage] = (),
) -> tuple[ReceivedMessage, ...]:
    """List received messages from others in order; of repeated ones only the last.

    The tasks of a fork's original are not included: they are not the fork's to do.
    """
    told = [
        msgspec.structs.replace(one, inherited=one.seq < fork)
        for one in earlier
        if one.kind != "task" or one.seq >= fork
    ]
    told += [
        ReceivedMessage(entry.seq, kind, text, inherited=entry.seq < fork)
        for entry in entries
        if isinstance(entry.fact, User)
        and (kind := _classify_sender(entry.fact)) is not None
        and (text := extract_text(entry.fact.content)).strip()
        and (kind != "task" or entry.seq >= fork)
    ]
    told += (
        ReceivedMessage(a.seq, "report", a.text, inherited=a.seq < fork)
        for a in acts
        if _is_agent_report(a)
    )
    last = {(one.kind, one.text): one for one in sorted(told, key=lambda one: one.seq)}
    return tuple(sorted(last.values(), key=lambda one: one.seq))


def share_budget(sizes: Sequence[int], budget: int) -> list[int]:
    """Share a token budget among messages: what the short ones leave goes to the others."""
    shares = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for done, index in enumerate(order):
        shares[index] = min(sizes[index], budget // (len(order) - done))
        budget -= shares[index]
    return shares


def fence_text(tag: str, text: str) -> str:
    """Wrap a received text, unchanged, in tags that it cannot contain itself."""
    mark = sha256(text.encode(errors="replace")).hexdigest()[:8]
    return f'<{tag} mark="{mark}">\n{text}\n</{tag} {mark}>'


def render_received(
    messages: Sequence[ReceivedMessage], *, budget: int, where: str = ""
) -> RenderedMessages:
    """Render received mail, reports and hook notes: the newest whole, older ones shortened.

    `where` is the file with the full text of those not shown in full.
    """
    shown: dict[int, str] = {}
    used, cut = estimate_tokens(RECEIVED_TITLE), list[ReceivedMessage]()
    for one in sorted(messages, key=lambda one: -one.seq):
        whole = f"{_label_message(one)}\n{fence_text(one.kind, one.text)}"
        brief = f"{_label_message(one)} {_excerpt_message(one.text)}"
        text = whole if used + estimate_tokens(whole) <= budget else brief
        cut += [one] if text is brief else []
        if used + estimate_tokens(text) <= budget:
            used += estimate_tokens(text)
            shown[one.seq] = text
    lines = [shown[seq] for seq in sorted(shown)]
    if cut:
        there = where or "the files named below"
        lines.insert(0, f"- ({len(cut)} messages are shortened or omitted here; in full: {there}.)")
    whole = "\n\n".join(f"{_label_message(one)}\n{one.text}" for one in reversed(cut))
    return RenderedMessages("\n".join((RECEIVED_TITLE, *lines)) if messages else "", whole)


def _classify_sender(fact: User) -> ReceivedKind | None:
    """Return the kind of a received message: mail, hook, task or report; None for the user's."""
    match fact:
        case User(origin="mail"):
            return "mail"
        case User(origin="hook"):
            return "hook"
        case User(origin="task", mail=""):
            return "task"
        case User(origin="task", mail=letter) if not letter.startswith(JOB_MAIL_PREFIX):
            return "report"
        case _:
            return None


def _is_agent_report(act: ToolAction) -> bool:
    """Return whether a tool call returned an agent's report, not only started it."""
    apart = act.args.get("run_in_background")
    return canonical_name(act.name) == "Agent" and not apart and act.refused is None


def _label_message(one: ReceivedMessage) -> str:
    before = f", {INHERITED_LABEL}" if one.inherited else ""
    return f"- {one.kind} (entry {one.seq}{before}):"


def _excerpt_message(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= EXCERPT_CHARS else f"{flat[:EXCERPT_CHARS].rstrip()} […]"
