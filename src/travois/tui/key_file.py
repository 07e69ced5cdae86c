"""The user's own key bindings: `keys.json` in the home folder, an action and its keys each."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from travois.settings.validate import find_nearest_word

KEY_FILE = "keys.json"
BOUND_ACTIONS = ("mode", "expand", "editor", "clear-screen", "suspend", "queue", "image")
"""Actions whose keys can be changed."""
MODIFIERS = {"ctrl": "c", "control": "c", "shift": "s"}
KeyMap = dict[str, tuple[tuple[str, ...], ...]]
"""The keys of each action; a key with Alt is Escape and the key."""


def load_key_file(path: Path) -> tuple[KeyMap, tuple[str, ...]]:
    """Load the user's bindings; return them, and a line for each that cannot be used."""
    if not path.exists():
        return {}, ()
    try:
        named = msgspec.json.decode(path.read_bytes(), type=dict[str, str | list[str]])
    except (OSError, msgspec.DecodeError) as error:
        return {}, (f"{path} is ignored: {error}",)
    found, notices = KeyMap(), list[str]()
    for action, keys in named.items():
        words = [keys] if isinstance(keys, str) else keys
        try:
            found[_known_action(action)] = tuple(map(parse_key, words))
        except ValueError as error:
            notices.append(f"{path}: {error}")
    return found, tuple(notices)


def _known_action(name: str) -> str:
    if name in BOUND_ACTIONS:
        return name
    near = find_nearest_word(name, BOUND_ACTIONS)
    meant = f"did you mean {near}?" if near else f"actions are {', '.join(BOUND_ACTIONS)}"
    raise ValueError(f"there is no action {name}; {meant}")


def _do_nothing(event: KeyPressEvent) -> None:
    pass


def parse_key(name: str) -> tuple[str, ...]:
    """Parse `ctrl-o`, `alt-m`, `shift-tab` or `f5`; raise ValueError if there is no such key."""
    *modifiers, key = re.split(r"[-+](?=.)", name.strip().lower())
    alt = "alt" in modifiers or "meta" in modifiers
    rest = [one for one in modifiers if one not in ("alt", "meta")]
    if unknown := [one for one in rest if one not in MODIFIERS]:
        raise ValueError(f"{name} is no key: {unknown[0]} is not Ctrl, Alt or Shift")
    parts = (("escape",) if alt else ()) + ("-".join((*(MODIFIERS[one] for one in rest), key)),)
    if parts == (key,) and len(key) == 1:
        raise ValueError(f"{name} is typed into the line; use it with Ctrl or Alt")
    try:
        KeyBindings().add(*parts)(_do_nothing)
    except ValueError:
        raise ValueError(f"{name} is no key that a terminal sends") from None
    return parts
