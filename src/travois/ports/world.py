"""The few doors to the outside world, as the engine and the tools see them.

Concrete classes live in `host` and `store`; only `app.compose` knows both sides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import msgspec

from travois.core.facts import AnyFact, Entry
from travois.permissions.access import Access
from travois.permissions.sandbox_profile import Cage
from travois.ports.agents import Agents as Agents
from travois.ports.agents import Order as Order
from travois.ports.agents import Outbox, SharedTasks, Worktrees
from travois.ports.agents import Report as Report
from travois.ports.events import AgentProgress as AgentProgress
from travois.ports.events import Compacting as Compacting
from travois.ports.events import Doing as Doing
from travois.ports.events import Progress as Progress
from travois.ports.events import Retrying as Retrying
from travois.ports.events import Running as Running
from travois.ports.events import Signalled as Signalled
from travois.ports.events import Warned as Warned
from travois.ports.web_search import Search
from travois.providers.replies import Reply, StreamDelta
from travois.providers.request import Request

if TYPE_CHECKING:
    from socket import socket

    from travois.context.tool_results import Room
    from travois.hooks.events import AnyOccasion
    from travois.hooks.output import Heard
    from travois.memory.port import Recording
    from travois.prompt.instruction_text import Found, Kind
    from travois.skills.skills import Practice


# The person, as the engine sees them.


OFFER = "run commands in the sandbox without asking in this project"
OFFER_MEANS = "no network, home hidden; a rewind restores the workspace"


class Question(msgspec.Struct, frozen=True):
    """May this call run? `args` is exactly what would run."""

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
    """Whether they may let commands run in the sandbox without asking in this project."""
    digest: str = ""
    """Of the tool, its arguments and the place: an answer holds for exactly that."""


class Answer(msgspec.Struct, frozen=True):
    """A person's word on a question; `reason` goes to the model."""

    allow: bool
    reason: str = ""
    always: bool = False
    """Whether the rules that the question offered are to be kept."""
    sandbox: bool = False
    """Whether they let commands run in the sandbox without asking, as the question offered."""
    digest: str = ""
    """That of the question which was shown."""
    input: str = ""
    """The whole input that the call should have instead, as JSON text."""
    updates: tuple[msgspec.Raw, ...] = ()
    """Changes of permissions, as other agents write them."""
    stop: str = ""
    """Why the whole turn should end with this."""


class Option(msgspec.Struct, frozen=True):
    """One answer that is offered."""

    label: str
    description: str = ""


class Choice(msgspec.Struct, frozen=True):
    """What the model wants to know; the person may always answer in words of their own."""

    question: str
    options: tuple[Option, ...]
    header: str = ""
    """What it is about, in a word or two."""
    several: bool = False
    """Whether more than one of the options may be chosen."""


class Inquiry(msgspec.Struct, frozen=True):
    """Choices that are put to the person together; `plan` is what they are about, if it is one."""

    call: str
    choices: tuple[Choice, ...]
    plan: str = ""


class Person(Protocol):
    """Whoever answers questions; headless, nobody does and the answer is no."""

    async def decide(self, question: Question) -> Answer:
        """Ask whether a call may run, and wait."""
        ...

    async def choose(self, inquiry: Inquiry) -> tuple[str, ...] | None:
        """One answer for each choice: labels, joined by commas, or words; None if nobody says."""
        ...


# What came of a program: how it ended, what it said, and what an attempt of it would change.


class Captured(msgspec.Struct, frozen=True):
    """A capped record of output: its head, its tail, and how much there was in all."""

    head: bytes
    tail: bytes
    total: int
    file: str = ""
    """Where all of it is, if that was asked for and it is more than was kept."""
    missing_lines: int = 0
    """How many line ends the missing bytes have."""
    is_capped: bool = False
    """Whether the file has reached its limit, so that the program was ended."""

    @property
    def missing(self) -> int:
        """How many bytes in the middle were not kept."""
        return self.total - len(self.head) - len(self.tail)

    @property
    def lines(self) -> int:
        """How many lines there were in all; a last one without an end counts."""
        ends = self.head.count(b"\n") + self.tail.count(b"\n") + self.missing_lines
        last = self.tail or self.head
        return ends + bool(last and not last.endswith(b"\n"))

    def joined(self) -> bytes:
        """Head and tail with nothing between; whole iff nothing is missing."""
        return self.head + self.tail


