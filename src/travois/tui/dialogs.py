"""Questions to the person: may this run, is this the plan, which of these."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

from travois.compose.session_picker import Shelf
from travois.core.display_text import visible
from travois.ports.world import OFFER, OFFER_MEANS, Answer, Choice, Inquiry, Question
from travois.sessions.catalog import Summary
from travois.terminal.tables import ago
from travois.tui import transcript
from travois.tui.markdown import Theme, clean, cut, folded, width, worded
from travois.tui.menu import Menu, Pick
from travois.tui.screen import Screen
from travois.tui.transcript import Transcript

ONCE, NO = Pick("y", "yes, this once"), Pick("n", "no, and say why")
SANDBOX = Pick("s", "yes, and use the sandbox", f"{OFFER}: {OFFER_MEANS}")
OWN = Pick("0", "in your own words")
WHY = "why not (Enter for no reason): "


class Dialogs:
    """The person before the screen. One question at a time, each after what led to it."""

    def __init__(self, screen: Screen, page: Callable[[], Transcript]) -> None:
        self._screen = screen
        self._page = page
        self._told: dict[str, anyio.Event] = {}
        self._one = anyio.Lock()

    def told(self, call: str) -> anyio.Event:
        """Set when all that led to a question about this call is on the screen."""
        return self._told.setdefault(call, anyio.Event())

    async def decide(self, question: Question) -> Answer:
        """Show exactly what would run, and ask."""
        await self.told(question.call).wait()
        async with self._one:
            self._show(question)
            rules = visible(", ".join(question.always))
            always = (Pick("a", "yes, always", rules),) if question.always else ()
            offer = (SANDBOX,) if question.offers_sandbox else ()
            options = (ONCE, *always, *offer, NO)
            picked = await self._screen.pick(options)
            match options[picked[0]].key if picked else "":
                case "y":
                    return Answer(allow=True, reason="the user said yes", digest=question.digest)
                case "a":
                    said = "the user said always"
                    return Answer(allow=True, reason=said, always=True, digest=question.digest)
                case "s":
                    said = "the user said yes"
                    return Answer(allow=True, reason=said, sandbox=True, digest=question.digest)
                case _:
                    why = (await self._screen.ask(WHY) or "").strip() if picked else ""
                    return Answer(
                        allow=False, reason=f"the user said no{': ' + why if why else ''}"
                    )

    async def choose(self, inquiry: Inquiry) -> tuple[str, ...] | None:
        """Put choices one after the other."""
        await self.told(inquiry.call).wait()
        async with self._one:
            if inquiry.plan:
                self._page().markdown(inquiry.plan)
            answers: list[str] = []
            for choice in inquiry.choices:
                answer = await self._answer(choice)
                if answer is None:
                    return None
                answers.append(answer)
            return tuple(answers)

    async def _answer(self, choice: Choice) -> str | None:
        theme = self._screen.theme
        asked = worded(clean(choice.question), self._screen.columns - 5)
        marked = [f"  {theme.mark(line, 'strong')}" for line in asked]
        self._screen.show("", f"  {theme.mark('?', 'accent')} {marked[0].lstrip()}", *marked[1:])
        options = [
            Pick(str(number), clean(one.label), clean(one.description))
            for number, one in enumerate(choice.options, 1)
        ]
        last = Pick("0", "done") if choice.several else OWN
        picked = await self._screen.pick((*options, last), several=choice.several)
        if picked is None:
            return None
        if not choice.several and picked == [len(options)]:
            typed = await self._screen.ask("answer: ")
            answer = typed.strip() if typed else None
        else:
            answer = ", ".join(choice.options[number].label for number in picked)
        if answer is not None:
            self._page().note(answer)
        return answer

    def _show(self, question: Question) -> None:
        """Exactly what would run, what it does, and why it is asked about; nothing is cut."""
        theme, room = self._screen.theme, self._screen.columns - 5
        asked = f"asked because it {visible(question.because)}"
        effects = (f"· {visible(effect)}" for effect in question.effects)
        quiet = [line for text in (*effects, asked) for line in folded(text, room)]
        self._screen.show(
            "",
            f"  {theme.mark('?', 'warn')} {theme.mark(visible(question.tool), 'strong')}",
            *(f"    {line}" for line in transcript.given(question.args, theme, room)),
            *(f"    {theme.mark(line, 'quiet')}" for line in quiet),
        )


# The choice of a session among thousands: type to find it, see how it ended, go on.


MOST, AROUND = 10, 13
"""How many sessions are shown at most, and how many rows the rest of the screen needs."""
ERASE, CLEAR = "\x7f", "\x15"
AGE = 10


class Picker(Menu):
    """Sessions to choose from, those that fit what is typed."""

    def __init__(self, shelf: Shelf, rows: Callable[[], int]) -> None:
        super().__init__(())
        self._shelf, self._rows = shelf, rows
        self._typed, self._everywhere = "", False
        self._found = shelf.found("", everywhere=False)

    @property
    def chosen(self) -> Summary | None:
        """The session that was chosen."""
        return self._found[self.answer[0]] if self.answer else None

    def armed(self) -> bool:
        """Every key is meant for it: all that they do before Enter is to look."""
        return True

    def move(self, by: int) -> None:
        """Go to another one; there is nothing beyond the first and the last."""
        self.at = max(0, min(self.at + by, len(self._found) - 1))

    def turn(self) -> None:
        """Look at those of all projects, or of this one."""
        self._everywhere = not self._everywhere
        self._find(self._typed)

    def press(self, key: str) -> bool:
        """Look for other words."""
        if key in (ERASE, CLEAR):
            self._find(self._typed[:-1] if key == ERASE else "")
        elif key.isprintable():
            self._find(self._typed + key)
        return True

    def take(self) -> None:
        """Choose the one that is pointed at."""
        if self._found:
            self.answer = [self.at]
            self.done.set()

    def _find(self, text: str) -> None:
        self._typed, self.at = text, 0
        self._found = self._shelf.found(text, everywhere=self._everywhere)

    # --- how it looks ----------------------------------------------------------------------------

    def lines(self, theme: Theme, columns: int) -> list[str]:
        """What was typed, the sessions that fit, and how the one that is pointed at ended."""
        room = max(1, min(MOST, self._rows() - AROUND))
        first = max(0, min(self.at - room // 2, len(self._found) - room))
        where = "all projects" if self._everywhere else "this project"
        other = "this project" if self._everywhere else "all projects"
        head = f"Go on with which session? {len(self._found):,} of {where}"
        shown = [f"  {theme.mark(cut(head, columns - 2), 'strong')}"]
        shown.append(f"  {theme.mark('find:', 'accent')} {cut(clean(self._typed), columns - 10)}")
        shown.append("")
        for number, one in enumerate(self._found[first : first + room], first):
            shown.append(self._row(theme, columns, number=number, one=one))
        shown += self._ending(theme, columns)
        keys = f"Enter goes on · Tab {other} · Esc leaves"
        return [*shown, f"  {theme.mark(cut(keys, columns - 2), 'quiet')}"]

    def _row(self, theme: Theme, columns: int, *, number: int, one: Summary) -> str:
        here = number == self.at
        age = ago(time.time() - one.updated) if one.updated else "?"
        folder = f"  {_tail(clean(one.cwd), columns // 3)}" if self._everywhere else ""
        title = cut(clean(one.title), columns - 6 - AGE - width(folder))
        pointer = theme.mark("❯", "accent") if here else " "
        told = theme.mark(title, "strong") if here else title
        when, where = (theme.mark(text, "quiet") for text in (f"{age:<{AGE}}", folder))
        return f"  {pointer} {when} {told}{where}"

    def _ending(self, theme: Theme, columns: int) -> list[str]:
        if not self._found:
            return ["  Nothing fits.", ""]
        said, answered = self._shelf.ending(self._found[self.at])
        told = (("you", said), ("it", answered))
        lines = [f"{who:>5}: {clean(text)}" for who, text in told if text]
        return ["", *(f"  {theme.mark(cut(line, columns - 2), 'quiet')}" for line in lines), ""]


def _tail(path: str, room: int) -> str:
    return path if width(path) <= room else f"…{path[-(room - 1) :]}"
