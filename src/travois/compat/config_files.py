"""Settings files of Codex, opencode and Gemini CLI, translated to our settings.

The result never grants more than they did there: a right without a counterpart here is left out.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping
from itertools import product

import msgspec
from msgspec.structs import replace

from travois.compat import hooks as hookfiles
from travois.compat.claude_keys import CHARS_PER_TOKEN
from travois.compat.foreign_agent import CODEX, GEMINI, OPENCODE
from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
from travois.permissions.rules import PermissionRule, RuleEffect
from travois.prompt.instruction_files import read_plain_text
from travois.settings.schema import Json
from travois.settings.validate import SettingsLayer, SettingsLevel, is_json_array, is_settings_tree

with lazy_imports():
    import shlex
    import tomllib


CODEX_DECISIONS: dict[object, RuleEffect] = {"allow": "allow", "prompt": "ask", "forbidden": "deny"}
MAX_COMMANDS_PER_PATTERN = 64
"""The most commands that one pattern may expand to."""


def parse_codex_prefix_rules(text: str) -> tuple[dict[RuleEffect, list[str]], list[str]]:
    """Parse Codex's prefix rules as permission rules by effect, with notices about the rest.

    The strictest match wins there as here. Raises ValueError if the text is no Codex rules file.
    """
    found: dict[RuleEffect, list[str]] = {}
    notices: list[str] = []
    for call in _find_prefix_rule_calls(text):
        said = {word.arg: _literal_value(word.value) for word in call.keywords}
        effect = CODEX_DECISIONS.get(said.get("decision", "allow"))
        commands = list(_expand_command_pattern(said.get("pattern")))
        exact = effect != "allow" or not any("*" in command for command in commands)
        if not _matches_own_examples(commands, said):
            notices.append(f"line {call.lineno}: prefix_rule does not match its own examples")
            effect = "ask" if effect == "allow" else effect
        if effect is None or not commands or not exact:
            notices.append(f"line {call.lineno}: prefix_rule has no equivalent permission rule")
            continue
        found.setdefault(effect, []).extend(f"Bash({command}:*)" for command in commands)
    return found, notices


def _matches_own_examples(commands: list[str], said: dict[str | None, object]) -> bool:
    """Return whether a Codex command rule matches the examples in it, and no counterexamples."""

    def matches_example(example: object) -> bool:
        words = (
            [str(word) for word in example] if is_json_array(example) else shlex.split(str(example))
        )
        begun = (shlex.split(command) for command in commands)
        return any(words[: len(start)] == start for start in begun)

    right, wrong = said.get("match"), said.get("not_match")
    fine = all(matches_example(one) for one in right) if is_json_array(right) else True
    return fine and not (is_json_array(wrong) and any(matches_example(one) for one in wrong))


def _find_prefix_rule_calls(text: str) -> Iterator[ast.Call]:
    """Yield the `prefix_rule(...)` calls in a Codex rules file; raise ValueError if invalid."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="prefix_rule")):
                yield node
            case _:
                pass


