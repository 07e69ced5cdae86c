"""A small world for the engine: memory, scripts and recordings, and all else real."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from travois.core.content import Text
from travois.core.errors import UserError
from travois.core.facts import AnyFact, Entry, Epoch, Opened, ToolSpec, User
from travois.core.models import ApiProtocol, Price
from travois.core.models import ModelCard as Card
from travois.core.view import project_view
from travois.engine.agent import Agent, AgentPermissions, AgentRuntime, AgentTools, World
from travois.engine.loop import run_turn
from travois.files.disk import DiskFiles
from travois.permissions.access import Access
from travois.permissions.decide import Permissions
from travois.ports.tool import AnyTool, CallLocation, Tool, ToolOutcome, text_outcome
from travois.ports.world import Env, ModelClient, PermissionQuestion, Person, PersonAnswer, WebPage
from travois.process.local_processes import LocalProcesses
from travois.providers.encoder import RequestEncoder
from travois.providers.replies import ApiError, Reply
from travois.providers.request import Request
from travois.sessions.session import Session
from travois.testing import Scripted
from travois_lab.validate import anthropic_faults
from travois_lab.validate_chat import chat_faults

PRICE = Price(input=3.0, output=15.0, read=0.3, write=3.75, write_1h=6.0)
OPENED = Opened("s1", "/w", "dir-1", "0.1")


class MemoryLog:
    """A log in a list. `fails` says at which append (from 1) the disk is full."""

    def __init__(
        self, entries: Iterable[Entry] = (), *, fails: Callable[[int], bool] = lambda number: False
    ) -> None:
        self.entries = list(entries)
        self.synced = len(self.entries)
        self.appends = 0
        self._fails = fails

    def append(self, fact: AnyFact) -> Entry:
        self.appends += 1
        if self._fails(self.appends):
            raise UserError("The session could not be saved", why="the disk is full")
        seq = self.entries[-1].seq + 1 if self.entries else 1
        entry = Entry(seq, 1_700_000_000.0 + seq, fact)
        self.entries.append(entry)
        return entry

    def sync(self) -> None:
        self.synced = len(self.entries)

    def read(self) -> list[Entry]:
        return list(self.entries)


class MemoryBlobs:
    """Blobs in a dict."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        name = f"blob-{len(self.held)}"
        self.held[name] = data
        return name

    def get(self, name: str) -> bytes:
        return self.held[name]


class NoWeb:
    """There is no network."""

    async def fetch(self, url: str, *, limit: int, timeout: float) -> WebPage:
        raise OSError("there is no network here")


class RecordingPerson:
    """Answers each question with the next answer, then with the last for ever."""

    def __init__(self, *answers: PersonAnswer) -> None:
        self.asked: list[PermissionQuestion] = []
        self._answers = answers or (PersonAnswer(allow=False, reason="nobody is here"),)

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        self.asked.append(question)
        await anyio.lowlevel.checkpoint()
        return self._answers[min(len(self.asked), len(self._answers)) - 1]


