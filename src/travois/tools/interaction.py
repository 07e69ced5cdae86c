"""EnterPlanMode and ExitPlanMode: plan first, and work once the person agrees to the plan."""

from __future__ import annotations

import os
import re

import msgspec

from travois.core.content import Text
from travois.core.facts import Changed
from travois.engine.permission_modes import MODE
from travois.permissions.access import Access
from travois.ports.tool import Outcome, Refusal, Tool, said
from travois.ports.world import Choice, Env, Option, Unanswered

YES = Option("Yes", "begin; what changes anything is still asked about")
EDITS = Option("Yes, and accept edits", "begin; edits in the workspace are not asked about")
NO = Option("No, keep planning", "or say what should be different")
READY = Choice("Is this the plan to carry out?", (YES, EDITS, NO), header="Plan")
AFTER = {YES.label: "default", EDITS.label: "accept-edits"}
ALONE = "Nobody is there to agree to the plan: give it as your answer, and end here."


ENTERED = (
    "Plan mode holds: read and search, and change nothing. Ask the user what is open with "
    "AskUserQuestion, then present your plan with ExitPlanMode."
)


class EnterPlanArgs(msgspec.Struct, frozen=True):
    """Nothing to say."""


async def _enter(args: EnterPlanArgs, env: Env, call: str) -> Outcome:
    return said(ENTERED, changes=(Changed(MODE, "plan"),))


class PlanArgs(msgspec.Struct, frozen=True):
    """What is to be done, as markdown."""

    plan: str


async def _present(args: PlanArgs, env: Env, call: str) -> Outcome:
    if env.mode != "plan":
        raise Refusal("There is no plan mode to leave: go on with the work.")
    try:
        (answer,) = await env.choose((READY,), plan=args.plan)
    except Unanswered:
        raise Refusal(ALONE) from None
    if (mode := AFTER.get(answer)) is None:
        wish = "" if answer == NO.label else f" They say: {answer}"
        return said(f"The user wants to go on planning.{wish} Plan mode holds.")
    told = f"The user agreed to the plan. The mode is {mode}: carry it out."
    return said(told, changes=(Changed(MODE, mode),))


def kept_in(folder: str) -> Tool[PlanArgs]:
    """The same tool, which keeps each plan that was agreed to as a file."""

    async def present(args: PlanArgs, env: Env, call: str) -> Outcome:
        outcome = await _present(args, env, call)
        if outcome.changes:
            title = "-".join(re.findall(r"\w+", args.plan.lower()))[:40].strip("-") or "plan"
            path = os.path.join(env.root, os.path.expanduser(folder), f"{title}-{call[-6:]}.md")
            try:
                await env.files.replace(path, f"{args.plan}\n".encode(), expect=None)
            except OSError as error:
                lost = Text(f"It could not be kept as {path}: {error.strerror}")
                return msgspec.structs.replace(outcome, content=(*outcome.content, lost))
        return outcome

    return msgspec.structs.replace(PLAN, run=present)


ENTER_PLAN = Tool(
    name="EnterPlanMode",
    description=(
        "Ask to plan before anything is changed, where several ways are open or much depends on it."
    ),
    args=EnterPlanArgs,
    access=lambda args, here: (Access("spawn", "plan mode"),),
    run=_enter,
    summary=lambda args: "Plan first, without changing anything",
    deferred=True,
)

PLAN = Tool(
    name="ExitPlanMode",
    description="In plan mode only: put your finished plan to the user, who must agree to it.",
    args=PlanArgs,
    access=lambda args, here: (),
    run=_present,
    summary=lambda args: "A plan to agree to",
)
