"""Which files five walks through the program pass, and how often they change the package.

A reader who follows a prompt to its first byte opens these files in this order: fewer files and
fewer changes of package make the program easier to follow. `python -m bench walks -v` lists them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import anyio
from msgspec.structs import replace

import travois
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.models import Usage
from travois.providers.replies import Reply
from travois.providers.request import Request
from travois.testing import Scripted, call, say

ROOT = os.path.dirname(travois.__file__) + os.sep
TURNS = 30
WISH = "Please always use pnpm in this project, never npm."


class Walk:
    """The files whose functions were called, in order; one entry for each call."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.functions: list[str] = []

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Take down which file a call leads to."""
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(ROOT) and not name.endswith("testing.py"):
            self.files.append(name.removeprefix(ROOT))
            self.functions.append(frame.f_code.co_qualname)

    @property
    def packages(self) -> list[str]:
        """The packages in the order in which they were entered."""
        entered: list[str] = []
        for file in self.files:
            package = file.split(os.sep)[0]
            if entered[-1:] != [package]:
                entered.append(package)
        return entered

    @property
    def ways(self) -> set[tuple[str, str, str]]:
        """The different changes of package: from where to which function. Loops repeat them."""
        packages = [file.split(os.sep)[0] for file in self.files]
        steps = zip(packages, packages[1:], self.files[1:], self.functions[1:], strict=False)
        return {(left, file, name) for left, entered, file, name in steps if left != entered}

    def __str__(self) -> str:
        changes = max(0, len(self.packages) - 1)
        files = f"{len({*self.files}):4} files {changes:5} changes of package"
        return f"{files}, {len(self.ways):4} of them different"


@contextmanager
def traced() -> Iterator[Walk]:
    walk = Walk()
    threading.setprofile(walk.note)
    sys.setprofile(walk.note)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


class Stops(Scripted):
    """Ends the walk when a request reaches the model, and may begin the next one at its reply."""

    walk: Walk | None = None

    def begin(self) -> Walk:
        self.walk = Walk()
        sys.setprofile(self.walk.note)
        return self.walk

    def stream(self, request):  # pyright: ignore
        sys.setprofile(None)
        return super().stream(request)


def counted(reply: Reply) -> Callable[[Request], Reply]:
    """Let a reply say that its request was as long as it is."""
    return lambda request: replace(reply, usage=Usage(input=len(request.body) // 4, output=50))


async def prompt(folder: Path) -> Walk:
    model = Stops(say("Hello."))
    async with LiveSession(Options(cwd=str(folder)), model=model) as session:
        walk = model.begin()
        await session.ask("hello")
    return walk


async def tool_call(folder: Path) -> Walk:
    walks: list[Walk] = []
    model: Stops

    def read(_: object):
        walks.append(model.begin())
        return call("Read", file_path=str(folder / "a.txt"))

    model = Stops(read, say("Done."))
    async with LiveSession(Options(cwd=str(folder)), model=model) as session:
        await session.ask("read a.txt")
    return walks[0]


async def compaction(folder: Path) -> Walk:
    read, told = call("Read", file_path=str(folder / "a.txt")), say("It says hello. " * 200)
    turns = (counted(read), counted(told)) * TURNS
    model = Scripted(*turns, counted(say("<summary>The file says hello.</summary>")))
    async with LiveSession(Options(cwd=str(folder)), model=model) as session:
        for _ in range(TURNS):
            await session.ask("what does a.txt say? " * 200)
        with traced() as walk:
            await session.compact()
    return walk


async def setting(folder: Path) -> Walk:
    """From a key in a settings file to the session that has its effect."""
    (folder / ".travois").mkdir(exist_ok=True)
    (folder / ".travois" / "settings.json").write_text('{"context": {"window": 50000}}')
    with traced() as walk:
        async with LiveSession(Options(cwd=str(folder)), model=Scripted(say("Hello."))):
            pass
    (folder / ".travois" / "settings.json").unlink()
    return walk


async def memory(folder: Path) -> Walk:
    """From the end of the turn with a wish to the request of another session that tells of it."""
    walk: Walk | None = None
    model = Scripted(say("I will."))
    async with LiveSession(Options(cwd=str(folder)), model=model) as session:
        await session.ask(WISH)
        walk = Walk()
        sys.setprofile(walk.note)
        threading.setprofile(walk.note)
    model = Stops(say("pnpm."))
    async with LiveSession(Options(cwd=str(folder)), model=model) as session:
        await session.ask("How do I install the packages?")
    threading.setprofile(None)
    return walk


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "work"
        folder.mkdir()
        (folder / "a.txt").write_text("hello\n")
        os.environ |= {"HOME": root, "TRAVOIS_HOME": str(Path(root) / "home")}
        for walk in (prompt, tool_call, compaction, setting, memory):
            found = anyio.run(walk, folder)
            print(f"{walk.__name__.replace('_', ' '):12} {found}")
            if "-v" in sys.argv:
                print("   " + " > ".join(dict.fromkeys(found.files)))


if __name__ == "__main__":
    main()
