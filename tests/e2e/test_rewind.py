"""Going back with the real program: what was said and what was done are both taken back."""

from __future__ import annotations

import shutil

from tests.e2e.glass import use
from tests.e2e.program import Program, kinds
from travois.kernel.facts import Rewound

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
    assert lost.err.endswith("  Use --conversation-only.\n")
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
    assert (refused.code, refused.err.splitlines()[0]) == (2, "travois: Nobody is there to ask")
    absent = program.run("rewind", "--to", "9", "--yes")
    assert (absent.code, absent.err.splitlines()[0]) == (
        2,
        "travois: There is no turn 9 to go back to: 2 turns stand",
    )
