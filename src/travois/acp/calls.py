"""Tool calls as an editor shows them: what they do, where, and what came of it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec

from travois.core.content import Call, Media, Shown, Text, words
from travois.core.facts import Result
from travois.core.tool_names import canonical
from travois.headless.json_shapes import Json, Object, arguments
from travois.ports.tool import AnyTool
from travois.ports.world import Blobs
from travois.tools.diff import Hunk, Patch
from travois.tools.edit import EditArgs, MultiEditArgs
from travois.tools.paths import absolute
from travois.tools.write import WriteArgs
from travois.tui.calls import summary
from travois.tui.diffs import patch

T = TypeVar("T")
LONGEST = 30_000
"""How many characters of a result are shown; the model may see more."""
KINDS = {
    "read": ("Read", "GitShow", "GitDiff", "GitLog", "GitBlame", "GitStatus", "Skill"),
    "edit": ("Edit", "MultiEdit", "Write", "NotebookEdit", "ApplyPatch"),
    "search": ("Grep", "Glob", "Recall", "ToolSearch", "Symbols"),
    "execute": ("Bash", "BashOutput", "BashInput", "KillShell"),
    "fetch": ("WebFetch", "WebSearch"),
    "think": ("Agent", "Remember"),
    "switch_mode": ("ExitPlanMode",),
}
KIND = {name: kind for kind, names in KINDS.items() for name in names}
PLAIN = ("Agent", "ExitPlanMode", "AskUserQuestion")
"""Tools whose results are words for people, and may hold markup."""


class Spot(msgspec.Struct, frozen=True):
    """Where a call says that it works."""

    file_path: str = ""
    notebook_path: str = ""
    path: str = ""
    offset: int = 0


def described(call: Call, tools: Mapping[str, AnyTool], cwd: str) -> Object:
    """A call before it runs."""
    call = canonical(call)
    told: Object = {
        "toolCallId": call.id,
        "title": summary(call, tools),
        "kind": KIND.get(call.name, "other"),
        "rawInput": arguments(call),
    }
    found = _decoded(call, Spot)
    if found and (path := found.file_path or found.notebook_path or found.path):
        told["locations"] = [place(absolute(path, cwd), found.offset)]
    if planned := list(changes(call, cwd)):
        told["content"] = planned
    return told


def changes(call: Call, cwd: str) -> Iterator[Json]:
    """What a call would change, as it says itself."""
    match call.name:
        case "Edit" if args := _decoded(call, EditArgs):
            yield diff(absolute(args.file_path, cwd), args.old_string, args.new_string)
        case "MultiEdit" if args := _decoded(call, MultiEditArgs):
            for one in args.edits:
                yield diff(absolute(args.file_path, cwd), one.old_string, one.new_string)
        case "Write" if args := _decoded(call, WriteArgs):
            yield diff(absolute(args.file_path, cwd), None, args.content)
        case _:
            pass


def _decoded(call: Call, shape: type[T]) -> T | None:
    try:
        return msgspec.json.decode(call.args or "{}", type=shape, strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def ended(call: Call, result: Result, *, cwd: str, blobs: Blobs) -> Object:
    """A call that was answered."""
    call = canonical(call)
    told: Object = {
        "toolCallId": call.id,
        "status": "failed" if result.error else "completed",
        "rawOutput": msgspec.json.decode(result.detail) if result.detail else _cut(result.content),
    }
    change = patch(result.detail) if result.detail and not result.error else None
    if change is None:
        return {**told, "content": list(_shown(call, result.content, blobs))}
    first = change.structured_patch[0].new_start if change.structured_patch else 1
    done = [_hunk(change.file_path, hunk) for hunk in change.structured_patch]
    told["content"] = done or list(_whole(call, change, cwd))
    return {**told, "locations": [place(change.file_path, first)]}


def _whole(call: Call, change: Patch, cwd: str) -> Iterator[Json]:
    """A change of which the result does not tell line by line: a new file, or a large change."""
    yield from changes(call, cwd)
    if call.name not in ("Edit", "MultiEdit", "Write"):
        yield text(f"+{change.added} -{change.removed}")


def _hunk(path: str, hunk: Hunk) -> Json:
    sides = ("+", "-")
    new, old = (
        "".join(f"{line[1:]}\n" for line in hunk.lines if line[0] != other) for other in sides[::-1]
    )
    return diff(path, old, new)


def _shown(call: Call, content: tuple[Shown, ...], blobs: Blobs) -> Iterator[Json]:
    said = _cut(content)
    if said.strip():
        yield text(said if call.name in PLAIN else fenced(said))
    for block in content:
        if isinstance(block, Media) and block.kind == "image":
            yield {"type": "content", "content": image(block, blobs)}


def _cut(content: tuple[Shown, ...]) -> str:
    said = words(content)
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}\n… {len(said) - LONGEST:,} more"


# --- shapes ---------------------------------------------------------------------------------------


def text(said: str) -> Json:
    """Words as part of a call."""
    return {"type": "content", "content": {"type": "text", "text": said}}


def shown(block: Shown, blobs: Blobs) -> Object:
    """One block of what somebody said."""
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Media(kind="image"):
            return image(block, blobs)
        case Media():
            return {"type": "text", "text": f"[{block.name or block.mime}]"}


def image(block: Media, blobs: Blobs) -> Object:
    """A picture; only its name if its bytes are gone."""
    try:
        data = b64encode(blobs.get(block.blob)).decode()
    except KeyError:
        return {"type": "text", "text": f"[{block.name or block.mime}]"}
    return {"type": "image", "mimeType": block.mime, "data": data}


def diff(path: str, old: str | None, new: str) -> Json:
    """A change of a file."""
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def place(path: str, line: int) -> Json:
    """A place in a file; lines count from one."""
    return {"path": path, "line": line} if line > 0 else {"path": path}


def fenced(said: str) -> str:
    """Words that are shown as they are; they cannot end their own fence."""
    longest = max(map(len, re.findall(r"`{3,}", said)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{said.rstrip()}\n{fence}"
