"""Extracting ledger facts from tool calls: a call and its result as an action of a known kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeGuard

import msgspec
from msgspec.structs import replace

from travois.core.content import Call, extract_calls, extract_text
from travois.core.facts import Assistant, Changed, Decided, Entry, Finished, Result, Spawned, User
from travois.core.patterns import compile_lazily
from travois.core.tasks import TODOS_STATE, open_blockers, read_tasks

ActionKind = Literal[
    "shell", "edit", "write", "read", "delete", "patch", "list", "task", "retask", "ask", "plan",
    "make", "other",
]  # fmt: skip
TOOL_FAMILIES: dict[ActionKind, str] = {
    "shell": "bash shell powershell execcommand localshell localshellcall runcommand terminal "
    "runterminalcmd runinterminal executecommand runshellcommand containerexec",
    "edit": "edit multiedit notebookedit strreplace strreplaceeditor strreplacebasededittool "
    "insert replace searchreplace editfile replaceinfile applydiff",
    "write": "write create writefile createfile savefile writetofile",
    "read": "read view open readfile viewfile viewimage openfile",
    "delete": "delete deletefile removefile",
    "patch": "applypatch",
    "list": "todowrite updateplan writetodos updatetodolist managetodolist todo",
    "task": "taskcreate createtask",
    "retask": "taskupdate updatetask",
    "ask": "askuserquestion askuser askfollowupquestion requestuserinput question",
    "plan": "exitplanmode presentplan",
    "make": "createissue createpullrequest createpr createmergerequest",
}
"""Agents and servers name the same tools differently: the last part of a name, in small letters."""
KIND_BY_TOOL: dict[str, ActionKind] = {
    name: kind for kind, names in TOOL_FAMILIES.items() for name in names.split()
}
EDITOR_COMMANDS: dict[str, ActionKind] = {"view": "read", "create": "write"}
HUMAN_KINDS: tuple[ActionKind, ...] = ("ask", "plan")
"""Kinds that an MCP tool cannot have, whatever its name: it must not speak for the user."""
REFUSED_RESULT = compile_lazily(
    r"The user (?:doesn't|does not) want to |(?:Rejected|Denied) by the user"
)


class ToolAction(msgspec.Struct, frozen=True):
    """A finished tool call."""

    seq: int
    kind: ActionKind
    name: str
    args: dict[str, object]
    text: str
    error: bool = False
    detail: str = ""
    refused: str | None = None
    """The user's words when they refused it; empty if none, None if it was not refused."""

    def arg(self, *names: str) -> str:
        """Return the first of these arguments that is a text."""
        return next((v for n in names if isinstance(v := self.args.get(n), str) and v), "")

    @property
    def path(self) -> str:
        """The file that it names."""
        return self.arg("file_path", "path", "notebook_path", "filePath", "filename", "file")

    @property
    def command(self) -> str:
        """The command line that it runs."""
        given = self.args.get("command") or self.args.get("cmd")
        if is_list(given):
            parts = [str(part) for part in given]
            return parts[-1] if len(parts) == 3 and parts[0].endswith("sh") else " ".join(parts)
        return given if isinstance(given, str) else ""


class ActionReader:
    """A reader of actions that knows the calls whose result has not come yet."""

    def __init__(self) -> None:
        self._asked: dict[str, Call] = {}
        self._ruled: dict[str, str | None] = {}

    def read(self, entry: Entry) -> ToolAction | None:
        """Return the action that this entry completes, if it is the result of a call."""
        match entry.fact:
            case Assistant(content=content):
                self._asked.update((call.id, call) for call in extract_calls(content))
            case Decided(call=call, verdict=verdict, because=because, by=by):
                self._ruled[call] = because if (verdict, by) == ("deny", "person") else None
            case Result() as result if result.call in self._asked:
                ruled = result.call in self._ruled
                refused = self._ruled.pop(result.call) if ruled else _find_refusal(result)
                call = self._asked.pop(result.call)
                return _make_action(call, result, seq=entry.seq, refused=refused)
            case _:
                pass
        return None


