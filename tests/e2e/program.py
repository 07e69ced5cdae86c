"""The real program as a user starts it, in a folder and a home of its own, against the lab."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import travois_lab as lab
from travois.core.facts import Entry
from travois.sandbox.probe import find_sandbox_support
from travois.sessions.log_file import read_entries

Line = dict[str, Any]
LIMITED = "travois: Sandbox: partial ("
WITHOUT_NAMESPACES = (sys.executable, str(Path(__file__).with_name("no_namespaces.py")))
"""Starts a program where the kernel refuses namespaces, as in an ordinary container."""


def has_landlock_backend() -> bool:
    """Whether `--backend landlock` was asked for."""
    return os.environ.get("TRAVOIS_TEST_BACKEND") == "landlock"


@cache
def sandbox_kind() -> str:
    """Return how much of the sandbox this machine can have: full, partial or none."""
    return find_sandbox_support(None).kind


def travois_command() -> tuple[str, ...]:
    """Return the words that start the program, with the backend that was asked for."""
    command = (sys.executable, "-m", "travois")
    return (*WITHOUT_NAMESPACES, *command) if has_landlock_backend() else command


def write_launcher(path: Path) -> None:
    """Write a script that starts the program, for clients that want the path of a program."""
    path.write_text(f'#!/bin/sh\nexec {shlex.join(travois_command())} "$@"\n')
    path.chmod(0o755)


@dataclass
class Done:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Line]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def result(self) -> Line:
        return self.lines[-1]


@dataclass
class Program:
    """Starts `travois` with an environment that holds nothing of the developer's own."""

    folder: Path
    home: Path
    url: str = ""
    protocol: str = "anthropic"
    extra: dict[str, str] = field(default_factory=dict)
    launcher: tuple[str, ...] = field(default_factory=travois_command)
    is_limited: bool = field(
        default_factory=lambda: has_landlock_backend() or sandbox_kind() != "full"
    )
    """Whether the sandbox is a limited one here, which the program says once on standard error."""

    @property
    def model(self) -> tuple[str, ...]:
        name = "anthropic/claude-opus-5-5" if self.protocol == "anthropic" else "openai/lab-model"
        return ("--model", name) if self.url else ()

    @property
    def environment(self) -> dict[str, str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home.parent), "LANG": "C.UTF-8"}
        env["TRAVOIS_HOME"] = str(self.home)
        env["TRAVOIS_LSP_ENABLED"] = "false"  # whatever language servers are installed here
        if self.url:
            env |= {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "sk-lab"}
            env |= {"OPENAI_BASE_URL": f"{self.url}/v1", "OPENAI_API_KEY": "sk-lab"}
        return env | self.extra

    @contextmanager
    def served(self, script: object = None, **options: Any) -> Iterator[lab.Api]:
        """The lab with this script, as the provider that the program asks."""
        with lab.server(script, **options) as api:
            self.url = api.url
            yield api

    def start(self, *args: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.launcher, *args],
            cwd=self.folder,
            env=self.environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *args: str, stdin: bytes | None = None, timeout: float = 300) -> Done:
        child = self.start(*args, stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE)
        out, err = child.communicate(stdin, timeout=timeout)
        return Done(child.returncode, out.decode(), self.without_limits(err.decode()))

    def without_limits(self, err: str) -> str:
        """What a run said beside the one line about a sandbox that is limited."""
        lines = err.splitlines(keepends=True)
        told = [line for line in lines if line.startswith(LIMITED)]
        assert len(told) <= self.is_limited, err
        return "".join(line for line in lines if line not in told)

    def ask(self, prompt: str, *args: str, stdin: bytes | None = None) -> Done:
        """One headless run with the lab's model."""
        return self.run("-p", prompt, *self.model, *args, stdin=stdin)

    def logs(self) -> list[Path]:
        return sorted(self.home.glob("sessions/*/*/log.jsonl"))

    def facts(self) -> list[Entry]:
        (log,) = self.logs()
        return read(log)


def read(log: Path) -> list[Entry]:
    skipped: list[Any] = []
    found = list(read_entries(log, skipped))
    assert skipped == []
    return found


def kinds(found: Iterable[Entry]) -> list[str]:
    return [type(entry.fact).__name__ for entry in found]
