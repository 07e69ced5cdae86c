"""Grep and Glob, with the ripgrep that was installed with us."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from tests.tools.local import Local
from travois.permissions.access import Access
from travois.ports.tool import AnyTool, ToolError
from travois.process.spawn import find_program
from travois.tools import globs, search
from travois.tools import search as ripgrep
from travois.tools.search import GLOB, GREP


@pytest.fixture
def world(tmp_path: Path) -> Local:
    made = Local(tmp_path)
    made.write("src/app.py", "import os\n\ndef main():\n    run()\n")
    made.write("src/deep/er/tool.py", "def tool():\n    return main\n")
    made.write("README.md", "# main\n")
    return made


def age(world: Local, *names: str) -> None:
    """Make these files old, the first the oldest."""
    for second, name in enumerate(names):
        os.utime(world.folder / name, (1_000 + second, 1_000 + second))


# --- the program ----------------------------------------------------------------------------------


def test_ripgrep_stands_beside_the_interpreter():
    found = find_program("rg")
    assert subprocess.run([found, "--version"], capture_output=True).stdout.startswith(b"ripgrep")
    assert find_program(found) == found


def test_relative_folders_on_the_path_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    trap = tmp_path / "trap"
    trap.write_text("#!/bin/sh\n")
    trap.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".:{''}:{tmp_path.name}")
    assert find_program("trap") == "trap"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program("trap") == str(trap)


# --- Grep -----------------------------------------------------------------------------------------


def test_grep_names_the_matching_files_by_path(world: Local):
    assert world.say(GREP, pattern="main") == "README.md\nsrc/app.py\nsrc/deep/er/tool.py"


def test_grep_shows_lines_grouped_by_file(world: Local):
    assert world.say(GREP, pattern="main", output_mode="content") == (
        "README.md\n1:# main\n\nsrc/app.py\n3:def main():\n\nsrc/deep/er/tool.py\n2:    return main"
    )
    assert world.say(GREP, pattern="RUN", output_mode="content", **{"-i": True, "-n": False}) == (
        "src/app.py\n    run()"
    )


def test_grep_shows_lines_around_a_match(world: Local):
    content = {"pattern": "def main", "output_mode": "content"}
    assert world.say(GREP, **content, **{"-C": 1}) == "src/app.py\n2-\n3:def main():\n4-    run()"
    assert world.say(GREP, **content, **{"-B": 1}) == "src/app.py\n2-\n3:def main():"
    assert world.say(GREP, **content, **{"-A": 1}) == "src/app.py\n3:def main():\n4-    run()"


def test_grep_counts_matching_lines(world: Local):
    world.write("src/app.py", "main\nmain main\n")
    assert world.say(GREP, pattern="main", output_mode="count") == (
        "README.md:1\nsrc/app.py:2\nsrc/deep/er/tool.py:1\n(4 in 3 files)"
    )


def test_grep_looks_in_one_folder_or_file_only(world: Local):
    assert world.say(GREP, pattern="main", path="src/deep") == "src/deep/er/tool.py"
    assert world.say(GREP, pattern="main", path=f"{world.root}/README.md") == "README.md"
    world.cwd = f"{world.root}/src"
    assert world.say(GREP, pattern="main") == "app.py\ndeep/er/tool.py"
    assert world.say(GREP, pattern="main", path="..") == (
        f"{world.root}/README.md\n{world.root}/src/app.py\n{world.root}/src/deep/er/tool.py"
    )


@pytest.mark.parametrize(
    ("narrow", "found"),
    [
        ({"type": "py"}, ["src/app.py", "src/deep/er/tool.py"]),
        ({"glob": "*.md"}, ["README.md"]),
        ({"glob": "*.{md,txt}"}, ["README.md"]),
        ({"glob": "*.md, app.*"}, ["README.md", "src/app.py"]),
        ({"glob": "src/*.py"}, ["src/app.py"]),
        ({"glob": "src/**/*.py"}, ["src/app.py", "src/deep/er/tool.py"]),
        ({"glob": "src/**"}, ["src/app.py", "src/deep/er/tool.py"]),
        ({"glob": "!*.py"}, ["README.md"]),
        ({"glob": "*.py !**/er/*"}, ["src/app.py"]),
        ({"glob": "**/er/*", "type": "py"}, ["src/deep/er/tool.py"]),
        ({"glob": "er/*.py", "path": "src/deep"}, ["src/deep/er/tool.py"]),
    ],
)
def test_grep_opens_only_files_of_a_kind(world: Local, narrow: dict[str, str], found: list[str]):
    assert world.say(GREP, pattern="main", **narrow).split("\n") == found


def test_grep_sees_hidden_files_but_neither_ignored_ones_nor_git(world: Local):
    world.write(".gitignore", "*.log\nbuild/\n/secret.py\n")
    for name in (".hidden/x.py", ".env", "a.log", "build/y.py", "secret.py", ".git/config"):
        world.write(name, "needle\n")
    assert world.say(GREP, pattern="needle") == ".env\n.hidden/x.py"
    assert world.say(GREP, pattern="needle", glob="*.py") == ".hidden/x.py"
    assert world.say(GREP, pattern="needle", glob="*.log").startswith("No match")
    assert world.say(GREP, pattern="needle", path="a.log") == "a.log"


def test_grep_crosses_lines_when_the_pattern_does(world: Local):
    across = {"output_mode": "content", "path": "src/app.py"}
    assert world.say(GREP, pattern=r"main\(\):\n +run", **across) == (
        "src/app.py\n3:def main():\n4:    run()"
    )
    assert world.say(GREP, pattern="import.*run", multiline=True, **across) == (
        "src/app.py\n1:import os\n2:\n3:def main():\n4:    run()"
    )
    assert world.say(GREP, pattern="import.*run", **across).startswith("No match")


def test_grep_understands_look_around(world: Local):
    assert world.say(GREP, pattern=r"main(?=\()") == "src/app.py"


def test_grep_matches_line_ends_of_windows_files(world: Local):
    world.write("dos.txt", "one\r\nneedle\r\n")
    assert world.say(GREP, pattern="needle$", output_mode="content") == "dos.txt\n2:needle"


def test_no_match_is_said_plainly(world: Local):
    assert world.say(GREP, pattern="nowhere") == "No match for 'nowhere'."
    assert world.say(GREP, pattern="nowhere", path="src") == "No match for 'nowhere' in src."


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"pattern": "a("}, r"ripgrep: error: unclosed group.*"),
        ({"pattern": "a", "type": "nonsense"}, "ripgrep: unrecognized file type: nonsense"),
        ({"pattern": "a", "path": "gone"}, ".*/gone does not exist; .*"),
        ({"pattern": "a", "glob": "[z-a]*/x"}, "The glob .* is malformed: .*"),
        ({"pattern": "a\0b"}, "The arguments contain a NUL character; remove it."),
    ],
)
def test_what_grep_cannot_do_is_said_in_one_line(world: Local, args: dict[str, str], words: str):
    with pytest.raises(ToolError) as refused:
        world.run(GREP, **args)
    assert re.fullmatch(words, str(refused.value))


def test_a_pattern_or_path_that_looks_like_an_option_is_none(world: Local):
    world.write("-x/--files", "--version\n")
    assert world.say(GREP, pattern="--version") == "-x/--files"
    assert world.say(GREP, pattern="--version", path="-x") == "-x/--files"


def test_odd_names_are_found_and_shown_on_one_line(world: Local):
    for name in ("sp ace.txt", "line\nbreak.txt", "ünï.txt", "co:1:lon.txt"):
        world.write(name, "needle\n")
    names = ["co:1:lon.txt", "line\\nbreak.txt", "sp ace.txt", "ünï.txt"]
    assert world.say(GREP, pattern="needle").split("\n") == names
    shown = world.say(GREP, pattern="needle", output_mode="content")
    assert shown == "\n\n".join(f"{name}\n1:needle" for name in names)


def test_binary_files_are_skipped(world: Local):
    world.write("data.bin", b"needle\0needle\n")
    assert world.say(GREP, pattern="needle").startswith("No match")
    named = world.say(GREP, pattern="needle", path="data.bin", output_mode="content")
    assert named == 'data.bin\nbinary file matches (found "\\0" byte around offset 6)'


def test_a_long_line_is_cut_with_a_mark(world: Local):
    world.write("min.js", "x" * 100_000 + "needle" + "y" * 100_000)
    shown = world.say(GREP, pattern="x+needle", output_mode="content")
    assert shown == f"min.js\n1:{'x' * 500} [... omitted end of long line]"


def test_many_matches_are_paged(world: Local):
    world.write("many.txt", "".join(f"needle {n}\n" for n in range(600)))
    content = {"pattern": "needle", "output_mode": "content"}
    first = world.say(GREP, **content).split("\n")
    assert first[:2] == ["many.txt", "1:needle 0"]
    assert first[-2:] == [
        "250:needle 249",
        "(1-250 of 600; offset=250 shows more; or narrow path, glob or type)",
    ]
    assert world.say(GREP, **content, offset=598) == "many.txt\n599:needle 598\n600:needle 599"
    assert world.say(GREP, **content, head_limit=1, offset=2) == (
        "many.txt\n3:needle 2\n(3-3 of 600; offset=3 shows more; or narrow path, glob or type)"
    )
    assert world.say(GREP, **content, offset=700) == (
        "There are only 600 results; offset 700 is past the last."
    )


def test_no_answer_is_larger_than_its_bound(world: Local):
    world.write("wide.txt", f"needle {'w' * 400}\n" * 1000)
    shown = world.say(GREP, pattern="needle", output_mode="content", head_limit=0)
    assert 0.9 * search.MAX_GREP_BYTES < len(shown) < search.MAX_GREP_BYTES + 200
    assert "of 1000; offset=" in shown.rpartition("\n")[2]


def test_what_a_flood_of_bytes_leaves_out_is_said(world: Local, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ripgrep, "MAX_UNORDERED_BYTES", 1000)
    world.write("many.txt", "needle\n" * 5000)
    shown = world.say(GREP, pattern="needle", output_mode="content", head_limit=3)
    assert re.fullmatch(
        r"many.txt\n1:needle\n2:needle\n3:needle\n"
        r"\(1-3 of more than \d{2,3}; offset=3 shows more; or narrow path, glob or type\)",
        shown,
    )


LIMIT = 2.0
"""The seconds that a search has in these tests: enough for a shell to begin, on any machine."""
LATE = "(stopped after 2 s, results are incomplete; narrow path or pattern)"


@pytest.mark.parametrize(
    ("tool", "args", "words"),
    [
        (GREP, {"pattern": "x"}, "a.txt\nb.txt"),
        (
            GREP,
            {"pattern": "x", "head_limit": 1},
            "a.txt\n(1-1 of at least 2; offset=1 shows more; or narrow path, glob or type)",
        ),
        (
            GREP,
            {"pattern": "x", "offset": 5},
            "Only 2 results were found in time; offset 5 is past the last.",
        ),
        (GREP, {"pattern": "x", "glob": "*.py"}, "No match so far for 'x'."),
        (GLOB, {"pattern": "*.txt"}, "a.txt\nb.txt"),
        (GLOB, {"pattern": "*.py"}, f"No file so far matches '*.py' {search.IGNORED_FILES_NOTE}."),
    ],
)
def test_a_search_that_takes_too_long_shows_what_it_found_and_says_so(
    world: Local,
    monkeypatch: pytest.MonkeyPatch,
    tool: AnyTool,
    args: dict[str, Any],
    words: str,
):
    monkeypatch.setattr(ripgrep, "SEARCH_TIMEOUT_SECONDS", LIMIT)
    monkeypatch.setattr(ripgrep, "RIPGREP", ("sh", "-c", "printf 'b.txt\\0a.txt\\0c'; sleep 60"))
    assert world.say(tool, **args) == f"{words}\n{LATE}"


def test_a_count_that_takes_too_long_is_told_as_a_lower_bound(
    world: Local, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ripgrep, "SEARCH_TIMEOUT_SECONDS", LIMIT)
    monkeypatch.setattr(ripgrep, "RIPGREP", ("sh", "-c", "printf 'b\\0002\\na\\0003\\n'; sleep 60"))
    assert world.say(GREP, pattern="x", output_mode="count") == (
        f"a:3\nb:2\n(at least 5 in 2 files)\n{LATE}"
    )


def test_grep_takes_the_argument_names_that_models_know():
    args = msgspec.convert({"pattern": "x", "-i": True, "-C": 2, "-n": False}, search.GrepArgs)
    assert (args.ignore_case, args.around, args.numbers) == (True, 2, False)


def test_searching_reads_the_folder_that_it_searches(world: Local):
    assert world.access(GREP, pattern="x") == (Access("read", world.root),)
    assert world.access(GREP, pattern="x", path="/etc") == (Access("read", "/etc"),)
    assert world.access(GLOB, pattern="*", path="..") == (Access("read", str(world.folder.parent)),)
    assert world.access(GLOB, pattern="/etc/**/*.conf") == (Access("read", "/etc"),)


# --- Glob -----------------------------------------------------------------------------------------


def test_glob_lists_the_newest_first(world: Local):
    age(world, "README.md", "src/deep/er/tool.py", "src/app.py")
    assert world.say(GLOB, pattern="**/*") == "src/app.py\nsrc/deep/er/tool.py\nREADME.md"
    assert world.say(GLOB, pattern="*.py") == "src/app.py\nsrc/deep/er/tool.py"
    assert world.say(GLOB, pattern="src/*") == "src/app.py"
    assert world.say(GLOB, pattern="{README,CHANGES}.md") == "README.md"
    assert world.say(GLOB, pattern="**/er/*.py", path="src") == "src/deep/er/tool.py"
    assert world.say(GLOB, pattern=f"{world.root}/src/d*/**/*.py") == "src/deep/er/tool.py"


def test_glob_respects_ignore_files_even_for_what_the_pattern_names(world: Local):
    world.write(".gitignore", "*.log\n")
    world.write("a.log", "")
    world.write(".hidden/b.txt", "")
    world.write(".git/c.txt", "")
    assert (
        world.say(GLOB, pattern="*.log") == f"No file matches '*.log' {search.IGNORED_FILES_NOTE}."
    )
    assert world.say(GLOB, pattern="*.txt") == ".hidden/b.txt"


def test_glob_shows_a_hundred_and_counts_the_rest(world: Local):
    for number in range(130):
        world.write(f"many/{number}.txt", "")
    lines = world.say(GLOB, pattern="*.txt").split("\n")
    assert len(lines) == 101
    assert lines[-1] == "(100 of 130, newest first; narrow the pattern or path)"


def test_glob_reaches_what_its_pattern_names_by_way_of_dots_and_home(
    world: Local, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", world.root)
    world.cwd = f"{world.root}/src/deep"
    app, readme = f"{world.root}/src/app.py", f"{world.root}/README.md"
    assert world.say(GLOB, pattern="../*.py") == app
    assert world.say(GLOB, pattern="../../*.md") == readme
    assert world.say(GLOB, pattern="../../README.md") == readme
    assert world.say(GLOB, pattern="*.md", path="../..") == readme
    assert world.say(GLOB, pattern="~/*.md") == readme
    assert world.say(GLOB, pattern=f"{world.root}/src/app.py") == app
    assert world.say(GLOB, pattern="er/./tool.py") == "er/tool.py"
    assert world.access(GLOB, pattern="../*.py") == (Access("read", f"{world.root}/src"),)
    assert world.access(GLOB, pattern="~/*.md") == (Access("read", world.root),)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("*/../x.py", "has .. after a wildcard"),
        ("{src,..}/x.py", "has .. after a wildcard"),
        ("{/etc/*,/usr/*}", "contains several absolute patterns"),
    ],
)
def test_a_pattern_that_no_path_could_match_is_refused(world: Local, pattern: str, words: str):
    with pytest.raises(ToolError, match=words):
        world.run(GLOB, pattern=pattern)


def test_commas_and_blanks_part_patterns_but_may_also_be_in_a_name(world: Local):
    for name in ("my file.txt", "a,b.txt", "my", "x/{a}.c"):
        world.write(name, "needle\n")
    age(world, "my", "my file.txt")
    assert world.say(GLOB, pattern="my file.txt") == "my file.txt\nmy"
    assert world.say(GLOB, pattern="a,b.txt") == "a,b.txt"
    assert world.say(GLOB, pattern=r"\{a}.c") == "x/{a}.c"
    assert world.say(GLOB, pattern="{R{X,EADME},{b,c}}.md") == "README.md"
    assert world.say(GREP, pattern="needle", glob="my file.txt") == "my\nmy file.txt"


def test_glob_says_what_may_be_wrong_with_a_pattern_that_matches_nothing(world: Local):
    (world.folder / "link").symlink_to("src")
    nothing = f"No file matches {{!r}} {search.IGNORED_FILES_NOTE}."
    folder = " src is a folder: src/** lists its files."
    through = " link is a symbolic link, and links are not followed: set path to it."
    assert world.say(GLOB, pattern="src") == nothing.format("src") + folder
    assert world.say(GLOB, pattern="src/") == nothing.format("src/") + folder
    assert world.say(GLOB, pattern="link/*.py") == nothing.format("link/*.py") + through
    assert world.say(GLOB, pattern="src/*.c") == nothing.format("src/*.c")


def test_a_folder_that_is_ignored_is_listed_only_when_it_is_the_path(world: Local):
    world.write(".gitignore", "build/\n")
    world.write("build/out/a.js", "needle\n")
    assert world.say(GLOB, pattern="build/**/*.js").startswith("No file matches")
    assert world.say(GLOB, pattern="build/out/a.js").startswith("No file matches")
    assert world.say(GLOB, pattern="**/*.js", path="build") == "build/out/a.js"
    assert world.say(GREP, pattern="needle", glob="build/**").startswith("No match")
    assert world.say(GREP, pattern="needle", glob="*.js", path="build") == "build/out/a.js"


def test_names_that_are_no_text_are_found_listed_and_searched(world: Local):
    name = os.fsencode(world.root) + b"/caf\xe9"
    os.mkdir(name)
    for file in (b"/\xff.txt", "/ü.txt".encode()):
        with open(name + file, "wb") as opened:
            opened.write(b"needle\n")
    os.utime(name + b"/\xff.txt", (1, 1))
    both = ["caf\\xe9/ü.txt", "caf\\xe9/\\xff.txt"]
    for pattern in ("*.txt", "caf?/*", "**/?.txt", "c*/?.txt"):
        assert world.say(GLOB, pattern=pattern).split("\n") == both, pattern
    assert world.say(GREP, pattern="needle", glob="?.txt").split("\n") == both
    content = world.say(GREP, pattern="needle", output_mode="content")
    assert content == f"{both[0]}\n1:needle\n\n{both[1]}\n1:needle"


def test_results_come_in_the_order_in_which_folders_are_walked(world: Local):
    for name in ("a/z.txt", "a-b/y.txt", "a.txt", "B.txt", "a/b/x.txt"):
        world.write(name, "needle\n")
    ordered = ["B.txt", "a/b/x.txt", "a/z.txt", "a-b/y.txt", "a.txt"]
    assert world.say(GREP, pattern="needle").split("\n") == ordered


def test_grep_in_one_file_takes_the_file_by_its_path_or_its_name(world: Local, tmp_path: Path):
    outside = tmp_path / "outside.txt"
    outside.write_text("needle main\n")
    for glob in ("*.txt", "outside.*", "**/*.txt"):
        assert world.say(GREP, pattern="needle", path=str(outside), glob=glob) == str(outside)
    assert world.say(GREP, pattern="main", path="src/app.py", glob="src/*.py") == "src/app.py"
    assert world.say(GREP, pattern="main", path="src/app.py", glob="*.md").startswith("No match")


def test_glob_in_a_place_that_is_no_folder_is_refused(world: Local):
    with pytest.raises(ToolError, match="is not a folder"):
        world.run(GLOB, pattern="*", path="README.md")
    with pytest.raises(ToolError, match="does not exist"):
        world.run(GLOB, pattern="*", path="gone")


@pytest.mark.parametrize(
    ("pattern", "hits", "misses"),
    [
        ("*.py", ["a.py", "x/y/a.py", ".py"], ["a.pyc", "a.py/b"]),
        ("/a.py", ["a.py"], ["a.pyc", "x/a.py"]),
        ("src/*", ["src/a"], ["src/x/a", "x/src/a"]),
        ("**/test_*.py", ["test_a.py", "x/test_a.py"], ["x/atest_a.py"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/xb", "ab"]),
        ("a/**", ["a/b", "a/x/y"], ["a", "b/a/c"]),
        ("?.c", ["a.c"], ["ab.c", ".c"]),
        ("[a-c].c", ["b.c"], ["d.c", "-.c"]),
        ("[!a-c].c", ["d.c"], ["b.c", "/.c"]),
        ("[^a].c", ["b.c"], ["a.c"]),
        ("[]x].c", ["].c", "x.c"], ["y.c"]),
        ("{a,b/c}/*.{py,pyi}", ["a/x.py", "b/c/x.pyi"], ["b/x.py"]),
        ("{a{1,2},b}.c", ["a1.c", "a2.c", "b.c"], ["a.c"]),
        ("a+(b).c", ["a+(b).c"], ["ab.c"]),
        (r"\*.c", ["*.c"], ["a.c"]),
        ("**/**/**/**/**/x", ["x", "a/b/x"], ["a/b/y"]),
    ],
)
def test_patterns_mean_what_ripgrep_means_by_them(
    tmp_path: Path, pattern: str, hits: list[str], misses: list[str]
):
    made = globs.compile_glob(pattern)
    assert [path for path in (*hits, *misses) if made.fullmatch(path)] == hits
    judged = [path for path in (*hits, *misses) if ripgrep_finds(pattern, path, tmp_path)]
    assert judged == hits


def ripgrep_finds(pattern: str, path: str, tmp_path: Path) -> bool:
    """Whether `rg --glob` finds this file in a folder that holds nothing else."""
    with TemporaryDirectory(dir=tmp_path) as folder:
        file = Path(folder, path.lstrip("/"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        words = [find_program("rg"), "--no-config", "--files", "--hidden", f"--glob={pattern}"]
        return bool(subprocess.run(words, cwd=folder, capture_output=True, check=False).stdout)


def test_a_dot_in_front_of_a_pattern_means_here():
    made = globs.compile_glob("./a*")
    assert [path for path in ("ab", "x/ab") if made.fullmatch(path)] == ["ab"]


def test_a_brace_that_is_never_closed_stands_for_itself():
    made = globs.compile_glob("{a.c")
    assert [path for path in ("{a.c", "a.c") if made.fullmatch(path)] == ["{a.c"]


class Ruled(Local):
    """A world in which a rule keeps some files from being read."""

    def hidden(self, path: str) -> bool:
        return "/secrets/" in path or path.endswith(".env")


@pytest.fixture
def ruled(tmp_path: Path) -> Ruled:
    world = Ruled(tmp_path)
    for name in ("a.txt", "secrets/key.txt", "deep/.env"):
        world.write(name, "needle\n")
    return world


REMARK = "(files denied by a permission rule are left out)"


def test_a_search_shows_nothing_of_files_that_a_rule_hides(ruled: Ruled):
    content = ruled.say(GREP, pattern="needle", output_mode="content")
    assert content == f"a.txt\n1:needle\n{REMARK}"
    assert ruled.say(GREP, pattern="needle") == f"a.txt\n{REMARK}"
    counted = ruled.say(GREP, pattern="needle", output_mode="count")
    assert counted == f"a.txt:1\n(1 in 1 files)\n{REMARK}"
    nothing = ruled.say(GREP, pattern="needle", path="secrets")
    assert nothing == f"No match for 'needle' in secrets.\n{REMARK}"


def test_a_listing_leaves_out_what_a_rule_hides(ruled: Ruled):
    assert ruled.say(GLOB, pattern="**/*") == f"a.txt\n{REMARK}"
    assert (
        ruled.say(GLOB, pattern="*.env")
        == f"No file matches '*.env' {search.IGNORED_FILES_NOTE}.\n{REMARK}"
    )


def test_a_binary_file_that_a_rule_hides_is_not_even_named(ruled: Ruled):
    ruled.write("secrets/data.bin", b"needle\0needle\n")
    shown = ruled.say(GREP, pattern="needle", path="secrets/data.bin", output_mode="content")
    assert shown == f"No match for 'needle' in secrets/data.bin.\n{REMARK}"


def test_links_out_of_the_folder_are_not_followed(world: Local, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("needle-of-others\n")
    (world.folder / "link").symlink_to(outside)
    (world.folder / "file.txt").symlink_to(outside / "secret.txt")
    assert world.say(GREP, pattern="needle-of-others").startswith("No match")
    assert "secret" not in world.say(GLOB, pattern="**/*")


def test_a_link_that_is_named_is_searched_where_it_led(world: Local):
    world.write("real/one.txt", "stitch\n")
    (world.folder / "link").symlink_to("real")
    assert world.say(GREP, pattern="stitch", path="link") == "real/one.txt"
    assert world.say(GLOB, pattern="*.txt", path="link") == "real/one.txt"
