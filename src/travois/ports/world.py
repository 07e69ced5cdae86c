"""Ports to the outside world: person, model, log, files, processes, web, snapshots.

The concrete classes live in the feature packages; only `compose.session` knows both sides.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import msgspec

from travois.core.facts import AnyFact, Entry
from travois.permissions.access import Access
from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.agents import ActivityShown as ActivityShown
from travois.ports.agents import AgentOrder as AgentOrder
from travois.ports.agents import AgentProgress as AgentProgress
from travois.ports.agents import AgentReport as AgentReport
from travois.ports.agents import CompactionProgress as CompactionProgress
from travois.ports.agents import Outbox, SharedTasks, Worktrees
from travois.ports.agents import RequestRetrying as RequestRetrying
from travois.ports.agents import Subagents as Subagents
from travois.ports.agents import TerminalSignal as TerminalSignal
from travois.ports.agents import ToolProgress as ToolProgress
from travois.ports.agents import ToolStarted as ToolStarted
from travois.ports.agents import UserWarned as UserWarned
from travois.providers.replies import Reply, StreamDelta
from travois.providers.request import Request
from travois.providers.web_search import SearchHit

if TYPE_CHECKING:
    from socket import socket

    from travois.context.tool_results import ResultRoom
    from travois.hooks.events import AnyHookEvent
    from travois.hooks.output import HookDecision
    from travois.memory.memory import MemoryRecorder
    from travois.prompt.instruction_text import InstructionKind, InstructionSet
    from travois.skills.skills import SkillRunner


class SearchQuery(msgspec.Struct, frozen=True):
    """A web search query, with the hosts to include or exclude."""

    query: str
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


class SearchResults(msgspec.Struct, frozen=True):
    """Search results, and a model's summary of them."""

    hits: tuple[SearchHit, ...]
    said: str = ""


WebSearch = Callable[[SearchQuery], Awaitable[SearchResults]]
"""Raises OSError, in words."""


# The person, as the engine sees them.


SANDBOX_OFFER = "run commands in the sandbox without asking in this project"
SANDBOX_OFFER_DETAILS = "no network, home hidden; a rewind restores the workspace"


class PermissionQuestion(msgspec.Struct, frozen=True):
    """A permission question; `args` is exactly what would run."""

    call: str
    tool: str
    args: str
    summary: str
    because: str
    effects: tuple[str, ...] = ()
    """In plain words, what it does and what holds it back."""
    always: tuple[str, ...] = ()
    """The narrowest rules that would answer for the person from here on; none if there are none."""
    offers_sandbox: bool = False
    """True if they may let commands run in the sandbox without asking in this project."""
    modes: tuple[str, ...] = ()
    """The permission modes in which there would be no question."""
    digest: str = ""
    """Of the tool, its arguments and the place: an answer holds for exactly that."""


class PersonAnswer(msgspec.Struct, frozen=True):
    """A person's answer to a permission question; `reason` is sent to the model."""

    allow: bool
    reason: str = ""
    always: bool = False
    """True if the rules that the question offered are to be kept."""
    everywhere: bool = False
    """True if they are to be kept for all projects, not for this one."""
    mode: str = ""
    """The permission mode to switch to, one of those that the question named."""
    sandbox: bool = False
    """True if they let commands run in the sandbox without asking, as the question offered."""
    digest: str = ""
    """The digest of the question that was shown."""
    input: str = ""
    """The whole input that the call should have instead, as JSON text."""
    updates: tuple[msgspec.Raw, ...] = ()
    """Changes of permissions, as other agents write them."""
    stop: str = ""
    """The reason to end the whole turn; empty to go on."""


class ChoiceOption(msgspec.Struct, frozen=True):
    """One answer that is offered."""

    label: str
    description: str = ""


class Choice(msgspec.Struct, frozen=True):
    """A question of the model with options; a person may also answer in their own words."""

    question: str
    options: tuple[ChoiceOption, ...]
    header: str = ""
    """The topic, in a word or two."""
    several: bool = False
    """True if more than one of the options may be chosen."""


class ChoiceRequest(msgspec.Struct, frozen=True):
    """Questions that are put to the person together; `plan` is the plan they are about."""

    call: str
    choices: tuple[Choice, ...]
    plan: str = ""


