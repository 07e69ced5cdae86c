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
    InstructionFile,
    InstructionKind,
    InstructionSet,
    LoadReason,
    find_imports,
    has_only_imports,
    matches_scope_pattern,
    parse_scope_patterns,
    strip_html_comments,
)

FileOpener = Callable[[str, int], int]
SYSTEM_CONFIG_FOLDER = Path("/etc")
OPEN_FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
MAX_TEXT_FILE_BYTES = 4 << 20
MAX_IMPORT_DEPTH = 4
MAX_RULE_FILES = 200
"""Rule files read from one folder, at most."""
MAX_IMPORTS_PER_FILE = 100
VENDORED_FOLDERS = frozenset(("node_modules", "site-packages", ".git"))
"""Folders whose files were written for other projects."""
AGENTS_FILE = "AGENTS.md"
OVERRIDE_FILE = "AGENTS.override.md"
CLAUDE_FILE = "CLAUDE.md"
LOCAL_FILE = "CLAUDE.local.md"


class InstructionPlaces(msgspec.Struct, frozen=True):
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
    etc: Path = SYSTEM_CONFIG_FOLDER
    more: tuple[str, ...] = ()
    """Patterns of more files, from the top of the project on."""
    excluded: tuple[str, ...] = ()
    """Patterns of absolute paths that are not wanted."""
    levels: tuple[str, ...] = ("user", "project", "local")
    """Levels whose files are read, besides the machine's."""
    said: tuple[str, str] = ("", "")
    """A settings file that contains instructions, and their text."""
    trusted: bool = False

    def find_containing_folder(self, path: str) -> str:
        """Return the workspace folder that contains a path; empty if none does."""
        held = (
            folder for folder in (self.root, self.cwd, *self.folders) if is_inside(path, folder)
        )
        return max(held, key=len, default="")


