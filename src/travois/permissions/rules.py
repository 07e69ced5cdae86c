"""Permission rules: `Tool` or `Tool(what)`, as other agents write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

import msgspec

from travois.core.display_text import INVISIBLE_PATTERN, split_names
from travois.permissions import hosts, paths
from travois.permissions.access import Access
from travois.permissions.shell import rough
from travois.permissions.shell.plan import Plan, Step

Effect = Literal["allow", "ask", "deny"]
EFFECTS: tuple[Effect, ...] = ("deny", "ask", "allow")
EDITS = ("Edit", "Write", "MultiEdit", "NotebookEdit", "ApplyPatch")
READS = ("Read", "Grep", "Glob", "Symbols", "LSP", "NotebookRead")
TOUCHING: dict[str, tuple[str, ...]] = {"Read": ("read", "write"), "Edit": ("write",)}
"""A path that may not be read or edited may not be so by any tool."""
TWINS = {"Task": "Agent", "Agent": "Task"}
PRIMARY = frozenset(("command", "file_path", "path", "notebook_path", "url"))
"""Arguments that rules name in their own way."""


class Rule(msgspec.Struct, frozen=True):
    """One permission rule: tool, pattern (empty matches every use), effect and origin."""

    tool: str
    what: str
    effect: Effect
    origin: str = ""
    base: str = ""
    """The folder that `/path` counts from; empty means the workspace."""
    unless: tuple[Rule, ...] = ()
    """Exceptions of the rule, as in lists where the last match counts."""

    @property
    def text(self) -> str:
        """The rule as it is written."""
        return f"{self.tool}({self.what})" if self.what else self.tool

    def __str__(self) -> str:
        return f"{self.effect} {self.text}" + (f" ({self.origin})" if self.origin else "")


def parse(text: str, effect: Effect, *, origin: str = "", base: str = "") -> Rule:
    """Read one rule; raises ValueError with what is wrong."""
    tool, opening, rest = text.strip().partition("(")
    if not tool or not all(c.isalnum() or c in "_-*" for c in tool):
        raise ValueError(f"{text!r} does not begin with a tool name")
    if not opening:
        return Rule(tool, "", effect, origin, base)
    if not rest.endswith(")"):
        raise ValueError(f"{text!r} has no closing parenthesis")
    what = rest[:-1].strip()
    if not what:
        raise ValueError(f"{text!r} has empty parentheses; leave them out to match every use")
    return Rule(tool, "" if what in ("*", "**", ":*") else what, effect, origin, base)


def split(text: str) -> list[str]:
    """Split several rules at commas or spaces outside parentheses."""
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
def idle(rule: Rule) -> str:
    """Explain why a rule can never match; empty if it can."""
    if rule.effect == "allow" and "*" in rule.tool and not _one_server(rule.tool):
        return "an allow rule must name a tool, or the tools of one MCP server: mcp__server__*"
    if rule.tool == "WebSearch" and rule.what:
        return "WebSearch takes no parentheses"
    return ""


class Use(msgspec.Struct, frozen=True):
    """A call as the rules see it; paths are resolved, `root` is the workspace."""

    tool: str
    accesses: tuple[Access, ...]
    root: str
    home: str = ""
    """The home folder; without it, rules with `~` allow nothing."""
    plans: tuple[Plan, ...] = ()
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


def matches(rule: Rule, use: Use) -> bool:
    """Return whether the rule matches this use: deny and ask generously, allow exactly."""
    if rule.effect == "allow":
        return covers_tool(rule, use) and _allows(rule, use)
    if names(rule.tool, use.tool):
        return not rule.what or _parameter(rule, use) or _mentioned(rule, use)
    if not rule.what or rule.tool not in TOUCHING:
        return False
    kinds = TOUCHING[rule.tool]
    if paths.literal(rule.what) not in _candidates((), use).paths:
        return "read" in kinds and _named_in_text(rule, use)
    touched = (access for access in use.touched if access.kind in kinds)
    return any(_path(rule, access, use) for access in touched) or (
        "read" in kinds and _named_in_text(rule, use)
    )


def excepted(rule: Rule, use: Use) -> bool:
    """Return whether a rule gives back all that a use does."""
    others = [other for other in rule.unless if names(other.tool, use.tool)]
    if not use.plans:
        return any(matches(other, use) for other in others)
    if any(plan.unclear or not plan.steps for plan in use.plans):
        return False
    steps = (step for plan in use.plans for step in plan.steps)
    return all(step.known and any(_spared(other, step) for other in others) for step in steps)


def _spared(other: Rule, step: Step) -> bool:
    fitting = (text for text in step.texts if fits(other.what, text))
    named = any(_names_program(other.what, text, step) for text in fitting)
    return not other.what or other.what in step.texts or named


def names(rule: str, tool: str) -> bool:
    """Return whether a rule's tool is this one."""
    if rule == tool or (rule == "Edit" and tool in EDITS) or TWINS.get(rule) == tool:
        return True
    if rule == "Write" and tool == "ApplyPatch":
        return True
    if "*" in rule:
        return fnmatchcase(tool, rule)
    return rule.startswith("mcp__") and rule.count("__") == 1 and tool.startswith(f"{rule}__")


