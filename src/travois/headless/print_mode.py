"""Print mode (`-p`): one task or a stream of them, then exit."""

from __future__ import annotations

from argparse import Namespace

import anyio

from travois.commands.flags import chosen
from travois.compose import commands
from travois.core.content import TextOrMedia
from travois.core.display_text import write_stderr
from travois.headless import prompt_input
from travois.headless.run import Run
from travois.sdk import Session


def once(args: Namespace) -> int:
    """Run headless; return the exit code."""
    prompt = prompt_input.plain(args.prompt or "") if args.input_format == "text" else ()
    return anyio.run(_once, args, prompt)


def set_up(args: Namespace) -> int:
    """Open and close a session so that its setup hooks run; return the exit code."""

    async def main() -> None:
        async with Session(chosen(args)) as session:
            notices = session.crew.notices
        for notice in (*notices, *session.parting):
            write_stderr(f"travois: {notice}\n")

    anyio.run(main)
    return 0


async def _once(args: Namespace, prompt: tuple[TextOrMedia, ...]) -> int:
    """Run a controlled session, or a single turn."""
    run = Run(args)
    if args.input_format == "stream-json":
        from travois.headless.control.session import Driven

        await Driven(args, run).work()
        return run.code
    async with run.opened(args) as session, anyio.create_task_group() as group:
        group.start_soon(run.watch_signals, group.cancel_scope)
        run.attend(session, group)
        for notice in session.crew.notices:
            write_stderr(f"travois: {notice}\n")
        await run.turn(session, await commands.expand_typed_command(session, run.commands, prompt))
        await run.settle(session)
        group.cancel_scope.cancel()
    for notice in session.parting:
        write_stderr(f"travois: {notice}\n")
    return run.code
