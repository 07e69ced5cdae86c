from __future__ import annotations

from pathlib import Path

import pytest

from travois.core.errors import UserError
from travois.sessions.home import TravoisHome, locate_home, prepare_home_or_temporary


def test_the_environment_says_where_home_is() -> None:
    ways = {
        ("/here",): {"TRAVOIS_HOME": "/here", "XDG_STATE_HOME": "/state", "HOME": "/me"},
        ("/state/travois", "/c/travois", "/me/.cache/travois"): {
            "XDG_STATE_HOME": "/state",
            "XDG_CONFIG_HOME": "/c",
            "HOME": "/me",
        },
        ("/me/.local/state/travois", "/me/.config/travois", "/me/.cache/travois"): {
            "XDG_STATE_HOME": "relative",
            "HOME": "/me",
        },
        ("/state/travois",): {"XDG_STATE_HOME": "/state"},
    }
    assert {locate_home(environ).folders: environ for environ in ways.values()} == ways


def test_another_process_finds_the_same_home() -> None:
    for environ in ({"TRAVOIS_HOME": "/here"}, {"HOME": "/me", "XDG_CACHE_HOME": "/c"}):
        home = locate_home(environ)
        assert locate_home({**environ, "HOME": "/other", **home.environment}) == home


def test_all_folders_are_made_before_any_command_could(tmp_path: Path) -> None:
    home = locate_home({"HOME": str(tmp_path)}).prepare()
    modes = {Path(folder).stat().st_mode & 0o777 for folder in home.folders}
    assert (len(home.folders), modes) == (3, {0o700})


def test_no_home_at_all_is_a_fault_that_says_what_to_set() -> None:
    with pytest.raises(UserError, match="Set TRAVOIS_HOME"):
        locate_home({})


def test_home_is_made_for_its_owner_only(tmp_path: Path) -> None:
    home = TravoisHome(tmp_path / "a" / "home").prepare()
    assert home.path.stat().st_mode & 0o777 == 0o700
    assert home.prepare().session_folder("p", "s") == home.path / "sessions" / "p" / "s"


def test_a_home_that_cannot_be_made_is_a_fault_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Travois cannot store its files"):
        TravoisHome(tmp_path / "file" / "home").prepare()


def test_where_the_state_cannot_be_written_the_settings_stay_ours(tmp_path: Path) -> None:
    """What is not ours is not hidden from commands, which could then plant settings."""
    (tmp_path / ".local").write_text("a file where the folder would be")
    home, kept = prepare_home_or_temporary({"HOME": str(tmp_path)})
    assert kept.passing
    assert (kept.config, kept.settings) == (home.config, home.settings)
    assert str(tmp_path / ".config/travois") in kept.folders
    assert kept.config.is_dir()
