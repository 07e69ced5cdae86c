"""The port of hooks: what they are told, what they answer, and what many answers come to."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Literal, Protocol

import msgspec

from travois.core.facts import Hooked
from travois.hooks.config import Hook
from travois.hooks.events import AnyOccasion
from travois.permissions.rules import Use

STATUSES = (126, 127)
"""With which a shell says that it could not start a program."""


class Around(msgspec.Struct, frozen=True):
    """What every hook is told besides the event itself."""

    cwd: str
    mode: str
    call: str = ""
    use: Use | None = None
    """The call as rules see it, for hooks with a condition."""
    agent: str = ""
    """The child that this is about; empty for the agent that a person talks to."""
    kind: str = ""
    effort: str = ""
    """How much the model is asked to think; empty if that is left to it."""
    model: str = ""
    turn: str = ""
    """The turn that runs, or ran last; empty before the first one."""
    at: float = 0.0
    transcript: str = ""
    """Where the session can be read; empty for its log."""


def told(
    occasion: AnyOccasion, around: Around, *, session: str, transcript: str
) -> dict[str, object]:
    """What a hook hears of this, in the shape that other agents give it."""
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
    """Whoever listens to a session."""

    async def fire(
        self,
        occasion: AnyOccasion,
        around: Around,
        *,
        record: Callable[[Hooked], object],
        within: Within | None = None,
        show: Callable[[str], object] = lambda text: None,
    ) -> Heard:
        """Let all who listen hear of this, side by side; each run is recorded as it ends.

        `within` answers for hooks that are no programs; without it they cannot run. `show` lets the
        person read what goes on.
        """
        ...

    @property
    def watched(self) -> Iterable[str]:
        """The files whose changes somebody wants to hear of."""
        ...

    def join(self, hooks: tuple[Hook, ...], *, gone: tuple[Hook, ...] = ()) -> None:
        """Let these listen, too, from here on, and some no longer."""
        ...


class Said(msgspec.Struct, frozen=True):
    """How one handler ended: its status and words, or why there are none."""

    out: str = ""
    error: str = ""
    status: int = 0
    failure: str = ""
    """Why it has no say: it could not start, or ran out of time."""


Within = Callable[[Hook, bytes], Awaitable[Said]]
"""What a hook says that the session itself runs, of what it is told as JSON."""


class Heard(msgspec.Struct, frozen=True):
    """What hooks want, all taken together."""

    block: str = ""
    """Why what was about to happen must not; for `Stop`, what is still to be done."""
    decision: Literal["", "allow", "ask", "defer"] = ""
    reason: str = ""
    input: str = ""
    """The whole input that a call should have instead, as JSON text."""
    output: str = ""
    """What a call should have brought instead, as JSON text."""
    context: tuple[str, ...] = ()
    """For the model."""
    messages: tuple[str, ...] = ()
    """For the user."""
    stop: str = ""
    """Why all work should end."""
    title: str = ""
    updates: tuple[msgspec.Raw, ...] = ()
    """Changes of permissions."""
    retry: bool = False
    exports: tuple[tuple[str, str], ...] = ()
    """Variables for the commands that follow."""
    watch: tuple[str, ...] = ()
    """Files whose changes should be told."""
    signal: str = ""
    """What the terminal should do: ring, or show a title or a message."""
    action: Literal["", "accept", "decline", "cancel"] = ""
    """The answer to a server's question."""
    content: str = ""
    """What was filled in for it, as JSON text."""


SILENCE = Heard()
NOTHING = msgspec.Raw()


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """A hook's word in place of the person's."""

    behavior: Literal["allow", "deny"]
    message: str = ""
    interrupt: bool = False
    updated_input: msgspec.Raw = NOTHING
    updated_permissions: tuple[msgspec.Raw, ...] = ()


class Specific(msgspec.Struct, frozen=True, rename="camel"):
    """What only some events honour."""

    additional_context: str = ""
    custom_instructions: str = ""
    """What the summariser should heed, at PreCompact."""
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
"""What a hook may have a terminal do; nothing that moves the cursor or changes the screen."""
MUTE = "a hook blocked it without saying why"


def understand(hook: Hook, said: Said) -> tuple[Heard, str]:
    """What a handler wants, and how it ended in a few words."""
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
        wrong = f"{label(hook)} printed JSON that cannot be used: {output}"
        if hook.on_failure == "block" and hook.event in GATES:
            return Heard(block=wrong, messages=(wrong,)), f"bad JSON: {output}"
        return msgspec.structs.replace(heard, messages=(wrong,)), f"exit 0, bad JSON: {output}"
    return heard, "exit 0"


def label(hook: Hook) -> str:
    """Which hook this is, for people."""
    return f"the {hook.event} hook {_line(hook.name)!r}"


def _line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 200 else line[:199] + "…"


def _json(text: str) -> Output | str:
    """The output if it is JSON; else what is wrong with it, or nothing if it is plain text."""
    if not text.lstrip().startswith("{"):
        return ""
    try:
        return msgspec.json.decode(text, type=Output)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        return str(error)


def _failed(hook: Hook, why: str) -> Heard:
    """A hook without an answer stops nothing, unless it was told to."""
    message = f"{label(hook)} {why}" if why.startswith("could") else f"{label(hook)}: {why}"
    shut = hook.on_failure == "block" and hook.event in GATES
    return Heard(block=message if shut else "", messages=(message,))


def _blocking(hook: Hook, why: str) -> tuple[Heard, str]:
    if hook.event in GATES and hook.event != "PermissionRequest":
        return Heard(block=why), f"blocked: {_line(why)}"
    return Heard(messages=(why,) if hook.event in TELLING else ()), f"exit 2: {_line(why)}"


def _honoured(hook: Hook, output: Output, *, status: int) -> tuple[Heard, str]:
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
    own = output.specific
    if hook.event == "PermissionRequest":
        refused = own.decision is not None and own.decision.behavior == "deny"
        return (own.decision.message or MUTE) if own.decision and refused else ""
    if hook.event in PERMITTING and own.permission_decision == "deny":
        return own.permission_decision_reason or output.reason or MUTE
    return (output.reason or MUTE) if output.decision == "block" else ""


def _granted(hook: Hook, output: Output) -> Literal["", "allow", "ask", "defer"]:
    own = output.specific
    if hook.event == "PermissionRequest":
        return "allow" if own.decision else ""
    if hook.event not in PERMITTING:
        return ""
    if own.permission_decision and own.permission_decision != "deny":
        return own.permission_decision
    return "allow" if output.decision == "approve" else ""


def _stopped(output: Output) -> str:
    decision = output.specific.decision
    if decision is not None and decision.behavior == "deny" and decision.interrupt:
        return decision.message or "a hook stopped the turn"
    return "" if output.going_on else output.stop_reason or "a hook stopped the turn"


def _text(raw: msgspec.Raw) -> str:
    return "" if bytes(raw) == b"null" else bytes(raw).decode()


def _outcome(heard: Heard, status: int) -> str:
    done = [f"blocked: {_line(heard.block)}"] if heard.block else []
    done += [f"stopped: {_line(heard.stop)}"] if heard.stop else []
    done += [f"decided: {heard.decision}"] if heard.decision else []
    done += ["changed the input"] if heard.input else []
    done += ["changed the output"] if heard.output else []
    return ", ".join(done) or f"exit {status}"


RANKS: tuple[Literal["defer", "ask", "allow"], ...] = ("defer", "ask", "allow")


def merge(all_heard: Iterable[Heard]) -> Heard:
    """One answer out of many: any block blocks; then defer, ask, allow; the first of equals."""
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
