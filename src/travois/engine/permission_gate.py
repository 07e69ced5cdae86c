"""The permission gate: rules, mode, hooks and the user decide on each tool call."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.content import Call
from travois.core.facts import Asked, Decided, Noted
from travois.engine.agent import Agent, enter_mode
from travois.engine.sandbox_auto_allow import (
    accept_sandbox,
    check_protected_files,
    find_free_modes,
    find_ruled_reads,
    folders_to_offer,
    hide_covered_folders,
    judge_unasked,
    should_offer_sandbox,
)
from travois.hooks.events import PermissionRequest
from travois.hooks.fire import (
    apply_permission_updates,
    decode_call_args,
    fire_hooks,
    on_pre_tool_use,
)
from travois.hooks.output import NO_DECISION, HookDecision
from travois.permissions import question as narrow
from travois.permissions.access import Access
from travois.permissions.decide import (
    PERMISSION_MODES,
    PLAN_MODE_REASON,
    PermissionDecision,
    decide_permission,
)
from travois.permissions.paths import is_inside
from travois.permissions.resolve_paths import (
    find_repository_around,
    home_folder,
    parse_plain_arguments,
)
from travois.permissions.rules import ToolUse, parse_permission_rule
from travois.permissions.sandbox_profile import TMP_FOLDERS, SandboxProfile
from travois.permissions.shell.families import is_builder
from travois.permissions.shell.judge import plan_command
from travois.permissions.shell.plan import CommandPlan
from travois.permissions.updates import ALLOW_SANDBOXED_UPDATE, suggest_updates
from travois.ports.tool import AnyTool
from travois.ports.world import SANDBOX_OFFER, PermissionQuestion, PersonAnswer, content_digest
from travois.sandbox.policy import (
    asks_to_leave_sandbox,
    build_sandbox_profile,
    can_try_read_only,
    find_held_back_path,
    runs_outside_sandbox,
)
from travois.snapshots.uncovered import warn_of_uncovered

NO_UNSANDBOXED_REASON = "the settings allow no command outside the sandbox"
PROTECTED_WRITE_REASON = (
    "{} is protected, and the command that writes it also runs code with unknown effects; "
    "make the write a separate call"
)
ApprovalSource = Literal["rules", "person"]
OWN_GIT_COMMAND = "git worktree add x"
"""A git command that writes, by which our own writing git is judged."""
PLAN_TRIAL_REASON = "plan mode: its effects are unknown, so it runs read-only and without network"
TRIAL_REASON = "its effects are unknown, so it runs read-only and without network first"


class ParsedCall(msgspec.Struct, frozen=True):
    """A parsed tool call: its tool, its arguments, and its accesses."""

    call: Call
    tool: AnyTool
    args: msgspec.Struct
    accesses: tuple[Access, ...]
    plans: tuple[CommandPlan, ...] = ()
    """The analysed command lines."""
    remarks: tuple[str, ...] = ()
    """Remarks for its result."""
    cwd: str = ""
    """The folder that it names to run in; empty for where the shell stands."""
    tokens: int = 0
    """The most tokens that its result may take, where it says so itself; else 0."""

    @property
    def collision_accesses(self) -> tuple[Access, ...]:
        """The accesses that can collide with calls that run at the same time."""
        if not self.plans or not all(plan.is_read_only for plan in self.plans):
            return self.accesses
        plain = tuple(access for access in self.accesses if access.kind != "exec")
        return (*plain, *(access for plan in self.plans for access in plan.accesses))


class CallDecision(msgspec.Struct, frozen=True):
    """The permission decision on a tool call, and the sandbox it runs in."""

    decided: Decided
    sandbox: SandboxProfile | None = None
    trial: bool = False
    """True for a read-only run that is asked about only if it fails."""
    input: str = ""
    """The input that came with the permission instead, as JSON text."""


async def decide_call(
    agent: Agent, ready: ParsedCall, decision: HookDecision = NO_DECISION
) -> CallDecision:
    """Decide permission for a tool call and its sandbox; `heard` is the hooks' decision."""
    wanted = build_call_context(agent, ready)
    verdict = _decide_with_hook_result(agent, wanted, decision)
    if ready.tool.judged_as:
        verdict = _prefer_named_rule(
            decide_permission(agent.permissions.guard, replace(wanted, tool=ready.call.name)),
            verdict,
        )
    if (
        agent.permissions.sandbox is not None
        and not agent.permissions.sandbox.leaving
        and asks_to_leave_sandbox(wanted)
    ):
        return CallDecision(Decided(ready.call.id, "deny", NO_UNSANDBOXED_REASON, by="sandbox"))
    if ready.tool.judged_as and agent.permissions.guard.mode == "plan" and verdict.effect == "ask":
        return CallDecision(Decided(ready.call.id, "deny", PLAN_MODE_REASON))
    if agent.permissions.sandbox is not None and verdict.effect != "deny":
        held = find_held_back_path(agent.permissions.sandbox, agent.permissions.guard, wanted)
        if held:
            return CallDecision(
                Decided(ready.call.id, "deny", PROTECTED_WRITE_REASON.format(held), by="sandbox")
            )
    # What a call does to a program that runs already cannot be tried in another sandbox first.
    tries = not ready.tool.judged_as and _can_try_read_only(agent, wanted, verdict)
    if verdict.effect == "ask" and tries:
        assert agent.permissions.sandbox is not None
        around = build_sandbox_profile(
            agent.permissions.sandbox, agent.permissions.guard, wanted, profile="look"
        )
        why = PLAN_TRIAL_REASON if agent.permissions.guard.mode == "plan" else TRIAL_REASON
        return CallDecision(Decided(ready.call.id, "allow", why, by="sandbox"), around, trial=True)
    if verdict.effect == "ask":
        return await ask_person(agent, ready, because=verdict.because)
    decided = Decided(ready.call.id, verdict.effect, verdict.because, by=verdict.by)
    if verdict.effect == "allow" and _needs_missing_sandbox(agent, wanted):
        return CallDecision(
            replace(decided, verdict="deny", because=agent.permissions.sandbox_missing)
        )
    around = sandbox_for_call(agent, wanted, unasked=verdict.by == "sandbox")
    if verdict.by != "hook":
        around = check_protected_files(agent, wanted, around)
    return CallDecision(
        decided, hide_covered_folders(agent, wanted, around) if verdict.by == "mode" else around
    )


