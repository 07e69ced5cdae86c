"""What some bytes are, by how they begin."""

from __future__ import annotations

IMAGES = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
)
KINDS = (
    (0, b"\x7fELF", "a compiled program"),
    (0, b"MZ", "a compiled program"),
    (0, b"\xcf\xfa\xed\xfe", "a compiled program"),
    (0, b"\xca\xfe\xba\xbe", "compiled code"),
    (0, b"\0asm", "compiled code"),
    (0, b"PK\x03\x04", "a zip archive or office document"),
    (0, b"7z\xbc\xaf", "an archive"),
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"\xfd7zXZ", "xz data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data"),
    (257, b"ustar", "a tar archive"),
    (0, b"SQLite format 3", "an SQLite database"),
    (0, b"II*\0", "a TIFF image (convert it to PNG)"),
    (0, b"MM\0*", "a TIFF image (convert it to PNG)"),
    (0, b"BM", "a BMP image (convert it to PNG)"),
    (4, b"ftyp", "a video or HEIF image"),
    (0, b"RIFF", "sound or video"),
    (0, b"OggS", "sound or video"),
    (0, b"ID3", "sound"),
)
CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))


def image_type(head: bytes) -> str:
    """The media type of an image that models can see; empty if it is none."""
    return next((mime for at, start, mime in IMAGES if head.startswith(start, at)), "")


def kind(head: bytes) -> str:
    """What a file that is no text seems to be."""
    return next((name for at, start, name in KINDS if head.startswith(start, at)), "binary data")


def garbled(head: bytes) -> bool:
    """Whether there are too many control characters for a text."""
    return len(head) - len(head.translate(None, CONTROLS)) > len(head) // 10
