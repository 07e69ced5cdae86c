"""The end of the process: nothing that was to happen is left out, and nothing is waited for."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import atexit, sys
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(2)
pool.submit(lambda: None).result()
atexit.register(lambda: print("end function"))
sys.argv = ["travois", "--version"]
from travois.__main__ import main
main()
print("main has ended the process before")
"""


def test_idle_thread_pools_end_with_the_program_and_end_functions_run() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == ["end function"]