def _literal_value(node: ast.expr) -> object:
    """Evaluate a literal in a Codex rules file; None if it is anything else."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _expand_command_pattern(pattern: object) -> Iterator[str]:
    """Yield the command prefixes of a pattern; a nested list holds alternatives."""
    if not is_json_array(pattern) or not pattern:
        return
    words = [one if is_json_array(one) else [one] for one in pattern]
    for number, chosen in enumerate(product(*words)):
        if number >= MAX_COMMANDS_PER_PATTERN or not all(
            isinstance(word, str) and word for word in chosen
        ):
            return
        yield shlex.join(str(word) for word in chosen)


# Who serves models, as Codex and opencode describe it, in the words of our catalogue.


CODEX_RESERVED_PROVIDERS = ("openai", "ollama", "lmstudio")
"""Names that Codex itself gives a meaning."""
CODEX_PROTOCOLS = {"": "responses", "responses": "responses", "chat": "chat"}
CODEX_PROVIDER_TABLES = {
    "headers": "http_headers",
    "variables": "env_http_headers",
    "query": "query_params",
}
OPENCODE_PROTOCOLS = {"@ai-sdk/openai-compatible": "chat", "@ai-sdk/openai": "responses"}
"""How opencode speaks to a provider, and which protocol that is."""
ENV_REFERENCE = compile_lazily(r"\{env:(\w+)\}")


class ForeignProvider(msgspec.Struct, frozen=True):
    """A model provider; `why` says why its entry is missing or incomplete."""

    name: str
    entry: Json = {}
    why: str = ""


def read_codex_providers(tree: Json) -> Iterator[ForeignProvider]:
    """Yield the providers of Codex."""
    for name, told in _inner_tables(tree, "model_providers"):
        url, wire = _string_at(told, "base_url"), CODEX_PROTOCOLS.get(_string_at(told, "wire_api"))
        if name in CODEX_RESERVED_PROVIDERS or not url or wire is None:
            yield ForeignProvider(name, why="it has no base URL, or its protocol is not supported")
            continue
        found, inner = (
            _build_provider(name, wire, url, _string_at(told, "env_key")),
            dict(_inner_tables(told, "")),
        )
        kept = {
            key: _stringify_values(inner.get(word, {}))
            for key, word in CODEX_PROVIDER_TABLES.items()
        }
        named = {name: f"${variable}" for name, variable in kept.pop("variables").items()}
        kept["headers"] |= named
        yield replace(found, entry=found.entry | {key: each for key, each in kept.items() if each})


def read_opencode_providers(tree: Json) -> Iterator[ForeignProvider]:
    """Yield the providers of opencode."""
    for name, told in _inner_tables(tree, "provider"):
        options = dict(_inner_tables(told, "")).get("options", {})
        url, key = _string_at(options, "baseURL"), _string_at(options, "apiKey")
        wire = OPENCODE_PROTOCOLS.get(_string_at(told, "npm"))
        if not url or wire is None:
            yield ForeignProvider(name, why="it has no base URL, or its protocol is not supported")
            continue
        found = ENV_REFERENCE.fullmatch(key)
        why = (
            "its API key is not copied; name its environment variable in key_env"
            if key and not found
            else ""
        )
        yield _build_provider(name, wire, url, found[1] if found else "", why=why)


def _build_provider(
    name: str, protocol: str, url: str, key: str, *, why: str = ""
) -> ForeignProvider:
    """Build a model provider from another agent's settings."""
    entry: Json = {"protocol": protocol, "url": url}
    return ForeignProvider(name, entry | ({"key_env": [key]} if key else {}), why)


def _inner_tables(tree: Json, key: str) -> Iterator[tuple[str, Json]]:
    """Yield the tables directly below a key of another agent's settings, or at their top level."""
    outer = tree.get(key) if key else tree
    for name, inner in outer.items() if is_settings_tree(outer) else ():
        if is_settings_tree(inner):
            yield name, inner


def _stringify_values(tree: Json) -> dict[str, str]:
    return {key: str(value) for key, value in tree.items()}


def _string_at(tree: Json, key: str) -> str:
    found = tree.get(key)
    return found if isinstance(found, str) else ""


