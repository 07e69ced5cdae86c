"""Program families of shell commands: builders, test runners, interpreters, network clients."""

from __future__ import annotations

import re
from collections.abc import Iterator

from travois.core.display_text import split_names
from travois.core.patterns import compile_lazily
from travois.permissions.hosts import rule_allows_url
from travois.permissions.protected_paths import protected_names
from travois.permissions.shell.options import (
    RULE_COVERED_PROGRAMS,
    UnsafeArguments,
    parse_options,
    parse_spec_table,
)
from travois.permissions.shell.plan import CommandStep, ShellWord, git_subcommand

BUILD_PROGRAMS = split_names(
    """
    pytest py.test tox nox make gmake ninja just task rake rspec minitest phpunit pest jest vitest
    mocha ava tap karma cypress eslint oxlint prettier stylelint xo ruff black isort flake8 pylint
    mypy pyright basedpyright pyre ty tsc vue-tsc svelte-check ctest gradle gradlew mvn mvnw sbt ant
    golangci-lint staticcheck gotestsum gofumpt goimports rubocop standardrb brakeman phpstan psalm
    php-cs-fixer pint coverage unittest doctest hypothesis webpack rollup esbuild parcel tsup turbo
    nx lerna markdownlint markdownlint-cli2 xcodebuild cabal stack lein swiftlint ktlint detekt
    scons waf bats shellspec goreleaser tsx ts-node vale commitlint yamllint ansible-lint
    """
)
"""Programs that build, test, lint or format a project, with any arguments."""
TOOL_CHAIN_COMMANDS: dict[str, frozenset[str]] = {
    "go": split_names("test build vet fmt generate run"),
    "cargo": split_names("test build check clippy run bench fmt doc nextest rustc llvm-cov"),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "bun"),
        split_names("run run-script test t start build lint format typecheck check x"),
    ),
    "mise": split_names("run r tasks"),
    "dotnet": split_names("test build run format publish pack"),
    "bazel": split_names("test build run coverage"),
    "bazelisk": split_names("test build run coverage"),
    "buck2": split_names("test build run"),
    "mix": split_names("test compile format credo dialyzer"),
    "swift": split_names("test build run"),
    "zig": split_names("test build fmt run"),
    "deno": split_names("test lint fmt task check bench"),
    "dart": split_names("test analyze format compile run"),
    "flutter": split_names("test analyze build"),
    "meson": split_names("compile test"),
    "cmake": split_names("--build"),
    "biome": split_names("check lint format ci"),
    "playwright": split_names("test"),
    "pre-commit": split_names("run"),
    "vite": split_names("build"),
    "next": split_names("build lint"),
    "composer": split_names("test run run-script"),
    "hatch": split_names("test fmt build"),
}
"""The subcommands of tool chains that do the same, by program."""
PROJECT_RUNNERS = {
    **dict.fromkeys(("rtk", "npx", "bunx", "uvx", "xvfb-run"), ""),
    **dict.fromkeys(("uv", "poetry", "pdm", "pipenv", "hatch", "rye", "pixi"), "run"),
    **dict.fromkeys(("pnpm", "yarn", "npm", "bundle", "mise"), "exec"),
    **dict.fromkeys(("python", "python3"), "-m"),
}
"""Programs that only start another one, with the word that stands before it."""
MAX_RUNNERS = 4
GIT_CHANGING_COMMANDS = split_names(
    """
    add am apply bisect branch checkout cherry-pick clean clone commit config fast-import fetch
    filter-branch filter-repo gc init lfs maintenance merge mv notes pack-refs prune pull push
    rebase reflog remote repack replace reset restore revert rm sparse-checkout stash submodule
    switch symbolic-ref tag update-index update-ref worktree write-tree commit-tree read-tree
    """
)
"""Subcommands of git that change a repository, wherever their options do not make them look."""


