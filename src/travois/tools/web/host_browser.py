"""Chromium by Playwright, in a thread with a loop of its own.

It has a profile that is thrown away, knows nothing of our environment, and gets out only through
the gate. It hangs on pipes: when we die, however that happens, it dies too.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from travois.core.errors import Fault
from travois.providers.http.fetch import Lookup, lookup
from travois.tools.web.browser import BrowserArgs, Seen
from travois.tools.web.browser_proxy import Gate, SessionSocket
from travois.tools.web.chromium import GONE, Window, first_line

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

T = TypeVar("T")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE = 45.0
"""After so many seconds the browser is taken to hang, and is ended."""
ROOT = "the browser has no sandbox of its own, since Travois runs as root"


def program(path: str = "") -> str:
    """The browser on this machine; raises `Fault` if it cannot be used."""
    from importlib.util import find_spec
    from shutil import which

    if find_spec("playwright") is None:
        fix = "pip install 'travois[browser]', or set browser.enabled to false."
        raise Fault("The browser needs Playwright, which is not installed", fix=fix)
    names = (os.path.expanduser(path),) if path else PROGRAMS
    if found := next(filter(None, map(which, names)), None):
        return found
    fix = "Install Chromium with your system's packages, or set browser.path; none is downloaded."
    raise Fault(f"There is no browser: {', '.join(names)}", fix=fix)


def driver_problem() -> str:
    """Return why the program by which Playwright drives a browser cannot run; empty if it can."""
    from subprocess import run

    from playwright._impl._driver import compute_driver_executable

    try:
        done = run([compute_driver_executable()[0], "--version"], check=False, capture_output=True)
    except OSError as error:
        return f"Playwright's driver cannot start: {error}"
    if done.returncode == 0:
        return ""
    said = first_line(done.stderr.decode(errors="replace").strip())
    return f"Playwright's driver cannot start: {said or f'exit code {done.returncode}'}"


class Chromium:
    """A browser that starts when a page is wanted, and again after it crashed."""

    def __init__(
        self,
        path: str,
        *,
        visible: bool = False,
        env: Mapping[str, str] | None = None,
        addresses: Lookup = lookup,
        session: SessionSocket = lambda family: None,
    ) -> None:
        self._path = path
        self._visible = visible
        self._env = os.environ if env is None else env
        self._addresses = addresses
        self._session = session
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._gate: Gate | None = None
        self._window: Window | None = None
        self._lock = anyio.Lock()

    @property
    def url(self) -> str:
        """Where the page in front is; empty if there is none."""
        return self._window.url if self._window else ""

    def named(self, ref: str) -> str:
        """What the page calls the element of that number."""
        return self._window.named(ref) if self._window else ""

    async def act(self, args: BrowserArgs) -> Seen:
        """Do one thing, and look at the page."""
        return await self._within(lambda window: window.act(args))

    async def picture(self) -> bytes:
        """What is in view, as JPEG."""
        return await self._within(lambda window: window.picture())

    async def aclose(self) -> None:
        """End the browser and its thread."""
        if self._portal is None:
            return
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._portal.call, self._end)
            self._serving.cancel()
            await anyio.to_thread.run_sync(self._stack.close)
        self._portal = None

    async def _within(self, work: Callable[[Window], Awaitable[T]]) -> T:
        """Do something in the browser's thread, one thing at a time."""
        async with self._lock:
            if self._portal is None:
                self._portal = await anyio.to_thread.run_sync(self._begin)
            future = self._portal.start_task_soon(self._do, work)
            try:
                return await anyio.to_thread.run_sync(future.result, abandon_on_cancel=True)
            finally:
                future.cancel()

    def _begin(self) -> BlockingPortal:
        from anyio.from_thread import start_blocking_portal

        portal = self._stack.enter_context(start_blocking_portal(name="travois-browser"))
        self._gate = Gate(
            lambda: bool(self._window and self._window.local()),
            addresses=self._addresses,
            session=self._session,
        )
        portal.call(_hush)
        self._serving = portal.start_task_soon(self._gate.serve)
        return portal

    async def _do(self, work: Callable[[Window], Awaitable[T]]) -> T:
        from playwright.async_api import Error

        try:
            with anyio.fail_after(PATIENCE):
                if self._window and not self._window.open_still:
                    await self._end()
                self._window = self._window or await self._opened()
                return await work(self._window)
        except TimeoutError:
            await self._end()
            raise OSError(f"the browser hung for {PATIENCE:g} s and was ended") from None
        except Error as error:
            what = first_line(error.message)
            if GONE.search(what):
                await self._end()
                what = f"the browser is gone ({what}); navigate starts it afresh"
            raise OSError(what) from None

    async def _opened(self) -> Window:
        assert self._gate is not None
        if problem := await anyio.to_thread.run_sync(driver_problem):
            raise OSError(problem)
        window = Window(self._path, self._gate, visible=self._visible, env=self._env)
        self._window = window
        try:
            await window.open()
        except BaseException:
            await self._end()
            raise
        return window

    async def _end(self) -> None:
        window, self._window = self._window, None
        if window is not None:
            with anyio.CancelScope(shield=True):
                await window.close()


def _hush() -> None:
    """Keep off the screen what Playwright leaves unheard when its driver dies."""
    from asyncio import get_running_loop

    get_running_loop().set_exception_handler(lambda loop, context: None)
