"""How the tests run: on a build machine, the same examples each time; elsewhere, new ones.

No example has a deadline: a loaded machine is not a defect.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

PR_SET_CHILD_SUBREAPER = 36
settings.register_profile("new", deadline=None)
settings.register_profile("build", derandomize=True, deadline=None)
settings.register_profile("long", max_examples=2_000, deadline=None)
settings.load_profile("build" if os.environ.get("CI") else "new")
os.environ["TRAVOIS_LSP_ENABLED"] = "false"  # whatever language servers are installed here
os.environ["CLAUDE_CONFIG_DIR"] = os.devnull  # the settings of whoever runs the tests are theirs
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts jobs in the background so, and every program of every test would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--backend landlock` runs the program of every test as on a machine without namespaces."""
    told = "the sandbox that the real program uses: bwrap, landlock (no namespaces), or both"
    parser.addoption("--backend", choices=("both", "bwrap", "landlock"), default="both", help=told)


def pytest_configure(config: pytest.Config) -> None:
    """Tell `tests.e2e.program`, which starts the program for tests in several folders."""
    os.environ["TRAVOIS_TEST_BACKEND"] = config.getoption("--backend")


@pytest.fixture(autouse=True)
def leave_orphans_to_init() -> Iterator[None]:
    """Stop adopting orphans after each test.

    Who runs a command adopts what it leaves behind. Programs that a later test kills would be
    adopted too and stay as zombies, a thousand in a run, that slow down each look at /proc.
    """
    yield
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
