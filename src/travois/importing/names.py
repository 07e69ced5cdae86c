"""Calls of other agents' tools, in the words of ours where they mean the same."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import cast

import msgspec

from travois.compat.sessions.format import Json, decode
from travois.core.content import Call

PATH = ("file_path",)
EDIT = ("file_path", "old_string", "new_string")
WRITE = ("file_path", "content")
TOOLS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("shell", "local_shell", "exec_command", "bash"), ("Bash", ("command",))),
    "run_shell_command": ("Bash", ("command",)),
    **dict.fromkeys(("read", "read_file"), ("Read", PATH)),
    **dict.fromkeys(("edit", "replace"), ("Edit", EDIT)),
    **dict.fromkeys(("write", "write_file", "create"), ("Write", WRITE)),
    **dict.fromkeys(("grep", "search_file_content", "grep_search"), ("Grep", ("pattern",))),
    "glob": ("Glob", ("pattern",)),
    **dict.fromkeys(("todowrite", "write_todos"), ("TodoWrite", ("todos",))),
    **dict.fromkeys(("webfetch", "web_fetch"), ("WebFetch", ("url",))),
    **dict.fromkeys(("Task", "task"), ("Agent", ("prompt",))),
}
"""Their name, ours, and what a call must say to mean the same."""
WORDS = {
    "cmd": "command",
    "filePath": "file_path",
    "absolute_path": "file_path",
    "oldString": "old_string",
    "old_str": "old_string",
    "newString": "new_string",
    "new_str": "new_string",
    "replaceAll": "replace_all",
    "file_text": "content",
}
SHELLS = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh")


def translated(call: Call) -> Call:
    """The same call in our words; as it was where a tool of ours would have done something else."""
    name, needed = TOOLS.get(call.name, ("", ()))
    args = decode(call.args) if name else None
    if args is None:
        return call
    said = _renamed(args, path="file_path" in needed)
    if not all(key in said for key in needed):
        return call
    return Call(call.id, name, msgspec.json.encode(said).decode())


def _renamed(args: Json, *, path: bool) -> Json:
    said: Json = {}
    for key, value in args.items():
        ours = "file_path" if path and key == "path" else WORDS.get(key, key)
        said[ours] = _line(cast("list[object]", value)) if _argv(ours, value) else value
    return said


def _argv(key: str, value: object) -> bool:
    return key == "command" and isinstance(value, list)


def _line(argv: list[object]) -> str:
    """The command line that a list of words stands for."""
    words = [str(word) for word in argv]
    if len(words) == 3 and words[0] in SHELLS and words[1] in ("-c", "-lc"):
        return words[2]
    return shlex.join(words)
