"""`travois models`: the models there are, what is known of each, and whether it works."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import AsyncExitStack

import anyio
import msgspec
from msgspec.structs import replace

from travois.cli.sessions import here
from travois.compose.local import HERE, PROVIDER, Local
from travois.compose.models import found, known, resolved
from travois.compose.permissions import inherit
from travois.core.content import Text, calls
from travois.core.errors import Fault
from travois.core.facts import Entry, Epoch, ToolSpec, User
from travois.core.models import Model, Price, cost
from travois.core.view import project
from travois.ports.world import Model as Answers
from travois.providers import catalog
from travois.providers.catalog import Catalog
from travois.providers.encoder import Encoder
from travois.providers.replies import Grew, Problem, Reply
from travois.settings.load import load
from travois.settings.schema import Loaded
from travois.terminal.tables import Commands, clean, command, say, say_json, table, warn

MORE = """\
  travois models                   all that are known; prices are dollars for a million tokens
  travois models show NAME         what is known of one, and who said so
  travois models test NAME         send it one small request, and say what works
A name is provider/id or an id of the catalogue; providers and models of your own go into your
settings (docs/models.md).
"""
PING = ToolSpec(
    "ping",
    "Answers with the same word.",
    '{"type":"object","properties":{"word":{"type":"string"}},"required":["word"]}',
)
ASKED = "Call the tool ping with the word pong. Say nothing else."
LENGTH = 1_024
"""How long the reply to a test may be: models that think need some room."""


class Row(msgspec.Struct, frozen=True):
    """One model of the list."""

    name: str
    protocol: str
    window: int
    output: int
    price: Price
    key: str
    """The variable that holds its key; empty if none does and one is needed."""


class Trial(msgspec.Struct, frozen=True):
    """What one small request showed."""

    reply: Reply
    pieces: int
    """In how many pieces the reply came."""
    seconds: float


def register(commands: Commands) -> None:
    """Add the command and those below it."""
    top = command(commands, "models", what="list models, explain and test them", more=MORE)
    top.add_argument("what", nargs="?", default="list", choices=("list", "show", "test"))
    top.add_argument("name", nargs="?", default="", metavar="NAME")
    top.add_argument("--settings", default="", metavar="FILE|JSON", help="as for a run")
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Do what was asked."""
    home, project = here()
    loaded = load(home, project.root, environ=os.environ, given=args.settings)
    inherit(loaded)
    for notice in loaded.notices:
        warn(notice)
    if args.what == "list":
        return _list(known(loaded), form="json" if args.json else "table")
    if args.name:
        model = resolved(args.name, known(loaded))
    else:
        model, _ = anyio.run(found, loaded.settings.model, loaded)
    if args.what == "show":
        return _show(model, loaded, json=args.json)
    return anyio.run(_test, model, loaded, args.json)


# --- the list -------------------------------------------------------------------------------------


def _list(among: Catalog, *, form: str) -> int:
    rows = list(_rows(among))
    if form == "json":
        say(msgspec.json.encode(rows).decode())
        return 0
    heading = ("MODEL", "WINDOW", "IN", "OUT", "READ", "KEY")
    told = [
        (
            r.name,
            f"{r.window:,}",
            *map(_dollars, (r.price.input, r.price.output, r.price.read)),
            r.key or "-",
        )
        for r in rows
    ]
    say(table([heading, *told], right=(1, 2, 3, 4)))
    others = sorted(set(among.providers) - {r.name.partition("/")[0] for r in rows})
    say(f"\nAny other model of these, and all of {', '.join(others)}: --model provider/id.")
    return 0


def _rows(among: Catalog) -> Iterator[Row]:
    for name in among.models:
        model = catalog.resolve(name, os.environ, among=among)
        yield Row(name, model.protocol, model.window, model.output, model.price, _key(model, among))


def _key(model: Model, among: Catalog) -> str:
    try:
        return catalog.endpoint(model, os.environ, among=among).key_source
    except Fault:
        return ""


def _dollars(price: float) -> str:
    return f"{price:g}" if price else "?"


# --- one model ------------------------------------------------------------------------------------


def _show(model: Model, loaded: Loaded, *, json: bool) -> int:
    among = known(loaded)
    served = among.providers[model.provider]
    where, key = _reached(model, among)
    about, by = _said_by(model, among, loaded)
    provider = _origin(f"providers.{model.provider}", loaded)
    chosen = f"{served.url_env} in the environment" if os.environ.get(served.url_env) else provider
    rows = [
        ("WHAT", "VALUE", "DECIDED BY"),
        ("model", model.name, "the name that was given"),
        ("protocol", model.protocol, chosen if model.protocol != served.protocol else provider),
        ("address", where, chosen),
        ("key", key, "the environment"),
        ("window", f"{model.window:,} tokens", by),
        (
            "output",
            f"{model.output:,} tokens at most",
            f"{by}; {catalog.MAX_OUTPUT:,} unless asked",
        ),
        ("price", _price(model.price), by if about else "nobody knows"),
        ("images", "yes" if model.images else "no", by),
        ("quirks", ", ".join(model.quirks) or "none", provider),
        ("small model", catalog.small(model, among=among) or "none", provider),
    ]
    if json:
        say_json({what: {"value": value, "decided_by": by} for what, value, by in rows[1:]})
    else:
        say(table([tuple(clean(cell, lines="show") for cell in row) for row in rows]))
    return 0


