"""Interpreting tool calls: finding the tool and mapping other agents' names to ours.

Nothing that a model says is dropped in silence. An argument is ours under some name, or has no
effect and the result says so, or the call is refused, naming the argument that is nearest. MCP
tools and those of a host program have schemas of their own and are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from travois.core.content import Call
from travois.core.tool_names import (
    CALL_ARGUMENTS,
    COMMENT_ARGUMENTS,
    ITEM_ALIASES,
    ToolArgs,
    decode_arguments,
    fold_name,
    translate_call,
)
from travois.lazy_imports import lazy_imports
from travois.ports.tool import AnyTool

with lazy_imports():
    import difflib


WORKDIR_ARGUMENT = "workdir"
MAX_TOKENS_ARGUMENT = "max_output_tokens"
MIN_RESULT_TOKENS = 200
"""A result may always take so many tokens, or it could not even say what went wrong."""


class InterpretedCall(msgspec.Struct, frozen=True):
    """A tool call mapped to our tool and arguments."""

    call: Call
    tool: AnyTool
    args: Any
    remarks: tuple[str, ...] = ()
    """Remarks for the result: arguments without effect, or brought into bounds."""
    workdir: str = ""
    """The folder that this one call runs in; empty for where the shell stands."""
    tokens: int = 0
    """The most tokens that its result may take; 0 if the call does not say."""


class MeaninglessCall(Exception):
    """A tool call that matches no tool here; the message tells the model what would."""


FindMcpTool = Callable[[str], AnyTool | None]


class ToolFields(Mapping[str, tuple[str, ...]]):
    """The argument names of each tool, computed on demand."""

    def __init__(self, tools: Mapping[str, AnyTool]) -> None:
        self._tools = {name: tool for name, tool in tools.items() if not tool.schema}

    def __getitem__(self, name: str) -> tuple[str, ...]:
        return self._tools[name].args.__struct_encode_fields__

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


def interpret_call(
    call: Call, tools: Mapping[str, AnyTool], lent: FindMcpTool = lambda name: None
) -> InterpretedCall:
    """Interpret a tool call; raises `MeaninglessCall` if no tool or argument fits."""
    tool = tools.get(call.name) or lent(call.name)
    if tool is not None and tool.schema:
        return InterpretedCall(call, tool, _decode_schema_args(tool, call.args, name=call.name))
    own = tool.name if tool is not None else _find_same_name(call.name, tools)
    args = decode_arguments(call.args)
    if args is None:
        raise MeaninglessCall(f"{call.name} was not run: {_explain_bad_json(call, tools.get(own))}")
    told = translate_call(call.name, args, own, ToolFields(tools))
    tool = tools.get(told.name)
    if tool is None:
        raise MeaninglessCall(_explain_unknown_tool(call.name, tools))
    if told.conflict:
        raise MeaninglessCall(f"{tool.name} was not run: {told.conflict}.")
    return _check_arguments(call, tool, told.args, told.remarks)


def canonical_call_or_same(call: Call, tools: Mapping[str, AnyTool], lent: FindMcpTool) -> Call:
    """Return the canonical form of a tool call; the call itself if it has none."""
    try:
        return interpret_call(call, tools, lent).call
    except MeaninglessCall:
        return call


def _find_same_name(name: str, tools: Iterable[str]) -> str:
    """Return the tool whose name differs only in case or hyphens; empty if none does."""
    folded = fold_name(name)
    return next((known for known in tools if fold_name(known) == folded), "")


def _check_arguments(
    call: Call, tool: AnyTool, args: ToolArgs, remarks: tuple[str, ...]
) -> InterpretedCall:
    """Check the arguments of a tool call, under our names and within their limits."""
    fields = tool.args.__struct_encode_fields__
    shared = tuple(name for name in CALL_ARGUMENTS.get(tool.name, ()) if name not in fields)
    said, answered = _fit_arguments(tool, args, shared)
    own = {key: value for key, value in said.items() if key not in shared}
    found, bounded = _convert_within_bounds(tool, own)
    text = msgspec.json.encode({**said, **bounded}).decode()
    same = call.name == tool.name and decode_arguments(call.args) == {**said, **bounded}
    limits = tuple(f"{key} is limited to {most:,}; that was used." for key, most in bounded.items())
    return InterpretedCall(
        call if same else replace(call, name=tool.name, args=text),
        tool,
        found,
        remarks=(*remarks, *answered, *limits),
        workdir=_check_workdir(said.get(WORKDIR_ARGUMENT), tool)
        if WORKDIR_ARGUMENT in shared
        else "",
        tokens=_check_token_limit(said.get(MAX_TOKENS_ARGUMENT))
        if MAX_TOKENS_ARGUMENT in shared
        else 0,
    )


def _fit_arguments(
    tool: AnyTool, args: ToolArgs, shared: tuple[str, ...]
) -> tuple[ToolArgs, list[str]]:
    """Rename arguments to the tool's fields; raises `MeaninglessCall` for any other."""
    fields = (*tool.args.__struct_encode_fields__, *shared)
    folded = {fold_name(name): name for name in fields if len(name) > 2}
    said, remarks = ToolArgs(), list[str]()
    for key, value in args.items():
        name = key if key in fields else folded.get(fold_name(key), "")
        if name and name not in said:
            said[name] = value
        elif name and said[name] != value:
            raise MeaninglessCall(f"{tool.name} was not run: {name} is given twice.")
        elif not name and fold_name(key) in COMMENT_ARGUMENTS:
            remarks.append(f"{key} was noted; it changes nothing.")
        elif not name:
            raise MeaninglessCall(_explain_unknown_argument(tool, key, fields))
    for key, value in said.items():
        if not isinstance(value, int | float) and key not in shared:
            said[key] = _fit_nested_value(tool, key, value, remarks)
    return said, list(dict.fromkeys(remarks))


