"""`travois memory`: what each command says and does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from time import localtime, strftime
from typing import Any

import pytest

from tests.tui.inside import Done, Inside, inside
from travois.memory.memory import (
    Evidence,
    FileAnchor,
    Memory,
    MemoryConsent,
    MemoryScope,
    PutMemory,
)
from travois.memory.store import FolderMemoryStore, open_memories
from travois.sessions.home import TravoisHome, identify_project

DAY = strftime("%Y-%m-%d", localtime(1_700_000_000))
CONSENT: dict[MemoryScope, MemoryConsent] = {"project": "auto", "user": "auto", "team": "ask"}
GERMAN = Memory(
    "reply-in-german",
    "Replies are in German",
    "feedback",
    "Reply in German; code stays in English.",
    author="user",
    evidence=(Evidence("3f2a0000", 4, "user", "always answer in German", 1_700_000_000.0),),
)
STALE = Memory("port", "a.py sets x", "project", author="tool", anchors=(FileAnchor("a.py", "0"),))


def memories(program: Inside) -> FolderMemoryStore:
    """The memories of the program's folder, as an agent has them."""
    home = TravoisHome(program.home)
    project = identify_project(home, str(program.folder))
    return open_memories(home, project, consent=CONSENT, index=None, trusted=False)


def folder(program: Inside) -> Path:
    return memories(program).folders()["project"]


def run(program: Inside, *args: str) -> Done:
    return program.run("memory", *args)


def listed(program: Inside, *args: str) -> Any:
    return json.loads(run(program, *args, "--json").out)


def names(program: Inside) -> list[str]:
    return sorted(line["name"] for line in listed(program))


def undoable(out: str) -> str:
    found = re.search(r"travois memory undo (\S+)", out)
    assert found is not None
    return found[1]


@pytest.fixture
def program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Inside:
    return inside(tmp_path, monkeypatch, capsys)


@pytest.fixture
def known(program: Inside) -> Inside:
    """One memory, told by the user in a session."""
    memories(program).apply([PutMemory(GERMAN)], why="said in a session", session="3f2a0000")
    return program


def test_an_empty_memory_says_how_to_fill_it(program: Inside) -> None:
    told = "No memories here yet.\n"
    told += "Say “remember …” in a session, or run: travois memory add TEXT\n"
    assert run(program).out == told


def test_what_is_added_is_listed_shown_forgotten_and_brought_back(program: Inside) -> None:
    added = run(program, "add", "remember", "that", "deploys", "happen", "on", "Tuesdays")
    assert added.out.splitlines()[:3] == [
        "--- /dev/null",
        "+++ deploys-happen-on-tuesdays.md",
        "+Deploys happen on Tuesdays (project, said by user)",
    ]
    name = "deploys-happen-on-tuesdays"
    assert names(program) == [name]
    assert "remember that deploys happen on Tuesdays" in run(program, "show", name).out
    dropped = run(program, "forget", name)
    assert names(program) == []
    run(program, "undo", undoable(dropped.out))
    assert names(program) == [name]
    run(program, "undo", undoable(added.out))
    assert names(program) == []


def test_what_is_remembered_already_is_not_remembered_twice(program: Inside) -> None:
    run(program, "add", "Deploys happen on Tuesdays")
    again = run(program, "add", "Deploys happen on Tuesdays!")
    assert again.code != 0
    assert "Already remembered as deploys-happen-on-tuesdays" in again.err
    assert names(program) == ["deploys-happen-on-tuesdays"]
    run(program, "add", "Deploys happen on Tuesdays!", "--name", "other")
    assert names(program) == ["deploys-happen-on-tuesdays", "other"]


def test_another_memory_that_begins_alike_gets_a_name_of_its_own(program: Inside) -> None:
    begin = "The tests of the shop run on every push to the main branch of"
    run(program, "add", f"{begin} GitHub, compiling protobuf first")
    run(program, "add", f"{begin} Gerrit, against Postgres, Kafka and Elasticsearch containers")
    name = names(program)[0]
    assert names(program) == [name, f"{name}-2"]