def extract_actions(entries: Iterable[Entry]) -> Iterator[ToolAction]:
    """Yield each tool call that has a result as a ledger action, in the order of results."""
    reader = ActionReader()
    return (act for entry in entries if (act := reader.read(entry)) is not None)


def classify_tool(name: str, args: dict[str, object]) -> ActionKind:
    """Return the kind of action that a tool of this name performs."""
    plain = re.sub(r"[^a-z0-9]", "", name.rpartition("__")[2].lower())
    kind = KIND_BY_TOOL.get(plain, "other")
    if kind == "edit":
        return EDITOR_COMMANDS.get(str(args.get("command")), kind)
    return "other" if kind in HUMAN_KINDS and name.startswith("mcp__") else kind


def decode_arguments(args: str) -> dict[str, object]:
    """Return a tool call's arguments for the ledger; empty if they are not a JSON object."""
    try:
        value: object = msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}
    return value if is_object(value) else {}


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Return whether a value decoded for the ledger is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Return whether a value decoded for the ledger is a JSON list."""
    return isinstance(value, list)


def _make_action(call: Call, result: Result, *, seq: int, refused: str | None) -> ToolAction:
    """Build a ledger action from a tool call and its result."""
    args, text = decode_arguments(call.args), extract_text(result.content)
    kind = classify_tool(call.name, args)
    return ToolAction(seq, kind, call.name, args, text, result.error, result.detail, refused)


def _find_refusal(result: Result) -> str | None:
    """Return the user's words in a refused call, for logs that record it only as a result."""
    text = extract_text(result.content)
    if not result.error or not REFUSED_RESULT.match(text):
        return None
    return text.partition("the user said:")[2].partition("\nNote: The user")[0].strip()


# What the human decided: answers to questions, and plans they approved.


ANSWER_PAIR = compile_lazily(r'"([^"\n]{4,})"="([^"\n]+)"')
APPROVED_PLAN = compile_lazily(r"Approved Plan:?\s*\n(.+)", re.DOTALL)


class UserDecision(msgspec.Struct, frozen=True):
    """An answer to a question, or with no question a plan that was approved."""

    seq: int
    answer: str
    question: str = ""


def extract_decisions(acts: Iterable[ToolAction]) -> tuple[UserDecision, ...]:
    """Return all decisions of the user for the ledger, oldest first."""
    return tuple(decision for act in acts for decision in _decisions_of_action(act))


def _decisions_of_action(act: ToolAction) -> Iterator[UserDecision]:
    """Yield the user's decisions from an approved plan or answered questions."""
    if act.error or act.refused is not None:
        return
    if act.kind == "plan":
        saved = APPROVED_PLAN.search(act.text)
        plan = act.arg("plan") or (saved[1] if saved else "")
        if plan:
            yield UserDecision(act.seq, plan.strip())
    elif act.kind == "ask":
        pairs = ANSWER_PAIR.findall(act.text)
        for question, answer in pairs:
            yield UserDecision(act.seq, answer, question)
        if not pairs:
            yield UserDecision(act.seq, act.text.strip(), _question_of_action(act))


def _question_of_action(act: ToolAction) -> str:
    """Return the question that a tool call asked the user."""
    listed = act.args.get("questions")
    items = [item for item in listed if is_object(item)] if is_list(listed) else []
    asked = [str(item.get("question", "")) for item in items]
    return " ".join(asked) or act.arg("question", "prompt", "text")


# What runs beside the conversation, and how it stands.


JOB_STARTED = compile_lazily(r"(?i)background (?:as|with id:?|\(id:?)\s*([\w\-]+)")

JOB_DETACHED = compile_lazily(r"goes on in the background as ([\w\-]+)\. You are told")
JOB_ENDED = compile_lazily(r"\[[\w\-]+: ([^\]\n]+)\]")
"""The beginning of the report that a job has ended."""


class BackgroundJob(msgspec.Struct, frozen=True):
    """A background command or a child agent."""

    id: str
    what: str = ""
    state: str = "running"


