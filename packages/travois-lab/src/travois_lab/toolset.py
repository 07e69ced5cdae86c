"""The tools that a model has at the end of a conversation in which they came and went."""

from __future__ import annotations

from collections.abc import Iterator

from travois_lab.objects import Json, inner, listed, objects
from travois_lab.positions import as_blocks


def offered(body: Json) -> list[Json]:
    """The tools on offer: those declared, less those removed, and those added or referred to."""
    declared = {str(tool.get("name")): tool for tool in objects(body, "tools")}
    now = {name: tool for name, tool in declared.items() if not tool.get("defer_loading")}
    for block in _changes(body):
        tool = inner(block, "tool")
        definition = inner(tool, "definition")
        name = str(definition.get("name") or tool.get("name") or block.get("tool_name"))
        if block.get("type") == "tool_removal":
            now.pop(name, None)
        elif definition or name in declared:
            now[name] = definition or declared[name]
    return list(now.values())


def _changes(body: Json) -> Iterator[Json]:
    for message in listed(body, "messages"):
        for block in as_blocks(message.get("content")):
            if block.get("type") in ("tool_addition", "tool_removal"):
                yield block
            elif block.get("type") == "tool_result":
                inside = as_blocks(block.get("content"))
                yield from (part for part in inside if part.get("type") == "tool_reference")
