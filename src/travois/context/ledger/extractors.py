"""Extraction of facts from tool calls: a call and its result as one action of a known kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeGuard

import msgspec
from msgspec.structs import replace

from travois.core.content import Call, extract_calls, extract_text
from travois.core.facts import Assistant, Changed, Decided, Entry, Finished, Result, Spawned, User
from travois.core.tasks import TODOS_STATE, open_blockers, read_tasks

Kind = Literal[
    "shell", "edit", "write", "read", "delete", "patch", "list", "task", "retask", "ask", "plan",
    "make", "other",
]  # fmt: skip
FAMILIES: dict[Kind, str] = {
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
KINDS: dict[str, Kind] = {name: kind for kind, names in FAMILIES.items() for name in names.split()}
SUBCOMMANDS: dict[str, Kind] = {"view": "read", "create": "write"}
HUMAN: tuple[Kind, ...] = ("ask", "plan")
"""Kinds that an MCP tool cannot have, whatever its name: it must not speak for the user."""
REFUSED = re.compile(r"The user (?:doesn't|does not) want to |(?:Rejected|Denied) by the user")


class Act(msgspec.Struct, frozen=True):
    """A finished tool call."""

    seq: int
    kind: Kind
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


def acts(entries: Iterable[Entry]) -> Iterator[Act]:
    """Yield every call that has a result, in the order of the results."""
    asked: dict[str, Call] = {}
    ruled: dict[str, str | None] = {}
    for entry in entries:
        match entry.fact:
            case Assistant(content=content):
                asked.update((call.id, call) for call in extract_calls(content))
            case Decided(call=call, verdict=verdict, because=because, by=by):
                ruled[call] = because if (verdict, by) == ("deny", "person") else None
            case Result() as result if result.call in asked:
                refused = ruled[result.call] if result.call in ruled else _refused(result)
                yield _act(asked.pop(result.call), result, seq=entry.seq, refused=refused)
            case _:
                pass


def kind_of(name: str, args: dict[str, object]) -> Kind:
    """Return the kind of action that a tool of this name performs."""
    plain = re.sub(r"[^a-z0-9]", "", name.rpartition("__")[2].lower())
    kind = KINDS.get(plain, "other")
    if kind == "edit":
        return SUBCOMMANDS.get(str(args.get("command")), kind)
    return "other" if kind in HUMAN and name.startswith("mcp__") else kind


def decoded(args: str) -> dict[str, object]:
    """Return the arguments of a call; empty if its text is not a JSON object."""
    try:
        value: object = msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}
    return value if is_object(value) else {}


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Return whether a decoded value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Return whether a decoded value is a JSON list."""
    return isinstance(value, list)


def _act(call: Call, result: Result, *, seq: int, refused: str | None) -> Act:
    args, text = decoded(call.args), extract_text(result.content)
    kind = kind_of(call.name, args)
    return Act(seq, kind, call.name, args, text, result.error, result.detail, refused)


def _refused(result: Result) -> str | None:
    """Return the user's words in logs of agents that record a refusal only as a result."""
    text = extract_text(result.content)
    if not result.error or not REFUSED.match(text):
        return None
    return text.partition("the user said:")[2].partition("\nNote: The user")[0].strip()


# What the human decided: answers to questions, and plans they approved.


PAIR = re.compile(r'"([^"\n]{4,})"="([^"\n]+)"')
APPROVED = re.compile(r"Approved Plan:?\s*\n(.+)", re.DOTALL)


class Decision(msgspec.Struct, frozen=True):
    """An answer to a question, or with no question a plan that was approved."""

    seq: int
    answer: str
    question: str = ""


def decisions(acts: Iterable[Act]) -> tuple[Decision, ...]:
    """Return all decisions of the user, oldest first."""
    return tuple(decision for act in acts for decision in _decided(act))


def _decided(act: Act) -> Iterator[Decision]:
    if act.error or act.refused is not None:
        return
    if act.kind == "plan":
        saved = APPROVED.search(act.text)
        plan = act.arg("plan") or (saved[1] if saved else "")
        if plan:
            yield Decision(act.seq, plan.strip())
    elif act.kind == "ask":
        pairs = PAIR.findall(act.text)
        for question, answer in pairs:
            yield Decision(act.seq, answer, question)
        if not pairs:
            yield Decision(act.seq, act.text.strip(), _question(act))


