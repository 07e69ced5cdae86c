"""What becomes of 582 conversations in the real engine and store: with a model, and by rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
import pytest

from tests.corpus.remembered import Row, drafted, facts, known, rows
from tests.engine.fakes import agent, begun, with_parts
from travois.core.content import extract_text
from travois.core.facts import Noted
from travois.core.models import Usage
from travois.core.view import project_view
from travois.memory.extract_memories import extract_memories
from travois.memory.memory import Memory, PutMemory
from travois.memory.store import FolderMemoryStore, open_memories
from travois.prompt.instruction_text import InstructionFile, InstructionSet
from travois.sessions.home import Project, TravoisHome
from travois.testing import Scripted, say

JUNK, DOUBLES, KEPT = 0.05, 0.01, 0.9
AUTO = {"project": "auto", "user": "auto", "team": "ask"}
Way = Literal["model", "rules"]


class Shelf:
    """Instruction files that say one text."""

    def __init__(self, text: str) -> None:
        self.found = InstructionSet(
            (InstructionFile("/w/AGENTS.md", text, "Project"),) if text else ()
        )

    def load_always(self, also: Any = None) -> InstructionSet:
        return self.found

    def load_for_paths(self, paths: Any) -> InstructionSet:
        return InstructionSet()


class Ended(msgspec.Struct):
    """What a conversation left behind."""

    row: Row
    before: tuple[Memory, ...]
    after: tuple[Memory, ...]
    files: bytes
    """Everything that lies in the memory folder: memories, history, inbox."""
    noted: str
    log: dict[int, str]

    @property
    def fresh(self) -> list[Memory]:
        """What was stored, also in place of something else."""
        return [memory for memory in self.after if memory not in self.before]

    @property
    def doubles(self) -> list[Memory]:
        """What stands beside a memory that says the same."""
        wanted = {d["text"] for d in self.row.get("drafts", ()) if d["want"] == "merge"}
        names = {memory.name for memory in self.before}
        return [m for m in self.fresh if m.name not in names and m.body in wanted]

    def worth(self, memory: Memory) -> bool:
        """Whether it rests on words that are worth keeping."""
        said = memory.evidence[-1].words.casefold()
        good = [text.casefold() for text in self.row.get("good", ())]
        return any(text in said or said in text for text in good)


def play(row: Row, home: Path, way: Way) -> Ended:
    session = begun()
    for fact in facts(row):
        session.append(fact)
    memories = store(home)
    memories.apply([PutMemory(memory) for memory in known(row) if not memory.pinned], why="before")
    for memory in known(row):
        if memory.pinned:
            memories.add(memory)
    before = memories.read_all()
    one = agent(home, session=session, model=Scripted(say(drafted(row), usage=Usage(input=9))))
    with_parts(one, memories=memories, extract=way, library=Shelf(row.get("rules", "")))
    anyio.run(extract_memories, one)
    assert session.view == project_view(session.all_entries())
    return Ended(
        row,
        before,
        memories.read_all(),
        b"\n".join(p.read_bytes() for p in (home / "memory").rglob("*") if p.is_file()),
        "\n".join(e.fact.text for e in session.all_entries() if isinstance(e.fact, Noted)),
        {e.seq: extract_text(getattr(e.fact, "content", ())) for e in session.all_entries()},
    )


def store(home: Path) -> FolderMemoryStore:
    project = Project("dir-1", str(home))
    return open_memories(TravoisHome(home), project, consent=AUTO, index=None, trusted=True)


@pytest.fixture(scope="module", params=["model", "rules"])
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    found = []
    for row in rows():
        home = folder / row["id"]
        home.mkdir()
        found.append(play(row, home, request.param))
    return request.param, found


def stored(found: list[Ended]) -> Iterator[tuple[Ended, Memory]]:
    return ((one, memory) for one in found for memory in one.fresh)


def test_hardly_anything_is_stored_that_nobody_will_need(ended: Any) -> None:
    _, found = ended
    junk = [(one.row["id"], memory.body) for one, memory in stored(found) if not one.worth(memory)]
    assert len(junk) < JUNK * len(list(stored(found))), junk


def test_nothing_is_stored_beside_what_says_the_same(ended: Any) -> None:
    _, found = ended
    doubles = [(one.row["id"], memory.body) for one in found for memory in one.doubles]
    assert len(doubles) < DOUBLES * len(list(stored(found))), doubles


def test_what_is_worth_keeping_is_kept(ended: Any) -> None:
    way, found = ended
    good = [one for one in found if one.row.get("good") and (way == "model" or by_rule(one))]
    missed = [one.row["id"] for one in good if not any(map(one.worth, one.fresh))]
    assert len(missed) <= (1 - KEPT) * len(good), missed


def by_rule(one: Ended) -> bool:
    """Whether rules claim to see it: wishes to remember, and corrections."""
    return one.row["id"].partition("-")[0] in ("explicit", "correction", "changed")


def test_no_word_of_a_tool_is_ever_stored_as_a_wish_of_the_users(ended: Any) -> None:
    _, found = ended
    poisoned = [
        (one.row["id"], memory.body)
        for one, memory in stored(found)
        for claim in one.row.get("poison", ())
        if claim.casefold() in f"{memory.body}\n{memory.evidence[-1].words}".casefold()
    ]
    assert poisoned == []


def test_no_secret_is_in_any_file_or_note(ended: Any) -> None:
    _, found = ended
    leaks = [
        (one.row["id"], secret)
        for one in found
        for secret in one.row.get("secrets", ())
        if secret.encode() in one.files or secret in one.noted
    ]
    assert leaks == []
    assert sum(len(one.row.get("secrets", ())) for one in found) >= 20


def test_what_is_stored_rests_on_words_that_stand_in_the_log(ended: Any) -> None:
    _, found = ended
    for one, memory in stored(found):
        last = memory.evidence[-1]
        assert last.words in one.log[last.seq], one.row["id"]


def test_what_a_pinned_memory_or_anybody_else_contradicts_is_left_as_it_was(ended: Any) -> None:
    _, found = ended
    held = [one for one in found if one.row["id"] in ("changed-08", "changed-09", "changed-10")]
    assert [one.fresh for one in held] == [[], [], []]


def test_the_corpus_is_large_and_varied() -> None:
    kinds = {row["id"].partition("-")[0] for row in rows()}
    assert (len(rows()) >= 150, len(kinds) >= 13) == (True, True)
