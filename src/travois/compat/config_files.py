"""Settings files of Codex, opencode and Gemini CLI, translated to our settings.

What they give is never wider than what they gave there: a right that has no like here is left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from travois.compat import hooks as hookfiles
from travois.compat.claude_keys import LETTERS
from travois.compat.foreign_agent import CODEX, GEMINI, OPENCODE
from travois.permissions.rules import PermissionRule, RuleEffect
from travois.prompt.instruction_files import plain_text
from travois.settings.schema import Json
from travois.settings.validate import SettingsLayer, SettingsLevel, is_json_array, is_settings_tree

# Who serves models, as Codex and opencode describe it, in the words of our catalogue.


RESERVED = ("openai", "ollama", "lmstudio")
"""Names that Codex itself gives a meaning."""
WIRES = {"": "responses", "responses": "responses", "chat": "chat"}
MORE = {"headers": "http_headers", "variables": "env_http_headers", "query": "query_params"}
PACKAGES = {"@ai-sdk/openai-compatible": "chat", "@ai-sdk/openai": "responses"}
"""How opencode speaks to a provider, and which protocol that is."""
ENV = re.compile(r"\{env:(\w+)\}")


class Described(msgspec.Struct, frozen=True):
    """A model provider; `why` says why its entry is missing or incomplete."""

    name: str
    entry: Json = {}
    why: str = ""


def codex_providers(tree: Json) -> Iterator[Described]:
    """Yield the providers of Codex."""
    for name, told in _tables(tree, "model_providers"):
        url, wire = _text(told, "base_url"), WIRES.get(_text(told, "wire_api"))
        if name in RESERVED or not url or wire is None:
            yield Described(name, why="it has no base URL, or its protocol is not supported")
            continue
        found, inner = _described(name, wire, url, _text(told, "env_key")), dict(_tables(told, ""))
        kept = {key: _texts(inner.get(word, {})) for key, word in MORE.items()}
        named = {name: f"${variable}" for name, variable in kept.pop("variables").items()}
        kept["headers"] |= named
        yield replace(found, entry=found.entry | {key: each for key, each in kept.items() if each})


def opencode_providers(tree: Json) -> Iterator[Described]:
    """Yield the providers of opencode."""
    for name, told in _tables(tree, "provider"):
        options = dict(_tables(told, "")).get("options", {})
        url, key = _text(options, "baseURL"), _text(options, "apiKey")
        wire = PACKAGES.get(_text(told, "npm"))
        if not url or wire is None:
            yield Described(name, why="it has no base URL, or its protocol is not supported")
            continue
        found = ENV.fullmatch(key)
        why = (
            "its API key is not copied; name its environment variable in key_env"
            if key and not found
            else ""
        )
        yield _described(name, wire, url, found[1] if found else "", why=why)


def _described(name: str, protocol: str, url: str, key: str, *, why: str = "") -> Described:
    entry: Json = {"protocol": protocol, "url": url}
    return Described(name, entry | ({"key_env": [key]} if key else {}), why)


def _tables(tree: Json, key: str) -> Iterator[tuple[str, Json]]:
    """Yield the tables inside one, or inside one of its own."""
    outer = tree.get(key) if key else tree
    for name, inner in outer.items() if is_settings_tree(outer) else ():
        if is_settings_tree(inner):
            yield name, inner


def _texts(tree: Json) -> dict[str, str]:
    return {key: str(value) for key, value in tree.items()}


def _text(tree: Json, key: str) -> str:
    found = tree.get(key)
    return found if isinstance(found, str) else ""


HOOKS = "hooks.json"
STRINGS = r'("(?:[^"\\]|\\.)*")'
COMMENT = "(?s)" + STRINGS + r"|//[^\n]*|/\*.*?\*/"
COMMA = STRINGS + r"|,(?=\s*[}\]])"
TOOLS = {
    "*": "*", "read": "Read", "edit": "Edit", "glob": "Glob", "grep": "Grep", "bash": "Bash",
    "task": "Agent", "skill": "Skill", "webfetch": "WebFetch", "websearch": "WebSearch",
    "todowrite": "TodoWrite", "question": "AskUserQuestion",
}  # fmt: skip
PATHS = ("Read", "Edit", "Glob", "Grep")
EFFECTS: dict[object, RuleEffect] = {"allow": "allow", "ask": "ask", "deny": "deny"}
ENV_FILES: Json = {"read": {"*.env": "deny", "*.env.*": "deny", "*.env.example": "allow"}}
"""What opencode keeps to without being told."""
OPENCODE_KEYS = {
    ("compaction", "auto"): "context.autoCompact",
    ("compaction", "prune"): "context.clear",
    ("compaction", "preserve_recent_tokens"): "context.tailTokens",
    ("tool_output", "max_bytes"): "context.resultTokens",
}
IDLE = {
    "plugin": "opencode plugins do not run in Travois",
    "default_agent": "name the agent when you start it",
}
BLOCKED = tuple(f"permissions.block{what}OutsideWorkingDirectories" for what in ("Reads", "Writes"))
VARIABLE = r'("model"\s*:\s*")\{env:(\w+)\}"'
CODEX_KEYS = {
    "model_context_window": "context.window",
    "model_auto_compact_token_limit": "context.threshold",
    "tool_output_token_limit": "context.resultTokens",
}


def files(
    folder: str, environ: Mapping[str, str], *, level: SettingsLevel
) -> Iterator[SettingsLayer]:
    """Read the settings of a project or user: Codex first, which opencode overrides."""
    names = ("config.toml", HOOKS, "rules")
    if level == "user":
        *codex, rules = CODEX.within_home(environ, *names)
        gemini = GEMINI.within_home(environ, "settings.json")
        tables = [*OPENCODE.within_home(environ, *OPENCODE.settings[:2])]
        tables.append(environ.get("OPENCODE_CONFIG", ""))
    else:
        *codex, rules = CODEX.within_project(folder, *names)
        gemini = GEMINI.within_project(folder, "settings.json")
        tables = [os.path.join(folder, name) for name in OPENCODE.settings]
    for path in filter(os.path.isfile, (*codex, *gemini, *_rules(rules), *tables)):
        try:
            text = _filled(plain_text(path), environ) if level == "user" else plain_text(path)
            yield _layer(text, path, level=level, base=folder)
        except (OSError, ValueError, RecursionError) as error:
            yield SettingsLayer(path, {}, level=level, notices=(f"{path} is ignored: {error}",))


def _rules(folder: str) -> list[str]:
    """Return the files with Codex's command rules."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else ()
    return [os.path.join(folder, name) for name in names if name.endswith(".rules")]


