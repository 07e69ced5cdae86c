"""Children of an agent: real sessions on disk, a model that plays every part."""

from __future__ import annotations

import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from travois.agents.child import OPEN_CALL_RESULT
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.content import extract_text
from travois.core.facts import Decided, Ended, Entry, Finished, Opened, Result, Sent, Spawned, User
from travois.core.models import Usage
from travois.core.tokens import compact_threshold, context_tokens
from travois.core.view import open_calls
from travois.ports.agents import AgentReport
from travois.ports.world import PermissionQuestion, PersonAnswer
from travois.providers.replies import ApiError, Reply
from travois.providers.request import Request
from travois.sessions.catalog import list_sessions
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import read_entries, read_history
from travois.testing import Scripted, call, calls, say
from travois_lab.validate import anthropic_faults

Line = Reply | ApiError | Exception


class Body(msgspec.Struct):
    messages: list[dict[str, Any]]


def last_text(request: Request) -> str:
    """What was said to the model last."""
    blocks = msgspec.json.decode(request.body, type=Body).messages[-1]["content"]
    return "\n".join(b["text"] for b in blocks if b["type"] == "text")


class Parts:
    """Plays every part: whoever's prompts hold a word says the lines of that word, in order.

    A gate holds a part back until it is opened.
    """

    def __init__(self, **parts: Sequence[Line]) -> None:
        self.lines = {word: list(lines) for word, lines in parts.items()}
        self.asked: list[tuple[str, Request]] = []
        self.gates: dict[str, anyio.Event] = {}

    def part(self, request: Request) -> str:
        texts = [
            block["text"]
            for message in msgspec.json.decode(request.body, type=Body).messages
            if message["role"] == "user"
            for block in message["content"]
            if block["type"] == "text"
        ]
        said = "\n".join(texts)
        return max((word for word in self.lines if word in said), key=said.rindex)

    @asynccontextmanager
    async def stream(self, request: Request) -> Any:
        assert anthropic_faults(request.body) == []
        part = self.part(request)
        self.asked.append((part, request))
        line = self.lines[part].pop(0) if len(self.lines[part]) > 1 else self.lines[part][0]
        if part in self.gates:
            await self.gates[part].wait()
        if isinstance(line, Exception):
            raise line
        async with Scripted(line).stream(request) as stream:
            yield stream


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    return Options(cwd=str(folder), mode="bypass", sandbox=False)


def agent(word: str, **more: object) -> tuple[str, dict[str, object]]:
    return "Agent", {"description": f"do {word}", "prompt": word, **more}


def fork(word: str, **more: object) -> tuple[str, dict[str, object]]:
    return agent(word, subagent_type="fork", **more)


def facts(session: LiveSession, *kinds: type) -> list[Any]:
    history = session.runtime.agent.session.history()
    return [entry.fact for entry in history if isinstance(entry.fact, kinds)]


def results(session: LiveSession) -> list[str]:
    """What the model sees of each call, in the order asked."""
    shown = (item.fact for item in session.runtime.agent.session.view.items)
    return [extract_text(fact.content) for fact in shown if isinstance(fact, Result)]


def own(session: LiveSession, id: str) -> list[Entry]:
    """A child's own log."""
    (path,) = folder(session).glob(f"**/agents/{id}/log.jsonl")
    return list(read_entries(path, []))


def folder(session: LiveSession) -> Path:
    (path,) = TravoisHome(Path(session.runtime.agent.permissions.guard.own[0])).sessions.glob(
        f"*/{session.id}"
    )
    return path


def play(
    options: Options, model: Any, main: Callable[[LiveSession], Awaitable[None]], **more: Any
) -> None:
    async def run() -> None:
        async with LiveSession(options, model=model, **more) as session:
            await main(session)

    anyio.run(run)


# --- one child ------------------------------------------------------------------------------------


