"""What becomes of what four agents keep: a golden plan, and what it leaves on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.importing.homes import KEY, make, text
from travois.agents.agent_files import load_agent_types
from travois.core.errors import UserError
from travois.importing import agent_plans
from travois.importing.plan import ImportPlan, apply_import_plan
from travois.mcp import config as mcp
from travois.permissions.access import Access
from travois.permissions.decide import Permissions, decide_permission
from travois.permissions.rules import ToolUse
from travois.prompt.instruction_files import InstructionLibrary, InstructionPlaces
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.load import load_settings
from travois.settings.sources import SettingsPlaces
from travois.skills.command_files import load_commands
from travois.skills.skill_files import DiskSkills
from travois.skills.skill_files import SkillPlaces as Shelves

Plan = Callable[[ImportPlan, Mapping[str, str]], None]
PLANS: dict[str, Plan] = {
    "claude": agent_plans.plan_claude_import,
    "codex": agent_plans.plan_codex_import,
    "opencode": agent_plans.plan_opencode_import,
    "gemini": agent_plans.plan_gemini_import,
}
GOLDEN = Path(__file__).parent / "golden.txt"


@pytest.fixture
def person(tmp_path: Path) -> Path:
    make(tmp_path / "person")
    return tmp_path / "person"


def packed(person: Path, agent: str, **more: object) -> ImportPlan:
    home = TravoisHome(person / "ours").prepare()
    luggage = ImportPlan(home, **more)  # type: ignore[arg-type]
    PLANS[agent](luggage, {"HOME": str(person)})
    return luggage


def done(person: Path) -> TravoisHome:
    """All four, one after the other, and then the other agents are gone."""
    home = TravoisHome(person / "ours").prepare()
    for agent in PLANS:
        apply_import_plan(home, packed(person, agent), stamp=agent)
    for path in (".claude", ".claude.json", ".codex", ".config", ".gemini"):
        (person / path).rename(person / f"{path}.gone")
    return home


def test_the_plan_says_what_becomes_of_each_thing(person: Path) -> None:
    lines = [
        f"{agent}: {line.part}: {line.name}: {line.fate}: {line.where}: {line.why}".rstrip(": ")
        for agent in PLANS
        for line in packed(person, agent).lines
    ]
    told = "\n".join(lines).replace(str(person), "~") + "\n"
    assert told == GOLDEN.read_text()


def test_planning_writes_nothing(person: Path) -> None:
    for agent in PLANS:
        packed(person, agent)
    assert sorted(path.name for path in (person / "ours").rglob("*")) == ["sessions"]


def test_no_secret_is_in_any_file_that_was_made(person: Path) -> None:
    home = done(person)
    written = [path.read_text() for path in home.path.rglob("*") if path.is_file()]
    assert len(written) > 15
    assert not [one for one in written if KEY in one or "x1Y2x1Y2" in one]


def test_settings_hold_when_the_other_agents_are_gone(person: Path) -> None:
    home, root = done(person), person / "repo"
    root.mkdir()
    environ = {"HOME": str(person), "DOCS_X_API_KEY": "k", "GH_TOKEN": "t", "DB": "d"}
    loaded = load_settings(home, str(root), environ=environ, etc=person / "etc")
    assert loaded.notices == ()
    assert (loaded.settings.model, loaded.settings.permissions.mode) == ("opus", "accept-edits")
    assert loaded.settings.env == {"EDITOR": "vi"}
    assert set(loaded.settings.providers) == {"corp", "corp2"}
    assert [tuple(tree) for _, tree in loaded.hooks] == [("PostToolUse", "PreToolUse")]
    guard = Permissions("default", loaded.rules, (str(root),))

    def effect(command: str) -> str:
        return decide_permission(
            guard, ToolUse("Bash", (Access("exec", command),), str(root))
        ).effect

    said = {line: effect(line) for line in ("git status -s", "git push", "rm x", "make")}
    assert said == {"git status -s": "allow", "git push": "ask", "rm x": "deny", "make": "ask"}
    where = SettingsPlaces(home, str(root), str(root), trust.trust_root(str(root)))
    found = mcp.find_mcp_servers(where, environ)
    assert found.notices == ()
    servers = {one.name: (one.kind, one.env, one.headers) for one in found.servers}
    assert servers == {
        "db": ("stdio", {"URL": "d"}, {}),
        "docs": ("http", {}, {"X-Api-Key": "k"}),
        "gh": ("stdio", {"GH_TOKEN": "t"}, {}),
        "sse": ("sse", {}, {}),
        "time": ("stdio", {}, {}),
    }


def test_files_count_when_the_other_agents_are_gone(person: Path) -> None:
    home, root = done(person), str(person / "repo")
    Path(root).mkdir()
    environ = {"HOME": str(person)}
    agents, flaws = load_agent_types(
        home, root, root, trusted=False, environ=environ, etc=person / "etc"
    )
    own = {one.name: (one.model, one.denied) for one in agents if one.origin != "built-in"}
    edits = ("Edit", "Write", "MultiEdit", "NotebookEdit", "ApplyPatch")
    assert flaws == ()
    assert own == {
        "docs": ("", ("Bash",)),
        "review": ("anthropic/claude-opus-5-5", (*edits, "Bash")),
        "tester": ("", ()),
    }
    known, _ = load_commands(home, root, root, environ=environ)
    assert {one.name: one.body for one in known.values()} == {
        "git:sync": "Pull and push $ARGUMENTS",
        "lint": "Lint $1",
        "plan": "Plan $ARGUMENTS",
        "review": "Review $1",
    }
    skills = DiskSkills(
        Shelves(home, root, root, environ=environ, etc=person / "etc")
    ).load_always()
    assert [one.name for one in skills.skills] == ["pdf", "lint"]
    assert (home.path / "skills/pdf/run.sh").stat().st_mode & 0o777 == 0o700
    places = InstructionPlaces(root, root, own=str(home.path), etc=person / "etc")
    texts = [
        one.text.strip()
        for one in InstructionLibrary(places, hidden=lambda _: False).load_always().files
    ]
    assert texts == [
        "Be brief. See @style.md",
        "Use tabs.",
        "Write tests first.",
        "Answer in English.",
    ]


def test_what_is_yours_stays_and_doing_it_again_changes_nothing(person: Path) -> None:
    home = TravoisHome(person / "ours").prepare()
    mine = {"model": "mine", "permissions": {"deny": ["Bash(curl:*)"]}}
    text(home.settings, json.dumps(mine))
    text(home.path / "agents" / "tester.md", "mine")
    text(home.path / "skills" / "pdf" / "SKILL.md", "mine")
    text(home.path / "mcp.json", '{"mcpServers": {"time": {"command": "mine"}}}')
    text(home.path / "AGENTS.md", "Mine.")
    luggage = packed(person, "claude")
    left = {line.name: line.why for line in luggage.lines if line.why.startswith("your ")}
    assert left == {
        "model": 'your value is kept: "mine"',
        "time": "your server in mcp.json is kept",
        "tester.md": "your agents/tester.md is kept",
        "pdf": "your skills/pdf is kept",
    }
    kept = apply_import_plan(home, luggage, stamp="now")
    assert kept is not None
    assert json.loads((kept / "settings.json").read_text()) == mine
    assert "AGENTS.md" in (kept / "made.txt").read_text().split()
    settings = json.loads(home.settings.read_text())
    assert settings["model"] == "mine"
    assert settings["permissions"]["deny"] == ["Bash(curl:*)", "Read(~/.ssh/**)"]
    assert (home.path / "AGENTS.md").read_text() == "Mine.\n@instructions/claude/CLAUDE.md\n"
    assert packed(person, "claude").copies == {}


def test_only_what_is_wanted_is_planned(person: Path) -> None:
    luggage = packed(person, "claude", only=("mcp",))
    assert {line.part for line in luggage.lines} == {"mcp"}
    assert set(luggage.copies) == {"mcp.json"}


def test_a_file_that_cannot_be_understood_stops_before_anything_is_written(person: Path) -> None:
    text(person / ".codex" / "config.toml", "model = ")
    with pytest.raises(UserError, match="Cannot parse"):
        packed(person, "codex")
    text(person / "ours" / "settings.json", "{")
    with pytest.raises(UserError, match="nothing was imported"):
        packed(person, "gemini")
