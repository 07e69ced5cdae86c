"""The JSON schema of a tool's arguments, as short as it can be: every call pays for it.

It does not say that other fields are forbidden: whoever adds one is not kept from their work.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from travois.core.json import rows, table


@cache
def schema(struct: type[msgspec.Struct]) -> str:
    """The schema of a struct as compact JSON: the same text for the same struct, always."""
    whole = msgspec.json.schema(struct)
    return msgspec.json.encode(_plain(whole, table(whole.get("$defs")))).decode()


def _plain(node: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """One node without references, titles and nulls; a field's own words are kept."""
    said = {k: v for k, v in node.items() if k not in ("$ref", "$defs", "default", "anyOf")}
    if not said.get("required"):
        said.pop("required", None)
    if "$ref" in node:
        return said | _plain(_struct(node, named), named)
    if "anyOf" in node:
        said |= _either(node, named)
    if "enum" in node and all(isinstance(one, str) for one in rows(node["enum"])):
        said["type"] = "string"
    if node.get("default"):
        said["default"] = node["default"]
    if "items" in said:
        said["items"] = _plain(table(said["items"]), named)
    if "properties" in said:
        fields = table(said["properties"]).items()
        told = ((name, table(field)) for name, field in fields)
        said["properties"] = {
            name: _plain(field, named) for name, field in told if not field.get("x-hidden")
        }
    return said


def _struct(node: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """What a reference means; the class's own words are for its readers, not for the model."""
    struct = table(named[str(node["$ref"]).removeprefix("#/$defs/")])
    return {k: v for k, v in struct.items() if k not in ("title", "description")}


def _either(node: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """The choices but null: an argument that may be absent is one that is not required."""
    choices = [_plain(table(one), named) for one in rows(node["anyOf"])]
    real = [one for one in choices if one.get("type") != "null"]
    return real[0] if len(real) == 1 else {"anyOf": real}