def preapprove_call(
    agent: Agent, ready: ParsedCall, *, by: ApprovalSource = "rules"
) -> CallDecision | None:
    """Return the permission decision on a call that needs no question; None if it needs one.

    A call that the user requested is judged as in bypass mode.
    """
    wanted = build_call_context(agent, ready)
    guard = (
        agent.permissions.guard
        if by == "rules"
        else replace(agent.permissions.guard, mode="bypass")
    )
    verdict = decide_permission(guard, wanted)
    if verdict.effect != "allow" or _needs_missing_sandbox(agent, wanted):
        return None
    decided = Decided(ready.call.id, "allow", verdict.because, by=verdict.by)
    around = sandbox_for_call(agent, wanted)
    return CallDecision(
        decided, check_protected_files(agent, wanted, around) if by == "rules" else around
    )


def _decide_with_hook_result(
    agent: Agent, use: ToolUse, decision: HookDecision
) -> PermissionDecision:
    """Decide permission by rules and mode; a hook may still ask, or allow what the mode asks."""
    verdict = _restrict_in_plan_mode(agent, use, judge_unasked(agent, use))
    because = f"hook: {decision.reason or 'no reason given'}"
    if decision.decision in ("ask", "defer") and verdict.effect == "allow":
        return PermissionDecision("ask", because, "hook")
    if decision.decision == "allow" and verdict.effect == "ask":
        granted = decide_permission(replace(agent.permissions.guard, mode="bypass"), use)
        return (
            PermissionDecision("allow", because, "hook") if granted.effect == "allow" else verdict
        )
    return verdict


