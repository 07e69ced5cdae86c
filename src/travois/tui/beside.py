"""/agents, /tasks, /mcp and /skills: who and what works beside the conversation."""

from __future__ import annotations

from functools import partial

from travois.compose import mcp as lending
from travois.core.errors import Fault
from travois.engine.background_jobs import report_end, running_jobs
from travois.ports.agent import Agent
from travois.ports.agents import Agents
from travois.terminal.tables import clean, table
from travois.tools.output import readable
from travois.tui.agent_progress import price, progress_line, running_agents
from travois.tui.program import told
from travois.tui.slash import Command, Desk

HEADING = ("AGENT", "TYPE", "STATE", "TOKENS", "COST", "LAST TOOL", "DOING", "TASK")
LINES = 40
"""How many of the last lines of a program are shown."""


async def _agents(desk: Desk, typed: str) -> str:
    word, _, rest = typed.partition(" ")
    id, _, text = rest.strip().partition(" ")
    agents = desk.session.crew.agent.agents
    assert agents is not None
    match word:
        case "":
            return f"{_running(desk.session.crew.agent, agents)}\n\n{_kinds(agents)}"
        case "show":
            from travois.cli.agents import show_one

            return await told(desk, partial(show_one, id, desk.session.id, json=False))
        case "tell" if agents.tell(id, text.strip(), sender="the user"):
            return f"{id} hears of it at its next step."
        case "stop" if id in agents.reports():
            return f"{id}: {(await agents.stop(id)).state}."
        case "tell" | "stop":
            raise Fault(f"No agent {id!r} runs", fix="/agents lists those that do.")
        case _:
            raise Fault(f"/agents does not know {word!r}", fix="It knows: show, tell, stop.")


def _running(agent: Agent, agents: Agents) -> str:
    states = {id: report.state for id, report in agents.reports().items()}
    rows = [
        (id, born.kind, states.get(id, "ended"), *_used(agents, id), clean(born.what, lines="show"))
        for id, born in agent.session.children.items()
    ]
    return table([HEADING, *rows], right=(3, 4)) if rows else "No agents so far."


def _used(agents: Agents, id: str) -> tuple[str, str, str, str]:
    """What an agent has used, its last tool, and what it is doing, as far as this process knows."""
    now = agents.progress().get(id)
    if now is None:
        return ("", "", "", "")
    tool, doing = clean(now.tool, lines="show"), clean(now.doing, lines="show")
    return (f"{now.tokens:,}", price(now.dollars), tool, doing)


def _kinds(agents: Agents) -> str:
    rows = [(name, clean(what, lines="show")) for name, what in agents.kinds.items()]
    return table([("TYPE", "FOR"), *rows])


async def _tasks(desk: Desk, typed: str) -> str:
    word, _, id = typed.partition(" ")
    agent = desk.session.crew.agent
    match word:
        case "":
            return _listed(desk, agent)
        case "see" | "stop":
            return await _task(desk, word, id.strip())
        case _:
            raise Fault(f"/tasks does not know {word!r}", fix="It knows: see, stop.")


def _listed(desk: Desk, agent: Agent) -> str:
    programs = [
        (job.id, "running" if job.status is None else "ended", clean(job.label, lines="show"))
        for job in agent.world.processes.jobs().values()
    ]
    known = {now.id: progress_line(now) for now in running_agents(agent)}
    helpers = [
        (id, "running", clean(one.what, lines="show"), known.get(id, ""))
        for id, one in agent.session.running.items()
    ]
    rows = [*((*program, "") for program in programs), *helpers]
    heading = ("TASK", "STATE", "WHAT", "DOING")
    return table([heading, *rows]) if rows else "Nothing runs beside."


async def _task(desk: Desk, word: str, id: str) -> str:
    agent = desk.session.crew.agent
    job = agent.world.processes.jobs().get(id)
    if job is None:
        return await _agents(desk, f"{'show' if word == 'see' else 'stop'} {id}")
    if word == "see":
        lines = readable(job.waiting()).text.rstrip().split("\n")
        return "\n".join(lines[-LINES:]) or "It has said nothing that the model has not read."
    if job.status is not None:
        return f"{id} had ended before."
    if id in running_jobs(agent):  # before it ends: the model hears of it, but is not woken
        agent.session.append(report_end(job, state="stopped by the user"))
    await job.kill()
    return f"{id} was ended with all it had started."


async def _mcp(desk: Desk, _: str) -> str:
    loan = desk.session.crew.loan
    rows = [tuple(clean(cell, lines="show") for cell in row) for row in lending.rows(loan)]
    if not rows:
        return "No servers lend tools here; `travois mcp add` names one."
    said = table([("SERVER", "STATE", "TOOLS", "WHERE"), *rows])
    prompts = sorted(f"/{name}" for name in lending.prompts(loan))
    return f"{said}\n\nPrompts: {', '.join(prompts)}" if prompts else said


async def _skills(desk: Desk, _: str) -> str:
    skills = desk.session.crew.agent.skills
    found = skills.standing().skills if skills is not None else ()
    rows = [(one.name, clean(one.description, lines="show")) for one in found]
    return table([("SKILL", "FOR"), *rows]) if rows else "No skills: none lie here or at home."


COMMANDS = {
    "agents": Command(
        "/agents [WORD …]",
        "agents and their types; show, tell, stop ID",
        _agents,
        lambda desk: ("show", "tell", "stop"),
        when="ever",
    ),
    "tasks": Command(
        "/tasks [WORD ID]",
        "what runs in the background; see, stop ID",
        _tasks,
        lambda desk: ("see", "stop"),
        when="ever",
    ),
    "mcp": Command("/mcp", "servers that lend tools", _mcp, when="ever"),
    "skills": Command("/skills", "what the model can read up on", _skills, when="ever"),
}
