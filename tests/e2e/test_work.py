"""Real work through the whole program: edits, jobs, pictures, parallel looks."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest

import travois_lab as lab
from tests.e2e.glass import use
from tests.e2e.program import Program
from travois.core.facts import Result

BOTH = pytest.mark.parametrize("protocol", ["anthropic", "chat"])


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\xff\0\0")
    parts = chunk(b"IHDR", head), chunk(b"IDAT", pixels), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@BOTH
def test_a_bug_is_found_mended_and_checked(program: Program, protocol: str) -> None:
    program.protocol = protocol
    (program.folder / "calc.py").write_bytes(b"def add(a, b):\r\n    return a - b\r\n")
    check = "python3 -c 'from calc import add; assert add(2, 2) == 4' && echo passed"
    (program.folder / "check.sh").write_text(check)

    script = [
        {"say": [use("Read", file_path="calc.py"), use("Grep", pattern="add", path=".")]},
        {"say": [use("Edit", file_path="calc.py", old_string="a - b", new_string="a + b")]},
        {"say": [use("Bash", command="sh check.sh")]},
        {
            "when": {"tool_result": {"name": "Bash", "contains": "passed"}},
            "say": [{"text": "Fixed and checked."}],
        },
    ]
    with program.served(script) as api:
        flags = ("--permission-mode", "accept-edits", "--allowedTools", "Bash(sh check.sh)")
        done = program.ask("fix add", *flags)
        api.no_invalid()
        api.append_only()
    assert done.out == "Fixed and checked.\n", done.err
    assert (program.folder / "calc.py").read_bytes() == b"def add(a, b):\r\n    return a + b\r\n"


@BOTH
def test_a_picture_reaches_the_model(program: Program, protocol: str) -> None:
    program.protocol = protocol
    (program.folder / "dot.png").write_bytes(png())
    with lab.server(
        [{"say": [use("Read", file_path="dot.png")]}, {"say": [{"text": "Red."}]}]
    ) as api:
        program.url = api.url
        assert program.ask("what colour?").out == "Red.\n"
        api.no_invalid()
        assert base64.b64encode(png()) in api.ledger[1].body


def test_a_job_in_the_background_is_polled_and_killed(program: Program) -> None:
    script = [
        {"say": [use("Bash", command="echo up; sleep 60", run_in_background=True)]},
        {"say": [use("Bash", command="sleep 0.3")]},
        {"say": [use("BashOutput", bash_id="bash_1")]},
        {
            "when": {"tool_result": {"name": "BashOutput", "contains": "up"}},
            "say": [use("KillShell", shell_id="bash_1")],
        },
        {"when": {"tool_result": {"name": "KillShell"}}, "say": [{"text": "Killed."}]},
    ]
    with program.served(script) as api:
        assert program.ask("go", "--permission-mode", "bypass").out == "Killed.\n"
        api.no_invalid()


def test_twelve_reads_in_one_reply_come_back_in_the_order_asked(program: Program) -> None:
    for number in range(12):
        (program.folder / f"f{number}.txt").write_text(f"text of {number}\n")
    reads = [use("Read", file_path=f"f{number}.txt") for number in range(12)]
    with program.served([{"say": reads}, {"say": reads}, {"say": [{"text": "ok"}]}]) as api:
        assert program.ask("read all").out == "ok\n"
        for exchange in list(api.ledger)[1:]:
            results = exchange.json["messages"][-1]["content"]
            assert [f"text of {n}" in r["content"] for n, r in enumerate(results)] == [True] * 12
        last = api.ledger[2]
        assert last.usage.read >= 0.99 * api.ledger[1].usage.prompt


def test_a_flood_of_output_is_cut_kept_and_readable(program: Program) -> None:
    script = [
        {"say": [use("Bash", command="seq -f 'a long line with number %.0f' 1 200000")]},
        {"say": [{"text": "long"}]},
    ]
    with program.served(script) as api:
        program.ask("go", "--permission-mode", "bypass")
        assert len(api.ledger[1].body) < 60_000
    (result,) = [e.fact for e in program.facts() if isinstance(e.fact, Result)]
    (kept,) = program.home.glob("sessions/*/*/tool-results/*")
    assert str(kept) in str(result.content)
    assert kept.read_text().splitlines()[-1] == "a long line with number 200000"
    script = [
        {"say": [use("Read", file_path=str(kept), offset=777, limit=1)]},
        {"say": [{"text": "777"}]},
    ]
    with program.served(script) as api:
        assert program.ask("read on", "-c").out == "777\n"
        assert not api.bodies[1]["messages"][-1]["content"][0].get("is_error")
