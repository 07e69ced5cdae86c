"""`travois exec`: one task, asked for with Codex's words, so that programs for it drive Travois."""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from travois.commands.flags import understood
from travois.core.errors import Fault
from travois.headless.print_mode import once
from travois.permissions.paths import inside
from travois.providers.options import LEVELS
from travois.terminal.tables import Commands, command, warn

MORE = """\
  travois exec --json "fix the failing test"     the lines of --output-format codex-json
  travois exec resume ID "and the next one"      go on with a session; --last for the last one here
  git diff | travois exec -                      standard input is the prompt, or comes before it

For programs that were written for Codex, such as those that use @openai/codex-sdk (docs/sdk.md).
Models are named as everywhere in Travois. Other flags of Codex have no effect.
"""
SANDBOXES = {
    "read-only": ("--permission-mode", "plan"),
    "workspace-write": ("--permission-mode", "auto"),
    "danger-full-access": ("--permission-mode", "bypass", "--no-sandbox"),
}
"""What Codex lets commands do, as the mode that comes nearest and allows no more."""
SETTLED = ("approval_policy",)
"""Keys that mean nothing and need no word: nobody is asked here."""
IDLE = ("thread-source", "cyber-access-program", "color")
"""Flags that mean nothing here."""


def register_exec(commands: Commands) -> None:
    """Add the command."""
    top = command(commands, "exec", what="one task, asked for as one asks Codex", more=MORE)
    add = top.add_argument
    add("words", nargs="*", metavar="[resume ID] PROMPT", help="what to do; - or none: stdin")
    add("--json", "--experimental-json", action="store_true", help="one JSON object per line")
    add("-m", "--model", default="", metavar="NAME", help="provider/id, or an id of the catalogue")
    add("-s", "--sandbox", default="", choices=SANDBOXES, help="plan, auto, or bypass")
    add("-C", "--cd", default="", metavar="DIR", help="the folder to work in")
    add("--add-dir", action="append", default=[], metavar="DIR", help="more folders to work in")
    add("-i", "--image", action="append", default=[], metavar="FILE", help="shown to the model")
    add("--output-schema", default="", metavar="FILE", help="the form that the answer must have")
    add("--ephemeral", action="store_true", help="keep nothing after the end")
    add("--last", action="store_true", help="with resume: the last session of this folder")
    _idle(top)
    top.set_defaults(run=run, effort="")


def _idle(top: ArgumentParser) -> None:
    """Flags that mean little or nothing here."""
    what = "left aside, with a word about it"
    top.add_argument("-c", "--config", action="append", default=[], metavar="KEY=VALUE", help=what)
    top.add_argument("--skip-git-repo-check", action="store_true", help=SUPPRESS)
    for name in IDLE:
        top.add_argument(f"--{name}", default="", help=SUPPRESS)


def run(args: Namespace) -> int:
    """Do it as `travois -p` would; returns the exit code."""
    for notice in _settle(args):
        warn(f"{notice} has no effect in Travois and is ignored")
    for image in _unseen(args):
        warn(f"{image} is outside the folders to work in and is not shown: --add-dir its folder")
    words = list(_words(args))
    if args.cd:
        _enter(args.cd)
    return once(understood(words))


def _settle(args: Namespace) -> Iterator[str]:
    """Take over where the model is and the key to it; names what is left aside."""
    yield from (f"--{name}" for name in IDLE if getattr(args, name.replace("-", "_")))
    if key := os.environ.get("CODEX_API_KEY"):
        os.environ["OPENAI_API_KEY"] = key
    for name, _, value in (each.partition("=") for each in args.config):
        if name == "openai_base_url":
            os.environ["OPENAI_BASE_URL"] = value.strip("\"'")
        elif name == "model_reasoning_effort" and (level := _effort(value.strip("\"'"))):
            args.effort = level
        elif name not in SETTLED:
            yield f"--config {name}"


def _effort(told: str) -> str:
    """The effort that Codex's word means; none if we have no such."""
    return "low" if told == "minimal" else told if told in LEVELS else ""


def _unseen(args: Namespace) -> Iterator[str]:
    """The images that may not be looked at; raises `Fault` for one that is not there."""
    folders = [os.path.realpath(folder) for folder in (args.cd or ".", *args.add_dir)]
    for image in args.image:
        if not os.path.isfile(image):
            raise Fault(f"There is no image {image}")
        if not any(inside(os.path.realpath(image), folder) for folder in folders):
            yield image


def _words(args: Namespace) -> Iterator[str]:
    """The same in words of our own; paths are meant from where we stand."""
    yield from ("-p", "--output-format", "codex-json" if args.json else "text")
    yield from SANDBOXES.get(args.sandbox, ())
    yield from ("--model", args.model) if args.model else ()
    yield from ("--effort", args.effort) if args.effort else ()
    yield from ("--no-session-persistence",) if args.ephemeral else ()
    for folder in args.add_dir:
        yield from ("--add-dir", os.path.abspath(folder))
    if args.output_schema:
        yield f"--json-schema={_read(args.output_schema)}"
    asked: list[str] = args.words
    if asked[:1] == ["resume"]:
        yield "--continue" if args.last else f"--resume={_session(asked)}"
        asked = asked[1 if args.last else 2 :]
    shown = (f'@"{os.path.abspath(image)}"' for image in args.image)
    prompt = "\n".join((*(word for word in asked if word != "-"), *shown))
    yield from ("--", prompt) if prompt else ()


def _session(asked: list[str]) -> str:
    if not asked[1:]:
        raise Fault("resume takes the id of a session", fix="--last goes on with the last one.")
    return asked[1]


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Fault(f"{path} cannot be read", why=str(error)) from None


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise Fault(f"{folder} is not a folder to work in", why=str(error)) from None
