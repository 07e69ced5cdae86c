"""Calls for a compaction summary's model text: from notes, a draft, a fork or a direct request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import anyio
import msgspec
from msgspec.structs import replace

from travois.context.compaction import outline, spans
from travois.context.compaction.cut import is_summary
from travois.context.compaction.outline import SummaryPart
from travois.context.compaction.record import SessionRecord
from travois.context.compaction.summary_prompt import (
    SummaryRequest,
    build_summary_prompt,
    fill_summary_prompt,
    summary_outline,
    summary_word_limit,
)
from travois.context.ledger.received import FORK_MARK
from travois.context.session_memory.notes import prepare_notes_summary
from travois.context.window import current_model, scaled_layers
from travois.core.content import Call, Text, extract_text
from travois.core.errors import UserError
from travois.core.facts import Assistant, Entry, Epoch, User
from travois.core.legality import find_send_blocker
from travois.core.models import ModelCard
from travois.core.tokens import (
    context_tokens,
    effective_window,
    estimate_tokens,
    fact_tokens,
    family_ratio,
)
from travois.core.view import View, ViewItem, project_view
from travois.engine.agent import Agent, retry_delay
from travois.engine.budget import BudgetExhausted
from travois.engine.fork import send_side_request
from travois.ports.world import CompactionProgress
from travois.providers.replies import ApiError, ApiErrorKind, Reply
from travois.providers.request import PrefixBreak

PROGRESS_INTERVAL_SECONDS = 30.0
"""The interval at which front ends are notified that a summary is still being written."""
MAX_DIRECT_OUTPUT_TOKENS = 20_000
"""The longest reply to a direct call, in tokens."""
MAX_OUTPUT_SHARE = 0.25
"""The part of a small window that such a reply may take."""
TOKEN_COUNT_MARGIN = 1.15
"""The factor by which a provider's token count may exceed our estimate."""
MAX_SHORTENED_TRIES = 3
"""The number of attempts with the oldest rounds omitted before giving up on a model."""
DROPPED_ROUNDS_SHARE = 0.2
"""The share of the rounds that is left out where nobody said by how much they are too long."""
UPDATE_WORDS = 400
MAX_RETRY_WAIT_SECONDS = 5.0
FINAL_PROBLEMS: tuple[ApiErrorKind, ...] = ("auth", "billing", "quota", "forbidden", "missing")
"""Problems after which asking in another way cannot help."""
UNREACHABLE_PROBLEMS: tuple[ApiErrorKind, ...] = ("network", "timeout")
"""Problems of which two in a row mean that the provider is unreachable."""
SUMMARY_SYSTEM_PROMPT = (
    "You summarise conversations between a user and a coding agent. You have no tools."
)
OMITTED_ROUNDS_NOTE = (
    "[The {count} oldest rounds of this conversation are omitted here because it is too long. It "
    "began like this:]"
)
ENDS_SAFETY_FACTOR = 0.9
"""The ends of a text may have more tokens for their length than its middle."""
BEGINNING_CHARS = 1_000
"""The characters of the first round that are shown where the oldest rounds are omitted."""

SummarySource = Literal[
    "notes", "draft", "draft and fork", "inherited", "fork", "direct", "cut head", "ledger"
]
SOURCE_DESCRIPTIONS: dict[SummarySource, str] = {
    "notes": "from the session notes",
    "draft": "by the model, prepared in advance",
    "draft and fork": "by the model, prepared in advance and updated",
    "inherited": "by the model, on the conversation before the fork",
    "fork": "by the model",
    "direct": "by the model, in a separate request",
    "cut head": "by the model, without the oldest rounds",
    "ledger": "from the log, without a model",
}


class ModelSummary(msgspec.Struct, frozen=True):
    """The model's part: its text, who wrote it, and why it was not written in a better way."""

    text: str = ""
    source: SummarySource = "ledger"
    covers: int = 0
    """The last entry that it covers; 0 if it covers none."""
    why: str = ""


class SummaryFailure(Exception):
    """A failed attempt to get a summary; `final` if no other attempt can succeed."""

    def __init__(self, why: str, *, problem: ApiError | None = None, final: bool = False) -> None:
        super().__init__(why)
        self.problem = problem
        self.final = final

    @property
    def is_unreachable(self) -> bool:
        """Return whether the provider may be unreachable."""
        return self.problem is not None and self.problem.kind in UNREACHABLE_PROBLEMS