def test_a_list_has_scope_type_age_and_marks(known: Inside) -> None:
    run(known, "add", "The dashboard is https://grafana.example.org", "--pin", "--name", "board")
    (known.folder / "a.py").write_text("x = 1")
    memories(known).apply([PutMemory(STALE)], why="seen")
    assert run(known).out.splitlines() == [
        "SCOPE    TYPE       NAME                  AGE  MEMORY",
        "project  feedback   reply-in-german  just now  Replies are in German",
        "project  project    port             just now  [stale, by tool] a.py sets x",
        "project  reference  board            just now  "
        "[pinned] The dashboard is https://grafana.example.org",
    ]
    assert [line["name"] for line in listed(known, "--type", "reference")] == ["board"]


def test_showing_one_tells_who_said_it_where_and_when(known: Inside) -> None:
    shown = run(known, "show", "reply-in-german").out
    expected = f"""\
reply-in-german  (feedback, project)
Replies are in German

Reply in German; code stays in English.

Evidence:
  you said on {DAY}: “always answer in German”
    travois --resume 3f2a0000

Created just now, changed just now, last verified just now, never recalled.
File: {folder(known) / "reply-in-german.md"}
"""
    assert shown == expected
    (told,) = run(known, "show", "reply-in-german", "--json").lines
    assert told["evidence"][0]["words"] == "always answer in German"
    assert told["stale"] == []


def test_an_unknown_name_brings_the_nearest(known: Inside) -> None:
    done = run(known, "show", "reply-german")
    assert (done.code, done.out) == (2, "")
    assert (
        done.err == "travois: There is no memory 'reply-german'\n  Did you mean reply-in-german?\n"
    )
    assert run(known, "forget", "reply-in-german", "nothing-such").code == 2
    assert names(known) == ["reply-in-german"]


def test_searching_finds_by_words_or_says_that_nothing_was_found(known: Inside) -> None:
    (found,) = listed(known, "search", "German replies")
    assert found["name"] == "reply-in-german"
    none = run(known, "search", "zeppelins")
    assert (none.code, none.out) == (1, "No matching memories.\n")


def test_secrets_are_not_kept(program: Inside) -> None:
    done = run(program, "add", "the password is hunter2")
    assert (done.code, done.out) == (2, "")
    assert "hunter2" not in done.err
    assert names(program) == []


def test_an_edit_is_checked_and_what_does_not_pass_is_not_lost(known: Inside) -> None:
    path = folder(known) / "reply-in-german.md"
    before = path.read_bytes()
    known.extra["EDITOR"] = "sed -i 's/type: feedback/type: wish/'"
    bad = run(known, "edit", "reply-in-german")
    assert bad.code == 2
    assert "type 'wish' is not one of user, feedback, project, reference" in bad.err
    assert path.read_bytes() == before
    draft = re.search(r"saved in (\S+)\.$", bad.err.strip())
    assert draft is not None
    assert Path(draft[1]).read_bytes() == before.replace(b"type: feedback", b"type: wish")
    known.extra["EDITOR"] = "sed -i 's/code stays in English/code too/'"
    good = run(known, "edit", "reply-in-german")
    assert "+Reply in German; code too." in good.out
    assert b"code too" in path.read_bytes()
    run(known, "undo", undoable(good.out))
    assert path.read_bytes() == before


def test_an_editor_that_changes_nothing_or_fails_changes_nothing(known: Inside) -> None:
    known.extra["EDITOR"] = "true"
    assert run(known, "edit", "reply-in-german").out == "Nothing changed.\n"
    for editor in ("false", "no-such-editor", "'"):
        known.extra["EDITOR"] = editor
        assert run(known, "edit", "reply-in-german").code == 2
    assert memories(known).get("reply-in-german").body == GERMAN.body


def test_proposals_wait_until_they_are_decided_on(known: Inside) -> None:
    wishes = [Memory(name, f"About {name}", "project", author="model") for name in ("a", "b", "c")]
    proposed = [PutMemory(one) for one in wishes]
    first, second, third = memories(known).propose(proposed, why="not your words")
    waiting = run(known, "inbox").out
    assert f"{first}  project project: About a  (just now)\n    reason: not your words" in waiting
    assert "3 proposals in the inbox" in run(known).out
    assert run(known, "accept").code == 2
    run(known, "accept", first)
    assert run(known, "reject", second[:6]).code == 0
    assert [line["id"] for line in listed(known, "inbox")] == [third]
    run(known, "reject", "--all")
    assert run(known, "inbox").out == "No proposals in the inbox.\n"
    assert names(known) == ["a", "reply-in-german"]
    assert memories(known).propose([PutMemory(wishes[1])], why="again") == ()


