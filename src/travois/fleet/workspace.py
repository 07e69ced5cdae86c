"""A fleet task's workspace: its clone, its home, and a git folder that the agent cannot reach.

The result is committed and pushed through that second git folder, with the objects of the clone:
whatever the agent wrote into the clone's `.git` (hooks, filters, addresses) is never run.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import site
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from travois.core.errors import UserError
from travois.fleet.task import REMOTE_REPO_PATTERN, FleetTask
from travois.fleet.task_command import MAX_OUTPUT_CHARS, TaskCommands
from travois.permissions.secrets import mask_text
from travois.sessions import blobs

SAFE_GIT_FLAGS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
GIT_SECONDS = 1_800.0
NETWORK_SIGNS = (
    *("could not resolve host", "connection", "timed out", "early eof", "hung up"),
    *("temporary failure", "unable to access", "the requested url returned error: 5"),
)
"""What git says of a network or a server that may be back later."""
GIT_CONFIG_TEXT = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"


class WorkspaceProblem(UserError):
    """A failed clone, setup command or push, and the reason."""

    def __init__(self, what: str, *, why: str, retryable: bool = False) -> None:
        super().__init__(what, why=why)
        self.retryable = retryable


class Prepared(msgspec.Struct, frozen=True):
    """The record of a finished clone."""

    base: str


class Workspace(msgspec.Struct, frozen=True):
    """The folder of one task on this machine."""

    folder: Path
    mirrors: Path
    commands: TaskCommands
    hidden: frozenset[str] = frozenset()
    """Variables of the worker that nothing in the clone gets: provider keys of other tasks."""

    @property
    def clone(self) -> Path:
        """The agent's working folder."""
        return self.folder / "work"

    @property
    def home(self) -> Path:
        """The agent's HOME."""
        return self.folder / "home"

    @property
    def _git(self) -> Path:
        return self.folder / "git"

    def prepare_clone(self, task: FleetTask, *, base: str, age: float) -> str:
        """Clone and set up unless that is done; return the commit that the work starts from."""
        done = self.folder / "prepared.json"
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(done.read_bytes(), type=Prepared).base
        try:
            blobs.make_folders(self.home)
            shutil.rmtree(self.clone, ignore_errors=True)
            found = self._clone_repository(task, base=base, age=age)
            self._run_setup_command(task)
            self._create_own_git()
            blobs.replace_file(done, msgspec.json.encode(Prepared(found)))
        except OSError as error:
            raise WorkspaceProblem("The task's folder cannot be written", why=str(error)) from error
        return found

    def discard(self) -> None:
        """Remove everything, so that the task starts from scratch."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def commit_result(self, task: FleetTask, *, base: str, at: float) -> str:
        """Commit what the agent left; return the last commit, or nothing if nothing changed."""
        head, before = run_git("rev-parse", "HEAD^{commit}", "HEAD^{tree}", cwd=self.clone).split()
        shutil.copyfile(self.clone / ".git" / "index", self._git / "index")
        self._run_own("add", "-A", where=self.clone)
        tree = self._run_own("write-tree").strip()
        if tree != before:
            said = ("-m", _commit_subject(task), "-m", f"Travois-Task: {task.id}")
            head = self._run_own("commit-tree", tree, "-p", head, *said, at=at).strip()
        return "" if head == base else head

    def diff_result(self, base: str, head: str) -> bytes:
        """Return the patch of a result."""
        return self._run_own_bytes("diff", "--binary", "--no-ext-diff", base, head)

    def bundle_result(self, base: str, head: str) -> bytes:
        """Return the commits of a result, for a worker elsewhere to push."""
        self._run_own("update-ref", "refs/heads/result", head)
        return self._run_own_bytes("bundle", "create", "-q", "-", f"^{base}", "refs/heads/result")

    def has_commit(self, head: str) -> bool:
        """Return whether this machine has the result."""
        if (self._git / "objects" / head[:2] / head[2:]).exists():
            return True
        try:
            self._run_own("cat-file", "-e", f"{head}^{{commit}}")
        except (WorkspaceProblem, OSError):
            return False
        return True

    def unpack_bundle(self, task: FleetTask, *, base: str, bundle: bytes) -> None:
        """Bring in the result that a worker elsewhere made."""
        shutil.rmtree(self.clone, ignore_errors=True)
        blobs.make_folders(self.folder)
        self._clone_repository(task, base=base, age=0.0)
        self._create_own_git()
        file = self.folder / "result.bundle"
        file.write_bytes(bundle)
        self._run_own("fetch", "-q", str(file), "refs/heads/result")

    def push_result(self, task: FleetTask, head: str, *, before: str) -> None:
        """Push the result as compare-and-set: `before` is what the branch has to be, or nothing."""
        ref = f"refs/heads/{task.branch}"
        lease = f"--force-with-lease={ref}:{before}"
        try:
            self._run_own("push", "-q", lease, "--", task.repo, f"{head}:{ref}")
        except WorkspaceProblem as problem:
            if problem.retryable:
                raise
            there = self._run_own("ls-remote", "--", task.repo, ref).split()[:1]
            if there == [head]:
                return  # pushed already, by a worker that could not say so
            if not there or there == [before]:
                raise
            raise WorkspaceProblem(
                f"{task.branch} was not pushed", why=f"it exists already, at {there[0][:12]}"
            ) from None

    def _clone_repository(self, task: FleetTask, *, base: str, age: float) -> str:
        with self._open_source(task.repo, age=age) as source:
            named = ("-b", task.ref) if task.ref and not base else ()
            where = (*(("--no-checkout",) if base else named), "--", source, str(self.clone))
            try:
                run_git("clone", "-q", *where)
            except WorkspaceProblem as problem:
                if not named or problem.retryable or "emote branch" not in problem.why:
                    raise
                return self._check_out(task.ref, source)
            if base:
                return self._check_out(base, source)
        if source != task.repo:
            run_git("remote", "set-url", "origin", task.repo, cwd=self.clone)
        return _read_fresh_head(self.clone)

    def _check_out(self, commit: str, source: str) -> str:
        """Check out a commit that no branch is named after."""
        if not (self.clone / ".git").exists():
            run_git("clone", "-q", "--no-checkout", "--", source, str(self.clone))
        run_git("checkout", "-q", "--detach", commit, cwd=self.clone)
        return run_git("rev-parse", "HEAD", cwd=self.clone).strip()

    @contextmanager
    def _open_source(self, repo: str, *, age: float) -> Generator[str]:
        """Give the address to clone from: of a remote repository, a mirror that tasks share.

        The mirror is fetched again only if it is older than the task.
        """
        if not REMOTE_REPO_PATTERN.match(repo):
            yield repo
            return
        blobs.make_folders(self.mirrors)
        mirror = self.mirrors / blake2b(repo.encode(), digest_size=10).hexdigest()
        with open(f"{mirror}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            began = time.time()
            stamp = mirror / "travois-fetched"
            if not stamp.exists():
                shutil.rmtree(mirror, ignore_errors=True)
                run_git("clone", "-q", "--mirror", "--", repo, str(mirror))
            elif began - stamp.stat().st_mtime >= age:
                run_git("fetch", "-q", "--prune", "origin", cwd=mirror)
            stamp.touch()
            os.utime(stamp, (began, began))
        yield str(mirror)

    def _run_setup_command(self, task: FleetTask) -> None:
        """Run the setup command; what it leaves behind is no part of the result."""
        exclude = ""
        if task.setup:
            code, said = self.run_command(task.setup)
            if code:
                raise WorkspaceProblem(f"The setup command failed with exit code {code}", why=said)
            left = run_git(
                "ls-files", "-z", "--others", "--exclude-standard", "--directory", cwd=self.clone
            )
            exclude = "".join(f"/{_escape_pattern(name)}\n" for name in left.split("\0") if name)
        blobs.make_folders(self._git / "info")
        (self._git / "info" / "exclude").write_text(exclude)

    def _create_own_git(self) -> None:
        for name in ("objects", "refs", "info"):
            blobs.make_folders(self._git / name)
        (self._git / "config").write_text(GIT_CONFIG_TEXT)
        (self._git / "HEAD").write_text("ref: refs/heads/result\n")

    def run_command(self, line: str) -> tuple[int, str]:
        """Run a setup or check command in the clone; return its exit code and what it said."""
        return self.commands.run(line, cwd=self.clone, env=self.environment({}))

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of what runs in the clone: with a home of its own."""
        # Packages of `pip install --user` are found by HOME otherwise.
        own = {"HOME": str(self.home), "PYTHONUSERBASE": site.getuserbase()}
        kept = {name: value for name, value in os.environ.items() if name not in self.hidden}
        return {**kept, **own, "TRAVOIS_HOME": str(self.home / "travois"), **more}

    def _run_own(self, *words: str, at: float = 0.0, where: Path | None = None) -> str:
        return self._run_own_bytes(*words, at=at, where=where).decode(errors="replace")

    def _run_own_bytes(self, *words: str, at: float = 0.0, where: Path | None = None) -> bytes:
        objects = str(self.clone / ".git" / "objects")
        own = {"GIT_DIR": str(self._git), "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects}
        if where is not None:
            own["GIT_WORK_TREE"] = str(where)
        if at:
            for who in ("AUTHOR", "COMMITTER"):
                own |= {f"GIT_{who}_NAME": "Travois", f"GIT_{who}_EMAIL": "travois@localhost"}
                own[f"GIT_{who}_DATE"] = f"{int(at)} +0000"
        return _run_git_bytes(words, cwd=where or self.folder, env=own)


def run_git(*words: str, cwd: Path | None = None) -> str:
    """Run git in a task's workspace without hooks; return its output. Raises `WorkspaceProblem`."""
    return _run_git_bytes(words, cwd=cwd, env={}).decode(errors="replace")


def _read_fresh_head(clone: Path) -> str:
    """Return the commit of a new clone: of its files, where they have it in the usual form."""
    with suppress(OSError, UnicodeDecodeError):
        ref = (clone / ".git" / "HEAD").read_text("ascii").removeprefix("ref: ").strip()
        head = (clone / ".git" / ref).read_text("ascii").strip()
        if COMMIT_PATTERN.fullmatch(head):
            return head
    return run_git("rev-parse", "HEAD", cwd=clone).strip()


def _run_git_bytes(words: tuple[str, ...], *, cwd: Path | None, env: Mapping[str, str]) -> bytes:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # Refs that the agent may have written must not replace commits by others.
    never_ask = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", "GIT_NO_REPLACE_OBJECTS": "1"}
    try:
        done = subprocess.run(
            ("git", *SAFE_GIT_FLAGS, *words),
            cwd=cwd,
            env={**kept, **never_ask, **env},
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            start_new_session=True,  # Ctrl-C is for the worker, which gives the task back
        )
    except FileNotFoundError as error:
        raise WorkspaceProblem("git could not be started", why=str(error)) from None
    except subprocess.TimeoutExpired:
        raise WorkspaceProblem(f"git {words[0]} timed out", why="", retryable=True) from None
    if done.returncode == 0:
        return done.stdout
    said = mask_text(done.stderr.decode(errors="replace").strip())[-MAX_OUTPUT_CHARS:]
    gone = any(sign in said.lower() for sign in NETWORK_SIGNS)
    why = said or f"exit code {done.returncode}"
    raise WorkspaceProblem(f"git {words[0]} failed", why=why, retryable=gone or done.returncode < 0)


def _commit_subject(task: FleetTask) -> str:
    first = task.prompt.strip().splitlines()[0]
    return f"travois: {first if len(first) <= 60 else first[:59] + '…'}"


def _escape_pattern(name: str) -> str:
    """Return a gitignore pattern that matches only this name in a task's workspace."""
    return "".join(f"\\{char}" if char in "\\*?[ !#" else char for char in name)
