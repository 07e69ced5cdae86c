"""A workspace, something outside of it, and walls between: for tests that run real programs."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal

import anyio
import msgspec
import pytest

from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.world import Command, ProcessResult
from travois.process.local_processes import LocalProcesses
from travois.sandbox.probe import SandboxSupport, find_sandbox_support

SECONDS = 180.0
Mode = Literal["full", "partial"]


class Scene(msgspec.Struct, frozen=True):
    """Folders and a cage. None of them is in /tmp, which a cage covers."""

    work: Path
    outside: Path
    sandbox: SandboxProfile

    def sh(self, text: str, **more: object) -> Command:
        """A line of bash in the workspace, in the cage."""
        more.setdefault("sandbox", self.sandbox)
        return Command(("/bin/bash", "-c", text), str(self.work), **more)  # type: ignore[arg-type]

    def but(self, **changes: object) -> SandboxProfile:
        return msgspec.structs.replace(self.sandbox, **changes)


@contextmanager
def scene(**more: object) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix=".travois-test-", dir=Path.home()) as name:
        place = Path(name)
        for folder in ("work", "outside", "temp"):
            (place / folder).mkdir()
        work, temp = str(place / "work"), str(place / "temp")
        yield Scene(
            place / "work", place / "outside", SandboxProfile("work", (work,), temp, **more)
        )  # type: ignore[arg-type]


@cache
def found() -> SandboxSupport:
    return find_sandbox_support(None)


def walls(mode: Mode) -> SandboxSupport:
    """The walls of this kind; skips the test where this machine has none."""
    working = {check.name for check in found().checks if check.works}
    if mode == "full" and found().kind != "full":
        pytest.skip(found().line)
    if mode == "partial" and "landlock" not in working:
        pytest.skip("this kernel has no Landlock that will do")
    return msgspec.structs.replace(found(), kind=mode)


def play(mode: Mode | None, act: Callable[[LocalProcesses], Awaitable[None]]) -> None:
    """Let programs run behind walls of one kind, and end everything that is left."""
    behind = walls(mode) if mode else None

    async def main() -> None:
        processes = LocalProcesses(support=behind)
        try:
            await act(processes)
        finally:
            await processes.aclose()

    anyio.run(main)


def run(mode: Mode | None, command: Command) -> ProcessResult:
    """One program, to its end."""
    ended: list[ProcessResult] = []

    async def act(processes: LocalProcesses) -> None:
        ended.append(await processes.run(command, timeout=SECONDS))

    play(mode, act)
    return ended[0]
