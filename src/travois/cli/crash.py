"""When we are wrong: a file that says how, and a line that says where it is."""

from __future__ import annotations

import os
import sys
from traceback import format_exception

from travois.core.errors import Fault
from travois.permissions.masking import mask_text
from travois.permissions.secrets import secrets
from travois.sessions import disk
from travois.sessions.home import locate
from travois.version import __version__


def report(error: BaseException, *, cause: BaseException) -> str:
    """Keep the traceback in a file of the home; returns what to tell the user."""
    trace = _masked("".join(format_exception(error)))
    head = f"Travois {__version__}, Python {sys.version.split()[0]}, {sys.platform}\n"
    try:
        folder = locate(os.environ).path / "crashes"
        disk.make_folders(folder)
        path = folder / f"{os.getpid()}-{len(os.listdir(folder))}.txt"
        disk.replace(path, (head + trace).encode(errors="replace"))
    except (OSError, Fault):
        return f"{trace}\ntravois: this is a bug in Travois; the session can be resumed\n"
    return (
        f"travois: a bug in Travois: {type(cause).__name__}: {_masked(str(cause))}\n"
        f"  The session can be resumed. Please report it with {path}\n"
    )


def _masked(text: str) -> str:
    """Mask the values of settings and of the environment, and whatever looks like a secret."""
    return mask_text(secrets(os.environ.items()).redacted(text))