def extract_jobs(
    entries: Iterable[Entry], acts: Iterable[ToolAction], earlier: Sequence[BackgroundJob] = ()
) -> tuple[BackgroundJob, ...]:
    """Return all background jobs and subagents for the ledger, newest first."""
    states = {job.id: job.state for job in reversed(earlier)}
    names = {job.id: job.what for job in reversed(earlier)}
    for entry in entries:
        match entry.fact:
            case Changed(what=what, value=value) if what.startswith("job:"):
                states[what.removeprefix("job:")] = value
            case Spawned(id=id, what=what, kind=kind) if kind != "fork":
                states[id], names[id] = "running", what
            case User(mail=letter, content=content) if letter.startswith("job:"):
                told = JOB_ENDED.match(extract_text(content))
                states[letter.removeprefix("job:")] = told[1] if told else "ended"
            case Finished(id=id, outcome=outcome) if id in states:
                states[id] = outcome
            case _:
                pass
    for act in acts:
        asked = act.args.get("run_in_background")
        started = (
            JOB_STARTED.search(act.text[:500]) if asked else JOB_DETACHED.search(act.text[-500:])
        )
        if started:
            names[started[1]] = act.command or act.arg("description")
            states.setdefault(started[1], "started, end not seen")
    return tuple(
        BackgroundJob(id, names.get(id, ""), state) for id, state in reversed(states.items())
    )


# What the session brought into the world under a name of its own: commits, requests, issues.


CREATING_COMMAND = compile_lazily(
    r"\bgit\b[^\n;&|]{0,200}?\b(?:commit|cherry-pick|revert|push|merge)\b"
    r"|\bgh (?:pr|issue) create|\bglab "
)
COMMIT_LINE = compile_lazily(
    r"^\[([^\]\n]*?) ?(?:\(root-commit\) )?\b([0-9a-f]{7,40})\] ?(.*)$", re.MULTILINE
)
FORGE_LINK = compile_lazily(r"https?://[\w.\-]+/[\w.\-/]+?/(pull|issues|merge_requests)/(\d+)")
TICKET_ID = compile_lazily(r'"(?:identifier|key|id)":\s*"([A-Z][A-Z0-9]+-\d+)"')
BRANCH_LINE = compile_lazily(
    r"^(?:On branch |Switched to (?:a new )?branch ')([\w./\-]+)|^## ([\w./\-]+?)\.\.\.",
    re.MULTILINE,
)
FORGE_PAGES = {"pull": "pull request", "issues": "issue", "merge_requests": "merge request"}


class CreatedItem(msgspec.Struct, frozen=True):
    """A created commit, pull request or issue, by the id that it is known under."""

    kind: str
    id: str
    about: str = ""


class GitState(msgspec.Struct, frozen=True):
    """The repository as it was last seen."""

    branch: str = ""
    commit: str = ""


def extract_created_items(
    acts: Iterable[ToolAction], earlier: Sequence[CreatedItem] = ()
) -> tuple[CreatedItem, ...]:
    """Return the created commits, issues and pull requests for the ledger, newest first."""
    found = {thing.id: thing for thing in reversed(earlier)}
    for act in acts:
        if act.refused is None:
            for thing in _items_created_by(act):
                found.setdefault(thing.id, thing)
    return tuple(reversed(found.values()))


def extract_git_state(acts: Iterable[ToolAction], earlier: GitState) -> GitState:
    """Return the git branch and commit last seen, for the ledger."""
    branch, commit = earlier.branch, earlier.commit
    for act in acts:
        if act.kind == "shell" and "git" in act.command:
            told = BRANCH_LINE.search(act.text)
            done = list(COMMIT_LINE.finditer(act.text)) if "commit" in act.command else []
            branch = (told[1] or told[2]) if told else branch
            if done:
                branch, commit = done[-1][1].split(" ")[0] or branch, done[-1][2]
    return GitState(branch, commit)


