"""The lab as a server: sockets, keep-alive, large bodies, and its start as a program."""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

import travois_lab as lab
from tests.lab.client import OPUS, Json
from travois.core.errors import UserError

HEADERS = {"x-api-key": "k", "anthropic-version": "2026-10-21", "content-type": "application/json"}


def body(text: str = "hi", **fields: object) -> bytes:
    message = {"role": "user", "content": text}
    ask = {"model": OPUS, "max_tokens": 9, "messages": [message]}
    return msgspec.json.encode({**ask, **fields})


@contextmanager
def connected(api: lab.Api) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=120)
    try:
        yield connection
    finally:
        connection.close()


def post(connection: http.client.HTTPConnection, raw: bytes) -> Json:
    connection.request("POST", "/v1/messages", raw, HEADERS)
    return msgspec.json.decode(connection.getresponse().read())


def test_one_connection_serves_many_requests() -> None:
    with lab.server(["one", "two"]) as api, connected(api) as connection:
        said = [post(connection, body())["content"][0]["text"] for _ in range(2)]
    assert said == ["one", "two"]


def test_a_body_of_three_megabytes_arrives_whole() -> None:
    with lab.server() as api, connected(api) as connection:
        text = "é" * 1_500_000
        raw = body(text, max_tokens=100_000)
        said = post(connection, raw)["content"][0]["text"]
        assert (text.startswith(said), len(said)) == (True, 200_000)
        assert api.ledger[0].body == raw


def test_a_chunked_request_is_put_together() -> None:
    with lab.server() as api, connected(api) as connection:
        raw = body("in pieces")
        parts = iter([raw[:10], raw[10:11], raw[11:]])
        connection.request("POST", "/v1/messages", parts, HEADERS, encode_chunked=True)
        assert connection.getresponse().status == 200
        assert api.ledger[0].body == raw


def test_the_same_script_and_requests_give_the_same_bytes() -> None:
    turn = {"say": [{"thinking": "x"}, {"tool_use": {"name": "f", "input": {"a": 1}}}]}

    def run() -> bytes:
        with lab.server([turn]) as api, connected(api) as connection:
            connection.request("POST", "/v1/messages", body(stream=True), HEADERS)
            return connection.getresponse().read()

    assert run() == run()


def test_a_path_that_nobody_serves_is_named() -> None:
    with lab.server() as api, connected(api) as connection:
        connection.request("GET", "/nowhere")
        answer = connection.getresponse()
        assert (answer.status, b"GET /nowhere" in answer.read()) == (404, True)


def test_a_port_in_use_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} is in use"), lab.server(port=port):
            pass


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(UserError, match="unknown field `colour`"), lab.server(colour="red"):
        pass


def test_a_test_can_print_what_happened() -> None:
    with lab.server() as api, connected(api) as connection:
        post(connection, body())
        assert api.timeline().endswith("append-only, and nothing invalid")


def test_requests_waits_for_as_many_as_it_is_told() -> None:
    with lab.server() as api, connected(api) as connection:
        post(connection, body())
        assert [e.n for e in api.requests(1)] == [1]
        with pytest.raises(AssertionError, match="1 of 2 requests came"):
            api.requests(2, patience=0.01)


def test_the_lab_runs_as_a_program_that_says_where_it_is(tmp_path) -> None:
    script = tmp_path / "script.json"
    script.write_text('["from the file"]')
    command = [sys.executable, "-m", "travois_lab", "--script", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
        said = post(connection, body())
        connection.close()
        process.terminate()
    assert said["content"] == [{"type": "text", "text": "from the file"}]


def test_a_bad_script_ends_the_program_with_the_line(tmp_path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[\n  {"say": "x"},\n  oops\n]')
    command = [sys.executable, "-m", "travois_lab", "--script", str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, "line 3" in done.stderr) == (2, True)


# --- who is answered ------------------------------------------------------------------------------

PATHS = (
    ("GET", "/lab/ledger"),
    ("POST", "/lab/scenario"),
    ("POST", "/v1/messages"),
    ("OPTIONS", "/v1/messages"),
)


def answered(api: lab.Api, method: str, path: str, **headers: str) -> tuple[int, str]:
    """Status and text of an answer to a request with these headers, Host among them."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    with connected(api) as connection:
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"host": f"127.0.0.1:{api.port}", **given}.items():
            connection.putheader(name, value)
        connection.putheader("content-length", "2")
        connection.endheaders(b"[]")
        answer = connection.getresponse()
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        return answer.status, answer.read().decode()


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.evil.example:{port}",
        "127.0.0.1:{port}.evil.example",
        "0.0.0.0:{port}",
        "127.0.0.1:{port}, evil.example",
    ],
)
def test_another_host_is_refused_and_nothing_is_changed(method: str, path: str, host: str) -> None:
    with lab.server(["as scripted"]) as api:
        status, text = answered(api, method, path, host=host.format(port=api.port))
        assert (status, "Host header" in text, len(api.ledger)) == (403, True, 0)
        with connected(api) as connection:
            assert post(connection, body())["content"][0]["text"] == "as scripted"


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(
    "origin",
    ["", "null", "https://evil.example", "http://127.0.0.1:1", "https://127.0.0.1:{port}"],
)
def test_a_web_page_of_another_origin_is_refused(method: str, path: str, origin: str) -> None:
    with lab.server() as api:
        status, text = answered(api, method, path, origin=origin.format(port=api.port))
        assert (status, "another site" in text, len(api.ledger)) == (403, True, 0)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_that_embeds_the_lab_is_refused_and_a_link_to_it_is_not(site: str) -> None:
    with lab.server() as api:
        for mode, status in (("no-cors", 403), ("cors", 403), ("navigate", 200)):
            sent = {"sec_fetch_site": site, "sec_fetch_mode": mode}
            assert answered(api, "GET", "/lab/ledger", **sent)[0] == status


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LocalHost:{port}"])
@pytest.mark.parametrize("origin", [None, "http://127.0.0.1:{port}", "http://localhost:{port}"])
def test_programs_of_this_machine_are_answered(host: str, origin: str | None) -> None:
    with lab.server() as api:
        sent = {"host": host, **({"origin": origin} if origin else {})}
        named = {name: value.format(port=api.port) for name, value in sent.items()}
        assert answered(api, "GET", "/lab/ledger", **named)[0] == 200


def test_a_request_with_two_hosts_is_not_answered() -> None:
    with lab.server() as api, socket.create_connection(("127.0.0.1", api.port)) as raw:
        raw.sendall(
            f"GET /lab/ledger HTTP/1.1\r\nHost: e\r\nHost: 127.0.0.1:{api.port}\r\n\r\n".encode()
        )
        assert raw.recv(1) == b""


def test_a_browser_cannot_read_the_lab_by_another_name(tmp_path) -> None:
    """The page of an attacker, whose name resolves to this machine, as a real browser loads it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with lab.server() as api:
        command = [
            *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            f"--user-data-dir={tmp_path}",
            "--host-resolver-rules=MAP evil.example 127.0.0.1",
            "--dump-dom",
        ]
        seen = [
            subprocess.run(
                [*command, f"http://{name}:{api.port}/lab/ledger"], capture_output=True, text=True
            ).stdout
            for name in ("evil.example", "localhost")
        ]
    assert ["lab: refused" in text for text in seen] == [True, False]
    assert "exchanges" in seen[1]
