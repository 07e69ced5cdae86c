"""GitStatus, GitDiff, GitLog, GitShow and GitBlame: compact views of a repository."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from travois.context.tool_results import count_fitting_parts, estimate_text_tokens
from travois.core.display_text import escape_path
from travois.core.patterns import compile_lazily
from travois.permissions.access import Access
from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.tool import CallLocation, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Command, Env, Files, Processes, ProcessResult
from travois.tools.paths import absolute_path

# Asking git about a repository without running any code that the repository brings.


GIT_TIMEOUT_SECONDS = 30.0
MAX_GIT_OUTPUT_BYTES = 4 * 1024 * 1024
TRUSTED_SCOPES = ("system", "global")
"""Scopes of settings that are the user's own; all others may come with the repository."""

SAFE_GIT_SETTINGS = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.quotePath=false",
    "diff.mnemonicPrefix=false",
    "diff.noprefix=false",
    "i18n.logOutputEncoding=UTF-8",
    "log.showSignature=false",
    "safe.bareRepository=explicit",
)
SAFE_GIT_COMMAND = (
    "git",
    "--no-pager",
    "--literal-pathspecs",
    *(word for setting in SAFE_GIT_SETTINGS for word in ("-c", setting)),
)
GIT_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


class GitEnv(Protocol):
    """The environment that git needs."""

    @property
    def cwd(self) -> str: ...

    @property
    def wary(self) -> SandboxProfile | None: ...

    @property
    def files(self) -> Files: ...

    @property
    def processes(self) -> Processes: ...


class GitRepository(msgspec.Struct, frozen=True):
    """A repository's location, and the filters that its own configuration defines."""

    top: str
    folder: str
    filters: tuple[str, ...]

    def env(self) -> dict[str, str]:
        """Return the environment in which those filters do nothing."""
        values = (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))
        pairs = [(f"filter.{f}.{key}", value) for f in self.filters for key, value in values]
        named = {"GIT_CONFIG_COUNT": str(len(pairs))} if pairs else {}
        for number, (key, value) in enumerate(pairs):
            named |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return GIT_ENVIRONMENT | named


async def find_repository(env: GitEnv) -> GitRepository:
    """Return the git repository around the working folder; refuse one that claims other files."""
    words = ("rev-parse", "--show-toplevel", "--absolute-git-dir")
    found = (
        _check_git_result(env, await _run_git(env, words, GIT_ENVIRONMENT))
        .output.head_and_tail()
        .split(b"\n")
    )
    top, folder = os.fsdecode(found[0]), os.fsdecode(found[1])
    if await env.files.stat(os.path.join(top, ".git")) is None:
        raise ToolError(f"Not read: the git settings in {folder} point at files in {top}.")
    return GitRepository(top, folder, await _find_repository_filters(env))


async def run_git_query(env: GitEnv, repo: GitRepository, words: Sequence[str]) -> ProcessResult:
    """Run one read-only git command; raises `ToolError` with git's reason if it fails."""
    return _check_git_result(env, await _run_git(env, words, repo.env()))


def resolve_repository_paths(
    env: GitEnv, repo: GitRepository, paths: Sequence[str]
) -> tuple[str, ...]:
    """Return full paths inside the repository: `git diff` would compare any two others."""
    for path in paths:
        full = absolute_path(path, env.cwd)
        linked = os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full))
        if not any(_is_below(repo.top, place) for place in (linked, os.path.realpath(full))):
            raise ToolError(f"{path} is outside the repository at {repo.top}.")
    return tuple(absolute_path(path, env.cwd) for path in paths)


def decode_git_output(result: ProcessResult) -> str:
    """Decode git's output, or its beginning if it was too long."""
    whole = result.output.head if result.output.missing_bytes else result.output.head_and_tail()
    return whole.decode(errors="replace")


async def _find_repository_filters(env: GitEnv) -> tuple[str, ...]:
    """Return git filters of a repository that the user has not configured globally."""
    pattern = r"^filter\..*\.(clean|smudge|process)$"
    words = ("config", "--null", "--show-scope", "--name-only", "--get-regexp", pattern)
    done = await _run_git(env, words, GIT_ENVIRONMENT)
    if done.status == 1:
        return ()
    answer = os.fsdecode(_check_git_result(env, done).output.head_and_tail()).split("\0")
    keys = [
        k
        for scope, k in zip(answer[::2], answer[1::2], strict=False)
        if scope not in TRUSTED_SCOPES
    ]
    return tuple(sorted({key.partition(".")[2].rpartition(".")[0] for key in keys}))


