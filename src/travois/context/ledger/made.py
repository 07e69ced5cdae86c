"""What the session brought into the world under a name of its own: commits, requests, issues."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from travois.context.ledger.extractors import Act

MAKES = re.compile(
    r"\bgit\b[^\n;&|]{0,200}?\b(?:commit|cherry-pick|revert|push|merge)\b"
    r"|\bgh (?:pr|issue) create|\bglab "
)
COMMIT = re.compile(
    r"^\[([^\]\n]*?) ?(?:\(root-commit\) )?\b([0-9a-f]{7,40})\] ?(.*)$", re.MULTILINE
)
LINK = re.compile(r"https?://[\w.\-]+/[\w.\-/]+?/(pull|issues|merge_requests)/(\d+)")
TICKET = re.compile(r'"(?:identifier|key|id)":\s*"([A-Z][A-Z0-9]+-\d+)"')
BRANCH = re.compile(
    r"^(?:On branch |Switched to (?:a new )?branch ')([\w./\-]+)|^## ([\w./\-]+?)\.\.\.",
    re.MULTILINE,
)
KINDS = {"pull": "pull request", "issues": "issue", "merge_requests": "merge request"}


class Made(msgspec.Struct, frozen=True):
    """One thing that was created, by the id it is known under."""

    kind: str
    id: str
    about: str = ""


class Git(msgspec.Struct, frozen=True):
    """The repository as it was last seen."""

    branch: str = ""
    commit: str = ""


def made(acts: Iterable[Act]) -> tuple[Made, ...]:
    """All of them, newest first."""
    found: dict[str, Made] = {}
    for act in acts:
        if act.refused is None:
            for thing in _makings(act):
                found.setdefault(thing.id, thing)
    return tuple(reversed(found.values()))


def git(acts: Iterable[Act]) -> Git:
    """The branch and the commit that were last seen."""
    branch = commit = ""
    for act in acts:
        if act.kind == "shell" and "git" in act.command:
            told = BRANCH.search(act.text)
            done = list(COMMIT.finditer(act.text)) if "commit" in act.command else []
            branch = (told[1] or told[2]) if told else branch
            if done:
                branch, commit = done[-1][1].split(" ")[0] or branch, done[-1][2]
    return Git(branch, commit)


def _makings(act: Act) -> Iterator[Made]:
    if act.kind == "shell" and MAKES.search(act.command):
        for commit in COMMIT.finditer(act.text):
            yield Made("commit", commit[2], commit[3].strip())
    elif act.kind != "make" or act.error:
        return
    about = act.arg("title") or _titled(act.command)
    for link in LINK.finditer(act.text):
        yield Made(KINDS[link[1]], link[0], about)
    for ticket in TICKET.finditer(act.text[:4_000]) if act.kind == "make" else ():
        yield Made("issue", ticket[1], about)


def _titled(command: str) -> str:
    found = re.search(r"""--title[ =](?:"([^"]*)"|'([^']*)')""", command)
    return (found[1] or found[2]) if found else ""
