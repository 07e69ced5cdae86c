"""Recorded calls of file and search tools, executed in a made-up repository.

What a call met is made up from what it brought: the lines that were read or found stand where they
stood, and what was replaced is there to be replaced. Then the real engine runs the call as it was
recorded, names and arguments included, and the effect must be the recorded one.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import anyio
import msgspec

from bench.calls import Recorded, recorded_calls
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.content import extract_text
from travois.core.facts import Result
from travois.ports.world import ChoiceRequest, PermissionQuestion, PersonAnswer
from travois.testing import Scripted, call, say
from travois.tools.apply_patch import apply_chunks, parse_patch

SAMPLE = 50
TOOLS = ("Read", "Write", "Edit", "MultiEdit", "Grep", "Glob", "apply_patch", "exec_command")
NUMBERED = re.compile(r"^\s*(\d+)(?:→|\t)(.*)$")
FOUND = re.compile(r"^(?:(?P<path>[^:\n]+?):)?(?P<line>\d+):(?P<text>.*)$")
SLICE = re.compile(r"sed -n '(\d+),(\d+)p' ([\w./-]+)")
LONGEST = 400
"""Longer lines are cut by some agents."""
Check = Callable[[str], bool]


class Scene(msgspec.Struct, frozen=True):
    """A call in a made-up repository, and whether its result shows the recorded effect."""

    tool: str
    args: dict[str, Any]
    check: Check
    before: tuple[str, ...] = ()
    """Files that are read first, as the recorded agent had."""


def print_played(folder: Path) -> None:
    """Print for each tool how many sampled calls had their recorded effect."""
    for tool, (played, right) in play(folder).items():
        told = (
            f"{right:4} of {played:4} executed calls had the recorded effect" if played else "none"
        )
        print(f"{tool:14} {told}")


def play(folder: Path, *, sample: int = SAMPLE, seed: int = 16) -> dict[str, tuple[int, int]]:
    """How many calls of each tool were executed, and how many had the recorded effect."""
    found = {tool: list[Recorded]() for tool in TOOLS}
    for one in recorded_calls(folder):
        if one.name in found and not one.error:
            found[one.name].append(one)
    return {tool: _played(calls, sample, Random(seed)) for tool, calls in found.items()}


def _played(calls: list[Recorded], sample: int, chance: Random) -> tuple[int, int]:
    chance.shuffle(calls)
    with tempfile.TemporaryDirectory() as place:
        root = Path(os.path.realpath(place))
        scenes = list[Scene]()
        for number, one in enumerate(calls):
            if len(scenes) == sample:
                break
            made = MAKERS[one.name](one, root / "work" / str(number))
            scenes += [made] if made is not None else []
        results = anyio.run(_run, scenes, root) if scenes else []
        right = sum(scene.check(text) for scene, text in zip(scenes, results, strict=True))
    return len(scenes), right


class Agreeing:
    """A person who says yes: mode bypass leaves the settings of other agents to one."""

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        return PersonAnswer(allow=True)

    async def choose(self, inquiry: ChoiceRequest) -> tuple[str, ...] | None:
        return None


async def _run(scenes: list[Scene], root: Path) -> list[str]:
    """What each call brings, in one session of the real engine."""
    os.environ["TRAVOIS_HOME"] = str(root / "home")
    lines = [call(s.tool, **s.args) for s in scenes]
    first = [call("Read", file_path=path) for s in scenes for path in s.before]
    options = Options(cwd=str(root / "work"), mode="bypass", persist=False)
    model = Scripted(*first, *lines, say("done"))
    async with LiveSession(options, model=model, person=Agreeing()) as session:
        async for _ in session.run("go"):
            pass
        history = session.runtime.agent.session.history()
    results = [entry.fact for entry in history if isinstance(entry.fact, Result)]
    return [extract_text(result.content) for result in results[len(first) :]]


def _put(path: Path, lines: dict[int, str]) -> None:
    """A file with these lines where they stood; all others are empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{lines.get(n, '')}\n" for n in range(1, max(lines, default=0) + 1))
    path.write_text(text, "utf-8", newline="")