def _items_created_by(act: ToolAction) -> Iterator[CreatedItem]:
    """Yield the commits, issues and pull requests that a tool call created."""
    if act.kind == "shell" and CREATING_COMMAND.search(act.command):
        for commit in COMMIT_LINE.finditer(act.text):
            yield CreatedItem("commit", commit[2], commit[3].strip())
    elif act.kind != "make" or act.error:
        return
    about = act.arg("title") or _find_title_option(act.command)
    for link in FORGE_LINK.finditer(act.text):
        yield CreatedItem(FORGE_PAGES[link[1]], link[0], about)
    for ticket in TICKET_ID.finditer(act.text[:4_000]) if act.kind == "make" else ():
        yield CreatedItem("issue", ticket[1], about)


def _find_title_option(command: str) -> str:
    found = re.search(r"""--title[ =](?:"([^"]*)"|'([^']*)')""", command)
    return (found[1] or found[2]) if found else ""


# The task list as it stands.


SUBJECT_KEYS = ("content", "step", "subject", "title", "text", "task", "description")
CLOSED_STATUS = compile_lazily(
    r"(?i)complete|done|cancel|skip|finish|closed|resolved|abandon|dropped"
)


class LedgerTask(msgspec.Struct, frozen=True):
    """One thing to do, with the status that was last given to it."""

    subject: str
    status: str = "pending"
    id: str = ""
    owner: str = ""
    waits: tuple[str, ...] = ()
    """The open tasks that must be completed before it."""

    @property
    def is_open(self) -> bool:
        """Return whether it is still to be done."""
        return not CLOSED_STATUS.search(self.status)


def find_todo_state(entries: Iterable[Entry]) -> str:
    """Return the last to-do list in the log, as stored; empty if there is none."""
    facts = (entry.fact for entry in entries)
    values = [
        fact.value for fact in facts if isinstance(fact, Changed) and fact.what == TODOS_STATE
    ]
    return values[-1] if values else ""


def read_todo_list(state: str) -> tuple[LedgerTask, ...]:
    """Return the to-do list of the log for the ledger; empty for other agents' logs."""
    found = read_tasks(state) if state else ()
    return tuple(
        LedgerTask(task.content, task.status, task.id, task.owner, open_blockers(found, task))
        for task in found
    )


class CalledTasks(msgspec.Struct):
    """The task list that calls made: the last whole one, and tasks that were created singly."""

    whole: tuple[LedgerTask, ...] = ()
    single: dict[str, LedgerTask] = {}

    def add(self, act: ToolAction) -> None:
        """Take in what one call did to the list."""
        if act.error:
            return
        if act.kind == "list":
            self.whole = tuple(_tasks_in_list(act))
        elif act.kind == "task" and (subject := act.arg(*SUBJECT_KEYS[2:])):
            number = re.search(r"#(\d+)", act.text)
            self.single[number[1] if number else f"call {act.seq}"] = LedgerTask(
                subject, id=number[1] if number else ""
            )
        elif act.kind == "retask":
            _update_task(self.single, act)

    @property
    def all(self) -> tuple[LedgerTask, ...]:
        """All tasks that were not deleted."""
        return self.whole + tuple(self.single.values())


def _tasks_in_list(act: ToolAction) -> Iterator[LedgerTask]:
    """Yield the tasks of a to-do list that the model wrote in one tool call."""
    lists = [value for value in act.args.values() if is_list(value)]
    for item in lists[0] if lists else ():
        if is_object(item):
            subject = next((str(item[key]) for key in SUBJECT_KEYS if item.get(key)), "")
            if subject:
                yield LedgerTask(subject, str(item.get("status") or "pending"))


def _update_task(single: dict[str, LedgerTask], act: ToolAction) -> None:
    """Change or delete one task of the ledger as a task tool call says."""
    id = str(act.args.get("taskId") or act.args.get("task_id") or act.args.get("id") or "")
    task = single.get(id)
    if task is None:
        return
    status = act.arg("status") or task.status
    if status == "deleted":
        del single[id]
        return
    subject = act.arg("subject", "title") or task.subject
    single[id] = replace(task, subject=subject, status=status)


# What a command line runs, roughly: enough to remember it by, never enough to permit it.


