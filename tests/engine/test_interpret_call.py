"""What calls mean: other agents' names and arguments, and what is refused in words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from travois.core.content import Call
from travois.core.tool_names import canonical_call, canonical_name
from travois.engine.interpret_call import InterpretedCall, MeaninglessCall, interpret_call
from travois.mcp.tools import McpTools
from travois.ports.tool import AnyTool
from travois.tools.catalog import TOOLS

KNOWN: dict[str, AnyTool] = {
    tool.name: tool for tool in (*TOOLS, *McpTools((), own=TOOLS).head_tools)
}


def meant(tool: str, /, **args: Any) -> InterpretedCall:
    return interpret_call(Call("1", tool, msgspec.json.encode(args).decode()), KNOWN)


def said(tool: str, /, **args: Any) -> tuple[str, dict[str, Any]]:
    call = meant(tool, **args).call
    return call.name, msgspec.json.decode(call.args)


LIST = [{"content": "a", "status": "pending"}, {"content": "b", "status": "completed"}]
PATCH = "*** Begin Patch\n*** Delete File: a\n*** End Patch\n"
SAME: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    # names in another case, and of other agents
    ("bash", {"command": "ls"}, "Bash", {"command": "ls"}),
    ("READ", {"file_path": "a"}, "Read", {"file_path": "a"}),
    (
        "Task",
        {"description": "d", "prompt": "p", "subagent_type": "t"},
        "Agent",
        {"description": "d", "prompt": "p", "subagent_type": "t"},
    ),
    ("Skill", {"skill": "pdf", "args": "x"}, "Skill", {"name": "pdf", "args": "x"}),
    # arguments that mean ours
    ("Bash", {"command": "ls", "workdir": "/"}, "Bash", {"command": "ls", "workdir": "/"}),
    ("Bash", {"cmd": "ls", "cwd": "/"}, "Bash", {"command": "ls", "workdir": "/"}),
    (
        "Bash",
        {"command": "ls", "dangerouslyDisableSandbox": True},
        "Bash",
        {"command": "ls", "sandbox": "off"},
    ),
    (
        "Read",
        {"file_path": "a", "start_line": 10, "end_line": 19},
        "Read",
        {"file_path": "a", "offset": 10, "limit": 10},
    ),
    (
        "Read",
        {"path": "a", "view_range": [3, 4]},
        "Read",
        {"file_path": "a", "offset": 3, "limit": 2},
    ),
    ("Read", {"path": "a", "view_range": [3, -1]}, "Read", {"file_path": "a", "offset": 3}),
    ("Grep", {"pattern": "x", "include": "*.py"}, "Grep", {"pattern": "x", "glob": "*.py"}),
    ("Grep", {"pattern": "x", "context": 2}, "Grep", {"pattern": "x", "-C": 2}),
    ("Grep", {"pattern": "x", "-A": 1, "-B": 2}, "Grep", {"pattern": "x", "-A": 1, "-B": 2}),
    ("Grep", {"pattern": "x", "case_sensitive": False}, "Grep", {"pattern": "x", "-i": True}),
    (
        "Edit",
        {"filePath": "a", "oldString": "b", "newString": "c", "replaceAll": True},
        "Edit",
        {"file_path": "a", "old_string": "b", "new_string": "c", "replace_all": True},
    ),
    (
        "MultiEdit",
        {"file_path": "a", "edits": [{"oldString": "b", "newString": "c", "replaceAll": True}]},
        "MultiEdit",
        {"file_path": "a", "edits": [{"old_string": "b", "new_string": "c", "replace_all": True}]},
    ),
    ("TodoWrite", {"todos": msgspec.json.encode(LIST).decode()}, "TodoWrite", {"todos": LIST}),
    ("Read", {"file_path": "a", "offset": None}, "Read", {"file_path": "a"}),
    # OpenAI's
    (
        "exec_command",
        {"cmd": "ls", "workdir": "/", "max_output_tokens": 400},
        "Bash",
        {"command": "ls", "workdir": "/", "max_output_tokens": 400},
    ),
    ("shell", {"command": ["bash", "-lc", "ls | wc"]}, "Bash", {"command": "ls | wc"}),
    ("shell", {"command": ["ls", "a b"]}, "Bash", {"command": "ls 'a b'"}),
    ("apply_patch", {"input": PATCH}, "ApplyPatch", {"input": PATCH}),
    (
        "shell",
        {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}EOF\n"], "workdir": "/"},
        "ApplyPatch",
        {"input": PATCH, "workdir": "/"},
    ),
    (
        "Bash",
        {"command": f"cd sub && apply_patch <<EOF\n{PATCH}EOF"},
        "ApplyPatch",
        {"input": PATCH, "workdir": "sub"},
    ),
    (
        "update_plan",
        {"plan": [{"step": "a", "status": "pending"}, {"step": "b", "status": "completed"}]},
        "TodoWrite",
        {"todos": LIST},
    ),
    ("view_image", {"path": "a.png"}, "Read", {"file_path": "a.png"}),
    # Gemini's and Qwen's
    (
        "read_file",
        {"absolute_path": "/a", "offset": 0, "limit": 5},
        "Read",
        {"file_path": "/a", "offset": 1, "limit": 5},
    ),
    ("write_file", {"file_path": "a", "content": "b"}, "Write", {"file_path": "a", "content": "b"}),
    (
        "replace",
        {"file_path": "a", "old_string": "b", "new_string": "c", "expected_replacements": 2},
        "Edit",
        {"file_path": "a", "old_string": "b", "new_string": "c", "replace_all": True},
    ),
    (
        "run_shell_command",
        {"command": "ls", "directory": "src", "is_background": False},
        "Bash",
        {"command": "ls", "workdir": "src", "run_in_background": False},
    ),
    (
        "search_file_content",
        {"pattern": "x", "include": "*.ts"},
        "Grep",
        {"pattern": "x", "glob": "*.ts", "output_mode": "content"},
    ),
    ("list_directory", {"path": "a b"}, "Bash", {"command": "ls -Ap -- 'a b'"}),
    (
        "read_many_files",
        {"include": ["a/*.md"], "exclude": ["a/x.md"]},
        "Grep",
        {"pattern": "", "glob": "a/*.md !a/x.md", "output_mode": "content"},
    ),
    (
        "write_todos",
        {
            "todos": [
                {"description": "a", "status": "blocked"},
                {"description": "b", "status": "completed"},
                {"description": "c", "status": "cancelled"},
            ]
        },
        "TodoWrite",
        {"todos": LIST},
    ),
    ("google_web_search", {"query": "xy"}, "WebSearch", {"query": "xy"}),
    ("save_memory", {"fact": "f"}, "Remember", {"text": "f"}),
    # others'
    (
        "str_replace_editor",
        {"command": "str_replace", "path": "a", "old_str": "b", "new_str": "c"},
        "Edit",
        {"file_path": "a", "old_string": "b", "new_string": "c"},
    ),
    ("view", {"path": "a"}, "Read", {"file_path": "a"}),
    (
        "ask_user",
        {"question": "q", "choices": ["a", "b"]},
        "AskUserQuestion",
        {"questions": [{"question": "q", "options": [{"label": "a"}, {"label": "b"}]}]},
    ),
    (
        "LSP",
        {"operation": "findReferences", "query": "f"},
        "Symbols",
        {"name": "f", "references": True},
    ),
]


@pytest.mark.parametrize(("name", "args", "tool", "ours"), SAME)
def test_a_call_in_other_words_is_one_call_of_ours(
    name: str, args: dict[str, Any], tool: str, ours: dict[str, Any]
) -> None:
    assert said(name, **args) == (tool, ours)


@pytest.mark.parametrize(("name", "args", "tool", "ours"), SAME)
def test_a_canonical_call_means_itself(
    name: str, args: dict[str, Any], tool: str, ours: dict[str, Any]
) -> None:
    again = meant(tool, **ours)
    assert (again.call.name, msgspec.json.decode(again.call.args)) == (tool, ours)
    assert again.call.args == msgspec.json.encode(ours).decode()


def test_arguments_of_the_whole_call_are_taken_from_it() -> None:
    found = meant("exec_command", cmd="ls", workdir="/x", max_output_tokens=1_000)
    assert (found.workdir, found.args.command, found.args.max_output_tokens) == ("/x", "ls", 1_000)


def test_a_number_above_the_most_is_that_most_and_said_so() -> None:
    found = meant("Bash", command="ls", timeout=900_000)
    assert found.args.timeout == 600_000
    assert found.remarks == ("timeout is limited to 600,000; that was used.",)
    assert msgspec.json.decode(found.call.args) == {"command": "ls", "timeout": 600_000}


@pytest.mark.parametrize(
    ("name", "args", "remark"),
    [
        (
            "WebFetch",
            {"url": "http://a", "prompt": "p"},
            "prompt has no effect here: the whole page is returned; look there.",
        ),
        (
            "Glob",
            {"pattern": "*", "description": "d"},
            "description was noted; it changes nothing.",
        ),
        ("TodoWrite", {"todos": [{**LIST[0], "priority": "high"}]}, "priority has no effect here."),
        (
            "SendMessage",
            {"to": "a", "message": "m", "content": "short"},
            "content has no effect here: message has another value.",
        ),
    ],
)
def test_what_changes_nothing_is_answered_in_words(
    name: str, args: dict[str, Any], remark: str
) -> None:
    assert meant(name, **args).remarks == (remark,)


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        (
            "Bash",
            {"command": "ls", "timout": 3},
            "Bash was not run: it has no argument 'timout'. Did you mean 'timeout'? It takes: ",
        ),
        (
            "Read",
            {"file_path": "a", "colour": 3},
            "it has no argument 'colour'. Did you mean 'column'?",
        ),
        (
            "Grep",
            {"pattern": "x", "include": "*.a", "file_glob": "*.b"},
            "Grep was not run: include and file_glob have different values; send one of them.",
        ),
        ("MultiEdit", {"file_path": "a", "edits": [{"old": "b"}]}, "it has no argument 'old'."),
        ("LSP", {"operation": "hover", "line": 1}, "there is no language server"),
        ("Reed", {"file_path": "a"}, "There is no tool 'Reed'. The tools are: Read, "),
    ],
)
def test_anything_else_is_refused_and_names_what_is_nearest(
    name: str, args: dict[str, Any], why: str
) -> None:
    with pytest.raises(MeaninglessCall) as error:
        meant(name, **args)
    assert why in str(error.value)


def test_context_layers_see_the_same_canonical_call() -> None:
    call = Call("1", "exec_command", '{"cmd":"ls","workdir":"/x"}')
    assert canonical_call(call) == Call("1", "Bash", '{"command":"ls","workdir":"/x"}')
    assert canonical_name("read_file") == "Read"
    assert canonical_name("apply_patch") == "ApplyPatch"
    assert canonical_call(Call("1", "bash", '{"command":"ls"}')).name == "Bash"
    ours = Call("1", "Read", '{"file_path": "a"}')
    assert canonical_call(ours) is ours


def test_an_argument_that_a_tool_has_counts_under_each_name_of_the_tool() -> None:
    class Args(msgspec.Struct, frozen=True):
        prompt: str
        model: str = ""

    tool = msgspec.structs.replace(KNOWN["Agent"], args=Args)
    found = interpret_call(Call("1", "Task", '{"prompt":"p","model":"m"}'), {"Agent": tool})
    assert (found.args, found.remarks) == (Args("p", "m"), ())


def test_tools_of_servers_are_left_as_they_are() -> None:
    call = Call("1", "mcp__s__read_file", '{"path":"a","start_line":2}')
    assert canonical_call(call) is call