async def write_model_summary(agent: Agent, request: SummaryRequest) -> ModelSummary:
    """Get a compaction's model text from the first source that works: notes, draft, fork, request.

    If none works, the ledger stands alone, and the reason is recorded.
    """
    if why := _reason_not_to_ask(agent):
        return ModelSummary(why=why)
    if ready := _use_prepared_part(agent, request):
        return ready
    if request.trigger == "cold" and agent.context.layers.idle == "cheap":
        return ModelSummary(why="no model is asked after a pause with context.idle = cheap")
    return await report_progress_during(agent, lambda: _try_summary_sources(agent, request))


def _reason_not_to_ask(agent: Agent) -> str:
    """Return why no model may be asked for a summary; empty if one may."""
    if not agent.context.layers.draft:
        return "context.draft is off"
    return "this model is too small to write one" if current_model(agent).is_frail else ""


def _use_prepared_part(agent: Agent, request: SummaryRequest) -> ModelSummary | None:
    """Return the summary text prepared in advance, if it fits and no special one was requested."""
    if request.is_custom or request.anew:
        return None
    most = _max_summary_tokens(agent, request)
    if (noted := prepare_notes_summary(agent)) and _is_prepared_fresh(
        agent, noted.text, noted.covers, most=most
    ):
        return ModelSummary(noted.text, "notes", noted.covers)
    draft, at = agent.session.draft, agent.session.drafted_at
    if draft and _is_prepared_fresh(agent, draft, at, most=most):
        return ModelSummary(draft, "draft", at)
    return None


def _is_prepared_fresh(agent: Agent, text: str, covers: int, *, most: int) -> bool:
    """Return whether a prepared summary fits and what it does not cover can stay verbatim."""
    return (
        estimate_tokens(text) <= most
        and count_uncovered_tokens(agent, covers) <= scaled_layers(agent).tail
    )


def find_prepared_summary(agent: Agent) -> ModelSummary:
    """Return an up-to-date summary from notes or a draft; else an empty one and why."""
    why = _reason_not_to_ask(agent)
    ready = None if why else _use_prepared_part(agent, SummaryRequest("switch"))
    return ready or ModelSummary(why=why or "no up-to-date summary was prepared")


def _max_summary_tokens(agent: Agent, request: SummaryRequest) -> int:
    """Return the token limit of a summary's model text."""
    return request.most or scaled_layers(agent).ledger


def count_uncovered_tokens(agent: Agent, at: int, *, until: int | None = None) -> int:
    """Count the tokens between two entries that a prepared summary does not cover."""
    items = (i for i in agent.session.view.items if i.seq > at and not is_summary(i))
    return sum(fact_tokens(i.fact) for i in items if until is None or i.seq <= until)


def is_summary_outdated(agent: Agent, summary: ModelSummary, *, until: int) -> bool:
    """Return whether a compaction replaces something that a prepared summary does not cover.

    The tail that was to stay verbatim may not have fitted.
    """
    beforehand = summary.source in ("draft", "notes", "inherited")
    return beforehand and count_uncovered_tokens(agent, summary.covers, until=until) > 0


def describe_source(source: str) -> str:
    """Describe where a summary's model text came from."""
    return next((told for known, told in SOURCE_DESCRIPTIONS.items() if known == source), source)


async def report_progress_during(
    agent: Agent, work: Callable[[], Awaitable[ModelSummary]]
) -> ModelSummary:
    """Run a summary call that may take minutes, and report progress every half minute."""
    done: ModelSummary | UserError | OSError = ModelSummary()

    async def tick() -> None:
        seconds, tokens = 0.0, context_tokens(agent.session.view)
        while True:
            agent.session.emit(CompactionProgress(seconds, tokens=tokens))
            await anyio.sleep(PROGRESS_INTERVAL_SECONDS)
            seconds += PROGRESS_INTERVAL_SECONDS

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        try:
            done = await work()
        except (UserError, OSError) as error:  # raised below: a group would wrap it
            done = error
        group.cancel_scope.cancel()
    if isinstance(done, ModelSummary):
        return done
    raise done


