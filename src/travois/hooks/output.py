"""Hook payloads and output: building the JSON, interpreting the output, merging decisions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Literal, Protocol

import msgspec

from travois.core.facts import Hooked
from travois.core.patterns import compile_lazily
from travois.hooks.config import Hook
from travois.hooks.events import AnyHookEvent
from travois.permissions.rules import ToolUse

NOT_STARTED_STATUSES = (126, 127)
"""Exit statuses with which a shell reports that it could not start a program."""


class HookContext(msgspec.Struct, frozen=True):
    """The context that every hook receives besides the event."""

    cwd: str
    mode: str
    call: str = ""
    use: ToolUse | None = None
    """The call as rules see it, for hooks with a condition."""
    agent: str = ""
    """The child that this is about; empty for the agent that a person talks to."""
    kind: str = ""
    effort: str = ""
    """The model's effort; empty for its default."""
    model: str = ""
    turn: str = ""
    """The turn that runs, or ran last; empty before the first one."""
    at: float = 0.0
    transcript: str = ""
    """The path of the readable transcript; empty for the session log."""


def build_hook_payload(
    occasion: AnyHookEvent, context: HookContext, *, session: str, transcript: str
) -> dict[str, object]:
    """Build the JSON payload for a hook event (Claude Code's field names)."""
    child = {"agent_id": context.agent, "agent_type": context.kind} if context.agent else {}
    turn = {"prompt_id": context.turn, "turn_id": context.turn} if context.turn else {}
    return {
        "session_id": session,
        "transcript_path": context.transcript or transcript,
        "cwd": context.cwd,
        "permission_mode": context.mode,
        "model": context.model,
        **turn,
        **child,
        **({"effort": {"level": context.effort}} if context.effort else {}),
        **msgspec.to_builtins(occasion),
    }


class Hooks(Protocol):
    """The hooks of a session."""

    async def fire(
        self,
        occasion: AnyHookEvent,
        context: HookContext,
        *,
        record: Callable[[Hooked], object],
        runner: ModelHookRunner | None = None,
        show: Callable[[str], object] = lambda text: None,
    ) -> HookDecision:
        """Run the matching hooks in parallel, and record each run as it ends.

        `within` runs hooks that are not commands; without it they cannot run. `show` displays
        status messages to the user.
        """
        ...

    @property
    def files_to_watch(self) -> Iterable[str]:
        """Return the files that FileChanged hooks watch."""
        ...

    def update(self, hooks: tuple[Hook, ...], *, gone: tuple[Hook, ...] = ()) -> None:
        """Add hooks for later events, and remove the ones in `gone`."""
        ...


class HookResult(msgspec.Struct, frozen=True):
    """The result of one hook: its exit status and output, or why it failed."""

    out: str = ""
    error: str = ""
    status: int = 0
    failure: str = ""
    """The reason why the hook has no say: it could not start, or timed out."""


ModelHookRunner = Callable[[Hook, bytes], Awaitable[HookResult]]
"""Runs a hook that is not a command, with its JSON payload."""


class HookDecision(msgspec.Struct, frozen=True):
    """The merged decision of all hooks for one event."""

    block: str = ""
    """The reason for a block; for `Stop`, the work that remains."""
    decision: Literal["", "allow", "ask", "defer"] = ""
    reason: str = ""
    input: str = ""
    """The whole input that a call should have instead, as JSON text."""
    output: str = ""
    """The output that replaces a call's result, as JSON text."""
    context: tuple[str, ...] = ()
    """For the model."""
    messages: tuple[str, ...] = ()
    """For the user."""
    stop: str = ""
    """The reason to end all work."""
    title: str = ""
    updates: tuple[msgspec.Raw, ...] = ()
    """Changes of permissions."""
    retry: bool = False
    exports: tuple[tuple[str, str], ...] = ()
    """Variables for the commands that follow."""
    watch: tuple[str, ...] = ()
    """Files whose changes should be told."""
    signal: str = ""
    """A terminal escape sequence: a bell, a title or a notification."""
    action: Literal["", "accept", "decline", "cancel"] = ""
    """The answer to a server's question."""
    content: str = ""
    """The content of an elicitation answer, as JSON text."""


