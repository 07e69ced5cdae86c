"""Many sessions, many runs at once, and large trees, with bare Python beside each row."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from time import perf_counter
from uuid import uuid4

from bench.loopback import server, shell, words
from bench.program import Scratch, scratch
from bench.start import FLOOR

SESSIONS = (1_000, 10_000)
RUNS, TURNS = 50, 5
TREES = (("files", 100_000, "module"), ("files with long paths", 120_001, "long_name_" * 12))
EACH = 400
"""The files of one folder."""
READ_LOGS = """
import json, pathlib, sys
for log in pathlib.Path(sys.argv[1]).glob("*/*/log.jsonl"):
    with log.open("rb") as file:
        json.loads(file.readline())
"""
RUN_TURNS = """
import http.client, subprocess, sys, urllib.parse
line = http.client.HTTPConnection(urllib.parse.urlsplit(sys.argv[1]).netloc)
for turn in range(int(sys.argv[2]) + 1):
    line.request("POST", "/v1/messages", "{}")
    line.getresponse().read()
    subprocess.run(["bash", "-c", f"echo {turn}"], stdout=subprocess.DEVNULL, check=True)
"""


def main() -> None:
    _time_listing()
    _time_parallel_runs()
    for name, count, word in TREES:
        _time_start_in_tree(name, count, word)


def _time_listing() -> None:
    """`travois sessions` with this many, the first time and again."""
    with server(words) as (url, _), scratch(url) as place:
        place.run()
        log = next(place.home.glob("sessions/*/*/log.jsonl"))
        program = [place.command()[0], "sessions"]
        made = 1
        for count in SESSIONS:
            for _ in range(count - made):
                folder = log.parent.parent / str(uuid4())
                folder.mkdir()
                shutil.copyfile(log, folder / log.name)
            made = count
            floor = _spend([sys.executable, "-c", READ_LOGS, str(place.home / "sessions")], place)
            for label in ("first", "again"):
                spent = _spend(program, place)
                ratio = f"{spent / floor:5.2f} of bare Python, which reads a line of each"
                print(f"list {count:>6} sessions, {label}  {spent:6.2f} s  {ratio}")


def _time_parallel_runs() -> None:
    """Runs of the program side by side, each with some shell turns."""

    def answer(number: int) -> bytes:
        return shell(number) if number <= TURNS else words(number)

    with server(answer, by_connection=True) as (url, _), scratch(url) as place:
        place.run("--permission-mode", "bypass")
        floor = _spend_together([sys.executable, "-c", RUN_TURNS, url, str(TURNS)], place)
        spent = _spend_together(place.command("--permission-mode", "bypass"), place)
        print(
            f"{RUNS} runs of {TURNS} shell turns at once  {spent[0]:6.1f} s  CPU {spent[1]:6.1f} s"
            f"  {spent[0] / floor[0]:5.2f} of bare Python ({floor[0]:.1f} s) without a sandbox"
        )


def _time_start_in_tree(name: str, count: int, word: str) -> None:
    """The start to the first request in a large tree, committed to nothing."""
    with server(words) as (url, seen), scratch(url) as place:
        small = _time_first_request(place, seen.asked)
        for number in range(count):
            folder = place.folder / f"package_{number // EACH:03}" / word
            if number % EACH == 0:
                folder.mkdir(parents=True)
            (folder / f"{word}_{number}.py").touch()
        large = _time_first_request(place, seen.asked)
        begun = perf_counter()
        subprocess.run([sys.executable, "-c", FLOOR, url], check=True)
        floor = seen.asked[-1] - begun
        print(
            f"start in {count} {name}  {large * 1000:4.0f} ms  {large / small:4.2f} of an empty one"
            f"  {large / floor:4.1f} of bare Python"
        )


def _time_first_request(place: Scratch, asked: list[float]) -> float:
    found = list[float]()
    for _ in range(4):
        begun = perf_counter()
        place.run()
        found.append(asked[-1] - begun)
    return min(found)


def _spend(words: list[str], place: Scratch) -> float:
    begun = perf_counter()
    subprocess.run(
        words, cwd=place.folder, env=place.environment(), stdout=subprocess.DEVNULL, check=True
    )
    return perf_counter() - begun


def _spend_together(words: list[str], place: Scratch) -> tuple[float, float]:
    """The seconds and the CPU seconds of a program that is run many times at once."""
    begun, cpu = perf_counter(), 0.0
    children = [
        subprocess.Popen(
            words,
            cwd=place.folder,
            env=place.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        for _ in range(RUNS)
    ]
    for child in children:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = status
        if status:
            raise SystemExit("a run failed")
        cpu += used.ru_utime + used.ru_stime
    return perf_counter() - begun, cpu
