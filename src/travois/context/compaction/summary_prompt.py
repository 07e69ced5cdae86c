"""The summary prompt: what the model is asked to write, by agent and by side of a compaction."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from travois.context.compaction import outline
from travois.context.compaction.cut import CompactionTrigger, ConversationCut
from travois.context.compaction.outline import SummaryPart
from travois.core.content import extract_calls, extract_text
from travois.core.facts import Assistant, Result
from travois.engine.agent import Agent

PROMPT_FOLDER = Path(__file__).parent.parent / "prompts"
MAX_SUMMARY_WORDS = 1_200
MIN_SUMMARY_WORDS = 150
WORDS_PER_TOKEN = 0.5
UNATTENDED_NOTE = (
    "Nobody is watching this run and nobody will answer questions: name the next step so that the "
    "work can continue from the summary at once."
)


class SummaryRequest(msgspec.Struct, frozen=True):
    """A request for a summary."""

    trigger: CompactionTrigger
    focus: str = ""
    hooks: tuple[str, ...] = ()
    part: ConversationCut | None = None
    """The part to replace, where a person has chosen it."""
    anew: bool = False
    """True if the prepared text does not reach far enough as it is."""
    most: int = 0
    """The token limit of the model's part; 0 for what the window allows."""

    @property
    def is_custom(self) -> bool:
        """Return whether it asks for something that nothing prepared in advance can know."""
        return bool(self.focus or self.hooks or self.part) or self.trigger == "manual"


def summary_outline(agent: Agent, request: SummaryRequest) -> tuple[SummaryPart, ...]:
    """Return the outline for a summary prompt: a subagent's, or that of the chosen side."""
    if agent.team.birth is not None:
        return outline.SUBAGENT_OUTLINE
    return (
        outline.UP_TO_OUTLINE
        if _find_chosen_side(agent, request.part) == "up-to"
        else outline.MAIN_OUTLINE
    )


def build_summary_prompt(agent: Agent, request: SummaryRequest, *, most: int) -> str:
    """Build the summary prompt: the user's focus first, then what hooks add, in order.

    It says at both ends that the answer must be text alone.
    """
    side = _find_chosen_side(agent, request.part)
    name = "summary-agent.md" if agent.team.birth is not None else "summary.md"
    if side and agent.team.birth is None:
        name = f"summary-{side}.md"
    values = {"words": str(summary_word_limit(most)), "where": _quote_boundary(request.part, side)}
    body, _, closing = fill_summary_prompt(name, values).rpartition("\n\n")
    parts = [body]
    parts += (
        [UNATTENDED_NOTE] if not agent.permissions.is_attended and agent.team.birth is None else []
    )
    parts += [f"Give most room to: {request.focus}"] if request.focus else []
    parts += [f"The user's hooks add:\n{text}" for text in request.hooks]
    return "\n\n".join((*parts, closing))


def summary_word_limit(most: int) -> int:
    return round(min(MAX_SUMMARY_WORDS, max(MIN_SUMMARY_WORDS, most * WORDS_PER_TOKEN)))


def _find_chosen_side(agent: Agent, part: ConversationCut | None) -> Literal["", "from", "up-to"]:
    """Return which side of the kept part the summary prompt covers; empty if nobody chose."""
    if part is None or not part.kept:
        return ""
    return "from" if part.kept[0].seq < part.dropped[0].seq else "up-to"


def _quote_boundary(part: ConversationCut | None, side: str) -> str:
    """Quote in a summary prompt the message at which the chosen part begins or ends."""
    if part is None or not side:
        return ""
    item = part.dropped[0] if side == "from" else part.dropped[-1]
    said = " ".join(extract_text(item.fact.content).split())
    if isinstance(item.fact, Assistant) and not said and (made := extract_calls(item.fact.content)):
        said = f"a call to {made[0].name}"
    who = "your message" if isinstance(item.fact, Assistant) else "the message"
    who = "the tool result" if isinstance(item.fact, Result) else who
    return f"{who} “{said[:120]}{'…' if len(said) > 120 else ''}”"


def fill_summary_prompt(name: str, values: dict[str, str]) -> str:
    """Load a summary prompt file and fill in its placeholders."""
    text = (PROMPT_FOLDER / name).read_text("utf-8").strip()
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", value)
    return text