def _restrict_in_plan_mode(
    agent: Agent, use: ToolUse, verdict: PermissionDecision
) -> PermissionDecision:
    """Ask permission in plan mode unless the sandbox makes an allowed command read-only."""
    if agent.permissions.guard.mode != "plan" or verdict.effect != "allow":
        return verdict
    held = agent.permissions.sandbox is not None and not runs_outside_sandbox(
        agent.permissions.sandbox, use
    )
    if held or all(plan.is_read_only for plan in use.plans):
        return verdict
    return PermissionDecision(
        "ask", "may change something, and no sandbox prevents it in plan mode"
    )


def _prefer_named_rule(own: PermissionDecision, verdict: PermissionDecision) -> PermissionDecision:
    """Return the decision of a permission rule that names the tool itself, else the verdict.

    Such a rule wins over the mode; of two rules the stricter one applies.
    """
    strict = own.effect != "allow" or verdict.by != "rule"
    return own if own.by == "rule" and verdict.effect != "deny" and strict else verdict


async def ask_person(
    agent: Agent, ready: ParsedCall, *, because: str, offers: bool = True
) -> CallDecision:
    """Ask the user for permission; the answer holds for exactly what they were shown.

    `offers` says whether running without questions in the sandbox may be offered: not for what
    would fail there.
    """
    wanted = build_call_context(agent, ready)
    around = sandbox_for_call(agent, wanted)
    question = PermissionQuestion(
        call=ready.call.id,
        tool=ready.call.name,
        args=ready.call.args,
        summary=ready.tool.summary(ready.args),
        because=because,
        effects=(*narrow.describe_effects(wanted, around), *warn_of_uncovered(agent, ready.plans)),
        always=narrow.narrowest_rules(
            agent.permissions.guard, wanted, around, folders=folders_to_offer(agent, wanted)
        ),
        offers_sandbox=offers and not ready.tool.judged_as and should_offer_sandbox(agent, wanted),
        modes=find_free_modes(agent, wanted) if offers else (),
        digest=_digest_question(agent, ready),
    )
    if agent.hooks.active is not None and (decided := await _ask_hooks(agent, question, wanted)):
        return replace(decided, sandbox=around)
    agent.session.append(Asked(question.call, question.summary, question.digest))
    answer = await agent.permissions.person.decide(question)
    agent.turn.stop_reason = agent.turn.stop_reason or answer.stop
    decided = _apply_answer(agent, question, answer)
    if (
        question.offers_sandbox
        and agent.permissions.sandbox is not None
        and agent.permissions.sandbox.free
    ):
        around = sandbox_for_call(agent, wanted, unasked=True)
    return CallDecision(decided, around, input=answer.input)


async def _ask_hooks(
    agent: Agent, question: PermissionQuestion, use: ToolUse
) -> CallDecision | None:
    """Return a permission hook's answer in place of the user's; None if there is none."""
    call = Call(question.call, question.tool, question.args)
    always = suggest_updates(parse_permission_rule(rule, "allow") for rule in question.always)
    offer = (ALLOW_SANDBOXED_UPDATE,) if question.offers_sandbox else ()
    occasion = PermissionRequest(call.name, decode_call_args(call), (*always, *offer))
    heard = await fire_hooks(agent, occasion, call=call.id, use=use)
    if why := heard.block or heard.stop:
        return CallDecision(Decided(call.id, "deny", why, by="hook"))
    if heard.decision != "allow":
        return None
    apply_permission_updates(agent, heard.updates)
    because = f"a hook answered for the user: {question.because}"
    return CallDecision(Decided(call.id, "allow", because, by="hook"), input=heard.input)


