"""Composing a session: the only module that knows all concrete classes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import random
from time import time
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from travois.agents import agent_files
from travois.agents.types import AgentType
from travois.compose import agents, lsp, mcp, memory, sandbox, web
from travois.compose import hooks as hooking
from travois.compose import mail as posting
from travois.compose import models as serving
from travois.compose import permissions as rights
from travois.compose import skills as skilled
from travois.compose import web as searching
from travois.compose.mail import SessionMail
from travois.compose.mcp import McpServers
from travois.compose.open_session import (
    OpenedSession,
    Workspace,
    build_requested_head,
    describe_log_damage,
    describe_surroundings,
    open_log,
    settle_session_log,
)
from travois.compose.options import Options, find_store_address, settings_from_options
from travois.compose.reload_settings import SettingsReload
from travois.compose.relocate_session import (
    SessionRelocation,
    SessionWorktrees,
    current_worktree,
    leave_missing_worktree,
)
from travois.compose.skills import compose_instructions
from travois.context.switch_model import switch_to_model, switch_to_model_with_summary
from travois.context.window import current_model as current_card
from travois.core.errors import UserError
from travois.core.facts import Changed, Epoch
from travois.core.models import Effort
from travois.core.models import ModelCard as Card
from travois.core.spending import Amount, Budget, Limits, RunTotals, measure_runs
from travois.core.toolsets import TOOLSETS, toolset_for
from travois.engine.agent import (
    MODE_STATE,
    Agent,
    AgentModels,
    AgentPermissions,
    AgentPrompt,
    AgentRuntime,
    AgentTeam,
    AgentTools,
    SmallModel,
    World,
)
from travois.engine.import_ahead import ImportAhead
from travois.engine.overflow import restore_window
from travois.engine.retry import CHOSEN_MODEL_STATE
from travois.files.disk import DiskFiles, ReadCache
from travois.hooks.config import Hook, Listener
from travois.lazy_imports import lazy_imports
from travois.permissions.decide import Permissions
from travois.permissions.rules import is_tool_denied
from travois.permissions.secrets import Secrets, collect_secrets
from travois.ports.tool import AnyTool
from travois.ports.world import (
    ChoiceRequest,
    ModelClient,
    PermissionQuestion,
    Person,
    PersonAnswer,
    UserWarned,
    WorkspaceSnapshots,
)
from travois.process.local_processes import LocalProcesses
from travois.prompt.briefing import rebuild_briefing
from travois.prompt.environment import Environment
from travois.prompt.output_styles import DEFAULT_STYLE
from travois.providers.encoder import RequestEncoder
from travois.providers.http.fetch import HttpxWeb
from travois.sessions import home as homes
from travois.sessions import home as projects
from travois.sessions.blobs import BlobStore
from travois.sessions.catalog import prune_old_sessions
from travois.sessions.session import Session
from travois.sessions.xdg_folders import take_move_note
from travois.settings import trust
from travois.settings.load import load_settings
from travois.settings.schema import LoadedSettings, Plugin, Settings
from travois.settings.sources import parse_setting_sources
from travois.skills.invoke import AgentSkillRunner
from travois.snapshots.snapshots import Snapshots
from travois.telemetry import TelemetryOptions, read_telemetry_options
from travois.tools import interaction
from travois.tools.catalog import TOOLS

if TYPE_CHECKING:
    from travois.compose.dreaming import ProjectDreams
    from travois.extensions.custom_layers import ContextLayer

with lazy_imports():
    from travois.compose import dreaming, session_store
    from travois.extensions import package_parts


LoadedWorkspace = tuple[Workspace, LoadedSettings]
"""A session's workspace and the settings that apply there."""
HOST_CONFIG_VARIABLE = "CLAUDE_CONFIG_DIR"


