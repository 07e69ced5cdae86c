"""Guards of protected paths that commands can write: saved before, checked and restored after.

The journal is a folder that no command can write. A file in `runs` names the paths that one running
command must not change, locked by the process that started it; `saved` has the saved states. The
first run that guards a path saves it, and that state counts until the last run has ended. A run
whose lock is free belongs to a process that was killed: the next process checks its paths.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import msgspec

from travois.files.openat import make_folders
from travois.permissions.sandbox_profile import SandboxProfile, UnapprovedChanges
from travois.process.reap import any_process_has_mark
from travois.sandbox.guard.check import (
    CheckResult,
    CheckRule,
    ProtectedFileChange,
    check_protected_path,
    join_first_names,
    make_printable,
)
from travois.sandbox.guard.instructions import (
    ProtectedProjectFiles,
    UnaskedRun,
    report_changes_since_kill,
)
from travois.sandbox.guard.repositories import (
    GUARDED_GIT_NAMES,
    RepositoryContext,
    RepositoryFinder,
    check_repository,
    find_dangerous_settings,
)
from travois.sandbox.guard.saved import (
    SavedPath,
    SetAsideFolder,
    read_names,
    read_saved_tree,
    save_path,
)
from travois.sandbox.hidden_files import real_path

JOURNAL_LOCK_SECONDS = 20.0
"""Seconds to wait for another process that works on the journal."""
SAVED_LIFETIME_SECONDS = 7 * 24 * 3600
"""Seconds for which a saved state is kept for the next command."""
GuardRule = Literal["exact", "config", "hooks", "repository", "lifted"]
"""The ways a path may change: not at all, as git changes its settings, hooks or repositories, or
freely."""
NEW_REPOSITORY_NOTICE = (
    "New since a command whose session was killed, and git would start programs there: {}. Unless "
    "you created this yourself, inspect it before you use git there."
)
OVERLAP_HINT = (
    " (another running command may not change it; end that command, then repeat this one)"
)


class GuardedPath(msgspec.Struct, frozen=True, array_like=True):
    """A guarded path, the writable folder that it lies in, and the rule for its changes."""

    path: str
    root: str
    rule: GuardRule


class GuardedRun(msgspec.Struct, frozen=True):
    """The guarded paths that one running command must not change."""

    mark: str
    watches: tuple[GuardedPath, ...]
    roots: tuple[str, ...] = ()
    """The folders below which no repository may get files that start programs."""
    instructions: tuple[tuple[str, bytes], ...] = ()
    """Digests of protected project files, if the command ran without approval."""


class CommandGuard:
    """The guard of one running command."""

    def __init__(self, journal: GuardJournal, name: str, run: GuardedRun, *, lock: int) -> None:
        self._journal, self._name, self._run, self._lock = journal, name, run, lock

    def refresh_repositories(self) -> None:
        """Find the repositories that exist now, which can take a while, for the next check."""
        if self._lock >= 0:
            self._journal.find_repositories(self._run.roots)

    def check(self) -> tuple[str, ...]:
        """Restore what must not have changed and return the notices. The guard stays open."""
        return self._journal.check_run(self._name, self._run) if self._lock >= 0 else ()

    def close(self) -> tuple[str, ...]:
        """Check for the last time, when the command and everything it started are gone."""
        if self._lock < 0:
            return ()
        lock, self._lock = self._lock, -1
        try:
            return self._journal.close_run(self._name, self._run)
        finally:
            os.close(lock)


class GuardJournal:
    """The guards of all processes of one user that share a state folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.notices: list[str] = []
        """Notices that belong to no open guard."""
        self._memory: dict[str, tuple[tuple[int, int], SavedPath]] = {}
        self._repositories: dict[str, RepositoryFinder] = {}
        self._instructions = ProtectedProjectFiles(folder, self.list_protected_files)

    def stop_watching(self) -> None:
        """Stop watching for changed folders."""
        for found in self._repositories.values():
            found.close()

    def find_repositories(self, roots: Iterable[str]) -> frozenset[str]:
        """Return the repositories below some folders; the first search takes a while."""
        found = frozenset[str]()
        for root in roots:
            if root not in self._repositories:
                self._repositories[root] = RepositoryFinder(root)
            found |= self._repositories[root].find()
        return found

    def list_protected_files(self, roots: tuple[str, ...]) -> list[str]:
        """Return the protected project files below some folders."""
        self.find_repositories(roots)
        return [path for root in roots for path in self._repositories[root].list_protected_files()]

    def open_guard(
        self,
        watches: tuple[GuardedPath, ...],
        *,
        mark: str,
        roots: tuple[str, ...] = (),
        unasked: UnapprovedChanges | None = None,
    ) -> CommandGuard:
        """Guard paths, and the repositories below some folders, from here on.

        `unasked` is given if protected files of the project are guarded as well. Raises OSError if
        something cannot be saved.
        """
        with self._lock_journal():
            self.notices += self._recover_killed_runs()
            others = [run for _, run in self._iterate_live_runs()]
            held = _collect_guarded_paths(others)
            if not others:
                self._instructions.forget_accepted()
            wanted = (*watches, *self._list_nested_repositories(watches, roots))
            guarded = tuple(watch for watch in wanted if self._save_if_unguarded(watch, held))
            self.notices += self._instructions.check_all_runs()
            noted = self._instructions.note_files(roots) if unasked is not None else ()
            run = GuardedRun(mark, guarded, roots, noted)
            name = os.urandom(8).hex()
            # The lock marks the run as alive; the kernel frees it even if we are killed.
            path = os.path.join(self.folder, "runs", name)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(lock, msgspec.msgpack.encode(run))
            if unasked is not None:
                began = os.fstat(lock).st_ctime_ns  # by the clock that files of git have
                self._instructions.begin_run(name, UnaskedRun(began, unasked, roots))
        return CommandGuard(self, name, run, lock=lock)

    def _list_nested_repositories(
        self, watches: tuple[GuardedPath, ...], roots: tuple[str, ...]
    ) -> Iterator[GuardedPath]:
        """Yield the repositories below some folders that are not watched otherwise."""
        if not roots:
            return
        named = {watch.path for watch in watches}
        tops = {f"{root}/.git" for root in roots}  # whose files are watched one by one
        for path in sorted(self.find_repositories(roots)):
            root = next(root for root in roots if path == root or path.startswith(f"{root}/"))
            if path not in named and path not in tops:
                yield GuardedPath(path, root, "repository")

    def _save_if_unguarded(self, watch: GuardedPath, held: frozenset[str]) -> bool:
        """Save a path that nobody guards yet; return False if it is unreadable."""
        if watch.rule == "lifted" or watch.path in held:
            return True
        earlier = self._load_saved(watch.path)
        try:
            names = GUARDED_GIT_NAMES if watch.rule == "repository" else ()
            saved = save_path(watch.path, watch.root, earlier, names=names)
        except PermissionError:
            return False
        if earlier is None or (earlier.tree, earlier.holders) != (saved.tree, saved.holders):
            self._write_saved(saved)
        return True

    def is_open(self) -> bool:
        """Return whether any command runs that could have changed protected files."""
        try:
            return bool(os.listdir(os.path.join(self.folder, "runs")))
        except FileNotFoundError:
            return False

    def check_run(self, name: str, run: GuardedRun) -> tuple[str, ...]:
        """Restore what the run must not have changed; return the notices."""
        with self._lock_journal():
            others = [run for other, run in self._iterate_live_runs() if other != name]
            told = self._check_paths(
                run, _collect_guarded_paths(others), when="while a command ran"
            )
            return (*told, *self._instructions.check_run(name))

    def close_run(self, name: str, run: GuardedRun) -> tuple[str, ...]:
        """Check, and end the run."""
        with self._lock_journal():
            others = [run for other, run in self._iterate_live_runs() if other != name]
            told = self._check_paths(
                run, _collect_guarded_paths(others), when="while a command ran"
            )
            told = (*told, *self._instructions.end_run(name, run.roots))
            os.unlink(os.path.join(self.folder, "runs", name))
            return told

    def recover(self) -> None:
        """Check the files that killed processes had guarded; the results are in `notices`."""
        if self.is_open():
            with self._lock_journal():
                self.notices += self._recover_killed_runs()
        if os.path.isdir(os.path.join(self.folder, "saved")):
            self._remove_old_saves()

    def _remove_old_saves(self) -> None:
        """Remove old saved states: between runs they only save reading."""
        with self._lock_journal():
            place, now = os.path.join(self.folder, "saved"), time.time()
            for name in () if self.is_open() else os.listdir(place):
                if now - os.stat(os.path.join(place, name)).st_mtime > SAVED_LIFETIME_SECONDS:
                    os.unlink(os.path.join(place, name))

    def _recover_killed_runs(self) -> Iterator[str]:
        """Check and end the runs of killed processes; yield the notices."""
        living = dict(self._iterate_live_runs())
        for name in set(self._list_run_names()) - living.keys():
            when, whole = "during a command whose session was killed", self._read_run(name)
            # Nothing tells who created a repository since then: it may have been the user.
            run = msgspec.structs.replace(whole, roots=())
            yield from self._check_paths(run, _collect_guarded_paths(living.values()), when=when)
            yield from self._report_new_repositories(whole)
            if whole.instructions:
                yield from report_changes_since_kill(
                    whole.instructions, self.list_protected_files(whole.roots)
                )
            os.unlink(os.path.join(self.folder, "runs", name))

    def _report_new_repositories(self, run: GuardedRun) -> Iterator[str]:
        """Report repositories that start programs and did not exist when a run began.

        They stay as they are: the user may have made them since.
        """
        found = self.find_repositories(run.roots)
        known = found | {top for root in run.roots for top in (root, f"{root}/.git")}
        around = RepositoryContext(run.roots, known)
        new = (watch.path for watch in self._list_nested_repositories(run.watches, run.roots))
        each = ((path, find_dangerous_settings(path, repository=around)) for path in new)
        told = [f"{make_printable(path)}: {', '.join(names)}" for path, names in each if names]
        if told:
            yield NEW_REPOSITORY_NOTICE.format(join_first_names(told))

    def accept_change(self, path: str, data: bytes | None = None) -> None:
        """Accept a change made by the harness itself as the state to keep."""
        if not self.is_open():
            return
        with self._lock_journal():
            self._instructions.accept_change(path, data)
            for guarded in _collect_guarded_paths(run for _, run in self._iterate_live_runs()):
                if path == guarded or path.startswith(guarded + "/"):
                    self._accept_into_saved(guarded, path, data)

    def _accept_into_saved(self, guarded: str, path: str, data: bytes | None) -> None:
        """Take a path's present state, and new folders above it, into what was saved."""
        saved = self._load_saved(guarded)
        if saved is None:
            return
        nested = os.path.basename(guarded) == ".git" or is_git_folder(guarded)
        now = (
            read_names(guarded, GUARDED_GIT_NAMES, saved)
            if nested
            else read_saved_tree(guarded, saved)
        )
        name = os.fsencode(os.path.relpath(path, guarded))
        name = b"" if name == b"." else name
        tree = {k: v for k, v in saved.tree if not _is_name_at_or_below(k, name)}
        fresh = {k: v for k, v in now.items() if _is_name_at_or_below(k, name)}
        for each in fresh:  # the folders on the way may be new as well
            way = each.split(b"/")
            above = (b"/".join(way[:depth]) for depth in range(len(way)))
            tree |= {one: now[one] for one in above if one in now and one not in tree}
        if data is not None and name in fresh:
            fresh[name] = msgspec.structs.replace(fresh[name], data=data)
        self._write_saved(msgspec.structs.replace(saved, tree=tuple((tree | fresh).items())))

    def _check_paths(self, run: GuardedRun, held: frozenset[str], *, when: str) -> tuple[str, ...]:
        """Check all paths of a run, outer ones first, and the repositories that it created."""
        aside = SetAsideFolder(os.path.join(self.folder, "replaced"))
        changes = list[ProtectedFileChange]()
        found = self.find_repositories(run.roots)
        known = found | {top for root in run.roots for top in (root, f"{root}/.git")}
        lifted = tuple(watch.path for watch in run.watches if watch.rule == "lifted")
        around = RepositoryContext(run.roots, known, lifted)
        for watch in sorted(run.watches, key=lambda watch: len(watch.path)):
            # Of two commands that run at once and can write a path, neither can be proven to have
            # changed it. So a permission counts only while no other command lacks it.
            if watch.rule == "lifted" and watch.path not in held:
                continue
            saved = self._load_saved(watch.path)
            if saved is None:
                continue
            changes += self._check_path(watch, saved, aside, repository=around)
        for watch in self._list_nested_repositories(run.watches, run.roots):
            nothing = SavedPath(watch.path, watch.root, 0, ())
            changes += self._check_path(watch, nothing, aside, repository=around)
        return tuple(_describe_changes(changes, aside, when=when))

    def _check_path(
        self,
        watch: GuardedPath,
        saved: SavedPath,
        folder: SetAsideFolder,
        *,
        repository: RepositoryContext,
    ) -> Iterator[ProtectedFileChange]:
        """Undo the forbidden changes of one path, and save its state to keep."""
        try:
            found = _check_by_rule(watch, saved, folder, repository=repository)
        except OSError as error:
            yield ProtectedFileChange(
                f"{make_printable(watch.path)} ({error.strerror})", restored=False
            )
            return
        why = OVERLAP_HINT if watch.rule == "lifted" else ""
        yield from (msgspec.structs.replace(c, words=c.words + why) for c in found.changes)
        if found.saved.tree != saved.tree:
            self._write_saved(found.saved)

    def _iterate_live_runs(self) -> Iterator[tuple[str, GuardedRun]]:
        """Yield the runs of living processes, and those whose programs outlived their session."""
        for name in self._list_run_names():
            run = self._read_run(name)
            if self._is_run_locked(name) or (run.mark and any_process_has_mark(run.mark)):
                yield name, run

    def _list_run_names(self) -> list[str]:
        return os.listdir(os.path.join(self.folder, "runs"))

    def _is_run_locked(self, name: str) -> bool:
        fd = os.open(os.path.join(self.folder, "runs", name), os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def _read_run(self, name: str) -> GuardedRun:
        with open(os.path.join(self.folder, "runs", name), "rb") as file:
            data = file.read()
        try:
            return msgspec.msgpack.decode(data, type=GuardedRun)
        except msgspec.DecodeError:
            return GuardedRun("", ())  # killed before it was written, so nothing was started

    def _write_saved(self, saved: SavedPath) -> None:
        path = self._locate_saved_file(saved.path)
        draft = f"{path}.{os.getpid()}"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.msgpack.encode(saved))
        os.replace(draft, path)

    def _load_saved(self, path: str) -> SavedPath | None:
        """Return the saved state of a path; between runs that only saves reading."""
        place = self._locate_saved_file(path)
        try:
            found = os.stat(place)
        except FileNotFoundError:
            return None
        stamp = (found.st_ino, found.st_mtime_ns)
        if path in self._memory and self._memory[path][0] == stamp:
            return self._memory[path][1]
        with open(place, "rb") as file:
            saved = msgspec.msgpack.decode(file.read(), type=SavedPath)
        self._memory[path] = (stamp, saved)
        return saved

    def _locate_saved_file(self, path: str) -> str:
        return os.path.join(self.folder, "saved", _hash_file_name(path))

    @contextmanager
    def _lock_journal(self) -> Generator[None]:
        """Lock out all other processes. Raises OSError if one does not release the journal."""
        for name in ("runs", "saved"):
            make_folders(Path(self.folder, name))
        fd = os.open(
            os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            _acquire_lock(fd)
            yield
        finally:
            os.close(fd)


def find_guarded_paths(profile: SandboxProfile, *, held: bool) -> tuple[GuardedPath, ...]:
    """Return the paths to guard for a sandbox profile; `held` says that mounts protect its pins."""
    if profile.profile == "look":
        return ()
    roots = sorted(
        dict.fromkeys(map(real_path, (*profile.folders, *profile.writable))), key=len, reverse=True
    )
    found = dict[str, GuardedPath]()
    for path in profile.lifted:
        found |= {watch.path: watch for watch in _iterate_guarded_paths(path, roots, "lifted")}
    for path in profile.git_written:
        found |= {
            watch.path: watch
            for watch in _iterate_guarded_paths(path, roots, choose_git_rule(path))
        }
    for path in profile.pinned:
        if not held or not os.path.lexists(path):
            found |= {
                watch.path: watch
                for watch in _iterate_guarded_paths(path, roots, _choose_pinned_rule(path))
            }
    return tuple(found.values())


def _choose_pinned_rule(path: str) -> GuardRule:
    """Choose the rule by which a pinned path is guarded.

    A repository that does not exist yet may be created: only what starts programs is undone in it.
    """
    above, name, below = path.partition("/.git/")
    new = bool(name) and below and not os.path.lexists(f"{above}/.git")
    return choose_git_rule(path) if new else "exact"


def _iterate_guarded_paths(path: str, roots: list[str], rule: GuardRule) -> Iterator[GuardedPath]:
    """Yield a path to guard, or what blocks it: a file, or a link with its target."""
    root = next((root for root in roots if path.startswith(root.rstrip("/") + "/")), "")
    real = real_path(path)
    if root:
        way = path.removeprefix(root + "/").split("/")
        parts = ["/".join((root, *way[:depth])) for depth in range(1, len(way) + 1)]
        blocked = next((part for part in parts if _blocks_path(part, last=part == path)), "")
        yield GuardedPath(blocked or path, root, "exact" if blocked else rule)
        if not blocked or not os.path.islink(blocked):
            return
    if real != path:
        yield from _iterate_guarded_paths(real, roots, rule)


def _blocks_path(part: str, *, last: bool) -> bool:
    return os.path.islink(part) or (not last and os.path.lexists(part) and not os.path.isdir(part))


def _check_by_rule(
    watch: GuardedPath, saved: SavedPath, folder: SetAsideFolder, *, repository: RepositoryContext
) -> CheckResult:
    """Check a guarded path by its rule after a command, as a repository or as a protected path."""
    if watch.rule == "repository":
        return check_repository(saved, folder, repository=repository)
    return check_protected_path(
        saved, choose_git_rule(watch.path) if watch.rule == "lifted" else watch.rule, folder
    )


def find_repository_roots(profile: SandboxProfile) -> tuple[str, ...]:
    """Return the folders to guard in which a command could create or change repositories."""
    folders = [real_path(folder) for folder in profile.folders]
    folders += [path for path in map(real_path, profile.writable) if is_git_folder(path)]
    outer = (one for one in folders if not any(one.startswith(f"{other}/") for other in folders))
    return tuple(dict.fromkeys(outer))


def is_git_folder(path: str) -> bool:
    """Return whether a folder to guard is a repository's git folder."""
    return all(os.path.lexists(f"{path}/{name}") for name in ("HEAD", "objects", "refs"))


def choose_git_rule(path: str) -> CheckRule:
    """Choose the rule for guarding a path that git itself may write."""
    name = os.path.basename(path)
    if name in ("config", "config.worktree", ".gitmodules"):
        return "config"
    return "hooks" if name == "hooks" else "exact"


def _collect_guarded_paths(runs: Iterable[GuardedRun]) -> frozenset[str]:
    return frozenset(w.path for run in runs for w in run.watches if w.rule != "lifted")


@lru_cache(maxsize=1_024)
def _hash_file_name(path: str) -> str:
    return blake2b(os.fsencode(path), digest_size=16).hexdigest()


def _is_name_at_or_below(name: bytes, other: bytes) -> bool:
    return not other or name == other or name.startswith(other + b"/")


def _acquire_lock(fd: int) -> None:
    """Acquire the guard journal's lock, waiting for other processes. Raises OSError."""
    end = time.monotonic() + JOURNAL_LOCK_SECONDS
    while True:  # polled, since a blocking flock has no timeout
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise OSError(
                    errno.EAGAIN, "another process holds the lock on the journal of protected files"
                ) from None
            time.sleep(0.005)
        else:
            return


def _describe_changes(
    changes: list[ProtectedFileChange], folder: SetAsideFolder, *, when: str
) -> Iterator[str]:
    """Yield notices about guarded files that changed, for the user and the model."""
    restored = [change.words for change in changes if change.restored]
    failed = [change.words for change in changes if not change.restored]
    if restored:
        kept = f" The changed copies are in {folder.path}." if folder.path else ""
        names = join_first_names(restored)
        yield f"Protected files changed {when} and were restored: {names}.{kept}"
    if failed:
        names = join_first_names(failed)
        yield f"Protected files changed {when} and could NOT be restored: {names}."
