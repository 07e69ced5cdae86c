"""A scratch folder and home for each test, on this machine or as on one without namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.program import WITHOUT_NAMESPACES, Program, sandbox_kind
from tests.sandbox.caged import walls

BOTH = {
    *("test_work.py", "test_rewind.py", "test_hands.py", "test_moving.py", "test_jobs.py"),
    *("test_offer.py", "test_protected_files.py"),
}
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
        case "bwrap" if sandbox_kind() != "full":
            pytest.skip(f"bubblewrap cannot work here: the sandbox is {sandbox_kind()}")
        case "no-namespaces":
            close_namespaces(made)
        case _:
            pass
    return made


def close_namespaces(program: Program) -> None:
    """Start the program where the kernel refuses namespaces, as in an ordinary container."""
    program.is_limited = True
    if program.launcher[:2] != WITHOUT_NAMESPACES:
        program.launcher = (*WITHOUT_NAMESPACES, *program.launcher)


@pytest.fixture
def full(program: Program) -> Program:
    """The program with the full sandbox; the test is skipped where this machine has none."""
    walls("full")
    if program.is_limited:
        pytest.skip("it runs without namespaces, and this is about the full sandbox")
    return program


@pytest.fixture
def partial(program: Program) -> Program:
    """The program on a machine where bwrap cannot work."""
    walls("partial")
    close_namespaces(program)
    return program