def _question(act: Act) -> str:
    listed = act.args.get("questions")
    items = [item for item in listed if is_object(item)] if is_list(listed) else []
    asked = [str(item.get("question", "")) for item in items]
    return " ".join(asked) or act.arg("question", "prompt", "text")


# What runs beside the conversation, and how it stands.


STARTED = re.compile(r"(?i)background (?:as|with id:?|\(id:?)\s*([\w\-]+)")

DETACHED = re.compile(r"goes on in the background as ([\w\-]+)\. You are told")
ENDED = re.compile(r"\[[\w\-]+: ([^\]\n]+)\]")
"""The beginning of the report that a job has ended."""


class Job(msgspec.Struct, frozen=True):
    """A background command or a child agent."""

    id: str
    what: str = ""
    state: str = "running"


def jobs(entries: Iterable[Entry], acts: Iterable[Act]) -> tuple[Job, ...]:
    """Return all background jobs, newest first."""
    states: dict[str, str] = {}
    names: dict[str, str] = {}
    for entry in entries:
        match entry.fact:
            case Changed(what=what, value=value) if what.startswith("job:"):
                states[what.removeprefix("job:")] = value
            case Spawned(id=id, what=what, kind=kind) if kind != "fork":
                states[id], names[id] = "running", what
            case User(mail=letter, content=content) if letter.startswith("job:"):
                told = ENDED.match(extract_text(content))
                states[letter.removeprefix("job:")] = told[1] if told else "ended"
            case Finished(id=id, outcome=outcome) if id in states:
                states[id] = outcome
            case _:
                pass
    for act in acts:
        asked = act.args.get("run_in_background")
        started = STARTED.search(act.text[:500]) if asked else DETACHED.search(act.text[-500:])
        if started:
            names[started[1]] = act.command or act.arg("description")
            states.setdefault(started[1], "started, end not seen")
    return tuple(Job(id, names.get(id, ""), state) for id, state in reversed(states.items()))


# What the session brought into the world under a name of its own: commits, requests, issues.


MAKES = re.compile(
    r"\bgit\b[^\n;&|]{0,200}?\b(?:commit|cherry-pick|revert|push|merge)\b"
    r"|\bgh (?:pr|issue) create|\bglab "
)
COMMIT = re.compile(
    r"^\[([^\]\n]*?) ?(?:\(root-commit\) )?\b([0-9a-f]{7,40})\] ?(.*)$", re.MULTILINE
)
LINK = re.compile(r"https?://[\w.\-]+/[\w.\-/]+?/(pull|issues|merge_requests)/(\d+)")
TICKET = re.compile(r'"(?:identifier|key|id)":\s*"([A-Z][A-Z0-9]+-\d+)"')
BRANCH = re.compile(
    r"^(?:On branch |Switched to (?:a new )?branch ')([\w./\-]+)|^## ([\w./\-]+?)\.\.\.",
    re.MULTILINE,
)
FORGE_PAGES = {"pull": "pull request", "issues": "issue", "merge_requests": "merge request"}


class Made(msgspec.Struct, frozen=True):
    """A created commit, pull request or issue, by the id that it is known under."""

    kind: str
    id: str
    about: str = ""


class Git(msgspec.Struct, frozen=True):
    """The repository as it was last seen."""

    branch: str = ""
    commit: str = ""


def made(acts: Iterable[Act]) -> tuple[Made, ...]:
    """Return everything that was created, newest first."""
    found: dict[str, Made] = {}
    for act in acts:
        if act.refused is None:
            for thing in _makings(act):
                found.setdefault(thing.id, thing)
    return tuple(reversed(found.values()))


def git(acts: Iterable[Act]) -> Git:
    """Return the branch and the commit that were last seen."""
    branch = commit = ""
    for act in acts:
        if act.kind == "shell" and "git" in act.command:
            told = BRANCH.search(act.text)
            done = list(COMMIT.finditer(act.text)) if "commit" in act.command else []
            branch = (told[1] or told[2]) if told else branch
            if done:
                branch, commit = done[-1][1].split(" ")[0] or branch, done[-1][2]
    return Git(branch, commit)


