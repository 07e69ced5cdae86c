"""Choosing the sandbox profile of a call from the session's policy and the call's needs; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from posixpath import dirname, isabs, join
from typing import Literal, overload

import msgspec

from travois.core.display_text import split_names
from travois.permissions.access import Access
from travois.permissions.decide import Permissions
from travois.permissions.paths import fixed_folder_of, is_inside
from travois.permissions.protected_paths import protected_names
from travois.permissions.rules import ToolUse, pattern_fits_text
from travois.permissions.sandbox_profile import (
    TMP_FOLDERS,
    ProfileName,
    SandboxBackend,
    SandboxProfile,
)
from travois.permissions.shell.plan import CommandStep, git_subcommand

PINNED = (
    *(".git/hooks", ".git/config", ".git/config.worktree", ".git/info/attributes", ".husky"),
    *(".travois", ".claude", ".codex", ".cursor", ".gemini", ".opencode", ".mcp.json"),
    *(".vscode", ".idea", ".devcontainer", ".envrc", ".pre-commit-config.yaml", ".gitmodules"),
    *(".git/commondir", ".hg/hgrc", ".lefthook", "lefthook.yml", ".agents", ".windsurf", ".roo"),
    *(".continue", ".kiro", ".qwen", ".amazonq", ".aider.conf.yml", ".claude.json", "mcp.json"),
    *("opencode.json", "opencode.jsonc", ".zed"),
)
"""Files that decide what runs later outside the sandbox; read-only at the top of each folder."""
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
"""Paths in the home that no command reads, even one allowed to read all of the home."""
VIRTUAL = ("/proc", "/dev", "/sys")
"""File systems that the kernel creates for each program: never taken from the machine."""
NETWORKED = split_names(
    """
    curl wget ssh scp sftp rsync ftp ping dig nslookup host nc ncat telnet gh glab hub npm npx
    pnpm pnpx yarn bun bunx pip pip3 pipx uv uvx poetry pdm conda mamba cargo rustup go gem bundle
    composer mvn gradle gradlew sbt dotnet nuget apt apt-get brew dnf yum apk pacman docker podman
    kubectl helm terraform aws gcloud az heroku fly vercel netlify huggingface-cli hf
    """
)
"""Programs that are given the network whenever they are allowed to run."""
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/proc", "/sys"),
    *("/etc/os-release", "/etc/hosts", "/etc/hostname", "/etc/passwd", "/etc/group", "/etc/ssl"),
    *("/etc/debian_version", "/etc/alternatives", "/etc/resolv.conf", "/etc/services"),
)
"""System files that say nothing about a person and that every command can read."""
SETTINGS_OF_SYSTEM = "/etc"
"""Readable system settings, where the session covers the credentials among them."""
FETCHING = frozenset(("curl", "wget"))
"""Network programs that reach only the addresses on their command line."""
LOCAL_URL = re.compile(
    r"(?:(?P<scheme>https?|wss?)://)?(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])"
    r"(?::(?P<port>\d{1,5}))?(?:[/?#].*)?",
    re.DOTALL,
)
SETTINGS = (".git/config", ".gitmodules")
"""Files that ordinary git commands write themselves, key by key."""
BEGINS = frozenset(("init", "clone"))
GIT = frozenset(("clone", "fetch", "pull", "push", "ls-remote", "remote", "submodule", "lfs"))


class LazyPaths(Sequence[str]):
    """Paths that take time to find, looked up when they are first read.

    A start that runs no command does not look for them. There is no state in which they appear
    empty.
    """

    def __init__(self, find: Callable[[], tuple[str, ...]]) -> None:
        self._find = find
        self._found: tuple[str, ...] | None = None

    @property
    def found(self) -> tuple[str, ...]:
        """All of the paths."""
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
    """The sandbox settings of a session."""

    temp: str
    """The session's own folder for temporary files: /tmp in the full sandbox."""
    backend: SandboxBackend = "full"
    temp_lasts: bool = True
    """Whether that folder outlives the process, so that a resumed session finds it again."""
    programs: tuple[str, ...] = ()
    """Folders below /tmp that hold programs in use: the private /tmp must not hide them."""
    hidden: tuple[str, ...] = ()
    """Secrets, our own state, and what rules deny: not readable by any command."""
    covered: Sequence[str] = ()
    """The home, other people's files and volumes: hidden from a command that was not allowed to
    read there by name."""
    home: str = ""
    shown: tuple[str, ...] = ()
    tools: Sequence[str] = ()
    """Paths in covered places that programs on PATH and tool chains need."""
    caches: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    git: tuple[str, ...] = ()
    """Folders of git data for the workspace that lie elsewhere."""
    network: Literal["", "off", "listed", "on"] = ""
    """The network of commands that may run; empty if it depends on the command."""
    hosts: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()
    """Hosts that no command may reach; so no command gets the network without the list."""
    excluded: tuple[str, ...] = ()
    """Commands that the user lets run outside the sandbox."""
    look_first: bool = True
    leaving: bool = True
    """Whether a person may be asked to let a command run outside."""
    free: bool = False
    """Whether commands are judged as in mode auto, since a sandbox protects."""
    attended: bool = False
    """Whether a person is there to answer questions."""
    offered: bool = False
    """Whether a question may offer to run sandboxed commands in this project without asking."""


