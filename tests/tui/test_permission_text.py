"""A permission question in the words of a person."""

from __future__ import annotations

import pytest

from travois.ports.world import PermissionQuestion
from travois.tui.permission_text import AskedCall


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (("Bash(make:*)",), "`make`"),
        (("Bash(rm a)", "Bash(make all)"), "exactly `rm a` and `make all`"),
        (("Bash(rm a)", "Bash(rm b)", "Bash(rm c)"), "exactly `rm a`, `rm b` and `rm c`"),
        (("Bash(rm b)", "Bash(git add:*)"), "`git add` and exactly `rm b`"),
        (("Bash(rm a)", "Bash(rm b)", "Bash(make:*)"), "`make`, exactly `rm a` and `rm b`"),
        (("Bash(git add:*)", "Bash(rm b)"), "`git add` and exactly `rm b`"),
    ],
)
def test_several_rules_read_as_one_phrase(rules: tuple[str, ...], words: str) -> None:
    question = PermissionQuestion("c", "Bash", "{}", "Run", "asks", always=rules)
    assert AskedCall(question, "/shop").shorten_rules() == words


def test_a_reason_names_files_relative_to_the_folder() -> None:
    question = PermissionQuestion("c", "Bash", "{}", "Run", "writes /shop/build; writes /etc/x")
    assert AskedCall(question, "/shop").reason == "writes build; writes /etc/x"
