"""The screen on terminals of all kinds, and what nobody may do to it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.test_injections import payload
from tests.corpus.test_security import CORPORA, rows
from tests.e2e.glass import Glass, use
from tests.e2e.program import Program
from tests.processes import children
from travois.core.content import extract_text
from travois.core.facts import User

WIDE = "Ein Täßchen 茶を飲む 🍵 한국어 and العربية done."
SANE = ("icanon", "echo ", "icrnl", "isig")


def prompts(program: Program) -> list[str]:
    facts = (entry.fact for entry in program.facts())
    return [extract_text(f.content) for f in facts if isinstance(f, User) and f.origin == "human"]


def test_wide_characters_keep_their_places(program: Program) -> None:
    table = "| 名前 | b |\n|---|---|\n| 茶 | 1 |\n| coffee | 22 |"
    with program.served([{"say": f"{WIDE}\n\n{table}", "repeat": True}]):
        glass = Glass(program, *program.model)
        glass.ready()
        glass.type("お茶をください\r")
        glass.until("coffee", "cache")
        glass.still()
        assert "❯ お茶をください" in glass.text.replace("\x00", "")
        shown = [line for line in glass.lines if "coffee" in line or "名" in line]
        assert len(shown) == 2
        assert glass.leave() == 0
    assert prompts(program) == ["お茶をください"]


def test_forty_columns_are_enough(program: Program) -> None:
    text = "A paragraph with `code` that is folded more than once at forty columns."
    script = [{"say": [{"text": text}, use("Bash", command="rm a-file-with-a-very-long-name.txt")]}]
    with program.served([*script, {"say": "Done."}]):
        glass = Glass(program, *program.model, columns=40, rows=30)
        glass.ready()
        glass.type("go\r")
        shown = glass.until("no, and tell it why")
        assert "A paragraph with code that is folded" in glass.story
        assert "  ? Run `rm\n    a-file-with-a-very-long-name.txt`?" in shown
        glass.still()
        glass.type("n")
        glass.until("what to do instead")
        glass.type("\r")
        glass.until("Done.")
        assert "%" in glass.lines[-1] or "%" in glass.text.splitlines()[-1]
        assert glass.leave() == 0


def test_no_color_means_none(program: Program) -> None:
    script = [{"say": [{"text": "```python\nx = 1\n```"}, use("Bash", command="rm x")]}]
    with program.served([*script, {"say": "Done."}]):
        glass = Glass(program, *program.model, NO_COLOR="1")
        glass.ready()
        glass.type("go\r")
        glass.until("no, and tell it why")
        glass.still()
        glass.type("\x1b")
        glass.until("no, and stop", "stopped;")
        assert glass.leave() == 0
        colours = {cell.fg for row in glass.screen.buffer.values() for cell in row.values()}
        assert colours == {"default"}


def test_another_size_leaves_one_prompt(program: Program) -> None:
    script = [{"say": "word " * 200, "chunks": {"by": "char", "delay_ms": 1}}, {"say": "Still."}]
    with program.served(script):
        glass = Glass(program, *program.model)
        glass.ready()
        glass.type("go\r")
        glass.until("word word")
        for columns, height in ((60, 20), (100, 30), (44, 12), (80, 24)):
            glass.resize(columns, height)
            glass.pump(0.2)
        glass.until("cache")
        glass.type("and?\r")
        glass.until("Still.")
        glass.still()
        assert [line for line in glass.lines if line.startswith("│ ❯")] == [
            "│ ❯ Describe a task, or / for commands"
        ]
        assert glass.leave() == 0


def test_a_paste_of_a_megabyte_is_shown_by_its_size_and_sent_whole(program: Program) -> None:
    text = "".join(f"line {number}\n" for number in range(100_000))[:1_000_000]
    with program.served([{"say": "Read.", "repeat": True}]):
        glass = Glass(program, *program.model)
        glass.ready()
        glass.type("see: ")
        for start in range(0, len(paste := f"\x1b[200~{text}\x1b[201~"), 50_000):
            glass.type(paste[start : start + 50_000])
            glass.pump(0.01)
        glass.until("❯ see: [pasted 1.0 MB]")
        glass.type("\r")
        glass.until("Read.")
        assert glass.leave() == 0
    assert prompts(program) == [f"see: {text}"]


@pytest.mark.parametrize("cut", range(1, len("\x1b[200~")))
def test_a_paste_whose_mark_comes_in_two_pieces_is_still_one_prompt(
    program: Program, cut: int
) -> None:
    paste = "\x1b[200~one\ntwo\nthree\x1b[201~"
    with program.served([{"say": "Read.", "repeat": True}]):
        glass = Glass(program, *program.model)
        glass.ready()
        glass.type(paste[:cut])
        glass.still()
        glass.type(paste[cut:])
        glass.until("three")
        glass.type("\r")
        glass.until("Read.")
        assert glass.leave() == 0
    assert prompts(program) == ["one\ntwo\nthree"]


def sane(program: Program, *args: str) -> Glass:
    """The program under a shell that tells how it left the terminal."""
    script = '"$@"; echo "code=$?"; stty -a; echo over'
    shell = replace(program, launcher=("/bin/sh", "-c", script, "sh", *program.launcher))
    return Glass(shell, *args, columns=100, rows=40)


def child(glass: Glass) -> int:
    return children(glass.child.pid)[0].pid


def test_the_terminal_is_given_back_whatever_happens(program: Program) -> None:
    with program.served([{"say": [use("Bash", command="sleep 60")], "repeat": True}]) as api:
        for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            glass = sane(program, *program.model, "--permission-mode", "bypass")
            glass.ready()
            glass.type("go\r")
            glass.until("● $ sleep")
            os.kill(child(glass), number)
            glass.until(f"code={code}", "over")
            assert all(word in f"{glass.text} " for word in SANE)
            assert "-icanon" not in glass.text and "-echo " not in glass.text
            glass.end()
        api.no_orphans()


def test_a_fault_before_the_first_word_leaves_a_sane_terminal(program: Program) -> None:
    glass = sane(program, "--model", "nobody/nothing")
    shown = glass.until("code=2", "over")
    assert "travois: " in shown and "❯" not in shown
    assert "-icanon" not in shown
    glass.end()


@pytest.mark.parametrize("seed", range(3))
def test_interrupts_at_any_moment_leave_a_prompt_that_works(program: Program, seed: int) -> None:
    chance = random.Random(seed)
    script: list[dict[str, Any]] = [
        {"when": {"last_text": "ping"}, "say": "pong.", "repeat": True},
        {
            "say": [{"text": "Some words. " * 20}, use("Bash", command="echo x; sleep 0.2")],
            "chunks": {"by": "char", "delay_ms": 1},
            "repeat": True,
        },
    ]
    with program.served(script) as api:
        glass = Glass(program, *program.model, "--permission-mode", "bypass")
        glass.ready()
        for _ in range(6):
            glass.type("work\r")
            end = time.monotonic() + chance.random() * 1.2
            while time.monotonic() < end:
                glass.pump(0.02)
            glass.type(chance.choice(["\x1b", "\x03"]))
            glass.pump(0.9)
        glass.still()
        glass.type("\x03")
        glass.still()
        glass.type("\x15ping\r")
        glass.until("pong.")
        assert glass.leave() == 0
        api.no_orphans()
        api.no_invalid()


@pytest.mark.skipif(not CORPORA.is_dir(), reason="the security corpora are not here")
def test_nothing_that_content_says_is_obeyed_by_the_terminal(program: Program) -> None:
    hostile = [payload(row) for row in rows("injections.jsonl") if {"T1", "T3"} & {*row["expect"]}]
    texts = [data.decode("utf-8", "replace")[:2_000] for data in hostile]
    for number, text in enumerate(texts):
        (program.folder / f"f{number}.txt").write_text(text)
    said = [
        [{"text": text}, use("Bash", command=f"cat f{n}.txt; false")]
        for n, text in enumerate(texts)
    ]
    script = [{"say": say} for say in said]
    with program.served([*script, {"say": "The end."}]):
        glass = Glass(program, *program.model, "--permission-mode", "bypass", rows=50)
        titles: list[str] = []
        glass.screen.set_title = titles.append
        glass.screen.set_icon_name = titles.append
        glass.ready()
        before = len(glass.raw)
        glass.type("go\r")
        glass.until("The end.")
        glass.still()
        assert {*titles} <= {"work", "✳ work", "go", "✳ go", BACKGROUND_QUERY_AS_TITLE}
        assert obeyed(glass.raw[before:]) == set()
        assert glass.leave() == 0


BACKGROUND_QUERY_AS_TITLE = ";?"
"""How pyte reads our question about the background."""


def obeyed(raw: str) -> set[str]:
    """The codes that reached the terminal, besides those that the screen itself is drawn with."""
    import re

    ours = re.compile(
        r"\x1b\[[0-9;]*[mABCDKLMJ]|\x1b\[\?25[hl]|\x1b\[\?12l|\x1b\[\?2004[hl]|[\r\n]"
        r"|\x1b\]2;(?:✳ )?(?:go|work)\x07"
    )
    rest = ours.sub("", raw)
    hidden = re.search(r"\x1b\[(?:[0-9]*;)*8(?:;[0-9]*)*m", raw)
    found = {c for c in rest if ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\u2066\u2028"}
    return found | ({"conceal"} if hidden else set())


@pytest.mark.skipif(not CORPORA.is_dir(), reason="the security corpora are not here")
def test_a_question_hides_nothing_of_what_would_run(program: Program) -> None:
    hostile = [payload(row).decode() for row in rows("injections.jsonl") if "T2" in row["expect"]]
    script = [{"say": [use("Bash", command=f"make '{text}'")]} for text in hostile]
    with program.served([*script, {"say": "The end."}]):
        glass = Glass(program, *program.model, "--no-sandbox", columns=100, rows=50)
        glass.ready()
        glass.type("go\r")
        for number, text in enumerate(hostile, 1):
            glass.until("no, and tell it why")
            glass.still()
            from travois.core.display_text import escape_invisible

            squeezed = "".join(glass.story.split())
            for part in f"make '{text}'".split("\n"):
                assert "".join(escape_invisible(part).split()) in squeezed.replace("│", "")
            glass.type("n")
            glass.until("Enter to skip")
            glass.type("\r")
            # The next question may stand there before anybody saw this one go.
            glass.wait(lambda n=number: glass.story.count("→ no") == n, "the refusal")
        glass.until("The end.")
        assert glass.leave() == 0


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_it_works_in_tmux(program: Program, tmp_path: Path) -> None:
    socket = str(tmp_path / "tmux")

    def tmux(*words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", socket, *words], capture_output=True, text=True, check=True, env=env
        )
        return done.stdout

    def until(word: str, *, count: int = 1) -> str:
        for _ in range(3_000):
            if (shown := tmux("capture-pane", "-p", "-S", "-100")).count(word) >= count:
                return shown
            time.sleep(0.1)
        raise AssertionError(f"{word!r} never came; there was:\n{shown}")

    with program.served([{"say": "# Title\n\nWords.", "repeat": True}]):
        env = {**program.environment, "TERM": "xterm-256color"}
        command = [*program.launcher, *program.model]
        tmux(
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "70",
            "-y",
            "20",
            "-c",
            str(program.folder),
            *command,
        )
        try:
            until("0%")
            for number in range(3):
                tmux("send-keys", f"hello {number}", "Enter")
                until(f"hello {number}")
                shown = until("Words.", count=number + 1)
            assert [line for line in shown.splitlines() if line.startswith("❯")] == [
                "❯ hello 0",
                "❯ hello 1",
                "❯ hello 2",
            ]
            assert shown.count("│ ❯") == shown.count("╭─") == 1
            assert shown.count("Words.") == 3
        finally:
            tmux("kill-server")


def test_colours_that_were_chosen_are_there_the_next_time(program: Program) -> None:
    with program.served("lab-echo"):
        glass = Glass(program, *program.model)
        glass.ready()
        assert "38;5;117m" in glass.raw
        glass.type("/theme light\r")
        glass.until("also in new sessions")
        assert glass.leave() == 0
        again = Glass(program, *program.model)
        again.ready()
        assert ("38;5;25m" in again.raw, "38;5;117m" in again.raw) == (True, False)
        assert again.leave() == 0
