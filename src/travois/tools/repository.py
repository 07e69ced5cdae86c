"""Asking git about a repository without running any code that the repository brings.

A repository's own configuration can name programs: hooks, monitors, filters, text converters,
signature checkers, transports. Here none of them runs. A command that is running meanwhile could
still name one between two looks of ours: then git runs in walls, where none could do anything.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

import msgspec

from travois.ports.tool import Refusal
from travois.ports.world import Command, Completed, Files, Processes
from travois.sandbox.profile import Cage
from travois.tools.paths import absolute

SECONDS = 30.0
KEEP = 4 * 1024 * 1024
TRUSTED = ("system", "global")
"""Scopes of settings that are the user's own; all others may come with the repository."""

SETTINGS = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.quotePath=false",
    "diff.mnemonicPrefix=false",
    "diff.noprefix=false",
    "i18n.logOutputEncoding=UTF-8",
    "log.showSignature=false",
    "safe.bareRepository=explicit",
)
HARMLESS = (
    "git",
    "--no-pager",
    "--literal-pathspecs",
    *(word for setting in SETTINGS for word in ("-c", setting)),
)
QUIET = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


class Where(Protocol):
    """As much of the world as git needs."""

    @property
    def cwd(self) -> str: ...

    @property
    def wary(self) -> Cage | None: ...

    @property
    def files(self) -> Files: ...

    @property
    def processes(self) -> Processes: ...


class Repository(msgspec.Struct, frozen=True):
    """Where the repository is, and the filters that its own configuration names."""

    top: str
    folder: str
    filters: tuple[str, ...]

    def env(self) -> dict[str, str]:
        """The environment in which those filters do nothing."""
        values = (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))
        pairs = [(f"filter.{f}.{key}", value) for f in self.filters for key, value in values]
        named = {"GIT_CONFIG_COUNT": str(len(pairs))} if pairs else {}
        for number, (key, value) in enumerate(pairs):
            named |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return QUIET | named


async def find(env: Where) -> Repository:
    """The repository around the working folder; refused if it claims files beyond its own."""
    words = ("rev-parse", "--show-toplevel", "--absolute-git-dir")
    found = _answer(env, await _run(env, words, QUIET)).output.joined().split(b"\n")
    top, folder = os.fsdecode(found[0]), os.fsdecode(found[1])
    if await env.files.stat(os.path.join(top, ".git")) is None:
        raise Refusal(f"The settings of {folder} claim the files of {top}; it is not read.")
    return Repository(top, folder, await _filters(env))


async def ask(env: Where, repo: Repository, words: Sequence[str]) -> Completed:
    """Run one git command that only reads; refused with git's reason if it fails."""
    return _answer(env, await _run(env, words, repo.env()))


def within(env: Where, repo: Repository, paths: Sequence[str]) -> tuple[str, ...]:
    """The paths in full, if they lie in the repository: `git diff` would compare any two others."""
    for path in paths:
        full = absolute(path, env.cwd)
        linked = os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full))
        if not any(_below(repo.top, place) for place in (linked, os.path.realpath(full))):
            raise Refusal(f"{path} is outside the repository at {repo.top}.")
    return tuple(absolute(path, env.cwd) for path in paths)


def text(done: Completed) -> str:
    """What git said, or its beginning if it said too much."""
    whole = done.output.head if done.output.missing else done.output.joined()
    return whole.decode(errors="replace")


async def _filters(env: Where) -> tuple[str, ...]:
    """The names of the filters that the user has not set up for all repositories."""
    pattern = r"^filter\..*\.(clean|smudge|process)$"
    words = ("config", "--null", "--show-scope", "--name-only", "--get-regexp", pattern)
    done = await _run(env, words, QUIET)
    if done.status == 1:
        return ()
    answer = os.fsdecode(_answer(env, done).output.joined()).split("\0")
    keys = [k for scope, k in zip(answer[::2], answer[1::2], strict=False) if scope not in TRUSTED]
    return tuple(sorted({key.partition(".")[2].rpartition(".")[0] for key in keys}))


async def _run(env: Where, words: Sequence[str], added: dict[str, str]) -> Completed:
    if any("\0" in word for word in words):
        raise Refusal("The arguments hold a NUL character; leave it out.")
    argv = (*HARMLESS, *words)
    command = Command(argv, env.cwd, added, keep=KEEP, stderr="apart", wary=env.wary)
    return await env.processes.run(command, timeout=SECONDS)


def _answer(env: Where, done: Completed) -> Completed:
    if done.timed_out:
        raise Refusal(f"git took more than {SECONDS:g} s; ask for less.")
    if done.status == 0:
        return done
    errors = done.errors.head.decode(errors="replace").strip() or "it failed"
    lines = errors.splitlines()
    fatal = next((line for line in lines if line.startswith("fatal: ")), lines[0])
    if "not a git repository" in fatal:
        raise Refusal(f"{env.cwd} is not inside a git repository.")
    partial = "lazy fetching" in errors or "promisor" in errors
    advice = " (this clone is partial: fetch what is missing with Bash)" if partial else ""
    raise Refusal(f"git: {fatal.removeprefix('fatal: ')[:300]}{advice}")


def _below(top: str, path: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")
