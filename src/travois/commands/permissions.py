"""`travois permissions`: explain decisions, and test rules."""

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

from travois.compose import permissions
from travois.compose.explain import (
    PermissionCase,
    RuleTexts,
    context_of_call,
    decide_case,
    decide_without_running,
    find_mode,
)
from travois.core.content import Call, extract_calls
from travois.core.errors import UserError
from travois.core.facts import Assistant, Changed, Decided, Entry, Opened
from travois.core.tool_names import canonical_call
from travois.permissions.decide import Permissions
from travois.permissions.rule_examples import check_example
from travois.permissions.rules import RULE_EFFECTS, PermissionRule
from travois.permissions.shell.plan import CommandStep
from travois.ports.tool import CallLocation
from travois.sessions.catalog import list_session_folders
from travois.sessions.home import TravoisHome, identify_project, locate_home
from travois.sessions.log_file import DamagedPlace, read_history
from travois.settings import trust
from travois.settings.load import load_settings
from travois.settings.sources import AUTO_ALLOW_BASH_KEY
from travois.terminal import (
    CommandParsers,
    add_command,
    add_json_flag,
    escape_controls,
    format_table,
    print_json,
    print_line,
    print_table,
    print_warning,
)

PERMISSIONS_CHECK_HELP = """\
Each line of standard input is one test case:
  {"id":1,"tool":"Bash","input":{"command":"git diff"},"mode":"default",
   "rules":{"allow":[],"ask":[],"deny":[]},"workspace":"/path","cwd":"."}
Output is one line each: {"id":1,"verdict":"allow|ask|deny","because":"..."}. Nothing is run.
"""
SANDBOXED_COMMANDS = "sandboxed commands"
"""The name in the list for sandboxed commands that need no approval; it is no real rule."""
PERMISSIONS_TEST_HELP = """\
RULES is a file with {"allow":[],"ask":[],"deny":[],"examples":[]}, or with these keys under
"permissions" as in settings. Examples state what a rule matches, and are checked:
  "Bash(npm test:*) matches npm test -- --watch", "Bash(npm test:*) does not match npm publish"
With --history, these rules alone decide every tool call of the recorded sessions of this project.
"""


RULE_HEADS = ("EFFECT", "RULE", "SOURCE")


class ProposedRules(RuleTexts, frozen=True):
    """Rules to be tried, with examples of what they mean."""

    examples: tuple[str, ...] = ()


class SettingsWithRules(msgspec.Struct, frozen=True):
    """A file of settings, as far as it is about permissions."""

    permissions: ProposedRules | None = None


class RecordedCall(msgspec.Struct, frozen=True):
    """A recorded call, its decision then, and what these rules would decide."""

    call: Call
    then: str
    now: str
    because: str


def register_permissions(commands: CommandParsers) -> None:
    """Add the `travois permissions` command and its subcommands."""
    top = add_command(
        commands, "permissions", what="explain why a tool call is allowed or denied; test rules"
    )
    below = top.add_subparsers(metavar="command", title="commands", required=True)
    why = add_command(below, "why", what="explain the decision for a command or tool call")
    why.add_argument("text", metavar="COMMAND", help="a command line; with --tool, JSON input")
    why.add_argument("--mode", default="", help="permission mode (default: from the settings)")
    why.add_argument("--tool", default="Bash", help="tool name (default: Bash)")
    why.add_argument("--settings", default="", metavar="FILE|JSON", help="extra settings")
    why.set_defaults(run=run_permissions_why)
    check = add_command(
        below, "check", what="decide test cases from standard input", more=PERMISSIONS_CHECK_HELP
    )
    check.add_argument("--json", action="store_true", help="JSON lines (the only format)")
    check.set_defaults(run=run_permissions_check)
    add_json_flag(why, "print a JSON object")
    kept = add_command(below, "list", what="list the rules in force here, and their sources")
    add_json_flag(kept)
    kept.set_defaults(run=run_permissions_list)
    forget = add_command(below, "forget", what="remove a rule that an “always allow” answer made")
    forget.add_argument("rule", metavar="RULE", help="as printed by `travois permissions list`")
    forget.set_defaults(run=run_permissions_forget)
    test = add_command(
        below,
        "test",
        what="test rules on examples and on recorded sessions",
        more=PERMISSIONS_TEST_HELP,
    )
    test.add_argument("rules", metavar="RULES", help="a JSON file")
    test.add_argument("--history", action="store_true", help="also test them on recorded sessions")
    test.add_argument(
        "--all", action="store_true", help="with --history: sessions of every project"
    )
    test.add_argument("--mode", default="default")
    test.add_argument("--json", action="store_true", help="print one JSON object per call")
    test.set_defaults(run=run_permissions_test)