def is_builder(step: CommandStep) -> bool:
    """Return whether a call builds, tests, lints or formats a project."""
    words = [word.text for word in step.argv]
    for _ in range(MAX_RUNNERS):
        if not words:
            return False
        name = words[0].rpartition("/")[2]
        rest = [word for word in words[1:] if not word.startswith("-") or word in ("-m", "--build")]
        if name in BUILD_PROGRAMS or TOOL_CHAIN_COMMANDS.get(name, frozenset()).intersection(
            rest[:1]
        ):
            return True
        lead = PROJECT_RUNNERS.get(name)
        if lead is None or (lead and rest[:1] != [lead]):
            return False
        words = rest[1:] if lead else rest
    return False


def changes_repository(step: CommandStep) -> bool:
    """Return whether a git command is known to do more than read."""
    if step.name != "git" or step.needs == "nothing":
        return False
    return git_subcommand(step) in GIT_CHANGING_COMMANDS


# Programs that run code which their own words do not show: from input, a pipe or a server.


SHELL_PROGRAMS = split_names(
    "sh bash dash zsh ksh mksh ash fish csh tcsh rbash pwsh nu xonsh elvish"
)
INPUT_INTERPRETERS = SHELL_PROGRAMS | split_names(
    """
    python pypy node nodejs deno bun ruby irb perl php lua luajit tclsh wish expect osascript R
    Rscript julia guile racket sbcl clojure scala ghci runghc groovy jshell iex elixir erl octave
    psql mysql mariadb sqlite sqlite3 duckdb mongo mongosh redis-cli clickhouse-client cqlsh sqlcmd
    gdb lldb m4 dc bc ed ex parallel at batch ts-node tsx
    """
)
"""Programs that run what they read from standard input when no word names a file."""
DATABASE_CLIENTS = split_names(
    "psql mysql mariadb sqlite sqlite3 duckdb mongo mongosh redis-cli clickhouse-client cqlsh"
    " sqlcmd"
)
"""Interpreters whose operands name a database and not a script."""
SOURCING_BUILTINS = frozenset(("eval", "source", "."))
VERSION_SUFFIX = compile_lazily(r"-?[\d.]+$")
INPUT_FILE = compile_lazily(r"-|/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")
"""Files that are standard input, or the output of another command."""
PROGRAM_OPTION = compile_lazily(
    r"-[A-Za-z]*[cem]|-[fr]|--(?:eval|command|execute|file|print|version|help)(?:=.*)?"
)
"""Options that give the program itself, or do something else than run one."""
OPTIONS_WITH_VALUE = frozenset(
    ("-W", "-X", "-I", "-o", "-O", "-r", "--rcfile", "--init-file", "--require")
)
SCRIPT_FLAGS = {"awk": "-f", "gawk": "-f", "mawk": "-f", "sed": "-f", "make": "-f", "crontab": ""}
DOWNLOAD_PROGRAMS = split_names(
    "curl wget fetch aria2c http https xh lynx w3m nc ncat netcat socat scp ftp"
)
PROGRAM_RUNNERS = split_names(
    """
    sudo doas su env xargs parallel nice nohup timeout time watch strace ltrace setsid flock chroot
    unshare nsenter systemd-run runuser ssh npx bunx pnpx uvx pipx tsx ts-node rtk direnv mise asdf
    docker podman kubectl nix-shell nix
    """
)
RUNNING_WORDS = split_names(
    "exec run x dlx eval shell api ssh alias plugin extension console tinker runner"
)
TASK_RUNNERS = split_names("npm pnpm yarn bun cargo make just task composer rake mix")
"""Programs whose `run` names a task of the project, not any program."""


