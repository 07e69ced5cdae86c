"""The embedded default: one step at a time, from real requests of the harness."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing

import anyio
import pytest

from travois.core.content import Call, Text
from travois.core.facts import AnyFact, Assistant, Entry, Epoch, Result, User
from travois.core.view import project_view
from travois.engine.tool_definitions import build_tool_specs
from travois.local_model.grammar import GrammarRules
from travois.local_model.model import (
    HELP_TEXT,
    MAX_QUOTED_LINES,
    UNCHECKED_NOTE,
    SmolLm,
    SmolLmModel,
    parse_local_request,
    quote_results,
)
from travois.local_model.router import Example, ExampleIndex
from travois.providers.catalog import resolve_model
from travois.providers.encoder import RequestEncoder
from travois.providers.replies import ApiError, Grew, Reply
from travois.providers.request import Request
from travois.search.embedder import StaticEmbedder
from travois.tools.catalog import TOOLS

CARD = resolve_model("local/smollm2", {})
HEAD = Epoch(CARD, "You are a coding agent.", build_tool_specs(TOOLS, toolset="local"))
NOTE = User((Text("<environment>\nFolder: /w\n</environment>"),), origin="note")


class Scripted(SmolLm):
    """Says what it is told to, or fails."""

    def __init__(self, *says: str | ApiError) -> None:
        self._says = list(says)
        self.shown: list[tuple[Sequence[Example], GrammarRules]] = []

    async def choose_call(self, text: str, like: Sequence[Example], rules: GrammarRules) -> str:
        self.shown.append((like, rules))
        return self._next()

    async def answer_briefly(self, text: str) -> str:
        return self._next()

    def _next(self) -> str:
        said = self._says.pop(0)
        if isinstance(said, ApiError):
            raise said
        return said


def request(*facts: AnyFact) -> Request:
    entries = [Entry(n, 0.0, fact) for n, fact in enumerate((HEAD, *facts), 1)]
    return RequestEncoder(lambda blob: b"").build_request(project_view(entries))


def human(text: str) -> tuple[AnyFact, ...]:
    return NOTE, User((Text(text),))


def reply(*facts: AnyFact, mind: SmolLm | None = None) -> Reply:
    model = SmolLmModel(lambda: ExampleIndex(StaticEmbedder()), mind)

    async def main() -> Reply:
        async with model.stream(request(*facts)) as stream:
            *deltas, last = [event async for event in stream]
        grown = "".join(d.text for d in deltas if isinstance(d, Grew))
        assert isinstance(last, Reply)
        (block,) = last.content
        assert grown == (block.text if isinstance(block, Text) else getattr(block, "args", ""))
        return last

    return anyio.run(main)


def test_a_simple_request_becomes_a_call_without_any_model() -> None:
    said = reply(*human("show me the git status"))
    assert (said.content, said.stop) == ((Call("call", "GitStatus", "{}"),), "calls")
    assert said.usage.estimated and said.usage.prompt > 2_000
    said = reply(*human("read the file src/app.py"))
    assert said.content == (Call("call", "Read", '{"file_path":"src/app.py"}'),)


def test_what_is_not_one_step_is_answered_with_what_can_be_done() -> None:
    said = reply(*human("refactor the whole billing system into microservices"))
    assert (said.content, said.stop) == ((Text(HELP_TEXT),), "end")
    assert "export ANTHROPIC_API_KEY=" in HELP_TEXT and "Ollama" in HELP_TEXT


def test_what_comes_of_a_call_is_quoted_and_never_summarised() -> None:
    call = Call("c1", "Grep", '{"pattern":"x"}')
    done = Assistant((call,), "calls"), Result("c1", (Text("src/a.py\nsrc/b.py"),))
    said = reply(*human("grep x"), *done, NOTE)
    assert said.content == (Text("Grep:\n\n    src/a.py\n    src/b.py"),)
    failed = Assistant((call,), "calls"), Result("c1", (Text("no such folder"),), error=True)
    assert reply(*human("grep x"), *failed).content == (Text("Grep:\n\n    Error: no such folder"),)


def test_what_is_said_after_a_result_comes_before_it() -> None:
    call = Call("c1", "Read", '{"file_path":"a"}')
    done = Assistant((call,), "calls"), Result("c1", (Text("x"),))
    said = reply(*human("read a"), *done, User((Text("git status"),)))
    assert said.content == (Call("call", "GitStatus", "{}"),)


def test_a_long_result_is_cut_where_it_says() -> None:
    text = "\n".join(f"line {n}" for n in range(100))
    *shown, last = quote_results((("Read", text),)).splitlines()
    assert shown == ["Read:", "", *(f"    line {n}" for n in range(MAX_QUOTED_LINES))]
    assert last == f"    (… {100 - MAX_QUOTED_LINES} more lines: /output shows all)"
    assert quote_results((("Bash", "y" * 5_000),)).endswith("(… 1 more lines: /output shows all)")


def test_the_body_of_a_request_tells_what_is_asked() -> None:
    found = parse_local_request(request(*human("  hello there ")).body)
    assert (found.text, found.results) == ("hello there", ())
    schemas = {spec.name: json.loads(spec.schema) for spec in HEAD.tools}
    assert found.tools == schemas
    assert parse_local_request(b'{"messages":[]}').text == ""


UNSURE = "please read the file readme for me"
"""Nothing in it looks like a path, so rules copy none."""
EXAMPLES = (Example("please read the file lib/x.py for me", "Read", {"file_path": "lib/x.py"}),)


def thought(*says: str) -> tuple[Text | Call, Scripted]:
    mind = Scripted(*says)

    async def main() -> Text | Call:
        guided = SmolLmModel(lambda: ExampleIndex(StaticEmbedder(), EXAMPLES), mind)
        return await guided.answer(parse_local_request(request(*human(UNSURE)).body))

    return anyio.run(main), mind


def test_where_rules_are_not_sure_the_small_model_chooses_among_calls_that_are_near() -> None:
    made, mind = thought('Read {"file_path":"readme"}')
    assert made == Call("call", "Read", '{"file_path":"readme"}')
    ((like, rules),) = mind.shown
    assert tuple(like) == EXAMPLES
    assert [row[0] for row in rules["root"]] == ["Read "]
    told = {part for rows in rules.values() for row in rows for part in row}
    assert '"file_path":' in told and '"limit":' not in told


@pytest.mark.parametrize("cut", ['Read {"file_path":"a', "", "Read"])
def test_a_call_that_was_cut_off_is_none(cut: str) -> None:
    assert thought(cut)[0] == Text(HELP_TEXT)


def test_a_question_that_is_like_no_call_gets_a_few_words_that_say_whose_they_are() -> None:
    said = reply(*human("what is the capital of France?"), mind=Scripted("Paris."))
    assert said.content == (Text(f"{UNCHECKED_NOTE}Paris."),)


def test_where_the_small_model_fails_the_answer_says_so() -> None:
    broken = Scripted(ApiError("missing", "it cannot be run here"))
    said = reply(*human("what is the capital of France?"), mind=broken)
    assert said.content == (Text(f"{HELP_TEXT}\n(SmolLM2 failed: it cannot be run here)"),)


def test_leaving_early_leaves_nothing_open() -> None:
    async def main() -> None:
        model = SmolLmModel(lambda: ExampleIndex(StaticEmbedder()), None)
        async with model.stream(request(*human("git status"))) as stream, aclosing(stream):
            await anext(stream)

    anyio.run(main)
