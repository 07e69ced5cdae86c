"""What a compaction drops, as texts that one read can show."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.core.told import histories, reply, result, seen, user
from travois.context.compaction.spans import (
    CONTINUED_MARK,
    TARGET_SPAN_CHARS,
    ConversationSpan,
    format_message,
    list_spans,
    split_into_spans,
)
from travois.core.content import Call, Text
from travois.core.facts import Assistant, Entry, User
from travois.core.tokens import estimate_tokens
from travois.core.view import ViewItem, project_view

LIMIT = int(8_000 * 2.75)


def joined(spans: tuple[ConversationSpan, ...]) -> str:
    return "\n".join(span.text for span in spans).replace(f"\n{CONTINUED_MARK}", "")


def test_a_span_says_who_said_what_and_what_came_of_it() -> None:
    items = seen(user("Look."), reply("I will.", "c1"), result("c1", "found"), reply("Done.")).items
    assert split_into_spans(items) == (
        ConversationSpan(
            "“Look.” Read a",
            "[human]\nLook.\n"
            '[model]\nI will.\n[call c1] Read {"path":"a"}\n'
            "[result of c1]\nfound\n"
            "[model]\nDone.",
        ),
    )


@given(histories())
def test_nothing_is_lost_and_nothing_comes_twice(log: list[Entry]) -> None:
    items = project_view(log).items
    assert joined(split_into_spans(items)) == "\n".join(format_message(item.fact) for item in items)


@given(
    st.lists(st.integers(0, 3 * TARGET_SPAN_CHARS), max_size=6),
    st.sampled_from(["x", "line\n", "é "]),
)
def test_no_span_is_longer_than_one_read_shows(sizes: list[int], filling: str) -> None:
    texts = [(filling * size)[:size] for size in sizes]
    items = [ViewItem(n, User((Text(text),))) for n, text in enumerate(texts)]
    spans = split_into_spans(items)
    assert all(len(span.text) <= LIMIT and 0 < len(span.title) <= 100 for span in spans)
    assert joined(spans) == "\n".join(format_message(item.fact) for item in items)


def test_a_reply_stays_with_its_results_and_a_human_message_begins_a_span() -> None:
    turn = (reply("", "c1", "c2"), result("c1", "x" * 3_000), result("c2", "x" * 3_000))
    facts = (user("one"), *turn, user("two"), *(reply("", "c3"), result("c3", "y" * 9_000)))
    more = (reply("", "c4"), result("c4", "z" * 9_000))
    assert [span.title for span in split_into_spans(seen(*facts, *more).items)] == [
        "“one” Read a",
        "“two” Read a",
        "Read a",
    ]


def test_a_huge_result_goes_on_in_further_spans_under_the_name_of_its_call() -> None:
    call = Call("c1", "Bash", '{"command":"cargo test --all --quiet -- --nocapture"}')
    big = "\n".join(f"line {n}" for n in range(6_000))
    spans = split_into_spans(
        seen(user("go"), Assistant((call,), stop="calls"), result("c1", big)).items
    )
    title = "Bash cargo test --all --quiet"
    assert [span.title for span in spans] == [
        f"“go” {title}",
        title,
        *(f"{title} (continued, {n})" for n in range(1, len(spans) - 1)),
    ]
    assert all(span.text.startswith(CONTINUED_MARK) for span in spans[2:])


def test_the_contents_name_every_span_of_a_long_session_in_few_lines() -> None:
    titles = [f"title {n}" for n in range(100)]
    paths = [f"spans/{n:04}.txt" for n in range(100)]
    listed = list_spans(titles, paths).splitlines()
    names = [path.removeprefix("spans/") for path in paths]
    assert len(listed) == 66
    assert listed[0].startswith("The files are in spans: each holds a part of the conversation")
    assert listed[1] == f"- {', '.join(names[:8])}: title 0 … title 7"
    assert listed[-1] == "- 0099.txt: title 99"
    assert [name for name in names if name not in "\n".join(listed)] == []


def test_the_folder_is_named_once_and_the_parts_of_one_message_share_a_line() -> None:
    paths = [f"/home/me/x/span-{n}.txt" for n in range(4)]
    titles = ["Read a.py", "Read a.py (continued, 1)", "Read a.py (continued, 2)", "Grep “x”"]
    text = list_spans(titles, paths)
    assert text.count("/home/me/x") == 1
    assert text.splitlines()[1:] == [
        "- span-0.txt to span-2.txt: Read a.py",
        "- span-3.txt: Grep “x”",
    ]
    two = list_spans(["a", "b"], ["/x/1.txt", "/y/2.txt"])
    assert two.splitlines()[1:] == ["- /x/1.txt: a", "- /y/2.txt: b"]


def test_the_contents_stay_bounded() -> None:
    listed = list_spans(["t" * 100] * 5_000, [f"spans/{n:04}.txt" for n in range(5_000)])
    assert listed.splitlines()[1].startswith("- 0000.txt to 4779.txt: ")
    assert len(listed) < 15_000


def test_the_contents_keep_to_a_small_budget_and_name_the_newest() -> None:
    paths = [f"/home/me/sessions/tool-results/span-{n}.txt" for n in range(500)]
    listed = list_spans(["a title of some words"] * 500, paths, budget=300)
    assert estimate_tokens(listed) <= 300
    assert listed.splitlines()[1].startswith("- span-0.txt to span-")
    assert listed.endswith("- span-499.txt: a title of some words")


def test_a_title_is_one_line_whatever_was_said() -> None:
    name = Call("c1", "Read\n## Rules", '{"file_path":"a\\n## b"}')
    items = seen(user("one\n\ntwo"), Assistant((name,), stop="calls"), result("c1")).items
    assert [span.title for span in split_into_spans(items)] == ["“one two” Read ## Rules a ## b"]
