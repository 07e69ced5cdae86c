"""The entry point: dispatch of commands, background runs and error reports."""

from __future__ import annotations

import os
import re
import stat
import sys
import termios
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from errno import EIO
from importlib import import_module
from traceback import format_exception
from types import ModuleType
from uuid import uuid4

from travois.commands.flags import COMMAND_MODULES, COMMANDS, build_parser, parse_command_line
from travois.core.display_text import clean_for_stream, write_stderr
from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports
from travois.permissions.secrets import collect_secrets, mask_text
from travois.sessions import blobs
from travois.sessions.home import locate_home
from travois.terminal import print_json
from travois.version import __version__

with lazy_imports():
    import subprocess

    from travois.cli import debug_log, front_end
    from travois.commands import plugins
    from travois.compose import worktree
    from travois.files import installation
    from travois.headless import print_mode
    from travois.process import parent_watch
    from travois.settings import validate


# When we are wrong: a file that says how, and a line that says where it is.


def write_crash_report(error: BaseException, *, cause: BaseException) -> str:
    """Write a crash report with the traceback; return what to tell the user."""
    trace = _mask_secrets("".join(format_exception(error)))
    head = f"Travois {__version__}, Python {sys.version.split()[0]}, {sys.platform}\n"
    try:
        folder = locate_home(os.environ).path / "crashes"
        blobs.make_folders(folder)
        path = folder / f"{os.getpid()}-{len(os.listdir(folder))}.txt"
        blobs.replace_file(path, (head + trace).encode(errors="replace"))
    except (OSError, UserError):
        return f"{trace}\ntravois: this is a bug in Travois; the session can be resumed\n"
    return (
        f"travois: a bug in Travois: {type(cause).__name__}: {_mask_secrets(str(cause))}\n"
        f"  The session can be resumed. Please report it with {path}\n"
    )


def _mask_secrets(text: str) -> str:
    """Mask secrets in a crash report: known settings and variables, and look-alikes."""
    return mask_text(collect_secrets(os.environ.items()).redact(text))


# A task that goes on without the terminal it was begun in.


BACKGROUND_FLAGS = ("--bg", "--background")


