"""Import plan for Claude Code: settings, permissions, hooks, MCP servers, instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tomllib import TOMLDecodeError, loads

import msgspec

from travois.compat import agent_files, config_files, hooks
from travois.compat.claude import adapt_claude_layer
from travois.compat.config_files import parse_jsonc
from travois.compat.foreign_agent import CLAUDE, CODEX, GEMINI, OPENCODE, PI
from travois.compat.sessions.format import object_at
from travois.core.errors import UserError
from travois.files import front_matter
from travois.files.front_matter import FrontMatter
from travois.importing.plan import (
    NO_EQUIVALENT,
    ImportPlan,
    plan_files,
    plan_instructions,
    plan_servers,
    plan_skills,
    read_json_object,
)
from travois.importing.sessions import FOREIGN_TOOLS
from travois.permissions import rules
from travois.permissions.rules import READ_TOOLS, RULE_EFFECTS
from travois.prompt.instruction_files import read_plain_text
from travois.prompt.instruction_text import parse_scope_patterns
from travois.prompt.output_styles import STYLES_FOLDER
from travois.settings.schema import Json
from travois.settings.validate import (
    SettingsLayer,
    as_text_list,
    is_json_array,
    is_settings_tree,
    nest_keys,
    parse_settings,
    validate_layer,
)

NOT_IMPORTED_FILES = {
    "keybindings.json": "key bindings cannot be configured in Travois",
    "plugins": "plugins stay where they are; those enabled in Claude Code also run here",
    ".credentials.json": "logins are not imported; set an API key",
}
CLAUDE_ONLY_VARIABLES = ("ANTHROPIC_", "CLAUDE_", "DISABLE_", "MAX_THINKING")
"""How variables begin that are meant for that agent itself."""
PATH_RULE_TOOLS = ("Edit", *READ_TOOLS)


def plan_claude_import(luggage: ImportPlan, environ: Mapping[str, str]) -> None:
    """Plan the import from Claude Code, except for memories and sessions."""
    if (folder := CLAUDE.find_home(environ)) is None:
        return
    if (folder / "settings.json").is_file():
        _plan_claude_settings(luggage, folder / "settings.json")
    _plan_claude_servers(
        luggage, (folder if environ.get(CLAUDE.variable) else folder.parent) / ".claude.json"
    )
    plan_files(luggage, "agents", folder / "agents", where="agents")
    plan_files(luggage, "commands", folder / "commands", where="commands")
    plan_files(luggage, "styles", folder / STYLES_FOLDER, where=STYLES_FOLDER)
    plan_skills(luggage, folder / "skills")
    plan_instructions(luggage, "claude", folder / CLAUDE.instructions, folder=folder)
    for path in sorted((folder / "rules").rglob("*.md")):
        if parse_scope_patterns(read_plain_text(str(path))):
            luggage.skip(
                "instructions", path.name, f"rules for specific files apply only in {folder}"
            )
        else:
            plan_instructions(luggage, "claude", path, folder=folder)
    for name, why in NOT_IMPORTED_FILES.items():
        if (folder / name).exists():
            luggage.skip("settings", name, why)


def _plan_claude_settings(luggage: ImportPlan, path: Path) -> None:
    """Plan the import of Claude Code's settings: values, variables, permissions and hooks."""
    layer = parse_settings(
        path.read_bytes(), where=str(path), level="user", foreign=True, base=str(path.parent)
    )
    held = validate_layer(adapt_claude_layer(layer))
    for key, value in layer.values.items():
        if key.startswith("permissions."):
            continue
        if key.startswith("env."):
            _plan_claude_variable(
                luggage, key.removeprefix("env."), str(held.values.get(key, value))
            )
        elif key in held.values:
            luggage.add_setting("settings", key, held.values[key])
        else:
            luggage.skip("settings", key)
    for key in (key for key in layer.values if key.startswith("permissions.")):
        _plan_claude_permission(luggage, key, layer, held)
    for event, groups in layer.hooks.items():
        if is_json_array(groups):
            text = str(groups)
            why = f"its scripts stay in {path.parent}" if ".claude" in text else ""
            luggage.add_hooks(event, groups, why=why)


