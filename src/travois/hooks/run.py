"""Running hooks: shell commands, HTTP requests and SDK callbacks."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from errno import ENOTSUP
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec

from travois.compat import hooks
from travois.core.facts import Hooked
from travois.hooks.config import Hook, HookCallback, select_matching_hooks
from travois.hooks.events import AnyHookEvent
from travois.hooks.output import (
    NO_DECISION,
    HookContext,
    HookDecision,
    HookResult,
    ModelHookRunner,
    build_hook_payload,
    interpret_hook_result,
    merge_decisions,
)
from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.world import BackgroundJob, CapturedOutput, Command, Processes
from travois.process.environment import build_child_environment
from travois.providers.http.transport import create_transport
from travois.providers.replies import ApiError
from travois.sandbox.hidden_files import find_named_folders

if TYPE_CHECKING:
    from travois.providers.http.client import Transport

MAX_HOOK_OUTPUT_BYTES = 1 << 20
"""Bytes kept of the head and of the tail of a hook's output (each)."""
ENV_FILE_EVENTS = ("SessionStart", "Setup", "CwdChanged", "FileChanged")
"""Events at which a hook may set variables for the commands that follow."""
GEMINI_VARIABLES = ("GEMINI_PROJECT_DIR", "GEMINI_CWD", "GEMINI_SESSION_ID")
PROJECT_DIR_PLACEHOLDER = "${CLAUDE_PROJECT_DIR}"
SHELL_SAFE_PATH = re.compile(r"[\w@%+=:,./ -]*")
"""Paths that mean nothing to a shell but themselves."""
VARIABLE_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")

RecordHookRun = Callable[[Hooked], object]


class HookEnvironment(msgspec.Struct, frozen=True):
    """The session whose hooks run, its folders and its sandbox."""

    session: str
    transcript: str
    root: str
    folder: Path
    """A folder for files that only this session sees."""
    sandbox: Callable[[tuple[str, ...]], SandboxProfile | None] = lambda shown: None
    """The sandbox for those that run in one, which shows these folders; none if there is none."""
    sandboxed: bool = False
    """True if hooks run in the sandbox unless they say otherwise."""


class HttpHookLimits(msgspec.Struct, frozen=True):
    """The URLs that HTTP hooks may use and the variables that they may send; empty means any."""

    urls: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


class BackgroundHook(msgspec.Struct, frozen=True):
    """A hook that runs in the background."""

    hook: Hook
    job: BackgroundJob
    call: str
    deadline: float


