"""Recovery from requests that overflow the context window: they are made smaller and resent."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from msgspec.structs import replace

from travois.context.window import current_model, scaled_layers
from travois.core.content import AnyBlock, Call, Media, Opaque, Text, TextOrMedia
from travois.core.facts import (
    IMPORTED_DETAIL,
    Assistant,
    Changed,
    Cleared,
    Compacted,
    Epoch,
    Result,
    User,
)
from travois.core.patterns import compile_lazily
from travois.core.tokens import context_tokens, free_request_room, head_tokens, token_ratio
from travois.core.view import View, ViewItem
from travois.engine.agent import Agent
from travois.lazy_imports import lazy_imports
from travois.ports.world import UserWarned
from travois.providers.replies import ApiError

with lazy_imports():
    from travois.context.compaction import compact, cut, summary_call, summary_prompt
    from travois.context.compaction import record as compaction_record
    from travois.context.compaction import summary as compaction_summary


KEPT_MEDIA_COUNTS = (20, 5, 0)
"""The messages with media that stay, try by try, until a request can hold them."""
BODY_SHORTAGES = frozenset(("bytes", "media", "media_bytes"))
MAX_SHRINKS = 2
"""The times that a request is made smaller before it fails: three calls in all."""
OVERFLOW_MARGIN = 0.85
TRUNCATES_STATE = "truncates:"
"""State of the session: the server of this model cuts prompts at so many tokens of this window."""
CUTS_STATE = "cuts:"
"""The same, as versions up to 0.1.0 wrote it on the word of the estimate alone."""
WHOLE_WINDOW_SHARE = 0.9
"""A server that counts this share of the window has all of it."""
MIN_TOKEN_COUNT = 1_000
"""A server that counts less of a prompt with tools does not count at all."""
WORDS_PER_TOKEN = 2
"""No vocabulary packs more words into one token: hardly any has one that spans a space."""
LETTERS_PATTERN = compile_lazily(r"(?<!\S)[A-Za-z]+")
TOKENS_PER_MESSAGE = 64
"""The most tokens that a template wraps around a message."""
SHRINK_SHARE = 0.6
"""The share of its size that a request keeps if the provider did not name the excess."""


async def recover_from_overflow(agent: Agent, problem: ApiError, *, tried: int) -> bool:
    """Make an overflowing request smaller; return whether another try may succeed."""
    if tried >= MAX_SHRINKS:
        return False
    match problem.kind:
        case "pairing" | "bound" | "thinking":
            return flatten_history(agent)
        case "overflow":
            _adopt_window(agent, problem)
            return await _compact_to_fit(agent, problem)
        case "large":
            without_media = tried == 0 and drop_media(agent, problem.message)
            return without_media or await _compact_to_fit(agent, problem)
        case "media":
            return drop_media(agent, problem.message)
        case _:
            return False


def flatten_history(agent: Agent) -> bool:
    """Replace a history that the provider refuses by one note; return whether there was any."""
    items = tuple(agent.session.view.items)
    if len(items) < 2:
        return False
    part = (
        cut.ConversationCut(items[:-1], items[-1:])
        if isinstance(items[-1].fact, User)
        else cut.ConversationCut(items, ())
    )
    record, layers = agent.session.fold(compaction_record.SessionRecord), scaled_layers(agent)
    paper = compaction_summary.SummarySources(
        summary_prompt.SummaryRequest("overflow"),
        summary_call.ModelSummary(why="the provider refused the conversation as it was"),
    )
    fact = compaction_summary.build_compaction(agent, part, record, layers=layers, paper=paper)
    before = context_tokens(agent.session.view)
    agent.session.append(replace(fact, trigger="overflow", before=before))
    return True


def drop_old_media(agent: Agent) -> None:
    """Drop the oldest images and documents when a request overflows with them."""
    if not agent.session.pictures or not current_model(agent).images:
        return
    for keep in KEPT_MEDIA_COUNTS:
        view = agent.session.view
        if BODY_SHORTAGES.isdisjoint(free_request_room(view).shortages):
            return
        found = [item.seq for item in view.items if _has_media(item)]
        until = found[-keep - 1] if len(found) > keep else 0
        drop_media(agent, "a request cannot hold more", until=until)


def drop_media(agent: Agent, why: str, *, until: float = inf) -> bool:
    """Replace media up to an entry by a remark; return whether there were any."""
    items = [item for item in agent.session.view.items if item.seq <= until and _has_media(item)]
    remark = f"[An image or document was left out: {why}]"
    answered = [item.fact.call for item in items if isinstance(item.fact, Result)]
    if answered:
        agent.session.append(Cleared(tuple(answered), remark))
    for item in items:
        if isinstance(item.fact, User):
            summary = tuple(_replace_media(block, remark) for block in item.fact.content)
            agent.session.append(Compacted(item.seq, item.seq, summary, "dropped"))
    return bool(items)


def _replace_media(block: TextOrMedia, remark: str) -> Text:
    return block if isinstance(block, Text) else Text(remark)


def _has_media(item: ViewItem) -> bool:
    return any(isinstance(block, Media) for block in item.fact.content)


def notice_truncation(agent: Agent) -> None:
    """Detect a local server that silently truncates long prompts.

    Only counts tell, and only where no content can explain them: the server counts fewer tokens
    than the prompt has pairs of words, or its count stops growing, twice, while the prompt grows.
    """
    session, view = agent.session, agent.session.view
    epoch, counts = view.epoch, _list_prompt_counts(view)
    if epoch is None or not counts or not agent.models.is_local(epoch.model):
        return
    name, window = epoch.model.name, epoch.model.window
    known, _, before = session.state.get(TRUNCATES_STATE + name, "0/").partition("/")
    most = max(int(known), *(count for _, count in counts))
    if (
        most >= WHOLE_WINDOW_SHARE * window
        or before == str(window)
        or not _is_truncated(view, counts)
    ):
        return
    session.append(Changed(TRUNCATES_STATE + name, f"{most}/{window}"))
    why = f"{name} truncates long prompts: it counts at most {most:,} tokens"
    told = "that is too small to work with"
    if most >= 2 * head_tokens(epoch) * token_ratio(view):
        session.append(_narrow_window(epoch, most, why=why))
        told = "the conversation stays within that from now on"
    fix = f"start the server with a larger context and pass it, as in --model {name}[64k]"
    session.emit(UserWarned(f"{why}; {told}. To use more, {fix}"))


def restore_window(agent: Agent) -> str:
    """Restore a window that an earlier version shrank by mistake; return a notice.

    Those versions believed that a provider cuts prompts when its count was far below an estimate.
    """
    session, epoch = agent.session, agent.session.view.epoch
    if epoch is None or not session.state.get(CUTS_STATE + epoch.model.name):
        return ""
    name, narrow = epoch.model.name, int(session.state[CUTS_STATE + epoch.model.name])
    if epoch.model.window != narrow or agent.models.is_local(epoch.model):
        return ""
    heads = (e.fact.model for e in session.history() if isinstance(e.fact, Epoch))
    known = [head for head in heads if head.name == name and head.window > narrow]
    if not known:
        return ""
    model = replace(epoch.model, window=known[-1].window, output=known[-1].output)
    why = f"{name} has its window of {model.window:,} tokens again"
    session.append(Changed(CUTS_STATE + name, ""))
    session.append(replace(epoch, model=model, why=why, unbind=False))
    return f"{why}: an earlier version wrongly took it to truncate prompts"


def _is_truncated(view: View, counts: list[tuple[int, int]]) -> bool:
    """Return whether the server's last prompt counts are too low, so that it must truncate.

    A template may show tools only while the last message is the user's, so that only requests
    which end alike are compared. Counts that say nothing are passed over.
    """
    last = type(view.items[counts[-1][0] - 1].fact)
    alike = [(at, count) for at, count in counts if type(view.items[at - 1].fact) is last]
    telling = [
        n for n, (at, count) in enumerate(alike) if _counts_whole_prompt(view, at, count=count)
    ]
    if telling[-1:] != [len(alike) - 1]:
        return False
    enough = 1 if len(counts) == 1 else 2
    shorts = [_is_count_too_low(view, alike[: n + 1]) for n in telling[-enough:]]
    return len(shorts) == enough and all(shorts)


def _counts_whole_prompt(view: View, at: int, *, count: int) -> bool:
    """Return whether a prompt count covers the whole prompt, not only new tokens."""
    said = view.items[:at]
    before = max((i for i, item in enumerate(said) if isinstance(item.fact, Assistant)), default=0)
    return count >= MIN_TOKEN_COUNT and (not before or count > sum(map(_max_tokens, said[before:])))


def _is_count_too_low(view: View, counts: list[tuple[int, int]]) -> bool:
    """Return whether the last prompt count is lower than the prompt can be: truncation."""
    at, count = counts[-1]
    said = view.items[:at]
    least: float = _min_tokens(said)
    if len(counts) > 1:
        peak, most = max(counts[:-1], key=lambda row: row[1])
        grown = _min_tokens(said[peak:]) - sum(map(_forgettable_tokens, said[:peak]))
        least = max(least, most + grown)
    return count < least


def _list_prompt_counts(view: View) -> list[tuple[int, int]]:
    """Return replies since the last edit with their prompt counts, to detect truncation."""
    if view.cleared:
        return []
    return [
        (at, item.fact.usage.prompt)
        for at, item in enumerate(view.items)
        if item.seq > view.moved
        and isinstance(item.fact, Assistant)
        and item.fact.usage.prompt
        and not item.fact.usage.estimated
        and item.fact.detail != IMPORTED_DETAIL
    ]


def _min_tokens(items: Iterable[ViewItem]) -> int:
    """Return the fewest tokens that messages can have in any vocabulary, to detect truncation."""
    shown = (item.fact.content for item in items if not isinstance(item.fact, Assistant))
    texts = (block.text for content in shown for block in content if isinstance(block, Text))
    return sum(len(LETTERS_PATTERN.findall(text)) for text in texts) // WORDS_PER_TOKEN


def _max_tokens(item: ViewItem) -> int:
    """Return the most tokens that a message can have: one per byte."""
    return TOKENS_PER_MESSAGE + sum(map(_block_byte_size, item.fact.content))


def _forgettable_tokens(item: ViewItem) -> float:
    """Return the tokens that chat templates may drop later: thinking and older images."""
    blocks = item.fact.content
    if any(isinstance(block, Media) for block in blocks):
        return inf
    if not isinstance(item.fact, Assistant):
        return 0
    return sum(
        _block_byte_size(block)
        for block in blocks
        if isinstance(block, Opaque) or (isinstance(block, Text) and "<think" in block.text)
    )


def _block_byte_size(block: AnyBlock) -> int:
    """Return the bytes of a content block, as an upper bound of its tokens."""
    match block:
        case Text(text=text) | Opaque(raw=text):
            return len(text.encode(errors="surrogatepass"))
        case Call():
            return TOKENS_PER_MESSAGE + len(
                f"{block.name}{block.args}".encode(errors="surrogatepass")
            )
        case Media():
            return block.size


def _narrow_window(epoch: Epoch, window: int, *, why: str) -> Epoch:
    """Return the request head with a smaller window after an overflow."""
    output = min(epoch.model.output, max(1, window // 4))
    return replace(
        epoch, model=replace(epoch.model, window=window, output=output), why=why, unbind=False
    )


def _adopt_window(agent: Agent, problem: ApiError) -> None:
    """Adopt the context window that an overflow error names instead of the catalogue's."""
    epoch = agent.session.view.epoch
    if epoch is None or not 0 < problem.limit < epoch.model.window:
        return
    agent.session.append(_narrow_window(epoch, problem.limit, why=problem.message))


async def _compact_to_fit(agent: Agent, problem: ApiError) -> bool:
    """Compact after a request was refused as too large; return whether that happened."""
    if not agent.context.layers.is_automatic:
        return False
    size = context_tokens(agent.session.view)
    if problem.tokens and problem.limit:
        goal = size * problem.limit / problem.tokens * OVERFLOW_MARGIN
    else:
        goal = min(size, current_model(agent).window) * SHRINK_SHARE
    fact = await compact.compact_conversation(agent, trigger="overflow", goal=round(goal))
    return fact is not None
