"""Tool calls under other agents' names, translated to our tools and arguments.

The log keeps what the model said. Permissions, hooks, transcripts, the doom-loop guard and the
context layers see what this makes of it, which is a pure function of the call alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import cast

import msgspec
from msgspec.structs import replace

from travois.core.content import Call
from travois.core.tool_conversions import (
    NoEquivalentTool,
    ToolArgs,
    convert_editor,
    convert_find_file,
    convert_line_range,
    convert_list_folder,
    convert_lsp_operation,
    convert_powershell,
    convert_questions,
    convert_read_many,
    convert_replace_count,
    convert_search_flags,
    convert_shell_command,
    convert_spawn_agent,
    convert_symbol_lookup,
    convert_todo_list,
    convert_typed_input,
    convert_web_fetch,
)


class ToolAlias(msgspec.Struct, frozen=True):
    """One of our tools under another agent's name."""

    tool: str
    args: Mapping[str, str] = {}
    """Its arguments and ours, where `ARGUMENT_ALIASES` does not say the same."""
    fixed: Mapping[str, object] = {}
    """Arguments that the name implies, unless the call sets them."""
    convert: Callable[[ToolArgs], tuple[str, ToolArgs]] | None = None
    """Rewrites the call where renaming is not enough; returns the tool and its arguments."""


def fold_name(name: str) -> str:
    """Return a tool name without case, underscores and hyphens, which agents spell differently."""
    return name.replace("_", "").replace("-", "").casefold()


def _alias_each(*names: str, alias: ToolAlias) -> dict[str, ToolAlias]:
    return dict.fromkeys(names, alias)


SHELL_ALIAS = ToolAlias("Bash", convert=convert_shell_command)
SEARCH_ALIAS = ToolAlias("Grep", fixed={"output_mode": "content"})
TODO_ALIAS = ToolAlias("TodoWrite", convert=convert_todo_list)

TOOL_ALIASES: dict[str, ToolAlias] = {
    # files
    **_alias_each(
        *("readfile", "viewfile", "openfile", "view", "open", "viewimage", "notebookread"),
        alias=ToolAlias("Read"),
    ),
    "readmanyfiles": ToolAlias("Grep", convert=convert_read_many),
    **_alias_each("writefile", "createfile", "create", "savefile", alias=ToolAlias("Write")),
    **_alias_each("replace", "strreplace", "searchreplace", "editfile", alias=ToolAlias("Edit")),
    **_alias_each(
        "strreplaceeditor",
        "strreplacebasededittool",
        alias=ToolAlias("Edit", convert=convert_editor),
    ),
    **_alias_each(
        "ls",
        "listdirectory",
        "listdir",
        "listfiles",
        alias=ToolAlias("Bash", convert=convert_list_folder),
    ),
    # search
    **_alias_each("grepsearch", "searchfilecontent", "ripgrep", "rg", alias=SEARCH_ALIAS),
    **_alias_each(
        "findfile", "findfiles", "filesearch", alias=ToolAlias("Glob", convert=convert_find_file)
    ),
    "lsp": ToolAlias("Symbols", convert=convert_symbol_lookup),
    # commands
    **_alias_each(
        *("shell", "localshell", "localshellcall", "shellcommand", "execcommand", "containerexec"),
        *("runshellcommand", "runcommand", "runterminalcmd", "executecommand", "terminal"),
        alias=SHELL_ALIAS,
    ),
    "powershell": ToolAlias("Bash", convert=convert_powershell),
    "readbash": ToolAlias("BashOutput"),
    **_alias_each("agentoutput", "bashoutputtool", alias=ToolAlias("TaskOutput")),
    **_alias_each("stopbash", "killbash", alias=ToolAlias("KillShell")),
    "killtask": ToolAlias("TaskStop"),
    **_alias_each(
        "writestdin", "writebash", alias=ToolAlias("BashInput", convert=convert_typed_input)
    ),
    # lists, agents, people
    **_alias_each("updateplan", "writetodos", "updatetodolist", "managetodolist", alias=TODO_ALIAS),
    "todowrite": TODO_ALIAS,
    **_alias_each("task", "delegate", "runsubagent", alias=ToolAlias("Agent")),
    "spawnagent": ToolAlias(
        "Agent", fixed={"run_in_background": True}, convert=convert_spawn_agent
    ),
    **_alias_each(
        *("askuser", "requestuserinput", "question", "askfollowupquestion"),
        alias=ToolAlias("AskUserQuestion", convert=convert_questions),
    ),
    "activateskill": ToolAlias("Skill"),
    # the rest
    **_alias_each("googlewebsearch", "searchweb", "websearchpreview", alias=ToolAlias("WebSearch")),
    **_alias_each("fetch", "fetchurl", alias=ToolAlias("WebFetch")),
    "webfetch": ToolAlias("WebFetch", convert=convert_web_fetch),
    "savememory": ToolAlias("Remember"),
    **_alias_each("toolsearchcall", "searchtools", alias=ToolAlias("ToolSearch")),
    **_alias_each("calltool", "usemcptool", alias=ToolAlias("McpCall")),
    "listmcpresourcestool": ToolAlias("ListMcpResources"),
    "readmcpresourcetool": ToolAlias("ReadMcpResource"),
}
"""Folded names that are not those of our own tools."""

