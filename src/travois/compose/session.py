"""Putting a session together: the only place that knows concrete classes."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import random
from time import time
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from travois.agents import agent_files
from travois.agents.types import Kind
from travois.compose import agents, web
from travois.compose import agents as crew
from travois.compose import hooks as hooking
from travois.compose import mail as posting
from travois.compose import mcp as lending
from travois.compose import memory as remembering
from travois.compose import models as serving
from travois.compose import permissions as rights
from travois.compose import sandbox as fencing
from travois.compose import skills as skilled
from travois.compose import web as searching
from travois.compose.instructions import library
from travois.compose.mail import Office
from travois.compose.mcp import Loan
from travois.compose.open_session import Found, Place, around, damage, open_log, renewed, settle
from travois.compose.options import Options, settings
from travois.compose.reload_settings import Reload
from travois.compose.relocate_session import Relocation, SessionWorktrees, worktree_of
from travois.context.switch_model import switch, switch_with_summary
from travois.core.errors import Fault
from travois.core.facts import Changed, Epoch
from travois.core.models import Effort
from travois.core.models import Model as Card
from travois.core.spending import Amount, Limits, Purse
from travois.engine.agent import Agent, Patience, Small, World
from travois.engine.fallback import HOME
from travois.engine.permission_modes import MODE, follow
from travois.files.disk import DiskFiles
from travois.files.read_cache import ReadCache
from travois.hooks.config import Listener
from travois.permissions.decide import Guard
from travois.permissions.rules import withheld
from travois.permissions.secrets import Secrets, secrets
from travois.ports.tool import AnyTool
from travois.ports.world import Answer, Inquiry, Model, Person, Question, Warned
from travois.process.run import LocalProcesses
from travois.prompt.briefing import again
from travois.prompt.style_text import DEFAULT
from travois.providers.encoder import Encoder
from travois.providers.http.fetch import HttpxWeb
from travois.sandbox.probe import Walls
from travois.sessions import home as homes
from travois.sessions import home as projects
from travois.sessions.blobs import Blobs
from travois.sessions.catalog import tidy
from travois.sessions.session import Session
from travois.settings import trust
from travois.settings.load import load
from travois.settings.schema import Loaded, Plugin, Settings
from travois.settings.sources import levels
from travois.skills.invoke import Practitioner
from travois.snapshots.snapshots import Snapshots
from travois.telemetry import Wish, wished
from travois.tools import interaction as plan
from travois.tools.catalog import TOOLS

if TYPE_CHECKING:
    from travois.compose.dreaming import Nights


class Crew(msgspec.Struct):
    """A running agent and everything that must be closed after it."""

    id: str
    agent: Agent
    key_source: str
    notices: tuple[str, ...]
    stack: AsyncExitStack
    serve: Callable[[Card], Model]
    """Whoever answers for a model, from here on."""
    office: Office | None
    """Its mail; none for a session that leaves no trace."""
    nights: Nights | None = None
    """How memories are put in order beside it; none where nobody is there, or nothing is known."""
    loan: Loan = Loan()
    """The servers that lend it tools."""
    plugins: tuple[Plugin, ...] = ()
    telemetry: Wish | None = None
    """What a collector is told of it; none if nothing is."""
    style: str = DEFAULT
    """The output style that it began with, as far as the settings still say so."""

    @property
    def model(self) -> Card:
        """The model that answers."""
        epoch = self.agent.session.view.epoch
        assert epoch is not None
        return epoch.model

    def change(self, name: str) -> None:
        """Go on with another model, in whose window all must have room; else nothing changes."""
        if chosen := self._chosen(name):
            other, epoch = chosen
            switch(self.agent, epoch)
            self.agent.model = other.model

    async def change_with_summary(self, name: str) -> None:
        """The same, where the model so far sums up what has no room in the other's window."""
        if chosen := self._chosen(name):
            other, epoch = chosen
            await switch_with_summary(self.agent, epoch)
            self.agent.model = other.model

    def _chosen(self, name: str) -> tuple[Small, Epoch] | None:
        """Find another model and the head that it would have; none if it is the same."""
        epoch = self.agent.session.view.epoch
        assert epoch is not None
        assert self.agent.other is not None
        other = self.agent.other(name)
        if self.agent.session.state.get(HOME):
            self.agent.session.append(Changed(HOME, ""))
        if (other.card.name, other.card.window) == (epoch.model.name, epoch.model.window):
            return None
        card = replace(other.card, effort=epoch.model.effort)
        return other, replace(epoch, model=card, why="asked for", unbind=False)

    def exert(self, effort: Effort) -> None:
        """Let the model think more or less from here on; what it has read is read anew, once."""
        epoch = self.agent.session.view.epoch
        assert epoch is not None
        if epoch.model.effort != effort:
            model = replace(epoch.model, effort=effort)
            self.agent.session.append(replace(epoch, model=model, why="asked for", unbind=False))

    async def aclose(self) -> None:
        """Stop children, hang up, let go of the log."""
        await self.stack.aclose()


