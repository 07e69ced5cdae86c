"""Questions of MCP servers: what an answer leaves out."""

from __future__ import annotations

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

import mcp_types

from travois.mcp.elicitation import fill_defaults

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "Ada"},
        "age": {"type": "integer", "default": 30},
        "note": {"type": "string"},
    },
}


def test_fields_that_an_accepted_answer_leaves_out_get_their_defaults() -> None:
    answer = mcp_types.ElicitResult(action="accept", content={"age": 40})
    assert fill_defaults(answer, SCHEMA).content == {"name": "Ada", "age": 40}


def test_a_declined_answer_stays_as_it_is() -> None:
    answer = mcp_types.ElicitResult(action="decline")
    assert fill_defaults(answer, SCHEMA) == answer
    assert fill_defaults(mcp_types.ElicitResult(action="accept"), None).content is None
