"""Running eval cases, several at once, each in a folder of its own."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import msgspec
from anyio.to_thread import run_sync as run_in_thread

from travois.core.errors import UserError
from travois.evals.cases import (
    Check,
    EvalCase,
    EvalFile,
    find_missing_parts,
    select_case_model,
)
from travois.lazy_imports import lazy_imports
from travois.library.events import ToolCallStarted
from travois.library.options import Options
from travois.library.results import Result
from travois.library.session import Session

with lazy_imports():
    import subprocess

    from travois.evals import lab_models

CHECK_SECONDS = 600.0
MAX_SHOWN_OUTPUT = 300
LAB_PROVIDER = "eval-lab"
LAB_MODEL = "claude-opus-5-5"


class CaseOutcome(msgspec.Struct, frozen=True):
    """What came of one run of a case."""

    name: str
    model: str
    passed: bool
    problems: tuple[str, ...] = ()
    """The checks that failed, and why."""
    turns: int = 0
    tokens: int = 0
    dollars: float = 0.0
    seconds: float = 0.0
    session: str = ""
    text: str = ""


class EvalRun(msgspec.Struct, frozen=True):
    """The choices of one eval: the file and its folder, the model, and how many run at once."""

    file: EvalFile
    folder: Path
    model: str = ""
    parallel: int = 4


async def run_cases(
    run: EvalRun, cases: tuple[EvalCase, ...], *, report: Callable[[CaseOutcome], None]
) -> tuple[CaseOutcome, ...]:
    """Run cases, at most so many at once; return what came of them in their order."""
    found: dict[tuple[int, int], CaseOutcome] = {}
    places = anyio.Semaphore(run.parallel)

    async def run_next_case(case: EvalCase, key: tuple[int, int]) -> None:
        async with places:
            found[key] = await run_eval_case(case, run)
            report(found[key])

    async with anyio.create_task_group() as group:
        for number, case in enumerate(cases):
            for time in range(case.runs):
                group.start_soon(run_next_case, case, (number, time))
    return tuple(found[key] for key in sorted(found))


async def run_eval_case(case: EvalCase, run: EvalRun) -> CaseOutcome:
    """Run a case once, in a new folder that is deleted afterwards."""
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="travois-eval-") as place:
        folder = Path(place).resolve()
        _write_case_files(case, folder, source=run.folder)
        try:
            with _serve_case_model(case, run) as (model, settings):
                options = _build_case_options(case, folder, model=model, settings=settings)
                result, called = await _run_case_session(case, options)
        except UserError as problem:
            name = select_case_model(case, run.file, override=run.model)
            return CaseOutcome(case.name, name, passed=False, problems=(str(problem),))
        problems = await run_in_thread(
            lambda: tuple(find_failed_checks(case, result, called, folder))
        )
    return CaseOutcome(
        case.name,
        model or "default",
        passed=not problems,
        problems=problems,
        turns=result.turns,
        tokens=result.usage.total_tokens,
        dollars=result.cost,
        seconds=round(monotonic() - began, 2),
        session=result.session_id,
        text=result.text,
    )


async def _run_case_session(case: EvalCase, options: Options) -> tuple[Result[Any], list[str]]:
    """Run the prompt of a case; return its result and the tools that were called."""
    async with Session(options) as session:
        stream = session.stream(case.prompt, output=case.schema or None)
        called = [event.name async for event in stream if isinstance(event, ToolCallStarted)]
    return stream.result, called


def _write_case_files(case: EvalCase, folder: Path, *, source: Path) -> None:
    if case.folder:
        shutil.copytree(source / case.folder, folder, dirs_exist_ok=True, symlinks=True)
    for name, text in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def _build_case_options(
    case: EvalCase, folder: Path, *, model: str, settings: dict[str, Any]
) -> Options:
    """Build the options of a case's session; it leaves nothing behind and asks nobody."""
    return Options(
        cwd=folder,
        model=model,
        mode=case.mode,
        system=case.system,
        allowed=case.allowed,
        budget=case.budget,
        memory=False,
        persist=False,
        sources="user",
        settings=settings,
    )


@contextmanager
def _serve_case_model(case: EvalCase, run: EvalRun) -> Generator[tuple[str, dict[str, Any]]]:
    """Yield the name of the model that answers a case, and the settings that it needs."""
    chosen = select_case_model(case, run.file, override=run.model)
    if run.model or (case.script is None and not case.recording):
        yield chosen, {}
        return
    try:
        if case.recording:
            serving = lab_models.play_recording(run.folder / case.recording)
        else:
            serving = lab_models.play_script(case.script)
    except ModuleNotFoundError:
        fix = "Install it: pip install 'travois[lab]'"
        raise UserError("The lab, which plays models, is not installed", fix=fix) from None
    with serving as url:
        name = chosen.rpartition("/")[2] or LAB_MODEL
        provider = {"protocol": "anthropic", "url": url, "headers": {"x-api-key": "lab"}}
        yield f"{LAB_PROVIDER}/{name}", {"providers": {LAB_PROVIDER: provider}}


# Checks.


def find_failed_checks(
    case: EvalCase, result: Result[Any], called: list[str], folder: Path
) -> Iterator[str]:
    """Yield why a run does not pass; nothing if it does."""
    if result.why != case.ends:
        why = f": {result.error}" if result.error else ""
        yield f"the run ended with {result.why}, not {case.ends}{why}"
    for check in case.checks:
        yield from _check_answer_text(check, result, folder)
        yield from _check_called_tools(check, called)
        yield from _check_spent_limits(check, result)
        if check.output is not None:
            yield from find_missing_parts(result.output, check.output)
        if check.command and (why := _run_check_command(check.command, folder)):
            yield why


def _check_answer_text(check: Check, result: Result[Any], folder: Path) -> Iterator[str]:
    """Check the text of a file, or of the answer."""
    what, text = check.file or "the answer", result.text
    if check.file:
        try:
            text = (folder / check.file).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            yield f"{check.file} cannot be read: {error}"
            return
    if check.contains and check.contains not in text:
        yield f"{what} does not contain {check.contains!r}"
    if check.absent and check.absent in text:
        yield f"{what} contains {check.absent!r}"
    if check.matches and not re.search(check.matches, text):
        yield f"{what} does not match {check.matches!r}"
    if check.equals is not None and text.strip() != check.equals.strip():
        yield f"{what} is {text[:MAX_SHOWN_OUTPUT]!r}, not {check.equals!r}"


def _check_called_tools(check: Check, called: list[str]) -> Iterator[str]:
    if check.calls and check.calls not in called:
        yield f"{check.calls} was not called; called were: {', '.join(called) or 'none'}"
    if check.never_calls in called:
        yield f"{check.never_calls} was called"


def _check_spent_limits(check: Check, result: Result[Any]) -> Iterator[str]:
    """Check what a run used against the check's limits."""
    used = (
        ("turns", result.turns, check.max_turns),
        ("tokens", result.usage.total_tokens, check.max_tokens),
        ("dollars", result.cost, check.max_dollars),
    )
    yield from (f"{n:,g} {what}, more than {most:,g}" for what, n, most in used if 0 < most < n)


def _run_check_command(command: str, folder: Path) -> str:
    """Run the command of a check; return why it failed, empty if it did not."""
    try:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=CHECK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"`{command}` did not end within {CHECK_SECONDS:g} s"
    said = done.stdout.decode(errors="replace").strip()[-MAX_SHOWN_OUTPUT:]
    return f"`{command}` failed with exit code {done.returncode}: {said}" if done.returncode else ""
