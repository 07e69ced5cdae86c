"""A scratch folder and home for each test, on this machine or as on one without namespaces."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.e2e.program import Program
from travois.host.cage.probe import look

BOTH = {"test_work.py", "test_rewind.py", "test_hands.py"}
"""Files whose tests run commands that work: once with each kind of walls, also by default."""
HERE = Path(__file__).parent


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let the program run with the walls that were asked for, and those that work with both."""
    if "program" not in metafunc.fixturenames:
        return
    asked = metafunc.config.getoption("--backend")
    if asked == "landlock":
        metafunc.parametrize("program", ["no-namespaces"], indirect=True)
    elif metafunc.definition.path.parent == HERE and metafunc.definition.path.name in BOTH:
        backends = ["bwrap"] if asked == "bwrap" else ["bwrap", "no-namespaces"]
        metafunc.parametrize("program", backends, indirect=True)


@pytest.fixture
def program(tmp_path: Path, request: pytest.FixtureRequest) -> Program:
    folder = tmp_path / "work"
    folder.mkdir()
    made = Program(folder, tmp_path / "home")
    match getattr(request, "param", ""):
        case "bwrap" if kind() != "full":
            pytest.skip(f"bubblewrap cannot work here: the sandbox is {kind()}")
        case "no-namespaces":
            made.launcher = (made.launcher[0], str(HERE / "no_namespaces.py"), *made.launcher)
        case _:
            pass
    return made


@cache
def kind() -> str:
    return look(None).kind
