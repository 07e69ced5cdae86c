"""Chromium driven by Playwright, in a thread with its own event loop.

It has a throw-away profile, inherits nothing of our environment, and reaches the network only
through the proxy. It is connected by pipes: when we die, however that happens, it dies too.
"""

from __future__ import annotations

import os
import re
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from subprocess import run
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports
from travois.process.environment import build_minimal_environment
from travois.process.reap import JOB_MARK_VARIABLE, end_processes, find_process_tree
from travois.providers.http.fetch import AddressLookup, look_up_addresses
from travois.tools.web.browser import BrowserArgs, PageView
from travois.tools.web.browser_proxy import LOOPBACK_NAME, BrowserProxy, SessionSocket

if TYPE_CHECKING:
    from playwright.async_api import (
        Dialog,
        Download,
        ElementHandle,
        Error,
        Frame,
        Page,
        Playwright,
        Request,
    )

with lazy_imports():
    from playwright import async_api
    from playwright._impl import _driver

    from travois.files import installation


# One run of Chromium, and the page in front of it.


PAGE_READER_SCRIPT = Path(__file__).with_name("browser.js")
MAX_PAGE_CHARS = 400_000
"""Maximum characters read of a page."""
MAX_FRAMES = 12
MAX_PAGE_NEWS = 10
ELEMENT_TIMEOUT_MS = 5_000
PAGE_TIMEOUT_MS = 20_000
"""Milliseconds that an element and a page may take."""
SETTLE_STEP_SECONDS = 0.1
MAX_SETTLE_STEPS = 30
"""Length of a waiting step in seconds, and the maximum number of steps."""
LASTING_REQUESTS = ("eventsource", "websocket", "media", "ping")
"""Requests that may go on for as long as a page is open."""
CLOSE_TIMEOUT_SECONDS = 5.0
VIEWPORT_SIZE = (1280, 800)
BROWSER_GONE = re.compile(r"(Target|Page|Browser|Connection)[\w, ]* (crashed|closed|disconnected)")
ELEMENT_UNUSABLE = re.compile("intercepts pointer events|is not (visible|enabled|stable|editable)")
FIND_ELEMENT_SCRIPT = "(number) => window.__travois?.elements.get(number)?.deref()"
CHROMIUM_ARGS = (
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-features=WebRtcHideLocalIpsWithMdns,MediaRouter,OptimizationHints",
    "--disable-quic",
)
"""Switches that disable what would bypass the proxy."""


