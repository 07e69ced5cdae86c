"""Errors that a person can act on: what happened, why, and what to do."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.e2e.glass import Glass
from tests.e2e.program import Program, read
from travois.core.facts import Ended, Failed

OK = {"say": [{"text": "ok"}], "repeat": True}
LOCAL = {
    "ollama": ("OLLAMA_BASE_URL", "`ollama serve`"),
    "llamacpp": ("LLAMACPP_BASE_URL", "`llama-server -m MODEL.gguf`"),
    "lmstudio": ("LMSTUDIO_BASE_URL", "`lms server start`"),
    "vllm": ("VLLM_BASE_URL", "`vllm serve MODEL`"),
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


# --- a server that is not there ----------------------------------------------------------------


@pytest.mark.parametrize("provider", LOCAL)
def test_a_server_that_does_not_run_is_told_in_one_line_at_once(
    program: Program, provider: str
) -> None:
    variable, start = LOCAL[provider]
    port = free_port()
    program.extra = {variable: f"http://127.0.0.1:{port}"}
    done = program.run("-p", "hi", "--model", f"{provider}/x")
    assert (done.code, done.out) == (75, "")
    assert done.err == (
        f"travois: network: no server is listening on 127.0.0.1:{port} (connection refused). "
        f"Start it with {start}, or set {variable} to its address.\n"
    )
    assert program.logs() == []


def test_a_server_that_went_away_is_not_waited_for(program: Program) -> None:
    with program.served([OK]) as api:
        assert program.ask("go").code == 0
        url = api.url
    program.url = url
    done = program.ask("go on", "-c")
    assert done.code == 75
    assert "no server is listening" in done.err and "ANTHROPIC_BASE_URL" in done.err
    assert "retrying in" not in done.err
    (failed,) = [entry.fact for entry in program.facts() if isinstance(entry.fact, Failed)]
    assert (failed.attempt, failed.wait) == (1, -1.0)


# --- an unknown model --------------------------------------------------------------------------


UNKNOWN = {
    "claud-opus-5": ("did you mean", "claude-opus-5"),
    "sonet": ("did you mean", "sonnet"),
    "opnai/gpt-6": ("there is no provider 'opnai'", "openai/gpt-6"),
    "anthropic/": ("the model id is missing", "anthropic/claude-"),
    "xyzzy": ("the catalogue has nothing similar", "claude-opus-5-5"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_model_names_the_nearest(program: Program, name: str) -> None:
    done = program.run("-p", "x", "--model", name)
    assert (done.code, done.out, program.logs()) == (2, "", [])
    assert f"Unknown model {name!r}" in done.err
    assert all(words in done.err for words in UNKNOWN[name])


def test_an_id_that_the_provider_does_not_know_names_the_nearest(program: Program) -> None:
    error = {"status": 404, "type": "not_found_error", "message": "model: claude-opus-5-6"}
    with program.served([OK]) as api:
        api.fault({"http": error}, every=1)
        done = program.run("-p", "x", "--model", "anthropic/claude-opus-5-6")
        assert len(api.ledger) == 1
    assert (done.code, done.out, program.logs()) == (1, "", [])
    assert "anthropic has no model 'claude-opus-5-6': model: claude-opus-5-6." in done.err
    assert "Did you mean claude-opus-5-5" in done.err


def test_a_model_that_a_server_of_ones_own_does_not_have_names_what_it_has(
    program: Program,
) -> None:
    with program.served([OK], models={"qwen3:8b": {"family": "openai"}}) as api:
        api.fault({"http": {"status": 404, "message": "model 'qwen33' not found"}}, every=1)
        program.extra = {"OLLAMA_BASE_URL": api.url}
        done = program.run("-p", "x", "--model", "ollama/qwen33")
    assert (done.code, done.out, program.logs()) == (1, "", [])
    assert "ollama has no model 'qwen33'" in done.err
    assert "Did you mean qwen3:8b" in done.err


# --- a key that is refused ---------------------------------------------------------------------


def refused(program: Program, *args: str) -> str:
    error = {"status": 401, "type": "authentication_error", "message": "invalid x-api-key"}
    with program.served([OK]) as api:
        api.fault({"http": error}, every=1)
        done = program.ask("go", *args)
        assert len(api.ledger) == 1
    assert (done.code, done.out, program.logs()) == (1, "", [])
    return done.err


def test_a_refused_key_names_the_provider_the_variable_and_the_way_out(program: Program) -> None:
    assert refused(program) == (
        "travois: auth: anthropic (127.0.0.1) rejected the API key in ANTHROPIC_API_KEY (401): "
        "invalid x-api-key. Check that ANTHROPIC_API_KEY holds a valid key for this provider, "
        "or choose another model with --model.\n"
    )
    program.extra = {"ANTHROPIC_API_KEY": "", "ANTHROPIC_AUTH_TOKEN": "t"}
    assert "rejected the API key in ANTHROPIC_AUTH_TOKEN" in refused(program)
    program.protocol, program.extra = "chat", {}
    assert "openai (127.0.0.1) rejected the API key in OPENAI_API_KEY" in refused(program)
    program.extra = {"OPENAI_API_KEY": ""}
    told = refused(program)
    assert "requires an API key (401), but none was sent" in told and "Set OPENAI_API_KEY." in told


def test_a_refused_key_of_a_command_names_the_setting(program: Program) -> None:
    program.extra = {"ANTHROPIC_API_KEY": ""}
    told = refused(program, "--settings", '{"apiKeyHelper": "echo sk-printed"}')
    assert "rejected the API key printed by apiKeyHelper" in told
    assert "sk-printed" not in told


# --- what a failed start leaves behind ---------------------------------------------------------


def test_a_failed_start_leaves_no_fork_behind(program: Program) -> None:
    with program.served([OK]):
        assert program.ask("go").code == 0
        before = program.logs()
        done = program.run("-p", "x", "-c", "--fork-session", "--model", "xyzzy[0k]")
        assert done.code == 2, done.err
        done = program.run("-p", "x", "-c", "--fork-session", "--model", "anthropic/")
        assert done.code == 2, done.err
    assert program.logs() == before


def test_what_failed_for_a_passing_reason_can_be_resumed(program: Program) -> None:
    with program.served([OK]) as api:
        api.fault({"http": {"status": 529, "type": "overloaded_error"}}, every=1)
        quick = '{"retry":{"attempts":2,"maxWait":0.01}}'
        assert program.ask("the task", "--settings", quick).code == 75
        assert len(program.logs()) == 1
        api.world.faults.rules.clear()
        assert program.ask("go on", "-c").out == "ok\n"
        assert "the task" in str(api.bodies[-1])


# --- timeouts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["anthropic", "chat"])
def test_a_limit_between_events_holds_for_a_server_on_this_machine(
    program: Program, protocol: str
) -> None:
    program.protocol = protocol
    waits = '{"timeouts":{"idle":0.3,"firstByte":60,"local":60},"retry":{"attempts":1}}'
    with program.served([OK]) as api:
        api.fault({"stall": {"s": 30}}, every=1)
        done = program.ask("go", "--settings", waits)
    assert done.code == 75
    assert "no data from the server for 0.3 s" in done.err


# --- words that are no prompts -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("memry",), "memory"),
        (("session",), "sessions"),
        (("Doctor",), "doctor"),
        (("mpc",), "mcp"),
        (("sesions", "list"), "sessions"),
        (("permision", "--json"), "permissions"),
        (("hlep",), "help"),
    ],
)
def test_a_word_close_to_a_command_is_no_prompt(
    program: Program, typed: tuple[str, ...], meant: str
) -> None:
    with program.served([OK]) as api:
        done = program.run(*typed)
        assert len(api.ledger) == 0
    assert (done.code, done.out, program.logs()) == (2, "", [])
    assert f"Unknown command {typed[0]!r}. Did you mean `travois {meant}`?" in done.err
    assert f"travois -p {typed[0]}" in done.err


@pytest.mark.parametrize(
    "typed", [("refactor",), ("memry please",), ("-p", "memry"), ("memry", "-p"), ("--", "memry")]
)
def test_sentences_other_words_and_marked_prompts_stay_prompts(
    program: Program, typed: tuple[str, ...]
) -> None:
    with program.served([OK]) as api:
        done = program.run(*program.model, *typed) if typed[0] == "--" else program.run(*typed)
        assert (done.code, done.out) == (0, "ok\n"), done.err
        assert typed[-1].replace("-p", "memry") in str(api.bodies[0]["messages"][-1])


def test_help_is_a_command(program: Program) -> None:
    whole = program.run("help")
    assert (whole.code, whole.err) == (0, "")
    assert whole.out == program.run("--help").out
    one = program.run("help", "sessions")
    assert (one.code, "travois sessions" in one.out) == (0, True)
    assert program.run("help", "nothing").code == 2


# --- the folder of a session -------------------------------------------------------------------


def test_the_library_refuses_a_folder_that_is_not_there(program: Program) -> None:
    (program.folder / "file").write_text("")
    code = (
        "import anyio\n"
        "from travois import Options, Session, UserError\n"
        "from travois.testing import Scripted\n"
        "async def main(cwd):\n"
        "    try:\n"
        "        async with Session(Options(cwd=cwd, model=Scripted())):\n"
        "            print('opened')\n"
        "    except UserError as fault:\n"
        "        print(fault)\n"
        "for cwd in ('nowhere', 'file'):\n"
        "    anyio.run(main, cwd)\n"
    )
    program.launcher = (program.launcher[0], "-c", code)
    done = program.run()
    assert (done.code, done.out, done.err) == (
        0,
        "Cannot work in nowhere: it does not exist\n  Create it, or name another cwd.\n"
        "Cannot work in file: it is not a folder\n  Create it, or name another cwd.\n",
        "",
    )
    assert not (program.folder / "nowhere").exists()
    assert program.logs() == []


# --- a terminal that is closed -----------------------------------------------------------------


@pytest.mark.parametrize("front", ["screen", "--plain"])
@pytest.mark.parametrize("how", ["hangup", "ignored"])
@pytest.mark.parametrize("during", ["prompt", "turn"])
def test_a_closed_terminal_is_no_crash(program: Program, front: str, how: str, during: str) -> None:
    sleeping = {"say": [{"tool_use": {"name": "Bash", "input": {"command": "sleep 5"}}}]}
    with program.served([sleeping, OK]):
        program.extra = {"TERM": "xterm-256color"}
        flags = ("--allowedTools", "Bash", *(("--plain",) if front == "--plain" else ()))
        near, far = pty.openpty()
        child = subprocess.Popen(
            [*program.launcher, *program.model, *flags],
            cwd=program.folder,
            env=program.environment,
            stdin=far,
            stdout=far,
            stderr=far,
            start_new_session=True,
        )
        os.close(far)
        read_until(near, b"\n> " if front == "--plain" else b"%")
        if during == "turn":
            os.write(near, b"go\r" if front == "screen" else b"go\n")
            read_until(near, b"sleep" if front == "screen" else b"Bash")
        if how == "hangup":
            child.send_signal(signal.SIGHUP)
        os.close(near)
        # Without a signal, a terminal that is gone may look like one that somebody left.
        assert child.wait(300) in ((129,) if how == "hangup" else (0, 129))
    assert not (program.home / "crashes").exists()
    ends = [read(log)[-1].fact for log in program.logs()]
    assert [type(fact) for fact in ends] == ([Ended] if during == "turn" else [])


def read_until(fd: int, words: bytes) -> None:
    seen, end = b"", time.monotonic() + 120
    while words not in seen:
        assert time.monotonic() < end, seen
        if select.select([fd], [], [], 0.2)[0]:
            seen += os.read(fd, 1 << 16)


@pytest.fixture
def heeds_hangups() -> Iterator[None]:
    """Programs that are started here heed a hangup, also where `nohup` runs the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("heeds_hangups")