class Person(Protocol):
    """The person who answers questions; without one, the answer is no."""

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        """Ask whether a call may run, and wait for the answer."""
        ...

    async def choose(self, inquiry: ChoiceRequest) -> tuple[str, ...] | None:
        """Return one answer per question, as labels or free text; None if nobody answers."""
        ...


# What came of a program: how it ended, what it said, and what an attempt of it would change.


class CapturedOutput(msgspec.Struct, frozen=True):
    """Captured output: its head, its tail, and its full size."""

    head: bytes
    tail: bytes
    total: int
    file: str = ""
    """The file with the full output, if requested and larger than what was kept."""
    missing_lines: int = 0
    """The number of line ends in the missing bytes."""
    is_capped: bool = False
    """True if the file has reached its limit, so that the program was ended."""

    @property
    def missing_bytes(self) -> int:
        """The number of bytes in the middle that were dropped."""
        return self.total - len(self.head) - len(self.tail)

    @property
    def line_count(self) -> int:
        """The number of lines in all; a last one without a line end counts."""
        ends = self.head.count(b"\n") + self.tail.count(b"\n") + self.missing_lines
        last = self.tail or self.head
        return ends + bool(last and not last.endswith(b"\n"))

    def head_and_tail(self) -> bytes:
        """Return head and tail joined; complete only if nothing is missing."""
        return self.head + self.tail


class ProcessResult(msgspec.Struct, frozen=True):
    """The result of a program; `status` is negative for a signal."""

    status: int
    output: CapturedOutput
    errors: CapturedOutput
    timed_out: bool = False
    cut: bool = False
    """True if it was stopped because the reader had enough output."""
    left_running: tuple[int, ...] = ()
    """Processes that it started and left behind."""
    aside: bytes = b""
    """The last kilobytes of its output on the private descriptor."""
    job: str = ""
    """The background job as which it goes on, if it outlived its timeout."""
    refused: tuple[str, ...] = ()
    """Whom it tried to reach over the network and may not, and why, in words."""
    session_ports: tuple[int, ...] = ()
    """Ports of the session's servers in the sandbox network, if this program failed outside it."""


class WorkspaceChange(msgspec.Struct, frozen=True):
    """One path that an attempt left different; `size` is what it has there."""

    path: str
    kind: Literal["added", "changed", "deleted", "renamed"]
    size: int
    was: str = ""
    """Its path before, if it was renamed."""


class WorkspaceAttempt(Protocol):
    """A program that ran in a copy of the workspace, to be kept or dropped."""

    completed: ProcessResult
    changes: tuple[WorkspaceChange, ...]

    async def read(self, path: str) -> bytes:
        """Return the bytes that a path has in the copy."""
        ...

    async def keep(self, *, named: Collection[str] = ()) -> tuple[WorkspaceChange, ...]:
        """Apply the changes, each file atomically; return those that were not applied.

        What is pinned or has a protected name is kept only if it, or a folder above it, is named.
        Raises `StaleFile`, with nothing kept, if the real files changed since the attempt began.
        """
        ...

    async def drop(self) -> None:
        """Discard the copy."""
        ...


@runtime_checkable
class ModelClient(Protocol):
    """A model client: one request in, deltas and one reply out."""

    def stream(
        self, request: Request
    ) -> AbstractAsyncContextManager[AsyncIterator[StreamDelta | Reply]]:
        """Send the request; the last thing yielded is the reply. Raises `ApiError`."""
        ...


class SessionLog(Protocol):
    """The log file of one session."""

    def append(self, fact: AnyFact) -> Entry:
        """Append one entry; after this returns, a crash of ours does not lose it."""
        ...

    def sync(self) -> None:
        """Flush appended entries to the disk."""
        ...

    def read(self) -> Iterable[Entry]:
        """Yield all entries, those of the parent session of a fork first."""
        ...