def _makings(act: Act) -> Iterator[Made]:
    if act.kind == "shell" and MAKES.search(act.command):
        for commit in COMMIT.finditer(act.text):
            yield Made("commit", commit[2], commit[3].strip())
    elif act.kind != "make" or act.error:
        return
    about = act.arg("title") or _titled(act.command)
    for link in LINK.finditer(act.text):
        yield Made(FORGE_PAGES[link[1]], link[0], about)
    for ticket in TICKET.finditer(act.text[:4_000]) if act.kind == "make" else ():
        yield Made("issue", ticket[1], about)


def _titled(command: str) -> str:
    found = re.search(r"""--title[ =](?:"([^"]*)"|'([^']*)')""", command)
    return (found[1] or found[2]) if found else ""


# The task list as it stands.


SUBJECT = ("content", "step", "subject", "title", "text", "task", "description")
CLOSED = re.compile(r"(?i)complete|done|cancel|skip|finish|closed|resolved|abandon|dropped")


class Task(msgspec.Struct, frozen=True):
    """One thing to do, with the status that was last given to it."""

    subject: str
    status: str = "pending"
    id: str = ""
    owner: str = ""
    waits: tuple[str, ...] = ()
    """The open tasks that must be completed before it."""

    @property
    def open(self) -> bool:
        """Return whether it is still to be done."""
        return not CLOSED.search(self.status)


def listed(entries: Iterable[Entry]) -> tuple[Task, ...]:
    """Return the task list in the log; empty for other agents' logs, which only hold the calls."""
    facts = (entry.fact for entry in entries)
    values = [
        fact.value for fact in facts if isinstance(fact, Changed) and fact.what == TODOS_STATE
    ]
    found = read_tasks(values[-1]) if values else ()
    return tuple(
        Task(task.content, task.status, task.id, task.owner, open_blockers(found, task))
        for task in found
    )


def tasks(acts: Iterable[Act]) -> tuple[Task, ...]:
    """Return the last whole list, and the tasks that were created one by one and not deleted."""
    whole: tuple[Task, ...] = ()
    single: dict[str, Task] = {}
    for act in acts:
        if act.error:
            continue
        if act.kind == "list":
            whole = tuple(_listed(act))
        elif act.kind == "task" and (subject := act.arg(*SUBJECT[2:])):
            number = re.search(r"#(\d+)", act.text)
            single[number[1] if number else f"call {act.seq}"] = Task(
                subject, id=number[1] if number else ""
            )
        elif act.kind == "retask":
            _change(single, act)
    return whole + tuple(single.values())


def _listed(act: Act) -> Iterator[Task]:
    lists = [value for value in act.args.values() if is_list(value)]
    for item in lists[0] if lists else ():
        if is_object(item):
            subject = next((str(item[key]) for key in SUBJECT if item.get(key)), "")
            if subject:
                yield Task(subject, str(item.get("status") or "pending"))


def _change(single: dict[str, Task], act: Act) -> None:
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
HEREDOC = re.compile(
    r"<<-?[ \t]*(['\"]?)(\w+)\1([^\n]{0,400})\n.*?(?:\n[ \t]*\2[ \t]*(?=\n|\)|$)|\Z)", re.DOTALL
)
TOKEN = re.compile(
    r"(?P<into>(?:\d|&)?>{1,2}(?:&\d|[ \t]*[^\s;|&<>()]+))"
    r"""|(?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\;|&<>()]|(?<=\$)\()+)"""
    r"|(?P<end>&&|\|\||[;\n&()])|(?P<pipe>\|)|.",
    re.DOTALL,
)
PREFIX = re.compile(
    r"^(?:(?:[A-Za-z_]\w*=\S*|time|nice|sudo|env|command|exec|then|do|timeout(?: -\S+)* \S+)\s+)+"
)


class Part(msgspec.Struct, frozen=True, gc=False):
    """One simple command of a line, without its redirections, variables and the pipe after it."""

    text: str
    writes: tuple[str, ...] = ()
    piped: bool = False