def test_a_hangup_ends_a_headless_run_in_good_order(program: Program) -> None:
    slow = {"say": [{"tool_use": {"name": "Bash", "input": {"command": "touch began; sleep 60"}}}]}
    with program.served([slow, OK]):
        child = program.start("-p", "go", *program.model, "--allowedTools", "Bash")
        while not (program.folder / "began").exists():
            assert child.poll() is None
            time.sleep(0.05)
        child.send_signal(signal.SIGHUP)
        assert child.wait(120) == 129
    facts = [entry.fact for entry in program.facts()]
    assert isinstance(facts[-1], Ended) and facts[-1].why == "aborted"
    assert not (program.home / "crashes").exists()


def test_a_reader_that_leaves_a_command_is_no_crash(program: Program) -> None:
    child = program.start("help")
    assert child.stdout is not None and child.stderr is not None
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait(120) in (0, 1)
    assert not (program.home / "crashes").exists()


# --- JSON --------------------------------------------------------------------------------------


LISTS = [("agents",), ("agents", "types"), ("dream",), ("sessions",), ("search", "x"), ("models",)]
COMMANDS = [
    *LISTS,
    *(("dream", "--stop"), ("dream", "--now", "--rules"), ("sessions", "du")),
    *(("memory",), ("memory", "stats"), ("memory", "where"), ("memory", "inbox")),
    *(("memory", "history"), ("memory", "doctor"), ("memory", "search", "x")),
    *(("config", "explain"), ("plugins",), ("doctor",), ("audit", "ID"), ("inspect",)),
    *(("context",), ("context", "receipts"), ("context", "lost"), ("context", "undo")),
    *(("cost",), ("compact",), ("models", "show"), ("models", "test"), ("search", "--catch-up")),
    *(("agents", "stop", "a1"), ("agents", "nonsense"), ("sessions", "diff", "a", "b")),
    *(("import", "claude", "--dry-run"), ("try", "--", "true")),
]


