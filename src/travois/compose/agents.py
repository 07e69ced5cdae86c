"""Subagents and the main agent: their types, logs, worktrees, models and permissions."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from travois.agents.agent_files import limit_permission_mode
from travois.agents.child import begin_fork, create_child_agent, find_fork_point
from travois.agents.report import LEFT_BEHIND_NOTE, RESUMED_NOTE, recover_lost_agents
from travois.agents.spawn import ChildAgents
from travois.agents.types import (
    FORK_TYPE,
    MAIN_AGENT_TOOLS,
    AgentType,
    find_agent_type,
    render_agent_types,
    select_agent_tools,
)
from travois.compose import models, sandbox
from travois.compose.mail import mail_collector
from travois.compose.open_session import OpenedSession, Workspace
from travois.compose.options import Options
from travois.context.switch_model import switch_to_model
from travois.core.content import Text
from travois.core.errors import UserError
from travois.core.facts import Changed, Entry, Noted, Opened, User
from travois.core.models import Effort
from travois.core.models import ModelCard as Card
from travois.core.spending import Budget, Limits
from travois.engine.agent import Agent, ParentLink, TurnState
from travois.engine.background_jobs import report_lost_jobs
from travois.engine.tool_definitions import build_first_head
from travois.hooks.fire import add_hooks
from travois.lazy_imports import lazy_imports
from travois.permissions.decide import Permissions
from travois.permissions.paths import is_inside
from travois.ports.agents import AgentOrder
from travois.ports.tool import AnyTool, ToolError
from travois.ports.world import ModelClient, UserWarned
from travois.prompt.environment import render_environment, render_environment_update
from travois.providers import catalog
from travois.providers.request import EFFORT_LEVELS
from travois.sessions.log_file import LOG_FILE_NAME, SessionLog, read_history
from travois.sessions.session import JOB_STATE_PREFIX, Session
from travois.settings.load import COMMAND_LINE
from travois.settings.schema import LoadedSettings
from travois.skills.invoke import preload_skills
from travois.version import __version__

if TYPE_CHECKING:
    from travois.compose import worktree

with lazy_imports():
    from travois.compose import worktree
    from travois.memory import agent_memory


CHILDREN_FOLDER = "agents"
EFFORT_BY_NAME: dict[str, Effort] = {level: level for level in EFFORT_LEVELS}
FORK_DESCRIPTION = "a copy of this conversation"


class SubagentFactory(msgspec.Struct, frozen=True):
    """The program's part of starting subagents."""

    place: Workspace
    folder: Path
    """The folder of the session."""
    kinds: tuple[AgentType, ...]
    serve: Callable[[Card], ModelClient]
    among: catalog.Catalog | None = None
    """The models that there are."""
    shared: tuple[str, ...] = ()
    """Folders that worktrees have in common with the workspace."""

    def enable_children(self, agent: Agent, among: tuple[AgentType, ...] = ()) -> None:
        """Let an agent start subagents, of these types only if any are named."""
        told = among or tuple(kind for kind in self.kinds if not kind.apart)
        found = {kind.name: kind.description for kind in told}
        apart = frozenset(kind.name for kind in self.kinds if kind.background)
        agent.use_children(
            ChildAgents(agent, self.open_child, {**found, FORK_TYPE: FORK_DESCRIPTION}, apart=apart)
        )

    @asynccontextmanager
    async def open_child(self, parent: Agent, order: AgentOrder, id: str) -> AsyncGenerator[Agent]:
        """Open a subagent with a log below its parent's, ready for its next turn."""
        kind = _apply_order(find_agent_type(self.kinds, order.kind), order)
        if kind is None and order.kind != FORK_TYPE:
            raise ToolError(
                f"Agent {id} cannot resume: agent type {order.kind!r} no longer exists."
            )
        begin = self._reopen_log if order.resume else self._create_log
        log, tree = await begin(parent, order, id, kind=kind)
        with log:
            session = Session(log, secrets=parent.session.secrets)
            try:
                birth = ParentLink(
                    id, order.kind, str(log.folder / LOG_FILE_NAME), _child_depth(parent)
                )
                root = tree.root if tree else parent.world.root
                mail = mail_collector(log.folder)
                child = create_child_agent(parent, session, birth, root=root, collect_mail=mail)
                child = _place_child(child, order, tree)
                if kind is not None:
                    child = self._apply_agent_type(child, parent, kind)
                if order.resume:
                    self._resume_child(child, parent, order=order)
                elif kind is None:
                    _begin_fork(child, moved=tree is not None)
                else:
                    self._begin_child(child, parent, kind, order=order)
                    await preload_skills(child, kind.skills, parent=parent)
                if kind is not None:
                    add_hooks(child, kind.hooks, origin=kind.origin, whose=id)
                yield child
            finally:
                if tree is not None and await tree.remove_if_unused():
                    session.append(Noted(LEFT_BEHIND_NOTE, ""))

    async def _create_log(
        self, parent: Agent, order: AgentOrder, id: str, *, kind: AgentType | None
    ) -> tuple[SessionLog, worktree.Worktree | None]:
        """Create the log of a new subagent, and its worktree if it gets one."""
        apart = order.worktree or (kind is not None and kind.worktree)
        apart = apart and parent.permissions.guard.mode != "plan"  # where nothing is written anyway
        name = f"{self.folder.name[:8]}-{id}"
        tree = await worktree.add_worktree(parent, name, shared=self.shared) if apart else None
        root = tree.root if tree else parent.world.root
        opened = self._build_opened_fact(parent, id, root=root, fork=kind is None)
        return SessionLog.create(child_folder(self.folder, id), opened), tree

    async def _reopen_log(
        self, parent: Agent, order: AgentOrder, id: str, *, kind: AgentType | None
    ) -> tuple[SessionLog, worktree.Worktree | None]:
        """Reopen the log of a subagent; a removed worktree is created again."""
        folder = child_folder(self.folder, id)
        if not (folder / LOG_FILE_NAME).is_file():
            raise ToolError(f"Agent {id} belongs to another session and cannot resume in this one.")
        entries = [entry.fact for entry in read_history(folder, [])]
        tree = None
        if any(isinstance(fact, Noted) and fact.what == LEFT_BEHIND_NOTE for fact in entries):
            name = f"{self.folder.name[:8]}-{id}"
            tree = await worktree.reopen_worktree(parent, name, shared=self.shared)
        return SessionLog.open(folder), tree

    def _build_opened_fact(self, parent: Agent, id: str, *, root: str, fork: bool) -> Opened:
        above = parent.team.birth.id if parent.team.birth else self.folder.name
        return Opened(
            session=id,
            cwd=root,
            project=self.place.project.key,
            version=__version__,
            parent=above if fork else "",
            at=find_fork_point(parent) if fork else 0,
        )

    def _begin_child(
        self, child: Agent, parent: Agent, kind: AgentType, *, order: AgentOrder
    ) -> None:
        """Give a subagent that shares nothing with its parent its own head and notes."""
        head, session = parent.session.view.epoch, child.session
        assert head is not None
        card = self._model_for_type(child, parent, kind, order=order)
        card = replace(card, effort=EFFORT_BY_NAME.get(kind.effort, head.model.effort))
        own = build_first_head(
            card, kind.prompt, child.tools.by_name.values(), wanted=parent.tools.toolset
        )
        session.append(own)
        if child.prompt.environment is not None:
            session.append(render_environment(child.prompt.environment()))
        if (
            held := agent_memory.load_agent_memory(kind, self.place.home, self.place.project.root)
        ) is not None:
            session.append(User((Text(held.note),), origin="note"))

    def _apply_agent_type(self, child: Agent, parent: Agent, kind: AgentType) -> Agent:
        """Give a subagent the tools, permissions and limits of its type, within its parent's."""

        def find_mcp_tool(name: str) -> AnyTool | None:
            return parent.tools.find_mcp_tool(name) if select_agent_tools(kind, (name,)) else None

        known = parent.tools.by_name
        own = {name: known[name] for name in select_agent_tools(kind, known)}
        guard = child.permissions.guard
        guard = replace(guard, mode=limit_permission_mode(kind, guard.mode))
        if (
            held := agent_memory.load_agent_memory(kind, self.place.home, self.place.project.root)
        ) is not None:
            guard = agent_memory.allow_memory_edits(guard, held)
        instructions = child.prompt.instructions if kind.instructions else None
        child = replace(
            child,
            tools=replace(child.tools, by_name=own, find_mcp_tool=find_mcp_tool),
            permissions=replace(child.permissions, guard=guard),
            prompt=replace(child.prompt, instructions=instructions),
            budget=Budget(Limits(turns=kind.max_turns)),
        )
        spawns = (find_agent_type(self.kinds, name) for name in kind.spawns)
        self.enable_children(child, tuple(filter(None, spawns)))
        return child

    def _resume_child(self, child: Agent, parent: Agent, *, order: AgentOrder) -> None:
        """Resume a subagent with the head in its log, so that its cache can be read.

        Another model or effort is a head of its own, as in any session.
        """
        session, head = child.session, parent.session.view.epoch
        epoch = session.view.epoch
        assert head is not None
        assert epoch is not None, "a child's log begins with its head"
        session.append(Noted(RESUMED_NOTE, order.sender))
        asked = "" if order.model == "inherit" else order.model
        card = self._find_card(asked, head.model) if asked else epoch.model
        if order.model == "inherit":
            card = head.model
        card = replace(card, effort=EFFORT_BY_NAME.get(order.effort, epoch.model.effort))
        if card.name != head.model.name:
            child.use_model(self._reach_model(card, head.model))
        if card != epoch.model:
            switch_to_model(child, replace(epoch, model=card, why="asked for", unbind=False))

    def _model_for_type(
        self, child: Agent, parent: Agent, kind: AgentType, *, order: AgentOrder
    ) -> Card:
        """Return the model of an agent type; the parent's if it cannot be used."""
        head = parent.session.view.epoch
        assert head is not None
        if not kind.model:
            return head.model
        try:
            card = self._find_card(kind.model, head.model)
            child.use_model(self._reach_model(card, head.model))
        except ToolError as refusal:
            if order.exact and order.model == kind.model:
                raise
            usual = f"agent {kind.name} runs on {head.model.name}"
            parent.session.emit(UserWarned(f"{usual}: {refusal}"))
            return head.model
        return card

    def _find_card(self, name: str, usual: Card) -> Card:
        """Return the requested model; raises `ToolError` in words a model can act on."""
        try:
            return models.resolve_for_agent(name, usual, self.among)
        except UserError as fault:
            raise _model_error(fault, usual) from None

    def _reach_model(self, card: Card, usual: Card) -> ModelClient:
        try:
            return self.serve(card)
        except UserError as fault:
            raise _model_error(fault, usual) from None


