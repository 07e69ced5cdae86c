"""Where compaction starts, where nothing more is sent, and what to do about a full window."""

from __future__ import annotations

import pytest

from travois.context.layers import Layers
from travois.context.window import hard_stop, threshold
from travois.core.models import ModelCard

CARD = ModelCard("p", "m", "anthropic", window=200_000, output=20_000)


@pytest.mark.parametrize(
    ("layers", "starts"),
    [
        (Layers(), 167_000),
        (Layers(percent=50), 90_000),
        (Layers(percent=100), 167_000),
        (Layers(percent=50, threshold=80_000), 80_000),
        (Layers(percent=40, threshold=80_000), 72_000),
        (Layers(threshold=190_000), 167_000),
        (Layers(percent=50, window=100_000), 40_000),
    ],
)
def test_the_earliest_of_all_limits_starts_compaction(layers: Layers, starts: int) -> None:
    assert threshold(CARD, layers) == starts


def test_a_hard_limit_can_only_be_earlier() -> None:
    assert hard_stop(CARD, Layers()) == 197_000
    assert hard_stop(CARD, Layers(hard_limit=150_000)) == 150_000
    assert hard_stop(CARD, Layers(hard_limit=199_999)) == 197_000
