"""Without a key: requests that the workspace itself answers, and those that it must leave alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.corpus.asked import FOLDER, requests
from tests.corpus.shelf import build_shelf
from travois.local_model.model import HELP_TEXT, SHORT_HELP_TEXT, SmolLmModel, parse_local_request
from travois.local_model.router import ExampleIndex, RoutedCall
from travois.local_model.workspace_requests import (
    find_definition_lines,
    find_named_path,
    resolve_named_files,
    route_in_workspace,
)
from travois.search.embedder import StaticEmbedder
from travois.tools.catalog import TOOLS

TOOL_NAMES = frozenset(tool.name for tool in TOOLS)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_shelf(tmp_path_factory.mktemp("shelf")))


def routed(text: str, folder: str) -> tuple[str, dict[str, object]] | None:
    call = route_in_workspace(text, folder=folder, tools=TOOL_NAMES)
    return None if call is None else (call.tool, call.input)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("please list the files", "ls -p"),
        ("what's in docs?", "ls -p docs"),
        ("ls src", "ls -p src"),
        ("can you run the tests please", "python3 -m pytest"),
        ("are the tests green", "python3 -m pytest"),
        ("run the linter", "make lint"),
        ("run test_loans.py", "python3 -m pytest tests/test_loans.py"),
        ("rename loans.py to lending.py", "mv src/shelf/loans.py src/shelf/lending.py"),
        ("move scratch.txt to docs", "mv scratch.txt docs"),
        ("which branch are we on?", "git branch --show-current"),
        ("count the lines in cli.py", "wc -l src/shelf/cli.py"),
        ("commit my changes with message 'wip: dates'", "git add -A && git commit -m 'wip: dates'"),
    ],
)
def test_a_command_is_found_by_what_lies_there(text: str, command: str, shelf: str) -> None:
    assert routed(text, shelf) == ("Bash", {"command": command})


def test_files_remarks_and_lines_are_found_and_added(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text(
        '{"scripts": {"start": "node .", "test": "node --test"}}'
    )
    (tmp_path / ".gitignore").write_text(".env\n")
    here = str(tmp_path)
    assert routed("how many js files are there?", here) == (
        "Glob",
        {"pattern": "**/*.{js,jsx,mjs,cjs}"},
    )
    assert routed("show me all the TODOs", here) == (
        "Grep",
        {"pattern": r"\bTODO\b", "output_mode": "content"},
    )
    assert routed("add dist to .gitignore", here) == (
        "Edit",
        {"file_path": ".gitignore", "old_string": ".env", "new_string": ".env\ndist"},
    )
    assert routed("start the server", here) == ("Bash", {"command": "npm run start"})
    for text, said in (
        ("how do I run the tests?", "`npm test`. Type `!npm test` to run it."),
        ("add .env to .gitignore", ".gitignore has this line already."),
    ):
        call = route_in_workspace(text, folder=here, tools=TOOL_NAMES)
        assert call is not None and (call.tool, call.say) == ("", said)


@pytest.mark.parametrize(
    "text",
    [
        *("rename nothing.py to other.py", "move scratch.txt to README.md", "rename it to that"),
        *("run rm -rf build and show me the output", "what is the output of sudo reboot"),
        *("replace absent with here in README.md", "create an empty file README.md"),
        *(
            "run the tests and fix them",
            "where is the config file?",
            "build me an app",
            "what's up",
        ),
        *("run src/shelf/cli.py", "list the bugs", "show me how to test", "delete scratch.txt"),
    ],
)
def test_what_is_not_there_or_not_named_is_left_alone(text: str, shelf: str) -> None:
    assert routed(text, shelf) is None


def test_what_takes_more_than_a_step_stays_so(shelf: str) -> None:
    beyond = [one.text for one in (*requests("beyond"), *requests("blind")) if not one.calls]
    assert {text: call for text in beyond if (call := routed(text, shelf))} == {}
    assert len(beyond) > 40


def test_code_is_shown_from_its_first_line_to_its_last(shelf: str) -> None:
    assert find_definition_lines("is_overdue", shelf) == ("src/shelf/loans.py", 16, 2)
    assert find_definition_lines("Loan", shelf) == ("src/shelf/loans.py", 9, 9)
    assert find_definition_lines("MAX_LOANS", shelf) == ("src/shelf/loans.py", 5, 1)
    assert find_definition_lines("nowhere", shelf) is None
    read = {"file_path": "src/shelf/loans.py", "offset": 16, "limit": 2}
    assert routed("show me the is_overdue function", shelf) == ("Read", read)


def test_a_file_is_meant_by_its_name_where_only_one_has_it(shelf: str, tmp_path: Path) -> None:
    assert find_named_path("catalog.py", shelf) == "src/shelf/catalog.py"
    assert find_named_path("shelf/catalog.py", shelf) == "src/shelf/catalog.py"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for folder in "ab":
        (tmp_path / folder / "x.py").touch()
    assert find_named_path("x.py", str(tmp_path)) == "x.py"
    call = resolve_named_files(RoutedCall("GitDiff", {"paths": ["loans.py"]}, 1.0), shelf)
    assert call.input == {"paths": ["src/shelf/loans.py"]}
    new = RoutedCall("Write", {"file_path": "catalog.py", "content": ""}, 1.0)
    assert resolve_named_files(new, shelf) == new, "a new file lies where it is named"


@pytest.mark.anyio
async def test_help_is_given_whole_once_and_then_in_a_line(shelf: str) -> None:
    model = SmolLmModel(lambda: ExampleIndex(StaticEmbedder()), None, folder=shelf)
    asked = {"role": "user", "content": "Please upgrade all dependencies and fix what breaks."}

    async def answer(*before: dict[str, str]) -> object:
        body = json.dumps({"messages": [*before, asked], "tools": []}).encode()
        return getattr(await model.answer(parse_local_request(body)), "text", None)

    assert await answer() == HELP_TEXT
    helped = {"role": "assistant", "content": HELP_TEXT}
    assert await answer(asked, helped) == SHORT_HELP_TEXT


def test_every_typed_request_says_what_it_wants_to_see() -> None:
    lines = [json.loads(line) for line in (FOLDER / "typed.jsonl").read_text().splitlines()]
    assert len(lines) == len({one["text"] for one in lines}) == 40
    assert all(one.get("shows") or one.get("files") for one in lines)
