"""Updating a search index: only changed documents are written, in atomic steps."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from types import ModuleType

import msgspec

from travois.lazy_imports import lazy_imports
from travois.search import lexical, plain_vectors, vector_cells
from travois.search.database import Embedder, SearchDocument
from travois.search.embedder import StaticEmbedder
from travois.search.lexical import SearchCollection, split_index_terms

with lazy_imports():
    from travois.search import vectors


WRITE_BATCH = 500
"""The documents written in one transaction, so that other processes get their turn."""
SELECT_WAITING = "select 1 from document where number = ? and digest = ? and codes is null"

encode_document = msgspec.msgpack.Encoder().encode
decode_document = msgspec.msgpack.Decoder(SearchDocument).decode


def choose_vectors(embedder: Embedder) -> ModuleType:
    """Choose the module for a search index's vectors: the static table's need no numpy."""
    return plain_vectors if embedder.name == StaticEmbedder.name else vectors


@contextmanager
def write_transaction(base: sqlite3.Connection) -> Generator[None]:
    """Run all changes of a search index inside as one transaction."""
    base.execute("begin immediate")
    try:
        yield
        base.execute("commit")
    except BaseException:
        with suppress(sqlite3.Error):
            base.execute("rollback")
        raise


def put_documents(base: sqlite3.Connection, name: str, documents: Sequence[SearchDocument]) -> int:
    """Write the new or changed documents to a search index; return how many."""
    changed = 0
    for at in range(0, len(documents), WRITE_BATCH):
        drafts = {
            draft.id: draft for draft in map(_clean_document, documents[at : at + WRITE_BATCH])
        }
        with write_transaction(base):
            collection = lexical.get_or_create_collection(base, name)
            fresh = _find_changed_documents(base, collection, drafts)
            _erase_documents(base, collection, [document.id for document, _ in fresh])
            for document, digest in fresh:
                _write_document(base, collection, document, digest=digest)
        changed += len(fresh)
    return changed


def remove_documents(base: sqlite3.Connection, name: str, ids: Sequence[str]) -> int:
    """Remove documents from a search index; return how many were there."""
    removed = 0
    for at in range(0, len(ids), WRITE_BATCH):
        with write_transaction(base):
            removed += _erase_documents(
                base, lexical.get_or_create_collection(base, name), ids[at : at + WRITE_BATCH]
            )
    return removed


def set_marks(base: sqlite3.Connection, name: str, marks: Mapping[str, str]) -> None:
    """Store marks beside the documents of a search index; an empty one is deleted."""
    with write_transaction(base):
        number = lexical.get_or_create_collection(base, name).number
        rows = [
            (number, replace_surrogates(key), replace_surrogates(value))
            for key, value in marks.items()
        ]
        base.executemany("insert or replace into mark values (?, ?, ?)", rows)
        base.execute("delete from mark where collection = ? and value = ''", (number,))


def embed_documents(base: sqlite3.Connection, name: str, embedder: Embedder, *, limit: int) -> int:
    """Compute vectors for indexed documents that have none; return how many."""
    collection = lexical.find_collection(base, name)
    if collection is None:
        return 0
    if collection.embedder != embedder.name:
        _forget_old_vectors(base, collection, embedder)
    found: list[tuple[int, bytes, bytes]] = base.execute(
        "select number, digest, body from document where collection = ? and codes is null"
        " order by number desc limit ?",
        (collection.number, limit),
    ).fetchall()
    if not found:
        return 0
    data = embedder.encode([decode_document(body).text_to_embed for _, _, body in found])
    width = len(data) // len(found)
    with write_transaction(base):
        rows = {
            number: data[at * width : (at + 1) * width]
            for at, (number, digest, _) in enumerate(found)
            if base.execute(SELECT_WAITING, (number, digest)).fetchone()
        }
        size, count = embedder.size, collection.documents
        store = choose_vectors(embedder)
        store.write_vectors(base, collection.number, rows, size=size)
        store.rebuild_cells(base, collection.number, size=size, documents=count)
    return len(found)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which no search index can store."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _clean_document(document: SearchDocument) -> SearchDocument:
    """Replace lone surrogates in all texts of a document for the search index."""
    return SearchDocument(
        *(
            replace_surrogates(document.id),
            replace_surrogates(document.text),
            replace_surrogates(document.group),
        ),
        *(
            document.order,
            document.at,
            replace_surrogates(document.who),
            replace_surrogates(document.title),
            replace_surrogates(document.turn),
        ),
    )


def _find_changed_documents(
    base: sqlite3.Connection, collection: SearchCollection, drafts: Mapping[str, SearchDocument]
) -> list[tuple[SearchDocument, bytes]]:
    """Find the documents whose content differs from that in the index."""
    places = ",".join("?" * len(drafts))
    known: dict[str, bytes] = dict(
        base.execute(
            f"select id, digest from document where collection = ? and id in ({places})",  # noqa: S608  question marks
            (collection.number, *drafts),
        )
    )
    digests = {
        id: blake2b(encode_document(draft), digest_size=16).digest() for id, draft in drafts.items()
    }
    return [(draft, digests[id]) for id, draft in drafts.items() if known.get(id) != digests[id]]


def _write_document(
    base: sqlite3.Connection,
    collection: SearchCollection,
    document: SearchDocument,
    *,
    digest: bytes,
) -> None:
    """Insert a document and its words into the search index."""
    found = [*split_index_terms(document.title) * 2, *split_index_terms(document.text)]
    text = " ".join(found)
    number = base.execute(
        "insert into document (collection, id, digest, band, place, body, words)"
        " values (?, ?, ?, ?, ?, ?, ?)",
        (
            *(collection.number, document.id, digest, document.group, document.order),
            *(encode_document(document), text),
        ),
    ).lastrowid
    assert number is not None
    lexical.index_words(base, collection, number, words=text)
    _update_counts(base, collection, documents=1, words=len(found))


def _erase_documents(
    base: sqlite3.Connection, collection: SearchCollection, ids: Iterable[str]
) -> int:
    """Delete documents with their words and vectors; return how many were there."""
    erased = 0
    places: list[vector_cells.CellPosition] = []
    for id in map(replace_surrogates, ids):
        row: tuple[int, str, int | None] | None = base.execute(
            "select number, words, cell from document where collection = ? and id = ?",
            (collection.number, id),
        ).fetchone()
        if row is None:
            continue
        number, text, cell = row
        if cell is not None:
            places.append((cell, number))
        lexical.unindex_words(base, collection, number, words=text)
        base.execute("delete from document where number = ?", (number,))
        _update_counts(base, collection, documents=-1, words=-len(text.split()))
        erased += 1
    vector_cells.drop_vectors(base, collection.number, places)
    return erased


def _update_counts(
    base: sqlite3.Connection, collection: SearchCollection, *, documents: int, words: int
) -> None:
    """Update a search collection's counts of documents and words."""
    base.execute(
        "update collection set documents = documents + ?, words = words + ? where number = ?",
        (documents, words, collection.number),
    )


def _forget_old_vectors(
    base: sqlite3.Connection, collection: SearchCollection, embedder: Embedder
) -> None:
    """Delete the vectors of another embedder from a search index."""
    with write_transaction(base):
        number = (collection.number,)
        vector_cells.clear_vectors(base, collection.number)
        base.execute("update document set cell = null, codes = null where collection = ?", number)
        base.execute(
            "update collection set embedder = ?, centres = x'' where number = ?",
            (embedder.name, *number),
        )
