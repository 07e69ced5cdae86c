"""Which walls a call gets: pure, from what the session has and what the call needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from posixpath import dirname, isabs, join
from typing import Literal, overload

import msgspec

from travois.core.display_text import listed
from travois.permissions.access import Access
from travois.permissions.decide import Guard
from travois.permissions.paths import inside, stem
from travois.permissions.protected_paths import protected
from travois.permissions.rules import Use, fits
from travois.permissions.sandbox_profile import TMP, Backend, Cage, Profile
from travois.permissions.shell.plan import Step, git_subcommand

PINNED = (
    *(".git/hooks", ".git/config", ".git/config.worktree", ".git/info/attributes", ".husky"),
    *(".travois", ".claude", ".codex", ".cursor", ".gemini", ".opencode", ".mcp.json"),
    *(".vscode", ".idea", ".devcontainer", ".envrc", ".pre-commit-config.yaml", ".gitmodules"),
    *(".git/commondir", ".hg/hgrc", ".lefthook", "lefthook.yml", ".agents", ".windsurf", ".roo"),
    *(".continue", ".kiro", ".qwen", ".amazonq", ".aider.conf.yml", ".claude.json", "mcp.json"),
    *("opencode.json", "opencode.jsonc", ".zed"),
)
"""What decides what runs later outside the walls; kept as it is at the top of each folder."""
SECRET = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gh", ".config/gcloud"),
    *(".config/hub", ".netrc", ".git-credentials", ".npmrc", ".pypirc", ".pgpass", ".my.cnf"),
    *(".cargo/credentials.toml", ".cargo/credentials", ".terraform.d", ".password-store"),
    *(".local/share/keyrings", ".mozilla", ".config/google-chrome", ".config/chromium"),
    *(".bash_history", ".zsh_history", ".python_history", ".claude.json", ".codex/auth.json"),
    *(".claude/.credentials.json", ".gemini/oauth_creds.json", ".config/op", ".vault-token"),
    *(".config/sops", ".config/age", ".age", ".config/containers", ".config/git/credentials"),
    *(".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties"),
    *(".gem/credentials", ".local/share/gem/credentials", ".bundle/config", ".condarc"),
    *(".composer/auth.json", ".config/composer/auth.json", ".config/pip", ".pip", ".yarnrc.yml"),
    *(".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".config/rclone"),
    *(".psql_history", ".mysql_history", ".node_repl_history", ".lesshst", ".local/share/fish"),
    *(".config/doctl", ".config/heroku", ".fly", ".vercel", ".config/netlify", ".config/helm"),
    *(".local/share/opencode/auth.json", ".config/github-copilot", ".qwen/oauth_creds.json"),
)
"""What no command reads even where it was allowed to read all of a home, from the home on."""
VIRTUAL = ("/proc", "/dev", "/sys")
"""Made by the kernel for each program: never taken from the machine's own."""
NETWORKED = listed(
    """
    curl wget ssh scp sftp rsync ftp ping dig nslookup host nc ncat telnet gh glab hub npm npx
    pnpm pnpx yarn bun bunx pip pip3 pipx uv uvx poetry pdm conda mamba cargo rustup go gem bundle
    composer mvn gradle gradlew sbt dotnet nuget apt apt-get brew dnf yum apk pacman docker podman
    kubectl helm terraform aws gcloud az heroku fly vercel netlify huggingface-cli hf
    """
)
"""Programs for which letting them run means letting them reach the network."""
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/proc", "/sys"),
    *("/etc/os-release", "/etc/hosts", "/etc/hostname", "/etc/passwd", "/etc/group", "/etc/ssl"),
    *("/etc/debian_version", "/etc/alternatives", "/etc/resolv.conf", "/etc/services"),
)
"""Files of the machine that say nothing about a person, and that every command can read."""
SETTINGS_OF_SYSTEM = "/etc"
"""The same where a session knows which credentials are in it, and covers them."""
FETCHING = frozenset(("curl", "wget"))
"""Programs of those that reach only who their words name."""
LOCAL_URL = re.compile(
    r"(?:(?P<scheme>https?|wss?)://)?(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])"
    r"(?::(?P<port>\d{1,5}))?(?:[/?#].*)?",
    re.DOTALL,
)
SETTINGS = (".git/config", ".gitmodules")
"""What ordinary git commands write themselves, key by key."""
BEGINS = frozenset(("init", "clone"))
GIT = frozenset(("clone", "fetch", "pull", "push", "ls-remote", "remote", "submodule", "lfs"))