class SessionRuntime(msgspec.Struct):
    """A running agent and everything that must be closed after it."""

    id: str
    agent: Agent
    key_source: str
    notices: tuple[str, ...]
    stack: AsyncExitStack
    serve: Callable[[Card], ModelClient]
    """Returns a client for a model."""
    mail: SessionMail | None
    """Its mail; none without persistence."""
    nights: ProjectDreams | None = None
    """The memory consolidations; none without a person or without memories."""
    mcp_servers: McpServers = McpServers()
    """The MCP servers of the session."""
    plugins: tuple[Plugin, ...] = ()
    telemetry: TelemetryOptions | None = None
    """The telemetry settings; none if nothing is sent."""
    style: str = DEFAULT_STYLE
    """The output style that it began with, as far as the settings still say so."""

    @property
    def model(self) -> Card:
        """The model that answers."""
        epoch = self.agent.session.view.epoch
        assert epoch is not None
        return epoch.model

    def change_model(self, name: str) -> None:
        """Switch to another model, if the conversation fits into its window."""
        if chosen := self._find_other_model(name):
            other, epoch = chosen
            switch_to_model(self.agent, epoch)
            self.agent.use_model(other.model)

    async def change_model_with_summary(self, name: str) -> None:
        """Switch to another model; the current one summarises what does not fit."""
        if chosen := self._find_other_model(name):
            other, epoch = chosen
            await switch_to_model_with_summary(self.agent, epoch)
            self.agent.use_model(other.model)

    def _find_other_model(self, name: str) -> tuple[SmallModel, Epoch] | None:
        """Find another model and the head that it would have; none if it is the same."""
        epoch = self.agent.session.view.epoch
        assert epoch is not None
        assert self.agent.models.named is not None
        other = self.agent.models.named(name)
        if self.agent.session.state.get(CHOSEN_MODEL_STATE):
            self.agent.session.append(Changed(CHOSEN_MODEL_STATE, ""))
        if (other.card.name, other.card.window) == (epoch.model.name, epoch.model.window):
            return None
        card = replace(other.card, effort=epoch.model.effort)
        return other, replace(epoch, model=card, why="asked for", unbind=False)

    def set_effort(self, effort: Effort) -> None:
        """Change the model's effort; the cached conversation is read again once."""
        epoch = self.agent.session.view.epoch
        assert epoch is not None
        if epoch.model.effort != effort:
            model = replace(epoch.model, effort=effort)
            self.agent.session.append(replace(epoch, model=model, why="asked for", unbind=False))

    async def aclose(self) -> None:
        """Stop subagents, disconnect and close the log."""
        await self.stack.aclose()


class HostExtensions(msgspec.Struct, frozen=True):
    """The additions of a caller to a session: a user who answers, tools, and hooks."""

    person: Person | None = None
    tools: tuple[AnyTool, ...] = ()
    listeners: tuple[Listener, ...] = ()
    report_start: Callable[[str], None] = lambda text: None
    """Called with what the start of the session waits for."""
    layers: tuple[ContextLayer, ...] = ()
    """Context layers, asked before each request."""

    @property
    def is_attended(self) -> bool:
        """True if a person is there to answer."""
        return self.person is not None


NO_EXTENSIONS = HostExtensions()


class NoUser:
    """Stands in for an absent user: every permission question is denied."""

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        """Deny, with what the user can do about it."""
        way = f"no one is there to ask; the user can allow it with --allowedTools {question.tool}"
        return PersonAnswer(allow=False, reason=f"{question.because}, and {way}")

    async def choose(self, inquiry: ChoiceRequest) -> tuple[str, ...] | None:
        """Return None: nobody is there to choose."""
        return None


def _collect_secrets(loaded: LoadedSettings) -> Secrets:
    """Collect the secret values to keep out of a session's files."""
    given = serving.list_hook_variables(loaded)
    return collect_secrets((*loaded.settings.env.items(), *os.environ.items()), listed=given)


class SessionParts(msgspec.Struct, frozen=True):
    """The inputs that all parts of a session are composed from."""

    place: Workspace
    loaded: LoadedSettings
    options: Options
    opened: OpenedSession
    session: Session
    guests: HostExtensions
    card: Card
    sandbox_setup: sandbox.SandboxSetup
    serve: serving.ModelFactory


