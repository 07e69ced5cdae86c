"""What the user said about a folder: whether they trust it, and what they always allow there.

Trust is bound to what was shown. Each thing that a folder asks for is agreed to by its digest, so
whatever it asks for later is asked about, and what was agreed to stays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.permissions.updates import SANDBOX_MODE, Update
from travois.sessions import blobs
from travois.sessions.home import Home
from travois.settings.schema import Status

Kept = Literal["allow", "ask", "deny", "folders"]
RUNNING = ("hook ", "hooks: ", "mcp server ", "statusLine.command")
"""How lines begin that ask for a command to be run."""
MOST = 1000
"""How many digests are kept for a folder; the oldest are dropped."""


class Said(msgspec.Struct, frozen=True):
    """What the user said about one folder."""

    path: str
    trusted: bool = False
    agreed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Digests of what it asks for."""
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    """Rules that their answers made there."""
    folders: tuple[str, ...] = ()
    """More folders that may be worked in from there."""
    reached: dict[str, dict[str, str]] = {}
    """By the digest of what it asks for: the files that this reached then, with their digests."""
    sandboxed: bool = False
    """Whether commands run in the sandbox there without a question."""

    def kept(self, under: Kept) -> tuple[str, ...]:
        """What their answers come to, of one kind."""
        match under:
            case "allow":
                return self.allow
            case "ask":
                return self.ask
            case "deny":
                return self.deny
            case "folders":
                return self.folders


def root(folder: str) -> str:
    """The folder that trust in this one is about: its repository, if it is in one.

    A worktree is part of its main checkout if that one knows of it: what a folder says about
    itself may be forged, so it is believed only where the other end says the same.
    """
    here = top = os.path.realpath(folder)
    while not os.path.lexists(os.path.join(top, ".git")):
        parent = os.path.dirname(top)
        if parent == top:
            return here
        top = parent
    return _checkout(top) or top


def status(home: Home, root: str, wanted: Iterable[str]) -> Status:
    """Whether the user trusts all that a folder asks for."""
    said, asked = _read(home, root), set(map(digest, wanted))
    if said.trusted and asked <= set(said.agreed):
        return "trusted"
    if asked and asked <= {*said.agreed, *said.refused}:
        return "refused"
    return "changed" if said.trusted else "unknown"


def agreed(home: Home, root: str) -> frozenset[str]:
    """Digests of all that was agreed to in a folder that is trusted."""
    said = _read(home, root)
    return frozenset(said.agreed) if said.trusted else frozenset()


def trust(home: Home, root: str, wanted: Iterable[str], *, places: tuple[str, ...] = ()) -> None:
    """Trust a folder with what it asks for, and with the files that this reaches at the moment.

    `places` are the folders that its commands run in.
    """
    lines = tuple(wanted)
    asked, reached = tuple(map(digest, lines)), _reached(lines, places)
    with _changing(home, root) as (said, save):
        left = tuple(each for each in said.refused if each not in asked)
        agreed = _joined(said.agreed, asked)
        kept = {key: files for key, files in said.reached.items() if key in agreed}
        save(replace(said, trusted=True, agreed=agreed, refused=left, reached={**kept, **reached}))


