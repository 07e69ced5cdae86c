"""Instruction files on disk: AGENTS.md, CLAUDE.md, rules and their imports.

Files of a folder are text for the model and grant no rights, so they are read without trust. But
they may not lead out of their folder: a link or an import could show the model private files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from glob import glob
from pathlib import Path

import msgspec
from msgspec.structs import replace

from travois.permissions.paths import is_inside
from travois.prompt.instruction_text import (
    Found,
    Instruction,
    Kind,
    Reason,
    fits,
    imports,
    only_imports,
    scope,
    uncommented,
)

Opener = Callable[[str, int], int]
ETC = Path("/etc")
FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
LARGEST = 4 << 20
HOPS = 4
RULES = 200
"""Rule files read from one folder, at most."""
IMPORTS = 100
OTHERS = frozenset(("node_modules", "site-packages", ".git"))
"""Folders whose files were written for other projects."""
AGENTS = "AGENTS.md"
OVERRIDE = "AGENTS.override.md"
CLAUDE = "CLAUDE.md"
LOCAL = "CLAUDE.local.md"


class Places(msgspec.Struct, frozen=True):
    """The folders and settings that decide which instruction files apply."""

    cwd: str
    root: str
    """The top of the project."""
    folders: tuple[str, ...] = ()
    """More folders to work in."""
    own: str = ""
    claude: str = ""
    codex: str = ""
    opencode: str = ""
    """The user's folders: ours, and those of other agents."""
    etc: Path = ETC
    more: tuple[str, ...] = ()
    """Patterns of more files, from the top of the project on."""
    excluded: tuple[str, ...] = ()
    """Patterns of absolute paths that are not wanted."""
    levels: tuple[str, ...] = ("user", "project", "local")
    """Levels whose files are read, besides the machine's."""
    said: tuple[str, str] = ("", "")
    """A settings file that contains instructions, and their text."""
    trusted: bool = False

    def holding(self, path: str) -> str:
        """Return the workspace folder that contains a path; empty if none does."""
        held = (
            folder for folder in (self.root, self.cwd, *self.folders) if is_inside(path, folder)
        )
        return max(held, key=len, default="")