def _reached(model: Model, among: Catalog) -> tuple[str, str]:
    try:
        there = catalog.endpoint(model, os.environ, among=among)
    except Fault as fault:
        return "not reached", f"{fault.what}: {fault.why}"
    where = HERE if model.provider == PROVIDER else there.url
    return where, there.key_source if there.key_source != "none" else "none is needed"


def _said_by(model: Model, among: Catalog, loaded: Loaded) -> tuple[bool, str]:
    """Whether the model is known, and who described it."""
    if model.name in among.models:
        return True, _origin(f"models.{model.name}", loaded)
    if model.price != Price():
        return True, "the catalogue, for a model of that kind"
    return False, "a guess: nothing is known of this model"


def _origin(key: str, loaded: Loaded) -> str:
    named = loaded.origin(key)
    return "the catalogue" if named == "default" else named


def _price(price: Price) -> str:
    if price == Price():
        return "unknown"
    more = f"; above {price.over:,} tokens ${price.above.input:g}" if price.above else ""
    return f"${price.input:g} in, ${price.output:g} out, ${price.read:g} from cache{more}"


# --- a test ---------------------------------------------------------------------------------------


async def _test(model: Model, loaded: Loaded, json: bool) -> int:
    from travois.providers.discovery import fitted

    model = await fitted(model, os.environ, among=known(loaded))
    try:
        trial = await _tried(model, loaded)
    except Problem as problem:
        warn(f"{model.name} does not work: {problem.kind}: {problem.message}")
        if json:
            told = {"kind": problem.kind, "message": problem.message, "status": problem.status}
            say_json({"model": model.name, "works": False, "error": told})
        return 1
    if json:
        found = dict(line.split(": ", 1) for line in _findings(model, trial))
        say_json({"model": model.name, "works": True, "seconds": trial.seconds, **found})
        return 0
    say(f"{model.name} answered in {trial.seconds:.1f} s.")
    for line in _findings(model, trial):
        say(f"  {line}")
    return 0


async def _tried(model: Model, loaded: Loaded) -> Trial:
    short = replace(model, output=min(model.output, LENGTH))
    facts = (Epoch(short, "You are being tested.", (PING,)), User((Text(ASKED),)))
    view = project([Entry(n, 0.0, fact) for n, fact in enumerate(facts, 1)])
    pieces, began = 0, anyio.current_time()
    async with (
        AsyncExitStack() as stack,
        _answers(short, loaded, stack).stream(Encoder(_nothing).request(view)) as events,
    ):
        async for event in events:
            if isinstance(event, Reply):
                return Trial(event, pieces, anyio.current_time() - began)
            pieces += isinstance(event, Grew)
    raise Problem("garbled", "the stream ended without a reply")


def _answers(model: Model, loaded: Loaded, stack: AsyncExitStack) -> Answers:
    from travois.providers.client import HttpModel
    from travois.providers.http.transport import transport

    if model.provider == PROVIDER:
        return Local(loaded, stack).serve(model)
    where = catalog.endpoint(model, os.environ, among=known(loaded))
    travel = transport(where.url, os.environ)
    stack.push_async_callback(travel.aclose)
    return HttpModel(model, where, travel)


def _nothing(blob: str) -> bytes:
    raise KeyError(blob)


def _findings(model: Model, trial: Trial) -> Iterator[str]:
    usage, asked = trial.reply.usage, calls(trial.reply.content)
    yield f"stream: {'yes' if trial.pieces else 'no, the reply came in one piece'}"
    good = [call for call in asked if call.name == PING.name]
    yield f"tools: {'yes' if good else 'it did not call the one that it was asked to call'}"
    cached = usage.read + usage.write + usage.write_1h
    yield f"cache: {f'yes, {cached:,} tokens' if cached else 'not for a request as small as this'}"
    yield f"images: {'not tried; the catalogue says that it takes them' if model.images else 'no'}"
    counted = "estimated, it does not count" if usage.estimated else "counted by the server"
    yield f"tokens: {usage.prompt:,} in, {usage.output:,} out, {counted}"
    priced = f"${cost(usage, model.price):.6f}" if model.price != Price() else "no price is known"
    yield f"cost: {priced}"
