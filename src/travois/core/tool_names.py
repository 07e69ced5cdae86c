"""Tool calls under other agents' names, translated to our tools and arguments.

The log keeps what the model said. Permissions, hooks, transcripts, the doom-loop guard and the
context layers see what this makes of it, which is a pure function of the call alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

import msgspec
from msgspec.structs import replace

from travois.core.content import Call
from travois.core.tool_aliases import (
    ARGUMENT_ALIASES,
    IGNORED_ARGUMENTS,
    OWN_TOOLS,
    TOOL_ALIASES,
    ZERO_BASED_TOOLS,
    fold_name,
)
from travois.core.tool_conversions import (
    NoEquivalentTool,
    convert_line_range,
    convert_replace_count,
    convert_search_flags,
    convert_shell_command,
)

ToolArgs = dict[str, object]
NO_FIELDS: dict[str, tuple[str, ...]] = {}


class TranslatedCall(msgspec.Struct, frozen=True):
    """A call with our tool name and arguments."""

    name: str
    args: ToolArgs
    remarks: tuple[str, ...] = ()
    """Remarks for the model about arguments without effect."""
    idle: ToolArgs = {}
    """These arguments."""
    conflict: str = ""
    """The reason why the call cannot be understood; empty if it can."""


def canonical_name(name: str) -> str:
    """Return our name for a tool that other agents name differently; unknown names stay."""
    if "__" in name:
        return name
    alias = TOOL_ALIASES.get(fold_name(name))
    return alias.tool if alias else OWN_TOOLS.get(fold_name(name), name)


def canonical_call(call: Call) -> Call:
    """Translate a tool call to our tool and argument names; an unknown call stays as it is."""
    args = decode_arguments(call.args)
    if args is None or "__" in call.name:
        return call
    told = translate_call(call.name, args)
    said = {**told.args, **told.idle}
    if told.conflict or (told.name == call.name and said == args):
        return call
    text = msgspec.json.encode(said).decode()
    return replace(call, name=told.name, args=text)


def decode_arguments(text: str) -> ToolArgs | None:
    """Return the arguments of a call; none if its text is no JSON object."""
    try:
        found: object = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return cast("ToolArgs", found) if isinstance(found, dict) else None


def translate_call(
    name: str, args: ToolArgs, own: str = "", fields: Mapping[str, Collection[str]] = NO_FIELDS
) -> TranslatedCall:
    """Translate another agent's tool call to our tool and argument names.

    `own` is our tool of this name, if there is one; `fields` are the arguments of each tool.
    """
    alias = TOOL_ALIASES.get(fold_name(name))
    tool = own or (alias.tool if alias else OWN_TOOLS.get(fold_name(name), name))
    said = {key: value for key, value in args.items() if value is not None}
    if alias is not None and alias.tool == tool:
        said = {**alias.fixed, **said}
        try:
            tool, said = alias.convert(said) if alias.convert else (tool, said)
        except NoEquivalentTool as error:
            return TranslatedCall(tool, said, conflict=str(error))
    elif tool == "Bash":
        tool, said = convert_shell_command(said)
    said = _convert_special_args(tool, said, called=fold_name(name))
    also = alias.args if alias is not None and alias.tool == tool else dict[str, str]()
    return _rename_arguments(tool, said, also, fields.get(tool, ()))


def _convert_special_args(tool: str, args: ToolArgs, *, called: str) -> ToolArgs:
    """Convert arguments of other agents' tools that differ in unit or meaning."""

    match tool:
        case "Read":
            based = 1 if called in ZERO_BASED_TOOLS else 0
            return convert_line_range(args, based=based)
        case "Edit":
            return convert_replace_count(args)
        case "Grep":
            return convert_search_flags(args)
        case _:
            return args


def _rename_arguments(
    tool: str, args: ToolArgs, own: Mapping[str, str], fields: Collection[str]
) -> TranslatedCall:
    """Rename a tool call's arguments to ours; drop those without effect, with a remark."""
    names, answered = ARGUMENT_ALIASES.get(tool, {}), IGNORED_ARGUMENTS.get(tool, {})
    said, idle, remarks, sources = ToolArgs(), ToolArgs(), list[str](), dict[str, str]()
    for key, value in args.items():
        folded = fold_name(key)
        kept = key in fields or len(folded) < 2
        target = own.get(key) or (key if kept else names.get(folded, key))
        if target == key and not kept and (why := answered.get(folded)):
            remarks.append(f"{key} has no effect here: {why}.")
            idle[key] = value
            continue
        if target in said and said[target] != value:
            if target not in args:
                both = f"{sources[target]} and {key} have different values"
                return TranslatedCall(tool, args, conflict=f"{both}; send one of them")
            other = sources[target] if key == target else key
            remarks.append(f"{other} has no effect here: {target} has another value.")
            said[target], sources[target] = args[target], target
            continue
        said[target], sources[target] = value, key
    return TranslatedCall(tool, said, tuple(dict.fromkeys(remarks)), idle)
