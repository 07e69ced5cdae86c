"""The program without a process of its own: quick, and all of it but the start."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.program import Done
from travois.cli.main import run_command_line


@dataclass
class Inside:
    """Runs `travois` in a folder and a home of its own."""

    folder: Path
    home: Path
    patch: pytest.MonkeyPatch
    screen: pytest.CaptureFixture[str]
    extra: dict[str, str] = field(default_factory=dict)

    def run(self, *args: str) -> Done:
        self.screen.readouterr()
        with self.patch.context() as patch:
            patch.chdir(self.folder)
            environment = {"HOME": str(self.home.parent), "TRAVOIS_HOME": str(self.home)}
            for name, value in (environment | self.extra).items():
                patch.setenv(name, value)
            for name in ("VISUAL", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME"):
                patch.delenv(name, raising=False)
            code = run_command_line(args)
        return Done(code, *self.screen.readouterr())


def inside(path: Path, patch: pytest.MonkeyPatch, screen: pytest.CaptureFixture[str]) -> Inside:
    (path / "work").mkdir()
    return Inside(path / "work", path / "home", patch, screen)
