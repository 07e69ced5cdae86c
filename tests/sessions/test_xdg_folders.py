"""Settings and caches leave the state folder once, whatever interrupts that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from travois.sessions.home import TravoisHome, locate_home
from travois.sessions.xdg_folders import XdgFolders

KEPT = {
    "settings.json": '{"tui": {"theme": "light"}}',
    "AGENTS.md": "Be brief.",
    "skills/pdf/SKILL.md": "A skill.",
    "index/sessions.db": "an index",
    "sessions/p/s/log.jsonl": "a log",
    "memory/user/a.md": "a memory",
}
MOVER = """
import os, sys
from travois.sessions import home, xdg_folders
import fcntl, shutil

left = int(sys.argv[1])
def count_down(event, args):
    global left
    if event in ("os.rename", "os.symlink", "os.remove", "os.mkdir", "os.scandir"):
        if left == 0:
            os.kill(os.getpid(), 9)
        left -= 1

sys.addaudithook(count_down)
sys.stdout.write(xdg_folders.take_move_note(home.locate_home(os.environ).path))
"""
"""Moves what is due and tells it, and is killed before its nth change."""


def environment(person: Path) -> dict[str, str]:
    return {"HOME": str(person), "PATH": os.environ["PATH"]}


def fill(person: Path) -> Path:
    """Write a home as earlier versions kept it."""
    state = person / ".local/state/travois"
    for name, text in KEPT.items():
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(text)
    return state


def read_all(home: TravoisHome) -> dict[str, str]:
    """Read each file from where the home says that it is."""
    found = dict[str, str]()
    for name in KEPT:
        top = name.partition("/")[0]
        folder = {"index": home.cache, "sessions": home.path, "memory": home.path}
        found[name] = (folder.get(top, home.config) / name).read_text()
    return found


def move(person: Path, *, kill_at: int = -1) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MOVER, str(kill_at)],
        env=environment(person),
        capture_output=True,
        text=True,
    )


def test_settings_and_caches_move_once_and_that_is_told_in_one_line(tmp_path: Path) -> None:
    state = fill(tmp_path)
    told = move(tmp_path).stdout
    assert told == (
        f"AGENTS.md, index, settings.json, skills moved from {state} to "
        f"{tmp_path}/.config/travois and {tmp_path}/.cache/travois"
    )
    assert move(tmp_path).stdout == ""
    home = locate_home(environment(tmp_path))
    assert home.xdg == XdgFolders(tmp_path / ".config/travois", state, tmp_path / ".cache/travois")
    assert read_all(home) == KEPT


def test_an_older_version_finds_everything_where_it_was(tmp_path: Path) -> None:
    state = fill(tmp_path)
    move(tmp_path)
    assert read_all(TravoisHome(state)) == KEPT
    (state / "settings.json").resolve().write_text("{}")  # as `travois config` writes through links
    assert locate_home(environment(tmp_path)).settings.read_text() == "{}"


def test_killed_before_any_change_it_is_completed_by_the_next_process(tmp_path: Path) -> None:
    for number in range(100):
        person = tmp_path / str(number)
        fill(person)
        if move(person, kill_at=number).returncode == 0:
            break
        assert move(person).returncode == 0
        assert read_all(locate_home(environment(person))) == KEPT
        assert not [*person.rglob(".linking-*"), *person.rglob("replaced")]
    assert number > 10


def test_processes_that_start_at_once_move_everything_once(tmp_path: Path) -> None:
    fill(tmp_path)
    command = [sys.executable, "-c", MOVER, "-1"]
    started = [
        subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    told = "".join(each.communicate()[0] for each in started)
    assert (told.count("moved from"), [each.returncode for each in started]) == (1, [0] * 4)
    assert read_all(locate_home(environment(tmp_path))) == KEPT


def test_what_stood_in_the_new_place_is_kept_and_not_used(tmp_path: Path) -> None:
    fill(tmp_path)
    planted = tmp_path / ".config/travois/settings.json"
    planted.parent.mkdir(parents=True)
    planted.write_text('{"hooks": {}}')
    aside = tmp_path / ".config/travois/replaced/settings.json.1"
    assert f"what was there is kept as {aside}" in move(tmp_path).stdout
    assert aside.read_text() == '{"hooks": {}}'
    assert read_all(locate_home(environment(tmp_path))) == KEPT


def test_a_link_to_a_collection_of_settings_still_leads_there(tmp_path: Path) -> None:
    state = tmp_path / ".local/state/travois"
    state.mkdir(parents=True)
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles/s.json").write_text("{}")
    (state / "settings.json").symlink_to("../../../dotfiles/s.json")
    home = locate_home(environment(tmp_path))
    assert home.settings.resolve() == tmp_path / "dotfiles/s.json"


def test_another_config_folder_later_starts_empty_and_moves_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    move(tmp_path)
    other = locate_home({**environment(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "other")})
    assert not other.settings.exists()
    assert read_all(locate_home(environment(tmp_path))) == KEPT


def test_what_cannot_be_moved_is_read_where_it_is(tmp_path: Path) -> None:
    state = fill(tmp_path)
    (tmp_path / ".config").write_text("a file where the folder would be")
    home = locate_home(environment(tmp_path))
    assert (home.is_together, home.config, home.cache) == (True, state, state)
    assert read_all(home) == KEPT
    assert str(tmp_path / ".config/travois") in home.folders


@pytest.mark.parametrize("name", ["settings.json", "skills"])
def test_a_copy_to_another_file_system_is_whole_before_it_counts(name: str, tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is not another file system")
    state, other = fill(tmp_path), shared / f"travois-test-{os.getpid()}-{name}"
    variables = {**environment(tmp_path), "XDG_CONFIG_HOME": str(other)}
    try:
        home = locate_home(variables)
        assert read_all(home) == KEPT
        assert (state / name).is_symlink()
        assert (state / "replaced" / f"{name}.1").exists()
    finally:
        subprocess.run(["rm", "-r", str(other)], check=True)


def test_it_is_killed_as_a_crash_would(tmp_path: Path) -> None:
    fill(tmp_path)
    assert move(tmp_path, kill_at=0).returncode == -signal.SIGKILL
