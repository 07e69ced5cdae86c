"""`travois acp`: Travois inside an editor, over the Agent Client Protocol."""

from __future__ import annotations

import os
import signal
from argparse import Namespace

import anyio

from travois.acp.protocol import AcpConnection
from travois.acp.server import AcpServer
from travois.commands.flags import chosen, shared
from travois.compose.options import Options
from travois.terminal.tables import Commands, command
from travois.tui.slash_commands import new_session_options

MORE = """\
Your editor starts this command; docs/acp.md has the settings for several editors. Session flags
apply to every session: travois acp --model anthropic/claude-opus-5-5 --permission-mode accept-edits
"""
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def register_acp(commands: Commands) -> None:
    """Add the command."""
    top = command(
        commands, "acp", what="serve an editor over the Agent Client Protocol (stdio)", more=MORE
    )
    shared(top)
    top.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Serve until the editor hangs up; returns the exit code."""
    options = chosen(args)
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else prints, prints where it disturbs nobody
    return anyio.run(_serve, options, out)


async def _serve(options: Options, out: int) -> int:
    code = 0

    async def watch_signals() -> None:
        nonlocal code
        with anyio.open_signal_receiver(*CODES) as signals:
            async for number in signals:
                code = CODES[number]
                group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        async with anyio.create_task_group() as talking:
            group.start_soon(watch_signals)
            peer = AcpConnection(out)
            talks = AcpServer(peer, new_session_options(options), talking)
            await peer.serve(talks.method_handlers(), talking)
            talks.close_all()
        group.cancel_scope.cancel()
    return code