def parts(command: str) -> Iterator[Part]:
    """Yield the simple commands of a line that stand first in their pipes."""
    words: list[str] = []
    writes: list[str] = []
    piped = False
    for token in TOKEN.finditer(HEREDOC.sub(r"\3\n", command[:MAX_COMMAND_CHARS])):
        match token.lastgroup:
            case "word" if not piped:
                words.append(token[0])
            case "into":
                writes.append(token[0].lstrip("&0123456789> \t").strip("'\""))
            case "pipe":
                piped = True
            case "end":
                yield from _part(words, writes, piped=piped)
                words, writes, piped = [], [], False
            case _:
                pass
    yield from _part(words, writes, piped=piped)


def _part(words: list[str], writes: list[str], *, piped: bool) -> Iterator[Part]:
    if words or writes:
        files = tuple(name for name in writes if name and not name.startswith("/dev/"))
        yield Part(PREFIX.sub("", " ".join(words)), files, piped)


# Commands that verified something, and how they ended.


MAX_CHECKS = 15
MAX_CHECK_CHARS = 200
NO_CHECK = re.compile(
    r"(?:echo|printf|grep|rg|cat|ls|find|sed|awk|head|tail|wc|nl|jq|git|gh|cd|export|which|type|test|"
    r"mkdir|rm|cp|mv|ln|chmod|sleep|for|if|while|touch|open|code|tree|stat|file|diff|env)\b|\["
)
"""Programs that verify nothing, whatever their arguments mention."""
MANAGES = (
    "view|info|show|pack|install|i|add|remove|rm|uninstall|init|config|ls|list|outdated|why|publish|"
    "cache|login|whoami|search|link|update|upgrade|create|pip|sync|lock|python|tool|venv"
)
"""Subcommands with which package managers do not run anything."""
VERIFIES = re.compile(
    rf"(?:(?:rtk|poetry run|pdm run|hatch run|pipenv run|bundle exec) )?(?:[\w.~-]*/)*(?:"
    rf"go (?:test|build|vet|run|generate)|py\.?test\b|tox|nox|"
    rf"(?:npm|pnpm|yarn|bun|deno|uvx?|cargo) (?!(?:{MANAGES})\b)|npx |bunx |"
    r"make\b|just |task |mise |rake\b|bundle |"
    r"gradlew?\b|mvnw?\b|sbt |bazel |cmake |ctest|ninja\b|tsc\b|vue-tsc|eslint|biome|prettier|"
    r"ruff|black |flake8|mypy|(?:based)?pyright|golangci-lint|staticcheck|gofmt|shellcheck|nx |"
    r"turbo |oxlint|"
    r"jest|vitest|playwright|cypress|python[\d.]* -m |dotnet |phpunit|composer |rspec|swift |"
    r"xcodebuild|flutter |mix |zig |terraform |hugo\b|docker |pre-commit)"
)
CODE = re.compile(r"(?i)\bexit(?:ed with)?(?: code| status)?:? (\d+)")
FAILS = re.compile(
    r"(?m)^(?:FAIL\b|FAILED\b|--- FAIL|make: \*\*\*|error(?:\[|:)|ERROR\b|Traceback \(|panic: |"
    r"fatal: |(?:\w+\.)*\w*(?:Error|Exception): |\[[\w:.-]+\] ERROR\b|"
    r"(?:[\w.-]+: )?[^\s:]+\.\w{1,5}:\d+:\d+: |"
    r"[^\n]{0,200}: (?:No such file or directory|command not found)$)"
    r"|\b[1-9]\d* (?:failed|errors?)\b"
)

Outcome = Literal["passed", "failed", "started"]


class Check(msgspec.Struct, frozen=True):
    """A test, build or lint command as it went the last time."""

    command: str
    outcome: Outcome
    code: int | None = None
    seq: int = 0


def checks(acts: Iterable[Act]) -> tuple[Check, ...]:
    """Return the last distinct checks, newest first."""
    found: dict[str, Check] = {}
    for act in acts:
        if act.kind != "shell" or act.refused is not None:
            continue
        ran = [part for part in parts(act.command) if verifies(part)]
        if ran:
            check = _check(" && ".join(part.text for part in ran), act, ran[-1])
            found.pop(check.command, None)
            found[check.command] = check
    return tuple(reversed(found.values()))[:MAX_CHECKS]


