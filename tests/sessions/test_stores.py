"""What every session store promises, on each of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sessions.postgres import find_postgres, postgres_server
from travois.core.errors import UserError
from travois.ports.session_store import (
    OffsetTaken,
    SessionStore,
    StaleEpoch,
    StoredSession,
    StoreUnavailable,
)
from travois.sessions.blobs import hash_blob
from travois.sessions.stores import open_store
from travois.sessions.stores.objects import ObjectStore

LOG = "log.jsonl"
KINDS = ("folder", "postgres", "memory", "objects")
WRITER = """
import sys
from tests.sessions.test_stores import open_kind
from travois.ports.session_store import StoredSession
store, id = open_kind(sys.argv[1], sys.argv[2]), sys.argv[3]
epoch = store.claim_session(StoredSession(id))
offset = store.list_stored_logs(id).get("log.jsonl", 0)
for number in range(1_000_000):
    line = (b"%d " % number) * 400 + b"\\n"
    store.append_log(id, "log.jsonl", line, offset=offset, epoch=epoch)
    offset += len(line)
    print(offset, flush=True)
"""
"""Appends lines until it is killed, and says up to where they were acknowledged."""


def open_kind(kind: str, address: str) -> SessionStore:
    return ObjectStore(address) if kind == "objects" else open_store(address)


@pytest.fixture(scope="module")
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where a store of this kind is."""
    place = tmp_path_factory.mktemp("store")
    match request.param:
        case "folder":
            yield str(place / "sessions")
        case "memory":
            yield f"memory://{uuid4()}"
        case "objects":  # the adapter of S3, on files, so that processes share them
            yield f"file://{place}/objects"
        case _ if find_postgres() is None:
            pytest.skip("PostgreSQL is not installed (apt: postgresql)")
        case _:
            with postgres_server() as url:
                yield url


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def each(*kinds: str) -> pytest.MarkDecorator:
    found = [(kind, kind) for kind in kinds]
    return pytest.mark.parametrize(("kind", "address"), found, indirect=True, ids=kinds)


def begun(store: SessionStore, *, epoch: int = 0) -> tuple[str, int]:
    id = str(uuid4())
    return id, store.claim_session(StoredSession(id, "git-abc", epoch))


@each(*KINDS)
def test_bytes_come_back_as_they_were_appended(kind: str, address: str) -> None:
    store = open_kind(kind, address)
    id, epoch = begun(store)
    assert (epoch, store.list_stored_logs(id)) == (1, {})
    store.append_log(id, LOG, b"one\n", offset=0, epoch=epoch)
    store.append_log(id, LOG, b"two\n", offset=4, epoch=epoch)
    store.append_log(id, "agents/a 1/log.jsonl", b"\0\xff\n", offset=0, epoch=epoch)
    other = open_kind(kind, address)
    assert other.list_stored_logs(id) == {LOG: 8, "agents/a 1/log.jsonl": 3}
    assert [other.read_stored_log(id, LOG, offset=n) for n in (0, 3, 4, 8)] == [
        *(b"one\ntwo\n", b"\ntwo\n", b"two\n", b"")
    ]
    assert other.read_stored_log(id, "agents/a 1/log.jsonl") == b"\0\xff\n"
    (listed,) = [one for one in other.list_stored_sessions() if one.id == id]
    assert (listed.project, listed.epoch) == ("git-abc", 1) and listed.updated > 1e9


@each(*KINDS)
def test_files_are_replaced_and_blobs_named_by_their_digest(kind: str, address: str) -> None:
    store = open_kind(kind, address)
    id, epoch = begun(store)
    for data in (b"old", b"new", b""):
        store.put_file(id, "tool-results/é ü/x.txt", data, epoch=epoch)
    store.put_file(id, "checkpoint", b"\0" * 100_000, epoch=epoch)
    other = open_kind(kind, address)
    assert other.list_stored_files(id) == ("checkpoint", "tool-results/é ü/x.txt")
    assert other.read_stored_file(id, "tool-results/é ü/x.txt") == b""
    assert len(other.read_stored_file(id, "checkpoint")) == 100_000
    name = hash_blob(b"picture")
    store.put_blob(name, b"picture")
    store.put_blob(name, b"picture")
    assert other.get_blob(name) == b"picture"


@each(*KINDS)
def test_what_is_not_there_is_a_key_error(kind: str, address: str) -> None:
    store = open_kind(kind, address)
    id, _ = begun(store)
    assert (store.list_stored_logs("unknown"), store.list_stored_files("unknown")) == ({}, ())
    for missing in (
        lambda: store.read_stored_log(id, LOG),
        lambda: store.read_stored_file(id, "checkpoint"),
        lambda: store.get_blob("ab" * 32),
    ):
        with pytest.raises(KeyError):
            missing()


@each(*KINDS)
def test_the_same_append_twice_is_one_and_another_is_refused(kind: str, address: str) -> None:
    store = open_kind(kind, address)
    id, epoch = begun(store)
    store.append_log(id, LOG, b"one\n", offset=0, epoch=epoch)
    store.append_log(id, LOG, b"one\n", offset=0, epoch=epoch)  # its answer was lost
    for data, offset in ((b"eins\n", 0), (b"far\n", 9)):
        with pytest.raises(OffsetTaken):
            store.append_log(id, LOG, data, offset=offset, epoch=epoch)
    assert store.read_stored_log(id, LOG) == b"one\n"


