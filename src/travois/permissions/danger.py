"""Dangers of a command line, such as a forced push, that the permission question points out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from travois.core.patterns import compile_lazily
from travois.permissions.catastrophic import describe_catastrophe
from travois.permissions.rules import ToolUse
from travois.permissions.shell.families import is_download, runs_its_input
from travois.permissions.shell.plan import CommandPlan, CommandStep, git_subcommand

DANGER_PREFIX = "DANGER: "
"""Begins an effect that is shown as a warning."""
ROOT_PROGRAMS = ("sudo", "doas", "su", "pkexec", "run0")
PUBLISHING_COMMANDS = {
    ("npm", "publish"): "publishes a package",
    ("pnpm", "publish"): "publishes a package",
    ("yarn", "publish"): "publishes a package",
    ("cargo", "publish"): "publishes a package",
    ("uv", "publish"): "publishes a package",
    ("poetry", "publish"): "publishes a package",
    ("twine", "upload"): "publishes a package",
    ("gem", "push"): "publishes a package",
    ("docker", "push"): "publishes an image",
    ("terraform", "apply"): "changes running infrastructure",
    ("terraform", "destroy"): "removes running infrastructure",
    ("kubectl", "delete"): "removes resources of a cluster",
}
EVERYONE_MODE = compile_lazily(r"[0-7]?[0-7]{2}[2367]|(?:[augo]*o|a)[augo]*\+[rxXst]*w.*")
"""A file mode that lets everybody write."""


def find_dangers(use: ToolUse) -> tuple[str, ...]:
    """Return the warnings for a permission question, most important first; empty if none."""
    found = (
        why
        for plan in use.plans
        for why in (
            *_ruins(plan, use),
            *_unseen_code(plan),
            *(told for step in plan.steps for told in _step_dangers(step)),
        )
    )
    return tuple(dict.fromkeys(found))


def _ruins(plan: CommandPlan, use: ToolUse) -> Iterator[str]:
    if why := describe_catastrophe(plan, folders=(use.root,), home=use.home):
        yield why


def _unseen_code(plan: CommandPlan) -> Iterator[str]:
    """Yield a warning if a command runs code that nobody has reviewed, such as `curl | sh`."""
    if any(runs_its_input(step.argv) for step in plan.steps):
        sent = any(map(is_download, plan.steps))
        yield "runs code that a server sends" if sent else "runs code from its input"


def _step_dangers(step: CommandStep) -> Iterator[str]:
    """Yield the warnings about one program of a command line."""
    words = [word.text for word in step.argv[1:]]
    if step.name in ROOT_PROGRAMS:
        yield "runs with the rights of the administrator"
        inner = _wrapped_step(step)
        yield from _step_dangers(inner) if inner else ()
    if step.name == "git":
        yield from _git_dangers(git_subcommand(step), words)
    elif step.name in ("rm", "srm") and _has_flag(words, "rR", "--recursive"):
        yield f"deletes folders with everything in them: {_join_operands(words)}"
    elif step.name == "chmod" and any(map(EVERYONE_MODE.fullmatch, words)):
        yield "lets every user of this machine change these files"
    elif published := PUBLISHING_COMMANDS.get((step.name, next(iter(words), ""))):
        yield f"{published}, which cannot be taken back"


def _wrapped_step(step: CommandStep) -> CommandStep | None:
    """Return the command that a wrapper such as sudo runs, to look for dangers in it."""
    for at, word in enumerate(step.argv[1:], 1):
        if not word.text.startswith("-") and "=" not in word.text:
            return CommandStep(step.argv[at:])
    return None


def _git_dangers(command: str, words: list[str]) -> Iterator[str]:
    """Yield warnings about the work that a git command discards."""
    checks: dict[str, Callable[[list[str]], str]] = {
        "push": _push_danger,
        "reset": lambda words: "throws away uncommitted changes" if "--hard" in words else "",
        "clean": lambda words: (
            "deletes files that git does not keep" if _has_flag(words, "f", "--force") else ""
        ),
        "checkout": _checkout_danger,
        "restore": lambda words: "" if "--staged" in words else "throws away uncommitted changes",
        "branch": lambda words: (
            "deletes a branch, even if it is not merged" if _has_flag(words, "D", "") else ""
        ),
        "stash": lambda words: (
            "throws away stashed changes" if {"drop", "clear"} & set(words) else ""
        ),
        "filter-branch": lambda words: "rewrites the history of the repository",
        "filter-repo": lambda words: "rewrites the history of the repository",
    }
    if command in checks and (why := checks[command](words)):
        yield why


def _push_danger(words: list[str]) -> str:
    """Return the warning about what a `git push` overwrites or deletes on the remote."""
    operands = [word for word in words if not word.startswith("-")]
    if {"--delete", "-d"} & set(words) or any(word.startswith(":") for word in operands[1:]):
        return "deletes a branch or tag on the server"
    forced = _has_flag(words, "f", "--force") or any(word[:1] == "+" for word in operands)
    forced = forced or any(word.startswith(("--force-with-lease", "--mirror")) for word in words)
    return "force push: overwrites commits on the server" if forced else ""


def _checkout_danger(words: list[str]) -> str:
    whole = {"--", ".", "-f", "--force"} & set(words)
    return "throws away uncommitted changes" if whole and "-b" not in words else ""


def _has_flag(words: list[str], letters: str, long: str) -> bool:
    """Return whether a command has a dangerous flag: the short form, even grouped, or the long."""
    return any(
        word == long
        or (word[:1] == "-" and word[1:2] != "-" and any(one in word for one in letters))
        for word in words
        if word
    )


def _join_operands(words: list[str]) -> str:
    return " ".join(word for word in words if not word.startswith("-"))
