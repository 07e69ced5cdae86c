"""The variables that hooks of the user's own are given, which no other program gets."""

from __future__ import annotations

import os

from travois.engine.hooked import parse
from travois.store.settings import Loaded


def given_variables(loaded: Loaded) -> tuple[tuple[str, str], ...]:
    """The variables that hooks of the user's own name, with their values: no file shows them."""
    named = [
        hook.env
        for origin, tree in loaded.hooks
        if origin in loaded.own_hooks and "env" in str(tree)
        for hook in parse(tree, origin=origin).hooks
    ]
    names = dict.fromkeys(name for each in named for name in each)
    return tuple((name, os.environ[name]) for name in names if name in os.environ)
