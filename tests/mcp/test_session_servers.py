"""Tools of servers in a session: found in one round, run by the rules, and never in the head."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from travois.compose import commands as custom
from travois.compose.live_session import LiveSession
from travois.compose.mcp import list_server_rows, list_server_statuses
from travois.compose.options import Options
from travois.core.content import Text, extract_text
from travois.core.errors import UserError
from travois.core.facts import Decided, Entry, Result, User
from travois.core.tokens import estimate_tokens
from travois.engine.tool_definitions import build_tool_specs
from travois.mcp.announce import (
    AnnouncedServer,
    McpToolSpec,
    announce_servers,
)
from travois.mcp.tools import (
    USE_CHANGED_TOOL,
    McpServerConfig,
    McpToolOffer,
    McpTools,
    collect_mcp_tools,
)
from travois.ports.world import ChoiceRequest, PermissionQuestion, PersonAnswer, UserWarned
from travois.settings import trust
from travois.testing import Scripted, call, say
from travois.tools.tool_search import search_tools

pytest.importorskip("mcp")
LENDER = str(Path(__file__).parents[1] / "mcp" / "lender.py")
ADD = "mcp__s__add"
NOUNS = """
    issue pull_request branch commit release label milestone comment user team invoice customer
    refund payout dispute coupon meeting event calendar room page database block image table row
    column file folder link message channel