class InstructionLibrary:
    """A reader of instruction files that always reads the current state."""

    def __init__(self, places: InstructionPlaces, *, hidden: Callable[[str], bool]) -> None:
        self._places = places
        self._hidden = hidden

    def load_always(self, also: Mapping[str, InstructionKind] | None = None) -> InstructionSet:
        """Read the files of the machine, the user and all folders down to this one, plus `also`."""
        reading = self._read_standing()
        for path, kind in (also or {}).items():
            reading.read_file(path, kind, reason="nested_traversal")
        return InstructionSet(tuple(reading.files), tuple(reading.notices))

    def load_for_paths(self, paths: Iterable[str]) -> InstructionSet:
        """Read the files that apply once these paths are worked with, besides the standing ones."""
        reading = self._read_standing()
        reading.notices.clear()
        count = len(reading.files)
        for path in filter(os.path.isfile, paths):
            holding = self._places.find_containing_folder(path)
            if holding and VENDORED_FOLDERS.isdisjoint(path[len(holding) :].split("/")):
                self._read_nearby(reading, path, holding)
        return InstructionSet(tuple(reading.files[count:]), tuple(reading.notices))

    def _read_standing(self) -> InstructionReader:
        here, reading = self._places, InstructionReader(self._places, self._hidden)
        reading.read_file(str(here.etc / "claude-code" / CLAUDE_FILE), "Managed")
        reading.read_file(str(here.etc / "travois" / AGENTS_FILE), "Managed")
        if here.said[1].strip():
            reading.files.append(InstructionFile(*here.said, "Managed", by=here.said[0]))
        if here.claude:
            reading.read_file(os.path.join(here.claude, CLAUDE_FILE), "User")
            for rule, globs in reading.find_rules(here.claude):
                if not globs:
                    reading.read_file(rule, "User")
        for folder in filter(None, (here.codex, here.opencode, here.own)):
            reading.read_file(_find_agents_file(folder), "User")
        for folder in list_folder_chain(here.cwd, "/"):
            reading.read_folder(folder, "session_start")
        for path, globs in self._find_configured_files():
            if not globs:
                reading.read_file(path, "Project")
        return reading

    def _find_configured_files(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the files that settings name, each with its path patterns."""
        here = self._places
        for pattern in here.more:
            for path in _expand_glob(pattern, here.root):
                if here.trusted or is_inside(path, here.root):
                    yield path, _read_scope(path)

    def _read_nearby(self, reading: InstructionReader, path: str, holding: str) -> None:
        """Read the files of the folders above a path, and the rules that apply to it."""
        for folder in list_folder_chain(os.path.dirname(path), holding):
            reading.read_folder(folder, "nested_traversal")
        scopes: list[tuple[str, str, InstructionKind]] = [
            (os.path.join(folder, ".claude"), folder, "Project")
            for folder in list_folder_chain(os.path.dirname(path), "/")
        ]
        if self._places.claude:
            scopes.insert(0, (self._places.claude, holding, "User"))
        for place, base, kind in scopes:
            reading.read_matching_rules(path, reading.find_rules(place), base=base, kind=kind)
        reading.read_matching_rules(
            path, self._find_configured_files(), base=self._places.root, kind="Project"
        )


class ImportStep(msgspec.Struct, frozen=True):
    """A file to read, the file that imports it, and the folder it may not leave."""

    path: str
    kind: InstructionKind
    reason: LoadReason
    by: str
    held: str
    hops: int = 0


class InstructionReader:
    """One pass over the disk, which reads each file and each text once."""

    def __init__(self, places: InstructionPlaces, hidden: Callable[[str], bool]) -> None:
        self.files: list[InstructionFile] = []
        self.notices: list[str] = []
        self._places = places
        self._hidden = hidden
        self._seen: set[str] = set()
        self._marks: set[str] = set()
        self._rules: dict[str, list[tuple[str, tuple[str, ...]]]] = {}

    def read_folder(self, folder: str, reason: LoadReason) -> None:
        """Read the instruction files of one folder."""
        for name in (_find_agents_file(folder), CLAUDE_FILE, f".claude/{CLAUDE_FILE}"):
            self.read_file(os.path.join(folder, name), "Project", reason=reason)
        for rule, globs in self.find_rules(os.path.join(folder, ".claude")):
            if not globs:
                self.read_file(rule, "Project", reason=reason)
        self.read_file(os.path.join(folder, LOCAL_FILE), "Local", reason=reason)

    def find_rules(self, place: str) -> list[tuple[str, tuple[str, ...]]]:
        """Return the rule files below `rules`, in order, each with its path patterns."""
        if place not in self._rules:
            paths = sorted(find_markdown_files(os.path.join(place, "rules"), set()))
            self._rules[place] = [(path, _read_scope(path)) for path in paths[:MAX_RULE_FILES]]
        return self._rules[place]

    def read_matching_rules(
        self,
        path: str,
        rules: Iterable[tuple[str, tuple[str, ...]]],
        *,
        base: str,
        kind: InstructionKind,
    ) -> None:
        """Read the rules that apply to a file."""
        for rule, globs in rules:
            if any(matches_scope_pattern(glob, os.path.relpath(path, base)) for glob in globs):
                self.read_file(rule, kind, reason="path_glob_match")

    def read_file(
        self, path: str, kind: InstructionKind, *, reason: LoadReason = "session_start"
    ) -> None:
        """Read one file, if it exists and may be shown, with its imports."""
        if kind != "Managed" and kind.lower() not in self._places.levels:
            return
        held = self._places.find_containing_folder(path) or os.path.dirname(path)
        self._follow_imports(ImportStep(path, kind, reason, by=path, held=held))

    def _follow_imports(self, step: ImportStep) -> None:
        """Read a file once, then the files that it imports."""
        path = step.path
        if not os.path.isfile(path) or (real := os.path.realpath(path)) in self._seen:
            return
        self._seen.add(real)
        try:
            text = self._read_allowed_text(step, real)
        except OSError as error:
            self.notices.append(f"{path} is ignored: {error.strerror or error}")
            return
        found = InstructionFile(path, text, step.kind, step.reason, step.by)
        if text.strip() and not has_only_imports(text) and found.digest not in self._marks:
            self.files.append(found)
            self._marks.add(found.digest)
        for name in (
            find_imports(text)[:MAX_IMPORTS_PER_FILE] if step.hops < MAX_IMPORT_DEPTH else ()
        ):
            for target in _resolve_import(name, os.path.dirname(path)):
                self._follow_imports(
                    replace(step, path=target, reason="include", hops=step.hops + 1)
                )

    def _read_allowed_text(self, step: ImportStep, real: str) -> str:
        """Return the text that the model may see; raise OSError with the reason if it may not."""
        excluded = self._places.excluded if step.kind != "Managed" else ()
        if any(
            matches_scope_pattern(glob, path) for glob in excluded for path in {step.path, real}
        ):
            return ""
        if step.kind in ("Project", "Local") and (why := self._find_refusal_reason(step, real)):
            raise OSError(why)
        return strip_html_comments(read_plain_text(real, opener=open_exact_path))

    def _find_refusal_reason(self, step: ImportStep, real: str) -> str:
        """Return why a file of a workspace may not be shown, or an empty string."""
        within = is_inside(real, step.held) or self._places.find_containing_folder(real)
        if not within and not self._places.trusted:
            return f"it is outside {step.held}; `travois trust` would allow it"
        if self._hidden(real):
            return "a permission rule denies reading it"
        above = not self._places.find_containing_folder(step.by)
        if above and os.stat(real).st_uid not in (0, os.geteuid()):
            return "it is above the project and belongs to another user"
        return ""


def list_folder_chain(folder: str, top: str) -> list[str]:
    """Return the folders from `top` down to this one, to look for instruction files."""
    found = [folder]
    while found[-1] not in (top, "/"):
        found.append(os.path.dirname(found[-1]))
    return found[::-1]


def _find_agents_file(folder: str) -> str:
    """Return the path of a folder's AGENTS.md, or of the override beside it."""
    override = os.path.join(folder, OVERRIDE_FILE)
    return override if os.path.isfile(override) else os.path.join(folder, AGENTS_FILE)


def _expand_glob(pattern: str, root: str) -> list[str]:
    meant = os.path.normpath(os.path.join(root, os.path.expanduser(pattern)))
    return sorted(glob(meant, recursive=True))[:MAX_RULE_FILES]


def _read_scope(path: str) -> tuple[str, ...]:
    """Read the path patterns that limit an instruction file; empty if it is unreadable."""
    try:
        return parse_scope_patterns(read_plain_text(path))
    except OSError:
        return ()


def find_markdown_files(folder: str, seen: set[str]) -> Iterator[str]:
    """Yield all Markdown instruction files in a folder, also behind links, which may loop."""
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
        elif len(seen) < MAX_RULE_FILES:
            yield from find_markdown_files(path, seen)


def _resolve_import(name: str, folder: str) -> Iterator[str]:
    """Yield the file that an instruction file's import names, without trailing punctuation."""
    home = os.path.expanduser("~")
    for spelt in dict.fromkeys((name, name.rstrip(".,;:!?)]"), name.partition("#")[0])):
        full = home + spelt[1:] if spelt.startswith("~/") else os.path.join(folder, spelt)
        path = os.path.normpath(full)
        if os.path.isfile(path):
            yield path
            return


def read_plain_text(path: str, *, opener: FileOpener = os.open) -> str:
    """Read an instruction file as text; raise OSError with the reason if it cannot be shown."""
    return read_plain_bytes(path, opener=opener).decode("utf-8-sig", errors="replace")


def read_plain_bytes(path: str, *, opener: FileOpener = os.open) -> bytes:
    """Read an instruction file as bytes; raise OSError with the reason if it cannot be shown."""
    with open(path, "rb", opener=lambda path, flags: opener(path, flags | os.O_NONBLOCK)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a regular file")
        if found.st_size > MAX_TEXT_FILE_BYTES:
            raise OSError(f"it has {found.st_size:,} bytes (limit {MAX_TEXT_FILE_BYTES:,})")
        data = file.read(MAX_TEXT_FILE_BYTES)
    if b"\0" in data:
        raise OSError("it is a binary file")
    return data


def open_exact_path(path: str, flags: int) -> int:
    """Open exactly this instruction file: a link put in its path since the check is an error."""
    *folders, name = path.strip("/").split("/")
    held = os.open("/", OPEN_FOLDER_FLAGS)
    try:
        for part in folders:
            inner = os.open(part, OPEN_FOLDER_FLAGS, dir_fd=held)
            os.close(held)
            held = inner
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=held)
    finally:
        os.close(held)
