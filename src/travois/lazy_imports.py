"""Imports that stand at the top of a file and happen when they are first used.

A start has to be quick, and most of the program is not needed until much later. An import inside a
function is quick too, but it hides what a module depends on. This one is in plain sight:

    with lazy_imports():
        import shutil

        from travois.context.compaction import compact

`compact` is loaded when one of its names is used (`compact.compact_conversation(…)`). Only modules
can be imported this way: what a module holds is not known before it is loaded. Python 3.15 has
`lazy import` in the language (PEP 810); once that is the oldest Python here, this file can go.
"""

from __future__ import annotations

import builtins
import sys
from _thread import RLock  # threading itself would load more at every start
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType

_eager_import = builtins.__import__
_open_blocks: list[Mapping[str, object]] = []  # the globals of modules that are inside a block
_lock = RLock()


class lazy_imports:  # noqa: N801 - used as a keyword would be
    """A block whose imports by the calling module happen when they are used."""

    def __init__(self) -> None:
        self._importer = sys._getframe(1).f_globals  # pyright: ignore[reportPrivateUsage] - the one way to know who imports

    def __enter__(self) -> None:
        """Let the module's imports go through `_import_lazily`."""
        with _lock:  # modules may be imported in several threads at once
            _open_blocks.append(self._importer)
            builtins.__import__ = _import_lazily

    def __exit__(self, *_: object) -> None:
        """Import as always again."""
        with _lock:
            _open_blocks[:] = [block for block in _open_blocks if block is not self._importer]
            if not _open_blocks:
                builtins.__import__ = _eager_import


class LazyModule(ModuleType):
    """A module that is loaded when one of its names is asked for."""

    def __init__(self, name: str, importer: dict[str, object]) -> None:
        super().__init__(name)
        self.__dict__["_importer"] = importer

    def __getattr__(self, name: str) -> object:
        """Load the module, put it in the place of this one, and return its attribute."""
        module = import_module(self.__name__)
        importer: dict[str, object] = self.__dict__["_importer"]
        for bound, value in list(importer.items()):
            if value is self:
                importer[bound] = module
        return getattr(module, name)

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute of the module itself, as a test that patches one means to."""
        setattr(import_module(self.__name__), name, value)


class _LazyPackage:
    """The left side of `from package import module`: each of its names is a lazy module."""

    def __init__(self, name: str, importer: dict[str, object]) -> None:
        self._name = name
        self._importer = importer

    def __getattr__(self, name: str) -> ModuleType:
        return _lazy_module(f"{self._name}.{name}", self._importer)


def _import_lazily(
    name: str,
    globals: dict[str, object] | None = None,  # noqa: A002 - the name that Python calls it by
    locals: Mapping[str, object] | None = None,  # noqa: A002
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> object:
    """Stand in for `__import__` while a block is open; other modules import as always."""
    if globals is None or not any(block is globals for block in _open_blocks):
        return _eager_import(name, globals, locals, fromlist or (), level)
    if level or ("." in name and not fromlist):
        raise ImportError(f"Write `from package import module` for {name} in a lazy_imports block.")
    return _LazyPackage(name, globals) if fromlist else _lazy_module(name, globals)


def _lazy_module(name: str, importer: dict[str, object]) -> ModuleType:
    return sys.modules.get(name) or LazyModule(name, importer)
