"""A task that goes on without the terminal it was begun in."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from uuid import uuid4

from travois.core.errors import Fault
from travois.core.terminal_text import complain
from travois.sessions import home as homes

FLAGS = ("--bg", "--background")


def detach(argv: list[str], args: Namespace) -> int:
    """Begin the task in a process of its own and say which session it is."""
    import subprocess

    if args.print or not args.prompt:
        raise Fault("--bg begins one task and returns", fix="Give it a prompt, and leave -p out.")
    if args.latest or args.no_session_persistence:
        raise Fault("--bg needs a session to find again", fix="Name it with -r, or begin one.")
    named = args.session_id or (args.resume if not args.fork_session else "")
    id = named or str(uuid4())
    words = ["-p", *(() if named else ("--session-id", id))]
    words += [word for word in argv if word not in FLAGS]
    folder = homes.locate(os.environ).prepare().path / "background"
    folder.mkdir(mode=0o700, exist_ok=True)
    file = "".join(char if char.isalnum() or char == "-" else "_" for char in id)
    with (folder / f"{file}.txt").open("ab") as said:
        child = subprocess.Popen(
            [sys.executable, "-m", "travois", *words],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    sys.stdout.write(f"{id}\n")
    told = f"process {child.pid} works on it and says into {said.name} what comes of it"
    complain(f"travois: {told}; then `travois -r {id}` goes on\n")
    return 0
