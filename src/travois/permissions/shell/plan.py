"""Command plans: the steps of a command line and the files they access."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.patterns import compile_lazily
from travois.permissions.access import Access

MAX_WORK_UNITS = 12_000
"""Units of work for one command line: about 25 ms on a small machine."""
STEP_UNITS = 25
"""The cost of analyzing one program call, besides its words."""
ACCESS_UNITS = 8
"""The cost of resolving and checking one path that a program accesses."""
REDIRECT_UNITS = 40
"""The cost of following one redirection and checking its file."""
MAX_NESTING_DEPTH = 60
"""The maximum nesting of commands, in text or by programs that run others."""
MAX_PARSED_CHARS = 16_000
"""Longer texts are not parsed; the bodies of here-documents do not count."""

MAX_HEREDOCS = 60
"""The parser takes quadratic time for here-documents: texts with more of them are not parsed."""


class CommandTooComplex(Exception):
    """Analyzing the command would take too much work, so permission is asked."""


class WorkBudget:
    """A counter of work units: no clock, so that a decision never depends on the machine."""

    def __init__(self, limit: int = MAX_WORK_UNITS) -> None:
        self.limit = limit
        self.spent = 0

    def spend(self, units: int = 1) -> None:
        """Count work before it is done; raises `CommandTooComplex` once the limit is passed."""
        self.spent += units
        if self.spent > self.limit:
            raise CommandTooComplex("it is too complex to analyze")


FollowLinks = Callable[[Access], tuple[Access, ...]]
"""Follows the links of a path and finds what a pattern stands for."""


class ShellWord(msgspec.Struct, frozen=True):
    """One word of a command: its text, a pattern, or the known beginning of an open one."""

    text: str
    kind: Literal["plain", "glob", "open"] = "plain"
    single: bool = True
    """True if it stays one word, whatever its value is."""

    @property
    def value(self) -> str | None:
        """The text, if that is all there is to know."""
        return self.text if self.kind == "plain" else None


class CommandStep(msgspec.Struct, frozen=True):
    """One program of a command line: its words, its accesses, and what lets it run."""

    argv: tuple[ShellWord, ...]
    needs: Literal["nothing", "rule", "exact"] = "exact"
    """Nothing, if all that it does is known and listed; a rule for the like of it; or for it."""
    why: str = ""
    """The reason why it needs approval."""
    accesses: tuple[Access, ...] = ()
    texts: tuple[str, ...] = ()
    """The ways to write it that a rule may use."""
    known: bool = False
    """True if the program runs nothing that its arguments only mention."""
    edits: bool = False
    """True if the program only changes the files that it names."""
    named: tuple[str, ...] = ()
    """Options and variables that a rule with a star covers only if it names them itself."""

    @property
    def name(self) -> str:
        """The program, without its folder."""
        return self.argv[0].text.rpartition("/")[2] if self.argv else ""


class CommandPlan(msgspec.Struct, frozen=True):
    """Everything a command line runs; `unclear` says why there may be more."""

    text: str
    steps: tuple[CommandStep, ...] = ()
    unclear: str = ""
    assigned: tuple[str, ...] = ()
    """Names of shell variables that are set for the rest of the line."""
    search_text: str = ""
    """All words of its steps, for a first look before rules are compared step by step."""

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The accesses of all steps."""
        return tuple(access for step in self.steps for access in step.accesses)

    @property
    def is_known(self) -> bool:
        """True if everything it does is known and listed."""
        return not self.unclear and all(step.needs == "nothing" for step in self.steps)

    @property
    def is_read_only(self) -> bool:
        """True if it is known to change nothing."""
        return self.is_known and all(access.kind == "read" for access in self.accesses)

    def resolve_paths(self, real: FollowLinks) -> CommandPlan:
        """Return the plan with links in every path resolved."""
        return replace(self, steps=tuple(_resolve_step(step, real) for step in self.steps))


def git_subcommand(step: CommandStep) -> str:
    """Return the git subcommand of a command step."""
    words = iter(word.text for word in step.argv[1:])
    for word in words:
        if word in ("-C", "-c"):
            next(words, "")
        elif not word.startswith("-"):
            return word
    return ""


def _resolve_step(step: CommandStep, real: FollowLinks) -> CommandStep:
    return replace(step, accesses=tuple(_resolve_each_access(step.accesses, real)))


def _resolve_each_access(accesses: tuple[Access, ...], real: FollowLinks) -> Iterator[Access]:
    for access in accesses:
        yield from real(access) if access.kind in ("read", "write") else (access,)