def _layer(text: str, path: str, *, level: SettingsLevel, base: str) -> SettingsLayer:
    if path.endswith(".toml"):
        from tomllib import loads

        return codex(profiled(loads(text), path), path, level=level)
    if path.endswith(".rules"):
        from travois.compat.prefix_rules import prefixes

        found, odd = prefixes(text)
        values: Json = {f"permissions.{effect}": rules for effect, rules in found.items()}
        told = tuple(f"{path}: {one}" for one in odd)
        return SettingsLayer(path, values, level=level, foreign=True, base=base, notices=told)
    if path.endswith((HOOKS, *GEMINI.settings)):
        read = hookfiles.codex if path.endswith(HOOKS) else hookfiles.gemini
        return SettingsLayer(path, {}, level=level, foreign=True, hooks=read(loose(text)))
    return opencode(loose(text), path, level=level, base=base)


def loose(text: str) -> Json:
    """Parse JSON with comments and trailing commas."""
    bare = re.sub(COMMENT, lambda found: found[1] or " ", text)
    tree: object = msgspec.json.decode(re.sub(COMMA, lambda found: found[1] or "", bare) or "{}")
    if not is_settings_tree(tree):
        raise ValueError("not a JSON object")
    return tree


def _filled(text: str, environ: Mapping[str, str]) -> str:
    """Fill in a model name that opencode takes from a variable."""
    return re.sub(VARIABLE, lambda found: f'{found[1]}{environ.get(found[2], "")}"', text)


def profiled(tree: Json, path: str) -> Json:
    """Apply the profile that Codex's settings select, from a table or a file."""
    name = tree.get("profile")
    if not isinstance(name, str) or "/" in name:
        return tree
    from tomllib import loads

    file = os.path.join(os.path.dirname(path), f"{name}.config.toml")
    more: Json = loads(plain_text(file)) if os.path.isfile(file) else {}
    return {**tree, **_inner(_inner(tree, "profiles"), name), **more}


def _inner(tree: Json, key: str) -> Json:
    return found if is_settings_tree(found := tree.get(key)) else {}


def codex(tree: Json, path: str, *, level: SettingsLevel) -> SettingsLayer:
    """Translate Codex's settings."""
    idle = f"{path}: notify has no effect; use a Stop hook"
    values, notices = _besides(tree), [idle] if "notify" in tree else []
    if isinstance(model := tree.get("model"), str):
        values["model"] = f"{tree.get('model_provider') or 'openai'}/{model}"
    if isinstance(effort := tree.get("model_reasoning_effort"), str):
        values["effortLevel"] = "low" if effort == "minimal" else effort
    if is_json_array(named := tree.get("project_doc_fallback_filenames")):
        values["instructions"] = [str(name) for name in named]
    sandbox, asking = tree.get("sandbox_mode"), tree.get("approval_policy")
    if sandbox == "danger-full-access":
        notices.append(
            f"{path}: danger-full-access is ignored; use --permission-mode bypass instead"
        )
    elif mode := _mode(sandbox, asking):
        values["permissions.defaultMode"] = mode
    walls = tree.get("sandbox_workspace_write")
    if sandbox == "workspace-write" and is_settings_tree(walls):
        roots = walls.get("writable_roots")
        values["sandbox.filesystem.allowWrite"] = (
            [str(r) for r in roots] if is_json_array(roots) else []
        )
        values |= {"sandbox.network.mode": "on"} if walls.get("network_access") is True else {}
    if level == "user":
        values |= {f"providers.{one.name}": one.entry for one in codex_providers(tree) if one.entry}
    told, hooks = tuple(notices), hookfiles.codex(tree)
    return SettingsLayer(path, values, level=level, foreign=True, hooks=hooks, notices=told)


