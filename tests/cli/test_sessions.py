from __future__ import annotations

import json
import os
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.commanding import run
from tests.sessions.sample import EPOCH, opened, turns, write
from travois.commands import sessions
from travois.core.content import Call, Media, Opaque, Text
from travois.core.errors import UserError
from travois.core.facts import (
    AnyFact,
    Assistant,
    Changed,
    Compacted,
    Decided,
    Ended,
    Failed,
    Noted,
    Result,
    Rewound,
    User,
)
from travois.sessions.blobs import BlobStore
from travois.sessions.catalog import list_sessions
from travois.sessions.home import TravoisHome, identify_project
from travois.sessions.log_file import LOG_FILE_NAME, SessionLog

ONE, TWO = "aaaa1111-0000-4000-8000-000000000001", "bbbb2222-0000-4000-8000-000000000002"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TravoisHome:
    """A home, and a workspace to stand in."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    return TravoisHome(tmp_path / "home").prepare()


def talk(
    home: TravoisHome,
    id: str,
    *,
    then: list[AnyFact] | None = None,
    project: str = "",
    **more: object,
) -> Path:
    key = project or identify_project(home, os.getcwd()).key
    first = opened(id, project=key, cwd="/w", **more)
    write(
        home.session_folder(key, id), first=first, then=[EPOCH, *turns(2)] if then is None else then
    )
    return home.session_folder(key, id)


def test_a_list_has_the_sessions_of_this_project(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(home, ONE)
    talk(home, TWO, then=[Changed("name", "naïve 日本")], parent=ONE, at=3)
    talk(home, "cccc", project="elsewhere")
    assert run(sessions, "sessions") == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["ID", "TURNS", "SIZE", "UPDATED", "SESSION"]
    words = [row.split() for row in rows]
    assert [row[:2] for row in words] == [["aaaa1111", "2"], ["bbbb2222", "0"]]
    assert rows[0].endswith("question 0 ünï")
    assert rows[1].endswith("naïve 日本 [fork of aaaa1111]")
    assert {row.index(title) for row, title in zip(rows, ("question", "naïve"), strict=True)} == {
        heading.index("SESSION")
    }


def test_a_list_of_all_has_those_of_other_projects_with_their_folder(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(home, ONE)
    talk(home, "cccc", project="elsewhere")
    for words in (("--all",), ("list", "--all"), ("--all", "list")):
        run(sessions, "sessions", *words)
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == [
            "cccc",
            "aaaa1111",
        ], words


def test_a_list_as_json_is_one_array_of_whole_summaries(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(home, ONE)
    run(sessions, "sessions", "list", "--json")
    found = json.loads(capsys.readouterr().out)
    assert [(s["id"], s["turns"], s["cwd"]) for s in found] == [(ONE, 2, "/w")]


def test_no_sessions_is_no_error_and_says_how_to_begin(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(sessions, "sessions") == 0
    assert "`travois` starts one" in capsys.readouterr().out


def test_a_moved_workspace_still_lists_its_sessions(
    home: TravoisHome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    talk(home, ONE)
    (tmp_path / "work").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    run(sessions, "sessions")
    assert "aaaa1111" in capsys.readouterr().out


EVERYTHING: list[AnyFact] = [
    EPOCH,
    User((Text("look at <script>alert('x')</script> & \x1b[31mred"),)),
    User((Text("It is Monday."),), "note"),
    Assistant(
        (
            Opaque("anthropic", "thinking", '{"type":"thinking"}', text="hmm"),
            Text("I will **look**."),
            Call("c1", "Bash", '{"command":"cat <a>"}'),
            Call("c2", "Edit", "{broken"),
        ),
        "calls",
        model="echo-1",
    ),
    Decided("c2", "deny", "plan mode"),
    Result("c1", (Text("```\nfenced </pre>\n```"),)),
    Result("c2", (Text("no"),), error=True),
    Failed("rate", "too many", wait=1.0),
    Assistant((Text("done"),), "length"),
    Noted("memory", "likes tea"),
    Compacted(3, 4, (Text("we looked"),), "model"),
    Rewound(4),
    Ended("aborted"),
]


def test_show_prints_the_conversation_and_nothing_that_a_terminal_obeys(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(home, ONE, then=EVERYTHING)
    assert run(sessions, "sessions", "show", "aaaa") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out == (
        f"look at <script>alert('x')</script> & ␛[31mred\n2023-11-14 22:13 · /w · 1 turn · {ONE}\n"
        f"— Session {ONE} in /w\n— lab/echo-1, 0 tools (start)\n"
        "\nYou\nlook at <script>alert('x')</script> & ␛[31mred\n"
        "  note: Note to the model (note)\n    It is Monday.\n"
        "  thinking: thinking\n    hmm\n"
        "\necho-1\nI will **look**.\n"
        'Bash {"command":"cat <a>"}\nEdit {broken\n'
        "— Denied: plan mode\n"
        "  result: Bash\n    ```\n    fenced </pre>\n    ```\n"
        "  error: Edit\n    no\n"
        "— The request failed (rate): too many\n"
        "\nModel\ndone\n— The reply stopped: length\n"
        "  note: memory\n    likes tea\n"
        "  note: Entries 3 to 4 were replaced by a summary (model)\n    we looked\n"
        "— Rewound to entry 4: later messages were removed\n"
        "— The turn ended: aborted\n"
    )


def test_show_cuts_what_is_long_and_says_so(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Result("c1", (Text("\n".join(["x" * 500, *map(str, range(30))])),))
    talk(home, ONE, then=[User((Text("q"),)), result])
    run(sessions, "sessions", "show", ONE)
    out = capsys.readouterr().out
    assert "x" * 400 + "… 100 more characters" in out
    assert out.endswith("    10\n    … 19 more lines\n")


def test_show_as_json_has_every_entry(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(home, ONE, then=EVERYTHING)
    run(sessions, "sessions", "show", ONE, "--json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(EVERYTHING) + 2))


def test_markdown_keeps_every_word_and_its_fences_hold(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(home, ONE, then=EVERYTHING)
    assert run(sessions, "sessions", "export", ONE) == 0
    out = capsys.readouterr().out
    assert out.startswith("# look at <script>")
    assert "## You\n\nlook at" in out
    assert '**Bash**\n\n```json\n{\n  "command": "cat <a>"\n}\n```' in out
    assert "**Edit**\n\n```json\n{broken\n```" in out
    assert (
        "<details><summary>result: Bash</summary>\n\n"
        "````\n```\nfenced </pre>\n```\n````\n\n</details>"
    ) in out


class Page(HTMLParser):
    """The tags of a page that are open, and all of its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_html_stands_alone_and_runs_nothing(home: TravoisHome, tmp_path: Path) -> None:
    picture = BlobStore(home.blobs).put(b"\x89PNG")
    media = (
        Media("image", "image/png", picture, 4),
        Media("image", 'x"><script>', "0" * 64, 4),
        Media("document", "application/pdf", picture, 4, name="a.pdf"),
    )
    talk(home, ONE, then=[*EVERYTHING, User(media)])
    goal = tmp_path / "talk.html"
    assert run(sessions, "sessions", "export", ONE, "--format", "html", "-o", goal) == 0
    text = goal.read_text("utf-8")
    page = Page(text)
    assert page.open == []
    assert "script" not in page.tags and page.tags.count("img") == 1
    assert "look at <script>alert('x')</script>" in page.words
    assert "fenced </pre>" in page.words
    assert "data:image/png;base64,iVBORw==" in text
    assert "http://" not in text and "https://" not in text
    assert "(missing)" in page.words and "a.pdf" in page.words


