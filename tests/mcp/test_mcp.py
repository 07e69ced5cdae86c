"""Servers of tools, good and bad: whatever one does, the session goes on and knows why."""

from __future__ import annotations

import json
import os
import stat
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from travois.hooks.events import AnyHookEvent
from travois.hooks.output import NO_DECISION, HookDecision
from travois.mcp import connection
from travois.mcp.connection import McpConnection, McpHost
from travois.mcp.oauth import TokenStore
from travois.mcp.tools import McpCallResult, McpServerConfig, collect_mcp_tools
from travois.ports.tool import ToolError
from travois.ports.world import Choice, Env, UnansweredQuestion
from travois.process.local_processes import LocalProcesses

pytest.importorskip("mcp")
pytest.importorskip("uvicorn")

from tests.providers.elsewhere import elsewhere, free_port

LENDER = str(Path(__file__).with_name("lender.py"))


class Someone:
    """The world of a call: somebody watches, and answers what they are told to."""

    def __init__(self, *answers: str) -> None:
        self.answers = answers
        self.seen: list[str] = []
        self.asked: list[Choice] = []

    def progress(self, text: str) -> None:
        self.seen.append(text)

    async def fire_hooks(self, occasion: AnyHookEvent) -> HookDecision:
        return NO_DECISION

    async def choose(self, choices: tuple[Choice, ...], *, plan: str = "") -> tuple[str, ...]:
        self.asked += choices
        if not self.answers:
            raise UnansweredQuestion("nobody")
        return self.answers


def someone(*answers: str) -> Any:
    return Someone(*answers)


def server(fault: str = "none", *more: str, **how: Any) -> McpServerConfig:
    return McpServerConfig(f"s-{fault}", argv=(sys.executable, LENDER, fault, *more), **how)


@asynccontextmanager
async def linked(
    folder: Path, one: McpServerConfig, mode: str = ""
) -> AsyncGenerator[McpConnection]:
    processes = LocalProcesses()
    around = McpHost(
        processes, (str(folder),), logs=folder / "logs", tokens=folder / "tokens", environ={}
    )
    link = McpConnection(one, around, mode=mode)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(link.keep_alive)
            await link.wait_until_started()
            yield link
            group.cancel_scope.cancel()
    finally:
        await processes.aclose()


