"""Slash commands for what runs beside the conversation: agents, tasks, skills."""

from __future__ import annotations

from functools import partial

from travois.core.errors import UserError
from travois.engine.agent import Agent
from travois.engine.background_jobs import build_end_report, running_jobs
from travois.lazy_imports import lazy_imports
from travois.ports.agents import Subagents
from travois.terminal import escape_controls, format_table
from travois.tools.output import make_readable
from travois.tui.agent_progress import format_agent_progress, format_price, list_running_agents
from travois.tui.slash import CommandHost, SlashCommand, capture_output
from travois.tui.slash_commands import loop, servers

with lazy_imports():
    from travois.commands import agents as agent_commands


AGENT_HEADINGS = ("AGENT", "TYPE", "STATE", "TOKENS", "COST", "LAST TOOL", "DOING", "TASK")
AGENT_ACTIONS = (
    ("show", "what it said and did"),
    ("tell", "write to it; it reads that before its next step"),
    ("stop", "end it; what it has done stays"),
)
LIST_OPTION = ("list", "all agents and agent types as tables")
MAX_TASK_LINES = 40
"""Last lines of a process that are shown."""


async def _run_agents_command(host: CommandHost, typed: str) -> str:
    """Run /agents: choose, list, show, message or stop subagents."""
    if not typed and host.can_choose and host.session.runtime.agent.session.children:
        typed = await _pick_agent_action(host)
        if not typed:
            return ""
    word, _, rest = typed.partition(" ")
    id, _, text = rest.strip().partition(" ")
    agent = host.session.runtime.agent
    agents = agent.team.children
    assert agents is not None
    match word:
        case "" | "list":
            return f"{_list_session_agents(agent, agents)}\n\n{_list_agent_types(agents)}"
        case "show":
            return await capture_output(
                host, partial(agent_commands.show_agent, id, host.session.id, json=False)
            )
        case "tell" if agents.send_message(id, text.strip(), sender="the user"):
            return f"Sent. {id} reads it before its next step."
        case "stop" if id in agents.reports():
            return f"{id}: {(await agents.stop(id)).state}."
        case "tell" | "stop":
            raise UserError(f"No running agent {id!r}", fix="/agents lists all agents.")
        case _:
            raise UserError(
                f"Unknown subcommand: /agents {word}", fix="Use list, show, tell or stop."
            )


async def _pick_agent_action(host: CommandHost) -> str:
    """Let the user choose a subagent and what to do with it, as typed after /agents; or nothing."""
    agent = host.session.runtime.agent
    children = agent.team.children
    assert children is not None
    states = {id: report.state for id, report in children.reports().items()}
    ids = list(agent.session.children)
    offers = [
        (f"{id}  {agent.session.children[id].what}", _describe_agent(agent, id, states.get(id)))
        for id in ids
    ]
    picked = await host.pick_option("Which agent?", [*offers, LIST_OPTION])
    if picked is None or picked == len(ids):
        return "" if picked is None else "list"
    id = ids[picked]
    if states.get(id) != "running":
        return f"show {id}"
    action = await host.pick_option(f"{id}: {agent.session.children[id].what}", AGENT_ACTIONS)
    word = "" if action is None else AGENT_ACTIONS[action][0]
    if word == "tell":
        host.insert_input(f"/agents tell {id} ")
    return f"{word} {id}" if word in ("show", "stop") else ""


def _describe_agent(agent: Agent, id: str, state: str | None) -> str:
    """Describe a subagent beside its name: type, state, activity."""
    known = {now.id: format_agent_progress(now) for now in list_running_agents(agent)}
    parts = (agent.session.children[id].kind, state or "ended", known.get(id, ""))
    return " · ".join(part for part in parts if part)


def _list_session_agents(agent: Agent, agents: Subagents) -> str:
    """List the session's subagents as a table."""
    states = {id: report.state for id, report in agents.reports().items()}
    rows = [
        (
            id,
            born.kind,
            states.get(id, "ended"),
            *_agent_usage_cells(agents, id),
            escape_controls(born.what, lines="show"),
        )
        for id, born in agent.session.children.items()
    ]
    return format_table([AGENT_HEADINGS, *rows], right=(3, 4)) if rows else "No agents yet."