def test_json_has_everything_and_can_be_read_back(
    home: TravoisHome, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    talk(home, ONE, then=EVERYTHING)
    run(sessions, "sessions", "export", ONE, "--format", "json")
    found = json.loads(capsysbinary.readouterr().out)
    assert set(found) == {"summary", "entries", "skipped"}
    assert len(found["entries"]) == len(EVERYTHING) + 1
    assert found["entries"][4]["fact"]["content"][3]["args"] == "{broken"


def test_an_export_that_cannot_be_written_is_a_fault(home: TravoisHome, tmp_path: Path) -> None:
    talk(home, ONE)
    with pytest.raises(UserError, match="Cannot write the document"):
        run(sessions, "sessions", "export", ONE, "-o", tmp_path / "no" / "where.md")


@pytest.mark.parametrize("action", [("show",), ("export",), ("export", "--format", "html")])
def test_damaged_logs_are_shown_and_exported_without_the_damage(
    home: TravoisHome, capsys: pytest.CaptureFixture[str], action: tuple[str, ...]
) -> None:
    path = talk(home, ONE) / LOG_FILE_NAME
    path.write_bytes(path.read_bytes().replace(b"answer 0", b"answer X")[:-9])
    assert run(sessions, "sessions", action[0], ONE, *action[1:]) == 0
    told = capsys.readouterr()
    assert "answer 1" in told.out and "answer X" not in told.out
    assert told.err.count(": skipped line") == 2


def test_a_log_of_noise_is_reported_not_crashed_on(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    path = talk(home, ONE) / LOG_FILE_NAME
    path.write_bytes(os.urandom(5000) + b"\n")
    for words in (("list",), ("show", ONE), ("export", ONE), ("du",)):
        assert run(sessions, "sessions", *words) == 0
    assert "! its first line is damaged" in capsys.readouterr().out


def test_a_new_name_is_part_of_the_log_and_found_again(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(home, ONE)
    assert run(sessions, "sessions", "rename", "aaaa", "  my\n  work ") == 0
    assert [summary.name for summary in list_sessions(home)] == ["my work"]
    assert run(sessions, "sessions", "rename", "my work", "other") == 0
    assert [summary.name for summary in list_sessions(home)] == ["other"]
    with pytest.raises(UserError, match="cannot be empty"):
        run(sessions, "sessions", "rename", ONE, " ")


def test_an_open_session_is_marked_and_cannot_be_renamed(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    with SessionLog.open(talk(home, ONE)):
        run(sessions, "sessions")
        assert capsys.readouterr().out.rstrip().endswith("[open]")
        with pytest.raises(UserError, match="in use"):
            run(sessions, "sessions", "rename", ONE, "x")


def test_du_says_where_the_room_goes(home: TravoisHome, capsys: pytest.CaptureFixture[str]) -> None:
    folder = talk(home, ONE)
    (folder / "tool-results").mkdir()
    (folder / "tool-results" / "big.txt").write_bytes(b"x" * 5_000_000)
    BlobStore(home.blobs).put(b"y" * 2_000_000)
    run(sessions, "sessions", "du")
    out = capsys.readouterr().out
    assert "aaaa1111  5.0 MB  question 0 ünï" in out
    assert out.endswith("sessions 5.0 MB, blobs 2.0 MB, trash 0 B (1 sessions)\n")
    run(sessions, "sessions", "--json", "du")
    found = json.loads(capsys.readouterr().out)
    assert (found["blobs"], set(found["each"])) == (2_000_000, {ONE})


def test_pruning_tells_before_it_moves_and_can_be_undone(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(home, ONE)
    talk(home, TWO, project="elsewhere")
    words = ("prune", "--older-than", "30d")
    run(sessions, "sessions", *words, "--dry-run")
    assert "would move  aaaa1111" in capsys.readouterr().out
    assert len(list_sessions(home)) == 2
    run(sessions, "sessions", *words)
    assert "trashed  aaaa1111" in capsys.readouterr().out
    assert [summary.id for summary in list_sessions(home)] == [TWO]
    (moved,) = home.trash.glob("*/*")
    moved.rename(home.session_folder(moved.parent.name, moved.name))
    assert len(list_sessions(home)) == 2


def test_pruning_keeps_what_is_open_and_what_forks_stand_on(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    key = identify_project(home, os.getcwd()).key
    talk(home, ONE)
    fork = opened(TWO, project=key, parent=ONE, at=3)
    SessionLog.create(home.session_folder(key, TWO), fork, clock=time.time).close()
    with SessionLog.open(talk(home, "cccc3333")):
        run(sessions, "sessions", "prune", "--older-than", "1h")
    out = capsys.readouterr().out
    assert "kept   aaaa1111  a session that stays was forked from it" in out
    assert "kept   cccc3333  it is open" in out
    assert len(list_sessions(home)) == 3


def test_emptying_the_trash_deletes_for_good(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(home, ONE)
    run(sessions, "sessions", "prune", "--older-than", "1h", "--empty-trash", "--dry-run")
    assert len(list_sessions(home)) == 1
    run(sessions, "sessions", "prune", "--older-than", "1h", "--empty-trash")
    assert capsys.readouterr().out.endswith("permanently deleted.\n")
    assert not home.trash.exists()


def test_pruning_without_an_age_says_what_to_write(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="--older-than 30d --dry-run"):
        run(sessions, "sessions", "prune")
    with pytest.raises(SystemExit):
        run(sessions, "sessions", "prune", "--older-than", "soon")
    assert "is not an age such as 12h, 30d or 8w" in capsys.readouterr().err