def cage(
    bounds: Bounds, guard: Permissions, use: ToolUse, *, profile: ProfileName | None = None
) -> SandboxProfile | None:
    """Return the sandbox profile of a call; None for a call that the user lets run outside.

    With a profile given, nobody has allowed the call: it gets nothing beyond the workspace. In plan
    mode an allowed call may reach more, and still changes nothing.
    """
    if profile is None and runs_outside(bounds, use):
        return None
    proven = all(plan.is_read_only for plan in use.plans)
    chosen: ProfileName = profile or ("look" if proven or guard.mode == "plan" else "work")
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
    return SandboxProfile(
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
    return tuple(path for path in paths if not any(is_inside(path, one) for one in folders))


def _read_beyond(bounds: Bounds, guard: Permissions, use: ToolUse) -> tuple[str, ...]:
    """Return the covered places that the call was allowed to read, by name.

    Mode bypass asks nobody, so there only a setting shows them.
    """
    if guard.mode == "bypass":
        return ()
    read = (bound(access) for access in use.touched if _reads(access))
    named = (path for path in read if isabs(path) and not path.startswith(VIRTUAL))
    kept = (*guard.folders, *bounds.hidden, *TMP_FOLDERS, bounds.temp)
    return _outside(tuple(dict.fromkeys(named)), kept)


def _reads(access: Access) -> bool:
    return access.kind == "read"


def harmless(guard: Permissions, use: ToolUse) -> bool:
    """Return whether an unproven command may be tried where it can change and reach nothing.

    A command known to need more may not: its try would fail and prove nothing.
    """
    from travois.permissions.shell.families import changes_repository

    changes = (a for a in use.touched if a.kind != "read" and not _within(a, (guard.scratch,)))
    steps = (step for plan in use.plans for step in plan.steps)
    return contained(guard, use) and not any(changes) and not any(map(changes_repository, steps))


def contained(guard: Permissions, use: ToolUse, *, hosts: tuple[str, ...] = ()) -> bool:
    """Return whether command lines are known to stay in the workspace and offline.

    Fetching from hosts that the sandbox lets every command reach counts as offline.
    """
    from travois.permissions.shell.families import fetches_from, needs_network

    steps = (step for plan in use.plans for step in plan.steps)
    reaching = (step for step in steps if needs_network(step))
    others = any(not fetches_from(step, hosts) for step in reaching)
    reaches = others or any(map(_asks_net, use.accesses))
    outside = reaches or bool(_configured(use))
    return bool(use.plans) and not outside and all(_is_free(guard, a) for a in use.touched)


def _is_free(guard: Permissions, access: Access) -> bool:
    """Return whether a command that ran without approval may touch a path."""
    free = (*guard.folders, guard.scratch, *(guard.readable if access.kind == "read" else ()))
    return _within(access, free)


def shown_reads(bounds: Bounds, use: ToolUse) -> tuple[str, ...]:
    """Return the paths outside the workspace that a command reads and every command can see."""
    reads = (bound(access) for access in use.touched if access.kind == "read")
    return tuple(path for path in reads if _is_shown(bounds, path))


def bound(access: Access) -> str:
    """Return a path that contains everything touched: a pattern stays below its fixed part."""
    return fixed_folder_of(access.target) if access.scope == "many" else access.target


def _is_shown(bounds: Bounds, path: str) -> bool:
    """Return whether every command sees a path; the innermost folder that contains it decides."""
    shown = _depth(path, (*SYSTEM, *_listed_as_shown(bounds)))
    if shown < 0 and is_inside(path, SETTINGS_OF_SYSTEM) and bounds.covered:
        shown = len(SETTINGS_OF_SYSTEM)
    return shown >= 0 and shown >= _depth(path, (*bounds.hidden, *bounds.covered))


def is_covered(bounds: Bounds, guard: Permissions, path: str) -> bool:
    """Return whether a path is hidden from every command that was not allowed to read it."""
    seen = (*guard.folders, *guard.readable, *bounds.writable, *_listed_as_shown(bounds))
    return _depth(path, (*bounds.hidden, *bounds.covered)) > _depth(path, seen)


def _listed_as_shown(bounds: Bounds) -> tuple[str, ...]:
    return (*bounds.shown, *bounds.programs, *bounds.tools, *bounds.caches)


@lru_cache(maxsize=256)
def _depth(path: str, folders: tuple[str, ...]) -> int:
    """Return the length of the innermost of these folders that contains a path; -1 if none does."""
    return max((len(folder) for folder in folders if is_inside(path, folder)), default=-1)


def _within(access: Access, folders: tuple[str, ...]) -> bool:
    return any(is_inside(access.target, folder) for folder in folders if folder)


def leaves(use: ToolUse) -> bool:
    """Return whether a call asks to run outside the sandbox."""
    return any(access.kind == "leave" for access in use.accesses)


def runs_outside(bounds: Bounds, use: ToolUse) -> bool:
    """Return whether a call that may run gets no sandbox, so that its /tmp is the machine's own."""
    return leaves(use) or _excluded(bounds, use)


def _excluded(bounds: Bounds, use: ToolUse) -> bool:
    """Return whether every step is one that the user lets run outside."""
    if not bounds.excluded or any(plan.unclear for plan in use.plans):
        return False
    steps = [step for plan in use.plans for step in plan.steps]
    return bool(steps) and all(_named(step, bounds.excluded) for step in steps)


def _named(step: CommandStep, patterns: tuple[str, ...]) -> bool:
    return any(
        what == text or pattern_fits_text(what, text) or pattern_fits_text(f"{what}:*", text)
        for what in patterns
        for text in step.texts
    )


class Pins(msgspec.Struct, frozen=True):
    """The protected paths of a workspace, by what a call may do with them."""

    kept: tuple[str, ...] = ()
    git_written: tuple[str, ...] = ()
    lifted: tuple[str, ...] = ()


def _pins(bounds: Bounds, guard: Permissions, use: ToolUse) -> Pins:
    """Split the protected paths into those that stay, those that git may write, and lifted ones.

    One sandbox contains the whole line. So a path is lifted only for a line that consists of the
    allowed write and of steps known to do nothing else.
    """
    alone = _writes_alone(use)
    free = [access.target for access in use.touched if access.kind == "write" and alone]
    by_git, by_name = _written_by_git(use), _configured(use) if alone else frozenset[str]()
    kept, git_written = list(bounds.pinned), list[str]()
    lifted = [target for target in free if protected_names(target)]
    for name, path in _protected(bounds, guard):
        if name in by_name or any(_meets(path, target) for target in free):
            lifted.append(path)
        elif name in by_git:
            git_written.append(path)
        else:
            kept.append(path)
    return Pins(tuple(kept), tuple(git_written), tuple(dict.fromkeys(lifted)))


def held_back(bounds: Bounds, guard: Permissions, use: ToolUse) -> str:
    """Return a protected path that a line writes but may not, because of its other steps."""
    if not use.plans or _writes_alone(use) or runs_outside(bounds, use):
        return ""
    paths = [path for _, path in _protected(bounds, guard)]
    written = (access.target for access in use.touched if access.kind == "write")
    return next((one for one in written if any(_meets(path, one) for path in paths)), "")


def _writes_alone(use: ToolUse) -> bool:
    """Return whether no step of the line could do more than its words show."""
    steps = (step for plan in use.plans for step in plan.steps)
    return not any(plan.unclear for plan in use.plans) and all(map(is_plain, steps))


def is_plain(step: CommandStep) -> bool:
    """Return whether a step does nothing but what its words show."""
    config = step.name == "git" and git_subcommand(step) == "config"
    return step.needs == "nothing" or config or (step.name == "chmod" and step.known)


def _protected(bounds: Bounds, guard: Permissions) -> Iterator[tuple[str, str]]:
    """Yield the protected names, each with its path in a folder of the workspace."""
    for folder in guard.folders:
        yield from ((name, join(folder, name)) for name in PINNED)
    for folder in bounds.git:
        own = (name for name in PINNED if name.startswith(".git/"))
        yield from ((name, join(folder, name.removeprefix(".git/"))) for name in own)


def _meets(path: str, other: str) -> bool:
    return is_inside(path, other) or is_inside(other, path)


def _git_steps(use: ToolUse) -> Iterator[CommandStep]:
    """Return the git steps that do more than read."""
    steps = (step for plan in use.plans for step in plan.steps)
    return (step for step in steps if step.name == "git" and step.needs != "nothing")


def _written_by_git(use: ToolUse) -> frozenset[str]:
    """Return the protected names that git itself writes: settings, its hooks, or a new repository.

    git clones only into an empty folder, so none of our mount points may be in there.
    """
    told = {git_subcommand(step) for step in _git_steps(use)}
    if "clone" in told:
        return frozenset(PINNED)
    own = (name for name in PINNED if name.startswith(".git/")) if told & BEGINS else ()
    hooks = (".git/hooks",) if "lfs" in told else ()
    return frozenset((*SETTINGS, *own, *hooks)) if told else frozenset()


def _configured(use: ToolUse) -> frozenset[str]:
    """Return the git settings files that the call is there to change."""
    steps = [step for step in _git_steps(use) if git_subcommand(step) == "config"]
    if not steps:
        return frozenset()
    from travois.permissions.git_config import changes_git_config

    steps = [step for step in steps if changes_git_config(step)]
    modules = any(".gitmodules" in word.text for step in steps for word in step.argv)
    own = (".git/config", ".git/config.worktree") if steps else ()
    return frozenset((*own, ".gitmodules") if modules else own)


def _beyond(bounds: Bounds, guard: Permissions, use: ToolUse) -> tuple[str, ...]:
    """Return the folders outside the workspace that the call was allowed to write."""
    written = [access.target for access in use.touched if access.kind == "write"]
    within = (*guard.folders, bounds.temp)
    beyond = [path for path in written if not any(is_inside(path, f) for f in within)]
    around = dict.fromkeys(_around(path, use.home) for path in beyond)
    return tuple(
        p for p in around if not any(p != other and is_inside(p, other) for other in around)
    )


def _around(path: str, home: str) -> str:
    """Return the folder that must be writable to change a path; never a whole home."""
    above = dirname(path)
    return path if above in ("/", home) else above


def _network(bounds: Bounds, guard: Permissions, use: ToolUse) -> Literal["off", "listed", "on"]:
    """Choose the network access of an allowed call."""
    if bounds.network:
        return bounds.network
    if guard.mode == "bypass" or _networked(use):
        return "on"
    return "listed" if bounds.hosts else "off"


def _networked(use: ToolUse) -> bool:
    steps = (step for plan in use.plans for step in plan.steps)
    return any(map(_asks_net, use.accesses)) or any(map(_reaches, steps))


def _asks_net(access: Access) -> bool:
    return access.kind == "net"


def _reaches(step: CommandStep) -> bool:
    return git_subcommand(step) in GIT if step.name == "git" else step.name in NETWORKED


def _local_ports(use: ToolUse) -> tuple[int, ...]:
    """Return the local ports that command lines ask for, if they ask for nothing else.

    This only chooses between networks: a host that is overlooked here is then unreachable.
    """
    steps = [step for plan in use.plans for step in plan.steps if _reaches(step)]
    if any(map(_asks_net, use.accesses)) or not all(step.name in FETCHING for step in steps):
        return ()
    asked = [_find_local_ports(step) for step in steps]
    return tuple(dict.fromkeys(port for ports in asked for port in ports)) if all(asked) else ()


def _find_local_ports(step: CommandStep) -> list[int]:
    """Return the local ports that a program asks for; none if it asks other hosts, too."""
    words = [word.text for word in step.argv[1:]]
    local = [found for word in words if (found := LOCAL_URL.fullmatch(word))]
    others = any("://" in word and not LOCAL_URL.fullmatch(word) for word in words)
    default = {"https": 443}
    return [] if others else [int(one["port"] or default.get(one["scheme"], 80)) for one in local]
