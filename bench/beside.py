"""Travois beside bare Python and other agents that are installed, run in turn against one server.

`claude` (npm @anthropic-ai/claude-code), `codex` (npm @openai/codex) and `pi` (npm
@mariozechner/pi-coding-agent) take part where they are on PATH; only Travois runs its commands in
a sandbox. Every program does the same task once in each round, one after the other, so that a busy
machine slows all of them: compare the ratios, which are to Travois in the same rounds.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench.loopback import Event, sse
from bench.start import FLOOR

ROUNDS, TURNS = 5, 30
MIXED = "read, edit, write and search"
"""A turn with these four calls instead of one shell command."""
LINES = 500
LONG_TURNS = 200
MEGABYTE = "seq 1 150000"
READ, WRITE, OUTPUT = 0.1, 1.25, 5.0
"""Prices of tokens, against one that is not cached."""
BYTES_PER_TOKEN = 4
Asked = dict[str, Any]
Calls = list[tuple[str, Event]]


@dataclass
class Traffic:
    """The requests of one run that declare tools: when they came, their bodies, the answers."""

    asked: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def gaps(self) -> list[float]:
        """The milliseconds from each answer to the next request."""
        pairs = zip(self.answered, self.asked[1:], strict=False)
        return [(asked - answered) * 1000 for answered, asked in pairs]


@dataclass(frozen=True)
class Program:
    """A program, and how it is started for one prompt: `URL` and `HOME` stand for their values."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str]

    def start(self, url: str, folder: Path, home: Path) -> subprocess.Popen[bytes]:
        def fill(word: str) -> str:
            return word.replace("URL", url).replace("HOMEDIR", str(home))

        kept = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_BASE_URL"))}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        return subprocess.Popen(
            list(map(fill, self.argv)),
            cwd=folder,
            env=kept | {name: fill(value) for name, value in self.env.items()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )


TRAVOIS = str(Path(sys.executable).parent / "travois")
TASK = (TRAVOIS, "-p", "go", "--model", "anthropic/claude-opus-5-5", "--permission-mode", "bypass")
OURS = {"TRAVOIS_HOME": "HOMEDIR/travois", "ANTHROPIC_BASE_URL": "URL", "ANTHROPIC_API_KEY": "x"}
WARM = {**OURS, "TRAVOIS_HOME": "HOMEDIR/warm"}
CODEX = (
    *("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
    *("-c", "model=gpt-5.5", "-c", "model_provider=bench"),
    *("-c", 'model_providers.bench={name="bench",base_url="URL/v1",wire_api="responses"}', "go"),
)
PI_MODELS = {
    "providers": {
        "bench": {
            "baseUrl": "URL",
            "api": "anthropic-messages",
            "apiKey": "x",
            "models": [{"id": "bench", "name": "bench", "contextWindow": 200_000}],
        }
    }
}


def programs() -> list[Program]:
    """Return Travois in its kinds, and the other agents that are here."""
    found = [
        Program("travois", TASK, OURS),
        Program("travois --no-sandbox", (*TASK, "--no-sandbox"), OURS),
        Program("travois, warm server", TASK, WARM),
    ]
    if shutil.which("claude"):
        words = ("claude", "-p", "go", "--model", "claude-opus-5-5")
        own = {"ANTHROPIC_BASE_URL": "URL", "ANTHROPIC_API_KEY": "x", "HOME": "HOMEDIR"}
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}
        found.append(
            Program("claude", (*words, "--dangerously-skip-permissions"), {**own, **quiet})
        )
    if shutil.which("codex"):
        own = {"CODEX_HOME": "HOMEDIR/codex", "HOME": "HOMEDIR", "OPENAI_API_KEY": "x"}
        found.append(Program("codex", CODEX, own))
    if shutil.which("pi"):
        words = ("pi", "-p", "go", "--provider", "bench", "--model", "bench")
        found.append(Program("pi", words, {"HOME": "HOMEDIR", "PI_OFFLINE": "1"}))
    return found


def main() -> None:
    names = [program.name for program in programs()]
    print(f"{', '.join(names)}; medians of {ROUNDS} rounds, and the ratio to travois")
    with serve() as server, tempfile.TemporaryDirectory(prefix="beside-") as folder:
        place = Place(Path(folder), server)
        with warm_server(place):
            _print_rows(place)


