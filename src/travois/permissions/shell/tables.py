"""What programs may be given without a question: programs.txt and git_subcommands.txt.

See `options.parse_spec_table` and `options.parse_option_spec` for the notation.
"""

from __future__ import annotations

import re
from pathlib import Path

from travois.core.display_text import split_names


def _read_sections(name: str) -> dict[str, str]:
    """Read a table file beside this module: the text of each section, without its comments."""
    text = re.sub(r"(?m)^#.*\n", "", Path(__file__).with_name(name).read_text(encoding="utf-8"))
    parts = re.split(r"(?m)^\[(.+)\]\n", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


_PROGRAMS = _read_sections("programs.txt")
_GIT = _read_sections("git_subcommands.txt")

READ_ONLY_PROGRAMS = _PROGRAMS["read-only"]
"""Read-only programs, and the arguments that keep them so."""
EDITING_PROGRAMS = _PROGRAMS["editing"]
"""Programs that change exactly the files they name, and what they may be given."""
RULE_COVERED_PROGRAMS = _PROGRAMS["covered by a wildcard rule"]
"""What a rule with a wildcard may cover, by the first words of the call."""
EXACT_RULE_PROGRAMS = split_names(_PROGRAMS["named whole by a rule"])
"""Programs that run or write whatever their words say: a rule must name the whole call."""
HAZARDOUS_OPTIONS = split_names(_PROGRAMS["hazardous options"])
"""Options of any program that name another configuration, folder, program or target."""
HAZARDOUS_SHORT_OPTIONS = frozenset("cCeEoOxXirRpPwF")

GIT_DIFF_OPTIONS = _GIT["diff options"]
GIT_REVISION_OPTIONS = _GIT["revision options"]
GIT_READ_ONLY = _GIT["read-only"]
"""Each subcommand and what it may be given; `@diff` and `@revisions` stand for the above."""
GIT_PARTLY_READ_ONLY = _GIT["partly read-only"]
"""Subcommands that are read-only in some forms; the analysis of git calls decides which."""
GIT_HISTORY_MOVES = _GIT["moves history"]
"""Subcommands whose files come out of commits, and what is run beside them."""

GIT_LISTING_WORDS = {
    "remote": ("", "get-url"),
    "notes": ("", "list", "show"),
    "stash": ("list",),
    "worktree": ("list",),
    "submodule": ("", "status", "summary"),
    "bisect": ("log",),
    "sparse-checkout": ("list",),
    "lfs": ("ls-files", "status", "env"),
}
"""The first words that keep a subcommand read-only."""

SHELL_KEYWORDS = split_names(
    "if then else elif fi for while until do done case esac in select function time coproc"
    " { } ! [[ ]]"
)
"""Words of the shell's own grammar."""