PARTIAL_ALIASES = frozenset(
    ("readmanyfiles", "ls", "listdirectory", "listdir", "listfiles", "powershell", "lsp")
)
"""Names that mean some calls of our tool, not the tool as such."""
PATTERN_SPELLINGS: dict[str, tuple[str, ...]] = {
    "Agent": ("Task",),
    "Bash": ("shell", "local_shell", "exec_command", "run_shell_command"),
    "KillShell": ("KillBash",),
    "ListMcpResources": ("ListMcpResourcesTool",),
    "ReadMcpResource": ("ReadMcpResourceTool",),
    "TaskOutput": ("AgentOutputTool", "BashOutputTool"),
    "TodoWrite": ("update_plan",),
}
"""Our tools as others write them, for patterns: those cannot be looked up."""


def find_renamed_tool(name: str) -> str:
    """Return our tool that another agent calls by this name as a whole; empty if there is none."""
    found = TOOL_ALIASES.get(fold_name(name))
    return found.tool if found and fold_name(name) not in PARTIAL_ALIASES else ""


ZERO_BASED_TOOLS = frozenset(("readfile",))
"""Tools of others whose `offset` counts lines from 0 where ours counts from 1."""

PATH_ARGUMENTS = (
    "path",
    "filepath",
    "absolutepath",
    "filename",
    "file",
    "targetfile",
    "notebookpath",
)
FOLDER_ARGUMENTS = ("dirpath", "directory", "dir", "folder", "targetdirectory", "searchpath")


def _map_to(target: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, target)


