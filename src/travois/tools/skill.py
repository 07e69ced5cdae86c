"""Skill: the model reads how a kind of work is done here, when it comes to it."""

from __future__ import annotations

import msgspec

from travois.core.content import Text
from travois.permissions.access import Access
from travois.ports.tool import Here, Outcome, Refusal, Tool
from travois.ports.world import Env


class SkillArgs(msgspec.Struct, frozen=True):
    """Which skill, and what it should be about."""

    name: str
    args: str = ""


async def _use(args: SkillArgs, env: Env, call: str) -> Outcome:
    if env.skills is None:
        raise Refusal("There are no skills here.")
    used = await env.skills.use(args.name.strip().removeprefix("/"), args.args, call=call)
    return Outcome((Text(used.text),), error=used.error, changes=used.changes)


def _access(args: SkillArgs, here: Here) -> tuple[Access, ...]:
    return (Access("spawn", args.name.strip().removeprefix("/")),)


SKILL = Tool(
    name="Skill",
    description="Use a skill: get its instructions, then follow them.",
    args=SkillArgs,
    access=_access,
    run=_use,
    summary=lambda args: f"Use skill {args.name} {args.args}".rstrip(),
)
