"""The program, made to die by SIGKILL at one chosen write to a session log.

    python -m tests.e2e.mortal N before|torn|after ACKS -p …

The n-th write is not made, made by half, or made and the process dies right after it. The number
of writes that returned to their caller is told to the file ACKS: those are acknowledged.
"""

from __future__ import annotations

import os
import signal
import sys

fatal, manner, acks = int(sys.argv[1]), sys.argv[2], os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT)
plain = os.write
count = 0


def write(fd: int, data: bytes) -> int:
    global count
    if not data.startswith(b'{"seq":'):
        return plain(fd, data)
    count += 1
    if count == fatal:
        if manner != "before":
            plain(fd, data if manner == "after" else data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    done = plain(fd, data)
    os.pwrite(acks, b"%d\n" % count, 0)
    return done


os.write = write
sys.argv[1:] = sys.argv[4:]

from travois.__main__ import main  # noqa: E402 - the log takes os.write as it is imported

sys.exit(main())