@runtime_checkable
class ResumableLog(SessionLog, Protocol):
    """A log with a saved state that speeds up resuming."""

    @property
    def new_bytes(self) -> int:
        """The number of bytes added since `save_state`; 0 if unknown."""
        ...

    def resume(self) -> tuple[bytes, Iterable[list[Entry]]]:
        """Return the saved state of the session, and all entries after it."""
        ...

    def read_blocks(self) -> Iterable[list[Entry]]:
        """Yield all entries in blocks."""
        ...

    def save_state(self, state: bytes) -> None:
        """Save the state that was derived from all entries so far."""
        ...

    def take_notices(self) -> str:
        """Return notices about saving that the user has not seen yet."""
        ...

    def discard_state(self) -> None:
        """Discard the saved state."""
        ...

    def read_recent(self) -> Iterable[Entry] | None:
        """Yield the relevant part of a very long log: the last entries and earlier turns.

        None if the log is not that long: all of it can be read.
        """
        ...

    def read_since(self, seq: int) -> list[Entry]:
        """Return the entries after this one, at a cost that depends on their number alone."""
        ...


class HistoryFold(Protocol):
    """A value derived from a history entry by entry, so that no entry is read twice."""

    def add(self, entries: Sequence[Entry]) -> None:
        """Take in the entries that came since the last time."""
        ...


class Blobs(Protocol):
    """Content-addressed bytes."""

    def put(self, data: bytes) -> str:
        """Keep these bytes; returns their name."""
        ...

    def get(self, name: str) -> bytes:
        """Return the bytes of that name; raises KeyError."""
        ...


class FileStat(msgspec.Struct, frozen=True):
    """The kind, size and real location of a path."""

    kind: Literal["file", "folder", "other"]
    size: int
    modified: float
    link: str = ""
    """The real path, if it differs."""
    private: bool = False
    """True if it is elsewhere because it lies in the session's private /tmp."""


class StaleFile(Exception):
    """The file changed since it was read; nothing was written."""


class Files(Protocol):
    """Files as bytes, by absolute path. Errors are OSError, with the path.

    The disk follows no links: a call opens the paths that were judged, which have none.
    """

    async def stat(self, path: str) -> FileStat | None:
        """Return the status of a path; None if nothing is there."""
        ...

    async def list_names(self, folder: str, *, limit: int) -> list[str]:
        """Return the first names in a folder, sorted; those of folders end with a slash."""
        ...

    async def modified_times(self, paths: Sequence[str]) -> list[int]:
        """Return the modification times in nanoseconds; 0 where unknown."""
        ...

    async def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        """Return bytes of the file from an offset on."""
        ...

    async def replace(self, path: str, data: bytes, *, expect: str | None) -> str:
        """Replace a whole file atomically if the digest of its content is `expect`.

        `None` means that no file may be there yet; missing folders are made. Returns the digest
        of what now stands there. Raises `StaleFile`.
        """
        ...

    async def remove(self, path: str, *, expect: str) -> None:
        """Delete a file if the digest of its content is `expect`; raises `StaleFile`."""
        ...

    def queue(self, path: str) -> AbstractAsyncContextManager[None]:
        """Lock a path for a caller that reads, computes and replaces."""
        ...


def content_digest(data: bytes) -> str:
    """Return the digest of some content, for compare-and-swap."""
    return blake2b(data, digest_size=16).hexdigest()


