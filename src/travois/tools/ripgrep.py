"""Asking ripgrep: where to look, what it said, and which of it may be shown.

It respects ignore files, looks into hidden folders but not into .git, and names files relative to
the shell's folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from travois.engine.ports import Command, Completed, Env, Stat
from travois.engine.tool import Refusal
from travois.tools.place import absolute, plain

RG = ("rg", "--no-config", "--no-messages", "--hidden", "--glob=!.git", "--no-require-git")
SECONDS = 30.0
KEEP = 4 * 1024 * 1024
KEPT_BACK = "\n(files that a rule keeps from being read are left out)"


class Row(msgspec.Struct, frozen=True):
    """One line of an answer, and the file that it is about."""

    path: str
    text: str = ""


async def spot(env: Env, path: str) -> tuple[str, Stat]:
    """A path as ripgrep and the model should see it (short inside the working folder).

    Ripgrep follows no links but one that it is given by name, so it is given where that led.
    """
    full = absolute(path, env.cwd)
    stat = await env.files.stat(full)
    if stat is None:
        raise Refusal(f"{full} does not exist; paths are relative to {env.cwd}.")
    full = stat.link or full
    inside = full == env.cwd or full.startswith(env.cwd.rstrip("/") + "/")
    return (os.path.relpath(full, env.cwd) if inside else full), stat


async def ask(env: Env, argv: Sequence[str]) -> Completed:
    """Run it where the shell stands; what it complains about is refused."""
    if any("\0" in word for word in argv):
        raise Refusal("The arguments hold a NUL character; leave it out.")
    command = Command(tuple(argv), cwd=env.cwd, keep=KEEP, stderr="apart")
    done = await env.processes.run(command, timeout=SECONDS)
    if done.status == 2 and done.errors.total:
        raise Refusal(_complaint(done.errors.head.decode(errors="replace")))
    return done


def _complaint(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith(("error:", "PCRE2:"))]
    return "ripgrep: " + ("; ".join(lines) or text.strip().partition("\n")[0].removeprefix("rg: "))


def answer(done: Completed) -> str:
    """What it said, as far as that was kept."""
    whole = done.output.joined() if not done.output.missing else done.output.head
    return whole.decode(errors="backslashreplace")


def paths(text: str) -> list[str]:
    """The files that it named, each with a NUL after it."""
    return [path.removeprefix("./") for path in text.split("\0")[:-1]]


def seen(rows: list[Row], env: Env) -> list[Row]:
    """The rows of files that no rule hides."""
    hidden = {path: env.hidden(absolute(path, env.cwd)) for path in {row.path for row in rows}}
    return [row for row in rows if not hidden[row.path]]


def where(path: str) -> str:
    """Words that say where, if a place was named."""
    return f" in {plain(path)}" if path else ""


def unfinished(done: Completed) -> str:
    """Words that say why this is not all; empty if it is."""
    if done.timed_out:
        return f"\n(stopped after {SECONDS:g} s, so this is not all; narrow path or glob)"
    if done.output.missing:
        return "\n(there was more than could be kept; narrow path, glob, type or pattern)"
    return ""