def _model_error(fault: UserError, usual: Card) -> ToolError:
    why = f" ({fault.why})" if fault.why else ""
    return ToolError(f"{fault.what}{why}. Omit model to use {usual.name}.")


def report_lost_children(session: Session, opened: OpenedSession) -> None:
    """Report subagents and commands of a resumed session that never reported."""
    if any(what.startswith(JOB_STATE_PREFIX) for what in session.state):
        report_lost_jobs(session)
    if session.owed:
        read = partial(_read_child_log, opened.log.folder)
        recover_lost_agents(session, read, keep=partial(save_large_output, opened.spill))


def describe_agent_types(
    tools: Mapping[str, AnyTool], kinds: tuple[AgentType, ...]
) -> dict[str, AnyTool]:
    """Add the subagent types to the Agent tool's description."""
    if "Agent" not in tools:
        return dict(tools)
    tool = tools["Agent"]
    told = render_agent_types([kind for kind in kinds if not kind.apart])
    text = f"{tool.description} Types:\n{told}\n- {FORK_TYPE}: {FORK_DESCRIPTION}"
    return {**tools, "Agent": replace(tool, description=text)}


def save_large_output(folder: Path, call: str, data: bytes) -> str:
    """Save a subagent's large output in the session's folder; return its path."""
    folder.mkdir(mode=0o700, exist_ok=True)
    name, ending = (call[:-3], ".md") if call.endswith(".md") else (call, ".txt")
    path = folder / f"{''.join(c if c.isalnum() or c in '-_' else '_' for c in name)}{ending}"
    path.touch(0o600)
    path.write_bytes(data)
    return str(path)


