"""/memory and #text at the prompt."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.testing import Scripted, say
from travois.tui.line_mode import LineModeHost
from travois.tui.slash import run_slash_line


class Nobody:
    """A reader that is never asked."""

    def line(self, text: str) -> None:
        raise AssertionError(text)

    async def read(self, prompt: str) -> str | None:
        raise AssertionError(prompt)


def answers(options: Options, *lines: str) -> list[str | None]:
    """What the lines are answered with, in one conversation."""

    async def main() -> list[str | None]:
        async with LiveSession(options, model=Scripted(say("ok"))) as session:
            desk = LineModeHost(session, options, Nobody())
            return [await run_slash_line(desk, line) for line in lines]

    return anyio.run(main)


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    return Options(cwd=str(tmp_path / "work"), mode="bypass")


def test_a_line_after_a_hash_is_remembered_and_can_be_taken_back(options: Options) -> None:
    added, shown, undone, left = answers(
        options,
        "# deploys happen on Tuesdays",
        "/memory show deploys-happen-on-tuesdays",
        "/memory undo",
        "/memory",
    )
    assert added is not None
    assert "+Deploys happen on Tuesdays (project, said by user)" in added
    assert "Undo: /memory undo " in added
    assert shown is not None
    assert "you said" in shown
    assert "travois --resume " in shown
    assert undone is not None
    assert "-Deploys happen on Tuesdays" in undone
    assert left is not None
    assert left.startswith("No memories here yet.")


@pytest.mark.parametrize(
    "prompt", ["#12 is broken", "## Plan", "#", "# Plan\n\nfirst, look", "#!x"]
)
def test_other_lines_with_a_hash_are_prompts(options: Options, prompt: str) -> None:
    assert answers(options, prompt) == [None]


def test_a_wrong_word_or_name_is_told_with_what_there_is(options: Options) -> None:
    wrong, none = answers(options, "/memory frobnicate", "/memory show nothing")
    assert wrong is not None
    assert "Unknown subcommand: /memory frobnicate" in wrong
    assert none == "There is no memory 'nothing'\n  Run `travois memory` to list them."


def test_secrets_typed_after_a_hash_are_not_kept(options: Options) -> None:
    refused, left = answers(options, "# the password is hunter2", "/memory")
    assert refused is not None
    assert "seems to contain a secret" in refused
    assert left is not None
    assert left.startswith("No memories here yet.")