def _apply_answer(agent: Agent, question: PermissionQuestion, answer: PersonAnswer) -> Decided:
    """Turn a person's answer into a permission decision, and save the rules that it adds."""
    if answer.digest and answer.digest != question.digest:
        return Decided(question.call, "deny", "the answer was for another question", by="person")
    because = answer.reason or question.because
    if answer.allow:
        apply_permission_updates(agent, answer.updates)
    if answer.allow and answer.always and question.always:
        _save_rules(agent, question.always, everywhere=answer.everywhere)
        because = f"{because}; from now on: {', '.join(question.always)}"
    if answer.allow and answer.sandbox and question.offers_sandbox:
        accept_sandbox(agent)
        agent.permissions.save_rules(ALLOW_SANDBOXED_UPDATE)
        because = f"{because}; from now on: {SANDBOX_OFFER}"
    if answer.allow and answer.mode in question.modes:
        enter_mode(agent, next(mode for mode in PERMISSION_MODES if mode == answer.mode))
        because = f"{because}; from now on in mode {answer.mode}"
    return Decided(question.call, "allow" if answer.allow else "deny", because, by="person")


def _save_rules(agent: Agent, rules: tuple[str, ...], *, everywhere: bool) -> None:
    """Add permission rules from now on, and save them for the project or for all sessions."""
    parsed = tuple(parse_permission_rule(rule, "allow", origin="your answer") for rule in rules)
    agent.permissions.guard = replace(
        agent.permissions.guard, rules=(*agent.permissions.guard.rules, *parsed)
    )
    place = "userSettings" if everywhere else "localSettings"
    for each in suggest_updates(parsed):
        agent.permissions.save_rules(replace(each, destination=place))


def _can_try_read_only(agent: Agent, use: ToolUse, verdict: PermissionDecision) -> bool:
    """Return whether a call may first run in a read-only sandbox, before asking permission."""
    if (
        agent.permissions.sandbox is None
        or not agent.permissions.sandbox.look_first
        or not verdict.doubt
    ):
        return False
    if runs_outside_sandbox(agent.permissions.sandbox, use) or not can_try_read_only(
        agent.permissions.guard, use
    ):
        return False
    if agent.permissions.guard.mode == "plan":
        return True
    steps = (step for plan in use.plans for step in plan.steps)
    # They would fail for what they write, after minutes, and run again.
    if agent.permissions.sandbox.attended and any(map(is_builder, steps)):
        return False
    return {("run_in_background", "true"), ("sandbox", "write")}.isdisjoint(use.params)


def sandbox_for_call(agent: Agent, use: ToolUse, *, unasked: bool = False) -> SandboxProfile | None:
    """Return the sandbox for a permitted call; unapproved commands get a narrower one."""
    if agent.permissions.sandbox is None or not use.plans:
        return None
    looks = all(plan.is_read_only for plan in use.plans)
    if not unasked or looks:
        return build_sandbox_profile(agent.permissions.sandbox, agent.permissions.guard, use)
    shown = (*agent.permissions.sandbox.shown, *find_ruled_reads(agent.permissions.guard, use))
    return build_sandbox_profile(
        replace(agent.permissions.sandbox, shown=shown),
        agent.permissions.guard,
        use,
        profile="work",
    )


def sandbox_for_git(agent: Agent, *, writes: tuple[str, ...] = ()) -> SandboxProfile | None:
    """Return the sandbox for git run by the harness: read-only, or writing these folders too.

    It holds whatever programs the repository's settings start.
    """
    if agent.permissions.sandbox is None:
        return None
    plans = (
        (plan_command(OWN_GIT_COMMAND, cwd=agent.world.root, home=home_folder()),) if writes else ()
    )
    own = ToolUse("Git", (), agent.world.root, home_folder(), plans=plans)
    around = build_sandbox_profile(
        agent.permissions.sandbox,
        agent.permissions.guard,
        own,
        profile="work" if writes else "look",
    )
    assert around is not None, "a profile was given"
    top = find_repository_around(agent.session.state.get("cwd", agent.world.root))
    # The private /tmp hides what else lies there, and so is the home hidden.
    hidden = (*TMP_FOLDERS, *agent.permissions.sandbox.covered)
    seen = (top,) if any(is_inside(top, folder) and top != folder for folder in hidden) else ()
    if not writes:
        return replace(around, shown=(*around.shown, *seen))
    return replace(around, writable=(*around.writable, *writes), network="on")


