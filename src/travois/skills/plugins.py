"""Plugins: folders that bring skills, commands, agents, hooks and MCP servers under one name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from travois.core.patterns import compile_lazily
from travois.permissions.paths import is_inside
from travois.prompt.instruction_files import open_exact_path, read_plain_text
from travois.settings.schema import Json, Plugin
from travois.settings.validate import is_json_array, is_settings_tree

# Where plugins are offered: folders that list several, and those that Claude Code installed.


MARKETPLACE_FILES = (
    ".claude-plugin/marketplace.json",
    ".agents/plugins/marketplace.json",
    "marketplace.json",
)


class PluginOffer(msgspec.Struct, frozen=True):
    """A folder that may be a plugin, and its entry in a marketplace."""

    folder: str
    entry: Json = {}


def read_marketplace(folder: str) -> Iterator[PluginOffer]:
    """Yield the plugins that a folder's marketplace file lists; raise ValueError if invalid."""
    path = next(
        filter(os.path.isfile, (os.path.join(folder, name) for name in MARKETPLACE_FILES)), ""
    )
    for entry in _read_plugin_entries(path) if path else ():
        if isinstance(source := entry.get("source"), str):
            yield PluginOffer(os.path.join(folder, source), entry)


def find_installed_plugins(
    folder: Path | None, wanted: Iterable[str], root: str
) -> tuple[list[PluginOffer], list[str]]:
    """Find plugins that Claude Code installed, by `name@marketplace`; return them and notices."""
    found, notices = list[PluginOffer](), list[str]()
    for id in wanted if folder is not None else ():
        assert folder is not None
        listed = folder / "installed_plugins.json"
        try:
            copies = read_json_object(listed).get("plugins") if listed.is_file() else None
            copy = _pick_install_path(copies.get(id) if is_settings_tree(copies) else None, root)
            if not copy:
                raise ValueError("it is enabled, but Claude Code has not installed it")
            found.append(PluginOffer(copy, _find_marketplace_entry(folder, id)))
        except (OSError, ValueError) as error:
            notices.append(f"plugin {id} is ignored: {error}")
    return found, notices


def read_json_object(path: Path | str) -> Json:
    """Read a plugin's JSON file; raise ValueError if it is not an object."""
    try:
        tree: object = msgspec.json.decode(
            read_plain_text(os.path.realpath(path), opener=open_exact_path)
        )
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not is_settings_tree(tree):
        raise ValueError(f"{path} is not a JSON object")
    return tree


def _pick_install_path(copies: object, root: str) -> str:
    """Return the folder of a plugin installed for all projects or for this one."""
    for copy in copies if is_json_array(copies) else [copies]:
        if is_settings_tree(copy) and isinstance(path := copy.get("installPath"), str):
            project = copy.get("projectPath")
            if not isinstance(project, str) or is_inside(root, project):
                return path
    return ""


def _find_marketplace_entry(folder: Path, id: str) -> Json:
    """Return a plugin's marketplace entry; empty if there is none."""
    name, _, market = id.partition("@")
    known = folder / "known_marketplaces.json"
    place = read_json_object(known).get(market) if known.is_file() else None
    at = str(place.get("installLocation")) if is_settings_tree(place) else ""
    offers = read_marketplace(at) if at else ()
    return next((offer.entry for offer in offers if offer.entry.get("name") == name), Json())


def _read_plugin_entries(path: str) -> Iterator[Json]:
    """Yield the plugin entries of a marketplace file."""
    listed = read_json_object(path).get("plugins")
    yield from (
        entry for entry in (listed if is_json_array(listed) else ()) if is_settings_tree(entry)
    )


MANIFEST_FILES = (".claude-plugin/plugin.json", "plugin.json", ".codex-plugin/plugin.json")
PLUGIN_NAME = compile_lazily(r"[^\W_][\w.-]{0,63}")
PLUGIN_ROOT_PLACEHOLDERS = ("${CLAUDE_PLUGIN_ROOT}", "${PLUGIN_ROOT}")
"""Placeholders for the plugin's folder."""
PLUGIN_DATA_PLACEHOLDER = "${CLAUDE_PLUGIN_DATA}"
SKILL_FILE_NAME = "SKILL.md"
UNSUPPORTED_PARTS = {
    "lspServers": ".lsp.json",
    "workflows": "workflows",
    "channels": "",
    "monitors": "monitors",
}
"""Unsupported parts of plugins, by manifest key, with their usual place."""


