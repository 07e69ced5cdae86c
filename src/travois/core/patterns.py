"""Regular expressions that are compiled when they are first used, and not at each start.

Compiling those of the modules that a start loads takes longer than a tenth of the start, and a
short run uses few of them.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import cast


class LazyPattern:
    """A pattern that compiles itself when one of its attributes is first asked for."""

    def __init__(self, source: str, flags: int) -> None:
        self._source, self._flags = source, flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self._source, self._flags)

    def __getattr__(self, name: str) -> object:
        """Compile the pattern, and keep the attribute so that the next use finds it at once."""
        value: object = getattr(self._compiled, name)
        self.__dict__[name] = value
        return value


def compile_lazily(source: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that is compiled when it is first used, for its own methods only.

    Functions of `re` such as `re.sub(pattern, …)` do not take it.
    """
    return cast("re.Pattern[str]", LazyPattern(source, flags))
