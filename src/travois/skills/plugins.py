"""Plugins: folders that bring skills, commands, agents, hooks and MCP servers under one name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from travois.permissions.paths import is_inside
from travois.prompt.instruction_files import exactly, plain_text
from travois.settings.schema import Json, Plugin
from travois.settings.validate import is_json_array, is_settings_tree

# Where plugins are offered: folders that list several, and those that Claude Code installed.


LISTS = (".claude-plugin/marketplace.json", ".agents/plugins/marketplace.json", "marketplace.json")


class Offer(msgspec.Struct, frozen=True):
    """A folder that may be a plugin, and its entry in a marketplace."""

    folder: str
    entry: Json = {}


def offered(folder: str) -> Iterator[Offer]:
    """Yield the plugins that a folder's marketplace file lists; raise ValueError if invalid."""
    path = next(filter(os.path.isfile, (os.path.join(folder, name) for name in LISTS)), "")
    for entry in _entries(path) if path else ():
        if isinstance(source := entry.get("source"), str):
            yield Offer(os.path.join(folder, source), entry)


def installed(
    folder: Path | None, wanted: Iterable[str], root: str
) -> tuple[list[Offer], list[str]]:
    """Find plugins that Claude Code installed, by `name@marketplace`; return them and notices."""
    found, notices = list[Offer](), list[str]()
    for id in wanted if folder is not None else ():
        assert folder is not None
        listed = folder / "installed_plugins.json"
        try:
            copies = table(listed).get("plugins") if listed.is_file() else None
            copy = _fitting(copies.get(id) if is_settings_tree(copies) else None, root)
            if not copy:
                raise ValueError("it is enabled, but Claude Code has not installed it")
            found.append(Offer(copy, _described(folder, id)))
        except (OSError, ValueError) as error:
            notices.append(f"plugin {id} is ignored: {error}")
    return found, notices


def table(path: Path | str) -> Json:
    """Read a JSON object from a file; raise ValueError if it is not one."""
    try:
        tree: object = msgspec.json.decode(plain_text(os.path.realpath(path), opener=exactly))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not is_settings_tree(tree):
        raise ValueError(f"{path} is not a JSON object")
    return tree


def _fitting(copies: object, root: str) -> str:
    """Return the folder of an installed copy for all projects or for this one."""
    for copy in copies if is_json_array(copies) else [copies]:
        if is_settings_tree(copy) and isinstance(path := copy.get("installPath"), str):
            project = copy.get("projectPath")
            if not isinstance(project, str) or is_inside(root, project):
                return path
    return ""


def _described(folder: Path, id: str) -> Json:
    """Return a plugin's marketplace entry; empty if there is none."""
    name, _, market = id.partition("@")
    known = folder / "known_marketplaces.json"
    place = table(known).get(market) if known.is_file() else None
    at = str(place.get("installLocation")) if is_settings_tree(place) else ""
    offers = offered(at) if at else ()
    return next((offer.entry for offer in offers if offer.entry.get("name") == name), Json())


def _entries(path: str) -> Iterator[Json]:
    listed = table(path).get("plugins")
    yield from (
        entry for entry in (listed if is_json_array(listed) else ()) if is_settings_tree(entry)
    )


MANIFESTS = (".claude-plugin/plugin.json", "plugin.json", ".codex-plugin/plugin.json")
NAME = re.compile(r"[^\W_][\w.-]{0,63}")
ROOTS = ("${CLAUDE_PLUGIN_ROOT}", "${PLUGIN_ROOT}")
"""Placeholders for the plugin's folder."""
KEEPS = "${CLAUDE_PLUGIN_DATA}"
SKILL = "SKILL.md"
IDLE = {
    "lspServers": ".lsp.json",
    "workflows": "workflows",
    "channels": "",
    "monitors": "monitors",
}
"""Unsupported parts of plugins, by manifest key, with their usual place."""


