"""Changing the user's settings file: what they chose at the prompt, kept for later sessions."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from travois.core.errors import UserError
from travois.sessions import blobs
from travois.sessions.home import TravoisHome
from travois.settings.schema import Json
from travois.settings.validate import is_json_array, is_settings_tree, parse_settings


def save_user_setting(home: TravoisHome, key: str, value: str | bool) -> None:
    """Change one setting in the user's settings file; the rest stays, in its order."""
    _edit_user_settings(home, key, lambda held: value)


def add_to_user_setting(home: TravoisHome, key: str, item: str) -> None:
    """Add an item to a list in the user's settings file, unless it is there."""

    def append(held: object) -> list[object]:
        items = held if is_json_array(held) else []
        return items if item in items else [*items, item]

    _edit_user_settings(home, key, append)


def remove_from_user_setting(home: TravoisHome, key: str, item: str) -> None:
    """Remove an item from a list in the user's settings file, if it is there."""

    def remove(held: object) -> list[object]:
        return [one for one in held if one != item] if is_json_array(held) else []

    _edit_user_settings(home, key, remove)


def _edit_user_settings(home: TravoisHome, key: str, change: Callable[[object], object]) -> None:
    path = home.settings.resolve()  # a link to where they collect such files stays one
    try:
        text = parse_settings(path.read_bytes() if path.exists() else b"", where=str(path)).text
        tree = msgspec.json.decode(text.strip() or "{}", type=Json)
        _set_in_tree(tree, key, change)
        data = msgspec.json.format(msgspec.json.encode(tree), indent=2)
        blobs.replace_file(path, data + b"\n")
    except OSError as error:
        raise blobs.make_storage_error("Your choice cannot be saved", error, path=path) from error


def _set_in_tree(tree: Json, key: str, change: Callable[[object], object]) -> None:
    """Change a dotted key in a settings tree; raise if a part of it is not an object."""
    *groups, name = key.split(".")
    for group in groups:
        inner = tree.setdefault(group, {})
        if not is_settings_tree(inner):
            raise UserError(
                f"Your choice cannot be saved: {group} in your settings is not an object"
            )
        tree = inner
    tree[name] = change(tree.get(name))