ARGUMENT_ALIASES: dict[str, dict[str, str]] = {
    "Bash": {
        **_map_to("command", "cmd", "script", "commandline"),
        **_map_to("workdir", "cwd", "workingdirectory", *FOLDER_ARGUMENTS),
        **_map_to("timeout", "timeoutms", "yieldtimems"),
        **_map_to("run_in_background", "isbackground", "background"),
        **_map_to("description", "justification", "explanation"),
    },
    "BashOutput": {
        **_map_to("bash_id", "shellid", "taskid", "jobid", "sessionid", "id"),
        **_map_to("filter", "pattern", "regex"),
    },
    "BashInput": {
        **_map_to("id", "sessionid", "bashid", "shellid", "taskid"),
        **_map_to("text", "chars", "input"),
        **_map_to("wait_ms", "yieldtimems", "timeout"),
    },
    "TaskOutput": _map_to("task_id", "agentid", "bashid", "shellid", "id"),
    "TaskStop": _map_to("task_id", "agentid", "bashid", "shellid", "id"),
    "Monitor": _map_to("task_id", "bashid", "shellid", "id"),
    "KillShell": _map_to("shell_id", "bashid", "taskid", "jobid", "sessionid", "id"),
    "Read": {
        **_map_to("file_path", *PATH_ARGUMENTS),
        **_map_to("offset", "startline", "linenumber", "line", "startlineoneindexed"),
        **_map_to("limit", "numlines", "linecount", "maxlines"),
    },
    "Write": {
        **_map_to("file_path", *PATH_ARGUMENTS),
        **_map_to("content", "filetext", "contents", "text"),
    },
    "Edit": {
        **_map_to("file_path", *PATH_ARGUMENTS),
        **_map_to("old_string", "oldstr", "oldtext", "search"),
        **_map_to("new_string", "newstr", "newtext", "replace", "replacement"),
        **_map_to("replace_all", "allowmultiple"),
    },
    "MultiEdit": _map_to("file_path", *PATH_ARGUMENTS),
    "NotebookEdit": {
        **_map_to(
            "notebook_path",
            *(name for name in PATH_ARGUMENTS if name != "notebookpath"),
            "filepath",
        ),
        **_map_to("new_source", "source", "content"),
    },
    "ApplyPatch": _map_to("input", "patch", "patchtext"),
    "Grep": {
        **_map_to("pattern", "query", "regex", "search"),
        **_map_to("path", *FOLDER_ARGUMENTS, "filepath"),
        **_map_to("glob", "include", "includepattern", "fileglob", "globpattern"),
        **_map_to("type", "filetype"),
        **_map_to("-C", "context", "contextlines"),
        **_map_to("-A", "after", "aftercontext", "aftercontextlines"),
        **_map_to("-B", "before", "beforecontext", "beforecontextlines"),
        **_map_to("-i", "ignorecase", "caseinsensitive"),
        **_map_to("-n", "linenumbers", "showlinenumbers"),
        **_map_to("head_limit", "limit", "maxresults", "maxcount", "totalmaxmatches"),
    },
    "Glob": {
        **_map_to("pattern", "globpattern", "query"),
        **_map_to("path", *FOLDER_ARGUMENTS),
    },
    "LSP": {
        **_map_to("file_path", *PATH_ARGUMENTS),
        **_map_to("symbol", "name", "query"),
        **_map_to("character", "column"),
    },
    "Symbols": {
        **_map_to("name", "symbol", "query"),
        **_map_to("path", *FOLDER_ARGUMENTS, "filepath"),
    },
    "Skill": {
        **_map_to("name", "skill", "skillname", "command"),
        **_map_to("args", "arguments", "input"),
    },
    "Agent": {
        **_map_to("prompt", "task", "instructions", "message"),
        **_map_to("description", "title", "summary"),
        **_map_to("subagent_type", "agenttype", "subagent", "agent", "subagentname", "agentname"),
        **_map_to("effort", "reasoningeffort"),
    },
    "AgentStop": _map_to("agent_id", "id", "taskid"),
    "SendMessage": {
        **_map_to("to", "recipient", "target", "agentid"),
        **_map_to("message", "content", "text"),
    },
    "TodoWrite": _map_to("todos", "items", "tasks", "plan", "todolist"),
    "AskUserQuestion": {},
    "ToolSearch": _map_to("max_results", "limit"),
    "McpCall": {**_map_to("tool", "name", "toolname"), **_map_to("arguments", "args", "input")},
    "WebFetch": _map_to("url", "uri", "link"),
    "WebSearch": _map_to("query", "q", "searchquery", "searchterm"),
    "Remember": _map_to("text", "fact", "memory", "content"),
    "Recall": _map_to("query", "q", "search"),
    "ExitPlanMode": {},
}
"""Folded names of arguments that mean one of ours, by tool."""

