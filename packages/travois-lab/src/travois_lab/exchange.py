"""One request and its answer, as the ledger keeps them."""

from __future__ import annotations

import msgspec

from travois.core.models import Usage
from travois_lab.objects import Json
from travois_lab.positions import Position
from travois_lab.talk import Protocol

SECRET = ("authorization", "x-api-key", "x-goog-api-key", "cookie", "proxy-authorization")


class Kin(msgspec.Struct, frozen=True):
    """The predecessor's number, and how many positions the two share from the start."""

    parent: int = 0
    shared: int = 0
    digests: tuple[bytes, ...] = ()


class Exchange(msgspec.Struct):
    """One request and its answer."""

    n: int
    at: float
    protocol: Protocol
    path: str
    headers: dict[str, str]
    body: bytes
    digest: bytes
    """The name of the body's content."""
    model: str = ""
    status: int = 200
    error: str = ""
    """The error's kind and words, where the request was refused."""
    usage: Usage = Usage()
    cost: float = 0.0
    betas: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    """What the validator found wrong with the request."""
    reply: tuple[Json, ...] = ()
    stop: str = ""
    applied: tuple[Json, ...] = ()
    """Server-side context edits that were applied."""
    transformed: tuple[Json, ...] = ()
    """Thinking blocks that were dropped or let pass in spite of a mismatch."""
    row: tuple[Position, ...] = ()
    kin: Kin = Kin()

    @property
    def json(self) -> Json:
        """The request's body, decoded."""
        return msgspec.json.decode(self.body)

    @property
    def messages(self) -> list[Json]:
        """The request's messages."""
        return self.json.get("messages", [])

    @property
    def counts(self) -> bool:
        """Whether it asked for a reply that was given: not refused, not a token count."""
        return self.status == 200 and "count_tokens" not in self.path

    def public_headers(self) -> dict[str, str]:
        """The headers without credentials."""
        return {k: "(removed)" if k in SECRET else v for k, v in self.headers.items()}
