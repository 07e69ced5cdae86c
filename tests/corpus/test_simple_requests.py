"""Simple requests become calls with nothing but the standard library and the table in the wheel."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.corpus.asked import judged, requests
from tests.tools.test_git import Repo
from travois.local_model.request_spans import find_request_spans
from travois.local_model.router import (
    ARGUMENT_READERS,
    ExampleIndex,
    argument_reader,
    build_stored_examples,
    load_examples,
    load_stored_examples,
    route_request,
)
from travois.providers.json_schema import build_json_schema, find_schema_flaws
from travois.search.embedder import StaticEmbedder
from travois.tools.catalog import TOOLS

NAMES = frozenset(tool.name for tool in TOOLS)
SCHEMAS = {tool.name: json.loads(tool.schema or build_json_schema(tool.args)) for tool in TOOLS}
SETS = ("tuned", "seen", "held_out", "beyond")
TUNED, SEEN, HELD_OUT, BEYOND = map(requests, SETS)
BLIND = requests("blind")
"""Written by somebody who saw neither the examples nor the rules; nothing was changed for it."""
RATE, SEEN_RATE = 38, 18
"""How many are right at least, of 40 and of 20. Both were known when examples were written, so they
hold what there is and do not tell how well it does; nothing is held of the set that does."""
HERE = {
    tool.name: tool
    for tool in TOOLS
    if tool.name in ("Edit", "Glob", "Grep", "Read", "Write") or tool.name.startswith("Git")
}
HARMS = {"Bash", "Edit", "Write", "MultiEdit", "NotebookEdit", "KillShell"}


@pytest.fixture(scope="module")
def near() -> ExampleIndex:
    return ExampleIndex(StaticEmbedder())


def test_the_sets_are_of_the_size_that_the_figures_name() -> None:
    assert (len(TUNED), len(SEEN), len(HELD_OUT), len(BEYOND)) == (40, 20, 20, 24)
    assert (len(BLIND), sum(bool(one.calls) for one in BLIND)) == (85, 60)


def test_most_simple_requests_become_the_right_call(near: ExampleIndex) -> None:
    found = {one.text: route_request(one.text, examples=near, tools=NAMES) for one in TUNED}
    wrong = [
        (one.text, found[one.text]) for one in TUNED if judged(one, found[one.text]) != "right"
    ]
    assert len(TUNED) - len(wrong) >= RATE, wrong


def test_those_that_examples_have_come_to_mirror_stay_right(near: ExampleIndex) -> None:
    right = [judged(one, route_request(one.text, examples=near, tools=NAMES)) for one in SEEN]
    assert right.count("right") >= SEEN_RATE


def test_what_takes_more_than_a_call_becomes_none(near: ExampleIndex) -> None:
    made = {one.text: route_request(one.text, examples=near, tools=NAMES) for one in BEYOND}
    assert {text: call for text, call in made.items() if call and call.tool} == {}


def test_every_call_is_one_that_the_tool_takes(near: ExampleIndex) -> None:
    texts = [one.text for one in (*TUNED, *SEEN, *HELD_OUT, *BEYOND, *BLIND)]
    made = [route_request(text, examples=near, tools=NAMES) for text in texts]
    calls = [(call.tool, call.input) for call in made if call and call.tool]
    calls += [(one.tool, one.input) for one in load_examples() if one.tool]
    wrong = [(tool, args) for tool, args in calls if find_schema_flaws(args, SCHEMAS[tool])]
    assert (wrong, len(calls) > 250) == ([], True)


def test_examples_are_routed_to_themselves(near: ExampleIndex) -> None:
    wrong = []
    for one in load_examples()[::3]:
        made = route_request(one.text, examples=near, tools=NAMES)
        if one.tool and (made is None or (made.tool, made.input) != (one.tool, one.input)):
            wrong.append((one.text, made))
    assert wrong == []


def test_what_an_example_names_is_read_from_its_text_and_so_never_said_for_another() -> None:
    fixed = [
        (one.text, name)
        for one in load_examples()
        for name, value in one.input.items()
        if (one.tool, name) in ARGUMENT_READERS
        and argument_reader(one.tool, name)(one.text) != value
        if value not in ("**/*", 1, "HEAD")
    ]
    assert fixed == []


def test_what_is_kept_of_the_examples_is_what_they_say() -> None:
    assert load_stored_examples() == build_stored_examples(StaticEmbedder())


def test_a_tool_that_is_not_there_is_not_called(near: ExampleIndex) -> None:
    without = NAMES - {"GitStatus"}
    made = route_request("git status", examples=near, tools=without)
    assert made is None or made.tool != "GitStatus"


@pytest.mark.parametrize(
    ("text", "tool", "args"),
    [
        ("could you quickly search for greet in this folder", "Grep", {"pattern": "greet"}),
        ("pls grep Basket in tests", "Grep", {"pattern": "Basket", "path": "tests"}),
        ('search the whole repo for "in this folder"', "Grep", {"pattern": "in this folder"}),
        ("opne docs/setup.md", "Read", {"file_path": "docs/setup.md"}),
        ("let's have a peek at the readme", "Read", {"file_path": "README.md"}),
        ("find a file called invoice", "Glob", {"pattern": "**/*invoice*"}),
        ("list all the tests", "Glob", {"pattern": "**/*test*"}),
        ("show commit abc123", "GitShow", {"rev": "abc123"}),
        ("python --version", "Bash", {"command": "python --version"}),
        ("kick off make build", "Bash", {"command": "make build"}),
        (
            "make a file called notes.txt with hello in it",
            "Write",
            {"file_path": "notes.txt", "content": "hello"},
        ),
        (
            "pls remember we list all files in this folder",
            "Remember",
            {"text": "we list all files in this folder"},
        ),
    ],
)
def test_what_is_said_politely_and_otherwise_is_the_same_wish(
    near: ExampleIndex, text: str, tool: str, args: dict[str, str]
) -> None:
    made = route_request(text, examples=near, tools=NAMES)
    assert made is not None
    made.input.pop("output_mode", None)
    assert (made.tool, made.input) == (tool, args)


@pytest.mark.parametrize(
    "text",
    [
        *("run `rm -rf build`", 'execute "git reset --hard"', "run git push --force"),
        *("run `echo hi > notes.txt`", "please don't run `make`", "what does `make install` do?"),
        *("run `make` or `ninja`", "run it", "run the tests", "create notes.txt", "write to a.txt"),
        *(
            "replace foo in a.py",
            "change a.py",
            "create a.py with a function",
            "",
            "   ",
            "?",
            "`rm -rf /`",
            "rm -rf build",
            "git push --force",
            "find . -name x -delete",
            "make sense of a.py",
            "I want to run `make` tomorrow",
            "remove a.py",
        ),
    ],
)
def test_nothing_is_changed_on_a_guess(near: ExampleIndex, text: str) -> None:
    made = route_request(text, examples=near, tools=NAMES)
    assert made is None or made.tool not in HARMS


def test_a_long_request_is_not_a_simple_one(near: ExampleIndex) -> None:
    assert route_request("git status " * 20, examples=near, tools=NAMES) is None


def test_the_calls_work_in_a_real_repository(near: ExampleIndex, tmp_path: Path) -> None:
    repo = shop(tmp_path)
    made = [route_request(one.text, examples=near, tools=NAMES) for one in TUNED]
    calls = [call for call in made if call and call.tool in HERE and call.input.get("rev") is None]
    for call in calls:
        assert repo.say(HERE[call.tool], **call.input)
    assert len(calls) > 25
    assert (repo.folder / "README.md").read_text() == "# Store\n"
    assert (repo.folder / "todo.txt").read_text() == "buy milk"
    assert "def total_price(cart)" in (repo.folder / "src/shop/cart.py").read_text()


def shop(tmp_path: Path) -> Repo:
    repo = Repo(tmp_path)
    code = "import decimal\n\nclass Basket: ...\n# TODO discount\n" + "x = 1\n" * 20
    for name in (
        "src/shop/cart.py",
        "src/shop/prices.py",
        "tests/test_cart.py",
        "config/settings.toml",
    ):
        repo.write(name, code)
    for name in ("pyproject.toml", "docs/setup.md", "Makefile"):
        repo.write(name, "text\n")
    repo.write("README.md", "# Shop\n")
    for subject in ("Begin", "Go on with rounding", "End"):
        repo.write("log.txt", subject)
        repo.git("add", "-A")
        repo.git("commit", "-qm", subject)
    repo.write("src/shop/cart.py", code + "def total_price(basket): ...\n")
    return repo


def test_no_request_is_an_example_of_other_things() -> None:
    def bare(text: str) -> str:
        for span in find_request_spans(text):
            text = text.replace(span.text, span.kind)
        return " ".join(re.findall(r"\w+", text.casefold()))

    sets = [one.text for name in SETS for one in requests(name)]
    assert {bare(one.text) for one in load_examples()} & set(map(bare, sets)) == set()
    assert len(set(map(bare, sets))) == len(sets)
