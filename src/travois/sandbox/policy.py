"""Sandbox policy: choosing the profile of a call, hook or MCP server from the settings; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from posixpath import dirname, isabs, join
from typing import Literal, overload

import msgspec
from msgspec.structs import replace

from travois.core.display_text import split_names
from travois.core.patterns import compile_lazily
from travois.lazy_imports import lazy_imports
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

with lazy_imports():
    from travois.permissions import git_config
    from travois.permissions.shell import families

PINNED_PATHS = (
    *(".git/hooks", ".git/config", ".git/config.worktree", ".git/info/attributes", ".husky"),
    *(".travois", ".claude", ".codex", ".cursor", ".gemini", ".opencode", ".mcp.json"),
    *(".vscode", ".idea", ".devcontainer", ".envrc", ".pre-commit-config.yaml", ".gitmodules"),
    *(".git/commondir", ".hg/hgrc", ".lefthook", "lefthook.yml", ".agents", ".windsurf", ".roo"),
    *(".continue", ".kiro", ".qwen", ".amazonq", ".aider.conf.yml", ".claude.json", "mcp.json"),
    *("opencode.json", "opencode.jsonc", ".zed"),
)
"""Files that decide what runs later outside the sandbox; read-only at the top of each folder."""
SECRET_HOME_PATHS = (
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
VIRTUAL_FILE_SYSTEMS = ("/proc", "/dev", "/sys")
"""File systems that the kernel creates for each program: never taken from the machine."""
NETWORK_PROGRAMS = split_names(
    """
    curl wget ssh scp sftp rsync ftp ping dig nslookup host nc ncat telnet gh glab hub npm npx
    pnpm pnpx yarn bun bunx pip pip3 pipx uv uvx poetry pdm conda mamba cargo rustup go gem bundle
    composer mvn gradle gradlew sbt dotnet nuget apt apt-get brew dnf yum apk pacman docker podman
    kubectl helm terraform aws gcloud az heroku fly vercel netlify huggingface-cli hf
    """
)
"""Programs that are given the network whenever they are allowed to run."""
READABLE_SYSTEM_PATHS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/proc", "/sys"),
    *("/etc/os-release", "/etc/hosts", "/etc/hostname", "/etc/passwd", "/etc/group", "/etc/ssl"),
    *("/etc/debian_version", "/etc/alternatives", "/etc/resolv.conf", "/etc/services"),
)
"""System files that say nothing about a person and that every command can read."""
SYSTEM_SETTINGS_FOLDER = "/etc"
"""Readable system settings, where the session covers the credentials among them."""
FETCH_PROGRAMS = frozenset(("curl", "wget"))
"""Network programs that reach only the addresses on their command line."""
LOCAL_URL = compile_lazily(
    r"(?:(?P<scheme>https?|wss?)://)?(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])"
    r"(?::(?P<port>\d{1,5}))?(?:[/?#].*)?",
    re.DOTALL,
)
GIT_SETTINGS_FILES = (".git/config", ".gitmodules")
"""Files that ordinary git commands write themselves, key by key."""
REPOSITORY_CREATORS = frozenset(("init", "clone"))
GIT_NETWORK_COMMANDS = frozenset(
    ("clone", "fetch", "pull", "push", "ls-remote", "remote", "submodule", "lfs")
)


class LazyPaths(Sequence[str]):
    """Paths that take time to find, looked up when they are first read.

    A start that runs no command does not look for them. There is no state in which they appear
    empty.
    """

    def __init__(self, find: Callable[[], tuple[str, ...]]) -> None:
        self._find = find
        self._found: tuple[str, ...] | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """All of the paths."""
        if self._found is None:
            self._found = self._find()
        return self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self.paths[index]


class SandboxPolicy(msgspec.Struct, frozen=True):
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
    own: tuple[str, ...] = ()
    """Those of them that are our own folders."""
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


def build_sandbox_profile(
    bounds: SandboxPolicy,
    permissions: Permissions,
    use: ToolUse,
    *,
    profile: ProfileName | None = None,
) -> SandboxProfile | None:
    """Build the sandbox profile of a tool call; None for one that the user lets run outside.

    Without an approval, `profile` is given: the call gets nothing beyond the workspace. In plan
    mode an allowed call may reach more, and still changes nothing.
    """
    if profile is None and runs_outside_sandbox(bounds, use):
        return None
    proven = all(plan.is_read_only for plan in use.plans)
    chosen: ProfileName = profile or ("look" if proven or permissions.mode == "plan" else "work")
    looking, allowed = chosen == "look", profile is None
    beyond = _list_allowed_writes(bounds, permissions, use) if allowed else ()
    network = _choose_network(bounds, permissions, use) if allowed and not proven else "off"
    if profile == "work":
        network = bounds.network or ("listed" if bounds.hosts else "off")
    sifted = network == "on" and bool(bounds.barred)
    pins = PinPlan() if looking else _plan_pins(bounds, permissions, use)
    if profile == "work":
        pins = PinPlan((*pins.kept, *pins.lifted), pins.git_written)
    own = (*permissions.folders, *bounds.writable)
    tools = _paths_outside((*bounds.programs, *bounds.tools), own)
    reads = _list_allowed_reads(bounds, permissions, use) if allowed else ()
    shown = (*bounds.shown, *permissions.readable, *(bounds.writable if looking else ()), *reads)
    return SandboxProfile(
        chosen,
        folders=permissions.folders,
        temp=bounds.temp,
        pinned=pins.kept,
        git_written=pins.git_written,
        lifted=pins.lifted,
        own=bounds.own,
        hidden=(*bounds.hidden, *_paths_outside(bounds.covered, (*own, *shown, *beyond))),
        shown=(*shown, *tools),
        caches=_paths_outside(bounds.caches, own),
        home=bounds.home,
        backend=bounds.backend,
        writable=() if looking else (*bounds.writable, *beyond),
        network="listed" if sifted else network,
        local_ports=_choose_local_ports(use),
        hosts=("*",) if sifted else bounds.hosts,
        barred=bounds.barred,
    )


def _paths_outside(paths: Sequence[str], folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if not any(is_inside(path, one) for one in folders))


def _list_allowed_reads(
    bounds: SandboxPolicy, permissions: Permissions, use: ToolUse
) -> tuple[str, ...]:
    """Return the hidden places that permissions let a call read, for its sandbox profile.

    Mode bypass asks nobody, so there only a setting shows them.
    """
    if permissions.mode == "bypass":
        return ()
    read = (get_bounding_path(access) for access in use.touched if access.kind == "read")
    named = (path for path in read if isabs(path) and not path.startswith(VIRTUAL_FILE_SYSTEMS))
    kept = (*permissions.folders, *bounds.hidden, *TMP_FOLDERS, bounds.temp)
    return _paths_outside(tuple(dict.fromkeys(named)), kept)


def can_try_read_only(permissions: Permissions, use: ToolUse) -> bool:
    """Return whether an unproven command may be tried in a read-only, offline sandbox.

    A command known to need more may not: its try would fail and prove nothing.
    """
    changes = (
        a
        for a in use.touched
        if a.kind != "read" and not _targets_inside(a, (permissions.scratch,))
    )
    steps = (step for plan in use.plans for step in plan.steps)
    return (
        is_contained(permissions, use)
        and not any(changes)
        and not any(map(families.changes_repository, steps))
    )


def is_contained(permissions: Permissions, use: ToolUse, *, hosts: tuple[str, ...] = ()) -> bool:
    """Return whether a call's command lines are known to stay in the workspace and offline.

    Fetching from hosts that the sandbox lets every command reach counts as offline.
    """
    steps = (step for plan in use.plans for step in plan.steps)
    reaching = (step for step in steps if families.needs_network(step))
    others = any(not families.fetches_from(step, hosts) for step in reaching)
    reaches = others or any(map(_asks_for_network, use.accesses))
    outside = reaches or bool(_find_configured_files(use))
    return (
        bool(use.plans)
        and not outside
        and all(_is_open_to_unasked(permissions, a) for a in use.touched)
    )


def _is_open_to_unasked(permissions: Permissions, access: Access) -> bool:
    """Return whether a command that ran without approval may touch a path."""
    free = (
        *permissions.folders,
        permissions.scratch,
        *(permissions.readable if access.kind == "read" else ()),
    )
    return _targets_inside(access, free)


def find_shown_reads(bounds: SandboxPolicy, use: ToolUse) -> tuple[str, ...]:
    """Return the paths outside the workspace that a command reads and every sandbox shows."""
    reads = (get_bounding_path(access) for access in use.touched if access.kind == "read")
    return tuple(path for path in reads if _is_shown_path(bounds, path))


def get_bounding_path(access: Access) -> str:
    """Return a path that contains everything an access touches; a glob counts as its fixed part."""
    return fixed_folder_of(access.target) if access.scope == "many" else access.target


def _is_shown_path(bounds: SandboxPolicy, path: str) -> bool:
    """Return whether the sandbox shows a path to every command; the innermost folder decides."""
    shown = _innermost_depth(path, (*READABLE_SYSTEM_PATHS, *_list_shown_paths(bounds)))
    if shown < 0 and is_inside(path, SYSTEM_SETTINGS_FOLDER) and bounds.covered:
        shown = len(SYSTEM_SETTINGS_FOLDER)
    return shown >= 0 and shown >= _innermost_depth(path, (*bounds.hidden, *bounds.covered))


def is_covered_path(bounds: SandboxPolicy, permissions: Permissions, path: str) -> bool:
    """Return whether the sandbox hides a path from commands without permission to read it."""
    seen = (
        *permissions.folders,
        *permissions.readable,
        *bounds.writable,
        *_list_shown_paths(bounds),
    )
    return _innermost_depth(path, (*bounds.hidden, *bounds.covered)) > _innermost_depth(path, seen)


def _list_shown_paths(bounds: SandboxPolicy) -> tuple[str, ...]:
    return (*bounds.shown, *bounds.programs, *bounds.tools, *bounds.caches)


@lru_cache(maxsize=256)
def _innermost_depth(path: str, folders: tuple[str, ...]) -> int:
    """Return the length of the innermost sandbox folder that contains a path; -1 if none does."""
    return max((len(folder) for folder in folders if is_inside(path, folder)), default=-1)


def _targets_inside(access: Access, folders: tuple[str, ...]) -> bool:
    return any(is_inside(access.target, folder) for folder in folders if folder)


def asks_to_leave_sandbox(use: ToolUse) -> bool:
    """Return whether a tool call asks to run outside the sandbox."""
    return any(access.kind == "leave" for access in use.accesses)


def runs_outside_sandbox(bounds: SandboxPolicy, use: ToolUse) -> bool:
    """Return whether an allowed call runs without a sandbox and so sees the machine's /tmp."""
    return asks_to_leave_sandbox(use) or _is_excluded(bounds, use)