@pytest.mark.parametrize("state", ["empty", "used"])
def test_a_command_that_was_asked_for_json_prints_json(program: Program, state: str) -> None:
    with program.served([OK]):
        if state == "used":
            assert program.ask("go").code == 0
        told: dict[tuple[str, ...], object] = {}
        for words in COMMANDS:
            at = words.index("--") if "--" in words else len(words)
            done = program.run(*words[:at], "--json", *words[at:])
            assert done.code in (0, 1, 2), (words, done)
            if words == ("search", "--catch-up"):
                continue  # it prepares the index, and has nothing to say
            try:
                told[words] = json.loads(done.out)
            except ValueError:
                pytest.fail(f"{words}: {done}")
            if done.code == 2:
                error = json.loads(done.out)["error"]
                assert error["what"] and error["what"] in done.err
    assert all(isinstance(told[words], list) for words in LISTS if state == "used")
    if state == "empty":
        assert (told["dream",], told["sessions",], told["search", "x"]) == ([], [], [])


def test_a_wrong_command_line_is_told_as_json_too(program: Program) -> None:
    done = program.run("sessions", "--json", "--nonsense")
    assert done.code == 2 and "--nonsense" in done.err
    assert json.loads(done.out)["error"]["what"] == "Invalid command line"


# --- calls that were denied --------------------------------------------------------------------


