"""A cache of each server's last tool list, so that a session start need not wait for it."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import msgspec

from travois.files.openat import make_folders
from travois.mcp.tools import Offer, Server


def keep(server: Server, folder: Path, offers: tuple[Offer, ...]) -> None:
    """Cache a server's tool list, if any of it may be always loaded."""
    path = _path(server, folder)
    if server.standing == "some" and not any(offer.always for offer in offers):
        path.unlink(missing_ok=True)
        return
    make_folders(folder)
    path.touch(0o600)
    path.write_bytes(msgspec.json.encode(offers))


def kept(server: Server, folder: Path) -> tuple[Offer, ...]:
    """Read the server's last tool list; empty if there is none."""
    try:
        return msgspec.json.decode(_path(server, folder).read_bytes(), type=tuple[Offer, ...])
    except (OSError, msgspec.DecodeError):
        return ()


def _path(server: Server, folder: Path) -> Path:
    said = msgspec.json.encode((server.name, server.argv, server.url))
    return folder / f"{blake2b(said, digest_size=12).hexdigest()}.json"
