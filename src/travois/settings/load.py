"""Merging of settings files, variables and flags: the later source wins, denials stay."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from travois.agents import agent_files
from travois.compat import claude
from travois.compat.claude_keys import unlike
from travois.compat.foreign_agent import CLAUDE
from travois.core.errors import UserError
from travois.mcp import config
from travois.permissions.decide import ALIASES, Mode
from travois.permissions.masking import MASKED, likely, mask_value, register
from travois.permissions.paths import inside
from travois.permissions.rules import EFFECTS, Rule, remark
from travois.sessions.home import Home
from travois.settings import trust
from travois.settings.schema import Json, Loaded, Plugin, Settings
from travois.settings.sources import PREFIX, Where, files, levels, read, run
from travois.settings.trust import RUN, scripts, sift
from travois.settings.validate import (
    DEFAULTS,
    UNITED,
    Layer,
    Level,
    checked,
    is_tree,
    known,
    nearest,
    nested,
    parsed_rules,
    words,
)
from travois.skills import skill_files
from travois.skills.plugins import installed, plugins, wished

ETC = Path("/etc")
FLAGS = "command line"
BYPASS = "permissions.disableBypassPermissionsMode"
AUTO = "permissions.disableAutoMode"

Value = str | int | float | bool | tuple[str, ...]


def load(
    home: Home,
    root: str,
    *,
    environ: Mapping[str, str],
    cwd: str = "",
    given: str = "",
    chosen: Mapping[str, Value] | None = None,
    sources: str = "",
    etc: Path = ETC,
) -> Loaded:
    """Load and merge the settings of a workspace.

    `given` is a file or a JSON object for this run; `chosen` are flags, by key; `sources` names the
    files that count, if not all do. The administrator's settings come last: nothing overrides them.
    """
    where = Where(home, root, cwd or root, trust.root(root))
    stack = _Stack(where, theirs=CLAUDE.home(environ))
    for level in levels(sources):
        for layer in files(where, level, environ):
            stack.lay(layer)
        if level == "user":
            stack.settle()
    for layer in run(where, given, {**environ, **stack.environ}, notices=stack.notices):
        stack.lay(layer)
    for key, value in (chosen or {}).items():
        stack.lay(Layer(FLAGS, {key: value}, base=where.cwd))
    for path in (*claude.managed(etc), etc / "travois" / "settings.json"):
        own = path.parent.name == "travois"
        for layer in read(path, level="managed", own=own):
            stack.lay(layer)
    if "project" in levels(sources):
        stack.wanted += config.wanted(where, environ, admission=config.admission(stack.settings))
    return stack.loaded()


class _Stack:
    """The merge of settings layers, in the order in which they are added."""

    def __init__(self, where: Where, *, theirs: Path | None) -> None:
        self.where = where
        self.installed = theirs / "plugins" if theirs else None
        self.values: Json = dict(DEFAULTS)
        self.origins: dict[str, str] = dict.fromkeys(DEFAULTS, "default")
        self.notices: list[str] = []
        self.rules: dict[tuple[str, ...], Rule] = {}
        self.hooks: list[tuple[Level, str, Json]] = []
        self.wanted: list[str] = []
        self.theirs: set[str] = set()
        self.environ: dict[str, str] = {}
        self.files: list[str] = []
        self.agreed = trust.agreed(where.home, where.trusted)
        self.held: Json = dict(DEFAULTS)

    def settle(self) -> None:
        """Freeze the user's values: workspace settings are compared with them."""
        self.held = dict(self.values)

    def lay(self, layer: Layer) -> None:
        """Add one more layer on top."""
        layer = checked(claude.adapted(layer))
        self.theirs |= {layer.where} if layer.foreign else set()
        self.notices += layer.notices
        self.notices += [_stray(layer, key) for key in layer.values if not known(key)]
        values = {key: value for key, value in layer.values.items() if known(key)}
        layer = msgspec.structs.replace(layer, values=values)
        self.files += [layer.where] if layer.where.startswith("/") else []
        if layer.ours:
            self.environ |= _variables(layer)
        else:
            layer = self._sifted(layer)
        for key, value in layer.values.items():
            self._set(key, value, where=layer.where)
        spelt = (rule for effect in EFFECTS for rule in parsed_rules(layer, effect))
        for rule in (*layer.rules, *spelt):
            self._rule(rule, layer)
        if layer.hooks:
            self.hooks.append((layer.level, layer.where, layer.hooks))

    def _sifted(self, layer: Layer) -> Layer:
        found = sift(layer, self.held, agreed=self.agreed, places=self.where.places)
        self.wanted += (text for text in found.wanted if text not in self.wanted)
        self.notices += [
            f"{layer.at(key)} is ignored: workspace settings may not set it" for key in found.never
        ]
        return msgspec.structs.replace(layer, values=found.values, hooks=found.hooks)

    def _set(self, key: str, value: object, *, where: str) -> None:
        if key not in UNITED:
            self.values[key], self.origins[key] = value, where
            return
        held = words(self.values[key])
        fresh = [word for word in dict.fromkeys(words(value)) if word not in held]
        self.values[key] = [*held, *fresh]
        self.origins |= {f"{key}[{word}]": where for word in fresh}
        if fresh:
            earlier = self.origins[key] if held else ""
            self.origins[key] = f"{earlier}, {where}" if earlier else where

    def _rule(self, rule: Rule, layer: Layer) -> None:
        """Add a rule, unless the very same is there: `/path` means another file in each place."""
        anchored = rule.what.startswith("/") and not rule.what.startswith("//")
        same = (rule.effect, rule.tool, rule.what, rule.base if anchored else "")
        same += tuple(other.text for other in rule.unless)
        if same in self.rules:
            return
        self.rules[same] = rule
        if why := remark(rule) or (anchored and _astray(rule)):
            place = layer.at(f"permissions.{rule.effect}", rule.text)
            self.notices.append(f"{place}: {rule.text} {why}")

    @property
    def settings(self) -> Settings:
        """The settings merged so far."""
        return msgspec.convert(nested(self.values), Settings)

    def loaded(self) -> Loaded:
        """Return the merged settings with their origins, rules, hooks and notices."""
        self._forbid(BYPASS, "bypass")
        self._forbid(AUTO, "auto")
        plugged = self._plug()
        running = self._running()
        hooks = tuple((where, tree) for _, where, tree in running)
        ours = frozenset(where for level, where, _ in running if level not in ("project", "local"))
        brought: list[Json] = [{text: ""} for text in self.wanted if text.startswith("hooks: ")]
        trees = (*(tree for _, tree in hooks), *brought, {RUN: self.values[RUN]})
        run = (path for tree in trees for path in scripts(tree, self.where.places))
        files = tuple(dict.fromkeys(run))
        status = trust.status(self.where.home, self.where.trusted, self.wanted)
        found = [
            rule for effect in EFFECTS for rule in self.rules.values() if rule.effect == effect
        ]
        settings, where = self.settings, self.where
        changed = trust.changes(where.home, where.trusted, self.wanted, places=where.places)
        register(likely((*settings.env.items(), *self.environ.items())))
        register(_secret_leaves(self.values))
        return Loaded(
            settings=settings,
            origins=self.origins,
            notices=(*self.notices, *self._left_out(), *_told_changes(where.trusted, changed)),
            places=where.places,
            changed=changed,
            borrowed=frozenset(k for k, where in self.origins.items() if where in self.theirs),
            rules=(*(Rule("Edit", f"/{f}", "ask", "a hook runs it") for f in files), *found),
            hooks=hooks,
            own_hooks=ours - {path for plugin in plugged for path, _ in plugin.hooks},
            scripts=files,
            trust=status,
            root=self.where.trusted,
            plugins=plugged,
            wanted=tuple(self.wanted),
            environ=self.environ,
            files=tuple(dict.fromkeys(self.files)),
        )

    def _plug(self) -> tuple[Plugin, ...]:
        """Add the hooks of plugins and note what workspace skills ask for; return the plugins."""
        root, keeps = self.where.root, str(self.where.home.path / "plugin-data")
        wishes = wished(self.values, keeps=keeps)
        more, missing = installed(self.installed, wishes.enabled, root)
        found, notices = plugins(words(self.values["plugins"]), root, more=more, wishes=wishes)
        self.notices += (*missing, *notices)
        for plugin in found:
            level = "project" if inside(plugin.folder, self.where.root) else "user"
            for path, tree in plugin.hooks:
                self.lay(Layer(path, {}, level=level, hooks=tree))
        fresh = skill_files.wishes(self.where.root, self.where.cwd, found)
        fresh = (
            *fresh,
            *agent_files.wishes(self.where.root, self.where.cwd),
            *config.wishes(found, self.where),
        )
        self.wanted += (text for text in fresh if text not in self.wanted)
        return found

    def _running(self) -> list[tuple[Level, str, Json]]:
        """Return the enabled hooks; an administrator's are disabled only by the same file."""
        if not self.values["disableAllHooks"]:
            return self.hooks
        by = self.origins["disableAllHooks"]
        return [hook for hook in self.hooks if hook[0] == "managed" and hook[1] != by]

    def _left_out(self) -> Iterator[str]:
        fresh = [text for text in self.wanted if trust.digest(text) not in self.agreed]
        if fresh:
            kinds = ", ".join(dict.fromkeys(text.partition(":")[0] for text in fresh))
            yield (
                f"{self.where.trusted} is not trusted with {len(fresh)} of its settings, "
                f"which are ignored ({kinds}); review them with `travois trust`"
            )

    def _forbid(self, switch: str, name: Mode) -> None:
        """Leave a permission mode that was disabled."""
        mode, by = "permissions.defaultMode", self.origins[switch]
        if (
            not self.values[switch]
            or ALIASES.get(str(self.values[mode]), self.values[mode]) != name
        ):
            return
        if self.origins[mode] == FLAGS:
            raise UserError(f"Mode {name} is disabled", why=f"{switch} in {by}")
        self.notices.append(f"{self.origins[mode]}: mode {name} is disabled by {by}")
        self._set(mode, "default", where=by)


