"""Requests that the workspace itself answers: its folders, symbols, commands, files and manifests.

Examples cannot know what lies in a folder. These rules read a request as a verb and a thing, and
look the thing up: a file by its name, a command by the project's own files, a name among the
symbols. What is not there is left to the examples, and to changes applies what applies there:
only what the request names itself, and the permission question stands before it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from msgspec.structs import replace

from travois.local_model.request_spans import find_command, strip_polite_opening
from travois.local_model.router import RoutedCall, is_harmless_text
from travois.prompt.project_commands import (
    SKIPPED_NAMES,
    CommandPurpose,
    find_project_commands,
)

MAX_SEARCHED_FILES = 20_000
MANIFESTS = ("pyproject.toml", "package.json", "Cargo.toml", "go.mod", "setup.py", "Gemfile")
READMES = ("README.md", "README.rst", "README.txt", "README")
PATH = r"[\w@+.~/-]*[\w@+-]"
NAME = r"[A-Za-z_]\w*"
ENDING = r"(?:\s+(?:please|pls|thanks|thx|for\s+me|here|now))*[\s.!?]*"
PLACE = (
    r"(?:this|the|my|our|that|current)\s+(?:repo\w*|project|folder|dir\w*|workspace|code\s?base)"
)
THING = r"(?:function|class|method|constant|variable|type|struct|interface|component)"
FileArguments = ("file_path", "path")


class WorkspaceRequest:
    """A request, read in the folder that it is about."""

    def __init__(self, text: str, folder: str) -> None:
        self.text = strip_polite_opening(text.strip())
        self.folder = folder

    def match(self, pattern: str) -> re.Match[str] | None:
        """Match the whole request, whatever its case and its manners."""
        return re.fullmatch(f"(?:{pattern}){ENDING}", self.text, re.IGNORECASE | re.VERBOSE)

    def find_path(self, name: str) -> str:
        """Return the path that a name stands for: itself, or the only file called so."""
        return find_named_path(name, self.folder)

    def is_path(self, name: str) -> bool:
        """Tell whether something of this name is there."""
        return os.path.exists(os.path.join(self.folder, os.path.expanduser(name)))


def route_in_workspace(text: str, *, folder: str, tools: frozenset[str]) -> RoutedCall | None:
    """Return the call that answers a request about this workspace; None for any other."""
    if not text.strip() or "\n" in text.strip():
        return None
    request = WorkspaceRequest(text, folder)
    for rule in RULES:
        call = rule(request)
        if call is not None and (call.tool in tools or call.say):
            return call
    return None


def resolve_named_files(call: RoutedCall, folder: str) -> RoutedCall:
    """Complete the paths of a call that name a file elsewhere in the workspace."""
    args: dict[str, Any] = dict(call.input)
    for name in FileArguments:
        if isinstance(args.get(name), str):
            args[name] = find_named_path(args[name], folder)
    if isinstance(args.get("paths"), list):
        args["paths"] = [find_named_path(str(path), folder) for path in args["paths"]]
    return replace(call, input=args) if call.tool != "Write" else call


def find_named_path(name: str, folder: str) -> str:
    """Return the only path in a folder that ends with this one; the name itself otherwise."""
    if os.path.exists(os.path.join(folder, os.path.expanduser(name))):
        return name
    ending = "/" + name.removeprefix("./").casefold()
    paths = islice(_walk_paths(folder), MAX_SEARCHED_FILES)
    found = [path for path in paths if f"/{path}".casefold().endswith(ending)]
    return found[0] if len(found) == 1 else name


def _walk_paths(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED_NAMES]
        inside = os.path.relpath(place, folder)
        for name in (*files, *folders):
            yield name if inside == "." else f"{inside}/{name}"


def _call(tool: str, **args: Any) -> RoutedCall:
    return RoutedCall(tool, args, 1.0)


# What lies where.


def _list_folder(request: WorkspaceRequest) -> RoutedCall | None:
    """`ls`: what is in this folder, or in one that is named."""
    found = request.match(
        rf"""(?:(?:list|show|see|get|give|tell)\s+(?:me\s+)?(?:all\s+)?(?:the\s+|my\s+)?
             |what(?:'?s|\s+is|\s+are)?\s+(?:the\s+)?|which\s+)
            (?:(?:files|folders|contents?|stuff|things|files\s+and\s+folders)\s*)?
            (?:(?:are|is|lies?|lie)\s+(?=in|inside|under|here|there))?
            (?:(?:do\s+(?:i|we)\s+have|are\s+there|is\s+there|there)\s*)?
            (?:(?:of|in|inside|under)\s+(?:(?P<here>here|{PLACE}|there)
              |(?:the\s+)?(?P<folder>{PATH})(?:\s+(?:folder|directory|dir))?))?
            |ls(?:\s+(?P<typed>{PATH}/?))?"""
    )
    if found is None or not re.search(
        r"\b(?:files|folders|contents?|in|inside|under|ls)\b", found[0]
    ):
        return None
    named = (found["folder"] or found["typed"] or "").rstrip("/")
    path = request.find_path(named) if named else ""
    if path and not os.path.isdir(os.path.join(request.folder, path)):
        return None
    return _call("Bash", command=f"ls -p {shlex.quote(path)}" if path else "ls -p")


LANGUAGE_ENDINGS = {
    **dict.fromkeys(("python", "py"), "*.py"),
    **dict.fromkeys(("javascript", "js"), "*.{js,jsx,mjs,cjs}"),
    **dict.fromkeys(("typescript", "ts"), "*.{ts,tsx}"),
    **dict.fromkeys(("go", "golang"), "*.go"),
    **dict.fromkeys(("rust", "rs"), "*.rs"),
    **dict.fromkeys(("markdown", "md"), "*.md"),
    **dict.fromkeys(("yaml", "yml"), "*.{yaml,yml}"),
    **{name: f"*.{name}" for name in ("java", "rb", "c", "css", "html", "json", "sql", "toml")},
    "ruby": "*.rb",
    "shell": "*.sh",
    "test": "*{test,spec}*.*",
}
"""What the files of a language are called, by what people call it."""


def _list_by_language(request: WorkspaceRequest) -> RoutedCall | None:
    """List the files of a language."""
    names = "|".join(LANGUAGE_ENDINGS)
    found = request.match(
        rf"""(?:list|find|show|see|get|which|what|how\s+many|count)\s+(?:me\s+)?(?:are\s+)?
            (?:all\s+)?(?:of\s+)?(?:the\s+|my\s+|our\s+)?\.?(?P<what>{names})\s+(?:source\s+)?files
            (?:\s+(?:do\s+(?:i|we)\s+have|are\s+there|there|exist))?(?:\s+in\s+{PLACE})?"""
    )
    if found is None:
        return None
    return _call("Glob", pattern=f"**/{LANGUAGE_ENDINGS[found['what'].lower()]}")


def _find_remarks(request: WorkspaceRequest) -> RoutedCall | None:
    """Find remarks such as TODO in the code."""
    found = request.match(
        rf"""(?:(?:find|show|list|see|get|are\s+there|any)\s+)+(?:me\s+)?(?:any\s+|all\s+)?
            (?:the\s+|my\s+|our\s+)?(?P<word>TODO|FIXME|XXX|HACK)(?:'?s)?(?:\s+comments?)?
            (?:\s+in\s+(?:{PLACE}|the\s+code))?"""
    )
    word = found["word"].upper() if found else ""
    return _call("Grep", pattern=rf"\b{word}\b", output_mode="content") if word else None


def _show_tree(request: WorkspaceRequest) -> RoutedCall | None:
    found = request.match(
        r"""(?:show|print|display|draw|what(?:'?s|\s+is))?\s*(?:me\s+)?(?:the\s+|a\s+)?
            (?:(?:folder|directory|project|file|repo\w*|code)\s*)?
            (?:structure|tree|layout|hierarchy)(?:\s+(?:of|in)\s+.*)?"""
    )
    return _call("Glob", pattern="**/*") if found else None


# Names in the code.


def _find_definition(request: WorkspaceRequest) -> RoutedCall | None:
    """Find where a name is defined: in the file that defines it, or wherever it stands."""
    found = request.match(
        rf"""(?:where(?:'?s|\s+is|\s+are|\s+do\s+(?:we|i)\s+define)?\s+(?:the\s+)?
              (?:{THING}\s+)?(?P<a>{NAME})(?:\(\))?(?:\s+{THING})?
              (?:\s+(?:defined|declared|implemented))?
            |(?:find|show|go\s+to|jump\s+to)\s+(?:me\s+)?(?:the\s+)?(?:definition|def)\s+of\s+
              (?:the\s+)?(?:{THING}\s+)?(?P<b>{NAME})(?:\(\))?
            |(?:find|locate|go\s+to|jump\s+to)\s+(?:me\s+)?(?:the\s+)?
              (?:{THING}\s+(?P<d>{NAME})|(?P<e>{NAME})\s+{THING})(?:\(\))?
            |(?:what|which)\s+(?:file|module)\s+(?:has|contains|defines|declares|holds)\s+
              (?:the\s+)?(?:{THING}\s+)?(?P<c>{NAME})(?:\(\))?(?:\s+in\s+it)?)"""
    )
    name = next((found[key] for key in "abcde" if found[key]), "") if found else ""
    if not name:
        return None
    place = find_definition_lines(name, request.folder)
    if place is not None:
        return _call("Grep", pattern=rf"\b{name}\b", path=place[0], output_mode="content")
    is_code = "_" in name.strip("_") or re.search(r"[a-z][A-Z]", name) is not None
    return _call("Grep", pattern=name, output_mode="content") if is_code else None


def _show_code(request: WorkspaceRequest) -> RoutedCall | None:
    """Show the text of a function or class."""
    found = request.match(
        rf"""(?:show|print|display|open|see|view|read)\s+(?:me\s+)?(?:the\s+)?(?:code\s+(?:of|for)\s+)?
            (?:(?:{THING}|def)\s+(?P<a>{NAME})(?:\(\))?
              |(?P<b>{NAME})(?:\(\))?\s+(?:{THING}|definition|implementation))"""
    )
    name = (found["a"] or found["b"]) if found else ""
    if not name:
        return None
    place = find_definition_lines(name, request.folder)
    if place is None:
        return _call("Grep", pattern=name, output_mode="content")
    path, first, count = place
    return _call("Read", file_path=path, offset=first, limit=count)


DEFINITION = (
    r"^(?P<indent>[ \t]*)(?:export\s+|pub(?:\(\w+\))?\s+|async\s+|static\s+|public\s+|private\s+"
    r"|abstract\s+|default\s+)*(?:def|class|function|fn|func(?:\s+\([^)]*\))?|struct|enum|trait"
    r"|interface|type|const|let|var|module)\s+{}\b|^{}\s*(?::[^=\n]+)?=[^=]"
)
SOURCE_ENDINGS = (
    *(".py", ".js", ".jsx", ".ts", ".tsx", ".go", ".rs", ".rb", ".java", ".kt", ".c", ".h"),
    *(".cc", ".cpp", ".hpp", ".cs", ".php", ".swift", ".scala", ".lua", ".ex", ".exs"),
)
MAX_SOURCE_BYTES = 500_000
MAX_SHOWN_LINES = 60


def find_definition_lines(name: str, folder: str) -> tuple[str, int, int] | None:
    """Return the file, first line and length of what a name is defined as; None if unknown."""
    pattern = re.compile(DEFINITION.format(re.escape(name), re.escape(name)), re.MULTILINE)
    for path in islice(_walk_paths(folder), MAX_SEARCHED_FILES):
        if not path.endswith(SOURCE_ENDINGS):
            continue
        try:
            with open(os.path.join(folder, path), encoding="utf-8", errors="replace") as file:
                text = file.read(MAX_SOURCE_BYTES)
        except OSError:
            continue
        if name in text and (match := pattern.search(text)):
            first = text.count("\n", 0, match.start()) + 1
            indent = len(match["indent"] or "")
            return path, first, _count_block_lines(text.split("\n")[first - 1 :], indent)
    return None


def _count_block_lines(lines: list[str], indent: int) -> int:
    """Count the lines of a block: to the next line that is indented no deeper and opens nothing."""
    for number, line in enumerate(lines[1:MAX_SHOWN_LINES], 1):
        depth = len(line) - len(line.lstrip())
        if line.strip() and depth <= indent:
            end = number + (line.strip()[:1] in "}])")
            break
    else:
        end = len(lines[:MAX_SHOWN_LINES])
    return max((at for at, line in enumerate(lines[:end], 1) if line.strip()), default=1)


# What the project says of itself.


def _run_project_command(request: WorkspaceRequest) -> RoutedCall | None:
    """Run the project's own tests, checks or build."""
    found = request.match(
        rf"""(?:(?:run|start|execute|launch|try|do)\s+(?:all\s+|only\s+|just\s+)?(?:of\s+)?
                 (?:the\s+|my\s+|our\s+)?(?:unit\s+|whole\s+|full\s+)?
                 (?:(?P<what>tests?(?:\s+suite)?|test\s*suite|linter?|lint|checks?|build
                     |(?:dev\s+)?server|app(?:lication)?|program)
                   |(?P<file>{PATH}\.\w+))(?:\s+(?:in|of|from)\s+(?P<where>{PATH}))?
              |do(?:es)?\s+(?:all\s+)?(?:the\s+|my\s+|our\s+)?(?P<asked>tests|build|linter?)\s+
                 (?:still\s+)?(?:pass|work|run|succeed)
              |(?P<bare>test|lint|build)(?:\s+(?:it|this|{PLACE}))?
              |are\s+(?:all\s+)?(?:the\s+)?(?P<green>tests)\s+(?:green|passing|ok))"""
    )
    if found is None:
        return None
    commands = find_project_commands(request.folder)
    what = found["what"] or found["asked"] or found["bare"] or found["green"] or "test"
    file = found["file"] or found["where"] or ""
    command = getattr(commands, _name_purpose(what))
    if file:
        path = request.find_path(file)
        takes_files = "pytest" in command and "test" in path and request.is_path(path)
        command = f"{command} {shlex.quote(path)}" if takes_files else ""
    return _call("Bash", command=command) if command else None


def _name_purpose(what: str) -> CommandPurpose:
    """Return what a command is for, by the word that a request has for it."""
    word = what.lower()
    if word.startswith(("lint", "check")):
        return "lint"
    return "build" if "build" in word else "test" if "test" in word else "run"


def _tell_project_command(request: WorkspaceRequest) -> RoutedCall | None:
    """Say how the project is tested, checked, built or started, without doing it."""
    found = request.match(
        r"""(?:how\s+(?:do|can|should|would)\s+(?:i|we|you|one)|how\s+to|what(?:'?s|\s+is)\s+the\s+
              command\s+(?:to|for))\s+(?:run\s+|execute\s+|start\s+|launch\s+)?(?:all\s+)?
            (?:the\s+|my\s+|our\s+)?(?:unit\s+)?(?P<what>tests?|lint(?:er)?|checks?|build|server|app)
            (?:\s+(?:it|this))?"""
    )
    purpose = _name_purpose(found["what"]) if found else "test"
    command = getattr(find_project_commands(request.folder), purpose) if found else ""
    say = f"`{command}`. Type `!{command}` to run it." if command else ""
    return RoutedCall("", {}, 1.0, say) if say else None


def _show_manifest(request: WorkspaceRequest) -> RoutedCall | None:
    """Show what the project depends on, or which version it is."""
    manifest = next((name for name in MANIFESTS if request.is_path(name)), "")
    version = request.match(
        rf"(?:what(?:'?s|\s+is)?|which|show|tell)\s+(?:me\s+)?(?:the\s+)?(?:current\s+)?version"
        rf"(?:\s+(?:is\s+(?:this|it)|are\s+we\s+(?:on|at)|of\s+(?:this|it|{PLACE})|is\s+{PLACE}))?"
    )
    if manifest and version:
        return _call("Grep", pattern="version", path=manifest, output_mode="content")
    needs = request.match(
        rf"""(?:what|which)\s+(?:does\s+(?:this|it|{PLACE})\s+depend\s+on
              |(?:are\s+)?(?:the\s+|our\s+|its\s+)?(?:dependencies|deps|requirements|packages|libraries)
               (?:\s+(?:does|do|are|has|have)\b.*)?)
            |(?:show|list)\s+(?:me\s+)?(?:the\s+|all\s+|our\s+)*(?:dependencies|deps|requirements)"""
    )
    return _call("Read", file_path=manifest) if manifest and needs else None


def _show_readme(request: WorkspaceRequest) -> RoutedCall | None:
    """Show the readme to who asks what this is, or how it is installed or used."""
    readme = next((name for name in READMES if request.is_path(name)), "")
    found = request.match(
        rf"""how\s+(?:do|can|should)\s+(?:i|we|you|one)\s+(?:install|run|use|start|set\s+up|build)\s+
              (?:this|it|{PLACE})
            |what(?:'?s|\s+is|\s+does)\s+(?:this|it|{PLACE})(?:\s+(?:do|about|for))?
            |(?:what\s+does\s+)?(?:the\s+)?readme(?:\s+say)?"""
    )
    return _call("Read", file_path=readme) if readme and found else None


def _look_at_git(request: WorkspaceRequest) -> RoutedCall | None:
    """Tell the branch, the last commit, and whether anything is uncommitted."""
    if request.match(
        r"(?:what|which)(?:'?s|\s+is)?\s+(?:the\s+|my\s+)?(?:current\s+)?(?:git\s+)?branch"
        r"(?:\s+(?:am\s+i|are\s+we|is\s+(?:this|it))(?:\s+on)?)?|(?:show|current|git)\s+branch"
    ):
        return _call("Bash", command="git branch --show-current")
    if request.match(
        r"(?:show|see|view|what(?:'?s|\s+is|\s+was))\s+(?:me\s+)?(?:the\s+|my\s+)?"
        r"(?:last|latest|most\s+recent|newest)\s+commit"
    ):
        return _call("GitShow", rev="HEAD")
    if request.match(
        r"(?:is|did\s+i|have\s+i)\s+(?:everything|all|it\s+all|commit\w*)\s*"
        r"(?:committed|commit\s+everything|everything|clean)?|what(?:'?s|\s+has|\s+have)?\s+"
        r"(?:i\s+)?(?:changed|uncommitted|not\s+committed)(?:\s+so\s+far)?"
    ):
        return _call("GitStatus")
    return None


def _commit_changes(request: WorkspaceRequest) -> RoutedCall | None:
    """Commit what has changed, with a message in the user's own words."""
    found = request.match(
        r"""(?:git\s+)?commit\s+(?:(?:all|the|my|these|this|it|everything|changes)\s+)*
            (?:(?:with|using)\s+(?:the\s+|a\s+)?(?:commit\s+)?message|saying|as)[:,]?\s+
            ["'`]?(?P<message>.+?)["'`]?"""
    )
    if found is None:
        return None
    return _call("Bash", command=f"git add -A && git commit -m {shlex.quote(found['message'])}")


def _blame_lines(request: WorkspaceRequest) -> RoutedCall | None:
    found = request.match(
        rf"who\s+(?:wrote|changed|last\s+changed|touched|added|is\s+behind)\s+lines?\s+(?P<first>\d+)"
        rf"(?:\s*(?:-|to|through|and|until)\s*(?P<last>\d+))?\s+(?:of|in)\s+(?P<path>{PATH})"
    )
    if found is None:
        return None
    first, last = int(found["first"]), int(found["last"] or found["first"])
    return _call("GitBlame", path=request.find_path(found["path"]), start=first, end=last)


def _run_command(request: WorkspaceRequest) -> RoutedCall | None:
    """Run a command whose output is asked for in so many words."""
    found = request.match(
        r"""what(?:'?s|\s+is|\s+does)?\s+(?:the\s+)?(?:output|result)\s+of\s+`?(?P<a>[^`]+?)`?
            |(?:run|execute)\s+`?(?P<b>[^`]+?)`?\s+and\s+(?:show|tell|give)\s+(?:me\s+)?
             (?:the\s+|its\s+)?(?:output|results?)"""
    )
    command = (found["a"] or found["b"]) if found else ""
    is_plain = bool(command) and find_command(f"run {command}") is not None
    return _call("Bash", command=command) if is_plain and is_harmless_text(command) else None


# Changes that the request names in full.


def _move_file(request: WorkspaceRequest) -> RoutedCall | None:
    """Rename or move a file that is there to a place that is free."""
    found = request.match(
        rf"(?:rename|move|mv)\s+(?:the\s+)?(?:file\s+|folder\s+)?(?P<old>{PATH}/?)\s+"
        rf"(?:to|into|as|->)?\s*(?P<new>{PATH}/?)"
    )
    if found is None:
        return None
    old, new = request.find_path(found["old"].rstrip("/")), found["new"]
    if not request.is_path(old) or ("." not in new and "/" not in new and not request.is_path(new)):
        return None
    if request.is_path(new) and not os.path.isdir(os.path.join(request.folder, new)):
        return None
    if "/" not in new and "/" in old and found["old"] != old:
        new = f"{os.path.dirname(old)}/{new}"
    return _call("Bash", command=f"mv {shlex.quote(old)} {shlex.quote(new)}")


def _append_line(request: WorkspaceRequest) -> RoutedCall | None:
    """Add a line to the end of a named file, unless it has it."""
    found = request.match(
        rf"""(?:add|append)\s+(?:(?:the\s+|a\s+)?(?:line|text|entry)\s+["'`]?(?P<text>.+?)["'`]?
              |["'`](?P<quoted>.+?)["'`]|(?P<word>{PATH}))
            \s+to\s+(?:the\s+)?(?:end\s+of\s+)?(?:the\s+)?(?:file\s+)?(?P<path>{PATH})"""
    )
    if found is None:
        return None
    path, line = request.find_path(found["path"]), found["text"] or found["quoted"] or found["word"]
    lines = _read_whole(os.path.join(request.folder, path)).rstrip("\n").split("\n")
    last = lines[-1]
    if line in lines:
        return RoutedCall("", {}, 1.0, f"{path} has this line already.")
    if not last or "\n".join(lines).count(last) > 1:
        return None
    return _call("Edit", file_path=path, old_string=last, new_string=f"{last}\n{line}")


def _create_empty_file(request: WorkspaceRequest) -> RoutedCall | None:
    found = request.match(
        rf"""(?:create|make|add|touch|new)\s+(?:me\s+)?(?:an?\s+|the\s+)?(?:new\s+)?
            (?:empty|blank)\s+(?:file\s+)?(?:called\s+|named\s+|at\s+)?(?P<path>{PATH}\.?\w*)
            |touch\s+(?P<touched>{PATH})"""
    )
    path = (found["path"] or found["touched"]) if found else ""
    free = path and not request.is_path(path)
    return _call("Write", file_path=path, content="") if free else None


def _replace_in_file(request: WorkspaceRequest) -> RoutedCall | None:
    """Replace a word or text that stands in a named file, or rename a name throughout it."""
    found = request.match(
        rf"""(?:fix\s+)?(?:the\s+|a\s+)?typo\s+in\s+(?P<typo>{PATH})[:,]\s*
              ["'`]?(?P<bad>[\w -]+?)["'`]?\s+(?:should\s+be|->|to|=>)\s+
              ["'`]?(?P<good>[\w -]+?)["'`]?
            |in\s+(?P<where>{PATH})[:,]?\s+(?:rename|replace|change)\s+
              (?P<was>.+?)\s+
              (?:to|with|by)\s+(?P<now>.+?)
            |(?P<verb>rename|replace|change)\s+["'`]?(?P<old>.+?)["'`]?\s+(?:to|with|by|into)\s+
              ["'`]?(?P<new>.+?)["'`]?\s+in\s+(?P<path>{PATH})"""
    )
    if found is None:
        return None
    path = request.find_path(found["typo"] or found["where"] or found["path"])
    old = (found["bad"] or found["was"] or found["old"]).strip("\"'`")
    new = (found["good"] or found["now"] or found["new"]).strip("\"'`")
    text = _read_whole(os.path.join(request.folder, path))
    if not old or old not in text:
        return None
    every = found["verb"] == "rename" or text.count(old) > 1
    return _call("Edit", file_path=path, old_string=old, new_string=new, replace_all=every)


def _count_lines(request: WorkspaceRequest) -> RoutedCall | None:
    found = request.match(
        rf"(?:how\s+many\s+lines\s+(?:is|are\s+in|has|does)\s+|count\s+(?:the\s+)?lines\s+(?:in|of)\s+)"
        rf"(?:the\s+)?(?P<path>{PATH})(?:\s+(?:have|long))?"
    )
    path = request.find_path(found["path"]) if found else ""
    return (
        _call("Bash", command=f"wc -l {shlex.quote(path)}")
        if request.is_path(path) and path
        else None
    )


def _read_whole(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(MAX_SOURCE_BYTES)
    except (OSError, UnicodeDecodeError):
        return ""


RULES: tuple[Callable[[WorkspaceRequest], RoutedCall | None], ...] = (
    *(_list_by_language, _find_remarks, _list_folder, _show_tree, _find_definition, _show_code),
    *(_tell_project_command, _run_project_command, _show_manifest, _show_readme, _look_at_git),
    *(_blame_lines, _run_command, _commit_changes, _move_file, _append_line),
    *(_create_empty_file, _replace_in_file, _count_lines),
)