async def _try_summary_sources(agent: Agent, request: SummaryRequest) -> ModelSummary:
    """Try the summary sources in turn until one works; record the failures before it."""
    told: list[str] = []
    last: SummaryFailure | None = None
    for source, rung in _list_summary_attempts(agent, request):
        try:
            written = await rung(last.problem if last else None)
        except SummaryFailure as failure:
            told.append(f"{source}: {failure}")
            if failure.final or (last and last.is_unreachable and failure.is_unreachable):
                break
            await _wait_before_retry(agent, failure.problem, attempt=len(told))
            last = failure
        else:
            return replace(written, why="; ".join(told))
    return ModelSummary(why="; ".join(told))


SummaryAttempt = Callable[[ApiError | None], Awaitable[ModelSummary]]


def _list_summary_attempts(
    agent: Agent, request: SummaryRequest
) -> Sequence[tuple[SummarySource, SummaryAttempt]]:
    """List the ways to ask a model for a summary, cheapest and best first."""
    direct = DirectSummaryCall(agent, request)
    rungs: list[tuple[SummarySource, SummaryAttempt]] = []
    if request.trigger != "overflow" and _fits_summary_prompt(agent, request):
        fresh = agent.session.draft and not request.is_custom
        if fresh and estimate_tokens(agent.session.draft) <= _max_summary_tokens(agent, request):
            rungs.append(("draft and fork", lambda _: _update_draft(agent, request)))
        if before := view_before_fork(agent, request):
            rungs.append(("inherited", lambda _: _ask_fork_for_siblings(agent, request, before)))
        else:
            rungs.append(("fork", lambda _: _ask_fork(agent, request)))
    rungs.append(("direct", direct.ask))
    again: tuple[SummarySource, SummaryAttempt] = ("cut head", direct.ask_again)
    return [*rungs, *(again for _ in range(MAX_SHORTENED_TRIES))]


def _fits_summary_prompt(agent: Agent, request: SummaryRequest) -> bool:
    """Return whether the conversation fits together with the summary prompt and a reply."""
    most = _max_summary_tokens(agent, request)
    asked = round(
        estimate_tokens(build_summary_prompt(agent, request, most=most))
        * family_ratio(current_model(agent).id)
    )
    return context_tokens(agent.session.view) + asked + most <= current_model(agent).window


async def _wait_before_retry(agent: Agent, problem: ApiError | None, *, attempt: int) -> None:
    """Wait before a failed summary request is retried, if it may be."""
    if problem is not None and problem.retry:
        wait = retry_delay(
            problem, attempt, patience=agent.models.retry, chance=agent.runtime.jitter()
        )
        await agent.runtime.sleep(min(wait or 0.0, MAX_RETRY_WAIT_SECONDS))


# --- the fork: the conversation's own prefix, and the instruction behind it ----------------------


async def prepare_draft(agent: Agent) -> str:
    """Let the model draft a compaction's summary in advance; empty if that fails."""
    try:
        return (await _ask_fork(agent, SummaryRequest("auto"), what="draft")).text
    except SummaryFailure:
        return ""


async def _ask_fork(
    agent: Agent, request: SummaryRequest, *, what: str = "summary"
) -> ModelSummary:
    """Ask the model for a compaction summary in a fork of the conversation."""
    asked = build_summary_prompt(agent, request, most=_max_summary_tokens(agent, request))
    covers = request.part.last_seq if request.part else agent.session.seq
    text = await _summary_from_fork(agent, asked, request=request, what=what)
    return ModelSummary(text, "fork", covers)


async def _update_draft(agent: Agent, request: SummaryRequest) -> ModelSummary:
    """Let the model update its summary draft with what came since."""
    draft, parts = agent.session.draft, summary_outline(agent, request)
    newest = " and ".join(f"“{part.title}”" for part in parts if part.newest)
    told = {"draft": draft, "newest": newest, "where": f"entry {agent.session.drafted_at}"}
    asked = fill_summary_prompt("summary-since.md", {**told, "words": str(UPDATE_WORDS)})
    covers = agent.session.seq
    since = await _summary_from_fork(agent, asked, request=request, what="summary")
    before, after = (outline.sort_into_parts(text, parts) for text in (draft, since))
    text = outline.join_summary_parts(outline.merge_part_texts(before, after, parts), parts)
    if estimate_tokens(text) > _max_summary_tokens(agent, request):
        raise SummaryFailure("too long together with the draft")
    return ModelSummary(text, "draft and fork", covers)


