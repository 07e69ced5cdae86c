"""Questions to the person: may this run, is this the plan, which of these."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from travois.core.display_text import visible
from travois.ports.world import OFFER, OFFER_MEANS, Answer, Choice, Inquiry, Question
from travois.tui import calls
from travois.tui.cells import clean, folded, worded
from travois.tui.menu import Pick
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
            *(f"    {line}" for line in calls.given(question.args, theme, room)),
            *(f"    {theme.mark(line, 'quiet')}" for line in quiet),
        )
