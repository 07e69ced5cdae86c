"""How a session stands, for the last line of the screen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from travois.context.window import threshold
from travois.core.tasks import TODOS, read_tasks
from travois.core.tokens import context_tokens
from travois.sdk import Session
from travois.tui.agent_progress import running_agents
from travois.tui.footer import Standing

if TYPE_CHECKING:
    from travois.ports.agent import Agent


def standing(session: Session) -> Standing:
    """Everything that the footer tells."""
    agent, model = session.crew.agent, session.crew.model
    limit = threshold(model, agent.layers)
    listed = read_tasks(agent.session.state.get(TODOS, ""))
    return Standing(
        model=model.name,
        mode=agent.guard.mode,
        branch=agent.around().branch if agent.around else "",
        used=round(100 * context_tokens(agent.session.view) / limit),
        warm=agent.session.cache.left(time.time()),
        tasks=tasks(agent),
        doing=agents[-1].doing if (agents := running_agents(agent)) else "",
        todos=(sum(not task.open for task in listed), len(listed)),
    )


def tasks(agent: Agent) -> int:
    """How many agents and programs go on in the background."""
    programs = sum(job.status is None for job in agent.world.processes.jobs().values())
    return programs + len(agent.session.running)
