"""What a command line runs: exactly to allow it, generously to deny it."""

from __future__ import annotations

from functools import lru_cache

from travois.policy.glyphs import deceptive
from travois.policy.plan import Plan


@lru_cache(maxsize=256)
def plan(command: str, *, cwd: str, home: str = "") -> Plan:
    """Everything that this command line runs when it is started in this folder."""
    from travois.policy.walk import Walker

    why = deceptive(command)
    if why:
        return Plan(command, unclear=why)
    walker = Walker(command, cwd=cwd, home=home)
    walker.run()
    assigned = tuple(dict.fromkeys(walker.assigned))
    return Plan(command, tuple(walker.steps), walker.unclear, assigned)
