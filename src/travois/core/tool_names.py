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
from travois.core.tool_aliases import ANSWERED, ARGUMENTS, OWN, TOOL_ALIASES, ZERO_BASED, fold
from travois.core.tool_conversions import (
    Unanswerable,
    lines_to_read,
    search_case,
    shell_command,
    times_to_replace,
)

Args = dict[str, object]
NO_FIELDS: dict[str, tuple[str, ...]] = {}


class Translated(msgspec.Struct, frozen=True):
    """A call with our tool name and arguments."""

    name: str
    args: Args
    remarks: tuple[str, ...] = ()
    """Remarks for the model about arguments without effect."""
    idle: Args = {}
    """These arguments."""
    conflict: str = ""
    """The reason why the call cannot be understood; empty if it can."""


def canonical_name(name: str) -> str:
    """Return the name of the tool of ours that a name means; the same name if it means none."""
    if "__" in name:
        return name
    alias = TOOL_ALIASES.get(fold(name))
    return alias.tool if alias else OWN.get(fold(name), name)


def canonical(call: Call) -> Call:
    """Return a call as our own tools would be called; as it is where it means none of them."""
    args = decoded(call.args)
    if args is None or "__" in call.name:
        return call
    told = translate(call.name, args)
    said = {**told.args, **told.idle}
    if told.conflict or (told.name == call.name and said == args):
        return call
    text = msgspec.json.encode(said).decode()
    return replace(call, name=told.name, args=text)


def decoded(text: str) -> Args | None:
    """Return the arguments of a call; none if its text is no JSON object."""
    try:
        found: object = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return cast("Args", found) if isinstance(found, dict) else None


def translate(
    name: str, args: Args, own: str = "", fields: Mapping[str, Collection[str]] = NO_FIELDS
) -> Translated:
    """Return a call in our words.

    `own` is the tool of ours that has this name, if one does; `fields` are what tools take.
    """
    alias = TOOL_ALIASES.get(fold(name))
    tool = own or (alias.tool if alias else OWN.get(fold(name), name))
    said = {key: value for key, value in args.items() if value is not None}
    if alias is not None and alias.tool == tool:
        said = {**alias.fixed, **said}
        try:
            tool, said = alias.convert(said) if alias.convert else (tool, said)
        except Unanswerable as error:
            return Translated(tool, said, conflict=str(error))
    elif tool == "Bash":
        tool, said = shell_command(said)
    said = _special(tool, said, called=fold(name))
    also = alias.args if alias is not None and alias.tool == tool else dict[str, str]()
    return _renamed(tool, said, also, fields.get(tool, ()))


def _special(tool: str, args: Args, *, called: str) -> Args:
    """Convert arguments that have another unit or another sense."""

    match tool:
        case "Read":
            based = 1 if called in ZERO_BASED else 0
            return lines_to_read(args, based=based)
        case "Edit":
            return times_to_replace(args)
        case "Grep":
            return search_case(args)
        case _:
            return args


def _renamed(tool: str, args: Args, own: Mapping[str, str], fields: Collection[str]) -> Translated:
    """Rename the arguments; those without effect are dropped with a remark."""
    names, answered = ARGUMENTS.get(tool, {}), ANSWERED.get(tool, {})
    said, idle, remarks, sources = Args(), Args(), list[str](), dict[str, str]()
    for key, value in args.items():
        folded = fold(key)
        kept = key in fields or len(folded) < 2
        target = own.get(key) or (key if kept else names.get(folded, key))
        if target == key and not kept and (why := answered.get(folded)):
            remarks.append(f"{key} has no effect here: {why}.")
            idle[key] = value
            continue
        if target in said and said[target] != value:
            if target not in args:
                both = f"{sources[target]} and {key} have different values"
                return Translated(tool, args, conflict=f"{both}; send one of them")
            other = sources[target] if key == target else key
            remarks.append(f"{other} has no effect here: {target} has another value.")
            said[target], sources[target] = args[target], target
            continue
        said[target], sources[target] = value, key
    return Translated(tool, said, tuple(dict.fromkeys(remarks)), idle)