class PluginSettings(msgspec.Struct, frozen=True):
    """The settings of plugins."""

    enabled: tuple[str, ...] = ()
    """Enabled plugins, as `name@marketplace`."""
    switches: dict[str, bool] = {}
    """True or False for each plugin that is enabled or disabled by name."""
    options: dict[str, Json] = {}
    """Options by plugin name."""
    keeps: str = ""
    """The folder in which each has one for what it keeps."""


NO_PLUGIN_SETTINGS = PluginSettings()


def parse_plugin_settings(values: Json, *, keeps: str) -> PluginSettings:
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
    return PluginSettings(tuple(enabled), switches, options, keeps)


def load_plugins(
    paths: Iterable[str],
    base: str,
    *,
    more: Iterable[PluginOffer] = (),
    plugins: PluginSettings = NO_PLUGIN_SETTINGS,
) -> tuple[tuple[Plugin, ...], tuple[str, ...]]:
    """Load the plugins in these folders, each name once; return them and notices."""
    found, notices = dict[str, Plugin](), list[str]()
    for offer in (*_expand_offers(paths, base, notices), *more):
        try:
            plugin = _read_plugin(offer, plugins, notices)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", "") or error
            notices.append(f"plugin {offer.folder} is ignored: {why}")
            continue
        if plugin and found.setdefault(plugin.name, plugin) is not plugin:
            why = f"another plugin is named {plugin.name}"
            notices.append(f"plugin {offer.folder} is ignored: {why}")
    return tuple(found.values()), tuple(notices)


def list_plugin_folders(folder: str) -> list[str]:
    """List the plugins directly inside a folder."""
    try:
        paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    except OSError:
        return []
    return [path for path in paths if _find_manifest(path)]


def _find_manifest(folder: str) -> str:
    return next((m for m in MANIFEST_FILES if os.path.isfile(os.path.join(folder, m))), "")


def _expand_offers(paths: Iterable[str], base: str, notices: list[str]) -> Iterator[PluginOffer]:
    """Yield each plugin folder itself, or the plugins that its marketplace lists."""
    for path in paths:
        folder = os.path.realpath(os.path.join(base, os.path.expanduser(path)))
        try:
            listed = () if _find_manifest(folder) else tuple(read_marketplace(folder))
        except (OSError, ValueError) as error:
            notices.append(f"plugins in {path} are ignored: {error}")
            continue
        yield from listed or (PluginOffer(folder),)


def _read_plugin(offer: PluginOffer, plugins: PluginSettings, notices: list[str]) -> Plugin | None:
    """Read the plugin of a folder; return None if it is disabled."""
    folder = os.path.realpath(offer.folder)
    if not (manifest := _find_manifest(folder)) and not offer.entry:
        raise ValueError(f"it has no {MANIFEST_FILES[0]}")
    tree = offer.entry | (read_json_object(os.path.join(folder, manifest)) if manifest else {})
    name = str(tree.get("name") or os.path.basename(folder))
    if not PLUGIN_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid name")
    if not plugins.switches.get(name, tree.get("defaultEnabled") is not False):
        return None
    if idle := [
        key
        for key, usual in UNSUPPORTED_PARTS.items()
        if _has_unsupported_part(folder, tree, key, usual)
    ]:
        notices.append(f"plugin {name}: not supported here: {', '.join(idle)}")
    keeps = os.path.join(plugins.keeps, name) if plugins.keeps else ""
    options = _merge_options(tree, plugins.options.get(name, {}))
    if missing := [key for key, value in options.items() if value is None]:
        how = f"set it in pluginConfigs.{name}.options"
        notices.append(f"plugin {name} needs {', '.join(missing)}: {how}")
    filled = _build_folder_placeholders(folder, keeps) | _build_option_placeholders(options)
    listed = "" if manifest or "skills" not in tree else "-"
    skills = _resolve_paths(folder, tree, "skills", usual=listed)
    return Plugin(
        name=name,
        folder=folder,
        version=str(tree.get("version") or ""),
        description=str(tree.get("description") or ""),
        skills=skills
        or ((folder,) if os.path.isfile(os.path.join(folder, SKILL_FILE_NAME)) else ()),
        commands=_resolve_paths(folder, tree, "commands"),
        agents=_resolve_paths(folder, tree, "agents"),
        styles=_resolve_paths(folder, tree, "outputStyles", usual="output-styles"),
        hooks=_read_objects(folder, tree, filled, key="hooks", usual="hooks/hooks.json"),
        servers=_read_objects(folder, tree, filled, key="mcpServers", usual=".mcp.json"),
        keeps=keeps,
        lead=_read_main_agent(folder, name),
    )


