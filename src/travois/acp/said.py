"""A prompt of an editor as what is said to the model."""

from __future__ import annotations

import os
from base64 import b64decode
from urllib.parse import unquote, urlsplit

import msgspec

from travois.acp.peer import UNFIT, Wrong
from travois.acp.protocol import Block, Resource
from travois.core.content import Media, Shown, Text
from travois.core.facts import User
from travois.engine.mentions import note
from travois.ports.tool import said
from travois.ports.world import Blobs

DOCUMENT = "application/pdf"


class Said(msgspec.Struct, frozen=True):
    """The person's words with their pictures, and notes on what they attached."""

    content: tuple[Shown, ...]
    notes: tuple[User, ...] = ()


SILENCE = Said(())


def understood(blocks: tuple[Block, ...], blobs: Blobs, *, cwd: str) -> Said:
    """What a prompt says; raises `Wrong` for what cannot be sent."""
    words = _joined(blocks, cwd)
    media = tuple(found for block in blocks if (found := _media(block, blobs)))
    notes = tuple(
        note(_name(block.resource.uri, cwd), said(block.resource.text))
        for block in blocks
        if block.resource is not None and block.resource.text is not None
    )
    if not words and not media and not notes:
        raise Wrong(UNFIT, "The prompt says nothing")
    return Said(
        (*media, Text(words)) if words else media or (Text("See what is attached."),), notes
    )


def _joined(blocks: tuple[Block, ...], cwd: str) -> str:
    """All words of a prompt; what is named in between stands apart from them."""
    words = ""
    for block in blocks:
        part = _words(block, cwd)
        touches = part and block.type != "text" and words and not words[-1].isspace()
        words += f" {part}" if touches else part
    return words.strip()


def _words(block: Block, cwd: str) -> str:
    """A block as words, in the place where it stands."""
    match block.type:
        case "text":
            return block.text
        case "resource_link":
            return _link(block, cwd)
        case "resource" if block.resource is not None:
            return _name(block.resource.uri, cwd)
        case "image":
            return ""
        case _:
            raise Wrong(UNFIT, f"A prompt cannot hold {block.type!r} here")


def _link(block: Block, cwd: str) -> str:
    """A file is mentioned, so that it is read with the prompt; anything else is only named."""
    uri = block.uri or ""
    if not uri.startswith("file:"):
        return f"[{block.name or uri}]({uri})"
    path, part = _path(uri, cwd), urlsplit(uri).fragment
    quoted = path.replace('"', "")
    return f'@"{quoted}"' + (f" ({part})" if part else "")


def _name(uri: str, cwd: str) -> str:
    return _path(uri, cwd) if uri.startswith("file:") else uri


def _path(uri: str, cwd: str) -> str:
    """The path of a file, from the workspace on where it is inside."""
    path = unquote(urlsplit(uri).path)
    return os.path.relpath(path, cwd) if path.startswith(f"{cwd.rstrip('/')}/") else path


def _media(block: Block, blobs: Blobs) -> Media | None:
    if block.type == "image":
        return _kept(block.data, block.mime_type or "", blobs, name=block.uri or "")
    if block.resource is not None and block.resource.blob is not None:
        return _attached(block.resource, blobs)
    return None


def _attached(resource: Resource, blobs: Blobs) -> Media:
    kind = resource.mime_type or ""
    if not kind.startswith("image/") and kind != DOCUMENT:
        raise Wrong(UNFIT, f"Bytes of {kind or 'an unknown kind'} cannot be shown to the model")
    return _kept(resource.blob or "", kind, blobs, name=resource.uri)


def _kept(data: str, mime: str, blobs: Blobs, *, name: str) -> Media:
    try:
        found = b64decode(data, validate=True)
    except ValueError as error:
        raise Wrong(UNFIT, f"An attachment is not base64: {error}") from None
    kind = "document" if mime == DOCUMENT else "image"
    return Media(kind, mime, blobs.put(found), len(found), os.path.basename(name))
