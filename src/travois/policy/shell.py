"""What a command line runs: exactly to allow it, generously to deny it."""

from __future__ import annotations

from functools import lru_cache

from travois.policy.glyphs import deceptive
from travois.policy.plan import Plan


@lru_cache(maxsize=256)
def plan(command: str, *, cwd: str, home: str = "", foreign: bool = False) -> Plan:
    """Everything that this command line runs when it is started in this folder.

    A foreign folder is part of another repository, whose settings git would obey.
    """
    from travois.policy.place import Start
    from travois.policy.walk import Walker

    why = deceptive(command)
    if why:
        return Plan(command, unclear=why)
    walker = Walker(command, Start(cwd, home, foreign))
    walker.run()
    assigned = tuple(dict.fromkeys(walker.assigned))
    return Plan(command, tuple(walker.steps), walker.unclear, assigned)
