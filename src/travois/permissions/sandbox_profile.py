"""The sandbox profile of a program: what it may write, read and connect to."""

from __future__ import annotations

from typing import Literal

import msgspec

ProfileName = Literal["look", "work", "try"]
SandboxBackend = Literal["full", "partial"]
"""The sandbox technique: namespaces and mounts, or only Landlock."""
TMP_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108 - this is about the names
"""The folders of the machine for temporary files; the full sandbox covers both."""
PRIVATE_TMP_NOTICE = "/tmp is private to this session"  # noqa: S108 - a sentence


class UnapprovedChanges(msgspec.Struct, frozen=True):
    """Changes to protected files that rules allow an unapproved command to make."""

    patterns: tuple[tuple[str, str, str], ...] = ()
    """Patterns of paths, each with the folder that it counts from and the home."""
    names: tuple[str, ...] = ()
    """Protected names that a rule about the command itself has in its words."""
    held: tuple[str, ...] = ()
    """Protected files that are read-only for the command: if one changes, others changed it."""


class SandboxProfile(msgspec.Struct, frozen=True):
    """The limits of one program, enforced by the kernel.

    `look` changes nothing and reaches nobody, `work` changes the workspace, `try` changes a copy
    that is shown and then kept or dropped.
    """

    profile: ProfileName
    folders: tuple[str, ...]
    """Real paths of the folders that belong to the workspace: writable, except in `look`."""
    temp: str
    """A private folder of this session, always writable. The full sandbox mounts it at /tmp; in the
    partial one /tmp is the machine's own, and TMPDIR names this folder."""
    pinned: tuple[str, ...] = ()
    """Paths that stay as they are in a writable folder, existing or not."""
    git_written: tuple[str, ...] = ()
    """Pinned paths that git may write: what it would not write there by itself is undone."""
    lifted: tuple[str, ...] = ()
    """Pinned paths that this program was allowed to change by name."""
    hidden: tuple[str, ...] = ()
    """Paths that are not to be read: secrets, our own state, what a rule denies."""
    own: tuple[str, ...] = ()
    """Those of the hidden folders that are ours: they also stay in their place, empty or not."""
    shown: tuple[str, ...] = ()
    """Readable paths inside hidden ones."""
    caches: tuple[str, ...] = ()
    """The same for caches of tool chains. What programs write there is dropped when they end, or
    fails where the sandbox cannot give them a copy."""
    home: str = ""
    """The user's home. Where it is hidden it is there all the same, with an empty `.cache` that
    takes whatever is written to it until the program ends."""
    sockets: tuple[str, ...] | None = None
    """Sockets of other programs to cover; None covers all that exist at the start."""
    writable: tuple[str, ...] = ()
    """More paths that the user lets programs write to."""
    backend: SandboxBackend = "full"
    network: Literal["off", "listed", "on"] = "off"
    barred: tuple[str, ...] = ()
    """Hosts that stay blocked although the list has them, with their subdomains."""
    local_ports: tuple[int, ...] = ()
    """Ports of this machine, if they are all that the command is known to reach: where a server of
    the session listens at one, the command needs only the session's network."""
    hosts: tuple[str, ...] = ()
    """Hosts that can be reached if the network is `listed`: `example.org`, `*.example.org`."""
    unasked: UnapprovedChanges | None = None
    """Set if nobody approved this run: unpinned protected files of the project are then compared
    with their state before, and restored."""
