"""Updates of a search index: only changed documents are written, in atomic steps."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b

import msgspec

from travois.search import lexical, vector_cells
from travois.search.database import Document, Embedder
from travois.search.lexical import Collection, words

BATCH = 500
"""The documents written in one transaction, so that other processes get their turn."""
WAITS = "select 1 from document where number = ? and digest = ? and codes is null"

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder(Document).decode


@contextmanager
def step(base: sqlite3.Connection) -> Generator[None]:
    """Run all changes inside as one transaction."""
    base.execute("begin immediate")
    try:
        yield
        base.execute("commit")
    except BaseException:
        with suppress(sqlite3.Error):
            base.execute("rollback")
        raise


def put(base: sqlite3.Connection, name: str, documents: Sequence[Document]) -> int:
    """Write the documents that are new or changed; returns how many."""
    changed = 0
    for at in range(0, len(documents), BATCH):
        drafts = {draft.id: draft for draft in map(_plain, documents[at : at + BATCH])}
        with step(base):
            collection = lexical.found(base, name)
            fresh = _differing(base, collection, drafts)
            _erase(base, collection, [document.id for document, _ in fresh])
            for document, digest in fresh:
                _write(base, collection, document, digest=digest)
        changed += len(fresh)
    return changed


def remove(base: sqlite3.Connection, name: str, ids: Sequence[str]) -> int:
    """Remove documents; returns how many were there."""
    removed = 0
    for at in range(0, len(ids), BATCH):
        with step(base):
            removed += _erase(base, lexical.found(base, name), ids[at : at + BATCH])
    return removed


def mark(base: sqlite3.Connection, name: str, marks: Mapping[str, str]) -> None:
    """Store marks beside the documents; an empty one is deleted."""
    with step(base):
        number = lexical.found(base, name).number
        rows = [(number, whole(key), whole(value)) for key, value in marks.items()]
        base.executemany("insert or replace into mark values (?, ?, ?)", rows)
        base.execute("delete from mark where collection = ? and value = ''", (number,))


def embed(base: sqlite3.Connection, name: str, embedder: Embedder, *, limit: int) -> int:
    """Compute vectors for documents that have none; returns how many."""
    collection = lexical.find(base, name)
    if collection is None:
        return 0
    if collection.embedder != embedder.name:
        _renew(base, collection, embedder)
    found: list[tuple[int, bytes, bytes]] = base.execute(
        "select number, digest, body from document where collection = ? and codes is null"
        " order by number desc limit ?",
        (collection.number, limit),
    ).fetchall()
    if not found:
        return 0
    data = embedder.encode([unpack(body).spoken for _, _, body in found])
    from travois.search import vectors

    width = len(data) // len(found)
    with step(base):
        rows = {
            number: data[at * width : (at + 1) * width]
            for at, (number, digest, _) in enumerate(found)
            if base.execute(WAITS, (number, digest)).fetchone()
        }
        vectors.write(base, collection.number, rows, size=embedder.size)
        size, count = embedder.size, collection.documents
        vectors.settle(base, collection.number, size=size, documents=count)
    return len(found)


def whole(text: str) -> str:
    """Replace lone surrogates, which no file can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _plain(document: Document) -> Document:
    return Document(
        *(whole(document.id), whole(document.text), whole(document.group)),
        *(document.order, document.at, whole(document.who), whole(document.title)),
    )


def _differing(
    base: sqlite3.Connection, collection: Collection, drafts: Mapping[str, Document]
) -> list[tuple[Document, bytes]]:
    places = ",".join("?" * len(drafts))
    known: dict[str, bytes] = dict(
        base.execute(
            f"select id, digest from document where collection = ? and id in ({places})",  # noqa: S608  question marks
            (collection.number, *drafts),
        )
    )
    digests = {id: blake2b(pack(draft), digest_size=16).digest() for id, draft in drafts.items()}
    return [(draft, digests[id]) for id, draft in drafts.items() if known.get(id) != digests[id]]


def _write(
    base: sqlite3.Connection, collection: Collection, document: Document, *, digest: bytes
) -> None:
    found = [*words(document.title) * 2, *words(document.text)]
    text = " ".join(found)
    number = base.execute(
        "insert into document (collection, id, digest, band, place, body, words)"
        " values (?, ?, ?, ?, ?, ?, ?)",
        (
            *(collection.number, document.id, digest, document.group, document.order),
            *(pack(document), text),
        ),
    ).lastrowid
    assert number is not None
    lexical.write(base, collection, number, words=text)
    _count(base, collection, documents=1, words=len(found))


def _erase(base: sqlite3.Connection, collection: Collection, ids: Iterable[str]) -> int:
    erased = 0
    places: list[vector_cells.Place] = []
    for id in map(whole, ids):
        row: tuple[int, str, int | None] | None = base.execute(
            "select number, words, cell from document where collection = ? and id = ?",
            (collection.number, id),
        ).fetchone()
        if row is None:
            continue
        number, text, cell = row
        if cell is not None:
            places.append((cell, number))
        lexical.erase(base, collection, number, words=text)
        base.execute("delete from document where number = ?", (number,))
        _count(base, collection, documents=-1, words=-len(text.split()))
        erased += 1
    vector_cells.drop(base, collection.number, places)
    return erased


def _count(base: sqlite3.Connection, collection: Collection, *, documents: int, words: int) -> None:
    base.execute(
        "update collection set documents = documents + ?, words = words + ? where number = ?",
        (documents, words, collection.number),
    )


def _renew(base: sqlite3.Connection, collection: Collection, embedder: Embedder) -> None:
    """Delete the vectors of another embedder."""
    with step(base):
        number = (collection.number,)
        vector_cells.clear(base, collection.number)
        base.execute("update document set cell = null, codes = null where collection = ?", number)
        base.execute(
            "update collection set embedder = ?, centres = x'' where number = ?",
            (embedder.name, *number),
        )
