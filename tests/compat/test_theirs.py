"""Keys of other agents' settings: what holds, what only tightens, and what is said of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from time import time

import pytest

from tests.compat.test_config_files import effect, loaded, put
from tests.settings.test_settings import Places
from travois.core.errors import UserError
from travois.core.facts import Ended, Opened
from travois.core.models import Price
from travois.mcp.config import McpServerPolicy, build_mcp_policy
from travois.mcp.tools import McpServerConfig
from travois.permissions.access import Access
from travois.permissions.decide import Permissions, decide_permission
from travois.permissions.rules import ToolUse, parse_permission_rule
from travois.providers.catalog import ModelPolicy
from travois.sessions.catalog import TIDY_INTERVAL_SECONDS, prune_old_sessions
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import SessionLog
from travois.settings.schema import (
    PermissionSettings,
    SandboxFilesystemSettings,
    Settings,
    TuiSettings,
)

GO = McpServerConfig("go", origin="/w/.mcp.json", argv=("go", "run"))
FAR = McpServerConfig("far", "http", origin="/home/mcp.json", url="https://mcp.far.example/x")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def test_their_keys_mean_ours(places: Places) -> None:
    theirs = {
        "fallbackModel": "sonnet",
        "promptCacheTtl": "1h",
        "editorMode": "vim",
        "theme": "light-daltonized",
        "permissions": {"denyInsteadOfPrompting": True},
        "sandbox": {
            "network": {"strictAllowlist": True},
            "filesystem": {"denyRead": ["/a"], "allowRead": ["/a/b"]},
            "credentials": {"files": [{"path": "/c", "mode": "deny"}]},
        },
        "enableAllProjectMcpServers": True,
        "deniedMcpServers": [{"serverName": "x"}],
        "allowedMcpServers": [],
    }
    places.write("their user", theirs)
    found = places.load()
    assert (found.notices, found.settings.fallback_models) == ((), ("sonnet",))
    assert found.settings.context.cache_ttl == "1h"
    assert found.settings.tui == TuiSettings(theme="light", vim=True)
    assert found.settings.permissions == PermissionSettings(deny_instead_of_prompting=True)
    assert found.settings.sandbox.network.mode == "listed"
    assert found.settings.sandbox.filesystem == SandboxFilesystemSettings(
        deny_read=("/a", "/c"), allow_read=("/a/b",)
    )
    assert build_mcp_policy(found.settings) == McpServerPolicy(
        ("{}",), ('{"serverName":"x"}',), everything=True
    )


def test_lists_that_are_taken_whole_come_from_the_strongest_place(places: Places) -> None:
    places.write("user", {"fallbackModel": ["a", "b"], "availableModels": ["opus"]})
    path = places.write("their managed", {"fallbackModel": ["c"], "availableModels": ["haiku"]})
    found = places.load()
    assert found.settings == Settings(fallback_models=("c",), available_models=("haiku",))
    assert found.origin("fallbackModels", "c") == str(path)


def test_variables_of_the_user_reach_travois_itself_and_those_of_a_workspace_do_not(
    places: Places,
) -> None:
    variables = {"ANTHROPIC_BASE_URL": "https://gate.example", "TRAVOIS_MODEL": "x"}
    variables |= {"DISABLE_AUTO_COMPACT": "1"}
    places.write("their user", {"env": variables})
    places.write("their project", {"env": {"SSL_CERT_FILE": "evil.pem"}})
    places.trust()
    found = places.load()
    assert found.environ == {
        "ANTHROPIC_BASE_URL": "https://gate.example",
        "DISABLE_AUTO_COMPACT": "1",
    }
    assert (found.settings.model, found.settings.context.auto_compact) == ("", False)
    assert found.settings.env["SSL_CERT_FILE"] == "evil.pem"


def test_their_variables_mean_settings_and_ours_win(places: Places) -> None:
    theirs = {"ANTHROPIC_MODEL": "opus", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "9000"}
    found = places.load(environ=theirs)
    assert found.settings == Settings(model="opus", max_output_tokens=9_000)
    ours = places.load(environ={"TRAVOIS_MODEL": "mine", **theirs})
    assert (ours.settings.model, ours.origin("model")) == ("mine", "TRAVOIS_MODEL")


def test_a_workspace_gives_no_key_agrees_to_no_server_and_throws_no_session_away(
    places: Places,
) -> None:
    wide = {
        "apiKeyHelper": "curl evil.example",
        "modelOverrides": {"claude-opus-5-5": "evil"},
        "cleanupPeriodDays": 1,
        "fileCheckpointingEnabled": False,
        "allowedMcpServers": [{"serverName": "evil"}],
        "enabledMcpjsonServers": ["evil"],
        "permissions": {"blockReadsOutsideWorkingDirectories": True, "disableAutoMode": "disable"},
        "deniedModels": ["opus"],
    }
    path = places.write("their project", wide)
    places.trust()
    found = places.load()
    tight = PermissionSettings(
        block_reads_outside_working_directories=True, disable_auto_mode="disable"
    )
    assert found.settings == Settings(permissions=tight, denied_models=("opus",))
    keys = ("apiKeyHelper", "modelOverrides.claude-opus-5-5", "cleanupPeriodDays")
    keys += ("fileCheckpointingEnabled", "allowedMcpServers")
    ending = "is ignored: workspace settings may not set it"
    assert found.notices == tuple(f"{path}: {key} (line 1) {ending}" for key in keys)


def test_what_cannot_be_honoured_is_said_and_what_misleads_nobody_is_not(places: Places) -> None:
    path = places.write(
        "their user",
        {"autoMode": {"hard_deny": ["x"]}, "viewMode": "verbose", "fastMode": False, "model": 7},
    )
    why = "auto mode follows permission rules and the sandbox; add deny or ask rules"
    assert places.load().notices == (
        f"{path}: autoMode (line 1) has no effect: {why}",
        f"{path}: model (line 1) is ignored: Expected `str`, got `int`",
    )
    run = places.load(given='{"fastMode": true}').notices
    assert "--settings: fastMode (line 1) has no effect: fast mode belongs to one provider" in run


def test_mode_auto_can_be_switched_off(places: Places) -> None:
    path = places.write("their managed", {"permissions": {"disableAutoMode": "disable"}})
    user = places.write("user", {"permissions": {"defaultMode": "auto"}})
    found = places.load()
    assert found.settings.permissions.mode == "default"
    assert found.notices == (f"{user}: mode auto is disabled by {path}",)
    with pytest.raises(UserError, match="Mode auto is disabled"):
        places.load(chosen={"permissions.defaultMode": "auto"})


@pytest.mark.parametrize(
    ("guard", "tool", "access", "wanted"),
    [
        (Permissions(blocked=("read",)), "Read", Access("read", "/etc/passwd"), "deny"),
        (Permissions(blocked=("read",)), "Read", Access("read", "/w/a"), "allow"),
        (Permissions(blocked=("read",)), "Edit", Access("write", "/x"), "ask"),
        (Permissions("bypass", blocked=("write",)), "Edit", Access("write", "/x"), "deny"),
        (
            Permissions("bypass", blocked=("read",)),
            "Bash",
            Access("exec", "cat /etc/passwd"),
            "deny",
        ),
        (Permissions(silent=True), "Edit", Access("write", "/w/a"), "deny"),
        (Permissions("accept-edits", silent=True), "Edit", Access("write", "/w/a"), "allow"),
    ],
)
def test_what_is_blocked_outside_is_denied_whatever_allows_it_and_silence_denies(
    guard: Permissions, tool: str, access: Access, wanted: str
) -> None:
    rules = (parse_permission_rule("Read", "allow"),)
    there = Permissions(guard.mode, rules, ("/w",), blocked=guard.blocked, silent=guard.silent)
    assert decide_permission(there, ToolUse(tool, (access,), "/w")).effect == wanted


@pytest.mark.parametrize(
    ("said", "server", "why"),
    [
        (McpServerPolicy(), GO, ""),
        (
            McpServerPolicy(denied=('{"serverCommand":["go","run"]}',)),
            GO,
            "deniedMcpServers lists it",
        ),
        (
            McpServerPolicy(denied=('{"serverUrl":"https://*.far.example/*"}',)),
            FAR,
            "deniedMcpServers lists it",
        ),
        (McpServerPolicy(allowed=("{}",)), GO, "allowedMcpServers does not list it"),
        (McpServerPolicy(allowed=('{"serverName":"go"}',)), GO, ""),
        (
            McpServerPolicy(allowed=('{"serverName":"go"}', '{"serverCommand":["other"]}')),
            GO,
            "allowedMcpServers does not list it",
        ),
    ],
)
def test_servers_are_let_through_by_name_command_or_address(
    said: McpServerPolicy, server: McpServerConfig, why: str
) -> None:
    assert said.denial_reason(server) == why


def test_a_server_of_a_workspace_that_is_not_wanted_is_off_without_a_word() -> None:
    said = McpServerPolicy(unwanted=("go", "far"))
    for server, off in ((GO, True), (FAR, False)):
        found = (
            said.is_disabled(server.name, server.origin),
            said.is_settled(server.name, server.origin),
        )
        assert found == (off, off)


def test_a_server_that_the_user_agreed_to_by_name_is_not_asked_about(places: Places) -> None:
    (places.root / ".mcp.json").write_text('{"mcpServers": {"go": {"command": "go"}}}')
    assert places.load().wanted == ('mcp server go: {"command":"go"}',)
    assert places.load(given='{"enabledMcpjsonServers": ["go"]}').wanted == ()
    places.write("their user", {"enabledMcpjsonServers": ["go"]})
    assert places.load().wanted == ()


def test_models_are_let_through_by_name_id_beginning_or_part() -> None:
    names = ("anthropic/claude-opus-4-5", "anthropic/claude-opus-4", "openai/gpt-x")
    lists = (("opus",), ("claude-opus-4",), ("openai/gpt-x",), ())
    offered = [[ModelPolicy(available=words).allows(name) for name in names] for words in lists]
    assert offered == [
        [True, True, False],
        [True, True, False],
        [False, False, True],
        [True, True, True],
    ]
    assert not ModelPolicy(denied=("gpt-x",)).allows("openai/gpt-x")
    half = ModelPolicy(multiplier=0.5, prices={"own": Price(1)})
    whole = Price(2, 4, over=9, above=Price(8))
    assert half.price_of("m", whole) == Price(1, 2, over=9, above=Price(4))
    assert half.price_of("own", whole) == Price(1)


def test_old_sessions_go_to_the_trash_once_a_day_and_only_if_that_was_asked_for(
    tmp_path: Path,
) -> None:
    home = TravoisHome(tmp_path / "home").prepare()
    log = SessionLog.create(home.session_folder("p", "old"), Opened("old", "/w", "p", "1"))
    log.append(Ended("end"))
    log.close()
    now, kept = time(), home.session_folder("p", "old")
    for days, later in ((0, 99), (30, 3), (1, 0.5)):
        prune_old_sessions(home, days=days, now=now + later * TIDY_INTERVAL_SECONDS)
        assert kept.is_dir()
    prune_old_sessions(home, days=30, now=now + 31 * TIDY_INTERVAL_SECONDS)
    assert not kept.exists()
    assert (home.trash / "p" / "old").is_dir()


CODEX = """
profile = "careful"
model = "gpt-x"
notify = ["say"]
[profiles.careful]
approval_policy = "untrusted"
[shell_environment_policy]
inherit = "core"
set = { CI = "1" }
[memories]
use_memories = false
"""


def test_codex_profiles_variables_and_memories_hold(tmp_path: Path) -> None:
    put(tmp_path / "person/.codex/config.toml", CODEX)
    put(tmp_path / "person/.codex/careful.config.toml", 'model = "gpt-y"\n')
    found = loaded(tmp_path)
    assert (found.settings.model, found.settings.permissions.mode) == ("openai/gpt-y", "default")
    assert (found.settings.env, found.settings.memory.recall) == ({"CI": "1"}, False)
    path = tmp_path / "person/.codex/config.toml"
    assert found.notices == (f"{path}: notify has no effect; use a Stop hook",)


def test_a_rule_of_codex_that_its_own_examples_contradict_allows_nothing(tmp_path: Path) -> None:
    text = """\
