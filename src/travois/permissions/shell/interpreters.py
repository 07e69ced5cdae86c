"""Programs that run code which their own words do not show: from input, a pipe or a server."""

from __future__ import annotations

import re
from collections.abc import Iterator

from travois.core.display_text import listed
from travois.permissions.shell.plan import Step, Word

SHELLS = listed("sh bash dash zsh ksh mksh ash fish csh tcsh rbash pwsh nu xonsh elvish")
INTERPRETERS = SHELLS | listed(
    """
    python pypy node nodejs deno bun ruby irb perl php lua luajit tclsh wish expect osascript R
    Rscript julia guile racket sbcl clojure scala ghci runghc groovy jshell iex elixir erl octave
    psql mysql mariadb sqlite sqlite3 duckdb mongo mongosh redis-cli clickhouse-client cqlsh sqlcmd
    gdb lldb m4 dc bc ed ex parallel at batch ts-node tsx
    """
)
"""Programs that run what they read from standard input when no word names a file."""
CLIENTS = listed(
    "psql mysql mariadb sqlite sqlite3 duckdb mongo mongosh redis-cli clickhouse-client cqlsh"
    " sqlcmd"
)
"""Those whose operands name a database and not a file of statements."""
SOURCING = frozenset(("eval", "source", "."))
VERSIONED = re.compile(r"-?[\d.]+$")
INPUT = re.compile(r"-|/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")
"""Files that are standard input, or the output of another command."""
GIVEN = re.compile(
    r"-[A-Za-z]*[cem]|-[fr]|--(?:eval|command|execute|file|print|version|help)(?:=.*)?"
)
"""Options that give the program itself, or do something else than run one."""
VALUED = frozenset(("-W", "-X", "-I", "-o", "-O", "-r", "--rcfile", "--init-file", "--require"))
SCRIPTED = {"awk": "-f", "gawk": "-f", "mawk": "-f", "sed": "-f", "make": "-f", "crontab": ""}
DOWNLOADERS = listed("curl wget fetch aria2c http https xh lynx w3m nc ncat netcat socat scp ftp")
RUNNERS = listed(
    """
    sudo doas su env xargs parallel nice nohup timeout time watch strace ltrace setsid flock chroot
    unshare nsenter systemd-run runuser ssh npx bunx pnpx uvx pipx tsx ts-node rtk direnv mise asdf
    docker podman kubectl nix-shell nix
    """
)
RUNNING = listed("exec run x dlx eval shell api ssh alias plugin extension console tinker runner")
TESTED = listed("npm pnpm yarn bun cargo make just task composer rake mix")
"""Programs whose `run` names a task of the project, not any program."""


def reads_program(argv: tuple[Word, ...]) -> bool:
    """Whether a program runs the text that it is given as input."""
    if not argv or argv[0].value is None:
        return False
    name = _plain_name(argv[0].text)
    words = [word.text for word in argv[1:]]
    if name in SCRIPTED:
        flag = SCRIPTED[name]
        return any(INPUT.fullmatch(word.removeprefix(flag)) for word in words if _after(word, flag))
    if name in SOURCING:
        return any(map(INPUT.fullmatch, words)) or any(word.kind == "open" for word in argv[1:])
    if name not in INTERPRETERS:
        return False
    if name in SHELLS and any(re.fullmatch(r"-[a-z]*s[a-z]*", word) for word in words):
        return True
    if any(GIVEN.fullmatch(word) for word in words):
        return any(word.kind == "open" for word in argv[1:])
    first = "-" if name in CLIENTS else next(_operands(words), "-")
    return bool(INPUT.fullmatch(first))


def is_shell(argv: tuple[Word, ...]) -> bool:
    """Whether a program is a shell."""
    return bool(argv) and _plain_name(argv[0].text) in SHELLS


def runs_anything(argv: tuple[Word, ...]) -> bool:
    """Whether the words after the first two choose the program or code that runs."""
    words = [word.text for word in argv[:2]]
    if not words:
        return True
    name = _plain_name(words[0])
    if name in RUNNERS | INTERPRETERS | SOURCING:
        return True
    return len(words) > 1 and words[1] in RUNNING and not (words[1] == "run" and name in TESTED)


def downloads(step: Step) -> bool:
    """Whether a step fetches what a server sends."""
    return step.name in DOWNLOADERS


def _plain_name(program: str) -> str:
    name = program.rpartition("/")[2]
    return VERSIONED.sub("", name) or name


def _after(word: str, flag: str) -> bool:
    return word.startswith(flag) or bool(INPUT.fullmatch(word))


def _operands(words: list[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if word in VALUED:
            next(rest, "")
        elif word == "-" or not word.startswith("-"):
            yield word
