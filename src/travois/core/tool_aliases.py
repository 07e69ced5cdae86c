"""Other agents' names for our tools and for their arguments: one table of data.

A name is looked up without its case, underscores and hyphens (`fold_name`). To add an alias, add a
line: a tool's name to `TOOL_ALIASES`, an argument's to `ARGUMENT_ALIASES`, an argument without
effect here to `IGNORED_ARGUMENTS`, with the remark for the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from travois.core.tool_conversions import (
    editor,
    file_name,
    list_folder,
    many_files,
    one_question,
    page_address,
    power_shell,
    shell_command,
    spawned_agent,
    symbol_lookup,
    todo_list,
    typed_input,
)

Args = dict[str, object]


class Alias(msgspec.Struct, frozen=True):
    """One of our tools under another agent's name."""

    tool: str
    args: Mapping[str, str] = {}
    """Its arguments and ours, where `ARGUMENT_ALIASES` does not say the same."""
    fixed: Mapping[str, object] = {}
    """Arguments that the name implies, unless the call sets them."""
    convert: Callable[[Args], tuple[str, Args]] | None = None
    """Rewrites the call where renaming is not enough; returns the tool and its arguments."""


def fold(name: str) -> str:
    """Return a name without case, underscores and hyphens, which agents spell differently."""
    return name.replace("_", "").replace("-", "").casefold()


def _named(*names: str, alias: Alias) -> dict[str, Alias]:
    return dict.fromkeys(names, alias)


SHELL = Alias("Bash", convert=shell_command)
SEARCH = Alias("Grep", fixed={"output_mode": "content"})
TODO = Alias("TodoWrite", convert=todo_list)

TOOL_ALIASES: dict[str, Alias] = {
    # files
    **_named(
        *("readfile", "viewfile", "openfile", "view", "open", "viewimage", "notebookread"),
        alias=Alias("Read"),
    ),
    "readmanyfiles": Alias("Grep", convert=many_files),
    **_named("writefile", "createfile", "create", "savefile", alias=Alias("Write")),
    **_named("replace", "strreplace", "searchreplace", "editfile", alias=Alias("Edit")),
    **_named("strreplaceeditor", "strreplacebasededittool", alias=Alias("Edit", convert=editor)),
    **_named(
        "ls", "listdirectory", "listdir", "listfiles", alias=Alias("Bash", convert=list_folder)
    ),
    # search
    **_named("grepsearch", "searchfilecontent", "ripgrep", "rg", alias=SEARCH),
    **_named("findfile", "findfiles", "filesearch", alias=Alias("Glob", convert=file_name)),
    "lsp": Alias("Symbols", convert=symbol_lookup),
    # commands
    **_named(
        *("shell", "localshell", "localshellcall", "shellcommand", "execcommand", "containerexec"),
        *("runshellcommand", "runcommand", "runterminalcmd", "executecommand", "terminal"),
        alias=SHELL,
    ),
    "powershell": Alias("Bash", convert=power_shell),
    "readbash": Alias("BashOutput"),
    **_named("agentoutput", "bashoutputtool", alias=Alias("TaskOutput")),
    **_named("stopbash", "killbash", alias=Alias("KillShell")),
    "killtask": Alias("TaskStop"),
    **_named("writestdin", "writebash", alias=Alias("BashInput", convert=typed_input)),
    # lists, agents, people
    **_named("updateplan", "writetodos", "updatetodolist", "managetodolist", alias=TODO),
    "todowrite": TODO,
    **_named("task", "delegate", "runsubagent", alias=Alias("Agent")),
    "spawnagent": Alias("Agent", fixed={"run_in_background": True}, convert=spawned_agent),
    **_named(
        *("askuser", "requestuserinput", "question", "askfollowupquestion"),
        alias=Alias("AskUserQuestion", convert=one_question),
    ),
    "activateskill": Alias("Skill"),
    # the rest
    **_named("googlewebsearch", "searchweb", "websearchpreview", alias=Alias("WebSearch")),
    **_named("fetch", "fetchurl", alias=Alias("WebFetch")),
    "webfetch": Alias("WebFetch", convert=page_address),
    "savememory": Alias("Remember"),
    **_named("toolsearchcall", "searchtools", alias=Alias("ToolSearch")),
    **_named("calltool", "usemcptool", alias=Alias("McpCall")),
    "listmcpresourcestool": Alias("ListMcpResources"),
    "readmcpresourcetool": Alias("ReadMcpResource"),
}
"""Folded names that are not those of our own tools."""

PARTIAL = frozenset(
    ("readmanyfiles", "ls", "listdirectory", "listdir", "listfiles", "powershell", "lsp")
)
"""Names that mean some calls of our tool, not the tool as such."""
SPELLINGS: dict[str, tuple[str, ...]] = {
    "Agent": ("Task",),
    "Bash": ("shell", "local_shell", "exec_command", "run_shell_command"),
    "KillShell": ("KillBash",),
    "ListMcpResources": ("ListMcpResourcesTool",),
    "ReadMcpResource": ("ReadMcpResourceTool",),
    "TaskOutput": ("AgentOutputTool", "BashOutputTool"),
    "TodoWrite": ("update_plan",),
}
"""Our tools as others write them, for patterns: those cannot be looked up."""


def renamed_tool(name: str) -> str:
    """Return our tool that another agent calls by this name as a whole; empty if there is none."""
    found = TOOL_ALIASES.get(fold(name))
    return found.tool if found and fold(name) not in PARTIAL else ""


ZERO_BASED = frozenset(("readfile",))
"""Tools of others whose `offset` counts lines from 0 where ours counts from 1."""