class Completed(msgspec.Struct, frozen=True):
    """How a program ended. `status` is negative for a signal."""

    status: int
    output: Captured
    errors: Captured
    timed_out: bool = False
    cut: bool = False
    """Whether it was ended because whoever read its output had enough."""
    left_running: tuple[int, ...] = ()
    """Processes that it started and left behind."""
    aside: bytes = b""
    """What it said to us alone: the last few kilobytes of it."""
    job: str = ""
    """The background job as which it goes on, if it outlived its timeout."""
    refused: tuple[str, ...] = ()
    """Whom it tried to reach over the network and may not, and why, in words."""
    session_ports: tuple[int, ...] = ()
    """Where servers of the session listen, in its own network, if this program failed outside."""


class Change(msgspec.Struct, frozen=True):
    """One path that an attempt left different; `size` is what it has there."""

    path: str
    kind: Literal["added", "changed", "deleted", "renamed"]
    size: int
    was: str = ""
    """Its path before, if it was renamed."""


class Attempt(Protocol):
    """A program that ran in a copy of the workspace, until what it did is kept or dropped."""

    completed: Completed
    changes: tuple[Change, ...]

    async def read(self, path: str) -> bytes:
        """The bytes that a path has in the copy."""
        ...

    async def keep(self, *, named: Collection[str] = ()) -> tuple[Change, ...]:
        """Make it real, each file at once; returns what was not kept.

        What is pinned or has a protected name is kept only if it, or a folder above it, is named.
        Raises `Stale`, with nothing kept, if the real files changed since the attempt began.
        """
        ...

    async def drop(self) -> None:
        """Forget the copy; nothing of it stays."""
        ...


class Model(Protocol):
    """A model as a function: one request in, deltas and one reply out."""

    def stream(
        self, request: Request
    ) -> AbstractAsyncContextManager[AsyncIterator[StreamDelta | Reply]]:
        """Send the request; the last thing yielded is the reply. Raises `Problem`."""
        ...


class Log(Protocol):
    """The file of entries of one session."""

    def append(self, fact: AnyFact) -> Entry:
        """Write one entry in one go; when this returns, a crash of ours does not lose it."""
        ...

    def sync(self) -> None:
        """Bring what was appended to the disk itself."""
        ...

    def read(self) -> Iterable[Entry]:
        """All entries, those of the session that this one was forked from first."""
        ...


@runtime_checkable
class Resumable(Log, Protocol):
    """A log beside which lies what was derived from its beginning."""

    @property
    def grown(self) -> int:
        """How many bytes were added since `keep`; 0 where that is not known."""
        ...

    def resume(self) -> tuple[bytes, Iterable[list[Entry]]]:
        """What was kept of the session as it stood at some entry, and all entries after that."""
        ...

    def read_blocks(self) -> Iterable[list[Entry]]:
        """All entries, many at once."""
        ...

    def keep(self, state: bytes) -> None:
        """Keep what was derived from all entries so far; it can always be derived again."""
        ...

    def news(self) -> str:
        """What the user should be told now of what is saved; each thing is told once."""
        ...

    def discard(self) -> None:
        """Forget what was kept."""
        ...

    def recent(self) -> Iterable[Entry] | None:
        """What matters of a very long log: its last entries and older turns of events.

        None if the log is not that long: all of it can be read.
        """
        ...


class Blobs(Protocol):
    """Bytes by the name of their content."""

    def put(self, data: bytes) -> str:
        """Keep these bytes; returns their name."""
        ...

    def get(self, name: str) -> bytes:
        """The bytes of that name; raises KeyError."""
        ...


class Stat(msgspec.Struct, frozen=True):
    """What a path is."""

    kind: Literal["file", "folder", "other"]
    size: int
    modified: float
    link: str = ""
    """Where it really is, if that is elsewhere than the path says."""
    private: bool = False
    """Whether it is elsewhere because it lies in the session's private /tmp."""


class Stale(Exception):
    """The file is not what it was when it was read; nothing was written."""


class Files(Protocol):
    """Files as bytes, by absolute path. Errors are OSError, with the path.

    The disk follows no links: a call opens the paths that were judged, which have none.
    """

    async def stat(self, path: str) -> Stat | None:
        """What the path is; None if nothing is there."""
        ...

    async def names(self, folder: str, *, limit: int) -> list[str]:
        """The first names in a folder, in order; those of folders end with a slash."""
        ...

    async def modified(self, paths: Sequence[str]) -> list[int]:
        """When each of these was changed last, in nanoseconds; 0 for what cannot be told."""
        ...

    async def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        """Bytes of the file from an offset on."""
        ...

    async def replace(self, path: str, data: bytes, *, expect: str | None) -> str:
        """Replace the whole file at once, iff the digest of its content is `expect`.

        `None` means that no file may be there yet; missing folders are made. Returns the digest
        of what now stands there. Raises `Stale`.
        """
        ...

    async def remove(self, path: str, *, expect: str) -> None:
        """Delete a file, iff the digest of its content is `expect`; raises `Stale`."""
        ...

    def queue(self, path: str) -> AbstractAsyncContextManager[None]:
        """One at a time, for callers that read, think and replace."""
        ...


