"""Slash commands that change the session: resume, fork, rename, inspect."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

import anyio
from anyio.streams.text import TextReceiveStream
from msgspec.structs import replace

from travois.compose.hooks import LeaveReason
from travois.compose.live_session import LiveSession
from travois.compose.options import PICK_SESSION, Options
from travois.compose.session import load_workspace
from travois.compose.session_picker import SessionPicker
from travois.core.errors import UserError
from travois.core.facts import Changed
from travois.sessions.catalog import SessionSummary, find_session
from travois.tui.slash import CommandHost, SlashCommand

# Sessions: /resume, /fork, /rename and /inspect.

SessionChooser = Callable[[SessionPicker], Awaitable[SessionSummary | None]]
INSPECTOR_START_SECONDS = 20.0
_inspector_addresses: WeakKeyDictionary[LiveSession, str] = WeakKeyDictionary()
"""The address of each session's inspector."""


async def choose_session(
    browse: SessionChooser, options: Options, *, but: str = ""
) -> Options | None:
    """Show the session picker for /resume; None if the user cancels."""
    place, _ = load_workspace(replace(options, resume=""))
    picker = SessionPicker(place.home, place.project, but=but)
    found = await browse(picker)
    return None if found is None else picker.resume_options(found, options)


def reason_for_leaving(options: Options | None) -> LeaveReason:
    """Return why a slash command ends the session, given the next one's options."""
    if options is None:
        return "prompt_input_exit"
    return "resume" if options.resume or options.latest else "clear"


async def _run_resume_command(host: CommandHost, name: str) -> str:
    if not name or name == PICK_SESSION:
        chosen = await choose_session(host.pick_session, host.options, but=host.session.id)
    else:
        place, _ = load_workspace(host.options)
        found = find_session(place.home, name, project=place.project)
        if found.id == host.session.id:
            return "You are already in this session."
        chosen = SessionPicker(place.home, place.project).resume_options(found, host.options)
    if chosen is not None:
        host.switch_to(chosen)
    return ""


async def _run_fork_command(host: CommandHost, _: str) -> str:
    session = host.session
    if not session.runtime.agent.session.prompted:
        return "Nothing to fork yet: send a message first."
    kept = replace(host.options, latest=False, session_id="", cleared=False)
    host.switch_to(replace(kept, resume=session.id, fork=True))
    return f"Forked. To return to the original: /resume {session.id[:8]}"


async def _run_rename_command(host: CommandHost, name: str) -> str:
    if not name:
        raise UserError("/rename needs a name", fix="For example: /rename the parser")
    known = " ".join(name.split())
    host.session.runtime.agent.session.append(Changed("name", known))
    return f"Renamed. To resume it: /resume {known}"


async def _run_inspect_command(host: CommandHost, _: str) -> str:
    session = host.session
    if session not in _inspector_addresses:
        _inspector_addresses[session] = await _start_inspector(session)
    return f"View this session in the browser while it is open:\n{_inspector_addresses[session]}"


def find_inspector_address(session: LiveSession) -> str:
    """Return the address of the session's inspector; empty if it does not run."""
    return _inspector_addresses.get(session, "")


async def _start_inspector(session: LiveSession) -> str:
    """Start the inspector as a process that ends with the session; return its address."""
    send, receive = anyio.create_memory_object_stream[str](1)
    beside = session.runtime.agent.runtime.background
    assert beside is not None

    async def serve_inspector() -> None:
        command = (sys.executable, "-m", "travois", "inspect", session.id)
        async with await anyio.open_process(command) as process:
            assert process.stdout is not None and process.stderr is not None
            async for text in TextReceiveStream(process.stdout):
                send.send_nowait(text.partition("\n")[0])
                break
            async for text in TextReceiveStream(process.stderr):
                send.send_nowait(text)

    beside(serve_inspector)
    with anyio.move_on_after(INSPECTOR_START_SECONDS):
        told = await receive.receive()
        if told.startswith("http"):
            return told
        raise UserError("The inspector cannot start", why=told.removeprefix("travois: ").strip())
    raise UserError(
        "The inspector cannot start", why=f"no answer within {INSPECTOR_START_SECONDS:g} s"
    )


SESSION_COMMANDS = {
    "resume": SlashCommand("/resume [ID|NAME]", "resume another session", _run_resume_command),
    "fork": SlashCommand(
        "/fork", "fork this session; the original stays as it is", _run_fork_command
    ),
    "rename": SlashCommand("/rename NAME", "name this session", _run_rename_command, when="ever"),
    "inspect": SlashCommand(
        "/inspect", "inspect this session in the browser", _run_inspect_command, when="ever"
    ),
}
