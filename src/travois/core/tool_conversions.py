"""Conversions of other agents' tool calls that renaming cannot turn into ours, one function each.

Each takes the arguments as the model sent them and returns our tool, with arguments that
`core.tool_names` knows. Whatever cannot be converted is left in place: validation says what is
wrong with it.
"""

from __future__ import annotations

import re
from typing import cast

from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports

with lazy_imports():
    import shlex


ToolArgs = dict[str, object]
SHELL_PROGRAMS = ("bash", "sh", "zsh")
PATCH_HEREDOC = compile_lazily(
    r"\s*(?:cd\s+(?P<folder>'[^']+'|\"[^\"$`]+\"|[\w./~-]+)\s*&&\s*)?"
    r"(?:apply_patch|applypatch)\s*<<-?\s*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote)[ \t]*\n"
    r"(?P<patch>.*?\n)[ \t]*(?P=end)\s*",
    re.DOTALL,
)
"""A command that does nothing but feed a patch to `apply_patch`."""
URL_PATTERN = compile_lazily(r"https?://[^\s'\"<>)\]]+")
TODO_STATUSES = {
    "done": "completed",
    "complete": "completed",
    "inprogress": "in_progress",
    "in-progress": "in_progress",
    "active": "in_progress",
    "todo": "pending",
    "notstarted": "pending",
    "not_started": "pending",
    "not-started": "pending",
    "blocked": "pending",
}
LSP_OPERATIONS: dict[str, ToolArgs] = {
    "documentsymbol": {},
    "workspacesymbol": {},
    "gotodefinition": {},
    "findreferences": {"references": True},
}
"""Language server operations as arguments of Symbols."""
LSP_OPERATION_ALIASES = {
    "gotodefinition": "definition",
    "findreferences": "references",
    "gotoimplementation": "implementation",
    "documentsymbol": "symbols",
    "workspacesymbol": "symbols",
}
"""Other agents' names of what our LSP tool does."""


class NoEquivalentTool(Exception):
    """No tool of ours does what the call asks for; the message names the closest one."""


def convert_shell_command(args: ToolArgs) -> tuple[str, ToolArgs]:
    """Convert a shell call; a command that only applies a patch becomes ApplyPatch."""
    said = {**args, **extract_escalation(args)}
    for name in ("with_escalated_permissions", "sandbox_permissions", "dangerouslyDisableSandbox"):
        said.pop(name, None)
    for name in ("command", "cmd"):
        if isinstance(words := said.get(name), list):
            said[name] = join_command_line(cast("list[object]", words))
    line = said.get("command", said.get("cmd"))
    found = PATCH_HEREDOC.fullmatch(line) if isinstance(line, str) and "patch" in line else None
    return ("ApplyPatch", _build_patch_args(said, found)) if found else ("Bash", said)


def _build_patch_args(args: ToolArgs, found: re.Match[str]) -> ToolArgs:
    """Build the arguments of ApplyPatch from a shell call that contains a patch."""
    folder = (found["folder"] or "").strip("'\"")
    place = {"workdir": folder} if folder else {}
    given = {name: args[name] for name in ("workdir", "cwd", "directory") if name in args}
    return {"input": found["patch"], **(given | place)}


def extract_escalation(args: ToolArgs) -> ToolArgs:
    """Return another agent's request to run outside the sandbox; empty if there is none."""
    wished = args.get("with_escalated_permissions") is True
    wished |= args.get("sandbox_permissions") == "require_escalated"
    wished |= args.get("dangerouslyDisableSandbox") is True
    return {"sandbox": "off"} if wished else {}


def join_command_line(words: list[object]) -> str:
    """Return the command line for another agent's list of words."""
    argv = [str(word) for word in words]
    if len(argv) == 3 and argv[0].rpartition("/")[2] in SHELL_PROGRAMS and argv[1] in ("-c", "-lc"):
        return argv[2]
    return " ".join(map(_quote_argument, argv))


def convert_powershell(args: ToolArgs) -> tuple[str, ToolArgs]:
    """Convert a PowerShell tool call to one of `pwsh`, where that is installed."""
    command = args.get("command")
    if not isinstance(command, str):
        return "Bash", args
    line = f"pwsh -NoProfile -NonInteractive -Command {_quote_argument(command)}"
    return "Bash", {**args, "command": line}


