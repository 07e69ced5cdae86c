"""`travois permissions`: why something may run or not, and what rules would do."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from travois.commands.trust_prompt import told
from travois.compose import permissions as rights
from travois.compose.explain import Case, Rules, intended, mode_named, rehearse, tried
from travois.core.content import Call, calls
from travois.core.display_text import visible
from travois.core.errors import Fault
from travois.core.facts import Assistant, Changed, Decided, Entry, Opened
from travois.core.tool_names import canonical
from travois.permissions.decide import Guard
from travois.permissions.rule_examples import wrong
from travois.permissions.rules import EFFECTS, Rule
from travois.permissions.shell.plan import Step
from travois.ports.tool import Here
from travois.sessions.catalog import folders
from travois.sessions.home import Home, identify, locate
from travois.sessions.log_file import Skipped, history
from travois.settings import trust
from travois.settings.load import load
from travois.settings.schema import Loaded
from travois.settings.sources import UNASKED_COMMANDS
from travois.terminal.tables import Commands, clean, command, say, table, warn

CHECK = """\
Each line of standard input is one case:
  {"id":1,"tool":"Bash","input":{"command":"git diff"},"mode":"default",
   "rules":{"allow":[],"ask":[],"deny":[]},"workspace":"/path","cwd":"."}
and gives one line: {"id":1,"verdict":"allow|ask|deny","because":"..."}. Nothing is run.
"""
SANDBOXED_COMMANDS = "sandboxed commands"
"""How the list names that commands run in the sandbox without a question; no rule is written so."""
TEST = """\
RULES is a file with {"allow":[],"ask":[],"deny":[],"examples":[]}, or with these under
"permissions" as in settings. Examples say what a rule means and are checked:
  "Bash(npm test:*) matches npm test -- --watch", "Bash(npm test:*) does not match npm publish"
