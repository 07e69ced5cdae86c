"""A conversation on the screen, in a real pseudo-terminal."""

from __future__ import annotations

import re

import pytest

from tests.e2e.glass import Glass, steady, use
from tests.e2e.program import Program
from travois.core.content import TextOrMedia, extract_text
from travois.core.facts import Decided, User
from travois.version import __version__

MARKDOWN = """\
# Plan

Some **bold** words and `code` in a paragraph that is long enough to be folded at the edge.

- one
- two

```python
def f(x: int) -> str:
    return str(x)
```

Done."""
SHOWN = """
  Travois VERSION  ~/work

❯ hello

  Plan

  Some bold words and code in a paragraph that is long enough to be folded at
  the edge.

   • one
   • two

    def f(x: int) -> str:
        return str(x)

  Done.

╭───────────────────────────────────────
│ ❯ Describe a task, or / for commands
╰───────────────────────────────────────
  default · claude-opus-5-5 · ╌╌╌╌╌╌╌╌ 0% · $COST · cache 5 min"""
ASKED = """\
  I will change it.

  ? Edit a.py?
    1   def f():
    2 -     return 1
    2 +     x = 2
    3 +     return x
    4
    5   def g():
    6       return 2
    why: this permission mode asks before every file change

  ❯ y  yes
    e  yes, and accept all edits of this session
    a  yes, and don't ask again for changes of a.py in this project
    n  no, and tell it why
  Esc no, and stop · Shift-Tab mode

  default · claude-opus-5-5 · ╌╌╌╌╌╌╌╌ 0% · $COST · cache 5 min · ? for shortcuts"""
CHANGED = """\
  ✓ Edit a.py  +2 -1

  ? Run this command?
    $ rm made.txt
    │ echo gone
    · changes made.txt"""


def screen(glass: Glass, program: Program) -> str:
    seen = re.sub(r"\$\d+\.\d+", "$COST", steady(glass.text)).replace(__version__, "VERSION")
    return seen.replace(str(program.folder), "FOLDER")


def answered(glass: Glass, key: str) -> None:
    """Press a key after the pause without which no key is an answer."""
    glass.still()
    glass.type(key)


def test_markdown_is_shown_as_it_comes_and_stays_as_it_was_written(program: Program) -> None:
    if program.is_limited:
        pytest.skip("the whole screen is compared, and a limited sandbox adds a line to it")
    with program.served([{"say": MARKDOWN, "chunks": {"by": "char", "delay_ms": 2}}]):
        glass = Glass(program, *program.model, rows=26)
        glass.ready()
        glass.type("hello\r")
        glass.until("Some bold words")
        glass.until("Done.", "cache")
        glass.still()
        assert screen(glass, program) == SHOWN
        assert glass.leave() == 0
        assert "Resume with: travois --resume" in glass.text
        assert "❯" not in glass.lines[-1]


def test_a_question_shows_what_would_run_and_an_edit_what_it_changed(program: Program) -> None:
    (program.folder / "a.py").write_text("def f():\n    return 1\n\ndef g():\n    return 2\n")
    (program.folder / "made.txt").write_text("made\n")
    edit = use("Edit", file_path="a.py", old_string="return 1", new_string="x = 2\n    return x")
    script = [
        {"say": [use("Read", file_path="a.py")]},
        {"when": {"tool_result": {"name": "Read"}}, "say": [{"text": "I will change it."}, edit]},
        {
            "when": {"tool_result": {"name": "Edit", "is_error": False}},
            "say": [use("Bash", command="rm made.txt\necho gone")],
        },
        {"when": {"tool_result": {"contains": "I need it"}}, "say": "Then it stays."},
    ]
    with program.served(script) as api:
        glass = Glass(program, *program.model, columns=120, rows=30)
        glass.ready()
        glass.type("change it\r")
        glass.until("no, and tell it why", "cache")
        glass.still()
        assert screen(glass, program).endswith(ASKED)
        answered(glass, "y")
        glass.until("$ rm made.txt", "no, and tell it why")
        glass.still()
        assert CHANGED in screen(glass, program)
        answered(glass, "n")
        glass.until("(Enter to skip)")
        glass.type("I need it\r")
        shown = glass.until("Then it stays.", "→ no: I need it")
        assert "not run" not in shown  # question and answer say it
        assert glass.leave() == 0
        assert (program.folder / "made.txt").exists()
        assert "x = 2" in (program.folder / "a.py").read_text()
        api.no_invalid()


def test_always_keeps_the_rule_that_was_shown(program: Program) -> None:
    script = [
        {"say": [use("Bash", command="touch one; rm one")]},
        {"when": {"tool_result": {"is_error": False}}, "say": [use("Bash", command="rm one")]},
        {"say": "Done."},
    ]
    with program.served(script):
        glass = Glass(program, *program.model)
        glass.ready()
        glass.type("go\r")
        assert "exactly `touch one` and `rm one`" in glass.until("don't ask again")
        answered(glass, "\x1b[B\r")
        glass.until("Done.")
        assert glass.leave() == 0
    decided = [entry.fact for entry in program.facts() if isinstance(entry.fact, Decided)]
    assert [fact.by for fact in decided] == ["person", "rule"]


def test_a_key_that_comes_while_one_types_is_no_answer(program: Program) -> None:
    script = [{"say": [use("Bash", command="rm one")]}, {"say": "Done."}]
    with program.served(script):
        glass = Glass(program, *program.model)
        glass.ready()
        glass.type("go\r")
        glass.until("no, and tell it why")
        glass.type("y")
        glass.type("\x1b[200~y\x1b[201~")
        glass.still()
        assert "no, and tell it why" in glass.text
        answered(glass, "\x1b")
        glass.until("→ no, and stop", "stopped;", "❯ y")
        glass.type("\x15")
        assert glass.leave() == 0