def digest(data: bytes) -> str:
    """The name of some content, for compare-and-swap."""
    return blake2b(data, digest_size=16).hexdigest()


class Command(msgspec.Struct, frozen=True):
    """A program to run: no shell unless argv says so."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = {}
    """Added to the clean environment that every child gets."""
    stdin: bytes = b""
    keep: int = 64 * 1024
    """How many bytes of the head and of the tail of its output to keep in memory (each)."""
    whole: str = ""
    """The file for all of its output, if that is more than is kept; empty for none."""
    stderr: Literal["merge", "apart"] = "merge"
    aside: str = ""
    """The variable that tells it a descriptor for what it says to us alone; empty for none."""
    cage: Cage | None = None
    """The walls around it; none for what the harness itself needs."""
    wary: Cage | None = None
    """The walls around a program of our own, such as git, that obeys files which commands could
    have changed: it gets them while such a command may run."""
    talks: bool = False
    """Whether we go on talking with it: then its output is what it says on standard error."""
    tty: bool = False
    """Whether it gets a terminal, for its input as well as for all of its output."""
    label: str = ""
    """What people and models know it by: the command line, not the shell that we wrap around it."""
    accesses: tuple[Access, ...] = ()
    """What the call that starts it was judged by."""


class Job(Protocol):
    """A program in the background."""

    id: str
    command: str
    label: str
    """The command line that it runs, as whoever started it wrote it."""
    tty: bool
    """Whether it has a terminal that can be typed into."""
    cage: Cage | None
    """The sandbox that it runs in."""
    accesses: tuple[Access, ...]
    """What the call that started it was judged by."""

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        ...

    @property
    def over(self) -> bool:
        """Whether it has ended and all of its output is in."""
        ...

    def fresh(self) -> Captured:
        """Output since the last call of this."""
        ...

    def waiting(self) -> Captured:
        """The output that `fresh` would give; it stays where it is."""
        ...

    def last_lines(self, count: int) -> str:
        """The last lines of what `fresh` would give, as text; it stays where it is."""
        ...

    async def wait(self) -> int:
        """Its exit status, when it has ended."""
        ...

    async def changed(self) -> None:
        """Wait until it says something, or ends."""
        ...

    def followed(self) -> AbstractContextManager[Following]:
        """All of its output from here on; `fresh` gives it nevertheless."""
        ...

    async def send(self, data: bytes) -> None:
        """Type into its terminal; raises OSError if it has none, or takes nothing."""
        ...

    def interrupt(self) -> None:
        """Send it an interrupt, as Ctrl-C does."""
        ...

    async def kill(self) -> None:
        """End it with everything that it started."""
        ...


class Following(Protocol):
    """Output on its way to somebody who looks at all of it."""

    def take(self) -> bytes:
        """What came since the last call of this."""
        ...


class Processes(Protocol):
    """The only way in which anything is ever started."""

    async def run(
        self,
        command: Command,
        *,
        timeout: float,
        on_output: Callable[[bytes], None] | None = None,
        reader: Callable[[bytes], bool] | None = None,
        detach_as: Callable[[], str] | None = None,
    ) -> Completed:
        """Run to the end. On timeout or cancellation the whole process tree is killed first.

        `reader` gets all output in order and returns whether it wants more; once it does not, the
        program is ended. A program that outlives the timeout goes on as a background
        job of the id that `detach_as` gives.
        """
        ...

    async def attempt(self, command: Command, *, timeout: float) -> Attempt:
        """Run to the end in a copy of what its cage may write to; raises OSError if none can be."""
        ...

    async def start(self, command: Command, *, id: str) -> Job:
        """Start in the background; it dies with the session at the latest."""
        ...

    def jobs(self) -> Mapping[str, Job]:
        """Background jobs by id."""
        ...

    def accept(self, path: str, data: bytes | None = None) -> None:
        """Take a change that we made to a protected file ourselves for how it is to be."""
        ...

    def session_socket(self, family: int) -> socket | None:
        """A TCP socket in the network that sandboxed commands share; none if they share none."""
        ...

    def notices(self) -> tuple[str, ...]:
        """What became of protected files that changed while commands ran; each is told once."""
        ...


class Library(Protocol):
    """Instruction files, as they are on disk at the moment."""

    def standing(self, also: Mapping[str, Kind] | None = None) -> Found:
        """Those that always count here, and these besides, by path."""
        ...

    def touched(self, paths: Iterable[str]) -> Found:
        """Those that count besides once these files are worked with."""
        ...


class Page(msgspec.Struct, frozen=True):
    """What a URL gave."""

    url: str
    status: int
    mime: str
    body: bytes
    truncated: bool = False


class Web(Protocol):
    """Fetching pages. Errors are OSError with words that a person understands."""

    async def fetch(self, url: str, *, limit: int, timeout: float) -> Page:
        """Get a page, following redirects on the same host only.

        A redirect to another host is the page: its status, and the URL that it points to.
        """
        ...


class Unanswered(Exception):
    """Nobody was there to answer, or they would not; the words say which."""


class Env(Protocol):
    """The world of one tool call."""

    @property
    def root(self) -> str:
        """The workspace folder."""
        ...

    @property
    def cwd(self) -> str:
        """Where the shell stands."""
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
    def cage(self) -> Cage | None:
        """The walls for the programs that this call starts."""
        ...

    @property
    def wary(self) -> Cage | None:
        """The walls for our own git, which obeys the settings of a repository."""
        ...

    @property
    def files(self) -> Files: ...

    @property
    def processes(self) -> Processes: ...

    @property
    def has_mail(self) -> bool:
        """Whether something waits to be said to the model, so that a long wait should end."""
        ...

    @property
    def web(self) -> Web: ...

    @property
    def search(self) -> Search | None:
        """How the web is searched; none where it is not."""
        ...

    @property
    def blobs(self) -> Blobs: ...

    @property
    def agents(self) -> Agents | None:
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
    def memory(self) -> Recording | None:
        """Where to remember something for later sessions; none where nothing is remembered."""
        ...

    @property
    def skills(self) -> Practice | None:
        """The skills that can be used; none where there are none."""
        ...

    @property
    def hidden(self) -> Callable[[str], bool]:
        """Says of a path whether a rule keeps it from being shown in what the call finds."""
        ...

    @property
    def room(self) -> Room:
        """How many tokens the result may take; decided before any call of the reply runs."""
        ...

    @property
    def kept(self) -> str:
        """The session's folder of large outputs and of what was set aside."""
        ...

    def spill(self, call: str, data: bytes) -> str:
        """Keep a large output in the session's folder; returns the path that Read can open."""
        ...

    def progress(self, text: str) -> None:
        """Something for the eye while the call runs."""
        ...

    async def hear(self, occasion: AnyOccasion) -> Heard:
        """What hooks say of something that the call does."""
        ...

    async def choose(self, choices: tuple[Choice, ...], *, plan: str = "") -> tuple[str, ...]:
        """The person's answers, one for each choice; raises `Unanswered`."""
        ...