async def compose_session(
    options: Options,
    *,
    model: ModelClient | None = None,
    guests: HostExtensions = NO_EXTENSIONS,
    workspace: LoadedWorkspace | None = None,
) -> SessionRuntime:
    """Compose a session from all its parts, ready for its first turn."""
    place, loaded = workspace or load_workspace(options)
    guests, unloadable = _add_packages(guests, loaded)
    async with AsyncExitStack() as stack:
        opened, settled = open_mirrored_log(place, loaded, options, stack=stack)
        session = Session(opened.log, secrets=_collect_secrets(loaded))
        kinds, flaws = load_agent_types(place, loaded, options)
        lead, loaded = agents.choose_main_agent(loaded, kinds, session)
        card, unchosen = await serving.choose_model(loaded, session, scripted=model is not None)
        setup = sandbox.compose_sandbox(
            loaded, place, stack, attended=guests.is_attended, session=opened
        )
        serve = serving.ModelFactory(loaded, stack, session=session, given=model)
        start = SessionParts(place, loaded, options, opened, session, guests, card, setup, serve)
        world = _build_world(start, stack)
        mcp_servers, tools, remarks = await _compose_tools(
            start, kinds, lead, world=world, stack=stack
        )
        agents.report_lost_children(session, opened)
        dressed, unstyled = skilled.apply_prompt_settings(
            place, loaded, agents.apply_agent_prompt(options, lead)
        )
        settle_session_log(session, place, card=card, tools=tuple(tools.values()), options=dressed)
        mail = loaded.settings.mail if options.persist else None
        session_mail = posting.compose_mail(
            place, opened, session, world=world, settings=mail, stack=stack
        )
        answers, key_source = serve.connect(card)
        models, unreachable = serving.compose_models(
            loaded, session, serve=serve, chain=options.fallback
        )
        hooks, unusable = hooking.load_hooks(loaded, lead)
        parts = AgentParts(answers, tools, world, models, hooks, mcp_servers, lead, session_mail)
        agent = await _compose_agent(start, parts, stack)
        gone = _enter_work_folder(agent, start, stack)
        cut = await _apply_requested_head(agent, card, options, guests=guests, serve=serve)
        notices = (
            *filter(None, (take_move_note(place.home.path), unchosen, setup.line, cut)),
            *(*loaded.notices, *unusable, *unloadable, *remarks),
            *serving.missing_price_notices(loaded, card),
            *(*gone, *flaws, *unstyled),
            *(*describe_log_damage(opened.log), *settled),
            *rights.startup_notices(loaded, place.cwd),
            *(*mcp_servers.notices, *world.processes.take_notices()),
        )
        kept = stack.pop_all()
        mcp.pin_definitions(session, mcp_servers)
        notices = (*notices, *_model_notices(agent, loaded, unreachable))
        await agents.start_main_agent(agent, lead, _compose_subagents(start, kinds))
        runtime = SessionRuntime(opened.id, agent, key_source, notices, kept, serve, session_mail)
        return _add_settings_parts(replace(runtime, mcp_servers=mcp_servers), start)


def _add_packages(
    guests: HostExtensions, loaded: LoadedSettings
) -> tuple[HostExtensions, tuple[str, ...]]:
    """Add what installed packages bring to a session; return notices about those that fail."""
    if not loaded.packages:
        return guests, ()
    parts = package_parts.load_package_parts(loaded.packages)
    added = replace(
        guests,
        tools=(*guests.tools, *parts.tools),
        listeners=(*guests.listeners, *parts.listeners),
        layers=(*guests.layers, *parts.layers),
    )
    return added, tuple(parts.notices)


def _model_notices(
    agent: Agent, loaded: LoadedSettings, unreachable: tuple[tuple[str, UserError], ...]
) -> Iterator[str]:
    """Yield what to tell about the session's models: web search, their windows, fallbacks."""
    yield from searching.search_notices(loaded, current_card(agent))
    if told := restore_window(agent):
        yield told
    yield from serving.fallback_notices(agent.session, unreachable)


def _add_settings_parts(runtime: SessionRuntime, parts: SessionParts) -> SessionRuntime:
    """Add the session parts that only settings decide: consolidation, telemetry, style."""
    asked, driven = parts.loaded.settings, parts.options.driven
    nights = _open_dreams(parts) if parts.guests.is_attended and not driven else None
    wish, style = read_telemetry_options(asked, os.environ), asked.output_style or DEFAULT_STYLE
    plugins = parts.loaded.plugins
    return replace(runtime, nights=nights, plugins=plugins, style=style, telemetry=wish)