def test_the_report_of_a_child_is_the_result_of_the_call(options: Options) -> None:
    model = Parts(
        begin=[calls(agent("alpha")), say("Thanks.")],
        alpha=[call("Write", file_path="a.txt", content="x"), say("It is done.")],
    )

    async def main(session: LiveSession) -> None:
        assert await session.ask("begin") == "Thanks."
        (result,) = results(session)
        assert result == "[agent a1: done]\nIt is done.\n\nFiles changed: a.txt"
        assert facts(session, Spawned) == [Spawned("a1", "general", "do alpha", "call_0")]
        (finished,) = facts(session, Finished)
        assert (finished.outcome, finished.usage) == ("done", Usage(input=20, output=10))
        assert session.runtime.agent.session.usage == Usage(input=40, output=20)
        log = own(session, "a1")
        assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
        assert log[-1].fact == Ended("end")

    play(options, model, main)
    heads = [request.body.partition(b'"messages":')[0] for _, request in model.asked]
    assert heads[0] == heads[-1] != heads[1] == heads[2]


def test_children_are_no_sessions(options: Options) -> None:
    model = Parts(begin=[calls(agent("alpha")), say("ok")], alpha=[say("yes")])

    async def main(session: LiveSession) -> None:
        await session.ask("begin")
        found = list_sessions(TravoisHome(Path(session.runtime.agent.permissions.guard.own[0])))
        assert [summary.id for summary in found] == [session.id]

    play(options, model, main)


def test_a_child_that_breaks_is_told_with_what_it_had_found(options: Options) -> None:
    found = calls(("Glob", {"pattern": "*"}), text="The cause is in b.py.")
    model = Parts(
        begin=[calls(agent("alpha"), agent("beta"), agent("gamma")), say("I see.")],
        alpha=[found, RuntimeError("boom")],
        beta=[found, ApiError("auth", "bad key")],
        gamma=[say("fine")],
    )

    async def main(session: LiveSession) -> None:
        assert await session.ask("begin") == "I see."
        broke, failed, fine = results(session)
        end = 'Partial result:\n\nThe cause is in b.py.\n\nLast tool calls: Glob {"pattern":"*"}'
        ended = "It did not finish"
        assert broke == f"[agent a1: failed]\n{ended} (failed: RuntimeError: boom). {end}"
        assert failed == f"[agent a2: failed]\n{ended} (failed: auth: bad key). {end}"
        assert fine == "[agent a3: done]\nfine"
        assert [own(session, id)[-1].fact for id in ("a1", "a2")] == [
            Ended("crashed"),
            Ended("failed", "auth: bad key"),
        ]

    play(options, model, main)


def test_a_limit_ends_a_child_with_what_it_has(options: Options) -> None:
    kind = {"tester": {"description": "tests", "prompt": "Test.", "maxTurns": 2}}
    asked = msgspec.structs.replace(options, agents=msgspec.json.encode(kind).decode())
    look = calls(("Glob", {"pattern": "*"}), text="Nothing yet.")
    model = Parts(begin=[calls(agent("alpha", subagent_type="tester")), say("ok")], alpha=[look])

    async def main(session: LiveSession) -> None:
        await session.ask("begin")
        (result,) = results(session)
        assert result.startswith("[agent a1: limit]\nIt did not finish (limit: ")
        assert "Nothing yet." in result
        assert sum(isinstance(entry.fact, Sent) for entry in own(session, "a1")) == 2

    play(asked, model, main)


def test_a_child_waits_for_those_that_work_for_it(options: Options) -> None:
    model = Parts(
        begin=[calls(agent("alpha")), say("ok")],
        alpha=[calls(agent("beta", run_in_background=True)), say("Waiting."), say("beta says 7")],
        beta=[say("7")],
    )

    async def main(session: LiveSession) -> None:
        await session.ask("begin")
        assert results(session) == ["[agent a1: done]\nbeta says 7"]
        assert own(session, "a1.1")[-1].fact == Ended("end")
        told = [e.fact for e in own(session, "a1") if isinstance(e.fact, User)]
        assert told[-1] == User(told[-1].content, origin="task", mail="a1.1")
        assert extract_text(told[-1].content) == "[agent a1.1: done]\n7"

    play(options, model, main)