def view_before_fork(agent: Agent, request: SummaryRequest) -> View | None:
    """Return the conversation before a fork began, if all that came since can stay verbatim.

    Its siblings make the same summary request, so one serves all of them. A second compaction
    replaces what only this fork has said, and is asked for with all of it.
    """
    birth = agent.team.birth
    if birth is None or birth.kind != FORK_MARK or request.is_custom or request.anew:
        return None
    view, at = agent.session.view, agent.session.fold(SessionRecord).ledger.fork
    items = [item for item in view.items if item.seq < at]
    is_as_it_was = all(seq < at for seq in view.summaries)
    if (
        not items
        or not is_as_it_was
        or count_uncovered_tokens(agent, at) > scaled_layers(agent).tail
    ):
        return None
    return View(
        epoch=view.epoch,
        items=items,
        moves=view.moves,
        since=view.since,
        cleared=view.cleared,
        cleared_inputs=view.cleared_inputs,
        branch=agent.session.seq + 1,  # the instruction: all before it is cached for every fork
    )


async def _ask_fork_for_siblings(agent: Agent, request: SummaryRequest, view: View) -> ModelSummary:
    """Ask for a summary of an inherited conversation that sibling agents can share."""
    most, covers = _max_summary_tokens(agent, request), view.items[-1].seq
    asked = fill_summary_prompt("summary-inherited.md", {"words": str(summary_word_limit(most))})
    text = await _summary_from_fork(agent, asked, request=request, what="summary", view=view)
    return ModelSummary(text, "inherited", covers)


async def _summary_from_fork(
    agent: Agent, asked: str, *, request: SummaryRequest, what: str, view: View | None = None
) -> str:
    """Send the summary prompt after a copied conversation and return the accepted text."""
    view = (view or agent.session.view).copy()
    told = User((Text(asked),), origin="note")
    view.add(Entry(agent.session.seq + 1, agent.runtime.clock(), told))
    reply = await _request_summary_reply(agent, view, what=what)
    return _accept_summary(
        reply, summary_outline(agent, request), most=_max_summary_tokens(agent, request)
    )


async def _request_summary_reply(agent: Agent, view: View, *, what: str) -> Reply:
    """Send the summary request; raise `SummaryFailure` with the reason if it fails."""
    if why := find_send_blocker(view):
        raise SummaryFailure(f"nothing could be sent: {why}")
    try:
        return await send_side_request(agent, view, what=what)
    except ApiError as problem:
        final = problem.kind in FINAL_PROBLEMS or problem.refused
        raise SummaryFailure(
            f"{problem.kind}: {problem}", problem=problem, final=final
        ) from problem
    except BudgetExhausted as stop:
        raise SummaryFailure(str(stop), final=True) from stop
    except PrefixBreak as broken:
        raise SummaryFailure(str(broken)) from broken


def _accept_summary(reply: Reply, parts: Sequence[SummaryPart], *, most: int) -> str:
    """Return the summary in a model's reply; raises `SummaryFailure` if there is none."""
    text = outline.strip_draft(extract_text(reply.content), parts)
    if not text and any(isinstance(block, Call) for block in reply.content):
        raise SummaryFailure("the reply called tools")
    if not text:
        raise SummaryFailure("the reply was empty")
    if (size := estimate_tokens(text)) > most:
        raise SummaryFailure(f"the reply was too long: about {size:,} of at most {most:,} tokens")
    return text


# --- the direct call: the conversation as text, without tools, with a limit of its own -----------


