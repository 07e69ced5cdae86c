"""Grep and Glob where there is much: they say what is true, and read what they need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from tests.tools.local import Local, told
from travois.ports.tool import AnyTool
from travois.ports.world import Command, ProcessResult
from travois.process.local_processes import LocalProcesses
from travois.process.spawn import find_program
from travois.tools import globs, search
from travois.tools import search as ripgrep
from travois.tools.search import GLOB, GREP

FOLDERS, EACH = 60, 400
LONG = "a_folder_with_a_long_name_" * 8
FILES, LINES = 12, 100_000
MIB = 1024 * 1024


class Recorded(LocalProcesses):
    """Processes that remember how each program ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[ProcessResult] = []

    async def run(
        self,
        command: Command,
        *,
        timeout: float,
        on_output: Callable[[bytes], None] | None = None,
        reader: Callable[[bytes], bool] | None = None,
    ) -> ProcessResult:
        done = await super().run(command, timeout=timeout, on_output=on_output, reader=reader)
        self.ended.append(done)
        return done


class Large(Local):
    """A world that is made once, and knows what the last call read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.runs: list[ProcessResult] = []

    def run(self, tool: AnyTool, call_id: str = "t1", **args: Any) -> Any:
        async def main() -> Any:
            self.processes = recorded = Recorded()
            try:
                return await self.call(tool, call_id, **args)
            finally:
                self.runs = recorded.ended
                await recorded.aclose()

        return anyio.run(main)

    @property
    def read(self) -> int:
        """How many bytes of ripgrep's output were read in the last call."""
        return sum(done.output.total for done in self.runs)


@pytest.fixture(scope="session")
def tall(tmp_path_factory: pytest.TempPathFactory) -> Large:
    """A tree with more than 8 MB of paths; what is looked for is the oldest in it."""
    world = Large(tmp_path_factory.mktemp("tall"))
    for number in range(FOLDERS):
        folder = f"{world.root}/pkg_{number:02}/{LONG}"
        os.makedirs(folder)
        for file in range(EACH):
            path = f"{folder}/{LONG}{file:03}.{'py' if file else 'ts'}"
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    for name in ("pkg_30/the needle.rs", "pkg_59/deep/er/needle.rs", "notes.md"):
        os.utime(world.write(name, "needle\n"), (1, 1))
    listed = subprocess.run([find_program("rg"), "--files"], cwd=world.root, capture_output=True)
    assert len(listed.stdout) > 9 * MIB
    return world


@pytest.fixture(scope="session")
def broad(tmp_path_factory: pytest.TempPathFactory) -> Large:
    """Over a million lines that match."""
    world = Large(tmp_path_factory.mktemp("broad"))
    lines = "".join(f"before {n}\nhit {n}\n" for n in range(LINES))
    for number in range(FILES):
        world.write(f"part_{number:02}.txt", lines)
    return world


# --- Glob -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("**/needle.rs", ["pkg_59/deep/er/needle.rs"]),
        ("needle.rs", ["pkg_59/deep/er/needle.rs"]),
        ("*.rs", ["pkg_30/the needle.rs", "pkg_59/deep/er/needle.rs"]),
        ("pkg_59/**/*.rs", ["pkg_59/deep/er/needle.rs"]),
        ("pkg_59/deep/er/needle.rs", ["pkg_59/deep/er/needle.rs"]),
        ("pkg_30/the?needle.rs", ["pkg_30/the needle.rs"]),
        ("*/*.{rs,go}", ["pkg_30/the needle.rs"]),
        ("**/er/*", ["pkg_59/deep/er/needle.rs"]),
        ("./*", ["notes.md"]),
        ("*.md", ["notes.md"]),
    ],
)
def test_a_file_that_exists_is_found_in_a_tree_of_any_size(
    tall: Large, pattern: str, found: list[str]
):
    assert tall.say(GLOB, pattern=pattern).split("\n") == found


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        ("**/needle.rs", 1000),
        ("pkg_59/**/*.rs", 1000),
        ("./*.md", 1000),
        ("pkg_07/**", EACH * 600),
        ("{pkg_07,pkg_08}/*/*1.py", EACH * 600),
    ],
)
def test_ripgrep_names_only_what_a_pattern_can_mean(tall: Large, pattern: str, most: int):
    tall.say(GLOB, pattern=pattern)
    assert len(tall.runs) == 1
    assert 0 < tall.read < most


