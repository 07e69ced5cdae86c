"""Skills on disk: folders with a SKILL.md, of ours and of other agents.

What comes with a folder that is not trusted can be read, as any text of it; it may neither run
commands nor lead out of the project. A skill's own rules count once the user agreed to them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.compat.foreign_agent import CLAUDE, CODEX, GEMINI, OPENCODE, QWEN, find_folder
from travois.permissions.paths import inside
from travois.prompt.instruction_files import ETC, chain, exactly, plain_text
from travois.sessions.home import Home
from travois.settings.schema import Plugin
from travois.settings.trust import digest, listens
from travois.skills.command_text import Custom
from travois.skills.skill_text import SHARE, Known, parse

AGENTS = (
    *(".travois", CLAUDE.folder, ".agents"),
    *(one.folder for one in (CODEX, OPENCODE, GEMINI, QWEN)),
    *(".kimi-code", ".goose"),
)
"""Folders of a project, or of a person, in which agents keep what belongs to them."""
FILE = "SKILL.md"
MOST, LONGEST = 300, 200_000
"""How many skills of one folder are read, and how many characters of each."""


class Shelf(msgspec.Struct, frozen=True):
    """A folder of skills."""

    folder: str
    held: str = ""
    """The folder that its files may not lead out of; empty if they may."""
    ours: bool = True
    """Whether the user wrote it, and not whoever made the workspace."""
    prefix: str = ""
    """What stands before its names: that of the plugin."""
    nested: str = ""
    """What stands before a name that is taken: that of the folder which has it."""
    plugin: str = ""
    keeps: str = ""


class Places(msgspec.Struct, frozen=True):
    """Where the skills of a session may lie, and what the user agreed to."""

    home: Home
    root: str
    cwd: str
    trusted: bool = False
    agreed: frozenset[str] = frozenset()
    levels: tuple[str, ...] = ("user", "project", "local")
    plugins: tuple[Plugin, ...] = ()
    environ: Mapping[str, str] = os.environ
    etc: Path = ETC
    only: tuple[str, ...] | None = None
    """The names of those that are wanted; none means all."""
    overrides: Mapping[str, str] = {}
    """How much the model hears of one, by name."""
    share: float = SHARE
    """The part of the window that their list may take."""
    width: int = 0
    """How many characters of what one is for are told; nought for the usual."""
    runner: Literal["", "off"] = ""
    """Whether commands in their texts are run."""


class DiskSkills:
    """Reads skills as they are at the moment; it remembers nothing."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def standing(self, near: Collection[str] = ()) -> Known:
        """The machine's, the user's, those of all folders down to this one, of these, of plugins.

        Of several with one name the first counts; one of a folder inside can be had by the
        folder's name, too.
        """
        found, notices, seen = dict[str, Custom](), list[str](), set[str]()
        for shelf in self._shelves(near):
            for skill in _shelved(shelf, notices, seen):
                name = skill.name
                if name in found and shelf.nested:
                    name = f"{shelf.nested}:{name}"
                found.setdefault(name, self._judged(replace(skill, name=name), shelf))
        for custom in self._commands():
            found.setdefault(custom.name, custom)
        only = self._places.only
        named = (one for one in found.values() if only is None or one.name in only)
        wanted = (one for skill in named if (one := self._overridden(skill)))
        return Known(tuple(wanted), tuple(notices), self._places.share)

    def _commands(self) -> Iterator[Custom]:
        """The commands that the model may use like skills, unasked or if somebody types them."""
        from travois.skills.command_files import commands

        here = self._places
        found, _ = commands(
            here.home,
            here.root,
            here.cwd,
            plugins=here.plugins,
            levels=here.levels,
            environ=here.environ,
        )
        for one in found.values():
            if one.automatic or one.agent:
                ours = not inside(one.origin, here.root)
                yield replace(one, trusted=ours or here.trusted)

    def touched(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The folders below this one that have skills and hold some of these files."""
        here = self._places.cwd
        folders = dict.fromkeys(
            folder
            for path in paths
            if path.startswith(f"{here}/")
            for folder in chain(os.path.dirname(path), here)[1:]
        )
        return tuple(f for f in folders if any(os.path.isdir(s.folder) for s in self._in(f)))

    def _shelves(self, near: Collection[str]) -> Iterator[Shelf]:
        here = self._places
        yield Shelf(str(here.etc / "travois/skills"))
        yield Shelf(str(here.etc / "claude-code/.claude/skills"))
        if "user" in here.levels:
            yield from map(Shelf, personal_folders(here.home, here.environ))
        if "project" in here.levels:
            for folder in (*chain(here.cwd, here.root), *near):
                yield from self._in(folder)
        for plugin in here.plugins:
            ours = not inside(plugin.folder, here.root)
            for folder in plugin.skills:
                yield Shelf(
                    folder,
                    plugin.folder,
                    ours=ours,
                    prefix=f"{plugin.name}:",
                    plugin=plugin.folder,
                    keeps=plugin.keeps,
                )

    def _in(self, folder: str) -> Iterator[Shelf]:
        here = self._places
        held, nested = "" if here.trusted else here.root, os.path.basename(folder)
        nested = nested if folder != here.root else ""
        for name in AGENTS:
            yield Shelf(os.path.join(folder, name, "skills"), held, ours=False, nested=nested)

    def _overridden(self, skill: Custom) -> Custom | None:
        """The skill as settings want it; None if they do not."""
        here = self._places
        width = here.width or len(skill.description)
        skill = replace(skill, description=skill.description[:width])
        skill = replace(skill, runner="off") if here.runner == "off" else skill
        match here.overrides.get(skill.name, "on"):
            case "off":
                return None
            case "name-only":
                return replace(skill, description="", when="")
            case "user-invocable-only":
                return replace(skill, automatic=False)
            case _:
                return skill

    def _judged(self, skill: Custom, shelf: Shelf) -> Custom:
        """The same without what only trust would give."""
        skill = replace(skill, plugin=shelf.plugin, keeps=shelf.keeps)
        if shelf.ours:
            return skill
        here = self._places
        allowed = skill.allowed if digest(_wish(skill, here.root)) in here.agreed else ""
        heard = digest(listens(skill.origin, skill.hooks, (here.root,))) in here.agreed
        hooks = skill.hooks if heard else {}
        return replace(skill, allowed=allowed, hooks=hooks, trusted=here.trusted)


def wishes(root: str, cwd: str, plugins: Sequence[Plugin] = ()) -> Iterator[str]:
    """What the skills of a project ask for that only trust gives, a line each."""
    inner = [folder for one in plugins if inside(one.folder, root) for folder in one.skills]
    outer = [os.path.join(f, name, "skills") for f in chain(cwd, root) for name in AGENTS]
    for folder in (*outer, *inner):
        for skill in _shelved(Shelf(folder), [], set()):
            if skill.allowed:
                yield _wish(skill, root)
            if skill.hooks:
                yield listens(skill.origin, skill.hooks, (root,))


def _wish(skill: Custom, root: str) -> str:
    return f"skill: {os.path.relpath(skill.origin, root)} allows itself {skill.allowed}"


def personal_folders(home: Home, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield where the user's own skills may lie."""
    yield str(home.path / "skills")
    yield from CLAUDE.within_home(environ, "skills")
    person = environ.get("HOME", "")
    if not person:
        return
    yield from (os.path.join(person, name, "skills") for name in AGENTS)
    if config := find_folder(environ, OPENCODE.variable, OPENCODE.base):
        yield from (str(config / name / "skills") for name in (OPENCODE.inner, "agents"))


def _shelved(shelf: Shelf, notices: list[str], seen: set[str]) -> Iterator[Custom]:
    """The skills of a folder, each once however many links lead to it; what is wrong is told."""
    try:
        names = sorted(os.listdir(shelf.folder))[:MOST]
    except OSError:
        return
    for name in [""] if FILE in names else names:
        path = os.path.join(shelf.folder, name, FILE)
        real = os.path.realpath(path)
        if name.startswith(".") or real in seen or not os.path.isfile(real):
            continue
        seen.add(real)
        if shelf.held and not inside(real, os.path.realpath(shelf.held)):
            notices.append(f"{path} is left out: it leads out of {shelf.held}")
            continue
        try:
            text = plain_text(real, opener=exactly)[:LONGEST]
        except OSError as error:
            notices.append(f"{path} is left out: {error.strerror or error}")
            continue
        skill = parse(text, origin=path, prefix=shelf.prefix)
        if skill.body:
            yield skill
        else:
            notices.append(f"{path} is left out: it says nothing below its front matter")
