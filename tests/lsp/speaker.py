"""A language server that finds an error in each line with BAD, and does one thing wrong.

Its first argument is the fault; `FILE` in others is a file that it waits for or writes to.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

FAULT = sys.argv[1] if len(sys.argv) > 1 else "none"
FILE = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(os.devnull)
texts: dict[str, str] = {}


def say(message: dict[str, Any]) -> None:
    data = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
    sys.stdout.buffer.flush()


def hear() -> dict[str, Any] | None:
    size = 0
    while line := sys.stdin.buffer.readline().strip():
        if line.lower().startswith(b"content-length:"):
            size = int(line.split(b":")[1])
    return json.loads(sys.stdin.buffer.read(size)) if size else None


def errors(text: str) -> list[dict[str, Any]]:
    return [
        {
            "range": {
                "start": {"line": number, "character": line.index("BAD")},
                "end": {"line": number, "character": line.index("BAD") + 3},
            },
            "severity": 1 if "WARN" not in line else 2,
            "code": "bad",
            "message": attempt() if FAULT == "sandbox" else "this is BAD",
        }
        for number, line in enumerate(text.split("\n"))
        if "BAD" in line
    ]


def attempt() -> str:
    """Try what no language server should: write to the workspace, and reach the network."""
    found = []
    try:
        Path("written-by-server").write_text("x")
        found.append("wrote")
    except OSError as error:
        found.append(error.strerror or "?")
    try:
        with socket.create_connection(("127.0.0.1", int(FILE.name)), timeout=5):
            found.append("connected")
    except OSError:
        found.append("no network")
    return ", ".join(found)


def on_text(uri: str, text: str, version: int) -> None:
    texts[uri] = text
    match FAULT:
        case "slow":
            while not FILE.exists():
                time.sleep(0.01)
        case "crash":
            with FILE.open("a") as log:
                log.write("crashed\n")
            sys.stderr.write("out of luck\n")
            sys.exit(3)
        case "garbage":
            sys.stdout.write("This is no protocol.\n" * 1000)
            sys.stdout.flush()
        case "huge":
            sys.stdout.write("Content-Length: 99999999999\r\n\r\n")
            sys.stdout.flush()
        case "mute" | "pull":
            return
        case _:
            pass
    found = errors(text) * (2000 if FAULT == "many" else 1)
    if FAULT == "many":
        found = [{**one, "message": f"{one['message']} {n}"} for n, one in enumerate(found)]
    told: dict[str, Any] = {"uri": uri, "diagnostics": found}
    if FAULT != "unversioned":
        told["version"] = version
    say({"method": "textDocument/publishDiagnostics", "params": told})


def on_request(message: dict[str, Any]) -> None:
    result: Any = None
    if message["method"] == "initialize":
        if FAULT == "dead":
            time.sleep(3600)
        result = {"capabilities": {"diagnosticProvider": {}} if FAULT == "pull" else {}}
    elif message["method"] == "textDocument/diagnostic":
        uri = message["params"]["textDocument"]["uri"]
        result = {"kind": "full", "items": errors(texts[uri])}
    say({"id": message["id"], "result": result})


def main() -> None:
    while (message := hear()) is not None:
        params = message.get("params") or {}
        match message.get("method", ""):
            case "textDocument/didOpen":
                one = params["textDocument"]
                on_text(one["uri"], one["text"], one["version"])
            case "textDocument/didChange":
                one = params["textDocument"]
                on_text(one["uri"], params["contentChanges"][0]["text"], one["version"])
            case _ if "id" in message and "method" in message:
                on_request(message)
            case _:
                pass


main()