def runs_its_input(argv: tuple[ShellWord, ...]) -> bool:
    """Return whether a program runs its standard input as code, as an interpreter does."""
    if not argv or argv[0].value is None:
        return False
    name = _base_program_name(argv[0].text)
    words = [word.text for word in argv[1:]]
    if name in SCRIPT_FLAGS:
        flag = SCRIPT_FLAGS[name]
        return any(
            INPUT_FILE.fullmatch(word.removeprefix(flag))
            for word in words
            if _is_flag_or_input(word, flag)
        )
    if name in SOURCING_BUILTINS:
        return any(map(INPUT_FILE.fullmatch, words)) or any(
            word.kind == "open" for word in argv[1:]
        )
    if name not in INPUT_INTERPRETERS:
        return False
    if name in SHELL_PROGRAMS and any(re.fullmatch(r"-[a-z]*s[a-z]*", word) for word in words):
        return True
    if any(PROGRAM_OPTION.fullmatch(word) for word in words):
        return any(word.kind == "open" for word in argv[1:])
    first = "-" if name in DATABASE_CLIENTS else next(_plain_operands(words), "-")
    return bool(INPUT_FILE.fullmatch(first))


def is_shell_program(argv: tuple[ShellWord, ...]) -> bool:
    """Return whether a program is a shell such as bash."""
    return bool(argv) and _base_program_name(argv[0].text) in SHELL_PROGRAMS


def runs_arbitrary_code(argv: tuple[ShellWord, ...]) -> bool:
    """Return whether a program, such as an interpreter, runs code chosen by its later words."""
    words = [word.text for word in argv[:2]]
    if not words:
        return True
    name = _base_program_name(words[0])
    if name in PROGRAM_RUNNERS | INPUT_INTERPRETERS | SOURCING_BUILTINS:
        return True
    return (
        len(words) > 1
        and words[1] in RUNNING_WORDS
        and not (words[1] == "run" and name in TASK_RUNNERS)
    )


def is_download(step: CommandStep) -> bool:
    """Return whether a command downloads something, as curl or wget does."""
    return step.name in DOWNLOAD_PROGRAMS


def _base_program_name(program: str) -> str:
    name = program.rpartition("/")[2]
    return VERSION_SUFFIX.sub("", name) or name


def _is_flag_or_input(word: str, flag: str) -> bool:
    return word.startswith(flag) or bool(INPUT_FILE.fullmatch(word))


def _plain_operands(words: list[str]) -> Iterator[str]:
    """Yield the words of a network command that are neither options nor known option values."""
    rest = iter(words)
    for word in rest:
        if word in OPTIONS_WITH_VALUE:
            next(rest, "")
        elif word == "-" or not word.startswith("-"):
            yield word


# Which calls of programs cannot do their work without the network.


REMOTE_PROGRAMS = split_names(
    """
    curl wget http https xh aria2c ssh scp sftp mosh rsync ftp lftp ping ping6 traceroute tracepath
    mtr dig nslookup host whois nc ncat netcat telnet nmap gh glab hub tea apt apt-get aptitude dnf
    yum zypper apk pacman brew port snap flatpak rustup docker podman nerdctl kubectl oc helm k9s
    terraform tofu pulumi ansible ansible-playbook aws gcloud gsutil az doctl heroku fly flyctl
    vercel netlify wrangler firebase supabase huggingface-cli hf ollama twine yt-dlp
    psql mysql redis-cli mongosh
    """
)
"""Programs that are there to talk to other machines, or to a service outside the sandbox."""
LOCAL_HOSTS = compile_lazily(
    r"(?:https?://)?(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|0\.0\.0\.0)(?::\d+)?(?:[/?#].*)?"
)
URL_SCHEME = compile_lazily(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
HTTP_CLIENTS = frozenset(("curl", "wget", "http", "https", "xh"))
NPM_NETWORK_COMMANDS = """
    install i add ci update upgrade up outdated view info show search publish unpublish login
    logout whoami audit access owner dist-tag ping deprecate token star create
    adduser profile team org hook install-test it install-ci-test cit dlx import
"""
NETWORK_SUBCOMMANDS: dict[str, frozenset[str]] = {
    "git": split_names("clone fetch pull push ls-remote submodule lfs svn send-email"),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), split_names(NPM_NETWORK_COMMANDS)),
    **dict.fromkeys(("pip", "pip3"), split_names("install download wheel index search")),
    "pipx": split_names("install upgrade upgrade-all inject run reinstall install-all"),
    "uv": split_names("sync add lock remove publish self"),
    "uv pip": split_names("install sync compile"),
    "uv tool": split_names("install upgrade run"),
    "uv python": split_names("install"),
    "poetry": split_names("install add update lock publish self search"),
    "pdm": split_names("install add update lock sync publish"),
    **dict.fromkeys(("conda", "mamba"), split_names("install create update upgrade search env")),
    "cargo": split_names("install add update fetch publish search login owner yank vendor"),
    "go": split_names("get install"),
    "go mod": split_names("download"),
    "gem": split_names("install update fetch push search outdated signin"),
    "bundle": split_names("install update add outdated"),
    "composer": split_names("install require update create-project search outdated"),
    "dotnet": split_names("restore add nuget tool workload"),
    "nuget": split_names("install restore push search"),
    "mix": split_names("deps.get deps.update hex.publish archive.install"),
    "vale": split_names("sync"),
    "mise": split_names("install use upgrade self-update"),
    "pre-commit": split_names("install-hooks autoupdate"),
}
"""Subcommands that fetch from a registry or talk to a server, by program."""
GIT_REMOTE_NETWORK_WORDS = split_names("update show prune set-head")