async def _compose_tools(
    parts: SessionParts,
    kinds: tuple[AgentType, ...],
    lead: AgentType | None,
    *,
    world: World,
    stack: AsyncExitStack,
) -> tuple[McpServers, dict[str, AnyTool], tuple[str, ...]]:
    """Compose the MCP servers and tools of a session, and notices about its browser."""
    place, loaded, options = parts.place, parts.loaded, parts.options
    session, card = parts.session, parts.card
    window, remarks = web.compose_browser(loaded, options, stack, session=session, world=world)
    asking = lsp.compose_lsp_tools(world.language_servers, loaded, options.tools)
    every = _select_tools(loaded, options, (*window, *asking, *parts.guests.tools), card=card)
    tools = agents.describe_agent_types(agents.select_main_agent_tools(every, lead), kinds)
    opened = partial(mcp.compose_mcp, place, loaded, options, bounds=parts.sandbox_setup.bounds)
    mcp_servers = await opened(
        world=world, session=session, card=card, report_start=parts.guests.report_start
    )
    tools |= mcp_servers.head_tools(loaded, tools.values())
    fitting = skilled.drop_skill_tool_if_unused(
        tools, session, place, loaded=loaded, options=options
    )
    return mcp_servers, fitting, remarks


class AgentParts(msgspec.Struct, frozen=True):
    """The parts of an agent that are opened before it."""

    model: ModelClient
    tools: dict[str, AnyTool]
    world: World
    models: AgentModels
    hooks: tuple[Hook, ...]
    mcp_servers: McpServers
    lead: AgentType | None
    mail: SessionMail | None


async def _compose_agent(start: SessionParts, parts: AgentParts, stack: AsyncExitStack) -> Agent:
    """Compose a session's agent from its parts; only subagents are added later."""
    place, loaded, options, session = start.place, start.loaded, start.options, start.session
    permissions = _agent_permissions(start, parts.mcp_servers)
    runtime = _agent_runtime(start)
    snapshots = _open_snapshots(start, permissions.guard.folders)  # not of an agent's own memory
    guard = agents.limit_main_agent(permissions.guard, parts.lead, place)
    permissions = replace(permissions, guard=guard)
    # Hooks open more while the session goes on, which must be closed with it.
    later = await stack.enter_async_context(AsyncExitStack())
    return Agent(
        session=session,
        model=parts.model,
        encoder=RequestEncoder(BlobStore(place.home.blobs).get),
        tools=_agent_tools(start, parts),
        world=replace(parts.world, snapshots=snapshots),
        permissions=permissions,
        hooks=hooking.compose_hooks(
            (*parts.hooks, *start.guests.listeners),
            loaded,
            session,
            permissions=permissions,
            workspace=place,
            opened=start.opened,
            stack=later,
        ),
        context=replace(
            serving.compose_context(place, loaded, session, persist=options.persist),
            custom=start.guests.layers,
        ),
        memory=memory.compose_memory(
            place, loaded, world=parts.world, runtime=runtime, persist=options.persist
        ),
        prompt=_agent_prompt(start, permissions, parts.lead),
        team=_agent_team(start, parts.mail),
        budget=_session_budget(loaded.settings, session),
        models=parts.models,
        turn=agents.begin_main_turn(session, parts.lead),
        runtime=runtime,
    )


def _agent_tools(start: SessionParts, parts: AgentParts) -> AgentTools:
    """Compose an agent's tools: built-in ones, web search and those of MCP servers."""
    search = searching.compose_web_search(start.loaded, serve=start.serve)
    tools = AgentTools(parts.tools, toolset=start.loaded.settings.toolset, search_web=search)
    return mcp.compose_mcp_tools(tools, parts.mcp_servers, start.session)


