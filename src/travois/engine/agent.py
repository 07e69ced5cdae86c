"""The agent and its parts: tools, permissions, hooks, memory, team, models."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from time import time
from typing import TYPE_CHECKING, Literal, Protocol

import anyio
import msgspec
from msgspec.structs import replace

from travois.context.layers import ContextLayers
from travois.core.content import Text
from travois.core.facts import Changed, User
from travois.core.models import ModelCard as Card
from travois.core.spending import Budget
from travois.core.view import View
from travois.hooks.config import Hook
from travois.hooks.output import HookResult, Hooks
from travois.memory.memory import MemoryStore
from travois.permissions.decide import PERMISSION_MODES, PermissionMode, Permissions
from travois.permissions.updates import PermissionUpdate
from travois.ports.agents import MailTransport, TaskStore, Worktrees
from travois.ports.tool import AnyTool
from travois.ports.world import (
    Blobs,
    Files,
    InstructionLibrary,
    ModelClient,
    Person,
    Processes,
    SearchQuery,
    SearchResults,
    Subagents,
    Web,
    WorkspaceSnapshots,
)
from travois.prompt.environment import Environment
from travois.providers.replies import ApiError
from travois.providers.request import Request
from travois.sandbox.policy import SandboxPolicy
from travois.sessions.session import Session
from travois.skills.skills import SkillRunner, Skills

if TYPE_CHECKING:
    from travois.extensions.custom_layers import ContextLayer
    from travois.lsp.check import EditCheck
    from travois.lsp.servers import LanguageServers


class World(msgspec.Struct, frozen=True):
    """The files, processes, web and storage that tools may reach."""

    root: str
    files: Files
    processes: Processes
    web: Web
    blobs: Blobs
    spill: Callable[[str, bytes], str]
    kept: str = ""
    """The folder that `spill` writes to."""
    snapshots: WorkspaceSnapshots | None = None
    """Snapshots of the workspace before changes; none if they are off."""
    language_servers: LanguageServers | None = None
    """The language servers that check edits; none if there are none."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """The number of attempts and the delays when a provider fails."""

    attempts: int = 10
    first: float = 0.5
    longest: float = 60.0


class Encoder(Protocol):
    """The encoder that turns views into requests."""

    def build_request(self, view: View) -> Request:
        """Return the next request; the same view gives the same bytes."""
        ...

    def fork(self) -> Encoder:
        """Return an encoder without history, for a branch of the conversation."""
        ...


class SmallModel(msgspec.Struct, frozen=True):
    """A cheaper model for small questions beside the conversation."""

    card: Card
    model: ModelClient


class ActivityNaming(msgspec.Struct):
    """The naming of subagents' activities for people who watch."""

    seconds: float
    """The minimum seconds between two names."""
    small: Callable[[], SmallModel | None]
    watched: bool = False
    """True if a front end shows the names; else no model is asked for them."""


class ExtractionJob(msgspec.Struct):
    """A memory extraction from the conversation."""

    done: anyio.Event
    told: str = ""
    """The outcome, for display."""


class SharedSummaries(Protocol):
    """Summaries that sessions of one project share, by a digest of their input."""

    def get(self, key: str) -> str:
        """Return the summary of this key; empty if there is none."""
        ...

    def put(self, key: str, text: str) -> None:
        """Keep a summary, if that is possible."""
        ...

    @property
    def pending(self) -> dict[str, anyio.Event]:
        """The keys for which a model is being asked; the event is set at the end."""
        ...


class NotesUpdate(msgspec.Struct):
    """An update of the notes on a conversation."""

    done: anyio.Event
    covers: int
    """The entry up to which it looks, also if nothing comes of it."""
    begun: bool = False


class ParentLink(msgspec.Struct, frozen=True):
    """The link of a subagent to the agent that started it."""

    id: str
    kind: str
    """The name of its type, or `fork`."""
    log: str = ""
    """The file of its own log."""
    depth: int = 1
    """The number of agents between it and the person, itself included."""


class AgentTools(msgspec.Struct, frozen=True):
    """The tools of an agent, its own and those of MCP servers."""

    by_name: Mapping[str, AnyTool]
    find_mcp_tool: Callable[[str], AnyTool | None] = lambda name: None
    """Finds a tool of an MCP server, which the head does not name."""
    announce_mcp: Callable[[Agent], None] = lambda agent: None
    """Tells the model of MCP servers that changed; asked at every safe boundary."""
    restate_mcp: Callable[[], tuple[Text, ...]] = tuple
    """Text about MCP servers that is repeated after a compaction."""
    toolset: str = "auto"
    """The toolset that names the tools; `auto` for that of the model's family."""
    search_web: Callable[[Agent, SearchQuery], Awaitable[SearchResults]] | None = None
    """Searches the web; none where that is off. Raises OSError."""