class Command(msgspec.Struct, frozen=True):
    """A program to run; there is no shell unless argv starts one."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = {}
    """Added to the clean environment that every child gets."""
    stdin: bytes = b""
    keep: int = 64 * 1024
    """The bytes to keep in memory of the head and of the tail of its output (each)."""
    whole: str = ""
    """The file for all of its output, if that is more than is kept; empty for none."""
    stderr: Literal["merge", "apart"] = "merge"
    aside: str = ""
    """The variable that tells it a descriptor for what it says to us alone; empty for none."""
    sandbox: SandboxProfile | None = None
    """The sandbox around it; none for what the harness itself needs."""
    wary: SandboxProfile | None = None
    """The sandbox of a program of our own, such as git, that obeys files which commands could
    have changed: it gets them while such a command may run."""
    talks: bool = False
    """True for a program we talk with: its captured output is standard error."""
    tty: bool = False
    """True if it gets a terminal, for its input as well as for all of its output."""
    label: str = ""
    """The command line for people and models, without the shell that we wrap around it."""
    accesses: tuple[Access, ...] = ()
    """The accesses by which the call that starts it was judged."""


class BackgroundJob(Protocol):
    """A background command."""

    id: str
    command: str
    label: str
    """The command line that it runs, as its author wrote it."""
    tty: bool
    """True if it has a terminal that can be typed into."""
    sandbox: SandboxProfile | None
    """The sandbox that it runs in."""
    accesses: tuple[Access, ...]
    """The accesses by which the call that started it was judged."""

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        ...

    @property
    def is_over(self) -> bool:
        """True if the job has ended and all of its output is in."""
        ...

    def take_output(self) -> CapturedOutput:
        """Return the output since the last call."""
        ...

    def peek_output(self) -> CapturedOutput:
        """Return the unread output without consuming it."""
        ...

    def last_lines(self, count: int) -> str:
        """Return the last lines of the unread output without consuming it."""
        ...

    async def wait(self) -> int:
        """Wait for the end and return the exit status."""
        ...

    async def wait_for_change(self) -> None:
        """Wait until there is output, or the job ends."""
        ...

    def follow(self) -> AbstractContextManager[OutputReader]:
        """Follow all output from here on; `take_output` still returns it as well."""
        ...

    async def send(self, data: bytes) -> None:
        """Type into its terminal; raises OSError if it has none, or takes nothing."""
        ...

    def interrupt(self) -> None:
        """Send it an interrupt, as Ctrl-C does."""
        ...

    async def kill(self) -> None:
        """Kill the job with all processes that it started."""
        ...


class OutputReader(Protocol):
    """All output of a job for one reader."""

    def take(self) -> bytes:
        """Return the output since the last call."""
        ...


class Processes(Protocol):
    """Running programs, in the foreground or the background."""

    async def run(
        self,
        command: Command,
        *,
        timeout: float,
        on_output: Callable[[bytes], None] | None = None,
        reader: Callable[[bytes], bool] | None = None,
        detach_as: Callable[[], str] | None = None,
    ) -> ProcessResult:
        """Run a program to its end; on timeout or cancellation, kill its process tree.

        `reader` gets all output in order and returns whether it wants more; once it does not, the
        program is ended. A program that outlives the timeout goes on as a background
        job of the id that `detach_as` gives.
        """
        ...

    async def run_attempt(self, command: Command, *, timeout: float) -> WorkspaceAttempt:
        """Run a program in a copy of the writable folders; raises OSError if impossible."""
        ...

    async def start(self, command: Command, *, id: str) -> BackgroundJob:
        """Start in the background; it dies with the session at the latest."""
        ...

    def jobs(self) -> Mapping[str, BackgroundJob]:
        """Return background jobs by id."""
        ...

    def accept_change(self, path: str, data: bytes | None = None) -> None:
        """Accept our own change to a protected file as its expected content."""
        ...

    def session_socket(self, family: int) -> socket | None:
        """Return a TCP socket in the sandbox network; none if there is no such network."""
        ...

    def take_notices(self) -> tuple[str, ...]:
        """Return notices about changed protected files that were not returned before."""
        ...


class InstructionLibrary(Protocol):
    """The instruction files on disk."""

    def load_always(self, also: Mapping[str, InstructionKind] | None = None) -> InstructionSet:
        """Load the instruction files that always apply, and these in addition."""
        ...

    def load_for_paths(self, paths: Iterable[str]) -> InstructionSet:
        """Load the instruction files that apply once these paths are used."""
        ...


class WebPage(msgspec.Struct, frozen=True):
    """A fetched web page."""

    url: str
    status: int
    mime: str
    body: bytes
    truncated: bool = False


class Web(Protocol):
    """Fetching pages. Errors are OSError with words that a person understands."""

    async def fetch(self, url: str, *, limit: int, timeout: float) -> WebPage:
        """Get a page, following redirects on the same host only.

        A redirect to another host is the page: its status, and the URL that it points to.
        """
        ...


class UnansweredQuestion(Exception):
    """Nobody was there to answer, or they declined; the message says which."""


class Env(Protocol):
    """The world of one tool call."""

    @property
    def root(self) -> str:
        """The workspace folder."""
        ...

    @property
    def cwd(self) -> str:
        """The current folder of the shell."""
        ...

    @property
    def state(self) -> Mapping[str, str]:
        """The session's state: the newest value of each `Changed` fact."""
        ...

    @property
    def mode(self) -> str:
        """The permission mode that holds."""
        ...

    @property
    def sandbox(self) -> SandboxProfile | None:
        """The sandbox for programs that this call starts."""
        ...

    @property
    def wary(self) -> SandboxProfile | None:
        """The sandbox for our own git, which obeys the settings of a repository."""
        ...

    @property
    def files(self) -> Files: ...

    @property
    def processes(self) -> Processes: ...

    @property
    def has_mail(self) -> bool:
        """True if a message waits for the model, so that a long wait should end."""
        ...

    @property
    def stays_open(self) -> bool:
        """True if the program waits between turns, so that a wake-up can start one."""
        ...

    @property
    def web(self) -> Web: ...

    @property
    def search(self) -> WebSearch | None:
        """The web search; none where it is off."""
        ...

    @property
    def blobs(self) -> Blobs: ...

    @property
    def agents(self) -> Subagents | None:
        """The children of the agent that called; none where none can be started."""
        ...

    @property
    def outbox(self) -> Outbox:
        """The way to other agents."""
        ...

    @property
    def tasks(self) -> SharedTasks:
        """The task list that the agent shares with those below it and with its team."""
        ...

    @property
    def worktrees(self) -> Worktrees | None:
        """Makes the worktrees that the session moves to; none where it may not move."""
        ...

    @property
    def memory(self) -> MemoryRecorder | None:
        """The memory for later sessions; none where it is off."""
        ...

    @property
    def skills(self) -> SkillRunner | None:
        """The skills that can be used; none where there are none."""
        ...

    @property
    def hidden(self) -> Callable[[str], bool]:
        """Says of a path whether a rule keeps it from being shown in what the call finds."""
        ...

    @property
    def room(self) -> ResultRoom:
        """The tokens that the result may take; decided before any call of the reply runs."""
        ...

    @property
    def kept(self) -> str:
        """The session's folder of large outputs."""
        ...

    def spill(self, call: str, data: bytes) -> str:
        """Save a large output in the session's folder; return a path that Read can open."""
        ...

    def progress(self, text: str) -> None:
        """Show progress while the call runs."""
        ...

    async def fire_hooks(self, occasion: AnyHookEvent) -> HookDecision:
        """Fire a hook event of this call and return the decision."""
        ...

    async def choose(self, choices: tuple[Choice, ...], *, plan: str = "") -> tuple[str, ...]:
        """Ask the person; return one answer per question; raises `UnansweredQuestion`."""
        ...


