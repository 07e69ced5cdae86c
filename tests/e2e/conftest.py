"""A scratch folder and home for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    folder = tmp_path / "work"
    folder.mkdir()
    return Program(folder, tmp_path / "home")
