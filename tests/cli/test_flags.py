"""What flags come to before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from travois.cli.main import run_command_line
from travois.commands.flags import options_from_args, parse_command_line
from travois.compose.options import NAMED_ONLY_TOOLS, Options, settings_from_options
from travois.core.errors import UserError


def asked(*words: str) -> Options:
    return options_from_args(parse_command_line(["-p", "x", *words]))


@pytest.mark.parametrize(
    ("words", "effort"),
    [
        (("--effort", "max"), "max"),
        (("--max-thinking-tokens", "20000"), "high"),
        (("--max-thinking-tokens", "0"), "low"),
        (("--thinking", "disabled"), "low"),
        (("--thinking", "adaptive"), ""),
        (("--effort", "xhigh", "--max-thinking-tokens", "1"), "xhigh"),
    ],
)
def test_how_much_is_thought_may_be_said_in_many_ways(words: tuple[str, ...], effort: str) -> None:
    assert settings_from_options(asked(*words)).get("effortLevel", "") == effort


@pytest.mark.parametrize(
    ("text", "window"), [("200k", 200_000), ("0.5M", 500_000), ("150000", 150_000), ("auto", 0)]
)
def test_a_window_is_a_number_as_people_write_it(text: str, window: int) -> None:
    assert settings_from_options(asked("--autocompact", text)).get("context.window", 0) == window


def test_words_that_are_no_number_or_level_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words, why in (
        (("--autocompact", "lots"), "'lots' is not a number of tokens"),
        (("--effort", "huge"), "choose from"),
    ):
        with pytest.raises(SystemExit, match="2"):
            asked(*words)
        assert why in capsys.readouterr().err


def test_a_text_and_a_file_for_it_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "cat.md").write_text("You are a cat.")
    words = ("--system-prompt-file", str(tmp_path / "cat.md"))
    assert asked(*words).system == "You are a cat."
    with pytest.raises(UserError, match="exclude each other"):
        asked(*words, "--system-prompt", "x")
    with pytest.raises(UserError, match="cannot be read"):
        asked("--append-system-prompt-file", str(tmp_path / "none.md"))


def test_a_restricted_session_may_do_what_is_named_and_no_bypass() -> None:
    told = settings_from_options(asked("--restricted", "--tools", "Bash,Read"))
    assert told["permissions.disableBypassPermissionsMode"] == "disable"
    assert told["permissions.deny"] == tuple(name for name in NAMED_ONLY_TOOLS if name != "Bash")
    assert "permissions.deny" not in settings_from_options(asked())


def test_who_is_never_to_be_asked_has_a_mode_for_it() -> None:
    assert asked("--permission-prompts", "none").mode == "dont-ask"
    assert asked("--permission-prompts", "none", "--permission-mode", "plan").mode == "plan"
    assert asked("--permission-prompts", "host").mode == ""


def test_the_background_takes_one_task_that_can_be_found_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["--bg"], ["--bg", "-p", "x"], ["--bg", "-c", "x"]):
        assert run_command_line(words) == 2
        assert "--bg" in capsys.readouterr().err


def test_a_list_of_tools_takes_the_words_of_others_and_no_word_that_is_none() -> None:
    assert asked("--tools", "Read,Task,mcp__git__log").tools == ("Read", "Agent", "mcp__git__log")
    with pytest.raises(UserError, match="there is no tool 'Grp'") as caught:
        asked("--tools", "Read,Grp")
    assert caught.value.fix == "Did you mean Grep?"
