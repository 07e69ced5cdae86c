"""The tools that a family of models was trained with: names over our own implementations, as data.

A head offers the toolset of its model's family. Whatever a head offers, calls by any other name
are understood as well (`core.tool_aliases`). To show a tool under another name, add a line to a
toolset; its arguments must be ones that `core.tool_aliases` maps back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

AUTO = "auto"
DEFAULT = "claude"
FAMILIES = (
    ("openai", r"gpt-(?:[5-9]|4\.1|oss)|\bo[34](?:-|$)|codex"),
    ("gemini", r"gemini"),
    ("qwen", r"qwen(?!-?[12](?:\.|-|$))"),
)
"""Patterns of model ids with their toolset. All other models get the default."""

PREFER = (
    "Prefer Edit to Write, and the dedicated tools (Read, Grep, Glob, Git*) to shell commands "
    "that do the same."
)
KEEP_LIST = "keep the list of TodoWrite up to date."


PATCH_GRAMMAR = r"""start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_file | delete_file | update_file
add_file: "*** Add File: " path LF added+
delete_file: "*** Delete File: " path LF
update_file: "*** Update File: " path LF move? chunk?
move: "*** Move to: " path LF
chunk: (anchor | line)+ end_of_file?
anchor: ("@@" | "@@ " /(.+)/) LF
line: ("+" | "-" | " ") /(.*)/ LF
added: "+" /(.*)/ LF
end_of_file: "*** End of File" LF
path: /(.+)/
%import common.LF
"""
"""The grammar of a patch in Lark notation, as providers take it."""


class Shown(msgspec.Struct, frozen=True):
    """One of our tools as a toolset presents it."""

    name: str
    args: Mapping[str, str] = {}
    """Its arguments and ours, in the order shown; all of ours if none are named."""
    description: str = ""
    """Empty for ours."""
    extra: Mapping[str, str] = {}
    """Arguments beyond those of our schema, as JSON text."""
    schema: str = ""
    """The whole schema, where renaming ours is not enough."""
    grammar: str = ""
    """The grammar of its one argument, where the protocol has plain-text tools."""


class Toolset(msgspec.Struct, frozen=True):
    """The presentation of our tools in a request."""

    shown: Mapping[str, Shown] = {}
    hidden: Mapping[str, tuple[str, ...]] = {}
    """Tools that it leaves out where these others, which do the same, are there."""
    phrases: tuple[str, ...] = (PREFER, KEEP_LIST)
    """The phrases of the system prompt about tools, in the order of the default's."""


def same(*names: str) -> dict[str, str]:
    """Map each name to itself."""
    return {name: name for name in names}


FOLDER = '{"description":"the folder to run in","type":"string"}'
MOST = '{"description":"the most to show of the output","type":"integer"}'
STATUS = '{"type":"string","enum":["pending","in_progress","completed"]}'


def _list_schema(name: str, item: str) -> str:
    inside = f'{{"{item}":{{"type":"string"}},"status":{STATUS}}}'
    items = f'{{"type":"object","properties":{inside},"required":["{item}","status"]}}'
    listed = f'{{"type":"array","items":{items}}}'
    return f'{{"type":"object","properties":{{"{name}":{listed}}},"required":["{name}"]}}'


SHELL_WORDS = (
    "Run a bash command. The working folder persists between calls, nothing else does. Long output "
    "is cut and kept in a file. "
)
EDIT_WORDS = (
    "Replace old_string, quoted exactly from the file without line numbers, by new_string. It must "
    "occur once unless {all} is set. An empty old_string creates the file."
)
READ_WORDS = (
    "Read a file: text with line numbers (offset counts lines from 0, up to limit lines), images, "
    "PDF text, notebooks by cell."
)
WRITE_WORDS = (
    "Create a file, with its folders, or replace all of it. An existing file must have been read. "
    "Prefer {edit} for changes."
)
GREP_WORDS = "Search file contents with a ripgrep regex; shows matching lines by file."
TODO_WORDS = (
    "Replace your task list. Use it for work of three or more steps; keep one task in_progress and "
    "mark each completed as soon as it is."
)


def _files(edit: str, replace_all: str) -> dict[str, Shown]:
    """Return the file tools that Gemini's and Qwen's agents have in common."""
    strings = {"replace_all": replace_all} if edit == "edit" else {replace_all: "replace_all"}
    return {
        "Read": Shown("read_file", same("file_path", "offset", "limit"), READ_WORDS),
        "Write": Shown("write_file", same("file_path", "content"), WRITE_WORDS.format(edit=edit)),
        "Edit": Shown(
            edit,
            {**same("file_path", "old_string", "new_string"), **strings},
            EDIT_WORDS.format(all=next(iter(strings))),
        ),
        "WebFetch": Shown("web_fetch", same("url")),
        "Remember": Shown("save_memory", {"fact": "text", "forget": "forget"}),
        "ExitPlanMode": Shown("exit_plan_mode", same("plan")),
    }


