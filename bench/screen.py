"""The screen: CPU to the first paint, at rest, bytes for an answer, how soon Escape stops."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from statistics import median
from termios import TIOCSWINSZ
from time import monotonic, perf_counter

import travois_lab as lab
from bench.program import Scratch, scratch

RUNS = 7
REST = 10.0
CODES = re.compile(r"\x1b\[[0-9;?$]*[a-zA-Z]|\x1b[=>]|[\r\n]")
PROSE = (
    "The quick brown fox jumps over the lazy dog, and then it goes home to write `a_test` "
    "about **what it saw** on the way, line by line, until the evening comes. "
)
ANSWER = "\n\n".join(
    ["## A heading", PROSE * 3, "- " + PROSE + "\n- two", "```python\n" + "x = f(1)\n" * 12 + "```"]
    * 4
)

MAKE_LOG = """
import sys
from pathlib import Path
from travois.core.content import Call, Text
from travois.core.facts import Assistant, Decided, Ended, Entry, Result, Sent, User
from travois.core.models import Usage
from travois.sessions import log_line as line
from travois.sessions.log_file import LOG_FILE_NAME, SessionLog

folder, turns = Path(sys.argv[1]), int(sys.argv[2])
with SessionLog.open(folder) as log:
    seq = max(entry.seq for entry in log.read())
file = (folder / LOG_FILE_NAME).open("ab", buffering=1 << 20)

def say(fact):
    global seq
    seq += 1
    file.write(line.encode_entry(Entry(seq, 1.7e9 + seq, fact))[1])

for n in range(turns):
    if n % 40 == 0:
        say(User((Text(f"Look at module {n}."),)))
    say(Sent(2 * n + 2, f"{n:032x}", f"{n:032x}", 16_000 + 250 * n))
    call = Call(f"toolu_{n}", "Bash", '{"command":"grep -rn needle src/module_%d"}' % n)
    say(Assistant((call,), "calls", Usage(input=5, read=60 * n, write=60, output=40)))
    say(Decided(call.id, "allow", "rule: allow Bash"))
    say(Result(call.id, (Text(f"src/module_{n}.py:12: needle\\n"),), lines=1))
    if n % 40 == 39:
        say(Assistant((Text("Done."),), "end", Usage(input=5, output=4)))
        say(Ended("end"))
file.close()
"""
"""Adds turns to a log, as fast as they can be written."""


class Glass:
    """The program in a pty of 100 by 30."""

    def __init__(self, place: Scratch, *args: str, **environ: str) -> None:
        program = str(Path(sys.executable).parent / "travois")
        command = [program, "--model", "anthropic/claude-opus-5-5", *args]
        self.pid, self.fd = pty.fork()
        if not self.pid:
            ioctl(0, TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
            os.chdir(place.folder)
            told = {**place.environment(), "TERM": "xterm-256color", **environ}
            os.execvpe(command[0], command, told)
        self.seen = b""

    def until(self, words: str) -> None:
        start = len(self.seen)
        end = monotonic() + 60
        while words.encode() not in self.seen[start:]:
            ready, _, _ = select.select([self.fd], [], [], end - monotonic())
            assert ready, f"{words!r} never came: {self.seen[-2000:]!r}"
            self.seen += os.read(self.fd, 1 << 16)

    def drain(self, seconds: float) -> None:
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0:
            if select.select([self.fd], [], [], left)[0]:
                self.seen += os.read(self.fd, 1 << 16)

    def type(self, words: str) -> None:
        os.write(self.fd, words.encode())

    def cpu(self) -> float:
        """Milliseconds on a processor so far, of all threads."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6

    def close(self) -> None:
        self.type("\x15\x04")
        while True:
            try:
                if not os.read(self.fd, 1 << 16):
                    break
            except OSError:
                break
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def main() -> None:
    with lab.server(_script()) as api, scratch(api.url) as place:
        _starting(place)
        _resting(place)
        for name, word in (("60 tokens/s", "slow"), ("400 tokens/s", "fast")):
            _streaming(place, name, word)
        _stopping(place)
    with lab.server(_write_diffs()) as api, scratch(api.url) as place:
        _colouring(place)
    with lab.server([{"say": "Done.", "repeat": True}]) as api, scratch(api.url) as place:
        _resuming(place)


def _write_diffs() -> list[object]:
    """A new file, and changes of a word, of a line and of half of it."""
    old = [
        f"def price_{n}(basket, rate):  # {n}\n    return basket.total * {n}\n" for n in range(12)
    ]
    new = [
        part.replace("total", "net_total") if n % 3 else part.replace("return", "yield")
        for n, part in enumerate(old)
    ]
    half = [part if n % 2 else f"# gone: price_{n}\n" for n, part in enumerate(new)]
    edits = [
        ("Write", {"file_path": "shop.py", "content": "".join(old)}),
        *(("Edit", _edit(a, b)) for a, b in ((old, new), (new, half))),
    ]
    calls = [{"tool_use": {"name": name, "input": given}} for name, given in edits]
    return [*({"say": [call]} for call in calls), {"say": "Changed."}]