class LocalHooks:
    """The hooks of one session on this machine."""

    def __init__(
        self,
        hooks: tuple[Hook, ...],
        processes: Processes,
        *,
        place: HookEnvironment,
        reach: HttpHookLimits,
        callbacks: Mapping[str, HookCallback] | None = None,
    ) -> None:
        self._callbacks = callbacks or {}
        self._hooks: tuple[Hook, ...] = hooks
        self._processes = processes
        self._place = place
        self._reach = reach
        self._paths: set[str] = set()
        self._spent: set[tuple[str, str]] = set()
        self._background: list[BackgroundHook] = []
        self._count = 0

    async def fire(
        self,
        occasion: AnyHookEvent,
        context: HookContext,
        *,
        record: RecordHookRun,
        runner: ModelHookRunner | None = None,
        show: Callable[[str], object] = lambda text: None,
    ) -> HookDecision:
        """Run the matching hooks in parallel, and record each run as it ends."""
        # What hooks in the background say is for the model, and PreCompact is for the summariser.
        over = [] if occasion.event == "PreCompact" else self._take_finished()
        answers = [await self._collect_background(late, record) for late in over]
        heard_by = select_matching_hooks(self._hooks, occasion, context.use, whose=context.agent)
        chosen = [hook for hook in heard_by if self._should_run(hook)]
        if not chosen:
            return merge_decisions(answers)
        for doing in filter(None, (hook.status_message for hook in chosen)):
            show(doing)
        event = self._build_payload(occasion, context)
        heard: dict[int, HookDecision] = {}
        async with anyio.create_task_group() as group:
            for number, hook in enumerate(chosen):

                async def run_one(number: int = number, hook: Hook = hook) -> None:
                    run = self._run_hook(hook, context, event=event, record=record, runner=runner)
                    heard[number] = await run

                group.start_soon(run_one)
        together = merge_decisions((*answers, *(heard[number] for number in range(len(chosen)))))
        self._paths.update(together.watch)
        return together

    @property
    def files_to_watch(self) -> set[str]:
        """Return the files that FileChanged hooks watch; none where no such hook is set."""
        listening = [hook for hook in self._hooks if hook.event == "FileChanged"]
        names = {name for hook in listening for name in hook.matcher.split("|")} - {"", "*"}
        paths = {*names, *self._paths} if listening else ()
        return {os.path.join(self._place.root, path) for path in paths}

    def update(self, hooks: tuple[Hook, ...], *, gone: tuple[Hook, ...] = ()) -> None:
        """Add hooks for later events, and remove the ones in `gone`."""
        left = [hook for hook in self._hooks if hook not in gone]
        self._hooks = (*left, *(hook for hook in hooks if hook not in left))

    def _should_run(self, hook: Hook) -> bool:
        """Return whether the hook may run: a `once` hook runs once only."""
        key = (hook.event, hook.name)
        spent = hook.once and key in self._spent
        self._spent.add(key)
        return not spent

    def _build_payload(self, occasion: AnyHookEvent, context: HookContext) -> dict[str, object]:
        place = self._place
        return build_hook_payload(
            occasion, context, session=place.session, transcript=place.transcript
        )

    async def _run_hook(
        self,
        hook: Hook,
        context: HookContext,
        *,
        event: dict[str, object],
        record: RecordHookRun,
        runner: ModelHookRunner | None,
    ) -> HookDecision:
        """Run one hook and record it; no failure of a hook ends the session."""
        outcome = "stopped"
        stdin = _encode_payload(
            hooks.encode_gemini_hook_payload(event, at=context.at) if hook.dialect else event
        )
        exports: tuple[tuple[str, str], ...] = ()
        try:
            if hook.runs_in_background:
                outcome = await self._start_background(hook, context, stdin=stdin)
                return NO_DECISION
            if hook.type == "command":
                said, exports = await self._run_command(hook, context, stdin=stdin)
            else:
                said = await self._run_other_type(hook, stdin, runner)
            if hook.dialect:
                said = hooks.decode_gemini_hook_output(hook.event, said, event.get("tool_input"))
            heard, outcome = interpret_hook_result(hook, said)
        except OSError as error:
            why = f"could not start: {error.strerror or error}"
            heard, outcome = interpret_hook_result(hook, HookResult(failure=why))
        except Exception as error:  # noqa: BLE001 - a hook we cannot run must not end the session
            heard, outcome = interpret_hook_result(hook, HookResult(failure=f"crashed: {error!r}"))
        finally:
            if outcome:
                record(Hooked(hook.event, hook.name, outcome, context.call))
        return msgspec.structs.replace(heard, exports=exports)

    async def _run_other_type(
        self, hook: Hook, stdin: bytes, runner: ModelHookRunner | None
    ) -> HookResult:
        """Run a hook that is not a command."""
        if hook.type == "http":
            return await self._post_event(hook, stdin)
        if hook.type == "callback":
            return await self._run_callback(hook, stdin)
        with anyio.move_on_after(hook.timeout_seconds):
            assert runner is not None
            return await runner(hook, stdin)
        return HookResult(failure=f"timed out after {hook.timeout_seconds:g} s")

    async def _run_callback(self, hook: Hook, stdin: bytes) -> HookResult:
        """Run an SDK callback within its timeout."""
        with anyio.move_on_after(hook.timeout_seconds):
            answer = await self._callbacks[hook.command](msgspec.json.decode(stdin))
            return HookResult(msgspec.json.encode({} if answer is None else answer).decode())
        late = f"timed out after {hook.timeout_seconds:g} s"
        if hook.event == "PreToolUse":  # a guard that hangs must not let things pass
            return HookResult(msgspec.json.encode({"decision": "block", "reason": late}).decode())
        return HookResult(failure=late)

    # --- commands ---------------------------------------------------------------------------------

    async def _run_command(
        self, hook: Hook, context: HookContext, *, stdin: bytes
    ) -> tuple[HookResult, tuple[tuple[str, str], ...]]:
        """Run a command hook; return its result and the variables that it exports."""
        command = self._build_command(hook, context, stdin)
        if hook.event not in ENV_FILE_EVENTS or command.sandbox is not None:
            return await self._finish_command(hook, command), ()
        self._count += 1
        file = self._place.folder / f"hook-env-{self._count}"
        file.touch(mode=0o600)
        variables = {**command.env, "CLAUDE_ENV_FILE": str(file)}
        try:
            said = await self._finish_command(hook, msgspec.structs.replace(command, env=variables))
            return said, tuple(
                parse_export_lines(file.read_bytes().decode(errors="replace"), os.environ)
            )
        finally:
            file.unlink(missing_ok=True)

    async def _finish_command(self, hook: Hook, command: Command) -> HookResult:
        done = await self._processes.run(command, timeout=hook.timeout_seconds)
        if done.timed_out:
            return HookResult(failure=f"timed out after {hook.timeout_seconds:g} s")
        return HookResult(_decode_captured(done.output), _decode_captured(done.errors), done.status)

    def _build_command(self, hook: Hook, context: HookContext, stdin: bytes) -> Command:
        root = self._place.root
        return Command(
            _build_argv(hook, root),
            context.cwd if os.path.isdir(context.cwd) else root,
            env=self._build_environment(hook, context),
            stdin=stdin,
            keep=MAX_HOOK_OUTPUT_BYTES,
            stderr="merge" if hook.rewake else "apart",
            sandbox=self._choose_sandbox(hook),
        )

    def _choose_sandbox(self, hook: Hook) -> SandboxProfile | None:
        """Return the sandbox profile for a hook; raise OSError if a required one is missing.

        Only a hook of the user's own may opt out of the sandbox that settings require.
        """
        wanted = self._place.sandboxed
        if hook.sandbox is not None and (hook.sandbox or hook.own):
            wanted = hook.sandbox
        profile = self._place.sandbox(find_named_folders(hook.name)) if wanted else None
        if wanted and profile is None:
            raise OSError(ENOTSUP, "it must run in the sandbox, which is not available here")
        return profile

    def _build_environment(self, hook: Hook, context: HookContext) -> dict[str, str]:
        """Build the environment variables that hook programs expect."""
        root, session = self._place.root, self._place.session
        told = {"CLAUDE_PLUGIN_ROOT": hook.plugin, "CLAUDE_PLUGIN_DATA": hook.keeps}
        if hook.keeps:
            os.makedirs(hook.keeps, exist_ok=True)
        return {
            **{name: "" for name in os.environ if name.startswith("OTEL_")},  # ours, not theirs
            "CLAUDE_PROJECT_DIR": root,
            "CLAUDE_CODE_SESSION_ID": session,
            **{name: value for name, value in told.items() if value},
            **({"CLAUDE_EFFORT": context.effort} if context.effort else {}),
            **(
                dict(zip(GEMINI_VARIABLES, (root, context.cwd, session), strict=True))
                if hook.dialect
                else {}
            ),
            **_pick_allowed_variables(hook),
        }

    async def _start_background(self, hook: Hook, context: HookContext, *, stdin: bytes) -> str:
        """Start a hook in the background; its run is recorded when it has ended."""
        self._count += 1
        command = self._build_command(hook, context, stdin)
        job = await self._processes.start(command, id=f"hook-{self._count}")
        deadline = anyio.current_time() + hook.timeout_seconds
        self._background.append(BackgroundHook(hook, job, context.call, deadline))
        return ""

    def _take_finished(self) -> list[BackgroundHook]:
        """Remove and return the background hooks that have ended or timed out."""
        now = anyio.current_time()
        over = [b for b in self._background if b.job.status is not None or now > b.deadline]
        self._background = [b for b in self._background if b not in over]
        return over

    async def _collect_background(
        self, over: BackgroundHook, record: RecordHookRun
    ) -> HookDecision:
        """Collect the output of a background hook; it can no longer block anything."""
        hook, job = over.hook, over.job
        if job.status is None:
            await job.kill()
            said = HookResult(failure=f"timed out after {hook.timeout_seconds:g} s")
        else:
            out = _decode_captured(job.take_output())
            said = HookResult(out, out if hook.rewake else "", await job.wait())
        heard, outcome = interpret_hook_result(hook, said)
        record(Hooked(hook.event, hook.name, outcome, over.call))
        woken = (said.error,) if hook.rewake and said.status == 2 else ()
        return HookDecision(context=(*heard.context, *woken), messages=heard.messages)

    # --- URLs -------------------------------------------------------------------------------------

    async def _post_event(self, hook: Hook, body: bytes) -> HookResult:
        """Send the payload to the hook's URL and return the reply."""
        if self._reach.urls and not any(_matches_url(url, hook.url) for url in self._reach.urls):
            return HookResult(failure="not sent: its URL is not in allowedHttpHookUrls")
        travel = create_transport(hook.url, os.environ)
        try:
            with anyio.move_on_after(hook.timeout_seconds):
                return await _exchange_http(
                    travel, hook.url, headers=self._build_headers(hook), body=body
                )
            return HookResult(failure=f"timed out after {hook.timeout_seconds:g} s")
        except ApiError as problem:
            return HookResult(failure=f"could not be reached: {problem.message}")
        finally:
            with anyio.CancelScope(shield=True):
                await travel.aclose()

    def _build_headers(self, hook: Hook) -> tuple[tuple[str, str], ...]:
        """Build the headers, with the variables that both the hook and the settings allow."""
        names = set(hook.allowed_env_vars)
        if self._reach.variables:
            names &= set(self._reach.variables)
        known = {name: os.environ.get(name, "") for name in names}
        filled = ((name, expand_variables(value, known)) for name, value in hook.headers.items())
        plain = tuple((name, re.sub(r"[\r\n\0]", "", value)) for name, value in filled)
        return (("content-type", "application/json"), *plain)


