"""The caching rows of the specification's edge-case tables, each with its numbers."""

from __future__ import annotations

import pytest

from tests.lab.client import CC, HOUR, Client, Json, assistant, block, counts, result, use, user

COLD = (50, 0, 6000, 0)
WARM = (50, 6000, 0, 0)


def system(tokens: int, cc: Json | None = CC) -> list[Json]:
    return [block(tokens, cc, "sys")]


def test_c1_c2_a_marked_system_prompt_is_written_once_and_read_by_another_question() -> None:
    lab = Client()
    first = lab.ask([user(block(50))], system=system(6000))
    second = lab.ask([user(block(71, say="else"))], system=system(6000))
    assert counts(first.usage) == COLD and first.cost == pytest.approx(0.032200)
    assert counts(second.usage) == (71, 6000, 0, 0) and second.cost == pytest.approx(0.003484)


def test_c3_c5_reading_refreshes_and_the_three_hundredth_second_is_too_late() -> None:
    lab = Client()
    seen = []
    for wait in (0, 299, 299, 300):
        lab.world.clock.advance(wait)
        exchange = lab.ask([user(block(50))], system=system(6000))
        seen.append((counts(exchange.usage), round(exchange.cost, 6)))
    assert seen == [(COLD, 0.0322), (WARM, 0.0034), (WARM, 0.0034), (COLD, 0.0322)]


@pytest.mark.parametrize(
    ("model", "tokens", "expected", "cost"),
    [
        ("claude-opus-5-5", 511, (561, 0, 0, 0), 0.004244),
        ("claude-opus-5-5", 512, (50, 0, 512, 0), 0.004760),
        ("claude-haiku-4-5", 4095, (4145, 0, 0, 0), 0.004645),
    ],
    ids=["C6", "C7", "C8"],
)
def test_a_prefix_below_the_model_s_minimum_is_silently_not_cached(
    model: str, tokens: int, expected: tuple[int, ...], cost: float
) -> None:
    exchange = Client().ask([user(block(50))], system=system(tokens), model=model)
    assert (counts(exchange.usage), round(exchange.cost, 6)) == (expected, cost)


def test_c9_c11_a_growing_chat_with_its_marker_on_the_newest_block() -> None:
    lab = Client()
    turns = [
        [block(2101, say="a")],
        [block(132, say="b"), block(100, say="c")],
        [block(142, say="d"), block(200, say="e")],
    ]
    history: list[Json] = []
    seen = []
    for said in turns:
        *middle, last = said
        history += [assistant(part) for part in middle]
        exchange = lab.ask([*history, user({**last, "cache_control": CC})])
        history.append(user(last))
        seen.append((counts(exchange.usage), round(exchange.cost, 6)))
    assert seen == [
        ((0, 0, 2101, 0), 0.012505),
        ((0, 2101, 232, 0), 0.003580),
        ((0, 2333, 342, 0), 0.004177),
    ]


def blocks(count: int, *markers: int) -> list[Json]:
    row = [block(1000, say="b1")] + [block(11, say=f"b{i}") for i in range(2, count + 1)]
    for marker in markers:
        row[marker - 1] = {**row[marker - 1], "cache_control": CC}
    return [user(*row)]


