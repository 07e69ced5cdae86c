"""The offer to run commands in the sandbox without asking, and plan mode, on the screen."""

from __future__ import annotations

from tests.e2e.glass import Glass, use
from tests.e2e.program import Program

MAKEFILE = "all:\n\techo built > made-$(N); echo done $(N)\n"
OFFER = """\
    s  yes, and run commands in the sandbox without asking in this project
       no network, home hidden; a rewind restores the workspace
"""
NARROW = """\
    s  yes, and run commands in the
       sandbox without asking in this
       project
       no network, home hidden; a rewind
       restores the workspace
"""


def built(number: int) -> list[object]:
    return [
        {"say": [use("Bash", command=f"make N={number}")]},
        {"when": {"tool_result": {"contains": f"done {number}"}}, "say": f"Built {number}."},
    ]


def ask_for(glass: Glass, words: str) -> None:
    glass.ready()
    glass.type(f"{words}\r")


def test_the_offer_is_taken_once_holds_for_the_project_and_can_be_taken_back(
    program: Program,
) -> None:
    (program.folder / "Makefile").write_text(MAKEFILE)
    with program.served([*built(1), *built(2), *built(3)]):
        glass = Glass(program, *program.model)
        ask_for(glass, "build")
        shown = glass.until("? Run", "no, and tell it why")
        if program.is_limited:
            assert "run commands in the sandbox" not in shown
            return
        assert OFFER in shown
        glass.still()
        glass.type("s")
        glass.until("Built 1.")
        ask_for(glass, "again")
        assert "? Run" not in glass.until("Built 2.").rpartition("again")[2]
        assert glass.leave() == 0

        later = Glass(program, *program.model)
        ask_for(later, "once more")
        later.until("Built 3.")
        assert "? Run" not in later.story
        assert later.leave() == 0
    assert sorted(path.name for path in program.folder.glob("made-*")) == [
        *("made-1", "made-2", "made-3")
    ]
    listed = program.run("permissions", "list").out
    assert "sandboxed commands" in listed and "your answers in this folder" in listed
    explained = program.run("config", "explain", "sandbox.autoAllowBashIfSandboxed").out
    assert "your answers in this folder" in explained
    assert program.run("permissions", "forget", "sandboxed commands").code == 0
    assert "sandboxed commands" not in program.run("permissions", "list").out


def test_the_offer_fits_a_narrow_screen_and_taking_it_back_asks_again(full: Program) -> None:
    program = full
    (program.folder / "Makefile").write_text(MAKEFILE)
    with program.served([*built(1), *built(2)]):
        glass = Glass(program, *program.model, columns=42, rows=40)
        ask_for(glass, "build")
        assert NARROW in glass.until("? Run", "no, and tell it why")
        glass.still()
        glass.type("s")
        glass.until("Built 1.")
        ask_for(glass, "/permissions forget sandboxed commands")
        glass.until("no longer allowed")
        ask_for(glass, "again")
        glass.until("make N=2", "run commands in the sandbox")
        glass.still()
        glass.type("y")
        glass.until("Built 2.")
        assert glass.leave() == 0


def test_plan_mode_looks_and_asks_for_more_and_changes_nothing(program: Program) -> None:
    (program.folder / "Makefile").write_text(MAKEFILE)
    (program.folder / "count.py").write_text("print('lines', 6 * 7)\n")
    script = [
        {"say": [use("Bash", command="python3 count.py")]},
        {"when": {"tool_result": {"contains": "lines 42"}}, "say": [use("Bash", command="make")]},
        {
            "when": {"tool_result": {"contains": "Plan mode: it ran read-only"}},
            "say": [use("Bash", command="touch made")],
        },
        {
            "when": {"tool_result": {"contains": "until the user approves the plan"}},
            "say": [use("Read", file_path="/etc/os-release")],
        },
        {"when": {"tool_result": {"contains": "NAME="}}, "say": "Looked."},
    ]
    with program.served(script):
        glass = Glass(program, *program.model, "--permission-mode", "plan")
        ask_for(glass, "look around")
        glass.until("reads outside the workspace: ", "no, and tell it why")
        assert glass.story.count("why: ") == 1
        glass.still()
        glass.type("y")
        glass.until("Looked.")
        assert glass.leave() == 0
    assert not [path.name for path in program.folder.glob("made*")]
