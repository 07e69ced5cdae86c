"""`travois lab` from the command line, as a person uses it."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.lab.client import OPUS, Json

HEADERS = {"x-api-key": "k", "anthropic-version": "2026-10-21"}


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "travois", "lab", *args]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*args), capture_output=True, text=True, timeout=300)


@contextmanager
def running(*args: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with subprocess.Popen(command(*args), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url, *hints = [process.stdout.readline().strip() for _ in range(4)]
        assert f"ANTHROPIC_BASE_URL={url}" in hints
        try:
            yield url, process
        finally:
            process.kill()


def post(url: str, *texts: str) -> Json:
    messages = [
        {"role": "user" if i % 2 == 0 else "assistant", "content": text}
        for i, text in enumerate(texts)
    ]
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
    body = msgspec.json.encode({"model": OPUS, "max_tokens": 9, "messages": messages})
    connection.request("POST", "/v1/messages", body, HEADERS)
    answer = msgspec.json.decode(connection.getresponse().read())
    connection.close()
    return answer


def test_serve_tells_how_to_point_at_it_and_reports_when_stopped(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.json"
    with running("serve", "--port", "0", "--ledger", str(ledger)) as (url, process):
        assert post(url, "hey")["content"][0]["text"] == "hey"
        report = run("report", url)
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=300)
    assert (report.returncode, "1 request, $" in report.stdout) == (0, True)
    assert "append-only, and nothing invalid" in told
    assert (process.returncode, run("report", str(ledger)).returncode) == (0, 0)


def test_a_cache_break_is_named_and_ends_with_one() -> None:
    with running("serve", "--port", "0") as (url, process):
        post(url, "The date is Monday.", "ok", "go on")
        post(url, "The date is Tuesday.", "ok", "go on", "sure", "more")
        process.send_signal(signal.SIGTERM)
        told, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "! request 2: messages[0].content[0].text changed at byte 12" in told
    assert "Monday" in told and "Tuesday" in told


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("serve", "--profile", "klingon"), "Unknown profile 'klingon'"),
        (("serve", "--script", "none.json"), "cannot read the script none.json"),
        (("report", "http://127.0.0.1:1"), "No lab answers at http://127.0.0.1:1"),
        (("report", "none.json"), "Cannot read none.json"),
        (("replay", "none.jsonl"), "cannot read the recording none.jsonl"),
    ],
    ids=["profile", "script", "no lab", "no file", "no recording"],
)
def test_what_is_wrong_is_said_in_a_line(args: tuple[str, ...], said: str) -> None:
    done = run(*args)
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_a_port_in_use_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--port", str(port))
    assert (done.returncode, f"port {port} is in use" in done.stderr) == (2, True)


def test_record_and_replay_from_the_command_line(tmp_path: Path) -> None:
    out = str(tmp_path / "r.jsonl")
    with (
        running("serve", "--port", "0") as (upstream, _),
        running("record", "--upstream", upstream, "--out", out, "--port", "0") as (url, _),
    ):
        first = post(url, "hey")
    with running("replay", out, "--match", "bytes", "--port", "0") as (url, process):
        assert post(url, "hey") == first
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
    assert process.returncode == 0


def test_a_recorded_session_is_played_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "session.jsonl"
    rows = [
        {"type": "session", "id": "s"},
        {
            "type": "message",
            "role": "user",
            "origin": "human",
            "content": [{"type": "text", "text": "hello"}],
        },
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi there"}]},
    ]
    file.write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
    with running("replay", str(file), "--port", "0") as (url, _):
        assert post(url, "hello")["content"][0]["text"] == "hi there"
