"""The index of all sessions."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.compat.sessions.writing import TALK, claude, codex, put
from tests.sessions.sample import EPOCH, write
from travois.compat.sessions import search as taken
from travois.compat.sessions.format import RecordedSession, RecordedTurn
from travois.compat.sessions.search import IndexedSession, IndexProgress, SessionIndex
from travois.core.content import Call, Text
from travois.core.facts import Rewound, User
from travois.sessions.home import TravoisHome

KEY = "sk-ant-" + "a1B2" * 8


def always(_: IndexProgress) -> bool:
    return True


@pytest.fixture
def index(tmp_path: Path) -> SessionIndex:
    environ = {"HOME": str(tmp_path), "TRAVOIS_HOME": str(tmp_path / "travois")}
    return SessionIndex(TravoisHome(tmp_path / "travois"), environ)


def session(home: Path, name: str, *texts: str) -> Path:
    """A session of another agent with these prompts."""
    turns = [RecordedTurn("user", text, float(number)) for number, text in enumerate(texts)]
    return put(home / ".claude" / "projects" / "-w" / f"{name}.jsonl", claude(turns))


def found(index: SessionIndex, text: str) -> list[str]:
    return [match.session.id for match in index.search(text, limit=5, now=0.0)]


def test_a_session_is_found_by_what_was_said_in_it(index: SessionIndex, tmp_path: Path) -> None:
    path = put(tmp_path / ".claude" / "projects" / "-w" / "abc.jsonl", claude(TALK))
    put(
        tmp_path / ".codex" / "sessions" / "rollout-1.jsonl", codex([RecordedTurn("user", "hello")])
    )
    assert index.refresh(always) == IndexProgress(2, 0, read=2)
    (match,) = index.search("why was redis dropped", limit=5, now=0.0)
    stat = path.stat()
    stamp = f"{stat.st_size} {stat.st_mtime_ns}"
    title = "why did we drop redis"
    known = IndexedSession(
        "claude", "abc", str(path), stamp, "/w", 1003.0, title, match.session.passages
    )
    assert match.session == known
    assert match.session.resume_command == "claude --resume abc"
    assert match.passages[0].text == "why did we drop redis"


def test_files_errors_and_plans_can_be_found(index: SessionIndex, tmp_path: Path) -> None:
    plan = Call("p", "TodoWrite", json.dumps({"todos": [{"content": "migrate the ledger"}]}))
    patch = Call("q", "apply_patch", json.dumps({"input": "*** Update File: src/banking.py\n+x"}))
    turns = [*TALK, RecordedTurn("model", "", 1004.0, (plan, patch))]
    recorded = RecordedSession("claude", "abc", tmp_path, "/w", 0.0, "title", tuple(turns))
    assert [(one.who, one.text) for one in taken.build_passages(recorded, group="g")] == [
        ("user", "why did we drop redis"),
        ("model", "Let me look."),
        ("tool", "no such file"),
        ("model", "It lost writes."),
        ("model", "To do: migrate the ledger"),
        ("model", "Files: /w/cache.py, src/banking.py"),
    ]


def test_long_texts_are_several_passages_that_lose_nothing(tmp_path: Path) -> None:
    text = " ".join(f"word{number}" for number in range(1000))
    turns = (RecordedTurn("user", text),)
    pieces = taken.build_passages(
        RecordedSession("a", "b", tmp_path, "", 0.0, "", turns), group="g"
    )
    assert " ".join(piece.text for piece in pieces) == text
    assert max(len(piece.text) for piece in pieces) <= 1250
    assert [piece.order for piece in pieces] == list(range(len(pieces)))


def test_secrets_are_not_in_the_index(index: SessionIndex, tmp_path: Path) -> None:
    session(tmp_path, "abc", f"redis has the key {KEY} set")
    index.refresh(always)
    (match,) = index.search("redis key", limit=5, now=0.0)
    assert match.passages[0].text == "redis has the key [Anthropic key] set"
    assert match.session.title == "redis has the key [Anthropic key] set"
    index.close()
    files = b"".join(path.read_bytes() for path in (tmp_path / "travois").rglob("*.db*"))
    assert KEY.encode() not in files
    assert b"redis" in files


def test_only_what_changed_is_read_again(index: SessionIndex, tmp_path: Path) -> None:
    paths = [session(tmp_path, f"s{number}", f"topic{number}") for number in range(1000)]
    assert index.refresh(always) == IndexProgress(1000, 0, read=1000)
    assert index.refresh(always) == IndexProgress(1000, 0, read=0)
    session(tmp_path, "s7", "topic7", "and zeppelins")
    os.utime(paths[8], ns=(1, 1))
    assert index.refresh(always) == IndexProgress(1000, 0, read=2)
    assert found(index, "zeppelins") == ["s7"]


def test_what_is_gone_is_not_found(index: SessionIndex, tmp_path: Path) -> None:
    session(tmp_path, "gone", "zeppelins")
    session(tmp_path, "shorter", "hello", "zeppelins")
    index.refresh(always)
    assert set(found(index, "zeppelins")) == {"gone", "shorter"}
    (tmp_path / ".claude" / "projects" / "-w" / "gone.jsonl").unlink()
    session(tmp_path, "shorter", "hello")
    index.refresh(always)
    assert found(index, "zeppelins") == []
    assert [one.id for one in index.list_sessions().values()] == ["shorter"]


def test_it_reads_no_longer_than_it_may_and_goes_on_later(
    index: SessionIndex, tmp_path: Path
) -> None:
    trees = ("alder", "birch", "cedar", "dogwood", "elm")
    for number, tree in enumerate(trees):
        path = session(tmp_path, f"s{number}", tree)
        os.utime(path, (number, number))
    assert index.refresh(lambda progress: progress.read < 2) == IndexProgress(2, 3, read=2)
    assert [found(index, tree) for tree in trees] == [[], [], [], ["s3"], ["s4"]]
    assert index.refresh(always) == IndexProgress(5, 0, read=3)


@pytest.mark.parametrize("harm", ["deleted", "corrupt"])
def test_an_index_that_is_lost_is_made_again(
    index: SessionIndex, tmp_path: Path, harm: str
) -> None:
    session(tmp_path, "abc", "zeppelins")
    index.refresh(always)
    index.close()
    path = tmp_path / "travois" / "index" / "sessions.db"
    if harm == "deleted":
        path.unlink()
    else:
        path.write_bytes(b"not a database at all" * 100)
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
    assert index.refresh(always) == IndexProgress(1, 0, read=1)
    assert found(index, "zeppelins") == ["abc"]


def test_while_another_process_reads_this_one_only_looks(
    index: SessionIndex, tmp_path: Path
) -> None:
    session(tmp_path, "abc", "zeppelins")
    seen: list[IndexProgress] = []

    def meanwhile(progress: IndexProgress) -> bool:
        seen.append(index.refresh(always))
        return True

    assert index.refresh(meanwhile) == IndexProgress(1, 0, read=1)
    assert seen == [IndexProgress(0, 1, read=0)]


def test_agents_that_are_not_wanted_are_not_in_it(index: SessionIndex, tmp_path: Path) -> None:
    session(tmp_path, "abc", "zeppelins")
    index.refresh(always)
    environ = {"HOME": str(tmp_path), "TRAVOIS_HOME": str(tmp_path / "travois")}
    own = SessionIndex(TravoisHome(tmp_path / "travois"), environ, agents=("travois",))
    assert own.refresh(always) == IndexProgress(0, 0)
    assert found(own, "zeppelins") == []


def test_rewound_words_are_not_found_and_a_copy_of_a_session_counts_once(
    index: SessionIndex, tmp_path: Path
) -> None:
    said = [EPOCH, User((Text("about zeppelins"),)), User((Text("about airships"),)), Rewound(3)]
    write(TravoisHome(tmp_path / "travois").session_folder("dir-1", "s1"), then=[*said])
    write(TravoisHome(tmp_path / "travois").session_folder("dir-2", "s1"), then=[*said])
    index.refresh(always)
    assert found(index, "zeppelins") == ["s1"]
    assert found(index, "airships") == []


def test_a_few_wanted_sessions_are_found_among_many_that_say_the_same(
    index: SessionIndex, tmp_path: Path
) -> None:
    for number in range(300):
        session(tmp_path, f"s{number}", "zeppelins")
    session(tmp_path, "wanted", "a longer talk that at its end comes to speak of zeppelins, too")
    index.refresh(always)
    only = index.search("zeppelins", limit=5, now=0.0, wanted=lambda one: one.id == "wanted")
    assert [match.session.id for match in only] == ["wanted"]
    assert index.search("zeppelins", limit=5, now=0.0, wanted=lambda one: False) == []


def test_the_turn_that_says_it_is_found_and_numbered(index: SessionIndex, tmp_path: Path) -> None:
    turns = [
        RecordedTurn("user", "Where do we keep the backups?", 1.0),
        RecordedTurn("model", "In the bucket in Frankfurt. " + "It is encrypted. " * 200, 2.0),
        RecordedTurn("user", "Thanks, and the weather?", 3.0),
    ]
    put(tmp_path / ".claude" / "projects" / "-w" / "abc.jsonl", claude(turns))
    index.refresh(always)
    found = index.search_turns("where are the backups, in which bucket", limit=5, now=0.0)
    assert [match.turn for match in found][:2] in ([0, 1], [1, 0])
    assert len({match.turn for match in found}) == len(found)
    assert all(len(match.passages) == 1 for match in found)


def test_passages_have_vectors_without_numpy(index: SessionIndex, tmp_path: Path) -> None:
    session(tmp_path, "abc", "the automobile needs new tires", "lunch was good")
    index.refresh(always)
    assert index.count_waiting() == 0
    assert index.search_turns("car wheels", limit=1, now=0.0)[0].turn == 0
