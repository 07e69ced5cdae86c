"""Explaining what applies in a folder, and what permissions say of a call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from travois.compose import mcp, permissions, skills
from travois.compose.instructions import library
from travois.compose.open_session import Place
from travois.compose.options import Options
from travois.compose.session import agents_here
from travois.core.content import Call
from travois.core.tool_names import canonical
from travois.permissions.access import Access
from travois.permissions.decide import ALIASES, MODES, Guard, Mode, Verdict, judge
from travois.permissions.resolve_paths import home, plain_arguments, resolved, understood
from travois.permissions.rules import Rule, Use, parse
from travois.ports.tool import Here, Refusal
from travois.prompt.style_files import styles
from travois.settings.schema import Loaded
from travois.skills.command_files import commands
from travois.skills.skill_files import FILE
from travois.tools.catalog import TOOLS


class Told(msgspec.Struct, frozen=True):
    """One effective part in a line, and the file it comes from."""

    value: str
    origin: str


Found = Iterator[tuple[str, Told]]


def parts(place: Place, loaded: Loaded) -> dict[str, Told]:
    """List all effective parts by key, as in `skills.deploy`."""
    return {
        f"{part}.{name}": told for part, find in PARTS.items() for name, told in find(place, loaded)
    }


def _instructions(place: Place, loaded: Loaded) -> Found:
    guard = permissions.guard(loaded, place.cwd, own=str(place.home.path))
    files = library(place, loaded, guard, sources="").standing().files
    yield from ((str(at), Told(one.kind, one.path)) for at, one in enumerate(files, 1))


def _agents(place: Place, loaded: Loaded) -> Found:
    for kind in agents_here(place, loaded, Options())[0]:
        yield kind.name, Told(kind.description, kind.origin)


def _commands(place: Place, loaded: Loaded) -> Found:
    found, _ = commands(place.home, place.project.root, place.cwd, plugins=loaded.plugins)
    yield from ((name, Told(one.description, one.origin)) for name, one in found.items())


def _skills(place: Place, loaded: Loaded) -> Found:
    for skill in skills.skills(place, loaded, Options()).standing().skills:
        if skill.origin.endswith(FILE):
            yield skill.name, Told(skill.description, skill.origin)


def _styles(place: Place, loaded: Loaded) -> Found:
    for style in styles(skills.places(place, loaded, Options()))[0].values():
        yield style.name, Told(style.description, style.origin)


def _servers(place: Place, loaded: Loaded) -> Found:
    found = mcp.found(place, loaded, Options())
    for one in found.servers:
        yield one.name, Told(one.url or " ".join(one.argv), one.origin)
    for entry in found.waiting:
        yield entry.name, Told("needs approval: travois trust", entry.origin)


def _rules(_: Place, loaded: Loaded) -> Found:
    for at, rule in enumerate(loaded.rules, 1):
        others = ", ".join(other.text for other in rule.unless)
        but = f" except {others}" if others else ""
        yield str(at), Told(f"{rule.effect} {rule.text}{but}", rule.origin)


PARTS: dict[str, Callable[[Place, Loaded], Found]] = {
    "instructions": _instructions,
    "agents": _agents,
    "commands": _commands,
    "skills": _skills,
    "outputStyles": _styles,
    "mcpServers": _servers,
    "rules": _rules,
}


# What a call would come to, without running it.


class Rules(msgspec.Struct, frozen=True):
    """Permission rules as settings write them."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def parsed(self, origin: str = "") -> tuple[Rule, ...]:
        """Parse the rules; raises ValueError with what is wrong with one."""
        return (
            *(parse(text, "deny", origin=origin) for text in self.deny),
            *(parse(text, "ask", origin=origin) for text in self.ask),
            *(parse(text, "allow", origin=origin) for text in self.allow),
        )


class Case(msgspec.Struct, frozen=True):
    """A call to judge: tool and input, mode, rules and folder."""

    id: str | int = ""
    tool: str = "Bash"
    input: msgspec.Raw = msgspec.Raw(b"{}")
    mode: str = "default"
    rules: Rules = Rules()
    workspace: str = ""
    cwd: str = ""


def mode_named(name: str) -> Mode:
    """Return the mode of this name, or of another agent's name for it."""
    for mode in MODES:
        if mode == name:
            return mode
    found = ALIASES.get(name)
    if found is None:
        raise ValueError(f"unknown mode {name!r}; choose one of: {', '.join(MODES)}")
    return found


def rehearse(guard: Guard, tool: str, args: str, *, here: Here) -> Verdict:
    """Decide on a tool call without running it."""
    try:
        use = intended(tool, args, here=here)
    except (Refusal, msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        return Verdict("deny", f"it cannot run: {error}")
    return judge(guard, use)


def intended(tool: str, args: str, *, here: Here) -> Use:
    """Return the call as rules see it; an unknown tool starts something unknown."""
    meant = canonical(Call("", tool, args))
    tool, args = meant.name, meant.args
    if folder := dict(plain_arguments(args)).get("workdir"):
        here = replace(here, cwd=os.path.join(here.cwd, folder))
    known = next((one for one in TOOLS if one.name == tool), None)
    accesses: tuple[Access, ...] = (Access("spawn", tool),)
    if known is not None:
        accesses = known.access(msgspec.json.decode(args, type=known.args, strict=False), here)
    accesses = resolved(accesses, here)
    return Use(
        tool,
        accesses,
        here.root,
        home(),
        plans=understood(accesses, here),
        params=plain_arguments(args),
        exported=frozenset(os.environ),
    )


def tried(case: Case, *, own: str) -> Verdict:
    """Decide one case."""
    root = os.path.realpath(case.workspace or os.getcwd())
    cwd = os.path.realpath(os.path.join(root, case.cwd))
    try:
        rules, mode = case.rules.parsed(), mode_named(case.mode)
    except ValueError as error:
        return Verdict("deny", str(error))
    guard = Guard(mode, rules, (root,), own=own)
    return rehearse(guard, case.tool, bytes(case.input).decode(), here=Here(root, cwd))
