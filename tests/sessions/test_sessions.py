from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sessions.sample import EPOCH, clock, facts, opened, turns, write
from travois.core.content import Text
from travois.core.errors import UserError
from travois.core.facts import AnyFact, Changed, Noted, User
from travois.sessions.catalog import (
    ROSTER_FILE,
    SUMMARY_CACHE_FILE,
    SessionSummary,
    find_newest_session,
    find_session,
    list_session_folders,
    list_sessions,
    summarise_session,
)
from travois.sessions.home import Project, TravoisHome
from travois.sessions.log_file import LOG_FILE_NAME, SessionLog


@pytest.fixture
def home(tmp_path: Path) -> TravoisHome:
    return TravoisHome(tmp_path / "home").prepare()


def session(
    home: TravoisHome, id: str, *, project: str = "p", cwd: str = "/w", **more: object
) -> Path:
    """A session of two turns called after its id."""
    folder = home.session_folder(project, id)
    first = opened(id, cwd=cwd, project=project)
    then = more.get("then", [EPOCH, *turns(2), Changed("name", f"the {id}")])
    write(folder, first=first, then=then)  # type: ignore[arg-type]
    return folder


def test_a_summary_tells_how_it_began_and_where_it_is(home: TravoisHome) -> None:
    folder = session(home, "s1")
    count = len(facts()) + 1
    assert summarise_session(folder) == SessionSummary(
        id="s1",
        project="p",
        cwd="/w",
        created=1_700_000_000.0,
        updated=1_700_000_000.0 + count - 1,
        turns=2,
        name="the s1",
        first_prompt="question 0 ünï",
        size=(folder / LOG_FILE_NAME).stat().st_size,
    )


def test_the_first_prompt_is_a_persons_and_is_cut(home: TravoisHome) -> None:
    said = [User((Text("It is Monday."),), "note"), User((Text("word " * 1000),))]
    folder = session(home, "s1", then=[EPOCH, *said])
    prompt = summarise_session(folder).first_prompt
    assert prompt.startswith("word word")
    assert (len(prompt), prompt[-1]) == (200, "…")


def _long(name_at: int) -> Iterator[AnyFact]:
    """A session of some megabytes whose name stands somewhere in the middle."""
    for index in range(60):
        if index == name_at:
            yield Changed("name", "deep inside")
        yield from turns(1, start=index)
        yield Noted("padding", "x" * 50_000)


def test_a_name_is_found_wherever_in_the_log_it_was_given(home: TravoisHome) -> None:
    for at in (0, 30, 59):
        folder = session(home, f"at-{at}", then=list(_long(at)))
        assert (summarise_session(folder).name, summarise_session(folder).turns) == (
            "deep inside",
            60,
        )


def test_without_its_cache_a_summary_is_the_same(home: TravoisHome) -> None:
    folder = session(home, "s1", then=list(_long(3)))
    fresh = summarise_session(folder)
    assert (folder / SUMMARY_CACHE_FILE).exists()
    with SessionLog.open(folder, clock=clock()) as log:
        log.append(Changed("name", "anew"))
        for fact in turns(3, start=60):
            log.append(fact)
    cached = summarise_session(folder)
    assert (cached.name, cached.turns) == ("anew", fresh.turns + 3)
    (folder / SUMMARY_CACHE_FILE).unlink()
    assert summarise_session(folder) == cached
    (folder / SUMMARY_CACHE_FILE).write_bytes(b"nonsense")
    assert summarise_session(folder) == cached


def test_a_cache_of_another_session_or_of_a_longer_log_is_not_believed(home: TravoisHome) -> None:
    long = session(home, "long", then=list(_long(3)))
    short = session(home, "short")
    summarise_session(long)
    (short / SUMMARY_CACHE_FILE).write_bytes((long / SUMMARY_CACHE_FILE).read_bytes())
    assert summarise_session(short).name == "the short"
    data = (long / LOG_FILE_NAME).read_bytes()
    (long / LOG_FILE_NAME).write_bytes(data[: data.index(b"\n", 100_000) + 1])
    assert summarise_session(long).turns < 10


@pytest.mark.parametrize(
    ("damage", "trouble"),
    [
        (lambda data: b"X" + data[1:], "its first line is damaged"),
        (lambda data: data[:-5], "its last line is torn"),
        (lambda data: b"\0" * len(data), "its first line is damaged"),
        (lambda data: b"\xff\n\xfe", "its first line is damaged"),
    ],
)
def test_damaged_logs_are_listed_with_what_is_wrong(
    home: TravoisHome, damage, trouble: str
) -> None:  # type: ignore[no-untyped-def]
    session(home, "fine")
    bad = session(home, "bad")
    (bad / LOG_FILE_NAME).write_bytes(damage((bad / LOG_FILE_NAME).read_bytes()))
    found = {summary.id: summary.trouble for summary in list_sessions(home)}
    assert found == {"fine": "", "bad": trouble}


