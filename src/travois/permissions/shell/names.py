"""Variables: which may be set without changing what programs do."""

from __future__ import annotations

import re

from msgspec.structs import replace

from travois.permissions.shell.plan import Step, Word

HARMLESS = re.compile(
    r"LC_[A-Z]+|LANG|LANGUAGE|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR(_FORCE)?|COLUMNS|LINES|TERM"
    r"|NODE_ENV|CI|RUST_BACKTRACE|RUST_LOG|LOG_LEVEL|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE"
    r"|GIT_PAGER|PAGER|DEBUG|VERBOSE"
)
"""What a program may be given without becoming another one."""
TAME = re.compile(r"[A-Za-z0-9_.@+,-]*")
PAGERS = ("", "cat")
SHELL = re.compile(
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
    r"|FTP|ALL|NO)_?.*|[a-z]+_proxy|npm_.*|histchars|auto_resume|_.*",
)
"""Names that the shell or well-known programs look at: setting one may change what runs."""


def passable(name: str, value: Word, *, program: str) -> bool:
    """Whether a program may be started with this variable set."""
    if name == "IFS" and program == "read":
        return value.kind == "plain"
    if not HARMLESS.fullmatch(name) or value.value is None:
        return False
    if name.endswith("PAGER"):
        return value.text in PAGERS
    zone = name == "TZ" and "/" in value.text and not value.text.startswith(("/", ":"))
    text = value.text.replace("/", "") if zone and ".." not in value.text else value.text
    return bool(TAME.fullmatch(text))


def under(step: Step, given: list[tuple[str, Word]]) -> Step:
    """A step with variables set for it; what changes the program must be in a rule itself."""
    risky = [pair for pair in given if not passable(*pair, program=step.name)]
    if not risky:
        return step
    clear = step.needs != "exact" or step.named
    words = [f"{name}={value.value}" for name, value in risky if value.value is not None]
    named = (*step.named, *words) if clear and len(words) == len(risky) else ()
    why = f"it runs with {risky[0][0]} set"
    return replace(step, needs="exact", why=why, texts=step.texts[-1:], named=named)


def assignable(name: str) -> bool:
    """Whether setting this variable of the shell concerns nothing but the line itself."""
    return name.isidentifier() and name.isascii() and not SHELL.fullmatch(name)