def test_a_limit_of_depth_is_told_to_the_model(options: Options) -> None:
    asked = msgspec.structs.replace(options, settings='{"maxDepth": 1}')
    model = Parts(
        begin=[calls(agent("alpha")), say("ok")],
        alpha=[calls(agent("beta")), say("alone")],
        beta=[say("never")],
    )

    async def main(session: LiveSession) -> None:
        await session.ask("begin")
        (refused,) = [e.fact for e in own(session, "a1") if isinstance(e.fact, Result)]
        assert refused.error and "No more agents can be started" in extract_text(refused.content)
        assert [part for part, _ in model.asked] == ["begin", "alpha", "alpha", "begin"]

    play(asked, model, main)


# --- forks ----------------------------------------------------------------------------------------


def test_forks_of_one_reply_differ_in_their_last_words_only(options: Options) -> None:
    model = Parts(
        begin=[
            calls(("Glob", {"pattern": "*"}), fork("one"), fork("two"), fork("three")),
            say("ok"),
        ],
        one=[say("1")],
        two=[say("2")],
        three=[say("3")],
    )

    async def main(session: LiveSession) -> None:
        await session.ask("begin")
        said = [text for text in results(session) if text.startswith("[agent")]
        assert said == [f"[agent a{n}: done]\n{n}" for n in (1, 2, 3)]
        assert own(session, "a1")[0].fact.parent == session.id

    play(options, model, main)
    marker = b',"cache_control":{"type":"ephemeral"}'
    first, *forks, _ = [request.body.replace(marker, b"") for _, request in model.asked]
    tails = {body.rpartition(b'{"type":"text","text":"You are a fork')[0] for body in forks}
    (shared,) = tails
    assert shared.startswith(first.partition(b'],"stream"')[0].removesuffix(b"]}"))
    assert shared.count(OPEN_CALL_RESULT.encode()) == 4
    marks = [request.body.count(marker) for _, request in model.asked[1:4]]
    assert marks == [4, 4, 4], "the head, the parent's end, where forks part, their own end"


def test_other_forks_wait_until_the_first_is_being_answered(options: Options) -> None:
    names = ("one", "two", "three")
    model = Parts(
        begin=[calls(*map(fork, names)), say("ok")], **{name: [say("done")] for name in names}
    )

    async def main(session: LiveSession) -> None:
        model.gates["one"] = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(session.ask, "begin")
            await until(lambda: len(model.asked) > 1)
            await anyio.wait_all_tasks_blocked()
            assert [part for part, _ in model.asked] == ["begin", "one"]
            model.gates["one"].set()
        assert sorted(part for part, _ in model.asked[2:4]) == ["three", "two"]

    play(options, model, main)


def test_a_fork_starts_no_agents_though_the_tool_is_declared(options: Options) -> None:
    model = Parts(
        begin=[calls(fork("one")), say("ok")], one=[calls(fork("two")), say("alone")], two=[say("")]
    )

    async def main(session: LiveSession) -> None:
        await session.ask("begin")
        *_, refused = [e.fact for e in own(session, "a1") if isinstance(e.fact, Result)]
        assert refused.error and extract_text(refused.content).startswith(
            "A fork cannot start agents"
        )
        assert results(session) == ["[agent a1: done]\nalone"]

    play(options, model, main)
    heads = {request.body.partition(b'"messages":')[0] for _, request in model.asked}
    assert len(heads) == 1 and b'"name":"Agent"' in heads.pop()


def test_a_fork_can_be_read_with_all_that_it_stands_on(options: Options) -> None:
    model = Parts(begin=[calls(fork("one")), say("ok")], one=[say("1")])

    async def main(session: LiveSession) -> None:
        await session.ask("begin")
        whole = [entry.fact for entry in read_history(folder(session) / "agents" / "a1", [])]
        assert [type(fact) for fact in whole].count(Opened) == 2
        assert extract_text(whole[-2].content) == "1"

    play(options, model, main)