DENIED = [{"say": [{"tool_use": {"name": "Bash", "input": {"command": "rm a.txt"}}}]}, OK]


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_denied_calls_are_told_and_can_fail_the_run(program: Program, form: str) -> None:
    (program.folder / "a.txt").write_text("")
    with program.served(DENIED):
        done = program.ask("go", "--output-format", form)
    assert done.code == 0
    first, second = done.err.splitlines()
    assert first == "travois: a tool call was denied"
    assert second.startswith("  Bash: ") and "--allowedTools Bash" in second
    if form != "text":
        (denial,) = done.result["permission_denials"]
        assert denial["tool_name"] == "Bash"
        assert denial["tool_input"] == {"command": "rm a.txt"}
        assert denial["tool_use_id"]
    with program.served(DENIED):
        failed = program.ask("go", "--output-format", form, "--fail-on-denial")
    assert (failed.code, failed.out.count("ok")) == (3, done.out.count("ok"))
    with program.served([OK]):
        assert program.ask("go", "--fail-on-denial").code == 0


def test_what_an_agent_was_denied_counts_as_well(program: Program) -> None:
    (program.folder / "a.txt").write_text("")
    task = {"description": "remove it", "prompt": "remove a.txt", "subagent_type": "general"}
    script = [{"say": [{"tool_use": {"name": "Agent", "input": task}}]}, *DENIED, OK]
    with program.served(script):
        done = program.ask("go", "--fail-on-denial")
    assert done.code == 3, done
    assert "a tool call was denied\n  Bash: " in done.err


def test_only_a_session_that_stays_is_said_to_be_resumable(program: Program) -> None:
    program.extra = {"OLLAMA_BASE_URL": f"http://127.0.0.1:{free_port()}"}
    for flags in (("--plain",), ()):
        glass = Glass(program, "--model", "ollama/x", *flags)
        glass.until("Ctrl-D exits." if flags else "%")
        glass.type("hello\n" if flags else "hello\r")
        glass.until("no server is listening")
        glass.still()
        assert glass.leave() == 0
        assert "Resume with" not in glass.story
    assert program.logs() == []