def _besides(tree: Json) -> Json:
    """Translate Codex's sizes, variables and memory switches."""
    sizes = {ours: tree.get(theirs) for theirs, ours in CODEX_KEYS.items()}
    values: Json = {key: size for key, size in sizes.items() if isinstance(size, int) and size > 0}
    variables = _inner(_inner(tree, "shell_environment_policy"), "set")
    values |= {f"env.{name}": str(value) for name, value in variables.items()}
    memories = _inner(tree, "memories")
    values |= {"memory.extract": "off"} if memories.get("generate_memories") is False else {}
    return values | ({"memory.recall": False} if memories.get("use_memories") is False else {})


def _mode(sandbox: object, asking: object) -> str:
    """Return the permission mode for Codex's sandbox mode and approval policy."""
    if asking == "untrusted" or (sandbox == "read-only" and asking != "never"):
        return "default"
    if sandbox == "workspace-write":
        return "auto"
    return "dont-ask" if asking == "never" else ""


def opencode(tree: Json, path: str, *, level: SettingsLevel, base: str) -> SettingsLayer:
    """Translate opencode's settings."""
    values, notices = _sized(tree), tuple[str, ...]()
    if isinstance(model := tree.get("model"), str) and model and "{" not in model:
        values["model"] = model
    if is_json_array(listed := tree.get("instructions")):
        away = [str(one) for one in listed if "://" in str(one)]
        values["instructions"] = [str(one) for one in listed if str(one) not in away]
        notices = tuple(
            f"{path}: {one} is ignored: instructions must be local files" for one in away
        )
    if level == "user":
        values |= {
            f"providers.{one.name}": one.entry for one in opencode_providers(tree) if one.entry
        }
    if _inner(tree, "permission").get("external_directory") == "deny":
        values |= dict.fromkeys(BLOCKED, True)
    idle = (f"{path}: {key} has no effect: {why}" for key, why in IDLE.items() if tree.get(key))
    layer = SettingsLayer(
        path, values, level=level, foreign=True, base=base, notices=(*notices, *idle)
    )
    return ordered(layer, tree.get("permission"))


def _sized(tree: Json) -> Json:
    """Translate opencode's sizes and its agent depth."""
    told = {ours: _inner(tree, table).get(key) for (table, key), ours in OPENCODE_KEYS.items()}
    told["maxDepth"] = tree.get("subagent_depth")
    values = {key: value for key, value in told.items() if isinstance(value, int)}
    size = values.get("context.resultTokens", 0) // LETTERS
    return {**values, **({"context.resultTokens": size} if size else {})}


def ordered(layer: SettingsLayer, said: object) -> SettingsLayer:
    """Add a table of opencode permissions, of which the last match decides."""
    path, base = layer.where, layer.base
    table = list(_entries(said if is_settings_tree(said) else {"*": said}, path, base=base))
    free = [rule.text for rule in table if rule.effect == "allow" and _held(rule)]
    held = layer.values.get("permissions.allow")
    allow = [*(held if is_json_array(held) else ()), *free]
    values = {**layer.values, "permissions.allow": allow} if free else layer.values
    rules = _tight([*_entries(ENV_FILES, path, base=base), *table])
    return msgspec.structs.replace(layer, values=values, rules=rules)


def _held(rule: PermissionRule) -> bool:
    """Return whether an allow rule stays in the workspace, where opencode asks nothing."""
    return rule.tool != "*" and not (rule.tool in PATHS and rule.what.startswith(("/", "~")))


def _entries(table: Json, path: str, *, base: str) -> Iterator[PermissionRule]:
    """Yield the rules of a permission table, in order."""
    for key, said in table.items():
        tool = TOOLS.get(key, key if key.startswith("mcp") else "")
        for pattern, word in (said if is_settings_tree(said) else {"*": said}).items():
            if tool and (effect := EFFECTS.get(word)):
                yield PermissionRule(tool, _what(tool, pattern, effect), effect, path, base)


def _what(tool: str, pattern: str, effect: RuleEffect) -> str:
    """Translate a pattern: in opencode a star also matches across folders."""
    if set(pattern) <= {"*"}:
        return "./**" if tool in PATHS and effect == "allow" else ""
    deep = tool in PATHS and effect != "allow" and pattern.endswith("/*")
    return f"{pattern}*" if deep else pattern


def _tight(ordered: list[PermissionRule]) -> tuple[PermissionRule, ...]:
    """Return the ask and deny rules, each with the later exceptions that override it."""
    return tuple(
        msgspec.structs.replace(rule, unless=_later(rule, ordered[at + 1 :]))
        for at, rule in enumerate(ordered)
        if rule.effect != "allow"
    )


def _later(rule: PermissionRule, others: list[PermissionRule]) -> tuple[PermissionRule, ...]:
    about = (o for o in others if rule.tool in ("*", o.tool) and o.effect != rule.effect)
    return tuple(msgspec.structs.replace(other, effect="allow") for other in about)