# --- in the background ----------------------------------------------------------------------------


def test_a_child_in_the_background_reports_at_the_next_safe_boundary(options: Options) -> None:
    model = Parts(
        begin=[
            calls(agent("alpha", run_in_background=True)),
            call("Bash", command="while [ ! -e over ]; do sleep 0.01; done"),
            say("alpha says 7"),
        ],
        alpha=[call("Bash", command="touch over"), say("7")],
    )

    async def main(session: LiveSession) -> None:
        await session.ask("begin")
        started, _ = results(session)
        assert started.startswith("Started in the background as agent a1.")
        if await session.news():
            await session.ask(())
        (note,) = [fact for fact in facts(session, User) if fact.origin == "task"]
        assert extract_text(note.content) == "[agent a1: done]\n7"
        assert session.runtime.agent.session.owed == {}

    play(options, model, main)


def test_a_kind_may_ask_to_run_in_the_background(options: Options) -> None:
    kind = {"scout": {"description": "looks", "prompt": "Look.", "background": True}}
    asked = msgspec.structs.replace(options, agents=msgspec.json.encode(kind).decode())
    model = Parts(
        begin=[calls(agent("alpha", subagent_type="scout")), say("Waiting."), say("It said 7.")],
        alpha=[say("7")],
    )

    async def main(session: LiveSession) -> None:
        model.gates["alpha"] = anyio.Event()
        assert await session.ask("begin") == "Waiting."
        model.gates["alpha"].set()
        assert await session.news()

    play(asked, model, main)


def test_an_idle_session_is_woken_by_a_child_in_the_background(options: Options) -> None:
    model = Parts(
        begin=[calls(agent("alpha", run_in_background=True)), say("Meanwhile."), say("It said 7.")],
        alpha=[say("7")],
    )

    async def main(session: LiveSession) -> None:
        model.gates["alpha"] = anyio.Event()
        assert await session.ask("begin") == "Meanwhile."
        agents = session.runtime.agent.team.children
        assert agents is not None and agents.reports()["a1"] == AgentReport("a1", "running", "")
        model.gates["alpha"].set()
        assert await session.news()
        assert await session.ask(()) == "It said 7."
        assert not await session.news()

    play(options, model, main)


def test_a_child_in_the_background_can_be_stopped_and_told_something(options: Options) -> None:
    model = Parts(
        begin=[
            calls(agent("alpha", run_in_background=True, name="scout")),
            call("AgentStop", agent_id="a1"),
            call("AgentStop", agent_id="a1"),
            call("AgentStop", agent_id="a9"),
            say("ok"),
        ],
        alpha=[calls(("Glob", {"pattern": "*"}), text="Halfway."), say("never")],
    )

    async def main(session: LiveSession) -> None:
        model.gates["alpha"] = anyio.Event()
        await session.ask("begin")
        _, stopped, again, unknown = results(session)
        assert stopped.startswith("Stopped agent a1.")
        assert again == "Agent a1 had already ended (stopped)."
        assert "Agents: a1 (stopped)" in unknown
        agents = session.runtime.agent.team.children
        assert agents is not None and not agents.send_message("scout", "hello", sender="main")
        assert own(session, "a1")[-1].fact == Ended("aborted")

    play(options, model, main)


# --- stopping -------------------------------------------------------------------------------------

SLOW = calls(("Bash", {"command": "echo begun > begun; sleep 60"}), text="It is in c.py.")


async def until(come: Callable[[], bool]) -> None:
    with anyio.fail_after(300):
        while not come():  # noqa: ASYNC110 - another task or process decides
            await anyio.sleep(0.01)


