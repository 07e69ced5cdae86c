"""Signatures that only this lab can make, and whose content only it reads."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error
from hashlib import sha256
from typing import Any

import msgspec


def seal(value: object, *, seed: int) -> str:
    """A value as a signature."""
    data = msgspec.json.encode(value)
    return b64encode(_mac(data, seed) + data).decode()


def unseal(signature: object, *, seed: int) -> Any:
    """The value of a signature; None if this lab did not make it."""
    try:
        raw = b64decode(str(signature), validate=True)
    except (Error, ValueError):
        return None
    mac, data = raw[:16], raw[16:]
    return msgspec.json.decode(data) if hmac.compare_digest(mac, _mac(data, seed)) else None


def _mac(data: bytes, seed: int) -> bytes:
    return hmac.digest(f"travois lab {seed}".encode(), data, sha256)[:16]