OWN_TOOLS = {fold_name(name): name for name in ARGUMENT_ALIASES}
"""Our own tools by their folded names, for calls in another case."""

CALL_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "Bash": ("workdir", "max_output_tokens"),
    "ApplyPatch": ("workdir",),
    "BashOutput": ("max_output_tokens",),
    "BashInput": ("max_output_tokens",),
}
"""Arguments that hold for a whole call, whatever its tool does: the folder that it runs in, and the
most tokens that its result may take. Schemas do not mention them."""

IGNORED_ARGUMENTS: dict[str, dict[str, str]] = {
    "Bash": {
        "tty": "the command has no terminal",
        "login": "the shell is not a login shell",
        "shell": "commands run in bash",
        "prefixrule": "only the user makes rules",
        "respectgitignore": "ignored files are listed, too",
        "filefilteringoptions": "ignored files are listed, too",
    },
    "BashOutput": {
        "block": "it shows the output so far and does not wait",
        "timeout": "it shows the output so far and does not wait",
        "delay": "it shows the output so far and does not wait",
    },
    "Read": {
        "detail": "images are shown as they are",
        "shouldreadentirefile": "offset and limit choose the lines",
    },
    "Edit": {"instruction": "only old_string and new_string count"},
    "ApplyPatch": dict.fromkeys(("filepath", "filepaths"), "the patch names its files"),
    "Glob": {
        "casesensitive": "matching is case-sensitive",
        "respectgitignore": "ignored files are left out",
        "respectgeminiignore": "ignored files are left out",
        "filefilteringoptions": "ignored files are left out",
    },
    "Grep": {
        "respectgitignore": "ignored files are skipped",
        "filefilteringoptions": "ignored files are skipped",
        "usedefaultexcludes": "ignored files are skipped",
        "recursive": "folders are always searched recursively",
    },
    "Symbols": {
        "line": "symbols are found by name, not by position",
        "character": "symbols are found by name, not by position",
    },
    "WebFetch": {
        "prompt": "the whole page is returned; look there",
        "format": "pages come as markdown",
    },
    "WebSearch": {"maxresults": "the search decides the number of results"},
    "Agent": {
        "model": "the agent runs on the model of its type",
        "effort": "the agent's type sets its effort",
        "maxturns": "its type and the settings limit its turns",
        "resume": "a new agent was started",
    },
    "SendMessage": {"summary": "the message is sent whole"},
    "ExitPlanMode": {
        "allowedprompts": "each command is still asked about",
        "planfilepath": "only the plan itself counts",
    },
    "TodoWrite": {
        "merge": "the list replaces the one before",
        "explanation": "it is not part of the list; tell the user in words",
    },
}
"""Folded names of arguments that change nothing here, and why: the model is told so."""

COMMENT_ARGUMENTS = frozenset(
    ("description", "explanation", "reason", "rationale", "thought", "purpose")
)
"""Arguments with which models comment on a call; a tool without such a field says that it changes
nothing."""

ITEM_ALIASES: dict[str, dict[str, str]] = {
    "TodoWrite": {
        **_map_to("content", "step", "description", "task", "title", "text", "name", "subject"),
        **_map_to("activeForm", "activeform"),
        **_map_to("", "id", "priority"),
    },
    "MultiEdit": {
        **_map_to("old_string", "oldstr", "oldtext"),
        **_map_to("new_string", "newstr", "newtext"),
    },
    "AskUserQuestion": {
        **_map_to("label", "name", "title", "value"),
        **_map_to("", "id", "type", "preview", "placeholder"),
    },
}
"""The same for the objects inside a list; an empty name for what changes nothing there."""


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
    """Return our tool name for another agent's; unknown names stay."""
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
    """Return a tool call's arguments; None if they are no JSON object."""
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
        case "LSP":
            return convert_lsp_operation(args)
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
