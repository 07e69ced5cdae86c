"""Running one command as the command line does."""

from __future__ import annotations

from argparse import ArgumentParser
from types import ModuleType


def run(module: ModuleType, *argv: object) -> int:
    """Run a command of this module; returns its exit code."""
    top = ArgumentParser(prog="travois")
    getattr(module, f"register_{argv[0]}")(top.add_subparsers(required=True))
    args = top.parse_args([str(word) for word in argv])
    return args.run(args)
