"""Parsing and validation of one settings source; errors name the file, the line and the fix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeGuard

import msgspec
from msgspec.structs import replace

from travois.compat.claude_keys import translate_claude_keys
from travois.core.errors import UserError
from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
from travois.permissions import rules
from travois.permissions.rules import (
    RULE_EFFECTS,
    PermissionRule,
    RuleEffect,
    explain_unenforceable_rule,
)
from travois.settings.schema import Json, Settings

with lazy_imports():
    import difflib
    import json

    from msgspec import inspect

    from travois.permissions import rule_examples


SettingsLevel = Literal["user", "project", "local", "run", "managed"]
NAME_KEYED_GROUPS = (
    *("env.", "providers.", "models.", "modelOverrides.", "modelPricing.overrides."),
    *("enabledPlugins.", "pluginConfigs.", "skillOverrides.", "modelSettings."),
    *("context.toolTokens.", "lsp.servers."),
)
"""Groups whose keys are names that the user gives."""
RESTRICTIVE_PREFIXES = ("permissions", "sandbox", "available", "allowed", "denied", "disable")
"""Beginnings of restrictive keys: an invalid value of one stops the start."""
PATTERN_CHARACTERS = frozenset("*?[")
"""Characters that make a path a pattern, which the sandbox cannot enforce."""
PROJECT_DIR_VARIABLE = compile_lazily(r"\$\{?(?:CLAUDE|GEMINI)_PROJECT_DIR\}?(\\?[\"'])?/")
"""The variable by which hook commands name the top of the workspace."""
SANDBOX_PATH_KEYS = tuple(
    f"sandbox.filesystem.{name}" for name in ("allowWrite", "allowRead", "denyWrite", "denyRead")
)


class SettingsLayer(msgspec.Struct, frozen=True):
    """The settings of one source, by key; `text` is the source as written."""

    where: str
    values: Json
    text: str = ""
    level: SettingsLevel = "run"
    foreign: bool = False
    """True if it was written for another agent, which knows keys that we do not."""
    base: str = ""
    """The folder that paths in its rules count from."""
    hooks: Json = {}
    rules: tuple[PermissionRule, ...] = ()
    """Rules that hold back and have no spelling of ours."""
    notices: tuple[str, ...] = ()

    @property
    def is_from_user(self) -> bool:
        """Return whether the user wrote it, not the author of the workspace."""
        return self.level not in ("project", "local")

    def locate_key(self, key: str, item: str = "") -> str:
        """Return a key of this source for messages: file, key and line."""
        line = _find_key_line(self.text, key, item)
        return f"{self.where}: {key}" + (f" (line {line})" if line else "")


def parse_settings(
    data: bytes, *, where: str, level: SettingsLevel = "run", foreign: bool = False, base: str = ""
) -> SettingsLayer:
    """Parse the text of a settings source into a layer."""
    text = data.decode("utf-8-sig", errors="replace")
    try:
        tree: object = msgspec.json.decode(text) if text.strip() else {}
    except (msgspec.DecodeError, RecursionError) as error:
        raise UserError(
            f"{where} is not valid JSON",
            why=_explain_json_error(text) or str(error),
            fix="Settings are one JSON object, without comments or trailing commas.",
        ) from None
    if not is_settings_tree(tree):
        raise UserError(
            f"{where} is not a JSON object", fix='It should look like {"model": "..."}.'
        )
    hooks = tree.pop("hooks", {})
    layer = SettingsLayer(
        where, translate_claude_keys(flatten_tree(tree)), text, level, foreign, base
    )
    if not is_settings_tree(hooks):
        why, fix = "it is not an object", 'It should look like {"PreToolUse": [...]}.'
        raise UserError(f"{layer.locate_key('hooks')} is invalid", why=why, fix=fix)
    if "\\u0000" in text:
        _refuse_nul({**layer.values, "hooks": hooks}, layer)
    return replace(layer, hooks=hooks)


def _refuse_nul(values: Json, layer: SettingsLayer) -> None:
    """Refuse a NUL in a settings value: no path, variable or command can contain one."""
    for key, value in values.items():
        if "\\u0000" in msgspec.json.encode(value).decode().replace("\\\\", ""):
            why = "it contains a NUL character, which paths, variables and commands cannot contain"
            raise UserError(f"{layer.locate_key(key)} is invalid", why=why)


def validate_layer(layer: SettingsLayer) -> SettingsLayer:
    """Check that every value in a settings layer has the type of its key, and return the layer.

    Rights that another agent's file grants in words that we do not understand are dropped.
    """
    fine = {key: value for key, value in layer.values.items() if is_known_key(key)}
    try:
        settings = msgspec.convert(nest_keys(fine), Settings)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$.")
        key = place.rstrip("`").partition("[")[0]
        if layer.foreign and key and not key.startswith(RESTRICTIVE_PREFIXES):
            return validate_layer(_drop_value(layer, key, problem))
        fix = _describe_choices(key) if problem.startswith("Invalid enum") else ""
        raise UserError(
            f"{layer.locate_key(key or 'a key')} is invalid", why=problem, fix=fix
        ) from None
    layer = _check_rules(layer, settings)
    for key in SANDBOX_PATH_KEYS:
        layer = _check_sandbox_paths(layer, key)
    if settings.permissions.examples:
        _check_examples(layer, settings)
    return layer


def _drop_value(layer: SettingsLayer, key: str, problem: str) -> SettingsLayer:
    """Drop a settings value that another agent may understand and we do not."""
    left = {k: v for k, v in layer.values.items() if k != key and not k.startswith(f"{key}.")}
    notice = f"{layer.locate_key(key)} is ignored: {problem}"
    return replace(layer, values=left, notices=(*layer.notices, notice))


def parse_layer_rules(layer: SettingsLayer, effect: RuleEffect) -> tuple[PermissionRule, ...]:
    """Parse the permission rules of a validated layer."""
    texts = as_text_list(layer.values.get(f"permissions.{effect}", ()))
    return tuple(
        rules.parse_permission_rule(t, effect, origin=layer.where, base=layer.base) for t in texts
    )


def _check_rules(layer: SettingsLayer, settings: Settings) -> SettingsLayer:
    """Drop invalid permission rules from a settings layer, with an error for each."""
    rights = settings.permissions
    for effect in RULE_EFFECTS:
        key, texts = f"permissions.{effect}", {"deny": rights.deny, "ask": rights.ask}
        for text in texts.get(effect, rights.allow):
            verdict, why = _find_rule_flaw(text, effect)
            if why:
                what = f"{layer.locate_key(key, text)} has a rule that cannot be {verdict}"
                fix = "Rules look like Bash, Bash(git diff:*) or Read(~/.ssh/**)."
                layer = _drop_item(layer, key, text, fault=UserError(what, why=why, fix=fix))
    return layer


def _find_rule_flaw(text: str, effect: RuleEffect) -> tuple[str, str]:
    """Return what is wrong with a settings file's permission rule, and why; no reason if valid."""
    try:
        why = explain_unenforceable_rule(rules.parse_permission_rule(text, effect))
    except ValueError as error:
        return "understood", str(error)
    return "enforced", f"{text!r}: {why}" if why else ""