def test_ripgrep_walks_only_where_a_pattern_leads(tall: Large):
    for pattern, pruned in (("pkg_30/*.rs", FOLDERS - 1), ("*.md", 0), ("./*.md", FOLDERS)):
        rules = globs.parse_path_filter(pattern).rules
        argv = [find_program("rg"), "--debug", "--files", "--ignore-file=/dev/stdin", "./"]
        done = subprocess.run(argv, cwd=tall.root, input=rules.encode(), capture_output=True)
        assert len(set(re.findall(rb"ignoring \./(pkg_\d\d):", done.stderr))) == pruned, pattern


def test_too_many_files_are_listed_by_path_and_the_list_says_so(tall: Large):
    every = sorted(path.relative_to(tall.root).as_posix() for path in tall.folder.rglob("*.py"))
    assert len(every) > search.MAX_SORTED
    lines = tall.say(GLOB, pattern="**/*.py").split("\n")
    assert lines[-1] == "(100 of more than 20000, by path; narrow the pattern or path)"
    assert lines[:-1] == every[:100]
    assert [done.cut for done in tall.runs] == [True, True]
    assert tall.runs[1].output.total < 3 * MIB


def test_as_many_as_can_be_sorted_are_listed_newest_first(tall: Large):
    times = {path: path.stat().st_mtime_ns for path in tall.folder.rglob("*.ts")}
    newest = sorted(times, key=lambda path: (-times[path], path))
    assert tall.say(GLOB, pattern="**/*.ts").split("\n") == [
        path.relative_to(tall.root).as_posix() for path in newest
    ]
    lines = tall.say(GLOB, pattern="pkg_0*/**").split("\n")
    assert lines[-1] == "(100 of 4000, newest first; narrow the pattern or path)"


# --- Grep -----------------------------------------------------------------------------------------

CONTENT = {"pattern": "hit", "output_mode": "content"}


def test_a_flood_of_matches_is_read_only_as_far_as_the_page(broad: Large):
    shown = broad.say(GREP, **CONTENT)
    lines = shown.split("\n")
    assert lines[0] == "part_00.txt"
    assert lines[1:-1] == [f"{2 * n + 2}:hit {n}" for n in range(250)]
    assert lines[-1] == (
        "(1-250 of more than 10000; offset=250 shows more; or narrow path, glob or type)"
    )
    assert [done.cut for done in broad.runs] == [True, True]
    assert broad.read < 6 * MIB


def test_every_page_of_a_flood_goes_on_where_the_last_one_ended(broad: Large):
    last = LINES * FILES
    wanted = {"head_limit": 2}
    assert broad.say(GREP, **CONTENT, **wanted, offset=LINES - 1).startswith(
        f"part_00.txt\n{2 * LINES}:hit {LINES - 1}\n\npart_01.txt\n2:hit 0\n"
        f"({LINES}-{LINES + 1} of more than {LINES + 1}; offset={LINES + 1} shows more;"
    )
    assert broad.say(GREP, **CONTENT, **wanted, offset=last - 2) == (
        f"part_{FILES - 1}.txt\n{2 * LINES - 2}:hit {LINES - 2}\n{2 * LINES}:hit {LINES - 1}"
    )
    assert broad.say(GREP, **CONTENT, offset=last) == (
        f"There are only {last} results; offset {last} is past the last."
    )


def test_a_page_with_no_limit_of_lines_ends_at_its_bound_of_bytes(broad: Large):
    lines = broad.say(GREP, **CONTENT, head_limit=0).split("\n")
    shown = len(lines) - 2
    assert lines[-1].startswith(f"(1-{shown} of more than 10000; offset={shown} shows more;")
    assert broad.read < 6 * MIB
    following = broad.say(GREP, **CONTENT, head_limit=1, offset=shown)
    assert following.split("\n")[1] == f"{2 * shown + 2}:hit {shown}"


def test_lines_around_a_match_stay_whole_in_a_flood(broad: Large):
    shown = broad.say(GREP, **CONTENT, **{"-B": 1, "head_limit": 6})
    assert shown.startswith(
        "part_00.txt\n1-before 0\n2:hit 0\n3-before 1\n4:hit 1\n5-before 2\n6:hit 2\n(1-6 of "
    )


