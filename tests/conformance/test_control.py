"""The lines between a host and the program, without anybody's client in between."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

import travois_lab as lab
from tests.e2e.program import Program
from travois.core.facts import Changed, Ended
from travois.headless.control.mcp import connect_host_servers, find_host_servers, list_host_tools
from travois.headless.control.messages import ControlResponse, HostConnection, HostDeclined

Line = dict[str, Any]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    folder = tmp_path / "work"
    folder.mkdir()
    return Program(folder, tmp_path / "home")


class Host:
    """A host that writes and reads lines."""

    def __init__(self, program: Program, *flags: str) -> None:
        self._flags = ("--output-format", "stream-json", "--input-format", "stream-json", *flags)
        self.child = program.start(*self._flags, *program.model, stdin=subprocess.PIPE)

    def write(self, *lines: Line | str) -> None:
        assert self.child.stdin is not None
        for line in lines:
            text = line if isinstance(line, str) else json.dumps(line)
            self.child.stdin.write(text.encode() + b"\n")
        self.child.stdin.flush()

    def ask(self, id: str, subtype: str, **more: Any) -> None:
        request = {"subtype": subtype, **more}
        self.write({"type": "control_request", "request_id": id, "request": request})

    def say(self, text: str, **more: Any) -> None:
        self.write({"type": "user", "message": {"role": "user", "content": text}, **more})

    def until(self, wanted: Callable[[Line], bool]) -> list[Line]:
        assert self.child.stdout is not None
        found: list[Line] = []
        for raw in self.child.stdout:
            found.append(json.loads(raw))
            if wanted(found[-1]):
                return found
        raise AssertionError(f"it never came: {found}")

    def answer(self, id: str) -> Line:
        """What the program answered to a request."""
        last = self.until(lambda line: line.get("response", {}).get("request_id") == id)[-1]
        return last["response"]

    def leave(self) -> int:
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.close()
        code = self.child.wait(300)
        self.child.stdout.close()
        return code


def of(kind: str) -> Callable[[Line], bool]:
    return lambda line: line["type"] == kind


def test_garbage_is_answered_and_changes_nothing(program: Program) -> None:
    with lab.server([{"say": "Fine."}]) as api:
        program.url = api.url
        host = Host(program)
        host.write("{not json", "[]", '{"type": 7, "request_id": "r1"}')
        first = host.until(of("control_response"))[-1]["response"]
        assert (first["subtype"], "Line 1" in first["error"]) == ("error", True)
        assert "Expected `str`" in host.answer("r1")["error"]
        host.ask("r2", "teleport")
        host.ask("r3", "set_model", model=["x"])
        host.write({"type": "keep_alive"}, {"type": "control_response", "response": {}})
        host.say("hello")
        lines = host.until(of("result"))
        answers = {
            line["response"].get("request_id"): line["response"].get("error", "")
            for line in lines
            if line["type"] == "control_response"
        }
        assert "Unknown control request 'teleport'" in answers["r2"]
        assert "invalid request: " in answers["r3"]
        assert lines[-1]["result"] == "Fine."
        assert host.leave() == 2


def test_a_message_that_cannot_be_sent_fails_alone(program: Program) -> None:
    with lab.server([{"say": "Fine."}]) as api:
        program.url = api.url
        host = Host(program)
        blocks = [{"type": "hologram"}]
        host.write({"type": "user", "message": {"role": "user", "content": blocks}})
        bad = host.until(of("result"))[-1]
        assert (bad["is_error"], "hologram" in bad["errors"][0]) == (True, True)
        host.say("hello")
        assert host.until(of("result"))[-1]["result"] == "Fine."
        assert host.leave() == 0


def test_a_request_is_answered_while_a_turn_runs(program: Program) -> None:
    call = {"tool_use": {"name": "Bash", "input": {"command": "sleep 30"}}}
    with lab.server([{"say": [call]}, {"say": "Here."}]) as api:
        program.url = api.url
        host = Host(program, "--allowedTools", "Bash")
        host.say("work")
        host.until(of("assistant"))
        host.ask("r1", "get_context_usage")
        assert host.answer("r1")["response"]["totalTokens"] > 0
        host.say("and then")
        host.ask("r2", "interrupt")
        assert host.answer("r2")["subtype"] == "success"
        assert host.until(of("result"))[-1]["subtype"] == "error_during_execution"
        assert host.until(of("result"))[-1]["result"] == "Here."
        assert host.leave() == 0


def test_what_there_is_can_be_asked_for(program: Program) -> None:
    hook = {"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}
    settings = {"hooks": {"PreToolUse": [hook]}, "permissions": {"deny": ["Read(x)"]}}
    with lab.server([{"say": "Fine."}]) as api:
        program.url = api.url
        host = Host(program, "--settings", json.dumps(settings))
        host.ask("r1", "initialize")
        hello = host.answer("r1")["response"]
        assert hello["account"] == {"apiKeySource": "ANTHROPIC_API_KEY"}
        assert hello["output_style"] == "default"
        assert hello["available_output_styles"] == ["default", "Explanatory", "Learning"]
        models = ask(host, "list_models")["models"]
        assert models == hello["models"] == ask(host, "supported_models")["models"]
        assert models[0]["value"] == "anthropic/claude-opus-5-5"
        providers = {one["value"].partition("/")[0] for one in models} - {"local"}
        assert providers == {"anthropic", "openai"}
        assert ask(host, "supported_commands") == {"commands": hello["commands"]}
        assert ask(host, "supported_agents") == {"agents": hello["agents"]}
        styles = hello["available_output_styles"]
        assert ask(host, "reload_output_styles") == {"available_output_styles": styles}
        assert ask(host, "reload_skills") == {"skills": []}
        denied = {"behavior": "deny", "rule": "Read(x)", "source": "--settings"}
        assert denied in ask(host, "list_permission_rules")["rules"]
        heard = {"event": "PreToolUse", "matcher": "Bash", "what": "true", "source": "--settings"}
        assert ask(host, "get_hooks_listing") == {"hooks": [heard]}
        assert host.leave() == 0


def test_a_host_says_how_much_is_thought_in_tokens_or_in_a_word(program: Program) -> None:
    with lab.server([{"say": "Fine.", "repeat": True}]) as api:
        program.url = api.url
        host = Host(program, "--effort", "low")
        host.ask("r1", "initialize", title="Thoughts")
        for tokens, effort in ((31_999, "high"), (64_000, "max"), (None, None)):
            answer = ask(host, "set_max_thinking_tokens", max_thinking_tokens=tokens)
            assert answer == {"effort": effort}
            host.say("hello")
            host.until(of("result"))
        assert ask(host, "apply_flag_settings", settings={"effortLevel": "xhigh"}) == {}
        assert "huge" in ask(host, "update_settings", settings={"effortLevel": "huge"})["error"]
        host.say("hello")
        host.until(of("result"))
        assert ask(host, "apply_flag_settings", settings={"effortLevel": None, "model": None}) == {}
        kept = {"source": "userSettings", "settings": {"effortLevel": "medium"}}
        assert ask(host, "update_settings", **kept) == {}
        other = ask(host, "update_settings", **kept | {"source": "localSettings"})
        assert "Only effortLevel can be saved" in other["error"]
        host.say("hello")
        host.until(of("result"))
        assert host.leave() == 0
        found = [body.get("output_config", {}).get("effort") for body in api.bodies]
    assert found == ["high", "max", None, "xhigh", None]
    assert json.loads((program.home / "settings.json").read_text()) == {"effortLevel": "medium"}
    assert Changed("name", "Thoughts") in [entry.fact for entry in program.facts()]


def ask(host: Host, subtype: str, **more: Any) -> Line:
    """The answer to a request; for one that failed, what the program said."""
    host.ask(f"{subtype} {more}", subtype, **more)
    answer = host.answer(f"{subtype} {more}")
    return answer["response"] if answer["subtype"] == "success" else answer


def test_settings_change_in_a_session_that_goes_on_all_or_none(program: Program) -> None:
    call = {"tool_use": {"name": "Write", "input": {"file_path": "a", "content": "b"}}}
    with lab.server([{"say": [call]}, {"say": "Fine."}]) as api:
        program.url = api.url
        host = Host(program)
        host.ask("r1", "initialize")
        wrong = {"permissions": {"allow": ["Write"], "defaultMode": "plan"}, "mail": {"listen": 1}}
        told = ask(host, "update_settings", settings=wrong)["error"]
        assert told.startswith("mail cannot be changed")
        assert "Write" not in str(ask(host, "list_permission_rules"))
        assert (
            ask(host, "apply_flag_settings", settings={"permissions": {"allow": ["Write"]}}) == {}
        )
        host.say("write")
        assert host.until(of("result"))[-1]["permission_denials"] == []
        assert (program.folder / "a").read_text() == "b"
        assert host.leave() == 0


def test_servers_come_and_go_while_a_session_runs(program: Program) -> None:
    pytest.importorskip("mcp")
    lender = str(Path(__file__).parents[1] / "mcp" / "lender.py")
    entry = {"command": sys.executable, "args": [lender, "none"]}
    first = json.dumps({"mcpServers": {"first": entry}})
    add = {"say": [{"tool_use": {"name": "mcp__later__add", "input": {"a": 1, "b": 2}}}]}
    with lab.server([add, {"say": "3"}, add, {"say": "gone"}]) as api:
        program.url = api.url
        host = Host(program, "--mcp-config", first, "--allowedTools", "mcp__later")
        host.ask("r1", "initialize")
        wanted = {"later": entry, "first": entry, "odd": {}, "in": {"type": "sdk"}}
        told = ask(host, "mcp_set_servers", servers=wanted)
        assert (told["added"], told["removed"], sorted(told["errors"])) == (
            ["later"],
            [],
            ["first", "in", "odd"],
        )
        host.say("add")
        host.until(of("result"))
        assert ask(host, "mcp_set_servers", servers={})["removed"] == ["later"]
        assert [one["name"] for one in ask(host, "mcp_status")["mcpServers"]] == ["first"]
        note = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        assert ask(host, "mcp_message", server_name="first", message=note) == {}
        assert (
            "no MCP server 'x'" in ask(host, "mcp_message", server_name="x", message=note)["error"]
        )
        host.say("add")
        host.until(of("result"))
        assert host.leave() == 0
        said = [str(body["messages"]) for body in api.bodies]
        assert "later: ready, 1 tools" in said[0]
        assert "later: not available (it is disabled)" in said[2]
        assert len({json.dumps((body["system"], body["tools"])) for body in api.bodies}) == 1


def test_a_session_without_servers_takes_them_up_between_two_turns(program: Program) -> None:
    pytest.importorskip("mcp")
    lender = str(Path(__file__).parents[1] / "mcp" / "lender.py")
    later = {"later": {"command": sys.executable, "args": [lender, "none"]}}
    none = {"added": [], "removed": [], "errors": {}}
    wait = {"say": [{"tool_use": {"name": "Bash", "input": {"command": "sleep 30"}}}]}
    add = {"tool_use": {"name": "McpCall", "input": {"tool": "mcp__later__add"}}}
    add["tool_use"]["input"] |= {"arguments": {"a": 1, "b": 2}}
    with lab.server([wait, {"say": [add]}, {"say": "3"}]) as api:
        program.url = api.url
        host = Host(program, "--allowedTools", "mcp__later", "Bash")
        host.say("wait")
        host.until(of("assistant"))
        told = ask(host, "mcp_set_servers", servers=later)
        why = "this session started without MCP servers: try again between turns"
        assert told == none | {"errors": {"later": why}}
        host.ask("r1", "interrupt")
        host.until(of("result"))
        odd = ask(host, "mcp_set_servers", servers={"odd": {"type": "ws", "url": "wss://x"}})
        assert "MCP does not support WebSockets" in odd["errors"]["odd"]
        assert ask(host, "mcp_set_servers", servers=later) == none | {"added": ["later"]}
        host.say("add")
        lines = [line for line in host.until(of("result")) if line["type"] == "user"]
        answered = [line for line in lines if "isSynthetic" not in line]
        assert answered[-1]["message"]["content"][0]["content"] == [{"type": "text", "text": "3"}]
        assert host.leave() == 0
        api.no_invalid()
        heads = [{tool["name"] for tool in body["tools"]} for body in api.bodies]
        assert heads[1] - heads[0] == {
            "ListMcpResources",
            "ReadMcpResource",
        }
        assert heads[1] == heads[2]


def test_a_host_reads_what_the_model_may_read_and_nothing_else(program: Program) -> None:
    (program.folder / "a.txt").write_text("grün\n")
    (program.folder / "raw").write_bytes(b"\xff\x00")
    (program.folder / "secret.txt").write_text("s")
    (program.folder / "way").symlink_to("secret.txt")
    edit = {"file_path": "a.txt", "old_string": "grün", "new_string": "rot"}
    script = [{"say": [{"tool_use": {"name": "Edit", "input": edit}}]}, {"say": "Fine."}]
    with lab.server(script) as api:
        program.url = api.url
        host = Host(program, "--disallowedTools", "Read(secret.txt)", "--allowedTools", "Edit")
        host.ask("r1", "initialize")
        whole = str(program.folder / "a.txt")
        assert ask(host, "read_file", path="a.txt") == {"contents": "grün\n", "absPath": whole}
        cut = {"contents": "gr", "absPath": whole, "truncated": True}
        assert ask(host, "read_file", path=whole, max_bytes=3) == cut
        assert "is not UTF-8" in ask(host, "read_file", path="raw")["error"]
        assert ask(host, "read_file", path="raw", encoding="base64")["contents"] == "/wA="
        for path in ("secret.txt", "way", "./x/../secret.txt", "/etc/passwd"):
            told = [ask(host, how, path=path, mtime=9e15)["error"] for how in READS]
            assert ["may not be read" in one for one in told] == [True, True], path
        assert "cannot be read" in ask(host, "read_file", path=".")["error"]

        seen = int((program.folder / "a.txt").stat().st_mtime * 1000)
        assert (
            "changed since" in ask(host, "seed_read_state", path="a.txt", mtime=seen - 1)["error"]
        )
        assert ask(host, "seed_read_state", path="a.txt", mtime=seen) == {}
        host.say("edit")
        host.until(of("result"))
        assert (program.folder / "a.txt").read_text() == "rot\n"
        assert host.leave() == 0


READS = ("read_file", "seed_read_state")


def test_plugins_bring_their_commands_to_a_session_that_goes_on(program: Program) -> None:
    plugin = program.folder.parent / "plugin"
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / ".claude-plugin" / "plugin.json").write_text('{"name": "p"}')
    with lab.server([{"say": "Fine."}]) as api:
        program.url = api.url
        host = Host(program, "--plugin-dir", str(plugin))
        host.ask("r1", "initialize")
        assert host.answer("r1")["response"]["commands"] == []
        (plugin / "commands").mkdir()
        (plugin / "commands" / "greet.md").write_text("Say hello to $ARGUMENTS.")
        told = ask(host, "reload_plugins")
        assert [one["name"] for one in told["commands"]] == ["p:greet"]
        assert told["plugins"] == [{"name": "p", "path": str(plugin)}]
        assert (told["mcpServers"], told["error_count"]) == ([], 0)
        host.say("/p:greet Ann")
        host.until(of("result"))
        assert host.leave() == 0
        assert "Say hello to Ann." in str(api.bodies[-1]["messages"])


def test_a_question_is_taken_back_when_its_turn_is_interrupted(program: Program) -> None:
    call = {"tool_use": {"name": "Write", "input": {"file_path": "a", "content": "b"}}}
    with lab.server([{"say": [call]}]) as api:
        program.url = api.url
        host = Host(program, "--permission-prompt-tool", "stdio")
        host.say("write")
        asked = host.until(of("control_request"))[-1]
        assert asked["request"]["tool_name"] == "Write"
        host.ask("r1", "interrupt")
        lines = host.until(of("result"))
        cancelled = {"type": "control_cancel_request", "request_id": asked["request_id"]}
        assert cancelled in lines
        assert host.leave() == 1


def test_a_host_that_goes_away_leaves_a_session_to_resume(program: Program) -> None:
    call = {"tool_use": {"name": "Bash", "input": {"command": "sleep 60"}}}
    with lab.server([{"say": [call]}, {"say": "Back."}]) as api:
        program.url = api.url
        host = Host(program, "--allowedTools", "Bash")
        host.say("work")
        session = host.until(of("assistant"))[-1]["session_id"]
        assert host.child.stdout is not None and host.child.stdin is not None
        host.child.stdout.close()
        host.child.stdin.close()
        assert host.child.wait(300) == 1
        assert host.child.stderr is not None
        assert program.without_limits(host.child.stderr.read().decode()) == ""
        ended = [entry.fact for entry in program.facts() if isinstance(entry.fact, Ended)]
        assert [fact.why for fact in ended] == ["aborted"]
        assert program.ask("again", "--resume", session).out == "Back.\n"
        api.no_invalid()


def test_a_host_that_can_no_longer_answer_says_no(program: Program) -> None:
    call = {"tool_use": {"name": "Write", "input": {"file_path": "a", "content": "b"}}}
    with lab.server([{"say": [call]}, {"say": "I may not."}]) as api:
        program.url = api.url
        host = Host(program, "--permission-prompt-tool", "stdio")
        host.say("write")
        host.until(of("control_request"))
        assert host.child.stdin is not None
        host.child.stdin.close()
        assert host.until(of("result"))[-1]["result"] == "I may not."
        assert host.child.wait(300) == 0


def test_text_output_is_the_form_that_was_asked_for(program: Program) -> None:
    call = {"tool_use": {"name": "StructuredOutput", "input": {"value": [1, 2]}}}
    with lab.server([{"say": [call]}, {"say": "Done."}]) as api:
        program.url = api.url
        shape = '{"type": "array", "items": {"type": "integer"}}'
        assert program.ask("list", "--json-schema", shape).out == "[1,2]\n"
        bad = program.ask("list", "--json-schema", "{")
    assert (bad.code, "--json-schema is not JSON" in bad.err) == (2, True)


# --- the desk -------------------------------------------------------------------------------------


def test_answers_find_their_questions_in_any_order() -> None:
    said: list[Line] = []
    desk = HostConnection(said.append)
    found: dict[str, Any] = {}

    async def ask(name: str) -> None:
        try:
            found[name] = msgspec.json.decode(await desk.request("can_use_tool", {"n": name}))
        except HostDeclined as declined:
            found[name] = str(declined)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for name in "abc":
                group.start_soon(ask, name)
            await anyio.wait_all_tasks_blocked()
            ids = {line["request"]["n"]: line["request_id"] for line in said}
            desk.resolve(ControlResponse(ids["b"], response=msgspec.Raw(b'{"x":1}')))
            desk.resolve(ControlResponse(ids["a"], "error", error="no"))
            desk.resolve(ControlResponse("unknown"))
            await anyio.wait_all_tasks_blocked()
            desk.close()
        await ask("d")

    anyio.run(main)
    gone = "the client has disconnected"
    assert found == {"b": {"x": 1}, "a": "no", "c": gone, "d": gone}
    assert len(said) == 3


def test_a_question_that_is_given_up_is_taken_back() -> None:
    said: list[Line] = []
    desk = HostConnection(said.append)

    async def main() -> None:
        with anyio.move_on_after(0.01):
            await desk.request("hook_callback", {})
        desk.resolve(ControlResponse("travois_1"))

    anyio.run(main)
    assert said[-1] == {"type": "control_cancel_request", "request_id": "travois_1"}


class Server:
    """A server in the host, of one era or the other."""

    def __init__(self, era: str) -> None:
        self._era = era
        self.sent: list[Line] = []
        self.desk = HostConnection(self._hear)
        self._answers: list[ControlResponse] = []

    def _hear(self, line: Line) -> None:
        carried = msgspec.json.encode({"mcp_response": self._reply(line["request"]["message"])})
        self._answers.append(ControlResponse(line["request_id"], response=msgspec.Raw(carried)))

    def _reply(self, message: Line) -> Line:
        self.sent.append(message)
        if message["method"] == "initialize" and self._era == "stateless":
            return {"error": {"code": -32601, "message": "Method not found"}}
        if message["method"] == "tools/list" and not message["params"].get("cursor"):
            return {"result": {"tools": [{"name": "one"}], "nextCursor": "p2"}}
        if message["method"] == "tools/list":
            return {"result": {"tools": [{"name": "two", "inputSchema": {"type": "object"}}]}}
        return {"result": {"serverInfo": {"name": "s", "version": "1"}}}

    async def answer(self) -> None:
        while True:
            await anyio.lowlevel.checkpoint()
            if self._answers:
                self.desk.resolve(self._answers.pop(0))


HANDSHAKE = ["initialize", "notifications/initialized", "tools/list", "tools/list"]
STATELESS = ["initialize", "server/discover", "tools/list", "tools/list"]
VERSION = "io.modelcontextprotocol/protocolVersion"


@pytest.mark.parametrize(
    ("era", "methods", "version"),
    [("handshake", HANDSHAKE, None), ("stateless", STATELESS, "2026-07-28")],
)
def test_servers_of_both_eras_tell_their_tools(
    era: str, methods: list[str], version: str | None
) -> None:
    host = Server(era)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(host.answer)
            servers = await connect_host_servers(host.desk, ("s",))
            assert servers["s"].full_status()["tools"] == [{"name": "one"}, {"name": "two"}]
            assert [tool.name for tool in list_host_tools(servers.values())] == [
                "mcp__s__one",
                "mcp__s__two",
            ]
            group.cancel_scope.cancel()

    anyio.run(main)
    assert [message["method"] for message in host.sent] == methods
    assert host.sent[-1]["params"].get("_meta", {}).get(VERSION) == version


def test_a_server_that_fails_offers_nothing_and_says_why() -> None:
    def refuse(line: Line) -> None:
        desk.close()

    desk = HostConnection(refuse)

    async def main() -> None:
        servers = await connect_host_servers(desk, ("s",))
        assert (servers["s"].status, list_host_tools(servers.values())) == ("failed", ())
        assert "disconnected" in str(servers["s"].full_status()["error"])

    anyio.run(main)


def test_only_servers_of_the_host_are_asked_over_its_pipes() -> None:
    config = {"mcpServers": {"a": {"type": "sdk", "name": "a"}, "b": {"command": "b"}}}
    assert find_host_servers((json.dumps(config), "servers.json")) == ("a",)
