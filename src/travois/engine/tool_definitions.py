"""The tool definitions of a request: which tools, under which names, in which order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from travois.core.facts import Epoch, ToolSpec
from travois.core.models import Model
from travois.core.toolsets import AUTO, DEFAULT, TOOLSETS, Shown, Toolset, retold, toolset_for
from travois.ports.tool import AnyTool
from travois.providers.json_schema import schema

SCHEMAS = Path(__file__).parent.parent / "tools" / "schemas.json"
GRAMMARS = ("openai", "azure")
"""Providers that take tools whose input is plain text by a grammar."""


def specs(
    tools: Iterable[AnyTool], model: Model | None = None, *, toolset: str = DEFAULT
) -> tuple[ToolSpec, ...]:
    """Return the definitions of tools, sorted by name so that heads stay the same.

    Deferred tools are left out unless the toolset names them.
    """
    offered = {tool.name: tool for tool in tools}
    chosen = TOOLSETS[toolset]
    told = (
        _spec(tool, chosen.shown.get(name), model)
        for name, tool in offered.items()
        if _in_head(tool, chosen, offered)
    )
    return tuple(sorted(told, key=lambda spec: spec.name))


def _in_head(tool: AnyTool, toolset: Toolset, offered: Collection[str]) -> bool:
    if tool.deferred and tool.name not in toolset.shown:
        return False
    instead = toolset.hidden.get(tool.name)
    return instead is None or not all(name in offered for name in instead)


def first_head(model: Model, system: str, tools: Iterable[AnyTool], *, wanted: str = AUTO) -> Epoch:
    """Return the first head of a conversation, with the toolset of the model's family."""
    toolset = toolset_for(model.id, wanted)
    text = retold(system, before=DEFAULT, after=toolset)
    return Epoch(model, text, specs(tools, model, toolset=toolset), toolset=_kept(toolset))


def suited(epoch: Epoch, tools: Mapping[str, AnyTool], *, wanted: str = AUTO) -> Epoch:
    """Return a head with the toolset of its model's family."""
    before, after = epoch.toolset or DEFAULT, toolset_for(epoch.model.id, wanted)
    if before == after:
        return epoch
    told = specs(tools.values(), epoch.model, toolset=after)
    known = {spec.name for spec in told} | shown_names(tools, toolset=before)
    others = (spec for spec in epoch.tools if spec.name not in known)
    return replace(
        epoch,
        system=retold(epoch.system, before=before, after=after),
        tools=tuple(sorted((*told, *others), key=lambda spec: spec.name)),
        toolset=_kept(after),
    )


def shown_names(tools: Iterable[str], *, toolset: str) -> set[str]:
    """Return the names under which a toolset may show these tools."""
    shown = TOOLSETS[toolset].shown
    return {shown[name].name if name in shown else name for name in tools} | set(tools)


def _kept(toolset: str) -> str:
    """Return the toolset to store; empty for the default, as in older logs."""
    return "" if toolset == DEFAULT else toolset


def _spec(tool: AnyTool, shown: Shown | None, model: Model | None) -> ToolSpec:
    if shown is None:
        return ToolSpec(tool.name, tool.description, schema_of(tool))
    grammar = shown.grammar if model is not None and _takes_grammars(model) else ""
    text = shown.schema or _renamed(schema_of(tool), shown)
    return ToolSpec(shown.name, shown.description or tool.description, text, grammar)


def _takes_grammars(model: Model) -> bool:
    return model.protocol == "responses" and model.provider in GRAMMARS


def _renamed(text: str, shown: Shown) -> str:
    """Return a schema under the argument names of a toolset."""
    if not shown.args:
        return text
    ours: dict[str, Any] = msgspec.json.decode(text)
    known, extra = ours.get("properties", {}), shown.extra
    fields = {
        theirs: msgspec.json.decode(extra[theirs]) if theirs in extra else known[name]
        for theirs, name in shown.args.items()
        if theirs in extra or name in known
    }
    needed = [theirs for theirs, name in shown.args.items() if name in ours.get("required", ())]
    said: dict[str, Any] = {"type": "object", "properties": fields}
    return msgspec.json.encode(said | ({"required": needed} if needed else {})).decode()


def schema_of(tool: AnyTool) -> str:
    """Return the JSON schema of a tool's arguments."""
    return tool.schema or _known().get(named(tool.args)) or schema(tool.args)


def named(args: type) -> str:
    """Return the unique name of a tool's argument type."""
    return f"{args.__module__}.{args.__qualname__}"


@cache
def _known() -> dict[str, str]:
    """Load the prepared schemas of our own tools: reading is faster than computing them."""
    return msgspec.json.decode(SCHEMAS.read_bytes(), type=dict[str, str])
