"""Plugins: a folder that brings skills, commands, agents, hooks and more under one name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import msgspec

from travois.store.instructions import exactly, plain_text
from travois.store.reading import is_list, is_tree
from travois.store.settings import Json, Plugin

MANIFESTS = (".claude-plugin/plugin.json", "plugin.json", ".codex-plugin/plugin.json")
NAME = re.compile(r"[^\W_][\w.-]{0,63}")
ROOTS = ("${CLAUDE_PLUGIN_ROOT}", "${PLUGIN_ROOT}")
"""How the files of a plugin name its folder."""


def plugins(paths: Iterable[str], base: str) -> tuple[tuple[Plugin, ...], tuple[str, ...]]:
    """The plugins in these folders, each name once, and what is wrong with others."""
    found, notices = dict[str, Plugin](), list[str]()
    for path in paths:
        folder = os.path.realpath(os.path.join(base, os.path.expanduser(path)))
        try:
            plugin = _read(folder)
        except (OSError, ValueError) as error:
            notices.append(f"plugin {path} is left out: {getattr(error, 'strerror', '') or error}")
            continue
        if found.setdefault(plugin.name, plugin) is not plugin:
            notices.append(f"plugin {path} is left out: another one is called {plugin.name}")
    return tuple(found.values()), tuple(notices)


def within(folder: str) -> list[str]:
    """The plugins that lie in a folder, each in one of its own."""
    try:
        paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    except OSError:
        return []
    return [path for path in paths if any(os.path.isfile(f"{path}/{m}") for m in MANIFESTS)]


def _read(folder: str) -> Plugin:
    manifest = next((m for m in MANIFESTS if os.path.isfile(os.path.join(folder, m))), "")
    if not manifest:
        raise ValueError(f"there is no {MANIFESTS[0]} in it")
    tree = _json(os.path.join(folder, manifest))
    name = str(tree.get("name") or os.path.basename(folder))
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name")
    return Plugin(
        name=name,
        folder=folder,
        version=str(tree.get("version") or ""),
        description=str(tree.get("description") or ""),
        skills=_folders(folder, tree, "skills"),
        commands=_folders(folder, tree, "commands"),
        agents=_folders(folder, tree, "agents"),
        styles=_folders(folder, tree, "outputStyles", usual="output-styles"),
        hooks=_trees(folder, tree, manifest, key="hooks", usual="hooks/hooks.json"),
        servers=_trees(folder, tree, manifest, key="mcpServers", usual=".mcp.json"),
    )


def _folders(folder: str, tree: Json, key: str, *, usual: str = "") -> tuple[str, ...]:
    """The usual folder and those that are named besides; none that is outside."""
    named = tree.get(key)
    listed = named if is_list(named) else [named] if isinstance(named, str) else []
    paths = (os.path.realpath(os.path.join(folder, str(one))) for one in (usual or key, *listed))
    inner = (path for path in paths if path.startswith(f"{folder}/") and os.path.isdir(path))
    return tuple(dict.fromkeys(inner))


def _trees(
    folder: str, tree: Json, manifest: str, *, key: str, usual: str
) -> tuple[tuple[str, Json], ...]:
    """Objects of a kind: in the usual file, in one that the manifest names, or in itself."""
    named = tree.get(key)
    files = dict.fromkeys((usual, named) if isinstance(named, str) else (usual,))
    paths = (os.path.realpath(os.path.join(folder, file)) for file in files)
    read = [
        (path, _json(path))
        for path in paths
        if path.startswith(f"{folder}/") and os.path.isfile(path)
    ]
    if is_tree(named):
        read.append((os.path.join(folder, manifest), named))
    inner = ((path, one.get(key, one)) for path, one in read)
    return tuple((path, _rooted(one, folder)) for path, one in inner if is_tree(one))


def _rooted(tree: Json, folder: str) -> Json:
    """The same with the plugin's folder in place of its variable."""
    text, path = msgspec.json.encode(tree).decode(), msgspec.json.encode(folder).decode()[1:-1]
    for root in ROOTS:
        text = text.replace(root, path)
    return msgspec.json.decode(text, type=Json)


def _json(path: str) -> Json:
    try:
        tree: object = msgspec.json.decode(plain_text(os.path.realpath(path), opener=exactly))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not is_tree(tree):
        raise ValueError(f"{path} is not a JSON object")
    return tree