def _needs_missing_sandbox(agent: Agent, use: ToolUse) -> bool:
    """Return whether a call would run with neither permission nor a sandbox."""
    risky = any(not plan.is_read_only for plan in use.plans)
    return risky and agent.permissions.sandbox is None and bool(agent.permissions.sandbox_missing)


def _digest_question(agent: Agent, ready: ParsedCall) -> str:
    """Return a permission question's digest of call and folder, to match the answer."""
    place = ready.cwd or agent.session.state.get("cwd", agent.world.root)
    return content_digest(
        "\0".join((ready.call.name, ready.call.args, place)).encode(errors="replace")
    )


def build_call_context(agent: Agent, ready: ParsedCall) -> ToolUse:
    """Return a tool call as permission rules see it."""
    return ToolUse(
        ready.tool.judged_as or ready.call.name,
        ready.accesses,
        agent.world.root,
        home_folder(),
        plans=ready.plans,
        params=parse_plain_arguments(ready.call.args),
        exported=frozenset(os.environ),
    )


# The say of hooks before a call runs: they may deny it, ask, grant, or change what it does.


ParseCall = Callable[[Agent, Call], ParsedCall | str]
"""Parses a call, or returns why it cannot run."""


async def decide_with_hooks(
    agent: Agent, ready: ParsedCall, understand: ParseCall
) -> tuple[ParsedCall, CallDecision]:
    """Decide permission with hooks; return the call as they changed it, and the decision."""
    wanted = build_call_context(agent, ready)
    # No hook can lift a denial, so none is asked.
    if decide_permission(agent.permissions.guard, wanted).effect == "deny":
        return ready, await decide_call(agent, ready)
    heard = await on_pre_tool_use(agent, ready.call, wanted)
    if why := heard.block or heard.stop:
        return ready, _deny_by_hook(ready, why)
    if heard.input:
        changed = _change_input(agent, ready, heard.input, understand)
        if isinstance(changed, str):
            return ready, _deny_by_hook(ready, changed)
        ready = changed
    return apply_changed_input(agent, ready, await decide_call(agent, ready, heard), understand)


def apply_changed_input(
    agent: Agent, ready: ParsedCall, ruling: CallDecision, understand: ParseCall
) -> tuple[ParsedCall, CallDecision]:
    """Apply a tool input changed by a permission answer, and decide permission again."""
    if not ruling.input or ruling.decided.verdict == "deny":
        return ready, ruling
    changed = _change_input(agent, ready, ruling.input, understand)
    if isinstance(changed, str):
        return ready, _deny_by_hook(ready, changed)
    wanted = build_call_context(agent, changed)
    verdict = decide_permission(agent.permissions.guard, wanted)
    if verdict.effect == "deny":
        return ready, _deny_by_hook(ready, verdict.because)
    return changed, replace(ruling, input="", sandbox=sandbox_for_call(agent, wanted))


def _change_input(
    agent: Agent, ready: ParsedCall, text: str, understand: ParseCall
) -> ParsedCall | str:
    """Return the tool call with another input, and log the change."""
    call = replace(ready.call, args=text)
    fact = {"call": call.id, "before": ready.call.args, "after": text}
    agent.session.append(Noted("hook changed input", msgspec.json.encode(fact).decode()))
    found = understand(agent, call)
    return f"a hook changed its input, and then {found}" if isinstance(found, str) else found


def _deny_by_hook(ready: ParsedCall, why: str) -> CallDecision:
    return CallDecision(Decided(ready.call.id, "deny", why, by="hook"))