def start_in_background(argv: list[str], args: Namespace) -> int:
    """Start a background run in its own process and print its session id."""
    if args.print or not args.prompt:
        raise UserError("--bg starts one task in the background", fix="Give a prompt, and omit -p.")
    if args.die_with_parent:
        raise UserError("--bg outlives its parent", fix="Omit --die-with-parent.")
    if args.latest or args.no_session_persistence:
        raise UserError("--bg needs a saved session", fix="Choose one with -r, or start a new one.")
    named = args.session_id or args.resume_or_create
    named = named or (args.resume if not args.fork_session else "")
    id = named or str(uuid4())
    words = ["-p", *(() if named else ("--session-id", id))]
    words += [word for word in argv if word not in BACKGROUND_FLAGS]
    folder = locate_home(os.environ).prepare().path / "background"
    folder.mkdir(mode=0o700, exist_ok=True)
    file = "".join(char if char.isalnum() or char == "-" else "_" for char in id)
    with (folder / f"{file}.txt").open("ab") as said:
        child = subprocess.Popen(
            [sys.executable, "-m", "travois", *words],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    sys.stdout.write(f"{id}\n")
    told = f"running in process {child.pid}; output goes to {said.name}"
    write_stderr(f"travois: {told}. Resume with `travois -r {id}`\n")
    return 0


PACKAGE_COMMAND = re.compile(r"[a-z][a-z0-9-]*")
"""What the name of a command looks like that a package brings."""
HANGUP_EXIT_CODE = 129
"""The exit code of a program whose terminal was closed: 128 and the number of SIGHUP."""


def run_command_line(argv: Sequence[str]) -> int:
    """Run a command line; return the exit code."""
    wants_json = _wants_json(argv)
    try:
        code = _dispatch_command_line(list(argv))
        sys.stdout.flush()  # a reader that has left is found here, not when the interpreter ends
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the last place where a bug can become words
        return _report_error(error, wants_json=wants_json)
    except SystemExit as stop:
        if wants_json and stop.code == 2:
            _print_error_json("Invalid command line", why="details are on standard error")
        raise
    return code


def _wants_json(argv: Sequence[str]) -> bool:
    """Return whether a command line asks for JSON; `exec` has its own error format."""
    words = [*argv]
    own = words[: words.index("--")] if "--" in words else words
    return words[:1] != ["exec"] and words[:1] != [] and words[0] in COMMANDS and "--json" in own


def _print_error_json(what: str, *, why: str = "", fix: str = "") -> None:
    """Print an error as JSON: a program that asked for JSON gets nothing else."""
    print_json({"error": {"what": what, "why": why, "fix": fix}})


def _report_error(error: Exception, *, wants_json: bool) -> int:
    """Tell the user what went wrong, in one message."""
    first = _unwrap_exception_group(error)
    if isinstance(first, UserError):
        _write_stderr(f"travois: {first}\n")
        if wants_json:
            _print_error_json(first.what, why=first.why, fix=first.fix)
        return first.code
    if isinstance(first, BrokenPipeError):
        _abandon_output()
        return 1
    if isinstance(first, OSError) and first.errno == EIO and _is_hung_up():
        _abandon_output()
        return HANGUP_EXIT_CODE
    _write_stderr(write_crash_report(error, cause=first))
    if wants_json:
        _print_error_json(
            "This is a bug in Travois", why=mask_text(f"{type(first).__name__}: {first}")
        )
    return 1


def _write_stderr(text: str) -> None:
    """Write an error report to standard error, if it still exists."""
    try:
        sys.stderr.write(clean_for_stream(text, sys.stderr))
        sys.stderr.flush()
    except OSError:
        _abandon_output()


def _abandon_output() -> None:
    """Replace standard output and error by the null device when nobody reads them any more."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - open as long as we live


def _is_hung_up() -> bool:
    """Return whether the terminal of a standard stream was closed, so that errors are moot.

    A terminal says EIO to everything then; a disk that says it is another matter.
    """
    return any(_terminal_is_gone(number) for number in range(3))


def _terminal_is_gone(number: int) -> bool:
    """Return whether the terminal behind a file descriptor was closed."""
    try:
        if not stat.S_ISCHR(os.fstat(number).st_mode):
            return False
        termios.tcgetattr(number)
    except termios.error as error:
        return error.args[0] == EIO
    except OSError:
        return False
    return False


def _unwrap_exception_group(error: BaseException) -> BaseException:
    """Return the first exception inside nested exception groups."""
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return _unwrap_exception_group(inner[0]) if inner else error


def _dispatch_command_line(argv: list[str]) -> int:
    """Run a subcommand, print help, or start a session in the fore- or background."""
    _check_current_folder()
    if argv and argv[0] in COMMANDS:
        return _run_command(argv)
    if argv[:1] == ["help"]:
        return _print_help(argv[1:])
    if (
        argv
        and PACKAGE_COMMAND.fullmatch(argv[0])
        and (command := plugins.find_package_command(argv[0]))
    ):
        code = command(argv[1:])
        return code if isinstance(code, int) else 0
    _refuse_typo(argv)
    options = parse_command_line(argv)
    if options.bg:
        return start_in_background(argv, options)
    if options.worktree is not None:
        return worktree.run_in_worktree(options.worktree, lambda: _run_chosen_session(options))
    return _run_chosen_session(options)


def _run_chosen_session(options: Namespace) -> int:
    """Run one task in print mode, or an interactive session."""
    if options.debug or options.debug_file:
        debug_log.start_debug_log(locate_home(os.environ), options.debug_file)
    if options.die_with_parent or options.lease:
        parent_watch.watch_parent_and_lease(parent=options.die_with_parent, lease=options.lease)
    if options.init_only or options.print:
        return (
            print_mode.run_setup_hooks(options)
            if options.init_only
            else print_mode.run_headless(options)
        )
    return front_end.start_conversation(options)


def _print_help(words: list[str]) -> int:
    """Print the help of Travois, or of one command."""
    if not words:
        build_parser().print_help()
        return 0
    _refuse_typo(words)
    if words[0] not in COMMANDS:
        raise UserError(f"Unknown command {words[0]!r}", fix="`travois help` lists the commands.")
    return _run_command([*words, "--help"])


def _refuse_typo(argv: list[str]) -> None:
    """Refuse a first word that resembles a command but is none: few prompts are one word."""
    word = argv[0] if argv else ""
    if not word.isascii() or not word.isalpha() or word in COMMANDS or {"-p", "--print"} & {*argv}:
        return
    swapped = [name for name in COMMANDS if sorted(name) == sorted(word.lower())]
    if near := validate.find_nearest_word(word.lower(), (*COMMANDS, "help")) or "".join(
        swapped[:1]
    ):
        fix = f"To send the word as a prompt: travois -p {word}"
        raise UserError(f"Unknown command {word!r}. Did you mean `travois {near}`?", fix=fix)


def _check_current_folder() -> None:
    """Check that the current folder exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError(
            "The current folder no longer exists", fix="Change to another folder."
        ) from None


def _import_command_module(command: str) -> ModuleType:
    """Import the module of a subcommand; raises `UserError` if the lab is missing."""
    where = COMMAND_MODULES.get(command, f"commands.{command}")
    try:
        return import_module(f"travois.{where}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "travois_lab":
            raise
        raise UserError(
            "The lab is not installed", fix=f"Install it: {installation.extra_command('lab')}"
        ) from None


def _run_command(argv: list[str]) -> int:
    """Parse the arguments of a subcommand and run it."""
    top = ArgumentParser(prog="travois")
    module = _import_command_module(argv[0])
    getattr(module, f"register_{argv[0]}")(top.add_subparsers(required=True))
    chosen = top.parse_args(argv)
    return chosen.run(chosen)
