"""What the ledger, the spans and the declarations keep of recorded sessions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.core.told import entries
from tests.corpus.recorded import facts, needed, sessions
from travois.context import ledger
from travois.context.compaction import declarations as declared
from travois.context.compaction import spans
from travois.core.content import Call, extract_calls, extract_text
from travois.core.facts import Assistant, Entry, Result, User
from travois.core.tokens import estimate_tokens
from travois.core.view import project_view

pytestmark = needed


def logs() -> Iterator[tuple[str, list[Entry]]]:
    for name in sessions(every=9):
        yield name, entries(*facts(name, "anthropic"))


def flat(text: str) -> str:
    return " ".join(re.sub(r"^\s*(?:- )?> ", "", text, flags=re.MULTILINE).split())


def succeeded(log: list[Entry]) -> Iterator[Call]:
    failed = {e.fact.call for e in log if isinstance(e.fact, Result) and e.fact.error}
    for entry in log:
        if isinstance(entry.fact, Assistant):
            yield from (call for call in extract_calls(entry.fact.content) if call.id not in failed)


def test_every_word_of_the_human_every_edit_and_the_task_list_are_there() -> None:
    for name, log in logs():
        text = ledger.render_ledger(ledger.build_ledger(log), budget=10**6).text
        plain = flat(text)
        folder = re.search(r"^## Files changed \(in (.+)\)$", text, re.MULTILINE)
        base = f"{folder[1]}/" if folder else ""
        for entry in log:
            if isinstance(entry.fact, User) and entry.fact.origin == "human":
                said = extract_text(entry.fact.content)
                assert len(said) > 2_000 or " ".join(said.split()) in plain, name
        for call in succeeded(log):
            args = json.loads(call.args)
            if call.name in ("Edit", "Write"):
                assert f"- {args['file_path'].removeprefix(base)} (" in text, name
        lists = [json.loads(c.args)["todos"] for c in succeeded(log) if c.name == "TodoWrite"]
        for todo in lists[-1] if lists else ():
            part = text.partition("## Tasks closed")[todo["status"] == "completed" and 2]
            assert f"[{todo['status']}] {' '.join(todo['content'].split())[:190]}" in part, name


@pytest.mark.parametrize("budget", [500, 2_000, 8_000])
def test_it_fits_any_budget(budget: int) -> None:
    for name, log in logs():
        found = ledger.build_ledger(log)
        assert estimate_tokens(ledger.render_ledger(found, budget=budget).text) <= budget, name


def test_spans_hold_everything_and_declarations_keep_their_budget() -> None:
    for name, log in logs():
        items = project_view(log).items
        cut = spans.split_into_spans(items)
        assert max(len(span.text) for span in cut) <= 8_000 * 2.75, name
        whole = "\n".join(span.text for span in cut).replace(f"\n{spans.CONTINUED_MARK}", "")
        assert whole == "\n".join(spans.format_message(item.fact) for item in items), name
        index = declared.DeclarationIndex()
        index.add(items)
        listed = declared.list_declarations(index, budget=4_000, skip="", cwd="/")
        assert estimate_tokens(listed) <= 4_000, name
