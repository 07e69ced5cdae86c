"""What would destroy the machine, the home or a workspace: never done without a question."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import basename, normpath

from travois.policy import loose
from travois.policy.plan import Plan, Step

STOPS = frozenset(("shutdown", "reboot", "halt", "poweroff", "telinit", "killall5", "wipefs"))
FORMATS = r"mkfs(\..+)?|mke2fs|mkswap|blkdiscard|sfdisk|sgdisk|fdisk|parted|newfs.*"
REMOVES = frozenset(("rm", "rmdir", "unlink", "srm", "trash", "shred"))
OVERWRITES = frozenset(("dd", "tee", "cp", "shred", "truncate", "cat", "mv", "badblocks"))
CHANGES = frozenset(("chmod", "chown", "chgrp", "chattr", "setfacl", "chcon"))
DISKS = r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|md|loop|dm-|mem|kmem|port|nbd|zd|sr).*"
KERNEL = r"/(proc|sys)(/.*)?"
DEVICES = r"/dev/(?!(?:null|zero|full|stdin|stdout|stderr|tty|fd|shm)(?:/|$)).*"
HARMLESS = ("/dev/null",)
NOWHERE = r"(?:\$\{?\w+[^/}]*\}?|~\w*|\.{1,2}(?:/\.{1,2})*)?/*(?:\*|\.\*|\{,\.\}\*)?"
"""A path that is all of something: of a home, of where one stands, or of an empty variable."""
BOMB = r"(\w+|:)\s*\(\)\s*\{[^}]*\1\s*\|\s*\1"


def ruinous(plan: Plan, *, folders: tuple[str, ...], home: str) -> str:
    """What this plan would destroy; empty if nothing that matters so much."""
    for step in plan.steps:
        for access in step.accesses:
            if access.kind == "write" and device(access.target):
                return f"it writes to the device {access.target}"
        if why := _step(step, folders=folders, home=home):
            return why
    if not plan.unclear and all(step.known for step in plan.steps):
        return ""
    if re.search(BOMB, plan.text):
        return "it multiplies without end"
    found = (_words(part, folders=folders, home=home) for part in _suffixes(plan.text))
    return next((why for why in found if why), "")


def device(path: str) -> bool:
    """Whether writing here would not change a file but the machine."""
    plain = normpath(path)
    return bool(re.fullmatch(DEVICES, plain) or re.fullmatch(KERNEL, plain))


def critical(path: str, *, folders: tuple[str, ...], home: str) -> bool:
    """Whether removing this path would take the system, the home or a whole workspace with it."""
    whole = re.sub(r"/(?:\*+|\.\*)$", "", path) or "/"
    plain = "/" + normpath(whole).lstrip("/.")
    if plain.count("/") < 2:
        return True
    return any(f"{kept.rstrip('/')}/".startswith(f"{plain}/") for kept in (*folders, home) if kept)


def _step(step: Step, *, folders: tuple[str, ...], home: str) -> str:
    if step.name in REMOVES | {"mv"}:
        for access in step.accesses:
            if access.kind == "write" and critical(access.target, folders=folders, home=home):
                return f"it removes {access.target}"
    words = [word.text + ("*" if word.kind == "open" and word.text else "") for word in step.argv]
    return _words(words, folders=folders, home=home) if words else ""


def _suffixes(text: str) -> Iterator[list[str]]:
    for part in loose.segments(text):
        for at in range(len(part)):
            yield part[at:]
        if "xargs" in part or "parallel" in part:
            yield [*part[part.index("xargs" if "xargs" in part else "parallel") + 1 :], "$_/"]
    for found in re.finditer(r">[>|&]?\s*(/dev/\S+)", text):
        yield ["dd", f"of={found[1].strip(chr(34) + chr(39))}"]


def _words(words: list[str], *, folders: tuple[str, ...], home: str) -> str:
    name, rest = basename(words[0]).casefold(), words[1:]
    targets = [word for word in rest if not word.startswith("-")]
    flags = "".join(word for word in rest if word.startswith("-"))
    hit = next((t for t in targets if _all(t, folders=folders, home=home)), "")
    if name in STOPS or (name in ("init", "systemctl") and _stopping(targets)):
        return "it stops the machine"
    if re.fullmatch(FORMATS, name):
        return "it formats a disk"
    if name in OVERWRITES and any(re.fullmatch(DISKS, t.removeprefix("of=")) for t in targets):
        return "it writes to a disk"
    if not hit:
        return "it ends every process" if name == "kill" and rest[-1:] == ["-1"] else ""
    if name in REMOVES and (_recursive(flags) or hit.endswith("*")):
        return f"it removes {hit}"
    if name in CHANGES and _recursive(flags):
        return f"it changes everything below {hit}"
    if name == "find" and _deleting(rest):
        return f"it removes what it finds in {hit}"
    if (name == "mv" and hit in targets[:-1]) or (name == "rsync" and "--del" in flags):
        return f"it takes {hit} away"
    return ""


def _stopping(targets: list[str]) -> bool:
    return any(t in ("0", "6", "poweroff", "reboot", "halt", "kexec", "rescue") for t in targets)


def _recursive(flags: str) -> bool:
    short = re.sub(r"--[a-z-]+", "", flags)
    return "r" in short.casefold() or "--rec" in flags or "--no-preserve-root" in flags


def _deleting(rest: list[str]) -> bool:
    tests = any(word.startswith(("-name", "-iname", "-path", "-regex", "-mtime")) for word in rest)
    acts = "-delete" in rest or any(basename(word) in REMOVES for word in rest)
    elsewhere = not rest[0].startswith(".") if rest else False
    return acts and (elsewhere or not tests)


def _all(target: str, *, folders: tuple[str, ...], home: str) -> bool:
    if re.fullmatch(NOWHERE, target):
        return target not in ("", "$") and not re.fullmatch(r"\$\{?\w+\}?", target)
    if target in ("$HOME", "${HOME}") or re.fullmatch(r"\$\{?(HOME|PWD|OLDPWD)\}?/?\*?", target):
        return True
    return target.startswith("/") and critical(target, folders=folders, home=home)