NO_DECISION = HookDecision()
UNSET_JSON = msgspec.Raw()


class HookPermissionDecision(msgspec.Struct, frozen=True, rename="camel"):
    """A hook's answer to a permission request."""

    behavior: Literal["allow", "deny"]
    message: str = ""
    interrupt: bool = False
    updated_input: msgspec.Raw = UNSET_JSON
    updated_permissions: tuple[msgspec.Raw, ...] = ()


class HookSpecificOutput(msgspec.Struct, frozen=True, rename="camel"):
    """The output fields that only some events honour."""

    additional_context: str = ""
    custom_instructions: str = ""
    """Instructions for the summariser, at PreCompact."""
    initial_user_message: str = ""
    session_title: str = ""
    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str = ""
    updated_input: msgspec.Raw = UNSET_JSON
    updated_tool_output: msgspec.Raw = UNSET_JSON
    updated_mcp_tool_output: msgspec.Raw = msgspec.field(
        default=UNSET_JSON, name="updatedMCPToolOutput"
    )
    decision: HookPermissionDecision | None = None
    retry: bool = False
    watch_paths: tuple[str, ...] = ()
    action: Literal["", "accept", "decline", "cancel"] = ""
    content: msgspec.Raw = UNSET_JSON


class HookOutput(msgspec.Struct, frozen=True, rename="camel"):
    """The JSON that a hook may print."""

    going_on: bool = msgspec.field(default=True, name="continue")
    stop_reason: str = ""
    system_message: str = ""
    decision: Literal["approve", "block"] | None = None
    reason: str = ""
    terminal_sequence: str = ""
    specific: HookSpecificOutput = msgspec.field(
        default=HookSpecificOutput(), name="hookSpecificOutput"
    )


BLOCKING_EVENTS = frozenset(
    (
        *("UserPromptSubmit", "UserPromptExpansion", "PreToolUse", "PermissionRequest"),
        *("PostToolUse", "PostToolUseFailure", "PostToolBatch", "Stop", "SubagentStop"),
        *("PreCompact", "ConfigChange", "PreModelSwitch", "TaskCreated", "TaskCompleted"),
        *("Elicitation", "ElicitationResult"),
    )
)
"""Events at which a hook may block."""
PERMISSION_EVENTS = ("PreToolUse", "PreModelSwitch")
"""Events that a hook may permit."""
USER_MESSAGE_EVENTS = frozenset(
    ("SessionStart", "Setup", "SubagentStart", "SessionEnd", "CwdChanged", "FileChanged")
)
"""Events at which what a blocking hook says goes to the user."""
PLAIN_CONTEXT_EVENTS = frozenset(
    ("SessionStart", "UserPromptSubmit", "UserPromptExpansion", "PreCompact")
)
"""Events at which plain output is context; that of PreCompact is for the summariser."""
TERMINAL_SEQUENCE = compile_lazily(
    r"(?:\x1b\](?:0|1|2|9|99|777);[^\x00-\x1f\x7f]*(?:\x07|\x1b\\)|\x07)+"
)
"""Permitted escape sequences: none that moves the cursor or changes the screen."""
NO_REASON_MESSAGE = "a hook blocked it without giving a reason"


