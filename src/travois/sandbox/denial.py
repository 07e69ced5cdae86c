"""Finding what the sandbox denied a failed program, from its error messages and its profile.

An error alone proves nothing: files have permissions of their own. So the path that an error names
is compared with what the sandbox granted, and with what the user could do without one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from posixpath import dirname, isabs, join
from typing import Literal, Protocol

import msgspec

from travois.core.patterns import compile_lazily
from travois.permissions.paths import is_inside, normalize_path
from travois.permissions.sandbox_profile import TMP_FOLDERS, SandboxProfile

READ_ONLY_ERRORS = ("read-only file system", "erofs")
"""Said only of a mount: the sandbox's, unless the disk itself is mounted read-only."""
PERMISSION_ERRORS = ("permission denied", "operation not permitted", "eacces", "eperm")
"""Said of files that lack a permission, inside and outside a sandbox."""
NOT_PERMITTED_ERRORS = ("operation not permitted", "eperm")
DATABASE_ERRORS = ("readonly database", "unable to open database")
BUSY_ERRORS = ("device or resource busy", "ebusy")
"""Said when a program removes or renames a path on which the sandbox has mounted something."""
NOT_FOUND_ERRORS = ("no such file or directory", "enoent")
"""Said of a path below a folder that the sandbox hides."""
CREATION_WORDS = compile_lazily(
    r"\b(?:creat|touch|mkdir|make directory|writing|copy|move|link)", re.IGNORECASE
)
"""Words of errors about a path that was to be created."""
NETWORK_ERRORS = (
    *("could not resolve host", "network is unreachable", "name or service not known"),
    *("temporary failure in name resolution", "eai_again", "enotfound", "getaddrinfo"),
    *("failed to establish a new connection", "couldn't connect to server", "enetunreach"),
    *("connection refused", "econnrefused", "no address associated with hostname"),
    *("dial tcp: lookup", "could not resolve proxy", "no route to host"),
)
SUDO_ERRORS = ("no new privileges", "effective uid is not 0")
"""Said by sudo where no program may gain rights."""
OWNERSHIP_WORDS = compile_lazily(r"chown|chgrp|mknod|ownership|owner |setting permissions|setxattr")
QUOTED_PATH = compile_lazily(r"(?<!\w)'([^']+)'(?!\w)|\"([^\"]+)\"|‘([^’]+)’|`([^`']+)[`']")
TRAILING_PATH = compile_lazily(r"(?:: | @ \S+ - | - |, (?:[a-z]+ )?)([^:,'\"]+)$")
LOOPBACK_ADDRESS = compile_lazily(
    r"(?:localhost|127\.0\.0\.1|\[?::1\]?)[ /:)',\"]*(?:port )?(\d{2,5})"
)
UNREACHED_HOST = compile_lazily(
    r"(?:host(?:name)?|proxy|lookup|address for|connect(?:ion)? to|access|ENOTFOUND|EAI_AGAIN)"
    r"[:='\" ]+(?:https?://)?([\w-]+(?:\.[\w-]+)+)",
    re.IGNORECASE,
)


def _compile_phrases(*signs: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, signs))})\b", re.IGNORECASE)


DENIAL_SIGN = _compile_phrases(
    *READ_ONLY_ERRORS,
    *PERMISSION_ERRORS,
    *DATABASE_ERRORS,
    *BUSY_ERRORS,
    *NOT_FOUND_ERRORS,
    *SUDO_ERRORS,
)
NETWORK_ERROR_SIGN = _compile_phrases(*NETWORK_ERRORS)
CONNECTION_REFUSED_SIGN = _compile_phrases("connection refused", "econnrefused")
SOCKET_DENIED_SIGN = compile_lazily(rf"socket.*(?:{'|'.join(PERMISSION_ERRORS)})", re.IGNORECASE)
MAX_SIGN_LINES = 200
"""The most lines with an error sign that are examined, from the last one."""
MAX_LINE_CHARS = 2_000

DenialKind = Literal["write", "pinned", "read", "rights", "network"]


class Denial(msgspec.Struct, frozen=True):
    """An access that the sandbox denied a program, though the user has it."""

    kind: DenialKind
    target: str = ""
    """The path or host; empty if the program did not name it."""


