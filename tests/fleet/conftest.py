"""A fleet for each test, on SQLite, and on a Postgres of its own where a test asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import program
from tests.fleet.harness import Fleet

__all__ = ["program"]


@pytest.fixture
def fleet(program: object, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on SQLite."""
    made = Fleet(program, tmp_path)  # pyright: ignore[reportArgumentType]
    yield made
    made.close()
