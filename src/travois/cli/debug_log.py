"""The log file of `--debug`: the facts of the session, programs, connections and files, with times.

It listens to the audit events of Python, so that nothing else has to know about it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from travois.core.display_text import write_stderr
from travois.core.errors import UserError
from travois.core.facts import AnyFact, Entry
from travois.files.installation import find_installation
from travois.permissions.secrets import collect_secrets, mask_text
from travois.sessions import blobs
from travois.sessions.home import TravoisHome
from travois.version import __version__

WATCHED_EVENTS = {
    "subprocess.Popen": "program",
    "os.posix_spawn": "program",
    "socket.connect": "connect",
    "socket.getaddrinfo": "look up",
    "os.rename": "rename",
    "os.remove": "remove",
    "shutil.rmtree": "remove",
}
"""Audit events of Python that are written down, and what they are called."""
MAX_LINE_CHARS = 2_000


def start_debug_log(home: TravoisHome, file: str) -> Path:
    """Write what happens from here on to a file, and say where it is."""
    path = Path(file).expanduser().absolute() if file else _name_log_file(home)
    try:
        blobs.make_folders(path.parent)
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise UserError(f"The debug log {path} cannot be written", why=str(error)) from error
    write = _make_writer(number, start=time.monotonic())
    for line in _describe_start(home):
        write("start", line)
    sys.addaudithook(_make_hook(write))
    write_stderr(f"travois: the debug log is {path}\n")
    return path


def _name_log_file(home: TravoisHome) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return home.path / "debug" / f"{stamp}-{os.getpid()}.log"


def _describe_start(home: TravoisHome) -> list[str]:
    """Describe the program and where it runs, for the head of the log."""
    found = find_installation()
    python = sys.version.split()[0]
    return [
        f"travois {__version__} installed with {found.kind}, Python {python}, {sys.platform}",
        f"command line {sys.argv[1:]}",
        f"current folder {os.getcwd()}",
        f"home {', '.join(home.folders)}",
    ]


def _make_writer(number: int, *, start: float) -> Callable[[str, str], None]:
    """Make the function that writes one line, with secrets masked; a full disk is no failure."""
    secrets = collect_secrets(os.environ.items())

    def write_line(what: str, text: str) -> None:
        seconds = time.monotonic() - start
        shown = mask_text(secrets.redact(" ".join(text.split())))[:MAX_LINE_CHARS]
        with suppress(OSError):
            os.write(number, f"{seconds:9.3f} {what:<8} {shown}\n".encode(errors="replace"))

    return write_line


def _make_hook(write: Callable[[str, str], None]) -> Callable[[str, tuple[object, ...]], None]:
    """Make the audit hook; what it does itself is not written down again."""

    def write_event(event: str, args: tuple[object, ...]) -> None:
        if event == "travois.fact" and isinstance(args[0], Entry):
            write("fact", _describe_fact(args[0]))
        elif event in WATCHED_EVENTS and "__pycache__" not in (
            shown := _describe_args(event, args)
        ):
            write(WATCHED_EVENTS[event], shown)

    return write_event


def _describe_fact(entry: Entry) -> str:
    """Describe a fact of the session by its number and its JSON, which a long one is cut from."""
    fact: AnyFact = entry.fact
    return f"{entry.seq} {msgspec.json.encode(fact).decode(errors='replace')}"


def _describe_args(event: str, args: tuple[object, ...]) -> str:
    """Describe an event by its arguments; of a program by its command line, not its variables."""
    shown = args[:2] if event in ("subprocess.Popen", "os.posix_spawn") else args
    return " ".join(map(str, shown))