class DirectSummaryCall:
    """A summary request of its own: the conversation as text, without tools."""

    def __init__(self, agent: Agent, request: SummaryRequest) -> None:
        self._agent, self._wish = agent, request
        items = request.part.dropped if request.part else tuple(agent.session.view.items)
        self._rounds = [_format_round(one) for one in group_rounds(items)]
        self._first = 0
        self._covers = items[-1].seq if items else 0

    async def ask(self, last: ApiError | None) -> ModelSummary:
        """Ask about all of it, or about as much as fits the window."""
        self._first = self._find_first_round()
        return await self._request_summary("cut head" if self._first else "direct")

    async def ask_again(self, last: ApiError | None) -> ModelSummary:
        """Ask about less: by as much as the provider said, or by a fifth."""
        self._first = min(self._drop_rounds(last), len(self._rounds) - 1)
        return await self._request_summary("cut head")

    async def _request_summary(self, source: SummarySource) -> ModelSummary:
        agent, card = self._agent, current_model(self._agent)
        head = Epoch(
            replace(card, output=_max_output_tokens(card)), SUMMARY_SYSTEM_PROMPT, why="summary"
        )
        said, at = User(self._build_prompt(), origin="note"), agent.runtime.clock()
        view = project_view([Entry(1, at, head), Entry(2, at, said)])
        reply = await _request_summary_reply(agent, view, what="summary")
        text = _accept_summary(
            reply, summary_outline(agent, self._wish), most=_max_summary_tokens(agent, self._wish)
        )
        return ModelSummary(text, source, self._covers)

    def _build_prompt(self) -> tuple[Text, ...]:
        began = self._rounds[0][:BEGINNING_CHARS]
        cut = [OMITTED_ROUNDS_NOTE.format(count=self._first), f"{began} […]"] if self._first else []
        told = _omit_middle("\n".join([*cut, *self._rounds[self._first :]]), self._tokens_left())
        asked = build_summary_prompt(
            self._agent, self._wish, most=_max_summary_tokens(self._agent, self._wish)
        )
        return Text(f"<conversation>\n{told}\n</conversation>"), Text(asked)

    def _tokens_left(self) -> int:
        """Return how many tokens of the conversation fit beside the instruction."""
        card = current_model(self._agent)
        most = min(card.window - _max_output_tokens(card), effective_window(card))
        asked = build_summary_prompt(
            self._agent, self._wish, most=_max_summary_tokens(self._agent, self._wish)
        )
        return (
            round(most / TOKEN_COUNT_MARGIN / family_ratio(card.id))
            - estimate_tokens(asked)
            - BEGINNING_CHARS
        )

    def _find_first_round(self) -> int:
        """Return the first round from which all fit; the last one is always included."""
        left, first = self._tokens_left(), len(self._rounds)
        while first > 0 and (left := left - estimate_tokens(self._rounds[first - 1])) >= 0:
            first -= 1
        return min(first, max(0, len(self._rounds) - 1))

    def _drop_rounds(self, last: ApiError | None) -> int:
        gap = last.tokens - last.limit if last and last.tokens and last.limit else 0
        if gap <= 0:
            return self._first + max(
                1, round(DROPPED_ROUNDS_SHARE * (len(self._rounds) - self._first))
            )
        first = self._first
        while first < len(self._rounds) and gap > 0:
            gap -= estimate_tokens(self._rounds[first])
            first += 1
        return first


def _omit_middle(text: str, tokens: int) -> str:
    """Omit the middle of a text that alone exceeds a summary request."""
    size = estimate_tokens(text)
    if size <= tokens:
        return text
    kept = max(0, round(len(text) * tokens / size * ENDS_SAFETY_FACTOR))
    return (
        f"{text[: kept // 3]}\n[… the middle is omitted: too long …]\n{text[-(kept - kept // 3) :]}"
    )


def _max_output_tokens(card: ModelCard) -> int:
    """Return the output limit of a direct summary request to this model."""
    return max(1, min(MAX_DIRECT_OUTPUT_TOKENS, round(MAX_OUTPUT_SHARE * card.window), card.output))


def group_rounds(items: Sequence[ViewItem]) -> list[list[ViewItem]]:
    """Group messages into rounds for a summary request: a reply and all up to the next one."""
    found: list[list[ViewItem]] = []
    for item in items:
        if not found or (isinstance(item.fact, Assistant) and _has_reply(found[-1])):
            found.append([])
        found[-1].append(item)
    return found


def _has_reply(group: list[ViewItem]) -> bool:
    return any(isinstance(item.fact, Assistant) for item in group)


def _format_round(group: Sequence[ViewItem]) -> str:
    """Format a round for a summary request, without images, thinking and most of our notes."""
    lines: list[str] = []
    for item in group:
        fact = item.fact
        if isinstance(fact, User) and fact.origin == "note" and not is_summary(item):
            continue
        kept = tuple(b for b in fact.content if isinstance(b, Text | Call))
        lines.append(spans.format_message(replace(fact, content=kept)))
    return "\n".join(lines)
