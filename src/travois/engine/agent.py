"""An agent: a session plus the ports that the loop needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import time
from typing import Literal, Protocol

import anyio
import msgspec
from msgspec.structs import replace

from travois.context.layers import Layers
from travois.core.content import Text
from travois.core.facts import User
from travois.core.models import Model as Card
from travois.core.spending import Purse
from travois.core.view import View
from travois.hooks.config import Hook
from travois.hooks.output import Hooks, Said
from travois.memory.port import Memories
from travois.permissions.decide import Guard
from travois.permissions.updates import Update
from travois.ports.agents import Courier, TaskStore, Worktrees
from travois.ports.tool import AnyTool
from travois.ports.web_search import Found, Wanted
from travois.ports.world import Agents, Blobs, Files, Keeper, Library, Model, Person, Processes, Web
from travois.prompt.environment import Surroundings
from travois.providers.request import Request
from travois.sandbox.policy import Bounds
from travois.sessions.session import Session
from travois.skills.skills import Practice, Skills


class World(msgspec.Struct, frozen=True):
    """Everything outside that tools may reach."""

    root: str
    files: Files
    processes: Processes
    web: Web
    blobs: Blobs
    spill: Callable[[str, bytes], str]
    kept: str = ""
    """The folder that `spill` writes to."""
    snapshots: Keeper | None = None
    """Keeps the workspace as it was before changes; none if nobody does."""


class Patience(msgspec.Struct, frozen=True):
    """How long to go on trying when a provider fails."""

    attempts: int = 10
    first: float = 0.5
    longest: float = 60.0


class Encoder(Protocol):
    """Makes requests out of views."""

    def request(self, view: View) -> Request:
        """The next request; the same view gives the same bytes."""
        ...

    def fork(self) -> Encoder:
        """One that has seen nothing, for a branch of the conversation."""
        ...


class Small(msgspec.Struct, frozen=True):
    """A cheaper model for small questions beside the conversation."""

    card: Card
    model: Model


class Naming(msgspec.Struct):
    """How the work of sub-agents is named for people who watch."""

    seconds: float
    """How much time passes at least between two names."""
    small: Callable[[], Small | None]
    watched: bool = False
    """Whether a front end shows the names; else no model is asked for them."""


class Gathering(msgspec.Struct):
    """A look through the conversation for what is worth keeping."""

    done: anyio.Event
    told: str = ""
    """What came of it, for the eye."""


class Summaries(Protocol):
    """Summaries that sessions of one project and trust share, by the digest of what they are on."""

    def get(self, key: str) -> str:
        """The summary of this key; empty if there is none."""
        ...

    def put(self, key: str, text: str) -> None:
        """Keep a summary, if that is possible."""
        ...

    @property
    def under_way(self) -> dict[str, anyio.Event]:
        """The keys that a model is being asked for in this process; set when that is over."""
        ...


class Noting(msgspec.Struct):
    """An update of the notes on a conversation."""

    done: anyio.Event
    covers: int
    """The entry up to which it looks, also if nothing comes of it."""
    begun: bool = False


class Birth(msgspec.Struct, frozen=True):
    """How an agent came to be that another one started."""

    id: str
    kind: str
    """The name of its type, or `fork`."""
    log: str = ""
    """The file of its own log."""
    depth: int = 1
    """How many agents stand between it and the person, itself included."""


class AgentTools(msgspec.Struct, frozen=True):
    """The tools of an agent, its own and those of MCP servers."""

    by_name: Mapping[str, AnyTool]
    find_mcp_tool: Callable[[str], AnyTool | None] = lambda name: None
    """Finds a tool of an MCP server, which the head does not name."""
    announce_mcp: Callable[[Agent], None] = lambda agent: None
    """Tells the model of MCP servers that changed; asked at every safe boundary."""
    restate_mcp: Callable[[], tuple[Text, ...]] = tuple
    """What the model is told again of MCP servers after a compaction."""
    toolset: str = "auto"
    """Whose names its tools have in the head; `auto` for those of the model's family."""
    search_web: Callable[[Agent, Wanted], Awaitable[Found]] | None = None
    """Searches the web; none where that is off. Raises OSError."""


class AgentPermissions(msgspec.Struct):
    """What an agent may do, and whom it asks. Mode, rules and sandbox change with answers."""

    guard: Guard
    person: Person
    sandbox: Bounds | None = None
    """The sandbox for what tools start; none if there is none."""
    sandbox_missing: str = ""
    """Why unproven commands may not run without a sandbox; empty if they may."""
    save_rules: Callable[[Update], None] = lambda update: None
    """Keeps rules that a person made by an answer, for later sessions."""
    is_attended: bool = True
    """Whether a person is there to answer questions."""


class AgentHooks(msgspec.Struct):
    """The hooks of an agent. `active` is made when the first hook joins a running session."""

    active: Hooks | None = None
    """Whoever listens; none while nobody does."""
    make: Callable[[], Hooks] | None = None
    """Makes a place for hooks where nobody listens yet; none where nobody may."""
    run_inline: Callable[[Agent, Hook, bytes], Awaitable[Said]] | None = None
    """Answers for hooks that are no programs."""
    write_transcript: Callable[[], str] = lambda: ""
    """Brings the transcript that hooks read up to date; returns its path."""


class AgentContext(msgspec.Struct, frozen=True):
    """How a conversation is made to fit into the model's window."""

    layers: Layers = Layers()
    open_summaries: Callable[[], Summaries] | None = None
    """Where summaries are that another session may have paid for; none if none are shared."""