def _edit(old: list[str], new: list[str]) -> dict[str, str]:
    return {"file_path": "shop.py", "old_string": "".join(old), "new_string": "".join(new)}


def _colouring(place: Scratch) -> None:
    """Bytes for coloured diffs: numbers, syntax, changed words, in 24-bit colours."""
    glass = Glass(place, "--permission-mode", "accept-edits", COLORTERM="truecolor")
    glass.until("%")
    glass.drain(1)
    start = len(glass.seen)
    glass.type("go\r")
    glass.until("Changed.")
    glass.drain(1)
    raw = glass.seen[start:]
    shown = len(CODES.sub("", raw.decode(errors="replace")).encode())
    print(f"coloured diffs         {len(raw) / shown:6.2f} bytes a byte shown ({shown} bytes)")
    glass.close()


def _resuming(place: Scratch) -> None:
    place.run()
    log = max(place.home.glob("sessions/*/*/log.jsonl"), key=os.path.getmtime)
    subprocess.run([sys.executable, "-c", MAKE_LOG, str(log.parent), "5000"], check=True)
    for path in log.parent.glob("checkpoint*"):
        path.unlink()
    begun = perf_counter()
    glass = Glass(place, "--continue")
    glass.until("%")
    wall = perf_counter() - begun
    print(f"10,000 messages        {glass.cpu():6.0f} ms CPU   ({wall:.2f} s), no checkpoint")
    _press_keys(glass)
    glass.close()


def _press_keys(glass: Glass) -> None:
    glass.drain(1)
    before = glass.cpu()
    for key in "typing words":
        glass.type(key)
        glass.drain(0.05)
    print(f"a key in it            {(glass.cpu() - before) / 12:6.1f} ms CPU")


def _script() -> list[object]:
    def stream(word: str, delay: float) -> dict[str, object]:
        cut = {"by": "token", "delay_ms": delay}
        return {"when": {"last_text": word}, "say": ANSWER, "chunks": cut, "repeat": True}

    return [
        stream("slow", 16),
        stream("fast", 2.5),
        {"when": {"last_text": "go"}, "say": "Done.", "repeat": True},
        {"say": ANSWER * 20, "repeat": True, "chunks": {"by": "token", "delay_ms": 16}},
    ]


def _starting(place: Scratch) -> None:
    first, ready, wall = list[float](), list[float](), list[float]()
    for _ in range(RUNS):
        begun = perf_counter()
        glass = Glass(place)
        glass.until("❯")
        first.append(glass.cpu())
        wall.append((perf_counter() - begun) * 1000)
        glass.until("%")
        ready.append(glass.cpu())
        glass.close()
    print(f"first paint            {median(first):6.0f} ms CPU   ({median(wall):.0f} ms)")
    print(f"  of it, Python alone  {median(_bare_starts()):6.0f} ms CPU")
    print(f"session ready          {median(ready):6.0f} ms CPU")


def _bare_starts() -> list[float]:
    """CPU of a Python that only imports what the installed script does."""
    spent = list[float]()
    for _ in range(RUNS):
        before = os.times()
        subprocess.run([sys.executable, "-c", "import re, sys"], check=True)
        after = os.times()
        user = after.children_user - before.children_user
        spent.append(1000 * (user + after.children_system - before.children_system))
    return spent


def _resting(place: Scratch) -> None:
    glass = Glass(place)
    glass.until("%")
    glass.drain(3)
    before, size = glass.cpu(), len(glass.seen)
    glass.drain(REST)
    share = (glass.cpu() - before) / (REST * 10)
    print(
        f"at rest                {share:6.2f} % CPU, {len(glass.seen) - size} bytes in {REST:.0f} s"
    )
    glass.close()


def _streaming(place: Scratch, name: str, word: str) -> None:
    glass = Glass(place)
    glass.until("%")
    glass.drain(1)
    start, before, begun = len(glass.seen), glass.cpu(), perf_counter()
    glass.type(f"{word}\r")
    glass.until("cache")
    glass.drain(1)
    raw = glass.seen[start:]
    shown = len(CODES.sub("", raw.decode(errors="replace")).encode())
    spent = (glass.cpu() - before) / (perf_counter() - begun) / 10
    codes = len(raw) - shown
    print(
        f"an answer at {name:<12}{len(raw) / shown:5.2f} bytes a byte shown "
        f"({shown} bytes; {codes} of codes), {spent:.1f} % CPU"
    )
    glass.close()


def _stopping(place: Scratch) -> None:
    waits: list[float] = []
    glass = Glass(place)
    glass.until("%")
    for _ in range(RUNS):
        glass.type("stop me\r")
        glass.until("quick")
        glass.drain(0.7)
        begun = perf_counter()
        glass.type("\x1b")
        glass.until("stopped")
        waits.append((perf_counter() - begun) * 1000)
        glass.drain(1)
    print(f"Escape to a stop       {median(waits):6.0f} ms   (worst {max(waits):.0f})")
    glass.close()
