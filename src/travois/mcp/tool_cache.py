"""A cache of each server's last tool list, so that a session start need not wait for it."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import msgspec

from travois.files.openat import make_folders
from travois.mcp.tools import McpServerConfig, McpToolOffer


def cache_offers(server: McpServerConfig, folder: Path, offers: tuple[McpToolOffer, ...]) -> None:
    """Cache a server's tool list, if any of it may be always loaded."""
    path = _cache_path(server, folder)
    if server.standing == "some" and not any(offer.is_always_loaded for offer in offers):
        path.unlink(missing_ok=True)
        return
    make_folders(folder)
    path.touch(0o600)
    path.write_bytes(msgspec.json.encode(offers))


def read_cached_offers(server: McpServerConfig, folder: Path) -> tuple[McpToolOffer, ...]:
    """Read the server's last tool list; empty if there is none."""
    try:
        return msgspec.json.decode(
            _cache_path(server, folder).read_bytes(), type=tuple[McpToolOffer, ...]
        )
    except (OSError, msgspec.DecodeError):
        return ()


def _cache_path(server: McpServerConfig, folder: Path) -> Path:
    said = msgspec.json.encode((server.name, server.argv, server.url))
    return folder / f"{blake2b(said, digest_size=12).hexdigest()}.json"