async def _run_git(env: GitEnv, words: Sequence[str], added: dict[str, str]) -> ProcessResult:
    """Run git with safe options, a time limit and an output limit."""
    if any("\0" in word for word in words):
        raise ToolError("The arguments contain a NUL character; remove it.")
    argv = (*SAFE_GIT_COMMAND, *words)
    command = Command(
        argv, env.cwd, added, keep=MAX_GIT_OUTPUT_BYTES, stderr="apart", wary=env.wary
    )
    return await env.processes.run(command, timeout=GIT_TIMEOUT_SECONDS)


def _check_git_result(env: GitEnv, result: ProcessResult) -> ProcessResult:
    """Return a successful git result, or turn git's error into a message for the model."""
    if result.timed_out:
        raise ToolError(f"git took more than {GIT_TIMEOUT_SECONDS:g} s; narrow the request.")
    if result.status == 0:
        return result
    errors = result.errors.head.decode(errors="replace").strip() or "it failed"
    lines = errors.splitlines()
    fatal = next((line for line in lines if line.startswith("fatal: ")), lines[0])
    if "not a git repository" in fatal:
        raise ToolError(f"{env.cwd} is not inside a git repository.")
    partial = "lazy fetching" in errors or "promisor" in errors
    advice = " (partial clone: fetch the missing objects with Bash)" if partial else ""
    raise ToolError(f"git: {fatal.removeprefix('fatal: ')[:300]}{advice}")


def _is_below(top: str, path: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


GIT_REMARK_TOKENS = 150
"""The tokens kept for what is said beside a long text."""
MAX_GIT_LINE_CHARS = 500
MAX_STATUS_PATHS = 200
MAX_LOG_COMMITS = 200

PATCH_OPTIONS = ("--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short")
SUBMODULE_OPTION = "--ignore-submodules=dirty"
"""Looking into a submodule's files would run git there, under the submodule's own settings."""

OPERATION_MARKERS = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}


class StatusArgs(msgspec.Struct, frozen=True):
    """No arguments."""


class DiffArgs(msgspec.Struct, frozen=True):
    """The changes to show."""

    staged: bool = False
    commit: str = ""
    paths: tuple[str, ...] = ()
    stat: bool = False


class LogArgs(msgspec.Struct, frozen=True):
    """The commits to list."""

    n: int = 20
    path: str = ""
    rev: str = ""
    grep: str = ""
    author: str = ""


class ShowArgs(msgspec.Struct, frozen=True):
    """A commit, or one file of it."""

    rev: str
    path: str = ""


class BlameArgs(msgspec.Struct, frozen=True):
    """A file and a range of lines."""

    path: str
    start: int = 0
    end: int = 0


async def _run_git_status(args: StatusArgs, env: Env, call: str) -> ToolOutcome:
    """Run the GitStatus tool: branch, operations in progress and changed files."""
    repo = await find_repository(env)
    words = ("status", "--porcelain=v2", "--branch", "--show-stash", "-z", SUBMODULE_OPTION)
    done = await run_git_query(env, repo, words)
    heads, changes = _parse_status(decode_git_output(done).split("\0")[:-1])
    lines = [
        _describe_branch(heads),
        *await _operations_in_progress(env, repo),
        *(changes[:MAX_STATUS_PATHS] or ["clean"]),
    ]
    if len(changes) > MAX_STATUS_PATHS:
        more = len(changes) - MAX_STATUS_PATHS
        lines.append(f"(and {more} more; list a part with Bash: git status FOLDER)")
    return text_outcome("\n".join([*lines, *_git_remarks(env, repo)]))


async def _run_git_diff(args: DiffArgs, env: Env, call: str) -> ToolOutcome:
    """Run the GitDiff tool: changes of the working tree, the index or against a commit."""
    repo = await find_repository(env)
    words = ["diff", *PATCH_OPTIONS, SUBMODULE_OPTION]
    words += ["--cached"] if args.staged else []
    words += ["--stat=120"] if args.stat else []
    words += [_check_revision(args.commit)] if args.commit else []
    words += ["--", *resolve_repository_paths(env, repo, args.paths)]
    found = decode_git_output(await run_git_query(env, repo, words))
    if not found:
        return text_outcome(
            "Nothing is staged." if args.staged else "No changes (untracked files aside)."
        )
    shown = _fit_git_output(env, call, found, hint="stat=true lists files, paths narrows")
    return text_outcome("\n".join([shown, *_git_remarks(env, repo)]))