class Library:
    """A reader of instruction files that always reads the current state."""

    def __init__(self, places: Places, *, hidden: Callable[[str], bool]) -> None:
        self._places = places
        self._hidden = hidden

    def load_always(self, also: Mapping[str, Kind] | None = None) -> Found:
        """Read the files of the machine, the user and all folders down to this one, plus `also`."""
        reading = self._standing()
        for path, kind in (also or {}).items():
            reading.take(path, kind, reason="nested_traversal")
        return Found(tuple(reading.files), tuple(reading.notices))

    def load_for_paths(self, paths: Iterable[str]) -> Found:
        """Read the files that apply once these paths are worked with, besides the standing ones."""
        reading = self._standing()
        reading.notices.clear()
        count = len(reading.files)
        for path in filter(os.path.isfile, paths):
            holding = self._places.holding(path)
            if holding and OTHERS.isdisjoint(path[len(holding) :].split("/")):
                self._near(reading, path, holding)
        return Found(tuple(reading.files[count:]), tuple(reading.notices))

    def _standing(self) -> Reading:
        here, reading = self._places, Reading(self._places, self._hidden)
        reading.take(str(here.etc / "claude-code" / CLAUDE), "Managed")
        reading.take(str(here.etc / "travois" / AGENTS), "Managed")
        if here.said[1].strip():
            reading.files.append(Instruction(*here.said, "Managed", by=here.said[0]))
        if here.claude:
            reading.take(os.path.join(here.claude, CLAUDE), "User")
            for rule, globs in reading.rules(here.claude):
                if not globs:
                    reading.take(rule, "User")
        for folder in filter(None, (here.codex, here.opencode, here.own)):
            reading.take(_agents(folder), "User")
        for folder in chain(here.cwd, "/"):
            reading.folder(folder, "session_start")
        for path, globs in self._more():
            if not globs:
                reading.take(path, "Project")
        return reading

    def _more(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the files that settings name, each with its path patterns."""
        here = self._places
        for pattern in here.more:
            for path in _found(pattern, here.root):
                if here.trusted or is_inside(path, here.root):
                    yield path, _scope(path)

    def _near(self, reading: Reading, path: str, holding: str) -> None:
        """Read the files of the folders above a path, and the rules that apply to it."""
        for folder in chain(os.path.dirname(path), holding):
            reading.folder(folder, "nested_traversal")
        scopes: list[tuple[str, str, Kind]] = [
            (os.path.join(folder, ".claude"), folder, "Project")
            for folder in chain(os.path.dirname(path), "/")
        ]
        if self._places.claude:
            scopes.insert(0, (self._places.claude, holding, "User"))
        for place, base, kind in scopes:
            reading.about(path, reading.rules(place), base=base, kind=kind)
        reading.about(path, self._more(), base=self._places.root, kind="Project")


class Step(msgspec.Struct, frozen=True):
    """A file to read, the file that imports it, and the folder it may not leave."""

    path: str
    kind: Kind
    reason: Reason
    by: str
    held: str
    hops: int = 0


class Reading:
    """One pass over the disk, which reads each file and each text once."""

    def __init__(self, places: Places, hidden: Callable[[str], bool]) -> None:
        self.files: list[Instruction] = []
        self.notices: list[str] = []
        self._places = places
        self._hidden = hidden
        self._seen: set[str] = set()
        self._marks: set[str] = set()
        self._rules: dict[str, list[tuple[str, tuple[str, ...]]]] = {}

    def folder(self, folder: str, reason: Reason) -> None:
        """Read the instruction files of one folder."""
        for name in (_agents(folder), CLAUDE, f".claude/{CLAUDE}"):
            self.take(os.path.join(folder, name), "Project", reason=reason)
        for rule, globs in self.rules(os.path.join(folder, ".claude")):
            if not globs:
                self.take(rule, "Project", reason=reason)
        self.take(os.path.join(folder, LOCAL), "Local", reason=reason)

    def rules(self, place: str) -> list[tuple[str, tuple[str, ...]]]:
        """Return the rule files below `rules`, in order, each with its path patterns."""
        if place not in self._rules:
            paths = sorted(markdown(os.path.join(place, "rules"), set()))
            self._rules[place] = [(path, _scope(path)) for path in paths[:RULES]]
        return self._rules[place]

    def about(
        self, path: str, rules: Iterable[tuple[str, tuple[str, ...]]], *, base: str, kind: Kind
    ) -> None:
        """Read the rules that apply to a file."""
        for rule, globs in rules:
            if any(fits(glob, os.path.relpath(path, base)) for glob in globs):
                self.take(rule, kind, reason="path_glob_match")

    def take(self, path: str, kind: Kind, *, reason: Reason = "session_start") -> None:
        """Read one file, if it exists and may be shown, with its imports."""
        if kind != "Managed" and kind.lower() not in self._places.levels:
            return
        held = self._places.holding(path) or os.path.dirname(path)
        self._follow(Step(path, kind, reason, by=path, held=held))

    def _follow(self, step: Step) -> None:
        """Read a file once, then the files that it imports."""
        path = step.path
        if not os.path.isfile(path) or (real := os.path.realpath(path)) in self._seen:
            return
        self._seen.add(real)
        try:
            text = self._shown(step, real)
        except OSError as error:
            self.notices.append(f"{path} is ignored: {error.strerror or error}")
            return
        found = Instruction(path, text, step.kind, step.reason, step.by)
        if text.strip() and not only_imports(text) and found.mark not in self._marks:
            self.files.append(found)
            self._marks.add(found.mark)
        for name in imports(text)[:IMPORTS] if step.hops < HOPS else ():
            for target in _meant(name, os.path.dirname(path)):
                self._follow(replace(step, path=target, reason="include", hops=step.hops + 1))

    def _shown(self, step: Step, real: str) -> str:
        """Return the text that the model may see; raise OSError with the reason if it may not."""
        excluded = self._places.excluded if step.kind != "Managed" else ()
        if any(fits(glob, path) for glob in excluded for path in {step.path, real}):
            return ""
        if step.kind in ("Project", "Local") and (why := self._unfit(step, real)):
            raise OSError(why)
        return uncommented(plain_text(real, opener=exactly))

    def _unfit(self, step: Step, real: str) -> str:
        """Return why a file of a workspace may not be shown, or an empty string."""
        within = is_inside(real, step.held) or self._places.holding(real)
        if not within and not self._places.trusted:
            return f"it is outside {step.held}; `travois trust` would allow it"
        if self._hidden(real):
            return "a permission rule denies reading it"
        above = not self._places.holding(step.by)
        if above and os.stat(real).st_uid not in (0, os.geteuid()):
            return "it is above the project and belongs to another user"
        return ""


def chain(folder: str, top: str) -> list[str]:
    """Return the folders from `top` down to this one."""
    found = [folder]
    while found[-1] not in (top, "/"):
        found.append(os.path.dirname(found[-1]))
    return found[::-1]


def _agents(folder: str) -> str:
    """Return the path of a folder's AGENTS.md, or of the override beside it."""
    override = os.path.join(folder, OVERRIDE)
    return override if os.path.isfile(override) else os.path.join(folder, AGENTS)


def _found(pattern: str, root: str) -> list[str]:
    meant = os.path.normpath(os.path.join(root, os.path.expanduser(pattern)))
    return sorted(glob(meant, recursive=True))[:RULES]


def _scope(path: str) -> tuple[str, ...]:
    try:
        return scope(plain_text(path))
    except OSError:
        return ()


def markdown(folder: str, seen: set[str]) -> Iterator[str]:
    """Yield all Markdown files in a folder, also behind links, which may form loops."""
    real = os.path.realpath(folder)
    if real in seen or not os.path.isdir(real):
        return
    seen.add(real)
    try:
        names = os.listdir(real)
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith(".md") and os.path.isfile(path):
            yield path
        elif len(seen) < RULES:
            yield from markdown(path, seen)


def _meant(name: str, folder: str) -> Iterator[str]:
    """Yield the file that an import names, without punctuation that belongs to the sentence."""
    home = os.path.expanduser("~")
    for spelt in dict.fromkeys((name, name.rstrip(".,;:!?)]"), name.partition("#")[0])):
        full = home + spelt[1:] if spelt.startswith("~/") else os.path.join(folder, spelt)
        path = os.path.normpath(full)
        if os.path.isfile(path):
            yield path
            return


def plain_text(path: str, *, opener: Opener = os.open) -> str:
    """Read a text file; raise OSError with the reason if it cannot be shown."""
    return plain_bytes(path, opener=opener).decode("utf-8-sig", errors="replace")


def plain_bytes(path: str, *, opener: Opener = os.open) -> bytes:
    """Read a regular text file as bytes; raise OSError with the reason if it cannot be shown."""
    with open(path, "rb", opener=lambda path, flags: opener(path, flags | os.O_NONBLOCK)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a regular file")
        if found.st_size > LARGEST:
            raise OSError(f"it has {found.st_size:,} bytes (limit {LARGEST:,})")
        data = file.read(LARGEST)
    if b"\0" in data:
        raise OSError("it is a binary file")
    return data


def exactly(path: str, flags: int) -> int:
    """Open exactly this path: a link anywhere in it, put there since the check, is an error."""
    *folders, name = path.strip("/").split("/")
    held = os.open("/", FOLDER)
    try:
        for part in folders:
            inner = os.open(part, FOLDER, dir_fd=held)
            os.close(held)
            held = inner
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=held)
    finally:
        os.close(held)
