"""The Travois home with everything on disk (TRAVOIS_HOME or XDG), and the project of a folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from stat import S_ISVTX

import msgspec
from msgspec.structs import replace

from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports
from travois.sessions import blobs
from travois.sessions.xdg_folders import XdgFolders, find_xdg_folder, move_to_xdg_folders

with lazy_imports():
    import atexit
    import ctypes
    import shutil
    import subprocess
    import tempfile

    from travois.permissions import resolve_paths


SESSION_TMP_NAME = "tmp"
"""The name under which a session's /tmp goes to the trash with its folder."""


class TravoisHome(msgspec.Struct, frozen=True):
    """The home folder and the places in it."""

    path: Path
    """The folder of the state: sessions, memories, snapshots, credentials, trust."""
    passing: str = ""
    """Why nothing that is kept here outlives the process; empty if it does."""
    xdg: XdgFolders | None = None
    """The folders for settings and caches; None if TRAVOIS_HOME names one for everything."""
    is_together: bool = False
    """Whether everything is in the folder of the state all the same: nothing can be moved there."""

    @property
    def config(self) -> Path:
        """The folder of what the user writes: settings, skills, agents, commands, themes."""
        return self.xdg.config if self.xdg and not self.is_together else self.path

    @property
    def cache(self) -> Path:
        """The folder of what can be deleted at any time."""
        return self.xdg.cache if self.xdg and not self.is_together else self.path

    @property
    def folders(self) -> tuple[str, ...]:
        """All folders of the home, which no command reads and no tool writes."""
        apart = (self.xdg.config, self.xdg.cache) if self.xdg else ()
        return tuple(map(str, (self.path, *apart)))

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which another process finds the same home."""
        return self.xdg.environment if self.xdg else {"TRAVOIS_HOME": str(self.path)}

    @property
    def sessions(self) -> Path:
        """The folder of sessions: one folder per project, and in it one per session."""
        return self.path / "sessions"

    @property
    def blobs(self) -> Path:
        """The folder of content-addressed bytes."""
        return self.path / "blobs"

    @property
    def summaries(self) -> Path:
        """The folder of shared summaries: one folder per project, and in it one per trust."""
        return self.path / "summaries"

    @property
    def projects(self) -> Path:
        """The records of known folders, by which a moved one is recognised."""
        return self.path / "projects"

    @property
    def trash(self) -> Path:
        """The folder of pruned sessions, until the trash is emptied."""
        return self.path / "trash"

    @property
    def mail(self) -> Path:
        """The folder of mail: one folder per team, and in it one per member."""
        return self.path / "mail"

    @property
    def settings(self) -> Path:
        """The user's settings file."""
        return self.config / "settings.json"

    def session_folder(self, project: str, id: str) -> Path:
        """Return the folder of one session."""
        return self.sessions / project / id

    def session_tmp(self, id: str) -> Path:
        """Return the /tmp of a session's commands; short, since socket paths are limited."""
        return self.path / "tmp" / id

    def prepare(self) -> TravoisHome:
        """Create the folders if they are missing, and check that the state is writable."""
        try:
            blobs.make_folders(self.path)
            self.sessions.mkdir(mode=0o700, exist_ok=True)
            for folder in (self.path, self.sessions):
                _make_private(folder)
            if self.xdg:
                _create_if_possible(self.xdg.config, self.xdg.cache)
        except OSError as error:
            raise blobs.make_storage_error(
                "Travois cannot store its files", error, path=self.path
            ) from error
        if not os.access(self.sessions, os.W_OK | os.X_OK):
            raise UserError(
                "Travois cannot store its files",
                why=f"{self.sessions} is not writable",
                fix="Make it writable, or set TRAVOIS_HOME to a folder that is.",
            )
        return self


