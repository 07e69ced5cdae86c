"""Catastrophic commands, which would destroy the machine, the home or a workspace: always ask."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from posixpath import basename, normpath

from travois.permissions.shell import rough
from travois.permissions.shell.plan import CommandPlan, CommandStep

STOPPING_PROGRAMS = frozenset(
    ("shutdown", "reboot", "halt", "poweroff", "telinit", "killall5", "wipefs")
)
FORMATTING_PROGRAMS = r"mkfs(\..+)?|mke2fs|mkswap|blkdiscard|sfdisk|sgdisk|fdisk|parted|newfs.*"
REMOVING_PROGRAMS = frozenset(("rm", "rmdir", "unlink", "srm", "trash", "shred"))
OVERWRITING_PROGRAMS = frozenset(("dd", "tee", "cp", "shred", "truncate", "cat", "mv", "badblocks"))
CHANGING_PROGRAMS = frozenset(("chmod", "chown", "chgrp", "chattr", "setfacl", "chcon"))
DISK_DEVICES = (
    r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|md|loop|dm-|mem|kmem|port|nbd|zd|sr).*"
)
KERNEL_PATHS = r"/(proc|sys)(/.*)?"
UNSAFE_DEVICES = r"/dev/(?!(?:null|zero|full|stdin|stdout|stderr|tty|fd|shm)(?:/|$)).*"
WHOLE_FOLDER_PATHS = r"(?:\$\{?\w+[^/}]*\}?|~\w*|\.{1,2}(?:/\.{1,2})*)?/*(?:\*|\.\*|\{,\.\}\*)?"
"""A path that is all of something: of a home, of where one stands, or of an empty variable."""
GIT_HISTORY_PATHS = r"(?:\$\{?pwd\}?/)?(?:\.{1,2}/)*\.git(?:/objects|/refs)?/*(?:\*|\.\*)?"
"""The git history of the current folder."""
STOPPING_WORDS = frozenset(("0", "6", "poweroff", "reboot", "halt", "kexec", "rescue"))
SIGNIFICANT_WORDS = STOPPING_WORDS | REMOVING_PROGRAMS
DESTRUCTIVE_PROGRAMS = frozenset(
    (
        *(
            *STOPPING_PROGRAMS,
            *REMOVING_PROGRAMS,
            *OVERWRITING_PROGRAMS,
            *CHANGING_PROGRAMS,
            "init",
            "systemctl",
            "find",
            "rsync",
            "kill",
        ),
        *("mkfs", "mke2fs", "mkswap", "blkdiscard", "sfdisk", "sgdisk", "fdisk", "parted", "newfs"),
    )
)
DESTRUCTIVE_NEEDLES = (
    *(f"{name} " for name in sorted(DESTRUCTIVE_PROGRAMS)),
    "mkfs.",
    "newfs",
    "xargs ",
    "parallel ",
)
"""Such program names, as searched for in a text that is too long to split."""
BLANK_TABLE = bytes.maketrans(b"\n\t\r;&|()", b"        ")
MAX_CHECKED_CHARS = 32_000
MAX_FOLLOWING_CHARS = 4_000
"""The number of characters checked after such a name."""
MAX_SHELL_FUNCTIONS = 500
MAX_TARGET_CHARS = 256
"""Longer paths are cut to this length: some patterns take quadratic time."""


def describe_catastrophe(plan: CommandPlan, *, folders: tuple[str, ...], home: str) -> str:
    """Describe the catastrophe that this plan would cause; empty if none."""
    for step in plan.steps:
        for access in step.accesses:
            if access.kind == "write" and is_device(access.target):
                return f"overwrites the device {access.target}"
        if why := _catastrophe_in_step(step, folders=folders, home=home):
            return why
    if not plan.unclear and all(step.known for step in plan.steps):
        return ""
    return _catastrophe_in_text(plan.text, folders=folders, home=home)


@lru_cache(maxsize=64)
def _catastrophe_in_text(text: str, *, folders: tuple[str, ...], home: str) -> str:
    """Describe the catastrophe an unparsed command text may cause: any word may be a program."""
    if _is_fork_bomb(text):
        return "looks like a fork bomb"
    if len(text) > MAX_CHECKED_CHARS:
        text = _extract_relevant_text(rough.strip_quotes(text))
    if len(text) > MAX_CHECKED_CHARS:
        return "is too long to check, and names destructive programs"
    found = (
        _catastrophe_in_segment(words, folders=folders, home=home)
        for words in rough.split_segments(text)
    )
    if why := next((why for why in found if why), ""):
        return why
    disks = (found[1].strip("\"'") for found in re.finditer(r">[>|&]?\s*(/dev/\S+)", text))
    return "overwrites a disk" if any(re.fullmatch(DISK_DEVICES, disk) for disk in disks) else ""


def _extract_relevant_text(text: str) -> str:
    """Return the parts of a long command text that follow a program able to destroy files."""
    words, known = rough.strip_quotes(text.lower(), BLANK_TABLE), rough.command_vocabulary(text)
    names = (name for name in DESTRUCTIVE_NEEDLES if name[-1] != " " or name[:-1] in known)
    starts = sorted(start for name in names for start in _find_word_starts(name, words))
    parts: list[str] = []
    end = 0
    for start in starts:
        parts.append(text[max(start, end) : start + MAX_FOLLOWING_CHARS])
        end = start + MAX_FOLLOWING_CHARS
    return "\n".join(parts)


def _find_word_starts(name: str, text: str) -> Iterator[int]:
    """Yield the positions in a command text where a word starts with a destructive program."""
    at = text.find(name)
    for _ in range(MAX_CHECKED_CHARS // 4):
        if at < 0:
            return
        if not text[at - 1 : at].isalnum():
            yield at
        at = text.find(name, at + len(name))


def _is_fork_bomb(text: str) -> bool:
    """Return whether a shell function calls itself twice; also true for too many functions."""
    for number, found in enumerate(re.finditer(r"\(\s{0,9}\)\s{0,9}\{", text)):
        if number == MAX_SHELL_FUNCTIONS:
            return True
        name = re.search(r"(\w+|:)\s*$", text[max(0, found.start() - 80) : found.start()])
        body = text[found.end() : found.end() + 400].partition("}")[0]
        if name and re.search(rf"{re.escape(name[1])}\s*\|\s*{re.escape(name[1])}", body):
            return True
    return False


def _catastrophe_in_segment(words: list[str], *, folders: tuple[str, ...], home: str) -> str:
    """Describe the catastrophe that the words of a segment may cause, as any may be a program."""
    tail, why = _FollowingWords(folders, home), ""
    for word in reversed(words):
        why = tail.describe_destruction(word) or why
        tail.prepend(word)
    if words[0].startswith("-"):  # what stood before it is a program that only shows when it runs
        why = why or tail.describe_destruction("")
    if "xargs" in words or "parallel" in words:
        start = words.index("xargs" if "xargs" in words else "parallel")
        handed = [*words[start + 1 :], "$_/"]
        return why or _catastrophe_in_words(handed, folders=folders, home=home)
    return why


def is_device(path: str) -> bool:
    """Return whether a path is a device or kernel setting; writing it is catastrophic."""
    plain = normpath(path)
    return bool(re.fullmatch(UNSAFE_DEVICES, plain) or re.fullmatch(KERNEL_PATHS, plain))


def is_critical_path(path: str, *, folders: tuple[str, ...], home: str) -> bool:
    """Return whether removing a path would be catastrophic: the system, home or workspace."""
    whole = re.sub(r"/(?:\*+|\.\*)$", "", path) or "/"
    plain = "/" + normpath(whole).lstrip("/.")
    if plain.count("/") < 2:
        return True
    if any(_is_git_history(plain.casefold(), kept.casefold()) for kept in folders):
        return True
    return any(f"{kept.rstrip('/')}/".startswith(f"{plain}/") for kept in (*folders, home) if kept)


def _is_git_history(path: str, folder: str) -> bool:
    """Return whether removing a path would destroy git history: `.git`, its objects or its refs."""
    git = f"{folder.rstrip('/')}/.git"
    return path in (git, f"{git}/objects", f"{git}/refs")


def _catastrophe_in_step(step: CommandStep, *, folders: tuple[str, ...], home: str) -> str:
    """Describe the catastrophe that one command of a command line would cause; empty if none."""
    if step.name in REMOVING_PROGRAMS | {"mv"}:
        for access in step.accesses:
            if access.kind == "write" and is_critical_path(
                access.target, folders=folders, home=home
            ):
                return f"removes {access.target}"
    words = [word.text + ("*" if word.kind == "open" and word.text else "") for word in step.argv]
    return _catastrophe_in_words(words, folders=folders, home=home) if words else ""


def _catastrophe_in_words(words: list[str], *, folders: tuple[str, ...], home: str) -> str:
    """Describe the catastrophe that a program with these words would cause; empty if none."""
    tail = _FollowingWords(folders, home)
    for word in reversed(words[1:]):
        tail.prepend(word)
    return tail.describe_destruction(words[0])


class _FollowingWords:
    """The words that follow a program, added from the last to the first, to spot catastrophes.

    One pass over a long line then shows what each word would do with those after it.
    """

    def __init__(self, folders: tuple[str, ...], home: str) -> None:
        self._folders, self._home = folders, home
        self._first = self._last = ""
        self._hit = ""
        self._after_hit = self._targets = 0
        self._stops = self._disk = self._recursive = False
        self._syncs = self._tests = self._deletes = False

    def prepend(self, word: str) -> None:
        """Add the word before those that were added so far."""
        self._first, self._last = word, self._last or word
        if word[:1].isalnum() and word not in SIGNIFICANT_WORDS and "/" not in word:
            self._targets += 1  # most words: a plain operand
            return
        self._tests |= word.startswith(("-name", "-iname", "-path", "-regex", "-mtime"))
        self._deletes |= word == "-delete" or basename(word) in REMOVING_PROGRAMS
        if word.startswith("-"):
            short = "" if word.startswith("--") else word
            long = word.startswith(("--rec", "--no-preserve-root"))
            self._recursive |= long or "r" in short.casefold()
            self._syncs |= word.startswith("--del")
            return
        if _is_whole_folder(word, folders=self._folders, home=self._home):
            self._hit, self._after_hit = word, self._targets
        self._targets += 1
        self._stops |= word in STOPPING_WORDS
        self._disk |= bool(re.fullmatch(DISK_DEVICES, word.removeprefix("of=")))

    def describe_destruction(self, program: str) -> str:
        """Describe what a program would destroy with these words; empty if nothing critical."""
        name, hit = basename(program).casefold(), self._hit
        if not name or "$" in program or "`" in program:
            return self._describe_unknown_program(hit)
        if name.partition(".")[0] not in DESTRUCTIVE_PROGRAMS and not name.startswith("newfs"):
            return ""
        if not hit and name == "kill":
            return "kills every process" if self._last == "-1" else ""
        if name in STOPPING_PROGRAMS or (name in ("init", "systemctl") and self._stops):
            return "stops the machine"
        if re.fullmatch(FORMATTING_PROGRAMS, name):
            return "formats a disk"
        if name in OVERWRITING_PROGRAMS and self._disk:
            return "overwrites a disk"
        return self._describe_removal(name, hit) if hit else ""

    def _describe_unknown_program(self, hit: str) -> str:
        """Describe what an unknown program may destroy with these words; empty if nothing."""
        if self._disk:
            return "may overwrite a disk"
        whole = hit.startswith(("/", "~", "$HOME", "${HOME}"))
        return f"may remove {hit}" if whole and (self._recursive or self._deletes) else ""

    def _describe_removal(self, name: str, hit: str) -> str:
        """Describe how a program would remove or change a whole folder."""
        if name in REMOVING_PROGRAMS and (self._recursive or hit.endswith("*")):
            return f"removes {hit}"
        if name in CHANGING_PROGRAMS and self._recursive:
            return f"changes permissions of everything below {hit}"
        if name == "find" and self._deletes and (not self._tests or self._first[:1] != "."):
            return f"removes the files that find matches in {hit}"
        if (name == "mv" and self._after_hit) or (name == "rsync" and self._syncs):
            return f"moves or deletes {hit}"
        return ""


def _is_whole_folder(target: str, *, folders: tuple[str, ...], home: str) -> bool:
    """Return whether `rm` would remove the system, the home, a workspace or git's history."""
    target = target[:MAX_TARGET_CHARS]
    if re.fullmatch(WHOLE_FOLDER_PATHS, target):
        return target not in ("", "$") and not re.fullmatch(r"\$\{?\w+\}?", target)
    if re.fullmatch(GIT_HISTORY_PATHS, target.casefold()):
        return True
    if target in ("$HOME", "${HOME}") or re.fullmatch(r"\$\{?(HOME|PWD|OLDPWD)\}?/?\*?", target):
        return True
    return target.startswith("/") and is_critical_path(target, folders=folders, home=home)