def _agent_permissions(parts: SessionParts, mcp_servers: McpServers) -> AgentPermissions:
    """Compose the agent's permissions; a session left in plan mode stays in it."""
    place, loaded, sandbox_setup = parts.place, parts.loaded, parts.sandbox_setup
    guard = _build_permissions(
        place,
        loaded,
        parts.options,
        spill=parts.opened.spill,
        setup=sandbox_setup,
        attended=parts.guests.is_attended,
    )
    if parts.session.state.get(MODE_STATE) == "plan" and not parts.options.mode:
        guard = replace(guard, mode="plan")
    return AgentPermissions(
        mcp.allow_server_tools(guard, mcp_servers),
        parts.guests.person or NoUser(),
        sandbox=sandbox_setup.bounds,
        sandbox_missing=sandbox_setup.unwalled,
        save_rules=partial(rights.save_answer, parts.session, place.home, loaded.root),
        is_attended=parts.guests.is_attended,
    )


def _agent_runtime(parts: SessionParts) -> AgentRuntime:
    """Compose an agent's services: reloading settings, moving folders and worktrees."""
    place, loaded, options = parts.place, parts.loaded, parts.options
    shared, id = loaded.settings.worktree.symlink_directories, parts.opened.id
    return AgentRuntime(
        jitter=random,
        reload_settings=SettingsReload(place, loaded, again=lambda: load_workspace(options)[1]),
        relocate=SessionRelocation(
            place.cwd, parts.sandbox_setup.bounds, partial(_reopen_snapshots, parts)
        ),
        worktrees=lambda agent: SessionWorktrees(agent, id, shared),
        while_waiting=ImportAhead().during,
    )


def _agent_prompt(
    parts: SessionParts, permissions: AgentPermissions, lead: AgentType | None
) -> AgentPrompt:
    """Compose the parts of the prompt besides the conversation."""
    place, loaded, options, session = parts.place, parts.loaded, parts.options, parts.session
    bounds, id = parts.sandbox_setup.bounds, parts.opened.id
    old_tmp = sandbox.find_old_tmp(bounds, place, id=id, session=session)

    def environment() -> Environment:
        cwd, worktree = session.state.get("cwd", ""), current_worktree(session)
        here = describe_surroundings(place, options, cwd=cwd, worktree=worktree)
        return replace(here, planning=permissions.guard.mode == "plan", old_tmp=old_tmp)

    reads = lead is None or lead.instructions
    files = (
        compose_instructions(place, loaded, permissions.guard, sources=options.shelves)
        if reads
        else None
    )
    skills = skilled.compose_skills(place, loaded, options)
    return AgentPrompt(
        environment, files, skills, use_skills=AgentSkillRunner, restate=rebuild_briefing
    )


def _agent_team(parts: SessionParts, mail: SessionMail | None) -> AgentTeam:
    """Compose what an agent shares with its team: activity names, task list and mail."""
    naming = serving.compose_naming(parts.session, parts.loaded, serve=parts.serve)
    if mail is None:
        return AgentTeam(naming=naming)
    return AgentTeam(
        naming=naming,
        tasks=mail.tasks,
        courier=mail,
        collect_mail=lambda agent: mail.collect(),
    )


def _enter_work_folder(agent: Agent, parts: SessionParts, stack: AsyncExitStack) -> tuple[str, ...]:
    """Move a session to the folder in its log; return notices if that is gone."""
    stack.callback(_end_snapshots, agent)
    if days := parts.loaded.settings.cleanup_period_days:
        prune_old_sessions(parts.place.home, days=days, now=time())
    gone = leave_missing_worktree(parts.session, parts.place.cwd)
    agent.runtime.relocate(agent)
    return (gone,) if gone else ()


def _compose_subagents(parts: SessionParts, kinds: tuple[AgentType, ...]) -> agents.SubagentFactory:
    """Compose the factory that starts an agent's subagents."""
    folder, among = parts.opened.log.folder, serving.model_catalog(parts.loaded)
    shared = parts.loaded.settings.worktree.symlink_directories
    return agents.SubagentFactory(parts.place, folder, kinds, parts.serve, among, shared)


async def _apply_requested_head(
    agent: Agent,
    card: Card,
    options: Options,
    *,
    guests: HostExtensions,
    serve: serving.ModelFactory,
) -> str:
    """Apply the requested head to a resumed session.

    Returns what had to give way for that, or nothing.
    """
    if options.name:
        agent.session.append(Changed("name", options.name))
    epoch = build_requested_head(agent.session, card, options, brought=guests.tools)
    if epoch is None:
        return ""
    return await switch_to_model_with_summary(
        agent, epoch, former=lambda before: serve.connect(before)[0]
    )


