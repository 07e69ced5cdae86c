"""/resume, /fork, /rename and /inspect: this session among the others."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

import anyio
from anyio.streams.text import TextReceiveStream
from msgspec.structs import replace

from travois.compose.options import PICK, Options
from travois.compose.session_picker import Shelf
from travois.core.errors import Fault
from travois.core.facts import Changed
from travois.sdk import Session
from travois.sessions.catalog import Summary, find
from travois.tui.slash import Command, Desk

Browse = Callable[[Shelf], Awaitable[Summary | None]]
PATIENCE = 20.0
_pages: WeakKeyDictionary[Session, str] = WeakKeyDictionary()
"""Where the page of a session can be looked at."""


async def pick_up(browse: Browse, options: Options, *, but: str = "") -> Options | None:
    """The session that a person chooses to go on with; None if they turn away."""
    from travois.compose.session import prepare

    place, _ = prepare(replace(options, resume=""))
    shelf = Shelf(place.home, place.project, but=but)
    found = await browse(shelf)
    return None if found is None else shelf.options(found, options)


async def _resume(desk: Desk, name: str) -> str:
    from travois.compose.session import prepare

    if not name or name == PICK:
        chosen = await pick_up(desk.browse, desk.options, but=desk.session.id)
    else:
        place, _ = prepare(desk.options)
        found = find(place.home, name, project=place.project)
        if found.id == desk.session.id:
            return "This is that session."
        chosen = Shelf(place.home, place.project).options(found, desk.options)
    if chosen is not None:
        desk.turn_to(chosen)
    return ""


async def _fork(desk: Desk, _: str) -> str:
    session = desk.session
    if not session.crew.agent.session.prompted:
        return "Nothing was said yet that a branch could begin with."
    desk.turn_to(replace(desk.options, resume=session.id, latest=False, fork=True, session_id=""))
    return f"Branching off. The session as it was: /resume {session.id[:8]}"


async def _rename(desk: Desk, name: str) -> str:
    if not name:
        raise Fault("A name cannot be empty", fix="For example: /rename the parser")
    known = " ".join(name.split())
    desk.session.crew.agent.session.append(Changed("name", known))
    return f"It is called so: /resume {known}"


async def _inspect(desk: Desk, _: str) -> str:
    session = desk.session
    if session not in _pages:
        _pages[session] = await _shown(session)
    return f"The page shows this session while it is open:\n{_pages[session]}"


async def _shown(session: Session) -> str:
    """Start the page in a process of its own, which ends with the session; gives its address."""
    send, receive = anyio.create_memory_object_stream[str](1)
    beside = session.crew.agent.background
    assert beside is not None

    async def serve() -> None:
        command = (sys.executable, "-m", "travois", "inspect", session.id)
        async with await anyio.open_process(command) as process:
            assert process.stdout is not None and process.stderr is not None
            async for text in TextReceiveStream(process.stdout):
                send.send_nowait(text.partition("\n")[0])
                break
            async for text in TextReceiveStream(process.stderr):
                send.send_nowait(text)

    beside(serve)
    with anyio.move_on_after(PATIENCE):
        told = await receive.receive()
        if told.startswith("http"):
            return told
        raise Fault("The page cannot be shown", why=told.removeprefix("travois: ").strip())
    raise Fault("The page cannot be shown", why="it does not start")


COMMANDS = {
    "resume": Command("/resume [ID|NAME]", "go on with another session", _resume),
    "fork": Command("/fork", "branch off here; the session stays as it is", _fork),
    "rename": Command("/rename NAME", "give this session a name", _rename, when="ever"),
    "inspect": Command(
        "/inspect", "look inside this session in the browser", _inspect, when="ever"
    ),
}
