"""What stands on the screen after a request without a key, and whether it answers the request.

`python -m bench typed [NAME …]`: each of the forty requests of `tests/corpus/simple_requests/typed`
and each of the sixty of `blind` is typed into the program itself (`travois --plain`), in a small
repository of its own. Every permission question is answered with yes.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
from tests.corpus.asked import FOLDER, Call, requests
from tests.corpus.shelf import build_shelf

PATIENCE = 40.0
MAX_QUESTIONS = 4
PROMPT, QUESTION = "\n> ", ": "
REFUSALS = ("I only understand one simple step", "That is more than one simple step")
STUB_PROGRAMS = (
    *("npm", "npx", "node", "yarn", "pnpm", "cargo", "go", "make", "docker", "kubectl", "mvn"),
    *(
        "rake",
        "bundle",
        "tox",
        "ruff",
        "mypy",
        "pytest",
        "poetry",
        "uv",
        "php",
        "ruby",
        "terraform",
    ),
)
OWN_OUTPUT = {"df -h": "Filesystem", "pwd": "/work", "ls": "README.md", "ls -la": "README.md"}
"""What programs show that are not stubs."""
GIT_OUTPUT = {
    "GitStatus": ("loans.py", "scratch.txt"),
    "GitDiff": ("DUE_DAYS",),
    "GitLog": ("Keep loans in their own file",),
}
Verdict = Literal["good", "wrong", "none"]


class Typed(msgspec.Struct, frozen=True):
    """A request, what its answer shows, and what it leaves on disk."""

    text: str
    shows: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()
    files: dict[str, str] = {}
    gone: tuple[str, ...] = ()


def main() -> None:
    """Print how many answers are good, and which are not."""
    words = [word for word in sys.argv[2:] if not word.startswith("-")]
    for name, found in (("typed", _run_typed(words)), ("blind", _run_blind(words))):
        if words and name not in words:
            continue
        told = list(found)  # runs them
        count = {
            one: sum(verdict == one for _, verdict, _ in told) for one in ("good", "wrong", "none")
        }
        print(
            f"{name}: {count['good']} of {len(told)} good, {count['wrong']} wrong, {count['none']} none"
        )
        for text, verdict, shown in told:
            if verdict != "good":
                print(f"  {verdict:5} {text!r}")
                if "-v" in sys.argv:
                    print("        " + "\n        ".join(shown.strip().splitlines()[:12]))


def _run_typed(words: list[str]) -> Iterator[tuple[str, Verdict, str]]:
    for line in (FOLDER / "typed.jsonl").read_text().splitlines():
        one = msgspec.json.decode(line, type=Typed)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place, "shelf")
            folder.mkdir()
            build_shelf(folder)
            shown = ask_program(one.text, folder, home=Path(place, "home"))
            yield one.text, judge_typed(one, shown, folder), shown


def judge_typed(one: Typed, shown: str, folder: Path) -> Verdict:
    """Judge what stands on the screen and in the files."""
    kept = all(
        (folder / name).is_file() and text in (folder / name).read_text()
        for name, text in one.files.items()
    )
    gone = not any((folder / name).exists() for name in one.gone)
    seen = all(word in shown for word in one.shows)
    clean = not any(word in shown for word in one.hides)
    if kept and gone and seen and clean:
        return "good"
    return "none" if any(words in shown for words in REFUSALS) else "wrong"


def _run_blind(words: list[str]) -> Iterator[tuple[str, Verdict, str]]:
    for one in requests("blind"):
        if not one.calls:
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place, "work")
            folder.mkdir()
            marks = prepare_workspace(one.calls, folder)
            shown = ask_program(
                one.text, folder, home=Path(place, "home"), stubs=Path(place, "bin")
            )
            yield one.text, _judge_blind(one.calls, shown, folder, marks=marks), shown


def prepare_workspace(calls: tuple[Call, ...], folder: Path) -> dict[str, tuple[str, ...]]:
    """Make a repository in which each of these calls finds something.

    Returns the words of which a screen shows all, for the kinds of calls that show something.
    """
    build_shelf(folder)
    marks: dict[str, tuple[str, ...]] = {}
    for call in {call.tool: call for call in reversed(calls)}.values():
        args = call.input
        path = str(args.get("file_path") or args.get("path") or "")
        if call.tool == "Read" and path[:1] != "/" and "." in path.rpartition("/")[2]:
            _write(folder / path, "".join(f"row {n} of it\n" for n in range(1, 201)))
            marks["Read"] = (f"row {args.get('offset', 1)} of it",)
        elif call.tool in ("Edit", "Write"):
            marks[call.tool] = ()
            if call.tool == "Edit":
                _write(folder / path, f"before\n{args['old_string']}\nafter\n")
        elif call.tool == "Grep":
            word = re.sub(r"\\[bs]\*?|\\(?=\W)", "", str(args["pattern"]))
            name = path if "." in path.rpartition("/")[2] else f"{path or '.'}/found{_ending(args)}"
            _write(folder / name, f"here is {word} indeed\n")
            marks.setdefault("Grep", (word, Path(name).name))
        elif call.tool == "Glob":
            _glob_file(str(args["pattern"]), folder / path)
        elif call.tool == "Symbols":
            _write(folder / "uses.py", f"def caller():\n    {args['name']}()\n")
            marks.setdefault("Symbols", (str(args["name"]), "uses.py"))
        elif call.tool == "Bash" and str(args["command"]).startswith("./"):
            _write_stub(folder / str(args["command"]).split()[0])
    return marks


def _ending(args: dict[str, object]) -> str:
    glob = str(args.get("glob") or args.get("type") or "*.py")
    return "." + glob.rpartition(".")[2].strip("{}").partition(",")[0]


def _glob_file(pattern: str, folder: Path) -> None:
    name = pattern.removeprefix("**/").replace("[wW]", "w").replace("**/", "").replace("*", "x")
    _write(folder / (name if "." in name else f"{name}.txt"), "found\n")


def _write(path: Path, text: str) -> None:
    if path.is_dir():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _judge_blind(
    calls: tuple[Call, ...], shown: str, folder: Path, *, marks: dict[str, tuple[str, ...]]
) -> Verdict:
    """Judge by the first call that is right: what it would show or change."""
    refused = any(words in shown for words in REFUSALS)
    good = any(_shows_call(call, shown, folder, marks) for call in calls)
    return "good" if good and not refused else "none" if refused else "wrong"


def _shows_call(call: Call, shown: str, folder: Path, marks: dict[str, tuple[str, ...]]) -> bool:
    args = {key: str(value) for key, value in call.input.items()}
    match call.tool:
        case "Write":
            path = folder / args["file_path"]
            return path.is_file() and path.read_text().strip() == args["content"].strip()
        case "Edit":
            path = folder / args["file_path"]
            return path.is_file() and f"before\n{args['new_string']}\nafter\n" == path.read_text()
        case "Read" if args["file_path"].startswith("/"):
            return "not exist" in shown or "no such file" in shown.casefold()
        case "Read" | "Grep" | "Symbols" if call.tool in marks:
            return all(word in shown for word in marks[call.tool])
        case "Glob":
            return (
                "found" in shown or Path(args["pattern"].replace("*", "x")).name.strip("x") in shown
            )
        case "Bash":
            return _shows_command(args["command"], shown)
        case "Remember":
            return args["text"].strip(".").casefold() in shown.casefold()
        case _:
            words = GIT_OUTPUT.get(call.tool, ())
            return bool(args) or all(word in shown for word in words)


def _shows_command(command: str, shown: str) -> bool:
    ran = command.rpartition("/")[2] if command.startswith("./") else command
    return f"ran {ran}" in shown or OWN_OUTPUT.get(command, "\0") in shown


def ask_program(text: str, folder: Path, *, home: Path, stubs: Path | None = None) -> str:
    """Type a request into the program and return what it showed."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm"}
    env["PYTHONPATH"] = str(Path(__file__).parents[1] / "src")
    if stubs is not None:
        _write_stubs(stubs)
        env["PATH"] = f"{stubs}:{env['PATH']}"
    home.mkdir()
    options = json.dumps({"local": {"fallback": True}})
    ours, theirs = pty.openpty()
    quiet = termios.tcgetattr(theirs)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, quiet)
    child = subprocess.Popen(
        (sys.executable, "-m", "travois", "--plain", "--settings", options),
        cwd=folder,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        _read_until_asked(ours)
        return _converse(ours, text)
    finally:
        child.kill()
        child.wait()
        os.close(ours)


def _converse(terminal: int, text: str) -> str:
    """Type the request, and yes to every question that follows."""
    shown, typed = "", text
    for _ in range(MAX_QUESTIONS):
        os.write(terminal, f"{typed}\n".encode())
        part = _read_until_asked(terminal)
        shown += part
        if not part.endswith(QUESTION):
            break
        typed = "y"
    return shown


def _read_until_asked(terminal: int) -> str:
    """Read until the program waits for input."""
    text = ""
    while select.select([terminal], [], [], PATIENCE)[0]:
        try:
            text += os.read(terminal, 1 << 16).decode(errors="replace").replace("\r\n", "\n")
        except OSError:
            break
        if text.endswith((PROMPT, QUESTION)):
            break
    return text


def _write_stubs(folder: Path) -> None:
    """Programs that only say that they ran."""
    for name in STUB_PROGRAMS:
        _write_stub(folder / name)


def _write_stub(path: Path) -> None:
    _write(path, f'#!/bin/sh\necho "ran {path.name} $*"\n')
    path.chmod(0o755)
