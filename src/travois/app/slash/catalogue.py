"""All commands, in the order in which they are listed."""

from __future__ import annotations

from travois.app.slash import talking, window

COMMANDS = {**window.COMMANDS, **talking.COMMANDS}
