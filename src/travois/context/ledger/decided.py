"""What the human decided: answers to questions, and plans they approved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from travois.context.ledger.extractors import Act, is_list, is_object

PAIR = re.compile(r'"([^"\n]{4,})"="([^"\n]+)"')
APPROVED = re.compile(r"Approved Plan:?\s*\n(.+)", re.DOTALL)


class Decision(msgspec.Struct, frozen=True):
    """An answer to a question, or with no question a plan that was approved."""

    seq: int
    answer: str
    question: str = ""


def decisions(acts: Iterable[Act]) -> tuple[Decision, ...]:
    """All of them, oldest first."""
    return tuple(decision for act in acts for decision in _decided(act))


def _decided(act: Act) -> Iterator[Decision]:
    if act.error or act.refused is not None:
        return
    if act.kind == "plan":
        saved = APPROVED.search(act.text)
        plan = act.arg("plan") or (saved[1] if saved else "")
        if plan:
            yield Decision(act.seq, plan.strip())
    elif act.kind == "ask":
        pairs = PAIR.findall(act.text)
        for question, answer in pairs:
            yield Decision(act.seq, answer, question)
        if not pairs:
            yield Decision(act.seq, act.text.strip(), _question(act))


def _question(act: Act) -> str:
    listed = act.args.get("questions")
    items = [item for item in listed if is_object(item)] if is_list(listed) else []
    asked = [str(item.get("question", "")) for item in items]
    return " ".join(asked) or act.arg("question", "prompt", "text")