def interpret_hook_result(hook: Hook, result: HookResult) -> tuple[HookDecision, str]:
    """Interpret a hook's result; return its decision and a short outcome for the log."""
    if result.failure:
        return _decide_failure(hook, result.failure), result.failure
    if hook.type == "command" and result.status == 2:
        return _decide_exit_2(hook, result.error.strip() or NO_REASON_MESSAGE)
    output = _parse_hook_output(result.out)
    if isinstance(output, HookOutput):
        return _decide_output(hook, output, status=result.status)
    if result.status in NOT_STARTED_STATUSES and hook.args is None:
        why = f"could not start: {_take_first_line(result.error)}"
        return _decide_failure(hook, why), why
    if result.status:
        why = f"exit {result.status}"
        return _decide_failure(
            hook, f"{why}: {_take_first_line(result.error)}" if result.error.strip() else why
        ), why
    text = result.out.strip()
    heard = HookDecision(context=(text,) if text and hook.event in PLAIN_CONTEXT_EVENTS else ())
    if output:
        wrong = f"{describe_hook(hook)} printed invalid JSON: {output}"
        if hook.on_failure == "block" and hook.event in BLOCKING_EVENTS:
            return HookDecision(block=wrong, messages=(wrong,)), f"bad JSON: {output}"
        return msgspec.structs.replace(heard, messages=(wrong,)), f"exit 0, bad JSON: {output}"
    return heard, "exit 0"


def describe_hook(hook: Hook) -> str:
    """Describe a hook to the user by its event and command."""
    return f"the {hook.event} hook {_take_first_line(hook.name)!r}"


def _take_first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 200 else line[:199] + "…"


def _parse_hook_output(text: str) -> HookOutput | str:
    """Parse a hook's JSON output; return the error as text, empty for plain text."""
    if not text.lstrip().startswith("{"):
        return ""
    try:
        return msgspec.json.decode(text, type=HookOutput)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        return str(error)


def _decide_failure(hook: Hook, why: str) -> HookDecision:
    """Return the decision of a hook that failed: it blocks only if its settings say so."""
    message = (
        f"{describe_hook(hook)} {why}"
        if why.startswith("could")
        else f"{describe_hook(hook)}: {why}"
    )
    shut = hook.on_failure == "block" and hook.event in BLOCKING_EVENTS
    return HookDecision(block=message if shut else "", messages=(message,))


def _decide_exit_2(hook: Hook, why: str) -> tuple[HookDecision, str]:
    """Return the decision of a hook that exited with status 2."""
    if hook.event in BLOCKING_EVENTS and hook.event != "PermissionRequest":
        return HookDecision(block=why), f"blocked: {_take_first_line(why)}"
    return HookDecision(
        messages=(why,) if hook.event in USER_MESSAGE_EVENTS else ()
    ), f"exit 2: {_take_first_line(why)}"


def _decide_output(hook: Hook, output: HookOutput, *, status: int) -> tuple[HookDecision, str]:
    """Return the decision of a hook that printed JSON, by the fields its event supports."""
    own, gate = output.specific, hook.event in BLOCKING_EVENTS
    block = _get_block_reason(hook, output) if gate else ""
    updated = own.decision.updated_input if own.decision else own.updated_input
    rewritten = _decode_raw(own.updated_tool_output) or _decode_raw(own.updated_mcp_tool_output)
    extra = own.custom_instructions if hook.event == "PreCompact" else own.initial_user_message
    texts = (own.additional_context.strip(), extra.strip())
    heard = HookDecision(
        block=block,
        decision=_get_permission_decision(hook, output) if not block else "",
        reason=own.permission_decision_reason or output.reason,
        input=_decode_raw(updated) if hook.event in ("PreToolUse", "PermissionRequest") else "",
        output=rewritten if hook.event == "PostToolUse" else "",
        context=tuple(text for text in texts if text),
        messages=(output.system_message,) if output.system_message else (),
        stop=_get_stop_reason(output),
        title=own.session_title,
        updates=own.decision.updated_permissions if own.decision else (),
        retry=own.retry,
        watch=own.watch_paths,
        signal=output.terminal_sequence
        if TERMINAL_SEQUENCE.fullmatch(output.terminal_sequence)
        else "",
        action=own.action,
        content=_decode_raw(own.content),
    )
    return heard, _describe_outcome(heard, status)


