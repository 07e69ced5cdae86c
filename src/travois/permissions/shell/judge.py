"""Command plans: exact enough to allow a command line, generous enough to deny it."""

from __future__ import annotations

from functools import lru_cache

from travois.core.display_text import find_deception
from travois.lazy_imports import lazy_imports
from travois.permissions.shell.plan import (
    MAX_HEREDOCS,
    MAX_PARSED_CHARS,
    CommandPlan,
    CommandStep,
    CommandTooComplex,
    WorkBudget,
)
from travois.permissions.shell.rough import flatten_command

with lazy_imports():
    from travois.permissions.shell import parse, state, walk


TOO_LONG_REASON = f"it is too long to analyze (more than {MAX_PARSED_CHARS:,} characters)"
TOO_COMPLEX_REASON = "it is too complex to analyze"
HEREDOC_REASON = "the end of a here-document is unclear"


@lru_cache(maxsize=64)
def plan_command(command: str, *, cwd: str, home: str = "", foreign: bool = False) -> CommandPlan:
    """Return the plan of everything that a shell command line runs from this folder.

    A foreign folder is part of another repository, whose settings git would obey.
    """
    if why := find_deception(command):
        return CommandPlan(command, unclear=why)
    # Whatever is left out here must turn out to be the body of a here-document once the rest is
    # parsed: whether it is one depends only on the text before it.
    long = len(command) > MAX_PARSED_CHARS or command.count("<<") > MAX_HEREDOCS
    brief = parse.shorten_heredocs(command) if long else None
    text = brief.text if brief is not None else command
    if len(text) > MAX_PARSED_CHARS:
        return CommandPlan(command, unclear=TOO_LONG_REASON)
    if text.count("<<") > MAX_HEREDOCS:
        return CommandPlan(command, unclear=TOO_COMPLEX_REASON)
    walker = walk.CommandWalker(text, state.StartFolder(cwd, home, foreign), WorkBudget())
    try:
        walker.run()
    except (CommandTooComplex, RecursionError):
        walker.refuse(TOO_COMPLEX_REASON)
    if brief is not None and not walker.heredocs.issuperset(brief.operators):
        walker.refuse(HEREDOC_REASON)
    steps = tuple(dict.fromkeys(walker.steps))
    assigned = tuple(dict.fromkeys(walker.assigned))
    return CommandPlan(command, steps, walker.unclear, assigned, _build_search_text(steps))


def _build_search_text(steps: tuple[CommandStep, ...]) -> str:
    words = (" ".join(word.text for word in step.argv) for step in steps)
    return flatten_command("\n".join((*words, *(text for step in steps for text in step.texts))))
