"""Events as Codex's lines: what a run against the lab does not show."""

from __future__ import annotations

from travois.compat.claude_json import JsonObject
from travois.compose.turn_tally import TurnTally
from travois.core.content import Call, Media, Opaque, Text
from travois.core.facts import Assistant, Compacted, Ended, Entry, Result
from travois.core.models import ModelCard
from travois.headless.codex_json import CodexJsonWriter
from travois.ports.world import Event, RequestRetrying, ToolStarted, UserWarned

SEARCH = Call("1", "WebSearch", '{"query":"herons"}')
LENT = Call("2", "McpCall", '{"tool":"mcp__zoo__feed_all","arguments":{"who":"heron"}}')


def told(*events: Event, teller: CodexJsonWriter | None = None) -> list[JsonObject]:
    teller = teller or CodexJsonWriter()
    return [line for event in events for line in teller.lines(event)]


def entry(fact: Assistant | Result | Compacted) -> Entry:
    return Entry(1, 0.0, fact)


def test_a_search_and_a_tool_of_a_server_are_items_of_their_own() -> None:
    picture = Media("image", "image/png", "ab12", 7)
    lines = told(
        entry(Assistant((SEARCH, LENT), "calls")),
        ToolStarted("1", "WebSearch"),
        entry(Result("1", (Text("1. Herons"),))),
        ToolStarted("2", "mcp__zoo__feed_all"),
        entry(Result("2", (Text("fed"), picture), detail='{"fed":1}')),
    )
    search = {"id": "item_0", "type": "web_search", "query": "herons"}
    lent = {"id": "item_1", "type": "mcp_tool_call", "server": "zoo", "tool": "feed_all"}
    lent |= {"arguments": {"who": "heron"}}
    content = [{"type": "text", "text": "fed"}, {"type": "text", "text": "[image/png]"}]
    result = {"content": content, "structured_content": {"fed": 1}}
    assert lines == [
        {"type": "item.started", "item": search},
        {"type": "item.completed", "item": search},
        {"type": "item.started", "item": {**lent, "status": "in_progress"}},
        {"type": "item.completed", "item": {**lent, "status": "completed", "result": result}},
    ]


def test_words_with_sources_are_said_and_what_only_the_provider_reads_is_not() -> None:
    cited = Opaque("anthropic", "text", "{}", "It is grey.")
    sealed = Opaque("anthropic", "redacted_thinking", "{}")
    (line,) = told(entry(Assistant((sealed, Text("Herons."), cited), "end")))
    item = {"id": "item_0", "type": "agent_message", "text": "Herons.\nIt is grey."}
    assert line == {"type": "item.completed", "item": item}


def test_warnings_and_retries_are_errors_that_end_nothing_and_compactions_are_left_out() -> None:
    lines = told(
        UserWarned("The sandbox is thin"),
        RequestRetrying("overloaded", "Overloaded", 529, 1, 10, 2.0),
        entry(Compacted(1, 2, (), "notes")),
    )
    said = ("The sandbox is thin", "Overloaded; retrying in 2.0 s")
    assert lines == [
        {"type": "item.completed", "item": {"id": f"item_{n}", "type": "error", "message": text}}
        for n, text in enumerate(said)
    ]


def test_a_call_that_was_cut_off_ends_before_the_turn_does() -> None:
    teller, tally = CodexJsonWriter(), TurnTally(ModelCard("lab", "any", "anthropic"))
    command = Call("1", "Bash", '{"command":"sleep 9"}')
    told(entry(Assistant((command,), "calls")), ToolStarted("1", "Bash"), teller=teller)
    tally.ended = Ended("aborted", "interrupted")
    item = {"id": "item_0", "type": "command_execution", "command": "sleep 9", "status": "failed"}
    assert list(teller.closing_lines(tally)) == [
        {"type": "item.completed", "item": {**item, "aggregated_output": "interrupted"}},
        {"type": "turn.failed", "error": {"message": "interrupted"}},
    ]
