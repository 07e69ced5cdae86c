"""Permission rules: `Tool` or `Tool(what)`, as other agents write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

import msgspec

from travois.core.display_text import INVISIBLE_PATTERN, split_names
from travois.lazy_imports import lazy_imports
from travois.permissions import hosts, paths
from travois.permissions.access import Access
from travois.permissions.shell import rough
from travois.permissions.shell.plan import CommandPlan, CommandStep

with lazy_imports():
    from travois.permissions.shell import families


RuleEffect = Literal["allow", "ask", "deny"]
RULE_EFFECTS: tuple[RuleEffect, ...] = ("deny", "ask", "allow")
EDIT_TOOLS = ("Edit", "Write", "MultiEdit", "NotebookEdit", "ApplyPatch")
READ_TOOLS = ("Read", "Grep", "Glob", "Symbols", "CodebaseSearch", "LSP", "NotebookRead")
TOOL_ACCESS_KINDS: dict[str, tuple[str, ...]] = {"Read": ("read", "write"), "Edit": ("write",)}
"""A path that may not be read or edited may not be so by any tool."""
TOOL_TWINS = {"Task": "Agent", "Agent": "Task"}
PRIMARY_ARGUMENTS = frozenset(("command", "file_path", "path", "notebook_path", "url"))
"""Arguments that rules name in their own way."""


class PermissionRule(msgspec.Struct, frozen=True):
    """One permission rule: tool, pattern (empty matches every use), effect and origin."""

    tool: str
    what: str
    effect: RuleEffect
    origin: str = ""
    base: str = ""
    """The folder that `/path` counts from; empty means the workspace."""
    unless: tuple[PermissionRule, ...] = ()
    """Exceptions of the rule, as in lists where the last match counts."""

    @property
    def text(self) -> str:
        """The rule as it is written."""
        return f"{self.tool}({self.what})" if self.what else self.tool

    def __str__(self) -> str:
        return f"{self.effect} {self.text}" + (f" ({self.origin})" if self.origin else "")


def parse_permission_rule(
    text: str, effect: RuleEffect, *, origin: str = "", base: str = ""
) -> PermissionRule:
    """Parse one permission rule; raises ValueError with what is wrong."""
    tool, opening, rest = text.strip().partition("(")
    if not tool or not all(c.isalnum() or c in "_-*" for c in tool):
        raise ValueError(f"{text!r} does not begin with a tool name")
    if not opening:
        return PermissionRule(tool, "", effect, origin, base)
    if not rest.endswith(")"):
        raise ValueError(f"{text!r} has no closing parenthesis")
    what = rest[:-1].strip()
    if not what:
        raise ValueError(f"{text!r} has empty parentheses; leave them out to match every use")
    return PermissionRule(tool, "" if what in ("*", "**", ":*") else what, effect, origin, base)


def split_rules(text: str) -> list[str]:
    """Split a text into permission rules, at commas or spaces outside parentheses."""
    rules, depth, current = [""], 0, 0
    for char in text:
        depth = max(0, depth + (char == "(") - (char == ")"))
        if depth == 0 and (char == "," or char.isspace()):
            rules.append("")
            current += 1
        else:
            rules[current] += char
    return [rule for rule in rules if rule]


@lru_cache(maxsize=2048)
def explain_inert_rule(rule: PermissionRule) -> str:
    """Explain why a permission rule can never match; empty if it can."""
    if rule.effect == "allow" and "*" in rule.tool and not _names_one_server(rule.tool):
        return "an allow rule must name a tool, or the tools of one MCP server: mcp__server__*"
    if rule.tool == "WebSearch" and rule.what:
        return "WebSearch takes no parentheses"
    return ""


class ToolUse(msgspec.Struct, frozen=True):
    """A tool call as permission rules see it; paths are resolved, `root` is the workspace."""

    tool: str
    accesses: tuple[Access, ...]
    root: str
    home: str = ""
    """The home folder; without it, rules with `~` allow nothing."""
    plans: tuple[CommandPlan, ...] = ()
    """Plans for the command lines among the accesses."""
    params: tuple[tuple[str, str], ...] = ()
    """The plain arguments of the call."""
    exported: frozenset[str] = frozenset()
    """Variables that programs would see changed if the shell set them."""

    @property
    def touched(self) -> tuple[Access, ...]:
        """Everything but the command lines, and everything in them."""
        plain = tuple(access for access in self.accesses if access.kind != "exec")
        return (*plain, *(access for plan in self.plans for access in plan.accesses))


def rule_matches(rule: PermissionRule, use: ToolUse) -> bool:
    """Return whether a permission rule matches a call: deny and ask generously, allow exactly."""
    if rule.effect == "allow":
        return rule_covers_tool(rule, use) and _allow_rule_matches(rule, use)
    if rule_names_tool(rule.tool, use.tool):
        return not rule.what or _matches_argument(rule, use) or _rule_mentions_use(rule, use)
    if not rule.what or rule.tool not in TOOL_ACCESS_KINDS:
        return False
    kinds = TOOL_ACCESS_KINDS[rule.tool]
    if paths.longest_path_literal(rule.what) not in _find_candidates((), use).paths:
        return "read" in kinds and _path_in_unknown_text(rule, use)
    touched = (access for access in use.touched if access.kind in kinds)
    return any(_rule_mentions_path(rule, access, use) for access in touched) or (
        "read" in kinds and _path_in_unknown_text(rule, use)
    )


def is_excepted(rule: PermissionRule, use: ToolUse) -> bool:
    """Return whether the exceptions of a permission rule cover everything that a tool call does."""
    others = [other for other in rule.unless if rule_names_tool(other.tool, use.tool)]
    if not use.plans:
        return any(rule_matches(other, use) for other in others)
    if any(plan.unclear or not plan.steps for plan in use.plans):
        return False
    steps = (step for plan in use.plans for step in plan.steps)
    return all(
        step.known and any(_is_step_excepted(other, step) for other in others) for step in steps
    )


def _is_step_excepted(other: PermissionRule, step: CommandStep) -> bool:
    """Return whether the exception of a permission rule applies to a step of a command line."""
    fitting = (text for text in step.texts if pattern_fits_text(other.what, text))
    named = any(_names_program(other.what, text, step) for text in fitting)
    return not other.what or other.what in step.texts or named


def rule_names_tool(rule: str, tool: str) -> bool:
    """Return whether a permission rule names this tool."""
    if rule == tool or (rule == "Edit" and tool in EDIT_TOOLS) or TOOL_TWINS.get(rule) == tool:
        return True
    if rule == "Write" and tool == "ApplyPatch":
        return True
    if "*" in rule:
        return fnmatchcase(tool, rule)
    return rule.startswith("mcp__") and rule.count("__") == 1 and tool.startswith(f"{rule}__")


def is_tool_denied(rules: Iterable[PermissionRule], tool: str) -> bool:
    """Return whether permission rules deny every use of a tool, so that it need not be offered."""
    bare = (rule for rule in rules if rule.effect == "deny" and not rule.what and not rule.unless)
    return any(rule_names_tool(rule.tool, tool) for rule in bare)


def rule_covers_tool(rule: PermissionRule, use: ToolUse) -> bool:
    """Return whether an allow rule is for this tool; permission to edit includes reading."""
    if explain_inert_rule(rule):
        return False
    if rule_names_tool(rule.tool, use.tool):
        return True
    reads = all(access.kind == "read" for access in use.accesses) and use.tool in READ_TOOLS
    return reads and (rule.tool == "Read" or (rule.tool == "Edit" and bool(rule.what)))


def rule_permits_path(rule: PermissionRule, access: Access, use: ToolUse) -> bool:
    """Return whether a path rule allows this access, as written and as resolved."""
    tools = ("Read", "Edit") if access.kind == "read" else ("Edit",)
    if rule.effect != "allow" or rule.tool not in tools or not rule.what:
        return False
    return _rule_covers_access(rule, access, use)


class CandidateRules(msgspec.Struct, frozen=True):
    """The permission rules that may concern a tool call, looked up once for all its parts."""

    rules: tuple[PermissionRule, ...]
    use: ToolUse
    paths: str
    """All paths that are touched, one on a line, as forgiving disks compare them."""
    permitting: tuple[PermissionRule, ...]
    """Allow rules about paths, of which something stands in one of these."""
    covering: tuple[PermissionRule, ...]
    """Allow rules about the tool, of which something stands in what it runs."""


LAST_CANDIDATES: list[CandidateRules] = []
"""The candidates of the last use: one use is asked about many times in a row."""


def permitting_rules(rules: tuple[PermissionRule, ...], use: ToolUse) -> tuple[PermissionRule, ...]:
    """Return the permission rules that may allow a path of this tool call."""
    return _find_candidates(rules, use).permitting


def covering_rules(rules: tuple[PermissionRule, ...], use: ToolUse) -> tuple[PermissionRule, ...]:
    """Return the permission rules that may allow a step of this tool call."""
    return _find_candidates(rules, use).covering


def _find_candidates(rules: tuple[PermissionRule, ...], use: ToolUse) -> CandidateRules:
    """Collect the allow rules that may concern a tool call, remembered for the latest call."""
    last = LAST_CANDIDATES[0] if LAST_CANDIDATES else None
    if last is not None and last.use is use and (not rules or last.rules is rules):
        return last
    spelt = {path for access in use.touched for path in (access.target, access.spelt)}
    touched = "\n".join(paths.fold_name(paths.normalize_path(path)) for path in spelt if path)
    words = " ".join(plan.search_text for plan in use.plans)
    allowing = [rule for rule in rules if rule.effect == "allow"]
    about_paths = (rule for rule in allowing if rule.tool in TOOL_ACCESS_KINDS and rule.what)
    found = CandidateRules(
        rules,
        use,
        touched,
        tuple(rule for rule in about_paths if paths.longest_path_literal(rule.what) in touched),
        tuple(
            r
            for r in allowing
            if _longest_rule_literal(r.what) in words and rule_covers_tool(r, use)
        ),
    )
    LAST_CANDIDATES[:] = [found]
    return found


def anchor_folder(rule: PermissionRule, use: ToolUse) -> str:
    """Return the folder that a permission rule's relative path starts from."""
    return rule.base if rule.base and rule.what.startswith("/") else use.root


