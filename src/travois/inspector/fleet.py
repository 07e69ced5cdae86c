"""The inspector's page of the fleet: its tasks, and the sessions of those that ran here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from travois.core.errors import UserError
from travois.fleet.task import DATABASE_VARIABLE, locate_fleet_folder
from travois.lazy_imports import lazy_imports
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import LOG_FILE_NAME

with lazy_imports():
    from travois.files import installation
    from travois.fleet import child, report, store


class FleetTaskLine(msgspec.Struct, frozen=True):
    """A task in the table."""

    id: str
    state: str
    result: str
    repo: str
    prompt: str
    model: str
    usd: float
    tokens: int
    seconds: float
    ended: float
    session: str
    """Empty if its log is not on this machine."""


class FleetPage(msgspec.Struct, frozen=True):
    """All tasks of the fleet."""

    database: str
    totals: str
    tasks: tuple[FleetTaskLine, ...]


def has_fleet(home: TravoisHome) -> bool:
    """Return whether the inspector's user has a fleet; a look at the page creates none."""
    url = os.environ.get(DATABASE_VARIABLE, "")
    return bool(url) or (locate_fleet_folder(home.path, "") / "fleet.db").exists()


def read_fleet_page(home: TravoisHome) -> FleetPage:
    """Read the tasks of the fleet for the inspector."""
    if not has_fleet(home):
        return FleetPage("", "", ())
    url = os.environ.get(DATABASE_VARIABLE, "")
    folder = locate_fleet_folder(home.path, url)
    try:
        queue = store.FleetStore(store.locate_database(url, folder))
    except ImportError as error:
        raise UserError(
            "The page of the fleet needs packages that are not installed",
            why=f"{error.name} is missing",
            fix=installation.extra_command("fleet"),
        ) from error
    try:
        queue.check_schema_version()
        rows = queue.list_tasks()
    finally:
        queue.close()
    lines = tuple(_build_line(row, folder) for row in rows)
    return FleetPage(queue.database.shown, report.describe_totals(rows), lines)


def _build_line(row: store.TaskRow, folder: Path) -> FleetTaskLine:
    task, session = row.task, str(child.session_id(row.id, fresh=row.fresh))
    place = folder / "tasks" / row.id / str(row.fresh)
    is_here = any((one / session / LOG_FILE_NAME).is_file() for one in _list_projects(place))
    return FleetTaskLine(
        id=row.id,
        state=row.state,
        result=task.branch if row.published else row.why,
        repo=task.repo,
        prompt=task.prompt,
        model=task.model,
        usd=row.cost,
        tokens=row.input_tokens + row.output_tokens,
        seconds=row.seconds,
        ended=row.ended,
        session=session if is_here else "",
    )


def find_fleet_session(home: TravoisHome, session: str) -> Path | None:
    """Find the folder of a fleet task's session for the inspector; None if it is not here."""
    for place in (home.path / "fleet").glob("*/tasks/*/*"):
        for project in _list_projects(place):
            if (project / session / LOG_FILE_NAME).is_file():
                return project / session
    return None


def _list_projects(place: Path) -> Iterator[Path]:
    """Yield the folders of sessions in a fleet task's home; they have the same names as ours."""
    sessions = TravoisHome(place / "home" / "travois").sessions
    if sessions.is_dir():
        yield from sessions.iterdir()