class BrowserWindow:
    """One run of the browser, with its pages."""

    def __init__(
        self, path: str, gate: BrowserProxy, *, visible: bool, env: Mapping[str, str]
    ) -> None:
        self._path = path
        self._gate = gate
        self._visible = visible
        self._env = env
        self._mark = os.urandom(8).hex()
        self._hosts: set[str] = set()
        """Hosts that somebody was asked about."""
        self._news: list[str] = []
        self._accept = False
        self._before: tuple[str, set[str]] = ("", set())
        self._heading = ""
        """The URL of the page in front, or the one it is navigating to."""
        self._pending: set[Request] = set()
        self._driver: Playwright | None = None
        self._pages: list[Page] = []
        """All that are open; the last one is in front."""

    async def open(self) -> None:
        """Start the browser with an empty page."""
        self._driver = await async_api.async_playwright().start()
        root = os.geteuid() == 0
        started = await self._driver.chromium.launch(
            executable_path=self._path,
            headless=not self._visible,
            chromium_sandbox=not root,
            proxy={"server": self._gate.url},
            env={**self._environment(), JOB_MARK_VARIABLE: self._mark},
            args=[*CHROMIUM_ARGS],
        )
        context = await started.new_context(
            accept_downloads=False,
            service_workers="block",
            viewport={"width": VIEWPORT_SIZE[0], "height": VIEWPORT_SIZE[1]},
        )
        context.set_default_timeout(ELEMENT_TIMEOUT_MS)
        context.on("page", self._on_page)
        context.on("request", self._on_request)
        context.on("requestfinished", self._on_request_end)
        context.on("requestfailed", self._on_request_end)
        await context.new_page()

    def _environment(self) -> dict[str, str]:
        """Return the browser's environment; its home does not exist, so that it leaves no files."""
        shown = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "XAUTHORITY")
        screen = {k: v for k, v in self._env.items() if k in shown} if self._visible else {}
        return {**build_minimal_environment(self._env), **screen, "HOME": "/nonexistent"}

    async def close(self) -> None:
        """Close the browser, by force if necessary."""
        with anyio.move_on_after(CLOSE_TIMEOUT_SECONDS):
            if self._driver is not None:
                await self._driver.stop()
        await end_processes(
            lambda: find_process_tree(f"{JOB_MARK_VARIABLE}={self._mark}", ()), grace=0.5
        )

    @property
    def url(self) -> str:
        """The URL of the page in front."""
        return self._page.url if self._pages and self._page.url.startswith("http") else ""

    @property
    def has_page(self) -> bool:
        """True if any page is open."""
        return bool(self._pages)

    @property
    def _page(self) -> Page:
        if not self._pages:
            raise OSError("the page was closed")
        return self._pages[-1]

    def element_name(self, ref: str) -> str:
        """Return the name of the element with that number, as last shown."""
        _, lines = self._before
        number = re.escape(ref.strip("[] "))
        wanted = re.compile(rf'\[{number}\] (\w+ "(?:[^"\\]|\\.)*")')
        return next((found[1] for line in lines if (found := wanted.search(line))), "")

    def is_local(self) -> bool:
        """Return whether all open pages are on this machine: only then may they reach it."""
        urls = {self._heading, *(page.url for page in self._pages[:-1])} - {"about:blank"}
        return bool(urls) and all(map(_is_loopback, urls))

    def _set_heading(self, url: str) -> None:
        self._heading = url
        if not self.is_local():
            self._gate.close_local_connections()

    async def act(self, args: BrowserArgs) -> PageView:
        """Perform one action, and view the page."""
        self._news, self._accept = [], args.accept
        self._gate.refused.clear()
        self._pending.clear()
        if args.action not in ("navigate", "back"):
            self._check_host_approved()
        match args.action:
            case "navigate":
                await self._navigate(args.url)
            case "click":
                element = await self._find_element(args.ref)
                await element.click()
            case "type":
                await self._type_into(args)
            case "back":
                await self._page.go_back(wait_until="domcontentloaded", timeout=PAGE_TIMEOUT_MS)
            case "wait":
                await self._wait_for_text(args.text)
            case "read" | "screenshot":
                pass
        if args.action != "read":
            await self._settle()
        return await self._view_page(whole=args.action in ("navigate", "read"))

    async def screenshot(self) -> bytes:
        """Return a screenshot of the viewport as JPEG."""
        self._check_host_approved()
        return await self._page.screenshot(type="jpeg", quality=80, timeout=PAGE_TIMEOUT_MS)

    async def _navigate(self, url: str) -> None:
        self._hosts.add(_page_host(url))
        self._set_heading(url)
        try:
            await self._page.goto(url, wait_until="domcontentloaded", timeout=PAGE_TIMEOUT_MS)
        except async_api.Error as error:
            if BROWSER_GONE.search(error.message):
                raise
            await self._settle()  # its own page of errors would disturb what is opened next
            raise OSError(f"{url} could not be opened: {self._navigation_error(error)}") from None

    def _navigation_error(self, error: Error) -> str:
        if "Download is starting" in error.message:
            return "it is a download; fetch it with Bash (curl -o)"
        return "; ".join(self._gate.refused) or first_error_line(error.message)

    async def _type_into(self, args: BrowserArgs) -> None:
        element = await self._find_element(args.ref)
        if await element.evaluate("(e) => e.tagName") == "SELECT":
            await element.select_option(label=args.text)
        else:
            await element.fill(args.text)
        if args.enter:
            await element.press("Enter")

    async def _wait_for_text(self, text: str) -> None:
        if text:
            await self._page.get_by_text(text).first.wait_for(timeout=PAGE_TIMEOUT_MS)
        else:
            await anyio.sleep(10 * SETTLE_STEP_SECONDS)

    async def _settle(self) -> None:
        """Wait for an action's effects; a page that never settles is viewed as it is."""
        quiet, left = 0, MAX_SETTLE_STEPS
        while quiet < 3 and left:
            await anyio.sleep(SETTLE_STEP_SECONDS)
            quiet, left = 0 if self._pending else quiet + 1, left - 1
        with suppress(async_api.Error):
            await self._page.wait_for_load_state("domcontentloaded", timeout=ELEMENT_TIMEOUT_MS)

    async def _view_page(self, *, whole: bool) -> PageView:
        page = self._page
        if page.url.startswith("chrome-error:"):
            why = "; ".join(self._gate.refused) or "no response"
            raise OSError(f"the next page could not be opened: {why}")
        self._check_host_approved()
        title, texts = "", list[str]()
        for number, frame in enumerate(page.frames[:MAX_FRAMES]):
            told, text = await _read_frame(frame, f"{number}:" if number else "")
            title = title or told
            texts += [f"(frame {number})"] * bool(number and text) + [text] * bool(text)
        text = "\n".join(texts)
        (url, known), lines = self._before, text.splitlines()
        self._before = page.url, set(lines)
        whole = whole or url != page.url
        shown = text if whole else "\n".join(line for line in lines if line not in known)
        return PageView(page.url, title, shown, whole, (*self._news, *self._gate.refused))

    def _check_host_approved(self) -> None:
        """Refuse to show a host that nobody approved, wherever a page may lead."""
        url = self._page.url
        if url != "about:blank" and _page_host(url.removeprefix("blob:")) not in self._hosts:
            raise PermissionError(f"the page led to {url[:500]}. To continue, navigate to it.")

    async def _find_element(self, ref: str) -> ElementHandle:
        frame, _, number = ref.strip("[] ").rpartition(":")
        if not number.isdecimal() or not (frame or "0").isdecimal():
            raise OSError(f"{ref!r} is not an element number on the page")
        frames = self._page.frames
        found = frames[int(frame or 0)] if int(frame or 0) < len(frames) else self._page.main_frame
        element = (await found.evaluate_handle(FIND_ELEMENT_SCRIPT, int(number))).as_element()
        if element is None:
            raise OSError(f"[{ref}] is no longer on the page: read the page again")
        return element

    # --- what pages do by themselves -------------------------------------------------------------

    def _add_news(self, news: str) -> None:
        if len(self._news) < MAX_PAGE_NEWS:
            self._news.append(news)

    def _on_request(self, request: Request) -> None:
        if request.resource_type not in LASTING_REQUESTS:
            self._pending.add(request)

    def _on_request_end(self, request: Request) -> None:
        self._pending.discard(request)

    def _on_page(self, page: Page) -> None:
        """Bring a new page to the front: the first one, or a window that another opened."""
        if self._pages:
            self._add_news(f"a new window opened and is now in front: {page.url[:200]}")
        self._pages.append(page)
        self._set_heading(page.url)
        page.on("dialog", self._on_dialog)
        page.on("download", self._on_download)
        page.on("close", self._on_close)
        page.on("framenavigated", partial(self._on_navigated, page))

    def _on_navigated(self, page: Page, frame: Frame) -> None:
        error = frame.url.startswith("chrome-error:")
        if page is self._page and frame == page.main_frame and not error:
            self._set_heading(frame.url)

    def _on_close(self, page: Page) -> None:
        front = page is self._pages[-1]
        self._pages.remove(page)
        if front and self._pages:
            self._set_heading(self._page.url)
            self._add_news(f"the window closed; now in front: {self._page.url[:200]}")

    async def _on_dialog(self, dialog: Dialog) -> None:
        accept = self._accept or dialog.type in ("alert", "beforeunload")
        done = "accepted" if accept else "dismissed (set accept to accept it)"
        self._add_news(f"the page showed a dialog: {dialog.message[:300]!r}, {done}")
        with suppress(async_api.Error):
            await (dialog.accept() if accept else dialog.dismiss())

    def _on_download(self, download: Download) -> None:
        self._add_news(f"a download was blocked: {download.url[:500]}; fetch it with Bash")