def rule_covers_step(rule: PermissionRule, step: CommandStep) -> bool:
    """Return whether an allow rule covers a command step, by exact text or a safe wildcard."""
    if rule.effect != "allow" or rule.tool != "Bash":
        return False
    if "*" not in rule.what:
        return any(what in step.texts for what in rule_wordings(rule.what))
    if step.needs != "rule" and not step.edits and not _names_all_words(rule.what, step.named):
        return False
    if families.adds_destination(rule.what, step):
        return False
    fitting = (
        (what, t)
        for what in rule_wordings(rule.what)
        for t in step.texts
        if pattern_fits_text(what, t)
    )
    return any(_names_program(what, text, step) for what, text in fitting)


def _names_all_words(what: str, wanted: tuple[str, ...]) -> bool:
    """Return whether a rule spells out all these words, apart from a star at its end."""
    words = what.removesuffix(":*").removesuffix("*").split()
    options = (word.partition("=")[0] for word in words if word.startswith("-"))
    return bool(wanted) and not any("*" in w for w in words) and {*words, *options} >= {*wanted}


@lru_cache(maxsize=2048)
def rule_wordings(what: str) -> tuple[str, ...]:
    """Return a permission rule's text, and its form without Claude Code's stored backslashes."""
    plain = what.replace("\\(", "(").replace("\\)", ")").replace("\\\\", "\\")
    return (what,) if plain == what else (what, plain)