class AgentPermissions(msgspec.Struct):
    """The permissions of an agent and the user to ask. Answers change them."""

    guard: Permissions
    person: Person
    sandbox: SandboxPolicy | None = None
    """The sandbox for what tools start; none if there is none."""
    sandbox_missing: str = ""
    """The reason why unproven commands may not run without a sandbox; empty if they may."""
    save_rules: Callable[[PermissionUpdate], None] = lambda update: None
    """Keeps rules that a person made by an answer, for later sessions."""
    is_attended: bool = True
    """True if a person is there to answer questions."""


class AgentHooks(msgspec.Struct):
    """The hooks of an agent. `active` is made when the first hook joins a running session."""

    active: Hooks | None = None
    """The active hooks; none if there are none."""
    make: Callable[[], Hooks] | None = None
    """Creates the hooks when the first one joins; none where hooks are off."""
    run_inline: Callable[[Agent, Hook, bytes], Awaitable[HookResult]] | None = None
    """Answers for hooks that are no programs."""
    write_transcript: Callable[[], str] = lambda: ""
    """Brings the transcript that hooks read up to date; returns its path."""


class AgentContext(msgspec.Struct, frozen=True):
    """The settings that keep a conversation within the context window."""

    layers: ContextLayers = ContextLayers()
    custom: tuple[ContextLayer, ...] = ()
    """Layers of programs and packages, asked before each request."""
    open_summaries: Callable[[], SharedSummaries] | None = None
    """Opens the summaries shared between sessions; none if none are shared."""


class AgentMemory(msgspec.Struct, frozen=True):
    """The memories of earlier sessions, and how they are extracted and recalled."""

    memories: MemoryStore | None = None
    """The memories; none if memory is off."""
    extract: Literal["model", "rules", "off"] = "model"
    """The author of new memories."""
    recall: bool = True
    """True if memories are shown with the prompts that they fit."""


class AgentPrompt(msgspec.Struct, frozen=True):
    """The parts of the prompt besides the conversation."""

    environment: Callable[[], Environment] | None = None
    """Describes the current surroundings; none if the model need not know them."""
    instructions: InstructionLibrary | None = None
    """The instruction files; none if there are none."""
    skills: Skills | None = None
    """The skills; none if there are none."""
    use_skills: Callable[[Agent], SkillRunner] | None = None
    """Returns the port by which an agent uses skills."""
    restate: Callable[[Agent], tuple[Text, ...]] = lambda agent: ()
    """Text that is repeated after a compaction, as it is then: rules, surroundings."""


class AgentTeam(msgspec.Struct):
    """The parent, children and mail of an agent. `children` and `on_child` are set later."""

    children: Subagents | None = None
    """The agents that it has started; none if it may start none."""
    siblings: Subagents | None = None
    """The subagents of its parent, itself among them."""
    birth: ParentLink | None = None
    """The link to its parent; none for the main agent."""
    on_child: Callable[[Agent], object] = lambda child: None
    """Told of each agent that it starts, and of theirs, before their first turn."""
    naming: ActivityNaming | None = None
    """The naming of its subagents' activities by a model; none for rules alone."""
    tasks: TaskStore | None = None
    """The task list that it shares; none if that is its session's own."""
    courier: MailTransport | None = None
    """Takes its messages to other processes; none if nothing may leave this one."""
    collect_mail: Callable[[Agent], Iterable[User]] = lambda agent: ()
    """Brings the mail that came since the last time; asked at every safe boundary."""


class AgentModels(msgspec.Struct, frozen=True):
    """The other models that an agent may ask, and what it does when one fails."""

    small: Callable[[], SmallModel | None] = lambda: None
    """A cheaper model, if one is known."""
    fallbacks: tuple[str, ...] = ()
    """The models that answer, in this order, while the chosen one cannot."""
    named: Callable[[str | Card], SmallModel] | None = None
    """Return a client for another model, by its name or card; raises `UserError`."""
    is_local: Callable[[Card], bool] = lambda card: False
    """True if a model runs in a server on this machine, which may cut prompts without a word."""
    retry: RetryPolicy = RetryPolicy()