def child_folder(folder: Path, id: str) -> Path:
    """Return a subagent's folder, below that of its parent."""
    words = id.split(".")
    for count in range(1, len(words) + 1):
        folder = folder / CHILDREN_FOLDER / ".".join(words[:count])
    return folder


def _read_child_log(folder: Path, id: str) -> list[Entry]:
    """Return the entries of a subagent's log; none if there is no log."""
    child = child_folder(folder, id)
    return list(read_history(child, [])) if (child / LOG_FILE_NAME).is_file() else []


def _apply_order(kind: AgentType | None, order: AgentOrder) -> AgentType | None:
    """Return the agent type with the model, effort and turns that the Agent call requests."""
    if kind is None:
        return None
    turns, effort = order.turns or kind.max_turns, order.effort or kind.effort
    model = os.environ.get("CLAUDE_CODE_SUBAGENT_MODEL") or order.model or kind.model
    model = "" if model == "inherit" else model
    return replace(kind, model=model, effort=effort, max_turns=turns)


def _child_depth(parent: Agent) -> int:
    return parent.team.birth.depth + 1 if parent.team.birth else 1


def _place_child(child: Agent, order: AgentOrder, tree: worktree.Worktree | None) -> Agent:
    """Place a subagent in its worktree, under its name."""
    session, root = child.session, child.world.root
    if order.name:
        session.append(Changed("name", order.name))
    if tree is None and order.resume and not is_inside(session.state.get("cwd", root), root):
        session.append(Changed("cwd", root))
    if tree is None:
        return child
    session.append(Noted(LEFT_BEHIND_NOTE, tree.note))
    session.append(Changed("cwd", root))
    held = child.permissions
    permissions = replace(
        held,
        guard=replace(held.guard, folders=(root,)),
        sandbox=sandbox.move_sandbox_policy(held.sandbox, root) if held.sandbox else None,
    )
    return replace(child, world=replace(child.world, snapshots=None), permissions=permissions)


