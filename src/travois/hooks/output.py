"""The payload of hooks, the meaning of their output, and the merging of several outputs."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Literal, Protocol

import msgspec

from travois.core.facts import Hooked
from travois.hooks.config import Hook
from travois.hooks.events import AnyOccasion
from travois.permissions.rules import ToolUse

STATUSES = (126, 127)
"""Exit statuses with which a shell reports that it could not start a program."""


class Around(msgspec.Struct, frozen=True):
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


def told(
    occasion: AnyOccasion, around: Around, *, session: str, transcript: str
) -> dict[str, object]:
    """Build the JSON payload for a hook event (Claude Code's field names)."""
    child = {"agent_id": around.agent, "agent_type": around.kind} if around.agent else {}
    turn = {"prompt_id": around.turn, "turn_id": around.turn} if around.turn else {}
    return {
        "session_id": session,
        "transcript_path": around.transcript or transcript,
        "cwd": around.cwd,
        "permission_mode": around.mode,
        "model": around.model,
        **turn,
        **child,
        **({"effort": {"level": around.effort}} if around.effort else {}),
        **msgspec.to_builtins(occasion),
    }


class Hooks(Protocol):
    """The hooks of a session."""

    async def fire(
        self,
        occasion: AnyOccasion,
        around: Around,
        *,
        record: Callable[[Hooked], object],
        within: Within | None = None,
        show: Callable[[str], object] = lambda text: None,
    ) -> Heard:
        """Run the matching hooks in parallel, and record each run as it ends.

        `within` runs hooks that are not commands; without it they cannot run. `show` displays
        status messages to the user.
        """
        ...

    @property
    def watched(self) -> Iterable[str]:
        """Return the files that FileChanged hooks watch."""
        ...

    def join(self, hooks: tuple[Hook, ...], *, gone: tuple[Hook, ...] = ()) -> None:
        """Add hooks for later events, and remove the ones in `gone`."""
        ...


class Said(msgspec.Struct, frozen=True):
    """The result of one hook: its exit status and output, or why it failed."""

    out: str = ""
    error: str = ""
    status: int = 0
    failure: str = ""
    """The reason why the hook has no say: it could not start, or timed out."""


Within = Callable[[Hook, bytes], Awaitable[Said]]
"""Runs a hook that is not a command, with its JSON payload."""


class Heard(msgspec.Struct, frozen=True):
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


SILENCE = Heard()
NOTHING = msgspec.Raw()


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """A hook's answer to a permission request."""

    behavior: Literal["allow", "deny"]
    message: str = ""
    interrupt: bool = False
    updated_input: msgspec.Raw = NOTHING
    updated_permissions: tuple[msgspec.Raw, ...] = ()


class Specific(msgspec.Struct, frozen=True, rename="camel"):
    """The output fields that only some events honour."""

    additional_context: str = ""
    custom_instructions: str = ""
    """Instructions for the summariser, at PreCompact."""
    initial_user_message: str = ""
    session_title: str = ""
    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str = ""
    updated_input: msgspec.Raw = NOTHING
    updated_tool_output: msgspec.Raw = NOTHING
    updated_mcp_tool_output: msgspec.Raw = msgspec.field(
        default=NOTHING, name="updatedMCPToolOutput"
    )
    decision: Decision | None = None
    retry: bool = False
    watch_paths: tuple[str, ...] = ()
    action: Literal["", "accept", "decline", "cancel"] = ""
    content: msgspec.Raw = NOTHING


class Output(msgspec.Struct, frozen=True, rename="camel"):
    """The JSON that a hook may print."""

    going_on: bool = msgspec.field(default=True, name="continue")
    stop_reason: str = ""
    system_message: str = ""
    decision: Literal["approve", "block"] | None = None
    reason: str = ""
    terminal_sequence: str = ""
    specific: Specific = msgspec.field(default=Specific(), name="hookSpecificOutput")


GATES = frozenset(
    (
        *("UserPromptSubmit", "UserPromptExpansion", "PreToolUse", "PermissionRequest"),
        *("PostToolUse", "PostToolUseFailure", "PostToolBatch", "Stop", "SubagentStop"),
        *("PreCompact", "ConfigChange", "PreModelSwitch", "TaskCreated", "TaskCompleted"),
        *("Elicitation", "ElicitationResult"),
    )
)
"""Events at which a hook may block."""
PERMITTING = ("PreToolUse", "PreModelSwitch")
"""Events that a hook may permit."""
TELLING = frozenset(
    ("SessionStart", "Setup", "SubagentStart", "SessionEnd", "CwdChanged", "FileChanged")
)
"""Events at which what a blocking hook says goes to the user."""
PLAIN = frozenset(("SessionStart", "UserPromptSubmit", "UserPromptExpansion", "PreCompact"))
"""Events at which plain output is context; that of PreCompact is for the summariser."""
SIGNAL = re.compile(r"(?:\x1b\](?:0|1|2|9|99|777);[^\x00-\x1f\x7f]*(?:\x07|\x1b\\)|\x07)+")
"""Permitted escape sequences: none that moves the cursor or changes the screen."""
MUTE = "a hook blocked it without giving a reason"


def understand(hook: Hook, said: Said) -> tuple[Heard, str]:
    """Interpret a hook's result; return its decision and a short outcome for the log."""
    if said.failure:
        return _failed(hook, said.failure), said.failure
    if hook.type == "command" and said.status == 2:
        return _blocking(hook, said.error.strip() or MUTE)
    output = _json(said.out)
    if isinstance(output, Output):
        return _honoured(hook, output, status=said.status)
    if said.status in STATUSES and hook.args is None:
        why = f"could not start: {_line(said.error)}"
        return _failed(hook, why), why
    if said.status:
        why = f"exit {said.status}"
        return _failed(hook, f"{why}: {_line(said.error)}" if said.error.strip() else why), why
    text = said.out.strip()
    heard = Heard(context=(text,) if text and hook.event in PLAIN else ())
    if output:
        wrong = f"{label(hook)} printed invalid JSON: {output}"
        if hook.on_failure == "block" and hook.event in GATES:
            return Heard(block=wrong, messages=(wrong,)), f"bad JSON: {output}"
        return msgspec.structs.replace(heard, messages=(wrong,)), f"exit 0, bad JSON: {output}"
    return heard, "exit 0"


def label(hook: Hook) -> str:
    """Describe a hook for people, by its event and command."""
    return f"the {hook.event} hook {_line(hook.name)!r}"


def _line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 200 else line[:199] + "…"


def _json(text: str) -> Output | str:
    """Parse JSON output; return the error as text, or an empty string for plain text."""
    if not text.lstrip().startswith("{"):
        return ""
    try:
        return msgspec.json.decode(text, type=Output)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        return str(error)


def _failed(hook: Hook, why: str) -> Heard:
    """Decide for a hook that failed: it blocks only if its settings say so."""
    message = f"{label(hook)} {why}" if why.startswith("could") else f"{label(hook)}: {why}"
    shut = hook.on_failure == "block" and hook.event in GATES
    return Heard(block=message if shut else "", messages=(message,))


def _blocking(hook: Hook, why: str) -> tuple[Heard, str]:
    """Decide for a hook that exited with status 2."""
    if hook.event in GATES and hook.event != "PermissionRequest":
        return Heard(block=why), f"blocked: {_line(why)}"
    return Heard(messages=(why,) if hook.event in TELLING else ()), f"exit 2: {_line(why)}"


def _honoured(hook: Hook, output: Output, *, status: int) -> tuple[Heard, str]:
    """Decide for a hook that printed JSON, by the fields that its event honours."""
    own, gate = output.specific, hook.event in GATES
    block = _denied(hook, output) if gate else ""
    updated = own.decision.updated_input if own.decision else own.updated_input
    rewritten = _text(own.updated_tool_output) or _text(own.updated_mcp_tool_output)
    extra = own.custom_instructions if hook.event == "PreCompact" else own.initial_user_message
    texts = (own.additional_context.strip(), extra.strip())
    heard = Heard(
        block=block,
        decision=_granted(hook, output) if not block else "",
        reason=own.permission_decision_reason or output.reason,
        input=_text(updated) if hook.event in ("PreToolUse", "PermissionRequest") else "",
        output=rewritten if hook.event == "PostToolUse" else "",
        context=tuple(text for text in texts if text),
        messages=(output.system_message,) if output.system_message else (),
        stop=_stopped(output),
        title=own.session_title,
        updates=own.decision.updated_permissions if own.decision else (),
        retry=own.retry,
        watch=own.watch_paths,
        signal=output.terminal_sequence if SIGNAL.fullmatch(output.terminal_sequence) else "",
        action=own.action,
        content=_text(own.content),
    )
    return heard, _outcome(heard, status)


def _denied(hook: Hook, output: Output) -> str:
    """Return why the output blocks the event, or an empty string."""
    own = output.specific
    if hook.event == "PermissionRequest":
        refused = own.decision is not None and own.decision.behavior == "deny"
        return (own.decision.message or MUTE) if own.decision and refused else ""
    if hook.event in PERMITTING and own.permission_decision == "deny":
        return own.permission_decision_reason or output.reason or MUTE
    return (output.reason or MUTE) if output.decision == "block" else ""


def _granted(hook: Hook, output: Output) -> Literal["", "allow", "ask", "defer"]:
    """Return the permission decision of the output, other than a denial."""
    own = output.specific
    if hook.event == "PermissionRequest":
        return "allow" if own.decision else ""
    if hook.event not in PERMITTING:
        return ""
    if own.permission_decision and own.permission_decision != "deny":
        return own.permission_decision
    return "allow" if output.decision == "approve" else ""


def _stopped(output: Output) -> str:
    """Return why the output ends the turn, or an empty string."""
    decision = output.specific.decision
    if decision is not None and decision.behavior == "deny" and decision.interrupt:
        return decision.message or "a hook stopped the turn"
    return "" if output.going_on else output.stop_reason or "a hook stopped the turn"


def _text(raw: msgspec.Raw) -> str:
    return "" if bytes(raw) == b"null" else bytes(raw).decode()


def _outcome(heard: Heard, status: int) -> str:
    """Describe a decision in a few words for the log."""
    done = [f"blocked: {_line(heard.block)}"] if heard.block else []
    done += [f"stopped: {_line(heard.stop)}"] if heard.stop else []
    done += [f"decided: {heard.decision}"] if heard.decision else []
    done += ["changed the input"] if heard.input else []
    done += ["changed the output"] if heard.output else []
    return ", ".join(done) or f"exit {status}"


RANKS: tuple[Literal["defer", "ask", "allow"], ...] = ("defer", "ask", "allow")


def merge(all_heard: Iterable[Heard]) -> Heard:
    """Merge decisions: any block wins, then defer, ask, allow; among equals the first."""
    heard = tuple(all_heard)
    if len(heard) < 2:
        return heard[0] if heard else SILENCE
    deciding = next((h for rank in RANKS for h in heard if h.decision == rank), SILENCE)
    answering = next((h for h in heard if h.action), SILENCE)
    return Heard(
        block="\n".join(h.block for h in heard if h.block),
        decision=deciding.decision,
        reason=deciding.reason,
        input=_first(heard, lambda h: h.input),
        output=_first(heard, lambda h: h.output),
        context=tuple(_all(heard, lambda h: h.context)),
        messages=tuple(_all(heard, lambda h: h.messages)),
        stop=_first(heard, lambda h: h.stop),
        title=_first(heard, lambda h: h.title),
        updates=tuple(update for h in heard for update in h.updates),
        retry=any(h.retry for h in heard),
        exports=tuple(pair for h in heard for pair in h.exports),
        watch=tuple(_all(heard, lambda h: h.watch)),
        signal="".join(h.signal for h in heard),
        action=answering.action,
        content=answering.content,
    )


def _first(heard: Iterable[Heard], part: Callable[[Heard], str]) -> str:
    return next((found for h in heard if (found := part(h))), "")


def _all(heard: Iterable[Heard], part: Callable[[Heard], tuple[str, ...]]) -> Iterator[str]:
    for h in heard:
        yield from part(h)
