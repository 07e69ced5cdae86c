"""The tools that a family of models was trained with: names over our own implementations, as data.

A head offers the toolset of its model's family. Whatever a head offers, calls by any other name
are understood as well (`core.tool_names`). To show a tool under another name, add a line to a
toolset; its arguments must be ones that `core.tool_names` maps back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

AUTO_TOOLSET = "auto"
DEFAULT_TOOLSET = "claude"
MODEL_FAMILIES = (
    ("openai", r"gpt-(?:[5-9]|4\.1|oss)|\bo[34](?:-|$)|codex"),
    ("gemini", r"gemini"),
    ("qwen", r"qwen(?!-?[12](?:\.|-|$))"),
    ("local", r"^smollm2$"),
)
"""Patterns of model ids with their toolset. All other models get the default."""

PREFER_PHRASE = (
    "Prefer Edit to Write, and the dedicated tools (Read, Grep, Glob) to shell commands that do "
    "the same."
)
FORMER_WORDS = ", Git*) to shell commands that do the same."
"""The end of that phrase in heads of older sessions, where git's tools were declared."""
KEEP_LIST_PHRASE = "keep the list of TodoWrite up to date."


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


class ToolPresentation(msgspec.Struct, frozen=True):
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

    shown: Mapping[str, ToolPresentation] = {}
    hidden: Mapping[str, tuple[str, ...]] = {}
    """Tools that it leaves out where these others, which do the same, are there; if none are
    named, it always does."""
    phrases: tuple[str, ...] = (PREFER_PHRASE, KEEP_LIST_PHRASE)
    """The phrases of the system prompt about tools, in the order of the default's."""


def same_names(*names: str) -> dict[str, str]:
    """Map each argument name of a toolset's tool to itself."""
    return {name: name for name in names}


FOLDER_SCHEMA = '{"description":"the folder to run in","type":"string"}'
MAX_OUTPUT_SCHEMA = '{"description":"the most to show of the output","type":"integer"}'
STATUS_SCHEMA = '{"type":"string","enum":["pending","in_progress","completed"]}'


def _build_list_schema(name: str, item: str) -> str:
    """Build the JSON schema of a todo tool whose argument is a list of items."""
    inside = f'{{"{item}":{{"type":"string"}},"status":{STATUS_SCHEMA}}}'
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


def _file_tools(edit: str, replace_all: str) -> dict[str, ToolPresentation]:
    """Return the toolset's file tools that Gemini's and Qwen's agents have in common."""
    strings = {"replace_all": replace_all} if edit == "edit" else {replace_all: "replace_all"}
    return {
        "Read": ToolPresentation(
            "read_file", same_names("file_path", "offset", "limit"), READ_WORDS
        ),
        "Write": ToolPresentation(
            "write_file", same_names("file_path", "content"), WRITE_WORDS.format(edit=edit)
        ),
        "Edit": ToolPresentation(
            edit,
            {**same_names("file_path", "old_string", "new_string"), **strings},
            EDIT_WORDS.format(all=next(iter(strings))),
        ),
        "WebFetch": ToolPresentation("web_fetch", same_names("url")),
        "Remember": ToolPresentation("save_memory", {"fact": "text", "forget": "forget"}),
        "ExitPlanMode": ToolPresentation("exit_plan_mode", same_names("plan")),
    }


def _shell_tool(folder: str) -> ToolPresentation:
    """Return a toolset's shell tool as Gemini's and Qwen's agents name it and its folder."""
    return ToolPresentation(
        "run_shell_command",
        {
            "command": "command",
            "description": "description",
            folder: "workdir",
            "is_background": "run_in_background",
            **same_names("timeout", "sandbox"),
        },
        SHELL_WORDS + "is_background for servers and watchers. Prefer the tools for files and "
        "search over cat, sed, grep, find.",
        extra={folder: FOLDER_SCHEMA},
    )


def _build_phrases(edit: str, listing: str) -> tuple[str, str]:
    """Build a toolset's phrases about tools in the system prompt."""
    tools = f"Prefer {edit} to write_file, and the dedicated tools (read_file, grep_search, glob"
    return (
        f"{tools}) to shell commands that do the same.",
        f"keep the list of {listing} up to date.",
    )