def _print_rows(place: Place) -> None:
    plain = place.rounds(lambda turn: None)
    place.print_row("start to first request, ms", plain, lambda run: run.start)
    place.print_floor(plain)
    place.print_row("exit after the last byte, ms", plain, lambda run: run.exit)
    place.print_row("whole run without a call, ms", plain, lambda run: run.whole)
    place.print_row("CPU of it, ms", plain, lambda run: run.cpu)
    place.print_row(
        "first request, tokens at 4 bytes",
        plain,
        lambda run: len(run.traffic.bodies[0]) / BYTES_PER_TOKEN,
    )
    turns = place.rounds(lambda turn: f"echo {turn}" if turn <= TURNS else None)
    place.print_row("a shell turn, ms", turns, lambda run: median(run.traffic.gaps()[1:]))
    place.print_row("the first shell command, ms", turns, lambda run: run.traffic.gaps()[0])
    place.print_row(f"CPU of a run of {TURNS} turns, ms a turn", turns, lambda run: run.cpu / TURNS)
    mixed = place.rounds(lambda turn: MIXED if turn <= TURNS else None, rounds=2)
    place.print_row(f"a turn with {MIXED}, ms", mixed, lambda run: median(run.traffic.gaps()[1:]))
    flood = place.rounds(lambda turn: MEGABYTE if turn == 1 else None, rounds=1)
    place.print_row("1 MB of output, characters of it shown", flood, lambda run: run.last_result)
    long = place.rounds(lambda turn: f"echo {turn}" if turn <= LONG_TURNS else None, rounds=1)
    place.print_row(f"{LONG_TURNS} turns, thousand tokens", long, lambda run: run.cost / 1000)


@dataclass
class Run:
    """What one run took, in milliseconds, and what it sent."""

    start: float
    exit: float
    whole: float
    cpu: float
    traffic: Traffic

    @property
    def last_result(self) -> float:
        """The characters of the result that the last request shows."""
        told = _texts(json.loads(self.traffic.bodies[-1]))
        shown = (text for text in told if "1\n2\n3\n" in text or "\n149999\n150000" in text)
        return max(map(len, shown), default=0)

    @property
    def cost(self) -> float:
        """What all requests cost at cache prices: what two have in common is read."""
        total, before = 0.0, b""
        for body in map(_as_prompt, self.traffic.bodies):
            common = _common_bytes(before, body)
            total += (common * READ + (len(body) - common) * WRITE) / BYTES_PER_TOKEN
            total += OUTPUT * 20
            before = body
        return total


def _as_prompt(body: bytes) -> bytes:
    """Return a request in the order in which a provider reads it: tools, system, conversation."""
    asked = json.loads(body)
    parts = [asked.get(name) for name in ("tools", "system", "instructions", "messages", "input")]
    return json.dumps(_without_markers(parts), separators=(",", ":"), ensure_ascii=False).encode()


def _without_markers(value: Any) -> Any:
    """Return a value without cache markers, which move from request to request."""
    if isinstance(value, dict):
        return {k: _without_markers(v) for k, v in value.items() if k != "cache_control"}
    return [_without_markers(one) for one in value] if isinstance(value, list) else value


