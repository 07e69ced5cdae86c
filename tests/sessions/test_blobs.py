from __future__ import annotations

import threading
from pathlib import Path

import pytest

from travois.core.errors import UserError
from travois.sessions.blobs import BlobStore, hash_blob


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_bytes_are_kept_once_under_the_name_of_their_content(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    name = blobs.put(b"picture")
    assert blobs.put(b"picture") == name == hash_blob(b"picture")
    assert blobs.get(name) == b"picture"
    assert _files(tmp_path) == [tmp_path / name[:2] / name[2:]]


def test_missing_damaged_and_senseless_names_are_key_errors(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    name = blobs.put(b"picture")
    _files(tmp_path)[0].write_bytes(b"pictura")
    for bad in (name, hash_blob(b"other"), "", "../../etc/passwd", "/etc/passwd", "z" * 64):
        with pytest.raises(KeyError):
            blobs.get(bad)


def test_a_blob_that_lost_bytes_is_mended_by_keeping_it_again(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    name = blobs.put(b"picture")
    _files(tmp_path)[0].write_bytes(b"")
    assert blobs.put(b"picture") == name
    assert blobs.get(name) == b"picture"


def test_many_keeping_the_same_bytes_do_not_disturb_each_other(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    data = b"x" * 100_000
    threads = [threading.Thread(target=blobs.put, args=(data,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert blobs.get(hash_blob(data)) == data
    assert len(_files(tmp_path)) == 1


def test_a_folder_that_cannot_be_written_to_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be saved"):
        BlobStore(tmp_path / "file").put(b"x")
