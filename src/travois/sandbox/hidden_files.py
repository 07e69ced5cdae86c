"""Hidden files: the paths that sandboxed commands cannot see, and the exceptions they need.

Commands see the system. Hidden are the home folder, other people's homes, and every top-level
folder that is not part of the system: volumes, and projects other than the workspace.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
from travois.permissions.paths import is_inside, normalize_path
from travois.permissions.sandbox_profile import TMP_FOLDERS

with lazy_imports():
    import pwd


PACKAGE_FOLDER = str(Path(__file__).absolute().parents[1])
SYSTEM_FOLDERS = frozenset(
    (
        *("/bin", "/boot", "/dev", "/etc", "/gnu", "/lib", "/lib32", "/lib64", "/libx32"),
        *("/libexec", "/nix", "/opt", "/proc", "/run", "/sbin", "/snap", "/sys"),
        *("/usr", "/var", TMP_FOLDERS[0]),
    )
)
"""Top-level folders that belong to the system; all others contain somebody's files."""
PRIVATE_SYSTEM_PATHS = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/security/opasswd"),
    *("/etc/sudoers", "/etc/sudoers.d", "/etc/ssl/private", "/etc/pki/tls/private"),
    *("/etc/letsencrypt", "/etc/wireguard", "/etc/openvpn", "/etc/ipsec.secrets", "/etc/ppp"),
    *("/etc/NetworkManager/system-connections", "/etc/wpa_supplicant", "/etc/iwd", "/var/lib/iwd"),
    *("/etc/krb5.keytab", "/etc/kubernetes", "/etc/rancher", "/etc/docker", "/etc/netplan"),
    *("/etc/mysql/debian.cnf", "/etc/cloud/credentials", "/var/lib/cloud", "/var/lib/waagent"),
    *("/var/lib/kubelet", "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers"),
    *("/var/lib/postgresql", "/var/lib/mysql", "/var/lib/redis", "/var/lib/mongodb"),
    *("/var/backups", "/var/mail", "/var/spool", "/var/log", "/var/crash", "/var/www", "/boot"),
    *("/usr/local/etc/ssl/private", "/opt/containerd"),
)
"""Credentials and data of services, which file permissions may not keep from root."""
PRIVATE_KEY_NAME = compile_lazily(r"ssh_host_\w+_key|.*\.(?:key|keytab|pem\.key|p12|pfx)")
"""Names of private keys among the files of a service in /etc."""
ROOT_ONLY_DEPTHS = {"/etc": 1, "/opt": 0, "/var/lib": 0}
"""Folders searched for files that only root may read, with the depth of the search."""
INSTALLATION_NAMES = ("lib", "lib64", "libexec", "share", "conda-meta", "pyvenv.cfg")
"""Names beside the `bin` of a program that needs more than itself."""
LINK_FOLDERS = ("/usr/local/bin", "/usr/local/sbin")
"""Folders on PATH in which people put links to programs elsewhere."""
MAX_LINKS = 2_000
CREDENTIAL_WORDS = compile_lazily(
    r"token|auth|passw|secret|credential|api.?key|private.?key|_key\b|extraheader|login|cookie"
    r"|://[^/\s]*@|<server>|\bhelper\s*=\s*['\"]?!|-----BEGIN",
    re.IGNORECASE,
)
"""Words that occur in tool chain settings only where they name a credential."""
MAX_SETTINGS_BYTES = 256 * 1024
GIT_FILE_SETTINGS = compile_lazily(
    r"^\s*(?:path|excludesfile|attributesfile|template)\s*=\s*\"?(.+?)\"?\s*$",
    re.IGNORECASE | re.MULTILINE,
)
"""Git settings that name another file: includes, and lists of what to ignore."""


def find_home_folders() -> tuple[str, ...]:
    """Return the user's home folders to hide, from the environment and the system."""
    found = [os.path.realpath(os.path.expanduser("~"))]
    with suppress(ImportError, KeyError):
        found.append(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir))
    return tuple(dict.fromkeys(path for path in found if not _is_system_folder(path)))


def _is_system_folder(path: str) -> bool:
    """Return whether a home folder belongs to a system service and need not be hidden."""
    return path in SYSTEM_FOLDERS or path in ("/", "/nonexistent") or is_inside(path, "/usr")