class Wishes(msgspec.Struct, frozen=True):
    """The settings of plugins."""

    enabled: tuple[str, ...] = ()
    """Enabled plugins, as `name@marketplace`."""
    switches: dict[str, bool] = {}
    """True or False for each plugin that is enabled or disabled by name."""
    options: dict[str, Json] = {}
    """Options by plugin name."""
    keeps: str = ""
    """The folder in which each has one for what it keeps."""


NONE = Wishes()


def wished(values: Json, *, keeps: str) -> Wishes:
    """Parse plugin settings from settings keys."""
    switches, options, enabled = dict[str, bool](), dict[str, Json](), list[str]()
    for key, value in values.items():
        group, _, id = key.partition(".")
        name = id.partition("@")[0]
        if group == "enabledPlugins" and id:
            switches[name] = bool(value) or switches.get(name, False)
            enabled += [id] if value and "@" in id else []
        elif group == "pluginConfigs" and is_settings_tree(value):
            options[name] = inner if is_settings_tree(inner := value.get("options")) else {}
    return Wishes(tuple(enabled), switches, options, keeps)


def plugins(
    paths: Iterable[str], base: str, *, more: Iterable[Offer] = (), wishes: Wishes = NONE
) -> tuple[tuple[Plugin, ...], tuple[str, ...]]:
    """Load the plugins in these folders, each name once; return them and notices."""
    found, notices = dict[str, Plugin](), list[str]()
    for offer in (*_offers(paths, base, notices), *more):
        try:
            plugin = _read(offer, wishes, notices)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", "") or error
            notices.append(f"plugin {offer.folder} is ignored: {why}")
            continue
        if plugin and found.setdefault(plugin.name, plugin) is not plugin:
            why = f"another plugin is named {plugin.name}"
            notices.append(f"plugin {offer.folder} is ignored: {why}")
    return tuple(found.values()), tuple(notices)


def within(folder: str) -> list[str]:
    """List the plugins directly inside a folder."""
    try:
        paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    except OSError:
        return []
    return [path for path in paths if _manifest(path)]


def _manifest(folder: str) -> str:
    return next((m for m in MANIFESTS if os.path.isfile(os.path.join(folder, m))), "")


def _offers(paths: Iterable[str], base: str, notices: list[str]) -> Iterator[Offer]:
    """Yield each folder itself, or the plugins that it lists."""
    for path in paths:
        folder = os.path.realpath(os.path.join(base, os.path.expanduser(path)))
        try:
            listed = () if _manifest(folder) else tuple(offered(folder))
        except (OSError, ValueError) as error:
            notices.append(f"plugins in {path} are ignored: {error}")
            continue
        yield from listed or (Offer(folder),)


def _read(offer: Offer, wishes: Wishes, notices: list[str]) -> Plugin | None:
    """Read the plugin of a folder; return None if it is disabled."""
    folder = os.path.realpath(offer.folder)
    if not (manifest := _manifest(folder)) and not offer.entry:
        raise ValueError(f"it has no {MANIFESTS[0]}")
    tree = offer.entry | (table(os.path.join(folder, manifest)) if manifest else {})
    name = str(tree.get("name") or os.path.basename(folder))
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid name")
    if not wishes.switches.get(name, tree.get("defaultEnabled") is not False):
        return None
    if idle := [key for key, usual in IDLE.items() if _idle(folder, tree, key, usual)]:
        notices.append(f"plugin {name}: not supported here: {', '.join(idle)}")
    keeps = os.path.join(wishes.keeps, name) if wishes.keeps else ""
    options = _options(tree, wishes.options.get(name, {}))
    if missing := [key for key, value in options.items() if value is None]:
        how = f"set it in pluginConfigs.{name}.options"
        notices.append(f"plugin {name} needs {', '.join(missing)}: {how}")
    filled = _places(folder, keeps) | _spelt(options)
    listed = "" if manifest or "skills" not in tree else "-"
    skills = _paths(folder, tree, "skills", usual=listed)
    return Plugin(
        name=name,
        folder=folder,
        version=str(tree.get("version") or ""),
        description=str(tree.get("description") or ""),
        skills=skills or ((folder,) if os.path.isfile(os.path.join(folder, SKILL)) else ()),
        commands=_paths(folder, tree, "commands"),
        agents=_paths(folder, tree, "agents"),
        styles=_paths(folder, tree, "outputStyles", usual="output-styles"),
        hooks=_trees(folder, tree, filled, key="hooks", usual="hooks/hooks.json"),
        servers=_trees(folder, tree, filled, key="mcpServers", usual=".mcp.json"),
        keeps=keeps,
        lead=_lead(folder, name),
    )


