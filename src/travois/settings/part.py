"""What parts of settings have in common."""

from __future__ import annotations

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
Quantity = Annotated[float, msgspec.Meta(ge=0)]


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """Some settings that belong together, spelled as other agents spell them."""