def _check_sandbox_paths(layer: SettingsLayer, key: str) -> SettingsLayer:
    """Check that the sandbox can enforce the paths in settings; a folder may end in `/**`."""
    paths = [path.removesuffix("/**") for path in as_text_list(layer.values.get(key, ()))]
    if not paths:
        return layer
    plain = [path for path in paths if not PATTERN_CHARACTERS.intersection(path)]
    layer = replace(layer, values={**layer.values, key: plain})
    for path in paths:
        if path not in plain:
            what = f"{layer.locate_key(key, path)} has a pattern that cannot be enforced"
            fix = "Name a file or a folder; a rule such as Read(**/*.pem) may have patterns."
            layer = _drop_item(layer, key, path, fault=UserError(what, why=repr(path), fix=fix))
    return layer


def _drop_item(layer: SettingsLayer, key: str, item: str, *, fault: UserError) -> SettingsLayer:
    """Drop a right in settings written for another agent; raise the error for anything else."""
    if not layer.foreign or key not in ("permissions.allow", *SANDBOX_PATH_KEYS[:2]):
        raise fault
    left = [word for word in as_text_list(layer.values[key]) if word != item]
    notice = f"{fault.what}: {fault.why}; it is ignored"
    values = {**layer.values, key: left}
    return replace(layer, values=values, notices=(*layer.notices, notice))


