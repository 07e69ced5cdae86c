"""What a call would come to, without running it."""

from __future__ import annotations

import os

import msgspec
from msgspec.structs import replace

from travois.core.content import Call
from travois.core.tool_names import canonical
from travois.permissions.access import Access
from travois.permissions.decide import ALIASES, MODES, Guard, Mode, Verdict, judge
from travois.permissions.resolve_paths import home, plain_arguments, resolved, understood
from travois.permissions.rules import Rule, Use, parse
from travois.ports.tool import Here, Refusal
from travois.tools.catalog import TOOLS


class Rules(msgspec.Struct, frozen=True):
    """Rules as settings have them."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def parsed(self, origin: str = "") -> tuple[Rule, ...]:
        """The rules themselves; raises ValueError with what is wrong with one."""
        return (
            *(parse(text, "deny", origin=origin) for text in self.deny),
            *(parse(text, "ask", origin=origin) for text in self.ask),
            *(parse(text, "allow", origin=origin) for text in self.allow),
        )


class Case(msgspec.Struct, frozen=True):
    """A call to be judged: who asks for what, under which mode and rules, and where."""

    id: str | int = ""
    tool: str = "Bash"
    input: msgspec.Raw = msgspec.Raw(b"{}")
    mode: str = "default"
    rules: Rules = Rules()
    workspace: str = ""
    cwd: str = ""


def mode_named(name: str) -> Mode:
    """The mode of this name or of the name that other agents have for it."""
    for mode in MODES:
        if mode == name:
            return mode
    found = ALIASES.get(name)
    if found is None:
        raise ValueError(f"there is no mode {name!r}; there are {', '.join(MODES)}")
    return found


def rehearse(guard: Guard, tool: str, args: str, *, here: Here) -> Verdict:
    """The verdict on a call of a tool with these arguments, which are JSON text."""
    try:
        use = intended(tool, args, here=here)
    except (Refusal, msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        return Verdict("deny", f"it cannot run: {error}")
    return judge(guard, use)


def intended(tool: str, args: str, *, here: Here) -> Use:
    """What a call would touch; one of a tool that is not ours starts something unknown."""
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
    """The verdict on one case."""
    root = os.path.realpath(case.workspace or os.getcwd())
    cwd = os.path.realpath(os.path.join(root, case.cwd))
    try:
        rules, mode = case.rules.parsed(), mode_named(case.mode)
    except ValueError as error:
        return Verdict("deny", str(error))
    guard = Guard(mode, rules, (root,), own=own)
    return rehearse(guard, case.tool, bytes(case.input).decode(), here=Here(root, cwd))