def withheld(rules: Iterable[Rule], tool: str) -> bool:
    """Return whether rules deny every use of a tool, so that it need not be offered."""
    bare = (rule for rule in rules if rule.effect == "deny" and not rule.what and not rule.unless)
    return any(names(rule.tool, tool) for rule in bare)


def covers_tool(rule: Rule, use: Use) -> bool:
    """Return whether an allow rule is about this tool; to edit includes to read."""
    if idle(rule):
        return False
    if names(rule.tool, use.tool):
        return True
    reads = all(access.kind == "read" for access in use.accesses) and use.tool in READS
    return reads and (rule.tool == "Read" or (rule.tool == "Edit" and bool(rule.what)))


def permits(rule: Rule, access: Access, use: Use) -> bool:
    """Return whether a path rule allows this access, as written and as resolved."""
    tools = ("Read", "Edit") if access.kind == "read" else ("Edit",)
    if rule.effect != "allow" or rule.tool not in tools or not rule.what:
        return False
    return _covers(rule, access, use)


class Candidates(msgspec.Struct, frozen=True):
    """The rules that may concern a use, found once for all that it touches and runs."""

    rules: tuple[Rule, ...]
    use: Use
    paths: str
    """All paths that are touched, one on a line, as forgiving disks compare them."""
    permitting: tuple[Rule, ...]
    """Allow rules about paths, of which something stands in one of these."""
    covering: tuple[Rule, ...]
    """Allow rules about the tool, of which something stands in what it runs."""


LAST: list[Candidates] = []
"""The candidates of the last use: one use is asked about many times in a row."""


def permitting(rules: tuple[Rule, ...], use: Use) -> tuple[Rule, ...]:
    """Return the rules that may permit a path of this use."""
    return _candidates(rules, use).permitting


def covering(rules: tuple[Rule, ...], use: Use) -> tuple[Rule, ...]:
    """Return the rules that may cover a step of this use."""
    return _candidates(rules, use).covering


def _candidates(rules: tuple[Rule, ...], use: Use) -> Candidates:
    last = LAST[0] if LAST else None
    if last is not None and last.use is use and (not rules or last.rules is rules):
        return last
    spelt = {path for access in use.touched for path in (access.target, access.spelt)}
    touched = "\n".join(paths.folded(paths.plain(path)) for path in spelt if path)
    words = " ".join(plan.search_text for plan in use.plans)
    allowing = [rule for rule in rules if rule.effect == "allow"]
    about_paths = (rule for rule in allowing if rule.tool in TOUCHING and rule.what)
    found = Candidates(
        rules,
        use,
        touched,
        tuple(rule for rule in about_paths if paths.literal(rule.what) in touched),
        tuple(r for r in allowing if _literal(r.what) in words and covers_tool(r, use)),
    )
    LAST[:] = [found]
    return found


def anchor(rule: Rule, use: Use) -> str:
    """Return the folder that the rule's path starts from."""
    return rule.base if rule.base and rule.what.startswith("/") else use.root


def covers(rule: Rule, step: Step) -> bool:
    """Return whether an allow rule covers this step, by its text or a safe pattern."""
    if rule.effect != "allow" or rule.tool != "Bash":
        return False
    if "*" not in rule.what:
        return any(what in step.texts for what in wordings(rule.what))
    if step.needs != "rule" and not step.edits and not _names_all(rule.what, step.named):
        return False
    from travois.permissions.shell.families import adds_destination  # not needed at the start

    if adds_destination(rule.what, step):
        return False
    fitting = ((what, t) for what in wordings(rule.what) for t in step.texts if fits(what, t))
    return any(_names_program(what, text, step) for what, text in fitting)