async def _run_git_log(args: LogArgs, env: Env, call: str) -> ToolOutcome:
    """Run the GitLog tool: one line per commit, filtered by message, author and path."""
    repo = await find_repository(env)
    count = min(max(args.n, 1), MAX_LOG_COMMITS)
    words = ["log", "--no-color", f"--max-count={count + 1}", "--date=short"]
    words += ["--format=%h %ad %an:%d %s", "--regexp-ignore-case"]
    words += [f"--grep={args.grep}"] if args.grep else []
    words += [f"--author={args.author}"] if args.author else []
    words += [_check_revision(args.rev)] if args.rev else []
    words += ["--", *resolve_repository_paths(env, repo, [args.path] if args.path else [])]
    lines = decode_git_output(await run_git_query(env, repo, words)).splitlines()
    if not lines:
        return text_outcome("No commit matches.")
    if len(lines) > count:
        lines[count:] = [f"(older commits: rev={lines[count].split()[0]})"]
    return text_outcome("\n".join(map(_clip_git_line, lines)))


async def _run_git_show(args: ShowArgs, env: Env, call: str) -> ToolOutcome:
    """Run the GitShow tool: a commit with its diff, or a file as of a commit."""
    repo = await find_repository(env)
    what = _check_revision(args.rev)
    if args.path:
        resolve_repository_paths(env, repo, [args.path])
        what += ":./" + os.path.relpath(absolute_path(args.path, env.cwd), env.cwd)
    words = (
        "show",
        *PATCH_OPTIONS,
        "--date=iso",
        "--format=%h %ad %an <%ae>%d%n%n%B",
        "--stat",
        "--patch",
    )
    end = () if args.path else ("--",)  # without it git says which path is missing
    done = await run_git_query(env, repo, (*words, what, *end))
    if b"\0" in done.output.head:
        raise ToolError(f"{what} is binary ({done.output.total} bytes); only text is shown.")
    found = decode_git_output(done) or f"{what} is empty."
    return text_outcome(
        _fit_git_output(env, call, found, hint="path shows one file as of this commit")
    )


async def _run_git_blame(args: BlameArgs, env: Env, call: str) -> ToolOutcome:
    """Run the GitBlame tool: the commits that last changed each range of lines."""
    repo = await find_repository(env)
    paths = resolve_repository_paths(env, repo, [args.path])
    span = f"-L{max(args.start, 1)},{args.end if args.end > 0 else ''}"
    words = ("blame", "--no-textconv", "--porcelain", span, "--", *paths)
    done = await run_git_query(env, repo, words)
    found = "\n".join(_group_blame(decode_git_output(done))) or f"{args.path} is empty."
    return text_outcome(_fit_git_output(env, call, found, hint="narrow with start and end"))