def test_counts_and_files_of_a_flood_are_exact(broad: Large):
    names = [f"part_{number:02}.txt" for number in range(FILES)]
    assert broad.say(GREP, pattern="hit").split("\n") == names
    assert broad.say(GREP, pattern="hit", output_mode="count").split("\n") == [
        *(f"{name}:{LINES}" for name in names),
        f"({LINES * FILES} in {FILES} files)",
    ]


def test_a_rule_that_hides_files_holds_in_a_flood(broad: Large, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(broad, "hidden", lambda path: "part_00" in path)
    lines = broad.say(GREP, **CONTENT, head_limit=1).split("\n")
    assert lines[:2] == ["part_01.txt", "2:hit 0"]
    assert lines[-1] == "(files denied by a permission rule are left out)"
    assert not any("part_00" in line for line in lines)


def test_rows_up_to_the_bound_are_all_counted_without_a_second_search(tmp_path: Path):
    world = Large(tmp_path)
    world.write("a.txt", "hit\n" * search.MAX_ROWS)
    exact = f"(1-1 of {search.MAX_ROWS}; offset=1 shows more; or narrow path, glob or type)"
    assert world.say(GREP, **CONTENT, head_limit=1).endswith(exact)
    assert len(world.runs) == 1
    world.write("b.txt", "hit\n")
    more = exact.replace("of ", "of more than ")
    assert world.say(GREP, **CONTENT, head_limit=1).endswith(more)
    assert len(world.runs) == 2


# --- ends -----------------------------------------------------------------------------------------


def pids_of(word: str) -> list[int]:
    """The processes that have this word on their command line."""
    found = list[int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_a_search_that_is_cancelled_leaves_nothing_running(tmp_path: Path):
    world, word = Local(tmp_path), f"needle-{os.getpid()}-{tmp_path.name}"
    os.mkfifo(world.folder / "pipe")  # ripgrep waits for somebody to write into it

    async def main() -> None:
        world.processes = LocalProcesses()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(partial(world.call, GREP, pattern=word, path="pipe"))
                with anyio.fail_after(300):
                    while not await to_thread.run_sync(pids_of, word):  # noqa: ASYNC110
                        await anyio.sleep(0.01)  # another program's start is no event of ours
                group.cancel_scope.cancel()
            assert pids_of(word) == []
        finally:
            await world.processes.aclose()

    anyio.run(main)


def without_privileges(world: Local) -> tuple[str, ...]:
    """Ripgrep as somebody whom permissions hold back; skips where nobody can be had."""
    rg = (find_program("rg"), *ripgrep.RIPGREP[1:])
    if os.geteuid() != 0:
        return rg
    setpriv = shutil.which("setpriv")
    nobody = (setpriv or "", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
    tried = [*nobody, rg[0], "--version"]
    if setpriv is None or subprocess.run(tried, cwd=world.root, capture_output=True).returncode:
        pytest.skip("root reads everything, and ripgrep cannot be run as somebody else here")
    world.folder.chmod(0o755)
    return (*nobody, *rg)


def test_what_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    world = Local(tmp_path)
    for name in ("a.txt", "locked/b.txt", "secrets/c.txt", "closed.txt"):
        world.write(name, "needle\n")
    monkeypatch.setattr(ripgrep, "RIPGREP", without_privileges(world))
    monkeypatch.setattr(world, "hidden", lambda path: "secrets" in path)
    for name in ("locked", "secrets"):
        (world.folder / name).chmod(0)
    try:
        told_of = "(could not read locked: Permission denied)"
        assert world.say(GLOB, pattern="a*") == f"a.txt\n{told_of}"
        assert world.say(GLOB, pattern="b*").endswith(f"{search.IGNORED_FILES_NOTE}.\n{told_of}")
        (world.folder / "closed.txt").chmod(0)
        shown = world.say(GREP, pattern="needle")
        assert shown.startswith("a.txt\n(could not read 2 files or folders, such as ")
        assert "secrets" not in shown
    finally:
        for name in ("locked", "secrets", "closed.txt"):
            (world.folder / name).chmod(0o700)


def test_a_pattern_that_gives_up_on_a_file_is_told(tmp_path: Path):
    world = Local(tmp_path)
    world.write("hard.txt", "a" * 5000 + "\n")
    world.write("soft.txt", "b\n")
    shown = told(world.run(GREP, pattern=r"(?=b)b|(?=a)(a+)+(a+)+c"))
    assert shown.startswith("soft.txt\n(could not read hard.txt: PCRE2: ")