def _fit_nested_value(tool: AnyTool, key: str, value: object, remarks: list[str]) -> object:
    """Rename the fields of objects inside a tool call's argument."""
    shape = _field_shape(tool, key)
    if shape is None:
        return value
    if isinstance(value, str):
        # Some models send a list or an object as the JSON text of one.
        value = _parse_json_text(value)
    return _rename_item_fields(
        shape, value, ITEM_ALIASES.get(tool.name, {}), tool=tool, remarks=remarks
    )


def _parse_json_text(text: str) -> object:
    """Decode a tool call's argument sent as JSON text; return other text unchanged."""
    try:
        return msgspec.json.decode(text) if text.lstrip()[:1] in ("[", "{") else text
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def _field_shape(tool: AnyTool, key: str) -> object:
    """Return the type of a tool call's argument that holds objects or lists; else None."""
    shape = next(
        _strip_metadata(one.type) for one in _list_fields(tool.args) if one.encode_name == key
    )
    plain = (inspect.StrType, inspect.IntType, inspect.BoolType, inspect.LiteralType)
    return None if isinstance(shape, plain) else shape


@lru_cache(maxsize=256)
def _list_fields(args: type) -> tuple[inspect.Field, ...]:
    """Return the fields of a tool's arguments, which take longer to list than to use."""
    info = inspect.type_info(args)
    assert isinstance(info, inspect.StructType)
    return info.fields


def _strip_metadata(shape: object) -> object:
    """Return a tool argument's type without its metadata."""
    return shape.type if isinstance(shape, inspect.Metadata) else shape


def _rename_item_fields(
    shape: object, value: object, names: Mapping[str, str], *, tool: AnyTool, remarks: list[str]
) -> object:
    """Rename the fields of objects in a tool call's argument, at any depth."""
    match _strip_metadata(shape):
        case inspect.VarTupleType(item_type=within) if isinstance(value, list):
            items = cast("list[object]", value)
            return [
                _rename_item_fields(within, i, names, tool=tool, remarks=remarks) for i in items
            ]
        case inspect.StructType(fields=fields) if isinstance(value, dict):
            types, said = {one.encode_name: one.type for one in fields}, ToolArgs()
            for key, inside in cast("ToolArgs", value).items():
                if name := _find_item_name(types, key, names, tool=tool, remarks=remarks):
                    said[name] = _rename_item_fields(
                        types[name], inside, names, tool=tool, remarks=remarks
                    )
            return said
        case _:
            return value


def _find_item_name(
    fields: Iterable[str], key: str, names: Mapping[str, str], *, tool: AnyTool, remarks: list[str]
) -> str:
    """Return our name for a field inside a tool call's argument; empty if it has no effect."""
    folded = {fold_name(name): name for name in fields}
    if found := folded.get(fold_name(key)):
        return found
    target = names.get(fold_name(key))
    if target and target in folded.values():
        return target
    if target is None:
        raise MeaninglessCall(_explain_unknown_argument(tool, key, fields))
    remarks.append(f"{key} has no effect here.")
    return ""


