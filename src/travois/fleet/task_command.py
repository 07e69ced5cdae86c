"""The `setup` and `check` commands of fleet tasks: without the worker's secrets, and in the sandbox
unless its owner says otherwise.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from travois.fleet.run_process import RunStarter
from travois.permissions.secrets import mask_text
from travois.process.environment import build_child_environment

SHELL = ("/bin/sh", "-c")
MAX_OUTPUT_CHARS = 2_000
READ_BYTES = 65_536


class TaskCommands(msgspec.Struct, frozen=True):
    """The way in which a worker runs commands of tasks."""

    starter: RunStarter
    lease: Path
    is_sandboxed: bool = True

    def run(self, line: str, *, cwd: Path, env: Mapping[str, str]) -> tuple[int, str]:
        """Run a command of the task's author; return its exit code and the end of what it said.

        It gets no secrets of the worker: what it starts may be what the agent wrote.
        """
        kept = build_child_environment(env)
        if self.is_sandboxed:
            return self._run_sandboxed(line, cwd=cwd, env=kept)
        done = subprocess.run(
            (*SHELL, line),
            cwd=cwd,
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            start_new_session=True,
        )
        return done.returncode, _shorten(done.stdout)

    def _run_sandboxed(self, line: str, *, cwd: Path, env: Mapping[str, str]) -> tuple[int, str]:
        words = ("fleet", "command", "--lease", str(self.lease), "--", line)
        with tempfile.TemporaryFile() as errors:
            process = self.starter.start(words, cwd=cwd, env=env, errors=errors)
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            said = b""
            with process.stdout as output:
                while data := os.read(output.fileno(), READ_BYTES):
                    said = (said + data)[-READ_BYTES:]
            code = process.wait()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            errors.seek(0)
            return code, _shorten(said + errors.read())


def _shorten(said: bytes) -> str:
    return mask_text(said.decode(errors="replace"))[-MAX_OUTPUT_CHARS:]