class AgentMemory(msgspec.Struct, frozen=True):
    """What an agent remembers from earlier sessions, and how it finds more."""

    memories: Memories | None = None
    """What is remembered; none if nothing is."""
    extract: Literal["model", "rules", "off"] = "model"
    """Who finds what is worth keeping."""
    recall: bool = True
    """Whether memories are shown with the prompts that they fit."""


class AgentPrompt(msgspec.Struct, frozen=True):
    """What the model is told besides the conversation."""

    environment: Callable[[], Surroundings] | None = None
    """Where the session stands at the moment; none if the model need not know."""
    instructions: Library | None = None
    """Where instruction files are read; none if there are none."""
    skills: Skills | None = None
    """Where skills are read; none if there are none."""
    use_skills: Callable[[Agent], Practice] | None = None
    """How an agent uses them."""
    restate: Callable[[Agent], tuple[Text, ...]] = lambda agent: ()
    """What the model is told again after a compaction, as it stands then: rules, surroundings."""


class Team(msgspec.Struct):
    """Whom an agent works with. `children` and `on_child` are set by whoever runs it."""

    children: Agents | None = None
    """The agents that it has started; none if it may start none."""
    siblings: Agents | None = None
    """Those of whoever started it, itself among them."""
    birth: Birth | None = None
    """Whose child it is; none for the agent that a person talks to."""
    on_child: Callable[[Agent], object] = lambda child: None
    """Told of each agent that it starts, and of theirs, before their first turn."""
    naming: Naming | None = None
    """Who names the work of its sub-agents besides rules; none if nobody does."""
    tasks: TaskStore | None = None
    """The task list that it shares; none if that is its session's own."""
    courier: Courier | None = None
    """Takes its messages to other processes; none if nothing may leave this one."""
    collect_mail: Callable[[Agent], Iterable[User]] = lambda agent: ()
    """Brings the mail that came since the last time; asked at every safe boundary."""


class AgentModels(msgspec.Struct, frozen=True):
    """The other models that an agent may ask, and what it does when one fails."""

    small: Callable[[], Small | None] = lambda: None
    """A cheaper model, if one is known."""
    fallbacks: tuple[str, ...] = ()
    """Who answers, in this order, while the model cannot; all of them can be reached."""
    named: Callable[[str | Card], Small] | None = None
    """Return a client for another model, by its name or card; raises `Fault`."""
    is_local: Callable[[Card], bool] = lambda card: False
    """Whether a model runs in a server on this machine, which may cut prompts without a word."""
    retry: Patience = Patience()


class TurnState(msgspec.Struct):
    """What changes while turns run. Everything else that changes is in the log."""

    inbox: deque[User] = msgspec.field(default_factory=deque[User])
    """What waits outside for the next safe boundary."""
    began: int = 0
    """The entry after which its last turn began; nought before the first one."""
    stop_reason: str = ""
    """Why a hook ends the turn that runs; empty if none does."""
    sent_back: int = 0
    """How often in this turn hooks sent the model back to work."""
    kept: int = -1
    """The last message for which the workspace was kept; none while no turn has changed it."""
    kept_files: tuple[str, ...] = ()
    """The files, and folders that were not there yet, that were saved in this turn."""
    kept_beyond: tuple[str, ...] = ()
    """Paths outside the workspace that were kept in this turn."""
    notes: Noting | None = None
    """The last update of its notes."""
    extraction: Gathering | None = None
    """The last time that the conversation was looked through for what is worth keeping."""


class Runtime(msgspec.Struct):
    """What the program lends an agent: time, background jobs, news of settings and folder."""

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
    """Who makes the worktrees that its session moves to; none if it may not move."""


class Agent(msgspec.Struct):
    """What one conversation runs on. The log is its only memory.

    Parts are built once, in `compose/`. What may be exchanged later has a method here; within
    the parts, those that are not frozen say what changes.
    """

    session: Session
    model: Model
    """Whoever answers at the moment."""
    encoder: Encoder
    tools: AgentTools
    world: World
    permissions: AgentPermissions
    hooks: AgentHooks = msgspec.field(default_factory=AgentHooks)
    context: AgentContext = AgentContext()
    memory: AgentMemory = AgentMemory()
    prompt: AgentPrompt = AgentPrompt()
    team: Team = msgspec.field(default_factory=Team)
    budget: Purse = msgspec.field(default_factory=Purse)
    """What it may use up, with all that it starts."""
    models: AgentModels = AgentModels()
    turn: TurnState = msgspec.field(default_factory=TurnState)
    runtime: Runtime = msgspec.field(default_factory=Runtime)

    def use_model(self, model: Model) -> None:
        """Let another model answer from here on."""
        self.model = model

    def use_world(self, world: World) -> None:
        """Work in another folder, or through other files, from here on."""
        self.world = world

    def join_siblings(self, siblings: Agents, *, person: Person, budget: Purse) -> None:
        """Become one of the children of another agent, which pays for it and relays questions."""
        self.team.siblings, self.permissions.person, self.budget = siblings, person, budget

    def lead(self, children: Agents) -> None:
        """Have children; they need their parent, so they come after it."""
        self.team.children = children

    def use_tools(self, tools: AgentTools) -> None:
        """Have other tools from here on; the head of requests is the caller's to change."""
        self.tools = tools

    def use_skills(self, skills: Skills) -> None:
        """Read skills elsewhere from here on."""
        self.prompt = replace(self.prompt, skills=skills)
