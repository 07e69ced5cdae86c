"""What models are told of the arguments of our tools, worked out beforehand.

`python -m bench.schemas` after each change of a tool's arguments; a test compares the two.
"""

from __future__ import annotations

import msgspec

from travois.engine.tool_definitions import SCHEMAS_FILE, args_type_name
from travois.providers.json_schema import build_json_schema
from travois.tools.catalog import TOOLS
from travois.tools.tool_search import CallArgs, SearchArgs


def made() -> bytes:
    """The schema of each struct by its name, a line for each."""
    shapes = (*(tool.args for tool in TOOLS), SearchArgs, CallArgs)
    told = {args_type_name(args): build_json_schema(args) for args in shapes}
    return msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n"


if __name__ == "__main__":
    SCHEMAS_FILE.write_bytes(made())
