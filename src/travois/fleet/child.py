"""A fleet task's run of `travois -p`: starting it, reading its lines, stopping it, its outcome."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Timer
from typing import IO, Literal
from uuid import UUID, uuid5

import msgspec

from travois.compose.options import STORE_VARIABLE
from travois.core.cache_audit import SessionSpending
from travois.core.models import Usage
from travois.fleet.run_process import POLL_SECONDS, RunProcess, RunStarter, wait_until_readable
from travois.fleet.task import FleetTask
from travois.permissions.secrets import Secrets, mask_text
from travois.sessions import blobs
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import LOG_FILE_NAME, read_history

SESSION_NAMESPACE = UUID("7d9a4c6e-3a57-4f0e-9d55-0f4a31f2b8c1")
PROMPT_ID = "task"
STORE_PROBLEM = "The session store cannot be used"
"""What a run says that starts while the database is away."""
TASK_VARIABLE = "TRAVOIS_TASK_ID"
"""Marks every OpenTelemetry span of the run."""
STOP_SECONDS = 20.0
"""How long a run may take to end by itself: it ends what it started, and writes its log."""
MAX_WHY_CHARS = 2_000
READ_BYTES = 65_536

ChildOutcome = Literal["done", "failed", "limit", "refused", "retryable", "interrupted", "lost"]
StopReason = Literal["", "cancelled", "leaving", "lease", "rate"]


class ChildResult(msgspec.Struct, frozen=True):
    """The outcome of a run."""

    outcome: ChildOutcome
    why: str = ""
    answer: str = ""
    is_rate_limit: bool = False
    stopped: StopReason = ""
    seconds: float = 0.0


class SessionTotals(msgspec.Struct, frozen=True):
    """The usage of a task's session in all its runs, by its log."""

    dollars: float = 0.0
    usage: Usage = Usage()


class _Block(msgspec.Struct, frozen=True):
    """A block of a message: the tool that it calls, if any."""

    type: str = ""
    name: str = ""