def _is_excluded(bounds: SandboxPolicy, use: ToolUse) -> bool:
    """Return whether the user's settings let every step run outside the sandbox."""
    if not bounds.excluded or any(plan.unclear for plan in use.plans):
        return False
    steps = [step for plan in use.plans for step in plan.steps]
    return bool(steps) and all(_matches_excluded(step, bounds.excluded) for step in steps)


def _matches_excluded(step: CommandStep, patterns: tuple[str, ...]) -> bool:
    """Return whether a step matches a pattern of commands to run outside the sandbox."""
    return any(
        what == text or pattern_fits_text(what, text) or pattern_fits_text(f"{what}:*", text)
        for what in patterns
        for text in step.texts
    )


class PinPlan(msgspec.Struct, frozen=True):
    """The protected paths of a workspace, by what a call may do with them."""

    kept: tuple[str, ...] = ()
    git_written: tuple[str, ...] = ()
    lifted: tuple[str, ...] = ()


def _plan_pins(bounds: SandboxPolicy, permissions: Permissions, use: ToolUse) -> PinPlan:
    """Split the sandbox's protected paths into pinned ones, ones git may write, and lifted ones.

    One sandbox contains the whole line. So a path is lifted only for a line that consists of the
    allowed write and of steps known to do nothing else.
    """
    alone = _only_writes(use)
    free = [access.target for access in use.touched if access.kind == "write" and alone]
    by_git, by_name = (
        _find_git_writes(use),
        _find_configured_files(use) if alone else frozenset[str](),
    )
    kept, git_written = list(bounds.pinned), list[str]()
    lifted = [target for target in free if protected_names(target)]
    for name, path in _iterate_protected_paths(bounds, permissions):
        if name in by_name or any(_paths_overlap(path, target) for target in free):
            lifted.append(path)
        elif name in by_git:
            git_written.append(path)
        else:
            kept.append(path)
    return PinPlan(tuple(kept), tuple(git_written), tuple(dict.fromkeys(lifted)))