def _names_program(what: str, text: str, step: CommandStep) -> bool:
    """Return whether a rule names the program itself, not only a wrapper that runs it."""
    first = text.partition(" ")[0]
    return first == step.argv[0].text or step.argv[0].text in what.replace(":*", " ").split()


def pattern_fits_text(what: str, text: str) -> bool:
    """Return whether a permission rule's pattern, with stars, matches a command text."""
    pattern = f"{what[:-2]} *" if what.endswith(":*") else what
    if pattern.strip("* ") == "":
        return False
    return rough.matches_star_pattern(pattern, text) or (
        pattern.endswith(" *") and text == pattern[:-2]
    )


def _names_one_server(tool: str) -> bool:
    server = tool.removeprefix("mcp__").partition("__")
    return tool.startswith("mcp__") and bool(server[0] and server[1]) and "*" not in server[0]


def _allow_rule_matches(rule: PermissionRule, use: ToolUse) -> bool:
    """Return whether an allow rule covers every access of a tool call."""
    if not rule.what:
        return True
    return bool(use.accesses) and all(
        _rule_covers_access(rule, access, use) for access in use.accesses
    )


def _rule_covers_access(rule: PermissionRule, access: Access, use: ToolUse) -> bool:
    """Return whether the pattern of an allow rule covers one access, matched exactly."""
    what = rule.what
    match access.kind:
        case "exec":
            return access.target.strip() in rule_wordings(what)
        case "net":
            return hosts.rule_allows_url(what, access.target)
        case "tell":  # a colon is a part of an address
            return fnmatchcase(access.target, what)
        case "spawn" | "call":
            return pattern_fits_text(what, access.target)
        case "leave":
            return False
        case "read" | "write":
            spellings = (access.target, access.spelt or access.target)
            # Whoever may read all that is in a folder may list it; a bare name would be anywhere.
            lists = access.kind == "read" and what.startswith(("/", "~/"))
            folder = what.removesuffix("/**") if lists else what
            return all(_rule_allows_path(rule, (what, folder), path, use) for path in spellings)