# Variables: which may be set without changing what programs do.


HARMLESS_VARIABLES = (
    r"LC_[A-Z]+|LANG|LANGUAGE|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR(_FORCE)?|COLUMNS|LINES|TERM"
    r"|NODE_ENV|CI|RUST_BACKTRACE|RUST_LOG|LOG_LEVEL|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE"
    r"|GIT_PAGER|PAGER|DEBUG|VERBOSE"
)
"""Variables that do not change what a program does."""
HARMLESS_VALUE = compile_lazily(r"[A-Za-z0-9_.@+,-]*")
HARMLESS_PAGERS = ("", "cat")
SIGNIFICANT_VARIABLES = (
    r"BASH.*|PATH|HOME|PWD|OLDPWD|CDPATH|IFS|ENV|PS\d|PROMPT_.*|SHELL.*|GLOB.*|FIGNORE|HIST.*"
    r"|MAIL.*|OPT(ARG|IND|ERR)|POSIXLY_CORRECT|REPLY|RANDOM|S?RANDOM|SECONDS|EPOCH.*|LINENO"
    r"|TIMEFORMAT|TMOUT|TMPDIR|TEMP|TMP|UID|EUID|PPID|GROUPS|DIRSTACK|FUNC.*|PIPESTATUS"
    r"|COMP_.*|COMPREPLY|COPROC.*|EXECIGNORE|INPUTRC|IGNOREEOF|CHILD_MAX|EMACS|FCEDIT|EDITOR"
    r"|VISUAL|BROWSER|PAGER|MANPAGER|USER|LOGNAME|HOSTNAME|HOSTTYPE|OSTYPE|MACHTYPE|TERM.*"
    r"|LD_.*|DYLD_.*|GIT_.*|GCONV_.*|LOC.*|NLSPATH|MALLOC_.*|XDG_.*|DISPLAY|SSH_.*|SSL_.*"
    r"|(NODE|NPM|PNPM|YARN|BUN|DENO|PYTHON|PYTEST|PIP|UV|POETRY|PERL|RUBY|GEM|BUNDLE|JAVA|JDK"
    r"|MAVEN|GRADLE|ANT|SBT|KOTLIN|GO|CARGO|RUST|CC|CXX|CPP|LD|AR|CFLAGS|CXXFLAGS|LDFLAGS|MAKE"
    r"|CMAKE|DOCKER|COMPOSE|KUBE|HELM|TF|AWS|AZURE|GOOGLE|CLOUDSDK|GH|HUB|OPENSSL|CURL|WGET"
    r"|LESS|MORE|GREP|RIPGREP|FZF|BAT|JQ|AWK|GAWK|SED|TAR|GZIP|XZ|ZIP|RSYNC|PG|MYSQL|HTTPS?"
    r"|FTP|ALL|NO)_?.*|[a-z]+_proxy|npm_.*|histchars|auto_resume|_.*"
)
"""Names that the shell or well-known programs look at: setting one may change what runs."""


def is_harmless_variable(name: str, value: ShellWord, *, program: str) -> bool:
    """Return whether setting an environment variable for a program is harmless."""
    if name == "IFS" and program == "read":
        return value.kind == "plain"
    if not re.fullmatch(HARMLESS_VARIABLES, name) or value.value is None:
        return False
    if name.endswith("PAGER"):
        return value.text in HARMLESS_PAGERS
    zone = name == "TZ" and "/" in value.text and not value.text.startswith(("/", ":"))
    text = value.text.replace("/", "") if zone and ".." not in value.text else value.text
    return bool(HARMLESS_VALUE.fullmatch(text))


def with_variables(step: CommandStep, given: list[tuple[str, ShellWord]]) -> CommandStep:
    """Return a command step with variables set; a rule must name those that change the program."""
    risky = [pair for pair in given if not is_harmless_variable(*pair, program=step.name)]
    if not risky:
        return step
    clear = step.needs != "exact" or step.named
    words = [f"{name}={value.value}" for name, value in risky if value.value is not None]
    named = (*step.named, *words) if clear and len(words) == len(risky) else ()
    why = f"it runs with {risky[0][0]} set"
    return replace(step, needs="exact", why=why, texts=step.texts[-1:], named=named)


def is_assignable(name: str) -> bool:
    """Return whether setting a shell variable affects nothing but the command line itself."""
    return name.isidentifier() and name.isascii() and not re.fullmatch(SIGNIFICANT_VARIABLES, name)