def _plan_claude_variable(luggage: ImportPlan, name: str, value: str) -> None:
    """Plan the import of an environment variable in Claude Code's settings."""
    if name.startswith(CLAUDE_ONLY_VARIABLES):
        luggage.skip("settings", f"env.{name}", "only Claude Code uses it")
    else:
        luggage.add_variable(name, value)


def _plan_claude_permission(
    luggage: ImportPlan, key: str, layer: SettingsLayer, held: SettingsLayer
) -> None:
    """Plan one list of permission rules, or the default mode; invalid rules are skipped."""
    if key not in held.values:
        notices = (one for one in held.notices if key in one)
        luggage.skip("permissions", key, next(notices, NO_EQUIVALENT))
        return
    effect = next((one for one in RULE_EFFECTS if key == f"permissions.{one}"), "")
    if not effect:
        luggage.add_setting("permissions", key, held.values[key])
        return
    kept = as_text_list(held.values[key])
    for text in as_text_list(layer.values[key]):
        if text not in kept:
            why = next((one for one in held.notices if text in one), NO_EQUIVALENT)
            luggage.skip("permissions", f"{key}: {text}", why.rpartition(": ")[2].partition(";")[0])
    spelt = [_anchor_path_rule(text, layer.base) for text in kept]
    fate = "kept" if spelt == list(kept) else "translated"
    luggage.add_setting("permissions", key, spelt, fate=fate)


def _anchor_path_rule(text: str, base: str) -> str:
    """Rewrite an imported path rule for our file: `/path` is relative to its old folder."""
    rule = rules.parse_permission_rule(text, "deny")
    near = rule.what.startswith("/") and not rule.what.startswith("//")
    return f"{rule.tool}(/{base}{rule.what})" if near and rule.tool in PATH_RULE_TOOLS else text


def _plan_claude_servers(luggage: ImportPlan, path: Path) -> None:
    """Plan the import of the MCP servers in Claude Code's settings."""
    tree = read_json_object(path)
    plan_servers(luggage, tree, "mcpServers")
    for place in object_at(tree, "projects"):
        for name in object_at(tree, "projects", place, "mcpServers"):
            luggage.skip(
                "mcp", name, f"it applies only in {place}; Travois reads it from {path} there"
            )


IMPORTED_CODEX_KEYS = (
    *config_files.CODEX_KEYS,
    "model",
    "model_reasoning_effort",
    "model_provider",
    "model_providers",
    "mcp_servers",
    "profiles",
    "hooks",
    "approval_policy",
    "sandbox_mode",
    "sandbox_workspace_write",
    "shell_environment_policy",
    "memories",
)
CODEX_SKIP_REASONS = {
    "projects": "trust covers a folder's content: run `travois trust` there",
    "agents": "Travois reads roles where they are",
    "notify": "use a Stop or Notification hook",
}


def plan_codex_import(luggage: ImportPlan, environ: Mapping[str, str]) -> None:
    """Plan the import from Codex, except for memories and sessions."""
    if (folder := CODEX.find_home(environ)) is None:
        return
    if (folder / "config.toml").is_file():
        _plan_codex_settings(luggage, folder / "config.toml")
    _plan_codex_hooks(luggage, read_json_object(folder / "hooks.json"))
    for path in sorted((folder / "rules").glob("*.rules")):
        _plan_codex_rules(luggage, path)
    plan_files(luggage, "commands", folder / "prompts", where="commands")
    plan_skills(luggage, folder / "skills")
    plan_instructions(luggage, "codex", folder / CODEX.instructions, folder=folder)
    if (folder / "auth.json").exists():
        luggage.skip("settings", "auth.json", "logins are not imported; set an API key")


