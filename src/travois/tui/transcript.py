"""Events as things on the screen: what is finished above, what is under way in the live region."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING

import anyio
import msgspec

from travois.core.content import Call, Shown, Text, words
from travois.core.content import calls as called
from travois.core.facts import Assistant, Changed, Ended, Entry, Finished, Noted, Result, User
from travois.ports.tool import AnyTool
from travois.ports.world import (
    AgentProgress,
    Compacting,
    Doing,
    Event,
    Progress,
    Retrying,
    Running,
    Signalled,
    Warned,
)
from travois.providers.replies import BlockBegan, BlockKind, Grew
from travois.tui import calls, diffs, spinner, todos
from travois.tui.agent_progress import progress_line
from travois.tui.cells import clean, cut, folded, worded
from travois.tui.screen import Screen
from travois.tui.spinner import Work

if TYPE_CHECKING:
    from travois.tui.markdown import Stream

FRAME = 0.1
CHUNK = 72
"""A frame is worth its codes when it brings so many characters, or after a while anyway."""
LATE = 0.5
DOING: dict[BlockKind, str] = {"thinking": "Thinking", "text": "Writing", "call": "Preparing"}
SAID = 20
"""How many lines of what a person said are shown again."""
PER_TOKEN = 4


class Remembered(msgspec.Struct):
    """What a note on memory tells."""

    diff: str = ""
    why: str = ""


class Transcript:
    """The story so far, and the page that is being written."""

    def __init__(self, screen: Screen, tools: Mapping[str, AnyTool]) -> None:
        self._screen = screen
        self._tools = tools
        self._stream: Stream | None = None
        self._fresh = 0
        self._drawn = 0.0
        self._calls: dict[str, Call] = {}
        self._running: dict[str, str] = {}
        """What each call that runs has said last, by its id."""
        self.results: list[tuple[Call, Result]] = []
        self.todos = todos.read("")
        self.pending: list[str] = []
        """What was said and not heard yet."""
        self._doing = "Working"
        self._streamed = 0
        self._spin, self._spun = "", 0.0
        self.queued: tuple[str, ...] = ()
        """What will be said after the turn."""
        self.began = 0.0
        """When the turn began; zero if none runs."""
        self.working, self.resting = anyio.Event(), anyio.Event()
        self.resting.set()
        self.spent: tuple[int, int] = (0, 0)
        self.dollars = 0.0
        self._shown = 0
        """How many results, from the last one on, were shown whole."""

    def begin(self) -> None:
        """A turn begins."""
        self.began, self.resting = monotonic(), anyio.Event()
        self.spent, self.dollars = (0, 0), 0.0
        self.working.set()

    def end(self) -> None:
        """It is over."""
        self.began, self.queued, self.working = 0.0, (), anyio.Event()
        self.pending.clear()
        self.resting.set()
        self._screen.refresh()

    # --- what happens ----------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Show what happens."""
        match event:
            case BlockBegan(kind=kind, name=name):
                self._doing = f"{DOING.get(kind, 'Working')}{f' {name}' if name else ''}"
            case Grew(kind=kind, text=text):
                self._grow(text, kind)
            case Running(call=call):
                self._running[call], self._doing = "", "Running"
            case Progress() | AgentProgress():
                self._progressed(event)
            case Retrying():
                self._drop()
                self.note(f"{event.message}; trying again in {event.wait:.1f} s", tone="warn")
            case Warned(text=text):
                self.note(text)
            case Doing() | Compacting() | Signalled():
                self._hooked(event)
            case Entry():
                self._entry(event)
            case _:
                return
        if not isinstance(event, Grew):
            self._screen.refresh()

    def _progressed(self, event: Progress | AgentProgress) -> None:
        """What a call that runs has to show, or the agent that it started."""
        if isinstance(event, Progress):
            self._running[event.call] = event.text
        elif event.call in self._running:
            self._running[event.call] = progress_line(event)

    def _hooked(self, event: Doing | Compacting | Signalled) -> None:
        """What goes on beside the conversation: a hook, or a summary that is being written."""
        if isinstance(event, Doing):
            self._doing = clean(event.text)
        elif isinstance(event, Compacting):
            self._doing = "Working" if event.over else f"Summarising ({event.seconds:.0f} s)"
        else:
            self._screen.signal(event.text)

    def _entry(self, entry: Entry) -> None:
        match entry.fact:
            case User() as fact:
                self._heard(fact)
            case Assistant() as fact:
                self._replied(fact)
            case Result() as fact:
                self._answered(fact)
            case Changed(what="todos", value=value):
                self.todos = todos.read(value)
            case Noted(what="memory", text=text):
                self._remembered(text)
            case Finished(id=id, outcome=outcome) if id in self._calls:
                self.note(f"{id}: {outcome}")
            case Ended() as fact:
                self._ended(fact)
            case _:
                pass

    def _grow(self, text: str, kind: BlockKind) -> None:
        self._streamed += len(text)
        if kind != "text":
            return
        if self._stream is None:
            from travois.tui.markdown import Stream

            self._stream = Stream(self._screen.theme)
            self._screen.show("")
        self._stream.feed(text)
        self._fresh += len(text)

    def _heard(self, fact: User) -> None:
        text = words(fact.content)
        match fact.origin:
            case "human":
                self.pending = [one for one in self.pending if one != text]
                self._settle()
                self.said(fact.content)
            case "mail":
                self._settle()
                self.note(text.partition("\n</mail>")[0][:300])
            case "task":
                self._settle()
                self.note(text.strip().partition("\n")[0][:300])
            case "note" | "hook":
                pass

    def _replied(self, fact: Assistant) -> None:
        if self._stream is None and (text := words(fact.content)).strip():
            self._grow(text, "text")
        self._settle()
        self._streamed, usage = 0, fact.usage
        sent, said = self.spent
        self.spent = (sent + usage.prompt, said + usage.output)
        self._calls.update({call.id: call for call in called(fact.content)})
        self._doing = "Working"

    def _answered(self, fact: Result) -> None:
        self._running.pop(fact.call, None)
        call = self._calls.get(fact.call)
        if call is None:
            return
        self.results.append((call, fact))
        self._shown = 0
        columns, theme = self._screen.columns, self._screen.theme
        lines = calls.done(call, fact, tools=self._tools, theme=theme, columns=columns)
        self._screen.show(*(["", *lines] if lines and diffs.patch(fact.detail) else lines))

    def _remembered(self, text: str) -> None:
        try:
            told = msgspec.json.decode(text, type=Remembered)
        except msgspec.DecodeError:
            return
        self._settle()
        self.note(f"remembered{f': {told.why}' if told.why else ''}")
        theme, columns = self._screen.theme, self._screen.columns
        self._screen.show(*diffs.unified(told.diff, theme, columns, most=8))

    def _ended(self, fact: Ended) -> None:
        self._settle()
        self._running.clear()
        if fact.why == "aborted":
            self.note("stopped; what was read stays", tone="warn")
        elif fact.why not in ("end", "refusal") or fact.detail:
            self.note(fact.detail or fact.why, tone="warn")

    # --- what is finished ------------------------------------------------------------------------

    def said(self, content: tuple[Shown, ...]) -> None:
        """What a person said: the last text is theirs, others came with it."""
        theme = self._screen.theme
        media = [f"[{block.kind} {block.name}]" for block in content if not isinstance(block, Text)]
        texts = [clean(block.text).strip("\n") for block in content if isinstance(block, Text)]
        text = "\n".join((*texts[-1:], *media)).strip("\n")
        lines = folded(text, self._screen.columns - 3)
        rest = len(lines) - SAID
        shown = lines[:SAID] + ([f"… {rest} more lines"] if rest > 0 else [])
        first, *more = [theme.mark(line, "strong") for line in shown]
        mark = theme.mark("❯", "accent")
        self._screen.show("", f"{mark} {first}", *(f"  {line}" for line in more))

    def note(self, text: str, *, tone: str = "quiet") -> None:
        """A remark of our own."""
        theme = self._screen.theme
        lines = worded(clean(text).strip(), self._screen.columns - 5)
        marked = [theme.mark(line, "warn" if tone == "warn" else "quiet") for line in lines]
        self._screen.show(
            f"  {theme.mark('·', 'quiet')} {marked[0]}", *(f"    {m}" for m in marked[1:])
        )

    def paragraph(self, text: str) -> None:
        """The answer to a command."""
        self._screen.show("", *(f"  {line}" for line in clean(text).rstrip().split("\n")))

    def markdown(self, text: str) -> None:
        """A whole page of markdown."""
        from travois.tui.markdown import rendered

        self._screen.show("", *rendered(text, self._screen.theme, self._screen.columns))

    def expand(self) -> None:
        """Show the last result whole; then the one before it, and so on."""
        if self._shown < len(self.results):
            self._shown += 1
            call, result = self.results[-self._shown]
            theme, columns = self._screen.theme, self._screen.columns
            self._screen.show(*calls.whole(call, result, theme=theme, columns=columns))

    # --- what is under way -----------------------------------------------------------------------

    def advance(self) -> bool:
        """Bring what was written since the last frame to the screen, if it is time to."""
        if self._stream is None or not self._fresh:
            return False
        if self._fresh < CHUNK and monotonic() - self._drawn < LATE:
            return False
        self._fresh, self._drawn = 0, monotonic()
        room = max(2, self._screen.rows - len(self.status(self._screen.columns)) - 8)
        self._screen.finish(*self._stream.lines(self._screen.columns, most=room))
        return True

    def status(self, columns: int) -> list[str]:
        """The lines between the answer and the prompt."""
        theme = self._screen.theme
        lines: list[str] = []
        for id, progress in list(self._running.items())[-4:]:
            if call := self._calls.get(id):
                lines += calls.running(
                    call, progress, tools=self._tools, theme=theme, columns=columns
                )
        if self.began and self._open():
            lines += [*([""] if lines else []), *todos.lines(self.todos, theme, columns), ""]
        if self.began and not self._screen.asking:
            lines.append(self._spinner(columns))
        for mark, said in (("↳", self.pending), ("…", self.queued)):
            lines += [
                theme.mark(f"  {mark} {cut(clean(one), columns - 4)}", "quiet") for one in said
            ]
        return lines

    def _open(self) -> bool:
        return any(todo.status != "completed" for todo in self.todos)

    def _spinner(self, columns: int) -> str:
        """The line that says that it works; while words come, it moves only now and then."""
        pace = 1.0 if self._stream else spinner.PACE
        if monotonic() - self._spun >= pace or self._doing not in self._spin:
            (sent, said), self._spun = self.spent, monotonic()
            said += self._streamed // PER_TOKEN
            work = Work(self._doing, monotonic() - self.began, sent, said, self.dollars)
            self._spin = spinner.line(work, self._screen.theme, columns)
        return cut(self._spin, columns)

    def _settle(self) -> None:
        """What was written is whole."""
        if self._stream is not None:
            self._screen.finish(self._stream.end(self._screen.columns), [])
            self._stream, self._fresh = None, 0

    def _drop(self) -> None:
        """What was written so far will be written again."""
        self._stream, self._fresh, self._streamed = None, 0, 0
        self._screen.finish([], [])
        self._running.clear()
