from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.sessions.sample import opened, write
from travois.core.content import Media
from travois.core.errors import UserError
from travois.core.facts import User
from travois.sessions.blobs import BlobStore
from travois.sessions.catalog import (
    BLOB_GRACE_SECONDS,
    KeptSession,
    PrunePlan,
    SessionSummary,
    empty_trash,
    folder_size,
    list_sessions,
    plan_pruning,
    summarise_session,
    trash_session,
)
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import SessionLog


@pytest.fixture
def home(tmp_path: Path) -> TravoisHome:
    return TravoisHome(tmp_path / "home").prepare()


def seen(id: str, updated: float, parent: str = "") -> SessionSummary:
    return SessionSummary(id, "p", updated=updated, parent=parent)


def test_only_the_old_go_and_the_newest_are_kept_in_any_case() -> None:
    among = [seen("d", 9), seen("c", 3), seen("b", 2), seen("a", 1)]
    assert plan_pruning(among, among, before=5, keep=0) == PrunePlan(tuple(among[1:]), ())
    assert plan_pruning(among, among, before=5, keep=3) == PrunePlan((among[3],), ())
    assert plan_pruning(among, among, before=0, keep=0) == PrunePlan((), ())


def test_what_a_living_fork_stands_on_stays_down_to_the_root() -> None:
    root, middle, other = seen("root", 1), seen("middle", 2, "root"), seen("other", 2, "root")
    fork = seen("fork", 9, "middle")
    found = plan_pruning([middle, other, root], [fork, middle, other, root], before=5, keep=0)
    why = "a session that stays was forked from it"
    assert found == PrunePlan((other,), (KeptSession(middle, why), KeptSession(root, why)))


def test_a_family_of_which_nobody_stays_goes_together() -> None:
    family = [seen("fork", 2, "root"), seen("root", 1)]
    assert plan_pruning(family, family, before=5, keep=0) == PrunePlan(tuple(family), ())


def test_discarding_moves_everything_to_the_trash(home: TravoisHome) -> None:
    for number in (1, 2):
        write(home.session_folder("p", "s1"))
        (home.session_folder("p", "s1") / "tool-results").mkdir()
        (home.session_folder("p", "s1") / "tool-results" / "out.txt").write_text("kept")
        goal = trash_session(home, summarise_session(home.session_folder("p", "s1")))
        assert goal == home.trash / "p" / ("s1" if number == 1 else "s1-2")
        assert (goal / "tool-results" / "out.txt").read_text() == "kept"
    assert list_sessions(home) == []


def test_an_open_session_is_not_discarded(home: TravoisHome) -> None:
    with SessionLog.create(home.session_folder("p", "s1"), opened()):
        with pytest.raises(UserError, match="in use"):
            trash_session(home, SessionSummary("s1", "p"))
        assert home.session_folder("p", "s1").exists()


def test_emptying_the_trash_frees_what_only_the_trash_named(home: TravoisHome) -> None:
    blobs = BlobStore(home.blobs)
    shared, lonely, fresh = blobs.put(b"shared"), blobs.put(b"lonely"), blobs.put(b"fresh")
    for id, names in (("stays", [shared]), ("goes", [shared, lonely])):
        media = tuple(Media("image", "image/png", name, 6) for name in names)
        write(home.session_folder("p", id), then=[User(media)])
    for name in (shared, lonely):
        os.utime(home.blobs / name[:2] / name[2:], (0, 0))
    trash_session(home, SessionSummary("goes", "p"))
    before = folder_size(home.path)
    freed = empty_trash(home, now=2 * BLOB_GRACE_SECONDS)
    assert blobs.get(shared) == b"shared"
    assert blobs.get(fresh) == b"fresh"
    with pytest.raises(KeyError):
        blobs.get(lonely)
    assert folder_size(home.path) == before - freed
    assert not home.trash.exists()


def test_a_blob_that_was_asked_for_again_is_not_swept(home: TravoisHome) -> None:
    blobs = BlobStore(home.blobs)
    name = blobs.put(b"data")
    os.utime(home.blobs / name[:2] / name[2:], (0, 0))
    blobs.put(b"data")
    empty_trash(
        home, now=os.stat(home.blobs / name[:2] / name[2:]).st_mtime + BLOB_GRACE_SECONDS / 2
    )
    assert blobs.get(name) == b"data"
