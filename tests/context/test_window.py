"""Where compaction starts, where nothing more is sent, and what to do about a full window."""

from __future__ import annotations

import pytest

from travois.context.layers import ContextLayers
from travois.context.window import hard_stop, threshold_for_model
from travois.core.models import ModelCard

CARD = ModelCard("p", "m", "anthropic", window=200_000, output=20_000)


@pytest.mark.parametrize(
    ("layers", "starts"),
    [
        (ContextLayers(), 167_000),
        (ContextLayers(percent=50), 90_000),
        (ContextLayers(percent=100), 167_000),
        (ContextLayers(percent=50, threshold=80_000), 80_000),
        (ContextLayers(percent=40, threshold=80_000), 72_000),
        (ContextLayers(threshold=190_000), 167_000),
        (ContextLayers(percent=50, window=100_000), 40_000),
    ],
)
def test_the_earliest_of_all_limits_starts_compaction(layers: ContextLayers, starts: int) -> None:
    assert threshold_for_model(CARD, layers) == starts


def test_a_hard_limit_can_only_be_earlier() -> None:
    assert hard_stop(CARD, ContextLayers()) == 197_000
    assert hard_stop(CARD, ContextLayers(hard_limit=150_000)) == 150_000
    assert hard_stop(CARD, ContextLayers(hard_limit=199_999)) == 197_000