Delta = (
    StreamDelta
    | Retrying
    | Running
    | Progress
    | Warned
    | Doing
    | Compacting
    | Signalled
    | AgentProgress
)
Event = Entry | Delta
"""What a front end sees: what happened, and what is only for the eye."""


# What the engine needs of whoever takes snapshots of the workspace.


class Kept(msgspec.Struct, frozen=True):
    """A snapshot that was taken, and the paths that were asked for and are not in it."""

    name: str
    uncovered: tuple[str, ...] = ()


class Keeper(Protocol):
    """Keeps what the workspace was like, so that it can be brought back."""

    def prepare(self) -> None:
        """Begin to look at the workspace in the background, if that will take a while."""
        ...

    async def keep(
        self,
        *,
        why: str,
        also: tuple[str, ...] = (),
        files: tuple[str, ...] = (),
        heed: Callable[[int], None] | None = None,
    ) -> Kept:
        """Take a snapshot of the workspace, of all that is in some paths, and of single files.

        Taking one when nothing has changed costs little and gives the last name. `heed` hears how
        many files were looked at, if it takes a while. Raises OSError if it could not be taken.
        """
        ...

    def left_out(self) -> tuple[str, ...]:
        """What in the workspace is not covered, as far as is known at once."""
        ...

    async def keep_files(self, paths: Iterable[str], *, why: str) -> tuple[str, tuple[str, ...]]:
        """Save these files alone, or that they are not there.

        Returns the snapshot's name, and the paths that it covers: a file that is not there is
        covered with the folders that it lacks. Raises OSError.
        """
        ...