def convert_list_folder(args: ToolArgs) -> tuple[str, ToolArgs]:
    """Convert another agent's folder listing call to `ls`."""
    left = dict(args)
    folder = next((left.pop(n) for n in ("path", "dir_path", "directory") if n in left), ".")
    ignored = left.pop("ignore", None)
    patterns = cast("list[object]", ignored) if isinstance(ignored, list) else []
    options = "".join(f" --ignore={_quote_argument(str(one))}" for one in patterns)
    return "Bash", {**left, "command": f"ls -Ap{options} -- {_quote_argument(str(folder))}"}


def convert_read_many(args: ToolArgs) -> tuple[str, ToolArgs]:
    """Convert a call that reads many files to a search for every line in them."""
    left, patterns = dict(args), list[str]()
    for name in ("paths", "include"):
        given = left.pop(name, None)
        patterns += map(str, cast("list[object]", given)) if isinstance(given, list) else []
    excluded = left.pop("exclude", None)
    refused = cast("list[object]", excluded) if isinstance(excluded, list) else []
    patterns += (f"!{one}" for one in refused)
    return "Grep", {"pattern": "", "output_mode": "content", "glob": " ".join(patterns), **left}


def convert_editor(args: ToolArgs) -> tuple[str, ToolArgs]:
    """Convert an editor tool call with subcommands: view, create, str_replace."""
    left = dict(args)
    match left.pop("command", None):
        case "view":
            return "Read", left
        case "create":
            return "Write", left
        case "str_replace":
            return "Edit", {"new_str": "", **left}
        case _:
            return "Edit", args


def convert_find_file(args: ToolArgs) -> tuple[str, ToolArgs]:
    """Convert another agent's search for a file name to a Glob call."""
    left = dict(args)
    name = next((left.pop(n) for n in ("file_name", "name", "query") if n in left), None)
    return "Glob", {**left, "pattern": f"**/{name}"} if isinstance(name, str) else left


def convert_symbol_lookup(args: ToolArgs) -> tuple[str, ToolArgs]:
    """Convert a language server query; raises `NoEquivalentTool` if syntax cannot answer it."""
    left = dict(args)
    asked = str(left.pop("operation", ""))
    known = LSP_OPERATIONS.get(asked.casefold())
    if known is None:
        raise NoEquivalentTool(
            f"there is no language server, and {asked!r} needs one. Symbols finds definitions and "
            "references by name; Grep finds any text"
        )
    return "Symbols", {**left, **known}


def convert_lsp_operation(args: ToolArgs) -> ToolArgs:
    """Rename a language server operation of another agent's LSP tool to ours."""
    asked = str(args.get("operation", ""))
    return {**args, "operation": LSP_OPERATION_ALIASES.get(asked.casefold(), asked)}


def convert_todo_list(args: ToolArgs) -> tuple[str, ToolArgs]:
    """Convert a todo list with other field names; cancelled todos are dropped."""
    left = dict(args)
    name = next((n for n in ("todos", "plan", "items", "tasks", "todoList") if n in left), "todos")
    if isinstance(given := left.get(name), list):
        left[name] = [
            _convert_todo_item(one) for one in cast("list[object]", given) if not _is_cancelled(one)
        ]
    return "TodoWrite", left


def _is_cancelled(item: object) -> bool:
    status = cast("ToolArgs", item).get("status") if isinstance(item, dict) else None
    return status in ("cancelled", "canceled")


def _convert_todo_item(item: object) -> object:
    """Convert one item of another agent's todo list: plain text, or another status."""
    if isinstance(item, str):
        return {"content": item, "status": "pending"}
    if not isinstance(item, dict):
        return item
    said = cast("ToolArgs", item)
    if not isinstance(status := said.get("status"), str):
        return said
    return {**said, "status": TODO_STATUSES.get(status.casefold(), status)}