def test_stopping_the_turn_stops_its_children_and_keeps_what_they_found(options: Options) -> None:
    model = Parts(begin=[calls(agent("alpha")), say("Go on?")], alpha=[SLOW])

    async def main(session: LiveSession) -> None:
        async with aclosing(session.run("begin")) as events:
            async for event in events:
                if isinstance(event, Entry) and isinstance(event.fact, Spawned):
                    await until(Path(options.cwd, "begun").exists)
                    break
        (result,) = results(session)
        assert result.startswith("[agent a1: stopped]\nIt did not finish (stopped).")
        assert "It is in c.py." in result and "Bash" in result and "(unfinished)" in result
        log = own(session, "a1")
        assert log[-1].fact == Ended("aborted")
        assert [f.outcome for f in facts(session, Finished)] == ["stopped"]
        assert open_calls(session.runtime.agent.session.view) == ()
        assert await session.ask("and?") == "Go on?"

    play(options, model, main)


def test_leaving_the_session_stops_children_in_the_background(options: Options) -> None:
    model = Parts(
        begin=[calls(agent("alpha", run_in_background=True)), say("Bye.")],
        alpha=[SLOW],
        more=[say("I know.")],
    )

    async def main() -> None:
        async with LiveSession(options, model=model) as session:
            assert await session.ask("begin") == "Bye."
            await until(Path(options.cwd, "begun").exists)
        again = msgspec.structs.replace(options, resume=session.id)
        async with LiveSession(again, model=model) as session:
            log = own(session, "a1")
            assert log[-1].fact == Ended("aborted")
            assert await session.ask("more") == "I know."
            told = extract_text(facts(session, User)[-2].content)
            assert told.startswith("[agent a1: stopped]") and "It is in c.py." in told
            assert [f.why for f in facts(session, Ended)] == ["end", "end"]

    anyio.run(main)


# --- the person and hooks -------------------------------------------------------------------------


def test_children_ask_the_same_person_one_after_the_other(options: Options) -> None:
    asked: list[str] = []
    asking: list[str] = []

    class Person:
        async def decide(self, question: PermissionQuestion) -> PersonAnswer:
            asking.append(question.summary)
            assert len(asking) == 1
            await anyio.sleep(0.01)
            asked.append(asking.pop())
            return PersonAnswer(allow=True)

    write = call("Write", file_path="a.txt", content="x")
    model = Parts(
        begin=[
            calls(agent("alpha"), agent("beta"), agent("gamma", run_in_background=True)),
            say(""),
        ],
        alpha=[write, say("done")],
        beta=[write, say("done")],
        gamma=[write, say("not allowed")],
    )
    careful = msgspec.structs.replace(options, mode="default")

    async def main(session: LiveSession) -> None:
        await session.ask("begin")
        assert sorted(text.partition("]")[0] for text in asked) == ["[do alpha", "[do beta"]
        await session.news()
        (denied,) = [e.fact for e in own(session, "a3") if isinstance(e.fact, Decided)]
        assert denied.verdict == "deny" and "in the background cannot ask" in denied.because

    play(careful, model, main, person=Person())