def find_held_back_path(bounds: SandboxPolicy, permissions: Permissions, use: ToolUse) -> str:
    """Return a protected path that the sandbox won't let a line write, due to other steps."""
    if not use.plans or _only_writes(use) or runs_outside_sandbox(bounds, use):
        return ""
    paths = [path for _, path in _iterate_protected_paths(bounds, permissions)]
    written = (access.target for access in use.touched if access.kind == "write")
    return next((one for one in written if any(_paths_overlap(path, one) for path in paths)), "")


def _only_writes(use: ToolUse) -> bool:
    """Return whether command lines do only what their words show, so that pins can be lifted."""
    steps = (step for plan in use.plans for step in plan.steps)
    return not any(plan.unclear for plan in use.plans) and all(map(is_transparent_step, steps))


def is_transparent_step(step: CommandStep) -> bool:
    """Return whether a step of a command line does nothing but what its words show."""
    config = step.name == "git" and git_subcommand(step) == "config"
    return step.needs == "nothing" or config or (step.name == "chmod" and step.known)


def _iterate_protected_paths(
    bounds: SandboxPolicy, permissions: Permissions
) -> Iterator[tuple[str, str]]:
    """Yield the protected names to pin, each with its path in a workspace folder."""
    for folder in permissions.folders:
        yield from ((name, join(folder, name)) for name in PINNED_PATHS)
    for folder in bounds.git:
        own = (name for name in PINNED_PATHS if name.startswith(".git/"))
        yield from ((name, join(folder, name.removeprefix(".git/"))) for name in own)