async def _exchange_http(
    travel: Transport, url: str, *, headers: tuple[tuple[str, str], ...], body: bytes
) -> HookResult:
    """Post the payload; a status other than 2xx or an oversized reply is a failure."""
    async with travel.post(url, headers=headers, body=body) as response:
        if not 200 <= response.status < 300:
            return HookResult(failure=f"the server replied with status {response.status}")
        told = bytearray()
        async for chunk in response.chunks:
            told += chunk
            if len(told) > MAX_HOOK_OUTPUT_BYTES:
                return HookResult(
                    failure=f"the server replied with more than {MAX_HOOK_OUTPUT_BYTES:,} bytes"
                )
        return HookResult(told.decode(errors="replace"))


def _encode_payload(event: dict[str, object]) -> bytes:
    """Encode the payload of a hook as JSON, escaping lone surrogates."""
    try:
        return msgspec.json.encode(event)
    except UnicodeEncodeError:  # half a character, which only escapes can say
        return dumps(event).encode()


def _build_argv(hook: Hook, root: str) -> tuple[str, ...]:
    """Return the program to run: with `args` directly, without them through a shell."""
    if hook.args is not None:
        return tuple(
            word.replace(PROJECT_DIR_PLACEHOLDER, root) for word in (hook.command, *hook.args)
        )
    line = (
        hook.command.replace(PROJECT_DIR_PLACEHOLDER, root)
        if SHELL_SAFE_PATH.fullmatch(root)
        else hook.command
    )
    if hook.shell == "powershell":
        return ("pwsh", "-NoProfile", "-NonInteractive", "-Command", line)
    return ("bash", "-c", line)


