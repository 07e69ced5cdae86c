"""Going back with the real program: what was said and what was done are both taken back."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from time import sleep

from tests.e2e.glass import use
from tests.e2e.program import Program, kinds
from travois.core.content import extract_text
from travois.core.facts import Changed, Result, Rewound
from travois.snapshots.database import open_snapshot_database

FLAGS = ("--permission-mode", "bypass")


def turns(program: Program) -> None:
    """Two turns: the first makes a file, the second changes, removes and makes some."""
    (program.folder / "old.txt").write_text("old\n")
    second = "rm old.txt; mkdir made; echo x > made/x; echo changed > one.txt"
    script = [
        {"say": [use("Write", file_path="one.txt", content="first\n")]},
        {"say": [{"text": "one"}]},
        {"say": [use("Bash", command=second)]},
        {"say": [{"text": "two"}]},
    ]
    with program.served(script):
        for prompt, flags, said in (("make it", (), "one\n"), ("break it", ("-c",), "two\n")):
            done = program.ask(prompt, *flags, *FLAGS)
            assert done.out == said, done.err


def files(program: Program) -> dict[str, str]:
    found = (path for path in program.folder.rglob("*") if path.is_file())
    found = (path for path in found if ".git" not in path.parts)
    return {str(path.relative_to(program.folder)): path.read_text() for path in found}


AFTER_ONE = {"old.txt": "old\n", "one.txt": "first\n"}
AFTER_TWO = {"one.txt": "changed\n", "made/x": "x\n"}


def test_files_and_conversation_go_back_and_the_session_goes_on(program: Program) -> None:
    turns(program)
    done = program.run("rewind", "--to", "1", "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "2 restored, 2 deleted."
    assert files(program) == AFTER_ONE
    assert not (program.folder / "made").exists()
    with program.served([{"say": [{"text": "on"}]}]) as api:
        assert program.ask("go on", "-c", *FLAGS).out == "on\n"
        api.no_invalid()
        sent = api.ledger[0].body
    assert b"make it" in sent
    assert b"break it" not in sent


def test_a_rewind_can_be_taken_back(program: Program) -> None:
    turns(program)
    assert program.run("rewind", "--to", "0", "--yes").code == 0
    assert files(program) == {"old.txt": "old\n"}
    assert program.run("rewind", "--undo", "--yes").code == 0
    assert files(program) == AFTER_TWO
    with program.served([{"say": [{"text": "on"}]}]) as api:
        program.ask("go on", "-c", *FLAGS)
        assert b"break it" in api.ledger[0].body


def test_what_the_user_changed_since_stays_until_they_say_so(program: Program) -> None:
    turns(program)
    (program.folder / "one.txt").write_text("mine\n")
    done = program.run("rewind", "--to", "1", "--yes")
    assert done.out.splitlines()[-1] == "1 restored, 2 deleted, 1 kept."
    assert done.err.endswith(f"travois:   {program.folder}/one.txt\n")
    assert files(program) == AFTER_ONE | {"one.txt": "mine\n"}
    program.run("rewind", "--undo", "--yes")
    assert files(program) == AFTER_TWO | {"one.txt": "mine\n"}
    program.run("rewind", "--to", "1", "--yes", "--overwrite")
    assert files(program) == AFTER_ONE


def test_only_the_files_or_only_the_conversation(program: Program) -> None:
    turns(program)
    assert program.run("rewind", "--to", "1", "--files-only", "--yes").code == 0
    assert files(program) == AFTER_ONE
    assert "Rewound" not in kinds(program.facts())
    program.run("rewind", "--undo", "--yes")
    assert files(program) == AFTER_TWO
    assert program.run("rewind", "--to", "1", "--conversation-only", "--yes").code == 0
    assert files(program) == AFTER_TWO
    assert [type(e.fact) for e in program.facts()].count(Rewound) == 1
    shutil.rmtree(program.home / "snapshots")
    lost = program.run("rewind", "--to", "0", "--yes")
    assert (lost.code, files(program)) == (2, AFTER_TWO)
    assert lost.err.endswith("  Use --conversation-only to rewind the conversation alone.\n")
    assert program.run("rewind", "--to", "0", "--conversation-only", "--yes").code == 0
    assert program.run("rewind", "--undo", "--yes").code == 0


def test_a_dry_run_and_a_list_change_nothing(program: Program) -> None:
    turns(program)
    before = program.facts()
    done = program.run("rewind", "--to", "1", "--dry-run")
    assert done.code == 0
    assert f"  revert   {program.folder}/one.txt  +1 -1\n" in done.out
    assert f"  delete   {program.folder}/made\n" in done.out
    listed = program.run("rewind", "--list").out.splitlines()
    assert [line.split()[0] for line in listed if line[:4].strip()] == ["TURN", "1", "2"]
    assert program.facts() == before
    assert files(program) == AFTER_TWO
    refused = program.run("rewind", "--to", "1")
    assert (refused.code, refused.err.splitlines()[0]) == (
        2,
        "travois: Cannot ask: standard input is not a terminal",
    )
    absent = program.run("rewind", "--to", "9", "--yes")
    assert (absent.code, absent.err.splitlines()[0]) == (
        2,
        "travois: Turn 9 not found: the conversation has 2 turns",
    )


# --- what is kept, and when -----------------------------------------------------------------------


def snapshots(program: Program) -> list[str]:
    """Why each snapshot of the session was taken."""
    found = (entry.fact for entry in program.facts())
    return [
        fact.value.partition(" ")[2]
        for fact in found
        if isinstance(fact, Changed) and fact.what == "snapshot"
    ]


def covered(program: Program) -> list[list[str]]:
    """The paths that each snapshot of the project covers, in the order in which they were taken."""
    (path,) = program.home.glob("snapshots/*.db")
    with open_snapshot_database(path) as shelf:
        taken = list(shelf.newest())
    return [[os.fsdecode(root.path) for root in one.roots] for one in reversed(taken)]


def plant(folder: Path, *, files: int) -> None:
    """A repository with so many files, all committed."""
    for number in range(files):
        place = folder / f"d{number // 100}"
        place.mkdir(exist_ok=True)
        (place / f"f{number}.txt").write_text(f"{number}\n")
    run = "git init -q && git add -A && git -c user.name=t -c user.email=t@t commit -qm x"
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["sh", "-c", f"{run} && git repack -qad"]
    subprocess.run(command, cwd=folder, env={**os.environ, **quiet}, check=True)


def test_an_edit_saves_its_file_alone_and_goes_back(program: Program) -> None:
    (program.folder / "a.txt").write_text("old\n")
    (program.folder / "b.txt").write_text("other\n")
    script = [
        {"say": [use("Edit", file_path="a.txt", old_string="old", new_string="new")]},
        {"say": [use("Write", file_path="made/deep/c.txt", content="c\n")]},
        {"say": [{"text": "done"}]},
    ]
    with program.served(script):
        assert program.ask("edit", *FLAGS).out == "done\n"
    assert files(program) == {"a.txt": "new\n", "b.txt": "other\n", "made/deep/c.txt": "c\n"}
    edited, made = f"{program.folder}/a.txt", f"{program.folder}/made"
    assert covered(program) == [[edited], [made], [edited, made]]
    (program.folder / "b.txt").write_text("mine\n")
    done = program.run("rewind", "--to", "0", "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (0, "1 restored, 3 deleted.")
    assert files(program) == {"a.txt": "old\n", "b.txt": "mine\n"}
    assert not (program.folder / "made").exists()
    assert program.run("rewind", "--undo", "--yes").code == 0
    assert files(program) == {"a.txt": "new\n", "b.txt": "mine\n", "made/deep/c.txt": "c\n"}


def test_a_file_that_the_user_edited_after_the_model_stays(program: Program) -> None:
    (program.folder / "a.txt").write_text("old\n")
    script = [
        {"say": [use("Edit", file_path="a.txt", old_string="old", new_string="new")]},
        {"say": [use("Write", file_path="made/c.txt", content="c\n")]},
        {"say": [{"text": "done"}]},
    ]
    with program.served(script):
        program.ask("edit", *FLAGS)
    (program.folder / "a.txt").write_text("mine\n")
    (program.folder / "made/mine.txt").write_text("mine\n")
    done = program.run("rewind", "--to", "0", "--yes")
    assert done.code == 0, done.err
    assert files(program) == {"a.txt": "mine\n", "made/mine.txt": "mine\n"}


def test_an_edit_that_fails_costs_no_snapshot_of_the_tree(program: Program) -> None:
    (program.folder / "a.txt").write_text("old\n")
    script = [
        {"say": [use("Edit", file_path="a.txt", old_string="absent", new_string="new")]},
        {"say": [use("Edit", file_path="no/such.txt", old_string="x", new_string="y")]},
        {"say": [{"text": "done"}]},
    ]
    with program.served(script):
        assert program.ask("edit", *FLAGS).out == "done\n"
    assert str(program.folder) not in [path for one in covered(program) for path in one]
    assert program.run("rewind", "--to", "0", "--yes").out.splitlines()[-1] == (
        "0 restored, 0 deleted."
    )
    assert files(program) == {"a.txt": "old\n"}


def test_edits_and_commands_of_one_turn_go_back_together(program: Program) -> None:
    (program.folder / "a.txt").write_text("old\n")
    (program.folder / "b.txt").write_text("b\n")
    script = [
        {"say": [use("Edit", file_path="a.txt", old_string="old", new_string="new")]},
        {"say": [use("Bash", command="rm -rf a.txt b.txt; echo x > c.txt")]},
        {"say": [{"text": "done"}]},
    ]
    with program.served(script):
        assert program.ask("break it", *FLAGS).out == "done\n"
    assert files(program) == {"c.txt": "x\n"}
    assert program.run("rewind", "--to", "0", "--yes").code == 0
    assert files(program) == {"a.txt": "old\n", "b.txt": "b\n"}


def test_a_command_right_after_the_start_waits_for_the_snapshot_of_a_large_tree(
    program: Program,
) -> None:
    plant(program.folder, files=3_000)
    (program.folder / "untracked.txt").write_text("mine\n")
    (program.folder / "d0/f0.txt").write_text("not committed\n")
    before = files(program)
    script = [
        {"say": [use("Bash", command="rm -rf d* untracked.txt")]},
        {"say": [{"text": "done"}]},
    ]
    with program.served(script):
        assert program.ask("break it", *FLAGS).out == "done\n"
    assert len(files(program)) == 0
    assert [why.partition(":")[0] for why in snapshots(program)] == [
        "before Bash",
        "after the turn",
    ]
    assert program.run("rewind", "--to", "0", "--yes").code == 0
    assert files(program) == before
    status = ["git", "status", "--porcelain"]
    shown = subprocess.run(status, cwd=program.folder, capture_output=True, check=True).stdout
    assert shown == b" M d0/f0.txt\n?? untracked.txt\n"


def test_ignored_files_come_back_and_what_is_left_out_is_said(program: Program) -> None:
    (program.folder / ".gitignore").write_text(".env\nnode_modules/\nout/\n")
    plant(program.folder, files=3)
    kept = {".env": "KEY=1\n", "out/result.bin": "built\n"}
    for name, text in {**kept, "node_modules/lib/index.js": "lib\n"}.items():
        (program.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (program.folder / name).write_text(text)
    destroy = "import shutil, os; os.unlink('.env'); "
    destroy += "[shutil.rmtree(x) for x in os.listdir() if x in ('out', 'node' '_modules')]"
    script = [
        {"say": [use("Bash", command=f'python3 -c "{destroy}"')]},
        {"say": [{"text": "done"}]},
    ]
    with program.served(script):
        assert program.ask("break it", *FLAGS).out == "done\n"
    results = [entry.fact for entry in program.facts() if isinstance(entry.fact, Result)]
    told = f"[A rewind will not restore what changed in {program.folder}/node_modules.]"
    assert told in extract_text(results[0].content)
    assert not (program.folder / "out").exists()
    assert program.run("rewind", "--to", "0", "--yes").code == 0
    assert {name: (program.folder / name).read_text() for name in kept} == kept


def test_killed_during_the_snapshot_the_store_is_as_before(program: Program) -> None:
    plant(program.folder, files=6_000)
    before = files(program)
    script = [
        {"say": [use("Bash", command="rm -rf d*")]},
        {"say": [{"text": "done"}]},
    ]
    with program.served([*script, *script]):
        first = program.start("-p", "break it", *program.model, *FLAGS)
        while not list(program.home.glob("snapshots/*.db")) and first.poll() is None:
            sleep(0.001)
        first.kill()
        first.communicate()
        removed = before.keys() - files(program).keys()
        assert program.ask("again", *FLAGS).out == "done\n"
    if not removed:  # else the command ran before it was killed
        newest = max(program.logs(), key=lambda path: path.stat().st_mtime).parent.name
        assert program.run("rewind", newest, "--to", "0", "--yes").code == 0
        assert files(program).keys() >= before.keys()
