"""Which changes of git's settings an ordinary command makes, and which would run programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from travois.permissions.git_config import (
    CheckedConfig,
    is_harmless_hook,
    parse_git_config,
    undo_harmful_changes,
)

BEFORE = b"""[core]
\trepositoryformatversion = 0
\teditor = vim  # mine
[alias]
\tst = status
"""

HARMLESS = (
    '[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main\n',
    '[remote "origin"]\n\turl = git@host:a/b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n',
    '[REMOTE "up"] URL = ../up\n',
    '[submodule "a/b"]\n\tactive = true\n\turl = /srv/b\n\tupdate = rebase\n',
    "[extensions]\n\tobjectFormat = sha256\n",
    "[gc]\n\tauto = 0\n",
    "[lfs]\n\trepositoryformatversion = 0\n",
    '[lfs "https://host/a.git/info/lfs"]\n\taccess = basic\n',
    '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\trequired = true\n',
    '[user]\n\tname = "A; B"\n',
)
HARMFUL = {
    "core.fsmonitor": "[core]\n\tfsmonitor = ./evil\n",
    "core.hookspath": "[core]hooksPath=evil\n",
    "core.sshcommand": '[core "x"]\n[CORE]\n\tsshCommand = \\\n  "ev\\\nil"\n',
    "core.editor": "[core]\n\teditor = evil\n",
    "core.worktree": "[core]\n\tworktree = /home\n",
    "alias.x": "[alias]\n\tx = !evil\n",
    "filter.x.clean": '[filter "x"]\n\tclean = evil\n',
    "filter.lfs.smudge": '[filter "lfs"]\n\tsmudge = evil\n',
    "diff.x.command": "[diff.x]\n\tcommand = evil\n",
    "credential.helper": "[credential]\n\thelper = !evil\n",
    "remote.o.uploadpack": '[remote "o"]\n\tuploadpack = evil\n',
    "remote.o.receivepack": '[remote "o"]\n\treceivepack = evil\n',
    "remote.o.vcs": '[remote "o"]\n\tvcs = evil\n',
    "remote.o.proxy": '[remote "o"]\n\tproxy = http://evil\n',
    "remote.o.url": '[remote "o"]\n\turl = ext::sh -c evil\n',
    "branch.main.remote": '[branch "main"]\n\tremote = ext::evil\n',
    "submodule.a.update": '[submodule "a"]\n\tupdate = !evil\n',
    "url.evil.insteadof": '[url "evil"]\n\tinsteadOf = git@host\n',
    "gc.recentobjectshook": "[gc]\n\trecentObjectsHook = evil\n",
    "extensions.worktreeconfig": "[extensions]\n\tworktreeConfig\n",
}


@pytest.mark.parametrize("added", HARMLESS)
def test_what_ordinary_commands_set_stays_byte_for_byte(added: str) -> None:
    after = BEFORE + added.encode()
    assert undo_harmful_changes(BEFORE, after) == CheckedConfig(after)


@pytest.mark.parametrize("key", HARMFUL)
def test_what_would_run_programs_is_undone_and_the_rest_stays(key: str) -> None:
    settled = undo_harmful_changes(BEFORE, BEFORE + HARMLESS[0].encode() + HARMFUL[key].encode())
    kept = {s.key: s.value for s in parse_git_config(settled.data)}
    before = {s.key: s.value for s in parse_git_config(BEFORE)}
    if key == "branch.main.remote":
        assert settled.undone == (key,)
        assert {**before, "branch.main.merge": "refs/heads/main"} == kept
        return
    added = {"branch.main.remote": "origin", "branch.main.merge": "refs/heads/main"}
    assert (settled.undone, kept) == ((key,), before | added)


def test_a_setting_that_was_there_and_goes_comes_back() -> None:
    settled = undo_harmful_changes(BEFORE, b"[core]\n\trepositoryformatversion = 0\n")
    assert settled.undone == ("alias.st", "core.editor")
    assert [(s.key, s.value) for s in parse_git_config(settled.data)] == [
        ("core.repositoryformatversion", "0"),
        ("core.editor", "vim"),
        ("alias.st", "status"),
    ]


@pytest.mark.parametrize(
    "added", [b"[include]\n\tpath = evil\n", b'[includeIf "gitdir:/"]\n\tpath = evil\n']
)
def test_a_file_that_would_be_included_puts_all_back(added: bytes) -> None:
    settled = undo_harmful_changes(BEFORE, BEFORE + HARMLESS[0].encode() + added)
    assert (settled.data, len(settled.undone)) == (BEFORE, 1)


@pytest.mark.parametrize("added", [b"[core", b'[a]\nx = "', b"[a]\nx = \\q", b"\xff", b"[a]\n\x0c"])
def test_what_cannot_be_read_for_certain_puts_all_back(added: bytes) -> None:
    assert undo_harmful_changes(BEFORE, BEFORE + added).data == BEFORE


PARTS = (
    *("[core]", '[a "b"]', '[a "B\\"c"]', "[Sec.Sub]", "[ core ]", '[a\t"b"]', '[a "b" ]'),
    *("\n", "\n\t", "\r\n", "\r", " ", "\t", "key", "Key-2", "9key", "k_y", "a.b", "é", "\ufeff"),
    *("=", " = ", "val", '"q v"', '"', "\\\n", "\\n", "\\t", '\\"', "\\x", "#c", ";c", "\x0b"),
)


@given(st.lists(st.sampled_from(PARTS), max_size=9))
@settings(max_examples=150, deadline=None)
def test_what_we_read_is_what_git_reads(parts: list[str]) -> None:
    data = ("[core]\n" + "".join(parts)).encode()
    try:
        ours = [(s.key, s.value) for s in parse_git_config(data)]
    except ValueError:
        return  # then all is put back, whatever git would read
    with TemporaryDirectory() as folder:
        path = Path(folder, "config")
        path.write_bytes(data)
        words = ("git", "config", "--file", path, "--null", "--list", "--no-includes")
        done = subprocess.run(
            words, capture_output=True, check=True, env={"PATH": os.environ["PATH"]}
        )
    theirs = [entry.partition("\n") for entry in done.stdout.decode().split("\0")[:-1]]
    # Some versions of git turn a tab within a value into a space.
    assert [(key, value and value.replace("\t", " ")) for key, value in ours] == [
        (key, value.replace("\t", " ") if newline else None) for key, newline, value in theirs
    ]


def test_only_samples_and_the_hooks_of_lfs_are_harmless() -> None:
    lfs = (
        b"#!/bin/sh\ncommand -v git-lfs >/dev/null 2>&1 || "
        b"{ echo >&2 \"\\nGit LFS was not found: delete '.git/hooks/pre-push'.\\n\"; exit 2; }\n"
        b'git lfs pre-push "$@"\n'
    )
    assert is_harmless_hook("pre-push", lfs)
    assert is_harmless_hook("pre-commit.sample", b"anything")
    assert not is_harmless_hook("pre-commit", lfs)
    assert not is_harmless_hook("pre-push", lfs + b"evil\n")
    assert not is_harmless_hook("pre-push", lfs.replace(b"was", b"$(evil)"))
