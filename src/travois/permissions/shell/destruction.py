"""Files that a command line may destroy, read generously so that a snapshot saves them first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from posixpath import dirname, normpath

import msgspec

from travois.permissions.access import Access
from travois.permissions.paths import fixed_folder_of
from travois.permissions.shell import rough
from travois.permissions.shell.plan import CommandPlan, CommandStep
from travois.permissions.shell.state import join_folder

HARMLESS_WRITES = frozenset(("mkdir", "touch"))
"""Programs that write and yet leave everything as it was."""
DESTRUCTIVE_BY_NAME = frozenset(
    (
        *("rm", "rmdir", "unlink", "shred", "srm", "trash", "truncate", "mv", "cp", "install"),
        *("ln", "dd", "tee", "sed", "perl", "find", "fd", "rsync", "tar", "bsdtar", "unzip"),
        *("7z", "cpio", "patch", "chmod", "chown", "chgrp", "setfacl", "split", "csplit"),
        *("sponge", "gzip", "gunzip", "xz", "bzip2", "zstd", "rename", "prename", "mmv"),
    )
)
"""Programs that may destroy what their words name."""
CLEANED_FOLDERS = {
    "cargo": "target",
    "npm": "node_modules",
    "pnpm": "node_modules",
    "yarn": "node_modules",
}
"""The folders that clean-up commands delete, by program."""
CLEANING_WORDS = frozenset(("clean", "ci", "prune", "purge", "distclean"))
GIT_COLLECTING_WORDS = frozenset(
    ("gc", "prune", "repack", "filter-branch", "filter-repo", "maintenance")
)
"""Git subcommands that delete objects."""


MAX_BASE_FOLDERS = 20
MAX_NAMED_PATHS = 2_000
"""The maximum number of folders and paths kept one by one for an unparsed text."""


class PossibleLoss(msgspec.Struct, frozen=True):
    """Paths outside the ordinary workspace files that a command may destroy."""

    paths: tuple[str, ...] = ()


def find_possible_loss(plan: CommandPlan, *, cwd: str) -> PossibleLoss | None:
    """Return the paths that a command may destroy, to snapshot first; None if it destroys none."""
    if not plan.unclear and all(_is_harmless_step(step) for step in plan.steps):
        return None
    touched = (access for step in plan.steps for access in step.accesses)
    found = [
        path for access in touched if access.kind == "write" for path in _written_paths(access)
    ]
    bases = tuple(islice(_base_folders(plan, cwd), MAX_BASE_FOLDERS))
    lines = [[word.text for word in step.argv] for step in plan.steps]
    if plan.unclear or not all(step.known for step in plan.steps):
        lines += rough.split_segments(plan.text)
    named = (path for words in lines for path in _destroyed_paths(words, bases))
    paths = (normpath(path) for path in (*found, *islice(named, MAX_NAMED_PATHS)))
    return PossibleLoss(tuple(dict.fromkeys(paths)))


def _is_harmless_step(step: CommandStep) -> bool:
    """Return whether a command can destroy nothing, so that no snapshot is needed before it."""
    if step.needs != "nothing":
        return False
    return step.name in HARMLESS_WRITES or all(access.kind == "read" for access in step.accesses)


def _written_paths(access: Access) -> Iterator[str]:
    """Yield a path that a command destroys and its link target; a glob counts as its folder."""
    for path in (access.target, access.spelt or access.target):
        yield fixed_folder_of(path) if access.scope == "many" else path


def _base_folders(plan: CommandPlan, cwd: str) -> Iterator[str]:
    """Yield the folders that a possibly destructive command may run in."""
    here = cwd
    yield here
    for words in rough.split_segments(plan.text):
        if words[0] in ("cd", "pushd") and len(words) > 1:
            here = join_folder(words[-1], here)
            yield here
        for option, folder in pairwise(words):
            if option in ("-C", "--directory", "--work-tree", "-d"):
                yield join_folder(folder, here)


def _destroyed_paths(words: list[str], bases: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths that a command may destroy, whichever of its words is the program.

    What follows the first program of a kind includes what follows the others.
    """
    seen = set[str]()
    for at, word in enumerate(words):
        name = word.rpartition("/")[2]
        kind = "any" if name in DESTRUCTIVE_BY_NAME else name
        if kind in seen or (
            name not in DESTRUCTIVE_BY_NAME and name not in CLEANED_FOLDERS and name != "git"
        ):
            continue
        seen.add(kind)
        rest = words[at + 1 :]
        if name == "git":
            yield from _git_destroyed_paths(rest, bases)
        elif name in CLEANED_FOLDERS and CLEANING_WORDS.intersection(rest):
            yield from (join_folder(CLEANED_FOLDERS[name], base) for base in bases)
        elif name in DESTRUCTIVE_BY_NAME:
            targets = [each.partition("=")[2] or each for each in rest if _looks_like_path(each)]
            yield from (
                join_folder(_path_before_pattern(t), base) for t in targets for base in bases
            )


def _looks_like_path(word: str) -> bool:
    return bool(word) and (not word.startswith("-") or "=/" in word) and "\n" not in word


def _path_before_pattern(target: str) -> str:
    """Return the part of a possibly destroyed path before any wildcard."""
    return dirname(fixed_folder_of(target)) + "/" if any(c in target for c in "*?[") else target


def _git_destroyed_paths(words: list[str], bases: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths that a git command may destroy, among them `.git` if it prunes objects."""
    if "clean" in words and any("x" in w.casefold() for w in words if w.startswith("-")):
        yield from bases
    if "worktree" in words or "rm" in words or "mv" in words:
        named = (word for word in words if not word.startswith("-"))
        yield from (join_folder(word, base) for word in named for base in bases)
    if GIT_COLLECTING_WORDS.intersection(words) or "expire" in words or "--prune" in words:
        yield from (join_folder(".git", base) for base in bases)
