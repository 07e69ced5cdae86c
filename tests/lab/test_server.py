"""The lab as a server: sockets, keep-alive, large bodies, and its start as a program."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from tests.lab.client import OPUS, Json
from travois import lab
from travois.kernel.faults import Fault

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
        with pytest.raises(Fault, match=f"port {port} is in use"), lab.server(port=port):
            pass


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(Fault, match="unknown field `colour`"), lab.server(colour="red"):
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
    command = [sys.executable, "-m", "travois.lab", "--script", str(script)]
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
    command = [sys.executable, "-m", "travois.lab", "--script", str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, "line 3" in done.stderr) == (2, True)
