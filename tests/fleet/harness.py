"""A fleet as its user has it: repositories, task files, the real program, the lab as provider."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.e2e.program import Done, Program
from tests.processes import Process, processes
from travois.warm_client import OWNER_FLAG

MODEL = "anthropic/claude-opus-5-5"
WRITE = {"tool_use": {"name": "Write", "input": {"file_path": "hello.txt", "content": "hello\n"}}}
WRITTEN = {"name": "Write", "is_error": False}
WORK = [
    {"when": {"tool_result": WRITTEN}, "say": "Done.", "repeat": True},
    {"say": [WRITE], "repeat": True},
]
"""A model that writes one file, again if that was interrupted, and is done."""
PATIENCE = 120.0
"""Long enough for a loaded machine: no test measures time by it."""


def slow_work(seconds: float) -> list[object]:
    """Return a model whose second request takes a while, in which things can be killed."""
    delay = {"by": "char", "delay_ms": round(seconds * 1000 / 5)}
    last = {"when": {"tool_result": WRITTEN}, "say": "Done.", "repeat": True}
    return [last | {"chunks": delay}, WORK[1]]


def git(*words: str, cwd: Path) -> str:
    """Run git as somebody."""
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}
    env = os.environ | who | {"GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ("git", *words), cwd=cwd, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


def wait_until(is_so: Callable[[], object], *, what: str) -> None:
    """Wait for something that happens sooner or later."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.05)


@dataclass
class Fleet:
    """A fleet with its own home and repositories."""

    program: Program
    folder: Path
    url: str = ""
    """The database; SQLite in the home if empty."""
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def repo(self, name: str) -> Path:
        """Return a bare repository with one commit that records each push."""
        bare = self.folder / f"{name}.git"
        if bare.exists():
            return bare
        git("init", "-q", "--bare", "-b", "main", str(bare), cwd=self.folder)
        git("config", "core.logAllRefUpdates", "true", cwd=bare)
        clone = self.folder / f"{name}-clone"
        git("clone", "-q", str(bare), str(clone), cwd=self.folder)
        (clone / "README").write_text("hi\n")
        git("add", ".", cwd=clone)
        git("commit", "-qm", "init", cwd=clone)
        git("push", "-q", "origin", "HEAD:main", cwd=clone)
        return bare

    def pushes(self, name: str, task: str) -> int:
        """Return how often the branch of a task was written."""
        log = self.folder / f"{name}.git" / "logs" / "refs" / "heads" / "travois" / task
        return len(log.read_text().splitlines()) if log.exists() else 0

    def content(self, name: str, task: str, file: str = "hello.txt") -> str:
        """Return a file of a task's branch."""
        return git("show", f"travois/{task}:{file}", cwd=self.folder / f"{name}.git")

    def task(self, id: str, repo: str = "app", **more: object) -> dict[str, object]:
        """Return a task."""
        return {
            "id": id,
            "repo": str(self.repo(repo)),
            "prompt": f"Say hello {id}",
            "model": MODEL,
        } | more

    def write(self, *tasks: object) -> str:
        """Write tasks to a file; return its name."""
        path = self.folder / "tasks.jsonl"
        path.write_text("".join(json.dumps(task) + "\n" for task in tasks))
        return str(path)

    def words(self, *words: str) -> tuple[str, ...]:
        return ("fleet", *words, *(("--db", self.url) if self.url else ()))

    def run(self, *words: str) -> Done:
        """Run a command to its end."""
        return self.program.run(*self.words(*words))

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command; it is killed after the test."""
        with self._output(len(self.started)).open("wb") as said:
            child = self._popen(words, said)
        self.started.append(child)
        return child

    def _output(self, number: int) -> Path:
        return self.folder / f"output-{number}.txt"

    def finish(self, child: subprocess.Popen[bytes]) -> str:
        """Wait for the end of what was started; return what it said."""
        child.wait(PATIENCE)
        return self._output(self.started.index(child)).read_text()

    def _popen(self, words: tuple[str, ...], said: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.program.launcher, *self.words(*words)],
            cwd=self.program.folder,
            env=self.program.environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def results(self) -> dict[str, dict[str, Any]]:
        """Return the results by task."""
        done = self.run("results", "--format", "json")
        assert done.code == 0, done.err
        return {each["id"]: each for each in json.loads(done.out)}

    def states(self) -> dict[str, str]:
        """Return the state of each task."""
        return {id: each["state"] for id, each in self.results().items()}

    def runs(self) -> list[int]:
        """Return the pids of the `travois -p` runs of this fleet."""
        return [one.pid for one in processes() if one.state != "Z" and self._is_run(one)]

    def _is_run(self, process: Process) -> bool:
        """Return whether this is a run, started by itself or by a worker's warm server."""
        if f"--lease {self.program.home}/" in process.command:
            return True
        try:
            folder = Path(f"/proc/{process.pid}/cwd").readlink()
            leads = os.getsid(process.pid) == process.pid
        except OSError:
            return False
        is_warm = leads and OWNER_FLAG in process.command
        return is_warm and folder.is_relative_to(self.program.home / "fleet")

    def close(self) -> None:
        """End everything that was started."""
        for child in self.started:
            for number in (signal.SIGCONT, signal.SIGKILL):
                if child.poll() is None:
                    child.send_signal(number)
            child.wait()
        for pid in self.runs():
            os.kill(pid, signal.SIGKILL)
