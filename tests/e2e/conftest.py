"""A scratch folder and home for each test, on this machine or as on one without namespaces."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.e2e.program import Program
from tests.ports.caged import walls
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
            close_namespaces(made)
        case _:
            pass
    return made


@cache
def kind() -> str:
    return look(None).kind


def close_namespaces(program: Program) -> None:
    """Start the program where the kernel refuses namespaces, as in an ordinary container."""
    program.is_limited = True
    program.launcher = (program.launcher[0], str(HERE / "no_namespaces.py"), *program.launcher)


@pytest.fixture
def full(program: Program) -> Program:
    """The program with the full sandbox; the test is skipped where this machine has none."""
    walls("full")
    if len(program.launcher) > len(Program.launcher):
        pytest.skip("it runs without namespaces, and this is about the full sandbox")
    return program


@pytest.fixture
def partial(program: Program) -> Program:
    """The program on a machine where bwrap cannot work."""
    walls("partial")
    if len(program.launcher) == len(Program.launcher):
        close_namespaces(program)
    return program
