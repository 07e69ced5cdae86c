"""Hooks of a session: composed from settings, and fired at its start and end."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Literal

import anyio
from msgspec.structs import replace

from travois.compose.agents import MAIN_AGENT_STATE
from travois.compose.open_session import OpenedSession, Workspace
from travois.compose.options import Options
from travois.core.errors import UserError
from travois.core.tokens import context_tokens
from travois.engine.agent import Agent, AgentHooks, AgentPermissions
from travois.hooks.config import Hook, Listener, build_callback_hooks, parse_hooks
from travois.hooks.events import (
    FileChanged,
    PostModelSwitch,
    PreModelSwitch,
    SessionEnd,
    SessionStart,
    Setup,
)
from travois.hooks.fire import fire_hooks
from travois.hooks.output import NO_DECISION, HookDecision, HookResult, Hooks
from travois.lazy_imports import lazy_imports
from travois.ports.world import Choice, ChoiceOption, ChoiceRequest
from travois.process.local_processes import LocalProcesses
from travois.sandbox.probe import SandboxSupport, find_sandbox_support
from travois.sessions.blobs import BlobStore
from travois.sessions.session import Session
from travois.settings.schema import LoadedSettings

if TYPE_CHECKING:
    from travois.agents.types import AgentType
    from travois.compat.claude_transcript import ClaudeTranscriptFile
    from travois.hooks.events import SessionStart

with lazy_imports():
    from travois.compat import claude_transcript
    from travois.hooks import model_hooks, run
    from travois.sandbox import policy


LeaveReason = Literal["clear", "resume", "prompt_input_exit", "other"]
"""The reason why a session is left: another session, the user's wish, or anything else."""
WATCH_POLL_SECONDS = 1.0
"""The seconds between checks of the files that hooks watch."""


def load_hooks(
    loaded: LoadedSettings, lead: AgentType | None = None
) -> tuple[tuple[Hook, ...], tuple[str, ...]]:
    """Load the hooks from settings and the main agent's type, and notices about errors in them."""
    whose = {path: plugin for plugin in loaded.plugins for path, _ in plugin.hooks}
    hooks, notices = list[Hook](), list[str]()
    for origin, tree in loaded.hooks:
        parsed, plugin = parse_hooks(tree, origin=origin), whose.get(origin)
        folder, keeps = (plugin.folder, plugin.keeps) if plugin else ("", "")
        own = origin in loaded.own_hooks
        hooks += (replace(hook, plugin=folder, keeps=keeps, own=own) for hook in parsed.hooks)
        notices += parsed.notices
        if not own and any(hook.env for hook in parsed.hooks):
            notices.append(
                f"{origin}: `env` in its hooks is ignored: only your own settings may set it"
            )
    if lead is not None and not loaded.settings.disable_all_hooks:
        of_type = parse_hooks(lead.hooks, origin=lead.origin)
        hooks, notices = [*hooks, *of_type.hooks], [*notices, *of_type.notices]
    return tuple(hooks), tuple(notices)


def compose_hooks(
    hooks: tuple[Hook | Listener, ...],
    loaded: LoadedSettings,
    session: Session,
    *,
    permissions: AgentPermissions,
    workspace: Workspace,
    opened: OpenedSession,
    stack: AsyncExitStack,
) -> AgentHooks:
    """Compose a session's hooks; other programs may join unless that is disabled.

    The stack closes what they open when the session ends.
    """

    def install_hooks(hooks: tuple[Hook | Listener, ...] = ()) -> Hooks:
        settings, folder = loaded.settings, opened.log.folder
        support = _probe_sandbox(workspace) if permissions.sandbox else None
        processes = LocalProcesses(
            passed=settings.env_passthrough, extra=settings.env, support=support
        )
        stack.push_async_callback(processes.aclose)
        ours, callbacks = build_callback_hooks(hook for hook in hooks if isinstance(hook, Listener))
        urls, variables = settings.allowed_http_hook_urls, settings.http_hook_allowed_env_vars
        return run.LocalHooks(
            (*(hook for hook in hooks if isinstance(hook, Hook)), *ours),
            processes,
            place=run.HookEnvironment(
                opened.id,
                str(folder / "log.jsonl"),
                workspace.cwd,
                folder,
                sandbox=lambda shown: (
                    policy.build_program_profile(
                        permissions.sandbox, permissions.guard, shown=shown
                    )
                    if permissions.sandbox
                    else None
                ),
                sandboxed=settings.sandbox.hooks,
            ),
            reach=run.HttpHookLimits(urls, variables),
            callbacks=callbacks,
        )

    return AgentHooks(
        active=install_hooks(hooks) if hooks else None,
        make=None if loaded.settings.disable_all_hooks else install_hooks,
        run_inline=_run_inline_hook,
        write_transcript=_transcript_writer(session, workspace, opened=opened, stack=stack),
    )


