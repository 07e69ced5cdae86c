"""Settings of opencode and Codex, read where they lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from travois.permissions.access import Access
from travois.permissions.decide import Permissions, decide_permission
from travois.permissions.rules import ToolUse
from travois.prompt.instruction_files import InstructionLibrary, InstructionPlaces
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.load import load_settings
from travois.settings.schema import LoadedSettings


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def loaded(tmp_path: Path) -> LoadedSettings:
    home, person = TravoisHome(tmp_path / "home"), str(tmp_path / "person")
    root = tmp_path / "repo"
    root.mkdir(exist_ok=True)
    return load_settings(home, str(root), environ={"HOME": person}, etc=tmp_path / "etc")


def effect(found: LoadedSettings, tmp_path: Path, tool: str, target: str) -> str:
    kind = {"Bash": "exec", "Read": "read", "Edit": "write"}[tool]
    root = str(tmp_path / "repo")
    path = target if kind == "exec" else f"{root}/{target}"
    guard = Permissions("default", found.rules, (root,))
    return decide_permission(guard, ToolUse(tool, (Access(kind, path),), root)).effect  # pyright: ignore


@pytest.mark.parametrize(
    ("table", "answers"),
    [
        (
            '{"*": "ask", "git status*": "allow", "git push*": "deny"}',
            {"git status": "allow", "ls": "ask", "git push": "deny", "git status && ls": "ask"},
        ),
        (
            '{"git *": "deny", "git commit *": "allow", "git commit --amend*": "ask"}',
            {"git commit -m x": "allow", "git commit --amend": "ask", "git log": "deny"},
        ),
        ('{"make *": "allow", "*": "deny"}', {"make test": "deny", "ls": "deny"}),
        ('{"*": "deny", "echo $(*": "allow"}', {"echo $(rm x)": "deny"}),
    ],
)
def test_the_last_that_fits_counts(tmp_path: Path, table: str, answers: dict[str, str]) -> None:
    text = f'// mine\n{{"permission": {{"bash": {table},}} /* all */}}'
    put(tmp_path / "person/.config/opencode/opencode.jsonc", text)
    found = loaded(tmp_path)
    assert found.notices == ()
    assert {line: effect(found, tmp_path, "Bash", line) for line in answers} == answers


def test_one_word_or_a_star_means_every_tool_but_those_said_after_it(tmp_path: Path) -> None:
    put(tmp_path / "repo/opencode.json", '{"permission": {"*": "deny", "read": "allow"}}')
    found = loaded(tmp_path)
    assert effect(found, tmp_path, "Bash", "ls") == effect(found, tmp_path, "Edit", "a") == "deny"
    assert effect(found, tmp_path, "Read", "src/a.py") == "allow"
    put(tmp_path / "repo/opencode.json", '{"permission": "allow"}')
    assert effect(loaded(tmp_path), tmp_path, "Bash", "rm -rf src") == "ask"


def test_secret_files_stay_closed_as_there_unless_said_otherwise(tmp_path: Path) -> None:
    put(tmp_path / "repo/opencode.json", '{"permission": {"edit": {"src/*": "deny"}}}')
    found = loaded(tmp_path)
    names = ("a/.env", ".env.local", ".env.example")
    assert [effect(found, tmp_path, "Read", n) for n in names] == ["deny", "deny", "allow"]
    assert effect(found, tmp_path, "Edit", "src/deep/a.py") == "deny"
    put(tmp_path / "repo/opencode.json", '{"permission": {"read": "allow"}}')
    assert effect(loaded(tmp_path), tmp_path, "Read", ".env") == "allow"
    assert effect(loaded(tmp_path), tmp_path, "Read", "../outside") == "ask"


def test_what_a_workspace_allows_waits_for_trust_and_what_it_denies_does_not(
    tmp_path: Path,
) -> None:
    text = '{"permission": {"bash": {"make *": "allow", "curl *": "deny"}}, "model": "a/b"}'
    put(tmp_path / "repo/opencode.json", text)
    found = loaded(tmp_path)
    assert found.wanted == ('model: "a/b"', "permissions.allow: Bash(make *)")
    lines = ("make all", "curl x")
    assert [effect(found, tmp_path, "Bash", line) for line in lines] == ["ask", "deny"]
    trust.trust_folder(TravoisHome(tmp_path / "home"), found.root, found.wanted)
    assert effect(loaded(tmp_path), tmp_path, "Bash", "make all") == "allow"


@pytest.mark.parametrize(
    ("sandbox", "asking", "mode"),
    [
        ("read-only", "on-request", "default"),
        ("read-only", "never", "dont-ask"),
        ("workspace-write", "untrusted", "default"),
        ("workspace-write", "on-request", "auto"),
        ("workspace-write", "never", "auto"),
        ("danger-full-access", "never", "default"),
    ],
)
def test_codex_asks_as_often_as_it_did(
    tmp_path: Path, sandbox: str, asking: str, mode: str
) -> None:
    text = f'model = "gpt-x"\nsandbox_mode = "{sandbox}"\napproval_policy = "{asking}"\n'
    put(tmp_path / "person/.codex/config.toml", text)
    found = loaded(tmp_path)
    assert (found.settings.permissions.mode, found.settings.model) == (mode, "openai/gpt-x")
    assert ("danger-full-access is ignored" in "".join(found.notices)) == sandbox.startswith("dan")


def test_our_own_files_win_and_broken_ones_stop_nothing(tmp_path: Path) -> None:
    put(tmp_path / "person/.codex/config.toml", 'model = "gpt-x"\nmodel_context_window = 9000\n')
    put(tmp_path / "person/.claude/settings.json", '{"model": "anthropic/claude"}')
    put(tmp_path / "repo/opencode.json", "{ broken")
    put(tmp_path / "repo/.codex/config.toml", "model = ")
    found = loaded(tmp_path)
    assert (found.settings.model, found.settings.context.window) == ("anthropic/claude", 9000)
    assert found.origin("context.window") == str(tmp_path / "person/.codex/config.toml")
    assert [notice.partition(" is ignored: ")[0] for notice in found.notices] == [
        str(tmp_path / "repo/.codex/config.toml"), str(tmp_path / "repo/opencode.json")
    ]  # fmt: skip


def test_instructions_that_settings_name_stay_in_the_workspace_without_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / "repo"
    put(tmp_path / "key", "secret")
    put(root / "docs/a.md", "A.")
    (root / "docs/link.md").symlink_to(tmp_path / "key")
    text = '{"instructions": ["docs/*.md", "../key", "~/key", "https://x.example/a.md"]}'
    put(root / "opencode.json", text)
    more = loaded(tmp_path).settings.instructions

    def shown(places: InstructionPlaces) -> list[str]:
        found = InstructionLibrary(places, hidden=lambda path: False).load_always()
        return [file.text for file in found.files]

    places = InstructionPlaces(str(root), str(root), more=more, etc=tmp_path / "etc")
    assert shown(places) == ["A."]
    assert shown(replace(places, trusted=True)) == ["A.", "secret"]


def test_what_another_agent_reads_instead_is_read_and_what_is_elsewhere_is_told(
    tmp_path: Path,
) -> None:
    names = 'project_doc_fallback_filenames = ["TEAM.md"]'
    put(tmp_path / "repo/.codex/config.toml", names)
    put(tmp_path / "repo/opencode.json", '{"instructions": ["https://x.example/a.md"]}')
    found = loaded(tmp_path)
    assert found.settings.instructions == ("TEAM.md",)
    told = "https://x.example/a.md is ignored: instructions must be local files"
    assert found.notices == (f"{tmp_path}/repo/opencode.json: {told}",)


def test_codex_rules_about_commands_hold_where_they_lie(tmp_path: Path) -> None:
    text = """\
