"""Path resolution for permissions: links, globs, git repositories and the private /tmp."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from glob import iglob
from itertools import islice
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
from travois.permissions.access import Access
from travois.permissions.decide import Permissions
from travois.permissions.paths import is_inside
from travois.permissions.rules import ToolUse, rule_matches
from travois.permissions.sandbox_profile import TMP_FOLDERS
from travois.permissions.shell.judge import plan_command
from travois.permissions.shell.plan import CommandPlan
from travois.ports.tool import CallLocation, ToolError
from travois.ports.world import Files, FileStat

with lazy_imports():
    from travois.permissions import git_config


MAX_PATH_FILE_BYTES = 4096
"""The number of bytes read from a file that holds one path."""
MAX_CONFIG_BYTES = 1 << 16
MIN_FOLDER_DEPTH = 2
"""The minimum depth of a folder that can be offered as a whole."""


def shared_git_folder(checkout: str) -> str:
    """Return a checkout's shared git folder; empty unless that folder names the checkout, too."""
    git = os.path.join(checkout, ".git")
    if os.path.islink(git):
        return ""  # anybody can make one that leads to the git folder of somebody else
    if os.path.isdir(git):
        return git if os.path.isfile(os.path.join(git, "HEAD")) else ""
    own = _follow_git_file(git)
    if not own or not os.path.isfile(os.path.join(own, "HEAD")):
        return ""
    return _worktree_git_folder(own, checkout) or _submodule_git_folder(own, checkout)


def find_sibling_checkout(path: str, root: str, *, home: str) -> str:
    """Return another checkout of the repository that contains a path; empty if there is none.

    Never one that holds the home: it would show all of that.
    """
    other, own = _find_checkout_around(path), _find_checkout_around(root)
    if not other or not own or other == own or is_inside(home, other):
        return ""
    shared = shared_git_folder(own)
    same = bool(shared) and os.path.realpath(shared) == os.path.realpath(shared_git_folder(other))
    return other if same else ""


def folder_to_offer(path: str, *, home: str) -> str:
    """Return the folder that a permission question offers for reading: a checkout or the parent.

    Empty if that is too much: a folder at the top of the disk, or one that contains the home.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    top = _find_checkout_around(folder)
    folder = top if top and not is_inside(home, top) else folder
    return "" if is_inside(home, folder) or folder.count("/") < MIN_FOLDER_DEPTH else folder


def _find_checkout_around(path: str) -> str:
    """Return the git checkout that contains a path; empty if none does."""
    while path not in ("/", ""):
        if os.path.lexists(os.path.join(path, ".git")):
            return path
        path = os.path.dirname(path)
    return ""


def _worktree_git_folder(own: str, checkout: str) -> str:
    """Return the shared git folder of a worktree if it lists this checkout; else empty."""
    told = _read_path_file(os.path.join(own, "commondir"))
    common = os.path.realpath(os.path.join(own, told))
    registered = bool(told) and os.path.dirname(own) == os.path.join(common, "worktrees")
    return common if registered and _checkout_named_by(own) == os.path.realpath(checkout) else ""


def _submodule_git_folder(own: str, checkout: str) -> str:
    """Return the git folder of a submodule if its settings name the checkout; else empty."""
    if os.path.lexists(os.path.join(own, "commondir")):
        return ""
    files = (os.path.join(own, name) for name in ("config", "config.worktree"))
    settings = (
        one
        for file in files
        for one in git_config.parse_git_config(_read_start(file, MAX_CONFIG_BYTES))
    )
    places = [one.value for one in settings if one.key == "core.worktree" and one.value]
    named = os.path.realpath(os.path.join(own, places[-1])) if places else ""
    return own if named == os.path.realpath(checkout) else ""


def _checkout_named_by(own: str) -> str:
    """Return the checkout that a git worktree's own git folder names; empty if none."""
    told = _read_path_file(os.path.join(own, "gitdir"))
    file = os.path.join(own, told)
    return os.path.realpath(os.path.dirname(file)) if os.path.basename(file) == ".git" else ""