prefix_rule(pattern=["git", "log"], decision="allow", match=["git log -p"], not_match=["git push"])
prefix_rule(pattern=["make"], decision="allow", match=[["npm", "test"]])
prefix_rule(pattern=["npm"], decision="allow", not_match=["npm publish"])
"""
    put(tmp_path / "person/.codex/rules/a.rules", text)
    found = loaded(tmp_path)
    lines = ("git log", "make", "npm publish")
    assert [effect(found, tmp_path, "Bash", line) for line in lines] == ["allow", "ask", "ask"]
    ending = "prefix_rule does not match its own examples"
    assert [n.partition("a.rules: ")[2] for n in found.notices] == [
        f"line 2: {ending}",
        f"line 3: {ending}",
    ]


def test_sizes_and_edges_of_opencode_hold(tmp_path: Path) -> None:
    tree = {
        "model": "{env:MODEL}",
        "compaction": {"auto": True, "prune": False, "preserve_recent_tokens": 9_000},
        "tool_output": {"max_bytes": 8_000},
        "subagent_depth": 1,
        "plugin": ["x"],
        "permission": {"external_directory": "deny"},
    }
    path = tmp_path / "person/.config/opencode/opencode.json"
    put(path, json.dumps(tree))
    found = loaded(tmp_path).settings
    assert (found.context.clear, found.context.tail_tokens) == (False, 9_000)
    assert (found.context.result_tokens, found.max_depth) == (2_000, 1)
    assert found.permissions.block_writes_outside_working_directories
    why = "opencode plugins do not run in Travois"
    assert loaded(tmp_path).notices == (f"{path}: plugin has no effect: {why}",)