def convert_questions(args: ToolArgs) -> tuple[str, ToolArgs]:
    """Convert a question whose choices are plain strings, or a list of such questions."""
    left = dict(args)
    if "questions" not in left and "question" in left:
        names = ("question", "header", "choices", "options", "multiSelect", "follow_up")
        left = {"questions": [{n: left.pop(n) for n in names if n in left}], **left}
    if isinstance(asked := left.get("questions"), list):
        left["questions"] = [_convert_question(one) for one in cast("list[object]", asked)]
    return "AskUserQuestion", left


def _convert_question(asked: object) -> object:
    """Convert another agent's question to ours: its choices become labelled options."""
    if not isinstance(asked, dict):
        return asked
    said = dict(cast("ToolArgs", asked))
    for name in ("choices", "follow_up"):
        if name in said:
            said.setdefault("options", said.pop(name))
    if isinstance(options := said.get("options"), list):
        given = cast("list[object]", options)
        said["options"] = [{"label": one} if isinstance(one, str) else one for one in given]
    return said


def convert_web_fetch(args: ToolArgs) -> tuple[str, ToolArgs]:
    """Convert a prompt that contains a URL to a fetch of the first one."""
    prompt = args.get("prompt")
    if "url" in args or not isinstance(prompt, str) or not (found := URL_PATTERN.search(prompt)):
        return "WebFetch", args
    return "WebFetch", {**args, "url": found[0].rstrip(".,;:")}


def convert_spawn_agent(args: ToolArgs) -> tuple[str, ToolArgs]:
    """Convert another agent's call that starts a subagent with one message."""
    said = str(args.get("message") or args.get("prompt") or "")
    return "Agent", {"description": " ".join(said.split()[:5]), **args}


def convert_typed_input(args: ToolArgs) -> tuple[str, ToolArgs]:
    """Convert another agent's typed input for a command whose session ID is a number."""
    left = dict(args)
    if isinstance(id := left.get("session_id"), int):
        left["session_id"] = str(id)
    return "BashInput", left


def list_patched_files(patch: str) -> tuple[tuple[str, str], ...]:
    """Return each operation of another agent's patch with its path, in order."""
    marks = r"^\*\*\* (Add|Update|Delete) File: (.+?)[ \t]*$|^\*\*\* (Move) to: (.+?)[ \t]*$"
    found = re.findall(marks, patch, re.MULTILINE)
    return tuple(((a or m).lower(), (path or to)) for a, path, m, to in found)


def convert_line_range(args: ToolArgs, *, based: int) -> ToolArgs:
    """Convert another agent's line range to offset and limit; `based` is added to the first."""
    left = dict(args)
    if based and isinstance(offset := left.get("offset"), int):
        left["offset"] = offset + based
    span = left.pop("view_range", None)
    if isinstance(span, list) and len(ends := cast("list[object]", span)) == 2:
        left |= {"start_line": ends[0], "end_line": ends[1]}
    elif span is not None:
        left["view_range"] = span
    first = next((left[n] for n in ("start_line", "startLine", "offset") if n in left), 1)
    name = next(
        (n for n in ("end_line", "endLine", "end_line_one_indexed_inclusive") if n in left), ""
    )
    last = left.get(name)
    if not isinstance(first, int) or not isinstance(last, int) or "limit" in left:
        return left
    left.pop(name)
    # An end before the start is how other agents say "to the end of the file".
    return left if last < first else {**left, "limit": last - first + 1}


def convert_replace_count(args: ToolArgs) -> ToolArgs:
    """Convert another agent's expected number of replacements to replace_all."""
    left = dict(args)
    expected = left.pop("expected_replacements", None)
    if isinstance(expected, int) and expected > 1:
        left.setdefault("replace_all", True)
    return left


def convert_search_flags(args: ToolArgs) -> ToolArgs:
    """Convert another agent's case_sensitive and names_only to our search flags."""
    left = dict(args)
    for name in ("case_sensitive", "caseSensitive"):
        if isinstance(counts := left.get(name), bool):
            left.pop(name)
            left.setdefault("-i", not counts)
    if isinstance(left.get("names_only"), bool) and left.pop("names_only"):
        left["output_mode"] = "files_with_matches"
    return left


def _quote_argument(text: str) -> str:
    """Quote an argument of a converted tool call for a shell."""
    return shlex.quote(text)
