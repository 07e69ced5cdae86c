"""Regular expressions that are compiled when they are first used, and not at each start.

Compiling those of the modules that a start loads takes longer than a tenth of the start, and a
short run uses few of them.
"""

from __future__ import annotations

import re
from typing import cast


class LazyPattern:
    """A pattern that compiles itself when one of its attributes is first asked for."""

    def __init__(self, source: str, flags: int) -> None:
        self._source, self._flags = source, flags
        self._compiled: re.Pattern[str] | None = None

    def compile(self) -> re.Pattern[str]:
        """Return the compiled pattern."""
        if self._compiled is None:
            self._compiled = re.compile(self._source, self._flags)
        return self._compiled

    def __getattr__(self, name: str) -> object:
        """Compile the pattern, and keep the attribute so that the next use finds it at once."""
        value: object = getattr(self.compile(), name)
        self.__dict__[name] = value
        return value


def compile_lazily(source: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that is compiled when it is first used, for its own methods only.

    Functions of `re` such as `re.sub(pattern, …)` do not take it.
    """
    return cast("re.Pattern[str]", LazyPattern(source, flags))