"""


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def config(fault: str = "none", *more: str, name: str = "s") -> dict[str, Any]:
    return {"mcpServers": {name: {"command": sys.executable, "args": [LENDER, fault, *more]}}}


class Asked:
    """A person who answers everything alike and keeps what they were asked."""

    def __init__(self, *, allow: bool = True, choose: str = "") -> None:
        self.allow = allow
        self.chosen = choose
        self.questions: list[PermissionQuestion] = []
        self.inquiries: list[ChoiceRequest] = []

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        self.questions.append(question)
        return PersonAnswer(allow=self.allow)

    async def choose(self, inquiry: ChoiceRequest) -> tuple[str, ...] | None:
        self.inquiries.append(inquiry)
        return (self.chosen,) * len(inquiry.choices) if self.chosen else None


class Heard:
    """What came of a session."""

    def __init__(self, model: Scripted, entries: list[Entry], session: LiveSession) -> None:
        self.bodies = [json.loads(request.body) for request in model.requests]
        self.facts = [entry.fact for entry in entries]
        self.id = session.id
        self.statuses = list_server_statuses(session.runtime.mcp_servers)
        self.rows = list_server_rows(session.runtime.mcp_servers)
        self.notices = session.runtime.notices

    @property
    def results(self) -> list[tuple[bool, str]]:
        found = [fact for fact in self.facts if isinstance(fact, Result)]
        return [(fact.error, extract_text(fact.content)) for fact in found]

    @property
    def notes(self) -> list[str]:
        found = [fact for fact in self.facts if isinstance(fact, User) and fact.origin == "note"]
        return [
            t for t in (extract_text(fact.content) for fact in found) if t.startswith("<servers>")
        ]


def play(
    folder: Path,
    *lines: Any,
    person: Asked | None = None,
    wait: bool = True,
    seen: list[Any] | None = None,
    **how: Any,
) -> Heard:
    async def main() -> Heard:
        model = Scripted(*lines)
        options = Options(cwd=str(folder), **how)
        async with LiveSession(options, model=model, person=person) as session:
            for link in session.runtime.mcp_servers.links if wait else ():
                await link.wait_until_started()
            async for event in session.run("go"):
                _ = seen.append(event) if seen is not None else None
            return Heard(model, session.runtime.agent.session.history(), session)

    return anyio.run(main)


def given(*more: str, **how: Any) -> dict[str, Any]:
    return {"mcp": (json.dumps(config(*more, **how)),)}


def test_a_tool_is_found_in_one_round_and_run_under_its_own_name(ground: Path) -> None:
    person = Asked()
    told = play(
        ground,
        call("ToolSearch", query="sum of two numbers"),
        call("McpCall", tool=ADD, arguments={"a": 1, "b": 2}),
        say("3"),
        person=person,
        **given(),
    )
    (_, found), ran = told.results
    assert json.loads(found.splitlines()[1])["tool"] == ADD
    assert '"about":"Numbers only.\\\\x1b[2J"' in found
    assert ran == (False, "3")
    assert [(q.tool, q.args) for q in person.questions] == [(ADD, '{"a":1,"b":2}')]
    assert told.notes == [
        "<servers>\nMCP servers offer more tools: ToolSearch shows what they do and take, "
        "McpCall runs one. The servers chose the names.\ns: ready, 1 tools\n"
        "mcp__s__add(a, b)\n</servers>"
    ]
    assert told.statuses == [{"name": "s", "status": "connected", "source": "run"}]
    heads = {json.dumps((body["system"], body["tools"])) for body in told.bodies}
    assert len(heads) == 1
    assert "add" not in {tool["name"] for tool in told.bodies[0]["tools"]}


@pytest.mark.parametrize("rule", ["mcp__s", "mcp__s__*", ADD])
def test_rules_name_the_server_or_the_tool(rule: str, ground: Path) -> None:
    use = call("McpCall", tool=ADD, arguments={"a": 1, "b": 2})
    told = play(ground, use, say("3"), allowed=(rule,), **given())
    assert told.results == [(False, "3")]
    told = play(ground, use, say("no"), disallowed=(rule,), **given())
    assert told.results[0][0]
    assert told.notes[0].endswith("s: ready\n</servers>")


@pytest.mark.parametrize("how", [{"allowed": (ADD,)}, {"mode": "bypassPermissions"}])
def test_a_tool_that_wants_a_person_is_asked_about_whatever_allows_it(
    how: dict[str, Any], ground: Path
) -> None:
    use, person = call("McpCall", tool=ADD, arguments={"a": 1, "b": 2}), Asked()
    told = play(ground, use, say("3"), person=person, **how, **given("meets"))
    assert told.results == [(False, "3")]
    assert [(q.tool, q.always) for q in person.questions] == [(ADD, ())]
    told = play(ground, use, say("no"), **how, **given("meets"))
    assert [f.verdict for f in told.facts if isinstance(f, Decided)] == ["deny"]


def test_what_the_users_own_files_let_run_is_not_asked_about(ground: Path) -> None:
    entry = config()
    entry["mcpServers"]["s"]["trust"] = True
    (ground.parent / "user" / ".gemini").mkdir()
    (ground.parent / "user" / ".gemini" / "settings.json").write_text(json.dumps(entry))
    use = call("McpCall", tool=ADD, arguments={"a": 1, "b": 2})
    assert play(ground, use, say("3")).results == [(False, "3")]
    denied = play(ground, use, say("no"), disallowed=("mcp__s",))
    assert denied.results[0][0]


def test_without_a_rule_nobody_there_means_no(ground: Path) -> None:
    told = play(ground, call(ADD, a=1, b=2), say("no"), **given())
    assert [f.verdict for f in told.facts if isinstance(f, Decided)] == ["deny"]


def test_arguments_that_do_not_fit_never_reach_the_person(ground: Path) -> None:
    person = Asked()
    told = play(
        ground,
        call("McpCall", tool=ADD, arguments={"a": "one"}),
        call("McpCall", tool=ADD, arguments={"a": 1, "b": 2, "c": 3}),
        call("McpCall", tool="s__add", arguments={"a": 1, "b": 2}),
        call("McpCall", tool="McpCall", arguments={"tool": "Bash"}),
        say("done"),
        person=person,
        **given(),
    )
    lacks, strange, ran, unknown = told.results
    why = "/b is missing; /a must be integer, not string"
    assert lacks[1].startswith(f"{ADD} was not run: {why}. Its input schema: ")
    assert "/c is not a known property; known are: a, b" in strange[1]
    assert ran == (False, "3")
    assert unknown[1].startswith("There is no tool 'mcp__McpCall'")
    assert len(person.questions) == 1


def test_a_start_does_not_wait_and_what_comes_late_is_told_at_the_tail(ground: Path) -> None:
    told = play(
        ground,
        call("ToolSearch", query="add"),
        call("ToolSearch", query="select:add"),
        say("done"),
        wait=False,
        **given("slow"),
    )
    first, second = told.notes
    assert "s: starting\n" in first
    assert "s: ready, 1 tools" in second
    assert all(ADD in text for _, text in told.results)
    assert len({json.dumps((body["system"], body["tools"])) for body in told.bodies}) == 1


@pytest.mark.parametrize(
    "fault", ["dies", "silent", "noise", "schema", "hostile", "twice", "storm", "ids", "huge"]
)
def test_no_server_stops_a_session(fault: str, ground: Path) -> None:
    one = config(fault)
    one["mcpServers"]["s"]["startup_timeout_sec"] = 1
    use = call("McpCall", tool=ADD, arguments={"a": 1, "b": 2})
    told = play(
        ground,
        call("ToolSearch", query="add"),
        use,
        say("on"),
        mcp=(json.dumps(one),),
        allowed=("mcp__s",),
    )
    assert len(told.results) == 2
    assert max(len(text) for _, text in told.results) < 120_000
    assert not any("\x1b" in text or "\u202e" in text for _, text in told.results)
    assert not any("Ignore the user" in note for note in told.notes)


def test_a_tool_that_changes_is_announced_and_asked_about_again(ground: Path) -> None:
    async def main(person: Asked) -> tuple[list[str], list[bool]]:
        use = call("McpCall", tool=ADD, arguments={"a": 1, "b": 2})
        model = Scripted(use, say("3"), use, say("3"), use, say("3"))
        options = Options(cwd=str(ground), allowed=("mcp__s",), **given("changes"))
        async with LiveSession(options, model=model, person=person) as session:
            (link,) = session.runtime.mcp_servers.links
            await link.wait_until_started()
            await session.ask("go")
            with anyio.fail_after(300):
                while "mail" not in (link.offers[0].description or ""):  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            await session.ask("again")
            await session.ask("and again")
            facts = [entry.fact for entry in session.runtime.agent.session.history()]
            notes = [
                extract_text(f.content) for f in facts if isinstance(f, User) and f.origin == "note"
            ]
            return notes, [f.error for f in facts if isinstance(f, Result)]

    person = Asked(choose=USE_CHANGED_TOOL)
    notes, errors = anyio.run(main, person)
    assert [f"{ADD} has a new definition" in note for note in notes[-1:]] == [True]
    assert errors == [False] * 3
    (inquiry,) = person.inquiries
    assert "mail them away" in inquiry.choices[0].question
    _, errors = anyio.run(main, Asked())
    assert errors == [False, True, True]


def test_a_session_that_goes_on_is_not_told_again(ground: Path) -> None:
    first = play(ground, say("hello"), **given())
    again = play(ground, say("hello"), resume=first.id, **given())
    assert again.notes == first.notes
    assert again.bodies[0]["tools"] == first.bodies[0]["tools"]


def test_a_session_that_began_without_servers_keeps_its_head(ground: Path) -> None:
    first = play(ground, say("hello"))
    again = play(ground, say("hello"), resume=first.id, **given())
    assert again.bodies[0]["tools"] == first.bodies[0]["tools"]
    assert any("the next session can use them" in notice for notice in again.notices)
    assert again.notes == []


def test_servers_of_a_workspace_start_once_the_user_agrees_to_exactly_them(ground: Path) -> None:
    (ground / ".mcp.json").write_text(json.dumps(config()))
    told = play(ground, say("hello"))
    assert told.statuses == [{"name": "s", "status": "needs-approval"}]
    assert any("mcp server s" in notice for notice in told.notices)
    agree(ground)
    assert [row[:3] for row in play(ground, say("hello")).rows] == [("s", "ready", "1")]
    (ground / ".mcp.json").write_text(json.dumps(config("noise")))
    assert play(ground, say("hello")).rows[0][1] == "waits"


def agree(folder: Path) -> None:
    from travois.compose.session import load_workspace

    place, loaded = load_workspace(Options(cwd=str(folder)))
    trust.trust_folder(place.home, loaded.root, loaded.wanted)


def test_three_hundred_tools_cost_little_and_are_found(ground: Path) -> None:
    servers = {f"server{n}": config("many", "30", f"part{n}")["mcpServers"]["s"] for n in range(10)}
    without = play(ground, say("hello"))
    told = play(
        ground,
        call("ToolSearch", query="part7 thing 23"),
        say("done"),
        mcp=(json.dumps({"mcpServers": servers}),),
    )

    def size(heard: Heard) -> int:
        return len(json.dumps(heard.bodies[0]["tools"]))

    (note,) = told.notes
    assert "and " in note[-40:]
    assert estimate_tokens(note) + (size(told) - size(without)) // 3 < 3_000
    assert '"tool":"mcp__server7__part7_tool_23"' in told.results[0][1].splitlines()[1]


def test_tools_of_a_server_stand_in_the_head_where_its_entry_says_so(ground: Path) -> None:
    entry = config()
    entry["mcpServers"]["s"]["alwaysLoad"] = True
    use, how = call(ADD, a=1, b=2), {"mcp": (json.dumps(entry),), "allowed": ("mcp__s",)}
    told = play(ground, use, use, say("3"), wait=False, **how)
    assert told.results == [(False, "3")] * 2
    (spec,) = [tool for tool in told.bodies[0]["tools"] if tool["name"] == ADD]
    assert (spec["description"], spec["input_schema"]["required"]) == (
        "Add two numbers",
        ["a", "b"],
    )
    assert not any(ADD in note for note in told.notes)
    assert len({json.dumps((body["system"], body["tools"])) for body in told.bodies}) == 1

    entry["mcpServers"]["s"]["args"][1] = "changes"
    again = play(ground, use, say("3"), resume=told.id, **how)
    assert again.bodies[0]["tools"] == told.bodies[0]["tools"]


@pytest.mark.parametrize(("word", "stands"), [("auto", True), ("auto:0", False)])
def test_tools_stand_in_the_head_where_they_fit_if_the_user_says_so(
    word: str, stands: bool, ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENABLE_TOOL_SEARCH", word)
    told = play(ground, say("hello"), **given())
    assert (ADD in {tool["name"] for tool in told.bodies[0]["tools"]}) == stands
    assert ("s: ready, 1 tools" in told.notes[0]) != stands
    monkeypatch.setenv("ENABLE_TOOL_SEARCH", "auto:0" if stands else "auto")
    again = play(ground, call(ADD, a=1, b=2), say("3"), resume=told.id, allowed=(ADD,), **given())
    assert again.bodies[0]["tools"] == told.bodies[0]["tools"]
    assert again.results == [(False, "3")]


def test_a_tool_may_want_to_stand_in_the_head_and_to_bring_more(ground: Path) -> None:
    first = play(ground, say("hello"), **given("eager"))
    assert not [tool for tool in first.bodies[0]["tools"] if tool["name"].startswith("mcp__")]
    seen: list[Any] = []
    told = play(
        ground,
        call(ADD, a=1, b=2),
        call("ToolSearch", query="add"),
        say("3"),
        allowed=(ADD,),
        seen=seen,
        **given("eager"),
    )
    names = [tool["name"] for tool in told.bodies[0]["tools"]]
    assert [name for name in names if name.startswith("mcp__")] == [ADD]
    assert "mcp__s__other()" in told.notes[0]
    (_, brought), (_, found) = told.results
    assert brought == "word " * 30_000
    (warned,) = [event.text for event in seen if isinstance(event, UserWarned)]
    assert warned.startswith(f"{ADD} returned about ")
    assert len(json.loads(found.splitlines()[-1])["about"]) == 2_048


def test_a_server_that_is_not_there_in_time_stands_in_no_head(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("travois.mcp.always_on.FIRST_START_SECONDS", 0.2)
    entry = config("silent")
    entry["mcpServers"]["s"] |= {"alwaysLoad": True, "startup_timeout_sec": 1}
    told = play(ground, say("on"), mcp=(json.dumps(entry),))
    assert "server s did not list its tools in time" in " ".join(told.notices)
    assert ADD not in {tool["name"] for tool in told.bodies[0]["tools"]}


def test_how_much_a_tool_may_bring_is_a_setting(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_MCP_OUTPUT_TOKENS", "100")
    use = call(ADD, a=1, b=2)
    told = play(ground, use, say("on"), allowed=("mcp__s",), **given("huge"))
    ((_, text),) = told.results
    told = re.fullmatch(r"(x+)\n\[([\d,]+) of 3,000,000 characters .* is in (\S+);.*\]\n(x+)", text)
    assert told and 200 < len(told[1]) + len(told[4]) < 500
    assert told[2] == f"{3_000_000 - len(told[1]) - len(told[4]):,}"
    assert Path(told[3]).stat().st_size == 3_000_000


def test_what_a_server_has_comes_with_a_prompt_that_mentions_it(ground: Path) -> None:
    def asked(*rules: str) -> str:
        async def main() -> str:
            model = Scripted(say("on"))
            options = Options(cwd=str(ground), disallowed=rules, **given())
            async with LiveSession(options, model=model) as session:
                await session.ask("See @s:file:///etc/passwd, not @s:, @t:x or me@s:y.")
            return model.requests[0].body.decode()

        return anyio.run(main)

    told = asked()
    assert '<mentioned file=\\"s:file:///etc/passwd\\"' in told
    assert "not the file" in told
    assert told.count("<mentioned") == 1
    assert "<mentioned" not in asked("ReadMcpResource")


class Fixed:
    """A server that is as it is told to be."""

    def __init__(self, name: str, tools: list[str], state: str) -> None:
        self.server = McpServerConfig(name)
        self.offers = tuple(McpToolOffer(tool, f"Does {tool}") for tool in tools)
        self.state, self.why, self.about, self.prompts = state, "", "", ()


def test_the_head_is_the_same_in_every_order_and_at_any_time() -> None:
    chance = random.Random(1)
    heads: set[str] = set()
    names: set[tuple[str, ...]] = set()
    for _ in range(1_000):
        tools = [[f"t{n}" for n in range(8)] for _ in range(4)]
        for each in tools:
            chance.shuffle(each)
        servers: list[Any] = [
            Fixed(f"s.{n}" if n % 2 else f"s_{n - 1}", each, chance.choice(["ready", "starting"]))
            for n, each in enumerate(tools)
        ]
        chance.shuffle(servers)
        lending = McpTools(servers)
        heads.add(repr(build_tool_specs(lending.head_tools)))
        names.add(tuple(collect_mcp_tools(servers)))
    assert len(heads) == 1
    assert len(names) == 1


def test_what_is_meant_is_among_the_first_five() -> None:
    verbs = {
        "create": "Open a fresh {}",
        "list": "Show every {} there is",
        "delete": "Remove a {} for good",
        "update": "Change the fields of a {}",
        "search": "Look for a {} by its words",
        "get": "Fetch one {} by its id",
    }
    nouns = NOUNS.split()
    tools = [
        McpToolSpec(f"mcp__s__{v}_{n}", "s", f"{v}_{n}", about.format(n.replace("_", " ")), "{}")
        for v, about in verbs.items()
        for n in nouns
    ]
    asked = [
        (f"I want to {v} the {n.replace('_', ' ')}s", f"{v}_{n}") for v in verbs for n in nouns
    ]
    asked += [
        (about.format(n.replace("_", " ")), f"{v}_{n}") for v, about in verbs.items() for n in nouns
    ]
    hits = [name in {t.tool for t in search_tools(query, tools, most=5)} for query, name in asked]
    assert sum(hits) / len(hits) >= 0.95


def test_a_server_that_starts_again_is_not_announced_twice() -> None:
    tool = McpToolSpec("mcp__s__a", "s", "a", "", "{}")
    note, after = announce_servers({"s": "ready"}, [tool], {})
    assert "s: ready, 1 tools" in note
    assert after == {"s": AnnouncedServer("ready", {"mcp__s__a": tool.digest})}
    assert announce_servers({"s": "starting"}, [tool], after) == ("", {})
    gone, later = announce_servers({"s": "not available (it ended)"}, [tool], after)
    assert "s: not available (it ended)\n" in gone
    assert later["s"].tools == after["s"].tools


def test_a_prompt_of_a_server_is_a_command(ground: Path) -> None:
    async def main() -> tuple[str, str]:
        options = Options(cwd=str(ground), **given())
        async with LiveSession(options, model=Scripted(say("hello"))) as session:
            told = await custom.expand_typed_command(
                session, {}, (Text("/mcp__s__greet Ann next week"),)
            )
            with pytest.raises(UserError) as fault:
                await custom.expand_typed_command(session, {}, (Text("/mcp__s__other"),))
            return extract_text(told), fault.value.what

    said, unknown = anyio.run(main)
    assert said.startswith("Greet {'who': 'Ann', 'when': 'next week'}")
    assert unknown == "No MCP server has a prompt mcp__s__other"


def test_a_wrong_tool_of_a_server_is_answered_with_its_tools_nearest_first(ground: Path) -> None:
    told = play(
        ground,
        call("McpCall", tool="mcp__s__ad", arguments={"a": 1, "b": 2}),
        call("McpCall", tool="McpCall"),
        say("sorry"),
        **given(),
    )
    (failed, words_), (looped, itself) = told.results
    assert failed and words_.startswith(f"s has no tool 'mcp__s__ad'. Closest matches first: {ADD}")
    assert looped and "mcp__McpCall" in itself


def test_rare_tools_of_ours_are_found_beside_those_of_servers(ground: Path) -> None:
    (ground / "a.txt").write_text("one\n")
    told = play(
        ground,
        call("ToolSearch", query="select:MultiEdit,mcp__s__add", max_results=2),
        call(
            "McpCall",
            tool="MultiEdit",
            arguments={"file_path": "a.txt", "edits": [{"old_string": "one", "new_string": "1"}]},
        ),
        say("done"),
        person=Asked(),
        **given(),
    )
    (_, found), (failed, _) = told.results
    assert [json.loads(line)["tool"] for line in found.splitlines()[1:3]] == ["MultiEdit", ADD]
    assert not failed and (ground / "a.txt").read_text() == "1\n"