CODEX_HOOKS_FILE = "hooks.json"
JSON_STRING_PATTERN = r'("(?:[^"\\]|\\.)*")'
JSON_COMMENT_PATTERN = "(?s)" + JSON_STRING_PATTERN + r"|//[^\n]*|/\*.*?\*/"
TRAILING_COMMA_PATTERN = JSON_STRING_PATTERN + r"|,(?=\s*[}\]])"
OPENCODE_TOOLS = {
    "*": "*", "read": "Read", "edit": "Edit", "glob": "Glob", "grep": "Grep", "bash": "Bash",
    "task": "Agent", "skill": "Skill", "webfetch": "WebFetch", "websearch": "WebSearch",
    "todowrite": "TodoWrite", "question": "AskUserQuestion",
}  # fmt: skip
PATH_TOOLS = ("Read", "Edit", "Glob", "Grep")
OPENCODE_EFFECTS: dict[object, RuleEffect] = {"allow": "allow", "ask": "ask", "deny": "deny"}
OPENCODE_DEFAULT_PERMISSIONS: Json = {
    "read": {"*.env": "deny", "*.env.*": "deny", "*.env.example": "allow"}
}
"""What opencode keeps to without being told."""
OPENCODE_KEYS = {
    ("compaction", "auto"): "context.autoCompact",
    ("compaction", "prune"): "context.clear",
    ("compaction", "preserve_recent_tokens"): "context.tailTokens",
    ("tool_output", "max_bytes"): "context.resultTokens",
}
IGNORED_OPENCODE_KEYS = {
    "plugin": "opencode plugins do not run in Travois",
    "default_agent": "name the agent when you start it",
}
OUTSIDE_BLOCK_KEYS = tuple(
    f"permissions.block{what}OutsideWorkingDirectories" for what in ("Reads", "Writes")
)
MODEL_VARIABLE_PATTERN = r'("model"\s*:\s*")\{env:(\w+)\}"'
CODEX_KEYS = {
    "model_context_window": "context.window",
    "model_auto_compact_token_limit": "context.threshold",
    "tool_output_token_limit": "context.resultTokens",
}


def read_foreign_config_files(
    folder: str, environ: Mapping[str, str], *, level: SettingsLevel
) -> Iterator[SettingsLayer]:
    """Read Codex's, Gemini CLI's and opencode's settings; opencode overrides Codex."""
    names = ("config.toml", CODEX_HOOKS_FILE, "rules")
    if level == "user":
        *codex, rules = CODEX.home_paths(environ, *names)
        gemini = GEMINI.home_paths(environ, "settings.json")
        tables = [*OPENCODE.home_paths(environ, *OPENCODE.settings[:2])]
        tables.append(environ.get("OPENCODE_CONFIG", ""))
    else:
        *codex, rules = CODEX.project_paths(folder, *names)
        gemini = GEMINI.project_paths(folder, "settings.json")
        tables = [os.path.join(folder, name) for name in OPENCODE.settings]
    for path in filter(os.path.isfile, (*codex, *gemini, *_codex_rule_files(rules), *tables)):
        try:
            text = (
                _fill_model_variable(read_plain_text(path), environ)
                if level == "user"
                else read_plain_text(path)
            )
            yield _parse_foreign_config(text, path, level=level, base=folder)
        except (OSError, ValueError, RecursionError) as error:
            yield SettingsLayer(path, {}, level=level, notices=(f"{path} is ignored: {error}",))


def _codex_rule_files(folder: str) -> list[str]:
    """Return the files with Codex's command rules."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else ()
    return [os.path.join(folder, name) for name in names if name.endswith(".rules")]


def _parse_foreign_config(
    text: str, path: str, *, level: SettingsLevel, base: str
) -> SettingsLayer:
    """Parse a settings file of Codex, Gemini CLI or opencode into a layer of our settings."""
    if path.endswith(".toml"):
        return parse_codex_config(apply_codex_profile(tomllib.loads(text), path), path, level=level)
    if path.endswith(".rules"):
        found, odd = parse_codex_prefix_rules(text)
        values: Json = {f"permissions.{effect}": rules for effect, rules in found.items()}
        told = tuple(f"{path}: {one}" for one in odd)
        return SettingsLayer(path, values, level=level, foreign=True, base=base, notices=told)
    if path.endswith((CODEX_HOOKS_FILE, *GEMINI.settings)):
        read = (
            hookfiles.parse_codex_hooks
            if path.endswith(CODEX_HOOKS_FILE)
            else hookfiles.parse_gemini_hooks
        )
        return SettingsLayer(path, {}, level=level, foreign=True, hooks=read(parse_jsonc(text)))
    return parse_opencode_config(parse_jsonc(text), path, level=level, base=base)


def parse_jsonc(text: str) -> Json:
    """Parse another agent's settings: JSON with comments and trailing commas."""
    bare = re.sub(JSON_COMMENT_PATTERN, lambda found: found[1] or " ", text)
    tree: object = msgspec.json.decode(
        re.sub(TRAILING_COMMA_PATTERN, lambda found: found[1] or "", bare) or "{}"
    )
    if not is_settings_tree(tree):
        raise ValueError("not a JSON object")
    return tree


