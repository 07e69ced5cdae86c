"""The tool definitions of a request: which tools, under which names, in which order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from travois.core.facts import Epoch, ToolSpec
from travois.core.models import ModelCard
from travois.core.toolsets import (
    AUTO_TOOLSET,
    DEFAULT_TOOLSET,
    TOOLSETS,
    ToolPresentation,
    Toolset,
    replace_tool_phrases,
    toolset_for,
)
from travois.ports.tool import AnyTool
from travois.providers.json_schema import build_json_schema

SCHEMAS_FILE = Path(__file__).parent.parent / "tools" / "schemas.json"
GRAMMAR_PROVIDERS = ("openai", "azure")
"""Providers that take tools whose input is plain text by a grammar."""


def build_tool_specs(
    tools: Iterable[AnyTool], model: ModelCard | None = None, *, toolset: str = DEFAULT_TOOLSET
) -> tuple[ToolSpec, ...]:
    """Return the definitions of tools, sorted by name so that heads stay the same.

    Deferred tools are left out unless the toolset names them.
    """
    offered = {tool.name: tool for tool in tools}
    chosen = TOOLSETS[toolset]
    told = (
        _build_tool_spec(tool, chosen.shown.get(name), model)
        for name, tool in offered.items()
        if _is_in_head(tool, chosen, offered)
    )
    return tuple(sorted(told, key=lambda spec: spec.name))


def _is_in_head(tool: AnyTool, toolset: Toolset, offered: Collection[str]) -> bool:
    """Return whether a request defines this tool, which may be deferred or replaced."""
    if tool.deferred and tool.name not in toolset.shown:
        return False
    instead = toolset.hidden.get(tool.name)
    return instead is None or not all(name in offered for name in instead)


def build_first_head(
    model: ModelCard, system: str, tools: Iterable[AnyTool], *, wanted: str = AUTO_TOOLSET
) -> Epoch:
    """Build the first request head, with tool definitions for the model's family."""
    toolset = toolset_for(model.id, wanted)
    text = replace_tool_phrases(system, before=DEFAULT_TOOLSET, after=toolset)
    return Epoch(
        model,
        text,
        build_tool_specs(tools, model, toolset=toolset),
        toolset=_stored_toolset(toolset),
    )


def adapt_toolset(
    epoch: Epoch, tools: Mapping[str, AnyTool], *, wanted: str = AUTO_TOOLSET
) -> Epoch:
    """Return a request head with the tool definitions of its model's family."""
    before, after = epoch.toolset or DEFAULT_TOOLSET, toolset_for(epoch.model.id, wanted)
    if before == after:
        return epoch
    told = build_tool_specs(tools.values(), epoch.model, toolset=after)
    known = {spec.name for spec in told} | list_shown_names(tools, toolset=before)
    others = (spec for spec in epoch.tools if spec.name not in known)
    return replace(
        epoch,
        system=replace_tool_phrases(epoch.system, before=before, after=after),
        tools=tuple(sorted((*told, *others), key=lambda spec: spec.name)),
        toolset=_stored_toolset(after),
    )


def list_shown_names(tools: Iterable[str], *, toolset: str) -> set[str]:
    """Return the names under which tool definitions may show these tools."""
    shown = TOOLSETS[toolset].shown
    return {shown[name].name if name in shown else name for name in tools} | set(tools)


def _stored_toolset(toolset: str) -> str:
    """Return the toolset name to store; empty for the default, as in older logs."""
    return "" if toolset == DEFAULT_TOOLSET else toolset


def _build_tool_spec(
    tool: AnyTool, presentation: ToolPresentation | None, model: ModelCard | None
) -> ToolSpec:
    """Build the definition of a tool as the model's toolset presents it."""
    if presentation is None:
        return ToolSpec(tool.name, tool.description, tool_schema(tool))
    grammar = presentation.grammar if model is not None and _takes_grammars(model) else ""
    text = presentation.schema or _rename_schema_fields(tool_schema(tool), presentation)
    return ToolSpec(presentation.name, presentation.description or tool.description, text, grammar)


def _takes_grammars(model: ModelCard) -> bool:
    return model.protocol == "responses" and model.provider in GRAMMAR_PROVIDERS


def _rename_schema_fields(text: str, presentation: ToolPresentation) -> str:
    """Return a tool's schema under the argument names of a toolset."""
    if not presentation.args:
        return text
    ours: dict[str, Any] = msgspec.json.decode(text)
    known, extra = ours.get("properties", {}), presentation.extra
    fields = {
        theirs: msgspec.json.decode(extra[theirs]) if theirs in extra else known[name]
        for theirs, name in presentation.args.items()
        if theirs in extra or name in known
    }
    needed = [
        theirs for theirs, name in presentation.args.items() if name in ours.get("required", ())
    ]
    said: dict[str, Any] = {"type": "object", "properties": fields}
    return msgspec.json.encode(said | ({"required": needed} if needed else {})).decode()


def tool_schema(tool: AnyTool) -> str:
    """Return the JSON schema of a tool's arguments."""
    return (
        tool.schema
        or _load_own_schemas().get(args_type_name(tool.args))
        or build_json_schema(tool.args)
    )


def args_type_name(args: type) -> str:
    """Return a unique name for a tool's argument type, used to find its schema."""
    return f"{args.__module__}.{args.__qualname__}"


@cache
def _load_own_schemas() -> dict[str, str]:
    """Load the prebuilt schemas of built-in tools: loading is faster than building them."""
    return msgspec.json.decode(SCHEMAS_FILE.read_bytes(), type=dict[str, str])
