"""What the first tool call needs is imported while the first answer is awaited, and only then."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib import import_module

from travois.engine.import_ahead import FIRST_CALL_MODULES, ImportAhead

SCRIPT = """
import sys, time
from travois.engine.import_ahead import ImportAhead
ahead = ImportAhead(("calendar", "this_is_imported_last"))
with ahead.during():
    for _ in range(2_000):
        if "calendar" in sys.modules: break
        time.sleep(0.01)
print("calendar" in sys.modules)
"""


def test_modules_are_loaded_while_somebody_waits() -> None:
    script = SCRIPT.replace("this_is_imported_last", "colorsys")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"True\n"


def test_an_answer_that_comes_at_once_is_not_delayed_by_it() -> None:
    ahead = ImportAhead(("a_module_that_does_not_exist",))
    with ahead.during():
        pass
    with ahead.during():  # a second wait imports nothing: its thread would raise
        time.sleep(0.1)


def test_all_that_it_names_is_there() -> None:
    for name in FIRST_CALL_MODULES:
        import_module(name)