def _fill_model_variable(text: str, environ: Mapping[str, str]) -> str:
    """Fill in a model name that opencode's settings take from a variable."""
    return re.sub(
        MODEL_VARIABLE_PATTERN, lambda found: f'{found[1]}{environ.get(found[2], "")}"', text
    )


def apply_codex_profile(tree: Json, path: str) -> Json:
    """Apply the profile that Codex's settings select, from a table or a file."""
    name = tree.get("profile")
    if not isinstance(name, str) or "/" in name:
        return tree
    file = os.path.join(os.path.dirname(path), f"{name}.config.toml")
    more: Json = tomllib.loads(read_plain_text(file)) if os.path.isfile(file) else {}
    return {**tree, **_table_at(_table_at(tree, "profiles"), name), **more}


def _table_at(tree: Json, key: str) -> Json:
    return found if is_settings_tree(found := tree.get(key)) else {}


def parse_codex_config(tree: Json, path: str, *, level: SettingsLevel) -> SettingsLayer:
    """Translate Codex's settings to ours."""
    idle = f"{path}: notify has no effect; use a Stop hook"
    values, notices = _codex_limits_and_env(tree), [idle] if "notify" in tree else []
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
    elif mode := _codex_permission_mode(sandbox, asking):
        values["permissions.defaultMode"] = mode
    support = tree.get("sandbox_workspace_write")
    if sandbox == "workspace-write" and is_settings_tree(support):
        roots = support.get("writable_roots")
        values["sandbox.filesystem.allowWrite"] = (
            [str(r) for r in roots] if is_json_array(roots) else []
        )
        values |= {"sandbox.network.mode": "on"} if support.get("network_access") is True else {}
    if level == "user":
        values |= {
            f"providers.{one.name}": one.entry for one in read_codex_providers(tree) if one.entry
        }
    told, hooks = tuple(notices), hookfiles.parse_codex_hooks(tree)
    return SettingsLayer(path, values, level=level, foreign=True, hooks=hooks, notices=told)


def _codex_limits_and_env(tree: Json) -> Json:
    """Translate Codex's sizes, variables and memory switches."""
    sizes = {ours: tree.get(theirs) for theirs, ours in CODEX_KEYS.items()}
    values: Json = {key: size for key, size in sizes.items() if isinstance(size, int) and size > 0}
    variables = _table_at(_table_at(tree, "shell_environment_policy"), "set")
    values |= {f"env.{name}": str(value) for name, value in variables.items()}
    memories = _table_at(tree, "memories")
    values |= {"memory.extract": "off"} if memories.get("generate_memories") is False else {}
    return values | ({"memory.recall": False} if memories.get("use_memories") is False else {})


def _codex_permission_mode(sandbox: object, asking: object) -> str:
    """Return the permission mode for Codex's sandbox mode and approval policy."""
    if asking == "untrusted" or (sandbox == "read-only" and asking != "never"):
        return "default"
    if sandbox == "workspace-write":
        return "auto"
    return "dont-ask" if asking == "never" else ""


