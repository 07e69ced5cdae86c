"""Reloading settings while a session runs: rules and hooks apply from the next step on.

The head of requests stays as it is, so what would change it applies from the next session on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from travois.compat.foreign_agent import CLAUDE
from travois.compose import hooks as hooking
from travois.compose import permissions
from travois.compose.open_session import Workspace
from travois.core.errors import UserError
from travois.engine.agent import Agent
from travois.hooks.events import ConfigChange
from travois.hooks.fire import fire_hooks
from travois.ports.world import UserWarned
from travois.settings.schema import LoadedSettings

ItemT = TypeVar("ItemT")
FileStamps = dict[str, tuple[int, int]]
"""When each file was written last, and its size; those that are not there are not in it."""


class SettingsReload:
    """A watcher that applies changed settings files to a running session."""

    def __init__(
        self, workspace: Workspace, loaded: LoadedSettings, *, again: Callable[[], LoadedSettings]
    ) -> None:
        self._place, self._loaded, self._again = workspace, loaded, again
        self._seen = _read_file_stamps(_list_settings_files(workspace, loaded))

    async def __call__(self, agent: Agent) -> None:
        """Apply changed settings; called at every safe boundary."""
        seen = _read_file_stamps(_list_settings_files(self._place, self._loaded))
        changed = sorted(dict(set(seen.items()) ^ set(self._seen.items())))
        self._seen = seen
        if changed:
            await self._reload_settings(agent, changed[0])

    async def _reload_settings(self, agent: Agent, path: str) -> None:
        try:
            fresh = self._again()
        except UserError as fault:
            agent.session.emit(UserWarned(f"{path} changed, but was not applied: {fault.what}"))
            return
        if _is_unchanged(self._loaded, fresh):
            return
        heard = await fire_hooks(agent, ConfigChange(_settings_source(path, self._place), path))
        if heard.block:
            agent.session.emit(UserWarned(f"{path} changed, but a hook rejected it: {heard.block}"))
            return
        self._apply_settings(agent, fresh)
        agent.session.emit(UserWarned(f"{path} changed: its rules and hooks apply from now on"))

    def _apply_settings(self, agent: Agent, fresh: LoadedSettings) -> None:
        cwd, own = self._place.cwd, self._place.home.folders
        held, old = (
            agent.permissions.guard,
            permissions.compose_permissions(self._loaded, self._place.cwd, own=own),
        )
        new = permissions.compose_permissions(fresh, cwd, own=own)
        agent.permissions.guard = replace(
            held,
            rules=_exchange_entries(held.rules, old.rules, new.rules),
            folders=_exchange_entries(held.folders, old.folders, new.folders),
            blocked=_exchange_entries(held.blocked, old.blocked, new.blocked),
            barred=new.barred,
            silent=new.silent,
        )
        agent.runtime.relocate(agent)
        gone, hooks = hooking.load_hooks(self._loaded)[0], hooking.load_hooks(fresh)[0]
        if gone != hooks and agent.hooks.make is not None:
            agent.hooks.active = agent.hooks.active or agent.hooks.make()
            agent.hooks.active.update(hooks, gone=gone)
        self._loaded = fresh


def _is_unchanged(old: LoadedSettings, new: LoadedSettings) -> bool:
    rights_of = (old.settings.permissions, new.settings.permissions)
    return old.rules == new.rules and old.hooks == new.hooks and rights_of[0] == rights_of[1]


def _exchange_entries(
    held: tuple[ItemT, ...], old: tuple[ItemT, ...], new: tuple[ItemT, ...]
) -> tuple[ItemT, ...]:
    """Replace a list's old settings entries by the reloaded ones; keep those added since."""
    return (*new, *(one for one in held if one not in old and one not in new))


def _list_settings_files(workspace: Workspace, loaded: LoadedSettings) -> tuple[str, ...]:
    """List the settings files that are watched while a session runs."""
    usual = [
        str(workspace.home.settings),
        *CLAUDE.home_paths(os.environ, "settings.json"),
        os.path.join(workspace.cwd, ".claude/settings.json"),
        os.path.join(loaded.root, ".claude/settings.local.json"),
        os.path.join(workspace.project.root, ".travois/settings.json"),
        os.path.join(workspace.project.root, ".travois/settings.local.json"),
    ]
    return tuple(dict.fromkeys((*usual, *loaded.files)))


def _read_file_stamps(paths: tuple[str, ...]) -> FileStamps:
    """Read the modification times and sizes of settings files, to notice changes."""
    found: FileStamps = {}
    for path in paths:
        try:
            about = os.stat(path)
        except OSError:
            continue
        found[path] = (about.st_mtime_ns, about.st_size)
    return found


def _settings_source(path: str, workspace: Workspace) -> str:
    """Return the level of a settings file, in the words of other agents' hooks."""
    if path.startswith("/etc/"):
        return "policy_settings"
    if path.endswith("settings.local.json"):
        return "local_settings"
    return "project_settings" if path.startswith(f"{workspace.project.root}/") else "user_settings"