def test_what_is_typed_while_it_works_steers_or_waits(program: Program) -> None:
    script = [
        {"say": [use("Bash", command="sleep 1; echo one")]},
        {"when": {"text": "faster"}, "say": [use("Bash", command="echo two")]},
        {"when": {"last_text": "and then"}, "say": "Then this."},
        {"say": "Done."},
    ]
    with program.served(script) as api:
        glass = Glass(program, *program.model, "--permission-mode", "bypass")
        glass.ready()
        glass.type("go\r")
        glass.until("● $ sleep 1")
        glass.type("faster\r")
        glass.until("↳ faster")
        glass.type("and then\t")
        glass.until("… and then")
        glass.until("Then this.")
        glass.still()
        said = [extract_text(e.fact.content) for e in program.facts() if human(e.fact)]
        assert said == ["go", "faster", "and then"]
        order = [glass.story.index(text) for text in ("❯ go", "❯ faster", "$ echo two", "❯ and")]
        assert order == sorted(order)
        assert glass.leave() == 0
        api.no_orphans()


def human(fact: object) -> bool:
    return isinstance(fact, User) and fact.origin == "human"


def test_escape_stops_the_turn_and_gives_back_what_nobody_heard(program: Program) -> None:
    script = [{"say": [use("Bash", command="echo up; sleep 60")]}, {"say": "Stopped."}]
    with program.served(script) as api:
        glass = Glass(program, *program.model, "--permission-mode", "bypass")
        glass.ready()
        glass.type("wait\r")
        glass.until("● $ echo up")
        glass.type("and this\r")
        glass.until("↳ and this")
        glass.type("\x1b")
        glass.until("stopped; the conversation so far is kept", "❯ and this")
        glass.type("\r")
        glass.until("Stopped.")
        assert glass.leave() == 0
        api.no_orphans()


def test_commands_files_and_the_past_are_completed(program: Program) -> None:
    (program.folder / "src").mkdir()
    (program.folder / "src" / "wonder.py").write_text("")
    with program.served([{"say": "Hello.", "repeat": True}]):
        glass = Glass(program, *program.model)
        glass.ready()
        glass.type("/mo")
        assert "switch to another model" in glass.until("/mode")
        glass.type("\t\t \t")
        glass.until("accept-edits")
        glass.type("\x15/mode plan\r")
        glass.until("The mode is plan.", "  plan · claude")
        glass.type("\x1b[Z")
        glass.gone("  plan · claude")
        glass.type("look at @won")
        glass.until("src/wonder.py")
        glass.type("\t\r")
        glass.until("look at @src/wonder.py")
        glass.type("\r")
        glass.until("Hello.")
        glass.type("!echo from the $((40 + 2))\r")
        glass.until("from the 42")
        glass.type("\x12look")
        glass.until("search history: look", "❯ look at @src/wonder.py")
        glass.type("\r\r")
        glass.wait(lambda: glass.story.count("Hello.") == 2, "a second answer")
        glass.type("/nonsense\r")
        glass.until("There is no command /nonsense")
        glass.type("/quit\r")
        assert glass.end() == 0
    asked = extract_text(program_prompts(program)[-1])
    assert asked == "look at @src/wonder.py"


def program_prompts(program: Program) -> list[tuple[TextOrMedia, ...]]:
    return [entry.fact.content for entry in program.facts() if human(entry.fact)]


def test_two_escapes_take_a_turn_back(program: Program) -> None:
    write = use("Write", file_path="made.txt", content="made\n")
    script = [{"say": [write]}, {"say": "Made."}, {"say": "Again."}]
    with program.served(script) as api:
        glass = Glass(program, *program.model, "--permission-mode", "accept-edits")
        glass.ready()
        glass.type("make it\r")
        glass.until("Made.")
        glass.still()
        glass.type("\x1b\x1b")
        glass.until("Rewind to before which message?", "1  make it")
        answered(glass, "1")
        glass.until("Rewind to before “make it”?")
        answered(glass, "1")
        glass.until("1 file deleted", "❯ make it")
        assert not (program.folder / "made.txt").exists()
        glass.type(" again\r")
        glass.until("Again.")
        assert glass.leave() == 0
        assert "make it again" in str(api.bodies[-1]) and "Made." not in str(api.bodies[-1])


def test_a_command_stands_as_it_was_typed_and_only_clearing_leaves_a_mark(program: Program) -> None:
    with program.served(["Hello.", {"say": "Reviewed.", "repeat": True}]) as api:
        glass = Glass(program, *program.model, rows=40)
        glass.ready()
        glass.type("hi\r")
        glass.until("Hello.", "cache")
        glass.type("/clear\r")
        glass.until("─── cleared; the conversation before: /resume ")
        glass.type("/review the tests\r")
        glass.until("❯ /review the tests", "Reviewed.", "cache")
        assert "careful colleague" in str(api.bodies[-1])
        assert "careful colleague" not in glass.story
        glass.type("/add-dir ..\r")
        glass.until("yes, this session")
        glass.type("1")
        glass.until("Added")
        glass.type("/fork\r")
        glass.until("Forked. To return to the original")
        glass.type("again\r")
        glass.until("❯ again")
        glass.still()
        assert glass.story.count("─── cleared") == 1
        assert glass.leave() == 0
        asked = [str(body["messages"][-1]) for body in api.bodies]
    words = ("hi", "careful colleague", "again")  # what /add-dir tells waits for the next prompt
    assert [word in one for word, one in zip(words, asked, strict=True)] == [True] * 3
