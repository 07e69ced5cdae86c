"""The clipboard: text by the terminal (OSC 52), text and images by desktop programs."""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Mapping
from shutil import which

from travois.core.errors import UserError

MAX_SEQUENCE_BYTES = 75_000
"""Terminals drop longer clipboard sequences."""
PROGRAM_SECONDS = 5.0
MAX_IMAGE_BYTES = 20_000_000
PNG_START = b"\x89PNG"
Programs = tuple[tuple[str, tuple[str, ...]], ...]
"""Programs, each with the variable or the system that tells where it works."""
COPIERS: Programs = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("darwin", ("pbcopy",)),
)
IMAGE_READERS: Programs = (
    ("WAYLAND_DISPLAY", ("wl-paste", "--no-newline", "--type", "image/png")),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")),
    ("darwin", ("pngpaste", "-")),
)
NO_CLIPBOARD_FIX = "Install wl-clipboard or xclip (Linux) or pngpaste (macOS)."


def encode_clipboard_sequence(text: str) -> str:
    """Return the OSC 52 sequence that copies a text; empty if it is too long."""
    data = text.encode("utf-8", "replace")
    return f"\x1b]52;c;{b64encode(data).decode()}\x07" if len(data) <= MAX_SEQUENCE_BYTES else ""


def copy_text(text: str) -> None:
    """Copy text with a desktop clipboard program; raise `UserError` if there is none."""
    if not copy_if_possible(text):
        raise UserError("There is no clipboard to copy to", fix=NO_CLIPBOARD_FIX)


def copy_if_possible(text: str) -> bool:
    """Copy text with a desktop clipboard program; return whether that worked."""
    data = text.encode("utf-8", "replace")
    return any(
        _run_clipboard_program(argv, data) is not None
        for argv in _find_programs(COPIERS, os.environ)
    )


def read_image() -> bytes:
    """Return the image on the clipboard as PNG; raise `UserError` if there is none."""
    programs = _find_programs(IMAGE_READERS, os.environ)
    if not programs:
        raise UserError(
            "The clipboard cannot be read",
            why="no program for it is installed",
            fix=NO_CLIPBOARD_FIX,
        )
    for argv in programs:
        data = _run_clipboard_program(argv)
        if data and data.startswith(PNG_START) and len(data) <= MAX_IMAGE_BYTES:
            return data
    raise UserError("There is no image on the clipboard", fix="Copy one, or type its path.")


def _find_programs(known: Programs, environ: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the clipboard programs that are installed and work on this desktop."""
    here = {name for name in ("WAYLAND_DISPLAY", "DISPLAY") if environ.get(name)} | {sys.platform}
    return [argv for desktop, argv in known if desktop in here and which(argv[0])]


def _run_clipboard_program(argv: tuple[str, ...], data: bytes = b"") -> bytes | None:
    """Run a clipboard program; None if it fails or takes too long."""
    try:
        # A program that keeps the clipboard stays behind: its output must not be waited for.
        out = subprocess.DEVNULL if data else subprocess.PIPE
        done = subprocess.run(
            argv,
            input=data,
            stdout=out,
            stderr=subprocess.DEVNULL,
            timeout=PROGRAM_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout or b"") if done.returncode == 0 else None
