"""The memory folder: what is kept, found, undone, proposed; and what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from travois.core.errors import UserError
from travois.memory.memory import DropMemory, Evidence, Memory, PutMemory
from travois.memory.store import FolderMemoryStore, open_memories
from travois.sessions.home import Project, TravoisHome

AUTO = {"project": "auto", "user": "auto", "team": "ask"}
UV = Memory("use-uv", "Use uv, never pip", "feedback", "Packages are installed with uv.")
PORT = Memory("port", "The API listens on 8080", "project", author="tool")


def opened(tmp_path: Path, **more: object) -> FolderMemoryStore:
    settings = {"consent": AUTO, "index": None, "trusted": True, "clock": lambda: 100.5} | more
    return open_memories(
        TravoisHome(tmp_path / "home"), Project("git-a", str(tmp_path / "work")), **settings
    )


@pytest.fixture
def memories(tmp_path: Path) -> FolderMemoryStore:
    return opened(tmp_path)


def stamped(memory: Memory) -> Memory:
    return replace(memory, created=100.5, modified=100.5, verified=100.5)


def test_what_is_kept_is_there_for_the_next_process(
    memories: FolderMemoryStore, tmp_path: Path
) -> None:
    mine = replace(UV, scope="user", evidence=(Evidence("s", 3, "user", "use uv"),))
    done = memories.apply([PutMemory(PORT), PutMemory(mine)], why="learnt", session="s")
    assert (done.refused, done.diff) == (
        (),
        "--- /dev/null\n+++ port.md\n+The API listens on 8080 (project, said by tool)\n"
        "--- /dev/null\n+++ use-uv.md\n+Use uv, never pip (feedback, said by user)\n"
        "+Packages are installed with uv.",
    )
    again = opened(tmp_path)
    assert again.read_all() == (stamped(PORT), stamped(mine))
    assert again.get("use-uv") == stamped(mine)
    made = again.history()
    assert [(one.id, one.why, one.session, one.undone) for one in made] == [
        (done.id, "learnt", "s", False)
    ]
    folder = again.folders()["user"]
    assert (folder / "MEMORY.md").read_text() == "- [use-uv](use-uv.md): Use uv, never pip\n"


def test_an_undone_change_leaves_everything_as_it_was(memories: FolderMemoryStore) -> None:
    memories.apply([PutMemory(UV), PutMemory(PORT)], why="one")
    kept = memories.read_all()
    night = memories.apply(
        [DropMemory("use-uv"), PutMemory(replace(PORT, body="or 9090"))], why="night"
    )
    assert memories.read_all() != kept
    assert memories.undo(night.id).diff.endswith("--- port.md\n+++ port.md\n-or 9090")
    assert memories.read_all() == kept
    assert [one.undone for one in memories.history()] == [False, True, False]
    memories.undo()
    assert memories.read_all() == ()
    assert not (memories.folders()["project"] / "MEMORY.md").exists()
    with pytest.raises(UserError, match="There is nothing to undo"):
        memories.undo()


def test_a_change_that_was_undone_can_be_made_again(memories: FolderMemoryStore) -> None:
    first = memories.apply([PutMemory(UV)], why="one")
    back = memories.undo(first.id)
    with pytest.raises(UserError, match=f"{first.id} was already undone"):
        memories.undo(first.id)
    memories.undo(back.id)
    assert memories.read_all() == (stamped(UV),)
    assert [one.undone for one in memories.history()] == [False, True, False]
    with pytest.raises(UserError, match="There is no change nothing"):
        memories.undo("nothing")


def test_what_was_changed_since_is_not_undone(memories: FolderMemoryStore) -> None:
    first = memories.apply([PutMemory(UV), PutMemory(PORT)], why="one")
    second = memories.apply([PutMemory(replace(UV, body="Also in CI."))], why="two")
    kept = memories.read_all()
    with pytest.raises(UserError) as refused:
        memories.undo(first.id)
    assert str(refused.value) == (
        f"{first.id} cannot be undone: use-uv.md was changed since by {second.id} (two)\n"
        "  Undo that change first, or edit the file by hand."
    )
    assert memories.read_all() == kept
    memories.undo(second.id)
    memories.undo(first.id)
    assert memories.read_all() == ()


def test_a_persons_edits_are_taken_into_the_history(memories: FolderMemoryStore) -> None:
    first = memories.apply([PutMemory(UV), PutMemory(PORT)], why="one")
    folder = memories.folders()["project"]
    written = (folder / "use-uv.md").read_text().replace("with uv.", "with uv. Mine.")
    (folder / "use-uv.md").write_text(written)
    (folder / "port.md").unlink()
    (folder / "by-hand.md").write_text("# Mind the gap\n\nReally.\n")
    (folder / "MEMORY.md").write_text("Read this first.\n")
    assert {one.name for one in memories.read_all()} == {"use-uv", "by-hand"}
    with pytest.raises(UserError, match="cannot be undone"):
        memories.undo(first.id)
    later = memories.apply([PutMemory(replace(UV, body="Overwritten."))], why="two")
    made = memories.history()
    assert [(one.why, sorted(file.file for file in one.files)) for one in made] == [
        ("two", ["use-uv.md"]),
        ("edited outside", ["by-hand.md", "port.md", "use-uv.md"]),
        ("one", ["port.md", "use-uv.md"]),
    ]
    assert (folder / "MEMORY.md").read_text() == (
        "Read this first.\n- [by-hand](by-hand.md): Mind the gap\n"
        "- [use-uv](use-uv.md): Use uv, never pip\n"
    )
    memories.undo(later.id)
    assert (folder / "use-uv.md").read_text() == written
    memories.undo(made[1].id)
    assert {one.name for one in memories.read_all()} == {"use-uv", "port"}


def test_an_edit_shows_when_it_is_asked_for(memories: FolderMemoryStore) -> None:
    memories.apply([PutMemory(UV)], why="one")
    path = memories.folders()["project"] / "use-uv.md"
    path.write_text(path.read_text().replace("never pip", "or pip"))
    assert memories.record_edits().diff == (
        "--- use-uv.md\n+++ use-uv.md\n-Use uv, never pip (feedback, said by user)\n"
        "+Use uv, or pip (feedback, said by user)"
    )
    assert memories.record_edits().id == ""
    assert "Use uv, or pip" in memories.index()


def test_what_is_pinned_is_a_persons(memories: FolderMemoryStore) -> None:
    memories.add(replace(UV, pinned=True))
    mine = replace(stamped(UV), pinned=True)
    done = memories.apply(
        [PutMemory(UV), DropMemory("use-uv"), PutMemory(replace(PORT, pinned=True))], why="dream"
    )
    why = "it is pinned; only the user can change it"
    assert done.id == ""
    assert done.refused == (f"use-uv: {why}", f"use-uv: {why}", f"port: {why}")
    assert memories.read_all() == (mine,)
    memories.add(UV)
    assert memories.read_all() == (stamped(UV),)
    memories.add(replace(UV, pinned=True))
    assert memories.read_all() == (mine,)
    memories.forget("use-uv")
    assert memories.read_all() == ()


@pytest.mark.parametrize(
    ("memory", "why"),
    [
        (
            replace(UV, name="../../etc/passwd"),
            "a name is up to 60 lowercase letters, digits and single dashes",
        ),
        (replace(UV, name="Use-UV"), "use-uv exists and differs only in case; use that name"),
        (replace(UV, name="memory"), "a name is up to 60"),
        (replace(UV, name="a\nb"), "a name is up to 60"),
        (replace(UV, name=""), "a name is up to 60"),
        (replace(UV, name="x" * 61), "a name is up to 60"),
        (replace(PORT, body="x" * 16_001), "it has 16,001 characters (limit 16,000); split it"),
        (replace(PORT, body="ghp_" + "a1B2" * 10), "it seems to contain a secret (GitHub"),
        (
            replace(PORT, evidence=(Evidence("s", 1, "user", "AKIA" + "A" * 16),)),
            "it seems to contain a secret (AWS key)",
        ),
        (replace(PORT, scope="team"), "memory is off for the team scope"),
    ],
)
def test_what_is_not_to_be_kept_is_refused(
    memories: FolderMemoryStore, memory: Memory, why: str
) -> None:
    memories.add(UV)
    done = memories.apply([PutMemory(memory)], why="w")
    assert (done.id, len(done.refused)) == ("", 1)
    assert why in done.refused[0]
    assert memories.read_all() == (stamped(UV),)


def test_unfit_changes_do_not_keep_others_from_being_made(memories: FolderMemoryStore) -> None:
    done = memories.apply([DropMemory("nothing"), PutMemory(UV), PutMemory(UV)], why="w")
    assert done.refused == ("nothing: no memory has that name",)
    assert memories.read_all() == (stamped(UV),)
    assert memories.apply([PutMemory(UV)], why="again").id == ""


def test_what_a_hand_wrote_around_a_memory_survives_a_rewrite(memories: FolderMemoryStore) -> None:
    memories.add(UV)
    path = memories.folders()["project"] / "use-uv.md"
    path.write_text(path.read_text().replace("type:", "tags: [a]\n# mine\ntype:"))
    memories.apply([PutMemory(replace(UV, body="Otherwise."))], why="w")
    assert "tags: [a]\n# mine\n" in path.read_text()
    assert memories.get("use-uv").body == "Otherwise."


def test_an_unknown_name_suggests_near_ones(memories: FolderMemoryStore) -> None:
    memories.add(UV)
    with pytest.raises(UserError, match="There is no memory 'use-vu'\n  Did you mean use-uv"):
        memories.get("use-vu")
    with pytest.raises(UserError, match="There is no memory 'use-uv'"):
        memories.get("use-uv", "user")


def test_a_proposal_waits_for_a_persons_word(memories: FolderMemoryStore, tmp_path: Path) -> None:
    ids = memories.propose(
        [PutMemory(UV), PutMemory(PORT), DropMemory("x", "user")], why="a page says so"
    )
    assert memories.propose([PutMemory(replace(UV, modified=5.0))], why="again") == ids[:1]
    assert memories.read_all() == ()
    waiting = opened(tmp_path).inbox()
    assert sorted(one.id for one in waiting) == sorted(ids)
    assert {one.why for one in waiting} == {"a page says so"}
    done = memories.accept(ids[0])
    assert memories.read_all() == (stamped(UV),)
    assert done.diff.startswith("--- /dev/null\n+++ use-uv.md")
    memories.reject(ids[1])
    assert [one.id for one in memories.inbox()] == [ids[2]]
    assert memories.propose([PutMemory(PORT)], why="once more") == ()
    with pytest.raises(UserError, match="The memory was not changed: x: no memory has that name"):
        memories.accept(ids[2])
    with pytest.raises(UserError, match="No proposal matches 'zzz'"):
        memories.accept("zzz")


def test_a_memory_is_stale_when_its_file_changes_and_fresh_again_when_its_words_stand(
    memories: FolderMemoryStore, tmp_path: Path
) -> None:
    config = tmp_path / "work" / "config.toml"
    config.parent.mkdir()
    config.write_text("port = 8080\n")
    anchor = memories.anchor("config.toml")
    assert anchor is not None
    told = Memory("port", "Where the port is", "project", "`port` is 8080.", anchors=(anchor,))
    memories.add(told)
    told = memories.get("port")
    assert memories.find_stale_files(told) == ()
    assert memories.reverify(told) == told
    config.write_text("# moved\nport = 8080\n")
    assert memories.find_stale_files(told) == ("config.toml",)
    renewed = memories.reverify(told)
    assert renewed == memories.get("port") != told
    assert memories.find_stale_files(memories.get("port")) == ()
    assert memories.history()[0].why == "verified"
    config.write_text("port = 9090\n")
    assert memories.reverify(memories.get("port")) is None
    config.unlink()
    assert memories.find_stale_files(memories.get("port")) == ("config.toml",)
    assert memories.reverify(memories.get("port")) is None
    assert memories.anchor("config.toml") is None


def test_recalls_are_counted_beside_the_memories(
    memories: FolderMemoryStore, tmp_path: Path
) -> None:
    memories.apply([PutMemory(UV), PutMemory(PORT)], why="w")
    before = (memories.folders()["project"] / "port.md").read_bytes()
    memories.count_recalls(["port", "nothing"])
    opened(tmp_path).count_recalls(["port"])
    stats = memories.stats()
    assert (stats.total, stats.types, stats.authors, stats.scopes) == (
        2,
        {"project": 1, "feedback": 1},
        {"tool": 1, "user": 1},
        {"project": 2},
    )
    assert (stats.recalled, stats.never) == ({"project/port": (2, 100.5)}, ("project/use-uv",))
    assert (memories.folders()["project"] / "port.md").read_bytes() == before
    assert stats.used == {}
    for _ in range(2):
        memories.count_uses(["port", "nothing"])
    opened(tmp_path).count_uses(["port"])
    assert memories.stats().used == {"project/port": (2, 100.5)}
    (tmp_path / "home/memory/.history/usage.json").write_bytes(b"\xff\0")
    assert memories.stats().recalled == {}


def test_what_is_recalled_and_never_used_sinks(memories: FolderMemoryStore) -> None:
    memories.apply([PutMemory(UV), PutMemory(PORT)], why="w")
    known = memories.read_all()
    for _ in range(4):
        memories.count_recalls([known[0].name])
    assert memories.stats().idle == (f"project/{known[0].name}",)
    assert memories.put_idle_last(known) == (known[1], known[0])
    memories.count_uses([known[0].name])
    assert memories.stats().idle == ()
    assert memories.put_idle_last(known) == known


def test_nothing_outside_the_memory_folders_is_written(
    memories: FolderMemoryStore, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    memories.apply([PutMemory(UV), PutMemory(replace(PORT, scope="user"))], why="w")
    memories.propose([PutMemory(PORT)], why="w")
    memories.count_recalls(["port"])
    memories.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "work"]
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["memory"]
    assert list((tmp_path / "work").iterdir()) == []


def test_reading_writes_nothing(memories: FolderMemoryStore, tmp_path: Path) -> None:
    assert (memories.read_all(), memories.index(), memories.search("uv", limit=5)) == ((), "", ())
    assert (memories.history(), memories.inbox(), memories.find_flaws()) == ([], [], [])
    assert list(tmp_path.iterdir()) == []


def test_two_projects_never_mix(tmp_path: Path) -> None:
    one = opened(tmp_path)
    two = open_memories(
        TravoisHome(tmp_path / "home"),
        Project("git-b", str(tmp_path)),
        consent=AUTO,
        index=None,
        trusted=True,
    )
    one.add(UV)
    one.add(replace(PORT, scope="user"))
    assert [memory.name for memory in two.read_all()] == ["port"]
    assert [made.files[0].file for made in two.history()] == ["port.md"]
    with pytest.raises(UserError, match="There is no change"):
        two.undo(one.history()[1].id)


def test_the_folder_may_lie_where_the_user_wants_it(tmp_path: Path) -> None:
    place = tmp_path / "notes"
    memories = opened(tmp_path, directory=str(place))
    memories.add(UV)
    assert sorted(path.name for path in place.iterdir()) == ["MEMORY.md", "use-uv.md"]
    memories.undo(memories.history()[0].id)
    assert list(place.iterdir()) == []


def test_threads_of_one_process_do_not_get_in_each_others_way(memories: FolderMemoryStore) -> None:
    def work(number: int) -> None:
        for turn in range(5):
            name = f"m{number}-{turn}"
            memories.apply([PutMemory(Memory(name, "Threads of one process", "project"))], why=name)
            memories.search("threads", limit=3)
            memories.history()
            assert name in {one.name for one in memories.read_all()}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(memories.read_all()) == 40
    assert len({made.why for made in memories.history(100)}) == 40
    assert memories.find_flaws() == []


def test_a_long_diff_is_cut_and_says_so(memories: FolderMemoryStore) -> None:
    done = memories.apply([PutMemory(replace(PORT, name=f"p{n}")) for n in range(50)], why="w")
    assert done.diff.splitlines()[-1] == "… 50 more lines"


def test_a_name_that_begins_like_the_folder_of_what_is_pinned_is_not_pinned(
    memories: FolderMemoryStore,
) -> None:
    memories.apply([PutMemory(replace(UV, name="pinned-versions"))], why="w")
    assert memories.apply([DropMemory("pinned-versions")], why="w").refused == ()
    (memories.folders()["project"] / "Twice.md").write_text("Loud.\n")
    (memories.folders()["project"] / "twice.md").write_text("Quiet.\n")
    assert memories.apply([DropMemory("twice")], why="w").refused == ()
    assert [one.name for one in memories.read_all()] == ["Twice"]


def test_a_repository_keeps_its_memories_when_it_gets_a_first_commit(tmp_path: Path) -> None:
    home, work = TravoisHome(tmp_path / "home"), str(tmp_path)
    settings = {"consent": AUTO, "index": None, "trusted": True, "clock": lambda: 100.5}
    early = open_memories(home, Project("dir-a", work), **settings)
    early.add(UV)
    later = open_memories(home, Project("git-a", work, ("dir-a",)), **settings)
    assert later.read_all() == (stamped(UV),)
    clone = open_memories(home, Project("git-a", str(tmp_path / "clone")), **settings)
    assert clone.read_all() == (stamped(UV),)
    clone.undo()
    assert later.read_all() == early.read_all() == ()
