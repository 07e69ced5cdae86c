"""Merging settings files, variables and flags: the later source wins, denials stay."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from travois.agents import agent_files
from travois.compat import claude
from travois.compat.claude_keys import explain_unsupported_key
from travois.compat.foreign_agent import CLAUDE
from travois.core.errors import UserError
from travois.extensions.entry_points import Package, find_packages
from travois.lsp.discovery import describe_project_servers
from travois.mcp import config
from travois.permissions.decide import MODE_ALIASES, PermissionMode
from travois.permissions.paths import is_inside
from travois.permissions.rules import RULE_EFFECTS, PermissionRule, explain_misleading_rule
from travois.permissions.secrets import MASK_TEXT, find_likely_secrets, mask_value, register_secrets
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.schema import Json, LoadedSettings, Plugin, Settings
from travois.settings.sources import (
    VARIABLE_PREFIX,
    SettingsPlaces,
    parse_setting_sources,
    read_level_files,
    read_run_settings,
    read_settings_file,
)
from travois.settings.trust import STATUS_LINE_KEY, restrict_workspace_layer, script_paths
from travois.settings.validate import (
    DEFAULT_VALUES,
    MERGED_LISTS,
    SettingsLayer,
    SettingsLevel,
    as_text_list,
    find_nearest_word,
    is_known_key,
    is_settings_tree,
    nest_keys,
    parse_layer_rules,
    validate_layer,
)
from travois.skills import skill_files
from travois.skills.plugins import find_installed_plugins, load_plugins, parse_plugin_settings

ETC_FOLDER = Path("/etc")
PACKAGES_FILE = "packages.json"
"""The file with the installed packages that extend Travois."""
COMMAND_LINE = "command line"
DISABLE_BYPASS_KEY = "permissions.disableBypassPermissionsMode"
DISABLE_AUTO_KEY = "permissions.disableAutoMode"

SettingValue = str | int | float | bool | tuple[str, ...]


def load_settings(
    home: TravoisHome,
    root: str,
    *,
    environ: Mapping[str, str],
    cwd: str = "",
    given: str = "",
    chosen: Mapping[str, SettingValue] | None = None,
    sources: str = "",
    etc: Path = ETC_FOLDER,
) -> LoadedSettings:
    """Load and merge a workspace's settings.

    `given` is a file or a JSON object for this run; `chosen` are flags, by key; `sources` names the
    files that count, if not all do. The administrator's settings come last: nothing overrides them.
    """
    where = SettingsPlaces(home, root, cwd or root, trust.trust_root(root))
    stack = _SettingsMerge(where, theirs=CLAUDE.find_home(environ))
    for level in parse_setting_sources(sources):
        for layer in read_level_files(where, level, environ):
            stack.add_layer(layer)
        if level == "user":
            stack.freeze_user_values()
    for layer in read_run_settings(
        where, given, {**environ, **stack.environ}, notices=stack.notices
    ):
        stack.add_layer(layer)
    for key, value in (chosen or {}).items():
        stack.add_layer(SettingsLayer(COMMAND_LINE, {key: value}, base=where.cwd))
    for path in (*claude.managed_claude_settings(etc), etc / "travois" / "settings.json"):
        own = path.parent.name == "travois"
        for layer in read_settings_file(path, level="managed", own=own):
            stack.add_layer(layer)
    if "project" in parse_setting_sources(sources):
        stack.wanted += config.describe_workspace_servers(
            where, environ, admission=config.build_mcp_policy(stack.settings)
        )
        stack.wanted += describe_project_servers(stack.settings.lsp, environ, root=where.cwd)
    return stack.to_loaded_settings()


class _SettingsMerge:
    """The merge of settings layers, in the order in which they are added."""

    def __init__(self, where: SettingsPlaces, *, theirs: Path | None) -> None:
        self.where = where
        self.installed = theirs / "plugins" if theirs else None
        self.values: Json = dict(DEFAULT_VALUES)
        self.origins: dict[str, str] = dict.fromkeys(DEFAULT_VALUES, "default")
        self.notices: list[str] = []
        self.rules: dict[tuple[str, ...], PermissionRule] = {}
        self.hooks: list[tuple[SettingsLevel, str, Json]] = []
        self.wanted: list[str] = []
        self.theirs: set[str] = set()
        self.environ: dict[str, str] = {}
        self.files: list[str] = []
        self.agreed = trust.list_agreed_digests(where.home, where.trusted)
        self.held: Json = dict(DEFAULT_VALUES)

    def freeze_user_values(self) -> None:
        """Freeze the user's values: workspace settings are compared with them."""
        self.held = dict(self.values)

    def add_layer(self, layer: SettingsLayer) -> None:
        """Add one more layer on top."""
        layer = validate_layer(claude.adapt_claude_layer(layer))
        self.theirs |= {layer.where} if layer.foreign else set()
        self.notices += layer.notices
        self.notices += [
            _describe_unknown_key(layer, key) for key in layer.values if not is_known_key(key)
        ]
        values = {key: value for key, value in layer.values.items() if is_known_key(key)}
        layer = msgspec.structs.replace(layer, values=values)
        self.files += [layer.where] if layer.where.startswith("/") else []
        if layer.is_from_user:
            self.environ |= _layer_variables(layer)
        else:
            layer = self._restrict_layer(layer)
        for key, value in layer.values.items():
            self._set_value(key, value, where=layer.where)
        spelt = (rule for effect in RULE_EFFECTS for rule in parse_layer_rules(layer, effect))
        for rule in (*layer.rules, *spelt):
            self._add_rule(rule, layer)
        if layer.hooks:
            self.hooks.append((layer.level, layer.where, layer.hooks))

    def _restrict_layer(self, layer: SettingsLayer) -> SettingsLayer:
        found = restrict_workspace_layer(
            layer, self.held, agreed=self.agreed, places=self.where.places
        )
        self.wanted += (text for text in found.wanted if text not in self.wanted)
        self.notices += [
            f"{layer.locate_key(key)} is ignored: workspace settings may not set it"
            for key in found.never
        ]
        return msgspec.structs.replace(layer, values=found.values, hooks=found.hooks)

    def _set_value(self, key: str, value: object, *, where: str) -> None:
        if key not in MERGED_LISTS:
            self.values[key], self.origins[key] = value, where
            return
        held = as_text_list(self.values[key])
        fresh = [word for word in dict.fromkeys(as_text_list(value)) if word not in held]
        self.values[key] = [*held, *fresh]
        self.origins |= {f"{key}[{word}]": where for word in fresh}
        if fresh:
            earlier = self.origins[key] if held else ""
            self.origins[key] = f"{earlier}, {where}" if earlier else where

    def _add_rule(self, rule: PermissionRule, layer: SettingsLayer) -> None:
        """Add a rule, unless the very same is there: `/path` means another file in each place."""
        anchored = rule.what.startswith("/") and not rule.what.startswith("//")
        same = (rule.effect, rule.tool, rule.what, rule.base if anchored else "")
        same += tuple(other.text for other in rule.unless)
        if same in self.rules:
            return
        self.rules[same] = rule
        if why := explain_misleading_rule(rule) or (anchored and _describe_misplaced_path(rule)):
            place = layer.locate_key(f"permissions.{rule.effect}", rule.text)
            self.notices.append(f"{place}: {rule.text} {why}")

    @property
    def settings(self) -> Settings:
        """The settings merged so far."""
        return msgspec.convert(nest_keys(self.values), Settings)

    def to_loaded_settings(self) -> LoadedSettings:
        """Return the merged settings with their origins, rules, hooks and notices."""
        self._disable_mode(DISABLE_BYPASS_KEY, "bypass")
        self._disable_mode(DISABLE_AUTO_KEY, "auto")
        plugged, packages = self._add_plugins(), self._find_packages()
        running = self._list_enabled_hooks()
        hooks = tuple((where, tree) for _, where, tree in running)
        ours = frozenset(where for level, where, _ in running if level not in ("project", "local"))
        brought: list[Json] = [{text: ""} for text in self.wanted if text.startswith("hooks: ")]
        trees = (
            *(tree for _, tree in hooks),
            *brought,
            {STATUS_LINE_KEY: self.values[STATUS_LINE_KEY]},
        )
        run = (path for tree in trees for path in script_paths(tree, self.where.places))
        files = tuple(dict.fromkeys(run))
        status = trust.trust_status(self.where.home, self.where.trusted, self.wanted)
        found = [
            rule for effect in RULE_EFFECTS for rule in self.rules.values() if rule.effect == effect
        ]
        settings, where = self.settings, self.where
        changed = trust.find_changed_files(
            where.home, where.trusted, self.wanted, places=where.places
        )
        register_secrets(find_likely_secrets((*settings.env.items(), *self.environ.items())))
        register_secrets(_find_secret_values(self.values))
        return LoadedSettings(
            settings=settings,
            origins=self.origins,
            notices=(
                *self.notices,
                *self._describe_untrusted(),
                *_describe_changed_files(where.trusted, changed),
            ),
            places=where.places,
            changed=changed,
            borrowed=frozenset(k for k, where in self.origins.items() if where in self.theirs),
            rules=(
                *(PermissionRule("Edit", f"/{f}", "ask", "a hook runs it") for f in files),
                *found,
            ),
            hooks=hooks,
            own_hooks=ours - {path for plugin in plugged for path, _ in plugin.hooks},
            scripts=files,
            trust=status,
            root=self.where.trusted,
            plugins=plugged,
            packages=packages,
            wanted=tuple(self.wanted),
            environ=self.environ,
            files=tuple(dict.fromkeys(self.files)),
        )

    def _add_plugins(self) -> tuple[Plugin, ...]:
        """Add the hooks of plugins and note what workspace skills ask for; return the plugins."""
        root, keeps = self.where.root, str(self.where.home.path / "plugin-data")
        wishes = parse_plugin_settings(self.values, keeps=keeps)
        more, missing = find_installed_plugins(self.installed, wishes.enabled, root)
        found, notices = load_plugins(
            as_text_list(self.values["plugins"]), root, more=more, plugins=wishes
        )
        self.notices += (*missing, *notices)
        for plugin in found:
            level = "project" if is_inside(plugin.folder, self.where.root) else "user"
            for path, tree in plugin.hooks:
                self.add_layer(SettingsLayer(path, {}, level=level, hooks=tree))
        fresh = skill_files.list_skill_requests(self.where.root, self.where.cwd, found)
        fresh = (
            *fresh,
            *agent_files.list_agent_hook_requests(self.where.root, self.where.cwd),
            *config.describe_plugin_servers(found, self.where),
        )
        self.wanted += (text for text in fresh if text not in self.wanted)
        return found

    def _find_packages(self) -> tuple[Package, ...]:
        """Find the packages that extend Travois; those inside the workspace need trust."""
        off = {name.lower() for name in as_text_list(self.values["disabledPackages"])}
        found: list[Package] = []
        for package in find_packages(sys.path, cache=self.where.home.path / PACKAGES_FILE):
            within = is_inside(os.path.realpath(package.folder), self.where.root)
            if within and package.request not in self.wanted:
                self.wanted.append(package.request)
            agreed = not within or trust.digest_request(package.request) in self.agreed
            if agreed and package.name.lower() not in off:
                found.append(package)
        return tuple(found)

    def _list_enabled_hooks(self) -> list[tuple[SettingsLevel, str, Json]]:
        """Return the enabled hooks; an administrator's are disabled only by the same file."""
        if not self.values["disableAllHooks"]:
            return self.hooks
        by = self.origins["disableAllHooks"]
        return [hook for hook in self.hooks if hook[0] == "managed" and hook[1] != by]

    def _describe_untrusted(self) -> Iterator[str]:
        fresh = [text for text in self.wanted if trust.digest_request(text) not in self.agreed]
        if fresh:
            kinds = ", ".join(dict.fromkeys(text.partition(":")[0] for text in fresh))
            yield (
                f"{self.where.trusted} is not trusted with {len(fresh)} of its settings, "
                f"which are ignored ({kinds}); review them with `travois trust`"
            )

    def _disable_mode(self, switch: str, name: PermissionMode) -> None:
        """Leave a permission mode that was disabled."""
        mode, by = "permissions.defaultMode", self.origins[switch]
        if (
            not self.values[switch]
            or MODE_ALIASES.get(str(self.values[mode]), self.values[mode]) != name
        ):
            return
        if self.origins[mode] == COMMAND_LINE:
            raise UserError(f"Mode {name} is disabled", why=f"{switch} in {by}")
        self.notices.append(f"{self.origins[mode]}: mode {name} is disabled by {by}")
        self._set_value(mode, "default", where=by)