def _plan_codex_settings(luggage: ImportPlan, path: Path) -> None:
    """Plan the import of Codex's `config.toml`: settings, profiles, MCP servers and hooks."""
    try:
        tree: Json = loads(read_plain_text(str(path)))
    except (OSError, TOMLDecodeError) as error:
        raise UserError(f"Cannot parse {path}", why=str(error)) from None
    _plan_codex_layer(luggage, config_files.parse_codex_config(tree, str(path), level="user"))
    plan_servers(luggage, tree, "mcp_servers")
    for one in config_files.read_codex_providers(tree):
        if one.why:
            luggage.skip("settings", f"model_providers.{one.name}", one.why)
    for name in object_at(tree, "profiles"):
        profile = {**tree, **object_at(tree, "profiles", name)}
        layer = config_files.parse_codex_config(profile, str(path), level="run")
        data = msgspec.json.format(msgspec.json.encode(nest_keys(layer.values)), indent=2)
        luggage.add_file("settings", f"profiles/{name}.json", data + b"\n", fate="translated")
    _plan_codex_hooks(luggage, tree)
    for key in (key for key in tree if key not in IMPORTED_CODEX_KEYS):
        luggage.skip(
            "settings",
            key,
            **({"why": CODEX_SKIP_REASONS[key]} if key in CODEX_SKIP_REASONS else {}),
        )


def _plan_codex_layer(luggage: ImportPlan, layer: SettingsLayer) -> None:
    """Plan the import of Codex settings that were translated to ours."""
    for key, value in layer.values.items():
        part = "permissions" if key.startswith(("permissions.", "sandbox.")) else "settings"
        luggage.add_setting(part, key, value, fate="translated")
    for notice in layer.notices:
        _, _, why = notice.partition(": ")
        if why.startswith("danger"):
            luggage.skip("permissions", "sandbox_mode", why)


def _plan_codex_rules(luggage: ImportPlan, path: Path) -> None:
    """Plan the import of a Codex command rules file as permission rules."""
    try:
        found, odd = config_files.parse_codex_prefix_rules(read_plain_text(str(path)))
    except (OSError, ValueError) as error:
        luggage.skip("permissions", path.name, str(error))
        return
    for effect, listed in found.items():
        value: list[object] = [*listed]
        luggage.add_setting("permissions", f"permissions.{effect}", value, fate="translated")
    for one in odd:
        luggage.skip("permissions", path.name, one)


def _plan_codex_hooks(luggage: ImportPlan, tree: Json) -> None:
    """Plan the import of the hooks in Codex's settings."""
    for event, groups in hooks.parse_codex_hooks(tree).items():
        if is_json_array(groups):
            luggage.add_hooks(event, groups)


GEMINI_TOOL_LISTS = {
    ("tools", "allowed"): "allow",
    ("allowedTools",): "allow",
    ("tools", "exclude"): "deny",
    ("excludeTools",): "deny",
}
IMPORTED_GEMINI_KEYS = (
    *("mcpServers", "model", "allowedTools", "excludeTools", "tools", "hooks", "hooksConfig"),
    "$schema",
)
RULE_TOOL_NAMES = {"Write": "Edit"}
"""Rules call all changes of files by one name."""


def plan_gemini_import(luggage: ImportPlan, environ: Mapping[str, str]) -> None:
    """Plan the import from Gemini CLI, except for sessions."""
    if (folder := GEMINI.find_home(environ)) is None:
        return
    if (folder / "settings.json").is_file():
        _plan_gemini_settings(luggage, folder / "settings.json")
    plan_files(luggage, "commands", folder / "commands", where="commands", ends=".toml")
    plan_skills(luggage, folder / "skills")
    plan_instructions(luggage, "gemini", folder / GEMINI.instructions, folder=folder)
    if (folder / "oauth_creds.json").exists():
        luggage.skip("settings", "oauth_creds.json", "logins are not imported; set GEMINI_API_KEY")