def test_hooks_hear_of_children_and_may_send_them_back(options: Options, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    script = tmp_path / "hook.sh"
    script.write_text(
        f"#!/bin/sh\ncat >> {heard}\necho >> {heard}\n"
        f'[ "$1" = stop ] && [ ! -e {tmp_path}/once ] && touch {tmp_path}/once && '
        "echo 'check it again' >&2 && exit 2\nexit 0\n"
    )
    script.chmod(0o700)
    hooks = {
        event: [{"hooks": [{"type": "command", "command": f"{script} {word}"}]}]
        for event, word in (
            ("SubagentStart", "start"),
            ("SubagentStop", "stop"),
            ("PreToolUse", ""),
        )
    }
    asked = msgspec.structs.replace(
        options, settings=msgspec.json.encode({"hooks": hooks}).decode()
    )
    model = Parts(
        begin=[calls(agent("alpha")), say("ok")],
        alpha=[call("Glob", pattern="*"), say("first"), say("second")],
    )

    async def main(session: LiveSession) -> None:
        await session.ask("begin")
        assert results(session)[-1] == "[agent a1: done]\nsecond"

    play(asked, model, main)
    told = [msgspec.json.decode(line) for line in heard.read_text().splitlines() if line]
    assert [(t["hook_event_name"], t.get("agent_id"), t.get("agent_type")) for t in told] == [
        ("PreToolUse", None, None),
        ("SubagentStart", "a1", "general"),
        ("PreToolUse", "a1", "general"),
        ("SubagentStop", "a1", "general"),
        ("SubagentStop", "a1", "general"),
    ]
    assert [t["last_assistant_message"] for t in told[3:]] == ["first", "second"]
    assert Path(told[3]["agent_transcript_path"]).name == "log.jsonl"


# --- worktrees ------------------------------------------------------------------------------------


def git(folder: str, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode()


def test_a_worktree_goes_when_nothing_was_done_and_else_is_named(options: Options) -> None:
    git(options.cwd, "init", "-q")
    Path(options.cwd, "a.txt").write_text("old\n")
    git(options.cwd, "add", "."), git(options.cwd, "commit", "-qm", "one")
    model = Parts(
        begin=[
            calls(agent("alpha", isolation="worktree"), agent("beta", isolation="worktree")),
            say(""),
        ],
        alpha=[call("Read", file_path="a.txt"), say("read")],
        beta=[call("Write", file_path="b.txt", content="new\n"), say("written")],
    )

    async def main(session: LiveSession) -> None:
        await session.ask("begin")
        read, written = results(session)
        assert read == "[agent a1: done]\nread"
        name = f"{session.id[:8]}-a2"
        path = f"{options.cwd}/.travois/worktrees/{name}"
        note = f"Its changes are in the git worktree {path}, on the branch travois/{name}."
        assert written == f"[agent a2: done]\nwritten\n\n{note}\n\nFiles changed: b.txt"
        assert git(path, "status", "--porcelain") == "?? b.txt\n"

    play(options, model, main)
    assert git(options.cwd, "status", "--porcelain") == ""
    assert len(git(options.cwd, "worktree", "list").splitlines()) == 2
    assert len(git(options.cwd, "branch", "--list", "travois/*").splitlines()) == 1


def test_without_a_repository_there_is_no_worktree(options: Options) -> None:
    model = Parts(begin=[calls(agent("alpha", isolation="worktree")), say("")], alpha=[say("")])

    async def main(session: LiveSession) -> None:
        await session.ask("begin")
        (result,) = results(session)
        assert result.startswith("[agent a1: failed]") and "not inside a git repository" in result

    play(options, model, main)


# --- reports --------------------------------------------------------------------------------------


def test_fifty_children_with_long_reports_never_overflow_their_parent(options: Options) -> None:
    long = "".join(f"line {n}: the quick brown fox jumps\n" for n in range(1_200))[:40_000]
    names = [f"part{n:02}" for n in range(50)]
    model = Parts(begin=[calls(*map(agent, names)), say("ok")], **{n: [say(long)] for n in names})

    async def main(session: LiveSession) -> None:
        await session.ask("begin")
        view = session.runtime.agent.session.view
        assert context_tokens(view) < compact_threshold(session.runtime.model) // 2
        shown = results(session)
        assert len(shown) == 50
        for number, text in enumerate(shown, 1):
            assert text.startswith(f"[agent a{number}: done]\nline 0: the quick")
            path = text.partition(" All of it is in ")[2].partition("; continue")[0]
            assert Path(path).read_text() == long.strip()

    play(options, model, main)


def test_reports_from_the_background_share_what_is_free(options: Options) -> None:
    names = [f"part{n:02}" for n in range(30)]
    wanted = [agent(name, run_in_background=True) for name in names]
    model = Parts(
        begin=[calls(*wanted), say("Waiting."), say("ok")],
        **{name: [say("word " * 8_000)] for name in names},
    )

    async def main(session: LiveSession) -> None:
        model.gates = dict.fromkeys(names, anyio.Event())
        assert await session.ask("begin") == "Waiting."
        model.gates[names[0]].set()
        await until(lambda: len(session.runtime.agent.turn.inbox) == 30)
        assert await session.ask(()) == "ok"
        assert context_tokens(session.runtime.agent.session.view) < 60_000

    play(options, model, main)
