"""The hooks of a session, put together from settings; and those at its two ends."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio

from travois.app.opening import Found, Place
from travois.app.options import Options
from travois.engine.agent import Agent
from travois.engine.heard import SILENCE, Hooks
from travois.engine.hooked import Hook, Listener, called, parse
from travois.store.settings import Loaded


def known(loaded: Loaded) -> tuple[tuple[Hook, ...], tuple[str, ...]]:
    """The hooks that may run, and what the user should know of those that cannot."""
    files = [parse(tree, origin=origin) for origin, tree in loaded.hooks]
    hooks = tuple(hook for file in files for hook in file.hooks)
    return hooks, tuple(notice for file in files for notice in file.notices)


def install(
    hooks: tuple[Hook | Listener, ...],
    loaded: Loaded,
    place: Place,
    *,
    found: Found,
    stack: AsyncExitStack,
) -> Hooks | None:
    """Whoever listens to this session; none if nobody does."""
    if not hooks:
        return None
    from travois.host import hooks as running
    from travois.host.process import LocalProcesses

    settings = loaded.settings
    processes = LocalProcesses(passed=settings.env_passthrough, extra=settings.env)
    stack.push_async_callback(processes.aclose)
    folder = found.log.folder
    ours, callbacks = called(hook for hook in hooks if isinstance(hook, Listener))
    return running.LocalHooks(
        (*(hook for hook in hooks if isinstance(hook, Hook)), *ours),
        processes,
        place=running.Place(found.id, str(folder / "log.jsonl"), place.cwd, folder),
        reach=running.Reach(settings.allowed_http_hook_urls, settings.http_hook_allowed_env_vars),
        callbacks=callbacks,
    )


async def begin(agent: Agent, options: Options) -> tuple[str, ...]:
    """Tell hooks that a session begins; returns what the user should know."""
    if agent.hooks is None:
        return ()
    from travois.engine.hooks import fire
    from travois.engine.occasions import SessionStart

    resumed = "resume" if options.resume or options.latest else "startup"
    epoch = agent.session.view.epoch
    model = epoch.model.id if epoch else ""
    heard = await fire(agent, SessionStart("fork" if options.fork else resumed, model))
    return heard.messages


async def end(agent: Agent, *, typed: bool) -> tuple[str, ...]:
    """Tell hooks that a session is left, also while it is being cancelled."""
    if agent.hooks is None:
        return ()
    from travois.engine.hooks import fire
    from travois.engine.occasions import SessionEnd

    heard = SILENCE
    with anyio.CancelScope(shield=True):
        heard = await fire(agent, SessionEnd("prompt_input_exit" if typed else "other"))
    return heard.messages
