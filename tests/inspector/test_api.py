"""What the page is told: the same as the log, the audit, the bill and the receipts say."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from tests.core.told import user
from tests.inspector.logs import HEAD, RULES, compacted, make, talk, turn, write
from travois.commands.audit import check_requests
from travois.commands.cost import compute_session_cost
from travois.context.receipts import list_compaction_receipts
from travois.core.errors import UserError
from travois.core.facts import AnyFact, Failed, Opened, Restored, Rewound, Sent
from travois.core.view import project_view
from travois.inspector import api as answers
from travois.inspector.api import API_QUESTIONS, DecisionRow, InspectorApi, SearchHit
from travois.inspector.story import REQUEST_LAYERS, LogReader, SessionStory
from travois.providers.encoder import RequestEncoder
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import SessionLog, read_history


@pytest.fixture
def home(tmp_path: Path) -> TravoisHome:
    return TravoisHome(tmp_path / "home").prepare()


def fetch(name: str) -> bytes:
    raise KeyError(name)


def told(home: TravoisHome, *facts: AnyFact) -> SessionStory:
    make(home.session_folder("p", "s1"), *facts)
    return SessionStory(read_history(home.session_folder("p", "s1"), []))


SHAPES: dict[str, list[AnyFact]] = {
    "plain": talk(4),
    "compacted": [*talk(3), compacted(3, 22), *turn(3)],
    "undone": [*talk(3), compacted(3, 22), Restored(34), *turn(3)],
    "rewound": [*talk(3), Rewound(13), *turn(3), *turn(4)],
    "another head": [*talk(2), msgspec.structs.replace(HEAD, system="Be long."), *turn(2)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_request_is_byte_for_byte_what_the_log_projects_to(
    home: TravoisHome, shape: str
) -> None:
    story = told(home, *SHAPES[shape])
    past = [[*story.entries[:n]] for n, e in enumerate(story.entries) if isinstance(e.fact, Sent)]
    bodies = [RequestEncoder(fetch).build_request(project_view(entries)).body for entries in past]
    shown = [
        answers.request_bytes(story, step.index, start=0, size=1 << 30, fetch=fetch).text.encode()
        for step in story.steps
    ]
    assert shown == bodies
    assert [one.problem for one in check_requests(story.entries, fetch)] == [""] * len(bodies)
    seen = [answers.describe_request(story, n, fetch=fetch) for n in range(len(bodies))]
    assert [one.problem for one in seen] == [""] * len(bodies)
    items = [answers.request_items(story, n)[: story.steps[n].items] for n in range(len(bodies))]
    assert items == [project_view(entries).items for entries in past]


@pytest.mark.parametrize("shape", SHAPES)
def test_layers_sum_to_what_the_provider_counted(home: TravoisHome, shape: str) -> None:
    story = told(home, *SHAPES[shape])
    assert all(len(step.sizes) == len(REQUEST_LAYERS) for step in story.steps)
    assert [sum(step.sizes) for step in story.steps] == [s.usage.prompt for s in story.steps]
    assert [step.tokens for step in story.steps] == [step.usage.prompt for step in story.steps]


def test_a_layer_is_there_when_something_of_it_is_in_the_request(home: TravoisHome) -> None:
    memory = user("<memories>\nTests live in tests/.", origin="note")
    step = told(home, memory, *talk(2), compacted(5, 13), *turn(2)).steps[-1]
    assert {name for name, size in zip(REQUEST_LAYERS, step.sizes, strict=True) if size} == {
        *REQUEST_LAYERS
    } - {"notes"}


def test_what_requests_have_in_common_is_told_in_items_and_in_bytes(home: TravoisHome) -> None:
    story = told(home, *talk(3))
    steps, seen = (
        story.steps,
        [answers.describe_request(story, n, fetch=fetch) for n in range(6)],
    )
    assert [step.common for step in steps[1:]] == [step.items for step in steps[:-1]]
    assert not any(step.moved for step in steps)
    for before, one in pairwise(seen):
        assert before.step.size - 200 < one.shared < one.step.size
        assert [line.index for line in one.lines] == [*range(before.step.items, one.step.items)]


def test_after_a_compaction_the_common_part_ends_where_it_began(home: TravoisHome) -> None:
    story = told(home, *talk(3), compacted(4, 22), *turn(3))
    step = story.steps[6]
    assert (step.moved, step.common) == ((("compaction", ""),), 1)
    one = answers.describe_request(story, 6, fetch=fetch)
    assert one.gone == story.steps[5].items - 1
    kept = answers.request_bytes(story, 6, start=0, size=one.shared, fetch=fetch).text
    assert RULES.partition("\n")[2] in kept
    assert "question 0" not in kept


def test_the_overview_is_the_bill_and_the_receipts(home: TravoisHome) -> None:
    story = told(home, *talk(3), compacted(3, 22), *turn(3))
    found = answers.build_overview(story, first=2, damaged=0)
    total = compute_session_cost(story.entries)
    assert found.steps == story.steps[2:]
    assert (found.dollars, found.usage, found.kinds) == (total.dollars, total.usage, total.kinds)
    assert story.steps[-1].total == pytest.approx(sum(step.dollars for step in story.steps))
    assert found.misses == total.cache.misses
    assert found.compactions == list_compaction_receipts(story.entries)


def test_a_compaction_is_shown_with_what_went_and_what_stands_for_it(
    home: TravoisHome, tmp_path: Path
) -> None:
    folder = home.session_folder("p", "s1")
    kept, secret = folder / "part.txt", tmp_path / "secret.txt"
    secret.write_text("not yours")
    story = told(home, *talk(3), compacted(3, 22, str(kept), str(secret)), *turn(3))
    kept.write_text("set aside")
    (entry,) = story.cuts
    found = answers.describe_compaction(story, entry)
    assert [line.entry for line in found.dropped] == [3, 4, 6, 10, 12, 14, 16, 20, 22]
    assert (found.count, found.kept) == (9, 4)
    assert found.summary[0].endswith("The user asked question 0.")
    assert found.receipt == list_compaction_receipts(story.entries)[0]
    assert answers.read_span_file(story, entry, 0, home=home.path) == "set aside"
    with pytest.raises(UserError, match="not a file that Travois saved"):
        answers.read_span_file(story, entry, 1, home=home.path)


def test_decisions_questions_and_hooks_are_told_with_their_call(home: TravoisHome) -> None:
    call = 'Read {"path":"a"}'
    at = 1_700_000_000.0
    assert answers.list_decisions(told(home, *turn(0))) == [
        DecisionRow(7, at + 6, "asked", "person", call, "May it read a?", 1),
        DecisionRow(8, at + 7, "allow", "person", call, "you said so", 1),
        DecisionRow(9, at + 8, "hook", "PreToolUse", call, "check.sh: ok", 1),
    ]


def test_a_search_finds_texts_that_hold_all_of_the_words(home: TravoisHome) -> None:
    story = told(home, *talk(3))
    (hit,) = answers.search_story(story, "NEEDLE1 needle1")
    assert (hit.kind, hit.title, hit.step) == ("result", "Read", 3)
    assert answers.search_story(story, "answer 2") == [
        SearchHit(32, 1_700_000_031.0, "model", "Model", "answer 2", 5)
    ]
    assert answers.search_story(story, "needle1 needle2") == []
    assert answers.search_story(story, "  ") == []


def test_a_long_text_is_cut_and_can_be_had_in_full(home: TravoisHome) -> None:
    story = told(home, *turn(0, words=2_000))
    line = answers.describe_request(story, 1, fetch=fetch).lines[-1]
    text = "needle0 " * 2_000
    assert ([part.text for part in line.parts], line.lengths) == ([text[:2_000]], [len(text)])
    assert answers.full_text(answers.request_items(story, 1)[line.index], 0) == text


def test_a_request_under_way_or_failed_has_no_reply(home: TravoisHome) -> None:
    folder = home.session_folder("p", "s1")
    make(folder, *turn(0), user("again"))
    with SessionLog.open(folder) as log:
        view = project_view(log.read())
        asked = RequestEncoder(fetch).build_request(view)
        log.append(Sent(asked.pieces, asked.chain, asked.digest, len(asked.body), tokens=777))
        reading = LogReader(folder)
        step = reading.story.steps[-1]
        assert (step.reply, step.failed, step.tokens, sum(step.sizes)) == (0, "", 777, 777)
        log.append(Failed("overloaded", "try later", status=529))
        reading.update()
    assert reading.story.steps[-1].failed == "overloaded: try later"


def test_a_reading_that_grows_is_equal_to_one_from_the_start(home: TravoisHome) -> None:
    folder = home.session_folder("p", "s1")
    make(folder, *talk(2))
    reading = LogReader(folder)
    with SessionLog.open(folder) as log:
        view = project_view(log.read())
        for facts in ([*turn(2)], [compacted(3, 22)], [*turn(3)], [Rewound(13)], [*turn(4)]):
            view = write(log, facts, view=view)
            reading.update()
    again = LogReader(folder)
    assert reading.story.steps == again.story.steps
    assert reading.story.entries == again.story.entries


def test_a_torn_last_line_waits_and_a_damaged_one_is_counted(home: TravoisHome) -> None:
    folder = home.session_folder("p", "s1")
    make(folder, *talk(2))
    path = folder / "log.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20].replace(b"question 0", b"question X"))
    reading = LogReader(folder)
    assert (len(reading.skipped), reading.skipped[0].line) == (1, 4)
    count = len(reading.story.entries)
    with path.open("ab") as file:
        file.write(whole[-20:])
    reading.update()
    assert len(reading.story.entries) == count + 1


def test_a_fork_shows_its_own_requests_after_what_it_branched_off(home: TravoisHome) -> None:
    make(home.session_folder("p", "s1"), *talk(2))
    last = [*read_history(home.session_folder("p", "s1"), [])][-1].seq
    opened = Opened("s2", "/work", "p", "0", parent="s1", at=last)
    with SessionLog.create(home.session_folder("p", "s2"), opened) as log:
        write(log, turn(2), view=project_view(log.read()))
    story = LogReader(home.session_folder("p", "s2")).story
    assert [step.index for step in story.steps] == [0, 1]
    assert answers.describe_request(story, 0, fetch=fetch).problem == ""
    assert story.steps[0].items == 10
    assert answers.build_overview(story, first=0, damaged=0).dollars == pytest.approx(
        sum(step.dollars for step in story.steps)
    )


def test_a_story_that_is_no_longer_in_memory_is_read_again(home: TravoisHome) -> None:
    for number in range(6):
        make(home.session_folder("p", f"s{number}"), *talk(1))
    shelf = InspectorApi(home)
    first = msgspec.json.encode(shelf.answer_question("overview", {"session": "s0"}))
    for number in range(1, 6):
        shelf.answer_question("overview", {"session": f"s{number}"})
    assert msgspec.json.encode(shelf.answer_question("overview", {"session": "s0"})) == first


@pytest.mark.parametrize("question", sorted({*API_QUESTIONS} - {"sessions", "fleet", "has-fleet"}))
@pytest.mark.parametrize("session", ["", "..", "../p/s1", "/etc", "nobody"])
def test_only_sessions_that_there_are_can_be_asked_about(
    home: TravoisHome, question: str, session: str
) -> None:
    make(home.session_folder("p", "s1"), *talk(1))
    with pytest.raises(UserError, match="There is no session"):
        InspectorApi(home).answer_question(question, {"session": session})


@pytest.mark.parametrize("step", ["-1", "99", "x", "1e3", "9" * 40])
def test_a_request_that_there_is_not_is_a_fault(home: TravoisHome, step: str) -> None:
    make(home.session_folder("p", "s1"), *talk(1))
    for question in ("seen", "head", "bytes", "text"):
        with pytest.raises(UserError):
            InspectorApi(home).answer_question(question, {"session": "s1", "step": step})