prefix_rule(
    pattern = ["git", ["status", "log"]],
    decision = "allow",
    match = [["git", "status"]],
)
prefix_rule(pattern = ["git", "push"], decision = "prompt")
prefix_rule(pattern = ["git", "push", "--force"], decision = "forbidden")
prefix_rule(pattern = ["ls", "*"])
"""
    put(tmp_path / "person/.codex/rules/default.rules", text)
    found = loaded(tmp_path)
    lines = ("git status -s", "git log", "git push", "git push --force", "git statusx", "make")
    assert {line: effect(found, tmp_path, "Bash", line) for line in lines} == {
        "git status -s": "allow",
        "git log": "allow",
        "git push": "ask",
        "git push --force": "deny",
        "git statusx": "ask",
        "make": "ask",
    }
    (notice,) = found.notices
    assert notice.endswith("default.rules: line 8: prefix_rule has no equivalent permission rule")


def test_codex_rules_of_a_repository_only_tighten_until_it_is_trusted(tmp_path: Path) -> None:
    text = 'prefix_rule(pattern = ["make"])\nprefix_rule(["x"], decision = "forbidden")\n'
    text += 'prefix_rule(pattern = ["rm"], decision = "forbidden")\n'
    put(tmp_path / "repo/.codex/rules/a.rules", text)
    put(tmp_path / "repo/.codex/rules/b.rules", "prefix_rule(")
    found = loaded(tmp_path)
    said = {line: effect(found, tmp_path, "Bash", line) for line in ("make", "rm x")}
    assert said == {"make": "ask", "rm x": "deny"}
    assert any("b.rules is ignored: line 1" in notice for notice in found.notices)


def test_our_own_settings_may_hold_a_table_in_which_the_last_that_fits_counts(
    tmp_path: Path,
) -> None:
    table = '{"permission": {"bash": {"*": "ask", "git status*": "allow", "rm *": "deny"}}}'
    put(tmp_path / "home/settings.json", table)
    found = loaded(tmp_path)
    assert found.notices == ()
    said = {line: effect(found, tmp_path, "Bash", line) for line in ("git status", "rm x", "make")}
    assert said == {"git status": "allow", "rm x": "deny", "make": "ask"}


def test_who_serves_models_may_only_be_said_by_the_user(tmp_path: Path) -> None:
    codex = """\
model = "big"
model_provider = "corp"
[model_providers.corp]
base_url = "https://corp.example/v1"
env_key = "CORP_KEY"
[model_providers.old]
base_url = "https://old.example/v1"
wire_api = "chat"
[model_providers.openai]
base_url = "https://elsewhere.example/v1"
"""
    opencode = """{"provider": {
  "anthropic": {"options": {"baseURL": "https://elsewhere.example/v1"}},
  "mine": {"npm": "@ai-sdk/openai-compatible",
           "options": {"baseURL": "https://mine.example/v1", "apiKey": "sk-plain"}}}}"""
    for place, config in (("person/.codex", ".config/opencode"), ("repo/.codex", "../repo")):
        put(tmp_path / place / "config.toml", codex)
        put(tmp_path / "person" / config / "opencode.json", opencode)
    found = loaded(tmp_path)
    expected = {
        "corp": {
            "protocol": "responses",
            "url": "https://corp.example/v1",
            "key_env": ["CORP_KEY"],
        },
        "old": {"protocol": "chat", "url": "https://old.example/v1"},
        "mine": {"protocol": "chat", "url": "https://mine.example/v1"},
    }
    assert found.settings.providers == expected
    assert found.settings.model == "corp/big"
    (tmp_path / "person").rename(tmp_path / "gone")
    assert loaded(tmp_path).settings.providers == {}
