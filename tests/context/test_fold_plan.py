"""Folding: words stay, calls become lines with their outcome, and nothing is parted or lost."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.context.test_cut import conversation, rounds
from travois.context.microcompact.fold import (
    FOLDED_MARK,
    find_foldable_part,
    fold_items,
    is_folded,
)
from travois.core.content import Call, Text, extract_calls, extract_text
from travois.core.facts import Assistant, Result, User
from travois.core.tokens import estimate_tokens
from travois.core.view import ViewItem


@given(rounds)
def test_the_first_words_and_the_newest_messages_stay_and_no_pair_is_parted(
    sizes: list[tuple[int, int, bool]],
) -> None:
    view = conversation(sizes)
    cut = find_foldable_part(view, tail=400)
    if cut is None:
        return
    assert cut.kept[0] == view.items[0]
    asked = {
        c.id
        for i in cut.dropped
        if isinstance(i.fact, Assistant)
        for c in extract_calls(i.fact.content)
    }
    assert asked == {i.fact.call for i in cut.dropped if isinstance(i.fact, Result)}
    text = fold_items(cut.dropped, ["/f"], budget=1 << 30, snip=False)
    for item in cut.dropped:
        if not isinstance(item.fact, Result):
            assert extract_text(item.fact.content).strip() in text
    assert text.count("\n- Read a.py: ") == len(asked)


def chain(*steps: tuple[str, str, str, bool]) -> list[ViewItem]:
    items: list[ViewItem] = []
    for number, (name, args, text, error) in enumerate(steps):
        id = f"c{number}"
        items.append(ViewItem(2 * number, Assistant((Call(id, name, args),), "calls")))
        items.append(ViewItem(2 * number + 1, Result(id, (Text(text),), error=error)))
    return items


@pytest.mark.parametrize(
    ("name", "args", "text", "error", "line"),
    [
        ("Read", '{"file_path":"a.py"}', "1 x\n2 y\n", False, "- Read a.py: 2 lines"),
        (
            "Bash",
            '{"command":"make test"}',
            "a\n3 failed",
            True,
            "- Bash make test: failed: 3 failed",
        ),
        ("Bash", '{"command":"ls"}', "a\nb", False, "- Bash ls: b (2 lines)"),
        ("Edit", '{"file_path":"a.py"}', "Edited a.py.", False, "- Edit a.py: Edited a.py."),
        ("Edit", '{"file_path":"a.py"}', "No match\nx", True, "- Edit a.py: failed: No match"),
        ("Grep", '{"pattern":"def x"}', "", False, "- Grep def x: done without output"),
    ],
)
def test_a_call_is_one_line_that_keeps_its_outcome(
    name: str, args: str, text: str, error: bool, line: str
) -> None:
    shown = fold_items(chain((name, args, text, error)), [], budget=10_000, snip=False)
    assert shown.splitlines()[-1] == line


def test_what_does_not_fit_is_refused_or_snipped_but_never_the_users_words() -> None:
    said = ViewItem(900, User((Text("Never touch main.py."),)))
    items = [*chain(*[("Read", '{"file_path":"a.py"}', "x", False)] * 200), said]
    assert fold_items(items, ["/f"], budget=600, snip=False) == ""
    shown = fold_items(items, ["/f"], budget=600, snip=True)
    assert estimate_tokens(shown) <= 640
    assert "The user: Never touch main.py." in shown
    assert "oldest steps are left out here" in shown


def test_a_folding_can_be_folded_again_without_its_heading() -> None:
    first = fold_items(
        chain(("Read", '{"file_path":"a.py"}', "x", False)), ["/f"], budget=999, snip=False
    )
    note = ViewItem(5, User((Text(first),), origin="note"))
    assert is_folded(note)
    again = fold_items([note], ["/f", "/g"], budget=999, snip=False)
    assert again.count(FOLDED_MARK) == 1
    said = ViewItem(7, User((Text("Mind this:\n\nnever touch main.py"),)))
    more = fold_items([note, said], ["/f"], budget=999, snip=False)
    last = ViewItem(9, User((Text(more),), origin="note"))
    snipped = fold_items(
        [last],
        [],
        budget=estimate_tokens(fold_items([said], [], budget=999, snip=False)) + 3,
        snip=True,
    )
    assert snipped.endswith("The user: Mind this:\n  \n  never touch main.py")
    assert "Read a.py" not in snipped
    assert "- Read a.py: 1 lines" in again
