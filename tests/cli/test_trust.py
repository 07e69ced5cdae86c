"""`travois trust` and the answers that are kept for a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commanding import run
from travois.commands import permissions
from travois.commands import trust as trusting
from travois.compose import permissions as rights
from travois.core.errors import UserError
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.load import load_settings
from travois.settings.schema import LoadedSettings, Settings


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "work" / ".claude").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    return tmp_path


def loaded(places: Path) -> LoadedSettings:
    return load_settings(TravoisHome(places / "home"), str(places / "work"), environ={})


def test_trusting_shows_what_is_trusted_and_can_be_listed_and_revoked(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = places / "work"
    allow = '{"permissions": {"allow": ["Bash(ls)", "Edit"]}}'
    (work / ".claude" / "settings.json").write_text(allow)
    assert run(trusting, "trust") == 0
    assert run(trusting, "trust", ".") == 0
    assert run(trusting, "trust", "--list") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{work} has settings that run programs or grant permissions:",
        "  permissions.allow: Bash(ls)",
        "  permissions.allow: Edit",
        f"{work} is trusted.",
        f"{work} is trusted.",
        "SETTINGS  FOLDER",
        f"2         {work}",
    ]
    assert loaded(places).trust == "trusted"
    assert run(trusting, "trust", "--revoke") == 0
    assert run(trusting, "trust", "--revoke") == 1
    assert run(trusting, "trust", "--list") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{work} is no longer trusted.",
        f"{work} was not trusted.",
        "No trusted folders.",
    ]
    assert loaded(places).trust == "unknown"


def test_nothing_that_is_shown_is_hidden(places: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = {"env": {"A": "x\x1b[2K\u202e\u200b\ny"}}
    (places / "work" / ".claude" / "settings.json").write_text(json.dumps(env))
    run(trusting, "trust")
    assert capsys.readouterr().out.splitlines()[1] == '  env.A: "x\\u001b[2K\\u202e\\u200b\\ny"'


def test_a_folder_that_is_none_is_told() -> None:
    with pytest.raises(UserError, match="nowhere is not a folder"):
        run(trusting, "trust", "nowhere")


def test_answers_are_rules_of_this_folder_and_can_be_forgotten(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trust.remember_answer(TravoisHome(places / "home"), str(places / "work"), "Bash(make)")
    assert run(permissions, "permissions", "why", "make") == 0
    assert capsys.readouterr().out.startswith(
        "allow: rule: allow Bash(make) (your answers in this folder)"
    )
    assert run(permissions, "permissions", "list") == 0
    row = capsys.readouterr().out.splitlines()[1].split(maxsplit=2)
    assert row == ["allow", "Bash(make)", "your answers in this folder"]
    assert run(permissions, "permissions", "forget", "Bash(make)") == 0
    assert run(permissions, "permissions", "why", "make") == 1
    with pytest.raises(UserError, match="No saved answer allows"):
        run(permissions, "permissions", "forget", "Bash(make)")


def test_keys_and_models_of_another_agent_stay_where_they_belong(places: Path) -> None:
    theirs = places / ".claude" / "settings.json"
    theirs.parent.mkdir()
    theirs.write_text('{"model": "nonsense", "env": {"ANTHROPIC_AUTH_TOKEN": "t", "CI": "1"}}')
    home = TravoisHome(places / "home")
    found = load_settings(home, str(places / "work"), environ={"HOME": str(places)})
    after = rights.drop_unusable_settings(found, {})
    assert after.settings == Settings(env={"CI": "1"})
    assert after.notices == (f"{theirs}: model nonsense is ignored: Unknown model 'nonsense'",)
    home.settings.write_text('{"model": "nonsense", "env": {"ANTHROPIC_AUTH_TOKEN": "t"}}')
    own = load_settings(home, str(places / "work"), environ={})
    assert rights.drop_unusable_settings(own, {}).settings == own.settings


def test_a_folder_of_the_settings_that_is_missing_is_told_and_one_of_the_flags_is_a_fault(
    places: Path,
) -> None:
    home, work = TravoisHome(places / "home"), str(places / "work")
    home.settings.write_text('{"permissions": {"additionalDirectories": ["gone", "../home"]}}')
    found = load_settings(home, work, environ={})
    assert rights.compose_permissions(found, work, own=()).folders == (work, str(places / "home"))
    assert rights.startup_notices(found, work) == (f"{home.settings}: gone is not a folder",)
    flags = {"permissions.additionalDirectories": ("lost",)}
    with pytest.raises(UserError, match="lost is not a folder"):
        rights.compose_permissions(
            load_settings(home, work, environ={}, chosen=flags), work, own=()
        )
