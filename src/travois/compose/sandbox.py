"""The sandbox of a session: what this machine supports and the settings ask for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from travois.compose.open_session import OpenedSession, Workspace
from travois.core.content import extract_text
from travois.core.errors import UserError
from travois.core.facts import Result
from travois.lazy_imports import lazy_imports
from travois.permissions.decide import Permissions
from travois.permissions.paths import is_inside
from travois.permissions.resolve_paths import hidden_path_filter, home_folder
from travois.permissions.rules import PermissionRule
from travois.permissions.sandbox_profile import PRIVATE_TMP_NOTICE, TMP_FOLDERS
from travois.sandbox.hidden_files import (
    find_covered_places,
    find_git_files,
    find_home_folders,
    find_program_folders,
    find_programs_below_tmp,
    find_safe_settings,
)
from travois.sandbox.policy import SECRET_HOME_PATHS, LazyPaths, SandboxPolicy
from travois.sandbox.probe import SandboxSupport, find_bundled_bwrap, find_sandbox_support
from travois.sandbox.session_tmp import close_session_tmp, has_only_folders, open_session_tmp
from travois.sandbox.tool_chains import ToolChainName, ToolChainPaths, list_tool_chain_paths
from travois.sessions.home import find_verified_repository
from travois.sessions.session import Session
from travois.settings.schema import LoadedSettings
from travois.settings.sources import AUTO_ALLOW_BASH_KEY
from travois.skills.skill_files import list_personal_folders

with lazy_imports():
    import shutil


SANDBOX_OFF_NOTICE = (
    "Sandbox: off, as the settings say. Commands have all your permissions: nothing protects "
    "settings, hooks, keys and other folders from the programs they run"
)
MAX_SEARCH_DEPTH = 4
"""The depth to which files that rules name anywhere are looked for."""
MAX_SEARCHED_FOLDERS = 5_000
"""The number of folders in which they are looked for."""
SKIPPED_FOLDERS = frozenset((".git", "node_modules", ".venv", "__pycache__", "target"))


class SandboxSetup(msgspec.Struct, frozen=True):
    """The sandbox of a session, and notices about it."""

    support: SandboxSupport | None = None
    bounds: SandboxPolicy | None = None
    line: str = ""
    """The notice at the start; empty if all is well."""
    unwalled: str = ""
    """The reason why unproven commands do not run unattended."""


def compose_sandbox(
    loaded: LoadedSettings,
    workspace: Workspace,
    stack: AsyncExitStack,
    *,
    attended: bool,
    session: OpenedSession | None = None,
) -> SandboxSetup:
    """Compose a session's sandbox; raises `UserError` if one is required and missing.

    A session that is not saved loses its private /tmp when the stack unwinds.
    """
    wanted = loaded.settings.sandbox
    if not wanted.enabled:
        return SandboxSetup(line=SANDBOX_OFF_NOTICE)
    support = find_sandbox_support(workspace.home.cache / "walls.json", workspace=workspace.cwd)
    if support.kind == "none" and wanted.required:
        raise UserError("The settings require a sandbox, and there is none", why=support.line)
    if support.kind == "none":
        why = f"{support.line}; with no one there to approve it, it needs --no-sandbox"
        return SandboxSetup(line=support.line, unwalled="" if attended else why)
    _check_place(loaded, workspace)
    kept = session is not None and session.log.folder.is_relative_to(workspace.home.sessions)
    temp = (
        _use_session_tmp(session, workspace, stack)
        if session and kept
        else _make_temporary_folder(stack)
    )
    spill = session.spill if session is not None else workspace.home.path / "none"
    bounds = _build_policy(loaded, workspace, temp=temp, spill=spill)
    bounds = msgspec.structs.replace(
        bounds,
        backend="full" if support.kind == "full" else "partial",
        attended=attended,
        free=bounds.free and support.kind == "full",
        temp_lasts=kept,
        programs=find_programs_below_tmp() if support.kind == "full" else (),
    )
    if support.bwrap == find_bundled_bwrap():
        bounds = msgspec.structs.replace(
            bounds, pinned=(*bounds.pinned, *_bwrap_package_folders(support.bwrap))
        )
    return SandboxSetup(support, bounds, "" if support.kind == "full" else support.line)


def _check_place(loaded: LoadedSettings, workspace: Workspace) -> None:
    """Refuse unapproved commands in the sandbox if the workspace would be the whole home."""
    mode = loaded.settings.permissions.mode
    if workspace.cwd not in ("/", home_folder()) or mode not in ("bypass", "auto", "accept-edits"):
        return
    raise UserError(
        f"Mode {mode} cannot be used in {workspace.cwd}",
        why="the workspace would be all of your files, and nothing would restrict commands",
        fix="Start in a project folder, or use --no-sandbox on a disposable machine.",
    )


def _build_policy(
    loaded: LoadedSettings, workspace: Workspace, *, temp: str, spill: Path
) -> SandboxPolicy:
    """Build the sandbox policy: what commands may read, write and reach on the network."""
    wanted = loaded.settings.sandbox
    own = tuple(map(os.path.realpath, workspace.home.folders))
    hidden = tuple(_find_denied_reads(loaded, workspace.cwd))
    git = _shared_git_history(workspace.cwd)
    barred = loaded.settings.permissions.disable_auto_mode == "disable"
    covered = LazyPaths(find_covered_places)
    needed = _list_tool_chain_paths(wanted.hidden_tool_chains)
    settings = find_safe_settings(needed.settings)
    shared = (*settings, *find_git_files(settings, home_folder()))
    secret = (
        *_paths_in_homes(SECRET_HOME_PATHS),
        *needed.withheld,
        *(path for path in needed.settings if path not in settings),
    )
    return SandboxPolicy(
        temp=temp,
        hidden=(
            *(*secret, *own, *hidden),
            *_expand_paths(wanted.filesystem.deny_read),
        ),
        own=own,
        covered=covered,
        home=home_folder(),
        tools=LazyPaths(lambda: (*needed.reads, *shared, *find_program_folders(covered.paths))),
        caches=needed.caches,
        shown=(
            *(
                str(spill),
                *_expand_paths(wanted.filesystem.allow_read),
                *_skill_and_plugin_folders(loaded, workspace),
            ),
            *_enclosing_repository(workspace.cwd),
        ),
        writable=(*_expand_paths(wanted.filesystem.allow_write), *git),
        pinned=(
            *_expand_paths(wanted.filesystem.deny_write),
            *loaded.scripts,
            *_worktree_git_file(workspace.cwd),
        ),
        git=git,
        network=wanted.network.mode,
        hosts=wanted.network.allowed_domains,
        barred=wanted.network.denied_domains,
        excluded=wanted.excluded_commands,
        look_first=wanted.look_first,
        leaving=wanted.allow_unsandboxed_commands,
        free=wanted.auto_allow_bash_if_sandboxed and not barred,
        offered=not barred and loaded.origins.get(AUTO_ALLOW_BASH_KEY, "default") == "default",
    )


def _list_tool_chain_paths(hidden: tuple[ToolChainName, ...]) -> ToolChainPaths:
    """Return the paths that the sandbox must show for tool chains in each home."""
    homes = dict.fromkeys((home_folder(), *find_home_folders()))
    each = [list_tool_chain_paths(one, os.environ, hidden=hidden) for one in homes]
    return ToolChainPaths(
        reads=tuple(path for one in each for path in one.reads),
        caches=tuple(path for one in each for path in one.caches),
        settings=tuple(path for one in each for path in one.settings),
        withheld=tuple(path for one in each for path in one.withheld),
    )


def _bwrap_package_folders(bwrap: str) -> tuple[str, ...]:
    """Return the bundled bwrap's folders, which no sandboxed command may change."""
    package = os.path.dirname(os.path.dirname(bwrap))
    return (package, f"{package}.libs")


