"""Headless: one task or a stream of them, then exit."""

from __future__ import annotations

import signal
import sys
from argparse import Namespace
from contextlib import aclosing
from time import monotonic

import anyio
import msgspec

from travois.app import custom
from travois.app import input as reading
from travois.app.flags import chosen
from travois.app.sdk import Session
from travois.app.shapes import Object
from travois.app.speak import Speaker
from travois.engine.extract import settled, told
from travois.engine.ports import Event, Warned
from travois.kernel.blocks import Shown, Text
from travois.kernel.facts import Ended, Entry, Noted
from travois.version import __version__

LONGEST = 3_600.0
"""How many seconds agents in the background are waited for after the last word."""
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def once(args: Namespace) -> int:
    """Run headless; returns the exit code."""
    prompt: tuple[Shown, ...] = (Text(args.prompt),) if args.prompt else ()
    if args.input_format == "text":
        prompt = reading.plain(args.prompt or "")
    return anyio.run(_once, args, prompt)


async def _once(args: Namespace, prompt: tuple[Shown, ...]) -> int:
    run = Run(args)
    async with Session(chosen(args)) as session, anyio.create_task_group() as group:
        group.start_soon(run.watch_signals, group.cancel_scope)
        for notice in session.crew.notices:
            sys.stderr.write(f"travois: {notice}\n")
        if prompt:
            await run.turn(session, await custom.said(session, run.commands, prompt))
        if args.input_format == "stream-json":
            await run.listen(session)
        await run.settle(session)
        group.cancel_scope.cancel()
    for notice in session.parting:
        sys.stderr.write(f"travois: {notice}\n")
    return run.code


class Run:
    """One headless run: how it speaks, and how it will end."""

    def __init__(self, args: Namespace) -> None:
        self.code = 0
        self._partial: bool = args.include_partial_messages
        self._replay: bool = args.replay_user_messages
        self._shape: str = args.output_format
        self._alone: bool = args.input_format == "text"
        """Whether nothing more will be asked, so that agents in the background are waited for."""
        self._over = False
        self.commands, notices = custom.known(chosen(args))
        for notice in notices:
            sys.stderr.write(f"travois: {notice}\n")

    async def watch_signals(self, scope: anyio.CancelScope) -> None:
        """The first signal stops the turn and leaves a session to resume; a second one kills."""
        with anyio.open_signal_receiver(*CODES) as signals:
            async for number in signals:
                self.code = self.code if self._over else CODES[number]
                scope.cancel()
                return

    async def settle(self, session: Session) -> None:
        """Let what was said be remembered; from here on nothing changes how the run ended."""
        self._over = True
        if told := await settled(session.crew.agent):
            sys.stderr.write(f"travois: {told}\n")

    async def listen(self, session: Session) -> None:
        """Run a turn for each message that standard input brings."""
        async with aclosing(reading.lines()) as lines:
            async for line in lines:
                if line.type == "control_request":
                    say(_unsupported(line.request_id))
                elif line.type == "user":
                    await self._heard(session, line)
        while await heard(session):
            await self.turn(session, ())

    async def _heard(self, session: Session, line: reading.Line) -> None:
        prompt = reading.content(line, session.crew.agent.world.blobs)
        if self._replay and line.message is not None:
            echo: Object = {"type": "user", "message": msgspec.to_builtins(line.message)}
            say(echo | {"session_id": session.id, "isReplay": True, "parent_tool_use_id": None})
        if prompt:
            await self.turn(session, await custom.said(session, self.commands, prompt))

    async def turn(self, session: Session, prompt: tuple[Shown, ...]) -> None:
        """Run one turn and tell of it."""
        speaker = Speaker(session.id, session.crew.model, partial=self._partial)
        speaker.tally.ended = Ended("aborted", "interrupted")
        start = monotonic()
        self._stream(speaker.opening(_opening(session, tuple(self.commands))))
        try:
            await self._follow(session, prompt, speaker=speaker)
        finally:
            self._finish(speaker, seconds=monotonic() - start)

    async def _follow(
        self, session: Session, prompt: tuple[Shown, ...], *, speaker: Speaker
    ) -> None:
        async with aclosing(session.run(prompt)) as events:
            async for event in events:
                if self._shape != "stream-json" and (notice := _notice(event)):
                    sys.stderr.write(f"travois: {notice}\n")
                for line in speaker.lines(event):
                    self._stream(line)
        if self._alone and speaker.tally.ended.why == "end" and await heard(session):
            await self._follow(session, (), speaker=speaker)

    def _stream(self, line: Object) -> None:
        if self._shape == "stream-json":
            say(line)

    def _finish(self, speaker: Speaker, *, seconds: float) -> None:
        tally = speaker.tally
        self.code = self.code or int(tally.failed)
        if self._shape != "text":
            say(speaker.result(seconds))
            return
        if tally.text:
            sys.stdout.write(tally.text + "\n")
            sys.stdout.flush()
        if tally.failed:
            sys.stderr.write(f"travois: {tally.ended.detail or tally.ended.why}\n")


def _notice(event: Event) -> str:
    match event:
        case Warned(text=text):
            return text
        case Entry(fact=Noted(what="memory", text=text)):
            return told(text)
        case _:
            return ""


async def heard(session: Session) -> bool:
    """Whether an agent in the background has told something; waited for only so long."""
    with anyio.move_on_after(LONGEST):
        return await session.news()
    return False


def _opening(session: Session, commands: tuple[str, ...]) -> Object:
    crew = session.crew
    return {
        "cwd": crew.agent.world.root,
        "model": crew.model.id,
        "tools": list(crew.agent.tools),
        "mcp_servers": [],
        "permissionMode": crew.agent.guard.mode,
        "slash_commands": list(commands),
        "skills": [],
        "agents": list(crew.agent.agents.kinds) if crew.agent.agents else [],
        "plugins": [],
        "output_style": "default",
        "apiKeySource": crew.key_source,
        "claude_code_version": __version__,
    }


def _unsupported(request: str) -> Object:
    answer: Object = {"subtype": "error", "request_id": request}
    answer["error"] = "Travois does not answer control requests yet"
    return {"type": "control_response", "response": answer}


def say(line: Object) -> None:
    """Print one JSON line at once."""
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()