def _paths_overlap(path: str, other: str) -> bool:
    return is_inside(path, other) or is_inside(other, path)


def _find_git_steps(use: ToolUse) -> Iterator[CommandStep]:
    """Return the git steps of a call that do more than read."""
    steps = (step for plan in use.plans for step in plan.steps)
    return (step for step in steps if step.name == "git" and step.needs != "nothing")


def _find_git_writes(use: ToolUse) -> frozenset[str]:
    """Return the protected names that git itself writes: settings, its hooks, or a new repository.

    git clones only into an empty folder, so no mount point of the sandbox may be in there.
    """
    told = {git_subcommand(step) for step in _find_git_steps(use)}
    if "clone" in told:
        return frozenset(PINNED_PATHS)
    own = (
        (name for name in PINNED_PATHS if name.startswith(".git/"))
        if told & REPOSITORY_CREATORS
        else ()
    )
    hooks = (".git/hooks",) if "lfs" in told else ()
    return frozenset((*GIT_SETTINGS_FILES, *own, *hooks)) if told else frozenset()


def _find_configured_files(use: ToolUse) -> frozenset[str]:
    """Return the git settings files that a call is meant to change."""
    steps = [step for step in _find_git_steps(use) if git_subcommand(step) == "config"]
    if not steps:
        return frozenset()
    steps = [step for step in steps if git_config.changes_git_config(step)]
    modules = any(".gitmodules" in word.text for step in steps for word in step.argv)
    own = (".git/config", ".git/config.worktree") if steps else ()
    return frozenset((*own, ".gitmodules") if modules else own)


