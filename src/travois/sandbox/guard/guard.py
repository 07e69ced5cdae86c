"""Guards of protected paths that commands can write: saved before, checked and restored after.

The journal is a folder that no command can write. A file in `runs` names the paths that one running
command must leave alone, locked by the process that started it; `saved` has the saved states. The
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
from travois.process.reap import marked
from travois.sandbox.guard.check import Change, Check, Checked, check, list_few, plain
from travois.sandbox.guard.instructions import Instructions, Running, tell_killed
from travois.sandbox.guard.repositories import (
    NAMES,
    Repositories,
    Surroundings,
    check_repository,
    find_dangerous,
)
from travois.sandbox.guard.saved import Aside, Saved, read, read_names, save
from travois.sandbox.hidden_files import real_path

PATIENCE = 20.0
"""Seconds to wait for another process that works on the journal."""
FORGOTTEN = 7 * 24 * 3600
"""Seconds for which a saved state is kept for the next command."""
Rule = Literal["exact", "config", "hooks", "repository", "lifted"]
"""The ways a path may change: not at all, as git changes its settings, hooks or repositories, or
freely."""
NEW = (
    "New since a command whose session was killed, and git would start programs there: {}. Unless "
    "you created this yourself, inspect it before you use git there."
)
OVERLAP = " (another running command may not change it; end that command, then repeat this one)"


class Watch(msgspec.Struct, frozen=True, array_like=True):
    """A guarded path, the writable folder that it lies in, and the rule for its changes."""

    path: str
    root: str
    rule: Rule


class Run(msgspec.Struct, frozen=True):
    """The paths that one running command must leave alone."""

    mark: str
    watches: tuple[Watch, ...]
    roots: tuple[str, ...] = ()
    """The folders below which no repository may get files that start programs."""
    instructions: tuple[tuple[str, bytes], ...] = ()
    """Digests of protected project files, if the command ran without approval."""


class Guard:
    """The guard of one running command."""

    def __init__(self, journal: Journal, name: str, run: Run, *, lock: int) -> None:
        self._journal, self._name, self._run, self._lock = journal, name, run, lock

    def refresh(self) -> None:
        """Find the repositories that exist now, which can take a while, for the next check."""
        if self._lock >= 0:
            self._journal.find_repositories(self._run.roots)

    def check(self) -> tuple[str, ...]:
        """Restore what must not have changed and return the notices. The guard stays open."""
        return self._journal.check(self._name, self._run) if self._lock >= 0 else ()

    def close(self) -> tuple[str, ...]:
        """Check for the last time, when the command and everything it started are gone."""
        if self._lock < 0:
            return ()
        lock, self._lock = self._lock, -1
        try:
            return self._journal.close(self._name, self._run)
        finally:
            os.close(lock)


class Journal:
    """The guards of all processes of one user that share a state folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.notices: list[str] = []
        """Notices that belong to no open guard."""
        self._memory: dict[str, tuple[tuple[int, int], Saved]] = {}
        self._repositories: dict[str, Repositories] = {}
        self._instructions = Instructions(folder, self.list_protected)

    def stop_watching(self) -> None:
        """Stop watching for changed folders."""
        for found in self._repositories.values():
            found.close()

    def find_repositories(self, roots: Iterable[str]) -> frozenset[str]:
        """Return the repositories below some folders; the first search takes a while."""
        found = frozenset[str]()
        for root in roots:
            if root not in self._repositories:
                self._repositories[root] = Repositories(root)
            found |= self._repositories[root].find()
        return found

    def list_protected(self, roots: tuple[str, ...]) -> list[str]:
        """Return the protected project files below some folders."""
        self.find_repositories(roots)
        return [path for root in roots for path in self._repositories[root].list_protected()]

    def open(
        self,
        watches: tuple[Watch, ...],
        *,
        mark: str,
        roots: tuple[str, ...] = (),
        unasked: UnapprovedChanges | None = None,
    ) -> Guard:
        """Guard paths, and the repositories below some folders, from here on.

        `unasked` is given if protected files of the project are guarded as well. Raises OSError if
        something cannot be saved.
        """
        with self._alone():
            self.notices += self._recovered()
            others = [run for _, run in self._running()]
            held = _guarded(others)
            if not others:
                self._instructions.forget_accepted()
            wanted = (*watches, *self._nested(watches, roots))
            guarded = tuple(watch for watch in wanted if self._guards(watch, held))
            self.notices += self._instructions.check_all()
            noted = self._instructions.note(roots) if unasked is not None else ()
            run = Run(mark, guarded, roots, noted)
            name = os.urandom(8).hex()
            # The lock marks the run as alive; the kernel frees it even if we are killed.
            path = os.path.join(self.folder, "runs", name)
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(lock, msgspec.msgpack.encode(run))
            if unasked is not None:
                began = os.fstat(lock).st_ctime_ns  # by the clock that files of git have
                self._instructions.begin(name, Running(began, unasked, roots))
        return Guard(self, name, run, lock=lock)

    def _nested(self, watches: tuple[Watch, ...], roots: tuple[str, ...]) -> Iterator[Watch]:
        """Yield the repositories below some folders that are not watched otherwise."""
        if not roots:
            return
        named = {watch.path for watch in watches}
        tops = {f"{root}/.git" for root in roots}  # whose files are watched one by one
        for path in sorted(self.find_repositories(roots)):
            root = next(root for root in roots if path == root or path.startswith(f"{root}/"))
            if path not in named and path not in tops:
                yield Watch(path, root, "repository")

    def _guards(self, watch: Watch, held: frozenset[str]) -> bool:
        """Save a path that nobody guards yet; return False if we may not read it."""
        if watch.rule == "lifted" or watch.path in held:
            return True
        earlier = self._load(watch.path)
        try:
            names = NAMES if watch.rule == "repository" else ()
            saved = save(watch.path, watch.root, earlier, names=names)
        except PermissionError:
            return False
        if earlier is None or (earlier.tree, earlier.holders) != (saved.tree, saved.holders):
            self._write(saved)
        return True

    def is_open(self) -> bool:
        """Return whether any command runs that could have changed protected files."""
        try:
            return bool(os.listdir(os.path.join(self.folder, "runs")))
        except FileNotFoundError:
            return False

    def check(self, name: str, run: Run) -> tuple[str, ...]:
        """Restore what the run must not have changed; return the notices."""
        with self._alone():
            others = [run for other, run in self._running() if other != name]
            told = self._checked(run, _guarded(others), when="while a command ran")
            return (*told, *self._instructions.check(name))

    def close(self, name: str, run: Run) -> tuple[str, ...]:
        """Check, and end the run."""
        with self._alone():
            others = [run for other, run in self._running() if other != name]
            told = self._checked(run, _guarded(others), when="while a command ran")
            told = (*told, *self._instructions.end(name, run.roots))
            os.unlink(os.path.join(self.folder, "runs", name))
            return told

    def recover(self) -> None:
        """Check the files that killed processes had guarded; the results are in `notices`."""
        if self.is_open():
            with self._alone():
                self.notices += self._recovered()
        if os.path.isdir(os.path.join(self.folder, "saved")):
            self._sweep()

    def _sweep(self) -> None:
        """Remove old saved states: between runs they only save reading."""
        with self._alone():
            place, now = os.path.join(self.folder, "saved"), time.time()
            for name in () if self.is_open() else os.listdir(place):
                if now - os.stat(os.path.join(place, name)).st_mtime > FORGOTTEN:
                    os.unlink(os.path.join(place, name))

    def _recovered(self) -> Iterator[str]:
        """Check and end the runs of killed processes; yield the notices."""
        living = dict(self._running())
        for name in set(self._names()) - living.keys():
            when, whole = "during a command whose session was killed", self._read(name)
            # Nothing tells who created a repository since then: it may have been the user.
            run = msgspec.structs.replace(whole, roots=())
            yield from self._checked(run, _guarded(living.values()), when=when)
            yield from self._tell_new(whole)
            if whole.instructions:
                yield from tell_killed(whole.instructions, self.list_protected(whole.roots))
            os.unlink(os.path.join(self.folder, "runs", name))

    def _tell_new(self, run: Run) -> Iterator[str]:
        """Report repositories that start programs and did not exist when a run began.

        They stay as they are: the user may have made them since.
        """
        found = self.find_repositories(run.roots)
        known = found | {top for root in run.roots for top in (root, f"{root}/.git")}
        around = Surroundings(run.roots, known)
        new = (watch.path for watch in self._nested(run.watches, run.roots))
        each = ((path, find_dangerous(path, around=around)) for path in new)
        told = [f"{plain(path)}: {', '.join(names)}" for path, names in each if names]
        if told:
            yield NEW.format(list_few(told))

    def accept(self, path: str, data: bytes | None = None) -> None:
        """Accept a change that we made ourselves as the state to keep."""
        if not self.is_open():
            return
        with self._alone():
            self._instructions.accept(path, data)
            for guarded in _guarded(run for _, run in self._running()):
                if path == guarded or path.startswith(guarded + "/"):
                    self._accept(guarded, path, data)

    def _accept(self, guarded: str, path: str, data: bytes | None) -> None:
        """Take a path's present state, and new folders above it, into what was saved."""
        saved = self._load(guarded)
        if saved is None:
            return
        nested = os.path.basename(guarded) == ".git" or is_git_folder(guarded)
        now = read_names(guarded, NAMES, saved) if nested else read(guarded, saved)
        name = os.fsencode(os.path.relpath(path, guarded))
        name = b"" if name == b"." else name
        tree = {k: v for k, v in saved.tree if not _touches(k, name)}
        fresh = {k: v for k, v in now.items() if _touches(k, name)}
        for each in fresh:  # the folders on the way may be new as well
            way = each.split(b"/")
            above = (b"/".join(way[:depth]) for depth in range(len(way)))
            tree |= {one: now[one] for one in above if one in now and one not in tree}
        if data is not None and name in fresh:
            fresh[name] = msgspec.structs.replace(fresh[name], data=data)
        self._write(msgspec.structs.replace(saved, tree=tuple((tree | fresh).items())))

    def _checked(self, run: Run, held: frozenset[str], *, when: str) -> tuple[str, ...]:
        """Check all paths of a run, outer ones first, and the repositories that it created."""
        aside = Aside(os.path.join(self.folder, "replaced"))
        changes = list[Change]()
        found = self.find_repositories(run.roots)
        known = found | {top for root in run.roots for top in (root, f"{root}/.git")}
        lifted = tuple(watch.path for watch in run.watches if watch.rule == "lifted")
        around = Surroundings(run.roots, known, lifted)
        for watch in sorted(run.watches, key=lambda watch: len(watch.path)):
            # Of two commands that run at once and can write a path, neither can be proven to have
            # changed it. So a permission counts only while no other command lacks it.
            if watch.rule == "lifted" and watch.path not in held:
                continue
            saved = self._load(watch.path)
            if saved is None:
                continue
            changes += self._check(watch, saved, aside, around=around)
        for watch in self._nested(run.watches, run.roots):
            nothing = Saved(watch.path, watch.root, 0, ())
            changes += self._check(watch, nothing, aside, around=around)
        return tuple(_told(changes, aside, when=when))

    def _check(
        self, watch: Watch, saved: Saved, aside: Aside, *, around: Surroundings
    ) -> Iterator[Change]:
        """Undo the forbidden changes of one path, and save its state to keep."""
        try:
            found = _found_changed(watch, saved, aside, around=around)
        except OSError as error:
            yield Change(f"{plain(watch.path)} ({error.strerror})", restored=False)
            return
        why = OVERLAP if watch.rule == "lifted" else ""
        yield from (msgspec.structs.replace(c, words=c.words + why) for c in found.changes)
        if found.saved.tree != saved.tree:
            self._write(found.saved)

    def _running(self) -> Iterator[tuple[str, Run]]:
        """Yield the runs of living processes, and those whose programs outlived their session."""
        for name in self._names():
            run = self._read(name)
            if self._is_locked(name) or (run.mark and marked(run.mark)):
                yield name, run

    def _names(self) -> list[str]:
        return os.listdir(os.path.join(self.folder, "runs"))

    def _is_locked(self, name: str) -> bool:
        fd = os.open(os.path.join(self.folder, "runs", name), os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def _read(self, name: str) -> Run:
        with open(os.path.join(self.folder, "runs", name), "rb") as file:
            data = file.read()
        try:
            return msgspec.msgpack.decode(data, type=Run)
        except msgspec.DecodeError:
            return Run("", ())  # killed before it was written, so nothing was started

    def _write(self, saved: Saved) -> None:
        path = self._place(saved.path)
        draft = f"{path}.{os.getpid()}"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.msgpack.encode(saved))
        os.replace(draft, path)

    def _load(self, path: str) -> Saved | None:
        """Return the saved state of a path; between runs that only saves reading."""
        place = self._place(path)
        try:
            found = os.stat(place)
        except FileNotFoundError:
            return None
        stamp = (found.st_ino, found.st_mtime_ns)
        if path in self._memory and self._memory[path][0] == stamp:
            return self._memory[path][1]
        with open(place, "rb") as file:
            saved = msgspec.msgpack.decode(file.read(), type=Saved)
        self._memory[path] = (stamp, saved)
        return saved

    def _place(self, path: str) -> str:
        return os.path.join(self.folder, "saved", _file_name(path))

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Lock out all other processes. Raises OSError if one does not release the journal."""
        for name in ("runs", "saved"):
            make_folders(Path(self.folder, name))
        fd = os.open(
            os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            _lock(fd)
            yield
        finally:
            os.close(fd)


def watches(cage: SandboxProfile, *, held: bool) -> tuple[Watch, ...]:
    """Return the paths to guard for a profile; `held` says that mounts hold the pins."""
    if cage.profile == "look":
        return ()
    roots = sorted(
        dict.fromkeys(map(real_path, (*cage.folders, *cage.writable))), key=len, reverse=True
    )
    found = dict[str, Watch]()
    for path in cage.lifted:
        found |= {watch.path: watch for watch in _found(path, roots, "lifted")}
    for path in cage.git_written:
        found |= {watch.path: watch for watch in _found(path, roots, rule_of(path))}
    for path in cage.pinned:
        if not held or not os.path.lexists(path):
            found |= {watch.path: watch for watch in _found(path, roots, _rule_of_pinned(path))}
    return tuple(found.values())


def _rule_of_pinned(path: str) -> Rule:
    """Return the rule of a pinned path.

    A repository that does not exist yet may be created: only what starts programs is undone in it.
    """
    above, name, below = path.partition("/.git/")
    new = bool(name) and below and not os.path.lexists(f"{above}/.git")
    return rule_of(path) if new else "exact"


def _found(path: str, roots: list[str], rule: Rule) -> Iterator[Watch]:
    """Yield the path itself, or what blocks it: a file, or a link with its target."""
    root = next((root for root in roots if path.startswith(root.rstrip("/") + "/")), "")
    real = real_path(path)
    if root:
        way = path.removeprefix(root + "/").split("/")
        parts = ["/".join((root, *way[:depth])) for depth in range(1, len(way) + 1)]
        blocked = next((part for part in parts if _blocks(part, last=part == path)), "")
        yield Watch(blocked or path, root, "exact" if blocked else rule)
        if not blocked or not os.path.islink(blocked):
            return
    if real != path:
        yield from _found(real, roots, rule)


def _blocks(part: str, *, last: bool) -> bool:
    return os.path.islink(part) or (not last and os.path.lexists(part) and not os.path.isdir(part))


def _found_changed(watch: Watch, saved: Saved, aside: Aside, *, around: Surroundings) -> Checked:
    if watch.rule == "repository":
        return check_repository(saved, aside, around=around)
    return check(saved, rule_of(watch.path) if watch.rule == "lifted" else watch.rule, aside)


def repository_roots(cage: SandboxProfile) -> tuple[str, ...]:
    """Return the folders in which a command could create or change repositories."""
    folders = [real_path(folder) for folder in cage.folders]
    folders += [path for path in map(real_path, cage.writable) if is_git_folder(path)]
    outer = (one for one in folders if not any(one.startswith(f"{other}/") for other in folders))
    return tuple(dict.fromkeys(outer))


def is_git_folder(path: str) -> bool:
    """Return whether a folder contains the history of a repository."""
    return all(os.path.lexists(f"{path}/{name}") for name in ("HEAD", "objects", "refs"))


def rule_of(path: str) -> Check:
    """Return the rule by which git may change a path of its own."""
    name = os.path.basename(path)
    if name in ("config", "config.worktree", ".gitmodules"):
        return "config"
    return "hooks" if name == "hooks" else "exact"


def _guarded(runs: Iterable[Run]) -> frozenset[str]:
    return frozenset(w.path for run in runs for w in run.watches if w.rule != "lifted")


@lru_cache(maxsize=1_024)
def _file_name(path: str) -> str:
    return blake2b(os.fsencode(path), digest_size=16).hexdigest()


def _touches(name: bytes, other: bytes) -> bool:
    return not other or name == other or name.startswith(other + b"/")


def _lock(fd: int) -> None:
    """Take the journal's lock, waiting a while for another process. Raises OSError."""
    end = time.monotonic() + PATIENCE
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


def _told(changes: list[Change], aside: Aside, *, when: str) -> Iterator[str]:
    """Yield the notices for the user and the model about changes."""
    restored = [change.words for change in changes if change.restored]
    failed = [change.words for change in changes if not change.restored]
    if restored:
        kept = f" The changed copies are in {aside.path}." if aside.path else ""
        yield f"Protected files changed {when} and were restored: {list_few(restored)}.{kept}"
    if failed:
        yield f"Protected files changed {when} and could NOT be restored: {list_few(failed)}."
