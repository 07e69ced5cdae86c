"""Remember: keeping what the user asks for, for later sessions."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from travois.memory.drafts import Draft
from travois.memory.memory import Type
from travois.ports.tool import Outcome, Refusal, Tool, said
from travois.ports.world import Env


class RememberArgs(msgspec.Struct, frozen=True, omit_defaults=True):
    """What to keep, or the name of what to forget."""

    text: str = ""
    type: Type = "feedback"
    scope: Annotated[
        Literal["", "project", "user"], msgspec.Meta(description="user: in all their projects")
    ] = ""
    forget: Annotated[str, msgspec.Meta(description="name of one to drop")] = ""


async def _remember(args: RememberArgs, env: Env, call: str) -> Outcome:
    if env.memory is None:
        raise Refusal("Memory is switched off here. Tell the user.")
    if args.forget:
        return said(await env.memory.forget(args.forget))
    if not args.text.strip():
        raise Refusal("Give the text to remember, or the name of a memory to forget.")
    return said(await env.memory.remember(Draft(args.text, args.type, scope=args.scope or None)))


REMEMBER = Tool(
    name="Remember",
    description="Keep for later sessions what the user asks to remember.",
    args=RememberArgs,
    access=lambda args, here: (),
    run=_remember,
    summary=lambda args: f"Forget {args.forget}" if args.forget else f"Remember: {args.text}",
)
