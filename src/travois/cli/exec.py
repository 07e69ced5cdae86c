"""`travois exec`: run one task with the command line of `codex exec`."""

from __future__ import annotations

import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from travois.commands.flags import parse_command_line
from travois.core.errors import UserError
from travois.headless.print_mode import run_headless
from travois.permissions.paths import is_inside
from travois.providers.request import EFFORT_LEVELS
from travois.terminal import CommandParsers, add_command, print_warning

EXEC_HELP = """\
  travois exec --json "fix the failing test"     print JSON lines, as --output-format codex-json
  travois exec resume ID "and the next one"      resume a session; --last for the last one here
  git diff | travois exec -                      read the prompt, or text before it, from stdin

For programs written for Codex, such as those using @openai/codex-sdk (docs/sdk.md). Model names are
those of Travois. Other Codex flags have no effect.
"""
CODEX_SANDBOX_FLAGS = {
    "read-only": ("--permission-mode", "plan"),
    "workspace-write": ("--permission-mode", "auto"),
    "danger-full-access": ("--permission-mode", "bypass", "--no-sandbox"),
}
"""The permission mode for each Codex sandbox: the nearest that allows no more."""
IGNORED_CONFIG_KEYS = ("approval_policy",)
"""Config keys that are ignored without a warning: `exec` never asks."""
IGNORED_CODEX_FLAGS = ("thread-source", "cyber-access-program", "color")
"""Flags that mean nothing here."""


def register_exec(commands: CommandParsers) -> None:
    """Add the `travois exec` command."""
    top = add_command(
        commands, "exec", what="run one task with the command line of `codex exec`", more=EXEC_HELP
    )
    add = top.add_argument
    add("words", nargs="*", metavar="[resume ID] PROMPT", help="the task; - or nothing reads stdin")
    add("--json", "--experimental-json", action="store_true", help="one JSON object per line")
    add(
        "-m",
        "--model",
        default="",
        metavar="NAME",
        help="provider/id, or an id from `travois models`",
    )
    add(
        "-s",
        "--sandbox",
        default="",
        choices=CODEX_SANDBOX_FLAGS,
        help="maps to mode plan, auto or bypass",
    )
    add("-C", "--cd", default="", metavar="DIR", help="folder to work in")
    add("--add-dir", action="append", default=[], metavar="DIR", help="another folder to work in")
    add("-i", "--image", action="append", default=[], metavar="FILE", help="attach an image")
    add("--output-schema", default="", metavar="FILE", help="JSON schema of the final answer")
    add("--ephemeral", action="store_true", help="do not save the session")
    add("--last", action="store_true", help="with resume: use the last session of this folder")
    _add_ignored_flags(top)
    top.set_defaults(run=run_exec, effort="")


def _add_ignored_flags(top: ArgumentParser) -> None:
    """Add flags of `codex exec` that have little or no effect here."""
    what = "ignored, with a warning"
    top.add_argument("-c", "--config", action="append", default=[], metavar="KEY=VALUE", help=what)
    top.add_argument("--skip-git-repo-check", action="store_true", help=SUPPRESS)
    for name in IGNORED_CODEX_FLAGS:
        top.add_argument(f"--{name}", default="", help=SUPPRESS)


CODEX_EXIT_CODES = {4: 1, 5: 0, os.EX_TEMPFAIL: 1}
"""The exit codes of `codex exec` for those that it does not have."""


def run_exec(args: Namespace) -> int:
    """Run a task with the flags of `codex exec`; return the exit code."""
    for notice in _apply_codex_config(args):
        print_warning(f"{notice} has no effect in Travois and is ignored")
    for image in _find_unreadable_images(args):
        print_warning(
            f"{image} is outside the workspace and was not attached; add its folder with --add-dir"
        )
    words = list(_to_travois_argv(args))
    if args.cd:
        _enter_given_folder(args.cd)
    code = run_headless(parse_command_line(words))
    return CODEX_EXIT_CODES.get(code, code)


def _apply_codex_config(args: Namespace) -> Iterator[str]:
    """Apply Codex's address, key and effort; yield the flags that are ignored."""
    yield from (
        f"--{name}" for name in IGNORED_CODEX_FLAGS if getattr(args, name.replace("-", "_"))
    )
    if key := os.environ.get("CODEX_API_KEY"):
        os.environ["OPENAI_API_KEY"] = key
    for name, _, value in (each.partition("=") for each in args.config):
        if name == "openai_base_url":
            os.environ["OPENAI_BASE_URL"] = value.strip("\"'")
        elif name == "model_reasoning_effort" and (level := _effort_from_codex(value.strip("\"'"))):
            args.effort = level
        elif name not in IGNORED_CONFIG_KEYS:
            yield f"--config {name}"


def _effort_from_codex(told: str) -> str:
    """Return our name for the effort of `codex exec`; empty if there is none."""
    return "low" if told == "minimal" else told if told in EFFORT_LEVELS else ""


def _find_unreadable_images(args: Namespace) -> Iterator[str]:
    """Yield images outside the folders; raises `UserError` for a missing one."""
    folders = [os.path.realpath(folder) for folder in (args.cd or ".", *args.add_dir)]
    for image in args.image:
        if not os.path.isfile(image):
            raise UserError(f"Image {image} does not exist")
        if not any(is_inside(os.path.realpath(image), folder) for folder in folders):
            yield image


def _to_travois_argv(args: Namespace) -> Iterator[str]:
    """Translate arguments of `codex exec` to those of `travois`, with absolute paths."""
    yield from ("-p", "--output-format", "codex-json" if args.json else "text")
    yield from CODEX_SANDBOX_FLAGS.get(args.sandbox, ())
    yield from ("--model", args.model) if args.model else ()
    yield from ("--effort", args.effort) if args.effort else ()
    yield from ("--no-session-persistence",) if args.ephemeral else ()
    for folder in args.add_dir:
        yield from ("--add-dir", os.path.abspath(folder))
    if args.output_schema:
        yield f"--json-schema={_read_schema_file(args.output_schema)}"
    asked: list[str] = args.words
    if asked[:1] == ["resume"]:
        yield "--continue" if args.last else f"--resume={_resumed_session_id(asked)}"
        asked = asked[1 if args.last else 2 :]
    shown = (f'@"{os.path.abspath(image)}"' for image in args.image)
    prompt = "\n".join((*(word for word in asked if word != "-"), *shown))
    yield from ("--", prompt) if prompt else ()


def _resumed_session_id(asked: list[str]) -> str:
    """Return the session id that `travois exec resume` names."""
    if not asked[1:]:
        raise UserError("resume needs a session id", fix="Or use --last for the last session.")
    return asked[1]


def _read_schema_file(path: str) -> str:
    """Read the JSON schema of the final answer for `travois exec`."""
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path}", why=str(error)) from None


def _enter_given_folder(folder: str) -> None:
    """Change to the folder of `travois exec --cd`."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise UserError(f"Cannot work in {folder}", why=str(error)) from None
