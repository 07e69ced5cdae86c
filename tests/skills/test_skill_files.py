"""Finding skills, output styles and plugins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from travois.agents.agent_files import load_agent_types
from travois.prompt.output_styles import load_styles
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.load import load_settings
from travois.settings.schema import LoadedSettings
from travois.skills.command_files import load_commands
from travois.skills.plugins import load_plugins, parse_plugin_settings
from travois.skills.skill_files import DiskSkills, SkillPlaces, list_skill_requests


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def skill(folder: Path, name: str, body: str = "Body.", head: str = "") -> None:
    put(folder / "skills" / name / "SKILL.md", f"---\ndescription: d\n{head}---\n{body}")


@pytest.fixture
def places(tmp_path: Path) -> SkillPlaces:
    root = tmp_path / "repo"
    (root / "sub").mkdir(parents=True)
    return SkillPlaces(
        TravoisHome(tmp_path / "home"),
        str(root),
        str(root / "sub"),
        environ={"HOME": str(tmp_path / "person")},
        etc=tmp_path / "etc",
    )


def test_the_machines_come_first_then_the_users_and_folders_inside_keep_their_name(
    tmp_path: Path, places: SkillPlaces
) -> None:
    root = tmp_path / "repo"
    skill(tmp_path / "etc/travois", "a", "machine")
    skill(tmp_path / "person/.claude", "a", "lost")
    skill(tmp_path / "person/.codex", "b", "user")
    skill(tmp_path / "person/.config/opencode", "c", "user")
    skill(root / ".goose", "b", "lost")
    skill(root / ".agents", "d", "repo")
    skill(root / "sub/.claude", "d", "folder")
    skill(root / "sub/deep/.claude", "e", "below")
    found = DiskSkills(places).load_always()
    assert found.ignored == ()
    assert {one.name: one.body for one in found.skills} == {
        "a": "machine", "b": "user", "c": "user", "d": "repo", "sub:d": "folder",
    }  # fmt: skip
    touched = DiskSkills(places).load_for_paths((f"{root}/sub/deep/x/file.py", f"{root}/other.py"))
    assert touched == (f"{root}/sub/deep",)
    assert "e" in {one.name for one in DiskSkills(places).load_always(touched).skills}


def test_flawed_files_are_told_and_links_out_of_a_stranger_are_left_out(
    tmp_path: Path, places: SkillPlaces
) -> None:
    folder = tmp_path / "repo/.claude"
    skill(tmp_path / "outside", "key", "secret")
    skill(folder, "good")
    skill(folder, "empty", "")
    (folder / "skills/binary").mkdir()
    (folder / "skills/binary/SKILL.md").write_bytes(b"\0")
    (folder / "skills/out").symlink_to(tmp_path / "outside/skills/key")
    (tmp_path / "repo/.agents").symlink_to(folder)
    found = DiskSkills(places).load_always()
    assert [one.name for one in found.skills] == ["empty", "good"]
    assert [notice.partition(" is ignored: ")[0] for notice in found.ignored] == [
        str(folder / "skills" / name / "SKILL.md") for name in ("binary", "out")
    ]
    trusting = DiskSkills(replace(places, trusted=True))
    assert "out" in {one.name for one in trusting.load_always().skills}


def test_rules_and_commands_of_a_project_count_only_as_far_as_the_user_agreed(
    tmp_path: Path, places: SkillPlaces
) -> None:
    skill(tmp_path / "repo/.claude", "a", head="allowed-tools: Bash(make:*)\n")
    skill(tmp_path / "person/.claude", "mine", head="allowed-tools: Bash\n")
    asked = list(list_skill_requests(places.root, places.cwd))
    assert asked == ["skill: .claude/skills/a/SKILL.md allows itself Bash(make:*)"]

    def found(**changes: object) -> dict[str, tuple[str, bool]]:
        known = DiskSkills(replace(places, **changes)).load_always()
        return {one.name: (one.allowed, one.trusted) for one in known.skills}

    put(tmp_path / "repo/.claude/commands/go.md", "---\ndescription: d\n---\nGo.")
    assert found() == {"mine": ("Bash", True), "a": ("", False), "go": ("", False)}
    assert found(trusted=True)["go"] == ("", True)
    agreed = frozenset(map(trust.digest_request, asked))
    assert found(trusted=True, agreed=agreed)["a"] == ("Bash(make:*)", True)
    skill(tmp_path / "repo/.claude", "a", head="allowed-tools: Bash\n")
    assert found(trusted=True, agreed=agreed)["a"] == ("", True)


def test_what_hooks_of_a_projects_skill_run_is_changed_by_nobody_unasked(
    tmp_path: Path, places: SkillPlaces
) -> None:
    script = tmp_path / "repo/check.sh"
    put(script, "exit 0")
    hooks = "hooks:\n  Stop:\n    - hooks: [{type: command, command: ./check.sh}]\n"
    skill(tmp_path / "repo/.claude", "a", head=hooks)
    found = load_settings(
        places.home, places.root, cwd=places.cwd, environ={}, etc=tmp_path / "etc"
    )
    assert found.scripts == (str(script),)
    (wish,) = found.wanted
    assert DiskSkills(places).load_always().skills[0].hooks == {}
    agreed = replace(places, agreed=frozenset((trust.digest_request(wish),)))
    assert list(DiskSkills(agreed).load_always().skills[0].hooks) == ["Stop"]


def test_settings_say_how_much_the_model_hears_of_a_skill(
    tmp_path: Path, places: SkillPlaces
) -> None:
    for name in ("a", "b", "c", "d"):
        skill(tmp_path / "person/.claude", name, head="when_to_use: often\n")
    said = {"b": "off", "c": "name-only", "d": "user-invocable-only"}
    found = DiskSkills(replace(places, overrides=said, runner="off", share=0.5)).load_always()
    told = {one.name: (one.description, one.when, one.automatic) for one in found.skills}
    assert told == {"a": ("d", "often", True), "c": ("", "", True), "d": ("d", "often", False)}
    assert ({one.runner for one in found.skills}, found.share) == ({"off"}, 0.5)


def plugin(folder: Path, name: str) -> Path:
    put(folder / ".claude-plugin/plugin.json", json.dumps({"name": name, "version": "1.0"}))
    skill(folder, "plan", "In ${CLAUDE_PLUGIN_ROOT}.", "allowed-tools: Read\n")
    put(folder / "commands/go.md", "Go.")
    put(folder / "agents/critic.md", "---\nname: critic\ndescription: d\n---\nCriticise.")
    put(folder / "output-styles/terse.md", "Be terse.")
    hook = {"type": "command", "command": "${CLAUDE_PLUGIN_ROOT}/x.sh"}
    put(folder / "hooks/hooks.json", json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}))
    put(folder / ".mcp.json", json.dumps({"mcpServers": {"s": {"command": "srv"}}}))
    return folder


def test_a_plugin_brings_its_parts_under_its_name(tmp_path: Path, places: SkillPlaces) -> None:
    folder = plugin(tmp_path / "kit", "kit")
    found, notices = load_plugins([str(folder), str(tmp_path / "none")], places.root)
    assert [notice.partition(" is ignored: ")[0] for notice in notices] == [
        f"plugin {tmp_path / 'none'}"
    ]
    (kit,) = found
    assert kit.servers == ((f"{folder}/.mcp.json", {"s": {"command": "srv"}}),)
    with_it = replace(places, plugins=found)
    (one,) = DiskSkills(with_it).load_always().skills
    assert (one.name, one.allowed, one.plugin) == ("kit:plan", "Read", str(folder))
    assert list(load_styles(with_it)[0]) == ["kit:terse", "explanatory", "learning"]
    told, _ = load_commands(places.home, places.root, places.cwd, plugins=found, environ={})
    assert list(told) == ["kit:go"]
    known, _ = load_agent_types(
        places.home, places.root, places.cwd, trusted=False, plugins=found, environ={}
    )
    assert "kit:critic" in {kind.name for kind in known}


def test_what_claude_code_installed_and_enabled_counts_where_it_lies(
    tmp_path: Path, places: SkillPlaces
) -> None:
    claude, market = tmp_path / "person/.claude", tmp_path / "market"
    kept = claude / "plugins/cache/shop"
    plugin(kept / "kit/1.0", "kit")
    skill(kept / "docs/2.0", "pdf", "Pdf.")
    skill(kept / "docs/2.0", "unlisted", "Not meant.")
    copies = {
        "kit@shop": [{"scope": "user", "installPath": str(kept / "kit/1.0")}],
        "docs@shop": [{"scope": "user", "installPath": str(kept / "docs/2.0")}],
        "far@shop": [{"scope": "project", "projectPath": "/else", "installPath": "/else/x"}],
    }
    put(claude / "plugins/installed_plugins.json", json.dumps({"version": 2, "plugins": copies}))
    known = {"shop": {"installLocation": str(market)}}
    put(claude / "plugins/known_marketplaces.json", json.dumps(known))
    offer = {"name": "docs", "source": "./", "strict": False, "skills": ["./skills/pdf"]}
    put(market / ".claude-plugin/marketplace.json", json.dumps({"plugins": [offer]}))
    enabled = {"kit@shop": True, "docs@shop": True, "far@shop": True, "other@shop": False}
    put(claude / "settings.json", json.dumps({"enabledPlugins": enabled}))

    def loaded() -> LoadedSettings:
        environ = {"HOME": str(tmp_path / "person")}
        return load_settings(
            places.home, places.root, cwd=places.cwd, environ=environ, etc=tmp_path / "etc"
        )

    found = loaded()
    assert [one.name for one in found.plugins] == ["kit", "docs"]
    assert found.notices == (
        "plugin far@shop is ignored: it is enabled, but Claude Code has not installed it",
    )
    standing = DiskSkills(replace(places, plugins=found.plugins)).load_always()
    assert {one.name for one in standing.skills} == {"kit:plan", "docs:pdf"}
    put(
        tmp_path / "repo/sub/.claude/settings.json",
        json.dumps({"enabledPlugins": {"kit@shop": False}}),
    )
    put(claude / "settings.json", json.dumps({"enabledPlugins": {"kit@shop": True}}))
    assert loaded().plugins == ()


def test_a_folder_may_offer_several_plugins_and_a_plugin_single_files(
    tmp_path: Path, places: SkillPlaces
) -> None:
    shop = tmp_path / "shop"
    listed = [{"name": "a", "source": "./a"}, {"name": "b", "source": "./b"}, {"name": "no"}]
    put(shop / ".claude-plugin/marketplace.json", json.dumps({"plugins": listed}))
    put(shop / "a/SKILL.md", "---\nname: alone\n---\nAlone.")
    parts = {"commands": ["./x/go.md", "../../out.md"], "agents": "./x/critic.md"}
    put(shop / "b/.claude-plugin/plugin.json", json.dumps({"name": "b", "lspServers": {}} | parts))
    put(shop / "b/x/go.md", "Go.")
    put(shop / "out.md", "Out.")
    put(shop / "b/x/critic.md", "---\nname: critic\ndescription: d\n---\nCriticise.")
    put(tmp_path / "off/plugin.json", '{"name": "off", "defaultEnabled": false}')
    found, notices = load_plugins([str(shop), str(tmp_path / "off")], places.root)
    assert notices == ("plugin b: not supported here: lspServers",)
    standing = DiskSkills(replace(places, plugins=found)).load_always()
    assert [one.name for one in standing.skills] == ["a:alone"]
    told, _ = load_commands(places.home, places.root, places.cwd, plugins=found, environ={})
    assert list(told) == ["b:go"]
    known, _ = load_agent_types(
        places.home, places.root, places.cwd, trusted=False, plugins=found, environ={}
    )
    assert "b:critic" in {kind.name for kind in known}


def test_what_a_plugin_asks_for_is_filled_in_and_what_is_missing_is_told(
    tmp_path: Path, places: SkillPlaces
) -> None:
    asked = {"url": {"default": "http://x"}, "level": {"required": True}, "token": {}}
    server = {"command": "srv", "args": ["${user_config.url}", "${user_config.level}"]}
    server["env"] = {"KEEP": "${CLAUDE_PLUGIN_DATA}"}
    tree = {"name": "kit", "userConfig": asked, "mcpServers": {"s": server}}
    put(tmp_path / "kit/plugin.json", json.dumps(tree))
    values = {"pluginConfigs.kit@shop": {"options": {"level": 3}}}
    wishes = parse_plugin_settings(values, keeps=str(tmp_path / "keep"))
    ((kit,), notices) = load_plugins([str(tmp_path / "kit")], places.root, plugins=wishes)
    filled = {"command": "srv", "args": ["http://x", "3"], "env": {"KEEP": f"{tmp_path}/keep/kit"}}
    assert (kit.servers[0][1], notices) == ({"s": filled}, ())
    assert (tmp_path / "keep/kit").is_dir()
    _, notices = load_plugins([str(tmp_path / "kit")], places.root)
    assert notices == ("plugin kit needs level: set it in pluginConfigs.kit.options",)


def test_plugins_of_a_project_and_their_hooks_wait_for_trust(
    tmp_path: Path, places: SkillPlaces
) -> None:
    plugin(places.home.path / "plugins/own", "own")
    theirs = plugin(tmp_path / "repo/.agents/plugins/theirs", "theirs")

    def loaded() -> tuple[list[str], list[str], tuple[str, ...]]:
        found = load_settings(
            places.home, places.root, cwd=places.cwd, environ={}, etc=tmp_path / "etc"
        )
        return (
            [one.name for one in found.plugins],
            [where for where, _ in found.hooks],
            found.wanted,
        )

    own = f"{places.home.path}/plugins/own/hooks/hooks.json"
    names, hooks, wanted = loaded()
    assert (names, hooks, wanted) == (["own"], [own], (f"plugins: {theirs}",))
    trust.trust_folder(places.home, places.root, wanted)
    names, hooks, wanted = loaded()
    assert (names, hooks) == (["own", "theirs"], [own])
    assert {"plugins", "hook Stop", "skill"} <= {text.partition(":")[0] for text in wanted}
    trust.trust_folder(places.home, places.root, wanted)
    assert loaded()[1] == [own, f"{theirs}/hooks/hooks.json"]


def test_styles_of_a_project_count_where_it_is_trusted(tmp_path: Path, places: SkillPlaces) -> None:
    put(tmp_path / "repo/.claude/output-styles/terse.md", "Project.")
    put(tmp_path / "person/.claude/output-styles/terse.md", "User.")
    assert load_styles(places)[0]["terse"].text == "User."
    assert load_styles(replace(places, trusted=True))[0]["terse"].text == "Project."
    put(tmp_path / "person/.claude/output-styles/loud.md", "---\nforce-for-plugin: true\n---\nL.")
    assert not load_styles(places)[0]["loud"].forced
