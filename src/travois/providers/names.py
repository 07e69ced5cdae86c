"""Names that any provider takes, and words where a provider wants some and there are none."""

from __future__ import annotations

import re
from hashlib import blake2b

from travois.core.content import AnyBlock, Opaque, Text
from travois.core.json import utf8

ECHOED = "extra_content"
"""The member of a call that Google's chat endpoint wants back, and no other may see."""
FOREIGN = frozenset((ECHOED, "gemini", "responses"))
"""Members of a call that only the protocol that made it may see."""
NO_OUTPUT = "(no output)"
NO_WORDS = "(empty message)"
GO_ON = "(continue)"
STARTED_BEFORE = "(This conversation began earlier.)"


def spoken(block: AnyBlock) -> str:
    """What of a block is said again as words: another provider's summary stands for history."""
    if isinstance(block, Opaque):
        return block.text if block.kind in ("compaction", "text") else ""
    return block.text if isinstance(block, Text) else ""


def call_id(id: str, *, legal: str = r"[A-Za-z0-9_-]{1,64}", start: str = "toolu_") -> str:
    """A call's id if it is legal; else one made from it, always the same."""
    if re.fullmatch(legal, id):
        return id
    return start + blake2b(utf8(id), digest_size=12).hexdigest()


def tool_name(name: str) -> str:
    """A tool's name, whatever the model called it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unknown"
