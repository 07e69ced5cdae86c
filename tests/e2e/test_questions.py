"""Permission questions on the screen: what they say, the answers, and what stays of them."""

from __future__ import annotations

import json

import pytest

from tests.e2e.glass import Glass, use
from tests.e2e.program import Program
from travois.core.facts import Decided, Ended

DONE = {"say": "Done."}
FORCED = {
    42: """\
  ! Run `git push --force origin main`?
    DANGER: force push: overwrites
    commits on the server""",
    80: """\
  ! Run `git push --force origin main`?
    DANGER: force push: overwrites commits on the server""",
}
FORCED[120] = FORCED[80]
CHOICES = {
    42: """\
    y  yes
    a  yes, and don't ask again for
       exactly `git push --force origin
       main` in this project
    u  yes, and don't ask again in any
       project
  ❯ n  no, and tell it why""",
    80: """\
    y  yes
    a  yes, and don't ask again for exactly `git push --force origin main` in
       this project
    u  yes, and don't ask again in any project
  ❯ n  no, and tell it why""",
    120: """\
    y  yes
    a  yes, and don't ask again for exactly `git push --force origin main` in this project
    u  yes, and don't ask again in any project
  ❯ n  no, and tell it why""",
}


def begin(program: Program, *args: str, columns: int = 80, rows: int = 30) -> Glass:
    glass = Glass(program, *program.model, *args, columns=columns, rows=rows)
    glass.ready()
    glass.type("go\r")
    return glass


def answer(glass: Glass, keys: str) -> None:
    glass.still()
    glass.type(keys)


def colour_at(glass: Glass, word: str) -> tuple[int, int, int]:
    """The colour in which a word stands on the screen."""
    row = next(number for number, line in enumerate(glass.lines) if word in line)
    text = glass.screen.buffer[row][glass.lines[row].index(word)].fg
    red, green, blue = (int(text[at : at + 2], 16) for at in (0, 2, 4))
    return red, green, blue


def decisions(program: Program) -> list[tuple[str, str]]:
    facts = [entry.fact for entry in program.facts()]
    return [(one.verdict, one.by) for one in facts if isinstance(one, Decided)]


@pytest.mark.parametrize("columns", [42, 80, 120])
def test_danger_is_red_named_and_never_the_first_choice(program: Program, columns: int) -> None:
    push = use("Bash", command="git push --force origin main")
    with program.served([{"say": [push]}, DONE]):
        glass = begin(program, columns=columns)
        glass.until("no, and tell it why")
        seen = glass.still()
        assert FORCED[columns] in seen
        assert CHOICES[columns] in seen
        if columns == 42:
            assert "    · sandbox: can change only the\n      workspace" in seen
        red, green, blue = colour_at(glass, "DANGER")
        assert red > max(green, blue) + 50
        glass.type("\r")
        glass.until("(Enter to")
        glass.type("use a branch\r")
        glass.until("→ no: use a branch", "Done.")
        assert glass.leave() == 0


def test_all_edits_of_the_session_are_accepted_with_one_answer(program: Program) -> None:
    writes = [{"say": [use("Write", file_path=f"{n}.txt", content="x\n")]} for n in "ab"]
    with program.served([*writes, DONE]):
        glass = begin(program)
        glass.until("? Create a.txt?", "+ x", "e  yes, and accept all edits of this session")
        answer(glass, "e")
        glass.until("→ yes, and accept all edits", "Done.", "accept-edits")
        assert "? Create b.txt?" not in glass.story
        assert glass.leave() == 0
    assert decisions(program) == [("allow", "person"), ("allow", "mode")]
    assert (program.folder / "b.txt").read_text() == "x\n"


def test_shift_tab_answers_where_the_mode_would_not_ask(program: Program) -> None:
    with program.served([{"say": [use("Write", file_path="a.txt", content="x")]}, DONE]):
        glass = begin(program)
        glass.until("? Create a.txt?")
        glass.still()
        glass.type("\x1b[Z")
        glass.until("→ yes: mode accept-edits", "Done.")
        for mode in ("plan", "auto"):
            glass.type("\x1b[Z")
            glass.until(f"{mode} ·")
        assert glass.leave() == 0
    assert (program.folder / "a.txt").read_text() == "x"


def test_a_long_file_shows_its_head_and_all_of_it_on_demand(program: Program) -> None:
    text = "".join(f"line {number}\n" for number in range(80))
    with program.served([{"say": [use("Write", file_path="a.txt", content=text)]}, DONE]):
        glass = begin(program)
        seen = glass.until("68 more lines: Ctrl-O shows all", "no, and tell it why")
        assert "+ line 11" in seen and "line 12" not in glass.story
        glass.type("\x0f")
        glass.until("+ line 79")
        assert "+ line 12" in glass.story
        answer(glass, "y")
        glass.until("Done.")
        assert glass.leave() == 0


def test_a_rule_for_all_projects_goes_into_the_users_settings(program: Program) -> None:
    script = [{"say": [use("Bash", command="git fetch nowhere")]}, DONE]
    with program.served(script):
        glass = begin(program)
        glass.until("don't ask again for `git fetch` in this project")
        answer(glass, "u")
        glass.until("again in any project", "Done.")
        assert glass.leave() == 0
    settings = json.loads((program.home / "settings.json").read_text())
    assert settings["permissions"]["allow"] == ["Bash(git fetch:*)"]
    elsewhere = program.folder.parent / "elsewhere"
    elsewhere.mkdir()
    program.folder = elsewhere
    assert "git fetch" in program.run("permissions", "list").out


def test_esc_on_a_question_is_a_no_that_ends_the_turn(program: Program) -> None:
    (program.folder / "a.txt").write_text("kept\n")
    script = [
        {"say": [use("Bash", command="rm a.txt"), use("Bash", command="touch b.txt")]},
        {"when": {"last_text": "go on"}, "say": "Gone on."},
    ]
    with program.served(script) as api:
        glass = begin(program)
        glass.until("Esc no, and stop")
        answer(glass, "\x1b")
        glass.until("→ no, and stop", "stopped; the conversation so far is kept")
        assert len(api.ledger) == 1
        glass.type("go on\r")
        glass.until("Gone on.")
        assert glass.leave() == 0
        api.no_orphans()
    assert (program.folder / "a.txt").exists() and not (program.folder / "b.txt").exists()
    decided = [entry.fact for entry in program.facts() if isinstance(entry.fact, Decided)]
    assert [(fact.verdict, fact.by) for fact in decided] == [("deny", "person")]
    ended = [entry.fact.why for entry in program.facts() if isinstance(entry.fact, Ended)]
    assert ended == ["aborted", "end"]


def test_a_key_of_ones_own_with_alt_changes_the_mode_at_a_question(program: Program) -> None:
    program.home.mkdir()
    (program.home / "keys.json").write_text('{"mode": "alt-m"}')
    with program.served([{"say": [use("Write", file_path="a.txt", content="a\n")]}, DONE]):
        glass = begin(program)
        glass.until("Create a.txt?", "tell it why")
        answer(glass, "\x1bm")
        glass.until("→ yes: mode accept-edits", "Done.")
        assert glass.leave() == 0
    assert (program.folder / "a.txt").read_text() == "a\n"
