"""Limits as a user sets them: they hold for a session, however often it is resumed."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.facts import Ended, Entry
from travois.core.models import Usage
from travois.testing import Scripted, say


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    return Options(cwd=str(folder), session_id="6f1b2a60-0000-4000-8000-000000000001")


def ended(options: Options, model: Scripted) -> list[Ended]:
    """How the turn of a session ended."""

    async def main() -> list[Ended]:
        async with LiveSession(options, model=model) as session:
            facts = [event.fact async for event in session.run("go") if isinstance(event, Entry)]
        return [fact for fact in facts if isinstance(fact, Ended)]

    return anyio.run(main)


def test_tokens_stay_used_when_a_session_is_resumed(options: Options) -> None:
    model = Scripted(say("hello", usage=Usage(input=40_000, output=10_000)))
    limited = replace(options, max_tokens=60_000)
    resumed = replace(limited, session_id="", resume=options.session_id)
    assert ended(limited, model) == [Ended("end")]
    [last] = ended(resumed, model)
    assert last.why == "budget"
    assert last.detail.startswith("10,000 tokens left, and the next request may need 5")
    assert len(model.requests) == 1
    assert ended(replace(resumed, max_tokens=200_000), model) == [Ended("end")]


def test_a_limit_of_a_settings_file_holds_without_a_flag(options: Options) -> None:
    model = Scripted(say("hello"))
    [last] = ended(replace(options, settings='{"maxTokens": 5}'), model)
    assert (last.why, model.requests) == ("budget", [])