def verifies(part: Part) -> bool:
    """Return whether a command tests, builds or lints."""
    text = part.text
    return len(text) <= MAX_CHECK_CHARS and not NO_CHECK.match(text) and bool(VERIFIES.match(text))


def hides_status(command: str) -> bool:
    """Return whether the exit code of a line may be another command's than the one that matters."""
    return "||" in command or ";" in command or any(part.piped for part in parts(command))


def exit_code(act: Act) -> int | None:
    """Return the exit code from the result's detail or its first or last lines."""
    if act.detail:
        told = re.search(r'"exit_?[cC]ode":\s*(\d+)', act.detail)
        if told:
            return int(told[1])
    found = CODE.search(act.text[:300]) or CODE.search(act.text[-200:])
    return int(found[1]) if found else None


def _check(command: str, act: Act, last: Part) -> Check:
    if act.args.get("run_in_background"):
        return Check(command, "started", None, act.seq)
    code = exit_code(act)
    failed = act.error or bool(code)
    hidden = last.piped or "||" in act.command or ";" in act.command
    if not failed and hidden:
        failed = bool(FAILS.search(act.text))
    return Check(command, "failed" if failed else "passed", code, act.seq)


# The last distinct errors, each by its headline.


LAST = 15
MAX_ERROR_CHARS = 160
ERROR = re.compile(
    r"(?i)\b(?:panic:|fatal\b|fail(?:ed|ure)?\b|cannot |undefined\b|not found\b|no such file|"
    r"denied\b|exit code [1-9]|\w*(?:error|exception)\b)"
)
FINE = re.compile(
    r"(?i)\W*(?:\(pass\)|pass(?:ed)?\b|ok\b|✓|✔|√)|.*\b(?:0|no) (?:fail(?:ed|ures?)?|errors?)\b"
)
"""Lines that mention errors because there were none."""
NUMBERS = re.compile(r"[\d:.]+")
WRAPPER = re.compile(
    r"\A(?:[A-Z][a-z]+(?: [A-Za-z]+){0,4}: ?[^\n]{0,80}\n|Process [^\n]{0,80}\n){1,6}?Output:\n"
)
"""Lines that other agents put before what a command printed: its id, its time, its exit code."""


class Trouble(msgspec.Struct, frozen=True):
    """An error: the first line that explains it, and what was being done."""

    headline: str
    during: str
    seq: int = 0


def errors(acts: Iterable[Act]) -> tuple[Trouble, ...]:
    """Return the last distinct errors, newest first."""
    found: dict[str, Trouble] = {}
    for act in acts:
        if act.refused is not None or not has_failed(act):
            continue
        if line := headline(printed(act.text)) or _otherwise(act):
            key = NUMBERS.sub("#", line)[:80]
            found.pop(key, None)
            found[key] = Trouble(line[:MAX_ERROR_CHARS], _during(act), act.seq)
    return tuple(reversed(found.values()))[:LAST]


def has_failed(act: Act) -> bool:
    """Return whether a call failed.

    The output of a command decides only where its exit code cannot: words such as `error` stand in
    most source files, and showing one is not a failure.
    """
    if act.error or act.kind != "shell":
        return act.error
    code = exit_code(act)
    if code or (code == 0 and not hides_status(act.command)):
        return bool(code)
    looks = all(NO_CHECK.match(part.text) for part in parts(act.command))
    return not looks and bool(FAILS.search(act.text))


def headline(text: str) -> str:
    """Return the first line that reports an error; empty if none does."""
    at = 0
    while found := ERROR.search(text, at):
        start = text.rfind("\n", 0, found.start()) + 1
        end = text.find("\n", found.end())
        line = " ".join(text[start : end if end >= 0 else len(text)].split())
        if len(line) >= 15 and not FINE.match(line):
            return line
        at = end if end >= 0 else len(text)
    return ""


def printed(text: str) -> str:
    """Return the output of a command without the lines that a harness put before it."""
    return WRAPPER.sub("", text, count=1)