def _agent_usage_cells(agents: Subagents, id: str) -> tuple[str, str, str, str]:
    """Return an agent's tokens, cost, last tool and activity, as far as they are known."""
    now = agents.progress().get(id)
    if now is None:
        return ("", "", "", "")
    tool, doing = escape_controls(now.tool, lines="show"), escape_controls(now.doing, lines="show")
    return (f"{now.tokens:,}", format_price(now.dollars), tool, doing)


def _list_agent_types(agents: Subagents) -> str:
    rows = [(name, escape_controls(what, lines="show")) for name, what in agents.kinds.items()]
    return format_table([("TYPE", "FOR"), *rows])


async def _run_tasks_command(host: CommandHost, typed: str) -> str:
    """Run /tasks: list, show or stop background tasks."""
    word, _, id = typed.partition(" ")
    agent = host.session.runtime.agent
    match word:
        case "":
            return _list_background_tasks(host, agent)
        case "see" | "stop":
            return await _handle_task(host, word, id.strip())
        case _:
            raise UserError(f"Unknown subcommand: /tasks {word}", fix="Use see or stop.")


def _list_background_tasks(host: CommandHost, agent: Agent) -> str:
    """List background processes and subagents as a table."""
    programs = [
        (
            job.id,
            "running" if job.status is None else "ended",
            escape_controls(job.label, lines="show"),
        )
        for job in agent.world.processes.jobs().values()
    ]
    known = {now.id: format_agent_progress(now) for now in list_running_agents(agent)}
    helpers = [
        (id, "running", escape_controls(one.what, lines="show"), known.get(id, ""))
        for id, one in agent.session.running.items()
    ]
    rows = [*((*program, "") for program in programs), *helpers]
    heading = ("TASK", "STATE", "WHAT", "DOING")
    return format_table([heading, *rows]) if rows else "No background tasks."


async def _handle_task(host: CommandHost, word: str, id: str) -> str:
    """Show or stop one background task for /tasks."""
    agent = host.session.runtime.agent
    job = agent.world.processes.jobs().get(id)
    if job is None:
        return await _run_agents_command(host, f"{'show' if word == 'see' else 'stop'} {id}")
    if word == "see":
        lines = make_readable(job.peek_output()).text.rstrip().split("\n")
        return "\n".join(lines[-MAX_TASK_LINES:]) or "No output that the model has not read yet."
    if job.status is not None:
        return f"{id} has already ended."
    if id in running_jobs(agent):  # before it ends: the model hears of it, but is not woken
        agent.session.append(build_end_report(job, state="stopped by the user"))
    await job.kill()
    return f"Stopped {id} and everything it started."


async def _run_skills_command(host: CommandHost, _: str) -> str:
    skills = host.session.runtime.agent.prompt.skills
    found = skills.load_always().skills if skills is not None else ()
    rows = [(one.name, escape_controls(one.description, lines="show")) for one in found]
    return (
        format_table([("SKILL", "FOR"), *rows])
        if rows
        else "No skills here or in your home folder."
    )


SIDE_COMMANDS = {
    "agents": SlashCommand(
        "/agents [WORD …]",
        "choose an agent; list, show, tell, stop ID",
        _run_agents_command,
        lambda desk: ("list", "show", "tell", "stop"),
        when="ever",
    ),
    "tasks": SlashCommand(
        "/tasks [WORD ID]",
        "list background tasks; see, stop ID",
        _run_tasks_command,
        lambda desk: ("see", "stop"),
        when="ever",
    ),
    "loop": loop.LOOP_COMMAND,
    "mcp": servers.MCP_COMMAND,
    "skills": SlashCommand(
        "/skills", "list the skills that the model can use", _run_skills_command, when="ever"
    ),
}
