"""A server that wants a login: given by a browser, kept, renewed, lost and forgotten."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
import pytest

import travois_lab as lab
from tests.e2e.program import Program
from tests.mcp.test_mcp import free_port, linked, sum_of
from travois.mcp.connection import McpConnection
from travois.mcp.tools import McpServerConfig
from travois.ports.tool import ToolError

pytest.importorskip("mcp")
pytest.importorskip("uvicorn")
GUARDED = str(Path(__file__).parents[1] / "mcp" / "guarded.py")
ADD = "mcp__far__add"
BROWSER = f"""#!{sys.executable}
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1]).read().decode(), file=open(__file__ + ".seen", "w"))
"""


class Guarded:
    """The two servers, and what they are told to do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.port, grants = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        argv = [sys.executable, GUARDED, str(self.port), str(grants), str(folder)]
        self.running = subprocess.Popen(argv)
        for port in (self.port, grants):
            _answers(port)

    @property
    def journal(self) -> list[str]:
        path = self.folder / "journal"
        return path.read_text().splitlines() if path.exists() else []


def _answers(port: int) -> None:
    for _ in range(6_000):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nobody listens on port {port}")


@pytest.fixture
def guarded(program: Program) -> Iterator[Guarded]:
    found = Guarded(program.folder / "guarded")
    browser = program.home.parent / "browser"
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    program.extra["BROWSER"] = str(browser)
    program.home.mkdir(exist_ok=True)
    servers = {"far": {"type": "http", "url": found.url}}
    (program.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    yield found
    found.running.kill()
    found.running.wait()


def tokens(program: Program) -> list[Path]:
    return list((program.home / "mcp/tokens").glob("*"))


def call(name: str, **given: Any) -> dict[str, Any]:
    return {"say": [{"tool_use": {"name": name, "input": given}}]}


def used(program: Program, *calls: dict[str, Any]) -> list[str]:
    """Let the model make calls; it always has the last word. What it was told of each."""
    with lab.server([*calls, {"say": "Done."}]) as api:
        program.url = api.url
        done = program.ask("add", "--allowedTools", "mcp__far", "Bash(touch:*)")
        assert (done.code, done.out.strip()) == (0, "Done.")
        blocks = [block for said in api.bodies[-1]["messages"] for block in said["content"]]
        return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


def test_a_login_lets_us_in_is_renewed_lost_and_forgotten(
    program: Program, guarded: Guarded
) -> None:
    done = program.run("mcp", "login", "far")
    assert (done.code, done.out.splitlines()[-1]) == (0, "Logged in to far.")
    assert "You can close this page." in Path(f"{program.extra['BROWSER']}.seen").read_text()
    (kept,) = tokens(program)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    registered, authorized, exchanged = guarded.journal
    assert registered.startswith("register Travois [AnyUrl('http://127.0.0.1:")
    assert (authorized, exchanged) == (f"authorize {guarded.url}", "code")
    secrets = held(kept)

    add = call(ADD, a=1, b=2)
    expire = call("Bash", command="touch guarded/expired")
    spoil = call("Bash", command="touch guarded/expired guarded/stubborn")
    first, _, renewed, _, lost, again = used(program, add, expire, add, spoil, add, add)
    assert "3" in first
    assert "3" in renewed
    assert "far: the login has expired; login required: run" in lost
    assert "`travois mcp login far`" in again
    assert guarded.journal[3:] == ["refresh"] * len(guarded.journal[3:])
    secrets |= held(kept)
    assert len(secrets) == 4
    files = [path for path in program.home.rglob("*") if path.is_file() and path != kept]
    assert not [path for path in files if any(one in path.read_bytes() for one in secrets)]

    assert program.run("mcp", "logout", "far").code == 0
    assert tokens(program) == []
    assert program.run("mcp", "logout", "far").code == 1


def held(kept: Path) -> set[bytes]:
    found = json.loads(kept.read_text())["tokens"]
    return {found["access_token"].encode(), found["refresh_token"].encode()}


def test_a_stranger_cannot_end_a_login_and_a_no_is_told(program: Program, guarded: Guarded) -> None:
    (guarded.folder / "unkind").touch()
    del program.extra["BROWSER"]
    child = program.start("mcp", "login", "far")
    assert child.stdout is not None
    child.stdout.readline()
    url = child.stdout.readline().decode().strip()
    asked = {key: values[0] for key, values in parse_qs(urlsplit(url).query).items()}
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    back = asked["redirect_uri"]
    assert urlsplit(back).hostname == "127.0.0.1"
    with socket.create_connection(("127.0.0.1", urlsplit(back).port or 0)):
        pass
    for strange in (f"{back}?code=x&state=guessed", f"{back}?code=x", back.replace("call", "fall")):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(strange)
    urllib.request.urlopen(url).read()
    out, _ = child.communicate(timeout=300)
    assert (child.returncode, out.decode().strip()) == (
        1,
        "the server refused the login: access_denied",
    )
    assert tokens(program) == []


def test_sessions_side_by_side_share_one_login_and_the_next_one_grants_what_it_lacked(
    program: Program, guarded: Guarded
) -> None:
    def login() -> int:
        return program.run("mcp", "login", "far").code

    assert login() == 0
    far, folder = McpServerConfig("far", "http", url=guarded.url), program.home / "mcp"

    async def main() -> str:
        async with linked(folder, far) as one, linked(folder, far) as other:
            (guarded.folder / "expired").touch()
            told: list[str] = []

            async def use(link: McpConnection) -> None:
                told.append(await sum_of(link))

            async with anyio.create_task_group() as group:
                group.start_soon(use, one)
                group.start_soon(use, other)
            assert told == ["3", "3"]
            assert set(guarded.journal[3:]) == {"refresh"}

            (guarded.folder / "strict").touch()
            with pytest.raises(ToolError) as refusal:
                await sum_of(one)
            assert await anyio.to_thread.run_sync(login) == 0
            assert await sum_of(one) == "3"
            return str(refusal.value)

    lacks = "far: the login does not allow this (missing scope: more); login required"
    assert anyio.run(main) == f"{lacks}: run `travois mcp login far`."
    assert guarded.journal[-2:] == [f"authorize {guarded.url} more", "code"]