def _probe_sandbox(workspace: Workspace) -> SandboxSupport | None:
    return find_sandbox_support(workspace.home.cache / "walls.json", workspace=workspace.cwd)


async def _run_inline_hook(agent: Agent, hook: Hook, event: bytes) -> HookResult:
    """Run a hook that asks a model instead of starting a program."""
    return await model_hooks.run_model_hook(agent, hook, event)


def _transcript_writer(
    session: Session, workspace: Workspace, *, opened: OpenedSession, stack: AsyncExitStack
) -> Callable[[], str]:
    """Return a function that writes the transcript for hooks, from its first use on."""
    kept: list[ClaudeTranscriptFile] = []

    def write_transcript() -> str:
        if not kept:
            path = str(opened.log.folder / f"{opened.id}.jsonl")
            events = stack.enter_context(session.watch())
            writer = claude_transcript.ClaudeTranscriptWriter(
                opened.id, BlobStore(workspace.home.blobs).get
            )
            kept.append(claude_transcript.ClaudeTranscriptFile(path, writer, events=events))
            kept[0].write_history(session.all_entries())
        kept[0].write_new_entries()
        return kept[0].path

    return write_transcript


async def fire_session_start(agent: Agent, options: Options) -> tuple[str, ...]:
    """Fire the SessionStart hooks; return notices for the user."""
    if agent.hooks.active is None:
        return ()
    ready = await fire_hooks(agent, Setup(options.setup)) if options.setup else NO_DECISION
    heard = await fire_hooks(agent, _build_start_event(agent, options))
    return (*ready.messages, *heard.messages)


def _build_start_event(agent: Agent, options: Options) -> SessionStart:
    """Build the SessionStart event; a resumed session's includes its cache state."""
    name, kind = (agent.session.state.get(key, "") for key in ("name", MAIN_AGENT_STATE))
    if not options.resume and not options.latest:
        return SessionStart("clear" if options.cleared else "startup", name, kind)
    cache, now = agent.session.cache, agent.runtime.clock()
    return SessionStart(
        "fork" if options.fork else "resume",
        name,
        kind,
        seconds_since_last_response=round(now - cache.used, 1) if cache.used else 0.0,
        context_tokens=context_tokens(agent.session.view),
        prompt_cache_likely_expired=not cache.seconds_left(now),
    )


@asynccontextmanager
async def fire_model_switch(agent: Agent, name: str, *, source: str) -> AsyncGenerator[None]:
    """Fire hooks before and after a model switch; raises `UserError` if one objects."""
    epoch = agent.session.view.epoch
    if agent.hooks.active is None or agent.models.named is None or epoch is None:
        yield
        return
    before, after, view = epoch.model.name, agent.models.named(name).card.name, agent.session.view
    warm = agent.session.cache.seconds_left(agent.runtime.clock()) > 0
    told = (before, after, name, source, context_tokens(view), warm)
    heard = await fire_hooks(agent, PreModelSwitch(*told))
    if why := heard.block or heard.stop or await _ask_about_switch(agent, heard, after):
        raise UserError(f"The model stays {before}", why=f"a hook says: {why}", code=1)
    yield
    await fire_hooks(agent, PostModelSwitch(*told))


async def _ask_about_switch(agent: Agent, decision: HookDecision, model: str) -> str:
    """Return why the user declines a model switch that hooks ask about; empty if accepted."""
    if decision.decision != "ask":
        return ""
    why = decision.reason or "the new model has to read the whole conversation again"
    choice = Choice(f"Switch to {model}? {why}", (ChoiceOption("Yes"), ChoiceOption("No")))
    answer = await agent.permissions.person.choose(ChoiceRequest("", (choice,)))
    return "" if answer == ("Yes",) else why


async def watch_hook_files(agent: Agent) -> None:
    """Fire hooks when watched files change, as long as the session is open."""
    assert agent.hooks.active is not None
    seen = _modification_times(agent.hooks.active.files_to_watch)
    while True:
        await anyio.sleep(WATCH_POLL_SECONDS)
        found = _modification_times(agent.hooks.active.files_to_watch)
        for path, stamp in found.items():
            before = seen.get(path, stamp)
            if stamp != before:
                change = "unlink" if not stamp else "change" if before else "add"
                await fire_hooks(agent, FileChanged(path, change))
        seen = found


def _modification_times(paths: Iterable[str]) -> dict[str, int]:
    """Return the modification time of each file that hooks watch; zero if missing."""
    found: dict[str, int] = {}
    for path in paths:
        try:
            found[path] = os.stat(path).st_mtime_ns
        except OSError:
            found[path] = 0
    return found


async def fire_session_end(agent: Agent, why: LeaveReason) -> tuple[str, ...]:
    """Fire the SessionEnd hooks, even while the session is being cancelled."""
    if agent.hooks.active is None:
        return ()
    heard = NO_DECISION
    with anyio.CancelScope(shield=True):
        heard = await fire_hooks(agent, SessionEnd(why))
    return heard.messages