@pytest.mark.parametrize(
    ("count", "markers", "expected"),
    [
        (35, (35,), (0, 0, 1374, 0)),
        (35, (15, 35), (0, 1154, 220, 0)),
        (34, (34,), (0, 1154, 209, 0)),
    ],
    ids=["W3", "W4", "W5"],
)
def test_a_marker_looks_back_twenty_positions(
    count: int, markers: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    lab = Client()
    first = lab.ask(blocks(10, 10))
    second = lab.ask(blocks(15, 15))
    assert (counts(first.usage), counts(second.usage)) == ((0, 0, 1099, 0), (0, 1099, 55, 0))
    assert counts(lab.ask(blocks(count, *markers)).usage) == expected


def test_w6_a_run_of_calls_and_a_run_of_results_are_one_position_each() -> None:
    lab = Client()
    asked = user(block(1000, CC))
    lab.ask([asked])
    calls = [use(f"t{i}", "Read", path="a.py") for i in range(25)]
    results = [result(f"t{i}", 18) for i in range(25)]
    results[-1]["cache_control"] = CC
    exchange = lab.ask([asked, assistant(*calls), user(*results)])
    assert counts(exchange.usage) == (0, 1000, 575, 0)


def test_m1_m2_an_hour_s_entry_outlives_a_five_minute_one() -> None:
    lab = Client()
    body = [user(block(1000, CC))]
    first = lab.ask(body, system=system(4000, HOUR))
    lab.world.clock.advance(1000)
    second = lab.ask(body, system=system(4000, HOUR))
    assert (counts(first.usage), round(first.cost, 6)) == ((0, 0, 1000, 4000), 0.039)
    assert (counts(second.usage), round(second.cost, 6)) == ((0, 4000, 1000, 0), 0.0078)


def test_m3_a_five_minute_marker_may_not_stand_before_an_hour_s() -> None:
    lab = Client()
    lab.ask([user(block(1000, HOUR))], system=system(4000, CC))
    assert lab.status == 400 and "must not come after a ttl='5m'" in lab.error()


@pytest.mark.parametrize(("markers", "automatic"), [(5, None), (4, CC)], ids=["M4", "M5"])
def test_more_than_four_markers_are_refused(markers: int, automatic: Json | None) -> None:
    lab = Client()
    row = [block(600, CC, f"b{i}") for i in range(markers)]
    lab.ask([user(*row, block(9))], **({"cache_control": automatic} if automatic else {}))
    said = "A maximum of 4 blocks with cache_control may be provided. Found 5."
    assert (lab.status, lab.error()) == (400, said)


def test_m6_the_automatic_marker_adds_nothing_to_an_equal_one() -> None:
    exchange = Client().ask([user(block(600, CC))], cache_control=CC)
    assert counts(exchange.usage) == (0, 0, 600, 0)


def test_m7_the_automatic_marker_may_not_contradict_an_explicit_one() -> None:
    lab = Client()
    lab.ask([user(block(600, HOUR))], cache_control=CC)
    assert lab.status == 400 and "differs from the automatic" in lab.error()


def tool(name: str, tokens: int, cc: Json | None = None) -> Json:
    """A tool of so many tokens: five of them are its schema, one its name."""
    description = f"{{{{tok:{tokens - 6}}}}}"
    made = {"name": name, "description": description, "input_schema": {"type": "object"}}
    return {**made, "cache_control": cc} if cc else made


TOOLS = [tool("Aaaa", 1000), tool("Bbbb", 512, CC)]
BASE: Json = {
    "tools": TOOLS,
    "system": [block(3000, CC, "sys")],
    "messages": [user(block(1000, CC, "hi"))],
}
SWAPPED = [TOOLS[1] | {"cache_control": None}, TOOLS[0] | {"cache_control": CC}]
IMAGE: Json = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
}
PICTURED = [user(block(1000, CC, "hi"), IMAGE, block(5, say="look"))]


@pytest.mark.parametrize(
    ("change", "expected", "cost"),
    [
        ({}, (0, 5512, 0, 0), 0.003102),
        ({"tools": SWAPPED}, (0, 0, 5512, 0), 0.029560),
        ({"tool_choice": {"type": "none"}}, (0, 4512, 1000, 0), 0.007902),
        ({"output_config": {"effort": "low"}}, (0, 4512, 1000, 0), 0.007902),
        ({"system": [block(3001, CC, "other")]}, (0, 1512, 4001, 0), None),
        ({"speed": "fast"}, (0, 1512, 4000, 0), None),
        ({"model": "claude-opus-5"}, (0, 0, 5512, 0), None),
        ({"messages": PICTURED}, (1505, 4512, 1000, 0), None),
        ({"headers": {"anthropic_workspace_id": "other"}}, (0, 0, 5512, 0), None),
        ({"output_config": {"effort": "medium"}}, (0, 5512, 0, 0), None),
        ({"thinking": {"type": "adaptive"}}, (0, 5512, 0, 0), None),
    ],
    ids=[
        "I0",
        "I1",
        "I2",
        "I3",
        "I4",
        "I5",
        "I6",
        "I7",
        "I8",
        "default effort",
        "default thinking",
    ],
)
def test_what_a_change_takes_from_the_cache(
    change: Json, expected: tuple[int, ...], cost: float | None
) -> None:
    lab = Client()
    assert counts(lab.ask(**BASE).usage) == (0, 0, 5512, 0)
    fast = {"anthropic_beta": "fast-mode-2026-02-01"} if "speed" in change else {}
    exchange = lab.ask(**{"headers": fast, **BASE, **change})
    assert counts(exchange.usage) == expected
    if cost is not None:
        assert round(exchange.cost, 6) == cost