def _check_examples(layer: SettingsLayer, settings: Settings) -> None:
    """Check that the rules of this layer agree with their examples."""
    found = tuple(rule for effect in RULE_EFFECTS for rule in parse_layer_rules(layer, effect))
    for example in settings.permissions.examples:
        if why := rule_examples.check_example(
            example, tuple(replace(rule, base="") for rule in found)
        ):
            fix = "Change the rule or the example; `travois permissions why` explains decisions."
            raise UserError(layer.locate_key("permissions.examples", example), why=why, fix=fix)


def _explain_json_error(text: str) -> str:
    """Explain where a settings file stops being valid JSON."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    except RecursionError:
        return "it is nested too deeply"
    return ""


def _find_key_line(text: str, key: str, item: str) -> int:
    """Return the line of a settings key, or of one list item, by searching; 0 if unknown."""
    at = 0
    for name in key.split("."):
        at = max(text.find(f'"{name}"', at), at)
    found = at if text.startswith('"', at) else -1
    for spelling in (json.dumps(item, ensure_ascii=False), json.dumps(item)) if item else ():
        found = max(found, text.find(spelling, at))
    return text.count("\n", 0, found) + 1 if found >= 0 else 0


def flatten_tree(tree: Json, shape: Json | None = None) -> Json:
    """Flatten a settings tree to dotted keys, such as `timeouts.idle`."""
    shape, found = _SETTINGS_SHAPE if shape is None else shape, Json()
    for name, value in tree.items():
        inner = shape.get(name)
        if is_settings_tree(inner) and is_settings_tree(value):
            found |= {f"{name}.{key}": each for key, each in flatten_tree(value, inner).items()}
        else:
            found[f'"{name}"' if shape and "." in name else name] = value
    return found


def nest_keys(values: Json) -> Json:
    """Nest dotted settings keys in a tree."""
    tree: Json = {}
    for key, value in values.items():
        branch, names = tree, _split_key(key)
        for name in names[:-1]:
            inner = branch.setdefault(name, {})
            assert is_settings_tree(inner)
            branch = inner
        branch[names[-1]] = value
    return tree


def _split_key(key: str) -> list[str]:
    """Split a settings key into its names; a variable's or model's name may contain dots."""
    group = next((name for name in NAME_KEYED_GROUPS if key.startswith(name)), "")
    return [*group.split(".")[:-1], key.removeprefix(group)] if group else key.split(".")


def flatten_settings(settings: Settings) -> Json:
    """Return all settings by dotted key."""
    return flatten_tree(msgspec.to_builtins(settings))


def is_settings_tree(value: object) -> TypeGuard[Json]:
    """Return whether a settings value is a JSON object."""
    return isinstance(value, dict)


def is_json_array(value: object) -> TypeGuard[list[object]]:
    """Return whether a settings value is a JSON array."""
    return isinstance(value, list)


def _describe_choices(key: str) -> str:
    """Return a hint that lists the values a setting accepts."""
    kind = inspect.type_info(Settings)
    for part in key.split("."):
        fields = kind.fields if isinstance(kind, inspect.StructType) else ()
        kind = next((field.type for field in fields if field.encode_name == part), kind)
    given = kind.values if isinstance(kind, inspect.LiteralType) else ()
    return f"Use one of: {', '.join(str(word) for word in given if word)}." if given else ""


def as_text_list(value: object) -> tuple[str, ...]:
    """Convert a settings value to a tuple of texts."""
    return msgspec.convert(value, tuple[str, ...])


def is_known_key(key: str) -> bool:
    """Return whether a settings key, or a group of settings, exists."""
    return (
        key in DEFAULT_VALUES
        or f"{key}." in NAME_KEYED_GROUPS
        or key.startswith(NAME_KEYED_GROUPS)
        or any(name.startswith(f"{key}.") for name in DEFAULT_VALUES)
    )


def find_nearest_word(word: str, among: Iterable[str]) -> str:
    """Return the known settings word most like a misspelt one; empty if none is similar."""
    return next(iter(difflib.get_close_matches(word, list(among), n=1, cutoff=0.75)), "")


_SETTINGS_SHAPE: Json = msgspec.to_builtins(Settings())
DEFAULT_VALUES = flatten_settings(Settings())
REPLACED_LISTS = frozenset(("fallbackModels", "availableModels"))
MERGED_LISTS = (
    frozenset(key for key, value in DEFAULT_VALUES.items() if isinstance(value, tuple))
    - REPLACED_LISTS
)
"""Lists to which every layer adds; anything else is taken whole from the last layer that has it."""
