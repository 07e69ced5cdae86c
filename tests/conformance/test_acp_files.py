"""Files with an editor before the disk: what it shows, what it changes, what it never hears of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import msgspec
import pytest

from travois.acp.editor import EditorFiles
from travois.acp.protocol import ClientCapabilities, FileCapabilities
from travois.compat.claude_json import JsonObject
from travois.files.disk import DiskFiles
from travois.headless.control.messages import HostDeclined
from travois.ports.world import StaleFile, content_digest

BOTH, READS = (
    ClientCapabilities(fs=FileCapabilities(True, True)),
    ClientCapabilities(fs=FileCapabilities(True, False)),
)


class Editor:
    """An editor that has some buffers and keeps what it was asked."""

    def __init__(self, buffers: dict[str, str], *, deaf: bool = False) -> None:
        self.buffers = buffers
        self.deaf = deaf
        self.asked: list[str] = []

    async def ask(self, method: str, params: JsonObject) -> msgspec.Raw:
        path = str(params["path"])
        self.asked.append(f"{method} {Path(path).name}")
        if path not in self.buffers:
            raise HostDeclined("it is not open")
        if method == "fs/read_text_file":
            return msgspec.Raw(msgspec.json.encode({"content": self.buffers[path]}))
        if not self.deaf:
            self.buffers[path] = str(params["content"])
            Path(path).write_bytes(self.buffers[path].encode())
        return msgspec.Raw(b"null")


class Ground:
    """A workspace, and the editor's buffers before it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.editor = Editor({})

    def write(self, name: str, data: bytes, buffer: str | None = None) -> str:
        path = self.folder / name
        path.write_bytes(data)
        if buffer is not None:
            self.editor.buffers[str(path)] = buffer
        return str(path)

    def files(self, able: ClientCapabilities = BOTH) -> EditorFiles:
        folders = (str(self.folder),)
        return EditorFiles(DiskFiles(), self.editor.ask, able=able, session="s", folders=folders)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    (tmp_path / "work").mkdir()
    return Ground(tmp_path / "work")


def done(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await work()

    anyio.run(main)


def test_what_is_not_saved_is_read_and_what_is_the_same_keeps_its_bytes(ground: Ground) -> None:
    async def work() -> None:
        files = ground.files()
        assert await files.read(ground.write("a", b"old\r\nend\r\n", "new\nend\n")) == (
            b"new\r\nend\r\n"
        )
        assert await files.read(ground.write("b", b"same\r\n", "same\n")) == b"same\r\n"
        assert await files.read(ground.write("c", b"closed\n")) == b"closed\n"
        path = ground.write("d", b"0123456789", "unsaved")
        assert await files.read(path, offset=2, limit=3) == b"234"

    done(work)


def test_the_editor_hears_only_of_plain_text_in_the_workspace(ground: Ground) -> None:
    async def work() -> None:
        files = ground.files()
        outside = ground.write("../secret", b"secret", "other")
        link = ground.folder / "link"
        link.symlink_to(outside)
        ground.editor.buffers[str(link)] = "followed"
        for name, data in (
            ("bom", b"\xef\xbb\xbfx"),
            ("latin", b"caf\xe9"),
            ("image", b"\x89PNG\0"),
        ):
            assert await files.read(ground.write(name, data, "other")) == data
        assert await files.read(str(ground.folder.parent / "secret")) == b"secret"
        with pytest.raises(OSError, match="link"):
            await files.read(str(link))
        with pytest.raises(OSError, match="link"):
            await files.replace(str(link), b"x", expect=content_digest(b"followed"))
        assert ground.editor.asked == []

    done(work)


def test_a_change_is_made_only_to_what_was_seen(ground: Ground) -> None:
    async def work() -> None:
        files, path = ground.files(), ground.write("a", b"saved\n", "unsaved\n")
        for known in (b"saved\n", b"something else\n"):
            with pytest.raises(StaleFile):
                await files.replace(path, b"changed\n", expect=content_digest(known))
        assert Path(path).read_bytes() == b"saved\n"
        after = await files.replace(path, b"changed\n", expect=content_digest(b"unsaved\n"))
        assert (after, Path(path).read_bytes()) == (content_digest(b"changed\n"), b"changed\n")
        fresh = str(ground.folder / "fresh")
        await files.replace(fresh, b"made\n", expect=None)
        with pytest.raises(StaleFile):
            await files.replace(fresh, b"again\n", expect=None)
        assert ground.editor.asked.count("fs/write_text_file a") == 1
        assert "fs/write_text_file fresh" not in ground.editor.asked

    done(work)


def test_unsaved_text_is_never_overwritten_behind_the_editor(ground: Ground) -> None:
    async def work() -> None:
        path = ground.write("a", b"saved\n", "unsaved\n")
        with pytest.raises(OSError, match="unsaved"):
            await ground.files(READS).replace(path, b"x\n", expect=content_digest(b"unsaved\n"))
        ground.editor.deaf = True
        with pytest.raises(OSError, match="did not apply"):
            await ground.files().replace(path, b"x\n", expect=content_digest(b"unsaved\n"))
        assert Path(path).read_bytes() == b"saved\n"
        closed = ground.write("b", b"closed\n")
        after = await ground.files().replace(closed, b"x\n", expect=content_digest(b"closed\n"))
        assert (after, Path(closed).read_bytes()) == (content_digest(b"x\n"), b"x\n")

    done(work)