MAX_COMMAND_CHARS = 20_000
HEREDOC = compile_lazily(
    r"<<-?[ \t]*(['\"]?)(\w+)\1([^\n]{0,400})\n.*?(?:\n[ \t]*\2[ \t]*(?=\n|\)|$)|\Z)", re.DOTALL
)
SHELL_TOKEN = compile_lazily(
    r"(?P<into>(?:\d|&)?>{1,2}(?:&\d|[ \t]*[^\s;|&<>()]+))"
    r"""|(?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\;|&<>()]|(?<=\$)\()+)"""
    r"|(?P<end>&&|\|\||[;\n&()])|(?P<pipe>\|)|.",
    re.DOTALL,
)
COMMAND_PREFIX = compile_lazily(
    r"^(?:(?:[A-Za-z_]\w*=\S*|time|nice|sudo|env|command|exec|then|do|timeout(?: -\S+)* \S+)\s+)+"
)


class SimpleCommand(msgspec.Struct, frozen=True, gc=False):
    """One simple command of a line, without its redirections, variables and the pipe after it."""

    text: str
    writes: tuple[str, ...] = ()
    piped: bool = False


def split_command_line(command: str) -> Iterator[SimpleCommand]:
    """Yield the simple commands of a line, without those behind a pipe, for the ledger."""
    words: list[str] = []
    writes: list[str] = []
    piped = False
    for token in SHELL_TOKEN.finditer(HEREDOC.sub(r"\3\n", command[:MAX_COMMAND_CHARS])):
        match token.lastgroup:
            case "word" if not piped:
                words.append(token[0])
            case "into":
                writes.append(token[0].lstrip("&0123456789> \t").strip("'\""))
            case "pipe":
                piped = True
            case "end":
                yield from _make_simple_command(words, writes, piped=piped)
                words, writes, piped = [], [], False
            case _:
                pass
    yield from _make_simple_command(words, writes, piped=piped)


def _make_simple_command(
    words: list[str], writes: list[str], *, piped: bool
) -> Iterator[SimpleCommand]:
    """Yield a simple command with the files that it writes; nothing if it is empty."""
    if words or writes:
        files = tuple(name for name in writes if name and not name.startswith("/dev/"))
        yield SimpleCommand(COMMAND_PREFIX.sub("", " ".join(words)), files, piped)


# Commands that verified something, and how they ended.


MAX_CHECKS = 15
MAX_CHECK_CHARS = 200
NON_CHECK_COMMAND = compile_lazily(
    r"(?:echo|printf|grep|rg|cat|ls|find|sed|awk|head|tail|wc|nl|jq|git|gh|cd|export|which|type|test|"
    r"mkdir|rm|cp|mv|ln|chmod|sleep|for|if|while|touch|open|code|tree|stat|file|diff|env)\b|\["
)
"""Programs that verify nothing, whatever their arguments mention."""
PACKAGE_COMMANDS = (
    "view|info|show|pack|install|i|add|remove|rm|uninstall|init|config|ls|list|outdated|why|publish|"
    "cache|login|whoami|search|link|update|upgrade|create|pip|sync|lock|python|tool|venv"
)
"""Subcommands with which package managers do not run anything."""
CHECK_COMMAND = compile_lazily(
    rf"(?:(?:rtk|poetry run|pdm run|hatch run|pipenv run|bundle exec) )?(?:[\w.~-]*/)*(?:"
    rf"go (?:test|build|vet|run|generate)|py\.?test\b|tox|nox|"
    rf"(?:npm|pnpm|yarn|bun|deno|uvx?|cargo) (?!(?:{PACKAGE_COMMANDS})\b)|npx |bunx |"
    r"make\b|just |task |mise |rake\b|bundle |"
    r"gradlew?\b|mvnw?\b|sbt |bazel |cmake |ctest|ninja\b|tsc\b|vue-tsc|eslint|biome|prettier|"
    r"ruff|black |flake8|mypy|(?:based)?pyright|golangci-lint|staticcheck|gofmt|shellcheck|nx |"
    r"turbo |oxlint|"
    r"jest|vitest|playwright|cypress|python[\d.]* -m |dotnet |phpunit|composer |rspec|swift |"
    r"xcodebuild|flutter |mix |zig |terraform |hugo\b|docker |pre-commit)"
)
EXIT_CODE = compile_lazily(r"(?i)\bexit(?:ed with)?(?: code| status)?:? (\d+)")
FAILURE_OUTPUT = compile_lazily(
    r"(?m)^(?:FAIL\b|FAILED\b|--- FAIL|make: \*\*\*|error(?:\[|:)|ERROR\b|Traceback \(|panic: |"
    r"fatal: |(?:\w+\.)*\w*(?:Error|Exception): |\[[\w:.-]+\] ERROR\b|"
    r"(?:[\w.-]+: )?[^\s:]+\.\w{1,5}:\d+:\d+: |"
    r"[^\n]{0,200}: (?:No such file or directory|command not found)$)"
    r"|\b[1-9]\d* (?:failed|errors?)\b"
)

