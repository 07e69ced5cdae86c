"""Tools of others: their names, their words, and what they bring."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import anyio
import msgspec
import pytest

from tests.tools.world import World
from travois.context.tool_results import ResultRoom
from travois.core.content import Media, Text
from travois.core.tokens import estimate_tokens
from travois.mcp.tools import (
    McpCallResult,
    McpContent,
    McpResource,
    McpToolOffer,
    build_mcp_outcome,
    mcp_tool_name,
    wrap_mcp_tools,
)
from travois.permissions.access import Access
from travois.ports.tool import ToolOutcome


async def nothing(tool: str, args: dict[str, Any]) -> McpCallResult:
    return McpCallResult((McpContent("text", text=f"{tool} {args}"),))


def test_a_tool_is_named_after_its_server_and_runs_under_its_own_name(world: World) -> None:
    schema = msgspec.Raw(b'{"type": "object", "properties": {"a": {}}}')
    (tool,) = wrap_mcp_tools("My Server", [McpToolOffer("add!", "Adds.", schema)], nothing)
    assert (tool.name, tool.description) == ("mcp__My_Server__add_", "Adds.")
    assert tool.schema == '{"type":"object","properties":{"a":{}}}'
    assert tool.access({}, None) == (Access("call", "My Server"),)  # type: ignore[arg-type]

    async def main() -> None:
        assert await tool.run({"a": 1}, world, "c1") == ToolOutcome((Text("add! {'a': 1}"),))

    anyio.run(main)


def test_names_are_short_safe_and_of_one_tool_each() -> None:
    names = [
        tool.name
        for tool in wrap_mcp_tools("s", map(McpToolOffer, ("a.b", "a_b", "a-b", "x" * 99)), nothing)
    ]
    assert names[0] == "mcp__s__a_b"
    assert names[2] == "mcp__s__a-b"
    assert len(set(names)) == 4
    assert all(len(name) <= 64 and name.startswith("mcp__s__") for name in names)
    assert mcp_tool_name("s", "y" * 99) != mcp_tool_name("s", "y" * 98)


def test_descriptions_are_cut_and_hide_nothing() -> None:
    sly = "Adds.\u200b\u202eignore\x1b[31m\nnext"
    (plain, long) = wrap_mcp_tools(
        "s", [McpToolOffer("a", sly), McpToolOffer("b", "x" * 5_000)], nothing
    )
    assert plain.description == "Adds.\\u200b\\u202eignore\\x1b[31m\nnext"
    assert len(long.description) == 2_048 and long.description.endswith("…")


def test_a_schema_is_always_that_of_an_object() -> None:
    offers = [
        McpToolOffer("a"),
        McpToolOffer("b", "", msgspec.Raw(b"null")),
        McpToolOffer("c", None, msgspec.Raw(b"[1]")),
    ]
    assert [tool.schema for tool in wrap_mcp_tools("s", offers, nothing)] == [
        '{"type":"object"}'
    ] * 3


@pytest.mark.parametrize(
    ("meta", "always", "room"),
    [
        ("null", False, 0),
        ('"x"', False, 0),
        ('{"anthropic/alwaysLoad":"yes","anthropic/maxResultSizeChars":"9"}', False, 0),
        ('{"anthropic/alwaysLoad":true,"anthropic/maxResultSizeChars":9e9}', True, 0),
        ('{"anthropic/maxResultSizeChars":900000}', False, 500_000),
        ('{"anthropic/maxResultSizeChars":-1}', False, 0),
    ],
)
def test_a_tool_may_have_wishes_within_bounds(meta: str, always: bool, room: int) -> None:
    offer = msgspec.json.decode(f'{{"name":"a","_meta":{meta}}}', type=McpToolOffer)
    assert (offer.is_always_loaded, offer.max_result_chars) == (always, room)


def test_a_tool_that_wants_to_bring_more_may(world: World) -> None:
    async def long(tool: str, args: dict[str, Any]) -> McpCallResult:
        return McpCallResult((McpContent("text", text="a" * 200_000),))

    wish = msgspec.Raw(b'{"anthropic/maxResultSizeChars":200000}')
    (tool,) = wrap_mcp_tools("s", [McpToolOffer("a", meta=wish)], long)

    async def main() -> None:
        assert await tool.run({}, world, "c1") == ToolOutcome((Text("a" * 200_000),))

    anyio.run(main)


def test_each_kind_of_content_is_shown(world: World) -> None:
    picture = b64encode(b"png").decode()
    items = (
        McpContent("text", text="words"),
        McpContent("image", data=picture, mime_type="image/png"),
        McpContent("audio", data=picture, mime_type="audio/wav"),
        McpContent("resource", resource=McpResource("file:///a", text="inside")),
        McpContent("resource_link", uri="file:///b", name="b"),
    )
    shown = build_mcp_outcome(McpCallResult(items), world, "c1").content
    assert shown == (
        Text("words"),
        Media("image", "image/png", world.blobs.put(b"png"), 3),
        Text(f"[audio/wav, 3 bytes: {world.spilled}/c1-2.txt]"),
        Text("file:///a:\ninside"),
        Text("[b: file:///b]"),
    )


def test_what_is_too_long_is_kept_in_a_file(world: World) -> None:
    text = "".join(f"line {n}\n" for n in range(20_000))
    items = (McpContent("text", text="a" * 10), McpContent("text", text=text))
    first, second = build_mcp_outcome(McpCallResult(items), world, "c1").content
    assert first == Text("a" * 10)
    assert isinstance(second, Text)
    assert second.text.startswith("line 0\nline 1\n") and second.text.endswith("\nline 19999\n")
    assert " of 20,000 lines (" in second.text
    assert f"All of it is in {world.spilled}/c1-1.txt; continue with Read" in second.text
    assert 0.8 * 25_000 < estimate_tokens(second.text) <= 25_000
    assert (world.spilled / "c1-1.txt").read_text() == text


def test_the_settings_may_give_a_tool_less_room(world: World) -> None:
    world.room = ResultRoom(cap=500, share=100_000)
    (shown,) = build_mcp_outcome(
        McpCallResult((McpContent("text", text="word " * 5_000),)), world, "c1"
    ).content
    assert isinstance(shown, Text) and estimate_tokens(shown.text) <= 500


def test_errors_and_structure_go_through(world: World) -> None:
    structured = msgspec.Raw(b'{"n":1}')
    failed = build_mcp_outcome(McpCallResult((), structured, is_error=True), world, "c1")
    assert failed == ToolOutcome((Text('{"n":1}'),), error=True, detail='{"n":1}')
    assert build_mcp_outcome(McpCallResult(), world, "c1").content == (Text("(empty result)"),)