def _list_allowed_writes(
    bounds: SandboxPolicy, permissions: Permissions, use: ToolUse
) -> tuple[str, ...]:
    """Return the folders outside the workspace that permissions let a call write."""
    written = [access.target for access in use.touched if access.kind == "write"]
    within = (*permissions.folders, bounds.temp)
    beyond = [path for path in written if not any(is_inside(path, f) for f in within)]
    around = dict.fromkeys(_find_writable_parent(path, use.home) for path in beyond)
    return tuple(
        p for p in around if not any(p != other and is_inside(p, other) for other in around)
    )


def _find_writable_parent(path: str, home: str) -> str:
    """Return the folder to make writable in the sandbox for a path; never a whole home."""
    above = dirname(path)
    return path if above in ("/", home) else above


def _choose_network(
    bounds: SandboxPolicy, permissions: Permissions, use: ToolUse
) -> Literal["off", "listed", "on"]:
    """Choose the sandbox's network access for an allowed call."""
    if bounds.network:
        return bounds.network
    if permissions.mode == "bypass" or _needs_network(use):
        return "on"
    return "listed" if bounds.hosts else "off"


def _needs_network(use: ToolUse) -> bool:
    steps = (step for plan in use.plans for step in plan.steps)
    return any(map(_asks_for_network, use.accesses)) or any(map(_uses_network, steps))


def _asks_for_network(access: Access) -> bool:
    return access.kind == "net"


def _uses_network(step: CommandStep) -> bool:
    """Return whether a step of a command line is a network program or git's network commands."""
    return (
        git_subcommand(step) in GIT_NETWORK_COMMANDS
        if step.name == "git"
        else step.name in NETWORK_PROGRAMS
    )


def _choose_local_ports(use: ToolUse) -> tuple[int, ...]:
    """Return the local ports that a call's commands connect to, if they reach nothing else.

    This only chooses between networks: a host that is overlooked here is then unreachable.
    """
    steps = [step for plan in use.plans for step in plan.steps if _uses_network(step)]
    if any(map(_asks_for_network, use.accesses)) or not all(
        step.name in FETCH_PROGRAMS for step in steps
    ):
        return ()
    asked = [_find_local_ports(step) for step in steps]
    return tuple(dict.fromkeys(port for ports in asked for port in ports)) if all(asked) else ()


def _find_local_ports(step: CommandStep) -> list[int]:
    """Return the local ports that a program connects to; none if it also reaches other hosts."""
    words = [word.text for word in step.argv[1:]]
    local = [found for word in words if (found := LOCAL_URL.fullmatch(word))]
    others = any("://" in word and not LOCAL_URL.fullmatch(word) for word in words)
    default = {"https": 443}
    return [] if others else [int(one["port"] or default.get(one["scheme"], 80)) for one in local]


def build_program_profile(
    bounds: SandboxPolicy, permissions: Permissions, *, shown: tuple[str, ...] = ()
) -> SandboxProfile:
    """Return the sandbox profile of a hook or an MCP server.

    It may write in the workspace except for protected paths, and reach what the settings allow.
    `shown` are the folders of its own files, which may be in a home that the sandbox hides.
    """
    support = build_sandbox_profile(
        bounds, permissions, ToolUse("", (), permissions.folders[0]), profile="work"
    )
    assert support is not None, "a given profile always has a sandbox"
    # Shown paths are read-only, so a program's folders in the workspace must not be among them.
    own = (*permissions.folders, *bounds.writable)
    apart = tuple(path for path in shown if not any(is_inside(path, folder) for folder in own))
    network = bounds.network or ("listed" if bounds.hosts else "off")
    sifted = network == "on" and bool(bounds.barred)
    return replace(
        support,
        network="listed" if sifted else network,
        hosts=("*",) if sifted else bounds.hosts,
        writable=bounds.writable,
        shown=(*support.shown, *apart),
    )