def test_p1_p3_an_entry_can_be_read_once_its_writer_has_begun_to_answer() -> None:
    lab = Client(first_byte=2.0)
    seen = []
    for wait in (0, 1, 1.5):
        lab.world.clock.advance(wait)
        seen.append(counts(lab.ask([user(block(50))], system=system(6000)).usage))
    assert seen == [COLD, COLD, WARM]


def test_p4_p5_a_request_for_no_tokens_warms_the_cache() -> None:
    lab = Client()
    first = lab.ask([user(block(8))], system=system(6000), max_tokens=0)
    assert (lab.body["content"], lab.body["stop_reason"]) == ([], "max_tokens")
    assert (counts(first.usage), first.usage.output) == ((8, 0, 6000, 0), 0)
    assert first.cost == pytest.approx(0.030032)
    second = lab.ask([user(block(50))], system=system(6000))
    assert (counts(second.usage), round(second.cost, 6)) == (WARM, 0.0034)


def eight_k(blanked: int) -> list[Json]:
    history = [user(block(83))]
    for i in range(6):
        use_ = use(f"t{i}", "Read", path=f"abc{i}.py")
        said = {"content": "[cleared]"} if i < blanked else {}
        history += [assistant(use_), user(result(f"t{i}", 8000) | said)]
    history[-1]["content"][0]["cache_control"] = CC
    return history


def test_x1_x2_blanking_old_results_rewrites_everything_after_them() -> None:
    lab = Client()
    first = lab.ask(eight_k(0), system=system(6000))
    second = lab.ask(eight_k(3), system=system(6000))
    assert (counts(first.usage), round(first.cost, 6)) == ((0, 0, 54119, 0), 0.272595)
    assert (counts(second.usage), round(second.cost, 6)) == ((0, 6000, 24128, 0), 0.12384)


def test_x3_a_prompt_one_token_too_long_is_refused_with_both_numbers() -> None:
    lab = Client()
    lab.ask([user(block(200_001))], model="claude-haiku-4-5")
    said = "prompt is too long: 200001 tokens > 200000 maximum"
    assert (lab.status, lab.error()) == (400, said)


# --- what counts as the same prefix ---------------------------------------------------------------

ASKED = user({"type": "text", "text": "look {{tok:2000}}"})
CALLED = assistant(use("t1", "Aaaa", path="a", limit=1))
SAID = {"type": "tool_result", "tool_use_id": "t1", "content": "x = 1 {{tok:900}}"}
LATE = {**tool("Late", 50), "defer_loading": True}


def equality(**change: Json) -> Json:
    """A warm request with one part of it changed."""
    parts: Json = {"asked": ASKED, "called": CALLED, "result": SAID, "tools": TOOLS, **change}
    last = {**parts["result"], "cache_control": CC}
    return {"tools": parts["tools"], "messages": [parts["asked"], parts["called"], user(last)]}


SAME_PREFIX = {
    "string for a block": {"asked": {"role": "user", "content": "look {{tok:2000}}"}},
    "blocks for a string": {
        "result": {**SAID, "content": [{"type": "text", "text": SAID["content"]}]}
    },
    "unreferenced deferred tool": {"tools": [*TOOLS, LATE]},
    "is_error written out": {"result": {**SAID, "is_error": False}},
}
OTHER_PREFIX = {
    "whitespace": {"asked": user({"type": "text", "text": "look {{tok:2000}} "})},
    "key order": {"called": assistant(use("t1", "Aaaa", limit=1, path="a"))},
    "error": {"result": {**SAID, "is_error": True}},
    "tools reordered": {"tools": SWAPPED},
}


@pytest.mark.parametrize("change", SAME_PREFIX.values(), ids=SAME_PREFIX)
def test_what_the_cache_takes_for_the_same(change: Json) -> None:
    lab = Client()
    whole = lab.ask(**equality()).usage.write
    assert counts(lab.ask(**equality(**change)).usage) == (0, whole, 0, 0)


@pytest.mark.parametrize("change", OTHER_PREFIX.values(), ids=OTHER_PREFIX)
def test_what_the_cache_takes_for_another(change: Json) -> None:
    lab = Client()
    whole = lab.ask(**equality()).usage.write
    assert lab.status == 200 and lab.ask(**equality(**change)).usage.read < whole
