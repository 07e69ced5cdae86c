"""Settings that change between the turns of a session."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.permissions.rules import parse_permission_rule
from travois.ports.world import UserWarned
from travois.testing import Scripted, say


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("work", "home", "more"):
        (tmp_path / name).mkdir()
    return Options(cwd=str(tmp_path / "work"), sandbox=False)


async def turn(session: LiveSession) -> list[str]:
    """One turn; what the user was told in it."""
    return [event.text async for event in session.run("go") if isinstance(event, UserWarned)]


def test_a_change_takes_over_what_files_say_and_leaves_what_the_session_added(
    options: Options, tmp_path: Path
) -> None:
    path, model = tmp_path / "home/settings.json", Scripted(say("Yes."))
    path.write_text(json.dumps({"permissions": {"allow": ["Bash(ls)"]}}))

    async def main() -> None:
        async with LiveSession(options, model=model) as session:
            agent = session.runtime.agent
            made = parse_permission_rule("Bash(make)", "allow", origin="an answer")
            agent.permissions.guard = replace(
                agent.permissions.guard, rules=(*agent.permissions.guard.rules, made)
            )
            session.enter("plan")
            assert await turn(session) == []
            said = {"deny": ["WebFetch"], "additionalDirectories": [str(tmp_path / "more")]}
            path.write_text(json.dumps({"permissions": said, "language": "German"}))
            (told,) = await turn(session)
            assert told == f"{path} changed: its rules and hooks apply from now on"
            assert [str(rule.text) for rule in agent.permissions.guard.rules] == [
                "WebFetch",
                "Bash(make)",
            ]
            assert agent.permissions.guard.folders == (options.cwd, str(tmp_path / "more"))
            assert agent.permissions.guard.mode == "plan"
            assert await turn(session) == []

    anyio.run(main)
    heads = [request.body.partition(b'"messages"')[0] for request in model.requests]
    assert len(set(heads)) == 1


def test_a_file_that_breaks_or_goes_changes_only_what_it_said(
    options: Options, tmp_path: Path
) -> None:
    path = tmp_path / "home/settings.json"
    path.write_text(json.dumps({"permissions": {"deny": ["WebFetch"]}}))

    async def main() -> None:
        async with LiveSession(options, model=Scripted(say("Yes."))) as session:
            guard = session.runtime.agent.permissions.guard
            path.write_text("{")
            (told,) = await turn(session)
            assert told == f"{path} changed, but was not applied: {path} is not valid JSON"
            assert session.runtime.agent.permissions.guard == guard
            path.unlink()
            assert len(await turn(session)) == 1
            assert session.runtime.agent.permissions.guard == replace(guard, rules=())

    anyio.run(main)


def test_a_hook_may_keep_a_change_out_and_hears_whose_it_is(
    options: Options, tmp_path: Path
) -> None:
    heard, path = tmp_path / "heard", tmp_path / "work/.travois/settings.json"
    command = f"cat > {heard}; echo no >&2; exit 2"
    hook = {"hooks": [{"type": "command", "command": command}]}
    chosen = replace(options, settings=json.dumps({"hooks": {"ConfigChange": [hook]}}))

    async def main() -> None:
        async with LiveSession(chosen, model=Scripted(say("Yes."))) as session:
            path.parent.mkdir()
            path.write_text(json.dumps({"permissions": {"deny": ["WebFetch"]}}))
            told = await turn(session)
            assert told[-1] == f"{path} changed, but a hook rejected it: no"
            assert session.runtime.agent.permissions.guard.rules == ()

    anyio.run(main)
    event = json.loads(heard.read_text())
    assert (event["source"], event["file_path"]) == ("project_settings", str(path))