def run_permissions_why(args: Namespace) -> int:
    """Explain a permission decision; exit code 0 if it is to allow, 1 if not."""
    home, cwd = locate_home(os.environ), os.path.realpath(os.getcwd())
    root = identify_project(home, cwd).root
    loaded = load_settings(home, root, cwd=cwd, environ=os.environ, given=args.settings)
    for notice in (*loaded.notices, *permissions.startup_notices(loaded, cwd)):
        print_warning(notice)
    guard = permissions.compose_permissions(loaded, cwd, own=home.folders)
    guard = replace(guard, mode=_parse_mode(args.mode)) if args.mode else guard
    text = args.text
    if args.tool == "Bash":
        text = msgspec.json.encode({"command": text}).decode()
    here = CallLocation(cwd, cwd)
    verdict = decide_without_running(guard, args.tool, text, here=here)
    if args.json:
        said = {"effect": verdict.effect, "because": verdict.because, "mode": guard.mode}
        print_json(said)
        return 0 if verdict.effect == "allow" else 1
    print_line(f"{verdict.effect}: {escape_controls(verdict.because)}  [mode {guard.mode}]")
    if args.tool == "Bash":
        _explain_command_line(guard, text, here=here)
    return 0 if verdict.effect == "allow" else 1


def _parse_mode(name: str) -> str:
    """Return the permission mode of this name; raises `UserError` if there is none."""
    try:
        return find_mode(name)
    except ValueError as error:
        raise UserError(str(error).capitalize()) from None


def _explain_command_line(permissions: Permissions, args: str, *, here: CallLocation) -> None:
    """Show the programs that a command line runs, and what approval each step needs."""
    for plan in context_of_call("Bash", args, here=here).plans:
        if plan.unclear:
            print_line(f"could not be fully analyzed: {escape_controls(plan.unclear)}")
        rows = [
            (
                escape_controls(_step_text(step), lines="show"),
                _describe_needs(step),
                _describe_accesses(step),
            )
            for step in plan.steps
        ]
        if rows:
            print_line(format_table([("RUNS", "NEEDS", "TOUCHES"), *rows]))


def _step_text(step: CommandStep) -> str:
    return step.texts[0] if step.texts else step.name


def _describe_needs(step: CommandStep) -> str:
    """Describe which permission rule a step of a command line needs, and why."""
    match step.needs:
        case "nothing":
            return "nothing"
        case "rule":
            return f"a rule ({step.why})"
        case "exact":
            return f"a rule with its exact text ({step.why})"


def _describe_accesses(step: CommandStep) -> str:
    return escape_controls(", ".join(f"{access.kind} {access.target}" for access in step.accesses))


def run_permissions_list(args: Namespace) -> int:
    """Print the permission rules that apply here."""
    home, cwd = locate_home(os.environ), os.path.realpath(os.getcwd())
    loaded = load_settings(home, identify_project(home, cwd).root, cwd=cwd, environ=os.environ)
    free = loaded.settings.sandbox.auto_allow_bash_if_sandboxed
    rows = _list_rule_rows(
        loaded.rules, sandboxed=loaded.origin(AUTO_ALLOW_BASH_KEY) if free else ""
    )
    print_table(RULE_HEADS, rows, none="No rules.", as_json=args.json)
    return 0


def render_rule_table(rules: tuple[PermissionRule, ...], *, sandboxed: str = "") -> str:
    """Format permission rules as a table, with their sources."""
    rows = _list_rule_rows(rules, sandboxed=sandboxed)
    return format_table([RULE_HEADS, *rows]) if rows else "No rules."


def _list_rule_rows(
    rules: tuple[PermissionRule, ...], *, sandboxed: str
) -> list[tuple[str, str, str]]:
    """Return a row for each permission rule."""
    rows = [(rule.effect, escape_controls(rule.text, lines="show"), rule.origin) for rule in rules]
    return [*rows, *([("allow", SANDBOXED_COMMANDS, sandboxed)] if sandboxed else [])]


def run_permissions_forget(args: Namespace) -> int:
    """Remove a permission rule that an earlier answer saved."""
    home, root = locate_home(os.environ).prepare(), trust.trust_root(os.getcwd())
    found = args.rule == SANDBOXED_COMMANDS and trust.set_sandboxed(home, root, allowed=False)
    found = found or any(
        trust.forget_answer(home, root, args.rule, under=one) for one in RULE_EFFECTS
    )
    if not found:
        fix = "`travois permissions list` lists them; edit rules from a file in that file."
        raise UserError(f"No saved answer allows {args.rule!r} here", fix=fix)
    print_line(f"No longer allowed without approval: {args.rule}")
    return 0


def run_permissions_check(args: Namespace) -> int:
    """Decide permission test cases, one per line, in order."""
    own = locate_home(os.environ).folders
    for line in sys.stdin.buffer:
        if line.strip():
            sys.stdout.write(_check_case(line, own=own) + "\n")
    sys.stdout.flush()
    return 0


