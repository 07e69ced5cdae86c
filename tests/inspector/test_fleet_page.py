"""The page of the fleet: its tasks, and the sessions of those that ran on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from tests.inspector.logs import make, talk
from travois.core.errors import UserError
from travois.fleet.child import session_id
from travois.fleet.store import FLEET, FleetStore, locate_database
from travois.fleet.task import FleetTask, locate_fleet_folder
from travois.inspector.api import InspectorApi
from travois.inspector.fleet import has_fleet, read_fleet_page
from travois.sessions.home import TravoisHome


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TravoisHome:
    monkeypatch.delenv("TRAVOIS_FLEET_DB", raising=False)
    return TravoisHome(tmp_path / "home").prepare()


def open_fleet(home: TravoisHome, *tasks: FleetTask) -> FleetStore:
    made = FleetStore(locate_database("", locate_fleet_folder(home.path, "")))
    made.create_fleet_tables()
    made.submit_tasks(tasks)
    return made


def task(id: str) -> FleetTask:
    return FleetTask(id=id, repo="/src/app", prompt=f"Mend {id}")


def make_session(home: TravoisHome, id: str) -> str:
    session = str(session_id(id, fresh=0))
    place = locate_fleet_folder(home.path, "") / "tasks" / id / "0" / "home" / "travois"
    make(TravoisHome(place).prepare().session_folder("p", session), *talk(3))
    return session


def test_without_a_fleet_there_is_nothing_and_nothing_is_made(home: TravoisHome) -> None:
    assert not has_fleet(home)
    assert read_fleet_page(home).tasks == ()
    assert not (home.path / "fleet").exists()


def test_each_task_has_its_state_cost_and_session(home: TravoisHome) -> None:
    store = open_fleet(home, task("a"), task("b"))
    store.add_worker("w", place="", slots=1)
    row = store.claim_run("a", 1, worker="w")
    assert row is not None
    used = {"cost": 0.25, "input_tokens": 900, "output_tokens": 100, "seconds": 7.5}
    assert store.save_task(row, state="done", published="c0ffee", **used)
    session = make_session(home, "a")
    page = read_fleet_page(home)
    assert page.totals == "2 tasks: 1 done, 1 queued; $0.2500, 1,000 tokens"
    first, second = page.tasks
    assert (first.id, first.state, first.result) == ("a", "done", "travois/a")
    assert (first.usd, first.tokens, first.seconds) == (0.25, 1_000, 7.5)
    assert (first.session, second.session) == (session, "")


def test_the_session_of_a_task_can_be_inspected(home: TravoisHome) -> None:
    open_fleet(home, task("a"))
    api, query = InspectorApi(home), {"session": make_session(home, "a"), "step": "1"}
    listed, overview = api.overview(query)
    assert (listed.summary.id, len(overview.steps)) == (query["session"], 6)
    assert api.body_bytes(query).text
    with pytest.raises(UserError, match="no session"):
        api.overview({"session": str(session_id("b", fresh=0))})


def test_a_thousand_tasks_are_read_with_one_query(home: TravoisHome) -> None:
    open_fleet(home, *(task(f"t{n}") for n in range(1_000)))
    asked: list[str] = []

    def note(*args: object) -> None:
        asked.append(str(args[2]))

    event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        assert len(read_fleet_page(home).tasks) == 1_000
    finally:
        event.remove(sa.Engine, "before_cursor_execute", note)
    assert sum("travois_tasks" in one for one in asked) == 1


def test_a_database_of_another_version_is_told(home: TravoisHome) -> None:
    with open_fleet(home).open_transaction() as connection:
        connection.execute(FLEET.update().values(version=1_000))
    with pytest.raises(UserError, match="does not fit"):
        read_fleet_page(home)
