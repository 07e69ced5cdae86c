"""Instruction files on disk: ours and those that users of other agents have already.

What comes with a folder is text for the model and gives no rights, so it is read without trust. But
it may not lead out of its folder: a link or an import could show the model what the user keeps.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from travois.permissions.paths import inside
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
"""How many rules of one folder are read."""
IMPORTS = 100
OTHERS = frozenset(("node_modules", "site-packages", ".git"))
"""Folders whose files were written for other projects."""
AGENTS, OVERRIDE, CLAUDE, LOCAL = "AGENTS.md", "AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md"


class Places(msgspec.Struct, frozen=True):
    """Where the instruction files of a session may lie."""

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
    """Whose files are wanted, besides the machine's."""
    said: tuple[str, str] = ("", "")
    """Where settings hold instructions themselves, and which."""
    trusted: bool = False

    def holding(self, path: str) -> str:
        """The folder of the workspace that a path is in; empty if in none."""
        held = (folder for folder in (self.root, self.cwd, *self.folders) if inside(path, folder))
        return max(held, key=len, default="")


class Library:
    """Reads instruction files as they are at the moment; it remembers nothing."""

    def __init__(self, places: Places, *, hidden: Callable[[str], bool]) -> None:
        self._places = places
        self._hidden = hidden

    def standing(self, also: Mapping[str, Kind] | None = None) -> Found:
        """Those of the machine, the user and all folders down to this one, and these besides."""
        reading = self._standing()
        for path, kind in (also or {}).items():
            reading.take(path, kind, reason="nested_traversal")
        return Found(tuple(reading.files), tuple(reading.notices))

    def touched(self, paths: Iterable[str]) -> Found:
        """Those that count once these files are worked with, besides the standing ones."""
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
        """The files that settings name, each with the files that it is about."""
        here = self._places
        for pattern in here.more:
            for path in _found(pattern, here.root):
                if here.trusted or inside(path, here.root):
                    yield path, _scope(path)

    def _near(self, reading: Reading, path: str, holding: str) -> None:
        """The files of the folders above this one, and the rules that are about it."""
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
    """A file to be read, the one that led to it through imports, and where those may lead."""

    path: str
    kind: Kind
    reason: Reason
    by: str
    held: str
    hops: int = 0


