"""GitStatus, GitDiff, GitLog, GitShow, GitBlame: a repository in few words."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from travois.context.tool_results import measure, most_that_fits
from travois.permissions.access import Access
from travois.ports.tool import Here, Outcome, Refusal, Tool, said
from travois.ports.world import Env
from travois.tools import repository
from travois.tools.paths import absolute, plain
from travois.tools.repository import Repository

AROUND = 150
"""The tokens kept for what is said beside a long text."""
WIDTH = 500
PATHS = 200
COMMITS = 200

PATCH = ("--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short")
WORKTREE = "--ignore-submodules=dirty"
"""Looking into a submodule's files would run git there, under the submodule's own settings."""

UNDERWAY = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}


class StatusArgs(msgspec.Struct, frozen=True):
    """Nothing to choose."""


class DiffArgs(msgspec.Struct, frozen=True):
    """Which changes to show."""

    staged: bool = False
    commit: str = ""
    paths: tuple[str, ...] = ()
    stat: bool = False


class LogArgs(msgspec.Struct, frozen=True):
    """Which commits to list."""

    n: int = 20
    path: str = ""
    rev: str = ""
    grep: str = ""
    author: str = ""


class ShowArgs(msgspec.Struct, frozen=True):
    """Which commit, or which file of it."""

    rev: str
    path: str = ""


class BlameArgs(msgspec.Struct, frozen=True):
    """Which lines of which file."""

    path: str
    start: int = 0
    end: int = 0


async def _status(args: StatusArgs, env: Env, call: str) -> Outcome:
    repo = await repository.find(env)
    words = ("status", "--porcelain=v2", "--branch", "--show-stash", "-z", WORKTREE)
    done = await repository.ask(env, repo, words)
    heads, changes = _parted(repository.text(done).split("\0")[:-1])
    lines = [_branch(heads), *await _underway(env, repo), *(changes[:PATHS] or ["clean"])]
    if len(changes) > PATHS:
        lines.append(f"(and {len(changes) - PATHS} more; `git status FOLDER` shows a part)")
    return said("\n".join([*lines, *_remarks(env, repo)]))


async def _diff(args: DiffArgs, env: Env, call: str) -> Outcome:
    repo = await repository.find(env)
    words = ["diff", *PATCH, WORKTREE]
    words += ["--cached"] if args.staged else []
    words += ["--stat=120"] if args.stat else []
    words += [_rev(args.commit)] if args.commit else []
    words += ["--", *repository.within(env, repo, args.paths)]
    found = repository.text(await repository.ask(env, repo, words))
    if not found:
        return said("Nothing is staged." if args.staged else "No changes (untracked files aside).")
    shown = _bounded(env, call, found, hint="stat=true lists the files, paths narrows")
    return said("\n".join([shown, *_remarks(env, repo)]))


async def _log(args: LogArgs, env: Env, call: str) -> Outcome:
    repo = await repository.find(env)
    count = min(max(args.n, 1), COMMITS)
    words = ["log", "--no-color", f"--max-count={count + 1}", "--date=short"]
    words += ["--format=%h %ad %an:%d %s", "--regexp-ignore-case"]
    words += [f"--grep={args.grep}"] if args.grep else []
    words += [f"--author={args.author}"] if args.author else []
    words += [_rev(args.rev)] if args.rev else []
    words += ["--", *repository.within(env, repo, [args.path] if args.path else [])]
    lines = repository.text(await repository.ask(env, repo, words)).splitlines()
    if not lines:
        return said("No commit matches.")
    if len(lines) > count:
        lines[count:] = [f"(older ones: rev={lines[count].split()[0]})"]
    return said("\n".join(map(_clipped, lines)))


async def _show(args: ShowArgs, env: Env, call: str) -> Outcome:
    repo = await repository.find(env)
    what = _rev(args.rev)
    if args.path:
        repository.within(env, repo, [args.path])
        what += ":./" + os.path.relpath(absolute(args.path, env.cwd), env.cwd)
    words = ("show", *PATCH, "--date=iso", "--format=%h %ad %an <%ae>%d%n%n%B", "--stat", "--patch")
    end = () if args.path else ("--",)  # without it git says which path is missing
    done = await repository.ask(env, repo, (*words, what, *end))
    if b"\0" in done.output.head:
        raise Refusal(f"{what} is binary ({done.output.total} bytes); only text can be shown.")
    found = repository.text(done) or f"{what} is empty."
    return said(_bounded(env, call, found, hint="path= shows one file as it was then"))


async def _blame(args: BlameArgs, env: Env, call: str) -> Outcome:
    repo = await repository.find(env)
    paths = repository.within(env, repo, [args.path])
    span = f"-L{max(args.start, 1)},{args.end if args.end > 0 else ''}"
    words = ("blame", "--no-textconv", "--porcelain", span, "--", *paths)
    done = await repository.ask(env, repo, words)
    found = "\n".join(_grouped(repository.text(done))) or f"{args.path} is empty."
    return said(_bounded(env, call, found, hint="start and end narrow"))


def _parted(records: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """What status says of the branch, and the changed paths in its short form."""
    heads, changes, rest = dict[str, str](), list[str](), iter(records)
    for record in rest:
        match record[0]:
            case "#":
                _, key, value = record.split(" ", 2)
                heads[key] = value
            case "2":
                code, path = record[2:4], record.split(" ", 9)[9]
                changes.append(f"{_code(code)} {plain(next(rest))} -> {plain(path)}")
            case "?":
                changes.append(f"?? {plain(record[2:])}")
            case kind:
                path = record.split(" ", 10 if kind == "u" else 8)[-1]
                changes.append(f"{_code(record[2:4])} {plain(path)}")
    return heads, changes


def _code(code: str) -> str:
    return code.replace(".", " ")


def _branch(heads: Mapping[str, str]) -> str:
    commit, head = heads["branch.oid"], heads["branch.head"]
    born = "no commit yet" if commit == "(initial)" else commit[:8]
    parts = [f"detached at {born}" if head == "(detached)" else f"on {head} ({born})"]
    if upstream := heads.get("branch.upstream"):
        parts.append(_apart(upstream, heads.get("branch.ab", "")))
    if stashes := heads.get("stash"):
        parts.append(f"{stashes} stashed")
    return ", ".join(parts)


def _apart(upstream: str, counts: str) -> str:
    match counts.split():
        case ["+0", "-0"]:
            return f"up to date with {upstream}"
        case [ahead, behind]:
            return f"ahead {ahead[1:]}, behind {behind[1:]} of {upstream}"
        case _:
            return f"{upstream} is not there"


async def _underway(env: Env, repo: Repository) -> list[str]:
    """What the repository is in the middle of."""
    found: list[str] = []
    for mark, what in UNDERWAY.items():
        if await env.files.stat(os.path.join(repo.folder, mark)):
            found.append(what)
    return [f"{what} in progress" for what in dict.fromkeys(found)]


def _remarks(env: Env, repo: Repository) -> Iterable[str]:
    if os.path.realpath(env.cwd) != repo.top:
        yield f"(paths are relative to {repo.top})"
    if repo.filters:
        yield f"(filters of this repository were not run: {', '.join(repo.filters)})"


LINE = re.compile(r"[0-9a-f]{40,64} \d+ (\d+)")


def _grouped(porcelain: str) -> Iterable[str]:
    """Blame with each commit named once above its lines."""
    about, sha, number, last = dict[str, dict[str, str]](), "", "", ""
    for line in porcelain.split("\n")[:-1]:
        if line.startswith("\t"):
            if sha != last:
                yield _commit(sha, about[sha])
            yield f"{number} {line[1:]}"
            last = sha
        elif begun := LINE.match(line):
            sha, number = line.partition(" ")[0], begun[1]
            about.setdefault(sha, {})
        else:
            key, _, value = line.partition(" ")
            about[sha][key] = value


def _commit(sha: str, about: Mapping[str, str]) -> str:
    if not sha.strip("0"):
        return "(not committed yet)"
    day = time.strftime("%Y-%m-%d", time.gmtime(int(about["author-time"])))
    return f"{sha[:8]} {day} {about['author']}: {about['summary']}"


def _bounded(env: Env, call: str, text: str, *, hint: str) -> str:
    """The beginning of a long text, with a copy of the whole for Read."""
    lines = text.removesuffix("\n").split("\n")
    clipped = list(map(_clipped, lines))
    count = most_that_fits(
        len(lines), lambda n: measure("\n".join(clipped[:n])), tokens=env.room.tokens - AROUND
    )
    if clipped[:count] == lines:
        return "\n".join(lines)
    path = env.spill(call, text.encode())
    told = f"({count:,} of {len(lines):,} lines; {hint}; all: Read {path})"
    return "\n".join([*clipped[:count], told])


def _clipped(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[:WIDTH]}… (+{len(line) - WIDTH} characters)"


def _rev(rev: str) -> str:
    if rev.startswith("-"):
        raise Refusal(f"{rev!r} is an option, not a revision.")
    return rev


def _reads(here: Here, *paths: str) -> tuple[Access, ...]:
    """The workspace, the shell's folder, and what is named."""
    named = (absolute(path, here.cwd) for path in paths if path)
    return tuple(Access("read", path) for path in dict.fromkeys((here.root, here.cwd, *named)))


