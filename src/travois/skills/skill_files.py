"""Skill files: folders with a SKILL.md, our own and those of other agents.

Skills of an untrusted folder can be read like any text in it; they may neither run commands nor
link out of the project. Their own rules apply once the user has approved them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.compat.foreign_agent import CLAUDE, CODEX, GEMINI, OPENCODE, QWEN, find_config_folder
from travois.permissions.paths import is_inside
from travois.prompt.instruction_files import (
    SYSTEM_CONFIG_FOLDER,
    list_folder_chain,
    open_exact_path,
    read_plain_text,
)
from travois.sessions.home import TravoisHome
from travois.settings.schema import Plugin
from travois.settings.trust import describe_hook_request, digest_request
from travois.skills.command_files import load_commands
from travois.skills.command_text import CustomCommand
from travois.skills.skills import SKILL_LIST_SHARE, LoadedSkills, parse_skill

AGENT_FOLDERS = (
    *(".travois", CLAUDE.folder, ".agents"),
    *(one.folder for one in (CODEX, OPENCODE, GEMINI, QWEN)),
    *(".kimi-code", ".goose"),
)
"""Folders of a project, or of a person, in which agents keep what belongs to them."""
SKILL_FILE = "SKILL.md"
SKILL_FILES = (SKILL_FILE, "skill.md")
MAX_SKILL_FILES = 300
"""Skills read from one folder, at most."""
MAX_SKILL_CHARS = 200_000
"""Characters read of one skill, at most."""


class SkillFolder(msgspec.Struct, frozen=True):
    """A folder of skills."""

    folder: str
    held: str = ""
    """The folder that its files may not lead out of; empty if they may."""
    ours: bool = True
    """True if the user wrote it, and not the author of the workspace."""
    prefix: str = ""
    """The prefix of its skills' names: the plugin's name."""
    nested: str = ""
    """The prefix of a name that is already in use: the name of the folder above."""
    plugin: str = ""
    keeps: str = ""


class SkillPlaces(msgspec.Struct, frozen=True):
    """The folders and settings that decide which skills a session has."""

    home: TravoisHome
    root: str
    cwd: str
    trusted: bool = False
    agreed: frozenset[str] = frozenset()
    levels: tuple[str, ...] = ("user", "project", "local")
    plugins: tuple[Plugin, ...] = ()
    environ: Mapping[str, str] = os.environ
    etc: Path = SYSTEM_CONFIG_FOLDER
    only: tuple[str, ...] | None = None
    """The names of those that are wanted; none means all."""
    overrides: Mapping[str, str] = {}
    """The visibility of a skill for the model, by name."""
    share: float = SKILL_LIST_SHARE
    """The part of the window that their list may take."""
    width: int = 0
    """Characters of a description, at most; 0 for the default."""
    runner: Literal["", "off"] = ""
    """`off` if commands in skills must not run."""


class DiskSkills:
    """A reader of skills that always reads the current state."""

    def __init__(self, places: SkillPlaces) -> None:
        self._places = places

    def load_always(self, near: Collection[str] = ()) -> LoadedSkills:
        """Load all skills: of the machine, the user, folders down to this one, `near` and plugins.

        Of several skills with one name the first wins; one of a nested folder is also available
        under the folder's name.
        """
        found, notices, seen = dict[str, CustomCommand](), list[str](), set[str]()
        for folder in self._list_folders(near):
            for skill in _read_skill_folder(folder, notices, seen):
                name = skill.name
                if name in found and folder.nested:
                    name = f"{folder.nested}:{name}"
                found.setdefault(
                    name, self._strip_untrusted_rights(replace(skill, name=name), folder)
                )
        for custom in self._load_commands():
            found.setdefault(custom.name, custom)
        only = self._places.only
        named = (one for one in found.values() if only is None or one.name in only)
        wanted = (one for skill in named if (one := self._apply_override(skill)))
        return LoadedSkills(tuple(wanted), tuple(notices), self._places.share)

    def _load_commands(self) -> Iterator[CustomCommand]:
        """Yield the commands that the model may use like skills."""
        here = self._places
        found, _ = load_commands(
            here.home,
            here.root,
            here.cwd,
            plugins=here.plugins,
            levels=here.levels,
            environ=here.environ,
        )
        for one in found.values():
            if one.automatic or one.agent:
                ours = not is_inside(one.origin, here.root)
                yield replace(one, trusted=ours or here.trusted)

    def load_for_paths(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the folders below this one that have skills and contain these files."""
        here = self._places.cwd
        folders = dict.fromkeys(
            folder
            for path in paths
            if path.startswith(f"{here}/")
            for folder in list_folder_chain(os.path.dirname(path), here)[1:]
        )
        return tuple(
            f for f in folders if any(os.path.isdir(s.folder) for s in self._list_agent_folders(f))
        )

    def _list_folders(self, near: Collection[str]) -> Iterator[SkillFolder]:
        here = self._places
        yield SkillFolder(str(here.etc / "travois/skills"))
        yield SkillFolder(str(here.etc / "claude-code/.claude/skills"))
        if "user" in here.levels:
            yield from map(SkillFolder, list_personal_folders(here.home, here.environ))
        if "project" in here.levels:
            for folder in (*list_folder_chain(here.cwd, here.root), *near):
                yield from self._list_agent_folders(folder)
        for plugin in here.plugins:
            ours = not is_inside(plugin.folder, here.root)
            for folder in plugin.skills:
                yield SkillFolder(
                    folder,
                    plugin.folder,
                    ours=ours,
                    prefix=f"{plugin.name}:",
                    plugin=plugin.folder,
                    keeps=plugin.keeps,
                )

    def _list_agent_folders(self, folder: str) -> Iterator[SkillFolder]:
        here = self._places
        held, nested = "" if here.trusted else here.root, os.path.basename(folder)
        nested = nested if folder != here.root else ""
        for name in AGENT_FOLDERS:
            yield SkillFolder(os.path.join(folder, name, "skills"), held, ours=False, nested=nested)

    def _apply_override(self, skill: CustomCommand) -> CustomCommand | None:
        """Apply the settings of a skill; return None if they disable it."""
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

    def _strip_untrusted_rights(self, skill: CustomCommand, folder: SkillFolder) -> CustomCommand:
        """Remove the rights that need trust from a skill of the workspace."""
        skill = replace(skill, plugin=folder.plugin, keeps=folder.keeps)
        if folder.ours:
            return skill
        here = self._places
        allowed = (
            skill.allowed
            if digest_request(_describe_skill_request(skill, here.root)) in here.agreed
            else ""
        )
        heard = (
            digest_request(describe_hook_request(skill.origin, skill.hooks, (here.root,)))
            in here.agreed
        )
        hooks = skill.hooks if heard else {}
        return replace(skill, allowed=allowed, hooks=hooks, trusted=here.trusted)