class LazyPaths(Sequence[str]):
    """Paths that take time to find, so that a start which runs no command does not look for them.

    Whoever reads them gets all of them: there is no state in which they seem to be none.
    """

    def __init__(self, find: Callable[[], tuple[str, ...]]) -> None:
        self._find = find
        self._found: tuple[str, ...] | None = None

    @property
    def found(self) -> tuple[str, ...]:
        """All of them."""
        if self._found is None:
            self._found = self._find()
        return self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self.found[index]


class Bounds(msgspec.Struct, frozen=True):
    """The sandbox that a session has."""

    temp: str
    """The session's own folder for temporary files: /tmp in the full sandbox."""
    backend: Backend = "full"
    temp_lasts: bool = True
    """Whether that folder outlives the process, so that a resumed session finds it again."""
    programs: tuple[str, ...] = ()
    """Folders below /tmp that hold programs in use: the private /tmp must not hide them."""
    hidden: tuple[str, ...] = ()
    """Secrets, our own state, and what rules deny: not read by any command."""
    covered: Sequence[str] = ()
    """The home, other people's files and volumes: not seen by a command that was not allowed to
    read there by name."""
    home: str = ""
    shown: tuple[str, ...] = ()
    tools: Sequence[str] = ()
    """What programs on PATH and tool chains need of covered places."""
    caches: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    git: tuple[str, ...] = ()
    """Where git keeps the history of the workspace, if that lies elsewhere."""
    network: Literal["", "off", "listed", "on"] = ""
    """What commands that may run may reach; empty means that it depends on the command."""
    hosts: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()
    """Hosts that no command may reach; so none gets the network without the list."""
    excluded: tuple[str, ...] = ()
    """Commands that the user lets run outside."""
    look_first: bool = True
    leaving: bool = True
    """Whether a person may be asked to let a command run outside."""
    free: bool = False
    """Whether commands are judged as in mode auto, since there are walls."""
    attended: bool = False
    """Whether a person is there to be asked."""
    offered: bool = False
    """Whether a question may offer to let commands run in it unasked in this project."""


def cage(bounds: Bounds, guard: Guard, use: Use, *, profile: Profile | None = None) -> Cage | None:
    """The walls for a call that may run; none for one that the user lets run outside.

    With a profile given, nobody has allowed the call: it gets nothing beyond the workspace. In plan
    mode an allowed call may reach more, and still changes nothing.
    """
    if profile is None and runs_outside(bounds, use):
        return None
    proven = all(plan.looks for plan in use.plans)
    chosen: Profile = profile or ("look" if proven or guard.mode == "plan" else "work")
    looking, allowed = chosen == "look", profile is None
    beyond = _beyond(bounds, guard, use) if allowed else ()
    network = _network(bounds, guard, use) if allowed and not proven else "off"
    if profile == "work":
        network = bounds.network or ("listed" if bounds.hosts else "off")
    sifted = network == "on" and bool(bounds.barred)
    pins = Pins() if looking else _pins(bounds, guard, use)
    if profile == "work":
        pins = Pins((*pins.kept, *pins.lifted), pins.git_written)
    own = (*guard.folders, *bounds.writable)
    tools = _outside((*bounds.programs, *bounds.tools), own)
    reads = _read_beyond(bounds, guard, use) if allowed else ()
    shown = (*bounds.shown, *guard.readable, *(bounds.writable if looking else ()), *reads)
    return Cage(
        chosen,
        folders=guard.folders,
        temp=bounds.temp,
        pinned=pins.kept,
        git_written=pins.git_written,
        lifted=pins.lifted,
        hidden=(*bounds.hidden, *_outside(bounds.covered, (*own, *shown, *beyond))),
        shown=(*shown, *tools),
        caches=_outside(bounds.caches, own),
        home=bounds.home,
        backend=bounds.backend,
        writable=() if looking else (*bounds.writable, *beyond),
        network="listed" if sifted else network,
        local_ports=_local_ports(use),
        hosts=("*",) if sifted else bounds.hosts,
        barred=bounds.barred,
    )


