"""`travois models`: list, show and test models."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import AsyncExitStack

import anyio
import msgspec
from msgspec.structs import replace

from travois.commands.sessions import locate_home_and_project
from travois.compose.models import (
    LOCAL_PROVIDER,
    LOCAL_SERVER_LABEL,
    LocalModels,
    find_model,
    model_catalog,
    resolve_model,
)
from travois.compose.permissions import apply_settings_env
from travois.core.content import Text, extract_calls
from travois.core.cost import compute_cost
from travois.core.errors import UserError
from travois.core.facts import Entry, Epoch, ToolSpec, User
from travois.core.models import ModelCard, Price
from travois.core.tokens import format_tokens
from travois.core.view import project_view
from travois.ports.world import ModelClient as Answers
from travois.providers import catalog
from travois.providers.catalog import Catalog
from travois.providers.client import HttpModel
from travois.providers.discovery import with_server_window
from travois.providers.encoder import RequestEncoder
from travois.providers.http.transport import create_transport
from travois.providers.replies import ApiError, Grew, Reply
from travois.settings.load import load_settings
from travois.settings.schema import LoadedSettings
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_table,
    print_json,
    print_line,
    print_warning,
)

MODELS_HELP = """\
  travois models                   list known models; prices in dollars per million tokens
  travois models show NAME         show the details of a model, and where each comes from
  travois models test NAME         send one small request, and report what works