def test_folders_without_a_word_in_them_are_no_sessions(home: TravoisHome) -> None:
    session(home, "s1")
    home.session_folder("p", "empty").mkdir()
    home.session_folder("p", "begun").mkdir()
    (home.session_folder("p", "begun") / LOG_FILE_NAME).touch()
    (home.sessions / "stray file").touch()
    assert [folder.name for folder in list_session_folders(home)] == ["s1"]


def test_the_newest_comes_first_whatever_order_they_were_made_in(home: TravoisHome) -> None:
    for number, id in enumerate(("b", "c", "a")):
        with SessionLog.create(
            home.session_folder("p", id), opened(id), clock=lambda n=number: 100.0 - n
        ):  # type: ignore[misc]
            pass
    assert [summary.id for summary in list_sessions(home)] == ["b", "c", "a"]
    assert [summary.id for summary in list_sessions(home, ["elsewhere"])] == []


PROJECT = Project("p", "/w", also=("older",))


def test_sessions_are_found_by_id_by_its_beginning_and_by_name(home: TravoisHome) -> None:
    session(home, "3f2a-one")
    session(home, "3f2b-two", project="older")
    session(home, "77aa-three", project="elsewhere")
    wanted = {
        "3f2a-one": "3f2a-one",
        "3f2b": "3f2b-two",
        "the 3f2a-one": "3f2a-one",
        "The 77AA-Three": "77aa-three",
        "77aa": "77aa-three",
    }
    assert {text: find_session(home, text, project=PROJECT).id for text in wanted} == wanted


def test_a_name_of_this_project_goes_before_the_same_name_elsewhere(home: TravoisHome) -> None:
    session(home, "here", then=[Changed("name", "refactor")])
    session(home, "there", project="elsewhere", then=[Changed("name", "refactor")])
    assert find_session(home, "refactor", project=PROJECT).id == "here"
    with pytest.raises(UserError, match="matches 2 sessions"):
        find_session(home, "refactor")


def test_what_could_be_several_sessions_is_told_with_all_of_them(home: TravoisHome) -> None:
    session(home, "3f2a-one")
    session(home, "3f2a-two")
    with pytest.raises(UserError) as caught:
        find_session(home, "3f2a")
    assert {"3f2a-one", "3f2a-two"} <= set(caught.value.fix.split())


@pytest.mark.parametrize("text", ["", "3f", "nope", "../p/3f2a-one", "*", "p/3f2a-one"])
def test_what_is_no_session_is_said_to_be_none(home: TravoisHome, text: str) -> None:
    session(home, "3f2a-one")
    with pytest.raises(UserError, match="There is no session"):
        find_session(home, text)


def test_continue_means_this_folder_first_and_then_this_project(home: TravoisHome) -> None:
    def begin(id: str, cwd: str, at: float, project: str = "p") -> None:
        first = opened(id, cwd=cwd, project=project)
        SessionLog.create(home.session_folder(project, id), first, clock=lambda: at).close()

    begin("mine", "/w/src", 1.0)
    begin("later", "/w", 2.0)
    begin("old key", "/w/tree", 3.0, project="older")
    begin("stranger", "/w/src", 4.0, project="elsewhere")
    here = [find_newest_session(home, PROJECT, cwd=cwd).id for cwd in ("/w/src", "/w", "/w/docs")]
    assert here == ["mine", "later", "old key"]
    with pytest.raises(UserError, match="no session to continue"):
        find_newest_session(home, Project("empty", "/e"), cwd="/e")


def test_a_thousand_sessions_are_listed(home: TravoisHome) -> None:
    session(home, "model")
    data = (home.session_folder("p", "model") / LOG_FILE_NAME).read_bytes()
    for number in range(1000):
        folder = home.session_folder("p", f"s{number:04}")
        folder.mkdir()
        (folder / LOG_FILE_NAME).write_bytes(data)
    found = list_sessions(home)
    assert len(found) == 1001
    assert {summary.turns for summary in found} == {2}


def test_logs_that_have_not_changed_are_not_opened_again(home: TravoisHome) -> None:
    kept, grown = session(home, "kept"), session(home, "grown", project="q")
    told = list_sessions(home)
    stat = (kept / LOG_FILE_NAME).stat()
    (kept / LOG_FILE_NAME).write_bytes(b"x" * stat.st_size)
    os.utime(kept / LOG_FILE_NAME, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with SessionLog.open(grown, clock=clock()) as log:
        log.append(Changed("name", "Grown"))
    again = {summary.id: summary for summary in list_sessions(home)}
    assert again["kept"] in told
    assert again["grown"].name == "Grown"


@pytest.mark.parametrize("junk", [b"", b"junk", b'{"p/s": 1}'])
def test_a_spoilt_list_of_sessions_is_made_again(home: TravoisHome, junk: bytes) -> None:
    session(home, "s")
    told = list_sessions(home)
    (home.path / ROSTER_FILE).write_bytes(junk)
    assert list_sessions(home) == told