def _commands(folder: str) -> Shown:
    return Shown(
        "run_shell_command",
        {
            "command": "command",
            "description": "description",
            folder: "workdir",
            "is_background": "run_in_background",
            **same("timeout", "sandbox"),
        },
        SHELL_WORDS + "is_background for servers and watchers. Prefer the tools for files and "
        "search over cat, sed, grep, find.",
        extra={folder: FOLDER},
    )


def _phrases(edit: str, listing: str) -> tuple[str, str]:
    tools = f"Prefer {edit} to write_file, and the dedicated tools (read_file, grep_search, glob, "
    return (
        f"{tools}Git*) to shell commands that do the same.",
        f"keep the list of {listing} up to date.",
    )


TOOLSETS: dict[str, Toolset] = {
    DEFAULT: Toolset(),
    "openai": Toolset(
        shown={
            "Bash": Shown(
                "exec_command",
                {
                    "cmd": "command",
                    "workdir": "workdir",
                    "yield_time_ms": "timeout",
                    "max_output_tokens": "max_output_tokens",
                    **same("tty", "sandbox"),
                },
                SHELL_WORDS + "What still runs after yield_time_ms goes on in the background. "
                "Read with cat or sed, search with rg.",
                extra={"workdir": FOLDER, "max_output_tokens": MOST},
            ),
            "BashInput": Shown(
                "write_stdin",
                {"session_id": "id", "chars": "text", "yield_time_ms": "wait_ms"},
                "Type to a running command, or wait for more of its output with empty chars.",
            ),
            "ApplyPatch": Shown("apply_patch", same("input"), grammar=PATCH_GRAMMAR),
            "TodoWrite": Shown("update_plan", {}, TODO_WORDS, schema=_list_schema("plan", "step")),
            "Read": Shown("view_image", {"path": "file_path"}, "Look at an image or a PDF file."),
        },
        hidden={
            **dict.fromkeys(("Edit", "Write", "MultiEdit"), ("ApplyPatch", "Bash")),
            **dict.fromkeys(("Grep", "Glob"), ("ApplyPatch", "Bash")),
            **dict.fromkeys(("BashOutput", "KillShell"), ("BashInput", "Bash")),
        },
        phrases=(
            "Change files with apply_patch, not with shell commands, and search with rg.",
            "keep the list of update_plan up to date.",
        ),
    ),
    "gemini": Toolset(
        shown={
            **_files("replace", "allow_multiple"),
            "Bash": _commands("dir_path"),
            "Glob": Shown("glob", {"pattern": "pattern", "dir_path": "path"}),
            "Grep": Shown(
                "grep_search",
                {
                    "pattern": "pattern",
                    "dir_path": "path",
                    "include": "glob",
                    "context": "-C",
                    "total_max_matches": "head_limit",
                },
                GREP_WORDS,
            ),
            "TodoWrite": Shown(
                "write_todos", {}, TODO_WORDS, schema=_list_schema("todos", "description")
            ),
            "WebSearch": Shown("google_web_search", same("query")),
            "AskUserQuestion": Shown("ask_user"),
            "Skill": Shown("activate_skill", same("name", "args")),
        },
        hidden=dict.fromkeys(("MultiEdit",), ("Edit",)),
        phrases=_phrases("replace", "write_todos"),
    ),
    "qwen": Toolset(
        shown={
            **_files("edit", "replace_all"),
            "Bash": _commands("directory"),
            "Glob": Shown("glob", same("pattern", "path")),
            "Grep": Shown(
                "grep_search",
                {**same("pattern", "path", "glob"), "limit": "head_limit", "context": "-C"},
                GREP_WORDS,
            ),
            "TodoWrite": Shown("todo_write"),
            "WebSearch": Shown("web_search", same("query")),
            "Agent": Shown("task"),
            "Skill": Shown("skill", {"skill": "name", "args": "args"}),
            "AskUserQuestion": Shown("ask_user_question"),
        },
        hidden=dict.fromkeys(("MultiEdit",), ("Edit",)),
        phrases=_phrases("edit", "todo_write"),
    ),
}


def toolset_for(model: str, wanted: str = AUTO) -> str:
    """Return the toolset of a model's family, or the one that a setting names instead."""
    if wanted in TOOLSETS:
        return wanted
    id = model.rpartition("/")[2].casefold()
    return next((name for name, known in FAMILIES if re.search(known, id)), DEFAULT)


def retold(system: str, *, before: str, after: str) -> str:
    """Return a system text with what it says of one toolset's tools said of another's."""
    for old, new in zip(TOOLSETS[before].phrases, TOOLSETS[after].phrases, strict=True):
        system = system.replace(old, new)
    return system