A name is provider/id, or an id of the catalog. Define your own providers and models in your
settings (docs/models.md).
"""
PING_TOOL = ToolSpec(
    "ping",
    "Answers with the same word.",
    '{"type":"object","properties":{"word":{"type":"string"}},"required":["word"]}',
)
TEST_PROMPT = "Call the tool ping with the word pong. Say nothing else."
MAX_TEST_OUTPUT_TOKENS = 1_024
"""The output limit of a test; models that think need some room."""


class ModelRow(msgspec.Struct, frozen=True):
    """One model of the list."""

    name: str
    protocol: str
    window: int
    output: int
    price: Price
    key: str
    """The variable that holds its key; empty if none does and one is needed."""


class ModelTestResult(msgspec.Struct, frozen=True):
    """The result of a test request."""

    reply: Reply
    pieces: int
    """In how many pieces the reply came."""
    seconds: float


def register_models(commands: CommandParsers) -> None:
    """Add the `travois models` command and its subcommands."""
    top = add_command(
        commands, "models", what="list models, show their details, and test them", more=MODELS_HELP
    )
    top.add_argument("what", nargs="?", default="list", choices=("list", "show", "test"))
    top.add_argument("name", nargs="?", default="", metavar="NAME")
    top.add_argument("--settings", default="", metavar="FILE|JSON", help="extra settings")
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_models)


def run_models(args: Namespace) -> int:
    """List models, or show or test one of them."""
    home, project = locate_home_and_project()
    loaded = load_settings(home, project.root, environ=os.environ, given=args.settings)
    apply_settings_env(loaded)
    for notice in loaded.notices:
        print_warning(notice)
    if args.what == "list":
        return _list_models(model_catalog(loaded), form="json" if args.json else "table")
    if args.name:
        model = resolve_model(args.name, model_catalog(loaded))
    else:
        model, _ = anyio.run(find_model, loaded.settings.model, loaded)
    if args.what == "show":
        return _show_model_details(model, loaded, json=args.json)
    return anyio.run(_test_model, model, loaded, args.json)


# --- the list -------------------------------------------------------------------------------------


def _list_models(among: Catalog, *, form: str) -> int:
    """Print the models of the catalog with their windows, prices and key sources."""
    rows = list_model_rows(among)
    if form == "json":
        print_line(msgspec.json.encode(rows).decode())
        return 0
    heading = ("MODEL", "WINDOW", "IN", "OUT", "READ", "KEY")
    told = [
        (
            r.name,
            f"{r.window:,}",
            *map(_format_price, (r.price.input, r.price.output, r.price.read)),
            r.key or "-",
        )
        for r in rows
    ]
    print_line(format_table([heading, *told], right=(1, 2, 3, 4)))
    others = sorted(set(among.providers) - {r.name.partition("/")[0] for r in rows})
    print_line(
        f"\nOther models of these providers, and any of {', '.join(others)}: --model provider/id."
    )
    return 0


def list_model_rows(among: Catalog | None) -> list[ModelRow]:
    """Return a row for each model of the catalog."""
    return list(_iterate_model_rows(among or catalog.load_catalog()))


def describe_model_row(row: ModelRow) -> str:
    """Describe a model in a line: its window, its prices, and whether it has a key."""
    price = row.price
    cost = f"${price.input:g} in, ${price.output:g} out per million" if price.input else ""
    key = "" if row.key else "no key"
    return " · ".join(part for part in (f"{_format_window(row.window)} window", cost, key) if part)


def _format_window(tokens: int) -> str:
    return f"{tokens / 1_000_000:g}M" if tokens >= 1_000_000 else format_tokens(tokens)


def _iterate_model_rows(among: Catalog) -> Iterator[ModelRow]:
    """Yield a row for each model of the catalog, for `travois models`."""
    for name in among.models:
        model = catalog.resolve_model(name, os.environ, among=among)
        yield ModelRow(
            name, model.protocol, model.window, model.output, model.price, _key_source(model, among)
        )


def _key_source(model: ModelCard, among: Catalog) -> str:
    """Return where the API key of a model comes from; empty if there is none."""
    try:
        return catalog.resolve_endpoint(model, os.environ, among=among).key_source
    except UserError:
        return ""


def _format_price(price: float) -> str:
    return f"{price:g}" if price else "?"


# --- one model ------------------------------------------------------------------------------------


def _show_model_details(model: ModelCard, loaded: LoadedSettings, *, json: bool) -> int:
    """Print everything about one model, and which setting or variable decided it."""
    among = model_catalog(loaded)
    served = among.providers[model.provider]
    where, key = _address_and_key(model, among)
    about, by = _model_info_source(model, among, loaded)
    provider = _catalog_origin(f"providers.{model.provider}", loaded)
    chosen = f"{served.url_env} in the environment" if os.environ.get(served.url_env) else provider
    rows = [
        ("WHAT", "VALUE", "DECIDED BY"),
        ("model", model.name, "the given name"),
        ("protocol", model.protocol, chosen if model.protocol != served.protocol else provider),
        ("address", where, chosen),
        ("key", key, "the environment"),
        ("window", f"{model.window:,} tokens", by),
        (
            "output",
            f"up to {model.output:,} tokens",
            f"{by}; default {catalog.MAX_OUTPUT_TOKENS:,}",
        ),
        ("price", _describe_price(model.price), by if about else "unknown"),
        ("images", "yes" if model.images else "no", by),
        ("quirks", ", ".join(model.quirks) or "none", provider),
        ("small model", catalog.find_small_model(model, among=among) or "none", provider),
    ]
    if json:
        print_json({what: {"value": value, "decided_by": by} for what, value, by in rows[1:]})
    else:
        print_line(
            format_table(
                [tuple(escape_controls(cell, lines="show") for cell in row) for row in rows]
            )
        )
    return 0


def _address_and_key(model: ModelCard, among: Catalog) -> tuple[str, str]:
    """Return a model's URL and the source of its key, or why there is none."""
    try:
        there = catalog.resolve_endpoint(model, os.environ, among=among)
    except UserError as fault:
        return "unknown", f"{fault.what}: {fault.why}"
    where = LOCAL_SERVER_LABEL if model.provider == LOCAL_PROVIDER else there.url
    return where, there.key_source if there.key_source != "none" else "not needed"


def _model_info_source(
    model: ModelCard, among: Catalog, loaded: LoadedSettings
) -> tuple[bool, str]:
    """Return where a model's description comes from, and whether the model is known."""
    if model.name in among.models:
        return True, _catalog_origin(f"models.{model.name}", loaded)
    if model.price != Price():
        return True, "the catalog, for models of this kind"
    return False, "a guess: this model is not in the catalog"


