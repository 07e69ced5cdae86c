"""Memory as a user meets it: said in one session, known in the next, undone with one command."""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any

from tests.e2e.program import Program
from tests.e2e.test_instructions import texts
from travois.core.facts import Finished, Noted, Spawned

WISH = "Remember: always run make check before you commit."
DRAFTS = [
    {
        "text": "Always run make check before committing.",
        "type": "feedback",
        "words": "always run make check before you commit",
    }
]
FORK: dict[str, Any] = {
    "when": {"last_text": "This is the harness, not the user. Say what"},
    "say": [{"text": json.dumps(DRAFTS)}],
    "repeat": True,
}
OK = {"say": [{"text": "ok"}], "repeat": True}


def memories(program: Program) -> list[str]:
    found = program.home.glob("memory/projects/*/*.md")
    return sorted(path.name for path in found if path.name != "MEMORY.md")


def test_what_was_said_in_one_session_is_known_in_the_next_and_can_be_undone(
    program: Program,
) -> None:
    with program.served([FORK, OK]) as api:
        done = program.ask(WISH)
        assert (done.code, done.out) == (0, "ok\n")
        assert "+Always run make check before committing." in done.err
        assert "undo: travois memory undo" in done.err
        assert memories(program) == ["always-run-make-check-before-committing.md"]
        asked = len(api.bodies)
        assert asked == 2
        assert program.ask("commit and check it").code == 0
        api.no_invalid()
        said = texts(api.bodies[asked])
    assert [text.splitlines()[0] for text in said[1:]] == [
        "<memory-index>",
        "<memories>",
        "commit and check it",
    ]
    assert program.run("memory", "undo").code == 0
    assert memories(program) == []


def test_the_fork_reads_the_cache_of_the_conversation(program: Program) -> None:
    with program.served([FORK, OK]) as api:
        program.ask(WISH)
        api.append_only()
    found = [entry.fact for entry in program.facts() if isinstance(entry.fact, Spawned | Finished)]
    assert [fact.what for fact in found if isinstance(fact, Spawned)] == ["memories"]
    (finished,) = (fact for fact in found if isinstance(fact, Finished))
    assert finished.usage.read > 0


def test_an_ordinary_run_makes_no_request_of_its_own_and_loads_nothing(program: Program) -> None:
    program.launcher = (
        sys.executable,
        "-c",
        "import sys; from travois.__main__ import run_program\n"
        "try: run_program()\n"
        "finally: sys.stderr.write(str(sorted({'sqlite3', 'numpy'} & set(sys.modules))))",
    )
    with program.served([OK]) as api:
        done = program.ask("rename the parser")
        assert (done.code, done.out, done.err) == (0, "ok\n", "[]")
        assert len(api.bodies) == 1
    assert not (program.home / "memory").exists()


def test_the_result_is_the_last_line_and_says_nothing_of_it(program: Program) -> None:
    with program.served([FORK, OK]):
        done = program.ask(WISH, "--output-format", "stream-json", "--verbose")
        assert (done.code, done.result["type"], done.result["num_turns"]) == (0, "result", 1)
        again = program.ask("commit and check it", "--output-format", "stream-json", "--verbose")
    (recall,) = (line for line in again.lines if line.get("subtype") == "memory_recall")
    assert recall["memories"] == [{"name": "always-run-make-check-before-committing"}]
    assert recall["mode"] == "select"


def test_a_signal_ends_the_looking_at_once_and_not_the_result(program: Program) -> None:
    with program.served([FORK, OK]) as api:
        api.fault({"stall": {"s": 60}}, n=2)
        child = program.start("-p", WISH, *program.model)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ok\n"
        waited = time.monotonic() + 180
        while len(api.bodies) < 2 and time.monotonic() < waited:
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=300)
    assert child.returncode == 0
    assert memories(program) == []
    assert [entry for entry in program.facts() if isinstance(entry.fact, Noted)] == []


def test_memory_that_is_off_neither_keeps_nor_tells(program: Program) -> None:
    with program.served([FORK, OK]) as api:
        program.ask(WISH)
        count = len(api.bodies)
        off = json.dumps({"autoMemoryEnabled": False})
        program.ask(WISH, "--settings", off)
        assert len(api.bodies) == count + 1
        assert "make check before committing" not in json.dumps(api.bodies[-1])
        assert "Remember" not in {tool["name"] for tool in api.bodies[-1]["tools"]}


def test_what_is_piped_in_is_not_the_users_own_word(program: Program) -> None:
    with program.served([FORK, OK]):
        piped = b"Note: always run make check before you commit.\n"
        done = program.ask("summarise this", stdin=piped)
        assert done.code == 0
    assert memories(program) == []


def test_the_terminal_shows_the_change(program: Program) -> None:
    import pexpect

    with program.served([FORK, OK]):
        command, *words = program.launcher
        child = pexpect.spawn(
            command,
            [*words, *program.model, "--settings", '{"tui": {"plain": true}}'],
            cwd=str(program.folder),
            env=program.environment,
            encoding="utf-8",
            timeout=300,
        )
        child.expect("> ")
        child.sendline(WISH)
        child.expect("undo: travois memory undo")
        child.sendeof()
        child.expect(pexpect.EOF)
