"""What a session's record makes of a history does not depend on the pieces in which it came."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.told import EPOCH, entries, user
from travois.context.compaction.record import SessionRecord
from travois.context.compaction.restore import FileHistories
from travois.core.content import Call, Text
from travois.core.facts import (
    AnyFact,
    Assistant,
    Changed,
    Cleared,
    Compacted,
    Decided,
    Entry,
    Result,
    User,
)

CALLS: tuple[tuple[str, dict[str, Any], str, bool], ...] = (
    ("Bash", {"command": "pytest -q && git commit -m x"}, "[main 1234567] x\n3 passed", False),
    ("Bash", {"command": "make check; cd src"}, "Error: no rule to make target check", True),
    ("Bash", {"command": "npm run build", "run_in_background": True}, "background as job-7", False),
    ("Read", {"file_path": "/w/a.py"}, "     1→def parse(text):\n     2→    return text", False),
    ("Edit", {"file_path": "/w/a.py", "old_string": "a", "new_string": "def b():"}, "ok", False),
    ("Write", {"file_path": "/w/b.py", "content": "class Thing:\n    LIMIT = 3"}, "ok", False),
    ("TaskCreate", {"subject": "Fix the parser"}, "Task #4 created", False),
    ("TaskUpdate", {"taskId": "4", "status": "completed"}, "ok", False),
    ("TodoWrite", {"todos": [{"content": "Look", "status": "pending"}]}, "ok", False),
    ("ExitPlanMode", {"plan": "First this, then that."}, "approved", False),
)


def told(steps: list[int]) -> list[Entry]:
    """A history of these steps, each a call or a message."""
    facts: list[AnyFact] = [EPOCH, user("Always use tabs. Fix the parser.", origin="human")]
    for number, step in enumerate(steps):
        if step >= len(CALLS):
            facts += other_facts(step - len(CALLS), number)
            continue
        name, args, text, failed = CALLS[step]
        call = Call(f"c{number}", name, json.dumps(args))
        facts += [
            Assistant((Text("So I do that now. " * 12), call), stop="calls"),
            Decided(call.id, "deny" if step == 1 else "allow", "no", "person"),
            Result(call.id, (Text(text),), error=failed),
            Changed("seen:/w/a.py", str(number)),
        ]
    return entries(*facts)


def other_facts(kind: int, number: int) -> list[AnyFact]:
    match kind:
        case 0:
            return [user(f"Never touch module_{number}.", origin="human")]
        case 1:
            return [User((Text(f"Report {number % 2}"),), origin="task", mail="a1")]
        case 2:
            return [Cleared((f"c{number - 1}",), "gone")]
        case 3:
            return [Changed("skill:lint", f"text {number}"), Changed("cwd", f"/w/{number}")]
        case _:
            return [Compacted(2, 3, (Text("Summary."),), "ledger", files=("f",), titles=("t",))]


def record(parts: list[list[Entry]]) -> tuple[Any, ...]:
    found, files = SessionRecord(), FileHistories()
    for part in parts:
        found.add(part)
        files.add(part)
    scores = {key: (one, found.code.score(one)) for key, one in found.code.found.items()}
    named = {name: round(weight, 9) for name, weight in found.names.weights.items()}
    spans = (found.span_titles, found.span_files, found.folded_files)
    seen = [(path, one.__repr__()) for path, one in files.by_path().items()]
    return found.ledger, scores, named, found.skills, spans, seen


@given(
    st.lists(st.integers(0, len(CALLS) + 4), max_size=40),
    st.lists(st.integers(0, 150), max_size=5),
)
def test_pieces_make_the_same_record_as_the_whole(steps: list[int], cuts: list[int]) -> None:
    log = told(steps)
    ends = sorted({0, len(log), *(cut % (len(log) + 1) for cut in cuts)})
    parts = [log[a:b] for a, b in pairwise(ends)]
    assert record(parts) == record([log])