def _common_bytes(one: bytes, other: bytes) -> int:
    """Return how many bytes two bodies have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict() | list():
            for one in value.values() if isinstance(value, dict) else value:
                yield from _texts(one)
        case _:
            pass


@dataclass
class Place:
    """A workspace and homes for all programs, and the server that they ask."""

    folder: Path
    server: Server

    def __post_init__(self) -> None:
        self.work, self.home = self.folder / "work", self.folder / "home"
        self.work.mkdir()
        (self.home / ".pi" / "agent").mkdir(parents=True)
        (self.home / "codex").mkdir()
        models = json.dumps(PI_MODELS).replace("URL", self.server.url)
        (self.home / ".pi" / "agent" / "models.json").write_text(models)
        subprocess.run(["git", "init", "-q", str(self.work)], check=True)

    def rounds(
        self, command: Callable[[int], str | None], *, rounds: int = ROUNDS
    ) -> dict[str, list[Run]]:
        """Let every program do the task in each round; the first round only warms up."""
        found: dict[str, list[Run]] = {program.name: [] for program in programs()}
        for number in range(rounds + 1):
            for program in programs():
                run = self._run(program, command)
                if run is not None and (number or rounds == 1):
                    found[program.name].append(run)
        return found

    def _run(self, program: Program, command: Callable[[int], str | None]) -> Run | None:
        traffic = self.server.begin(command, self.work)
        lines = "".join(f"line {number} x\n" for number in range(LINES))
        (self.work / "f.txt").write_text(lines)
        for made in self.work.glob("g*.txt"):
            made.unlink()
        begun = perf_counter()
        child = program.start(self.server.url, self.work, self.home)
        assert child.stdout is not None
        child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode, ended = status, perf_counter()
        if status or not traffic.asked:
            return None
        cpu = (used.ru_utime + used.ru_stime) * 1000
        start, rest = traffic.asked[0] - begun, ended - traffic.answered[-1]
        return Run(start * 1000, rest * 1000, (ended - begun) * 1000, cpu, traffic)

    def print_row(
        self, label: str, found: dict[str, list[Run]], value: Callable[[Run], float]
    ) -> None:
        """Print the median of each program, and its ratio to the first one."""
        base = _median(map(value, found["travois"]))
        print(f"{label}:")
        for name, runs in found.items():
            mine = _median(map(value, runs))
            told = f"{mine:10.1f}  {mine / base:6.2f}" if runs else "failed here"
            print(f"  {name:24} {told}")

    def print_floor(self, found: dict[str, list[Run]]) -> None:
        """Print what a bare Python takes to send its first request."""
        times: list[float] = []
        for _ in range(ROUNDS):
            traffic, begun = self.server.begin(lambda turn: None, self.work), perf_counter()
            subprocess.run([sys.executable, "-c", FLOOR, self.server.url], check=True)
            times += [(at - begun) * 1000 for at in traffic.asked[:1]]
        base = _median(run.start for run in found["travois"])
        print(f"  {'bare Python':24} {median(times):10.1f}  {median(times) / base:6.2f}")


def _median(values: Iterator[float] | map[float]) -> float:
    known = list(values)
    return median(known) if known else float("nan")


@contextmanager
def warm_server(place: Place) -> Iterator[None]:
    """A warm server for the runs that use one."""
    kept = {**os.environ, "TRAVOIS_HOME": str(place.home / "warm")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    words = [TRAVOIS, "serve", "--warm"]
    with subprocess.Popen(words, env=kept, stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        child.stderr.readline()
        try:
            yield
        finally:
            child.terminate()


# The scripted model, in the two protocols that the programs speak.


class Server:
    """A model that asks for the shell command of each turn, by the name that the client declares."""

    def __init__(self) -> None:
        self.url = ""
        self._command: Callable[[int], str | None] = lambda turn: None
        self._traffic = Traffic()
        self._work = Path()

    def begin(self, command: Callable[[int], str | None], work: Path) -> Traffic:
        """Expect another run in a folder."""
        self._command, self._traffic, self._work = command, Traffic(), work
        return self._traffic

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                arrived = perf_counter()
                body = await _read_body(reader, head)
                await self._answer(head, body, arrived, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(
        self, head: bytes, body: bytes, arrived: float, writer: asyncio.StreamWriter
    ) -> None:
        asked: Asked = json.loads(body) if body.startswith(b"{") else {}
        counts = "messages" in asked or "input" in asked
        traffic = self._traffic
        if counts:
            traffic.asked.append(arrived)
            traffic.bodies.append(body)
        data = self._reply(asked, len(traffic.asked)) if counts else b"{}"
        kind = b"text/event-stream" if counts else b"application/json"
        told = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n"
        writer.write(told % (kind, len(data)) + data)
        await writer.drain()
        if counts:
            traffic.answered.append(perf_counter())

    def _reply(self, asked: Asked, turn: int) -> bytes:
        command, calls = self._command(turn), Calls()
        if command == MIXED:
            calls = _mixed_calls(asked, turn, self._work)
        elif command and (tool := _shell_tool(asked)):
            calls = [tool(command)]
        speak = _say_messages if "messages" in asked else _say_responses
        return speak(calls, turn)


def _shell_tool(asked: Asked) -> Callable[[str], tuple[str, Event]] | None:
    """Return how this client's shell is called."""
    names = [str(tool.get("name", "")) for tool in asked.get("tools", ())]
    for name in names:
        if name.lower() == "bash":
            return lambda command: (name, {"command": command})
        if name == "exec_command":
            return lambda command: (name, {"cmd": command})
        if name == "shell_command":
            return lambda command: (name, {"command": command})
        if name == "shell":
            return lambda command: (name, {"command": ["bash", "-c", command]})
    return None


