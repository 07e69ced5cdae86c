"""Who may look: only the browser that came by the printed address, and only to read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import msgspec
import pytest
from starlette.types import ASGIApp, Message, Scope

from tests.inspector.logs import make, talk
from travois.core.errors import UserError
from travois.inspector import server
from travois.inspector.api import API_QUESTIONS, InspectorApi
from travois.inspector.server import (
    COOKIE_NAME,
    SECURITY_HEADERS,
    AccessKeys,
    create_page_app,
    listen_on_loopback,
)
from travois.sessions.home import TravoisHome

KEYS = AccessKeys("place", "printed", "opened", "cookie")
LET_IN = {"cookie": f"{COOKIE_NAME}=cookie"}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def ask(app: ASGIApp, target: str, *, method: str = "GET", **headers: str) -> Answer:
    """One request, as a server would hand it to the page."""
    parts, sent, told = urlsplit(target), {"host": "127.0.0.1:80", **headers}, list[Message]()
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "root_path": "",
        "query_string": parts.query.encode(),
        "headers": [(k.replace("_", "-").encode(), v.encode()) for k, v in sent.items()],
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        told.append(message)

    async def main() -> None:
        await app(scope, receive, send)

    anyio.run(main)
    found = {key.decode(): value.decode() for key, value in told[0]["headers"]}
    return Answer(told[0]["status"], found, b"".join(m.get("body", b"") for m in told[1:]))


@pytest.fixture
def home(tmp_path: Path) -> TravoisHome:
    home = TravoisHome(tmp_path / "home").prepare()
    make(home.session_folder("p", "s1"), *talk(2))
    return home


@pytest.fixture
def app(home: TravoisHome) -> ASGIApp:
    return create_page_app(home, KEYS, port=80)


def test_the_printed_address_is_exchanged_for_a_cookie_and_is_gone(app: ASGIApp) -> None:
    for _ in range(2):
        answer = ask(app, "/place/enter?token=printed")
        assert (answer.status, answer.headers["location"]) == (303, "/place/")
        cookie = f"{COOKIE_NAME}=cookie; HttpOnly; Path=/place/; SameSite=lax"
        assert answer.headers["set-cookie"] == cookie


def test_the_address_that_a_browser_was_started_with_holds_only_once(app: ASGIApp) -> None:
    assert ask(app, "/place/enter?token=opened").status == 303
    assert ask(app, "/place/enter?token=opened").status == 403
    assert ask(app, "/place/enter?token=printed").status == 303


@pytest.mark.parametrize("token", ["", "Printed", "printe", "printedx", "cookie", "%00", "ü"])
def test_a_wrong_token_opens_nothing(app: ASGIApp, token: str) -> None:
    answer = ask(app, f"/place/enter?token={token}")
    assert answer.status == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "path", ["/", "/place/", "/place/app.js", "/place/live?session=s1", "/place/api/sessions"]
)
@pytest.mark.parametrize("cookie", ["", f"{COOKIE_NAME}=x", f"{COOKIE_NAME}=", "other=cookie"])
def test_nothing_is_told_without_the_cookie(app: ASGIApp, path: str, cookie: str) -> None:
    answer = ask(app, path, cookie=cookie)
    assert answer.status == 403
    assert answer.body == b"Refused: use the address that `travois inspect` printed\n"


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "127.0.0.1", "127.0.0.1:81", "127.0.0.1:80.evil.example", "[::1]:80"],
)
def test_another_host_name_is_refused_even_with_the_cookie(app: ASGIApp, host: str) -> None:
    answer = ask(app, "/place/api/sessions", host=host, **LET_IN)
    assert (answer.status, answer.body) == (403, b"Refused: unexpected host\n")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_link_here_but_not_read(app: ASGIApp, site: str) -> None:
    for mode, status in (("cors", 403), ("no-cors", 403), ("navigate", 200)):
        headers = {**LET_IN, "sec_fetch_site": site, "sec_fetch_mode": mode}
        assert ask(app, "/place/", **headers).status == status


@pytest.mark.parametrize("origin", ["null", "https://evil.example", "http://127.0.0.1:81", ""])
def test_another_origin_is_refused_even_with_the_cookie(app: ASGIApp, origin: str) -> None:
    answer = ask(app, "/place/api/sessions", origin=origin, **LET_IN)
    assert (answer.status, answer.body) == (403, b"Refused: cross-site request\n")
    assert ask(app, "/place/api/sessions", origin="http://localhost:80", **LET_IN).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_there_is_nothing_to_change(app: ASGIApp, method: str) -> None:
    answer = ask(app, "/place/api/sessions", method=method, **LET_IN)
    assert (answer.status, answer.body) == (403, b"Refused: this page is read-only\n")


@pytest.mark.parametrize("path", ["/place/", "/place/app.js", "/place/api/nothing", "/elsewhere"])
def test_every_answer_forbids_what_the_page_does_not_need(app: ASGIApp, path: str) -> None:
    answer = ask(app, path, **LET_IN)
    assert {name: answer.headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy


@pytest.mark.parametrize(
    "path",
    [
        "/place/../server.py",
        "/place/%2e%2e/server.py",
        "/place/..%2fserver.py",
        "/place/server.py",
        "/place/pages/app.js",
        "/place/api/../app.js",
        "/place/api/_read?session=s1",
        "/place/api/log?session=s1",
    ],
)
def test_only_what_is_listed_can_be_had(app: ASGIApp, path: str) -> None:
    assert ask(app, path, **LET_IN).status == 404


def test_the_pages_name_nothing_on_the_network() -> None:
    for path in server.PAGES_FOLDER.iterdir():
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//" not in text.replace("// ", "").replace("//\n", ""), path.name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, path.name


def test_each_question_is_answered_as_json(app: ASGIApp, home: TravoisHome) -> None:
    queries = {"sessions": "", "search": "session=s1&words=needle", "text": "session=s1&item=1"}
    for question in {*API_QUESTIONS} - {"diff", "span"}:
        query = queries.get(question, "session=s1")
        answer = ask(app, f"/place/api/{question}?{query}", **LET_IN)
        told = InspectorApi(home).answer_question(
            question, dict(part.split("=") for part in query.split("&") if part)
        )
        assert (answer.status, answer.body) == (200, msgspec.json.encode(told)), question


def test_a_fault_is_told_in_words(app: ASGIApp) -> None:
    answer = ask(app, "/place/api/overview?session=nobody", **LET_IN)
    assert (answer.status, answer.body) == (404, b"There is no session 'nobody'")


def test_a_port_in_use_is_a_fault() -> None:
    with listen_on_loopback(0) as door:
        port = door.getsockname()[1]
        assert door.getsockname()[0] == "127.0.0.1"
        with pytest.raises(UserError, match=f"Port {port} cannot be used"):
            listen_on_loopback(port)
