"""A fleet for each test, on SQLite, or on a Postgres of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import program
from tests.e2e.program import Program
from tests.fleet.harness import Fleet
from tests.fleet.postgres import Postgres, find_postgres

__all__ = ["program"]


@pytest.fixture
def fleet(program: Program, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on SQLite."""
    made = Fleet(program, tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[Postgres]:
    """One server for all tests that do not kill it."""
    yield from _serve_postgres()


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    """A server that a test may kill."""
    yield from _serve_postgres()


def _serve_postgres() -> Iterator[Postgres]:
    programs = find_postgres()
    if programs is None:
        pytest.skip("Postgres is not installed (scripts/test_needs.sh installs it as root)")
    server = Postgres(programs)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def cluster(fleet: Fleet, shared_postgres: Postgres) -> Fleet:
    """A fleet on Postgres."""
    fleet.url = shared_postgres.create_database()
    assert fleet.run("migrate").code == 0
    return fleet