class Naps:
    """A sleep that takes no time and remembers how long it should have been."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        await anyio.lowlevel.checkpoint()


class Place(msgspec.Struct):
    """Arguments of the small tools."""

    path: str
    times: int = 1


Run = Callable[[Place, Env, str], Awaitable[ToolOutcome]]


async def echo(args: Place, env: Env, call: str) -> ToolOutcome:
    for _ in range(args.times):
        env.progress(args.path)
        await anyio.lowlevel.checkpoint()
    return text_outcome(f"saw {args.path}")


def small(name: str, run: Run = echo, *, kind: Any = "read") -> AnyTool:
    """A tool that touches one path of the workspace, or none if `kind` is None."""

    def access(args: Place, here: CallLocation) -> tuple[Access, ...]:
        target = args.path if kind in ("exec", "net", "spawn") else f"{here.root}/{args.path}"
        return (Access(kind, target),) if kind else ()

    return Tool(name, f"{name}s.", Place, access, run, lambda args: f"{name} {args.path}")


def spec(tool: AnyTool) -> ToolSpec:
    schema = msgspec.json.encode(msgspec.json.schema(tool.args)["$defs"]["Place"]).decode()
    return ToolSpec(tool.name, tool.description, schema)


def card(protocol: ApiProtocol = "anthropic", **more: Any) -> Card:
    return Card("lab", "echo-1", protocol, **({"price": PRICE} | more))


def epoch(protocol: ApiProtocol = "anthropic", tools: Iterable[AnyTool] = (), **more: Any) -> Epoch:
    return Epoch(card(protocol, **more), "Be brief.", tuple(map(spec, tools)))


def faults(body: bytes) -> list[str]:
    """Everything wrong with a request, whichever protocol it speaks."""
    return anthropic_faults(body) if b'"system":[' in body[:200] else chat_faults(body)


def begun(
    tools: Iterable[AnyTool] = (), protocol: ApiProtocol = "anthropic", **more: Any
) -> Session:
    """A session with a head and nothing said."""
    session = Session(MemoryLog())
    session.append(OPENED)
    session.append(epoch(protocol, tools, **more))
    return session


def agent(
    folder: Path,
    *lines: Reply | ApiError | Callable[[Request], Reply | ApiError],
    tools: Iterable[AnyTool] = (),
    session: Session | None = None,
    guard: Permissions | None = None,
    person: Person | None = None,
    model: ModelClient | None = None,
    **more: Any,
) -> Agent:
    """An agent whose every request is judged by the lab; its model says these lines."""
    root = str(folder.resolve())
    tools = tuple(tools)
    blobs = MemoryBlobs()
    world = World(root, DiskFiles(), LocalProcesses(), NoWeb(), blobs, lambda call, data: call)
    made = Agent(
        session=session or begun(tools),
        model=model or Scripted(*lines, judge=faults),
        encoder=RequestEncoder(blobs.get),
        tools=AgentTools({tool.name: tool for tool in tools}),
        world=world,
        permissions=AgentPermissions(
            guard or Permissions(mode="accept-edits", folders=(root,)), person or RecordingPerson()
        ),
        runtime=AgentRuntime(sleep=Naps()),
    )
    return with_parts(made, **more)


FIELDS = {
    "hooks": ("hooks", "active"),
    "agents": ("team", "children"),
    "above": ("team", "siblings"),
    "birth": ("team", "birth"),
    "courier": ("team", "courier"),
    "tasks": ("team", "tasks"),
    "clock": ("runtime", "clock"),
    "sleep": ("runtime", "sleep"),
    "chance": ("runtime", "jitter"),
    "background": ("runtime", "background"),
    "bounds": ("permissions", "sandbox"),
    "unwalled": ("permissions", "sandbox_missing"),
    "remember": ("permissions", "save_rules"),
    "attended": ("permissions", "is_attended"),
    "patience": ("models", "retry"),
    "small": ("models", "small"),
    "other": ("models", "named"),
    "fallbacks": ("models", "fallbacks"),
    "layers": ("context", "layers"),
    "memories": ("memory", "memories"),
    "extract": ("memory", "extract"),
    "is_local": ("models", "is_local"),
    "summaries": ("context", "open_summaries"),
    "baseline": ("prompt", "restate"),
    "tools": ("tools", "by_name"),
    "library": ("prompt", "instructions"),
    "around": ("prompt", "environment"),
    "skills": ("prompt", "skills"),
    "keeper": ("world", "snapshots"),
}
"""Short words of tests for what is in the parts of an agent."""


def with_parts(agent: Agent, **more: Any) -> Agent:
    """The same agent, with these values in its parts."""
    for word, value in more.items():
        if word == "budget":
            agent.budget = value
            continue
        part, field = FIELDS[word]
        setattr(agent, part, replace(getattr(agent, part), **{field: value}))
    return agent


def log(agent: Agent) -> MemoryLog:
    held = agent.session._log
    assert isinstance(held, MemoryLog)
    return held


def facts(agent: Agent, *kinds: type) -> list[Any]:
    """The facts of these kinds so far, in order."""
    return [entry.fact for entry in log(agent).entries if isinstance(entry.fact, kinds)]


def prompt(agent: Agent, text: str = "go") -> Agent:
    agent.turn.inbox.append(User((Text(text),)))
    return agent


def play(agent: Agent, text: str = "go") -> str:
    """One whole turn; everything that must hold after a turn is checked."""
    prompt(agent, text)

    async def main() -> str:
        return await run_turn(agent)

    why = anyio.run(main)
    check(agent)
    return why


def check(agent: Agent) -> None:
    """After a turn: no open call, the view is the log's, and the next request is valid."""
    entries = log(agent).entries
    assert agent.session.view == project_view(entries)
    assert not agent.session.view.open
    sendable(entries)


def sendable(entries: Iterable[Entry], *, protocol: ApiProtocol | None = None) -> None:
    """A session resumed from these entries can send a valid request."""
    session = Session(MemoryLog(entries))
    if session.view.epoch is None or protocol:
        session.append(epoch(protocol or "anthropic"))
    session.append(User((Text("and then?"),)))
    body = RequestEncoder(MemoryBlobs().get).build_request(session.view).body
    assert faults(body) == []
