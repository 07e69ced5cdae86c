"""A permission question in the words of a person."""

from __future__ import annotations

import msgspec
import pytest

from travois.ports.world import PermissionQuestion
from travois.tui.permission_text import MODE_REASON, AskedCall


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


def test_nothing_is_said_twice_and_paths_are_relative() -> None:
    effects = (
        "changes build",
        "runs make (effects unknown)",
        "a rewind does not restore /shop/.cache, /etc/x",
    )
    question = PermissionQuestion(
        "c", "Bash", "{}", "Run", "runs make all: make is not a known read-only command",
        effects=effects,
    )  # fmt: skip
    asked = AskedCall(question, "/shop")
    assert asked.effects == [*effects[:2], "a rewind does not restore .cache, /etc/x"]
    args = '{"command":"make all"}'
    asked = AskedCall(msgspec.structs.replace(question, args=args), "/shop")
    assert asked.reason == "make is not a known read-only command"
    assert asked.effects == ["changes build", "a rewind does not restore .cache, /etc/x"]
    question = msgspec.structs.replace(question, because="writes /shop/build")
    assert AskedCall(question, "/shop").reason == MODE_REASON
