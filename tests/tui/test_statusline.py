"""The user's own program for the last lines of the screen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import anyio
import msgspec
import pytest

from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.facts import Assistant, Entry, Result, Sent
from travois.core.models import Usage
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.load import load_settings
from travois.settings.schema import LoadedSettings, StatusLineSettings
from travois.testing import Scripted, say
from travois.tui.footer import (
    SessionWork,
    build_status_line_payload,
    describe_worktree,
    find_git_repository,
    strip_terminal_codes,
)
from travois.tui.theme import resolve_theme

RED = "\x1b[31mred\x1b[0m"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"a {RED} b", f"a {RED} b"),
        ("\x1b[38;5;208mx\x1b[m", "\x1b[38;5;208mx\x1b[m"),
        ("a\x1b[2Jb\x1b[10;10Hc\x1b[?25ld", "abcd"),
        ("a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c", "abc"),
        ("a\x1bPq#0\x1b\\b\x1bcd\x1b(0e", "abde"),
        ("a\x1b]0;never closed", "a"),
        ("a\x9b2Jb\x07\x08", "a�2Jb��"),
        ("a\x1b", "a�"),
    ],
)
def test_of_all_that_a_terminal_obeys_only_colours_are_left(said: str, shown: str) -> None:
    assert strip_terminal_codes(said, resolve_theme("dark", {})) == shown


def test_where_there_are_no_colours_there_are_none_of_the_program_either() -> None:
    assert strip_terminal_codes(f"a {RED} b", resolve_theme("none", {})) == "a red b"


def test_the_program_is_told_what_it_would_be_told_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    options = Options(cwd=str(tmp_path), folders=(str(tmp_path),))

    async def main() -> None:
        reply = say("ok", usage=Usage(input=100, read=900, output=50))
        async with LiveSession(options, model=Scripted(reply)) as session:
            fresh = build_status_line_payload(session, SessionWork(), seconds=0.0)["context_window"]
            assert fresh == {
                "total_input_tokens": 0,
                "total_output_tokens": 0,
                "context_window_size": session.runtime.model.window,
                "used_percentage": 0,
                "remaining_percentage": 100,
                "current_usage": None,
            }
            session.exert("low")
            await session.ask("hello")
            work = SessionWork(waited=0.25, added=3, removed=1)
            told = msgspec.to_builtins(
                build_status_line_payload(session, work, seconds=1.5, vim="NORMAL")
            )
            assert Path(told.pop("transcript_path")).read_text().count("hello") == 1
            assert told.pop("context_window")["current_usage"] == {
                "input_tokens": 100,
                "output_tokens": 50,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 900,
            }
            assert told.pop("prompt_id").startswith("turn-")
            del told["version"], told["cost"]["total_cost_usd"]
            assert told == {
                "session_id": session.id,
                "cwd": str(tmp_path),
                "model": {"id": "scripted", "display_name": "scripted"},
                "workspace": {
                    "current_dir": str(tmp_path),
                    "project_dir": str(tmp_path),
                    "added_dirs": [str(tmp_path)],
                },
                "output_style": {"name": "default"},
                "cost": {
                    "total_duration_ms": 1500,
                    "total_api_duration_ms": 250,
                    "total_lines_added": 3,
                    "total_lines_removed": 1,
                },
                "exceeds_200k_tokens": False,
                "thinking": {"enabled": False},
                "fast_mode": False,
                "effort": {"level": "low"},
                "vim": {"mode": "NORMAL"},
            }

    anyio.run(main)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("git@github.com:ann/tools.git", ("github.com", "ann", "tools")),
        ("https://ann@git.example.org:8443/a/b/tools/", ("git.example.org", "a/b", "tools")),
        ("ssh://git@host/ann/tools", ("host", "ann", "tools")),
        ("../elsewhere", None),
    ],
)
def test_the_repository_and_its_worktree_are_read_off_gits_files(
    tmp_path: Path, address: str, told: tuple[str, str, str] | None
) -> None:
    git, apart = tmp_path / ".git", tmp_path / ".travois" / "worktrees" / "fix"
    (git / "worktrees" / "fix").mkdir(parents=True)
    (git / "config").write_text(f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {address}\n')
    (apart / "src").mkdir(parents=True)
    (apart / ".git").write_text(f"gitdir: {git}/worktrees/fix\n")
    repo = {"repo": dict(zip(("host", "owner", "name"), told, strict=True))} if told else {}
    assert find_git_repository(str(tmp_path)) == repo
    assert find_git_repository(str(apart / "src")) == {"git_worktree": "fix", **repo}
    assert describe_worktree(str(tmp_path), "main") == {}
    assert describe_worktree(str(apart / "src"), "travois/fix") == {
        "worktree": {
            "name": "fix",
            "path": str(apart),
            "branch": "travois/fix",
            "original_cwd": str(tmp_path),
        }
    }


def test_lines_that_change_and_seconds_that_the_model_takes_are_counted() -> None:
    work = SessionWork()
    change = '{"type":"update","filePath":"a","added":2,"removed":1,"structuredPatch":[]}'
    said = Assistant((), stop="calls")
    for at, fact in (
        (1.0, Sent(1, "chain", "digest", 9)),
        (3.5, said),
        (4.0, Result("one", (), detail=change)),
        (5.0, Result("two", (), detail='{"exitCode":0}')),
        (6.0, Sent(1, "chain", "digest", 9)),
        (6.5, said),
        (7.0, Result("three", (), detail=change)),
    ):
        work.add(Entry(1, at, fact))
    assert (work.waited, work.added, work.removed) == (3.0, 4, 2)


def loaded(tmp_path: Path, environ: Mapping[str, str] | None = None) -> LoadedSettings:
    return load_settings(
        TravoisHome(tmp_path / "home").prepare(),
        str(tmp_path / "work"),
        environ=environ or {},
        etc=tmp_path,
    )


def status(command: str) -> str:
    return json.dumps({"statusLine": {"type": "command", "command": command}})


def test_a_program_of_a_workspace_runs_only_by_trust_which_ends_when_its_file_changes(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "work" / ".claude"
    folder.mkdir(parents=True)
    script = folder / "status.sh"
    script.write_text("echo good\n")
    (folder / "settings.json").write_text(status(".claude/status.sh"))
    held = loaded(tmp_path)
    assert held.settings.status_line.command == ""
    assert any(".claude/status.sh" in text for text in held.wanted)
    trust.trust_folder(TravoisHome(tmp_path / "home"), held.root, held.wanted)
    agreed = loaded(tmp_path)
    assert agreed.settings.status_line.command == ".claude/status.sh"
    assert agreed.scripts == (str(script),)
    script.write_text("echo evil\n")
    assert loaded(tmp_path).settings.status_line.command == ""


def test_a_program_that_the_user_has_for_another_agent_is_used(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "settings.json").write_text(status("mine.sh"))
    found = loaded(tmp_path, {"CLAUDE_CONFIG_DIR": str(theirs)})
    assert found.settings.status_line == StatusLineSettings("command", "mine.sh")
