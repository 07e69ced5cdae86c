"""Commands typed at the prompt, one's own among them; and a status line of one's own."""

from __future__ import annotations

import json

import travois_lab as lab
from tests.e2e.glass import Glass, use
from tests.e2e.program import Program

REVIEW = "---\ndescription: Look at a file\n---\nReview $ARGUMENTS.\nSee @notes.txt"
STATUS = "cat > told.json; printf '\\033[31mone\\033[0m \\033[2J%s\\ntwo' $COLUMNS"
SHOWN = """\
╭───────────────────────────────────────
│ ❯ Describe a task, or / for commands
╰───────────────────────────────────────
  one 80
  two
  default · claude-opus-5-5 · ╌╌╌╌╌╌╌╌ 0% · ? for shortcuts"""


def write(program: Program, name: str, text: str) -> None:
    path = program.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def own(program: Program) -> None:
    write(program, ".claude/commands/team/review.md", REVIEW)
    write(program, "notes.txt", "@secret.txt is no mention")
    write(program, "secret.txt", "hidden words")


def said(api: lab.Lab) -> str:
    return "\n".join(block["text"] for block in api.bodies[-1]["messages"][-1]["content"])


def test_a_command_of_ones_own_is_completed_listed_and_said(program: Program) -> None:
    own(program)
    with program.served([{"say": "Looked.", "repeat": True}]) as api:
        glass = Glass(program, *program.model, rows=50)
        glass.ready()
        glass.type("/te")
        glass.until("/team:review", "Look at a file (.claude/commands/team/review.md)")
        glass.type("\t a.py\r\r")
        glass.until("❯ /team:review a.py", "Looked.")
        told = str(api.bodies[-1]["messages"])
        assert "Review a.py." in told and "is no mention" in told
        assert "hidden words" not in told
        glass.type("/help\r")
        glass.until("Custom commands", "  /team:review")
        assert glass.leave() == 0


def test_headless_knows_the_same_commands_and_says_so(program: Program) -> None:
    own(program)
    with program.served([{"say": "Looked.", "repeat": True}]) as api:
        done = program.ask("/team:review b.py", "--output-format", "stream-json")
        assert done.lines[0]["slash_commands"] == ["team:review"]
        assert "Review b.py." in str(api.bodies[-1]["messages"])
        assert program.ask("/etc is what?").out == "Looked.\n"
        assert "/etc is what?" in str(api.bodies[-1]["messages"])


def test_lines_know_them_too_and_a_bad_file_is_told_once(program: Program) -> None:
    own(program)
    write(program, ".gemini/commands/bad.toml", "prompt = 3 x")
    with program.served([{"say": "Looked.", "repeat": True}]) as api:
        glass = Glass(program, *program.model, "--plain", rows=60)
        glass.until("is ignored: Expected", "\n>")
        glass.type("/team:review c.py\r")
        glass.until("Looked.")
        assert "Review c.py." in str(api.bodies[-1]["messages"])
        glass.type("/modes\r")
        glass.until("did you mean /mode?")
        glass.type("/clear\r")
        glass.wait(lambda: glass.text.count("Type a task.") == 2, "another conversation")
        assert glass.text.count("is ignored: Expected") == 1
        glass.type("/quit\r")
        assert glass.end() == 0


def test_what_only_looks_is_answered_while_a_turn_runs(program: Program) -> None:
    script = [{"say": [use("Bash", command="sleep 30")]}, {"say": "Done."}]
    with program.served(script):
        glass = Glass(program, *program.model, "--permission-mode", "bypass")
        glass.ready()
        glass.type("wait\r")
        glass.until("● $ sleep 30")
        glass.type("/usage\r")
        glass.until("read from cache", "● $ sleep 30")
        glass.type("/clear\r")
        glass.until("… /clear")
        glass.type("\x1b")
        glass.until("stopped; the conversation so far is kept")
        glass.type("\x15")
        assert glass.leave() == 0