SAFE_FETCH_OPTIONS = {
    "curl": re.compile(
        r"-[fsSLgvIiN46]*[oOAmw]?|--(?:fail|silent|show-error|location|compressed|head|include"
        r"|verbose|output|max-time|retry|connect-timeout|user-agent|globoff)"
    ),
    "wget": re.compile(
        r"-[qcS46]*[OP]?|-nv|--(?:quiet|no-verbose|continue|timeout|tries)(?:=\w*)?"
        r"|--(?:output-document|directory-prefix)(?:=.*)?"
    ),
}
"""Options with which a program only fetches what its words name, to where they say."""


def fetches_from(step: CommandStep, hosts: tuple[str, ...]) -> bool:
    """Return whether a command only fetches from hosts that the settings let every command reach.

    It only decides whether to ask: the sandbox reaches no other hosts, whatever is overlooked.
    """
    known, words = SAFE_FETCH_OPTIONS.get(step.name), step.argv[1:]
    if known is None or any(word.kind != "plain" or protected_names(word.text) for word in words):
        return False
    if not all(known.fullmatch(word.text) for word in words if word.text.startswith("-")):
        return False
    urls = [word.text for word in words if URL_SCHEME.match(word.text)]
    rules = [f"domain:{host}" for host in hosts]
    return bool(urls) and all(any(rule_allows_url(rule, url) for rule in rules) for url in urls)


def needs_network(step: CommandStep) -> bool:
    """Return whether a command's purpose is to reach another machine."""
    words = _non_option_words(step)
    if step.name in HTTP_CLIENTS:
        return not _fetches_only_local(step)
    if step.name in REMOTE_PROGRAMS:
        return not _shows_version_or_help(step)
    if step.name == "git" and words[:1] == ["remote"]:
        return bool(GIT_REMOTE_NETWORK_WORDS.intersection(words[1:2]))
    if step.name == "yarn" and not words:
        return not _shows_version_or_help(step)
    return _is_network_subcommand(step.name, words) or _is_network_subcommand(
        " ".join((step.name, *words[:1])), words[1:]
    )


def _is_network_subcommand(told: str, words: list[str]) -> bool:
    return bool(NETWORK_SUBCOMMANDS.get(told, frozenset()).intersection(words[:1]))


def _non_option_words(step: CommandStep) -> list[str]:
    """Return a command's words that are neither options nor values of its first options."""
    found: list[str] = []
    words = iter(word.text for word in step.argv[1:])
    for word in words:
        if word in ("-C", "-c", "--prefix", "--cwd", "--directory", "--filter", "-F", "-w"):
            next(words, "")
        elif not word.startswith(("-", "+")):
            found.append(word)
    return found


