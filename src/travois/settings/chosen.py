"""What the user chose at the prompt, kept in their own settings for the sessions to come."""

from __future__ import annotations

import msgspec

from travois.core.errors import Fault
from travois.sessions import blobs
from travois.sessions.home import Home
from travois.settings.schema import Json
from travois.settings.validate import is_tree, parsed


def keep(home: Home, key: str, value: str) -> None:
    """Change one setting in the user's file; all else in it stays, known or not, in its order."""
    path = home.settings.resolve()  # a link to where they collect such files stays one
    try:
        text = parsed(path.read_bytes() if path.exists() else b"", where=str(path)).text
        tree = msgspec.json.decode(text.strip() or "{}", type=Json)
        _put(tree, key, value)
        data = msgspec.json.format(msgspec.json.encode(tree), indent=2)
        blobs.replace(path, data + b"\n")
    except OSError as error:
        raise blobs.fault("The choice cannot be kept", error, path=path) from error


def _put(tree: Json, key: str, value: str) -> None:
    *groups, name = key.split(".")
    for group in groups:
        inner = tree.setdefault(group, {})
        if not is_tree(inner):
            raise Fault(f"The choice cannot be kept: {group} is no object in your settings")
        tree = inner
    tree[name] = value