def _open_dreams(parts: SessionParts) -> ProjectDreams | None:
    """Open the project's memory consolidation; None without memories or if nothing is saved."""
    if not parts.options.persist or not (parts.place.home.path / "memory").is_dir():
        return None
    return dreaming.compose_dreaming(parts.place, parts.loaded)


def _build_permissions(
    workspace: Workspace,
    loaded: LoadedSettings,
    options: Options,
    *,
    spill: Path,
    setup: sandbox.SandboxSetup,
    attended: bool,
) -> Permissions:
    """Build a session's permissions from its settings, its options and its sandbox."""
    guard = rights.compose_permissions(
        loaded, workspace.cwd, own=workspace.home.folders, readable=(str(spill),)
    )
    guard = replace(guard, blocked=("read", "write")) if options.restricted else guard
    if setup.bounds is None:
        return guard
    writable = (*guard.writable, *setup.bounds.git)
    told = "ask" if options.driven and attended else "free"
    return replace(guard, scratch=setup.bounds.temp, scratch_writes=told, writable=writable)


def open_mirrored_log(
    workspace: Workspace, loaded: LoadedSettings, options: Options, *, stack: AsyncExitStack
) -> tuple[OpenedSession, tuple[str, ...]]:
    """Open the log, here and in the session store if there is one; return notices, too."""
    address = find_store_address(options, loaded.settings.session_store, os.environ)
    if not address and options.driven and options.resume and HOST_CONFIG_VARIABLE in os.environ:
        stored = session_store.fetch_transcript(workspace, options, os.environ)
        opened = open_log(workspace, options, stack)
        told = session_store.settle_with_transcript(workspace, opened, stored) if stored else ""
        return opened, (told,) if told else ()
    if not address:
        return open_log(workspace, options, stack), ()
    storage = session_store.open_session_storage(workspace, address)
    options = storage.fetch_missing(options)
    opened = open_log(workspace, options, stack)
    return opened, storage.mirror_log(opened, options, stack)


def load_workspace(options: Options) -> LoadedWorkspace:
    """Load a session's workspace and the settings that apply there."""
    cwd = _resolve_work_folder(options.cwd)
    home, kept = homes.prepare_home_or_temporary(os.environ)
    if kept.passing and (options.latest or options.resume):
        homes.locate_home(os.environ).prepare()  # raises why no session can go on
    place = Workspace(kept, projects.identify_project(kept, cwd), cwd)
    loaded = load_settings(
        home,
        place.project.root,
        cwd=cwd,
        environ=os.environ,
        given=options.settings,
        chosen=settings_from_options(options),
        sources="none" if options.restricted else options.sources,
    )
    if kept.passing:
        loaded = replace(loaded, notices=(kept.passing, *loaded.notices))
    if options.bare:
        given = tuple(one for one in loaded.plugins if one.folder in options.plugins)
        loaded = replace(loaded, plugins=given, packages=())
    rights.apply_settings_env(loaded)
    return place, rights.drop_unusable_settings(loaded, os.environ)


def _resolve_work_folder(path: str) -> str:
    """Return the real path of the session's folder: the named one, else the current one."""
    if not path:
        try:
            return os.getcwd()
        except FileNotFoundError:
            fix = "Change to another one, or name one with cwd."
            raise UserError("The current folder no longer exists", fix=fix) from None
    if "\0" in path:
        shown = path.replace("\0", "\\0")
        raise UserError(f"Cannot work in {shown}", why="a path cannot contain a NUL character")
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        why = "it is not a folder" if os.path.exists(real) else "it does not exist"
        raise UserError(f"Cannot work in {path}", why=why, fix="Create it, or name another cwd.")
    return real


def _open_snapshots(parts: SessionParts, folders: tuple[str, ...]) -> Snapshots | None:
    """Open snapshots of a session's writable folders; None if the session saves nothing."""
    if not parts.options.persist or not parts.loaded.settings.file_checkpointing_enabled:
        return None
    session, place = parts.session, parts.place
    return Snapshots(
        place.home.path,
        place.project.key,
        folders=folders,
        tell=lambda text: session.emit(UserWarned(text)),
        own=place.home.folders,
    )