def _plan_gemini_settings(luggage: ImportPlan, path: Path) -> None:
    """Plan the import of a Gemini CLI settings file: model, MCP servers, permissions and hooks."""
    try:
        tree = parse_jsonc(read_plain_text(str(path)))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"Cannot parse {path}", why=str(error)) from None
    model = tree.get("model")
    name = model.get("name") if is_settings_tree(model) else model
    if isinstance(name, str):
        luggage.add_setting("settings", "model", f"gemini/{name}", fate="translated")
    for name, server in object_at(tree, "mcpServers").items():
        if is_settings_tree(server):
            _plan_gemini_server(luggage, name, server)
    for keys, effect in GEMINI_TOOL_LISTS.items():
        _plan_gemini_rules(luggage, tree, keys, effect)
    _plan_gemini_hooks(luggage, tree)
    for key in (key for key in tree if key not in IMPORTED_GEMINI_KEYS):
        luggage.skip("settings", key)
    for key in object_at(tree, "tools"):
        if ("tools", key) not in GEMINI_TOOL_LISTS:
            luggage.skip("settings", f"tools.{key}")


def _plan_gemini_server(luggage: ImportPlan, name: str, tree: Json) -> None:
    """Plan the import of a Gemini CLI MCP server; a bare `url` means the SSE transport."""
    events = "url" in tree and "httpUrl" not in tree and "type" not in tree
    trusted = tree.get("trust") is True
    kept = {key: value for key, value in tree.items() if key != "trust"}
    told = {**kept, "type": "sse"} if events else kept
    luggage.add_server(name, told, fate="translated" if events or trusted else "kept")


def _plan_gemini_hooks(luggage: ImportPlan, tree: Json) -> None:
    """Plan the import of the hooks in Gemini CLI's settings."""
    for event, groups in hooks.parse_gemini_hooks(tree).items():
        if is_json_array(groups):
            luggage.add_hooks(event, groups, why="they receive Gemini CLI's payloads")


def _plan_gemini_rules(luggage: ImportPlan, tree: Json, keys: tuple[str, ...], effect: str) -> None:
    """Plan the import of one tool list of Gemini CLI's settings as permission rules."""
    listed = object_at(tree, *keys[:-1]).get(keys[-1])
    texts = [str(one) for one in listed] if is_json_array(listed) else []
    kept: list[object] = []
    for text in texts:
        spelt = list(_translate_gemini_rule(text))
        kept += spelt
        if not spelt:
            luggage.skip("permissions", f"{'.'.join(keys)}: {text}")
    luggage.add_setting("permissions", f"permissions.{effect}", kept, fate="translated")


def _translate_gemini_rule(text: str) -> Iterator[str]:
    """Translate an imported Gemini CLI rule, as in `run_shell_command(git status)`."""
    name, _, what = text.partition("(")
    ours = FOREIGN_TOOLS.get(name.strip(), ("", ()))[0]
    what = what.removesuffix(")").strip()
    if ours and not what:
        yield RULE_TOOL_NAMES.get(ours, ours)
    elif ours == "Bash":
        yield f"Bash({what}:*)"


IMPORTED_OPENCODE_KEYS = (
    *("$schema", "model", "instructions", "compaction", "permission", "mcp", "agent"),
    *("command", "provider"),
)
OPENCODE_SKIP_REASONS = {
    "small_model": "Travois picks a small model of the same provider",
    "plugin": "opencode plugins do not run in Travois",
    "theme": "set `tui.theme` to dark or light",
}


def plan_opencode_import(luggage: ImportPlan, environ: Mapping[str, str]) -> None:
    """Plan the import from opencode, except for sessions."""
    if (folder := OPENCODE.find_home(environ)) is None:
        return
    for name in OPENCODE.settings[:2]:
        if (folder / name).is_file():
            _plan_opencode_settings(luggage, folder / name)
    for place in (folder / name for name in OPENCODE.agents):
        for path in sorted(place.rglob("*.md")):
            name = str(path.relative_to(place)).removesuffix(".md").replace("/", "-")
            _plan_opencode_agent(
                luggage,
                agent_files.adapt_opencode_agent(
                    front_matter.parse_front_matter(read_plain_text(str(path))), name
                ),
                name,
            )
    for _, told in agent_files.read_opencode_agents(str(folder)):
        _plan_opencode_agent(luggage, told, str(told.values["name"]))
    for name in OPENCODE.commands:
        plan_files(luggage, "commands", folder / name, where="commands")
    plan_skills(luggage, folder / "skills")
    plan_instructions(luggage, "opencode", folder / OPENCODE.instructions, folder=folder)