def test_what_takes_its_time_shows_as_work_and_a_key_stops_it(program: Program) -> None:
    chatter = {"when": {"last_text": "talk"}, "say": "{{tok:20000}}", "repeat": True}
    slow = {"say": "summary" * 99, "chunks": {"by": "char", "delay_ms": 99}, "repeat": True}
    with lab.server([chatter, slow]) as api:
        program.url = api.url
        glass = Glass(program, *program.model)
        glass.ready()
        glass.type("!sleep 30\r")
        glass.until("$ sleep 30", "Working", "Esc stops")
        glass.type("\x03")
        glass.until("  stopped")
        glass.type("/cost\r")
        assert "[2m" not in glass.until("TURN", "cache cold")
        for number in (1, 2):
            glass.type(f"talk {number}\r")
            glass.until(f"❯ talk {number}", "{{tok:20000}}")
            glass.gone("Esc stops")
        glass.type("/compact\r")
        glass.until("Summarising", "Esc stops")
        glass.type("\x1b")
        glass.until("The conversation was not compacted: it was stopped")
        assert glass.leave() == 0


def test_a_branch_leaves_the_session_as_it_was(program: Program) -> None:
    with program.served([{"say": "Hello.", "repeat": True}]):
        glass = Glass(program, *program.model, rows=40)
        glass.ready()
        glass.type("first\r")
        glass.until("Hello.")
        glass.type("/fork\r")
        glass.wait(lambda: glass.text.count("❯ first") == 2, "the branch")
        glass.type("second\r")
        glass.wait(lambda: glass.text.count("Hello.") == 3, "an answer in it")
        assert glass.leave() == 0
    assert sorted(log.read_text().count("second") > 0 for log in program.logs()) == [False, True]


def test_rows_of_a_program_stand_above_the_last_line_with_colours_only(program: Program) -> None:
    program.home.mkdir()
    settings = {"statusLine": {"type": "command", "command": STATUS}}
    (program.home / "settings.json").write_text(json.dumps(settings))
    with program.served([{"say": "Hello."}]):
        glass = Glass(program, *program.model)
        glass.ready()
        glass.until("two")
        assert glass.still().endswith(SHOWN)
        row = next(y for y, line in enumerate(glass.lines) if line.startswith("  one 80"))
        assert [glass.screen.buffer[row][x].fg for x in (2, 6)] == ["red", "default"]
        glass.type("hello\r")
        glass.until("Hello.", "cache")
        glass.still()
        told = json.loads((program.folder / "told.json").read_text())
        assert told["cost"]["total_cost_usd"] > 0
        assert told["context_window"]["current_usage"]["output_tokens"] > 0
        assert glass.leave() == 0


def test_a_program_that_fails_is_told_once_and_never_in_the_way(program: Program) -> None:
    program.home.mkdir()
    settings = {"statusLine": {"command": "echo broken >&2; exit 3"}}
    (program.home / "settings.json").write_text(json.dumps(settings))
    with program.served([{"say": "Hello.", "repeat": True}]):
        glass = Glass(program, *program.model)
        glass.ready()
        glass.until("status line command failed: broken")
        glass.type("hello\r")
        glass.until("Hello.", "cache")
        glass.still()
        assert glass.story.count("status line command failed") == 1
        assert glass.leave() == 0


def test_a_program_hears_what_keys_mean_and_a_hook_may_have_the_terminal_show_something(
    program: Program,
) -> None:
    program.home.mkdir()
    message, wild = "\x1b]9;done\x07", "\x1b[2J"
    hooks = [
        {"type": "command", "command": f"cat <<'E'\n{json.dumps({'terminalSequence': one})}\nE"}
        for one in (message, wild + message)
    ]
    slow = {"type": "command", "command": "sleep 0.6", "statusMessage": "Checking the tests"}
    line = """grep -o '"mode":"[A-Z]*"'; date +%N | cut -c1-4 | tee -a ticks"""
    settings = {
        "tui": {"vim": True},
        "statusLine": {"type": "command", "command": line, "refreshInterval": 0.1},
        "hooks": {"Stop": [{"hooks": [*hooks, slow]}]},
    }
    (program.home / "settings.json").write_text(json.dumps(settings))
    with lab.server([{"say": "Hello."}]) as api:
        program.url = api.url
        glass = Glass(program, *program.model)
        glass.ready()
        glass.until('"mode":"INSERT"')
        glass.type("hello\r")
        glass.until("Checking the tests")
        glass.until("Hello.", "cache")
        glass.wait(lambda: message in glass.raw, "a message beside the screen")
        glass.type("\x1b")
        glass.until('"mode":"NORMAL"')
        ticks = program.folder / "ticks"
        before = len(ticks.read_text().splitlines())
        glass.wait(lambda: len(ticks.read_text().splitlines()) > before + 2, "more ticks")
        assert glass.raw.count(message) == 1
        glass.type("i")
        glass.until('"mode":"INSERT"')
        assert glass.leave() == 0
