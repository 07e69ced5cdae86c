"""Images and documents as a provider takes them, or a line of text where it does not."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable

from travois.core.content import Media

IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
PDF = "application/pdf"
HIDDEN = "this model cannot be shown it"


def base64(media: Media, fetch: Callable[[str], bytes]) -> bytes | None:
    """The bytes of it in base64; None if they are lost or none."""
    try:
        return b2a_base64(fetch(media.blob), newline=False) or None
    except KeyError:
        return None


def shown(media: Media, fetch: Callable[[str], bytes], *, taken: bool = True) -> bytes | str:
    """The bytes of it in base64 if they are taken, and there; else the line in its place."""
    if not taken:
        return note(media, HIDDEN)
    return base64(media, fetch) or note(media, "its bytes are lost")


def note(media: Media, why: str) -> str:
    """A line in place of something that cannot be shown."""
    name = f" {media.name}" if media.name else ""
    return f"[{media.kind}{name}, {media.mime}, {media.size} bytes: {why}]"
