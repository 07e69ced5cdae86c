"""Cases of which `make test` runs a part, and `make test-full` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first(count: int, cases: Iterable[object]) -> list[Any]:
    """Leave all but the first cases to `make test-full`."""
    return [
        case if index < count else pytest.param(case, marks=pytest.mark.full)
        for index, case in enumerate(cases)
    ]