def _pick_allowed_variables(hook: Hook) -> dict[str, str]:
    """Return the variables that a hook of the user's own asks for by name."""
    names = hook.env if hook.own else ()
    return {name: os.environ[name] for name in names if name in os.environ}


def _decode_captured(captured: CapturedOutput) -> str:
    """Decode captured output, with a note about omitted bytes."""
    head, tail = (part.decode(errors="replace") for part in (captured.head, captured.tail))
    if not captured.missing_bytes:
        return captured.head_and_tail().decode(errors="replace")
    return f"{head}\n[{captured.missing_bytes:,} bytes omitted]\n{tail}"


def _matches_url(pattern: str, url: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), url) is not None


def expand_variables(text: str, known: Mapping[str, str]) -> str:
    """Replace `$NAME` and `${NAME}` in a text; unknown variables become empty."""
    return VARIABLE_REFERENCE.sub(lambda found: known.get(found[1] or found[2], ""), text)


def parse_export_lines(text: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Parse lines such as `export NAME=value` without running anything."""
    known = build_child_environment(environ)
    for line in text.splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        for word in words[words[:1] == ["export"] :]:
            name, equals, value = word.partition("=")
            if equals and name.isidentifier():
                known[name] = value if "'" in line else expand_variables(value, known)
                yield name, known[name]