def find_covered_places() -> tuple[str, ...]:
    """Return the places that the sandbox hides unless they belong to the session."""
    with suppress(OSError), os.scandir("/") as entries:
        tops = sorted(
            one.path for one in entries if one.path not in SYSTEM_FOLDERS and _should_cover(one)
        )
        return tuple(dict.fromkeys((*find_home_folders(), *tops, *_find_private_paths())))
    return (*find_home_folders(), *_find_private_paths())


def _should_cover(entry: os.DirEntry[str]) -> bool:
    """Return whether the sandbox hides an entry of `/`: a folder, or a file not readable by all."""
    if entry.is_symlink():
        return False
    return entry.is_dir() or not _is_world_readable(entry)


def _find_private_paths() -> Iterator[str]:
    """Yield the paths with credentials in system folders, for the sandbox to hide."""
    yield from (path for path in PRIVATE_SYSTEM_PATHS if os.access(path, os.R_OK))
    if os.geteuid() == 0:
        for folder, depth in ROOT_ONLY_DEPTHS.items():
            yield from _find_closed_paths(folder, depth)


def _find_closed_paths(folder: str, depth: int) -> Iterator[str]:
    """Yield non-empty paths that only their owner may read, and files named like keys, to hide."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                continue
            if not _is_world_readable(entry) or PRIVATE_KEY_NAME.fullmatch(entry.name):
                yield entry.path
            elif depth and entry.is_dir():
                yield from _find_closed_paths(entry.path, depth - 1)


def _is_world_readable(entry: os.DirEntry[str]) -> bool:
    """Return whether everybody may read a file, so that the sandbox need not hide it."""
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return True
    return bool(found.st_mode & 0o004) or (not found.st_size and entry.is_file())


def find_program_folders(covered: Collection[str]) -> tuple[str, ...]:
    """Return the folders in hidden places that programs on PATH and the harness need."""
    own = (
        sys.prefix,
        sys.base_prefix,
        os.path.dirname(os.path.realpath(sys.executable)),
        PACKAGE_FOLDER,
    )
    folders = dict.fromkeys(
        normalize_path(path) for path in os.get_exec_path() if os.path.isabs(path)
    )
    hidden = [path for path in folders if _lies_in_covered(path, covered)]
    programs = (_find_installation(folder, covered) or folder for folder in hidden)
    linked = (
        path
        for folder in (*hidden, *LINK_FOLDERS)
        for path in _find_linked_programs(folder, covered)
    )
    found = dict.fromkeys((*map(normalize_path, own), *programs, *linked))
    return tuple(path for path in found if _lies_in_covered(path, covered) and path not in covered)


def _lies_in_covered(path: str, covered: Collection[str]) -> bool:
    real = os.path.realpath(path)
    return any(f"{one}/".startswith(f"{top}/") for one in (path, real) for top in covered)


def _find_linked_programs(folder: str, covered: Collection[str]) -> Iterator[str]:
    """Yield the programs that links in a PATH folder lead to, with their installations."""
    targets = dict[str, None]()
    with suppress(OSError), os.scandir(folder) as entries:
        links = (one.path for one in islice(entries, MAX_LINKS) if one.is_symlink())
        targets = dict.fromkeys(os.path.realpath(path) for path in links)
    for target in targets:
        if _lies_in_covered(target, covered) and os.path.isfile(target):
            yield _find_installation(os.path.dirname(target), covered) or target


def _find_installation(folder: str, covered: Collection[str]) -> str:
    """Return the installation that a folder of programs belongs to, to show it; empty if none.

    A home is none, and neither is a repository: it may have a `bin` too, but contains more than
    programs.
    """
    above = os.path.dirname(folder)
    if os.path.basename(folder) not in ("bin", "sbin") or above in covered:
        return ""
    if os.path.exists(f"{above}/.git") or is_inside(os.getcwd(), above):
        return ""
    return above if any(os.path.exists(f"{above}/{name}") for name in INSTALLATION_NAMES) else ""


def find_safe_settings(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the settings files in the hidden home that contain no credential."""
    return tuple(path for path in paths if holds_credential(path) is False)