@each(*KINDS)
def test_an_older_epoch_can_neither_append_nor_put_nor_claim(kind: str, address: str) -> None:
    old, new = open_kind(kind, address), open_kind(kind, address)
    id, epoch = begun(old)
    old.append_log(id, LOG, b"one\n", offset=0, epoch=epoch)
    later = new.claim_session(StoredSession(id))
    assert later == epoch + 1
    for late in (
        lambda: old.append_log(id, LOG, b"late\n", offset=4, epoch=epoch),
        lambda: old.put_file(id, "checkpoint", b"late", epoch=epoch),
        lambda: old.claim_session(StoredSession(id, epoch=epoch)),
    ):
        with pytest.raises(StaleEpoch):
            late()
    new.append_log(id, LOG, b"two\n", offset=4, epoch=later)
    assert (
        new.claim_session(StoredSession(id, epoch=later)) == later
    )  # the same lease, started again
    assert (
        new.claim_session(StoredSession(id, epoch=40)) == 40
    )  # a lease that was numbered elsewhere
    third = open_kind(kind, address)
    assert (third.read_stored_log(id, LOG), third.list_stored_files(id)) == (b"one\ntwo\n", ())


@each("folder", "postgres", "objects")
def test_of_two_writers_side_by_side_one_wins_each_place(kind: str, address: str) -> None:
    id, epoch = begun(open_kind(kind, address))
    won: list[tuple[int, int]] = []

    def write(who: int) -> None:
        store = open_kind(kind, address)
        for offset in range(0, 40, 4):
            try:
                store.append_log(id, LOG, b"%d--\n" % who, offset=offset, epoch=epoch)
                won.append((offset, who))
            except OffsetTaken:
                pass

    writers = [Thread(target=write, args=(who,)) for who in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    log = open_kind(kind, address).read_stored_log(id, LOG)
    assert sorted(offset for offset, _ in won) == list(range(0, len(log), 4))
    assert all(log[offset : offset + 1] == b"%d" % who for offset, who in won)


@each("folder", "postgres", "objects")
def test_a_writer_killed_in_the_middle_leaves_whole_appends(kind: str, address: str) -> None:
    id = str(uuid4())
    acknowledged = 0
    for kills in range(4):
        words = (sys.executable, "-c", WRITER, kind, address, id)
        writer = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        assert writer.stdout is not None
        for _ in range(3 + 7 * kills):
            acknowledged = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read().splitlines()
        writer.wait()
        acknowledged = int(rest[-1]) if rest else acknowledged
        store = open_kind(kind, address)
        log = store.read_stored_log(id, LOG)
        assert len(log) == store.list_stored_logs(id)[LOG] >= acknowledged
        for line in log.splitlines():
            assert line == (line.split(b" ")[0] + b" ") * 400


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("cap"), st.integers(0, 2), st.binary(min_size=1, max_size=9)),
        max_size=25,
    )
)
def test_a_folder_and_a_journal_of_objects_agree(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int, bytes]]
) -> None:
    """Whatever several writers do, both stores refuse and keep the same."""
    place = str(tmp_path_factory.mktemp("agree"))
    kinds = {"folder": place, "objects": f"memory://{uuid4()}"}
    stores = [[open_kind(kind, kinds[kind]) for _ in range(3)] for kind in kinds]
    epochs = [0, 0, 0]
    for act, who, data in acts:
        told = [_do(store[who], act, epochs[who], data) for store in stores]
        assert told[0] == told[1]
        epochs[who] = told[0] if isinstance(told[0], int) else epochs[who]
    one, other = (store[0] for store in stores)
    assert one.list_stored_logs("s") == other.list_stored_logs("s") and one.list_stored_files(
        "s"
    ) == other.list_stored_files("s")
    if one.list_stored_logs("s"):
        assert one.read_stored_log("s", LOG) == other.read_stored_log("s", LOG)


def _do(store: SessionStore, act: str, epoch: int, data: bytes) -> object:
    try:
        match act:
            case "c":
                return store.claim_session(StoredSession("s"))
            case "a":
                offset = store.list_stored_logs("s").get(LOG, 0) - data[0] % 2
                store.append_log("s", LOG, data, offset=max(0, offset), epoch=epoch)
            case _:
                store.put_file("s", "file", data, epoch=epoch)
    except (StaleEpoch, OffsetTaken) as refused:
        return type(refused)
    return None


def test_a_database_that_does_not_answer_is_an_error_in_words() -> None:
    store = open_store("postgresql://nobody@127.0.0.1:9/none")
    with pytest.raises(StoreUnavailable, match="session store"):
        store.list_stored_sessions()


@pytest.mark.parametrize("address", ["nothing://x", "s4://bucket"])
def test_an_unknown_address_is_an_error_in_words(address: str) -> None:
    with pytest.raises(UserError, match="Sessions cannot be stored at"):
        open_store(address)
