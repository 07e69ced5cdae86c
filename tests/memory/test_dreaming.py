"""A night: real memories on disk, a model that says its lines, one change at the end."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from tests.engine import fakes
from tests.memory.test_crash import dying
from travois.compose.dreaming import (
    ProjectDreams,
    dream_when_due,
    list_dream_folders,
    list_recent_logs,
    read_dream_status,
    report_finished_dreams,
)
from travois.compose.open_session import Workspace
from travois.core.content import Text
from travois.core.facts import Changed, Ended, Finished, Noted, Opened, Result, Spawned, User
from travois.core.spending import Budget, Limits
from travois.engine.agent import Agent
from travois.memory.dreaming import lock as night
from travois.memory.dreaming.consolidate import DreamResult
from travois.memory.dreaming.lock import DreamConditions, DreamLock
from travois.memory.memory import DropMemory, Evidence, FileAnchor, Memory, PutMemory
from travois.memory.store import FolderMemoryStore, open_memories
from travois.providers.replies import Reply
from travois.sessions.home import Project, TravoisHome
from travois.sessions.log_file import LOG_FILE_NAME, SessionLog, read_entries
from travois.testing import Scripted, call, calls, say

DAY = 1_790_000_000.0


def memory(name: str, body: str, *, at: float = DAY, **more: Any) -> Memory:
    evidence = (Evidence("s1", 3, more.get("author", "user"), body, at),)
    given: dict[str, Any] = {"type": "project", "created": at, "modified": at, "verified": at}
    return Memory(name, body, body=body, evidence=evidence, **(given | more))


VAULT = memory("vault", "Backups are taken with make vault from the archive branch")
TWIN = memory("twin", VAULT.body, at=DAY + 9)
OWNER = memory("owner", "The billing service is owned by Ann")
SAID = "Backups no longer come from make vault, use `just vault` from the archive branch now"
REWRITTEN = "Backups are taken with `just vault` from the archive branch"
REWRITE = {
    "do": "rewrite",
    "names": ["project/vault"],
    "description": REWRITTEN,
    "body": REWRITTEN,
    "passage": "p1",
    "words": "use `just vault` from the archive branch",
    "why": "the command changed",
}


def proposing(*wanted: object) -> Reply:
    return say(msgspec.json.encode(wanted).decode())


def place(tmp_path: Path) -> Workspace:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    return Workspace(
        TravoisHome(tmp_path / "home").prepare(), Project("dir-1", str(folder)), str(folder)
    )


def opened(tmp_path: Path, *some: Memory, **consent: Any) -> ProjectDreams:
    here = place(tmp_path)
    chosen = {"project": "auto", "user": "auto", "team": "ask"} | consent
    memories = open_memories(here.home, here.project, consent=chosen, index=None, trusted=False)
    if some:
        everything = {"project": "auto", "user": "auto"}
        first = open_memories(
            here.home, here.project, consent=everything, index=None, trusted=False
        )
        assert first.apply([PutMemory(one) for one in some], why="first").refused == ()
    return ProjectDreams(here, memories)


def spoke(where: Workspace, id: str, text: str) -> None:
    """A session in which the user said this, after all that is remembered."""
    first = Opened(id, where.cwd, where.project.key, "0.1")
    with SessionLog.create(where.home.session_folder(where.project.key, id), first) as log:
        log.append(User((Text(text),)))


def parent(tmp_path: Path, *lines: Reply, **more: Any) -> Agent:
    tools = [
        fakes.small("Read"),
        fakes.small("Write", kind="write"),
        fakes.small("Bash", kind="exec"),
    ]
    return fakes.agent(tmp_path / "work", *lines, tools=tools, **more)


def begun(some: ProjectDreams) -> DreamLock:
    mine = some.claim(night.read_lock_state(some.folder))
    assert mine is not None
    return mine


def run(some: ProjectDreams, who: Agent | str) -> DreamResult:
    async def main() -> DreamResult:
        return await some.run(who, begun(some))

    return anyio.run(main)


def bodies(memories: FolderMemoryStore) -> dict[str, str]:
    return {one.name: one.body for one in memories.read_all()}


def test_a_night_is_one_change_of_rules_and_of_what_a_model_proposed(tmp_path: Path) -> None:
    some = opened(tmp_path, VAULT, TWIN, OWNER)
    spoke(some.place, "s2", SAID)
    boring = {"do": "drop", "names": ["project/owner"], "why": "boring"}
    who = parent(tmp_path, call("Read", path="a"), proposing(REWRITE, boring, {"do": "burn"}))
    done = run(some, who)
    steps = (
        "project/twin duplicates project/vault",
        "project/vault rewritten: the command changed",
    )
    assert (done.state, done.steps, done.alone) == ("completed", steps, "")
    assert done.files == ("project/vault", "project/twin")
    assert done.refused[1:] == (
        "drop project/owner: nothing the user has said since shows that it no longer holds",
    )
    assert done.refused[0].startswith("an operation could not be read")
    assert bodies(some.memories) == {"vault": REWRITTEN, "owner": OWNER.body}
    (vault,) = [one for one in some.memories.read_all() if one.name == "vault"]
    assert [(e.session, e.who) for e in vault.evidence] == [
        ("s1", "user"),
        ("s1", "user"),
        ("s2", "user"),
    ]
    (made,) = [one for one in some.memories.history() if one.why == "dream"]
    assert (made.id, made.session) == (done.id, list_dream_folders(some.logs)[0].name)
    some.memories.undo(done.id)
    assert bodies(some.memories) == {one.name: one.body for one in (VAULT, TWIN, OWNER)}


def test_the_log_of_a_night_tells_its_phases_and_its_host_what_it_cost(tmp_path: Path) -> None:
    some = opened(tmp_path, VAULT)
    who = parent(tmp_path, proposing())
    run(some, who)
    (folder,) = list_dream_folders(some.logs)
    facts = [entry.fact for entry in read_entries(folder / LOG_FILE_NAME, [])]
    assert [(f.what, f.value) for f in facts if isinstance(f, Changed)] == [
        ("stage", "starting"),
        ("phase", "orient"),
        ("phase", "gather"),
        ("stage", "updating"),
        ("phase", "consolidate"),
        ("phase", "prune"),
    ]
    assert (read_dream_status(folder).state, read_dream_status(folder).phase) == (
        "completed",
        "prune",
    )
    spawned, finished = fakes.facts(who, Spawned, Finished)
    assert (spawned.id, spawned.kind) == (folder.name, "dream")
    assert (finished.id, finished.outcome, finished.usage.output) == (folder.name, "completed", 5)


def test_an_agent_that_dreams_looks_and_touches_nothing(tmp_path: Path) -> None:
    some = opened(tmp_path, VAULT)
    wanted = calls(
        ("Bash", {"path": "touch here"}), ("Write", {"path": "b"}), ("Read", {"path": "c"})
    )
    run(some, parent(tmp_path, wanted, proposing()))
    facts = [
        entry.fact for entry in read_entries(list_dream_folders(some.logs)[0] / LOG_FILE_NAME, [])
    ]
    assert [fact.error for fact in facts if isinstance(fact, Result)] == [True, True, False]
    assert list((tmp_path / "work").iterdir()) == []


def test_more_than_a_window_holds_is_looked_at_topic_by_topic(tmp_path: Path) -> None:
    many = [
        memory(f"m{n}", f"Service {n} of host h{n} listens on port {n + 2000}. " * 9)
        for n in range(40)
    ]
    some = opened(tmp_path, *many)
    model = Scripted(proposing(), judge=fakes.faults)
    who = parent(tmp_path, model=model, session=fakes.begun(window=16_000, output=1_000))
    assert run(some, who).state == "completed"
    shown = [request.body for request in model.requests]
    assert len(shown) > 2
    assert all(sum(f"project/m{n}\\".encode() in body for body in shown) == 1 for n in range(40))
    heads = {body[: body.index(b'"messages"')] for body in shown}
    assert len(heads) == 1


def test_a_night_spends_what_its_session_may_and_then_rules_go_on(tmp_path: Path) -> None:
    some = opened(tmp_path, VAULT, TWIN)
    done = run(some, parent(tmp_path, proposing(), budget=Budget(Limits(tokens=100))))
    assert (done.state, done.steps) == ("completed", ("project/twin duplicates project/vault",))
    (why,) = done.refused
    assert why.startswith("the model did not finish: ") and "tokens" in why


def test_without_a_model_rules_work_alone_and_say_so(tmp_path: Path) -> None:
    some = opened(tmp_path, VAULT, TWIN)
    done = run(some, "No model to talk to")
    assert (done.alone, done.files) == ("No model to talk to", ("project/vault", "project/twin"))
    assert list(bodies(some.memories)) == ["vault"]


def test_scopes_that_ask_get_proposals_and_those_that_are_off_are_left_alone(
    tmp_path: Path,
) -> None:
    mine = [replace(one, scope="user") for one in (VAULT, TWIN)]
    some = opened(tmp_path, VAULT, TWIN, *mine, project="ask", user="off")
    done = run(some, "none")
    assert (done.files, done.proposed) == ((), ("project/twin duplicates project/vault",))
    waiting = [one.change for one in some.memories.inbox()]
    assert DropMemory("twin", "project", done.proposed[0]) in waiting
    assert len(some.memories.read_all()) == 4


def test_what_changes_while_a_night_plans_is_planned_anew(tmp_path: Path) -> None:
    some = opened(tmp_path, VAULT, TWIN)
    other = opened(tmp_path).memories
    other_words = "Snapshots are made by the storage array itself"
    fresh = replace(VAULT, description=other_words, body=other_words, modified=DAY + 99)
    plain = some.memories.apply
    left = [fresh]

    def apply(*args: Any, **more: Any) -> Any:
        if left:
            other.apply([PutMemory(left.pop())], why="meanwhile")
        return plain(*args, **more)

    some.memories.apply = apply  # type: ignore[method-assign]
    done = run(some, "none")
    assert (done.state, done.steps) == ("completed", ())
    assert bodies(some.memories) == {"vault": fresh.body, "twin": TWIN.body}


def test_a_memory_that_cannot_be_written_spoils_only_what_concerns_it(tmp_path: Path) -> None:
    some = opened(tmp_path, VAULT, TWIN)
    secret = "Ships on the pier are unloaded by the crane of dock seven -----BEGIN PRIVATE KEY-----"
    for name in ("one", "two"):
        said = msgspec.json.encode(Evidence("s1", 1, "user", name, DAY)).decode()
        text = f"---\nname: {name}\ntype: project\nevidence:\n  - {said!r}\n---\n{secret}\n"
        (some.folder / f"{name}.md").write_text(text)
    done = run(some, "none")
    assert (done.state, done.steps) == ("completed", ("project/twin duplicates project/vault",))
    assert [why.partition(":")[0] in ("one", "two") for why in done.refused] == [True]
    assert sorted(bodies(some.memories)) == ["one", "two", "vault"]


def test_a_night_that_is_stopped_changes_nothing_and_gives_the_time_back(tmp_path: Path) -> None:
    some = opened(tmp_path, VAULT, TWIN)
    begun(some).complete()
    before = night.read_lock_state(some.folder)
    spoke(some.place, "s2", SAID)

    async def slow(*_: object) -> Any:
        some.stop()
        await anyio.sleep(30)

    who = parent(tmp_path, call("Read", path="a"))
    fakes.with_parts(who, tools={**who.tools.by_name, "Read": fakes.small("Read", slow)})
    done = run(some, who)
    assert (done.state, read_dream_status(list_dream_folders(some.logs)[0]).state) == (
        "killed",
        "killed",
    )
    assert sorted(bodies(some.memories)) == ["twin", "vault"]
    after = night.read_lock_state(some.folder)
    assert (after.stamp, after.last_time, after.is_running(DAY)) == (
        before.stamp,
        before.last_time,
        False,
    )
    assert fakes.facts(who, Finished)[-1].outcome == "killed"


def test_showing_a_night_changes_no_file(tmp_path: Path) -> None:
    some = opened(tmp_path, VAULT, TWIN)
    files = {path: path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file()}

    async def main() -> None:
        await some.run_in_folder("none", tmp_path / "shown", manner="show")

    anyio.run(main)
    done = read_dream_status(tmp_path / "shown").dreamt
    assert done.files == ("project/vault", "project/twin")
    assert "--- twin.md\n+++ /dev/null" in done.diff
    assert files == {
        path: path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file()
    }


def test_a_process_that_dies_at_any_step_of_a_night_leaves_all_or_nothing(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    at, lived = 0, False
    while not lived:
        folder = tmp_path / str(at)
        folder.mkdir()
        some = opened(folder, VAULT, TWIN, OWNER)
        lived = dying(lambda some=some: run(some, "none"), at=at)
        again = opened(folder)
        seen.append(sorted(bodies(again.memories)))
        assert not night.read_lock_state(again.folder).is_running(DAY)
        assert run(again, "none").state == "completed"
        assert bodies(again.memories) == {"vault": VAULT.body, "owner": OWNER.body}
        (vault,) = [one for one in again.memories.read_all() if one.name == "vault"]
        assert vault.evidence == (*VAULT.evidence, *TWIN.evidence)
        at += 5
    whole, tidy = ["owner", "twin", "vault"], ["owner", "vault"]
    assert seen == [whole] * seen.count(whole) + [tidy] * seen.count(tidy)
    assert len(seen) > 10


def test_what_a_person_took_back_is_not_done_again(tmp_path: Path) -> None:
    some = opened(tmp_path, VAULT, TWIN)
    some.memories.undo(run(some, "none").id)
    again = run(some, "none")
    assert (again.steps, again.files) == ((), ())
    assert sorted(bodies(some.memories)) == ["twin", "vault"]


def test_the_next_session_tells_once_what_nights_have_changed(tmp_path: Path) -> None:
    some = opened(tmp_path, VAULT, TWIN)
    first, second = run(some, "none"), run(some, "none")
    assert second.id == ""
    who = parent(tmp_path)
    line = (
        "memories were consolidated in the background: project/twin duplicates project/vault "
        f"(travois memory undo {first.id})"
    )
    assert report_finished_dreams(some, who) == (line,)
    assert report_finished_dreams(some, who) == ()
    assert fakes.facts(who, Noted) == [Noted("morning", line)]


def beside(some: ProjectDreams, who: Agent, then: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(dream_when_due, some, who)
            with anyio.fail_after(300):
                await then()
            group.cancel_scope.cancel()

    anyio.run(main)


def test_a_night_begins_at_a_start_or_after_a_turn_once_the_gates_are_open(tmp_path: Path) -> None:
    some = replace(opened(tmp_path, VAULT, TWIN), gates=DreamConditions(sessions=2))
    who = parent(tmp_path, proposing())

    async def dreamt() -> None:
        await anyio.sleep(0.3)
        assert list_dream_folders(some.logs) == []
        for id in ("s2", "s3"):
            spoke(some.place, id, "hello")
        os.utime(some.folder / night.SCAN_STAMP_FILE, (0, 0))
        who.session.append(Ended("end"))
        while not fakes.facts(who, Finished):  # noqa: ASYNC110 - what is waited for is a fact
            await anyio.sleep(0.01)

    beside(some, who, dreamt)
    assert list(bodies(some.memories)) == ["vault"]
    assert len(list_recent_logs(some.place, 0.0)) == 2


def test_leaving_ends_a_night_at_once(tmp_path: Path) -> None:
    some = replace(opened(tmp_path, VAULT, TWIN), gates=DreamConditions(sessions=0))
    reading = anyio.Event()

    async def slow(*_: object) -> Any:
        reading.set()
        await anyio.sleep_forever()

    who = parent(tmp_path, call("Read", path="a"))
    fakes.with_parts(who, tools={**who.tools.by_name, "Read": fakes.small("Read", slow)})
    beside(some, who, reading.wait)
    assert read_dream_status(list_dream_folders(some.logs)[0]).state == "killed"
    assert night.read_lock_state(some.folder).last_time == 0
    assert sorted(bodies(some.memories)) == ["twin", "vault"]


def test_files_that_drifted_let_a_tools_word_go(tmp_path: Path) -> None:
    fact = replace(
        memory("port", "The API listens on port 8080", author="tool"),
        anchors=(FileAnchor("a", "0"),),
    )
    drop = {"do": "drop", "names": ["project/port"], "why": "it is 9090 there"}
    some = opened(tmp_path, fact)
    done = run(some, parent(tmp_path, proposing(drop)))
    assert done.steps == ("project/port no longer holds: it is 9090 there",)
    assert bodies(some.memories) == {}


@pytest.mark.parametrize("lines", [(say("no idea"),), (say(""),)])
def test_a_model_that_says_no_list_does_nothing(tmp_path: Path, lines: Sequence[Reply]) -> None:
    some = opened(tmp_path, VAULT, TWIN)
    done = run(some, parent(tmp_path, *lines))
    assert done.refused == ("the reply was not a list of operations",)
    assert done.steps == ("project/twin duplicates project/vault",)
