"""The commands that begin work, keep keys and copy: what they do, in a session without a screen."""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.corpus.shelf import build_shelf
from tests.tui.test_slash_commands import Reader, at_desk, options
from travois.compose.options import Options
from travois.core.content import extract_text
from travois.core.errors import UserError
from travois.prompt.project_commands import draft_instructions, find_project_commands
from travois.sessions.home import TravoisHome
from travois.settings.credentials import CREDENTIALS_FILE, KeyStore
from travois.tui import clipboard
from travois.tui.line_mode import LineModeHost
from travois.tui.slash import CommandPrompt, run_slash_line

__all__ = ["options"]
KEY = "sk-test-0123456789"


def ask_desk(options: Options, line: str, *typed: str) -> tuple[object, Reader]:
    """Run one command, with what the user types at its questions."""
    reader, found = Reader(*typed), list[object]()

    async def run(desk: LineModeHost) -> None:
        found.append(await run_slash_line(desk, line))

    at_desk(options, run, reader)
    return found[0], reader


def test_init_asks_a_real_model_to_write_the_instructions(options: Options) -> None:
    answer, _ = ask_desk(options, "/init mention the API")
    assert isinstance(answer, CommandPrompt)
    text = extract_text(answer.content)
    assert "AGENTS.md" in text and text.endswith("mention the API")


def test_review_is_of_what_is_uncommitted_or_named(options: Options) -> None:
    everything, named = (ask_desk(options, f"/review{more}")[0] for more in ("", " main..work"))
    assert isinstance(everything, CommandPrompt) and isinstance(named, CommandPrompt)
    assert "not committed yet" in extract_text(everything.content)
    assert "main..work (a branch" in extract_text(named.content)


def test_diff_shows_changes_and_names_new_files(options: Options) -> None:
    build_shelf(Path(options.cwd))
    answer, reader = ask_desk(options, "/diff")
    assert answer == "not yet known to git: scratch.txt"
    assert "+DUE_DAYS = 21" in "\n".join(reader.seen)
    clean, _ = ask_desk(options, "/diff HEAD~1 -- README.md")
    assert clean == "Nothing has changed."
    wrong, _ = ask_desk(options, "/diff nowhere")
    assert "git cannot show the difference" in str(wrong)


