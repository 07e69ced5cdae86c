"""The program, made to die by SIGKILL at one chosen write to a session log.

    python -m tests.e2e.mortal N [file-]before|torn|after ACKS -p …

The n-th write is not made, made by half, or made and the process dies right after it. The number
of writes that returned to their caller is told to the file ACKS: those are acknowledged. With
`file-` it is the n-th file that a compaction sets aside.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

fatal, manner, acks = int(sys.argv[1]), sys.argv[2], os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT)
manner, files = manner.removeprefix("file-"), manner.startswith("file-")
plain, whole = os.write, Path.write_bytes
count = 0


def write(fd: int, data: bytes) -> int:
    global count
    if files or not data.startswith(b'{"seq":'):
        return plain(fd, data)
    count += 1
    if count == fatal:
        if manner != "before":
            plain(fd, data if manner == "after" else data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    done = plain(fd, data)
    os.pwrite(acks, b"%d\n" % count, 0)
    return done


def write_bytes(path: Path, data: bytes) -> int:
    global count
    count += files and path.name.startswith("span-")
    if files and count == fatal:
        if manner != "before":
            whole(path, data if manner == "after" else data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(path, data)


os.write, Path.write_bytes = write, write_bytes
sys.argv[1:] = sys.argv[4:]

from travois.__main__ import main  # noqa: E402 - the log takes os.write as it is imported

sys.exit(main())