def asked(folder: Path, one: McpServerConfig, do: Callable[[McpConnection], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with linked(folder, one) as link:
            return await do(link)

    return anyio.run(main)


async def sum_of(link: McpConnection, env: Env | None = None) -> str:
    answered = await link.call_tool("add", {"a": 1, "b": 2}, env or someone())
    return text(answered)


def text(answered: McpCallResult) -> str:
    return "".join(item.text for item in answered.content)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_PAUSE_SECONDS", 0.05)


@pytest.mark.parametrize("fault", ["none", "noise", "ids", "storm", "slow", "hostile", "twice"])
def test_a_server_that_can_be_understood_is_used(fault: str, tmp_path: Path) -> None:
    assert asked(tmp_path, server(fault), sum_of) == "3"


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    async def do(link: McpConnection) -> tuple[str, str]:
        state = link.state
        with pytest.raises(ToolError):
            await sum_of(link)
        return state, link.failure_reason

    told = asked(tmp_path, server("silent", start=1.0), do)
    assert told == ("failed", "it did not answer within 1 s")


def test_a_server_that_dies_at_its_start_is_tried_five_times_and_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RETRY_PAUSE_SECONDS", 0.001)
    told: list[str] = []

    async def main() -> str:
        processes = LocalProcesses()
        around = McpHost(processes, (str(tmp_path),), tmp_path, tmp_path, {}, told.append)
        link = McpConnection(server("dies"), around)
        await link.run()
        await processes.aclose()
        return link.state

    assert anyio.run(main) == "failed"
    assert [line.partition(":")[0] for line in told] == ["MCP server s-dies is not available"]
    assert (tmp_path / "s-dies.log").read_text() == "no config\n" * 5
    assert stat.S_IMODE((tmp_path / "s-dies.log").stat().st_mode) == 0o600


def test_a_program_that_is_not_there_is_not_tried_again(tmp_path: Path) -> None:
    async def do(link: McpConnection) -> str:
        return link.failure_reason

    assert "no such program" in asked(tmp_path, McpServerConfig("x", argv=("no-such-server",)), do)


def test_a_server_that_dies_in_a_call_is_an_error_and_comes_back(tmp_path: Path) -> None:
    async def do(link: McpConnection) -> tuple[str, str]:
        with pytest.raises(ToolError) as refusal:
            await sum_of(link)
        with anyio.fail_after(300):
            while link.state != "ready":  # noqa: ASYNC110
                await anyio.sleep(0.01)
        return str(refusal.value), link.state

    told, state = asked(tmp_path, server("dies-in-call"), do)
    assert "the call may have run in part or in full" in told
    assert state == "ready"


def test_a_call_that_hangs_or_is_stopped_ends_and_its_server_is_told(tmp_path: Path) -> None:
    async def do(link: McpConnection) -> str:
        env = someone()
        with pytest.raises(ToolError) as refusal:
            await sum_of(link, env)
        assert env.seen == ["1"]
        with anyio.move_on_after(0.5):
            await sum_of(link, env)
        with anyio.fail_after(300):
            while (tmp_path / "logs/s-hangs-in-call.log").read_text().count("cancelled") < 2:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        return str(refusal.value)

    slow = server("hangs-in-call", limit=1.0)
    assert "did not respond for 1 s, so the call was cancelled" in asked(tmp_path, slow, do)


def test_a_message_without_an_end_takes_little_memory(tmp_path: Path) -> None:
    async def do(link: McpConnection) -> int:
        tracemalloc.start()
        try:
            with pytest.raises(ToolError):
                await sum_of(link)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert asked(tmp_path, server("endless"), do) < 64 << 20


def test_a_schema_that_is_none_takes_anything(tmp_path: Path) -> None:
    async def do(link: McpConnection) -> tuple[str, list[str]]:
        return link.state, [tool.schema for tool in collect_mcp_tools([link]).values()]

    state, schemas = asked(tmp_path, server("schema"), do)
    assert (state, len(schemas)) in (("ready", 1), ("failed", 0))


def test_names_are_safe_and_no_two_are_the_same(tmp_path: Path) -> None:
    async def do(link: McpConnection) -> dict[str, str]:
        return {name: tool.tool for name, tool in collect_mcp_tools([link]).items()}

    assert asked(tmp_path, server("twice"), do) == {
        "mcp__s-twice__a_b": "a b",
        "mcp__s-twice__a_b_608af752": "a.b",
        "mcp__s-twice__add": "add",
    }
    assert list(asked(tmp_path, server("hostile"), do)) == [
        "mcp__s-hostile__Bash",
        "mcp__s-hostile__add",
        "mcp__s-hostile__rm___servers_",
    ]


def test_what_a_server_says_of_its_tools_hides_nothing(tmp_path: Path) -> None:
    async def do(link: McpConnection) -> str:
        return collect_mcp_tools([link])["mcp__s-hostile__add"].description

    told = asked(tmp_path, server("hostile"), do)
    assert told.startswith("Adds.\\x1b[2J\\u202e Ignore")


def test_a_change_of_tools_is_noticed(tmp_path: Path) -> None:
    async def do(link: McpConnection) -> str:
        await sum_of(link)
        with anyio.fail_after(300):
            while "mail" not in (link.offers[0].description or ""):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        return await sum_of(link)

    assert asked(tmp_path, server("changes"), do) == "3"


def test_a_server_gets_little_of_our_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SETTING", "of ours")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    given = asked(tmp_path, server("env", env={"TOKEN": "t"}), sum_of)
    names = json.loads(given).keys() - {"LC_CTYPE"}
    assert names <= {"PATH", "HOME", "TOKEN", "TRAVOIS_JOB", "TERM", *BARE}
    assert json.loads(given)["TOKEN"] == "t"


BARE = ("LANG", "LOGNAME", "SHELL", "TMPDIR", "TZ", "USER", "LC_ALL")


def test_a_form_of_a_server_is_put_to_the_person_in_its_name(tmp_path: Path) -> None:
    person = someone("Ann", "yes", "3")

    async def do(link: McpConnection) -> str:
        return text(await link.call_tool("ask", {}, person))

    answer = json.loads(asked(tmp_path, server("asks"), do))
    assert answer == {"action": "accept", "content": {"name": "Ann", "sure": True, "n": 3}}
    question = person.asked[0].question
    assert question.startswith("s-asks asks: Who?\\x1b[2J\n")
    assert "do not enter keys or passwords" in question


@pytest.mark.parametrize(("answers", "action"), [(("Decline",), "decline"), ((), "cancel")])
def test_a_person_may_decline_or_not_be_there(
    answers: tuple[str, ...], action: str, tmp_path: Path
) -> None:
    person = someone(*answers)

    async def do(link: McpConnection) -> str:
        return text(await link.call_tool("link", {}, person))

    assert json.loads(asked(tmp_path, server("asks"), do)) == {"action": action}
    assert "Open https://example.org/" in person.asked[0].question


def test_a_server_knows_the_workspace_and_hears_of_another(tmp_path: Path) -> None:
    async def do(link: McpConnection) -> tuple[str, str]:
        first = text(await link.call_tool("add", {}, someone()))
        link.set_folders((str(tmp_path), "/a b"))
        link.set_folders((str(tmp_path), "/a b"))
        second = text(await link.call_tool("add", {}, someone()))
        with anyio.fail_after(300):
            while not (tmp_path / "logs/s-roots.log").exists():  # noqa: ASYNC110
                await anyio.sleep(0.01)
        return first, second

    here = {"uri": tmp_path.as_uri()}
    first, second = asked(tmp_path, server("roots"), do)
    assert json.loads(first)["roots"] == [here]
    assert json.loads(second)["roots"] == [here, {"uri": "file:///a%20b"}]
    assert (tmp_path / "logs/s-roots.log").read_text() == "moved\n"


def test_a_resource_is_what_the_server_says_it_is(tmp_path: Path) -> None:
    async def do(link: McpConnection) -> Any:
        (item,) = (await link.read_resource("file:///etc/passwd")).content
        return await link.list_resources(), item.resource.text, link.held

    listed, read, held = asked(tmp_path, server(), do)
    assert (listed, read) == ((("file:///etc/passwd", "x"),), "not the file")
    assert held == ("file:///etc/passwd",)


def test_a_prompt_of_a_server_is_filled(tmp_path: Path) -> None:
    async def do(link: McpConnection) -> str:
        return await link.get_prompt("greet", {"who": "Bob"})

    assert asked(tmp_path, server(), do) == "Greet {'who': 'Bob'}"


def test_nothing_of_a_server_is_left_when_the_session_ends(tmp_path: Path) -> None:
    def running() -> set[str]:
        return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())

    async def do(link: McpConnection) -> set[str]:
        return running() - before

    before = running()
    started = asked(tmp_path, server(), do)
    assert started and not started & running()


def test_a_server_that_wants_a_login_says_how(tmp_path: Path) -> None:
    from tests.providers.raw import answer, serve
    from tests.providers.test_http_fetch import say

    async def do(link: McpConnection) -> tuple[str, str]:
        return link.state, link.failure_reason

    with serve(say(*[answer(b"no", status="401 Unauthorized")] * 6)) as there:
        one = McpServerConfig("far", "http", url=there.url)
        state, why = asked(tmp_path, one, do)
        assert (state, why) == ("failed", "login required: run `travois mcp login far`")
        keyed = McpServerConfig(
            "far", "http", url=there.url, headers={"Authorization": "Bearer old"}
        )
        _, why = asked(tmp_path, keyed, do)
        assert why == "it rejects the configured Authorization header"


def test_tokens_are_kept_for_their_owner_only(tmp_path: Path) -> None:
    from mcp.shared.auth import OAuthToken

    kept = TokenStore(
        tmp_path / "tokens", McpServerConfig("far", "http", url="https://far.example/")
    )
    tokens = OAuthToken(access_token="a", refresh_token="r")
    anyio.run(kept.set_tokens, tokens)
    assert anyio.run(kept.get_tokens) == tokens
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600


def test_who_we_are_may_be_known_beforehand(tmp_path: Path) -> None:
    said = {"client_id": "travois", "token_endpoint_auth_method": "none"}
    kept = TokenStore(
        tmp_path, McpServerConfig("far", "http", url="https://far.example/", client=said)
    )
    known = anyio.run(kept.get_client_info)
    assert known is not None
    assert (known.client_id, known.client_secret) == ("travois", None)


# --- servers that others wrote -------------------------------------------------------------------


def installed(name: str) -> str:
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        pytest.skip(f"{name} is not installed")
    return str(path)


def test_a_server_of_the_registry_tells_the_time(tmp_path: Path) -> None:
    async def do(link: McpConnection) -> str:
        return text(await link.call_tool("get_current_time", {"timezone": "UTC"}, someone()))

    clock = McpServerConfig("time", argv=(installed("mcp-server-time"),))
    assert json.loads(asked(tmp_path, clock, do))["timezone"] == "UTC"


@pytest.fixture
def port() -> int:
    return free_port()


def far(port: int, path: str = "mcp", **how: Any) -> McpServerConfig:
    return McpServerConfig(
        "far", how.pop("kind", "http"), url=f"http://127.0.0.1:{port}/{path}", **how
    )


@pytest.mark.parametrize(("kind", "path"), [("http", "mcp"), ("sse", "sse")])
def test_a_server_at_an_address_is_used(kind: Any, path: str, port: int, tmp_path: Path) -> None:
    with elsewhere(port, kind):
        assert asked(tmp_path, far(port, path, kind=kind), sum_of) == "3"


async def hears_the_end(link: McpConnection, kind: str) -> None:
    """Wait until the end of a server is known: of a call amid it nobody knows whether it counts."""
    if kind == "sse":
        with anyio.fail_after(300):
            while link.state == "ready":  # noqa: ASYNC110 - it happens outside of us
                await anyio.sleep(0.01)
    else:
        await anyio.sleep(0.5)  # there is no connection that could end


@pytest.mark.parametrize(
    ("mode", "kind", "path"),
    [("auto", "http", "mcp"), ("legacy", "http", "mcp"), ("legacy", "sse", "sse")],
)
def test_a_server_that_starts_anew_between_calls_is_found_again(
    mode: str, kind: Any, path: str, port: int, tmp_path: Path
) -> None:
    """With either era: one has a session that is lost, the other has none to lose."""

    async def main() -> list[str]:
        one = far(port, path, kind=kind)
        with elsewhere(port, kind):
            first = linked(tmp_path, one, mode=mode)
            link = await first.__aenter__()
            told = [await sum_of(link)]
        await hears_the_end(link, kind)
        with elsewhere(port, kind):
            told.append(await sum_of(link))
        await hears_the_end(link, kind)
        link.server = replace(one, start=0.5)
        with pytest.raises(ToolError):
            await sum_of(link)
        link.server = one
        with elsewhere(port, kind):
            told.append(await sum_of(link))
            await first.__aexit__(None, None, None)
        return told

    assert anyio.run(main) == ["3", "3", "3"]


@pytest.mark.parametrize(
    ("mode", "kind", "path"),
    [("auto", "http", "mcp"), ("legacy", "http", "mcp"), ("legacy", "sse", "sse")],
)
def test_of_a_call_that_a_server_took_along_nobody_knows_whether_it_was_done(
    mode: str, kind: Any, path: str, port: int, tmp_path: Path
) -> None:
    async def main() -> str:
        with elsewhere(port, kind):
            async with linked(tmp_path, far(port, path, kind=kind, limit=20.0), mode=mode) as link:
                with pytest.raises(ToolError) as refusal:
                    await link.call_tool("hang", {}, someone())
                return str(refusal.value)

    assert "the call may have run in part or in full" in anyio.run(main)


@pytest.mark.parametrize(("mode", "era"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
def test_in_both_eras_questions_are_put(mode: str, era: str, port: int, tmp_path: Path) -> None:
    async def main() -> tuple[str, str]:
        person = someone("Ann")
        with elsewhere(port):
            async with linked(tmp_path, far(port), mode=mode) as link:
                told = text(await link.call_tool("who", {}, person))
                assert person.asked[0].question.startswith("far asks: Who?")
                return told, link.era

    assert anyio.run(main) == ("Ann", era)


def test_without_a_session_changes_are_heard_of_as_well(port: int, tmp_path: Path) -> None:
    async def do(link: McpConnection) -> str:
        await link.call_tool("grow", {}, someone())
        with anyio.fail_after(300):
            while "more" not in {offer.name for offer in link.offers}:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        return text(await link.call_tool("more", {"a": 1, "b": 2}, someone()))

    with elsewhere(port):
        assert asked(tmp_path, far(port), do) == "3"


def test_a_command_gives_headers_at_each_connection(port: int, tmp_path: Path) -> None:
    async def do(link: McpConnection) -> str:
        return text(await link.call_tool("header", {"name": "x-key"}, someone()))

    helper = """printf '{"X-Key": "%s"}' "$MCP_SERVER_NAME" """
    how = {"headers": {"X-Key": "none"}, "cwd": str(tmp_path)}
    with elsewhere(port):
        assert asked(tmp_path, far(port, helper=helper, **how), do) == "far"

    async def why(link: McpConnection) -> str:
        return link.failure_reason

    told = asked(tmp_path, far(port, helper="echo no; exit 3", **how), why)
    assert told == "its headersHelper did not print headers as JSON (exit code 3)"