def holds_credential(path: str) -> bool | None:
    """Return whether a settings file seems to contain a credential; None if it is missing."""
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_SETTINGS_BYTES + 1)
    except OSError:
        return None
    return len(text) > MAX_SETTINGS_BYTES or bool(
        CREDENTIAL_WORDS.search(text.decode(errors="replace"))
    )


def find_git_files(settings: Iterable[str], home: str) -> tuple[str, ...]:
    """Return the files that git's settings name, free of credentials, for the sandbox to show."""
    found = list[str]()
    for path in settings:
        if os.path.basename(path) in (".gitconfig", "config") and "git" in path:
            with suppress(OSError), open(path, errors="replace") as file:
                named = (name for name in GIT_FILE_SETTINGS.findall(file.read(MAX_SETTINGS_BYTES)))
                found += (_expand_git_path(name, os.path.dirname(path), home) for name in named)
    return find_safe_settings(dict.fromkeys(found))


def _expand_git_path(name: str, folder: str, home: str) -> str:
    """Return the absolute path that a git setting names, relative to the home or its folder."""
    return normalize_path(
        os.path.join(home, name[2:]) if name.startswith("~/") else os.path.join(folder, name)
    )


def find_own_below_tmp() -> tuple[str, ...]:
    """Return the harness's own folders below /tmp, since part of it runs in the sandbox."""
    python = os.path.dirname(os.path.realpath(sys.executable))
    return _folders_below_tmp((sys.prefix, sys.base_prefix, python, PACKAGE_FOLDER))


def find_programs_below_tmp() -> tuple[str, ...]:
    """Return the folders below /tmp that hold the harness, its libraries or PATH programs."""
    return tuple(
        dict.fromkeys((*find_own_below_tmp(), *_folders_below_tmp(sys.path + os.get_exec_path())))
    )


def _folders_below_tmp(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the folders below /tmp, to show them; one reached by a link under both names."""
    named = filter(os.path.isabs, paths)
    both = (one for path in named for one in (os.path.normpath(path), os.path.realpath(path)))
    roots = {*TMP_FOLDERS, *map(os.path.realpath, TMP_FOLDERS)}
    below = (path for path in dict.fromkeys(both) if any(is_inside(path, root) for root in roots))
    return tuple(path for path in below if path not in roots and os.path.isdir(path))


# The folders of a configured program's files, which its sandbox shows.


COMMAND_WORD = compile_lazily(r"[^\s'\"=;|&()<>{},`]+")


def find_named_folders(*texts: str) -> tuple[str, ...]:
    """Return the folders of files that a command names by absolute path, to show them.

    A whole home, or a folder at the top of the disk, is never one of them.
    """
    found: dict[str, None] = {}
    home = os.path.expanduser("~")
    for word in (word for text in texts for word in COMMAND_WORD.findall(text)):
        path = os.path.expanduser(os.path.expandvars(word))
        folder = os.path.realpath(os.path.dirname(path))
        deep = folder.count(os.sep) > 1 and folder != os.path.realpath(home)
        if os.path.isabs(path) and os.path.isfile(path) and deep:
            found[folder] = None
    return tuple(found)


# Real paths, each folder looked up once while a sandbox is built.


class _PathCache(threading.local):
    paths: dict[str, str] | None = None


_PATH_CACHE = _PathCache()


@contextmanager
def cache_real_paths() -> Generator[None]:
    """Cache resolved folders in this thread until the block ends, to find hidden files faster.

    Nothing is cached from one command to the next, since a command may change links.
    """
    earlier = _PATH_CACHE.paths
    _PATH_CACHE.paths = {} if earlier is None else earlier
    try:
        yield
    finally:
        _PATH_CACHE.paths = earlier


def real_path(path: str) -> str:
    """Resolve the links of a path, exactly as `os.path.realpath` does."""
    known = _PATH_CACHE.paths
    if known is None or not path.startswith("/") or os.path.normpath(path) != path:
        return os.path.realpath(path)
    return _resolve_cached(path, known)


def _resolve_cached(path: str, known: dict[str, str]) -> str:
    """Resolve the links of a path like realpath, caching each folder on the way."""
    if path in ("/", "//"):
        return path
    if path not in known:
        folder, _, name = path.rpartition("/")
        found = os.path.join(_resolve_cached(folder or "/", known), name)
        known[path] = os.path.realpath(found) if os.path.islink(found) else found
    return known[path]
