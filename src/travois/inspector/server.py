"""The inspector's web server: read-only, local, for one user.

It listens on the loopback interface. The printed address holds a token that is exchanged for a
cookie. Browsers share cookies between ports, so ours is bound to a random path.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from hmac import compare_digest
from pathlib import Path
from secrets import token_urlsafe

import anyio
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from travois.core.errors import UserError
from travois.inspector.api import InspectorApi
from travois.sessions.home import TravoisHome

PAGES_FOLDER = Path(__file__).parent / "pages"
PAGE_FILES = {
    "style.css": "text/css",
    "plot.js": "text/javascript",
    "app.js": "text/javascript",
    "transcript.js": "text/javascript",
    "fleet.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
COOKIE_NAME = "travois-inspect"
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
LOG_POLL_SECONDS = 0.3
KEEP_ALIVE_SECONDS = 15.0
"""Seconds between two signs of life, which keep the connection open."""


class AccessKeys(msgspec.Struct, frozen=True):
    """Secrets that give a browser access."""

    path: str
    printed: str
    opened: str
    """The token for the browser that we start; valid once, as others may see its command line."""
    cookie: str


def create_access_keys() -> AccessKeys:
    """Create random access keys for the inspector."""
    return AccessKeys(*(token_urlsafe(size) for size in (9, 24, 24, 24)))


def listen_on_loopback(port: int) -> socket.socket:
    """Open a socket on the loopback interface; port 0 means any free one."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except OSError as error:
        found.close()
        why = f"{error.strerror}"
        fix = "Omit --port to use a free one."
        raise UserError(f"Port {port} cannot be used", why=why, fix=fix) from error
    found.listen()
    return found


def serve_page(app: ASGIApp, door: socket.socket) -> None:
    """Serve the inspector's page until interrupted."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run(sockets=[door])


def create_page_app(home: TravoisHome, keys: AccessKeys, *, port: int) -> ASGIApp:
    """Create the inspector's web application."""
    api, tokens = InspectorApi(home), {keys.printed, keys.opened}

    def enter(request: Request) -> Response:
        token = request.query_params.get("token", "")
        if not any(compare_digest(token.encode(), known.encode()) for known in tokens):
            return PlainTextResponse("Use the address that `travois inspect` printed.", 403)
        tokens.discard(keys.opened if token == keys.opened else "")
        answer = RedirectResponse(f"/{keys.path}/", 303)
        answer.set_cookie(
            COOKIE_NAME, keys.cookie, path=f"/{keys.path}/", httponly=True, samesite="lax"
        )
        return answer

    def index(request: Request) -> Response:
        return _page_response("index.html", "text/html")

    def page_file(request: Request) -> Response:
        name = str(request.path_params["name"])
        return (
            _page_response(name, PAGE_FILES[name])
            if name in PAGE_FILES
            else PlainTextResponse("", 404)
        )

    def answer(request: Request) -> Response:
        told = api.answer_question(str(request.path_params["question"]), request.query_params)
        return Response(msgspec.json.encode(told), media_type="application/json")

    async def stream_growth(request: Request) -> Response:
        return StreamingResponse(
            _watch_growth(api.log_path(request.query_params)), media_type=EVENT_STREAM_TYPE
        )

    routes = [
        Route("/enter", enter),
        Route("/", index),
        Route("/live", stream_growth),
        Route("/{name}", page_file),
        Route("/api/{question}", answer),
    ]
    inside = Starlette(
        routes=[Mount(f"/{keys.path}", routes=routes)],
        exception_handlers={UserError: _error_response},
    )
    return AccessGuard(inside, keys, port=port)


EVENT_STREAM_TYPE = "text/event-stream"


class AccessGuard:
    """Middleware that admits only read requests from this address with the cookie."""

    def __init__(self, app: ASGIApp, keys: AccessKeys, *, port: int) -> None:
        self._app = app
        self._keys = keys
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self._origins = tuple(f"http://{host}" for host in self._hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        why = self._refusal_reason(Request(scope)) if scope["type"] == "http" else "not a request"
        app = PlainTextResponse(f"Refused: {why}\n", 403) if why else self._app
        await app(scope, receive, send_with_headers)

    def _refusal_reason(self, request: Request) -> str:
        """Return why a request is refused; empty if it is admitted."""
        if request.headers.get("host", "") not in self._hosts:
            return "unexpected host"  # a name that an attacker made point to this machine
        if request.headers.get("origin", self._origins[0]) not in self._origins:
            return "cross-site request"
        if request.method not in ("GET", "HEAD"):
            return "this page is read-only"
        site, mode = (request.headers.get(f"sec-fetch-{name}", "") for name in ("site", "mode"))
        if mode not in ("", "navigate") and site not in ("", "none", "same-origin"):
            return "cross-site request"
        known = request.cookies.get(COOKIE_NAME, "")
        if request.url.path != f"/{self._keys.path}/enter" and not compare_digest(
            known.encode(), self._keys.cookie.encode()
        ):
            return "use the address that `travois inspect` printed"
        return ""


async def _watch_growth(log: Path) -> AsyncGenerator[str]:
    """Yield an inspector event whenever the session's log has grown."""
    size, quiet = -1, 0.0
    while log.is_file():
        found = log.stat().st_size
        if found != size:
            size, quiet = found, 0.0
            yield f"data: {size}\n\n"
        elif quiet >= KEEP_ALIVE_SECONDS:
            quiet = 0.0
            yield ": still here\n\n"
        await anyio.sleep(LOG_POLL_SECONDS)
        quiet += LOG_POLL_SECONDS


def _page_response(name: str, kind: str) -> Response:
    return Response((PAGES_FOLDER / name).read_bytes(), media_type=kind)


async def _error_response(request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), 404)
