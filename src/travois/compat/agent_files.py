"""Agent files of Codex and opencode, read as our agent files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from travois.compat.config_files import OPENCODE_TOOLS, parse_jsonc
from travois.compat.foreign_agent import OPENCODE
from travois.files.front_matter import FrontMatter, FrontMatterValue
from travois.lazy_imports import lazy_imports
from travois.permissions.rules import EDIT_TOOLS
from travois.prompt.instruction_files import read_plain_text
from travois.settings.schema import Json
from travois.settings.validate import is_settings_tree

with lazy_imports():
    import tomllib


def read_codex_roles(folder: str) -> Iterator[tuple[str, FrontMatter]]:
    """Yield the roles of a Codex folder, from its settings and from role files."""
    path = os.path.join(folder, "config.toml")
    roles = _read_codex_toml(path).get("agents")
    for name, said in roles.items() if is_settings_tree(roles) else ():
        if is_settings_tree(said) and "description" in said:
            file = str(said.get("config_file") or "")
            more = _read_codex_toml(os.path.join(folder, os.path.expanduser(file))) if file else {}
            yield path, _codex_front_matter(name, more | said)
    files = os.path.join(folder, "agents")
    for name in sorted(os.listdir(files)) if os.path.isdir(files) else ():
        if name.endswith(".toml") and (said := _read_codex_toml(own := os.path.join(files, name))):
            yield (
                own,
                _codex_front_matter(str(said.get("name") or name.removesuffix(".toml")), said),
            )


def _codex_front_matter(name: str, said: Json) -> FrontMatter:
    """Translate a Codex agent role to the front matter of our agent files."""
    values: dict[str, FrontMatterValue] = {
        "name": name,
        "description": str(said.get("description") or name),
    }
    if model := said.get("model"):
        values["model"] = f"{said.get('model_provider') or 'openai'}/{model}"
    if effort := said.get("model_reasoning_effort"):
        values["effort"] = "low" if effort in ("none", "minimal") else str(effort)
    if said.get("sandbox_mode") == "read-only":
        values["permissionMode"] = "plan"
    return FrontMatter(
        values, body=str(said.get("developer_instructions") or values["description"])
    )


def _read_codex_toml(path: str) -> Json:
    """Read a TOML settings file of Codex; empty if it is unreadable or invalid."""
    try:
        text = read_plain_text(path)
        return tomllib.loads(text)
    except (OSError, ValueError):
        return {}  # whoever reads settings tells of it


HIDDEN_AGENT_KEY = "apart"
"""In front matter: no agent is told of this one."""
OPENCODE_AGENT_KEYS = {"description": "description", "model": "model", "steps": "maxTurns"}
TOOLS_BY_OPENCODE_NAME: dict[str, tuple[str, ...]] = {
    **{name: (tool,) for name, tool in OPENCODE_TOOLS.items()},
    **dict.fromkeys(("edit", "write", "patch"), EDIT_TOOLS),
}
"""Their names of tools, and all of ours that do the same."""
TOOL_NAME_PATTERN = (
    rf"(?<![\w*])[\"']?({'|'.join(map(re.escape, TOOLS_BY_OPENCODE_NAME))})[\"']?\s*:"
)
"""Where a table, in JSON or in YAML, begins to speak of a tool."""
DENIAL_PATTERN = r"\b(?:deny|false)\b"
FILE_REFERENCE_PATTERN = r"\{file:([^}]+)\}"


def adapt_opencode_agent(front_matter: FrontMatter, name: str) -> FrontMatter | None:
    """Translate an opencode agent's front matter; None for a disabled agent."""
    if front_matter.values.get("disable") == "true":
        return None
    values: dict[str, FrontMatterValue] = {"name": name}
    if front_matter.values.get("mode") == "primary" or front_matter.values.get("hidden") == "true":
        values[HIDDEN_AGENT_KEY] = "true"
    values |= {
        ours: front_matter.values[key]
        for key, ours in OPENCODE_AGENT_KEYS.items()
        if key in front_matter.values
    }
    tables = (
        _join_front_value(front_matter.values.get(key, "")) for key in ("tools", "permission")
    )
    if denied := tuple(
        dict.fromkeys(tool for table in tables for tool in _find_denied_tools(table))
    ):
        values["disallowedTools"] = denied
    return replace(front_matter, values=values)


def _find_denied_tools(table: str) -> Iterator[str]:
    """Yield the tools that an opencode agent denies; a leading star means all others."""
    said: dict[str, bool] = {}
    about = ""
    for part in re.split(TOOL_NAME_PATTERN, table)[1:]:
        if part in TOOLS_BY_OPENCODE_NAME:
            about = part if part != "*" or not about else about
        else:
            said[about] = said.get(about, False) or bool(re.search(DENIAL_PATTERN, part))
    for name, tools in TOOLS_BY_OPENCODE_NAME.items():
        if name != "*" and said.get(name, said.get("*", False)):
            yield from tools


def read_opencode_agents(folder: str) -> Iterator[tuple[str, FrontMatter]]:
    """Yield the agents in opencode's settings files of a folder, each with its file."""
    for path in filter(os.path.isfile, (os.path.join(folder, name) for name in OPENCODE.settings)):
        try:
            table = parse_jsonc(read_plain_text(path)).get("agent")
        except (OSError, ValueError, RecursionError):
            continue  # whoever reads settings tells of it
        for name, said in table.items() if is_settings_tree(table) else ():
            if (
                is_settings_tree(said)
                and (told := adapt_opencode_agent(_opencode_front_matter(said, path), name))
                is not None
            ):
                yield path, told


def _opencode_front_matter(said: Json, path: str) -> FrontMatter:
    """Translate an agent in opencode's settings to the front matter of our agent files."""
    values: dict[str, FrontMatterValue] = {
        k: _front_matter_value(value) for k, value in said.items() if k != "prompt"
    }
    return FrontMatter(
        values, body=_resolve_prompt_file(str(said.get("prompt") or ""), os.path.dirname(path))
    )


def _resolve_prompt_file(text: str, folder: str) -> str:
    """Return an opencode agent's prompt, which may be in a file."""
    if not (found := re.fullmatch(FILE_REFERENCE_PATTERN, text.strip())):
        return text
    try:
        return read_plain_text(os.path.join(folder, os.path.expanduser(found[1].strip())))
    except OSError:
        return ""


def _front_matter_value(value: object) -> str:
    """Return a value of opencode's settings as front matter text, as JSON if it is no string."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _join_front_value(value: FrontMatterValue) -> str:
    return value if isinstance(value, str) else " ".join(value)
