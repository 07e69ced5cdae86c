"""Patterns that are compiled when they are first used."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import travois
from travois.core.patterns import LazyPattern, compile_lazily

SOURCES = Path(travois.__file__).parent


def test_a_lazy_pattern_does_what_a_compiled_one_does() -> None:
    lazy, compiled = (
        compile_lazily(r"(?i)A(\d+)", re.MULTILINE),
        re.compile(r"(?i)A(\d+)", re.MULTILINE),
    )
    for text in ("a12 A3", "b"):
        assert [m.span() for m in lazy.finditer(text)] == [
            m.span() for m in compiled.finditer(text)
        ]
    assert lazy.sub("-", "a1b") == "-b"
    assert (lazy.pattern, lazy.flags) == (compiled.pattern, compiled.flags)


def test_every_lazy_pattern_compiles() -> None:
    files = (file for file in SOURCES.rglob("*.py") if "compile_lazily(" in file.read_text())
    names = [".".join(file.relative_to(SOURCES.parent).with_suffix("").parts) for file in files]
    modules = [import_module(name.removesuffix(".__init__")) for name in names]
    lazy = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, LazyPattern)
    ]
    assert len(lazy) > 50
    for pattern in lazy:
        assert isinstance(pattern.compile(), re.Pattern)
