"""The manual page travois(1), from the command tree."""

from __future__ import annotations

from collections.abc import Iterator

from travois.cli.command_tree import CommandFlag, CommandNode
from travois.version import __version__

MANUAL_FILES = """\
.TP
.I ~/.config/travois
Settings, skills, agents, commands and themes (XDG_CONFIG_HOME).
.TP
.I ~/.local/state/travois
Sessions, memories, snapshots, credentials and trust (XDG_STATE_HOME).
.TP
.I ~/.cache/travois
Search indexes, which can be deleted at any time (XDG_CACHE_HOME).
.TP
.B TRAVOIS_HOME
One folder for all three.
"""


def render_manual(tree: CommandNode) -> str:
    """Render the manual page in roff."""
    return "\n".join(
        (
            f'.TH TRAVOIS 1 "" "travois {__version__}" "User Commands"',
            ".SH NAME",
            f"travois \\- {_escape_roff(tree.what)}",
            ".SH SYNOPSIS",
            ".B travois\n[\\fIflags\\fR] [\\fIprompt\\fR]",
            ".br",
            ".B travois\n\\fIcommand\\fR [\\fIflags\\fR]",
            ".SH OPTIONS",
            *_render_flags(tree),
            ".SH COMMANDS",
            *(line for node in tree.walk() if node.path for line in _render_command(node)),
            ".SH EXIT STATUS",
            ".nf",
            _escape_roff(tree.more.partition("exit codes:\n")[2].rstrip()),
            ".fi",
            ".SH FILES",
            MANUAL_FILES,
        )
    )


def _render_command(node: CommandNode) -> Iterator[str]:
    yield f".SS {_escape_roff(node.name)}"
    yield _escape_roff(f"{node.what[:1].upper()}{node.what[1:]}.")
    yield from _render_flags(node)


def _render_flags(node: CommandNode) -> Iterator[str]:
    """Yield a tagged paragraph for each flag."""
    for flag in node.flags:
        if flag.names != ("-h", "--help"):
            yield ".TP"
            yield f".B {_escape_roff(spell_flag(flag))}"
            yield _escape_roff(flag.what)


def spell_flag(flag: CommandFlag) -> str:
    """Spell a flag as the help does: `-r, --resume ID`."""
    return ", ".join(flag.names) + (f" {flag.value}" if flag.value else "")


def _escape_roff(text: str) -> str:
    """Escape a text for roff: backslashes, dashes, and dots that would begin a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped.splitlines()
    )
