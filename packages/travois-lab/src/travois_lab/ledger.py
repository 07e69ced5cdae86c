"""The ledger: every request that came, what was answered, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from travois_lab.diverge import Divergence, explain
from travois_lab.exchange import Exchange, Kin
from travois_lab.http import Request
from travois_lab.positions import Position
from travois_lab.talk import Protocol


class Ledger:
    """All exchanges in the order of arrival, with the questions that tests ask of them."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self._chains: dict[int, int] = {}
        self._contents: dict[bytes, int] = {}
        self._positions: dict[tuple[str, bytes], Position] = {}
        """Positions by place and content: a history that grows keeps each of them once."""

    def __iter__(self) -> Iterator[Exchange]:
        return iter(self.exchanges)

    def __len__(self) -> int:
        return len(self.exchanges)

    def __getitem__(self, index: int) -> Exchange:
        return self.exchanges[index]

    def open(self, request: Request, protocol: Protocol, *, at: float) -> Exchange:
        """Enter a request that has just arrived."""
        n = len(self.exchanges) + 1
        digest = blake2b(request.body, digest_size=16).digest()
        exchange = Exchange(n, at, protocol, request.path, request.headers, request.body, digest)
        self.exchanges.append(exchange)
        return exchange

    def place(self, exchange: Exchange, row: list[Position]) -> None:
        """Find the earlier request that this one grew out of, and how far they agree."""
        seen = self._positions
        exchange.row = tuple(seen.setdefault((p.path, p.digest), p) for p in row)
        digests = [position.digest for position in row]
        chained: list[int] = []
        before = hash(exchange.protocol)
        for digest in digests:
            before = hash((before, digest))
            chained.append(before)
        shared = next((i for i in range(len(row), 0, -1) if chained[i - 1] in self._chains), 0)
        parent = self._chains[chained[shared - 1]] if shared else self._relative(row, digests)
        exchange.kin = Kin(parent, shared, tuple(digests))
        for position, digest, name in zip(row, digests, chained, strict=True):
            self._chains[name] = exchange.n
            if position.tier == "messages":
                self._contents[digest] = exchange.n

    def _relative(self, row: list[Position], digests: list[bytes]) -> int:
        for position, digest in zip(reversed(row), reversed(digests), strict=True):
            if position.tier == "messages" and digest in self._contents:
                return self._contents[digest]
        return 0

    def divergence(self, n: int) -> Divergence:
        """How request `n` differs from the one it grew out of."""
        exchange = self.exchanges[n - 1]
        parent = self.exchanges[exchange.kin.parent - 1] if exchange.kin.parent else None
        if parent is None:
            return Divergence("first")
        return explain(parent, exchange)

    # --- assertions -----------------------------------------------------------------------------

    def append_only(self, *, allowed: int = 0) -> None:
        """Fail if more than `allowed` requests changed what an earlier one had already said."""
        found = [(e.n, self.divergence(e.n)) for e in self.exchanges if e.counts]
        breaks = [f"request {n}: {d}" for n, d in found if d.kind in ("edited", "shrunk")]
        assert len(breaks) <= allowed, "history is not append-only:\n" + "\n".join(breaks)

    def cache_hit_ratio(self) -> float:
        """The share of all prompt tokens that were read from cache."""
        total = sum(e.usage.prompt for e in self.exchanges if e.counts)
        read = sum(e.usage.read for e in self.exchanges if e.counts)
        return read / total if total else 0.0

    def cost(self) -> float:
        """What all requests cost, in US dollars."""
        return sum(e.cost for e in self.exchanges)

    def no_orphans(self) -> None:
        """Fail if any request held a call without its result, or a result without its call."""
        words = ("tool_use", "tool_result", "tool_call")
        found = [
            f"request {e.n}: {what}"
            for e in self.exchanges
            for what in (*e.invalid, e.error)
            if any(word in what for word in words)
        ]
        assert not found, "calls and results do not pair:\n" + "\n".join(found)

    def no_invalid(self) -> None:
        """Fail if the validator found anything wrong with any request."""
        found = [f"request {e.n}: {what}" for e in self.exchanges for what in e.invalid]
        assert not found, "invalid requests:\n" + "\n".join(found)

    def no_beta(self, beta: str) -> None:
        """Fail if any request asked for this beta."""
        found = [e.n for e in self.exchanges if beta in e.betas]
        assert not found, f"beta {beta} was sent by requests {found}"
