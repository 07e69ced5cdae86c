"""A place of its own for the tour: a repository, a home, and nothing of the user's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from travois_lab.demo.tour import FILES

KEPT = (
    *("LANG", "LC_ALL", "LC_CTYPE", "TERM", "COLORTERM", "COLORFGBG", "NO_COLOR", "TZ"),
    *("TMPDIR", "PYTHONPATH"),
)
"""What tells how to show things and how this program was started; the rest is the user's own."""
KEY = "TRAVOIS_DEMO_KEY"
MODEL = "lab/scripted"
WINDOW = 128_000
MODELS = {"scripted": {"like": "claude-opus-5-5", "window": WINDOW}}
"""The model as the lab knows it."""


def move_into(folder: Path) -> Path:
    """Make the repository and be there, with an environment in which nothing is the user's own."""
    shop = folder / "shop"
    for name, text in FILES.items():
        (shop / name).parent.mkdir(parents=True, exist_ok=True)
        (shop / name).write_text(text)
    environ = _environment(os.environ, folder)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(shop)
    _begin_history()
    return shop


def _environment(known: Mapping[str, str], folder: Path) -> dict[str, str]:
    kept = {name: known[name] for name in KEPT if name in known}
    path = os.pathsep.join((os.path.dirname(sys.executable), known.get("PATH", os.defpath)))
    own = {"HOME": str(folder), "TRAVOIS_HOME": str(folder / "home"), "PATH": path}
    return {**kept, **own, KEY: "scripted"}


def _begin_history() -> None:
    """A repository, where there is git; without it a folder does as well."""
    with suppress(FileNotFoundError):
        subprocess.run(("git", "init", "-q", "-b", "main"), check=False)


def settings(url: str) -> dict[str, object]:
    """The settings of the tour: the lab is the only provider that is asked."""
    lab = {"protocol": "anthropic", "url": url, "keyEnv": [KEY], "small": "scripted"}
    return {
        "providers": {"lab": lab},
        "models": {MODEL: {"window": WINDOW}},
        "memory": {"extract": "off"},
    }
