"""Sessions under an editor: stopped, closed, killed, listed, several at once; and bad lines."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("acp", reason="needs agent-client-protocol")

import acp

import travois_lab as lab
from tests.conformance.editor import House, Window, fits, text
from tests.e2e.program import read
from tests.e2e.shelves import fill
from tests.processes import running
from travois.core.facts import Ended, Result

SLEEP = "sleep {0} & sleep {0}"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def use(name: str, /, **given: Any) -> dict[str, Any]:
    return {"say": [{"tool_use": {"name": name, "input": given}}]}


def sleeping(seconds: str) -> list[int]:
    """The processes that sleep for so long."""
    return running(f"sleep {seconds}")


async def until(reached: Any) -> None:
    with anyio.fail_after(300):
        while not reached():  # noqa: ASYNC110 - nothing tells what another program did
            await anyio.sleep(0.01)


def log(house: House, id: str) -> list[Any]:
    (path,) = house.home.glob(f"sessions/*/{id}/log.jsonl")
    return [entry.fact for entry in read(path)]


def test_cancelling_kills_what_runs_and_leaves_a_sound_session(house: House) -> None:
    nap = "61.25"

    async def main() -> None:
        window = Window(answers=("allow_once",))
        async with house.editor(window) as client:
            id = await house.begin(client)
            outcomes: list[str] = []

            async def say(words: str) -> None:
                done = await client.prompt(session_id=id, prompt=[text(words)])
                outcomes.append(done.stop_reason)

            async with anyio.create_task_group() as group:
                group.start_soon(say, "run")
                await until(partial(sleeping, nap))
                group.start_soon(say, "this waits")
                await anyio.sleep(0.05)
                await client.cancel(session_id=id)
            assert outcomes == ["cancelled", "cancelled"]
            assert sleeping(nap) == []
            ended = [one.status for one in window.of("tool_call_update")][-1]
            assert ended == "failed"
            window.hold = anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(say, "ask")
                await window.hold.wait()
                await client.cancel(session_id=id)
            assert outcomes[-1] == "cancelled"
            window.hold = anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(_withdraw_when_asked, client, window.hold)
                with pytest.raises(acp.RequestError) as wrong:
                    await say("ask again")
            assert wrong.value.code == -32800
            await say("go on")
        assert outcomes[-1] == "end_turn" and window.said() == "Gone on."
        facts = log(house, id)
        assert [fact.why for fact in facts if isinstance(fact, Ended)] == ["aborted"] * 3 + ["end"]
        assert sum(isinstance(fact, Result) for fact in facts) == 3
        house.api.append_only()

    script = [
        use("Bash", command=SLEEP.format(nap)),
        use("Bash", command="touch never"),
        use("Bash", command="touch never"),
        {"say": "Gone on."},
    ]
    house.run(script, main)


async def _withdraw_when_asked(client: Any, asked: anyio.Event) -> None:
    await asked.wait()
    number = client._conn._next_request_id - 1
    await client._conn.send_notification("$/cancel_request", {"requestId": number})


def test_a_killed_session_is_loaded_with_its_history_or_resumed_without(house: House) -> None:
    nap = "61.5"

    async def main() -> None:
        (house.folder / "a.txt").write_text("one\n")
        first = Window(answers=("allow_once",) * 2)
        async with house.editor(first) as client:
            id = await house.begin(client)
            async with anyio.create_task_group() as group:
                group.start_soon(_die_when_it_sleeps, client, nap)
                with pytest.raises(ConnectionError):
                    await client.prompt(session_id=id, prompt=[text("begin"), text(" here")])
        second, third = Window(), Window()
        folder = str(house.folder)
        async with house.editor(second) as client:
            loaded = await client.load_session(cwd=folder, session_id=id, mcp_servers=[])
            assert loaded.modes.current_mode_id == "default"
            replayed = [update.session_update for _, update in second.updates]
            assert second.said("user_message_chunk") == "begin here"
            calls = second.of("tool_call")
            assert [call.title for call in calls] == ["Edit a.txt", f"$ {SLEEP.format(nap)}"]
            done, lost = second.of("tool_call_update")
            assert (done.content[0].old_text, done.content[0].new_text) == ("one\n", "two\n")
            assert (lost.status, "is unknown" in lost.content[0].content.text) == ("failed", True)
            await client.prompt(session_id=id, prompt=[text("go on")])
            assert second.said() == "On it goes."
        assert replayed.index("user_message_chunk") < replayed.index("tool_call")
        async with house.editor(third) as client:
            await client.resume_session(cwd=folder, session_id=id, mcp_servers=[])
            assert third.of("user_message_chunk") == third.of("tool_call") == []
            await client.prompt(session_id=id, prompt=[text("and on")])
            forked = await client.fork_session(cwd=folder, session_id=id, mcp_servers=[])
            await client.prompt(session_id=forked.session_id, prompt=[text("elsewhere")])
            assert third.said(session=forked.session_id) == "Forked."
            with pytest.raises(acp.RequestError) as wrong:
                await client.load_session(cwd=folder, session_id="nobody", mcp_servers=[])
            assert wrong.value.code == -32002
        house.api.append_only()

    script = [
        use("Edit", file_path="a.txt", old_string="one", new_string="two"),
        use("Bash", command=SLEEP.format(nap)),
        {"say": "On it goes."},
        {"say": "And on."},
        {"say": "Forked."},
    ]
    house.run(script, main)


async def _die_when_it_sleeps(client: Any, nap: str) -> None:
    await until(partial(sleeping, nap))
    client.process.kill()
    for id in sleeping(nap):
        with suppress(ProcessLookupError):
            os.kill(int(id), 9)


def test_sessions_are_listed_in_pages_closed_and_deleted(house: House) -> None:
    async def main() -> None:
        other = house.folder / "other"
        other.mkdir()
        here = fill(house.home, house.folder, count=60, at=time.time())
        fill(house.home, other, count=2, at=time.time(), about="elsewhere")
        async with house.editor(Window()) as client:
            page = await client.list_sessions(cwd=str(house.folder))
            rest = await client.list_sessions(cwd=str(house.folder), cursor=page.next_cursor)
            found = [one.session_id for one in (*page.sessions, *rest.sessions)]
            assert (len(page.sessions), rest.next_cursor, found) == (50, None, here)
            assert page.sessions[0].title == "task number 0"
            assert len((await client.list_sessions(cwd=str(other))).sessions) == 2
            send = client._conn.send_request
            for _ in range(2):
                assert await send("session/delete", {"sessionId": here[0]}) == {}
            left = await client.list_sessions(cwd=str(house.folder))
            assert here[0] not in [one.session_id for one in left.sessions]
            assert list(house.home.glob(f"trash/*/{here[0]}"))
            await client.resume_session(cwd=str(house.folder), session_id=here[1], mcp_servers=[])
            await client.close_session(session_id=here[1])
            with pytest.raises(acp.RequestError) as wrong:
                await client.prompt(session_id=here[1], prompt=[text("there?")])
            assert wrong.value.code == -32002
            await client.resume_session(cwd=str(house.folder), session_id=here[1], mcp_servers=[])
            assert await send("session/delete", {"sessionId": here[1]}) == {}
            with pytest.raises(acp.RequestError) as wrong:
                await client.list_sessions(cursor="?")
            assert wrong.value.code == -32602

    house.run([{"say": "Yes."}], main)


def test_two_sessions_work_side_by_side(house: House) -> None:
    async def main() -> None:
        window = Window(answers=("allow_once",) * 2)
        other = house.folder.parent / "second"
        other.mkdir()
        async with house.editor(window) as client:
            first = await house.begin(client)
            second = (await client.new_session(cwd=str(other), mcp_servers=[])).session_id

            async def say(id: str, words: str) -> None:
                await client.prompt(session_id=id, prompt=[text(words)])

            async with anyio.create_task_group() as group:
                group.start_soon(say, first, "slow")
                await until((house.folder / "waits").exists)
                await say(second, "quick")
                (house.folder / "go").touch()
        assert window.said(session=first) == "First." and window.said(session=second) == "Second."
        assert (other / "b.txt").read_text() == "b"

    wait = "touch waits; while [ ! -e go ]; do sleep 0.02; done"
    script = [
        {"when": {"last_text": "slow"}, **use("Bash", command=wait)},
        {"when": {"last_text": "quick"}, **use("Write", file_path="b.txt", content="b")},
        {"when": {"tool_result": {"name": "Write"}}, "say": "Second."},
        {"when": {"tool_result": {"name": "Bash"}}, "say": "First."},
    ]
    house.run(script, main)


def test_an_editor_that_hangs_up_at_once_leaves_nothing_behind(house: House) -> None:
    asked = {"cwd": str(house.folder), "mcpServers": []}
    line = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": asked}
    with lab.server([]) as house.api:
        done = subprocess.run(
            house.command,
            input=json.dumps(line).encode(),
            capture_output=True,
            env={"PATH": os.environ["PATH"], **house.environment},
            timeout=300,
        )
    answer = json.loads(done.stdout.splitlines()[0])
    assert (done.returncode, done.stderr, answer["id"]) == (0, b"", 1)
    assert list(house.home.glob("sessions/*/*")) == []


def test_bad_lines_are_answered_and_the_end_of_input_is_the_end(house: House) -> None:
    def line(id: Any, method: str, **params: Any) -> bytes:
        told = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        return json.dumps(told).encode()

    cwd = str(house.folder)
    lines = [
        b"{",
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"x":"\xff"}}',
        b"[" * 5_000,
        b"[]",
        b'{"jsonrpc":"2.0","id":1,"method":5}',
        b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"none"}}',
        b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{}}',
        b'{"jsonrpc":"2.0","id":"answer to nothing","result":{}}',
        line("a", "session/unheard_of"),
        line("b", "session/new", cwd=5),
        line("c", "session/new", cwd="relative", mcpServers=[]),
        line("d", "session/prompt", sessionId="none", prompt=[]),
        line("e", "authenticate", methodId="environment"),
        line("f", "session/new", cwd=cwd, mcpServers=[]),
        line("g", "logout"),
        line("h", "initialize", protocolVersion=99),
    ]
    done = subprocess.run(
        house.command,
        input=b"\n".join(lines),
        capture_output=True,
        env={"PATH": os.environ["PATH"], **house.environment},
        cwd=house.folder,
        timeout=300,
    )
    answers = [json.loads(raw) for raw in done.stdout.splitlines()]
    for answer in answers:
        if "error" in answer:
            fits(acp.schema.Error, answer["error"])
    codes = [(one["id"], one["error"]["code"]) for one in answers if "error" in one]
    assert codes[:6] == [(None, -32700)] * 4 + [(None, -32600), (1, -32600)]
    assert dict(codes[6:]) == {
        "a": -32601,
        "b": -32602,
        "c": -32602,
        "d": -32002,
        "e": -32000,
        "f": -32000,
        "g": -32601,
    }
    (greeted,) = (one for one in answers if one["id"] == "h")
    assert greeted["result"]["protocolVersion"] == 1
    assert "ANTHROPIC_API_KEY" in greeted["result"]["authMethods"][0]["description"]
    assert (done.returncode, done.stderr) == (0, b"")
