"""A plain prompt loop: type, watch, answer questions."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from contextlib import aclosing

import anyio

from travois.app.flags import chosen
from travois.app.sdk import Session
from travois.engine.ports import Answer, Event, Question, Retrying, Running, Warned
from travois.kernel.blocks import words
from travois.kernel.facts import Ended, Entry, Result
from travois.wire.replies import BlockEnded, Grew

HINT = "Type what to do. Ctrl-C stops a turn, Ctrl-D leaves.\n"
CONTROL = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")
"""What a tool or a model may not do to the terminal."""


def talk(args: Namespace) -> int:
    """Talk in the terminal until the user leaves; returns the exit code."""
    if not sys.stdin.isatty():
        from travois.app.once import once

        return once(args)
    return anyio.run(_talk, args)


async def _talk(args: Namespace) -> int:
    keyboard = Keyboard()
    async with Session(chosen(args), person=keyboard) as session:
        show(f"Travois · {session.crew.model.name} · {session.crew.agent.world.root}\n{HINT}")
        async with anyio.create_task_group() as group:
            group.start_soon(_watch_interrupts, session)
            await _converse(session, keyboard, first=args.prompt or "")
            group.cancel_scope.cancel()
        show(f"\nResume with: travois --resume {session.id}\n")
    return 0


async def _converse(session: Session, keyboard: Keyboard, *, first: str) -> None:
    text: str | None = first
    while text is not None:
        if text.strip():
            await _turn(session, text)
        text = await keyboard.line("> ")


async def _watch_interrupts(session: Session) -> None:
    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        async for _ in signals:
            if session.running:
                session.stop()
            else:
                show("\n(Ctrl-D leaves)\n> ")


async def _turn(session: Session, text: str) -> None:
    async with aclosing(session.run(text)) as events:
        async for event in events:
            show(_told(event))


def _told(event: Event) -> str:
    match event:
        case Grew(kind="text", text=text):
            return text
        case BlockEnded():
            return "\n"
        case Running(name=name):
            return f"· {name} …\n"
        case Retrying():
            return f"· {event.message}; trying again in {event.wait:.1f} s\n"
        case Warned(text=text):
            return f"· {text}\n"
        case Entry(fact=Result() as result) if result.error:
            return f"· {words(result.content).strip()[:300]}\n"
        case Entry(fact=Ended() as ended) if ended.why != "end":
            return f"· {ended.detail or ended.why}\n"
        case _:
            return ""


def show(text: str) -> None:
    """Print without letting anything but words and lines reach the terminal."""
    sys.stdout.write(text.translate(CONTROL))
    sys.stdout.flush()


class Keyboard:
    """The person at the terminal."""

    def __init__(self) -> None:
        self._pending = b""

    async def line(self, prompt: str) -> str | None:
        """One line that they type; None when they leave."""
        show(prompt)
        while b"\n" not in self._pending:
            await anyio.wait_readable(0)
            chunk = os.read(0, 1 << 16)
            if not chunk:
                return None
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode("utf-8", "replace")

    async def decide(self, question: Question) -> Answer:
        """Ask whether a call may run."""
        show(f"\n{question.tool}: {question.summary}\n  {question.args}\n  ({question.because})\n")
        answer = await self.line("Run it? [y]es / no, and why: ")
        if answer is not None and answer.strip().lower() in ("y", "yes"):
            return Answer(allow=True, reason="the user said yes")
        return Answer(allow=False, reason=f"the user said no{': ' + answer if answer else ''}")
