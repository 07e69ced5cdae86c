"""Custom command files, our own and those of other agents."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.json import encode
from msgspec.structs import replace

from travois.compat.config_files import parse_jsonc
from travois.compat.foreign_agent import CLAUDE, CODEX, GEMINI, OPENCODE, QWEN
from travois.lazy_imports import lazy_imports
from travois.permissions.paths import is_inside
from travois.prompt.instruction_files import list_folder_chain, open_exact_path, read_plain_text
from travois.sessions.home import TravoisHome
from travois.settings.schema import Json, Plugin
from travois.settings.validate import is_settings_tree
from travois.skills.command_text import (
    CustomCommand,
    SourceAgent,
    parse_command,
    parse_command_table,
)

with lazy_imports():
    import tomllib


COMMAND_FOLDER_PATTERNS: dict[SourceAgent, re.Pattern[str]] = {
    "opencode": re.compile(r"/\.?opencode/commands?/$"),
    "codex": re.compile(r"/prompts/$"),
}
MAX_COMMAND_FILES = 300
"""Files read from one folder, at most."""
MAX_COMMAND_CHARS = 100_000
"""Characters read of one file, at most."""


def load_commands(
    home: TravoisHome,
    root: str,
    cwd: str,
    *,
    plugins: Sequence[Plugin] = (),
    levels: Collection[str] = ("user", "project"),
    environ: Mapping[str, str] = os.environ,
) -> tuple[dict[str, CustomCommand], tuple[str, ...]]:
    """Load all custom commands by name, the nearest first; return them and notices."""
    found, notices = dict[str, CustomCommand](), list[str]()
    own = ((path, "") for path in _list_user_folders(home, environ)) if "user" in levels else ()
    for folder, held in (*(_list_project_folders(root, cwd) if "project" in levels else ()), *own):
        for custom in _read_command_folder(folder, held, notices):
            found.setdefault(custom.name, _strip_rights(custom) if held else custom)
    tables = {"project": root, "user": OPENCODE.find_home(environ)}
    for place in (place for level, place in tables.items() if place and level in levels):
        for custom in _read_settings_commands(str(place), notices):
            found.setdefault(custom.name, custom)
    for plugin in plugins:
        for custom in (
            one for folder in plugin.commands for one in _read_command_folder(folder, "", notices)
        ):
            own = replace(custom, name=f"{plugin.name}:{custom.name}", plugin=plugin.folder)
            own = replace(own, keeps=plugin.keeps)
            found[own.name] = _strip_rights(own) if is_inside(plugin.folder, root) else own
    return found, tuple(notices)


def _strip_rights(custom: CustomCommand) -> CustomCommand:
    """Remove the rights that a workspace's command file may not grant itself."""
    return replace(custom, allowed="", hooks={})


def _list_project_folders(root: str, cwd: str) -> Iterator[tuple[str, str]]:
    """Yield the folders of a project's custom commands, also other agents', each with the root."""
    for folder in reversed(list_folder_chain(cwd, root)):
        yield os.path.join(folder, ".travois", "commands"), root
        for agent in (CLAUDE, OPENCODE, GEMINI, QWEN):
            yield from ((path, root) for path in agent.project_paths(folder, *agent.commands))


def _list_user_folders(home: TravoisHome, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the user's folders with custom commands, ours and those of other agents."""
    yield str(home.config / "commands")
    for agent in (CLAUDE, OPENCODE, CODEX):
        yield from agent.home_paths(environ, *agent.commands)
    if person := environ.get("HOME"):
        for agent in (GEMINI, QWEN):
            yield from agent.project_paths(person, *agent.commands)


def _read_settings_commands(root: str, notices: list[str]) -> Iterator[CustomCommand]:
    """Yield the commands in opencode's settings files."""
    for path in filter(os.path.isfile, (os.path.join(root, name) for name in OPENCODE.settings)):
        try:
            table = parse_jsonc(read_plain_text(path)).get("command")
        except (OSError, ValueError) as error:
            notices.append(f"{path}: its commands are ignored: {error}")
            continue
        for name, said in table.items() if is_settings_tree(table) else ():
            if is_settings_tree(said) and isinstance(body := said.get("template"), str):
                text = f"---\n{_render_front_matter(said)}\n---\n{body}"
                yield parse_command(name, text, origin=path, agent="opencode")


def _render_front_matter(said: Json) -> str:
    """Render the other fields of a custom command table as front matter."""
    keys = ("description", "agent", "model", "subtask")
    return "\n".join(f"{key}: {encode(said[key]).decode()}" for key in keys if key in said)


def _read_command_folder(folder: str, held: str, notices: list[str]) -> Iterator[CustomCommand]:
    """Yield the custom commands of a folder; unreadable files become notices."""
    for path in _list_command_files(folder):
        if held and not is_inside(os.path.realpath(path), os.path.realpath(held)):
            notices.append(f"{path} is ignored: it links outside the project")
            continue
        try:
            text = read_plain_text(os.path.realpath(path), opener=open_exact_path)[
                :MAX_COMMAND_CHARS
            ]
            place = os.path.relpath(path, folder) if path != folder else os.path.basename(path)
            yield _read_command(place, text, path)
        except (OSError, ValueError) as error:
            notices.append(f"{path} is ignored: {error}")


def _list_command_files(folder: str) -> list[str]:
    """Return the possible command files of a folder, sorted; a plugin may name one file."""
    if os.path.isfile(folder):
        return [folder]
    found = (
        os.path.join(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith((".md", ".toml"))
    )
    return sorted(found)[:MAX_COMMAND_FILES]


def _read_command(place: str, text: str, path: str) -> CustomCommand:
    """Read a custom command file; its folders are part of its name."""
    name = ":".join(Path(place).with_suffix("").parts).replace(" ", "-")
    if not place.endswith(".toml"):
        return parse_command(
            name, text, origin=path, agent=_guess_source_agent(path.removesuffix(place))
        )
    return parse_command_table(name, tomllib.loads(text), origin=path)


def _guess_source_agent(folder: str) -> SourceAgent:
    """Return the agent that a folder's command files were written for."""
    for whose, place in COMMAND_FOLDER_PATTERNS.items():
        if place.search(folder):
            return whose
    return "claude"