async def _read_frame(frame: Frame, prefix: str) -> tuple[str, str]:
    """Return the title and text of a browser page's frame; empty if it cannot be read."""
    script = PAGE_READER_SCRIPT.read_text("utf-8")
    try:
        told = await frame.evaluate(script, {"prefix": prefix, "room": MAX_PAGE_CHARS})
    except async_api.Error as error:
        if not prefix or BROWSER_GONE.search(error.message):
            raise
        return "", ""
    return str(told["title"]), str(told["text"])


def _page_host(url: str) -> str:
    return (urlsplit(url).hostname or "").rstrip(".")


def _is_loopback(url: str) -> bool:
    return bool(LOOPBACK_NAME.fullmatch(_page_host(url)))


def first_error_line(message: str) -> str:
    """Return the first line of a Playwright error, and why an element could not be used."""
    first, *log = re.sub(r"\x1b\[[0-9;]*m", "", message).strip().splitlines() or [""]
    why = next((line.strip(" -") for line in log if ELEMENT_UNUSABLE.search(line)), "")
    said = re.sub(r"^(\w+\.\w+): ", "", first)
    return f"{said} {why}".strip()[:500]


AnswerT = TypeVar("AnswerT")
BROWSER_PROGRAMS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)
BROWSER_TIMEOUT_SECONDS = 45.0
"""Seconds after which the browser counts as hung and is stopped."""
ROOT_WARNING = "the browser runs without its own sandbox because Travois runs as root"