def _plan_opencode_settings(luggage: ImportPlan, path: Path) -> None:
    """Plan the import of an opencode settings file: permissions, MCP servers and commands."""
    try:
        tree = config_files.parse_jsonc(read_plain_text(str(path)))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"Cannot parse {path}", why=str(error)) from None
    layer = config_files.parse_opencode_config(
        {key: value for key, value in tree.items() if key != "permission"},
        str(path),
        level="user",
        base=str(path.parent),
    )
    for key, value in layer.values.items():
        luggage.add_setting("settings", key, value, fate="translated")
    if "permission" in tree:
        luggage.add_setting("permissions", "permission", tree["permission"])
    plan_servers(luggage, tree, "mcp")
    for one in config_files.read_opencode_providers(tree):
        if one.why:
            luggage.skip("settings", f"provider.{one.name}", one.why)
    for name in object_at(tree, "agent"):
        if object_at(tree, "agent", name).get("disable") is True:
            _plan_opencode_agent(luggage, None, name)
    for name in object_at(tree, "command"):
        _plan_opencode_command(luggage, name, object_at(tree, "command", name))
    for key in (key for key in tree if key not in IMPORTED_OPENCODE_KEYS):
        luggage.skip(
            "settings",
            key,
            **({"why": OPENCODE_SKIP_REASONS[key]} if key in OPENCODE_SKIP_REASONS else {}),
        )


def _plan_opencode_command(luggage: ImportPlan, name: str, said: Json) -> None:
    """Plan the import of a custom command in opencode's settings."""
    body, about = said.get("template"), str(said.get("description") or "")
    if isinstance(body, str):
        head = f"---\ndescription: {about}\n---\n" if about and "\n" not in about else ""
        data = f"{head}{body}\n".encode()
        luggage.add_file("commands", f"commands/{name}.md", data, fate="translated")


def _plan_opencode_agent(luggage: ImportPlan, front_matter: FrontMatter | None, name: str) -> None:
    """Plan the import of an opencode agent, or skip it if it is disabled or incomplete."""
    if front_matter is None:
        luggage.skip("agents", name, "it is disabled in opencode")
        return
    if not front_matter.body.strip() or "description" not in front_matter.values:
        luggage.skip("agents", name, "it has no prompt or no description")
        return
    lines = [f"{key}: {_front_matter_line(value)}" for key, value in front_matter.values.items()]
    data = "\n".join(("---", *lines, "---", front_matter.body, "")).encode()
    luggage.add_file("agents", f"agents/{name}.md", data, fate="translated")


def _front_matter_line(value: front_matter.FrontMatterValue) -> str:
    """Format an imported agent's front matter value in one line."""
    return " ".join((value if isinstance(value, str) else ", ".join(value)).split())


IMPORTED_PI_KEYS = ("defaultModel", "defaultProvider")


def plan_pi_import(luggage: ImportPlan, environ: Mapping[str, str]) -> None:
    """Plan the import from pi, except for sessions."""
    if (folder := PI.find_home(environ)) is None:
        return
    settings = read_json_object(folder / "settings.json")
    provider, model = settings.get("defaultProvider"), settings.get("defaultModel")
    if isinstance(provider, str) and isinstance(model, str):
        luggage.add_setting("settings", "model", f"{provider}/{model}", fate="translated")
    for key in (key for key in settings if key not in IMPORTED_PI_KEYS):
        luggage.skip("settings", key)
    plan_servers(luggage, read_json_object(folder.parent / "mcp.json"), "mcpServers")
    plan_files(luggage, "commands", folder / "prompts", where="commands")
    plan_skills(luggage, folder / "skills")
    plan_instructions(luggage, "pi", folder / PI.instructions, folder=folder)
    for name in ("auth.json", "extensions"):
        if (folder / name).exists():
            luggage.skip("settings", name, "pi's logins and extensions are not imported")
