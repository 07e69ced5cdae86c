"""The Messages API: the pipeline that a request goes through, from bytes to an answer."""

from __future__ import annotations

from travois_lab.admission import Ask, admit
from travois_lab.answering import respond
from travois_lab.betas import BINDING
from travois_lab.binding import THINKING, Behaviour, Chain, Reader, bind
from travois_lab.cache import place_markers
from travois_lab.editing import after_compaction, edit, size
from travois_lab.exchange import Exchange
from travois_lab.faults import refuse
from travois_lab.http import Request, Response, reply_json
from travois_lab.message import refused
from travois_lab.objects import Json, inner
from travois_lab.positions import positions
from travois_lab.refusal import Refusal
from travois_lab.world import World


def create_message(world: World, request: Request) -> Response:
    """`POST /v1/messages`."""
    exchange = world.ledger.open(request, "anthropic", at=world.clock.now())
    try:
        return _create(admit(world, request, exchange, to="answer"))
    except Refusal as refusal:
        return _refused(world, exchange, refusal)


def count_tokens(world: World, request: Request) -> Response:
    """`POST /v1/messages/count_tokens`."""
    exchange = world.ledger.open(request, "anthropic", at=world.clock.now())
    try:
        ask = admit(world, request, exchange, to="count")
        _bind(ask)
        _edit(ask)
        counted: Json = {"input_tokens": size(ask.rendered)}
        if "context_management" in ask.body:
            original = size(after_compaction(ask.body))
            counted["context_management"] = {"original_input_tokens": original}
        return reply_json(counted, headers=(("request-id", world.name("req_", exchange)),))
    except Refusal as refusal:
        return _refused(world, exchange, refusal)


def _refused(world: World, exchange: Exchange, refusal: Refusal) -> Response:
    exchange.status = refusal.status
    exchange.error = f"{refusal.kind}: {refusal.message}"
    return refused(refusal, world.name("req_", exchange))


def _create(ask: Ask) -> Response:
    world, exchange = ask.world, ask.exchange
    world.limiter.admit(exchange.at)
    ask.rules = world.faults.pick(exchange.path, ask.profile.id)
    exchange.faults = tuple(rule.action for rule in ask.rules)
    page = refuse(ask.rules)
    if page is not None:
        exchange.status = page.status
        return page
    ask.body = world.threads.resolve(ask.body, ask.betas, exchange.at)
    _bind(ask)
    _edit(ask)
    _place(ask)
    return respond(ask)


def _bind(ask: Ask) -> None:
    """Check the thinking of the request against the history before it."""
    ask.rendered, ask.chain = ask.body, None
    if ask.found.kinds.isdisjoint(THINKING) and "thread" not in ask.body:
        return
    world = ask.world
    chain = Chain(ask.body, seed=world.options.seed, loose=frozenset(world.loose))
    reader = Reader(ask.profile.rank, _behaviour(ask), world.options.organization)
    bound = bind(ask.body, chain, reader)
    ask.rendered, ask.chain = bound.body, bound.chain
    ask.exchange.transformed = bound.transformed


def _behaviour(ask: Ask) -> Behaviour:
    control = inner(inner(ask.body, "thinking"), "block_binding")
    wanted = control.get("prefix_mismatch_behavior")
    if wanted == "drop_block" and BINDING in ask.betas:
        return "drop_block"
    if wanted == "error" or (ask.profile.binds and ask.world.options.enforced_binding):
        return "error"
    return "allow"


def _edit(ask: Ask) -> None:
    """Apply the server-side edits, and compact where their trigger was reached."""
    edited = edit(ask.rendered, ask.profile)
    ask.rendered = edited.body
    ask.exchange.applied = edited.applied
    ask.compact = edited.compact


def _place(ask: Ask) -> None:
    """Lay the prompt out for the cache, and see that it fits the window."""
    ask.row = place_markers(positions(ask.rendered, ask.world.memo.positions), ask.rendered)
    ask.world.ledger.place(ask.exchange, ask.row)
    total, window = sum(position.tokens for position in ask.row), ask.profile.window
    if total > window:
        raise Refusal(f"prompt is too long: {total} tokens > {window} maximum")