def _get_block_reason(hook: Hook, output: HookOutput) -> str:
    """Return why a hook's output blocks the event, else empty."""
    own = output.specific
    if hook.event == "PermissionRequest":
        refused = own.decision is not None and own.decision.behavior == "deny"
        return (own.decision.message or NO_REASON_MESSAGE) if own.decision and refused else ""
    if hook.event in PERMISSION_EVENTS and own.permission_decision == "deny":
        return own.permission_decision_reason or output.reason or NO_REASON_MESSAGE
    return (output.reason or NO_REASON_MESSAGE) if output.decision == "block" else ""


def _get_permission_decision(
    hook: Hook, output: HookOutput
) -> Literal["", "allow", "ask", "defer"]:
    """Return a hook output's permission decision, unless it is a denial."""
    own = output.specific
    if hook.event == "PermissionRequest":
        return "allow" if own.decision else ""
    if hook.event not in PERMISSION_EVENTS:
        return ""
    if own.permission_decision and own.permission_decision != "deny":
        return own.permission_decision
    return "allow" if output.decision == "approve" else ""


def _get_stop_reason(output: HookOutput) -> str:
    """Return why a hook's output ends the turn, else empty."""
    decision = output.specific.decision
    if decision is not None and decision.behavior == "deny" and decision.interrupt:
        return decision.message or "a hook stopped the turn"
    return "" if output.going_on else output.stop_reason or "a hook stopped the turn"


def _decode_raw(raw: msgspec.Raw) -> str:
    return "" if bytes(raw) == b"null" else bytes(raw).decode()


def _describe_outcome(decision: HookDecision, status: int) -> str:
    """Describe a hook's decision in a few words for the log."""
    done = [f"blocked: {_take_first_line(decision.block)}"] if decision.block else []
    done += [f"stopped: {_take_first_line(decision.stop)}"] if decision.stop else []
    done += [f"decided: {decision.decision}"] if decision.decision else []
    done += ["changed the input"] if decision.input else []
    done += ["changed the output"] if decision.output else []
    return ", ".join(done) or f"exit {status}"


DECISION_ORDER: tuple[Literal["defer", "ask", "allow"], ...] = ("defer", "ask", "allow")


def merge_decisions(all_heard: Iterable[HookDecision]) -> HookDecision:
    """Merge hook decisions: any block wins, then defer, ask, allow; among equals the first."""
    heard = tuple(all_heard)
    if len(heard) < 2:
        return heard[0] if heard else NO_DECISION
    deciding = next(
        (h for rank in DECISION_ORDER for h in heard if h.decision == rank), NO_DECISION
    )
    answering = next((h for h in heard if h.action), NO_DECISION)
    return HookDecision(
        block="\n".join(h.block for h in heard if h.block),
        decision=deciding.decision,
        reason=deciding.reason,
        input=_pick_first(heard, lambda h: h.input),
        output=_pick_first(heard, lambda h: h.output),
        context=tuple(_chain_values(heard, lambda h: h.context)),
        messages=tuple(_chain_values(heard, lambda h: h.messages)),
        stop=_pick_first(heard, lambda h: h.stop),
        title=_pick_first(heard, lambda h: h.title),
        updates=tuple(update for h in heard for update in h.updates),
        retry=any(h.retry for h in heard),
        exports=tuple(pair for h in heard for pair in h.exports),
        watch=tuple(_chain_values(heard, lambda h: h.watch)),
        signal="".join(h.signal for h in heard),
        action=answering.action,
        content=answering.content,
    )


def _pick_first(heard: Iterable[HookDecision], part: Callable[[HookDecision], str]) -> str:
    return next((found for h in heard if (found := part(h))), "")


def _chain_values(
    heard: Iterable[HookDecision], part: Callable[[HookDecision], tuple[str, ...]]
) -> Iterator[str]:
    """Yield the values of one field from all hook decisions, in order."""
    for h in heard:
        yield from part(h)
