"""GGUF headers: the architecture, context window and chat template of a model file."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from travois.core.errors import UserError

GgufValue = int | float | str
SMALL_NUMBER_FORMATS = dict(enumerate(("<B", "<b", "<H", "<h", "<I", "<i", "<f", "<B")))
NUMBER_FORMATS = {**SMALL_NUMBER_FORMATS, 10: "<Q", 11: "<q", 12: "<d"}
STRING_TYPE, ARRAY_TYPE = 8, 9
CHAT_TEMPLATE_KEY = "tokenizer.chat_template"
DEFAULT_WINDOW_TOKENS = 32_768
"""The most of a window that is used unless more is asked for: it is paid for in memory."""
MEMORY_SHARE = 4
"""What one conversation remembers may fill one part in so many of the machine's memory."""


class GgufHeader(msgspec.Struct, frozen=True):
    """The facts about a model from its GGUF header."""

    architecture: str
    window: int
    """The window that it was trained for, in tokens; 0 if the file does not say."""
    remembered: int
    """The bytes of memory that a token takes; 0 if the file does not say."""


def read_gguf_header(path: Path) -> GgufHeader:
    """Read a file's GGUF header; raises `UserError` if it has none."""
    told: dict[str, GgufValue] = {}
    for name, value in read_gguf_fields(path):
        if name.startswith("tokenizer."):
            break
        told[name] = value
    kind = str(told.get("general.architecture", ""))
    sizes = {n.removeprefix(f"{kind}."): v for n, v in told.items() if isinstance(v, int)}
    heads = sizes.get("attention.head_count", 0)
    width = sizes.get("attention.key_length") or sizes.get("embedding_length", 0) // (heads or 1)
    rows = sizes.get("block_count", 0) * sizes.get("attention.head_count_kv", heads)
    return GgufHeader(kind, sizes.get("context_length", 0), 2 * 2 * rows * width)


def read_chat_template(path: Path) -> str:
    """Read the model's chat template; empty if the file has none."""
    return next(
        (str(value) for name, value in read_gguf_fields(path) if name == CHAT_TEMPLATE_KEY), ""
    )


def usable_window(about: GgufHeader, *, asked: int = 0) -> int:
    """Return a GGUF model's usable window: at most what it was trained on and memory allows."""
    most = min(asked or DEFAULT_WINDOW_TOKENS, about.window or DEFAULT_WINDOW_TOKENS)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEMORY_SHARE
    return min(most, memory // about.remembered) if about.remembered else most


def read_gguf_fields(path: Path) -> Iterator[tuple[str, GgufValue]]:
    """Yield a GGUF header's names and values, without lists; raises `UserError`."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield from _parse_fields(data)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UserError(f"Cannot read {path}", why=why, fix="Use --model local/PATH.") from None
    except (ValueError, struct.error, KeyError, IndexError):
        raise UserError(
            f"{path} is not a GGUF file",
            why="its header is not valid",
            fix="Download it again, or choose another file with --model local/PATH.",
        ) from None


def _parse_fields(data: mmap.mmap) -> Iterator[tuple[str, GgufValue]]:
    """Yield the names and values in the header of a GGUF file, without lists."""
    magic, version, _, count = struct.unpack_from("<4sIQQ", data)
    if magic != b"GGUF" or version < 2:
        raise ValueError(magic)
    at = 24
    for _ in range(count):
        name, at = _parse_string(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        if kind == ARRAY_TYPE:
            at = _skip_array(data, at + 4)
            continue
        value, at = _parse_value(data, at + 4, kind)
        yield name, value


def _parse_value(data: mmap.mmap, at: int, kind: int) -> tuple[GgufValue, int]:
    """Parse a number or string of a GGUF header; return it with the offset behind it."""
    if kind == STRING_TYPE:
        return _parse_string(data, at)
    (value,) = struct.unpack_from(NUMBER_FORMATS[kind], data, at)
    return value, at + struct.calcsize(NUMBER_FORMATS[kind])


def _parse_string(data: mmap.mmap, at: int) -> tuple[str, int]:
    """Parse a string of a GGUF header; return it with the offset behind it."""
    (size,) = struct.unpack_from("<Q", data, at)
    if at + 8 + size > len(data):
        raise ValueError(size)
    return data[at + 8 : at + 8 + size].decode(errors="replace"), at + 8 + size


def _skip_array(data: mmap.mmap, at: int) -> int:
    """Skip a list in a GGUF header; return the offset behind it."""
    kind, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if kind in NUMBER_FORMATS:
        return at + count * struct.calcsize(NUMBER_FORMATS[kind])
    for _ in range(min(count, len(data))):
        at = (
            _skip_array(data, at)
            if kind == ARRAY_TYPE
            else at + 8 + struct.unpack_from("<Q", data, at)[0]
        )
    return at
