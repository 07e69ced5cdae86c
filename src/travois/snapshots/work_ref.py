"""Uncommitted files as a git ref, so that they travel with a session: refs/travois/wip/SESSION.

Each push of the session commits the work tree (without ignored files) on top of HEAD to that ref,
beside the user's index and branches. On another machine, the ref comes as a bundle, and the files
are put into a clone that has no changes of its own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

BUNDLE_FILE = "work.bundle"
REF_PREFIX = "refs/travois/wip/"
KEPT_PREFIX = "refs/travois/kept/"
BRANCH_MARK = "Branch: "
MAX_BUNDLE_BYTES = 64_000_000
GIT_SECONDS = 120.0
SAFE_CONFIG = (
    *("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.attributesFile=/dev/null"),
    *("commit.gpgSign=false", "user.name=Travois", "user.email=travois@localhost"),
    *("core.autocrlf=false", "core.safecrlf=false", "gc.auto=0"),
)
FILTER_KEYS = r"^filter\..*\.(clean|smudge|process|required)$"


class GitProblem(Exception):
    """A git command that failed."""


class WorkRef:
    """The work in progress of one session in a repository."""

    def __init__(self, root: Path, session: str, index: Path) -> None:
        """`index` is a file of our own, which makes the next look at the same files quick."""
        self._root = root
        self._index = index
        self._session = session
        self._ref = f"{REF_PREFIX}{session}"
        self._tree = ""
        self._safe: tuple[str, ...] = ()
        """Options that keep git from running programs of the repository's configuration."""

    def collect_bundle(self) -> Iterable[tuple[str, bytes]]:
        """Save the work tree to the ref; return the bundle if anything changed since."""
        try:
            return tuple(self._iterate_bundles())
        except (GitProblem, OSError):  # such as a repository without a commit: nothing to build on
            return ()

    def restore_work(self, bundle: bytes) -> str:
        """Bring the saved files into a clean work tree; return what to tell the user."""
        try:
            self._safe = tuple(self._list_safe_options())
            self._fetch_bundle(bundle)
            if self._run_safe_git("status", "--porcelain"):
                return f"{self._keep_unrestored()}: this folder has changes of its own"
            return (
                self._check_out()
                or f"{self._keep_unrestored()}: this clone stands at another commit"
            )
        except (GitProblem, OSError) as problem:
            return f"the session's uncommitted files could not be restored: {problem}"

    def _keep_unrestored(self) -> str:
        """Keep what cannot be checked out under a ref that the next snapshot leaves alone."""
        kept = f"{KEPT_PREFIX}{self._session}"
        self._run_safe_git("update-ref", kept, self._ref)
        return f"the session's uncommitted files are in {kept}"

    def _iterate_bundles(self) -> Iterator[tuple[str, bytes]]:
        self._safe = tuple(self._list_safe_options())
        head = self._run_safe_git("rev-parse", "--verify", "HEAD")
        self._run_safe_git("add", "--all", index=True)
        tree = self._run_safe_git("write-tree", index=True)
        if self._tree == f"{head} {tree}":
            return
        branch = self._run_safe_git("rev-parse", "--abbrev-ref", "HEAD")
        told = f"Work in progress of session {self._session}\n\n{BRANCH_MARK}{branch}"
        commit = self._run_safe_git("commit-tree", tree, "-p", head, "-m", told)
        self._run_safe_git("update-ref", self._ref, commit)
        with TemporaryDirectory(prefix="travois-") as scratch:
            file = Path(scratch, BUNDLE_FILE)
            self._run_safe_git("bundle", "create", "-q", str(file), self._ref, "--not", "--remotes")
            if file.stat().st_size <= MAX_BUNDLE_BYTES:
                yield BUNDLE_FILE, file.read_bytes()
        self._tree = f"{head} {tree}"

    def _fetch_bundle(self, bundle: bytes) -> None:
        with TemporaryDirectory(prefix="travois-") as scratch:
            file = Path(scratch, BUNDLE_FILE)
            file.write_bytes(bundle)
            self._run_safe_git("fetch", "-q", str(file), f"+{self._ref}:{self._ref}")

    def _check_out(self) -> str:
        """Move to the commit that the work was on, and put its files there; empty if impossible."""
        base, head = (
            self._run_safe_git("rev-parse", f"{self._ref}^"),
            self._run_safe_git("rev-parse", "HEAD"),
        )
        if base != head and not self._move_to(base):
            return ""
        changed = self._run_safe_git("diff", "--name-only", base, self._ref).splitlines()
        if changed:
            self._run_safe_git("read-tree", "-m", "-u", "HEAD", self._ref)
            self._run_safe_git("reset", "-q", "--mixed")
        return f"{len(changed)} uncommitted files came with the session"

    def _move_to(self, base: str) -> bool:
        """Go to a later commit of this branch, or to the session's own branch."""
        message = self._run_safe_git("log", "-1", "--format=%B", self._ref)
        branch = message.rpartition(BRANCH_MARK)[2].strip()
        if branch == self._run_safe_git("rev-parse", "--abbrev-ref", "HEAD"):
            if self._run_safe_git("merge-base", "HEAD", base) != self._run_safe_git(
                "rev-parse", "HEAD"
            ):
                return False
            self._run_safe_git("merge", "-q", "--ff-only", base)
            return True
        if branch != "HEAD" and self._run_safe_git("branch", "--list", branch):
            return False
        self._run_safe_git(
            "checkout", "-q", *(("-b", branch) if branch != "HEAD" else ("--detach",)), base
        )
        return True

    def _run_safe_git(self, *words: str, index: bool = False) -> str:
        """Run git without programs that the repository's configuration names."""
        assert self._safe
        return _run_plain_git(self._root, *self._safe, *words, index=self._index if index else None)

    def _list_safe_options(self) -> Iterator[str]:
        """Yield options that turn off what runs programs, also the repository's own filters."""
        try:
            found = _run_plain_git(self._root, "config", "--name-only", "--get-regexp", FILTER_KEYS)
        except GitProblem:  # there are none
            found = ""
        off = (f"{key}={'false' * key.endswith('.required')}" for key in found.splitlines())
        for value in (*SAFE_CONFIG, *off):
            yield from ("-c", value)


def _run_plain_git(root: Path, *words: str, index: Path | None = None) -> str:
    """Run git in a repository, without settings of the user or the system; return its output."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
    env |= {"GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    env |= {"GIT_INDEX_FILE": str(index)} if index is not None else {}
    try:
        done = subprocess.run(
            ("git", "-C", str(root), *words),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=GIT_SECONDS,
            env=env,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GitProblem(f"git {words[0]} took too long") from None
    if done.returncode:
        raise GitProblem(done.stderr.decode(errors="replace").strip().partition("\n")[0])
    return done.stdout.decode(errors="surrogateescape").strip()
