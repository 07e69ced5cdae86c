from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commanding import run
from travois.commands import doctor
from travois.commands import try_command as attempt
from travois.sandbox import landlock, probe
from travois.sandbox.probe import find_bundled_bwrap

NAMES = [
    *("bash", "git", "ripgrep", "terminal", "home", "settings"),
    *("model", "embedder", "small model"),
]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-to-be-shown")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *, code: int = 0) -> dict[str, dict[str, object]]:
    assert run(doctor, "doctor", "--json") == code
    said = json.loads(capsys.readouterr().out)
    assert (said["usable"], said["sandbox"] in ("full", "partial", "none")) == (code == 0, True)
    return {check["name"]: check for check in said["checks"]}


def test_every_part_is_told_with_what_was_found(capsys: pytest.CaptureFixture[str], places: Path):
    checks = told(capsys)
    assert [name for name in checks if name in NAMES] == NAMES
    assert checks["home"] == {"name": "home", "works": True, "why": str(places / "home"), "fix": ""}


def test_every_file_that_counts_is_named(
    capsys: pytest.CaptureFixture[str], places: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(places / "person/.claude"))
    names = ("person/.claude/settings.json", "work/.claude/settings.json", "work/AGENTS.md")
    names += ("work/.claude/skills/a/SKILL.md",)
    for name in names:
        (places / name).parent.mkdir(parents=True, exist_ok=True)
        (places / name).write_text("{}" if name.endswith("json") else "Words.")
    assert run(doctor, "doctor", "--json") == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    read = [check["why"] for check in checks if check["name"] == "read"]
    assert read == [str(places / name) for name in names]


def test_a_key_is_named_and_never_shown(capsys: pytest.CaptureFixture[str]):
    assert run(doctor, "doctor") == 0
    said = capsys.readouterr().out
    assert ("key: ANTHROPIC_API_KEY" in said, "sk-not-to-be-shown" in said) == (True, False)


def test_what_is_not_essential_may_be_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    for name in (
        "CI",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    model = told(capsys)["model"]
    assert (model["works"], "enough to try everything offline" in str(model["why"])) == (True, True)


def test_a_session_needs_a_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CI", "true")
    model = told(capsys, code=1)["model"]
    assert (model["works"], "ANTHROPIC_API_KEY" in str(model["fix"])) == (False, True)


def test_the_bwrap_in_use_is_named_and_said_to_be_the_bundled_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, places: Path
):
    (places / "bin").mkdir()
    for program in ("bash", "git"):
        (places / "bin" / program).symlink_to(f"/usr/bin/{program}")
    monkeypatch.setenv("PATH", str(places / "bin"))
    found = told(capsys)["bubblewrap"]
    assert found["why"] == f"{find_bundled_bwrap()} (bundled with Travois)"


def test_a_copy_to_try_commands_in_is_promised_only_where_one_can_be_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    checks = told(capsys)
    assert checks["overlay"]["works"] == (run(attempt, "try", "--drop", "--", "true") == 0)
    monkeypatch.setattr(probe, "find_bwrap", lambda workspace: ())
    capsys.readouterr()
    assert told(capsys)["overlay"]["works"] is False


def test_what_a_limited_sandbox_does_not_protect_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(probe, "find_bwrap", lambda workspace: ())
    assert run(doctor, "doctor") == 0
    said = capsys.readouterr().out
    if "Sandbox: partial." not in said:
        pytest.skip("this kernel has no Landlock that will do")
    assert all(f"- {limit}" in said for limit in landlock.PARTIAL_LIMITS)


def test_a_file_in_the_way_of_home_makes_it_unusable(
    capsys: pytest.CaptureFixture[str], places: Path
):
    (places / "home").write_text("")
    home = told(capsys, code=1)["home"]
    assert (home["works"], "Travois cannot store its files" in str(home["why"])) == (False, True)


def test_settings_that_cannot_be_read_make_it_unusable(
    capsys: pytest.CaptureFixture[str], places: Path
):
    (places / "home").mkdir()
    (places / "home" / "settings.json").write_text("{")
    settings = told(capsys, code=1)["settings"]
    assert (settings["works"], "settings.json" in str(settings["why"])) == (False, True)