def _names_all(what: str, wanted: tuple[str, ...]) -> bool:
    """Return whether a rule has these words itself, before a star that is its end."""
    words = what.removesuffix(":*").removesuffix("*").split()
    options = (word.partition("=")[0] for word in words if word.startswith("-"))
    return bool(wanted) and not any("*" in w for w in words) and {*words, *options} >= {*wanted}


@lru_cache(maxsize=2048)
def wordings(what: str) -> tuple[str, ...]:
    """Return a rule's text, and that without the backslashes that Claude Code stores."""
    plain = what.replace("\\(", "(").replace("\\)", ")").replace("\\\\", "\\")
    return (what,) if plain == what else (what, plain)


def _names_program(what: str, text: str, step: Step) -> bool:
    """Return whether a rule speaks of the program itself, not only of one that runs others."""
    first = text.partition(" ")[0]
    return first == step.argv[0].text or step.argv[0].text in what.replace(":*", " ").split()


def fits(what: str, text: str) -> bool:
    """Return whether a pattern with stars means this text."""
    pattern = f"{what[:-2]} *" if what.endswith(":*") else what
    if pattern.strip("* ") == "":
        return False
    return rough.like(pattern, text) or (pattern.endswith(" *") and text == pattern[:-2])


def _one_server(tool: str) -> bool:
    server = tool.removeprefix("mcp__").partition("__")
    return tool.startswith("mcp__") and bool(server[0] and server[1]) and "*" not in server[0]


def _allows(rule: Rule, use: Use) -> bool:
    if not rule.what:
        return True
    return bool(use.accesses) and all(_covers(rule, access, use) for access in use.accesses)


def _covers(rule: Rule, access: Access, use: Use) -> bool:
    what = rule.what
    match access.kind:
        case "exec":
            return access.target.strip() in wordings(what)
        case "net":
            return hosts.allows(what, access.target)
        case "tell":  # a colon is a part of an address
            return fnmatchcase(access.target, what)
        case "spawn" | "call":
            return fits(what, access.target)
        case "leave":
            return False
        case "read" | "write":
            spellings = (access.target, access.spelt or access.target)
            # Whoever may read all that is in a folder may list it; a bare name would be anywhere.
            lists = access.kind == "read" and what.startswith(("/", "~/"))
            folder = what.removesuffix("/**") if lists else what
            return all(_lets(rule, (what, folder), path, use) for path in spellings)


def _lets(rule: Rule, patterns: tuple[str, ...], path: str, use: Use) -> bool:
    root = anchor(rule, use)
    return any(paths.allows(one, path, root=root, home=use.home) for one in patterns if one)


def _mentioned(rule: Rule, use: Use) -> bool:
    for access in use.accesses:
        match access.kind:
            case "exec":
                found = any(rough.like(what, access.target) for what in wordings(rule.what))
            case "net":
                found = hosts.mentions(rule.what, access.target)
            case "tell":
                found = fnmatchcase(access.target.casefold(), rule.what.casefold())
            case "spawn" | "call":
                found = fits(rule.what.casefold(), access.target.casefold())
            case "leave":
                found = False
            case "read" | "write":
                found = _path(rule, access, use)
        if found:
            return True
    return any(_runs(what, plan) for what in wordings(rule.what) for plan in use.plans)


def _runs(what: str, plan: Plan) -> bool:
    """Return whether a plan runs what the rule names, or may do so."""
    chained = any(char in what for char in "|;&\n")
    if rough.mentions(what, plan.text) and (chained or plan.unclear or _runs_input(plan)):
        return True
    if plan.search_text and _literal(what) not in plan.search_text:
        return False
    return any(_does(what, step) for step in plan.steps)


def _runs_input(plan: Plan) -> bool:
    """Return whether a program of the plan runs text that is not among its words."""
    from travois.permissions.shell.families import reads_program  # not needed at the start

    return any(reads_program(step.argv) for step in plan.steps)


@lru_cache(maxsize=2048)
def _literal(what: str) -> str:
    """Return the longest run of a rule's words without a star: whatever it means holds that."""
    runs = (rough.flat(run) for run in what.removesuffix(":*").split("*"))
    return max(runs, key=len)