CheckOutcome = Literal["passed", "failed", "started"]


class CheckRun(msgspec.Struct, frozen=True):
    """A test, build or lint command as it went the last time."""

    command: str
    outcome: CheckOutcome
    code: int | None = None
    seq: int = 0


def extract_checks(
    acts: Iterable[ToolAction], earlier: Sequence[CheckRun] = ()
) -> tuple[CheckRun, ...]:
    """Return the last distinct test, build and lint runs for the ledger, newest first."""
    found = {check.command: check for check in reversed(earlier)}
    for act in acts:
        if act.kind != "shell" or act.refused is not None:
            continue
        ran = [part for part in split_command_line(act.command) if is_check_command(part)]
        if ran:
            check = _make_check_run(" && ".join(part.text for part in ran), act, ran[-1])
            found.pop(check.command, None)
            found[check.command] = check
    return tuple(reversed(found.values()))[:MAX_CHECKS]


def is_check_command(part: SimpleCommand) -> bool:
    """Return whether a command tests, builds or lints."""
    text = part.text
    return (
        len(text) <= MAX_CHECK_CHARS
        and not NON_CHECK_COMMAND.match(text)
        and bool(CHECK_COMMAND.match(text))
    )


def hides_exit_code(command: str) -> bool:
    """Return whether a line's exit code may belong to another command than the check."""
    return (
        "||" in command or ";" in command or any(part.piped for part in split_command_line(command))
    )


def find_exit_code(act: ToolAction) -> int | None:
    """Return a command's exit code from its result's detail, or its first or last lines."""
    if act.detail:
        told = re.search(r'"exit_?[cC]ode":\s*(\d+)', act.detail)
        if told:
            return int(told[1])
    found = EXIT_CODE.search(act.text[:300]) or EXIT_CODE.search(act.text[-200:])
    return int(found[1]) if found else None


def _make_check_run(command: str, act: ToolAction, last: SimpleCommand) -> CheckRun:
    """Build the ledger's record of a test or lint run: passed, failed or started."""
    if act.args.get("run_in_background"):
        return CheckRun(command, "started", None, act.seq)
    code = find_exit_code(act)
    failed = act.error or bool(code)
    hidden = last.piped or "||" in act.command or ";" in act.command
    if not failed and hidden:
        failed = bool(FAILURE_OUTPUT.search(act.text))
    return CheckRun(command, "failed" if failed else "passed", code, act.seq)


# The last distinct errors, each by its headline.


MAX_ERRORS = 15
MAX_ERROR_CHARS = 160
ERROR_MENTION = compile_lazily(
    r"(?i)\b(?:panic:|fatal\b|fail(?:ed|ure)?\b|cannot |undefined\b|not found\b|no such file|"
    r"denied\b|exit code [1-9]|\w*(?:error|exception)\b)"
)
SUCCESS_LINE = compile_lazily(
    r"(?i)\W*(?:\(pass\)|pass(?:ed)?\b|ok\b|✓|✔|√)|.*\b(?:0|no) (?:fail(?:ed|ures?)?|errors?)\b"
)
"""Lines that mention errors because there were none."""
VARYING_NUMBERS = compile_lazily(r"[\d:.]+")
OUTPUT_PREAMBLE = compile_lazily(
    r"\A(?:[A-Z][a-z]+(?: [A-Za-z]+){0,4}: ?[^\n]{0,80}\n|Process [^\n]{0,80}\n){1,6}?Output:\n"
)
"""Lines that other agents put before what a command printed: its id, its time, its exit code."""