Delta = (
    StreamDelta
    | RequestRetrying
    | ToolStarted
    | ToolProgress
    | UserWarned
    | ActivityShown
    | CompactionProgress
    | TerminalSignal
    | AgentProgress
)
Event = Entry | Delta
"""An event for front ends: a log entry, or a live event that is not stored."""


# Snapshots of the workspace, as the engine needs them.


class SnapshotTaken(msgspec.Struct, frozen=True):
    """A snapshot, and the requested paths that it does not cover."""

    name: str
    uncovered: tuple[str, ...] = ()


class WorkspaceSnapshots(Protocol):
    """Snapshots of the workspace, to restore it from."""

    def prepare(self) -> None:
        """Begin to scan the workspace in the background, if that takes a while."""
        ...

    async def snapshot_workspace(
        self,
        *,
        why: str,
        also: tuple[str, ...] = (),
        files: tuple[str, ...] = (),
        heed: Callable[[int], None] | None = None,
    ) -> SnapshotTaken:
        """Take a snapshot of the workspace, of further folders and of single files.

        Taking one when nothing has changed costs little and gives the last name. `heed` hears how
        many files were looked at, if it takes a while. Raises OSError if it could not be taken.
        """
        ...

    def list_uncovered(self) -> tuple[str, ...]:
        """Return what in the workspace no snapshot covers, as far as known at once."""
        ...

    async def snapshot_files(
        self, paths: Iterable[str], *, why: str
    ) -> tuple[str, tuple[str, ...]]:
        """Save these files alone, or that they are not there.

        Returns the snapshot's name, and the paths that it covers: a file that is not there is
        covered with the folders that it lacks. Raises OSError.
        """
        ...
