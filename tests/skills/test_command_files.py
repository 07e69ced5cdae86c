"""Finding commands of the user's own."""

from __future__ import annotations

from pathlib import Path

from travois.sessions.home import TravoisHome
from travois.skills.command_files import load_commands


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_nearest_counts_and_folders_are_part_of_the_name(tmp_path: Path) -> None:
    root, person = tmp_path / "repo", tmp_path / "person"
    put(root / ".claude/commands/fix.md", "Fix, says the repository.")
    put(root / "sub/.travois/commands/fix.md", "Fix, says the folder.")
    put(root / ".claude/commands/git/push.md", "Push.")
    put(root / ".gemini/commands/plan.toml", 'prompt = "Plan {{args}}."')
    put(person / ".claude/commands/fix.md", "Fix, says the user.")
    put(person / ".codex/prompts/ship.md", "Ship.")
    put(person / ".config/opencode/command/test.md", "Test $1.")
    home = TravoisHome(tmp_path / "home")
    put(home.path / "commands/own.md", "Own.")
    found, notices = load_commands(
        home, str(root), str(root / "sub"), environ={"HOME": str(person)}
    )
    assert notices == ()
    assert {name: one.body for name, one in found.items()} == {
        "fix": "Fix, says the folder.",
        "git:push": "Push.",
        "plan": "Plan $ARGUMENTS.",
        "ship": "Ship.",
        "test": "Test $1.",
        "own": "Own.",
    }


def test_flawed_files_are_told_and_left_out(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    put(tmp_path / "secret.md", "secret")
    folder = root / ".travois/commands"
    put(folder / "good.md", "Good.")
    put(folder / "bad.toml", "prompt = ")
    (folder / "binary.md").write_bytes(b"\xff\xfe\x00")
    (folder / "out.md").symlink_to(tmp_path / "secret.md")
    found, notices = load_commands(TravoisHome(tmp_path / "home"), str(root), str(root), environ={})
    assert list(found) == ["good"]
    assert [notice.partition(" is ignored: ")[0] for notice in notices] == [
        str(folder / name) for name in ("bad.toml", "binary.md", "out.md")
    ]


def test_what_opencode_lets_an_agent_do_an_agent_does(tmp_path: Path) -> None:
    root, person = tmp_path / "repo", tmp_path / "person"
    put(root / ".opencode/command/look.md", "---\nagent: scout\nmodel: a/b\n---\nLook.")
    put(root / ".opencode/command/stay.md", "---\nagent: scout\nsubtask: false\n---\nStay.")
    put(root / ".claude/commands/fork.md", "---\ncontext: fork\n---\nFork.")
    put(root / ".claude/commands/plain.md", "---\nagent: scout\n---\nPlain.")
    table = '{"command": {"all": {"template": "All.", "description": "Do: all", "subtask": true}}}'
    put(person / ".config/opencode/opencode.json", table)
    environ = {"HOME": str(person)}
    found, _ = load_commands(TravoisHome(tmp_path / "home"), str(root), str(root), environ=environ)
    assert {name: (one.agent, one.model) for name, one in found.items()} == {
        "look": ("scout", "a/b"),
        "stay": ("", ""),
        "fork": ("general", ""),
        "plain": ("", ""),
        "all": ("general", ""),
    }
    assert (found["all"].body, found["all"].description) == ("All.", "Do: all")


def test_a_projects_command_brings_neither_rules_nor_hooks(tmp_path: Path) -> None:
    root, person = tmp_path / "repo", tmp_path / "person"
    head = "allowed-tools: Bash\ndisallowed-tools: Edit\nhooks:\n  Stop: []\n"
    put(root / ".claude/commands/theirs.md", f"---\n{head}---\nTheirs.")
    put(person / ".claude/commands/mine.md", f"---\n{head}---\nMine.")
    environ = {"HOME": str(person)}
    found, _ = load_commands(TravoisHome(tmp_path / "home"), str(root), str(root), environ=environ)
    told = {name: (one.allowed, one.denied, one.hooks) for name, one in found.items()}
    assert told == {"theirs": ("", "Edit", {}), "mine": ("Bash", "Edit", {"Stop": []})}
