"""Explaining to the model how the sandbox affected a command's outcome."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache

from travois.core.display_text import escape_path
from travois.core.patterns import compile_lazily
from travois.permissions.paths import is_inside
from travois.permissions.sandbox_profile import PRIVATE_TMP_NOTICE, TMP_FOLDERS, SandboxProfile
from travois.ports.world import ProcessResult
from travois.sandbox.denial import Denial, find_denial, find_refused_port
from travois.sandbox.disk_facts import LocalDisk

SANDBOX_ARGUMENT_HINT = "If needed, call again with sandbox:"
SESSION_PORT_HINT = (
    "only sandboxed commands without the machine's network can reach it. "
    "Call without sandbox: network or off, or start the server the same way."
)
ALLOW_READ_HINT = "the user can allow it with the setting sandbox.filesystem.allowRead"
MAX_NAMED_ENTRIES = 3
"""Maximum new entries of /tmp that are named."""
MISSING_FILE_ERROR = compile_lazily(
    r"no such file|enoent|does not exist|not found|cannot find", re.IGNORECASE
)
TMP_PATH = compile_lazily(r"/(?:var/)?tmp/[^\s'\"‘’`:;,|&<>()]+")


def list_private_tmp(profile: SandboxProfile | None) -> frozenset[str]:
    """Return the names in the session's private /tmp; none where /tmp is the machine's own."""
    if profile is None or profile.backend != "full":
        return frozenset()
    try:
        names = os.listdir(profile.temp)
    except OSError:
        return frozenset()
    return frozenset(names) - _mounted_in_tmp((*profile.folders, *profile.writable, *profile.shown))


@lru_cache(maxsize=16)
def _mounted_in_tmp(shown: tuple[str, ...]) -> frozenset[str]:
    """Return the folders in a private /tmp that exist only as the sandbox's mount points."""
    below = (
        os.path.relpath(path, root)
        for path in shown
        for root in TMP_FOLDERS
        if is_inside(path, root)
    )
    return frozenset(path.partition("/")[0] for path in below)


def report_new_tmp_entries(profile: SandboxProfile | None, before: frozenset[str]) -> Iterator[str]:
    """Report where on disk a command's new files in the private /tmp are."""
    made = sorted(list_private_tmp(profile) - before)
    if profile is None or not made:
        return
    paths = ", ".join(
        escape_path(os.path.join(profile.temp, name)) for name in made[:MAX_NAMED_ENTRIES]
    )
    more = (
        f" and {len(made) - MAX_NAMED_ENTRIES} more there" if len(made) > MAX_NAMED_ENTRIES else ""
    )
    yield f"{PRIVATE_TMP_NOTICE}; on disk, this command left {paths}{more}."


def explain_denial(
    result: ProcessResult, text: str, profile: SandboxProfile | None, *, cwd: str, line: str
) -> Iterator[str]:
    """Explain what the sandbox denied a command; empty if it failed for another reason."""
    if port := find_refused_port(text, result.session_ports):
        yield f"The server at port {port} runs in the sandbox's own network: {SESSION_PORT_HINT}"
    if profile is None:
        return
    yield from _explain_missing_file(result, text, profile, line=line)
    if result.refused and result.status:
        yield f"The sandbox refused: {'; '.join(result.refused)}. {SANDBOX_ARGUMENT_HINT} network."
        return
    denial = (
        find_denial(text, profile, cwd=cwd, disk=LocalDisk(), line=line) if result.status else None
    )
    # What a read-only try lacks is asked about, or told with its result.
    if denial is not None and (profile.profile != "look" or denial.kind in ("read", "rights")):
        yield _describe_denial(denial, profile)


def _describe_denial(denial: Denial, profile: SandboxProfile) -> str:
    """Explain to the model which sandbox rule stopped a command, and how to lift it."""
    target = escape_path(denial.target)
    match denial.kind:
        case "write":
            temp = TMP_FOLDERS[0] if profile.backend == "full" else f"$TMPDIR ({profile.temp})"
            places = ", ".join(("the workspace", *profile.writable))
            where = f", not to {target}" if target else ""
            only = f"lets this command write only in {places} and {temp}"
            return f"The sandbox {only}{where}. {SANDBOX_ARGUMENT_HINT} off."
        case "pinned":
            return (
                f"The sandbox does not let commands change {target}. {SANDBOX_ARGUMENT_HINT} off."
            )
        case "read":
            return (
                f"The sandbox hides {target} from commands; {ALLOW_READ_HINT}. "
                f"{SANDBOX_ARGUMENT_HINT} off."
            )
        case "rights":
            of = f" that {target} needs" if target else ""
            return f"No program in the sandbox has root rights{of}. {SANDBOX_ARGUMENT_HINT} off."
        case "network" if profile.network == "listed":
            which = f", not {target}" if target else ""
            only = "lets this command reach only the hosts on the user's list, through a proxy"
            return f"The sandbox {only}{which}. {SANDBOX_ARGUMENT_HINT} network."
        case "network":
            what = f" and cannot reach {target}" if target else ""
            return (
                f"This command has no network in the sandbox{what}. "
                f"{SANDBOX_ARGUMENT_HINT} network."
            )


def _explain_missing_file(
    result: ProcessResult, text: str, profile: SandboxProfile, *, line: str
) -> Iterator[str]:
    """Explain which /tmp, private or not, has a file that a command did not find."""
    lines = [said for said in text.splitlines() if MISSING_FILE_ERROR.search(said)]
    found = (path.rstrip(".") for said in lines for path in TMP_PATH.findall(said))
    for path in list(dict.fromkeys(found))[:MAX_NAMED_ENTRIES]:
        if not result.status and path not in line:
            continue
        root = next(root for root in TMP_FOLDERS if is_inside(path, root))
        private = os.path.normpath(os.path.join(profile.temp, os.path.relpath(path, root)))
        here, there = os.path.lexists(path), os.path.lexists(private)
        if profile.backend == "full" and here and not there:
            own = f"they cannot see the machine's own {path}, but Read can."
            yield f"{PRIVATE_TMP_NOTICE} for commands: {own}"
        elif profile.backend == "partial" and there and not here:
            yield f"{path} of this session is {private} on disk; /tmp is the machine's own here."
