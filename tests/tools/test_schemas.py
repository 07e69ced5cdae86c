"""What models are told of our tools' arguments is read from a file, and is what the structs say."""

from __future__ import annotations

from bench.schemas import made

from travois.engine.tool_definitions import SCHEMAS_FILE


def test_what_is_read_is_what_the_structs_say() -> None:
    assert SCHEMAS_FILE.read_bytes() == made(), "run `python -m bench.schemas`"