class ErrorRecord(msgspec.Struct, frozen=True):
    """An error: the first line that explains it, and what was being done."""

    headline: str
    during: str
    seq: int = 0


def extract_errors(
    acts: Iterable[ToolAction], earlier: Sequence[ErrorRecord] = ()
) -> tuple[ErrorRecord, ...]:
    """Return the last distinct errors for the ledger, newest first."""
    found = {_error_key(error.headline): error for error in reversed(earlier)}
    for act in acts:
        if act.refused is not None or not has_failed(act):
            continue
        if line := find_error_line(strip_preamble(act.text)) or _describe_unexplained_failure(act):
            headline = line[:MAX_ERROR_CHARS]
            found.pop(key := _error_key(headline), None)
            found[key] = ErrorRecord(headline, _describe_action(act), act.seq)
    return tuple(reversed(found.values()))[:MAX_ERRORS]


def _error_key(headline: str) -> str:
    """Return an error's text without its numbers, to count equal ones once in the ledger."""
    return VARYING_NUMBERS.sub("#", headline)[:80]


def has_failed(act: ToolAction) -> bool:
    """Return whether a tool call failed.

    The output of a command decides only where its exit code cannot: words such as `error` stand in
    most source files, and showing one is not a failure.
    """
    if act.error or act.kind != "shell":
        return act.error
    code = find_exit_code(act)
    if code or (code == 0 and not hides_exit_code(act.command)):
        return bool(code)
    looks = all(NON_CHECK_COMMAND.match(part.text) for part in split_command_line(act.command))
    return not looks and bool(FAILURE_OUTPUT.search(act.text))


def find_error_line(text: str) -> str:
    """Return the first line of output that reports an error; empty if none does."""
    at = 0
    while found := ERROR_MENTION.search(text, at):
        start = text.rfind("\n", 0, found.start()) + 1
        end = text.find("\n", found.end())
        line = " ".join(text[start : end if end >= 0 else len(text)].split())
        if len(line) >= 15 and not SUCCESS_LINE.match(line):
            return line
        at = end if end >= 0 else len(text)
    return ""


def strip_preamble(text: str) -> str:
    """Return a command's output without the lines that a harness put before it."""
    return OUTPUT_PREAMBLE.sub("", text, count=1)


def _describe_unexplained_failure(act: ToolAction) -> str:
    """Describe a failure without an error line; empty if the exit code was an answer."""
    lines = [" ".join(line.split()) for line in strip_preamble(act.text)[-2_000:].splitlines()]
    last = next((line for line in reversed(lines) if len(line) >= 15), "")
    if act.kind != "shell":
        return last
    if all(NON_CHECK_COMMAND.match(part.text) for part in split_command_line(act.command)):
        return ""  # `grep` found nothing, `diff` found something
    code = find_exit_code(act)
    return f"exit code {code}: {last}".removesuffix(": ") if code else last


def _describe_action(act: ToolAction) -> str:
    """Describe a tool call for the ledger: the command without `cd`, or tool and path."""
    if act.kind != "shell":
        return f"{act.name} {act.path}".strip()
    ran = [part.text for part in split_command_line(act.command) if not part.text.startswith("cd ")]
    return ran[0] if ran else act.name


# Files that were touched, and what last happened to them.


PATCH_HEADER = compile_lazily(
    r"^\*\*\* (Update|Add|Delete|Move) (?:File|to): (.+?)\s*$", re.MULTILINE
)
FileState = Literal["edited", "written", "deleted", "read"]
PATCH_STATES: dict[str, FileState] = {
    "Update": "edited", "Add": "written", "Delete": "deleted", "Move": "written",
}  # fmt: skip
KIND_STATES: dict[str, FileState] = {
    "edit": "edited",
    "write": "written",
    "read": "read",
    "delete": "deleted",
}


