"""`travois acp`: Travois inside an editor, over the Agent Client Protocol."""

from __future__ import annotations

import os
import signal
from argparse import Namespace

import anyio

from travois.acp.protocol import AcpConnection
from travois.acp.server import AcpServer
from travois.commands.flags import add_session_flags, options_from_args
from travois.compose.options import Options, new_session_options
from travois.terminal import CommandParsers, add_command

ACP_HELP = """\
Your editor starts this command; docs/acp.md has the settings for several editors. Session flags
apply to every session: travois acp --model anthropic/claude-opus-5-5 --permission-mode accept-edits
"""
SIGNAL_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def register_acp(commands: CommandParsers) -> None:
    """Add the `travois acp` command."""
    top = add_command(
        commands,
        "acp",
        what="serve an editor over the Agent Client Protocol (stdio)",
        more=ACP_HELP,
    )
    add_session_flags(top)
    top.set_defaults(run=run_acp)


def run_acp(args: Namespace) -> int:
    """Serve an editor until it disconnects; return the exit code."""
    options = options_from_args(args)
    out = os.dup(1)
    os.dup2(2, 1)  # whatever else prints, prints where it disturbs nobody
    return anyio.run(_serve_editor, options, out)


async def _serve_editor(options: Options, out: int) -> int:
    """Serve ACP sessions until the editor disconnects or a signal arrives."""
    code = 0

    async def watch_signals() -> None:
        nonlocal code
        with anyio.open_signal_receiver(*SIGNAL_EXIT_CODES) as signals:
            async for number in signals:
                code = SIGNAL_EXIT_CODES[number]
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