class Guests(msgspec.Struct, frozen=True):
    """What whoever opens a session brings along: answers, and tools and hooks of their own."""

    person: Person | None = None
    tools: tuple[AnyTool, ...] = ()
    listeners: tuple[Listener, ...] = ()

    @property
    def attended(self) -> bool:
        """Whether somebody is there to be asked."""
        return self.person is not None


ALONE = Guests()


class Nobody:
    """Headless: a question has no one to answer it, so the answer is no."""

    async def decide(self, question: Question) -> Answer:
        """No, with what the user can do about it."""
        way = f"no one is there to ask; the user can allow it with --allowedTools {question.tool}"
        return Answer(allow=False, reason=f"{question.because}, and {way}")

    async def choose(self, inquiry: Inquiry) -> tuple[str, ...] | None:
        """Nobody chooses."""
        return None


def _secrets(loaded: Loaded) -> Secrets:
    """The values that are kept out of a session's files."""
    given = serving.given_variables(loaded)
    return secrets((*loaded.settings.env.items(), *os.environ.items()), listed=given)


async def _lent(
    place: Place,
    loaded: Loaded,
    options: Options,
    fence: fencing.Fence,
    *,
    world: World,
    session: Session,
    card: Card,
) -> lending.Loan:
    """The MCP servers of a session, with the sandbox that they may run in."""
    opened = partial(lending.opened, place, loaded, options, bounds=fence.bounds)
    return await opened(world=world, session=session, card=card)


async def gather(options: Options, *, model: Model | None = None, guests: Guests = ALONE) -> Crew:
    """Everything that a session needs, open and ready for its first turn."""
    place, loaded = prepare(options)
    async with AsyncExitStack() as stack:
        opened = open_log(place, options, stack)
        session = Session(opened.log, secrets=_secrets(loaded))
        kinds, flaws = agents_here(place, loaded, options)
        lead, loaded = agents.chosen(loaded, kinds, session)
        card, unchosen = await serving.card(loaded, session, scripted=model is not None)
        fence = fencing.build(loaded, place, stack, attended=guests.attended, session=opened)
        world = _world(place, loaded, stack, spill=opened.spill, walls=fence.walls)
        window, remarks = web.opened(loaded, options, stack, session=session, world=world)
        own = agents.given(_tools(loaded, options, (*window, *guests.tools), card=card), lead)
        tools, asked = crew.described(own, kinds), loaded.settings
        loan = await _lent(place, loaded, options, fence, world=world, session=session, card=card)
        tools |= loan.tools(loaded, tools.values())
        tools = skilled.fitting(tools, session, place, loaded=loaded, options=options)
        crew.recover(session, opened)
        dressed, unstyled = skilled.dressed(place, loaded, agents.told(options, lead))
        settle(session, place, card=card, tools=tuple(tools.values()), options=dressed)
        serve = serving.Reach(loaded, stack, session=session, given=model)
        answers, key_source = serve.served(card)
        hooks, unusable = hooking.known(loaded)
        agent = Agent(
            session=session,
            model=answers,
            encoder=Encoder(Blobs(place.home.blobs).get),
            tools=tools,
            world=world,
            guard=_guard(place, loaded, options, spill=opened.spill, fence=fence),
            bounds=fence.bounds,
            unwalled=fence.unwalled,
            person=guests.person or Nobody(),
            purse=_purse(asked, session),
        )
        gone = _equip(agent, place, loaded=loaded, options=options, id=opened.id, stack=stack)
        mail = asked.mail if options.persist else None
        office = posting.opened(place, opened, agent, settings=mail, stack=stack)
        cut = await _renew(agent, card, options, guests=guests, serve=serve)
        notices = (*filter(None, (unchosen, fence.line, cut)), *loaded.notices, *unusable, *remarks)
        notices += (*serving.unpriced(loaded, card), *gone, *flaws, *unstyled, *damage(opened.log))
        notices += (*rights.remarks(loaded, place.cwd), *loan.notices, *world.processes.notices())
        kept = stack.pop_all()
        heard = (*hooks, *guests.listeners)
        hooking.equip(agent, heard, loaded, place=place, found=opened, stack=kept)
        notices += _served(agent, place, loaded=loaded, options=options, serve=serve, loan=loan)
        yard = _yard(place, opened, kinds, loaded=loaded, serve=serve)
        await agents.begin(agent, lead, yard)
        nights = _nights(place, loaded, options) if guests.attended and not options.driven else None
        done = Crew(opened.id, agent, key_source, notices, kept, serve, office, nights, loan)
        wish, style = wished(asked, os.environ), asked.output_style or DEFAULT
        return replace(done, plugins=loaded.plugins, style=style, telemetry=wish)