def _follow_git_file(file: str) -> str:
    """Return the git folder that a `.git` file names, with links resolved; empty if none."""
    kind, _, told = _read_path_file(file).partition(":")
    if kind != "gitdir" or not told.strip() or os.path.islink(file):
        return ""
    return os.path.realpath(os.path.join(os.path.dirname(file), told.strip()))


def _read_path_file(path: str) -> str:
    return os.fsdecode(_read_start(path, MAX_PATH_FILE_BYTES)).strip()


def _read_start(path: str, most: int) -> bytes:
    """Read the start of a `.git` file without blocking on a pipe; empty if it is unreadable."""
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            return file.read(most)
    except (OSError, ValueError):
        return b""


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a path without blocking: a pipe in its place would never end."""
    return os.open(path, flags | os.O_NONBLOCK)


PROGRAM_STARTING_KEYS = (
    *("fsmonitor", "external", "textconv", "command", "pager", "program", "helper"),
    *("[alias", "[include", "[filter", "[diff "),
)
"""Words in a repository's settings with which git starts programs of its choice."""
HOOKS_PATH_SETTING = compile_lazily(r"hookspath\s*=\s*(\S+)")
MAX_GLOB_MATCHES = 500
"""The maximum number of files a pattern may match; beyond that only its folder counts."""
MAX_TMP_HOPS = 8
"""The maximum number of links followed from one /tmp to the other."""
PathUser = Literal["tool", "command"]
"""The opener of a path: a file tool, which also sees the machine's /tmp, or a command."""


class LocatedPath(msgspec.Struct, frozen=True):
    """A resolved path and the /tmp that it is in."""

    path: str
    tmp: Literal["", "private", "machine"] = ""


def home_folder() -> str:
    """Return the home folder, for permission rules that start with `~`."""
    return os.path.realpath(os.path.expanduser("~"))


def resolve_accesses(
    accesses: tuple[Access, ...], here: CallLocation | None = None
) -> tuple[Access, ...]:
    """Return a tool call's accesses with links resolved, so that permissions judge real paths."""
    return tuple(found for access in accesses for found in _follow_access(access, here, by="tool"))


def plan_command_lines(accesses: tuple[Access, ...], here: CallLocation) -> tuple[CommandPlan, ...]:
    """Return a plan for each command line of a tool call, with links in its paths resolved."""
    lines = [access.target for access in accesses if access.kind == "exec"]
    if not lines:
        return ()
    around = find_repository_around(here.cwd)
    foreign = around != find_repository_around(here.root) or _repository_runs_programs(around)
    plans = (
        plan_command(line, cwd=here.cwd, home=home_folder(), foreign=foreign) for line in lines
    )
    return tuple(
        one.resolve_paths(lambda access: _follow_access(access, here, by="command"))
        for one in plans
    )


def find_repository_around(folder: str) -> str:
    """Return the git repository whose settings git would obey in this folder; `/` if none."""
    path = real_path(folder)
    while path != "/":
        if any(os.path.lexists(f"{path}/{name}") for name in (".git", "HEAD")):
            return path
        path = os.path.dirname(path)
    return path


def _repository_runs_programs(repository: str) -> bool:
    """Return whether a repository's settings make even read-only git calls run programs."""
    git = _find_git_folder(repository)
    config = "".join(
        _read_config_text(f"{git}/{name}") for name in ("config", "config.worktree")
    ).lower()
    hooks = [
        f"{git}/hooks",
        *(os.path.join(repository, at) for at in HOOKS_PATH_SETTING.findall(config)),
    ]
    hooked = any(os.path.lexists(f"{folder}/post-index-change") for folder in hooks)
    return hooked or any(word in config for word in PROGRAM_STARTING_KEYS)


def _find_git_folder(repository: str) -> str:
    """Return the folder with a checkout's git settings; for a worktree, its repository's."""
    git = f"{repository}/.git"
    if not os.path.isfile(git):
        return git if os.path.isdir(git) else repository
    own = os.path.join(repository, _read_config_text(git).removeprefix("gitdir:").strip())
    return os.path.join(own, _read_config_text(f"{own}/commondir").strip())