def _does(what: str, step: Step) -> bool:
    if not step.known:
        words = " ".join(word.text for word in step.argv)
        return any(rough.mentions(what, text) for text in (words, *step.texts))
    pattern = f"{what[:-2]} *" if what.endswith(":*") else what
    return any(_heard(pattern.casefold(), text) for text in _readings(step))


@lru_cache(maxsize=2048)
def _readings(step: Step) -> frozenset[str]:
    """Return the possible readings of a step, without case and the program's folder."""
    words = " ".join(word.text for word in step.argv)
    texts = {text.casefold() for text in (words, *step.texts)}
    located = {text for text in texts if "/" in text.partition(" ")[0]}
    return frozenset(texts | {_bare(text) for text in located})


def _bare(text: str) -> str:
    program, space, rest = text.partition(" ")
    return program.rpartition("/")[2] + space + rest


def _heard(pattern: str, text: str) -> bool:
    return fits(pattern, text) or rough.like(pattern, text) or text.startswith(f"{pattern} ")


def _parameter(rule: Rule, use: Use) -> bool:
    """Return whether `Tool(name:value)` matches a plain argument of the call."""
    name, colon, value = rule.what.partition(":")
    if not colon or name in PRIMARY:
        return False
    return any(key == name and rough.like(value, given) for key, given in use.params)


def _named_in_text(rule: Rule, use: Use) -> bool:
    """Return whether a word of a command line that is not understood may be a path of the rule."""
    unknown = (p for p in use.plans if p.unclear or not all(step.known for step in p.steps))
    root = anchor(rule, use)
    return any(
        paths.named_in(rule.what, plan.text, root=root, cwd=use.root, home=use.home)
        for plan in unknown
    )


def _path(rule: Rule, access: Access, use: Use) -> bool:
    if access.kind not in ("read", "write"):
        return False
    spellings, root = {access.target, access.spelt or access.target}, anchor(rule, use)
    return any(paths.mentions(rule.what, path, root=root, home=use.home) for path in spellings)


# What is wrong with a rule: it cannot be enforced, or it does not do what it seems to.


TOOLS = split_names(
    """
    Agent AgentStop ApplyPatch AskUserQuestion Bash BashInput BashOutput Browser Cd CronCreate
    CronDelete CronList Edit EnterPlanMode EnterWorktree ExitPlanMode ExitWorktree GitBlame
    GitDiff GitLog GitShow GitStatus Glob Grep KillBash KillShell ListMcpResources LS LSP Monitor
    MultiEdit NotebookEdit NotebookRead
    PowerShell Read ReadMcpResource Recall Remember SendMessage SendUserMessage Skill SlashCommand
    StructuredOutput Symbols Task TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate
    TeamCreate TeamDelete TodoRead TodoWrite ToolSearch WebFetch WebSearch Workflow Write
    """
)
"""The tools that rules may speak of: ours, and those of other agents whose settings we read."""


def flaw(rule: Rule) -> str:
    """Explain why a rule cannot be enforced; empty if it can."""
    if found := re.search(INVISIBLE_PATTERN, rule.what):
        return f"it has an invisible character (U+{ord(found[0]):04X})"
    if rule.tool in (*EDITS, *READS) and re.match(r"~[^/]", rule.what):
        return "~ means your own home only; write the path as //home/name/..."
    if rule.tool == "Bash" and "*" not in rule.what and not _closed(rule.what):
        return "it has an unclosed quote, so it can never match a command"
    return ""


def remark(rule: Rule) -> str:
    """Explain why a rule does less than it seems to; empty if it does not."""
    if why := idle(rule):
        return f"is ignored: {why}"
    if rule.effect == "allow":
        return ""
    if rule.tool not in TOOLS and not any(char in rule.tool for char in "_*"):
        return f"names the tool {rule.tool}, which does not exist"
    if rule.what and rule.tool not in TOUCHING and rule.tool in (*EDITS, *READS):
        wide = "Edit" if rule.tool in EDITS else "Read"
        return f"applies to {rule.tool} only; {wide}({rule.what}) applies to every tool"
    return ""


def _closed(text: str) -> bool:
    """Return whether each quote that a command opens is closed."""
    quote, escaped = "", False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif char in "'\"" and quote in ("", char):
            quote = "" if quote else char
    return not quote and not escaped
