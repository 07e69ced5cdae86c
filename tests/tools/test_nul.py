"""A NUL in a path is an error in words, for every tool that takes a path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tools.world import World
from travois.core.errors import UserError
from travois.ports.tool import PATH_FIELDS, AnyTool, ToolError, refuse_nul_paths
from travois.settings.validate import parse_settings
from travois.tools.catalog import TOOLS

EDITS = [{"old_string": "a", "new_string": "b"}]


def cases() -> list[tuple[AnyTool, str]]:
    return [
        (tool, name)
        for tool in TOOLS
        for name in tool.args.__struct_fields__
        if name in PATH_FIELDS
    ]


@pytest.mark.parametrize(("tool", "name"), cases(), ids=lambda value: getattr(value, "name", value))
@pytest.mark.parametrize("path", ["a\0b", "\0", "/etc/passwd\0.txt", "~/\0", "../\0"])
def test_a_nul_in_a_path_is_refused_in_words(
    tmp_path: Path, tool: AnyTool, name: str, path: str
) -> None:
    world = World(tmp_path)
    fields = msgspec.structs.fields(tool.args)
    args: dict[str, Any] = {field.name: "x" for field in fields if field.required}
    args |= {"edits": EDITS} if "edits" in args else {}
    given = msgspec.convert(args | {name: path}, tool.args)
    with pytest.raises(ToolError, match="NUL"):
        refuse_nul_paths(given)
    if name == "file_path" and tool.name in ("Read", "Write", "Edit"):
        with pytest.raises(ToolError, match="NUL"):  # also where nobody looked before
            world.access(tool, **(args | {name: path}))
    assert list(world.folder.iterdir()) == []


def test_many_tools_were_tried() -> None:
    assert {"Read", "Write", "Edit", "Grep", "Glob"} <= {tool.name for tool, _ in cases()}


@pytest.mark.parametrize(
    "text",
    [
        '{"permissions": {"additionalDirectories": ["/a\\u0000b"]}}',
        '{"env": {"A": "b\\u0000"}}',
        '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "a\\u0000"}]}]}}',
    ],
)
def test_a_nul_in_settings_is_a_fault(text: str) -> None:
    with pytest.raises(UserError, match="NUL"):
        parse_settings(text.encode(), where="settings.json")


def test_an_escaped_backslash_is_no_nul() -> None:
    assert parse_settings(b'{"env": {"A": "\\\\u0000"}}', where="x").values