def _outside(paths: Sequence[str], folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if not any(inside(path, one) for one in folders))


def _read_beyond(bounds: Bounds, guard: Guard, use: Use) -> tuple[str, ...]:
    """What the call was allowed to read of covered places, by name.

    Mode bypass asks nobody, so that there it takes a setting to show them.
    """
    if guard.mode == "bypass":
        return ()
    read = (bound(access) for access in use.touched if _reads(access))
    named = (path for path in read if isabs(path) and not path.startswith(VIRTUAL))
    kept = (*guard.folders, *bounds.hidden, *TMP, bounds.temp)
    return _outside(tuple(dict.fromkeys(named)), kept)


def _reads(access: Access) -> bool:
    return access.kind == "read"


def harmless(guard: Guard, use: Use) -> bool:
    """Whether an unproven command may be tried where it can change and reach nothing.

    Not if it is known to need more: that try would fail, and tell nobody anything.
    """
    from travois.permissions.shell.families import changes_repository

    changes = (a for a in use.touched if a.kind != "read" and not _within(a, (guard.scratch,)))
    steps = (step for plan in use.plans for step in plan.steps)
    return contained(guard, use) and not any(changes) and not any(map(changes_repository, steps))


def contained(guard: Guard, use: Use, *, hosts: tuple[str, ...] = ()) -> bool:
    """Whether all that is known of some command lines happens in the workspace, offline.

    Hosts that the sandbox lets every command reach may be fetched from.
    """
    from travois.permissions.shell.families import fetches_from, needs_network

    steps = (step for plan in use.plans for step in plan.steps)
    reaching = (step for step in steps if needs_network(step))
    others = any(not fetches_from(step, hosts) for step in reaching)
    reaches = others or any(map(_asks_net, use.accesses))
    outside = reaches or bool(_configured(use))
    return bool(use.plans) and not outside and all(_is_free(guard, a) for a in use.touched)


def _is_free(guard: Guard, access: Access) -> bool:
    """Whether a path may be touched by a command that nobody was asked about."""
    free = (*guard.folders, guard.scratch, *(guard.readable if access.kind == "read" else ()))
    return _within(access, free)


def shown_reads(bounds: Bounds, use: Use) -> tuple[str, ...]:
    """Return what a command reads outside the workspace that the sandbox shows to every command."""
    reads = (bound(access) for access in use.touched if access.kind == "read")
    return tuple(path for path in reads if _is_shown(bounds, path))


def bound(access: Access) -> str:
    """Return a path that holds all that is touched: a pattern stays below its fixed part."""
    return stem(access.target) if access.scope == "many" else access.target


def _is_shown(bounds: Bounds, path: str) -> bool:
    """Whether every command sees a path; of folders that hold it, the innermost one decides."""
    shown = _depth(path, (*SYSTEM, *_listed_as_shown(bounds)))
    if shown < 0 and inside(path, SETTINGS_OF_SYSTEM) and bounds.covered:
        shown = len(SETTINGS_OF_SYSTEM)
    return shown >= 0 and shown >= _depth(path, (*bounds.hidden, *bounds.covered))


def is_covered(bounds: Bounds, guard: Guard, path: str) -> bool:
    """Return whether a path is hidden from every command that was not allowed to read it."""
    seen = (*guard.folders, *guard.readable, *bounds.writable, *_listed_as_shown(bounds))
    return _depth(path, (*bounds.hidden, *bounds.covered)) > _depth(path, seen)