class Reading:
    """One pass over the disk: each file and each text once."""

    def __init__(self, places: Places, hidden: Callable[[str], bool]) -> None:
        self.files: list[Instruction] = []
        self.notices: list[str] = []
        self._places = places
        self._hidden = hidden
        self._seen: set[str] = set()
        self._marks: set[str] = set()
        self._rules: dict[str, list[tuple[str, tuple[str, ...]]]] = {}

    def folder(self, folder: str, reason: Reason) -> None:
        """The files of one folder."""
        for name in (_agents(folder), CLAUDE, f".claude/{CLAUDE}"):
            self.take(os.path.join(folder, name), "Project", reason=reason)
        for rule, globs in self.rules(os.path.join(folder, ".claude")):
            if not globs:
                self.take(rule, "Project", reason=reason)
        self.take(os.path.join(folder, LOCAL), "Local", reason=reason)

    def rules(self, place: str) -> list[tuple[str, tuple[str, ...]]]:
        """The rules that lie in `rules` there, in order, each with the files that it is about."""
        if place not in self._rules:
            paths = sorted(markdown(os.path.join(place, "rules"), set()))
            self._rules[place] = [(path, _scope(path)) for path in paths[:RULES]]
        return self._rules[place]

    def about(
        self, path: str, rules: Iterable[tuple[str, tuple[str, ...]]], *, base: str, kind: Kind
    ) -> None:
        """Those of these rules that are about a file."""
        for rule, globs in rules:
            if any(fits(glob, os.path.relpath(path, base)) for glob in globs):
                self.take(rule, kind, reason="path_glob_match")

    def take(self, path: str, kind: Kind, *, reason: Reason = "session_start") -> None:
        """One file, if it is there and may be shown, and what it imports."""
        if kind != "Managed" and kind.lower() not in self._places.levels:
            return
        held = self._places.holding(path) or os.path.dirname(path)
        self._follow(Step(path, kind, reason, by=path, held=held))

    def _follow(self, step: Step) -> None:
        path = step.path
        if not os.path.isfile(path) or (real := os.path.realpath(path)) in self._seen:
            return
        self._seen.add(real)
        try:
            text = self._shown(step, real)
        except OSError as error:
            self.notices.append(f"{path} is not read: {error.strerror or error}")
            return
        found = Instruction(path, text, step.kind, step.reason, step.by)
        if text.strip() and not only_imports(text) and found.mark not in self._marks:
            self.files.append(found)
            self._marks.add(found.mark)
        for name in imports(text)[:IMPORTS] if step.hops < HOPS else ():
            for target in _meant(name, os.path.dirname(path)):
                self._follow(replace(step, path=target, reason="include", hops=step.hops + 1))

    def _shown(self, step: Step, real: str) -> str:
        """What the model may see of a file; raises OSError with the reason if that is nothing."""
        excluded = self._places.excluded if step.kind != "Managed" else ()
        if any(fits(glob, path) for glob in excluded for path in {step.path, real}):
            return ""
        if step.kind in ("Project", "Local") and (why := self._unfit(step, real)):
            raise OSError(why)
        return uncommented(plain_text(real, opener=exactly))

    def _unfit(self, step: Step, real: str) -> str:
        """Why a file that came with a folder may not be shown."""
        within = inside(real, step.held) or self._places.holding(real)
        if not within and not self._places.trusted:
            return f"it is outside {step.held}, which `travois trust` would allow"
        if self._hidden(real):
            return "a rule keeps it from being read"
        above = not self._places.holding(step.by)
        if above and os.stat(real).st_uid not in (0, os.geteuid()):
            return "it belongs to someone else, and is above the project"
        return ""


def chain(folder: str, top: str) -> list[str]:
    """The folders from the top down to this one."""
    found = [folder]
    while found[-1] not in (top, "/"):
        found.append(os.path.dirname(found[-1]))
    return found[::-1]


def _agents(folder: str) -> str:
    """The file of a folder that all agents read, or the one that a person put in its place."""
    override = os.path.join(folder, OVERRIDE)
    return override if os.path.isfile(override) else os.path.join(folder, AGENTS)


def _found(pattern: str, root: str) -> list[str]:
    from glob import glob

    meant = os.path.normpath(os.path.join(root, os.path.expanduser(pattern)))
    return sorted(glob(meant, recursive=True))[:RULES]


def _scope(path: str) -> tuple[str, ...]:
    try:
        return scope(plain_text(path))
    except OSError:
        return ()


def markdown(folder: str, seen: set[str]) -> Iterator[str]:
    """All markdown files in a folder, also behind links, which may go in circles."""
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
    """The file that an import names, with what a sentence may have put behind it left out."""
    home = os.path.expanduser("~")
    for spelt in dict.fromkeys((name, name.rstrip(".,;:!?)]"), name.partition("#")[0])):
        full = home + spelt[1:] if spelt.startswith("~/") else os.path.join(folder, spelt)
        path = os.path.normpath(full)
        if os.path.isfile(path):
            yield path
            return


def plain_text(path: str, *, opener: Opener = os.open) -> str:
    """What a plain file says; raises OSError with the reason if it is none that we can show."""
    return plain_bytes(path, opener=opener).decode("utf-8-sig", errors="replace")


def plain_bytes(path: str, *, opener: Opener = os.open) -> bytes:
    """The same as it lies on the disk."""
    with open(path, "rb", opener=lambda path, flags: opener(path, flags | os.O_NONBLOCK)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a plain file")
        if found.st_size > LARGEST:
            raise OSError(f"it has {found.st_size:,} bytes, more than {LARGEST:,}")
        data = file.read(LARGEST)
    if b"\0" in data:
        raise OSError("it is not text")
    return data


def exactly(path: str, flags: int) -> int:
    """A descriptor of the path that was judged: a link put on the way since then is an error."""
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
