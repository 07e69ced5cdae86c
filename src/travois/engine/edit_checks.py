"""Checks of edits by language servers: the errors that a call brought, with its result.

Model sees: the errors that are new since the edit, at the end of the result, or of a later one.
Tokens: a few lines for each edit that brings errors.
Cache: unmoved, since a result that was sent never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import anyio
from msgspec.structs import replace

from travois.core.content import Text
from travois.engine.agent import Agent
from travois.engine.permission_gate import ParsedCall
from travois.ports.tool import ToolOutcome

FileContents = Mapping[str, bytes | None]


async def read_files_before(agent: Agent, ready: ParsedCall) -> FileContents:
    """Read the files that a call will change, as far as a language server knows their kind."""
    servers = agent.world.language_servers
    if servers is None or ready.plans:
        return {}
    written = (one.target for one in ready.accesses if one.kind == "write" and one.scope == "one")
    paths = [path for path in written if servers.checks_file(path)]
    return {path: await _read_if_there(agent, path) for path in paths}


async def _read_if_there(agent: Agent, path: str) -> bytes | None:
    with suppress(OSError):
        return await agent.world.files.read(path)
    return None


async def add_new_problems(agent: Agent, outcome: ToolOutcome, before: FileContents) -> ToolOutcome:
    """Add to a result the errors that the call, or an earlier one, brought into files."""
    found = [check.describe_errors() for check in agent.turn.late_checks if check.is_done]
    agent.turn.late_checks = tuple(one for one in agent.turn.late_checks if not one.is_done)
    if before and not outcome.error:
        found += await _check_edit(agent, before)
    return replace(outcome, content=(*outcome.content, *(Text(text) for text in found if text)))


async def _check_edit(agent: Agent, before: FileContents) -> list[str]:
    """Let language servers check an edit; what takes too long comes with a later result."""
    servers, turn = agent.world.language_servers, agent.turn
    assert servers is not None, "only their files were read"
    after = {path: await _read_if_there(agent, path) for path in before}
    until = anyio.current_time() + servers.edit_seconds
    found = list[str]()
    checks = servers.check_edit(before, after, root=agent.world.root)
    turn.late_checks = (*turn.late_checks, *checks)
    for check in checks:
        found.append(await check.wait_for_errors(max(0.0, until - anyio.current_time())))
        if check.is_done:
            turn.late_checks = tuple(one for one in turn.late_checks if one is not check)
    return found
