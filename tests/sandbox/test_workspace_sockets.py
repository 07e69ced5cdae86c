"""Sockets in the workspace: for commands that may change it, not for those that only look."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sandbox.caged import Mode, run, scene

TALK = """
import socket, sys
kind, path = getattr(socket, sys.argv[1]), sys.argv[2]
def plain():
    return socket.socket(socket.AF_UNIX, kind)
def paired():
    return socket.socketpair(socket.AF_UNIX, kind)[0]
for make in (plain, paired):
    try:
        s = make()
        s.connect(path)
        s.send(b"hello")
        print("reached")
    except OSError as error:
        print(type(error).__name__, error.errno)
"""
KINDS = ("SOCK_STREAM", "SOCK_DGRAM", "SOCK_SEQPACKET", "SOCK_RAW")


@contextmanager
def listening(folder: Path, kind: str) -> Iterator[socket.socket]:
    """A socket in a folder, bound as programs do that avoid long names: from within."""
    kind = "SOCK_DGRAM" if kind == "SOCK_RAW" else kind
    before = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    try:
        with socket.socket(socket.AF_UNIX, getattr(socket, kind)) as server:
            server.bind("door")
            os.fchdir(before)
            if kind != "SOCK_DGRAM":
                server.listen()
            server.setblocking(False)
            yield server
    finally:
        os.close(before)


@pytest.mark.parametrize("mode", ["full", "partial"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_command_that_looks_reaches_no_socket_in_the_workspace(mode: Mode, kind: str) -> None:
    with scene() as place, listening(place.work, kind) as server:
        (place.work / "talk.py").write_text(TALK)
        text = f"{sys.executable} talk.py {kind} door"
        done = run(mode, place.sh(text, sandbox=place.but(profile="look")))
        assert b"reached" not in done.output.head_and_tail()
        assert done.output.head_and_tail().count(b"\n") == 2
        with pytest.raises(BlockingIOError):
            server.accept() if kind in ("SOCK_STREAM", "SOCK_SEQPACKET") else server.recv(9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_that_works_reaches_it(kind: str) -> None:
    with scene() as place, listening(place.work, kind):
        (place.work / "talk.py").write_text(TALK)
        done = run("full", place.sh(f"{sys.executable} talk.py {kind} door"))
        assert done.output.head_and_tail().startswith(b"reached\n")


@pytest.mark.parametrize("mode", ["full", "partial"])
def test_pairs_that_lead_only_to_each_other_are_made_in_all_profiles(mode: Mode) -> None:
    """Programs talk to their children by these; asyncio cannot start without."""
    text = f"{sys.executable} -c 'import asyncio; asyncio.run(asyncio.sleep(0)); print(1)'"
    with scene() as place:
        for profile in ("look", "work"):
            done = run(mode, place.sh(text, sandbox=place.but(profile=profile)))
            assert done.output.head_and_tail() == b"1\n", done
