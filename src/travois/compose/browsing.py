"""The browser of a session, where the user wants one."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

from travois.compose.options import Options
from travois.core.errors import Fault
from travois.ports.agent import World
from travois.ports.tool import AnyTool
from travois.sessions.session import Session
from travois.settings.schema import Loaded


def opened(
    loaded: Loaded, options: Options, stack: AsyncExitStack, *, session: Session, world: World
) -> tuple[tuple[AnyTool, ...], tuple[str, ...]]:
    """The tool for it, and what the user should know; it starts when a page is wanted."""
    asked = loaded.settings.browser
    if not asked.enabled or (options.tools is not None and "Browser" not in options.tools):
        return (), ()
    from travois.tools.web.browser import browser
    from travois.tools.web.host_browser import ROOT, Chromium, program

    try:
        path = program(asked.path)
        window = Chromium(path, visible=asked.visible, session=world.processes.session_socket)
    except Fault as fault:
        return (), (f"{fault.what}. {fault.fix}",)
    stack.push_async_callback(window.aclose)
    tool = browser(window, images=lambda: _sees(session))
    return (tool,), (ROOT,) if os.geteuid() == 0 else ()


def _sees(session: Session) -> bool:
    epoch = session.view.epoch
    return epoch is None or epoch.model.images