def _layer_variables(layer: SettingsLayer) -> dict[str, str]:
    """Return the environment variables that a settings layer sets, without TRAVOIS_ ones."""
    keys = (key for key in layer.values if key.startswith("env."))
    named = {key.removeprefix("env."): str(layer.values[key]) for key in keys}
    return {name: value for name, value in named.items() if not name.startswith(VARIABLE_PREFIX)}


def _describe_changed_files(root: str, changed: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """Describe the changed files behind trusted commands in the settings, one line each."""
    files = list(dict.fromkeys(file for each in changed.values() for file in each))
    if files:
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        yield (
            f"{root}: files of trusted hooks or MCP servers have changed since you trusted them "
            f"({', '.join(files[:3])}{more}); list them with `travois trust --changed`, "
            "accept them with `travois trust`"
        )


def _find_secret_values(tree: Json) -> Iterator[tuple[str, str]]:
    """Yield the secrets in settings, by name or place."""
    for key, value in tree.items():
        if is_settings_tree(value):
            below = {f"{key}.{name}": each for name, each in value.items()}
            yield from _find_secret_values(below)
        elif (
            isinstance(value, str)
            and not key.startswith("env.")
            and mask_value(key, value) == MASK_TEXT
        ):
            yield key.rpartition(".")[2], value


def _describe_unknown_key(layer: SettingsLayer, key: str) -> str:
    """Describe a settings key that has no effect, with the nearest known one."""
    if why := explain_unsupported_key(key):
        return f"{layer.locate_key(key)} has no effect: {why}"
    near = find_nearest_word(key, DEFAULT_VALUES)
    return f"{layer.locate_key(key)} is not a setting" + (f"; did you mean {near}?" if near else "")


def _describe_misplaced_path(rule: PermissionRule) -> str:
    """Return why a settings file's path rule probably misses its target; empty if it does not."""
    top = rule.what.strip("/").partition("/")[0]
    there = os.path.exists(os.path.join("/", top)) and "*" not in top
    if rule.effect == "allow" or not there or os.path.exists(os.path.join(rule.base, top)):
        return ""
    return f"means a path below {rule.base}; write /{rule.what} for an absolute path"