def _check_case(line: bytes, *, own: tuple[str, ...]) -> str:
    """Decide one permission test case; an invalid case is denied."""
    try:
        case = msgspec.json.decode(line, type=PermissionCase)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        told = {"id": _case_id(line), "verdict": "deny", "because": f"invalid test case: {error}"}
        return msgspec.json.encode(told).decode()
    verdict = decide_case(case, own=own)
    because = verdict.because.encode("utf-8", "replace").decode()
    told = {"id": case.id, "verdict": verdict.effect, "because": because}
    return msgspec.json.encode(told).decode()


def _case_id(line: bytes) -> str | int | None:
    """Return the id of an invalid permission test case, even one with lone surrogates."""
    try:
        found = json.loads(line)["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found if isinstance(found, str | int) else None


def run_permissions_test(args: Namespace) -> int:
    """Test proposed rules on their examples; exit code 1 if one does not hold."""
    proposed = _load_proposed_rules(args.rules)
    rules = _parse_proposed_rules(proposed, args.rules)
    problems = [why for why in (check_example(text, rules) for text in proposed.examples) if why]
    for why in problems:
        print_warning(why)
    if not args.json:
        held = len(proposed.examples) - len(problems)
        print_line(f"{len(rules)} rules, {held} of {len(proposed.examples)} examples hold")
    if args.history:
        _replay_history(rules, args)
    return 1 if problems else 0


def _load_proposed_rules(path: str) -> ProposedRules:
    """Read proposed permission rules from a file to test them."""
    try:
        data = Path(path).read_bytes()
        whole = msgspec.json.decode(data, type=SettingsWithRules)
        return whole.permissions or msgspec.json.decode(data, type=ProposedRules)
    except OSError as error:
        raise UserError(f"Cannot read {path}", why=error.strerror or str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fix = "See `travois permissions test --help` for the format."
        raise UserError(f"{path} has no rules", why=str(error), fix=fix) from error


def _parse_proposed_rules(proposed: ProposedRules, path: str) -> tuple[PermissionRule, ...]:
    """Parse proposed permission rules; raises `UserError` if one is invalid."""
    try:
        return proposed.parse(path)
    except ValueError as error:
        raise UserError(f"{path} has an invalid rule", why=str(error)) from error


def _replay_history(rules: tuple[PermissionRule, ...], args: Namespace) -> None:
    """Print how proposed rules would decide the tool calls of recorded sessions."""
    home = locate_home(os.environ)
    keys = None if args.all else identify_project(home, os.path.realpath(os.getcwd())).keys
    guard = Permissions(find_mode(args.mode), rules)
    past = [
        call
        for folder in sorted(list_session_folders(home, keys))
        for call in _recorded_calls(folder, guard, home)
    ]
    if args.json:
        for one in past:
            print_line(msgspec.json.encode(one).decode())
        return
    rows = [(one.now, one.then, one.call.name, _describe_recorded_call(one)) for one in past]
    if rows:
        print_line(format_table([("NOW", "THEN", "TOOL", "CALL"), *rows]))
    counts = Counter(one.now for one in past)
    told = ", ".join(f"{counts[effect]} {effect}" for effect in ("allow", "ask", "deny"))
    print_line(f"{len(past)} calls: {told}")


def _describe_recorded_call(past: RecordedCall) -> str:
    args = escape_controls(past.call.args, lines="show")[:200]
    return f"{args}  ({escape_controls(past.because, lines='show')})"


def _recorded_calls(
    folder: Path, permissions: Permissions, home: TravoisHome
) -> Iterator[RecordedCall]:
    """Yield the tool calls of one session, decided in the folder where they were made."""
    skipped: list[DamagedPlace] = []
    entries = list(read_history(folder, skipped))
    decided = {e.fact.call: e.fact.verdict for e in entries if isinstance(e.fact, Decided)}
    root = cwd = ""
    for entry in entries:
        root, cwd = _update_folders(entry, root=root, cwd=cwd)
        if not isinstance(entry.fact, Assistant) or not root:
            continue
        there = replace(permissions, folders=(root,), own=home.folders)
        for call in map(canonical_call, extract_calls(entry.fact.content)):
            verdict = decide_without_running(
                there, call.name, call.args or "{}", here=CallLocation(root, cwd)
            )
            then = decided.get(call.id, "none")
            yield RecordedCall(call, then, verdict.effect, verdict.because)


def _update_folders(entry: Entry, *, root: str, cwd: str) -> tuple[str, str]:
    """Return the root and current folder after an entry of a recorded session."""
    match entry.fact:
        case Opened():
            return entry.fact.cwd, entry.fact.cwd
        case Changed(what="cwd"):
            return root, entry.fact.value
        case _:
            return root, cwd
