"""Agents of opencode, read as our agent files.

What an agent may not do there, it may not do here: a tool that is denied in part is denied whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from travois.compat.config_files import TOOLS, loose
from travois.compat.foreign_agent import OPENCODE
from travois.files.front_matter import FrontMatter, FrontMatterValue
from travois.permissions.rules import EDIT_TOOLS
from travois.prompt.instruction_files import plain_text
from travois.settings.schema import Json
from travois.settings.validate import is_settings_tree

APART = "apart"
"""In front matter: no agent is told of this one."""
KEPT = {"description": "description", "model": "model", "steps": "maxTurns"}
MEANT: dict[str, tuple[str, ...]] = {
    **{name: (tool,) for name, tool in TOOLS.items()},
    **dict.fromkeys(("edit", "write", "patch"), EDIT_TOOLS),
}
"""Their names of tools, and all of ours that do the same."""
NAMED = rf"(?<![\w*])[\"']?({'|'.join(map(re.escape, MEANT))})[\"']?\s*:"
"""Where a table, in JSON or in YAML, begins to speak of a tool."""
FORBIDDEN = r"\b(?:deny|false)\b"
FILE = r"\{file:([^}]+)\}"


def adapted(told: FrontMatter, name: str) -> FrontMatter | None:
    """Translate an agent's front matter; None for a disabled agent."""
    if told.values.get("disable") == "true":
        return None
    values: dict[str, FrontMatterValue] = {"name": name}
    if told.values.get("mode") == "primary" or told.values.get("hidden") == "true":
        values[APART] = "true"
    values |= {ours: told.values[key] for key, ours in KEPT.items() if key in told.values}
    tables = (_text(told.values.get(key, "")) for key in ("tools", "permission"))
    if denied := tuple(dict.fromkeys(tool for table in tables for tool in _denied(table))):
        values["disallowedTools"] = denied
    return replace(told, values=values)


def _denied(table: str) -> Iterator[str]:
    """Yield the tools that are denied, wholly or in part; a leading star means all others."""
    said: dict[str, bool] = {}
    about = ""
    for part in re.split(NAMED, table)[1:]:
        if part in MEANT:
            about = part if part != "*" or not about else about
        else:
            said[about] = said.get(about, False) or bool(re.search(FORBIDDEN, part))
    for name, tools in MEANT.items():
        if name != "*" and said.get(name, said.get("*", False)):
            yield from tools


def tabled(folder: str) -> Iterator[tuple[str, FrontMatter]]:
    """Yield the agents in opencode's settings files of a folder, each with its file."""
    for path in filter(os.path.isfile, (os.path.join(folder, name) for name in OPENCODE.settings)):
        try:
            table = loose(plain_text(path)).get("agent")
        except (OSError, ValueError, RecursionError):
            continue  # whoever reads settings tells of it
        for name, said in table.items() if is_settings_tree(table) else ():
            if is_settings_tree(said) and (told := adapted(_front(said, path), name)) is not None:
                yield path, told


def _front(said: Json, path: str) -> FrontMatter:
    values: dict[str, FrontMatterValue] = {
        k: _value(value) for k, value in said.items() if k != "prompt"
    }
    return FrontMatter(values, body=_prompt(str(said.get("prompt") or ""), os.path.dirname(path)))


def _prompt(text: str, folder: str) -> str:
    """Return an agent's prompt, which may be in a file."""
    if not (found := re.fullmatch(FILE, text.strip())):
        return text
    try:
        return plain_text(os.path.join(folder, os.path.expanduser(found[1].strip())))
    except OSError:
        return ""


def _value(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _text(value: FrontMatterValue) -> str:
    return value if isinstance(value, str) else " ".join(value)