def find_browser(path: str = "") -> str:
    """Return the path of the Chromium browser; raises `UserError` if there is none."""
    if find_spec("playwright") is None:
        fix = f"{installation.extra_command('browser')}, or set browser.enabled to false."
        raise UserError("The browser needs Playwright, which is not installed", fix=fix)
    names = (os.path.expanduser(path),) if path else BROWSER_PROGRAMS
    if found := next(filter(None, map(which, names)), None):
        return found
    fix = "Install Chromium from your system's packages, or set browser.path."
    raise UserError(f"No browser found: {', '.join(names)}", fix=fix)


def driver_problem() -> str:
    """Return why Playwright's driver cannot run Chromium; empty if it can."""
    try:
        done = run(
            [_driver.compute_driver_executable()[0], "--version"], check=False, capture_output=True
        )
    except OSError as error:
        return f"Playwright's driver cannot start: {error}"
    if done.returncode == 0:
        return ""
    said = first_error_line(done.stderr.decode(errors="replace").strip())
    return f"Playwright's driver cannot start: {said or f'exit code {done.returncode}'}"


class Chromium:
    """A browser that starts when a page is needed, and again after a crash."""

    def __init__(
        self,
        path: str,
        *,
        visible: bool = False,
        env: Mapping[str, str] | None = None,
        addresses: AddressLookup = look_up_addresses,
        session: SessionSocket = lambda family: None,
    ) -> None:
        self._path = path
        self._visible = visible
        self._env = os.environ if env is None else env
        self._addresses = addresses
        self._session = session
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._gate: BrowserProxy | None = None
        self._window: BrowserWindow | None = None
        self._lock = anyio.Lock()

    @property
    def url(self) -> str:
        """The URL of the page in front; empty if there is none."""
        return self._window.url if self._window else ""

    def element_name(self, ref: str) -> str:
        """Return the name of the element with that number."""
        return self._window.element_name(ref) if self._window else ""

    async def act(self, args: BrowserArgs) -> PageView:
        """Perform one action, and view the page."""
        return await self._run_in_browser(lambda window: window.act(args))

    async def screenshot(self) -> bytes:
        """Return a screenshot of the viewport as JPEG."""
        return await self._run_in_browser(lambda window: window.screenshot())

    async def aclose(self) -> None:
        """Close the browser and its thread."""
        if self._portal is None:
            return
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._portal.call, self._close_window)
            self._serving.cancel()
            await anyio.to_thread.run_sync(self._stack.close)
        self._portal = None

    async def _run_in_browser(self, work: Callable[[BrowserWindow], Awaitable[AnswerT]]) -> AnswerT:
        """Run work in the browser's thread, one action at a time."""
        async with self._lock:
            if self._portal is None:
                self._portal = await anyio.to_thread.run_sync(self._start_thread)
            future = self._portal.start_task_soon(self._run_action, work)
            try:
                return await anyio.to_thread.run_sync(future.result, abandon_on_cancel=True)
            finally:
                future.cancel()

    def _start_thread(self) -> BlockingPortal:
        portal = self._stack.enter_context(start_blocking_portal(name="travois-browser"))
        self._gate = BrowserProxy(
            lambda: bool(self._window and self._window.is_local()),
            addresses=self._addresses,
            session=self._session,
        )
        portal.call(_silence_loop_errors)
        self._serving = portal.start_task_soon(self._gate.serve)
        return portal

    async def _run_action(self, work: Callable[[BrowserWindow], Awaitable[AnswerT]]) -> AnswerT:
        try:
            with anyio.fail_after(BROWSER_TIMEOUT_SECONDS):
                if self._window and not self._window.has_page:
                    await self._close_window()
                self._window = self._window or await self._open_window()
                return await work(self._window)
        except TimeoutError:
            await self._close_window()
            raise OSError(
                f"the browser hung for {BROWSER_TIMEOUT_SECONDS:g} s and was stopped"
            ) from None
        except async_api.Error as error:
            what = first_error_line(error.message)
            if BROWSER_GONE.search(what):
                await self._close_window()
                what = f"the browser stopped ({what}); navigate starts it again"
            raise OSError(what) from None

    async def _open_window(self) -> BrowserWindow:
        assert self._gate is not None
        if problem := await anyio.to_thread.run_sync(driver_problem):
            raise OSError(problem)
        window = BrowserWindow(self._path, self._gate, visible=self._visible, env=self._env)
        self._window = window
        try:
            await window.open()
        except BaseException:
            await self._close_window()
            raise
        return window

    async def _close_window(self) -> None:
        window, self._window = self._window, None
        if window is not None:
            with anyio.CancelScope(shield=True):
                await window.close()


def _silence_loop_errors() -> None:
    """Silence the errors that Playwright leaves unhandled when its driver dies."""
    get_running_loop().set_exception_handler(lambda loop, context: None)
