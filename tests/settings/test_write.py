"""What is chosen at the prompt is kept in the user's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from travois.core.errors import UserError
from travois.sessions.home import TravoisHome
from travois.settings.edit import save_user_setting


def test_a_choice_is_kept_and_all_else_stays_as_it_was(tmp_path: Path) -> None:
    home = TravoisHome(tmp_path)
    save_user_setting(home, "tui.theme", "dark")
    assert home.settings.read_text() == '{\n  "tui": {\n    "theme": "dark"\n  }\n}\n'
    home.settings.write_text(
        '\ufeff{"zeta": [1.5, "ä"], "tui": {"x": null}, "hooks": {"Stop": []}}'
    )
    save_user_setting(home, "tui.theme", "light")
    assert "".join(home.settings.read_text().split()) == (
        '{"zeta":[1.5,"ä"],"tui":{"x":null,"theme":"light"},"hooks":{"Stop":[]}}'
    )


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    home, real = TravoisHome(tmp_path), tmp_path / "dotfiles.json"
    real.write_text("{}")
    home.settings.symlink_to(real)
    save_user_setting(home, "tui.theme", "none")
    assert (home.settings.is_symlink(), '"none"' in real.read_text()) == (True, True)


@pytest.mark.parametrize("held", ["{broken", "[]", '{"tui": 3}', '{"a": 1, // mine\n"b": 2}'])
def test_a_file_that_cannot_be_understood_is_left_alone(tmp_path: Path, held: str) -> None:
    home = TravoisHome(tmp_path)
    home.settings.write_text(held)
    with pytest.raises(UserError):
        save_user_setting(home, "tui.theme", "dark")
    assert home.settings.read_text() == held
