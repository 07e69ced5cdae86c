"""All commands, in the order in which they are listed."""

from __future__ import annotations

from travois.app.slash import memory, talking, window

COMMANDS = {**window.COMMANDS, **memory.COMMANDS, **talking.COMMANDS}