class TurnState(msgspec.Struct):
    """The state that changes while turns run. Everything else that changes is in the log."""

    inbox: deque[User] = msgspec.field(default_factory=deque[User])
    """Messages that wait for the next safe boundary."""
    began: int = 0
    """The entry after which its last turn began; zero before the first one."""
    stop_reason: str = ""
    """The reason why a hook ends the turn that runs; empty if none does."""
    sent_back: int = 0
    """The number of times that hooks sent the model back to work in this turn."""
    kept: int = -1
    """The last message for which the workspace was kept; none while no turn has changed it."""
    kept_files: tuple[str, ...] = ()
    """The files, and folders that were not there yet, that were saved in this turn."""
    kept_beyond: tuple[str, ...] = ()
    """Paths outside the workspace that were kept in this turn."""
    notes: NotesUpdate | None = None
    """The last update of its notes."""
    extraction: ExtractionJob | None = None
    """The last time that the conversation was looked through for what is worth keeping."""
    late_checks: tuple[EditCheck, ...] = ()
    """Checks of edits by language servers that the results of the edits did not wait for."""


class AgentRuntime(msgspec.Struct):
    """Services of the program for an agent: clock, background jobs, reloading, worktrees."""

    clock: Callable[[], float] = time
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    jitter: Callable[[], float] = lambda: 0.5
    """A number from 0 to 1."""
    background: Callable[[Callable[[], Awaitable[None]]], None] | None = None
    """Starts what may go on while the conversation does; none if nothing may. Set by the runner."""
    reload_settings: Callable[[Agent], Awaitable[None]] | None = None
    """Takes over settings that changed; asked at every safe boundary."""
    relocate: Callable[[Agent], None] = lambda agent: None
    """Brings root, permissions, sandbox and snapshots to where the log says that it works."""
    worktrees: Callable[[Agent], Worktrees] | None = None
    """Makes the worktrees that its session moves to; none if it may not move."""
    stays_open: bool = False
    """True if the program waits between turns, so that a wake-up can start one."""
    while_waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    """What goes on while an answer is awaited."""


class Agent(msgspec.Struct):
    """An agent: everything that one conversation runs on. The log is its only memory.

    Parts are built once, in `compose/`. What may be exchanged later has a method here; within the
    parts, those that are not frozen say what changes.
    """

    session: Session
    model: ModelClient
    """The current model client."""
    encoder: Encoder
    tools: AgentTools
    world: World
    permissions: AgentPermissions
    hooks: AgentHooks = msgspec.field(default_factory=AgentHooks)
    context: AgentContext = AgentContext()
    memory: AgentMemory = AgentMemory()
    prompt: AgentPrompt = AgentPrompt()
    team: AgentTeam = msgspec.field(default_factory=AgentTeam)
    budget: Budget = msgspec.field(default_factory=Budget)
    """The budget of the agent and all that it starts."""
    models: AgentModels = AgentModels()
    turn: TurnState = msgspec.field(default_factory=TurnState)
    runtime: AgentRuntime = msgspec.field(default_factory=AgentRuntime)

    def use_model(self, model: ModelClient) -> None:
        """Use another model client from now on."""
        self.model = model

    def use_world(self, world: World) -> None:
        """Use another folder or other files from now on."""
        self.world = world

    def join_siblings(self, siblings: Subagents, *, person: Person, budget: Budget) -> None:
        """Become a child of another agent, which pays for it and relays questions."""
        self.team.siblings, self.permissions.person, self.budget = siblings, person, budget

    def use_children(self, children: Subagents) -> None:
        """Set the subagents; they need their parent, so they come after it."""
        self.team.children = children

    def use_tools(self, tools: AgentTools) -> None:
        """Use other tools from now on; the caller changes the head of requests."""
        self.tools = tools

    def use_skills(self, skills: Skills) -> None:
        """Use other skills from now on."""
        self.prompt = replace(self.prompt, skills=skills)


def retry_delay(
    problem: ApiError, attempt: int, *, patience: RetryPolicy, chance: float
) -> float | None:
    """Return the seconds before an agent retries a failed request; None to give up.

    What the server asks for is honoured up to the longest wait; otherwise the delay doubles, with
    jitter so that many agents do not come back at once.
    """
    if not problem.retry or attempt >= patience.attempts:
        return None
    if problem.wait is not None:
        asked = problem.wait if problem.wait > 0 else 0.0  # so that "not a number" is nought
        return min(asked, patience.longest) + chance * 0.1
    grown = min(patience.first * 2.0 ** min(attempt - 1, 30), patience.longest)
    return grown * (1 - 0.25 * chance)


MODE_STATE = "mode"
"""The state of a session whose mode is no longer the one that it began with."""


def enter_mode(agent: Agent, mode: PermissionMode) -> None:
    """Switch an agent to another permission mode and log it."""
    agent.session.append(Changed(MODE_STATE, mode))
    apply_mode(agent, mode)


def apply_mode(agent: Agent, name: str) -> None:
    """Apply a logged permission mode to the agent's permissions."""
    known = next((mode for mode in PERMISSION_MODES if mode == name), agent.permissions.guard.mode)
    agent.permissions.guard = replace(agent.permissions.guard, mode=known)