def _within(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _read(one: Recorded, root: Path) -> Scene | None:
    pairs = (NUMBERED.match(line) for line in one.result.split("\n"))
    lines = {int(m[1]): m[2] for m in pairs if m and len(m[2]) < LONGEST}
    path = _within(root, one.input["file_path"])
    if not lines or len(lines) > 1_000 or path.suffix == ".ipynb" or "\r" in one.result:
        return None
    _put(path, lines)
    wanted = [f"{n}\t{text}" for n, text in lines.items()]

    def check(text: str) -> bool:
        shown = {line.strip() for line in text.split("\n")}
        return all(line.strip() in shown for line in wanted)

    return Scene("Read", {**one.input, "file_path": str(path)}, check)


def _write(one: Recorded, root: Path) -> Scene:
    path = _within(root, one.input["file_path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = one.input["content"].encode()
    return Scene(
        "Write", {**one.input, "file_path": str(path)}, lambda text: path.read_bytes() == whole
    )


def _edit(one: Recorded, root: Path) -> Scene | None:
    old, new = one.input["old_string"], one.input["new_string"]
    many = bool(one.input.get("replace_all"))
    path = _within(root, one.input["file_path"])
    return _edited(one, path, [(old, new, many)])


def _multi_edit(one: Recorded, root: Path) -> Scene | None:
    edits = [
        (e["old_string"], e["new_string"], bool(e.get("replace_all"))) for e in one.input["edits"]
    ]
    return _edited(one, _within(root, one.input["file_path"]), edits)


def _edited(one: Recorded, path: Path, edits: list[tuple[str, str, bool]]) -> Scene | None:
    around = ("«first»\n", "\n«next»\n", "\n«last»\n")
    parts = [old for old, _, _ in edits]
    before = around[0] + around[1].join(parts) + (around[1] + parts[-1]) * edits[-1][2] + around[2]
    after = before
    for old, new, many in edits:
        if not old or path.suffix == ".ipynb" or (not many and after.count(old) != 1):
            return None
        after = after.replace(old, new)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(before, "utf-8", newline="")
    args = {**one.input, "file_path": str(path)}
    done = after.encode()
    return Scene(one.name, args, lambda text: path.read_bytes() == done, (str(path),))


def _grep(one: Recorded, root: Path) -> Scene | None:
    """Lines that were found with their numbers stand where they were found."""
    given = dict(one.input)
    if given.get("output_mode") != "content" or given.get("multiline"):
        return None
    try:
        pattern = re.compile(given["pattern"], re.IGNORECASE if given.get("-i") else 0)
    except re.error:
        return None
    files = dict[str, dict[int, str]]()
    for match in filter(None, map(FOUND.match, one.result.split("\n"))):
        text = match["text"]
        if len(text) < LONGEST and pattern.search(text):
            files.setdefault(match["path"] or "", {})[int(match["line"])] = text
    place = _within(root, given.get("path") or "")
    only = "" in files
    if not files or (only and len(files) > 1) or sum(map(len, files.values())) > 200:
        return None
    if only and place.suffix == "":
        return None
    hidden = any(part.startswith(".") for name in files for part in name.split("/"))
    if hidden or any(name.startswith("/") for name in files):
        return None
    for name, lines in files.items():
        _put(place if only else place / name, lines)
    wanted = [f"{n}:{text}" for lines in files.values() for n, text in lines.items()]
    plain = given.get("-n") is False

    def check(text: str) -> bool:
        return all((row.partition(":")[2] if plain else row) in text for row in wanted)

    return Scene("Grep", {**given, "path": str(place)}, check)


def _glob(one: Recorded, root: Path) -> Scene | None:
    hidden = "REDACTED"  # stands for a part of some paths in published sessions
    paths = [line for line in one.result.split("\n") if line.startswith("/") and hidden not in line]
    base = os.path.join(one.cwd, one.input.get("path") or "")
    if not paths or len(paths) > 90 or not base.startswith("/"):
        return None
    if not all(path.startswith(base.rstrip("/") + "/") for path in paths):
        return None
    for path in paths:
        _put(_within(root, path), {1: "x"})
    names = [os.path.relpath(path, base) for path in paths]
    pattern = str(one.input["pattern"])
    pattern = f"{root}{pattern}" if pattern.startswith("/") else pattern
    args = {**one.input, "pattern": pattern, "path": str(_within(root, base))}
    return Scene("Glob", args, lambda text: all(name in text for name in names))


def _apply_patch(one: Recorded, root: Path) -> Scene | None:
    """Each file has what the patch speaks of, with other lines between its chunks."""
    if "Success" not in one.result:
        return None
    patch = re.sub(
        r"^(\*\*\* (?:(?:Add|Update|Delete) File|Move to): )(.+)$",
        lambda m: f"{m[1]}{_within(root, m[2])}",
        one.input["input"],
        flags=re.MULTILINE,
    )
    wanted = dict[Path, str | None]()
    for change in parse_patch(patch):
        path = Path(change.path)
        if change.kind == "add":
            wanted[path] = change.text
            continue
        parts = [
            line
            for n, chunk in enumerate(change.chunks)
            for line in (f"«before {n}»", *chunk.anchors, *chunk.old)
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join((*parts, "«end»", ""))
        path.write_text(text, "utf-8", newline="")
        wanted[path] = None
        if change.kind == "update":
            wanted[Path(change.move or path)] = _by_hand(text, change.chunks)

    def check(text: str) -> bool:
        return all(
            not path.exists() if whole is None else path.read_text("utf-8") == whole
            for path, whole in wanted.items()
        )

    return Scene("apply_patch", {"input": patch}, check)


def _by_hand(text: str, chunks: Any) -> str:
    """The text after its chunks, each replaced where it was put."""
    for chunk in chunks:
        old, new = ("".join(f"{line}\n" for line in side) for side in (chunk.old, chunk.new))
        text = text.replace(old, new, 1) if chunk.old else apply_chunks(text, (chunk,), "file")
    return text


def _exec(one: Recorded, root: Path) -> Scene | None:
    """A part of a file that a command shows: the file has these lines there."""
    match = SLICE.fullmatch(one.input["cmd"].strip())
    output = one.result.partition("\nOutput:\n")[2]
    # Colours are taken out of an output, so that a line with them is not the line that was shown.
    plain = "\x1b" not in output and "exited with code 0" in one.result
    if not match or not output or not plain:
        return None
    first, last, name = int(match[1]), int(match[2]), match[3]
    lines = output.removesuffix("\n").split("\n")
    if len(lines) > last - first + 1 or any(len(line) > LONGEST for line in lines):
        return None
    place = _within(root, one.input.get("workdir", "/repository"))
    _put(_within(place, name), {first + n: line for n, line in enumerate(lines)})
    whole = "\n".join(lines).strip("\n")
    args = {**one.input, "workdir": str(place), "cmd": match[0].replace(name, name.lstrip("/"))}
    return Scene("exec_command", args, lambda text: whole in text)


MAKERS = cast(
    "dict[str, Callable[[Recorded, Path], Scene | None]]",
    {
        "Read": _read,
        "Write": _write,
        "Edit": _edit,
        "MultiEdit": _multi_edit,
        "Grep": _grep,
        "Glob": _glob,
        "apply_patch": _apply_patch,
        "exec_command": _exec,
    },
)


def failures(folder: Path, tool: str) -> Iterator[str]:
    """The calls of a tool that did something else, for people."""
    calls = [one for one in recorded_calls(folder) if one.name == tool and not one.error]
    Random(16).shuffle(calls)
    with tempfile.TemporaryDirectory() as place:
        root = Path(os.path.realpath(place))
        made = [MAKERS[tool](one, root / "work" / str(n)) for n, one in enumerate(calls)]
        scenes = [scene for scene in made if scene is not None][:SAMPLE]
        for scene, text in zip(scenes, anyio.run(_run, scenes, root), strict=True):
            if not scene.check(text):
                yield f"{scene.args}\n{text}\n"
