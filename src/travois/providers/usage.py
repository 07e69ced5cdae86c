"""Counts of tokens, where servers give them and where they do not."""

from __future__ import annotations

from travois.core.content import AnyBlock
from travois.core.models import Usage
from travois.core.tokens import BYTES_PER_TOKEN, block_tokens


def guess(content: tuple[AnyBlock, ...], *, size: int) -> Usage:
    """An estimate for a reply to a request of so many bytes; nothing if the size is not known."""
    if not size:
        return Usage(estimated=True)
    return Usage(
        input=round(size / BYTES_PER_TOKEN),
        output=sum(block_tokens(block) for block in content),
        estimated=True,
    )
