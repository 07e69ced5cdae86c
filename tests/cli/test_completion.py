"""Shells complete what the command line accepts, and the manual page describes it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pexpect
import pytest
from bench.manual import MANUAL

from travois.cli.command_tree import CommandNode, read_command_tree
from travois.cli.completion import SHELLS
from travois.cli.manual import render_manual
from travois.commands.flags import COMMANDS

CASES = {
    "travois ses": "sessions",
    "travois sessions re": "rename",
    "travois sessions list --js": "--json",
    "travois completion fi": "fish",
    "travois --permission-prompts ho": "host",
    "travois --fork-s": "--fork-session",
}
"""A line, and the one word that completes it."""


@pytest.fixture(scope="module")
def tree() -> CommandNode:
    return read_command_tree()


def write_script(tree: CommandNode, shell: str, folder: Path) -> Path:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (folder / "travois").write_text(SHELLS[shell](tree))
    return folder / "travois"


def test_every_command_and_subcommand_is_in_the_tree(tree: CommandNode) -> None:
    assert [one.path[0] for one in tree.commands] == list(COMMANDS)
    sessions = next(one for one in tree.commands if one.path == ("sessions",))
    assert {one.path[-1] for one in sessions.commands} >= {"list", "show", "export", "diff"}


@pytest.mark.parametrize("line", CASES)
def test_bash_completes(line: str, tree: CommandNode, tmp_path: Path) -> None:
    script = write_script(tree, "bash", tmp_path)
    words = f"source {script}; COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))"
    done = subprocess.run(
        ["bash", "-c", f'{words}; _travois; echo "${{COMPREPLY[*]}}"'],
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == (f"{CASES[line]}\n", "")


@pytest.mark.parametrize("line", CASES)
def test_fish_completes(line: str, tree: CommandNode, tmp_path: Path) -> None:
    script = write_script(tree, "fish", tmp_path)
    done = subprocess.run(
        ["fish", "-c", f"source {script}; complete -C '{line}'"],
        capture_output=True,
        text=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert [row.partition("\t")[0] for row in done.stdout.splitlines()] == [CASES[line]]
    assert done.stderr == ""


def test_zsh_completes(tree: CommandNode, tmp_path: Path) -> None:
    script = write_script(tree, "zsh", tmp_path)
    shell = pexpect.spawn("zsh", ["-f"], encoding="utf-8", dimensions=(24, 200), timeout=60)
    shell.sendline(f"autoload -U compinit; compinit -u -d {tmp_path}/dump; source {script}")
    shell.sendline("PS1='rea''dy '; unsetopt zle; setopt zle")
    shell.expect("ready ")
    for line, word in CASES.items():
        typed, _, start = line.rpartition(" ")
        shell.send(f"{typed} {start}\t")
        shell.expect_exact(word.removeprefix(start))
        shell.sendcontrol("u")
    shell.terminate(force=True)


def test_the_manual_page_is_that_of_the_command_line(tree: CommandNode) -> None:
    assert MANUAL.read_text("utf-8") == render_manual(tree), "run: python -m bench.manual"


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_the_manual_page_is_valid_roff() -> None:
    done = subprocess.run(["man", "--warnings", "-l", MANUAL], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "travois sessions list" in done.stdout