def test_the_doctor_names_what_is_wrong_and_the_command_that_mends_it(known: Inside) -> None:
    assert run(known, "doctor").out == "No problems in 1 memory.\n"
    (known.folder / "a.py").write_text("x = 1")
    again = Memory("german", "Replies are in German", "feedback", GERMAN.body)
    old = Memory("old", "Nobody ever asked for this", "project", modified=1.0, created=1.0)
    memories(known).apply([PutMemory(again), PutMemory(STALE), PutMemory(old)], why="test")
    (folder(known) / "leak.md").write_text("The password is hunter2-and-more\n")
    done = run(known, "doctor", "--json")
    assert done.code == 1
    wrong = [line for line in json.loads(done.out) if line["kind"] != "file"]
    assert {(line["kind"], line["name"]): line["fix"] for line in wrong} == {
        ("secret", "leak"): "travois memory forget leak --scope project",
        ("stale", "port"): "travois memory edit port   or   "
        "travois memory forget port --scope project",
        ("conflict", "german"): "travois memory forget german --scope project",
        ("unused", "old"): "travois memory forget old --scope project",
    }
    assert "hunter2" not in run(known, "doctor").out


def test_the_doctor_writes_an_index_again_that_was_spoilt(known: Inside) -> None:
    index = folder(known) / "MEMORY.md"
    whole = index.read_text()
    index.unlink()
    assert "Run `travois memory doctor --fix` to rebuild it" in run(known, "doctor").out
    assert run(known, "doctor", "--fix").out == "No problems in 1 memory.\n"
    assert index.read_text() == whole


@pytest.mark.parametrize("asked", [(), ("list",), ("search", "x"), ("history",), ("inbox",)])
def test_a_program_reads_an_empty_list_where_there_is_nothing(
    program: Inside, asked: tuple[str, ...]
) -> None:
    assert run(program, *asked, "--json").out == "[]\n"


def test_stats_history_and_places_can_be_asked_for(known: Inside) -> None:
    assert run(known, "stats").out.splitlines() == [
        "1 memory, 0 pinned",
        "  scope:    project 1",
        "  type:     feedback 1",
        "  said by:  user 1",
        "  never recalled: 1",
    ]
    (made,) = listed(known, "history")
    assert (made["why"], made["session"]) == ("said in a session", "3f2a0000")
    assert "3f2a0000  reply-in-german  said in a session" in run(known, "history").out
    places = json.loads(run(known, "where", "--json").out)
    assert places["project"] == {"folder": str(folder(known)), "consent": "auto"}


def test_other_agents_memories_are_read_in(program: Inside) -> None:
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(program.folder))
    place = program.home.parent / ".claude" / "projects" / slug / "memory"
    place.mkdir(parents=True)
    (place / "MEMORY.md").write_text("- [Tabs](tabs.md): uses tabs\n")
    (place / "tabs.md").write_text(
        "---\nname: tabs\ndescription: Uses tabs\ntype: feedback\n---\n\nTabs, not spaces.\n"
    )
    dry = run(program, "import", "claude", "--dry-run").out
    assert dry.splitlines()[:2] == ["TYPE      NAME  MEMORY", "feedback  tabs  Uses tabs"]
    assert names(program) == []
    run(program, "import")
    (found,) = listed(program)
    assert (found["name"], found["body"], found["author"]) == ("tabs", "Tabs, not spaces.", "model")
    assert run(program, "import", "codex").code == 2


def test_a_team_shares_a_folder_of_a_trusted_repository(program: Inside) -> None:
    program.run("trust")
    shared = run(program, "share").out
    place = program.folder / ".travois" / "memory"
    assert str(place) in shared
    run(program, "add", "We release on Tuesdays", "--scope", "team", "--name", "releases")
    assert (place / "releases.md").is_file()
    assert {line["scope"] for line in listed(program)} == {"team"}
    program.run("trust", "--revoke")
    assert names(program) == []
