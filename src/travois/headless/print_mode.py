"""Print mode (`-p`): one task or a stream of them, then exit."""

from __future__ import annotations

from argparse import Namespace

import anyio

from travois.commands.flags import options_from_args
from travois.compose import commands
from travois.compose.live_session import LiveSession
from travois.core.content import TextOrMedia
from travois.core.display_text import write_stderr
from travois.headless import prompt_input
from travois.headless.run import HeadlessRun
from travois.lazy_imports import lazy_imports

with lazy_imports():
    from travois.headless.control import session as control_session


def run_headless(args: Namespace) -> int:
    """Run print mode (`-p`) or a controlled session; return the exit code."""
    prompt = ()
    if args.input_format == "text":
        goes_on = bool(args.latest or args.resume or args.resume_or_create)
        prompt = prompt_input.read_text_prompt(args.prompt or "", optional=goes_on)
    return anyio.run(_run_headless, args, prompt)


def run_setup_hooks(args: Namespace) -> int:
    """Open and close a session so that its setup hooks run; return the exit code."""

    async def open_and_close() -> None:
        async with LiveSession(options_from_args(args)) as session:
            notices = session.runtime.notices
        for notice in (*notices, *session.parting):
            write_stderr(f"travois: {notice}\n")

    anyio.run(open_and_close)
    return 0


async def _run_headless(args: Namespace, prompt: tuple[TextOrMedia, ...]) -> int:
    """Run a controlled session, or a single turn."""
    run = HeadlessRun(args)
    if args.input_format == "stream-json":
        await control_session.ControlSession(args, run).run_until_closed()
        return run.code
    async with run.create_session(args) as session, anyio.create_task_group() as group:
        run.starting.close()
        group.start_soon(run.watch_signals, group.cancel_scope)
        run.follow_subagents(session, group)
        for notice in session.runtime.notices:
            write_stderr(f"travois: {notice}\n")
        if not prompt or run.was_prompted(session):
            await run.continue_last_turn(session)
        else:
            await run.run_turn(
                session, await commands.expand_typed_command(session, run.commands, prompt)
            )
        await run.finish_memory(session)
        group.cancel_scope.cancel()
    for notice in session.parting:
        write_stderr(f"travois: {notice}\n")
    return run.code