class _Tokens(msgspec.Struct, frozen=True):
    """The token counts of a message."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0


class _Message(msgspec.Struct, frozen=True):
    """The fields that the fleet reads of a message; each of its blocks has a line with them."""

    id: str = ""
    content: tuple[_Block, ...] | str = ()
    usage: _Tokens = _Tokens()


class _Line(msgspec.Struct, frozen=True):
    """The fields that the fleet reads of a `stream-json` line."""

    type: str = ""
    subtype: str = ""
    outcome: str = ""
    result: str = ""
    errors: tuple[str, ...] = ()
    api_error_status: int = 0
    retry_delay_ms: int = 0
    error_status: int | None = None
    message: _Message = _Message()


class ChildRun:
    """A running `travois -p`; `stop` may be called from any thread."""

    def __init__(self, starter: RunStarter, secrets: Secrets) -> None:
        self._starter = starter
        self._secrets = secrets
        self.on_rate_limit: Callable[[float, str], None] = lambda seconds, why: None
        """Called with the seconds until the provider is asked again, and its answer."""
        self.on_response: Callable[[], None] = lambda: None
        self._process: RunProcess | None = None
        self._stopped: StopReason = ""
        self._lock = Lock()
        self._last = _Line()
        self.requests = 0
        self.tokens = 0
        """The tokens of this run so far, cached or not."""
        self.doing = ""
        """What it does, for the live table."""
        self._message = ""

    def follow_to_end(
        self,
        words: Sequence[str],
        *,
        prompt: str,
        cwd: Path,
        env: Mapping[str, str],
        log: Path,
    ) -> ChildResult:
        """Run to the end; the lines go to a log without secrets."""
        began = time.monotonic()
        with log.open("ab") as said, (log.parent / "stderr.txt").open("w+b") as errors:
            with self._lock:
                if self._stopped:
                    return ChildResult("interrupted", stopped=self._stopped)
                self._process = self._starter.start(words, cwd=cwd, env=env, errors=errors)
            code = self._follow_output(self._process, prompt, said)
            errors.seek(0)
            told = mask_text(errors.read().decode(errors="replace"))[-MAX_WHY_CHARS:].strip()
        return self._build_child_result(code, told, seconds=time.monotonic() - began)

    def stop(self, why: StopReason) -> None:
        """End the run so that it can go on later; by force if it does not end."""
        with self._lock:
            self._stopped = self._stopped or why
            process = self._process
        if process is None or process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        Timer(STOP_SECONDS, _end_group, (process,)).start()

    def _follow_output(self, process: RunProcess, prompt: str, said: IO[bytes]) -> int:
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(prompt.encode())
            process.stdin.close()
        try:
            with process.stdout as output:
                for line in _read_child_lines(output.fileno(), process):
                    self._read_line(line)
                    said.write(self._secrets.redact_bytes(line))
                    said.flush()
            return process.wait()
        finally:  # also if the log cannot be written: nobody would follow the run any more
            _kill_group(process)
            process.wait()

    def _read_line(self, data: bytes) -> None:
        try:
            line = msgspec.json.decode(data, type=_Line)
        except msgspec.DecodeError:
            return
        match line.type, line.subtype:
            case "result", _:
                self._last = line
            case "assistant", _:
                self._count_message(line.message)
            case "user", _:
                self.doing = "waits for the model"
            case "system", "api_retry" if line.error_status in (429, 529):
                self.doing = "waits for the rate limit"
                self.on_rate_limit(line.retry_delay_ms / 1000, f"HTTP {line.error_status}")
            case _:
                pass

    def _count_message(self, message: _Message) -> None:
        """Count a reply once, and note the tool that it calls."""
        called = [block.name for block in message.content if isinstance(block, _Block)]
        self.doing = f"runs {called[-1]}" if called and called[-1] else "answers"
        if message.id == self._message:
            return
        self._message, used = message.id, message.usage
        self.requests += 1
        self.tokens += used.input_tokens + used.cache_creation_input_tokens
        self.tokens += used.cache_read_input_tokens + used.output_tokens
        self.on_response()

    def _build_child_result(self, code: int, told: str, *, seconds: float) -> ChildResult:
        last, stopped = self._last, self._stopped
        if stopped and last.outcome != "done":
            return ChildResult("interrupted", stopped=stopped, seconds=seconds)
        if code < 0 or not last.outcome:
            why = f"the run was killed by signal {-code}" if code < 0 else told
            is_wrong = code == 2 and STORE_PROBLEM not in told  # a database is back some time
            outcome = "failed" if is_wrong else "lost"
            return ChildResult(outcome, why or f"exit code {code}", seconds=seconds)
        why = mask_text("; ".join(last.errors) or ("" if last.outcome == "done" else told))
        return ChildResult(
            msgspec.convert(last.outcome, ChildOutcome),
            why[:MAX_WHY_CHARS],
            answer=mask_text(last.result),
            is_rate_limit=last.api_error_status in (429, 529),
            seconds=seconds,
        )


def build_child_words(task: FleetTask, *, session: UUID, usd: float, lease: Path) -> list[str]:
    """Build the command line of a fleet task's run; it starts or resumes the session."""
    words = ["-p", "--output-format", "stream-json"]
    words += ["--resume-or-create", str(session), "--prompt-id", PROMPT_ID]
    words += ["--die-with-parent", "--lease", str(lease), "--permission-mode", task.mode]
    words += ["--model", task.model] if task.model else []
    words += ["--agent", task.agent] if task.agent else []
    words += ["--max-budget-usd", repr(usd)] if usd else []
    words += ["--max-seconds", repr(task.max_seconds)] if task.max_seconds else []
    words += ["--limits", "session"]
    return words


def session_id(task: str, *, fresh: int) -> UUID:
    """Return a fleet task's session ID: the same on every machine."""
    return uuid5(SESSION_NAMESPACE, f"{task}/{fresh}")


def child_environment(
    task: FleetTask, key_names: Mapping[str, str], *, store: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables that a fleet task's run gets besides its workspace's."""
    own = {TASK_VARIABLE: task.id}
    if STORE_VARIABLE in os.environ:  # the worker's own choice
        return {**own, **key_names}
    return {**own, **key_names, **store}


def read_session_totals(home: Path, session: UUID) -> SessionTotals:
    """Sum the usage in a fleet task's session log, including killed runs."""
    # A run that ended while it opened its session leaves a folder without a log.
    logs = sorted(TravoisHome(home).sessions.glob(f"*/{session}/{LOG_FILE_NAME}"))
    spent = SessionSpending()
    for log in logs[:1]:
        for entry in read_history(log.parent, []):
            spent = spent.after_entry(entry)
    return SessionTotals(spent.dollars, spent.usage)


def write_lease(path: Path, until: float) -> None:
    """Let a fleet worker's runs continue until a Unix time."""
    blobs.replace_file(path, f"{until:.3f}\n".encode(), sync="whenever")


def _read_child_lines(fd: int, process: RunProcess) -> Iterator[bytes]:
    """Yield the lines of a fleet task's run until it ends, even if a child holds its output."""
    rest = b""
    while True:
        ended = process.poll() is not None
        if not wait_until_readable(fd, seconds=0.0 if ended else POLL_SECONDS):
            if ended:
                return
            continue
        data = os.read(fd, READ_BYTES)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from (line + b"\n" for line in lines)


def _end_group(process: RunProcess) -> None:
    """Kill a fleet task's run that did not end, with everything in its process group."""
    if process.poll() is None:
        _kill_group(process)


def _kill_group(process: RunProcess) -> None:
    """Kill what is left in the process group of a fleet task's run."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
