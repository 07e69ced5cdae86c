from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commanding import run
from travois.commands import config
from travois.core.errors import UserError

CAPS = '{"context":{"toolTokens":{"Read":10000}}}'


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "work" / ".travois").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    return tmp_path


def test_each_value_is_told_with_the_place_that_decided_it(
    places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    user = places / "home" / "settings.json"
    user.write_text('{"model": "lab/echo-1", "permissions": {"deny": ["WebFetch"]}}')
    project = places / "work" / ".travois" / "settings.json"
    project.write_text('{"permissions": {"deny": ["Bash(rm:*)"], "allow": ["Bash"]}}')
    monkeypatch.setenv("TRAVOIS_MAX_TURNS", "7")
    assert run(config, "config", "explain") == 0
    told = capsys.readouterr()
    rows = [line.split(maxsplit=2) for line in told.out.splitlines()]
    assert ["model", '"lab/echo-1"', str(user)] in rows
    assert ["maxTurns", "7", "TRAVOIS_MAX_TURNS"] in rows
    assert ["permissions.deny", "WebFetch", str(user)] in rows
    assert ["permissions.deny", "Bash(rm:*)", str(project)] in rows
    assert ["timeouts.idle", "90.0", "default"] in rows
    assert "is not trusted with 1 of its settings" in told.err


def test_one_key_or_one_group_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    run(config, "config", "explain", "timeouts.idle", "--settings", '{"timeouts":{"idle":5}}')
    assert capsys.readouterr().out.splitlines()[1].split() == ["timeouts.idle", "5.0", "--settings"]
    run(config, "config", "explain", "timeouts", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["timeouts.idle"] == {"value": 90.0, "origin": "default"}
    assert {key.partition(".")[0] for key in found} == {"timeouts"}


def test_settings_that_are_tables_are_listed_when_they_are_empty(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for key in ("env", "providers", "context.toolTokens", "skillOverrides", "hooks"):
        run(config, "config", "explain", key)
        assert capsys.readouterr().out.splitlines()[1].split() == [key, "{}", "default"]
    run(config, "config", "explain", "context.toolTokens", "--settings", CAPS)
    row = capsys.readouterr().out.splitlines()[1]
    assert row.split()[:2] == ["context.toolTokens.Read", "10000"]
    run(config, "config", "explain", "memory.dream", "--json")
    assert len(json.loads(capsys.readouterr().out)) == 3


def test_an_unknown_key_is_a_fault_that_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"Did you mean timeouts\.idle\?"):
        run(config, "config", "explain", "timeout.idle")
