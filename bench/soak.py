"""A session of 20,000 calls in a window of 60K tokens: CPU and memory of each tenth of it.

Commands, reads and edits alternate, each prompt is counted honestly, and the conversation is cleared
and compacted hundreds of times: what a call costs must not grow with the age of the session.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from statistics import median

from bench.loopback import Event, Seen, call, server, words
from bench.program import scratch

CALLS = 20_000
PARTS = 10
WINDOW = 60_000
FILES = 40


def main() -> None:
    children: list[int] = []
    used: list[tuple[float, float]] = []
    seen: list[Seen] = []

    def answer(number: int) -> bytes:
        if children:
            used.append(_used(children[0]))
        if number > CALLS:
            return words(number)
        name, args = _choose_call(number)
        return call(number, name, args, prompt=seen[0].sizes[-1] // 4 if seen else 0)

    with server(answer) as (url, log), scratch(url) as place:
        seen.append(log)
        for number in range(FILES):
            text = "x = 1\n" + f"def f{number}(): return {number}\n" * 150
            (place.folder / f"f{number}.py").write_text(text)
        place.home.mkdir(exist_ok=True)
        settings = json.dumps({"context": {"window": WINDOW}})
        (place.home / "settings.json").write_text(settings)
        child = place.start("--permission-mode", "bypass", "--no-sandbox")
        children.append(child.pid)
        child.communicate()
        if child.returncode:
            sys.exit("the session failed")
    _print_parts(used)


def _choose_call(number: int) -> tuple[str, Event]:
    """A read, an edit of the same file, or a command that prints 600 lines."""
    match number % 5:
        case 1 | 2:
            return "Read", {"file_path": f"f{number % FILES}.py"}
        case 3:
            path = f"f{(number - 1) % FILES}.py"
            return "Edit", {"file_path": path, "old_string": "x = ", "new_string": "x =  "}
        case _:
            return "Bash", {"command": f"echo {number}; seq {number} {number + 600}"}


def _print_parts(used: list[tuple[float, float]]) -> None:
    some = len(used) // PARTS
    parts = [used[start : start + some] for start in range(0, some * PARTS, some)]
    print(f"{len(used)} requests; the program's own CPU per call, without its commands:")
    for number, part in enumerate(parts):
        cpu, memory = _per_call(part) * 1000, _memory(part)
        print(f"  from call {number * some:>6}  {cpu:6.2f} ms   {memory:6.1f} MB resident")
    early, late = parts[1], parts[-1]
    ratio = _per_call(late) / _per_call(early)
    print(f"  last tenth to second   {ratio:6.2f}      {_memory(late) / _memory(early):6.2f}")


def _per_call(part: list[tuple[float, float]]) -> float:
    return (part[-1][0] - part[0][0]) / (len(part) - 1)


def _memory(part: list[tuple[float, float]]) -> float:
    return median(memory for _, memory in part)


def _used(pid: int) -> tuple[float, float]:
    """The seconds of CPU that a process has used itself, and its resident MB."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return cpu, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