def _convert_within_bounds(tool: AnyTool, args: ToolArgs) -> tuple[object, ToolArgs]:
    """Decode a tool call's arguments, lowering numbers to their field's maximum."""
    try:
        return _convert_arguments(tool, args), {}
    except msgspec.ValidationError as error:
        bounded = _clamp_numbers(tool, args)
        if not bounded:
            raise MeaninglessCall(
                f"{tool.name} was not run: {_explain_bad_field(tool, error)}"
            ) from None
    try:
        return _convert_arguments(tool, {**args, **bounded}), bounded
    except msgspec.ValidationError as error:
        raise MeaninglessCall(
            f"{tool.name} was not run: {_explain_bad_field(tool, error)}"
        ) from None


def _clamp_numbers(tool: AnyTool, args: ToolArgs) -> ToolArgs:
    """Lower each number in a tool call that exceeds its argument's maximum."""
    found = ToolArgs()
    for field in _list_fields(tool.args):
        value = args.get(field.encode_name)
        shape = _strip_metadata(field.type)
        most = shape.le if isinstance(shape, inspect.IntType) else None
        if most is not None and isinstance(value, int) and value > most:
            found[field.encode_name] = most
    return found


def _convert_arguments(tool: AnyTool, args: ToolArgs) -> object:
    """Decode arguments of a tool call; raises `ValidationError` for invalid ones."""
    try:
        return msgspec.convert(args, tool.args, strict=False)
    except (UnicodeEncodeError, RecursionError) as error:
        raise msgspec.ValidationError(str(error)) from None


def _decode_schema_args(tool: AnyTool, text: str, *, name: str) -> object:
    """Decode the arguments of a tool with a schema of its own, such as one of MCP."""
    try:
        return msgspec.json.decode(text or "{}", type=tool.args, strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        why = f"the arguments are not valid JSON ({error}). Send one JSON object."
        raise MeaninglessCall(f"{name} was not run: {why}") from None


def _check_workdir(value: object, tool: AnyTool) -> str:
    """Return the workdir argument of a tool call; raises `MeaninglessCall` if it is no text."""
    if value is not None and not isinstance(value, str):
        raise MeaninglessCall(f"{tool.name} was not run: workdir must be the path of a folder.")
    return value or ""


def _check_token_limit(value: object) -> int:
    return max(value, MIN_RESULT_TOKENS) if isinstance(value, int) and value > 0 else 0


# --- what the model is told -----------------------------------------------------------------------


def _explain_bad_json(call: Call, tool: AnyTool | None) -> str:
    """Explain to the model why the arguments of its call are no valid JSON object."""
    try:
        msgspec.json.decode(call.args or "{}", type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        return (
            _explain_bad_field(tool, error)
            if tool is not None
            else f"{error}. Send one JSON object."
        )
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        return f"the arguments are not valid JSON ({error}). Send one JSON object."
    return "the arguments nest too deeply. Send one JSON object."


def _explain_bad_field(tool: AnyTool, error: Exception) -> str:
    """Explain to the model which argument is invalid, and list the tool's arguments."""
    shape = msgspec.json.schema(tool.args)["$defs"][tool.args.__name__]["properties"]
    chosen = {name: " | ".join(map(str, one.get("enum", ()))) for name, one in shape.items()}
    names = (f"{name} ({some})" if some else name for name, some in chosen.items())
    return f"{error}. Its fields are: {', '.join(names)}."


def _explain_unknown_argument(tool: AnyTool, key: str, fields: Iterable[str]) -> str:
    """Explain to the model that a tool lacks an argument, with the nearest name."""
    names = list(fields)
    near = difflib.get_close_matches(
        key.casefold(), {n.casefold(): n for n in names}, n=1, cutoff=0.5
    )
    meant = next((n for n in names if near and n.casefold() == near[0]), "")
    hint = f" Did you mean {meant!r}?" if meant else ""
    return (
        f"{tool.name} was not run: it has no argument {key!r}.{hint} It takes: {', '.join(names)}."
    )


def _explain_unknown_tool(name: str, tools: Mapping[str, AnyTool]) -> str:
    """Explain to the model that a tool does not exist, with similar names first."""
    folded = {known.casefold(): known for known in tools}
    near = [
        folded[one] for one in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.6)
    ]
    rest = [known for known, tool in tools.items() if not tool.deferred and known not in near]
    return f"There is no tool {name!r}. The tools are: {', '.join((*near, *rest))}."
