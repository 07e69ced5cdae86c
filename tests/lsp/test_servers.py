"""Errors that an edit brings, whatever the server does."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from tests.processes import running
from travois.lsp import server
from travois.lsp.check import EditCheck
from travois.lsp.discovery import LanguageServerConfig
from travois.lsp.servers import LanguageServers
from travois.ports.world import Command
from travois.process.job import StdioConnection
from travois.process.local_processes import LocalProcesses

SPEAKER = str(Path(__file__).with_name("speaker.py"))
PATIENCE = 300.0
"""The most seconds that a test waits for what must come."""
GOOD, BAD = "fine\n", "fine\nsome BAD word\n"


class Desk:
    """Language servers for a folder, with the scripted server that does one thing wrong."""

    def __init__(self, root: Path, fault: str, *args: str) -> None:
        self.root = str(root)
        self.told: list[str] = []
        self.has_told = anyio.Event()
        self.command = (sys.executable, SPEAKER, fault, *args, self.root)
        self.processes = LocalProcesses()
        config = LanguageServerConfig("speaker", self.command, {".txt": "text"}, "path")
        self.servers = LanguageServers(
            (config,),
            start=self._start,
            report=self._report,
            edit_seconds=PATIENCE,
            request_seconds=PATIENCE,
        )

    def _start(
        self, config: LanguageServerConfig, folder: str, log: Callable[[bytes], None]
    ) -> StdioConnection:
        return self.processes.connect_stdio(Command(config.argv, folder), log=log)

    def _report(self, text: str) -> None:
        self.told.append(text)
        self.has_told.set()

    def begin(self, before: str | None, after: str | None, name: str = "a.txt") -> EditCheck:
        """Edit a file on disk, and begin to check that."""
        path = Path(self.root) / name
        if after is not None:
            path.write_text(after)
        pair = [None if text is None else text.encode() for text in (before, after)]
        (check,) = self.servers.check_edit(
            {str(path): pair[0]}, {str(path): pair[1]}, root=self.root
        )
        return check

    async def edit(self, before: str | None, after: str | None, name: str = "a.txt") -> str:
        """Edit a file, and return what the model is told."""
        return await self.begin(before, after, name).wait_for_errors(PATIENCE)

    def run(self, story: Callable[[Desk], Awaitable[None]]) -> None:
        """Run a story, and see that no server is left."""

        async def main() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(self.servers.run_until_cancelled)
                await anyio.wait_all_tasks_blocked()
                await story(self)
                group.cancel_scope.cancel()
            await self.processes.aclose()

        anyio.run(main)
        assert running(" ".join(self.command)) == []


@pytest.mark.parametrize("kind", ["none", "unversioned", "pull"])
def test_only_the_errors_that_an_edit_brings_are_told(tmp_path: Path, kind: str) -> None:
    async def story(desk: Desk) -> None:
        told = "1 new error since this edit (speaker):\na.txt:2:6: this is BAD (bad)\n"
        assert await desk.edit("BAD\n", "BAD\nsome BAD 1\n") == f"{told}    some BAD 1"
        assert await desk.edit("BAD\nsome BAD 1\n", "x\nBAD\nsome BAD 1\n") == ""
        assert await desk.edit("x\nBAD\nsome BAD 1\n", "x BAD WARN\n") == ""

    Desk(tmp_path, kind).run(story)


def test_a_file_whose_whole_name_is_a_suffix_is_checked_like_any_other(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        assert "this is BAD" in await desk.edit(GOOD, BAD, ".txt")

    Desk(tmp_path, "none").run(story)


def test_a_new_file_has_only_new_errors_and_a_deleted_one_has_none(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        assert await desk.edit(None, "BAD\nBAD\n") == (
            "2 new errors since this edit (speaker):\n"
            "a.txt:1:1: this is BAD (bad)\n    BAD\na.txt:2:1: this is BAD (bad)\n    BAD"
        )
        assert await desk.edit("BAD\nBAD\n", None) == ""

    Desk(tmp_path, "none").run(story)


def test_a_change_by_others_is_not_blamed_on_the_next_edit(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        assert await desk.edit(GOOD, "fine 1\n") == ""
        assert await desk.edit(GOOD, "fine 2\n", "b.txt") == ""
        (tmp_path / "b.txt").write_text(BAD)  # a command, say
        assert await desk.edit("BAD\n", "BAD 1\n") == ""

    Desk(tmp_path, "none").run(story)


def test_errors_beyond_the_first_few_are_counted(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        told = await desk.edit(GOOD, BAD)
        assert told.startswith("2000 new errors since this edit (speaker):\na.txt:2:6: this is BAD")
        assert told.endswith("\n... and 1992 more") and len(told) < 1_000

    Desk(tmp_path, "many").run(story)


def test_a_slow_server_is_not_waited_for_and_its_errors_come_later(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        check = desk.begin(GOOD, BAD)
        assert await check.wait_for_errors(0.01) == "" and not check.is_done
        (tmp_path / "go").touch()
        await check.done.wait()
        assert check.describe_errors() == (
            "1 new error since the earlier edit of a.txt (speaker):\n"
            "a.txt:2:6: this is BAD (bad)\n    some BAD word"
        )
        assert await desk.edit(BAD, BAD + "x\n") == ""

    Desk(tmp_path, "slow", str(tmp_path / "go")).run(story)


def test_a_late_error_that_was_mended_meanwhile_is_not_told(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        first, second = desk.begin(GOOD, BAD), desk.begin(BAD, GOOD)
        assert [await check.wait_for_errors(0.01) for check in (first, second)] == ["", ""]
        (tmp_path / "go").touch()
        await second.done.wait()
        assert (first.describe_errors(), second.describe_errors()) == ("", "")

    Desk(tmp_path, "slow", str(tmp_path / "go")).run(story)


def test_a_server_that_says_nothing_of_a_file_does_not_hold_up_the_next_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(desk: Desk) -> None:
        for number in range(2):
            assert await desk.edit(GOOD, f"{BAD}{number}") == ""
        assert desk.servers.list_servers(desk.root)[0].is_ready

    monkeypatch.setattr(server, "SILENCE_SECONDS", 0.01)
    Desk(tmp_path, "mute").run(story)


@pytest.mark.parametrize("fault", ["mute", "dead"])
def test_a_server_that_never_answers_is_not_waited_for(tmp_path: Path, fault: str) -> None:
    async def story(desk: Desk) -> None:
        for number in range(3):
            assert await desk.begin(GOOD, f"{BAD}{number}").wait_for_errors(0.01) == ""
        assert desk.told == []

    Desk(tmp_path, fault).run(story)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("crash", "it exited (out of luck)"),
        ("garbage", "its output has no message headers"),
        ("huge", "a message has 99,999,999,999 bytes"),
    ],
)
def test_a_server_that_fails_is_restarted_twice_and_told_of_once(
    tmp_path: Path, fault: str, why: str
) -> None:
    async def story(desk: Desk) -> None:
        for number in range(3):
            assert await desk.edit(GOOD, f"{BAD}{number}") == ""
        await desk.has_told.wait()
        assert desk.told == [
            f"Language server speaker failed 3 times and is not used any more: {why}"
        ]
        path = str(tmp_path / "a.txt")
        assert desk.servers.check_edit({path: b"1"}, {path: b"2"}, root=desk.root) == []

    Desk(tmp_path, fault, str(tmp_path / "crashes")).run(story)
    if fault == "crash":
        assert (tmp_path / "crashes").read_text() == "crashed\n" * 3


def test_a_program_that_is_gone_fails_no_edit(tmp_path: Path) -> None:
    async def story(desk: Desk) -> None:
        for number in range(3):
            assert await desk.edit(GOOD, f"{BAD}{number}") == ""
        await desk.has_told.wait()
        assert len(desk.told) == 1

    desk = Desk(tmp_path, "none")
    config = LanguageServerConfig("speaker", (str(tmp_path / "gone"),), {".txt": "text"}, "path")
    desk.servers.configs = (config,)
    desk.run(story)
