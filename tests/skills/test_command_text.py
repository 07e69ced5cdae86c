"""Commands of the user's own, as text."""

from __future__ import annotations

import pytest

from travois.skills.command_text import (
    CommandPart,
    CustomCommand,
    fill_command,
    parse_command,
    parse_command_table,
)


def text(body: str, typed: str, **variables: str) -> str:
    parts = fill_command(parse_command("do", body, origin="do.md"), typed, variables)
    return "|".join(part.text for part in parts if part.text)


@pytest.mark.parametrize(
    ("body", "typed", "shown"),
    [
        ("Fix $ARGUMENTS now.", "a b", "Fix a b now."),
        ("Fix $1 in $2.", "'a b' c", "Fix a b in c."),
        ("Fix $0 in $1.", "a b", "Fix a in b."),
        ("Fix $ARGUMENTS[0] and $1.", "a b", "Fix a and b."),
        ("Fix $1 and $3.", "a", "Fix a and ."),
        ("It costs \\$1.", "", "It costs $1."),
        ("Fix it.", "soon", "Fix it.\n\nARGUMENTS: soon"),
        ("Fix it.", "", "Fix it."),
        ("Leave $HOME and ${OTHER} alone.", "", "Leave $HOME and ${OTHER} alone."),
        ("In ${CLAUDE_PROJECT_DIR}.", "", "In /p."),
        ("Say $1.", "it's", "Say it's."),
    ],
)
def test_what_was_typed_takes_its_places(body: str, typed: str, shown: str) -> None:
    assert text(body, typed, CLAUDE_PROJECT_DIR="/p") == shown


def test_arguments_may_have_names() -> None:
    body = "---\narguments: [issue, branch]\n---\nFix $issue on $branch, not $other."
    custom = parse_command("fix", body, origin="fix.md")
    assert custom.hint == "[issue] [branch]"
    assert fill_command(custom, "12 main", {}) == (CommandPart("Fix 12 on main, not $other."),)


def test_commands_and_files_are_parts_of_their_own() -> None:
    body = "Look:\n!`git diff $1`\nand @src/a.py\n```!\nls\n```\nmail me@example.org"
    assert fill_command(parse_command("look", body, origin=""), "HEAD", {}) == (
        CommandPart("Look:\n"),
        CommandPart("git diff HEAD", "command"),
        CommandPart("\nand "),
        CommandPart("src/a.py", "file"),
        CommandPart("\n"),
        CommandPart("ls\n", "command"),
        CommandPart("\nmail me@example.org"),
    )


def test_what_was_typed_runs_nothing_and_opens_nothing() -> None:
    parts = fill_command(parse_command("say", "Say $ARGUMENTS", origin=""), "!`rm x` @secret", {})
    assert parts == (CommandPart("Say !`rm x` @secret"),)


def test_a_file_says_what_it_is_for() -> None:
    head = "---\ndescription: Mends things\nargument-hint: <file>\n---\nMend $1.\n"
    assert parse_command("mend", head, origin="x") == CustomCommand(
        "mend", "Mend $1.", "Mends things", "<file>", origin="x"
    )
    assert parse_command("mend", "Mend it all.\n", origin="x").description == "Mend it all."


def test_tables_have_other_places() -> None:
    table = {"prompt": "Do {{args}} with !{git log} and @{a.md}", "description": "Does"}
    custom = parse_command_table("do", table, origin="do.toml")
    assert fill_command(custom, "it", {}) == (
        CommandPart("Do it with "),
        CommandPart("git log", "command"),
        CommandPart(" and "),
        CommandPart("a.md", "file"),
        CommandPart(""),
    )