def _skill_and_plugin_folders(loaded: LoadedSettings, workspace: Workspace) -> tuple[str, ...]:
    """Return the folders of skills and plugins that the sandbox shows to commands."""
    skills = map(os.path.realpath, list_personal_folders(workspace.home, os.environ))
    # What is only shown cannot be written: links may lead to skills that are worked on here.
    apart = (path for path in skills if not is_inside(path, workspace.cwd))
    folders = (*apart, *(one.folder for one in loaded.plugins))
    return tuple(filter(os.path.isdir, folders))


def move_sandbox_policy(bounds: SandboxPolicy, root: str) -> SandboxPolicy:
    """Return the sandbox policy moved to an agent's other folder of the repository."""
    git = _shared_git_history(root)
    pinned, all_git = (*bounds.pinned, *_worktree_git_file(root)), (*bounds.git, *git)
    writable, shown = (*bounds.writable, *git), (*bounds.shown, *_enclosing_repository(root))
    changes = {"writable": writable, "pinned": pinned, "git": all_git, "shown": shown}
    return msgspec.structs.replace(bounds, **changes)


def _shared_git_history(cwd: str) -> tuple[str, ...]:
    """Return the git folder that the sandbox must allow for a workspace outside it; else empty."""
    _, common = find_verified_repository(cwd)
    real = all(os.path.isdir(f"{common}/{name}") for name in ("objects", "refs"))
    apart = common and not is_inside(common, cwd) and not is_inside(home_folder(), common)
    return (common,) if apart and real else ()