def _yard(
    place: Place,
    opened: Found,
    kinds: tuple[Kind, ...],
    *,
    loaded: Loaded,
    serve: Callable[[Card], Model],
) -> crew.Yard:
    shared = loaded.settings.worktree.symlink_directories
    return crew.Yard(place, opened.log.folder, kinds, serve, serving.known(loaded), shared)


async def _renew(
    agent: Agent, card: Card, options: Options, *, guests: Guests, serve: serving.Reach
) -> str:
    """Go on with what was asked for, where a session began with something else.

    Returns what had to give way for that, or nothing.
    """
    if options.name:
        agent.session.append(Changed("name", options.name))
    agent.attended = guests.attended
    epoch = renewed(agent.session, card, options, brought=guests.tools)
    if epoch is None:
        return ""
    return await switch_with_summary(agent, epoch, former=lambda before: serve.served(before)[0])


def _served(
    agent: Agent,
    place: Place,
    *,
    loaded: Loaded,
    options: Options,
    serve: Callable[[Card], Model],
    loan: Loan,
) -> tuple[str, ...]:
    """Let servers lend tools, and other models stand in, choose and search; says which cannot."""
    lending.equip(agent, loan)
    agent.naming = serving.naming(agent, loaded, serve=serve)
    remembering.equip(agent, place, loaded=loaded, serve=serve, persist=options.persist)
    unheard = searching.equip(agent, loaded, serve=serve)
    return (*unheard, *serving.equip(agent, loaded, serve=serve, chain=options.fallback))


def _nights(place: Place, loaded: Loaded, options: Options) -> Nights | None:
    if not options.persist or not (place.home.path / "memory").is_dir():
        return None
    from travois.compose import dreaming

    return dreaming.opened(place, loaded)


def _guard(
    place: Place, loaded: Loaded, options: Options, *, spill: Path, fence: fencing.Fence
) -> Guard:
    guard = rights.guard(loaded, place.cwd, own=str(place.home.path), readable=(str(spill),))
    guard = replace(guard, blocked=("read", "write")) if options.restricted else guard
    if fence.bounds is None:
        return guard
    writable = (*guard.writable, *fence.bounds.git)
    return replace(guard, scratch=fence.bounds.temp, writable=writable)


def _equip(
    agent: Agent,
    place: Place,
    *,
    loaded: Loaded,
    options: Options,
    id: str,
    stack: AsyncExitStack,
) -> tuple[str, ...]:
    """Give an agent what settings say, and what needs the agent itself; says what is not there."""
    asked = loaded.settings
    agent.layers, agent.chance = serving.layers(loaded, agent.session), random
    agent.toolset = asked.toolset
    agent.patience = Patience(asked.retry.attempts, longest=asked.retry.max_wait)
    agent.remember = partial(rights.keep_answer, agent, place.home, loaded.root)
    if options.persist and not place.home.passing:
        shared = place.home.summaries / place.project.key / loaded.trust
        agent.summaries = partial(serving.open_summaries, shared)
    if asked.file_checkpointing_enabled:
        agent.keeper = _keeper(place, options, agent, folders=agent.guard.folders)
    stack.callback(_end_snapshots, agent)
    if days := asked.cleanup_period_days:
        tidy(place.home, days=days, now=time())
    agent.refresh = Reload(agent, place, loaded, again=lambda: prepare(options)[1])
    old_tmp = fencing.find_old_tmp(agent.bounds, place, id=id, session=agent.session)
    agent.around = lambda: replace(
        around(
            place,
            options,
            cwd=agent.session.state.get("cwd", ""),
            worktree=worktree_of(agent.session),
        ),
        planning=agent.guard.mode == "plan",
        old_tmp=old_tmp,
    )
    agent.library = library(place, loaded, agent.guard, sources=options.shelves)
    agent.skills, agent.practice = skilled.skills(place, loaded, options), Practitioner
    agent.baseline = lambda: again(agent)
    if agent.session.state.get(MODE) == "plan" and not options.mode:
        follow(agent, "plan")
    return _place(agent, place, options, id=id, loaded=loaded)


def prepare(options: Options) -> tuple[Place, Loaded]:
    """Where a session will be, and the settings that hold there."""
    cwd = _existing_folder(options.cwd)
    home, kept = homes.prepare_or_pass(os.environ)
    if kept.passing and (options.latest or options.resume):
        homes.locate(os.environ).prepare()  # raises why no session can go on
    place = Place(kept, projects.identify(kept, cwd), cwd)
    loaded = load(
        home,
        place.project.root,
        cwd=cwd,
        environ=os.environ,
        given=options.settings,
        chosen=settings(options),
        sources="none" if options.restricted else options.sources,
    )
    if kept.passing:
        loaded = replace(loaded, notices=(kept.passing, *loaded.notices))
    if options.bare:
        given = tuple(one for one in loaded.plugins if one.folder in options.plugins)
        loaded = replace(loaded, plugins=given)
    rights.inherit(loaded)
    return place, rights.usable(loaded, os.environ)