def _read_config_text(path: str) -> str:
    """Read up to 1 MiB of a git configuration file; empty if it is unreadable."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def parse_plain_arguments(text: str) -> tuple[tuple[str, str], ...]:
    """Return a tool call's arguments without lists and objects, for `Tool(name:value)` rules."""
    try:
        found = msgspec.json.decode(text or "{}", type=dict[str, msgspec.Raw], strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ()
    plain = ((name, bytes(raw).decode()) for name, raw in found.items())
    return tuple((name, value.strip('"')) for name, value in plain if value[:1] not in "[{")


def _follow_access(
    access: Access, here: CallLocation | None, *, by: PathUser
) -> tuple[Access, ...]:
    """Return an access with links resolved, globs expanded and hard links counted."""
    if access.kind not in ("read", "write"):
        return (access,)
    if access.scope == "many":
        return tuple(_expand_access_glob(access, here, by=by))
    found = locate_path(access.target, here, by=by)
    writes = access.kind == "write"
    names, bare = (
        (_count_hard_links(found.path), _is_in_repository_folder(found.path))
        if writes
        else (1, False)
    )
    told = replace(access, spelt=access.target, names=names, tmp=found.tmp, bare=bare)
    return (replace(told, target=found.path),)


def _is_in_repository_folder(path: str) -> bool:
    """Return whether git takes a file's folder for a repository, or would after the write."""
    folder, name = os.path.split(path)
    while folder not in ("/", "") and os.path.basename(folder) != ".git":
        if _becomes_repository(folder, name):
            return True
        folder, name = os.path.split(folder)
    return False


def _becomes_repository(folder: str, written: str) -> bool:
    """Return whether an entry of this name makes git take the folder for a repository."""

    def has_name(name: str) -> bool:
        return name == written or os.path.lexists(f"{folder}/{name}")

    return has_name("HEAD") and (
        (has_name("objects") and has_name("refs")) or has_name("commondir")
    )


def locate_path(path: str, here: CallLocation | None, *, by: PathUser) -> LocatedPath:
    """Resolve links, and tell the session's private /tmp from the machine's.

    A file tool opens the machine's own file where the session has none of that name; a command in
    the sandbox cannot.
    """
    if here is None or not here.temp:
        return LocatedPath(real_path(path))
    for _ in range(MAX_TMP_HOPS):
        if not (place := _private_tmp_path(path, here)):
            path, before = real_path(path), path
            if path == before or not _private_tmp_path(path, here):
                return LocatedPath(path)
            continue
        if by == "tool" and os.path.lexists(path) and not _exists_in_private_tmp(place, path, here):
            return LocatedPath(real_path(path), "machine")
        path = real_path(place)
        if is_inside(path, here.temp):
            return LocatedPath(path, "private")
    raise ToolError(f"{path!r} is not a valid path: its links form a loop")


def _private_tmp_path(path: str, here: CallLocation) -> str:
    """Return a path's counterpart in the session's private /tmp; empty for other paths."""
    if any(is_inside(path, folder) for folder in (here.root, here.temp, *here.apart)):
        return ""
    roots = dict.fromkeys((*TMP_FOLDERS, *map(os.path.realpath, TMP_FOLDERS)))
    root = next((root for root in roots if is_inside(path, root)), "")
    return os.path.normpath(f"{here.temp}/{os.path.relpath(path, root)}") if root else ""


def _exists_in_private_tmp(place: str, path: str, here: CallLocation) -> bool:
    """Return whether a path exists in the session's private /tmp, mount points aside."""
    mounted = any(is_inside(folder, path) for folder in (here.root, *here.apart))
    return os.path.lexists(place) and (not mounted or place == here.temp)


def _expand_access_glob(
    access: Access, here: CallLocation | None, *, by: PathUser
) -> Iterator[Access]:
    """Yield the files that an access's glob matches, and the folder that it searches."""
    fixed = os.path.dirname(access.target.split("*")[0].split("?")[0].split("[")[0])
    found = locate_path(fixed or "/", here, by=by)
    rest = access.target[len(fixed) :]
    spelt = access.target if found.tmp else access.spelt
    yield replace(access, target=found.path + rest, spelt=spelt, tmp=found.tmp)
    for path in islice(iglob(found.path + rest), MAX_GLOB_MATCHES):
        if os.path.islink(path) or access.kind == "write":
            yield from _follow_access(replace(access, target=path, scope="one"), None, by=by)


def _count_hard_links(path: str) -> int:
    """Return a file's number of hard links; 1 for a folder or a missing path."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return 1
    return 1 if os.path.isdir(path) else found.st_nlink


def real_path(path: str) -> str:
    """Resolve a path's links; raises `ToolError` if it is invalid or keeps changing."""
    try:
        return "/" + os.path.realpath(path).lstrip("/")
    except (OSError, ValueError) as error:
        raise ToolError(f"{path!r} is not a valid path") from error


# The files as one call may open them: where its paths led when they were judged.


class JudgedFiles:
    """Files opened by the paths that permissions judged; other paths must not be links."""

    def __init__(
        self, files: Files, accesses: Sequence[Access], hidden: Callable[[str], bool]
    ) -> None:
        self._files = files
        self._places = _targets_by_spelling(accesses)
        self._private = {access.spelt for access in accesses if access.tmp == "private"}
        self._hidden = hidden

    async def stat(self, path: str) -> FileStat | None:
        """Return the type of the path, and its target."""
        place = self._places.get(path) or real_path(path)
        found = await self._files.stat(place)
        if found is None or place == path:
            return found
        return replace(found, link=place, private=path in self._private)

    async def list_names(self, folder: str, *, limit: int) -> list[str]:
        """Return the first names in a folder that no rule hides."""
        found = await self._files.list_names(self._places.get(folder, folder), limit=limit)
        return [name for name in found if not self._hidden(os.path.join(folder, name))]

    async def modified_times(self, paths: Sequence[str]) -> list[int]:
        """Return the modification times in nanoseconds; 0 if unknown."""
        return await self._files.modified_times([self._places.get(path, path) for path in paths])

    async def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        """Read bytes of the file from an offset."""
        return await self._files.read(self._places.get(path, path), offset=offset, limit=limit)

    async def replace(self, path: str, data: bytes, *, expect: str | None) -> str:
        """Replace the whole file at once, iff the digest of its content is `expect`."""
        return await self._files.replace(self._places.get(path, path), data, expect=expect)

    async def remove(self, path: str, *, expect: str) -> None:
        """Delete a file, iff the digest of its content is `expect`."""
        await self._files.remove(self._places.get(path, path), expect=expect)

    def queue(self, path: str) -> AbstractAsyncContextManager[None]:
        """Serialize work on one file, whichever path leads to it."""
        return self._files.queue(self._places.get(path, path))


def _targets_by_spelling(accesses: Sequence[Access]) -> dict[str, str]:
    """Return each path's resolved target, and the folder that contains it."""
    found = {access.spelt: access.target for access in accesses if access.spelt}
    for spelt, target in list(found.items()):
        if os.path.basename(spelt) == os.path.basename(target):
            found.setdefault(os.path.dirname(spelt), os.path.dirname(target))
    return found


def hidden_path_filter(permissions: Permissions, tool: str, *, root: str) -> Callable[[str], bool]:
    """Return a filter for files that a search must not show, as reading them is denied or asks."""
    rules = [rule for rule in permissions.rules if rule.effect != "allow" and rule.what]
    use = ToolUse(tool, (), root, home_folder() if rules else "")

    def is_hidden(path: str) -> bool:
        found = replace(use, accesses=(Access("read", path),)) if rules else use
        return any(rule_matches(rule, found) for rule in rules)

    return is_hidden
