"""An agent: a session plus the ports that the loop needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import time
from typing import Literal, Protocol

import anyio
import msgspec

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


class Agent(msgspec.Struct):
    """What one conversation runs on. The log is its only memory; `inbox` is what waits outside."""

    session: Session
    model: Model
    encoder: Encoder
    tools: Mapping[str, AnyTool]
    world: World
    guard: Guard
    person: Person
    lent: Callable[[str], AnyTool | None] = lambda name: None
    """Finds a tool that servers lend, which the head does not name."""
    bounds: Bounds | None = None
    """The sandbox for what tools start; none if there is none."""
    unwalled: str = ""
    """Why unproven commands may not run without a sandbox; empty if they may."""
    remember: Callable[[Update], None] = lambda update: None
    """Keeps rules that a person made by an answer, for later sessions."""
    toolset: str = "auto"
    """Whose names its tools have in the head; `auto` for those of the model's family."""
    layers: Layers = Layers()
    around: Callable[[], Surroundings] | None = None
    """Where the session stands at the moment; none if the model need not know."""
    library: Library | None = None
    """Where instruction files are read; none if there are none."""
    skills: Skills | None = None
    """Where skills are read; none if there are none."""
    practice: Callable[[Agent], Practice] | None = None
    """How an agent uses them."""
    memories: Memories | None = None
    """What is remembered from earlier sessions; none if nothing is."""
    gathering: Gathering | None = None
    """The last time that the conversation was looked through for what is worth keeping."""
    summaries: Callable[[], Summaries] | None = None
    """Where summaries are that another session may have paid for; none if none are shared."""
    noting: Noting | None = None
    """The last update of its notes."""
    extract: Literal["model", "rules", "off"] = "model"
    """Who finds what is worth keeping."""
    recall: bool = True
    """Whether memories are shown with the prompts that they fit."""
    small: Callable[[], Small | None] = lambda: None
    """A cheaper model, if one is known."""
    naming: Naming | None = None
    """Who names the work of its sub-agents besides rules; none if nobody does."""
    search: Callable[[Agent, Wanted], Awaitable[Found]] | None = None
    """How the web is searched; none where it is not. Raises OSError."""
    fallbacks: tuple[str, ...] = ()
    """Who answers, in this order, while the model cannot; all of them can be reached."""
    other: Callable[[str | Card], Small] | None = None
    """Whoever answers for another model, by its name or as it is known; raises `Fault`."""
    is_local: Callable[[Card], bool] = lambda card: False
    """Whether a model runs in a server on this machine, which may cut prompts without a word."""
    baseline: Callable[[], tuple[Text, ...]] = tuple
    """What the model is told again after a compaction, as it stands then: rules, surroundings."""
    background: Callable[[Callable[[], Awaitable[None]]], None] | None = None
    """Starts what may go on while the conversation does; none if nothing may."""
    agents: Agents | None = None
    """The children that it has started; none if it may start none."""
    above: Agents | None = None
    """Those of whoever started it, itself among them."""
    tasks: TaskStore | None = None
    """The task list that it shares; none if that is its session's own."""
    worktrees: Worktrees | None = None
    """Makes the worktrees that its session moves to; none if it may not move."""
    relocate: Callable[[], None] = lambda: None
    """Brings root, permissions, sandbox and snapshots to where the log says that it works."""
    courier: Courier | None = None
    """Takes its messages to other processes; none if nothing may leave this one."""
    birth: Birth | None = None
    """Whose child it is; none for the agent that a person talks to."""
    attended: bool = True
    """Whether a person is there to answer questions."""
    clock: Callable[[], float] = time
    purse: Purse = msgspec.field(default_factory=Purse)
    """What it may use up, with all that it starts."""
    patience: Patience = Patience()
    keeper: Keeper | None = None
    kept: int = -1
    """The last message for which the workspace was kept; none while no turn has changed it."""
    kept_files: tuple[str, ...] = ()
    """The files, and folders that were not there yet, that were saved in this turn."""
    kept_beyond: tuple[str, ...] = ()
    """Paths outside the workspace that were kept in this turn."""
    hooks: Hooks | None = None
    hearing: Callable[[], Hooks] | None = None
    """Makes a place for hooks where nobody listens yet; none where nobody may."""
    within: Callable[[Agent, Hook, bytes], Awaitable[Said]] | None = None
    """Answers for hooks that are no programs."""
    written: Callable[[], str] = lambda: ""
    """Brings the file up to date that programs read of the session; gives its path."""
    began: int = 0
    """The entry after which its last turn began; nought before the first one."""
    halt: str = ""
    """Why a hook ends the turn that runs; empty if none does."""
    sent_back: int = 0
    """How often in this turn hooks sent the model back to work."""
    born: Callable[[Agent], object] = lambda child: None
    """Told of each agent that it starts, and of theirs, before their first turn."""
    refresh: Callable[[], Awaitable[None]] | None = None
    """Takes over settings that changed; asked at every safe boundary."""
    post: Callable[[], Iterable[User]] = tuple
    """Brings the mail that came since the last time; asked at every safe boundary."""
    inbox: deque[User] = msgspec.field(default_factory=deque[User])
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    chance: Callable[[], float] = lambda: 0.5
    """A number from 0 to 1, for jitter."""