class DiskAccess(Protocol):
    """The paths and ports of this machine that the user could use without a sandbox."""

    @property
    def is_root(self) -> bool:
        """True if the user is root, whom file permissions do not bind."""
        ...

    def resolve(self, path: str) -> str:
        """Resolve the links of a path."""
        ...

    def can_access(self, path: str, need: Literal["read", "write"]) -> bool:
        """Return whether permissions let the user read a path; or change, create or remove it."""
        ...

    def needs_root(self, path: str) -> bool:
        """Return whether the user may open a path only because root bypasses permissions."""
        ...

    def is_read_only(self, path: str) -> bool:
        """Return whether a path is on a disk that is mounted read-only."""
        ...

    def is_program(self, path: str) -> bool:
        """Return whether a path is an executable file."""
        ...

    def has_listener(self, port: int) -> bool:
        """Return whether a program of this machine listens on the port."""
        ...


def find_denial(
    text: str, profile: SandboxProfile, *, cwd: str, disk: DiskAccess, line: str = ""
) -> Denial | None:
    """Return what the sandbox denied a failed program; None if it failed for another reason.

    `text` is the program's output, `line` the command line that started it.
    """
    found = (one for one in reversed(text.splitlines()) if DENIAL_SIGN.search(one[:MAX_LINE_CHARS]))
    for number, said in enumerate(found):
        if number == MAX_SIGN_LINES:
            break
        if denial := _explain_error_line(
            said[:MAX_LINE_CHARS], profile, cwd=cwd, disk=disk, line=line
        ):
            return denial
    return _find_network_denial(text, profile, disk=disk)


def _explain_error_line(
    said: str, profile: SandboxProfile, *, cwd: str, disk: DiskAccess, line: str
) -> Denial | None:
    """Find the sandbox denial behind one line of output that reports an error."""
    sign = DENIAL_SIGN.search(said)
    assert sign is not None, "only lines with an error sign are examined"
    word = sign[0].lower()
    if word in SUDO_ERRORS:
        return Denial("rights")
    if word in DATABASE_ERRORS:
        return _explain_without_path(word, profile, [])
    paths = list(_find_error_paths(said[: sign.start()], said[sign.end() :]))
    for path in paths:
        full = disk.resolve(normalize_path(join(cwd, path)))
        if word in PERMISSION_ERRORS and _is_shell_exec_error(
            said, path, full, disk=disk, line=line
        ):
            continue
        if denial := _compare_with_profile(word, full, profile, said=said, disk=disk):
            return denial
    # A script may have changed its folder, so only an absolute path proves what was meant.
    return _explain_without_path(
        word, profile, [p for p in paths if isabs(p) or word not in READ_ONLY_ERRORS]
    )


def _compare_with_profile(
    word: str, path: str, profile: SandboxProfile, *, said: str, disk: DiskAccess
) -> Denial | None:
    """Compare an error about a path with what the sandbox granted and what the user could do."""
    grant = find_granted_access(profile, path)
    if word in NOT_PERMITTED_ERRORS and profile.backend == "partial" and profile.profile == "look":
        # Landlock says "permission denied"; this is what our filter says of modes and times.
        return Denial("write", path) if disk.can_access(path, "write") else None
    unlisted = profile.backend == "partial" and path == "/" and word in PERMISSION_ERRORS
    if grant == "none" or unlisted:
        return _explain_hidden_path(word, path, profile, said=said, disk=disk)
    if word in NOT_FOUND_ERRORS:
        return None
    changeable = grant != "write" and disk.can_access(path, "write") and not disk.is_read_only(path)
    kind: DenialKind = "pinned" if grant == "pinned" else "write"
    if word in (*READ_ONLY_ERRORS, *DATABASE_ERRORS):
        return Denial(kind, path) if changeable else None
    if word in BUSY_ERRORS:
        return Denial("pinned", path) if grant == "pinned" and changeable else None
    if profile.backend == "partial" or grant == "pinned":
        return Denial(kind, path) if changeable else None
    # With mounts, a write that only the sandbox forbids fails as read-only. What is left are the
    # special rights of root, which no program in the sandbox has.
    owning = disk.is_root and bool(OWNERSHIP_WORDS.search(said))
    return Denial("rights", path) if disk.needs_root(path) or owning else None


def _explain_hidden_path(
    word: str, path: str, profile: SandboxProfile, *, said: str, disk: DiskAccess
) -> Denial | None:
    """Decide whether the sandbox's hiding of a path explains a "no such file" error."""
    if disk.can_access(path, "read"):
        return Denial("read", path)
    above = dirname(path)
    if (
        word in NOT_FOUND_ERRORS
        and above != profile.home
        and find_granted_access(profile, above) == "none"
    ):
        # Reading a missing file would fail in the same way if nothing were hidden.
        return (
            Denial("read", above)
            if CREATION_WORDS.search(said) and disk.can_access(above, "read")
            else None
        )
    makes = word in (*PERMISSION_ERRORS, *READ_ONLY_ERRORS) and disk.can_access(path, "write")
    return Denial("write", path) if makes else None


