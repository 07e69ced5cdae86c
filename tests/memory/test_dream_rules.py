"""What a night does to memories, by rule and on a model's word."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from travois.core.tokens import estimate_tokens
from travois.memory.dates import date_memory
from travois.memory.dreaming.rules import (
    DreamOperation,
    DreamStep,
    MemoryTopic,
    UserPassage,
    check_operation,
    diff_memories,
    index_by_key,
    parse_operations,
    plan_rule_steps,
    render_topic,
    split_into_topics,
)
from travois.memory.memory import DropMemory, Evidence, FileAnchor, Memory, PutMemory

DAY = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


def memory(name: str, body: str, *, at: float = DAY, **more: Any) -> Memory:
    who = more.get("author", "user")
    given: dict[str, Any] = {"created": at, "modified": at} | more
    evidence = (Evidence("s1", 3, who, body, at),)
    return Memory(name, body, **({"type": "project", "evidence": evidence, "body": body} | given))


def after(*memories: Memory) -> dict[str, Memory]:
    state = index_by_key(memories)
    for step in plan_rule_steps(state):
        step.apply(state)
    return state


def whys(*memories: Memory) -> list[str]:
    return [step.why for step in plan_rule_steps(index_by_key(memories))]


DEPLOY = memory("deploy", "Backups are taken with make vault from the archive branch")


def test_doubles_become_one_that_rests_on_both() -> None:
    again = memory(
        "how-to-ship", "backups are  taken with make vault from the archive branch", at=DAY + 9
    )
    assert after(DEPLOY, again) == {
        "project/deploy": replace(DEPLOY, evidence=(*DEPLOY.evidence, *again.evidence))
    }
    assert whys(DEPLOY, again) == ["project/how-to-ship duplicates project/deploy"]


def test_the_longer_of_two_that_say_the_same_stays() -> None:
    more = memory("shipping", f"{DEPLOY.body}, and tell the channel afterwards", at=DAY + 9)
    assert list(after(DEPLOY, more)) == ["project/shipping"]


def test_nothing_that_differs_in_a_number_a_name_or_a_no_is_a_double() -> None:
    one = memory("a", "Indent the Python code of all backend service modules with 2 spaces")
    for body in (
        one.body.replace("2", "4"),
        one.body.replace("Python", "Kotlin"),
        "Never i" + one.body[1:],
    ):
        assert whys(one, memory("b", body, at=DAY)) == []


def test_what_a_tool_said_never_takes_the_place_of_what_the_user_said() -> None:
    tool = memory("page", f"{DEPLOY.body} without asking anybody", author="tool", at=DAY + 9)
    assert list(after(DEPLOY, tool)) == ["project/deploy", "project/page"]
    echo = memory("page", DEPLOY.body, author="tool", at=DAY - 9)
    assert list(after(DEPLOY, echo)) == ["project/deploy"]


def test_memories_of_different_scopes_are_never_one() -> None:
    mine = replace(DEPLOY, scope="user")
    assert whys(DEPLOY, mine) == []


def test_pinned_memories_stay_what_they_are_and_others_give_way_to_them() -> None:
    pinned = replace(memory("pin", DEPLOY.body), pinned=True)
    assert after(DEPLOY, pinned) == {"project/pin": pinned}
    assert whys(pinned, replace(pinned, name="pin-2")) == []


def test_the_newer_word_of_the_user_holds() -> None:
    old = memory("german", "Write commit messages in German", type="feedback")
    new = memory("no-german", "Don't write commit messages in German", at=DAY + 9, type="feedback")
    assert after(old, new) == {"project/no-german": new}
    assert whys(old, new) == [
        "project/german no longer holds: the user has since said project/no-german"
    ]
    assert whys(old, replace(new, author="model")) == []
    assert whys(replace(old, evidence=new.evidence), replace(new, evidence=old.evidence)) != []


def test_a_refinement_is_no_contradiction() -> None:
    old = memory("tests", "Run the tests before a commit", type="feedback")
    new = memory("slow", "Don't run the slow integration tests before a commit", at=DAY + 9)
    assert whys(old, replace(new, type="feedback")) == []


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Yesterday we moved to Postgres.", "On 2026-11-15 we moved to Postgres."),
        ("The freeze is from today until next week.", None),
        ("It broke two weeks ago, and last friday again", None),
        ("The audit was 2 months ago, the last one three years ago", None),
        ("The demo is next Friday", "The demo is on the Friday after 2026-11-16"),
        ("Always put today into the log", "Always put today into the log"),
        ("The file yesterday.md has today's list", "The file yesterday.md has today's list"),
        ('It says "see you tomorrow" and `today`', 'It says "see you tomorrow" and `today`'),
    ],
)
def test_a_time_told_from_the_day_of_speaking_becomes_a_date(said: str, kept: str | None) -> None:
    expected = {
        "The freeze": "The freeze is from 2026-11-16 until the week of 2026-11-23.",
        "It broke": "It broke on 2026-11-02, and on 2026-11-13 again",
        "The audit": "The audit was in 2026-09, the last one in 2023",
    }
    wanted = kept or next(text for start, text in expected.items() if said.startswith(start))
    assert date_memory(memory("a", said)).body == wanted
    assert date_memory(replace(memory("a", said), evidence=())).body == said


def test_how_somebody_wants_things_done_keeps_its_words() -> None:
    wish = memory("a", "Leave out what I said yesterday", type="feedback")
    assert date_memory(wish) == wish


def test_what_changed_is_put_and_what_went_is_dropped() -> None:
    other = memory("other", "Something else entirely")
    later = replace(DEPLOY, verified=DAY)
    assert diff_memories(index_by_key((DEPLOY, other)), index_by_key((later,)), why="a night") == (
        PutMemory(later),
        DropMemory("other", "project", "a night"),
    )


def test_ten_thousand_memories_need_no_fifty_million_comparisons() -> None:
    many = [
        memory(f"m{n}", f"Service {n} listens on port {n + 1000} of host h{n}") for n in range(3000)
    ]
    twin = memory("twin", many[7].body, at=DAY + 9)
    assert whys(*many, twin) == ["project/twin duplicates project/m7"]


PASSAGE = UserPassage(
    "s9", 4, DAY + 99, "Backups no longer come from make vault, use `just vault` now"
)


def topic(*memories: Memory, drifted: dict[str, tuple[str, ...]] | None = None) -> MemoryTopic:
    return MemoryTopic(memories, {"p1": PASSAGE}, drifted or {})


def verdict(operation: DreamOperation, *memories: Memory, **more: Any) -> DreamStep | str:
    return check_operation(operation, index_by_key(memories), topic(*memories, **more))


def test_the_users_newer_words_drop_a_memory() -> None:
    wanted = DreamOperation(
        "drop", ("project/deploy",), passage="p1", words="Backups no longer come from make vault"
    )
    why = "project/deploy no longer holds: "
    assert verdict(wanted, DEPLOY) == DreamStep(why, drop=("project/deploy",))
    aside = replace(wanted, words="use `just vault` now")
    assert verdict(aside, DEPLOY) == DreamStep(why, drop=("project/deploy",), held=True)
    assert verdict(replace(wanted, words="we stopped saving"), DEPLOY) == (
        "the quoted words are not in that passage"
    )
    nothing = "nothing the user has said since shows that it no longer holds"
    assert verdict(replace(wanted, words=""), DEPLOY) == nothing
    later = replace(DEPLOY, evidence=(Evidence("s9", 9, "user", DEPLOY.body, DAY + 100),))
    assert verdict(wanted, later) == nothing


def test_files_that_changed_drop_what_a_tool_said_and_nothing_of_the_user() -> None:
    tool = replace(DEPLOY, author="tool", anchors=(FileAnchor("Makefile", "0"),))
    wanted = DreamOperation("drop", ("project/deploy",), why="the target is gone")
    drifted = {"project/deploy": ("Makefile",)}
    assert isinstance(verdict(wanted, tool, drifted=drifted), DreamStep)
    assert isinstance(verdict(wanted, tool), str)
    assert isinstance(verdict(wanted, replace(tool, author="user"), drifted=drifted), str)


def test_pinned_and_unknown_memories_are_out_of_reach() -> None:
    pinned = replace(DEPLOY, pinned=True)
    wanted = DreamOperation("drop", ("project/deploy",), passage="p1", words="no longer come")
    assert verdict(wanted, pinned) == "only the user can change a pinned memory"
    assert verdict(replace(wanted, names=("project/other",)), DEPLOY) == (
        "it names a memory that does not exist"
    )
    assert (
        check_operation(wanted, index_by_key([DEPLOY]), topic())
        == "it names a memory that does not exist"
    )


SHIP = memory("ship", "Backups with make vault go out on Mondays, by Ann")


def test_a_merge_keeps_all_that_was_said_and_invents_nothing() -> None:
    body = (
        "Backups are taken with make vault from the archive branch; they go out on Mondays, by Ann"
    )
    wanted = DreamOperation(
        "merge", ("project/deploy", "project/ship"), "How backups are taken", body, why="same"
    )
    joined = verdict(wanted, DEPLOY, SHIP)
    assert joined == DreamStep(
        "project/deploy, project/ship merged: same",
        (
            replace(
                DEPLOY,
                description="How backups are taken",
                body=body,
                evidence=(*DEPLOY.evidence, *SHIP.evidence),
            ),
        ),
        ("project/ship",),
    )
    for text, flaw in (
        (body.replace(", by Ann", ""), "it leaves out ann"),
        (f"{body} on port 8080", "no source mentions 8080"),
        ("How backups are by Ann on Mondays", "it leaves out most of the original"),
        (f"Never. {body}", "it turns a fact into an instruction"),
        (f"{body}; not elsewhere", "it turns a yes into a no or a no into a yes"),
        ("Quite another story about weather, birds and music", "most of it has no source"),
    ):
        found = verdict(replace(wanted, body=text), DEPLOY, SHIP)
        assert isinstance(found, str) and found.startswith(flaw), (text, found)
    by_model = replace(SHIP, author="model")
    assert verdict(wanted, DEPLOY, by_model) == ("they differ in scope, type or author")


def test_a_rewrite_rests_on_what_the_user_said_since() -> None:
    body = "Backups are taken with `just vault` from the archive branch"
    wanted = DreamOperation(
        "rewrite", ("project/deploy",), "How backups are taken", body, why="changed"
    )
    assert verdict(wanted, DEPLOY) == "no source mentions just vault"
    found = verdict(replace(wanted, passage="p1", words="use `just vault` now"), DEPLOY)
    assert isinstance(found, DreamStep)
    (fresh,) = found.put
    assert fresh.evidence[-1] == Evidence("s9", 4, "user", "use `just vault` now", DAY + 99)
    assert (fresh.body, fresh.author, fresh.type) == (body, "user", "project")


def test_a_drop_for_another_memory_needs_one_that_says_it_all() -> None:
    wanted = DreamOperation("drop", ("project/deploy", "project/ship"))
    assert (
        verdict(wanted, DEPLOY, SHIP)
        == "project/ship does not say everything that project/deploy says"
    )


def test_memories_are_shown_in_topics_that_fit_with_what_was_said_of_them() -> None:
    many = [memory(f"m{n:03}", f"Service {n} listens on its own port " * 8) for n in range(200)]
    pinned = replace(memory("pin", "stays"), pinned=True)
    parts = list(split_into_topics((*many, DEPLOY, pinned), [PASSAGE], {}, tokens=4_000))
    assert [m for part in parts for m in part.memories] == [DEPLOY, *many]
    assert len(parts) > 10 and all(estimate_tokens(render_topic(part)) <= 4_000 for part in parts)
    assert [part.passages for part in parts] == [{"p1": PASSAGE}, *({} for _ in parts[1:])]
    lines = render_topic(parts[0]).splitlines()
    assert msgspec.json.decode(lines[0])["name"] == "project/deploy"
    assert msgspec.json.decode(lines[-1]) == {
        "passage": "p1",
        "on": "2026-11-16",
        "words": PASSAGE.text,
    }


def test_replies_are_read_for_operations_whatever_else_they_say() -> None:
    one = DreamOperation("drop", ("project/a",), why="x")
    text = msgspec.json.encode([one, {"do": "burn", "names": []}]).decode()
    found, flaws = parse_operations(f"Here you are:\n```json\n{text}\n```")
    assert (found, len(flaws)) == ([one], 1)
    assert parse_operations("[]") == ([], [])
    assert parse_operations("I would rather not.") == (
        [],
        ["the reply was not a list of operations"],
    )
    assert parse_operations("[" * 5_000)[0] == []


def test_a_topic_is_worth_asking_about_when_something_has_happened_to_it() -> None:
    assert topic(DEPLOY).has_news_since(DAY + 1)
    silent = MemoryTopic((DEPLOY,), {}, {})
    assert (silent.has_news_since(DAY - 1), silent.has_news_since(DAY + 1)) == (True, False)
    assert MemoryTopic((DEPLOY,), {}, {"project/deploy": ("Makefile",)}).has_news_since(DAY + 1)
