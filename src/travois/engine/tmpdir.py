"""What the model and the user are told of the session's private /tmp."""

from __future__ import annotations

import os
from collections.abc import Iterable

from travois.policy.access import Access
from travois.policy.bounds import Bounds
from travois.policy.cage import PRIVATE_TMP

REMOVED = "; it is removed when this session ends"


def tmp_remarks(bounds: Bounds | None, accesses: Iterable[Access]) -> tuple[str, ...]:
    """Say where on disk the paths below /tmp are that a file tool has used."""
    if bounds is None:
        return ()
    return tuple(dict.fromkeys(filter(None, (_remark(bounds, one) for one in accesses))))


def _remark(bounds: Bounds, access: Access) -> str:
    fate = "" if bounds.temp_lasts else REMOVED
    match access.tmp:
        case "private" if access.kind == "write":
            return f"{PRIVATE_TMP}; on disk, {access.spelt} is {access.target}{fate}."
        case "private" if os.path.isdir(access.target):
            own = "The machine's own /tmp was not searched."
            return f"{PRIVATE_TMP}; on disk, {access.spelt} is {access.target}. {own}"
        case "machine":
            return f"{access.spelt} is the machine's own; commands in the sandbox cannot see it."
        case _:
            return ""
