"""Scripts, personas and faults as they are written: what they do, and how mistakes are told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.client import Client, Json, assistant, block, result, told, use, user
from travois.core.errors import UserError
from travois_lab.faults import parse_rules
from travois_lab.personas import INJECTION
from travois_lab.script import load, parse

TOOL: Json = {"name": "Read", "description": "R.", "input_schema": {"type": "object"}}


def say(lab: Client, *messages: Json, **fields: Any) -> str:
    lab.ask(list(messages), **fields)
    if lab.status != 200:
        return lab.error()
    return "".join(b.get("text", f"<{b['type']}>") for b in lab.body["content"])


def test_turns_are_said_in_order_once_each() -> None:
    lab = Client(["one", {"say": ["two", {"text": "!"}]}, {"say": "again", "repeat": True}])
    assert [say(lab, user(told("x"))) for _ in range(4)] == ["one", "two!", "again", "again"]


def test_a_script_that_has_run_dry_says_where() -> None:
    lab = Client(["one"])
    say(lab, user(told("x")))
    said = "lab: the script has no turn for request 2; unspent turns: 0 of 1; it ends with 'more?'"
    assert say(lab, user(told("more?"))) == said


CALLED = [user(told("open main.py")), assistant(use("t1")), user(result("t1", 1))]
CALLED[2]["content"][0]["content"] = "def f(): pass"
WHENS: list[tuple[Json, bool]] = [
    ({"tool_result": {"name": "Read", "regex": "def "}}, True),
    ({"tool_result": {"name": "Write"}}, False),
    ({"tool_result": "pass"}, True),
    ({"tool_result": {"is_error": True}}, False),
    ({"system": "kind"}, True),
    ({"system": {"absent": "kind"}}, False),
    ({"model": {"equals": "claude-opus-5-5"}}, True),
    ({"text": {"contains": "main.py"}}, True),
    ({"last_text": {"contains": "main.py"}}, False),
    ({"tool": "Read"}, True),
    ({"n": 1}, True),
    ({"n": 2}, False),
    ({"protocol": "anthropic"}, True),
    ({"system": "kind", "tool_result": "absent words"}, False),
]


@pytest.mark.parametrize(("when", "fits"), WHENS, ids=str)
def test_what_a_turn_waits_for(when: Json, fits: bool) -> None:
    lab = Client([{"when": when, "say": "yes"}, {"say": "no", "repeat": True}])
    said = say(lab, *CALLED, system="Be kind.", tools=[TOOL])
    assert said == ("yes" if fits else "no")


def test_a_turn_may_be_a_function_with_a_memory() -> None:
    def count(prompt: Any, state: Json) -> str:
        state["n"] = state.get("n", 0) + 1
        return f"{prompt.last_text} {state['n']}"

    lab = Client([count, {"program": count, "repeat": True}])
    assert [say(lab, user(told("x"))) for _ in range(3)] == ["x 1", "x 2", "x 3"]


def test_a_turn_may_be_an_error() -> None:
    lab = Client([{"error": {"status": 529, "message": "busy", "headers": {"retry-after": 7}}}])
    assert (say(lab, user(told("x"))), lab.status) == ("busy", 529)
    assert lab.headers["retry-after"] == "7"


def test_a_turn_may_stop_and_count_as_it_likes() -> None:
    turn = {"say": "cut", "stop": "max_tokens", "usage": {"output_tokens": 77}}
    lab = Client([turn])
    exchange = lab.ask([user(told("x"))])
    assert (lab.body["stop_reason"], exchange.usage.output) == ("max_tokens", 77)


BAD: list[tuple[object, str]] = [
    ({"say": "x"}, "script: a script is a list of turns"),
    ([{"sya": "x"}], "script: turn 1: unknown field 'sya'"),
    ([{}], "script: turn 1: says nothing"),
    ([{"say": [{"txt": "x"}]}], "script: turn 1.say[0]: unknown field 'txt'"),
    ([{"say": [{"text": "a", "thinking": "b"}]}], "script: turn 1.say[0]: one block has one of"),
    ([{"say": [{"tool_use": {"nam": "x"}}]}], "say[0].tool_use: unknown field 'nam'"),
    ([{"say": "x", "when": {"lst": "x"}}], "script: turn 1.when: unknown field 'lst'"),
    ([{"say": "x", "when": {"text": {"like": "x"}}}], "turn 1.when.text: unknown field 'like'"),
    ([{"say": "x", "when": {"text": {"regex": "("}}}], "turn 1.when.text.regex: not a regular"),
    ([{"say": "x", "chunks": {"by": "word"}}], "script: turn 1.chunks"),
    ([3], "script: turn 1: an object is needed: got int"),
]


@pytest.mark.parametrize(("turns", "said"), BAD, ids=[row[1] for row in BAD])
def test_a_bad_script_is_told_by_turn_and_field(turns: object, said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(turns)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("s.json", '[\n"a",\n oops]', "s.json: line 3"),
        ("s.yaml", "- say: x", "is YAML"),
        ("none.json", None, "cannot read the script"),
    ],
)
def test_a_bad_file_is_told_by_line(tmp_path, name: str, content: str | None, said: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError) as caught:
        load(str(path))
    assert said in str(caught.value)


BAD_FAULTS: list[tuple[Json, str]] = [
    ({"do": "explode"}, "faults[0].do: unknown fault 'explode'"),
    ({"do": {"stall": {"sec": 1}}}, "faults[0].do.stall: unknown field 'sec'"),
    ({"match": {"nth": 1}, "do": "crlf"}, "faults[0].match: unknown field 'nth'"),
    ({"match": {"after": {"lines": 1}}, "do": "crlf"}, "match.after: unknown field 'lines'"),
    ({"what": 1}, "faults[0]: unknown field 'what'"),
]


@pytest.mark.parametrize(("rule", "said"), BAD_FAULTS, ids=[row[1] for row in BAD_FAULTS])
def test_a_bad_fault_rule_is_told_by_field(rule: Json, said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_rules([rule])
    assert said in str(caught.value)


# --- personas -------------------------------------------------------------------------------------


def loop(lab: Client, model: str, turns: int) -> list[int]:
    """How many calls each reply made, with every call answered."""
    history, seen = [user(told("go"))], []
    for _ in range(turns):
        lab.ask(history, model=model, tools=[TOOL])
        uses = [b for b in lab.body["content"] if b["type"] == "tool_use"]
        seen.append(len(uses))
        history.append(assistant(*lab.body["content"]))
        history.append(user(*(result(u["id"], 3) for u in uses), *([] if uses else [told("go")])))
    return seen


def test_the_tool_loop_calls_as_often_as_its_name_says() -> None:
    assert loop(Client(), "lab-tool-loop:3", 5) == [1, 1, 1, 0, 1]


def test_the_parallel_persona_calls_all_at_once() -> None:
    assert loop(Client(), "lab-parallel:4", 3) == [4, 0, 4]


def test_the_echo_the_lazy_one_and_the_refuser() -> None:
    lab = Client()
    assert say(lab, user(told("hey")), model="lab-echo") == "hey"
    assert (say(lab, user(told("x")), model="lab-lazy"), lab.body["content"]) == ("", [])
    say(lab, user(told("x")), model="lab-refuser")
    assert lab.body["stop_reason"] == "refusal"


def test_the_summariser_returns_every_path_and_id_it_saw() -> None:
    said = say(
        Client(),
        user(told("fix src/a/b.py and see BUG-12, commit 1a2b3c4d")),
        model="lab-summarizer",
    )
    assert said == "<summary>\n- 1a2b3c4d\n- BUG-12\n- src/a/b.py\n</summary>"


def test_the_forgetful_one_knows_only_what_its_prompt_still_says() -> None:
    lab = Client()
    fact = user(told("The deploy port is 8123."))
    asked = user(told("Which port does deploy use?"))
    known = say(lab, fact, assistant(told("ok")), asked, model="lab-forgetful")
    unknown = say(lab, asked, model="lab-forgetful")
    assert (known, unknown) == ("The deploy port is 8123.", "I do not know.")


def test_the_adversary_plays_a_new_trick_each_time() -> None:
    lab = Client()
    history, seen = [], []
    for _ in range(5):
        history.append(user(told("go")))
        lab.ask(history, model="lab-adversary", tools=[TOOL])
        seen.append(lab.body["content"])
        history.append(assistant(told("ok")))
    kinds = [[(b["type"], b.get("name")) for b in content] for content in seen]
    assert kinds == [
        [("tool_use", "Read")],
        [("tool_use", "no_such_tool")],
        [("tool_use", "Read"), ("tool_use", "Read")],
        [("text", None)],
        [("text", None)],
    ]
    assert seen[2][0]["id"] == seen[2][1]["id"] and seen[4][0]["text"] == INJECTION


def test_a_bare_block_is_a_text_of_its_tokens() -> None:
    assert Client().ask([user(block(12))]).usage.prompt == 12