def _begin_fork(child: Agent, *, moved: bool) -> None:
    """Begin a forked subagent; tell it about its own folder if it has one."""
    session = child.session
    begin_fork(session)
    around = child.prompt.environment() if moved and child.prompt.environment is not None else None
    if around is not None and (note := render_environment_update(around, session.view.items)):
        session.append(note)


# The agent that a person talks to: one of the kinds that they have, in the place of ours.


MAIN_AGENT_STATE = "agent"
"""State of a session: the kind that it began with."""


def choose_main_agent(
    loaded: LoadedSettings, kinds: tuple[AgentType, ...], session: Session
) -> tuple[AgentType | None, LoadedSettings]:
    """Choose the main agent's type and apply it to the settings."""
    asked, begun = loaded.settings, session.view.epoch is not None
    usual = next((plugin.lead for plugin in loaded.plugins if plugin.lead), "")
    wanted = session.state.get(MAIN_AGENT_STATE, "") if begun else asked.agent or usual
    if (
        begun
        and loaded.origin("agent") == COMMAND_LINE
        and asked.agent.casefold() != wanted.casefold()
    ):
        loaded = _add_notice(loaded, "--agent", "a resumed session keeps its agent")
    kind = find_agent_type(kinds, wanted) if wanted else None
    if kind is None:
        return None, _report_missing_agent(loaded, wanted, kinds) if wanted else loaded
    flagged = {key for key in ("model", "effortLevel") if loaded.origin(key) == COMMAND_LINE}
    effort = EFFORT_BY_NAME.get(kind.effort, asked.effort_level)
    settings = replace(
        asked,
        model=asked.model if "model" in flagged else kind.model or asked.model,
        effort_level=asked.effort_level if "effortLevel" in flagged else effort,
        max_turns=asked.max_turns or kind.max_turns,
    )
    return kind, replace(loaded, settings=settings)