def _rule_allows_path(
    rule: PermissionRule, patterns: tuple[str, ...], path: str, use: ToolUse
) -> bool:
    """Return whether an allow rule has a pattern that allows this path."""
    root = anchor_folder(rule, use)
    return any(
        paths.pattern_allows_path(one, path, root=root, home=use.home) for one in patterns if one
    )


def _rule_mentions_use(rule: PermissionRule, use: ToolUse) -> bool:
    """Return whether a deny or ask rule may concern a tool call, matched generously."""
    for access in use.accesses:
        match access.kind:
            case "exec":
                found = any(
                    rough.matches_star_pattern(what, access.target)
                    for what in rule_wordings(rule.what)
                )
            case "net":
                found = hosts.rule_mentions_url(rule.what, access.target)
            case "tell":
                found = fnmatchcase(access.target.casefold(), rule.what.casefold())
            case "spawn" | "call":
                found = pattern_fits_text(rule.what.casefold(), access.target.casefold())
            case "leave":
                found = False
            case "read" | "write":
                found = _rule_mentions_path(rule, access, use)
        if found:
            return True
    return any(_plan_may_run(what, plan) for what in rule_wordings(rule.what) for plan in use.plans)


def _plan_may_run(what: str, plan: CommandPlan) -> bool:
    """Return whether a command line may run what a deny or ask rule names."""
    chained = any(char in what for char in "|;&\n")
    if rough.command_mentions(what, plan.text) and (
        chained or plan.unclear or _plan_runs_input(plan)
    ):
        return True
    if plan.search_text and _longest_rule_literal(what) not in plan.search_text:
        return False
    return any(_step_may_run(what, step) for step in plan.steps)


def _plan_runs_input(plan: CommandPlan) -> bool:
    """Return whether a command line runs its standard input as code, so deny rules must apply."""
    return any(families.runs_its_input(step.argv) for step in plan.steps)


@lru_cache(maxsize=2048)
def _longest_rule_literal(what: str) -> str:
    """Return a rule's longest part without a star, contained in all that it matches."""
    runs = (rough.flatten_command(run) for run in what.removesuffix(":*").split("*"))
    return max(runs, key=len)


def _step_may_run(what: str, step: CommandStep) -> bool:
    """Return whether a step of a command line may run what a deny or ask rule names."""
    if not step.known:
        words = " ".join(word.text for word in step.argv)
        return any(rough.command_mentions(what, text) for text in (words, *step.texts))
    pattern = f"{what[:-2]} *" if what.endswith(":*") else what
    return any(_matches_generously(pattern.casefold(), text) for text in _step_readings(step))


@lru_cache(maxsize=2048)
def _step_readings(step: CommandStep) -> frozenset[str]:
    """Return the texts of a step to compare with deny and ask rules, in lower case."""
    words = " ".join(word.text for word in step.argv)
    texts = {text.casefold() for text in (words, *step.texts)}
    located = {text for text in texts if "/" in text.partition(" ")[0]}
    return frozenset(texts | {_strip_program_folder(text) for text in located})


