"""The file of an index may be lost, broken, foreign, shared or forbidden: search goes on."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.search.hashed import Hashed
from travois.search.database import RankedHit, SearchDocument
from travois.search.index import SearchIndex

DOCUMENTS = [SearchDocument(f"d{n}", f"redis w{n}", f"g{n % 3}", n) for n in range(30)]
WRITER = """
import sys
from pathlib import Path
from tests.search.hashed import Hashed
from travois.search.database import SearchDocument as Document
from travois.search.index import SearchIndex
index = SearchIndex(Path(sys.argv[1]), Hashed())
me, rounds = sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
for n in range(rounds):
    shared = Document(f"shared{n % 5}", f"redis by {me} in {n}")
    index.update("c", [Document(f"{me}-{n}", f"redis {me} {n}"), shared], gone=[f"{me}-{n - 9}"])
    index.search("c", "redis", limit=5, now=0.0)
sys.exit(index.trouble or 0)
"""


def search(index: SearchIndex) -> list[RankedHit]:
    return index.search("c", "redis w7", limit=5, now=0.0)


def whole(path: Path) -> bool:
    """Whether the words, the vectors and the counts agree with the documents."""
    with sqlite3.connect(path) as base:
        assert base.execute("pragma integrity_check").fetchone() == ("ok",)
        base.execute("insert into words_1 (words_1) values ('integrity-check')")
        numbers = {n for (n,) in base.execute("select number from document where codes not null")}
        kept = b"".join(some for (some,) in base.execute("select numbers from block"))
        lie = [int.from_bytes(kept[at : at + 8], "little") for at in range(0, len(kept), 8)]
        (counted,) = base.execute("select documents from collection").fetchone()
        (there,) = base.execute("select count(*) from document").fetchone()
        return sorted(lie) == sorted(numbers) and counted == there


def start(path: Path, name: str, rounds: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "i.db"


def test_a_deleted_file_is_made_again_and_finds_the_same(path: Path) -> None:
    index = SearchIndex(path, Hashed())
    index.update("c", DOCUMENTS)
    before = search(index)
    shutil.rmtree(path.parent)
    assert search(index) == []
    assert index.update("c", DOCUMENTS) == len(DOCUMENTS)
    assert (search(index), index.trouble) == (before, "")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"not a database at all" * 500,
        lambda data: data[:5000] + os.urandom(9000) + data[14000:],
        lambda data: data[: len(data) // 2],
        lambda data: data[:100],
    ],
    ids=["other", "overwritten", "cut", "head"],
)
def test_a_broken_file_is_set_aside_and_made_again(path: Path, spoil) -> None:
    index = SearchIndex(path, Hashed())
    index.update("c", DOCUMENTS)
    before = search(index)
    index.close()
    path.write_bytes(spoil(path.read_bytes()))
    again = SearchIndex(path, Hashed())
    again.search("c", "redis w7", limit=5, now=0.0)
    again.update("c", DOCUMENTS)
    assert search(again) == before
    assert "it is being rebuilt" in again.trouble
    assert path.with_name("i.db.damaged").exists()
    third = SearchIndex(path, Hashed())
    assert (search(third), third.trouble) == (before, "")


def test_a_file_of_another_version_is_set_aside(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as base:
        base.executescript("create table document (x); pragma user_version = 7")
    index = SearchIndex(path, None)
    assert index.update("c", DOCUMENTS) == len(DOCUMENTS)
    assert (search(index)[0].id, "another version" in index.trouble) == ("d7", True)


def test_where_nothing_can_be_written_the_index_is_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    index = SearchIndex(tmp_path / "file" / "i.db", Hashed())
    assert index.update("c", DOCUMENTS) == len(DOCUMENTS)
    assert (search(index)[0].id, "it stays in memory" in index.trouble) == ("d7", True)


def test_on_a_full_disk_it_goes_on_in_memory_with_what_it_had(path: Path) -> None:
    index = SearchIndex(path, Hashed())
    index.update("c", DOCUMENTS)
    index._file.run(lambda base: base.execute("pragma max_page_count = 1").fetchone())
    many = [SearchDocument(f"m{n}", "redis " + "x" * 2000) for n in range(100)]
    assert index.update("c", many) == len(many)
    assert len(index.document_ids("c")) == len(DOCUMENTS) + len(many)
    assert (search(index)[0].id, "full" in index.trouble) == ("d7", True)
    assert SearchIndex(path, None).document_ids("c") == {one.id for one in DOCUMENTS}


def test_eight_processes_write_and_search_at_once(path: Path) -> None:
    running = [start(path, f"p{n}", 12) for n in range(8)]
    errors = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0] * 8, errors
    own = {f"p{p}-{n}" for p in range(8) for n in range(3, 12)}
    assert SearchIndex(path, None).document_ids("c") == own | {f"shared{n}" for n in range(5)}
    assert whole(path)


def test_a_process_that_is_killed_leaves_a_whole_index(path: Path) -> None:
    for turn in range(6):
        process = start(path, f"p{turn}", 10_000)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05 + 0.04 * turn)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        index = SearchIndex(path, Hashed())
        index.update("c", DOCUMENTS)
        assert (search(index)[0].id, index.trouble, whole(path)) == ("d7", "", True)
