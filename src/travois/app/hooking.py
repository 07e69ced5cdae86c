"""The hooks of a session, put together from settings; and those at its two ends."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
from msgspec.structs import replace

from travois.app.opening import Found, Place
from travois.app.options import Options
from travois.engine.agent import Agent
from travois.engine.heard import SILENCE, Hooks
from travois.engine.hooked import Hook, Listener, called, parse
from travois.store.settings import Loaded


def known(loaded: Loaded) -> tuple[tuple[Hook, ...], tuple[str, ...]]:
    """The hooks that may run, and what the user should know of those that cannot."""
    whose = {path: plugin for plugin in loaded.plugins for path, _ in plugin.hooks}
    hooks, notices = list[Hook](), list[str]()
    for origin, tree in loaded.hooks:
        parsed, plugin = parse(tree, origin=origin), whose.get(origin)
        folder, keeps = (plugin.folder, plugin.keeps) if plugin else ("", "")
        hooks += (replace(hook, plugin=folder, keeps=keeps) for hook in parsed.hooks)
        notices += parsed.notices
    return tuple(hooks), tuple(notices)


def equip(
    agent: Agent,
    hooks: tuple[Hook | Listener, ...],
    loaded: Loaded,
    *,
    place: Place,
    found: Found,
    stack: AsyncExitStack,
) -> None:
    """Let these listen to a session, and others join them, unless that is switched off."""

    def install(hooks: tuple[Hook | Listener, ...] = ()) -> Hooks:
        from travois.host import hooks as running
        from travois.host.process import LocalProcesses

        settings, folder = loaded.settings, found.log.folder
        processes = LocalProcesses(passed=settings.env_passthrough, extra=settings.env)
        stack.push_async_callback(processes.aclose)
        ours, callbacks = called(hook for hook in hooks if isinstance(hook, Listener))
        urls, variables = settings.allowed_http_hook_urls, settings.http_hook_allowed_env_vars
        return running.LocalHooks(
            (*(hook for hook in hooks if isinstance(hook, Hook)), *ours),
            processes,
            place=running.Place(found.id, str(folder / "log.jsonl"), place.cwd, folder),
            reach=running.Reach(urls, variables),
            callbacks=callbacks,
        )

    agent.hooks = install(hooks) if hooks else None
    agent.hearing = None if loaded.settings.disable_all_hooks else install


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
