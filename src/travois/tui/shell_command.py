"""`!command`: shell commands of the user, whose output the model sees too."""

from __future__ import annotations

import os

from travois.context.window import result_room_for_call
from travois.core.content import Call, Text
from travois.core.facts import User
from travois.engine.agent import Agent
from travois.ports.world import Command
from travois.tools.output import make_readable

SHELL_TIMEOUT_SECONDS = 600.0
DEFAULT_SHELL = "/bin/sh"


async def run_user_command(agent: Agent, line: str) -> tuple[str, tuple[User, ...]]:
    """Run a command in the session's folder; return its output and a note for the model.

    A command that cannot be started leaves no note.
    """
    cwd = agent.session.state.get("cwd", agent.world.root)
    shell = os.environ.get("SHELL") or DEFAULT_SHELL
    try:
        done = await agent.world.processes.run(
            Command((shell, "-c", line), cwd), timeout=SHELL_TIMEOUT_SECONDS
        )
    except OSError as error:
        return str(error), ()
    room = result_room_for_call(agent, Call("", "Bash", ""))
    text = make_readable(done.output, tokens=room.tokens).text.rstrip()
    ending = f"exit {done.status}" if done.status else ""
    told = "\n".join(part for part in (text, ending) if part)
    said = f"The user ran this command themselves:\n$ {line}\n{told}"
    return told, (User((Text(said),), origin="note"),)
