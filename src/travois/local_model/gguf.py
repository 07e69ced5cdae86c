"""GGUF headers: the architecture, context window and chat template of a model file."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from travois.core.errors import UserError

Value = int | float | str
SMALL = dict(enumerate(("<B", "<b", "<H", "<h", "<I", "<i", "<f", "<B")))
NUMBERS = {**SMALL, 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
TEMPLATE = "tokenizer.chat_template"
USUAL = 32_768
"""The most of a window that is used unless more is asked for: it is paid for in memory."""
SHARE = 4
"""What one conversation remembers may fill one part in so many of the machine's memory."""


class Head(msgspec.Struct, frozen=True):
    """The facts about a model from its GGUF header."""

    architecture: str
    window: int
    """The window that it was trained for, in tokens; 0 if the file does not say."""
    remembered: int
    """The bytes of memory that a token takes; 0 if the file does not say."""


def head(path: Path) -> Head:
    """Read a file's GGUF header; raises `UserError` if it has none."""
    told: dict[str, Value] = {}
    for name, value in fields(path):
        if name.startswith("tokenizer."):
            break
        told[name] = value
    kind = str(told.get("general.architecture", ""))
    sizes = {n.removeprefix(f"{kind}."): v for n, v in told.items() if isinstance(v, int)}
    heads = sizes.get("attention.head_count", 0)
    width = sizes.get("attention.key_length") or sizes.get("embedding_length", 0) // (heads or 1)
    rows = sizes.get("block_count", 0) * sizes.get("attention.head_count_kv", heads)
    return Head(kind, sizes.get("context_length", 0), 2 * 2 * rows * width)


def template(path: Path) -> str:
    """Read the model's chat template; empty if the file has none."""
    return next((str(value) for name, value in fields(path) if name == TEMPLATE), "")


def usable_window(about: Head, *, asked: int = 0) -> int:
    """Return the window to use: at most what was trained, and what memory allows."""
    most = min(asked or USUAL, about.window or USUAL)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // SHARE
    return min(most, memory // about.remembered) if about.remembered else most


def fields(path: Path) -> Iterator[tuple[str, Value]]:
    """Yield the names and values before the weights, without lists; raises `UserError`."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield from _fields(data)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UserError(f"Cannot read {path}", why=why, fix="Use --model local/PATH.") from None
    except (ValueError, struct.error, KeyError, IndexError):
        raise UserError(
            f"{path} is not a GGUF file",
            why="its header is not valid",
            fix="Download it again, or choose another file with --model local/PATH.",
        ) from None


def _fields(data: mmap.mmap) -> Iterator[tuple[str, Value]]:
    magic, version, _, count = struct.unpack_from("<4sIQQ", data)
    if magic != b"GGUF" or version < 2:
        raise ValueError(magic)
    at = 24
    for _ in range(count):
        name, at = _string(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        if kind == ARRAY:
            at = _past(data, at + 4)
            continue
        value, at = _value(data, at + 4, kind)
        yield name, value


def _value(data: mmap.mmap, at: int, kind: int) -> tuple[Value, int]:
    if kind == STRING:
        return _string(data, at)
    (value,) = struct.unpack_from(NUMBERS[kind], data, at)
    return value, at + struct.calcsize(NUMBERS[kind])


def _string(data: mmap.mmap, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from("<Q", data, at)
    if at + 8 + size > len(data):
        raise ValueError(size)
    return data[at + 8 : at + 8 + size].decode(errors="replace"), at + 8 + size


def _past(data: mmap.mmap, at: int) -> int:
    """Return the offset behind a list."""
    kind, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if kind in NUMBERS:
        return at + count * struct.calcsize(NUMBERS[kind])
    for _ in range(min(count, len(data))):
        at = _past(data, at) if kind == ARRAY else at + 8 + struct.unpack_from("<Q", data, at)[0]
    return at
