"""Running the real program, in a scratch folder, against a loopback server."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Scratch:
    """A folder to work in and a home of its own."""

    folder: Path
    home: Path
    url: str

    def command(self, *args: str) -> list[str]:
        program = str(Path(sys.executable).parent / "travois")
        return [program, "-p", "go", "--model", "anthropic/claude-opus-5-5", *args]

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_BASE_URL"))}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has its bytecode
        own = {"TRAVOIS_HOME": str(self.home), "ANTHROPIC_BASE_URL": self.url}
        return {**kept, **own, "ANTHROPIC_API_KEY": "bench"}

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*args),
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *args: str) -> None:
        child = self.start(*args)
        _, errors = child.communicate()
        if child.returncode:
            raise SystemExit(f"the program failed: {errors.decode()}")


@contextmanager
def scratch(url: str) -> Iterator[Scratch]:
    with tempfile.TemporaryDirectory(prefix="travois-bench-") as name:
        folder, home = Path(name, "work"), Path(name, "home")
        folder.mkdir()
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        yield Scratch(folder, home, url)