def parse_opencode_config(
    tree: Json, path: str, *, level: SettingsLevel, base: str
) -> SettingsLayer:
    """Translate opencode's settings to ours."""
    values, notices = _opencode_limits(tree), tuple[str, ...]()
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
            f"providers.{one.name}": one.entry for one in read_opencode_providers(tree) if one.entry
        }
    if _table_at(tree, "permission").get("external_directory") == "deny":
        values |= dict.fromkeys(OUTSIDE_BLOCK_KEYS, True)
    idle = (
        f"{path}: {key} has no effect: {why}"
        for key, why in IGNORED_OPENCODE_KEYS.items()
        if tree.get(key)
    )
    layer = SettingsLayer(
        path, values, level=level, foreign=True, base=base, notices=(*notices, *idle)
    )
    return add_opencode_permissions(layer, tree.get("permission"))


def _opencode_limits(tree: Json) -> Json:
    """Translate opencode's size limits and agent depth."""
    told = {ours: _table_at(tree, table).get(key) for (table, key), ours in OPENCODE_KEYS.items()}
    told["maxDepth"] = tree.get("subagent_depth")
    values = {key: value for key, value in told.items() if isinstance(value, int)}
    size = values.get("context.resultTokens", 0) // CHARS_PER_TOKEN
    return {**values, **({"context.resultTokens": size} if size else {})}


def add_opencode_permissions(layer: SettingsLayer, said: object) -> SettingsLayer:
    """Translate a table of opencode permissions to our rules; the last match decides."""
    path, base = layer.where, layer.base
    table = list(
        _parse_opencode_rules(said if is_settings_tree(said) else {"*": said}, path, base=base)
    )
    free = [rule.text for rule in table if rule.effect == "allow" and _is_within_workspace(rule)]
    held = layer.values.get("permissions.allow")
    allow = [*(held if is_json_array(held) else ()), *free]
    values = {**layer.values, "permissions.allow": allow} if free else layer.values
    rules = _restrictive_rules(
        [*_parse_opencode_rules(OPENCODE_DEFAULT_PERMISSIONS, path, base=base), *table]
    )
    return msgspec.structs.replace(layer, values=values, rules=rules)


def _is_within_workspace(rule: PermissionRule) -> bool:
    """Return whether an opencode allow rule stays in the workspace."""
    return rule.tool != "*" and not (rule.tool in PATH_TOOLS and rule.what.startswith(("/", "~")))


def _parse_opencode_rules(table: Json, path: str, *, base: str) -> Iterator[PermissionRule]:
    """Yield the rules of an opencode permission table, in order."""
    for key, said in table.items():
        tool = OPENCODE_TOOLS.get(key, key if key.startswith("mcp") else "")
        for pattern, word in (said if is_settings_tree(said) else {"*": said}).items():
            if tool and (effect := OPENCODE_EFFECTS.get(word)):
                yield PermissionRule(
                    tool, _translate_opencode_pattern(tool, pattern, effect), effect, path, base
                )


def _translate_opencode_pattern(tool: str, pattern: str, effect: RuleEffect) -> str:
    """Translate a pattern: in opencode a star also matches across folders."""
    if set(pattern) <= {"*"}:
        return "./**" if tool in PATH_TOOLS and effect == "allow" else ""
    deep = tool in PATH_TOOLS and effect != "allow" and pattern.endswith("/*")
    return f"{pattern}*" if deep else pattern


def _restrictive_rules(ordered: list[PermissionRule]) -> tuple[PermissionRule, ...]:
    """Return opencode's ask and deny rules, each with the later exceptions that override it."""
    return tuple(
        msgspec.structs.replace(rule, unless=_later_exceptions(rule, ordered[at + 1 :]))
        for at, rule in enumerate(ordered)
        if rule.effect != "allow"
    )


def _later_exceptions(
    rule: PermissionRule, others: list[PermissionRule]
) -> tuple[PermissionRule, ...]:
    """Return the later opencode rules of another effect as exceptions to a permission rule."""
    about = (o for o in others if rule.tool in ("*", o.tool) and o.effect != rule.effect)
    return tuple(msgspec.structs.replace(other, effect="allow") for other in about)
