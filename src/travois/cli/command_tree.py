"""The commands and flags of `travois` as values, for completion and manuals."""

from __future__ import annotations

from argparse import SUPPRESS, Action, ArgumentParser
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import cast

import msgspec

from travois.commands.flags import COMMAND_MODULES, COMMANDS, build_parser


class CommandFlag(msgspec.Struct, frozen=True):
    """A flag or a positional argument."""

    names: tuple[str, ...]
    """How it is written, such as `-r` and `--resume`; the name alone for a positional one."""
    what: str = ""
    value: str = ""
    """What stands for its value in the help; empty for a switch."""
    choices: tuple[str, ...] = ()
    group: str = ""

    @property
    def is_option(self) -> bool:
        """Whether it begins with a dash."""
        return self.names[0].startswith("-")


class CommandNode(msgspec.Struct, frozen=True):
    """A command with its flags and the commands below it."""

    path: tuple[str, ...]
    what: str
    flags: tuple[CommandFlag, ...]
    more: str = ""
    """What its help says below the flags."""
    commands: tuple[CommandNode, ...] = ()

    @property
    def name(self) -> str:
        """The words that start it."""
        return " ".join(("travois", *self.path))

    def walk(self) -> Iterator[CommandNode]:
        """Yield this command and all below it."""
        yield self
        for each in self.commands:
            yield from each.walk()


def read_command_tree() -> CommandNode:
    """Read all commands from the parsers that read the command line."""
    commands = tuple(_read_command(name, what) for name, what in COMMANDS.items())
    top = build_parser()
    return CommandNode(
        (), "a coding agent in your terminal", tuple(_read_flags(top)), top.epilog or "", commands
    )


def _read_command(name: str, what: str) -> CommandNode:
    """Read one command; without its flags if the packages that it needs are not installed."""
    try:
        module = import_module(f"travois.{COMMAND_MODULES.get(name, f'commands.{name}')}")
    except ModuleNotFoundError:
        return CommandNode((name,), what, ())
    top = ArgumentParser(prog="travois")
    parsers = top.add_subparsers()
    getattr(module, f"register_{name}")(parsers)
    return _read_parser(parsers.choices[name], (name,), what)


def _read_parser(parser: ArgumentParser, path: tuple[str, ...], what: str) -> CommandNode:
    """Read a parser and those of its subcommands."""
    below: dict[int, CommandNode] = {}
    for action in _list_actions(parser):
        named = _subparsers_of(action)
        shown = {each.dest: each.help or "" for each in _list_choices(action)}
        for name, told in shown.items():  # one without a help is for the program itself
            child = named[name]
            below.setdefault(id(child), _read_parser(child, (*path, name), told))
    return CommandNode(
        path, what, tuple(_read_flags(parser)), parser.epilog or "", tuple(below.values())
    )


def _read_flags(parser: ArgumentParser) -> Iterator[CommandFlag]:
    """Yield the flags and arguments that the help shows."""
    for group in parser._action_groups:
        for action in group._group_actions:
            if action.help != SUPPRESS and not _subparsers_of(action):
                yield _read_flag(action, group.title or "")


def _read_flag(action: Action, group: str) -> CommandFlag:
    """Read one flag."""
    takes_value = action.nargs != 0
    shown = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    names = tuple(action.option_strings) or (str(action.metavar or action.dest),)
    choices = tuple(map(str, action.choices or ()))
    what = (action.help or "") % {"default": action.default, "prog": "travois"}
    value = ("|".join(choices) or shown) if takes_value and action.option_strings else ""
    return CommandFlag(names, what, value, choices, group)


def _subparsers_of(action: Action) -> Mapping[str, ArgumentParser]:
    """Return the parsers of the commands that an action chooses from; empty for any other."""
    choices = cast("Mapping[str, object]", action.choices)
    if not isinstance(choices, dict):
        return {}
    return {name: each for name, each in choices.items() if isinstance(each, ArgumentParser)}


def _list_actions(parser: ArgumentParser) -> list[Action]:
    return parser._actions


def _list_choices(action: Action) -> list[Action]:
    """Return the subcommands of an action, with their help."""
    return getattr(action, "_choices_actions", [])