def _mixed_calls(asked: Asked, turn: int, work: Path) -> Calls:
    """Return four calls by the names that a client declares; without them, shell commands."""
    line, other, made = f"line {turn} x", f"line {turn} y", f"{work}/g{turn}.txt"
    edit = {"old_string": line, "new_string": other, "oldText": line, "newText": other}
    path = {"file_path": f"{work}/f.txt", "path": f"{work}/f.txt"}
    wanted: dict[str, tuple[Event, str]] = {
        "read": ({**path}, "cat f.txt"),
        "edit": (
            {**path, **edit, "edits": [{"oldText": line, "newText": other}]},
            f"sed -i 's/{line}/{other}/' f.txt",
        ),
        "write": ({"file_path": made, "path": made, "content": "made\n"}, f"echo made > {made}"),
        "grep": ({"pattern": f"line {turn} "}, f"grep -n 'line {turn} ' f.txt"),
    }
    declared = {str(tool.get("name", "")).lower(): tool for tool in asked.get("tools", ())}
    shell, calls = _shell_tool(asked), Calls()
    for name, (args, command) in wanted.items():
        if tool := declared.get(name):
            known = (tool.get("input_schema") or tool.get("parameters"))["properties"]
            calls.append((tool["name"], {key: args[key] for key in args if key in known}))
        elif shell:
            calls.append(shell(command))
    return calls


def _say_messages(calls: Calls, turn: int) -> bytes:
    usage = {"input_tokens": 10, "output_tokens": 20}
    message = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": "m"}
    said: list[tuple[Event, Event]] = [
        (
            {"type": "tool_use", "id": f"toolu_{turn:05}{at}", "name": name, "input": {}},
            {"type": "input_json_delta", "partial_json": json.dumps(args)},
        )
        for at, (name, args) in enumerate(calls)
    ]
    said = said or [({"type": "text", "text": ""}, {"type": "text_delta", "text": "Done."})]
    blocks: list[Event] = []
    for at, (block, delta) in enumerate(said):
        blocks += [
            {"type": "content_block_start", "index": at, "content_block": block},
            {"type": "content_block_delta", "index": at, "delta": delta},
            {"type": "content_block_stop", "index": at},
        ]
    stop = {"stop_reason": "tool_use" if calls else "end_turn"}
    return sse(
        {"type": "message_start", "message": {**message, "content": [], "usage": usage}},
        *blocks,
        {"type": "message_delta", "delta": stop, "usage": usage},
        {"type": "message_stop"},
    )


def _say_responses(calls: Calls, turn: int) -> bytes:
    items: list[Event] = [
        {
            "type": "function_call",
            "id": f"fc_{turn}_{at}",
            "call_id": f"call_{turn:05}{at}",
            "name": name,
            "arguments": json.dumps(args),
            "status": "completed",
        }
        for at, (name, args) in enumerate(calls)
    ]
    text = [{"type": "output_text", "text": "Done.", "annotations": []}]
    last: Event = {"type": "message", "id": f"m_{turn}", "role": "assistant", "content": text}
    items = items or [last]
    shown: list[Event] = []
    for at, item in enumerate(items):
        shown += [
            {"type": "response.output_item.added", "output_index": at, "item": item},
            {"type": "response.output_item.done", "output_index": at, "item": item},
        ]
    usage = {"input_tokens": 10, "output_tokens": 20, "total_tokens": 30}
    done = {"id": f"resp_{turn}", "status": "completed", "output": items, "usage": usage}
    return sse(
        {"type": "response.created", "response": {"id": f"resp_{turn}"}},
        *shown,
        {"type": "response.completed", "response": done},
    )


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return await reader.readexactly(int(line.partition(b":")[2]))
    return b""


@contextmanager
def serve() -> Iterator[Server]:
    """Run the server in a thread."""
    server, loop, ready = Server(), asyncio.new_event_loop(), threading.Event()

    async def start() -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 24)
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        ready.set()

    loop.create_task(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