TOOLSETS: dict[str, Toolset] = {
    DEFAULT_TOOLSET: Toolset(),
    "openai": Toolset(
        shown={
            "Bash": ToolPresentation(
                "exec_command",
                {
                    "cmd": "command",
                    "workdir": "workdir",
                    "yield_time_ms": "timeout",
                    "max_output_tokens": "max_output_tokens",
                    **same_names("tty", "sandbox"),
                },
                SHELL_WORDS + "What still runs after yield_time_ms goes on in the background. "
                "Read with cat or sed, search with rg.",
                extra={"workdir": FOLDER_SCHEMA, "max_output_tokens": MAX_OUTPUT_SCHEMA},
            ),
            "BashInput": ToolPresentation(
                "write_stdin",
                {"session_id": "id", "chars": "text", "yield_time_ms": "wait_ms"},
                "Type to a running command, or wait for more of its output with empty chars.",
            ),
            "ApplyPatch": ToolPresentation(
                "apply_patch", same_names("input"), grammar=PATCH_GRAMMAR
            ),
            "TodoWrite": ToolPresentation(
                "update_plan", {}, TODO_WORDS, schema=_build_list_schema("plan", "step")
            ),
            "Read": ToolPresentation(
                "view_image", {"path": "file_path"}, "Look at an image or a PDF file."
            ),
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
            **_file_tools("replace", "allow_multiple"),
            "Bash": _shell_tool("dir_path"),
            "Glob": ToolPresentation("glob", {"pattern": "pattern", "dir_path": "path"}),
            "Grep": ToolPresentation(
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
            "TodoWrite": ToolPresentation(
                "write_todos", {}, TODO_WORDS, schema=_build_list_schema("todos", "description")
            ),
            "WebSearch": ToolPresentation("google_web_search", same_names("query")),
            "AskUserQuestion": ToolPresentation("ask_user"),
            "Skill": ToolPresentation("activate_skill", same_names("name", "args")),
        },
        hidden=dict.fromkeys(("MultiEdit",), ("Edit",)),
        phrases=_build_phrases("replace", "write_todos"),
    ),
    "qwen": Toolset(
        shown={
            **_file_tools("edit", "replace_all"),
            "Bash": _shell_tool("directory"),
            "Glob": ToolPresentation("glob", same_names("pattern", "path")),
            "Grep": ToolPresentation(
                "grep_search",
                {**same_names("pattern", "path", "glob"), "limit": "head_limit", "context": "-C"},
                GREP_WORDS,
            ),
            "TodoWrite": ToolPresentation("todo_write"),
            "WebSearch": ToolPresentation("web_search", same_names("query")),
            "Agent": ToolPresentation("task"),
            "Skill": ToolPresentation("skill", {"skill": "name", "args": "args"}),
            "AskUserQuestion": ToolPresentation("ask_user_question"),
        },
        hidden=dict.fromkeys(("MultiEdit",), ("Edit",)),
        phrases=_build_phrases("edit", "todo_write"),
    ),
    # The embedded model chooses among what it is told: it cannot search for tools. What it never
    # chooses would only fill its window; a switch to another model brings that back.
    "local": Toolset(
        shown={
            name: ToolPresentation(name)
            for name in ("GitStatus", "GitDiff", "GitLog", "GitShow", "GitBlame")
        },
        hidden=dict.fromkeys(
            (
                *("Agent", "AskUserQuestion", "BashOutput", "ExitPlanMode", "McpCall"),
                *("Recall", "Skill", "Symbols", "ToolSearch"),
            ),
            (),
        ),
    ),
}


def toolset_for(model: str, wanted: str = AUTO_TOOLSET) -> str:
    """Return the toolset of a model's family, or the one that a setting names."""
    if wanted in TOOLSETS:
        return wanted
    id = model.rpartition("/")[2].casefold()
    return next((name for name, known in MODEL_FAMILIES if re.search(known, id)), DEFAULT_TOOLSET)


def replace_tool_phrases(system: str, *, before: str, after: str) -> str:
    """Replace one toolset's phrases about tools in a system prompt by another's."""
    system = system.replace(FORMER_WORDS, FORMER_WORDS.replace(", Git*", ""))
    for old, new in zip(TOOLSETS[before].phrases, TOOLSETS[after].phrases, strict=True):
        system = system.replace(old, new)
    return system