def _enclosing_repository(cwd: str) -> tuple[str, ...]:
    """Return the repository around a folder for the sandbox to show: git compares all its files.

    Not one that holds the home: it would show all of that.
    """
    top, _ = find_verified_repository(cwd)
    above = top and top != cwd and is_inside(cwd, top) and not is_inside(home_folder(), top)
    return (top,) if above else ()


def _worktree_git_file(cwd: str) -> tuple[str, ...]:
    """Return the `.git` file of a worktree, which the sandbox must show."""
    return (f"{cwd}/.git",) if os.path.isfile(f"{cwd}/.git") else ()


def _make_temporary_folder(stack: AsyncExitStack) -> str:
    """Make a sandbox's private folder with a random name; removed when the stack unwinds."""
    path = os.path.join(
        os.environ.get("TMPDIR") or TMP_FOLDERS[0], f"travois-{os.urandom(8).hex()}"
    )
    os.mkdir(path, 0o700)
    stack.callback(_remove_folder, path)
    return os.path.realpath(path)


def _use_session_tmp(session: OpenedSession, workspace: Workspace, stack: AsyncExitStack) -> str:
    """Open the session's private /tmp for the sandbox; an empty one is removed at the end."""
    folder, parent = session.log.folder, session.parent
    path = open_session_tmp(workspace.home, session.id, folder=folder, parent=parent)
    stack.callback(close_session_tmp, path)
    return os.path.realpath(path)


def find_old_tmp(
    bounds: SandboxPolicy | None, workspace: Workspace, *, id: str, session: Session
) -> str:
    """Return the folder of an earlier sandbox's private /tmp if it has files; empty if none.

    A session may continue where there is no full sandbox: there /tmp is the machine's own.
    """
    path = workspace.home.session_tmp(id)
    private = bounds is not None and bounds.backend == "full"
    if private or not path.is_dir() or has_only_folders(path):
        return ""
    results = (entry.fact for entry in session.history() if isinstance(entry.fact, Result))
    return (
        str(path) if any(PRIVATE_TMP_NOTICE in extract_text(one.content) for one in results) else ""
    )


def _remove_folder(path: str) -> None:
    """Delete a sandbox's temporary folder."""
    shutil.rmtree(path, ignore_errors=True)


def _paths_in_homes(names: tuple[str, ...]) -> tuple[str, ...]:
    homes = dict.fromkeys((home_folder(), *find_home_folders()))
    return tuple(os.path.join(one, name) for one in homes for name in names)


def _expand_paths(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(os.path.realpath(os.path.expanduser(text)) for text in texts)


def _find_denied_reads(loaded: LoadedSettings, root: str) -> Iterator[str]:
    """Yield existing files that rules deny, for the sandbox to hide."""
    rules = tuple(
        rule for rule in loaded.rules if rule.effect == "deny" and rule.tool == "Read" and rule.what
    )
    yield from (path for rule in rules for path in _fixed_rule_path(rule))
    if rules:
        yield from _find_hidden_files(
            hidden_path_filter(Permissions(rules=rules), "Read", root=root), root
        )


def _fixed_rule_path(rule: PermissionRule) -> Iterator[str]:
    """Yield a deny rule's path for the sandbox to hide, if outside the workspace and no glob."""
    what = rule.what.removesuffix("/**")
    if what.startswith(("//", "~/")) and not any(char in what for char in "*?["):
        yield what[1:] if what.startswith("//") else os.path.join(home_folder(), what[2:])


def _find_hidden_files(hidden: Callable[[str], bool], root: str) -> Iterator[str]:
    """Yield files near the workspace's top that rules deny, for the sandbox to hide."""
    for number, (folder, folders, files) in enumerate(os.walk(root)):
        found = [name for name in (*files, *folders) if hidden(f"{folder}/{name}")]
        yield from (f"{folder}/{name}" for name in found)
        over = folder[len(root) :].count("/") >= MAX_SEARCH_DEPTH or number > MAX_SEARCHED_FOLDERS
        folders[:] = (
            [] if over else [f for f in folders if f not in SKIPPED_FOLDERS and f not in found]
        )