def _parse_status(records: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split the output of `git status` into branch headers and changed paths in short form."""
    heads, changes, rest = dict[str, str](), list[str](), iter(records)
    for record in rest:
        match record[0]:
            case "#":
                _, key, value = record.split(" ", 2)
                heads[key] = value
            case "2":
                code, path = record[2:4], record.split(" ", 9)[9]
                changes.append(
                    f"{_format_status_code(code)} {escape_path(next(rest))} -> {escape_path(path)}"
                )
            case "?":
                changes.append(f"?? {escape_path(record[2:])}")
            case kind:
                path = record.split(" ", 10 if kind == "u" else 8)[-1]
                changes.append(f"{_format_status_code(record[2:4])} {escape_path(path)}")
    return heads, changes


def _format_status_code(code: str) -> str:
    return code.replace(".", " ")


def _describe_branch(heads: Mapping[str, str]) -> str:
    """Describe the current branch, its upstream and stashes for GitStatus."""
    commit, head = heads["branch.oid"], heads["branch.head"]
    born = "no commit yet" if commit == "(initial)" else commit[:8]
    parts = [f"detached at {born}" if head == "(detached)" else f"on {head} ({born})"]
    if upstream := heads.get("branch.upstream"):
        parts.append(_describe_upstream(upstream, heads.get("branch.ab", "")))
    if stashes := heads.get("stash"):
        parts.append(f"{stashes} stashed")
    return ", ".join(parts)


def _describe_upstream(upstream: str, counts: str) -> str:
    """Describe how far a branch is ahead of or behind its upstream for GitStatus."""
    match counts.split():
        case ["+0", "-0"]:
            return f"up to date with {upstream}"
        case [ahead, behind]:
            return f"ahead {ahead[1:]}, behind {behind[1:]} of {upstream}"
        case _:
            return f"upstream {upstream} is gone"


async def _operations_in_progress(env: Env, repo: GitRepository) -> list[str]:
    """List the git operations in progress, such as a merge or rebase."""
    found: list[str] = []
    for mark, what in OPERATION_MARKERS.items():
        if await env.files.stat(os.path.join(repo.folder, mark)):
            found.append(what)
    return [f"{what} in progress" for what in dict.fromkeys(found)]


def _git_remarks(env: Env, repo: GitRepository) -> Iterable[str]:
    """List remarks on git output: paths relative to the top, and filters that were not run."""
    if os.path.realpath(env.cwd) != repo.top:
        yield f"(paths are relative to {repo.top})"
    if repo.filters:
        yield f"(filters of this repository not run: {', '.join(repo.filters)})"


BLAME_LINE = compile_lazily(r"[0-9a-f]{40,64} \d+ (\d+)")


def _group_blame(porcelain: str) -> Iterable[str]:
    """Yield GitBlame lines, with each commit named once above its lines."""
    about, sha, number, last = dict[str, dict[str, str]](), "", "", ""
    for line in porcelain.split("\n")[:-1]:
        if line.startswith("\t"):
            if sha != last:
                yield _describe_commit(sha, about[sha])
            yield f"{number} {line[1:]}"
            last = sha
        elif begun := BLAME_LINE.match(line):
            sha, number = line.partition(" ")[0], begun[1]
            about.setdefault(sha, {})
        else:
            key, _, value = line.partition(" ")
            about[sha][key] = value


def _describe_commit(sha: str, about: Mapping[str, str]) -> str:
    """Format a commit for GitBlame: hash, day, author and subject."""
    if not sha.strip("0"):
        return "(not committed yet)"
    day = time.strftime("%Y-%m-%d", time.gmtime(int(about["author-time"])))
    return f"{sha[:8]} {day} {about['author']}: {about['summary']}"


def _fit_git_output(env: Env, call: str, text: str, *, hint: str) -> str:
    """Shorten long git output and save the whole of it to a file for Read."""
    lines = text.removesuffix("\n").split("\n")
    clipped = list(map(_clip_git_line, lines))
    count = count_fitting_parts(
        len(lines),
        lambda n: estimate_text_tokens("\n".join(clipped[:n])),
        tokens=env.room.tokens - GIT_REMARK_TOKENS,
    )
    if clipped[:count] == lines:
        return "\n".join(lines)
    path = env.spill(call, text.encode())
    told = f"({count:,} of {len(lines):,} lines; {hint}; full output: Read {path})"
    return "\n".join([*clipped[:count], told])


def _clip_git_line(line: str) -> str:
    """Shorten a long line of git output, saying how much was cut."""
    return (
        line
        if len(line) <= MAX_GIT_LINE_CHARS
        else f"{line[:MAX_GIT_LINE_CHARS]}… (+{len(line) - MAX_GIT_LINE_CHARS} characters)"
    )


def _check_revision(rev: str) -> str:
    """Return a git revision given by the model, or refuse it if it is an option."""
    if rev.startswith("-"):
        raise ToolError(f"{rev!r} is an option, not a revision.")
    return rev


def _git_access(here: CallLocation, *paths: str) -> tuple[Access, ...]:
    """Return what a git tool reads: the workspace, the working folder and named paths."""
    named = (absolute_path(path, here.cwd) for path in paths if path)
    return tuple(Access("read", path) for path in dict.fromkeys((here.root, here.cwd, *named)))


GIT_STATUS = Tool(
    name="GitStatus",
    description="Branch, ahead/behind, stashes, operation in progress, changed files (short form).",
    args=StatusArgs,
    access=lambda args, here: _git_access(here),
    run=_run_git_status,
    summary=lambda args: "Git status",
    deferred=True,
)

GIT_DIFF = Tool(
    name="GitDiff",
    description=(
        "Unstaged changes; with staged, staged ones; with commit (or A..B), the difference "
        "from it. stat lists files only."
    ),
    args=DiffArgs,
    access=lambda args, here: _git_access(here, *args.paths),
    run=_run_git_diff,
    bounded=True,
    summary=lambda args: " ".join(("Git diff", args.commit, *args.paths)).strip(),
    deferred=True,
)

GIT_LOG = Tool(
    name="GitLog",
    description="Commits, newest first, one line each; grep searches messages.",
    args=LogArgs,
    access=lambda args, here: _git_access(here, args.path),
    run=_run_git_log,
    summary=lambda args: " ".join(("Git log", args.rev, args.path)).strip(),
    deferred=True,
)

GIT_SHOW = Tool(
    name="GitShow",
    description="One commit with its changes, or with path, that file as of rev.",
    args=ShowArgs,
    access=lambda args, here: _git_access(here, args.path),
    run=_run_git_show,
    bounded=True,
    summary=lambda args: f"Git show {args.rev} {args.path}".strip(),
    deferred=True,
)

GIT_BLAME = Tool(
    name="GitBlame",
    description="Which commit last changed each line of a file (start, end: line numbers).",
    args=BlameArgs,
    access=lambda args, here: _git_access(here, args.path),
    run=_run_git_blame,
    bounded=True,
    summary=lambda args: f"Git blame {args.path}",
    deferred=True,
)