def _strip_program_folder(text: str) -> str:
    program, space, rest = text.partition(" ")
    return program.rpartition("/")[2] + space + rest


def _matches_generously(pattern: str, text: str) -> bool:
    """Match a command text with the pattern of a deny or ask rule, also as a prefix."""
    return (
        pattern_fits_text(pattern, text)
        or rough.matches_star_pattern(pattern, text)
        or text.startswith(f"{pattern} ")
    )


def _matches_argument(rule: PermissionRule, use: ToolUse) -> bool:
    """Return whether a `Tool(name:value)` rule matches a plain argument of the call."""
    name, colon, value = rule.what.partition(":")
    if not colon or name in PRIMARY_ARGUMENTS:
        return False
    return any(
        key == name and rough.matches_star_pattern(value, given) for key, given in use.params
    )


def _path_in_unknown_text(rule: PermissionRule, use: ToolUse) -> bool:
    """Return whether a word of an unparsed command line may be a path that a rule means."""
    unknown = (p for p in use.plans if p.unclear or not all(step.known for step in p.steps))
    root = anchor_folder(rule, use)
    return any(
        paths.text_names_path(rule.what, plan.text, root=root, cwd=use.root, home=use.home)
        for plan in unknown
    )


def _rule_mentions_path(rule: PermissionRule, access: Access, use: ToolUse) -> bool:
    """Return whether a deny or ask rule may mean the path that an access reads or writes."""
    if access.kind not in ("read", "write"):
        return False
    spellings, root = {access.target, access.spelt or access.target}, anchor_folder(rule, use)
    return any(
        paths.pattern_mentions_path(rule.what, path, root=root, home=use.home) for path in spellings
    )


# What is wrong with a rule: it cannot be enforced, or it does not do what it seems to.


KNOWN_TOOLS = split_names(
    """
    Agent AgentStop ApplyPatch ApplyRename AskUserQuestion Bash BashInput BashOutput Browser Cd
    CodebaseSearch CronCreate CronDelete CronList Edit EnterPlanMode EnterWorktree ExitPlanMode
    ExitWorktree GitBlame
    GitDiff GitLog GitShow GitStatus Glob Grep KillBash KillShell ListMcpResources LS LSP Monitor
    MultiEdit NotebookEdit NotebookRead
    PowerShell Read ReadMcpResource Recall Remember ScheduleWakeup SendMessage SendUserMessage Skill
    SlashCommand
    StructuredOutput Symbols Task TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate
    TeamCreate TeamDelete TodoRead TodoWrite ToolSearch WebFetch WebSearch Workflow Write
    """
)
"""The tools that rules may speak of: ours, and those of other agents whose settings we read."""


def explain_unenforceable_rule(rule: PermissionRule) -> str:
    """Explain why a permission rule cannot be enforced; empty if it can."""
    if found := re.search(INVISIBLE_PATTERN, rule.what):
        return f"it has an invisible character (U+{ord(found[0]):04X})"
    if rule.tool in (*EDIT_TOOLS, *READ_TOOLS) and re.match(r"~[^/]", rule.what):
        return "~ means your own home only; write the path as //home/name/..."
    if rule.tool == "Bash" and "*" not in rule.what and not _has_closed_quotes(rule.what):
        return "it has an unclosed quote, so it can never match a command"
    return ""


def explain_misleading_rule(rule: PermissionRule) -> str:
    """Explain why a permission rule does less than it appears to; empty if it does not."""
    if why := explain_inert_rule(rule):
        return f"is ignored: {why}"
    if rule.effect == "allow":
        return ""
    if rule.tool not in KNOWN_TOOLS and not any(char in rule.tool for char in "_*"):
        return f"names the tool {rule.tool}, which does not exist"
    if rule.what and rule.tool not in TOOL_ACCESS_KINDS and rule.tool in (*EDIT_TOOLS, *READ_TOOLS):
        wide = "Edit" if rule.tool in EDIT_TOOLS else "Read"
        return f"applies to {rule.tool} only; {wide}({rule.what}) applies to every tool"
    return ""


def _has_closed_quotes(text: str) -> bool:
    """Return whether a command in a permission rule closes each quote that it opens."""
    quote, escaped = "", False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif char in "'\"" and quote in ("", char):
            quote = "" if quote else char
    return not quote and not escaped