def test_a_folder_is_added_once_somebody_agrees(options: Options, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    folders: list[tuple[str, ...]] = []

    def adding(choice: str) -> Callable[[LineModeHost], Awaitable[None]]:
        async def run(desk: LineModeHost) -> None:
            await run_slash_line(desk, "/add-dir ../shared")
            folders.append(desk.session.runtime.agent.permissions.guard.folders[1:])

        at_desk(options, run, Reader(choice))
        return run

    for choice in ("3", "1", "2"):
        adding(choice)
    assert folders == [(), (str(tmp_path / "shared"),), (str(tmp_path / "shared"),)]
    later: list[tuple[str, ...]] = []

    async def look(desk: LineModeHost) -> None:
        later.append(desk.session.runtime.agent.permissions.guard.folders[1:])

    at_desk(options, look)
    assert later == [(str(tmp_path / "shared"),)], "the last answer was for later sessions too"


def test_a_key_is_kept_in_a_private_file_used_at_once_and_removed(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.delenv("OPENAI_API_KEY")
    answer, reader = ask_desk(options, "/login openai", KEY)
    file = tmp_path / "home" / CREDENTIALS_FILE
    assert "which only you can read" in str(answer)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.environ["OPENAI_API_KEY"] == KEY
    assert KEY not in str(answer) + "\n".join(reader.seen)
    del os.environ["OPENAI_API_KEY"]
    ask_desk(options, "/todos")
    assert os.environ["OPENAI_API_KEY"] == KEY, "a later session finds it"
    gone, _ = ask_desk(options, "/logout openai")
    assert gone == "Removed the key of openai."
    assert "OPENAI_API_KEY" not in os.environ and KEY not in file.read_text()


@pytest.mark.parametrize(
    ("line", "typed", "told"),
    [
        ("/login opnai", (), "Did you mean openai?"),
        ("/login openai", ("short",), "That is not an API key"),
        ("/login openai", ("",), "Nothing was saved."),
        ("/logout", (), "No key is stored."),
    ],
)
def test_a_wrong_login_changes_nothing(
    options: Options, tmp_path: Path, line: str, typed: tuple[str, ...], told: str
) -> None:
    answer, _ = ask_desk(options, line, *typed)
    assert told in str(answer)
    assert not (tmp_path / "home" / CREDENTIALS_FILE).exists()


def test_a_key_in_the_keyring_is_not_in_the_file(tmp_path: Path) -> None:
    ring: dict[str, str] = {}

    def keyring(words: tuple[str, ...], text: str) -> str | None:
        action, name = words
        if action == "store":
            ring[name] = text
        return ring.pop(name, None) if action == "clear" else ring.get(name)

    store = KeyStore(TravoisHome(tmp_path), keyring=keyring)
    assert store.save_key("A_KEY", KEY) == "the system's keyring"
    assert KEY not in store.path.read_text()
    environ = {"B": "1"}
    store.add_to_environment(environ)
    assert environ == {"B": "1", "A_KEY": KEY}
    own = {"A_KEY": "from the shell"}
    store.add_to_environment(own)
    assert own == {"A_KEY": "from the shell"}
    assert store.forget_key("A_KEY") and not store.forget_key("A_KEY") and not ring


def test_status_and_usage_tell_the_state(options: Options) -> None:
    status, _ = ask_desk(options, "/status")
    usage, _ = ask_desk(options, "/usage")
    assert all(word in str(status) for word in ("Travois", "mode", "default", "sandbox"))
    assert all(word in str(usage) for word in ("turns", "output", "cost"))


def test_feedback_is_a_file_with_facts_and_without_names_of_places(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    answer, _ = ask_desk(options, "/feedback the diff is cut")
    (file,) = (tmp_path / "home" / "feedback").iterdir()
    text = file.read_text()
    assert str(file) in str(answer) and "Nothing was sent" in str(answer)
    assert "the diff is cut" in text and "- version: Travois" in text
    assert options.cwd not in text


def test_a_model_is_picked_from_a_list_with_windows_and_prices(options: Options) -> None:
    _, reader = ask_desk(options, "/model", "")
    rows = [line for line in reader.seen if "claude-opus-5-5" in line]
    assert rows and "1M window · $" in rows[0]


def test_undo_takes_the_last_message_back_and_redo_brings_it_again(options: Options) -> None:
    async def run(desk: LineModeHost) -> None:
        session = desk.session.runtime.agent.session
        assert "Rewound to before this message" in str(await run_slash_line(desk, "/undo"))
        assert not [one for one in session.view.items if one.seq and "hello" in str(one.fact)]
        assert "Undid the rewind" in str(await run_slash_line(desk, "/redo"))
        assert [one for one in session.view.items if "hello" in str(one.fact)]

    at_desk(options, run, Reader("1"))


def test_commands_of_a_project_are_found_by_its_files(tmp_path: Path) -> None:
    found = {
        "Makefile": "test:\n\tx\nlint:\n\ty\n",
        "package.json": '{"scripts": {"test": "x", "dev": "y"}}',
        "Cargo.toml": "[package]\nname = 'a'\n",
        "go.mod": "module a\n",
        "pytest.ini": "",
    }
    tests: dict[str, str] = {}
    for name, text in found.items():
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_text(text)
        tests[name] = find_project_commands(str(folder)).test
    assert list(tests.values()) == [
        *("make test", "npm test", "cargo test", "go test ./...", "python3 -m pytest")
    ]
    assert find_project_commands(str(tmp_path)).test == ""


def test_instructions_without_a_model_say_what_the_files_say(tmp_path: Path) -> None:
    build_shelf(tmp_path)
    text = draft_instructions(str(tmp_path))
    assert text.startswith("# shelf\n\nA small library catalogue.")
    assert all(
        part in text for part in ("- test: `python3 -m pytest`", "- lint: `make lint`", "- `src/`")
    )
    assert ".git/" not in text


def test_text_is_copied_through_the_terminal_and_images_need_a_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert clipboard.encode_clipboard_sequence("hi") == "\x1b]52;c;aGk=\x07"
    assert clipboard.encode_clipboard_sequence("x" * 100_000) == ""
    monkeypatch.setenv("DISPLAY", ":9")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="cannot be read"):
        clipboard.read_image()
    program = tmp_path / "xclip"
    program.write_text("#!/bin/sh\n/bin/cat " + str(tmp_path / "held") + "\n")
    program.chmod(0o755)
    (tmp_path / "held").write_bytes(b"text")
    with pytest.raises(UserError, match="no image"):
        clipboard.read_image()
    (tmp_path / "held").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert clipboard.read_image() == b"\x89PNG\r\n\x1a\n"
