"""The command line."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib import import_module

from travois.app.flags import COMMANDS, MODULES, understood
from travois.kernel.faults import Fault


def run(argv: Sequence[str]) -> int:
    """Do what the words say; returns the exit code."""
    try:
        return _run(list(argv))
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the last place where a bug can become words
        return _explain(error)


def _explain(error: Exception) -> int:
    """Tell the user what went wrong, in one message."""
    first = _innermost(error)
    if isinstance(first, Fault):
        sys.stderr.write(f"travois: {first}\n")
        return first.code
    if isinstance(first, BrokenPipeError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the reader left; nothing to flush to
        return 1
    from travois.app.crash import report

    sys.stderr.write(report(error, cause=first))
    return 1


def _innermost(error: BaseException) -> BaseException:
    """What was raised in a task group comes in a group of its own."""
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return _innermost(inner[0]) if inner else error


def _run(argv: list[str]) -> int:
    _stand()
    if argv and argv[0] in COMMANDS:
        return _command(argv)
    options = understood(argv)
    if options.bg:
        from travois.app.detached import detach

        return detach(argv, options)
    if options.worktree is not None:
        from travois.app.worktree import within

        return within(options.worktree, lambda: _spoken(options))
    return _spoken(options)


def _spoken(options: Namespace) -> int:
    """Do one task, or talk."""
    if options.init_only:
        from travois.app.once import set_up

        return set_up(options)
    if options.print:
        from travois.app.once import once

        return once(options)
    from travois.app.front import talk

    return talk(options)


def _stand() -> None:
    """Everything here begins at the current folder."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise Fault("The current folder no longer exists", fix="Change to another one.") from None


def _command(argv: list[str]) -> int:
    top = ArgumentParser(prog="travois")
    module = import_module(f"travois.app.commands.{MODULES.get(argv[0], argv[0])}")
    module.register(top.add_subparsers(required=True))
    chosen = top.parse_args(argv)
    return chosen.run(chosen)