def _explain_without_path(word: str, profile: SandboxProfile, named: list[str]) -> Denial | None:
    """Find the sandbox denial behind an error that names no path, or none that explains it."""
    if named or (profile.profile != "look" and word not in READ_ONLY_ERRORS):
        return None
    certain = (
        (*READ_ONLY_ERRORS, *DATABASE_ERRORS)
        if profile.backend == "full"
        else (*PERMISSION_ERRORS, *DATABASE_ERRORS)
    )
    return Denial("write") if word in certain else None


def find_granted_access(
    profile: SandboxProfile, path: str
) -> Literal["none", "read", "pinned", "write"]:
    """Return the access that a sandbox profile grants to a real path; the deepest folder wins."""
    work: Literal["read", "write"] = "read" if profile.profile == "look" else "write"
    ways: dict[str, Literal["none", "read", "pinned", "write"]] = {"/": "read"}
    if profile.backend == "full":
        ways |= {**dict.fromkeys(TMP_FOLDERS, "write"), "/run": "none", "/dev/shm": "write"}  # noqa: S108
    ways |= dict.fromkeys((*profile.folders, *profile.writable), work)
    if profile.backend == "full":  # without mounts, pinned files are restored afterwards
        ways |= dict.fromkeys((*profile.pinned, *profile.git_written), "pinned")
    ways |= dict.fromkeys(profile.hidden, "none")
    if profile.backend == "full" and profile.home in profile.hidden:
        ways[join(profile.home, ".cache")] = "write"
    ways |= dict.fromkeys((*profile.caches, *profile.shown), "read")
    if profile.backend == "partial":
        ways[profile.temp] = "write"
    holding = [folder for folder in ways if is_inside(path, folder)]
    return ways[max(holding, key=len)] if holding else "read"


def _find_error_paths(before: str, after: str) -> Iterator[str]:
    """Yield the paths that an error line may be about, nearest to the error first."""
    if quoted := _find_quoted_texts(after):
        yield from quoted
        return
    if found := TRAILING_PATH.match(after.rstrip(".")):
        yield found[1].strip()
        return
    before = before.rstrip(" (:-,[")
    if quoted := _find_quoted_texts(before):
        yield from quoted
        return
    # The first part names the program, unless there is no other: `open /x: permission denied`.
    first, *parts = before.split(": ")
    for part in parts[-2:] or ([first] if " " in first.strip() else []):
        words = part.split()
        yield from dict.fromkeys((*words[-1:], *(word for word in words if "/" in word)))


def _find_quoted_texts(text: str) -> list[str]:
    return [next(filter(None, found)) for found in QUOTED_PATH.findall(text)]


def _is_shell_exec_error(said: str, path: str, full: str, *, disk: DiskAccess, line: str) -> bool:
    """Return whether a shell says that a file is not executable, not that it cannot be written."""
    shell = re.match(r"(?:/\S*/)?(?:ba|da|z|k)?sh: ", said)
    redirected = re.search(rf">[>|&]?\s*['\"]?{re.escape(path)}", line)
    return bool(shell) and not redirected and not disk.is_program(full)


def find_refused_port(text: str, ports: Collection[int]) -> int:
    """Return which local port a sandboxed program could not connect to; 0 if none."""
    for said in (line[:MAX_LINE_CHARS] for line in text.lower().splitlines()):
        local = LOOPBACK_ADDRESS.search(said) if NETWORK_ERROR_SIGN.search(said) else None
        if local and int(local[1]) in ports:
            return int(local[1])
    return 0


def _find_network_denial(text: str, profile: SandboxProfile, *, disk: DiskAccess) -> Denial | None:
    """Find an error in the output that the missing network explains."""
    if profile.network == "on":
        return None
    for said in (line[:MAX_LINE_CHARS] for line in text.lower().splitlines()):
        if profile.backend == "partial" and SOCKET_DENIED_SIGN.search(said):
            return Denial("network")
        if not NETWORK_ERROR_SIGN.search(said):
            continue
        local = LOOPBACK_ADDRESS.search(said)
        if local and disk.has_listener(int(local[1])):
            return Denial("network", f"port {local[1]} on this machine")
        if not local and not CONNECTION_REFUSED_SIGN.search(said):
            host = UNREACHED_HOST.search(said)
            return Denial("network", host[1] if host else "")
    return None