def _listed_as_shown(bounds: Bounds) -> tuple[str, ...]:
    return (*bounds.shown, *bounds.programs, *bounds.tools, *bounds.caches)


@lru_cache(maxsize=256)
def _depth(path: str, folders: tuple[str, ...]) -> int:
    """Return how long the path of the innermost of these folders is that holds a path."""
    return max((len(folder) for folder in folders if inside(path, folder)), default=-1)


def _within(access: Access, folders: tuple[str, ...]) -> bool:
    return any(inside(access.target, folder) for folder in folders if folder)


def leaves(use: Use) -> bool:
    """Whether a call asks to run outside the walls."""
    return any(access.kind == "leave" for access in use.accesses)


def runs_outside(bounds: Bounds, use: Use) -> bool:
    """Whether a call that may run gets no sandbox, so that its /tmp is the machine's own."""
    return leaves(use) or _excluded(bounds, use)


def _excluded(bounds: Bounds, use: Use) -> bool:
    """Whether every step is one that the user lets run outside."""
    if not bounds.excluded or any(plan.unclear for plan in use.plans):
        return False
    steps = [step for plan in use.plans for step in plan.steps]
    return bool(steps) and all(_named(step, bounds.excluded) for step in steps)


def _named(step: Step, patterns: tuple[str, ...]) -> bool:
    return any(
        what == text or fits(what, text) or fits(f"{what}:*", text)
        for what in patterns
        for text in step.texts
    )


class Pins(msgspec.Struct, frozen=True):
    """What becomes of the protected paths of a workspace while a call runs."""

    kept: tuple[str, ...] = ()
    git_written: tuple[str, ...] = ()
    lifted: tuple[str, ...] = ()


def _pins(bounds: Bounds, guard: Guard, use: Use) -> Pins:
    """The paths that stay as they are, that git may write, and that the call was allowed to.

    One sandbox holds a whole line. So a path is lifted only for a line that consists of the write
    that was allowed and of steps that are known to do nothing else.
    """
    alone = _writes_alone(use)
    free = [access.target for access in use.touched if access.kind == "write" and alone]
    by_git, by_name = _written_by_git(use), _configured(use) if alone else frozenset[str]()
    kept, git_written = list(bounds.pinned), list[str]()
    lifted = [target for target in free if protected(target)]
    for name, path in _protected(bounds, guard):
        if name in by_name or any(_meets(path, target) for target in free):
            lifted.append(path)
        elif name in by_git:
            git_written.append(path)
        else:
            kept.append(path)
    return Pins(tuple(kept), tuple(git_written), tuple(dict.fromkeys(lifted)))


def held_back(bounds: Bounds, guard: Guard, use: Use) -> str:
    """The protected path that a line writes and that stays as it is, for what else the line runs.

    Empty if there is none, or if the call runs outside the sandbox.
    """
    if not use.plans or _writes_alone(use) or runs_outside(bounds, use):
        return ""
    paths = [path for _, path in _protected(bounds, guard)]
    written = (access.target for access in use.touched if access.kind == "write")
    return next((one for one in written if any(_meets(path, one) for path in paths)), "")


def _writes_alone(use: Use) -> bool:
    """Whether the line runs nothing that could do more than it shows."""
    steps = (step for plan in use.plans for step in plan.steps)
    return not any(plan.unclear for plan in use.plans) and all(map(is_plain, steps))


def is_plain(step: Step) -> bool:
    """Return whether a step does nothing but what its words show."""
    config = step.name == "git" and git_subcommand(step) == "config"
    return step.needs == "nothing" or config or (step.name == "chmod" and step.known)


def _protected(bounds: Bounds, guard: Guard) -> Iterator[tuple[str, str]]:
    """The protected names, each with the path that it has in a folder of the workspace."""
    for folder in guard.folders:
        yield from ((name, join(folder, name)) for name in PINNED)
    for folder in bounds.git:
        own = (name for name in PINNED if name.startswith(".git/"))
        yield from ((name, join(folder, name.removeprefix(".git/"))) for name in own)