def changes(
    home: Home, root: str, wanted: Iterable[str], *, places: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Return what trusted commands reach that changed since, by the line that was agreed to."""
    said = _read(home, root)
    lines = [line for line in wanted if digest(line) in said.reached] if said.trusted else []
    if not lines:
        return {}
    from travois.settings import reach  # few folders have such hooks, and all would wait for it

    found = {
        line: reach.compare(said.reached[digest(line)], reach.reached(line, places))
        for line in lines
    }
    return {line: files for line, files in found.items() if files}


def _reached(lines: tuple[str, ...], places: tuple[str, ...]) -> dict[str, dict[str, str]]:
    running = [line for line in lines if line.startswith(RUNNING)] if places else []
    if not running:
        return {}
    from travois.settings import reach

    return {digest(line): reach.reached(line, places) for line in running}


def refuse(home: Home, root: str, wanted: Iterable[str]) -> None:
    """Remember that the user does not want this, so that they are not asked again."""
    asked = tuple(map(digest, wanted))
    with _changing(home, root) as (said, save):
        fresh = tuple(each for each in asked if each not in said.agreed)
        save(replace(said, refused=_joined(said.refused, fresh)))


def revoke(home: Home, root: str) -> bool:
    """Forget all trust in a folder; whether there was any."""
    with _changing(home, root) as (said, save):
        save(replace(said, trusted=False, agreed=(), refused=(), reached={}))
        return said.trusted


def known(home: Home) -> tuple[Said, ...]:
    """Everything that was said, by folder."""
    folder = home.path / "trust"
    files = folder.glob("*.json") if folder.is_dir() else ()
    said = (_decoded(file.read_bytes()) for file in files)
    return tuple(sorted((each for each in said if each.path), key=lambda each: each.path))


def remember(home: Home, root: str, item: str, *, under: Kept = "allow") -> None:
    """Let a rule hold in a folder from here on, or a folder belong to it."""
    with _changing(home, root) as (said, save):
        save(replace(said, **{under: _joined(said.kept(under), (item,))}))


def keep(home: Home, root: str, update: Update) -> None:
    """Keep what an answer changed, for the sessions to come."""
    if update.type == "setMode" and update.mode == SANDBOX_MODE:
        set_sandboxed(home, root, allowed=True)
    change = forget if update.type.startswith("remove") else remember
    for spec in update.rules:
        change(home, root, spec.text, under=update.behavior)
    for folder in update.directories:
        change(home, root, folder, under="folders")


def forget(home: Home, root: str, item: str, *, under: Kept = "allow") -> bool:
    """Let this no longer be so; whether it was."""
    with _changing(home, root) as (said, save):
        left = tuple(each for each in said.kept(under) if each != item)
        save(replace(said, **{under: left}))
        return item in said.kept(under)


def remembered(home: Home, root: str, *, under: Kept = "allow") -> tuple[str, ...]:
    """What was so answered for a folder."""
    return _read(home, root).kept(under)


def set_sandboxed(home: Home, root: str, *, allowed: bool) -> bool:
    """Let commands run in the sandbox without a question, or no longer; return what held before."""
    with _changing(home, root) as (said, save):
        save(replace(said, sandboxed=allowed))
        return said.sandboxed


def is_sandboxed(home: Home, root: str) -> bool:
    """Return whether commands run in the sandbox without a question in a folder."""
    return _read(home, root).sandboxed


def digest(text: str) -> str:
    """A text as it is remembered."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


def _checkout(top: str) -> str:
    """The main checkout of a worktree; empty if this is none, or none that is known there."""
    git = os.path.join(top, ".git")
    where = _text(git).removeprefix("gitdir:").strip()
    if not where:
        return ""
    own = os.path.realpath(os.path.join(top, where))
    trees = os.path.dirname(own)
    back = os.path.join(own, _text(os.path.join(own, "gitdir")).strip())
    known_there = os.path.basename(trees) == "worktrees" and os.path.realpath(back) == git
    return _holder(os.path.dirname(trees)) if known_there else ""


def _holder(common: str) -> str:
    return os.path.dirname(common) if os.path.basename(common) == ".git" else common


def _text(path: str) -> str:
    if not os.path.isfile(path) or os.path.islink(path):
        return ""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(4096)
    except OSError:
        return ""


def _joined(old: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *more)))[-MOST:]


def _read(home: Home, root: str) -> Said:
    path = root.encode("utf-8", "backslashreplace").decode()
    try:
        found = _decoded((home.path / "trust" / f"{digest(root)}.json").read_bytes())
    except OSError:
        return Said(path)
    return found if found.path == path else Said(path)


def _decoded(data: bytes) -> Said:
    """What was written; a file that cannot be understood says nothing, so nothing is trusted."""
    try:
        return msgspec.json.decode(data, type=Said)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Said("")


@contextmanager
def _changing(home: Home, root: str) -> Generator[tuple[Said, Callable[[Said], None]]]:
    """What was said about a folder, and how to replace it, while nobody else may."""
    import fcntl

    folder = home.path / "trust"
    path = folder / f"{digest(root)}.json"
    try:
        blobs.make_folders(folder)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield _read(home, root), lambda said: blobs.replace(path, msgspec.json.encode(said))
        finally:
            os.close(lock)
    except OSError as error:
        raise blobs.fault("Your answer cannot be kept", error, path=folder) from error