def _otherwise(act: Act) -> str:
    """Describe a failure that no line explains; empty if the exit code was an answer."""
    lines = [" ".join(line.split()) for line in printed(act.text)[-2_000:].splitlines()]
    last = next((line for line in reversed(lines) if len(line) >= 15), "")
    if act.kind != "shell":
        return last
    if all(NO_CHECK.match(part.text) for part in parts(act.command)):
        return ""  # `grep` found nothing, `diff` found something
    code = exit_code(act)
    return f"exit code {code}: {last}".removesuffix(": ") if code else last


def _during(act: Act) -> str:
    if act.kind != "shell":
        return f"{act.name} {act.path}".strip()
    ran = [part.text for part in parts(act.command) if not part.text.startswith("cd ")]
    return ran[0] if ran else act.name


# Files that were touched, and what last happened to them.


PATCHED = re.compile(r"^\*\*\* (Update|Add|Delete|Move) (?:File|to): (.+?)\s*$", re.MULTILINE)
State = Literal["edited", "written", "deleted", "read"]
PATCH: dict[str, State] = {
    "Update": "edited", "Add": "written", "Delete": "deleted", "Move": "written",
}  # fmt: skip
DONE: dict[str, State] = {"edit": "edited", "write": "written", "read": "read", "delete": "deleted"}


class File(msgspec.Struct, frozen=True):
    """One file: its state, how often it was changed, and when last."""

    path: str
    state: State
    changes: int
    seq: int


def files(acts: Iterable[Act]) -> tuple[File, ...]:
    """Return all files, last touched first."""
    found: dict[str, File] = {}
    for act in acts:
        if act.error or act.refused is not None:
            continue
        for path, state in _touched(act):
            old = found.pop(path, None)
            changes = (old.changes if old else 0) + (state != "read")
            stays = old.state if old and state == "read" else state
            found[path] = File(path, stays, changes, act.seq)
    return tuple(reversed(found.values()))


def _touched(act: Act) -> Iterator[tuple[str, State]]:
    if act.kind in DONE and act.path:
        yield act.path, DONE[act.kind]
    elif act.kind in ("patch", "shell"):
        patch = act.arg("input", "patch", "command", "cmd")
        if "*** Begin Patch" in patch:
            for verb, path in PATCHED.findall(patch):
                yield path, PATCH[verb]
        elif act.kind == "shell":
            for part in parts(act.command):
                yield from _moved(part)


def _moved(part: Part) -> Iterator[tuple[str, State]]:
    """Yield the files that a simple command plainly writes, removes or moves."""
    for path in filter(_plain, part.writes):
        yield path, "written"
    verb, *rest = part.text.removeprefix("git ").split(" ")
    names = [word.strip("'\"") for word in rest if not word.startswith("-")]
    for path in filter(_plain, names if verb == "rm" else ()):
        yield path, "deleted"
    if verb == "mv" and len(names) == 2 and all(map(_plain, names)):
        yield names[0], "deleted"
        yield names[1], "written"


def _plain(path: str) -> bool:
    return bool(path) and not re.search(r"[$*?{}`\[\]]", path)


# Commands that were run, as they were written: their flags and paths are used again.


MAX_COMMANDS = 40
LOOKING_PROGRAMS = frozenset(
    ("cd", "cat", "ls", "pwd", "echo", "printf", "head", "tail", "wc", "sed", "nl")
)
WORDS = frozenset(("for", "do", "done", "if", "then", "else", "fi", "while", "case", "esac"))
SILENT = frozenset(("true", "false", "exit", "test", "[", "sleep"))
"""Programs that only show files or text, and words of the shell that tell nothing alone."""


class Command(msgspec.Struct, frozen=True):
    """One command line, without what it was combined with, and whether it failed last."""

    text: str
    failed: bool = False


def commands(acts: Iterable[Act]) -> tuple[Command, ...]:
    """Return the last distinct commands, newest first, without checks."""
    found: dict[str, Command] = {}
    for act in acts:
        if act.kind != "shell" or act.refused is not None:
            continue
        for part in parts(act.command):
            text = " ".join(part.text.split())
            if not text or text.startswith("-"):  # an option that a substitution left over
                continue
            if text.split(" ")[0] not in LOOKING_PROGRAMS | WORDS | SILENT and not verifies(part):
                found.pop(text, None)
                found[text] = Command(text, act.error)
    return tuple(reversed(found.values()))[:MAX_COMMANDS]