def _reopen_snapshots(
    parts: SessionParts, former: WorkspaceSnapshots, folders: tuple[str, ...]
) -> Snapshots | None:
    """Replace a session's snapshots after a move: close the old folders' and open the new."""
    if isinstance(former, Snapshots):
        former.close()
    return _open_snapshots(parts, folders)


def _end_snapshots(agent: Agent) -> None:
    if isinstance(agent.world.snapshots, Snapshots):
        agent.world.snapshots.close()


def _session_budget(asked: Settings, session: Session) -> Budget:
    """Return a session's budget, minus what it has already used."""
    limits = Limits(
        turns=asked.max_turns,
        dollars=asked.max_budget_usd,
        tokens=asked.max_tokens,
        seconds=asked.max_seconds,
        depth=asked.max_depth,
        agents=asked.max_agents,
    )
    before = RunTotals()
    if asked.limits == "session" and (asked.max_turns or asked.max_seconds):
        before = measure_runs(session.read_whole_log())
    spent = Amount(before.turns, session.usage.context, session.dollars)
    return Budget(limits, spent=spent, scope=asked.limits, worked=before.seconds)


def load_agent_types(
    workspace: Workspace, loaded: LoadedSettings, options: Options
) -> tuple[tuple[AgentType, ...], tuple[str, ...]]:
    """Load a session's agent types, and notices about broken files."""
    return agent_files.load_agent_types(
        workspace.home,
        workspace.project.root,
        workspace.cwd,
        trusted=loaded.trust == "trusted",
        given=options.agents,
        levels=parse_setting_sources(options.shelves),
        plugins=loaded.plugins,
        agreed=trust.list_agreed_digests(workspace.home, loaded.root),
    )


def _select_tools(
    loaded: LoadedSettings, options: Options, also: tuple[AnyTool, ...], *, card: Card
) -> dict[str, AnyTool]:
    """Select a session's tools, without those that permission rules deny altogether."""
    chosen = options.tools
    # What the model's toolset hides needs no room, and is there when another model takes over.
    hidden = TOOLSETS[toolset_for(card.id, loaded.settings.toolset)].hidden
    fitting = (one for one in TOOLS if one.room <= card.window or one.name in hidden)
    own = fitting if chosen is None else (one for one in TOOLS if one.name in chosen)
    idle = set[str]() if loaded.settings.memory.enabled else {"Remember"}
    idle |= set[str]() if searching.is_search_offered(loaded, card) else {"WebSearch"}
    told = (tool for tool in (*own, *also) if not is_tool_denied(loaded.rules, tool.name))
    kept = {tool.name: tool for tool in told if tool.name not in idle}
    if (folder := loaded.settings.plans_directory) and interaction.EXIT_PLAN_MODE.name in kept:
        kept[interaction.EXIT_PLAN_MODE.name] = interaction.save_plans_in(folder)
    return kept


def _build_world(parts: SessionParts, stack: AsyncExitStack) -> World:
    """Build the session's files, processes, web and storage for its tools."""
    workspace, loaded, spill = parts.place, parts.loaded, parts.opened.spill
    settings, extra = loaded.settings, skilled.environment_for_tools(loaded)
    support, bounds = parts.sandbox_setup.support, parts.sandbox_setup.bounds
    passed, journal = settings.env_passthrough, str(workspace.home.path / "guards")
    processes = LocalProcesses(passed=passed, extra=extra, support=support, journal=journal)
    processes.recover()
    stack.push_async_callback(processes.aclose)
    keep = partial(agents.save_large_output, spill)
    blobs = BlobStore(workspace.home.blobs)
    files = ReadCache(DiskFiles(processes.accept_change))
    servers = lsp.compose_language_servers(
        loaded, workspace.home, processes, root=workspace.cwd, bounds=bounds, session=parts.session
    )
    return World(
        workspace.cwd,
        files,
        processes,
        HttpxWeb(),
        blobs,
        keep,
        kept=str(spill),
        language_servers=servers,
    )