def _existing_folder(path: str) -> str:
    """Return the real path of the folder to work in: the one named, else the current one."""
    if not path:
        try:
            return os.getcwd()
        except FileNotFoundError:
            fix = "Change to another one, or name one with cwd."
            raise Fault("The current folder no longer exists", fix=fix) from None
    if "\0" in path:
        shown = path.replace("\0", "\\0")
        raise Fault(f"Cannot work in {shown}", why="no path can hold a NUL character")
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        why = "it is not a folder" if os.path.exists(real) else "it does not exist"
        raise Fault(f"Cannot work in {path}", why=why, fix="Create it, or name another cwd.")
    return real


def _place(
    agent: Agent, place: Place, options: Options, *, id: str, loaded: Loaded
) -> tuple[str, ...]:
    """Let the session work where its log says, and move from there; says if it had to return."""

    def keep(folders: tuple[str, ...]) -> Snapshots | None:
        _end_snapshots(agent)
        return _keeper(place, options, agent, folders=folders)

    relocate = Relocation(agent, keep)
    gone = relocate.return_if_gone()
    shared = loaded.settings.worktree.symlink_directories
    agent.worktrees, agent.relocate = SessionWorktrees(agent, id, shared), relocate
    relocate()
    return (gone,) if gone else ()


def _keeper(
    place: Place, options: Options, agent: Agent, *, folders: tuple[str, ...]
) -> Snapshots | None:
    """Snapshots of the folders that may be changed; none for a session that leaves no trace."""
    if not options.persist:
        return None
    return Snapshots(
        place.home.path,
        place.project.key,
        folders=folders,
        tell=lambda text: agent.session.emit(Warned(text)),
    )


def _end_snapshots(agent: Agent) -> None:
    if isinstance(agent.keeper, Snapshots):
        agent.keeper.close()


def _purse(asked: Settings, session: Session) -> Purse:
    """What the session may use up, less what it has used before."""
    limits = Limits(
        turns=asked.max_turns,
        dollars=asked.max_budget_usd,
        tokens=asked.max_tokens,
        seconds=asked.max_seconds,
        depth=asked.max_depth,
        agents=asked.max_agents,
    )
    spent = Amount(tokens=session.usage.context, dollars=session.dollars)
    return Purse(limits, spent=spent)


def agents_here(
    place: Place, loaded: Loaded, options: Options
) -> tuple[tuple[Kind, ...], tuple[str, ...]]:
    """The kinds of agents that there are, and what is wrong with files."""
    return agent_files.kinds(
        place.home,
        place.project.root,
        place.cwd,
        trusted=loaded.trust == "trusted",
        given=options.agents,
        levels=levels(options.shelves),
        plugins=loaded.plugins,
        agreed=trust.agreed(place.home, loaded.root),
    )


def _tools(
    loaded: Loaded, options: Options, also: tuple[AnyTool, ...], *, card: Card
) -> dict[str, AnyTool]:
    """All tools but those that rules deny altogether: what can never run need not be told."""
    chosen = options.tools
    own = (
        one for one in TOOLS if (one.room <= card.window if chosen is None else one.name in chosen)
    )
    idle = set[str]() if loaded.settings.memory.enabled else {"Remember"}
    idle |= set[str]() if searching.offered(loaded, card) else {"WebSearch"}
    told = (tool for tool in (*own, *also) if not withheld(loaded.rules, tool.name))
    kept = {tool.name: tool for tool in told if tool.name not in idle}
    if (folder := loaded.settings.plans_directory) and plan.PLAN.name in kept:
        kept[plan.PLAN.name] = plan.kept_in(folder)
    return kept


def _world(
    place: Place, loaded: Loaded, stack: AsyncExitStack, *, spill: Path, walls: Walls | None
) -> World:
    settings, extra = loaded.settings, skilled.variables(loaded)
    passed, journal = settings.env_passthrough, str(place.home.path / "guards")
    processes = LocalProcesses(passed=passed, extra=extra, walls=walls, journal=journal)
    processes.recover()
    stack.push_async_callback(processes.aclose)
    keep = partial(crew.keep, spill)
    blobs = Blobs(place.home.blobs)
    files = ReadCache(DiskFiles(processes.accept))
    return World(place.cwd, files, processes, HttpxWeb(), blobs, keep, kept=str(spill))