def _catalog_origin(key: str, loaded: LoadedSettings) -> str:
    named = loaded.origin(key)
    return "the catalog" if named == "default" else named


def _describe_price(price: Price) -> str:
    """Describe the prices of a model per million tokens."""
    if price == Price():
        return "unknown"
    more = f"; above {price.over:,} tokens ${price.above.input:g}" if price.above else ""
    return f"${price.input:g} in, ${price.output:g} out, ${price.read:g} from cache{more}"


# --- a test ---------------------------------------------------------------------------------------


async def _test_model(model: ModelCard, loaded: LoadedSettings, json: bool) -> int:
    """Send a small request to a model and print its features; exit code 1 if it fails."""
    model = await with_server_window(model, os.environ, among=model_catalog(loaded))
    try:
        trial = await _send_test_request(model, loaded)
    except ApiError as problem:
        print_warning(f"{model.name} does not work: {problem.kind}: {problem.message}")
        if json:
            told = {"kind": problem.kind, "message": problem.message, "status": problem.status}
            print_json({"model": model.name, "works": False, "error": told})
        return 1
    if json:
        found = dict(line.split(": ", 1) for line in _test_findings(model, trial))
        print_json({"model": model.name, "works": True, "seconds": trial.seconds, **found})
        return 0
    print_line(f"{model.name} answered in {trial.seconds:.1f} s.")
    for line in _test_findings(model, trial):
        print_line(f"  {line}")
    return 0


async def _send_test_request(model: ModelCard, loaded: LoadedSettings) -> ModelTestResult:
    """Send the request of `travois models test`; raises `ApiError` if it fails."""
    short = replace(model, output=min(model.output, MAX_TEST_OUTPUT_TOKENS))
    facts = (Epoch(short, "You are being tested.", (PING_TOOL,)), User((Text(TEST_PROMPT),)))
    view = project_view([Entry(n, 0.0, fact) for n, fact in enumerate(facts, 1)])
    pieces, began = 0, anyio.current_time()
    async with (
        AsyncExitStack() as stack,
        _open_model_client(short, loaded, stack).stream(
            RequestEncoder(_fetch_no_blob).build_request(view)
        ) as events,
    ):
        async for event in events:
            if isinstance(event, Reply):
                return ModelTestResult(event, pieces, anyio.current_time() - began)
            pieces += isinstance(event, Grew)
    raise ApiError("garbled", "the stream ended without a reply")


def _open_model_client(model: ModelCard, loaded: LoadedSettings, stack: AsyncExitStack) -> Answers:
    """Open the client that sends the test request, to a local model or over HTTP."""
    if model.provider == LOCAL_PROVIDER:
        return LocalModels(loaded, stack).model_for(model)
    where = catalog.resolve_endpoint(model, os.environ, among=model_catalog(loaded))
    travel = create_transport(where.url, os.environ)
    stack.push_async_callback(travel.aclose)
    return HttpModel(model, where, travel)


def _fetch_no_blob(blob: str) -> bytes:
    raise KeyError(blob)


def _test_findings(model: ModelCard, trial: ModelTestResult) -> Iterator[str]:
    """Yield the findings of a model test: streaming, tools, cache, tokens and cost."""
    usage, asked = trial.reply.usage, extract_calls(trial.reply.content)
    yield f"stream: {'yes' if trial.pieces else 'no, the reply came at once'}"
    good = [call for call in asked if call.name == PING_TOOL.name]
    yield f"tools: {'yes' if good else 'no, it did not call the requested tool'}"
    cached = usage.read + usage.write + usage.write_1h
    yield f"cache: {f'yes, {cached:,} tokens' if cached else 'not for such a small request'}"
    yield f"images: {'not tested; yes according to the catalog' if model.images else 'no'}"
    counted = (
        "estimated; the server sends no counts" if usage.estimated else "counted by the server"
    )
    yield f"tokens: {usage.prompt:,} in, {usage.output:,} out, {counted}"
    priced = (
        f"${compute_cost(usage, model.price):.6f}" if model.price != Price() else "unknown price"
    )
    yield f"cost: {priced}"