class TouchedFile(msgspec.Struct, frozen=True):
    """One file: its state, how often it was changed, and when last."""

    path: str
    state: FileState
    changes: int
    seq: int


def extract_files(
    acts: Iterable[ToolAction], earlier: Sequence[TouchedFile] = ()
) -> tuple[TouchedFile, ...]:
    """Return all files read or changed for the ledger, last touched first."""
    found = {file.path: file for file in reversed(earlier)}
    for act in acts:
        if act.error or act.refused is not None:
            continue
        for path, state in _files_touched_by(act):
            old = found.pop(path, None)
            changes = (old.changes if old else 0) + (state != "read")
            stays = old.state if old and state == "read" else state
            found[path] = TouchedFile(path, stays, changes, act.seq)
    return tuple(reversed(found.values()))


def _files_touched_by(act: ToolAction) -> Iterator[tuple[str, FileState]]:
    """Yield the files that a tool call read or changed, with their state for the ledger."""
    if act.kind in KIND_STATES and act.path:
        yield act.path, KIND_STATES[act.kind]
    elif act.kind in ("patch", "shell"):
        patch = act.arg("input", "patch", "command", "cmd")
        if "*** Begin Patch" in patch:
            for verb, path in PATCH_HEADER.findall(patch):
                yield path, PATCH_STATES[verb]
        elif act.kind == "shell":
            for part in split_command_line(act.command):
                yield from _files_changed_by_command(part)


def _files_changed_by_command(part: SimpleCommand) -> Iterator[tuple[str, FileState]]:
    """Yield the files that a simple command plainly writes, removes or moves."""
    for path in filter(_is_literal_path, part.writes):
        yield path, "written"
    verb, *rest = part.text.removeprefix("git ").split(" ")
    names = [word.strip("'\"") for word in rest if not word.startswith("-")]
    for path in filter(_is_literal_path, names if verb == "rm" else ()):
        yield path, "deleted"
    if verb == "mv" and len(names) == 2 and all(map(_is_literal_path, names)):
        yield names[0], "deleted"
        yield names[1], "written"


def _is_literal_path(path: str) -> bool:
    return bool(path) and not re.search(r"[$*?{}`\[\]]", path)


# Commands that were run, as they were written: their flags and paths are used again.


MAX_COMMANDS = 40
LOOKING_PROGRAMS = frozenset(
    ("cd", "cat", "ls", "pwd", "echo", "printf", "head", "tail", "wc", "sed", "nl")
)
SHELL_KEYWORDS = frozenset(
    ("for", "do", "done", "if", "then", "else", "fi", "while", "case", "esac")
)
SILENT_PROGRAMS = frozenset(("true", "false", "exit", "test", "[", "sleep"))
"""Programs that only show files or text, and words of the shell that tell nothing alone."""


class CommandRun(msgspec.Struct, frozen=True):
    """One command line, without what it was combined with, and whether it failed last."""

    text: str
    failed: bool = False


def extract_commands(
    acts: Iterable[ToolAction], earlier: Sequence[CommandRun] = ()
) -> tuple[CommandRun, ...]:
    """Return the last distinct commands for the ledger, newest first, without checks."""
    found = {run.text: run for run in reversed(earlier)}
    for act in acts:
        if act.kind != "shell" or act.refused is not None:
            continue
        for part in split_command_line(act.command):
            text = " ".join(part.text.split())
            if not text or text.startswith("-"):  # an option that a substitution left over
                continue
            if text.split(" ")[
                0
            ] not in LOOKING_PROGRAMS | SHELL_KEYWORDS | SILENT_PROGRAMS and not is_check_command(
                part
            ):
                found.pop(text, None)
                found[text] = CommandRun(text, act.error)
    return tuple(reversed(found.values()))[:MAX_COMMANDS]
