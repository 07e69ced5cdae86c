"""With no key and no network: the embedded default, files of one's own, and their real cache."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.program import Done, Program, kinds
from tests.e2e.test_models import EMPTY
from tests.e2e.test_toolsets import offered
from tests.local_model.small import HERE, needs_engine, without_layers
from travois.compose.models import NO_KEY_NOTICE, RULES_NOTICE, SMOLLM_NOTICE
from travois.core.facts import Epoch
from travois.local_model.llamacpp import llamacpp_missing_reason


@pytest.fixture
def alone(program: Program) -> Program:
    """The program on a machine without keys and servers."""
    program.extra = dict(EMPTY)
    subprocess.run(["git", "init", "-qb", "main"], cwd=program.folder, check=True)
    (program.folder / "a.txt").write_text("needle\n")
    return program


# --- the embedded default -------------------------------------------------------------------------


def test_without_a_key_simple_requests_are_done_and_it_is_said_by_whom(alone: Program) -> None:
    done = alone.run("-p", "show me the git status")
    assert (done.code, done.out.splitlines()[0]) == (0, "GitStatus:"), done.err
    assert "?? a.txt" in done.out
    (notice,) = done.err.splitlines()
    by_rules = llamacpp_missing_reason() or not HERE.exists()
    said = NO_KEY_NOTICE.format(RULES_NOTICE if by_rules else SMOLLM_NOTICE)
    assert notice == f"travois: {said}"
    alone.extra |= {"ANTHROPIC_API_KEY": "sk-later"}
    done = alone.run("-c", "-p", "read the file a.txt")
    assert (done.code, "needle" in done.out) == (0, True)
    assert done.err == (
        "travois: this session uses local/smollm2 although an API key is set; "
        "--model NAME switches\n"
    )
    facts = alone.facts()
    assert kinds(facts).count("Assistant") == 4
    (head,) = (entry.fact for entry in facts if isinstance(entry.fact, Epoch))
    assert (head.model.name, head.model.window, head.model.is_frail) == (
        "local/smollm2",
        8_192,
        True,
    )


def test_another_model_gets_the_tools_that_the_embedded_one_has_no_use_for(alone: Program) -> None:
    assert alone.run("-p", "show me the git status").code == 0
    (head,) = (entry.fact for entry in alone.facts() if isinstance(entry.fact, Epoch))
    assert {"Read", "GitStatus"} <= {tool.name for tool in head.tools}
    assert not {"Agent", "Symbols", "ToolSearch"} & {tool.name for tool in head.tools}
    with alone.served([{"say": "Hello.", "repeat": True}]) as api:
        assert alone.ask("go on", "-c").code == 0
        assert alone.ask("start anew").code == 0
        later, anew = api.bodies
    assert offered(later) == offered(anew)
    assert {"Agent", "Symbols", "ToolSearch"} <= set(offered(anew))


# --- files of one's own ---------------------------------------------------------------------------


@needs_engine
def test_a_file_that_llama_cpp_dies_of_is_an_error_in_words(alone: Program, tmp_path: Path) -> None:
    bad = without_layers(tmp_path / "bad.gguf")
    done = alone.run("-p", "hello", "--model", f"local/{bad}")
    assert (done.code, done.out) == (1, "")
    assert f"Cannot run {bad}: GGML_ASSERT(" in done.err
    assert "Choose another file" in done.err
    assert alone.logs() == []


def test_a_file_that_is_none_is_a_fault(alone: Program) -> None:
    done = alone.run("-p", "hello", "--model", "local/a.txt")
    assert (done.code, done.out) == (2, "")
    assert "a.txt is not a GGUF file" in done.err


@needs_engine
def test_a_file_is_explained_and_the_embedded_model_is_tried(alone: Program) -> None:
    shown = alone.run("models", "show", f"local/{HERE}").out
    assert "this machine, in a separate process" in shown and "8,192 tokens" in shown
    tried = alone.run("models", "test", "local/smollm2")
    assert (tried.code, "answered in" in tried.out) == (0, True)


# --- the second judge -----------------------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[str]:
    """llama.cpp with its real prefix cache, for several runs."""
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "travois.local_model.serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin and child.stdout
    order = json.dumps({"path": str(HERE), "window": 4_096, "key": "sk-judge"})
    child.stdin.write(f"{order}\n".encode())
    child.stdin.flush()
    yield json.loads(child.stdout.readline())["url"]
    child.stdin.close()
    child.wait(300)
    child.stdout.close()


def usage(done: Done) -> tuple[int, int]:
    """How much of the first prompt of a run was read from the cache, and how much was not."""
    first = next(line for line in done.lines if line["type"] == "assistant")
    counted = first["message"]["usage"]
    return counted["cache_read_input_tokens"], counted["input_tokens"]


@needs_engine
def test_the_real_cache_is_read_by_turns_resumes_and_forks_and_not_after_a_changed_byte(
    program: Program, engine: str
) -> None:
    judge = {"protocol": "anthropic", "url": engine, "keyEnv": ["JUDGE_KEY"]}
    settings = {
        "providers": {"judge": judge},
        "models": {"judge/smollm2": {"window": 4_096, "output": 4}},
        "memory": {"enabled": False},
    }
    program.extra = {"JUDGE_KEY": "sk-judge"}
    chosen = ("--model", "judge/smollm2", "--settings", json.dumps(settings), "--tools", "")
    form = ("--output-format", "stream-json", "--verbose", "--max-turns", "1")
    system = "You are terse. Answer with one word. Never explain anything to anybody."

    def said(prompt: str, *flags: str, head: str = system) -> tuple[int, int]:
        return usage(program.run("-p", prompt, *chosen, *form, "--system-prompt", head, *flags))

    read, fresh = said("Name a colour.")
    first = read + fresh
    assert read == 0
    read, fresh = said("Name another one.", "-c")
    assert read >= first and fresh < first / 2, "a resume reads all that was sent before"
    read, fresh = said("Name a fruit.", "-c", "--fork-session")
    assert read >= first and fresh < first / 2, "a fork reads what it shares"
    read, fresh = said("Name a colour.", head=f"y{system[1:]}")
    assert read <= 8 < fresh, "after one changed byte only the mark of the first turn is left"