def _variables(layer: Layer) -> dict[str, str]:
    """Return the variables that a layer sets, without TRAVOIS_ ones."""
    keys = (key for key in layer.values if key.startswith("env."))
    named = {key.removeprefix("env."): str(layer.values[key]) for key in keys}
    return {name: value for name, value in named.items() if not name.startswith(PREFIX)}


def _told_changes(root: str, changed: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield one line about changed files behind trusted commands."""
    files = list(dict.fromkeys(file for each in changed.values() for file in each))
    if files:
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        yield (
            f"{root}: files of trusted hooks or MCP servers have changed since you trusted them "
            f"({', '.join(files[:3])}{more}); list them with `travois trust --changed`, "
            "accept them with `travois trust`"
        )


def _secret_leaves(tree: Json) -> Iterator[tuple[str, str]]:
    """Yield the texts in settings that are secrets by name or place."""
    for key, value in tree.items():
        if is_tree(value):
            below = {f"{key}.{name}": each for name, each in value.items()}
            yield from _secret_leaves(below)
        elif (
            isinstance(value, str)
            and not key.startswith("env.")
            and mask_value(key, value) == MASKED
        ):
            yield key.rpartition(".")[2], value


def _stray(layer: Layer, key: str) -> str:
    if why := unlike(key):
        return f"{layer.at(key)} has no effect: {why}"
    near = nearest(key, DEFAULTS)
    return f"{layer.at(key)} is not a setting" + (f"; did you mean {near}?" if near else "")


def _astray(rule: Rule) -> str:
    """Return why a deny or ask rule probably misses its target: `/etc` counts from its base."""
    top = rule.what.strip("/").partition("/")[0]
    there = os.path.exists(os.path.join("/", top)) and "*" not in top
    if rule.effect == "allow" or not there or os.path.exists(os.path.join(rule.base, top)):
        return ""
    return f"means a path below {rule.base}; write /{rule.what} for an absolute path"