def _shows_version_or_help(step: CommandStep) -> bool:
    """Return whether a command only asks a program for its version or help."""
    words = [word.text for word in step.argv[1:]]
    return bool(words) and words[-1] in ("--version", "-V", "version", "--help", "help")


def _fetches_only_local(step: CommandStep) -> bool:
    """Return whether a download connects only to this machine, such as a dev server."""
    words = [word.text for word in step.argv[1:]]
    hosts = [word for word in words if URL_SCHEME.match(word) or LOCAL_HOSTS.fullmatch(word)]
    known = all(word.kind != "open" or LOCAL_HOSTS.fullmatch(word.text) for word in step.argv[1:])
    return bool(hosts) and known and all(LOCAL_HOSTS.fullmatch(host) for host in hosts)


# Where a program reaches: a rule that names one place on the network means no second one.


URL_PROGRAMS = split_names("curl wget aria2c fetch lynx w3m links elinks")
"""Programs each of whose operands is a place on the network, even without a scheme."""
LOGIN_TARGET = compile_lazily(r"[\w.-]+@[\w.\[\]:-]+|[\w.-]+:(?!\d+$)[\w./~-]*")
"""A user at a host, or a path on one: `git@host:repo`, `host:file`."""
HOST_NAME = compile_lazily(r"(?:[\w-]+\.)+[a-z]{2,}(?::\d+)?(?:/\S*)?", re.IGNORECASE)
NETWORK_PROGRAMS = URL_PROGRAMS | split_names(
    """
    git pip pip3 uv npm pnpm yarn bun cargo go docker podman gh ssh scp sftp rsync ftp nc ncat
    telnet http https xh helm kubectl ping dig host nslookup psql mysql redis-cli
    """
)


def adds_destination(what: str, step: CommandStep) -> bool:
    """Return whether a network command reaches a host besides those that a wildcard rule names."""
    if not step.argv or step.name not in NETWORK_PROGRAMS:
        return False
    glued = "*" in what.removesuffix(":*") and not what.endswith((" *", ":*"))
    named = what.removesuffix(":*").replace("*", " ").split()[1:]
    if not any(_names_destination(word, step.name) for word in named):
        return False
    found = list(_iterate_destinations(step))
    known = [one for one in found if _is_named_destination(one, named, glued=glued)]
    return len(known) < len(found) or (glued and len(found) > len(named))


def _is_named_destination(place: str, named: list[str], *, glued: bool) -> bool:
    return place in named or (glued and place.startswith(named[-1]))


def _names_destination(word: str, program: str) -> bool:
    """Return whether a word of a network command's permission rule names a host or URL."""
    if word.startswith("-"):
        return bool(URL_SCHEME.match(word.partition("=")[2]))
    return program in URL_PROGRAMS or bool(
        URL_SCHEME.match(word) or LOGIN_TARGET.match(word) or HOST_NAME.fullmatch(word)
    )


def _iterate_destinations(step: CommandStep) -> Iterator[str]:
    """Yield the words of a network command that may name a host or URL."""
    if step.name in URL_PROGRAMS:
        yield from (word.text for word in _step_operands(step))
        options = [word.text for word in step.argv[1:] if word.text.startswith("-")]
        yield from (text for text in options if URL_SCHEME.match(text.partition("=")[2]))
        return
    for word in step.argv[1:]:
        value = word.text.partition("=")[2] if word.text.startswith("-") else word.text
        if (
            word.kind == "open"
            or URL_SCHEME.match(value)
            or LOGIN_TARGET.match(value)
            or HOST_NAME.fullmatch(value)
        ):
            yield word.text


def _step_operands(step: CommandStep) -> tuple[ShellWord, ...]:
    """Return the operands of a command; if its options are unknown, all words but options."""
    wanted = parse_spec_table(RULE_COVERED_PROGRAMS).get(step.name)
    try:
        if wanted is not None:
            return parse_options(wanted, step.argv[1:]).operands
    except UnsafeArguments:
        pass
    return tuple(word for word in step.argv[1:] if not word.text.startswith("-"))
