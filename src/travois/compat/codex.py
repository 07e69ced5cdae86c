"""Agent roles of Codex, read as our agent files."""

from __future__ import annotations

import os
from collections.abc import Iterator

from travois.files.front_matter import FrontMatter, FrontMatterValue
from travois.lazy_imports import lazy_imports
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