def _read_main_agent(folder: str, name: str) -> str:
    """Return the agent that a plugin makes the main agent."""
    path = os.path.join(folder, "settings.json")
    agent = read_json_object(path).get("agent") if os.path.isfile(path) else None
    return f"{name}:{agent}" if isinstance(agent, str) and agent else ""


def _has_unsupported_part(folder: str, tree: Json, key: str, usual: str) -> bool:
    """Return whether a plugin has a part of this unsupported kind."""
    inner = tree.get("experimental")
    said = key in tree or (is_settings_tree(inner) and key in inner)
    return said or bool(usual and os.path.exists(os.path.join(folder, usual)))


def _resolve_paths(folder: str, tree: Json, key: str, *, usual: str = "") -> tuple[str, ...]:
    """Return a plugin's default folder and named paths, none outside the plugin."""
    paths = (
        os.path.realpath(os.path.join(folder, str(one)))
        for one in (usual or key, *_list_manifest_items(tree, key))
    )
    inner = (path for path in paths if path.startswith(f"{folder}/") and os.path.exists(path))
    return tuple(dict.fromkeys(inner))


def _list_manifest_items(tree: Json, key: str) -> list[object]:
    named = tree.get(key)
    return named if is_json_array(named) else [] if named is None else [named]


def _read_objects(
    folder: str, tree: Json, filled: Mapping[str, str], *, key: str, usual: str
) -> tuple[tuple[str, Json], ...]:
    """Return a plugin's objects from the default file, the manifest's files, or the manifest."""
    named = _list_manifest_items(tree, key)
    files = dict.fromkeys((usual, *(one for one in named if isinstance(one, str))))
    paths = (os.path.realpath(os.path.join(folder, file)) for file in files)
    read = [
        (path, read_json_object(path))
        for path in paths
        if path.startswith(f"{folder}/") and os.path.isfile(path)
    ]
    own = os.path.join(folder, _find_manifest(folder) or MANIFEST_FILES[0])
    read += ((own, one) for one in named if is_settings_tree(one))
    inner = ((path, one.get(key, one)) for path, one in read)
    return tuple(
        (path, _fill_json_placeholders(one, filled)) for path, one in inner if is_settings_tree(one)
    )


def _build_folder_placeholders(folder: str, keeps: str) -> dict[str, str]:
    """Map the placeholders for a plugin's root and data folders to their paths."""
    return dict.fromkeys(PLUGIN_ROOT_PLACEHOLDERS, folder) | (
        {PLUGIN_DATA_PLACEHOLDER: keeps} if keeps else {}
    )


def _merge_options(tree: Json, given: Json) -> Json:
    """Return the user's plugin options, with defaults; a missing required one is None."""
    asked = tree.get("userConfig")
    usual: Json = {
        key: one.get("default", None if one.get("required") is True else "")
        for key, one in (asked.items() if is_settings_tree(asked) else ())
        if is_settings_tree(one)
    }
    return usual | given


def _build_option_placeholders(options: Json) -> dict[str, str]:
    """Return a plugin's options by their placeholders."""
    said = {f"${{user_config.{key}}}": one for key, one in options.items() if one is not None}
    encode = msgspec.json.encode
    return {k: one if isinstance(one, str) else encode(one).decode() for k, one in said.items()}


def _fill_json_placeholders(tree: Json, filled: Mapping[str, str]) -> Json:
    """Replace the plugin placeholders in a JSON object."""
    text = msgspec.json.encode(tree).decode()
    for place, value in filled.items():
        if place == PLUGIN_DATA_PLACEHOLDER and place in text:
            os.makedirs(value, exist_ok=True)
        text = text.replace(place, msgspec.json.encode(value).decode()[1:-1])
    return msgspec.json.decode(text, type=Json)
