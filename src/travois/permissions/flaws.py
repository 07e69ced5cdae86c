"""What is wrong with a rule: it cannot be enforced, or it does not do what it seems to."""

from __future__ import annotations

import re

from travois.core.display_text import UNSEEN_PATTERN, listed
from travois.permissions.rules import EDITS, READS, TOUCHING, Rule, idle

TOOLS = listed(
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
    """Why a rule can never be enforced; empty if it can."""
    if found := re.search(UNSEEN_PATTERN, rule.what):
        return f"it has a character that cannot be seen (U+{ord(found[0]):04X})"
    if rule.tool in (*EDITS, *READS) and re.match(r"~[^/]", rule.what):
        return "~ stands for your own home only; write the path as //home/name/..."
    if rule.tool == "Bash" and "*" not in rule.what and not _closed(rule.what):
        return "it opens a quote and never closes it, which no command that runs does"
    return ""


def remark(rule: Rule) -> str:
    """What the user should know of a rule that does less than it seems to; empty if nothing."""
    if why := idle(rule):
        return f"is ignored: {why}"
    if rule.effect == "allow":
        return ""
    if rule.tool not in TOOLS and not any(char in rule.tool for char in "_*"):
        return f"is a rule about {rule.tool}, which is no tool"
    if rule.what and rule.tool not in TOUCHING and rule.tool in (*EDITS, *READS):
        wide = "Edit" if rule.tool in EDITS else "Read"
        return f"holds for {rule.tool} alone; {wide}({rule.what}) holds for every tool"
    return ""


def _closed(text: str) -> bool:
    """Whether each quote that a command opens is closed."""
    quote, escaped = "", False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif char in "'\"" and quote in ("", char):
            quote = "" if quote else char
    return not quote and not escaped