PATHS = ("path", "filepath", "absolutepath", "filename", "file", "targetfile", "notebookpath")
FOLDERS = ("dirpath", "directory", "dir", "folder", "targetdirectory", "searchpath")


def _to(target: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, target)


ARGUMENTS: dict[str, dict[str, str]] = {
    "Bash": {
        **_to("command", "cmd", "script", "commandline"),
        **_to("workdir", "cwd", "workingdirectory", *FOLDERS),
        **_to("timeout", "timeoutms", "yieldtimems"),
        **_to("run_in_background", "isbackground", "background"),
        **_to("description", "justification", "explanation"),
    },
    "BashOutput": {
        **_to("bash_id", "shellid", "taskid", "jobid", "sessionid", "id"),
        **_to("filter", "pattern", "regex"),
    },
    "BashInput": {
        **_to("id", "sessionid", "bashid", "shellid", "taskid"),
        **_to("text", "chars", "input"),
        **_to("wait_ms", "yieldtimems", "timeout"),
    },
    "TaskOutput": _to("task_id", "agentid", "bashid", "shellid", "id"),
    "TaskStop": _to("task_id", "agentid", "bashid", "shellid", "id"),
    "Monitor": _to("task_id", "bashid", "shellid", "id"),
    "KillShell": _to("shell_id", "bashid", "taskid", "jobid", "sessionid", "id"),
    "Read": {
        **_to("file_path", *PATHS),
        **_to("offset", "startline", "linenumber", "line", "startlineoneindexed"),
        **_to("limit", "numlines", "linecount", "maxlines"),
    },
    "Write": {
        **_to("file_path", *PATHS),
        **_to("content", "filetext", "contents", "text"),
    },
    "Edit": {
        **_to("file_path", *PATHS),
        **_to("old_string", "oldstr", "oldtext", "search"),
        **_to("new_string", "newstr", "newtext", "replace", "replacement"),
        **_to("replace_all", "allowmultiple"),
    },
    "MultiEdit": _to("file_path", *PATHS),
    "NotebookEdit": {
        **_to("notebook_path", *(name for name in PATHS if name != "notebookpath"), "filepath"),
        **_to("new_source", "source", "content"),
    },
    "ApplyPatch": _to("input", "patch", "patchtext"),
    "Grep": {
        **_to("pattern", "query", "regex", "search"),
        **_to("path", *FOLDERS, "filepath"),
        **_to("glob", "include", "includepattern", "fileglob", "globpattern"),
        **_to("type", "filetype"),
        **_to("-C", "context", "contextlines"),
        **_to("-A", "after", "aftercontext", "aftercontextlines"),
        **_to("-B", "before", "beforecontext", "beforecontextlines"),
        **_to("-i", "ignorecase", "caseinsensitive"),
        **_to("-n", "linenumbers", "showlinenumbers"),
        **_to("head_limit", "limit", "maxresults", "maxcount", "totalmaxmatches"),
    },
    "Glob": {
        **_to("pattern", "globpattern", "query"),
        **_to("path", *FOLDERS),
    },
    "Symbols": {**_to("name", "symbol", "query"), **_to("path", *FOLDERS, "filepath")},
    "Skill": {**_to("name", "skill", "skillname", "command"), **_to("args", "arguments", "input")},
    "Agent": {
        **_to("prompt", "task", "instructions", "message"),
        **_to("description", "title", "summary"),
        **_to("subagent_type", "agenttype", "subagent", "agent", "subagentname", "agentname"),
        **_to("effort", "reasoningeffort"),
    },
    "AgentStop": _to("agent_id", "id", "taskid"),
    "SendMessage": {
        **_to("to", "recipient", "target", "agentid"),
        **_to("message", "content", "text"),
    },
    "TodoWrite": _to("todos", "items", "tasks", "plan", "todolist"),
    "AskUserQuestion": {},
    "ToolSearch": _to("max_results", "limit"),
    "McpCall": {**_to("tool", "name", "toolname"), **_to("arguments", "args", "input")},
    "WebFetch": _to("url", "uri", "link"),
    "WebSearch": _to("query", "q", "searchquery", "searchterm"),
    "Remember": _to("text", "fact", "memory", "content"),
    "Recall": _to("query", "q", "search"),
    "ExitPlanMode": {},
}
"""Folded names of arguments that mean one of ours, by tool."""

OWN = {fold(name): name for name in ARGUMENTS}
"""Our own tools by their folded names, for calls in another case."""

SHARED: dict[str, tuple[str, ...]] = {
    "Bash": ("workdir", "max_output_tokens"),
    "ApplyPatch": ("workdir",),
    "BashOutput": ("max_output_tokens",),
    "BashInput": ("max_output_tokens",),
}
"""Arguments that hold for a whole call, whatever its tool does: the folder that it runs in, and the
most tokens that its result may take. Schemas do not mention them."""

ANSWERED: dict[str, dict[str, str]] = {
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

COMMENTS = frozenset(("description", "explanation", "reason", "rationale", "thought", "purpose"))
"""Arguments with which models comment on a call; a tool without such a field says that it changes
nothing."""

ITEMS: dict[str, dict[str, str]] = {
    "TodoWrite": {
        **_to("content", "step", "description", "task", "title", "text", "name", "subject"),
        **_to("activeForm", "activeform"),
        **_to("", "id", "priority"),
    },
    "MultiEdit": {
        **_to("old_string", "oldstr", "oldtext"),
        **_to("new_string", "newstr", "newtext"),
    },
    "AskUserQuestion": {
        **_to("label", "name", "title", "value"),
        **_to("", "id", "type", "preview", "placeholder"),
    },
}
"""The same for the objects inside a list; an empty name for what changes nothing there."""