def _report_missing_agent(
    loaded: LoadedSettings, wanted: str, kinds: tuple[AgentType, ...]
) -> LoadedSettings:
    """Report an unknown main agent type: an error on the command line, else a notice."""
    what, there = f"there is no agent {wanted!r}", ", ".join(kind.name for kind in kinds)
    if loaded.origin("agent") == COMMAND_LINE:
        raise UserError(f"--agent: {what}", fix=f"Available agents: {there}.")
    return _add_notice(loaded, loaded.origin("agent"), f"{what}; available: {there}")


def _add_notice(loaded: LoadedSettings, where: str, what: str) -> LoadedSettings:
    return replace(loaded, notices=(*loaded.notices, f"{where}: {what}"))


def select_main_agent_tools(
    tools: dict[str, AnyTool], lead: AgentType | None
) -> dict[str, AnyTool]:
    """Return the main agent's tools; by default including those that need the user."""
    if lead is None:
        return tools
    own = MAIN_AGENT_TOOLS if lead.tools is None else MAIN_AGENT_TOOLS[-1:]
    fine = {*select_agent_tools(lead, tools), *(name for name in own if name not in lead.denied)}
    return {name: tool for name, tool in tools.items() if name in fine}


def apply_agent_prompt(options: Options, lead: AgentType | None) -> Options:
    """Return the options with the main agent type's prompt, unless one is given."""
    return options if lead is None or options.system else replace(options, system=lead.prompt)


def limit_main_agent(
    permissions: Permissions, lead: AgentType | None, workspace: Workspace
) -> Permissions:
    """Limit permissions to what the main agent's type allows; it may edit its own memory."""
    if lead is None:
        return permissions
    limited = replace(permissions, mode=limit_permission_mode(lead, permissions.mode))
    memory = agent_memory.load_agent_memory(lead, workspace.home, workspace.project.root)
    return agent_memory.allow_memory_edits(limited, memory) if memory else limited


def begin_main_turn(session: Session, lead: AgentType | None) -> TurnState:
    """Return the main agent's state before its first turn, with any first message of its type."""
    first = deque[User]()
    if lead is not None and lead.greeting and MAIN_AGENT_STATE not in session.state:
        first.append(User((Text(lead.greeting),), origin="human"))
    return TurnState(inbox=first)


async def start_main_agent(agent: Agent, lead: AgentType | None, yard: SubagentFactory) -> None:
    """Enable subagents and, at the beginning, log what the main agent's type brings."""
    if lead is None:
        yard.enable_children(agent)
        return
    yard.enable_children(
        agent, tuple(filter(None, (find_agent_type(yard.kinds, name) for name in lead.spawns)))
    )
    session = agent.session
    if MAIN_AGENT_STATE in session.state:
        return
    session.append(Changed(MAIN_AGENT_STATE, lead.name))
    if memory := agent_memory.load_agent_memory(lead, yard.place.home, yard.place.project.root):
        session.append(User((Text(memory.note),), origin="note"))
    await preload_skills(agent, lead.skills, parent=agent)
