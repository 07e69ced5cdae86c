"""AskUserQuestion and plan mode: tools that involve the user."""

from __future__ import annotations

import os
import re
from typing import Annotated

import msgspec

from travois.core.content import Text
from travois.core.facts import Changed
from travois.engine.agent import MODE_STATE
from travois.permissions.access import Access
from travois.ports.tool import Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Choice, ChoiceOption, Env, UnansweredQuestion

NOBODY_ANSWERED = "Nobody answered. Decide yourself, and state your assumptions in your reply."


class Offer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer that the user can choose."""

    label: str
    description: str = ""


class Asking(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One question with its possible answers."""

    question: str
    options: Annotated[tuple[Offer, ...], msgspec.Meta(min_length=2, max_length=6)]
    header: str = ""
    multi_select: bool = False


class AskArgs(msgspec.Struct, frozen=True):
    """The questions, which are asked together."""

    questions: Annotated[tuple[Asking, ...], msgspec.Meta(min_length=1, max_length=4)]


async def _run_ask_user(args: AskArgs, env: Env, call: str) -> ToolOutcome:
    """Run the AskUserQuestion tool: show the questions and return the user's answers."""
    choices = tuple(_to_choice(one) for one in args.questions)
    try:
        answers = await env.choose(choices)
    except UnansweredQuestion:
        raise ToolError(NOBODY_ANSWERED) from None
    found = dict(zip((one.question for one in choices), answers, strict=True))
    told = "\n".join(f"{question}\n  {answer}" for question, answer in found.items())
    return text_outcome(
        f"The user answered:\n{told}", detail=msgspec.json.encode({"answers": found}).decode()
    )


def _to_choice(asked: Asking) -> Choice:
    options = tuple(ChoiceOption(one.label, one.description) for one in asked.options)
    return Choice(asked.question, options, header=asked.header, several=asked.multi_select)


ASK_USER_QUESTION = Tool(
    name="AskUserQuestion",
    description=(
        "Ask the user to decide what only they can; put the option you recommend first. "
        "They may also answer in their own words."
    ),
    args=AskArgs,
    access=lambda args, here: (),
    run=_run_ask_user,
    summary=lambda args: args.questions[0].question,
)


# EnterPlanMode and ExitPlanMode: plan first, and work once the person agrees to the plan.


PLAN_YES = ChoiceOption("Yes", "start; other changes still need approval")
PLAN_YES_WITH_EDITS = ChoiceOption(
    "Yes, and accept edits", "start; edits in the workspace need no approval"
)
PLAN_NO = ChoiceOption("No, keep planning", "or say what to change")
PLAN_QUESTION = Choice(
    "Carry out this plan?", (PLAN_YES, PLAN_YES_WITH_EDITS, PLAN_NO), header="Plan"
)
MODE_AFTER_PLAN = {PLAN_YES.label: "default", PLAN_YES_WITH_EDITS.label: "accept-edits"}
NOBODY_TO_AGREE = "No one is available to approve the plan: give it as your answer and stop."


PLAN_MODE_TEXT = (
    "Plan mode is on: read and search, but change nothing. Clear up open questions with "
    "AskUserQuestion, then present your plan with ExitPlanMode."
)


class EnterPlanArgs(msgspec.Struct, frozen=True):
    """No arguments."""


async def _run_enter_plan_mode(args: EnterPlanArgs, env: Env, call: str) -> ToolOutcome:
    return text_outcome(PLAN_MODE_TEXT, changes=(Changed(MODE_STATE, "plan"),))


class PlanArgs(msgspec.Struct, frozen=True):
    """A plan as markdown."""

    plan: str


async def _run_exit_plan_mode(args: PlanArgs, env: Env, call: str) -> ToolOutcome:
    """Run the ExitPlanMode tool: ask the user to approve a plan, then leave plan mode."""
    if env.mode != "plan":
        raise ToolError("Plan mode is not on: continue with the work.")
    try:
        (answer,) = await env.choose((PLAN_QUESTION,), plan=args.plan)
    except UnansweredQuestion:
        raise ToolError(NOBODY_TO_AGREE) from None
    if (mode := MODE_AFTER_PLAN.get(answer)) is None:
        wish = "" if answer == PLAN_NO.label else f" They said: {answer}"
        return text_outcome(f"The user wants to keep planning.{wish} Plan mode stays on.")
    told = f"The user approved the plan. The permission mode is {mode}: carry it out."
    return text_outcome(told, changes=(Changed(MODE_STATE, mode),))


def save_plans_in(folder: str) -> Tool[PlanArgs]:
    """Return the ExitPlanMode tool extended to save each approved plan to a file."""

    async def present(args: PlanArgs, env: Env, call: str) -> ToolOutcome:
        outcome = await _run_exit_plan_mode(args, env, call)
        if outcome.changes:
            title = "-".join(re.findall(r"\w+", args.plan.lower()))[:40].strip("-") or "plan"
            path = os.path.join(env.root, os.path.expanduser(folder), f"{title}-{call[-6:]}.md")
            try:
                await env.files.replace(path, f"{args.plan}\n".encode(), expect=None)
            except OSError as error:
                lost = Text(f"The plan could not be saved to {path}: {error.strerror}")
                return msgspec.structs.replace(outcome, content=(*outcome.content, lost))
        return outcome

    return msgspec.structs.replace(EXIT_PLAN_MODE, run=present)


ENTER_PLAN_MODE = Tool(
    name="EnterPlanMode",
    description=(
        "Ask to plan before changing anything, when there are several ways or much is at stake."
    ),
    args=EnterPlanArgs,
    access=lambda args, here: (Access("spawn", "plan mode"),),
    run=_run_enter_plan_mode,
    summary=lambda args: "Plan first, without changing anything",
    deferred=True,
)

EXIT_PLAN_MODE = Tool(
    name="ExitPlanMode",
    description="Present your finished plan for approval, in plan mode.",
    args=PlanArgs,
    access=lambda args, here: (),
    run=_run_exit_plan_mode,
    summary=lambda args: "Plan for approval",
)