def list_skill_requests(root: str, cwd: str, plugins: Sequence[Plugin] = ()) -> Iterator[str]:
    """Yield a line for each right that a project's skill files request."""
    inner = [folder for one in plugins if is_inside(one.folder, root) for folder in one.skills]
    outer = [
        os.path.join(f, name, "skills")
        for f in list_folder_chain(cwd, root)
        for name in AGENT_FOLDERS
    ]
    for folder in (*outer, *inner):
        for skill in _read_skill_folder(SkillFolder(folder), [], set()):
            if skill.allowed:
                yield _describe_skill_request(skill, root)
            if skill.hooks:
                yield describe_hook_request(skill.origin, skill.hooks, (root,))


def _describe_skill_request(skill: CustomCommand, root: str) -> str:
    return f"skill: {os.path.relpath(skill.origin, root)} allows itself {skill.allowed}"


def list_personal_folders(home: TravoisHome, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the folders of the user's own skills."""
    yield str(home.config / "skills")
    yield from CLAUDE.home_paths(environ, "skills")
    person = environ.get("HOME", "")
    if not person:
        return
    yield from (os.path.join(person, name, "skills") for name in AGENT_FOLDERS)
    if config := find_config_folder(environ, OPENCODE.variable, OPENCODE.base):
        yield from (str(config / name / "skills") for name in (OPENCODE.inner, "agents"))


def _read_skill_folder(
    folder: SkillFolder, notices: list[str], seen: set[str]
) -> Iterator[CustomCommand]:
    """Yield the skills of a folder, each file once; ignored ones become notices."""
    try:
        names = sorted(os.listdir(folder.folder))[:MAX_SKILL_FILES]
    except OSError:
        return
    for name in [""] if SKILL_FILE in names else names:
        path = _find_skill_file(os.path.join(folder.folder, name))
        real = os.path.realpath(path)
        if name.startswith(".") or not path or real in seen:
            continue
        seen.add(real)
        if folder.held and not is_inside(real, os.path.realpath(folder.held)):
            notices.append(f"{path} is ignored: it links outside {folder.held}")
            continue
        try:
            text = read_plain_text(real, opener=open_exact_path)[:MAX_SKILL_CHARS]
        except OSError as error:
            notices.append(f"{path} is ignored: {error.strerror or error}")
            continue
        skill = parse_skill(text, origin=path, prefix=folder.prefix)
        if skill.body or skill.description:
            yield skill
        else:
            notices.append(f"{path} is ignored: it has neither a description nor a text")


def _find_skill_file(folder: str) -> str:
    """Return the file of the skill in a folder; empty if there is none."""
    paths = (os.path.join(folder, name) for name in SKILL_FILES)
    return next(filter(os.path.isfile, paths), "")
