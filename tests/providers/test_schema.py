from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from inline_snapshot import snapshot

from tests.providers.golden import readable
from travois.providers.json_schema import build_json_schema


class Edit(msgspec.Struct):
    """One change."""

    old: Annotated[str, msgspec.Meta(description="text to find")]
    new: str = ""


class Args(msgspec.Struct):
    """Arguments of a tool."""

    path: Annotated[str, msgspec.Meta(description="absolute path")]
    edits: Annotated[list[Edit], msgspec.Meta(description="in order")]
    offset: Annotated[int, msgspec.Meta(ge=0)] | None = None
    limit: int = 2000
    mode: Literal["text", "bytes"] = "text"
    first: Edit | None = None
    words: str | list[str] = ""
    env: dict[str, str] = {}
    tags: tuple[str, ...] = ()


def test_a_schema_says_only_what_the_model_needs():
    assert readable(build_json_schema(Args)) == snapshot(
        [
            '{"type":"object",',
            '"properties":{',
            '"path":{"description":"absolute path","type":"string"},',
            '"edits":{"description":"in order","type":"array",',
            '"items":{"type":"object",',
            '"properties":{',
            '"old":{"description":"text to find","type":"string"},',
            '"new":{"type":"string"}},',
            '"required":["old"]}},',
            '"offset":{"type":"integer"},',
            '"limit":{"type":"integer","default":2000},"mode":{"enum":["bytes","text"],"typ',
            'e":"string","default":"text"},',
            '"first":{"type":"object",',
            '"properties":{',
            '"old":{"description":"text to find","type":"string"},',
            '"new":{"type":"string"}},',
            '"required":["old"]},"words":{',
            '"anyOf":[',
            '{"type":"string"},',
            '{"type":"array",',
            '"items":{"type":"string"}}]},',
            '"env":{"type":"object",',
            '"additionalProperties":{"type":"string"}},',
            '"tags":{"type":"array",',
            '"items":{"type":"string"}}},',
            '"required":["path","edits"]}',
        ]
    )


def test_no_arguments_are_an_object_without_properties():
    class Nothing(msgspec.Struct):
        pass

    assert readable(build_json_schema(Nothing)) == snapshot(
        ['{"type":"object",', '"properties":{}}']
    )


def test_arguments_that_the_schema_asks_for_are_what_the_struct_takes():
    text = '{"path":"/a","edits":[{"old":"x"}],"offset":3}'
    args = msgspec.json.decode(text, type=Args)
    assert args == Args("/a", [Edit("x")], offset=3)


class Quiet(msgspec.Struct):
    """Arguments of which one is accepted and not told."""

    path: str
    limit: Annotated[int, msgspec.Meta(extra_json_schema={"x-hidden": True})] = 0


def test_what_is_hidden_is_not_told():
    told = '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}'
    assert build_json_schema(Quiet) == told
