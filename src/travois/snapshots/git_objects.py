"""Git objects that snapshots need, kept by hard links even after the repository drops them.

The folder is laid out as a repository of our own, so that git can read from it without any settings
of the user's repository.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from binascii import hexlify, unhexlify
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

from travois.sessions import blobs
from travois.snapshots.tree import LOOSE_PREFIX, is_git_blob, is_loose_object

STORE_GIT_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
MAX_COPIED_PACK_BYTES = 256 << 20
"""The largest pack that is copied where it cannot be linked."""


class HeldObjects:
    """The packs and loose objects that are held for one project."""

    def __init__(self, packs: Path) -> None:
        self._packs = packs
        self._git = packs / "git"
        self._reader: subprocess.Popen[bytes] | None = None
        self._loose_size: int | None = None

    def link_pack(self, path: bytes, name: bytes) -> bool:
        """Link a pack or one of its companion files; return False if that is not possible."""
        kept = self.locate_pack(name)
        try:
            self._packs.mkdir(mode=0o700, exist_ok=True)
            _link_or_copy(path, kept)
        except FileExistsError:
            pass
        except OSError:
            return False
        named = os.fsdecode(path.rpartition(b"/")[2])
        if named.endswith((".pack", ".idx")):
            self._prepare_repository()
            with suppress(FileExistsError):
                os.symlink(f"../../../{kept.name}", self._git / "objects/pack" / named)
        return True

    def link_loose(self, path: bytes) -> bytes:
        """Link a loose object; return its part name. Raises OSError."""
        folder, name = path.split(b"/")[-2:]
        kept = self._git / "objects" / os.fsdecode(folder) / os.fsdecode(name)
        try:
            os.link(path, kept, follow_symlinks=False)
        except FileExistsError:
            pass
        except FileNotFoundError:
            self._prepare_repository()
            blobs.make_folders(kept.parent)
            with suppress(FileExistsError):
                os.link(path, kept, follow_symlinks=False)
        return LOOSE_PREFIX + bytes.fromhex((folder + name).decode())

    def locate_pack(self, name: bytes) -> Path:
        """Return the path of a held file."""
        if is_loose_object(name):
            text = name[1:].hex()
            return self._git / "objects" / text[:2] / text[2:]
        return self._packs / name.hex()

    def iterate_blob_sizes(
        self, names: Iterable[bytes], *, within: str = ""
    ) -> Iterator[tuple[bytes, int]]:
        """Yield those of these blobs that are held, or that one folder holds, with their sizes."""
        if not self._git.is_dir():
            return
        with TemporaryFile() as asked, TemporaryFile() as told:
            asked.write(b"\n".join(map(hexlify, names)) + b"\n")
            asked.seek(0)
            form = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
            with suppress(OSError), self._run_cat_file(form, asked, told, within=within) as running:
                running.wait()
            told.seek(0)
            for line in told:
                if line[40:46] == b" blob ":
                    yield unhexlify(line[:40]), int(line[46:])

    def read_blob(self, name: bytes) -> bytes:
        """Return the content of a blob; raises KeyError."""
        if self._reader is None:
            try:
                self._reader = self._run_cat_file("--batch", subprocess.PIPE, subprocess.PIPE)
            except OSError as error:
                raise KeyError(name.hex()) from error
        asked, told = self._reader.stdin, self._reader.stdout
        assert asked is not None
        assert told is not None
        try:
            asked.write(b"%s\n" % name.hex().encode())
            asked.flush()
            _, kind, *size = told.readline().split() or (b"", b"gone")
            content = told.read(int(size[0]) + 1)[:-1] if size else b""
        except OSError:
            kind, content = b"gone", b""
        if kind != b"blob":
            raise KeyError(name.hex())
        return content

    def close(self) -> None:
        """End the git process that reads blobs."""
        if self._reader is not None:
            self._reader.kill()
            self._reader.communicate()
            self._reader = None

    def size(self) -> int:
        """Return the bytes taken by objects that the repository has dropped."""
        with suppress(FileNotFoundError), os.scandir(self._packs) as found:
            flat = (entry.stat() for entry in found if entry.is_file())
            held = sum(one.st_size for one in flat if one.st_nlink == 1)
            if self._loose_size is None:
                own = (Path(path).stat() for path in self._iterate_loose())
                self._loose_size = sum(one.st_size for one in own if one.st_nlink == 1)
            return held + self._loose_size
        return 0

    def drop_unused(self, live: set[bytes]) -> None:
        """Drop all held files except these names and those that contain a blob among them."""
        needed = {name[1:] for name in live if is_git_blob(name)}
        loose = {name[1:] for name in live if is_loose_object(name)}
        for path in list(self._iterate_loose()):
            folder, name = path.split("/")[-2:]
            if bytes.fromhex(folder + name) not in needed | loose:
                os.unlink(path)
        packs = self._list_packs()
        kept = [file for file in packs if bytes.fromhex(file.name) in live]
        missing = {name for name in needed if not self.locate_pack(LOOSE_PREFIX + name).exists()}
        missing -= self._find_blobs_in(missing, kept)
        for file in packs:
            if file not in kept and not (missing and self._holds_any(missing, file)):
                file.unlink(missing_ok=True)
        self._loose_size = None
        for link in (self._git / "objects/pack").glob("*"):
            if not link.exists():
                link.unlink(missing_ok=True)

    def _holds_any(self, wanted: set[bytes], file: Path) -> bool:
        """Return whether a pack that no snapshot lists any more, or its index, is still needed."""
        names = {link.resolve(): link.stem for link in (self._git / "objects/pack").glob("*")}
        stem = names.get(file.resolve())
        pair = [one for one in self._list_packs() if names.get(one.resolve(), "") == stem]
        return stem is not None and bool(self._find_blobs_in(wanted, pair))

    def _find_blobs_in(self, wanted: set[bytes], packs: list[Path]) -> set[bytes]:
        """Return the blobs that lie in these packs."""
        if not wanted or not packs:
            return set()
        chosen = {file.resolve() for file in packs}
        with TemporaryDirectory(dir=self._packs) as scratch:
            inner = Path(scratch, "pack")
            inner.mkdir()
            for link in (self._git / "objects/pack").glob("*"):
                if link.resolve() in chosen:
                    (inner / link.name).symlink_to(link.resolve())
            return set(dict(self.iterate_blob_sizes(wanted, within=scratch)))

    def _list_packs(self) -> list[Path]:
        return [file for file in self._packs.glob("*") if file.is_file() and not file.suffix]

    def _iterate_loose(self) -> Iterator[str]:
        for folder in (self._git / "objects").glob("[0-9a-f][0-9a-f]"):
            with os.scandir(folder) as found:
                yield from (entry.path for entry in found)

    def _prepare_repository(self) -> None:
        if (self._git / "HEAD").exists():
            return
        for folder in ("objects/pack", "refs"):
            blobs.make_folders(self._git / folder)
        blobs.replace_file(self._git / "config", STORE_GIT_CONFIG.encode(), sync="whenever")
        blobs.replace_file(self._git / "HEAD", b"ref: refs/heads/none\n", sync="whenever")

    def _run_cat_file(
        self, form: str, asked: IO[bytes] | int, told: IO[bytes] | int, *, within: str = ""
    ) -> subprocess.Popen[bytes]:
        """Start git on our own folder alone. Raises OSError."""
        # Without the user's environment and settings: those could name programs to run.
        return subprocess.Popen(
            ("git", f"--git-dir={self._git}", "cat-file", form),
            stdin=asked,
            stdout=told,
            stderr=subprocess.DEVNULL,
            cwd=self._git,
            env={
                **({"GIT_OBJECT_DIRECTORY": within} if within else {}),
                "PATH": os.environ.get("PATH", os.defpath),
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_CONFIG_GLOBAL": os.devnull,
                "GIT_NO_LAZY_FETCH": "1",
                "GIT_NO_REPLACE_OBJECTS": "1",
            },
        )


def _link_or_copy(path: bytes, kept: Path) -> None:
    """Link a git object file for snapshots; copy it if the store is on another disk."""
    try:
        os.link(path, kept, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        if kept.exists() or os.lstat(path).st_size > MAX_COPIED_PACK_BYTES:
            raise
        draft = kept.with_suffix(f".{os.urandom(4).hex()}")
        try:
            shutil.copyfile(path, draft, follow_symlinks=False)
            os.rename(draft, kept)
        finally:
            draft.unlink(missing_ok=True)