With --history the rules alone judge every call of the recorded sessions of this project.
"""


class Proposed(Rules, frozen=True):
    """Rules to be tried, with examples of what they mean."""

    examples: tuple[str, ...] = ()


class Whole(msgspec.Struct, frozen=True):
    """A file of settings, as far as it is about permissions."""

    permissions: Proposed | None = None


class Past(msgspec.Struct, frozen=True):
    """A call that was made, what was decided then, and what these rules would have said."""

    call: Call
    then: str
    now: str
    because: str


def register_permissions(commands: Commands) -> None:
    """Add the command and those below it."""
    top = command(commands, "permissions", what="explain decisions and try rules")
    below = top.add_subparsers(metavar="command", title="commands", required=True)
    why = command(below, "why", what="explain what would happen to a command or call here")
    why.add_argument("text", metavar="COMMAND", help="a command line; with --tool its JSON input")
    why.add_argument("--mode", default="", help="instead of the mode in the settings")
    why.add_argument("--tool", default="Bash", help="another tool than Bash")
    why.add_argument("--settings", default="", metavar="FILE|JSON", help="as for a run")
    why.set_defaults(run=run_why)
    check = command(below, "check", what="judge cases from standard input", more=CHECK)
    check.add_argument("--json", action="store_true", help="JSON lines (the only form there is)")
    check.set_defaults(run=run_check)
    kept = command(below, "list", what="list the rules in force here, and who said so")
    kept.set_defaults(run=run_list)
    forget = command(below, "forget", what="no longer allow what you once always allowed here")
    forget.add_argument("rule", metavar="RULE", help="as `travois permissions list` prints it")
    forget.set_defaults(run=run_forget)
    test = command(below, "test", what="try rules on their examples and on the past", more=TEST)
    test.add_argument("rules", metavar="RULES", help="a file")
    test.add_argument("--history", action="store_true", help="replay the recorded sessions")
    test.add_argument("--all", action="store_true", help="of every project, not only this one")
    test.add_argument("--mode", default="default")
    test.add_argument("--json", action="store_true", help="one JSON object per call")
    test.set_defaults(run=run_test)


def run_why(args: Namespace) -> int:
    """Explain one decision; exit code 0 if it is to allow, 1 if not."""
    home, cwd = locate(os.environ), os.path.realpath(os.getcwd())
    root = identify(home, cwd).root
    loaded = load(home, root, cwd=cwd, environ=os.environ, given=args.settings)
    for notice in (*loaded.notices, *rights.remarks(loaded, cwd)):
        warn(notice)
    guard = rights.guard(loaded, cwd, own=str(home.path))
    guard = replace(guard, mode=_mode(args.mode)) if args.mode else guard
    text = args.text
    if args.tool == "Bash":
        text = msgspec.json.encode({"command": text}).decode()
    here = Here(cwd, cwd)
    verdict = rehearse(guard, args.tool, text, here=here)
    say(f"{verdict.effect}: {clean(verdict.because)}  [mode {guard.mode}]")
    if args.tool == "Bash":
        _explain(guard, text, here=here)
    return 0 if verdict.effect == "allow" else 1


def _mode(name: str) -> str:
    try:
        return mode_named(name)
    except ValueError as error:
        raise Fault(str(error).capitalize()) from None


def _explain(guard: Guard, args: str, *, here: Here) -> None:
    """What the line runs, and what each part of it needs."""
    for plan in intended("Bash", args, here=here).plans:
        if plan.unclear:
            say(f"not fully understood: {clean(plan.unclear)}")
        rows = [
            (clean(_said(step), lines="show"), _needs(step), _touches(step)) for step in plan.steps
        ]
        if rows:
            say(table([("RUNS", "NEEDS", "TOUCHES"), *rows]))


def _said(step: Step) -> str:
    return step.texts[0] if step.texts else step.name


def _needs(step: Step) -> str:
    match step.needs:
        case "nothing":
            return "nothing more"
        case "rule":
            return f"a rule ({step.why})"
        case "exact":
            return f"a rule of its very text ({step.why})"


def _touches(step: Step) -> str:
    return clean(", ".join(f"{access.kind} {access.target}" for access in step.accesses))


def run_list(args: Namespace) -> int:
    """Print the rules in force here."""
    home, cwd = locate(os.environ), os.path.realpath(os.getcwd())
    loaded = load(home, identify(home, cwd).root, cwd=cwd, environ=os.environ)
    free = loaded.settings.sandbox.auto_allow_bash_if_sandboxed
    say(listing(loaded.rules, sandboxed=loaded.origin(UNASKED_COMMANDS) if free else ""))
    return 0


def listing(rules: tuple[Rule, ...], *, sandboxed: str = "") -> str:
    """A table of rules with whoever said them, and who lets commands run in the sandbox unasked."""
    rows = [(rule.effect, clean(rule.text, lines="show"), rule.origin) for rule in rules]
    rows += [("allow", SANDBOXED_COMMANDS, sandboxed)] if sandboxed else []
    return table([("EFFECT", "RULE", "SAID BY"), *rows]) if rows else "There are no rules here."


def run_forget(args: Namespace) -> int:
    """Drop a rule that an answer made."""
    home, root = locate(os.environ).prepare(), trust.root(os.getcwd())
    found = args.rule == SANDBOXED_COMMANDS and trust.set_sandboxed(home, root, allowed=False)
    found = found or any(trust.forget(home, root, args.rule, under=one) for one in EFFECTS)
    if not found:
        fix = "`travois permissions list` prints them; rules of files are to be changed there."
        raise Fault(f"No answer of yours here allows {args.rule!r}", fix=fix)
    say(f"No longer allowed here without a question: {args.rule}")
    return 0


def run_check(args: Namespace) -> int:
    """Judge cases, one per line, in order."""
    own = str(locate(os.environ).path)
    for line in sys.stdin.buffer:
        if line.strip():
            sys.stdout.write(_checked(line, own=own) + "\n")
    sys.stdout.flush()
    return 0


def _checked(line: bytes, *, own: str) -> str:
    try:
        case = msgspec.json.decode(line, type=Case)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        told = {"id": _id(line), "verdict": "deny", "because": f"this is no case: {error}"}
        return msgspec.json.encode(told).decode()
    verdict = tried(case, own=own)
    because = verdict.because.encode("utf-8", "replace").decode()
    told = {"id": case.id, "verdict": verdict.effect, "because": because}
    return msgspec.json.encode(told).decode()


def _id(line: bytes) -> str | int | None:
    """The id of a case that is not one otherwise; half characters are for this reader only."""
    try:
        found = json.loads(line)["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found if isinstance(found, str | int) else None


def run_test(args: Namespace) -> int:
    """Try rules; exit code 1 if an example does not hold."""
    proposed = _proposed(args.rules)
    rules = _parsed(proposed, args.rules)
    problems = [why for why in (wrong(text, rules) for text in proposed.examples) if why]
    for why in problems:
        warn(why)
    if not args.json:
        held = len(proposed.examples) - len(problems)
        say(f"{len(rules)} rules, {held} of {len(proposed.examples)} examples hold")
    if args.history:
        _replay(rules, args)
    return 1 if problems else 0


def _proposed(path: str) -> Proposed:
    try:
        data = Path(path).read_bytes()
        whole = msgspec.json.decode(data, type=Whole)
        return whole.permissions or msgspec.json.decode(data, type=Proposed)
    except OSError as error:
        raise Fault(f"{path} cannot be read", why=error.strerror or str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fix = "See `travois permissions test --help` for the form."
        raise Fault(f"{path} has no rules", why=str(error), fix=fix) from error


def _parsed(proposed: Proposed, path: str) -> tuple[Rule, ...]:
    try:
        return proposed.parsed(path)
    except ValueError as error:
        raise Fault(f"{path} has a rule that cannot be understood", why=str(error)) from error


def _replay(rules: tuple[Rule, ...], args: Namespace) -> None:
    home = locate(os.environ)
    keys = None if args.all else identify(home, os.path.realpath(os.getcwd())).keys
    guard = Guard(mode_named(args.mode), rules)
    past = [call for folder in sorted(folders(home, keys)) for call in _past(folder, guard, home)]
    if args.json:
        for one in past:
            say(msgspec.json.encode(one).decode())
        return
    rows = [(one.now, one.then, one.call.name, _short(one)) for one in past]
    if rows:
        say(table([("NOW", "THEN", "TOOL", "CALL"), *rows]))
    counts = Counter(one.now for one in past)
    told = ", ".join(f"{counts[effect]} {effect}" for effect in ("allow", "ask", "deny"))
    say(f"{len(past)} calls: {told}")


def _short(past: Past) -> str:
    return f"{clean(past.call.args, lines='show')[:200]}  ({clean(past.because, lines='show')})"


def _past(folder: Path, guard: Guard, home: Home) -> Iterator[Past]:
    """The calls of one session, judged where the shell stood when they were made."""
    skipped: list[Skipped] = []
    entries = list(history(folder, skipped))
    decided = {e.fact.call: e.fact.verdict for e in entries if isinstance(e.fact, Decided)}
    root = cwd = ""
    for entry in entries:
        root, cwd = _stood(entry, root=root, cwd=cwd)
        if not isinstance(entry.fact, Assistant) or not root:
            continue
        there = replace(guard, folders=(root,), own=str(home.path))
        for call in map(canonical, calls(entry.fact.content)):
            verdict = rehearse(there, call.name, call.args or "{}", here=Here(root, cwd))
            then = decided.get(call.id, "none")
            yield Past(call, then, verdict.effect, verdict.because)


def _stood(entry: Entry, *, root: str, cwd: str) -> tuple[str, str]:
    match entry.fact:
        case Opened():
            return entry.fact.cwd, entry.fact.cwd
        case Changed(what="cwd"):
            return root, entry.fact.value
        case _:
            return root, cwd


# `travois trust`: let what a folder brings with it hold, or no longer.


MORE = """\
Settings that come with a folder (.travois, .claude) may tighten at once. What they want beyond
that (hooks, variables, allow rules, more folders, a model) holds once you trust the folder with
it. Trust is bound to what was shown: whatever changes later is asked about again. It covers the
whole repository and its worktrees. Files that a trusted hook or MCP server reaches beyond the
programs that it names (imports, scripts of package.json, Makefiles) are told when they changed.
"""


def register_trust(commands: Commands) -> None:
    """Add the command."""
    top = command(commands, "trust", what="trust a folder with its own settings", more=MORE)
    top.add_argument("folder", nargs="?", default=".", metavar="DIR", help="default: this one")
    top.add_argument("--revoke", action="store_true", help="trust it no longer")
    top.add_argument(
        "--changed", action="store_true", help="list files behind trusted commands that changed"
    )
    top.add_argument("--list", action="store_true", help="list trusted folders")
    top.set_defaults(run=run_trust)


def run_trust(args: Namespace) -> int:
    """Trust a folder, or not; exit code 1 if there was nothing to revoke."""
    home = locate(os.environ)
    if args.list:
        found = [(str(len(each.agreed)), each.path) for each in trust.known(home) if each.trusted]
        say(table([("SETTINGS", "FOLDER"), *found]) if found else "No folder is trusted.")
        return 0
    folder = os.path.realpath(args.folder)
    if args.revoke:
        gone, root = trust.revoke(home.prepare(), trust.root(folder)), trust.root(folder)
        say(
            f"{visible(root)} is no longer trusted."
            if gone
            else f"{visible(root)} was not trusted."
        )
        return 0 if gone else 1
    if not os.path.isdir(folder):
        raise Fault(f"{args.folder} is not a folder")
    home.prepare()
    loaded = load(home, identify(home, folder).root, cwd=folder, environ=os.environ)
    if loaded.trust != "trusted" and loaded.wanted and not args.changed:
        say(told(home, loaded))
    if args.changed:
        return _list_changes(loaded)
    trust.trust(home, loaded.root, loaded.wanted, places=loaded.places)
    say(f"{visible(loaded.root)} is trusted.")
    return 0


def _list_changes(loaded: Loaded) -> int:
    """List what trusted commands reach that changed; exit code 1 if there is any."""
    for line, files in loaded.changed.items():
        say(visible(line))
        for file in files:
            say(f"  {visible(file)}")
    if not loaded.changed:
        say("Nothing that trusted commands reach has changed.")
    return 1 if loaded.changed else 0
