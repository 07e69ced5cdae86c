"""What a call may open and show: where its paths led, without what rules hide, without secrets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.engine.fakes import agent, begun, facts, play
from travois.cli.main import write_crash_report
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.content import extract_text
from travois.core.facts import Result
from travois.engine.agent import Agent
from travois.files.disk import DiskFiles
from travois.permissions.access import Access
from travois.permissions.decide import Permissions
from travois.permissions.resolve_paths import JudgedFiles, hidden_path_filter, resolve_accesses
from travois.permissions.rules import parse_permission_rule
from travois.testing import Scripted, call, say
from travois.tools.catalog import TOOLS

KEY = "sk-ant-api03-not-for-any-log"


def ruled(folder: Path, *lines: Any) -> Agent:
    rules = (
        parse_permission_rule("Read(./secrets/**)", "deny"),
        parse_permission_rule("Read(**/.env)", "ask"),
    )
    guard = Permissions(rules=rules, folders=(str(folder),))
    return agent(folder, *lines, tools=TOOLS, session=begun(), guard=guard)


def test_searches_show_nothing_that_a_rule_denies_or_asks_about(tmp_path: Path) -> None:
    for name in ("a.txt", "secrets/key", "deep/er/.env", ".env"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("needle\n")
    ours = ruled(
        tmp_path,
        call("Grep", pattern="needle", output_mode="content"),
        call("Glob", pattern="**/*"),
        call("Read", file_path="."),
        call("Read", file_path="enf"),
        call("Grep", pattern="needle", path="secrets"),
        say("done"),
    )
    play(ours)
    results = facts(ours, Result)
    assert [result.error for result in results] == [False, False, True, True, True]
    told = "\n".join(extract_text(result.content) for result in results[:4])
    assert "a.txt" in told
    assert ".env" not in told
    assert "key" not in told


def test_without_rules_nothing_is_hidden(tmp_path: Path) -> None:
    hidden = hidden_path_filter(Permissions(), "Grep", root=str(tmp_path))
    assert not hidden(f"{tmp_path}/.env")


def test_a_missing_file_behind_a_link_is_looked_for_where_the_link_led(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "notes.txt").touch()
    (tmp_path / "link").symlink_to("real")
    ours = ruled(tmp_path, call("Read", file_path="link/note.txt"), say("done"))
    play(ours)
    assert "Did you mean link/notes.txt?" in extract_text(facts(ours, Result)[0].content)


def test_what_a_call_did_not_speak_of_is_opened_without_links(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("a")
    judged = resolve_accesses((Access("read", f"{tmp_path}/link"),))
    files = JudgedFiles(DiskFiles(), judged, lambda path: False)
    others = JudgedFiles(DiskFiles(), (), lambda path: False)
    assert anyio.run(lambda: files.read(f"{tmp_path}/link")) == b"x"
    with pytest.raises(OSError, match="the path changed"):
        anyio.run(lambda: others.read(f"{tmp_path}/link"))


def test_a_secret_of_ours_reaches_neither_the_log_nor_any_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, home = tmp_path / "ws", tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("TRAVOIS_HOME", str(home))
    monkeypatch.setenv("ACME_API_KEY", KEY)
    (folder / "conf").write_text(f"key = {KEY}\n" + "filler\n" * 40_000 + KEY)
    model = Scripted(
        call("Read", file_path="conf"), call("Bash", command="cat conf"), say("It is a key.")
    )

    async def main() -> None:
        async with LiveSession(Options(cwd=str(folder)), model=model) as session:
            assert await session.ask("what is it?") == "It is a key."

    anyio.run(main)
    kept = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    assert any(b"[redacted: ACME_API_KEY]" in data for data in kept)
    assert [data for data in kept if KEY.encode() in data] == []
    assert all(KEY.encode() not in request.body for request in model.requests)
    large = max(kept, key=len)
    assert large.startswith(b"key = [redacted: ACME_API_KEY]\nfiller\n")


def test_a_crash_report_has_no_secret_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path))
    monkeypatch.setenv("ACME_API_KEY", KEY)
    error = RuntimeError(f"refused: {KEY}")
    said = write_crash_report(error, cause=error)
    (file,) = (tmp_path / "crashes").iterdir()
    assert KEY not in said + file.read_text()
    assert "refused: [redacted: ACME_API_KEY]" in said
    assert os.environ["ACME_API_KEY"] == KEY
