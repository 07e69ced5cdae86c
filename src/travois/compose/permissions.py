"""Permissions of a session, composed from its settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from time import time

from msgspec.structs import replace

from travois.compose.models import model_catalog
from travois.core.errors import UserError
from travois.permissions.decide import Permissions
from travois.permissions.secrets import is_secret_name
from travois.permissions.updates import PermissionUpdate
from travois.ports.world import UserWarned
from travois.providers import catalog
from travois.sessions.home import TravoisHome, locate_home
from travois.sessions.session import Session
from travois.settings import trust
from travois.settings.credentials import KeyStore
from travois.settings.load import COMMAND_LINE
from travois.settings.schema import LoadedSettings

FOLDERS_KEY = "permissions.additionalDirectories"
DAY_SECONDS = 24 * 3_600


def compose_permissions(
    loaded: LoadedSettings, cwd: str, *, own: tuple[str, ...], readable: tuple[str, ...] = ()
) -> Permissions:
    """Compose a session's permissions in a folder from its settings."""
    asked = loaded.settings.permissions
    folders = tuple(path for path in _find_more_folders(loaded, cwd).values() if path)
    reads = asked.block_reads_outside_working_directories
    writes = asked.block_writes_outside_working_directories
    return Permissions(
        asked.mode,
        loaded.rules,
        (cwd, *folders),
        readable=readable,
        blocked=(*(("read",) if reads else ()), *(("write",) if writes else ())),
        silent=asked.deny_instead_of_prompting,
        barred=("auto",) if asked.disable_auto_mode else (),
        pinned=loaded.scripts,
        writable=tuple(
            os.path.realpath(os.path.expanduser(path))
            for path in loaded.settings.sandbox.filesystem.allow_write
        ),
        no_sandbox=not loaded.settings.sandbox.enabled,
        own=own,
    )


def apply_settings_env(loaded: LoadedSettings) -> None:
    """Set the environment variables from the user's settings, as other agents do.

    They say where requests go and with which key, and everything that asks looks there.
    """
    os.environ.update(loaded.environ)
    with suppress(UserError):  # without a home folder nothing is stored
        KeyStore(locate_home(os.environ)).add_to_environment(os.environ)


def startup_notices(loaded: LoadedSettings, cwd: str = "") -> tuple[str, ...]:
    """Return startup notices about missing folders, and the announcement of the day."""
    missing = (name for name, path in _find_more_folders(loaded, cwd).items() if not path)
    told = loaded.settings.company_announcements if sys.stderr.isatty() else ()
    today = (told[int(time() // DAY_SECONDS) % len(told)],) if told else ()
    return (
        *today,
        *(f"{loaded.origin(FOLDERS_KEY, one)}: {one} is not a folder" for one in missing),
    )


def drop_unusable_settings(loaded: LoadedSettings, environ: Mapping[str, str]) -> LoadedSettings:
    """Drop settings from other agents' files that do not work or belong here.

    Their API keys are not passed to programs that we start; an unreachable model is dropped.
    """

    def can_pass_on(name: str) -> bool:
        return not is_secret_name(name) or f"env.{name}" not in loaded.borrowed

    settings = loaded.settings
    env = {name: value for name, value in settings.env.items() if can_pass_on(name)}
    loaded = replace(loaded, settings=replace(settings, env=env))
    if "model" not in loaded.borrowed:
        return loaded
    try:
        among = model_catalog(loaded)
        model = catalog.resolve_model(settings.model, environ, among=among)
        catalog.resolve_endpoint(model, environ, among=among)
    except UserError as fault:
        why = f"{loaded.origin('model')}: model {settings.model} is ignored: {fault.what}"
        settings = replace(loaded.settings, model="")
        return replace(loaded, settings=settings, notices=(*loaded.notices, why))
    return loaded


def _find_more_folders(loaded: LoadedSettings, cwd: str) -> dict[str, str]:
    """Return the additional permitted folders by name; empty for missing ones."""
    found: dict[str, str] = {}
    for name in loaded.settings.permissions.additional_directories:
        path = os.path.realpath(os.path.join(cwd, os.path.expanduser(name)))
        found[name] = path if os.path.isdir(path) else ""
        if not found[name] and loaded.origin(FOLDERS_KEY, name) == COMMAND_LINE:
            raise UserError(f"{name} is not a folder", fix="--add-dir needs existing folders.")
    return found


def save_answer(session: Session, home: TravoisHome, root: str, update: PermissionUpdate) -> None:
    """Save the permission rules of an answer; if that fails, they apply to this session."""
    try:
        trust.save_permission_update(home, root, update)
    except UserError as fault:
        why = f"{fault.what}: {fault.why}" if fault.why else fault.what
        session.emit(UserWarned(f"{why}. It applies until this session ends."))