STATUS = Tool(
    name="GitStatus",
    description="Branch, ahead/behind, stashes, operation in progress, changed files (short form).",
    args=StatusArgs,
    access=lambda args, here: _reads(here),
    run=_status,
    summary=lambda args: "Git status",
)

DIFF = Tool(
    name="GitDiff",
    description=(
        "Unstaged changes; with staged, what will be committed; with commit (or A..B), the "
        "difference to it. stat lists files only."
    ),
    args=DiffArgs,
    access=lambda args, here: _reads(here, *args.paths),
    run=_diff,
    bounded=True,
    summary=lambda args: " ".join(("Git diff", args.commit, *args.paths)).strip(),
)

LOG = Tool(
    name="GitLog",
    description="Commits, newest first, one line each; grep searches messages.",
    args=LogArgs,
    access=lambda args, here: _reads(here, args.path),
    run=_log,
    summary=lambda args: " ".join(("Git log", args.rev, args.path)).strip(),
)

SHOW = Tool(
    name="GitShow",
    description="One commit with its changes, or with path that file as it was at rev.",
    args=ShowArgs,
    access=lambda args, here: _reads(here, args.path),
    run=_show,
    bounded=True,
    summary=lambda args: f"Git show {args.rev} {args.path}".strip(),
)

BLAME = Tool(
    name="GitBlame",
    description="Which commit last changed each line of a file (start, end: line numbers).",
    args=BlameArgs,
    access=lambda args, here: _reads(here, args.path),
    run=_blame,
    bounded=True,
    summary=lambda args: f"Git blame {args.path}",
    deferred=True,
)