def _lead(folder: str, name: str) -> str:
    """Return the agent that a plugin makes the main agent."""
    path = os.path.join(folder, "settings.json")
    agent = table(path).get("agent") if os.path.isfile(path) else None
    return f"{name}:{agent}" if isinstance(agent, str) and agent else ""


def _idle(folder: str, tree: Json, key: str, usual: str) -> bool:
    """Return whether a plugin has a part of this unsupported kind."""
    inner = tree.get("experimental")
    said = key in tree or (is_settings_tree(inner) and key in inner)
    return said or bool(usual and os.path.exists(os.path.join(folder, usual)))


def _paths(folder: str, tree: Json, key: str, *, usual: str = "") -> tuple[str, ...]:
    """Return the default folder and the named paths, none outside of the plugin."""
    paths = (
        os.path.realpath(os.path.join(folder, str(one)))
        for one in (usual or key, *_listed(tree, key))
    )
    inner = (path for path in paths if path.startswith(f"{folder}/") and os.path.exists(path))
    return tuple(dict.fromkeys(inner))


def _listed(tree: Json, key: str) -> list[object]:
    named = tree.get(key)
    return named if is_json_array(named) else [] if named is None else [named]


def _trees(
    folder: str, tree: Json, filled: Mapping[str, str], *, key: str, usual: str
) -> tuple[tuple[str, Json], ...]:
    """Return objects from the default file, files that the manifest names, or the manifest."""
    named = _listed(tree, key)
    files = dict.fromkeys((usual, *(one for one in named if isinstance(one, str))))
    paths = (os.path.realpath(os.path.join(folder, file)) for file in files)
    read = [
        (path, table(path))
        for path in paths
        if path.startswith(f"{folder}/") and os.path.isfile(path)
    ]
    own = os.path.join(folder, _manifest(folder) or MANIFESTS[0])
    read += ((own, one) for one in named if is_settings_tree(one))
    inner = ((path, one.get(key, one)) for path, one in read)
    return tuple((path, _filled(one, filled)) for path, one in inner if is_settings_tree(one))


def _places(folder: str, keeps: str) -> dict[str, str]:
    return dict.fromkeys(ROOTS, folder) | ({KEEPS: keeps} if keeps else {})


def _options(tree: Json, given: Json) -> Json:
    """Return the user's options, with defaults; a missing required one is None."""
    asked = tree.get("userConfig")
    usual: Json = {
        key: one.get("default", None if one.get("required") is True else "")
        for key, one in (asked.items() if is_settings_tree(asked) else ())
        if is_settings_tree(one)
    }
    return usual | given


def _spelt(options: Json) -> dict[str, str]:
    """Return the options by their placeholders."""
    said = {f"${{user_config.{key}}}": one for key, one in options.items() if one is not None}
    encode = msgspec.json.encode
    return {k: one if isinstance(one, str) else encode(one).decode() for k, one in said.items()}


def _filled(tree: Json, filled: Mapping[str, str]) -> Json:
    """Replace the placeholders in a JSON object."""
    text = msgspec.json.encode(tree).decode()
    for place, value in filled.items():
        if place == KEEPS and place in text:
            os.makedirs(value, exist_ok=True)
        text = text.replace(place, msgspec.json.encode(value).decode()[1:-1])
    return msgspec.json.decode(text, type=Json)
