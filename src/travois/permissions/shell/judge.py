"""Plans for command lines: exact enough to allow them, generous enough to deny them."""

from __future__ import annotations

from functools import lru_cache

from travois.core.display_text import find_deception
from travois.permissions.shell.plan import Plan, Step
from travois.permissions.shell.rough import flat
from travois.permissions.shell.work import MAX_HEREDOCS, MAX_PARSED_CHARS, TooComplex, Work

TOO_LONG = f"it is too long to analyze (more than {MAX_PARSED_CHARS:,} characters)"
TOO_COMPLEX = "it is too complex to analyze"
NOT_A_HEREDOC = "the end of a here-document is unclear"


@lru_cache(maxsize=64)
def plan(command: str, *, cwd: str, home: str = "", foreign: bool = False) -> Plan:
    """Return everything that this command line runs when it is started in this folder.

    A foreign folder is part of another repository, whose settings git would obey.
    """
    from travois.permissions.shell.parse import shortened
    from travois.permissions.shell.place import Start
    from travois.permissions.shell.walk import Walker

    if why := find_deception(command):
        return Plan(command, unclear=why)
    # Whatever is left out here must turn out to be the body of a here-document once the rest is
    # parsed: whether it is one depends only on the text before it.
    long = len(command) > MAX_PARSED_CHARS or command.count("<<") > MAX_HEREDOCS
    brief = shortened(command) if long else None
    text = brief.text if brief is not None else command
    if len(text) > MAX_PARSED_CHARS:
        return Plan(command, unclear=TOO_LONG)
    if text.count("<<") > MAX_HEREDOCS:
        return Plan(command, unclear=TOO_COMPLEX)
    walker = Walker(text, Start(cwd, home, foreign), Work())
    try:
        walker.run()
    except (TooComplex, RecursionError):
        walker.refuse(TOO_COMPLEX)
    if brief is not None and not walker.heredocs.issuperset(brief.operators):
        walker.refuse(NOT_A_HEREDOC)
    steps = tuple(dict.fromkeys(walker.steps))
    assigned = tuple(dict.fromkeys(walker.assigned))
    return Plan(command, steps, walker.unclear, assigned, _search_text(steps))


def _search_text(steps: tuple[Step, ...]) -> str:
    words = (" ".join(word.text for word in step.argv) for step in steps)
    return flat("\n".join((*words, *(text for step in steps for text in step.texts))))
