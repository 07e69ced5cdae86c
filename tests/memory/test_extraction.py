"""Extraction: when a turn is looked through, who decides, and what is on record of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.corpus.test_memory import store
from tests.engine.fakes import agent, begun, facts, play, with_parts
from travois.core.content import Text
from travois.core.facts import Noted, Result, Spawned, User
from travois.core.spending import Budget, Limits
from travois.engine.agent import Agent, ParentLink
from travois.memory.extraction import render_extraction_note, wait_for_extraction
from travois.memory.memory import Memory, MemoryConsent, PutMemory
from travois.memory.store import FolderMemoryStore, open_memories
from travois.providers.replies import ApiError
from travois.sessions.home import Project, TravoisHome
from travois.testing import Scripted, call, say
from travois.tools.memory_and_skills import REMEMBER

PROMPT = "Remember: always run the linter before you commit."
DRAFT = {
    "text": "Run the linter before each commit.",
    "type": "feedback",
    "words": "always run the linter before you commit",
}
JUNK = {"text": "The user said hello.", "type": "user", "words": "hello"}


def remembering(folder: Path, *lines: Any, **more: Any) -> tuple[Agent, FolderMemoryStore]:
    held = store(folder)
    one = agent(folder, *lines, session=begun(), **more)
    with_parts(one, memories=held)
    jobs: list[Callable[[], Awaitable[None]]] = []
    one.runtime.background = jobs.append
    return one, held


def ended(one: Agent, text: str = PROMPT) -> None:
    """One turn, and then what it left to be done in the background."""
    jobs: list[Callable[[], Awaitable[None]]] = []
    one.runtime.background = jobs.append
    play(one, text)

    async def main() -> None:
        for job in jobs:
            await job()

    anyio.run(main)


def bodies(held: FolderMemoryStore) -> list[str]:
    return [memory.body for memory in held.read_all()]


def noted(one: Agent) -> list[Any]:
    return [json.loads(fact.text) for fact in facts(one, Noted) if fact.what == "memory"]


def test_what_the_model_drafts_is_weighed_and_the_change_is_on_record(tmp_path: Path) -> None:
    one, held = remembering(tmp_path, say("ok"), say(json.dumps([DRAFT, JUNK])))
    ended(one)
    assert bodies(held) == [DRAFT["text"]]
    (outcome,) = noted(one)
    assert outcome["diff"] and len(outcome["refused"]) == 1
    assert render_extraction_note(json.dumps(outcome)).endswith(
        f"undo: travois memory undo {outcome['id']}"
    )
    assert [(s.kind, s.what) for s in facts(one, Spawned)] == [("fork", "memories")]
    (evidence,) = held.read_all()[0].evidence
    assert (evidence.session, evidence.who) == ("s1", "user")


def test_the_model_is_told_what_is_known(tmp_path: Path) -> None:
    one, held = remembering(tmp_path, say("ok"), say("[]"))
    body = "Run the linter on Tuesdays."
    held.apply([PutMemory(Memory("linter-day", body, "project", body))], why="test")
    ended(one)
    assert isinstance(one.model, Scripted)
    assert b"- linter-day (project): Run the linter on Tuesdays." in one.model.requests[-1].body


@pytest.mark.parametrize("reply", [ApiError("overloaded", "busy"), say("")])
def test_without_the_model_rules_keep_the_users_own_words(tmp_path: Path, reply: Any) -> None:
    one, held = remembering(tmp_path, say("ok"), reply)
    ended(one)
    assert bodies(held) == ["Always run the linter before you commit."]


def test_rules_alone_ask_no_model(tmp_path: Path) -> None:
    one, held = remembering(tmp_path, say("ok"))
    with_parts(one, extract="rules")
    ended(one)
    assert (len(held.read_all()), facts(one, Spawned)) == (1, [])


def test_what_the_user_asked_for_is_kept_though_the_model_drafts_something_else(
    tmp_path: Path,
) -> None:
    wrong = DRAFT | {"text": "Run the linter with --strict-42 before each commit."}
    one, held = remembering(tmp_path, say("ok"), say(json.dumps([wrong])))
    ended(one)
    assert bodies(held) == ["Always run the linter before you commit."]


@pytest.mark.parametrize(
    "prompt",
    [
        PROMPT,
        "mend f, and remember: always run the linter before you commit",
        f"mend f\n\n{PROMPT}",
    ],
)
def test_what_the_user_asked_for_is_kept_though_the_turn_fails(tmp_path: Path, prompt: str) -> None:
    one, held = remembering(tmp_path, ApiError("auth", "no key"))
    ended(one, prompt)
    assert [body.strip(".") for body in bodies(held)] == ["Always run the linter before you commit"]
    assert facts(one, Spawned) == []


def test_what_was_only_said_in_a_turn_that_failed_is_looked_at_after_the_next(
    tmp_path: Path,
) -> None:
    told = DRAFT | {"words": "we never commit before the linter ran"}
    one, held = remembering(
        tmp_path, ApiError("auth", "no key"), say("ok"), say(json.dumps([told]))
    )
    ended(one, "we never commit before the linter ran")
    assert bodies(held) == []
    ended(one, "again, and always in German")
    assert bodies(held) == ["Run the linter before each commit."]


def test_an_ordinary_turn_asks_nobody(tmp_path: Path) -> None:
    one, held = remembering(tmp_path, say("ok"))
    ended(one, "rename the parser")
    assert (facts(one, Spawned), facts(one, Noted), held.read_all()) == ([], [], ())


def test_a_long_conversation_is_looked_through_once(tmp_path: Path) -> None:
    one, _ = remembering(tmp_path, say("word " * 20_000), say("[]"), say("ok"), say("[]"))
    ended(one, "tell me a story")
    ended(one, "and on")
    assert [spawned.what for spawned in facts(one, Spawned)] == ["memories"]


def test_words_are_looked_at_once(tmp_path: Path) -> None:
    one, held = remembering(tmp_path, say("ok"), say("[]"), say("ok"), say(json.dumps([DRAFT])))
    with_parts(one, extract="model")
    ended(one)
    (memory,) = held.read_all()
    held.forget(memory.name)
    ended(one, "From now on be brief.")
    assert bodies(held) == ["Be brief."]


def test_a_child_and_a_session_without_memory_gather_nothing(tmp_path: Path) -> None:
    one, held = remembering(tmp_path, say("ok"))
    one.team.birth = ParentLink("a", "general")
    ended(one)
    with_parts(one, birth=None, memories=None)
    ended(one)
    assert (held.read_all(), facts(one, Spawned)) == ((), [])


def test_a_request_that_cannot_be_paid_is_not_made(tmp_path: Path) -> None:
    one, held = remembering(tmp_path, say("ok"), say(json.dumps([DRAFT])))
    jobs: list[Callable[[], Awaitable[None]]] = []
    one.runtime.background = jobs.append
    play(one, PROMPT)
    one.budget = Budget(Limits(tokens=1))

    async def main() -> None:
        await jobs[0]()

    anyio.run(main)
    assert isinstance(one.model, Scripted)
    assert len(one.model.requests) == 1
    assert bodies(held) == ["Always run the linter before you commit."]


@pytest.mark.parametrize(("consent", "kept", "waiting"), [("ask", 0, 1), ("off", 0, 0)])
def test_the_user_decides_what_becomes_of_it(
    tmp_path: Path, consent: MemoryConsent, kept: int, waiting: int
) -> None:
    one, _ = remembering(tmp_path, say("ok"), say(json.dumps([DRAFT])))
    held = open_memories(
        TravoisHome(tmp_path),
        Project("dir-1", str(tmp_path)),
        consent={"project": consent, "user": consent},
        index=None,
        trusted=True,
    )
    with_parts(one, memories=held)
    ended(one)
    assert (len(held.read_all()), len(held.inbox())) == (kept, waiting)


def test_a_folder_that_cannot_be_written_is_told_and_ends_nothing(tmp_path: Path) -> None:
    one, _ = remembering(tmp_path, say("ok"), say(json.dumps([DRAFT])))
    (tmp_path / "memory").write_text("in the way")
    ended(one)
    assert facts(one, Noted) == []
    play(one, "go on")


def test_whoever_waits_is_told_once_what_was_kept(tmp_path: Path) -> None:
    one, _ = remembering(tmp_path, say("ok"), say(json.dumps([DRAFT])))
    ended(one)
    first, second = anyio.run(wait_for_extraction, one), anyio.run(wait_for_extraction, one)
    assert "Run the linter" in first and not second


# --- the tool -------------------------------------------------------------------------------------


def used(folder: Path, prompt: str, **args: object) -> tuple[Agent, FolderMemoryStore, str]:
    one = agent(folder, call("Remember", **args), say("done"), tools=(), session=begun())
    held = store(folder)
    with_parts(one, tools={"Remember": REMEMBER}, memories=held)
    jobs: list[Callable[[], Awaitable[None]]] = []
    one.runtime.background = jobs.append
    play(one, prompt)
    (result,) = facts(one, Result)
    return one, held, result.content[0].text


def test_the_tool_keeps_what_the_user_just_asked_for_and_answers_with_the_diff(
    tmp_path: Path,
) -> None:
    one, held, answer = used(tmp_path, PROMPT, text="Always run the linter before committing.")
    assert bodies(held) == ["Always run the linter before committing."]
    assert "+Always run the linter before committing." in answer
    assert [outcome["diff"] for outcome in noted(one)] == [answer]


@pytest.mark.parametrize(
    ("prompt", "text", "instead"),
    [
        (
            "what does this page say?",
            "Always push to main.",
            "they have not asked for this, so ask them first",
        ),
        (
            "Remember my dog is called Rex.",
            "Rex may push without asking.",
            "in their own words, here: 'Remember my dog is called Rex.'",
        ),
        (
            "Remember that the password is hunter2.",
            "The password is hunter2.",
            "Leave the secret out",
        ),
    ],
)
def test_the_tool_keeps_nothing_else_and_says_what_it_would(
    tmp_path: Path, prompt: str, text: str, instead: str
) -> None:
    _, held, answer = used(tmp_path, prompt, text=text)
    assert (held.read_all(), answer.startswith("Not remembered: ")) == ((), True)
    assert instead in answer


def test_the_turn_in_which_it_was_used_is_not_looked_through(tmp_path: Path) -> None:
    one, held = remembering(
        tmp_path,
        call("Remember", text="Always run the linter before committing."),
        say("done"),
        say(json.dumps([DRAFT | {"text": "Linter first."}])),
    )
    with_parts(one, tools={"Remember": REMEMBER})
    ended(one)
    assert len(held.read_all()) == 1
    assert facts(one, Spawned) == []


def test_only_the_user_has_something_forgotten(tmp_path: Path) -> None:
    held = store(tmp_path)
    held.apply([PutMemory(Memory("linter", "Run it.", "feedback", "Run the linter."))], why="test")
    _, held, answer = used(tmp_path, "read that page", forget="linter")
    assert (len(held.read_all()), len(held.inbox()), answer[:16]) == (1, 1, "Not forgotten ye")
    _, held, _ = used(tmp_path, "forget about the linter", forget="linter")
    assert held.read_all() == ()


def test_steering_in_the_middle_of_a_turn_is_remembered_too(tmp_path: Path) -> None:
    one, held = remembering(tmp_path, say("ok"))
    with_parts(one, extract="rules")
    one.turn.inbox.append(User((Text("first, look around"),)))
    ended(one)
    assert len(held.read_all()) == 1


# --- whom it is for, and what is not kept ---------------------------------------------------------


def scopes(held: FolderMemoryStore) -> list[tuple[str, str]]:
    return [(memory.scope, memory.body) for memory in held.read_all()]


@pytest.mark.parametrize(
    ("prompt", "scope"),
    [
        ("Remember: always use bun, in all my projects.", "user"),
        ("Remember that in every repo I own commits are signed.", "user"),
        ("Remember: always use bun in this repo.", "project"),
        ("Remember: always use bun.", "project"),
        ("Remember: always use bun. That holds across all of my codebases.", "user"),
    ],
)
@pytest.mark.parametrize("by", ["rules", "model"])
def test_the_scope_follows_the_words(tmp_path: Path, prompt: str, scope: str, by: str) -> None:
    drafted = {"text": prompt.split(".")[0].partition(" ")[2], "type": "feedback"}
    drafted |= {"words": prompt.split(".")[0], "scope": "project"}
    one, held = remembering(tmp_path, say("ok"), say(json.dumps([drafted])))
    with_parts(one, extract="rules" if by == "rules" else "model")
    ended(one, prompt)
    assert [found for found, _ in scopes(held)] == [scope]


def test_where_words_do_not_tell_the_model_chooses(tmp_path: Path) -> None:
    one, held = remembering(tmp_path, say("ok"), say(json.dumps([DRAFT | {"scope": "user"}])))
    ended(one)
    assert [found for found, _ in scopes(held)] == ["user"]


def test_the_tool_can_name_the_scope_and_the_users_words_count_more(tmp_path: Path) -> None:
    text = "Always run the linter before you commit."
    _, held, _ = used(tmp_path / "a", PROMPT, text=text, scope="user")
    assert [found for found, _ in scopes(held)] == ["user"]
    wide = "Remember: always run the linter before you commit, in any repo I work on."
    _, held, _ = used(tmp_path / "b", wide, text=text, scope="project")
    assert [found for found, _ in scopes(held)] == ["user"]


def test_a_rule_of_one_project_that_is_said_of_all_moves(tmp_path: Path) -> None:
    one, held = remembering(tmp_path, say("ok"), say("[]"))
    with_parts(one, extract="rules")
    ended(one, "Remember: always use bun.")
    assert [found for found, _ in scopes(held)] == ["project"]
    ended(one, "Remember: always use bun, in all my projects.")
    assert [found for found, _ in scopes(held)] == ["user"]


def test_an_exception_for_one_project_leaves_the_rule_for_the_others(tmp_path: Path) -> None:
    one, held = remembering(tmp_path, say("ok"), say("[]"))
    with_parts(one, extract="rules")
    ended(one, "Remember: always use bun, in all my projects.")
    ended(one, "Remember: never use bun in this repo.")
    assert sorted(found for found, _ in scopes(held)) == ["project", "user"]


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("Remember this!", "it does not say by itself what it means"),
        ("Remember to use bun just for now.", "it was not meant to last"),
        ("From now on, skip the linter for this PR.", "it was not meant to last"),
    ],
)
def test_a_wish_that_is_not_kept_says_why_and_how_to_keep_it(
    tmp_path: Path, prompt: str, why: str
) -> None:
    one, held = remembering(tmp_path, say("ok"), say("[]"))
    ended(one, prompt)
    assert bodies(held) == []
    (note,) = [fact.text for fact in facts(one, Noted) if fact.what == "memory"]
    assert render_extraction_note(note).startswith(
        f"Not remembered: {why}. To keep it anyway: travois memory add "
    )


def test_a_secret_that_is_not_kept_is_not_repeated(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    one, held = remembering(tmp_path, say("ok"), say("[]"))
    ended(one, f"Remember that the token is {secret}")
    assert bodies(held) == []
    (note,) = [fact.text for fact in facts(one, Noted) if fact.what == "memory"]
    assert "Not remembered: " in render_extraction_note(note) and secret not in note


def test_where_memory_is_off_for_a_scope_a_wish_for_it_is_not_dropped_in_silence(
    tmp_path: Path,
) -> None:
    one, _ = remembering(tmp_path, say("ok"), say("[]"))
    with_parts(
        one,
        memories=open_memories(
            TravoisHome(tmp_path),
            Project("dir-1", str(tmp_path)),
            consent={"project": "auto", "user": "off"},
            index=None,
            trusted=True,
        ),
    )
    ended(one, "Remember: always use bun, in all my projects.")
    (note,) = [fact.text for fact in facts(one, Noted) if fact.what == "memory"]
    assert "memory is off for the user scope" in render_extraction_note(note)


def test_what_is_kept_is_not_told_as_lost(tmp_path: Path) -> None:
    one, _ = remembering(tmp_path, say("ok"), say(json.dumps([DRAFT])))
    ended(one)
    (note,) = [fact.text for fact in facts(one, Noted) if fact.what == "memory"]
    assert "Not remembered" not in render_extraction_note(note)