def prepare_home_or_temporary(environ: Mapping[str, str]) -> tuple[TravoisHome, TravoisHome]:
    """Return the home to read from and one to write to, temporary if the real one is read-only.

    The temporary one is removed when the process ends.
    """
    try:
        home = locate_home(environ).prepare()
        return home, home
    except UserError as fault:
        why = fault.why or fault.what
    folder = Path(tempfile.mkdtemp(prefix="travois-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    told = (
        f"Nothing will be saved: {why}. Sessions, memories, snapshots and 'always' answers are lost"
    )
    kept = TravoisHome(folder, passing=f"{told} at the end; set TRAVOIS_HOME to a writable folder")
    try:
        home = locate_home(environ)
    except UserError:
        return kept, kept.prepare()
    return home, replace(kept, xdg=home.xdg, is_together=home.is_together).prepare()


def _create_if_possible(*folders: Path) -> None:
    """Create the folders for settings and caches, so that no command can.

    Where they cannot be created, commands cannot create them either, and reading needs none.
    """
    for folder in folders:
        with suppress(OSError):
            blobs.make_folders(folder)
            _make_private(folder)


def _make_private(folder: Path) -> None:
    """Remove other users' access to a folder of the Travois home.

    A folder that many share (such as /tmp) is left as it is.
    """
    found = folder.stat()
    if found.st_mode & 0o077 and found.st_uid == os.geteuid() and not found.st_mode & S_ISVTX:
        with suppress(OSError):
            folder.chmod(0o700)


def locate_home(environ: Mapping[str, str]) -> TravoisHome:
    """Return the Travois home that this environment asks for, without creating it.

    What earlier versions kept in the folder of the state moves to where it belongs; if it cannot,
    everything stays there.
    """
    if chosen := environ.get("TRAVOIS_HOME"):
        return TravoisHome(Path(chosen).expanduser().absolute())
    state = find_xdg_folder(environ, "XDG_STATE_HOME", ".local/state")
    if state is None:
        raise UserError(
            "Travois does not know where to store its files",
            why="HOME is not set",
            fix="Set TRAVOIS_HOME to a folder that you own.",
        )
    config = find_xdg_folder(environ, "XDG_CONFIG_HOME", ".config")
    cache = find_xdg_folder(environ, "XDG_CACHE_HOME", ".cache")
    if config is None or cache is None:
        return TravoisHome(state)
    folders = XdgFolders(config, state, cache)
    is_apart = move_to_xdg_folders(folders)
    return TravoisHome(state, xdg=folders, is_together=not is_apart)


# Which project a folder belongs to, so that its sessions are found after it was moved.


SAFE_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
GIT_TIMEOUT_SECONDS = 5.0


class Project(msgspec.Struct, frozen=True):
    """A project: the key of its sessions, its folder, and keys it may have had before."""

    key: str
    root: str
    also: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys under which its sessions may lie."""
        return (self.key, *self.also)


class FolderRecord(msgspec.Struct, frozen=True):
    """The record of a folder; `stamp` changes when another one takes its place."""

    path: str
    key: str
    stamp: str


def identify_project(home: TravoisHome, cwd: str) -> Project:
    """Identify a folder's project. Runs git only for a repository never seen before."""
    folder = os.path.realpath(cwd)
    root, common = find_repository(folder)
    if not common:
        removed = _load_record(home, _record_name(os.path.join(folder, ".git")))
        also = (removed.key,) if removed is not None else ()
        return Project(_key_by_path(home, folder), folder, also)
    key = _key_by_history(home, root, common=common)
    if not key:
        return Project(_key_by_path(home, root), root)
    earlier = _load_record(home, _record_name(root))
    also = (earlier.key,) if earlier is not None and earlier.key != key else ()
    return Project(key, root, also)


def find_repository(folder: str) -> tuple[str, str]:
    """Return a project's repository root and common git folder; empty if none."""
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isfile(os.path.join(git, "HEAD")):
            return folder, git
        if linked := _follow_git_file(git):
            return folder, linked
        parent = os.path.dirname(folder)
        if parent == folder:
            return "", ""
        folder = parent


def find_verified_repository(folder: str) -> tuple[str, str]:
    """Find the repository around a folder; its git folder counts only if it names the checkout.

    A `.git` file is part of the workspace: by itself it gives no rights over the folder that it
    names.
    """
    top, common = find_repository(folder)
    if not common or common == os.path.join(top, ".git"):
        return top, common
    return top, resolve_paths.shared_git_folder(top)


def _follow_git_file(file: str) -> str:
    """Return the shared git folder that a worktree's or submodule's `.git` file leads to."""
    where = _read_small_file(file).removeprefix("gitdir:").strip()
    if not where:
        return ""
    git = os.path.join(os.path.dirname(file), where)
    shared = os.path.join(git, _read_small_file(os.path.join(git, "commondir")).strip())
    return os.path.realpath(shared) if os.path.isfile(os.path.join(git, "HEAD")) else ""


def _key_by_history(home: TravoisHome, root: str, *, common: str) -> str:
    """Return a project's key by its repository's first commit; empty without history or git."""
    stamp = _git_stamp(common)
    known = _load_record(home, _record_name(common))
    if known is not None and known.stamp == stamp:
        return known.key
    key = "" if _is_unborn(common) else _first_commit(root)
    if key:
        _save_record(home, _record_name(common), FolderRecord(common, key, stamp))
    return key


def _is_unborn(common: str) -> bool:
    """Return whether a repository plainly has no commit yet, so that git need not be asked."""
    head = _read_small_file(os.path.join(common, "HEAD"))
    others = ("packed-refs", "reftable", "worktrees")
    return (
        head.startswith("ref: refs/")
        and not os.path.exists(os.path.join(common, head.removeprefix("ref: ").strip()))
        and not any(os.path.exists(os.path.join(common, name)) for name in others)
    )


def _first_commit(root: str) -> str:
    """Return a project's ID from git's first commit, or by path if slow; empty if none."""
    command = (*SAFE_GIT, "-C", root, "rev-list", "--max-parents=0", "--first-parent", "HEAD")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=kept | {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"},
            timeout=GIT_TIMEOUT_SECONDS,
            check=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return (
            f"dir-{_hash_text(root)}"  # remembered, so that a huge history is not walked each time
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"git-{done.stdout[:20].strip()}"


def _key_by_path(home: TravoisHome, folder: str) -> str:
    """Return the key of a project folder, which it keeps when it is moved."""
    known = _load_record(home, _record_name(folder))
    if known is not None:
        return known.key
    place, birth = _inode_and_birth(folder)
    moved = _load_record(home, f"at-{place}")
    same = moved is not None and moved.stamp == birth and not os.path.exists(moved.path)
    key = moved.key if moved is not None and same else f"dir-{_hash_text(f'{folder} {place}')}"
    if moved is not None and same:
        _delete_record(home, _record_name(moved.path))
    record = FolderRecord(folder, key, birth)
    _save_record(home, _record_name(folder), record)
    _save_record(home, f"at-{place}", record)
    return key


def _inode_and_birth(folder: str) -> tuple[str, str]:
    """Return a project folder's inode and birth time: inodes are reused."""
    stat = os.stat(folder)
    return f"{stat.st_dev}-{stat.st_ino}", _birth_time(folder)


def _birth_time(path: str) -> str:
    """Return a project folder's birth time in an opaque form."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "statx"):
        return str(getattr(os.stat(path), "st_birthtime", ""))
    here, btime, at = -100, 0x800, 80  # AT_FDCWD, STATX_BTIME, where struct statx has it
    found = ctypes.create_string_buffer(256)
    if libc.statx(here, os.fsencode(path), 0, btime, found):
        return ""
    return found.raw[at : at + 12].hex()


def _git_stamp(common: str) -> str:
    """Return a stamp that changes when another repository takes a project's place."""
    stat = os.stat(common)
    with suppress(OSError):
        born = os.stat(os.path.join(common, "description")).st_mtime_ns
        return f"{stat.st_ino}-{born}"
    return str(stat.st_ino)


def _hash_text(text: str) -> str:
    return blake2b(os.fsencode(text), digest_size=10).hexdigest()


def _record_name(path: str) -> str:
    return _hash_text(path)


def _load_record(home: TravoisHome, name: str) -> FolderRecord | None:
    """Load a project folder's record; None if it is missing or invalid."""
    try:
        return msgspec.json.decode((home.projects / name).read_bytes(), type=FolderRecord)
    except (OSError, ValueError):
        return None


def _save_record(home: TravoisHome, name: str, record: FolderRecord) -> None:
    """Save a project folder's record if possible: a read-only home is reported elsewhere."""
    with suppress(OSError, UnicodeEncodeError):
        blobs.make_folders(home.projects)
        blobs.replace_file(home.projects / name, msgspec.json.encode(record))


def _delete_record(home: TravoisHome, name: str) -> None:
    with suppress(OSError):
        (home.projects / name).unlink(missing_ok=True)


def _read_small_file(path: str) -> str:
    """Read the first 4096 characters of a git file; empty if it is unreadable."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(4096)
    except OSError:
        return ""