def _meets(path: str, other: str) -> bool:
    return inside(path, other) or inside(other, path)


def _git_steps(use: Use) -> Iterator[Step]:
    """The calls of git that do more than look."""
    steps = (step for plan in use.plans for step in plan.steps)
    return (step for step in steps if step.name == "git" and step.needs != "nothing")


def _written_by_git(use: Use) -> frozenset[str]:
    """What git itself writes: its settings, its own hooks, or all of a repository that it makes.

    Where it clones into an empty folder, no name of ours may stand in there.
    """
    told = {git_subcommand(step) for step in _git_steps(use)}
    if "clone" in told:
        return frozenset(PINNED)
    own = (name for name in PINNED if name.startswith(".git/")) if told & BEGINS else ()
    hooks = (".git/hooks",) if "lfs" in told else ()
    return frozenset((*SETTINGS, *own, *hooks)) if told else frozenset()


def _configured(use: Use) -> frozenset[str]:
    """The settings that the call is there to change, by name."""
    steps = [step for step in _git_steps(use) if git_subcommand(step) == "config"]
    if not steps:
        return frozenset()
    from travois.permissions.git_config import changes_config

    steps = [step for step in steps if changes_config(step)]
    modules = any(".gitmodules" in word.text for step in steps for word in step.argv)
    own = (".git/config", ".git/config.worktree") if steps else ()
    return frozenset((*own, ".gitmodules") if modules else own)


def _beyond(bounds: Bounds, guard: Guard, use: Use) -> tuple[str, ...]:
    """What the call was allowed to write outside the workspace."""
    written = [access.target for access in use.touched if access.kind == "write"]
    within = (*guard.folders, bounds.temp)
    beyond = [path for path in written if not any(inside(path, f) for f in within)]
    around = dict.fromkeys(_around(path, use.home) for path in beyond)
    return tuple(p for p in around if not any(p != other and inside(p, other) for other in around))


def _around(path: str, home: str) -> str:
    """What must be writable for a path to be made, changed or removed; never all of a home."""
    above = dirname(path)
    return path if above in ("/", home) else above


def _network(bounds: Bounds, guard: Guard, use: Use) -> Literal["off", "listed", "on"]:
    if bounds.network:
        return bounds.network
    if guard.mode == "bypass" or _networked(use):
        return "on"
    return "listed" if bounds.hosts else "off"


def _networked(use: Use) -> bool:
    steps = (step for plan in use.plans for step in plan.steps)
    return any(map(_asks_net, use.accesses)) or any(map(_reaches, steps))


def _asks_net(access: Access) -> bool:
    return access.kind == "net"


def _reaches(step: Step) -> bool:
    return git_subcommand(step) in GIT if step.name == "git" else step.name in NETWORKED


def _local_ports(use: Use) -> tuple[int, ...]:
    """The ports of this machine that some command lines ask for, if they ask for nothing else.

    This only chooses between networks: a host that is overlooked here cannot be reached then.
    """
    steps = [step for plan in use.plans for step in plan.steps if _reaches(step)]
    if any(map(_asks_net, use.accesses)) or not all(step.name in FETCHING for step in steps):
        return ()
    asked = [_find_local_ports(step) for step in steps]
    return tuple(dict.fromkeys(port for ports in asked for port in ports)) if all(asked) else ()


def _find_local_ports(step: Step) -> list[int]:
    """The ports of this machine that a program asks for; none if it asks others, too."""
    words = [word.text for word in step.argv[1:]]
    local = [found for word in words if (found := LOCAL_URL.fullmatch(word))]
    others = any("://" in word and not LOCAL_URL.fullmatch(word) for word in words)
    default = {"https": 443}
    return [] if others else [int(one["port"] or default.get(one["scheme"], 80)) for one in local]
