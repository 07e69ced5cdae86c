"""What ends our children if we are killed before we can: a shell that waits for us to vanish."""

from __future__ import annotations

import os
import signal

from travois.process.reap import MARK, PROC

SCRIPT = r"""
cd /
read -r nothing
mark=$1
sign=TERM
for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  found= sessions=' '
  for path in $(grep -lsF -e "$mark" /proc/[0-9]*/environ); do
    pid=${path#/proc/} pid=${pid%/environ}
    read -r stat < "/proc/$pid/stat" || continue
    set -- ${stat##*) }
    found="$found $pid" sessions="$sessions$4 "
  done
  [ "$found" ] || exit
  for path in /proc/[0-9]*/stat; do
    read -r stat < "$path" || continue
    set -- ${stat##*) }
    case $sessions in *" $4 "*) pid=${path#/proc/} found="$found ${pid%/stat}" ;; esac
  done
  kill -s $sign $found
  sleep 0.3
  sign=KILL
done
"""
"""We hold the other end of its standard input and never write: its end is our death."""


class Watchdog:
    """A sleeping shell that outlives us only to end what bears our mark."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._pid = 0
        self._leash = -1

    @property
    def pid(self) -> int:
        """Its process; 0 while there is none."""
        return self._pid

    def wake(self) -> None:
        """Start it, unless it runs or there is no /proc for it to look into."""
        if self._pid or not PROC:
            return
        ours = {name: os.environ[name] for name in ("PATH", MARK) if name in os.environ}
        end, self._leash = os.pipe()
        try:
            self._pid = os.posix_spawn(
                "/bin/sh",
                ("sh", "-c", SCRIPT, "travois-watchdog", self._mark),
                ours,
                file_actions=(
                    (os.POSIX_SPAWN_DUP2, end, 0),
                    (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ),
                setsid=True,
                setsigdef=(signal.SIGPIPE,),
            )
        except OSError:
            os.close(self._leash)
            raise
        finally:
            os.close(end)

    def dismiss(self) -> None:
        """End it; it was not needed."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            os.close(self._leash)
            self._pid = 0
