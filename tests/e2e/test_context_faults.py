"""Whatever a provider does to a long session, the next message is answered in three calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from travois import lab
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.context.compaction.compact import (
    compact_conversation,
    describe_compaction,
    prepare_compaction,
)
from travois.context.compaction.summary_prompt import PROMPT_FOLDER
from travois.core.content import Media, Text, extract_text
from travois.core.facts import Assistant, Compacted, Entry, Failed, Finished, Sent, User
from travois.core.tokens import context_tokens, fact_tokens, stop_threshold, token_ratio
from travois.ports.world import Event, UserWarned
from travois_lab import Prompt, Reply, call, text, thinking

OPUS = "anthropic/claude-opus-5-5"
LOCAL = "openai/lab-model"
FILES = 12
ASIDE = (PROMPT_FOLDER / "summary.md").read_text("utf-8")[:60]
"""How a request begins that asks for a summary beside the conversation."""
RULE = "Never rename the column total_7919."
BOTH = pytest.mark.parametrize("model", [OPUS, LOCAL])
QUICK = (
    '{"retry":{"attempts":2,"maxWait":0.05},"timeouts":{"idle":0.5,"firstByte":1,"local":0.5},'
    '"memory":{"extract":"off"},"context":{"notes":false}}'
)


def works(prompt: Prompt, state: dict[str, object]) -> list[dict[str, Any]]:
    """Thinks and reads all the files, says that it is done, and from then on that all is well."""
    if ASIDE in prompt.last_text:
        return [text("So far all is well.")]
    done = state["done"] = int(str(state.get("done", -1))) + 1
    if done >= FILES:
        return [text("done" if done == FILES else "ok")]
    thought = [thinking("next")] if prompt.protocol == "anthropic" else []
    return [*thought, call("Read", file_path=f"f{done}.txt")]


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    folder = tmp_path / "work"
    folder.mkdir()
    for number in range(FILES):
        lines = (f"{number}-{line}: some words of file {number}\n" for line in range(400))
        (folder / f"f{number}.txt").write_text("".join(lines))
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "sk-lab")
    return Options(cwd=str(folder), mode="bypass", settings=QUICK)


class Stage:
    """A session on file and the lab behind it; each message is a process's worth of its own."""

    def __init__(self, api: lab.Api, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api, self.options = api, options
        self.events: list[Event] = []
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{api.url}/v1")

    def say(self, said: str | tuple[Any, ...], **changes: Any) -> str:
        """Resume the session, say something, and hear the last words."""

        async def main() -> str:
            async with LiveSession(replace(self.options, **changes)) as session:
                self.events = [event async for event in session.run(said)]
                self.view = session.runtime.agent.session.view
            return self.facts(Assistant)[-1] if self.facts(Assistant) else None

        last = anyio.run(main)
        self.options = replace(self.options, latest=True, model="")
        return extract_text(last.content) if last else ""

    def facts(self, kind: type) -> list[Any]:
        """The facts of the last message's turn."""
        entries = [event.fact for event in self.events if isinstance(event, Entry)]
        return [fact for fact in entries if isinstance(fact, kind)]

    def answers(self, said: str | tuple[Any, ...] = "still there?", **changes: Any) -> None:
        """The next message is answered in at most three calls, and so is the one after it."""
        for words_ in (said, "and then?"):
            assert self.say(words_, **changes) == "ok"
            assert len(self.facts(Sent)) <= 3
            changes = {}
        assert RULE in "\n".join(extract_text(item.fact.content) for item in self.view.items)

    def fault(self, do: Any, *, times: int = 1) -> None:
        self.api.fault(do, times=times)


def begun(api: lab.Api, options: Options, patch: pytest.MonkeyPatch, model: str = OPUS) -> Stage:
    stage = Stage(api, replace(options, model=model), patch)
    assert stage.say(f"{RULE} Go to work.") == "done"
    return stage


def refusal(message: str, status: int = 400) -> dict[str, Any]:
    return {"http": {"status": status, "type": "invalid_request_error", "message": message}}


REFUSALS = {
    "too long, by how much": refusal("prompt is too long: 250000 tokens > 200000 maximum"),
    "too long, told by others": refusal("This model's maximum context length is 16000 tokens."),
    "too long": refusal("Input is too long for requested model"),
    "too large": refusal("Request exceeds the maximum size", status=413),
    "an error page": "html_413",
    "orphans": refusal(
        "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: x"
    ),
    "a result without its call": refusal(
        "messages.4.content.0: unexpected `tool_use_id` found in `tool_result` blocks: x"
    ),
    "unsigned thinking": refusal("messages.1.content.0: Invalid `signature` in `thinking` block"),
    "thinking of another history": refusal(
        "messages.1.content.0: thinking is bound to a different conversation"
    ),
    "changed thinking": refusal("`thinking` blocks in the latest message cannot be modified"),
}


@BOTH
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("what", REFUSALS)
def test_a_refusal_for_what_the_history_holds_is_mended(
    options: Options, monkeypatch: pytest.MonkeyPatch, what: str, times: int, model: str
) -> None:
    with lab.server(works) as api:
        stage = begun(api, options, monkeypatch, model)
        stage.fault(REFUSALS[what], times=times)
        stage.answers()
        api.no_orphans() if "result" not in what and what != "orphans" else None
        api.no_invalid()


@BOTH
def test_a_catalogue_that_promises_too_much_is_corrected(
    options: Options, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    id = model.partition("/")[2]
    with lab.server(works, models={id: {"like": "claude-opus-5-5", "window": 20_000}}) as api:
        stage = begun(api, options, monkeypatch, model)
        assert stage.view.epoch is not None
        assert stage.view.epoch.model.window == 20_000
        stage.answers()


def test_a_prompt_that_no_request_can_hold_does_not_end_the_session(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lab.server(
        lambda prompt, state: "ok", models={"claude-opus-5-5": {"window": 20_000}}
    ) as api:
        stage = Stage(api, replace(options, model=OPUS), monkeypatch)
        stage.answers(f"{RULE} " + "These are many words. " * 20_000)


def test_a_prompt_fills_a_window_that_the_conversation_had_filled(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lab.server(works) as api:
        stage = begun(api, options, monkeypatch, f"{OPUS}[24k]")
        assert stage.view.epoch is not None
        room = stop_threshold(stage.view.epoch.model) - context_tokens(stage.view)
        text = "a; " * 20_000
        assert room < round(fact_tokens(User((Text(text),))) * token_ratio(stage.view))
        stage.answers(text)
        assert max(exchange.usage.prompt for exchange in api.ledger) < 24_000


@pytest.mark.parametrize("model", ["anthropic/claude-haiku-4-5[16k]", f"{LOCAL}[16k]"])
def test_a_smaller_model_takes_over(
    options: Options, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    with lab.server(works, models={"claude-haiku-4-5": {"window": 16_000}}) as api:
        stage = begun(api, options, monkeypatch)
        stage.answers(model=model)
        assert stage.view.epoch is not None
        assert stage.view.epoch.model.window == 16_000
        assert context_tokens(stage.view) < stop_threshold(stage.view.epoch.model)


def cutting(window: int) -> Callable[[Prompt, dict[str, object]], Reply]:
    """A server that cuts prompts without a word: all that tells is its count."""

    def answer(prompt: Prompt, state: dict[str, object]) -> Reply:
        counted = {"input_tokens": min(window, len(str(prompt.body)) // 4)}
        uncached = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
        uncached |= {"cache_creation": {}}
        said = [block for block in works(prompt, state) if block["type"] != "thinking"]
        return Reply(tuple(said), usage=counted | uncached)

    return answer


@pytest.mark.parametrize("window", [16_000, 20_000])
def test_a_server_that_cuts_in_silence_is_noticed(
    options: Options, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    with lab.server(cutting(window), models={"lab-model": {"like": "claude-opus-5-5"}}) as api:
        stage = begun(api, options, monkeypatch, "anthropic/lab-model")
        told = [e.text for e in stage.events if isinstance(e, UserWarned) and "truncates" in e.text]
        assert len(told) == 1
        assert stage.view.epoch is not None
        assert stage.view.epoch.model.window <= window
        stage.answers()
        assert [
            e for e in stage.events if isinstance(e, UserWarned) and "truncates" in e.text
        ] == []


def test_a_hosted_model_is_not_suspected_also_behind_a_proxy_on_this_machine(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lab.server(cutting(16_000)) as api:
        stage = begun(api, options, monkeypatch)
        assert [e for e in stage.events if isinstance(e, UserWarned)] == []
        assert stage.view.epoch is not None
        assert stage.view.epoch.model.window == 1_000_000


def test_a_picture_that_is_refused_is_left_out(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lab.server(works) as api:
        stage = begun(api, options, monkeypatch)

        async def kept() -> str:
            async with LiveSession(stage.options) as session:
                return session.runtime.agent.world.blobs.put(b"\x89PNG\r\n\x1a\nnot really")

        blob = anyio.run(kept)
        picture = Media("image", "image/png", blob, 18, "a.png")
        stage.fault(refusal("messages.9: image exceeds 5 MB maximum"))
        stage.answers((Text("what is this?"), picture))
        assert not any(isinstance(b, Media) for i in stage.view.items for b in i.fact.content)


SUMMARISERS: dict[str, tuple[Any, bool]] = {
    "refuses": ({"http": {"status": 400, "type": "invalid_request_error", "message": "no"}}, True),
    "breaks": ({"http": {"status": 500, "type": "api_error", "message": "oops"}}, True),
    "is overloaded": ({"http": {"status": 529, "type": "overloaded_error"}}, True),
    "finds it too long": (REFUSALS["too long, by how much"], True),
    "is cut off": ("disconnect", True),
    "hangs": ({"stall": {"s": 5}}, False),
    "never begins": ({"slow_headers": {"s": 5}}, False),
    "makes no sense": ("bad_json_event", True),
    "has no key": ({"http": {"status": 401, "type": "authentication_error"}}, False),
}
"""How a summariser fails, and whether it is asked until the oldest rounds have given way."""


def compacting(stage: Stage) -> Compacted | None:
    async def main() -> Compacted | None:
        async with LiveSession(stage.options) as session:
            return await compact_conversation(session.runtime.agent, trigger="manual")

    return anyio.run(main)


@pytest.mark.parametrize("what", [one for one in SUMMARISERS if one != "has no key"])
def test_a_fork_that_fails_is_made_up_for_by_a_direct_call(
    options: Options, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    with lab.server(works) as api:
        stage = begun(api, options, monkeypatch)
        stage.fault(SUMMARISERS[what][0])
        fact = compacting(stage)
        assert fact is not None and (fact.by, fact.source) == ("model", "direct")
        assert fact.why.startswith("fork: ") and fact.why in describe_compaction(fact)
        assert "So far all is well." in extract_text(fact.summary)
        direct = api.ledger[-1].body.decode()
        assert '"tools"' not in direct and '"max_tokens":20000' in direct
        api.no_invalid()
        stage.answers()


@pytest.mark.parametrize("what", SUMMARISERS)
def test_a_summariser_that_always_fails_costs_its_words_alone_and_is_owned_up_to(
    options: Options, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    fault, again = SUMMARISERS[what]
    with lab.server(works) as api:
        stage = begun(api, options, monkeypatch)
        before = len(api.ledger)
        stage.fault(fault, times=5)
        fact = compacting(stage)
        assert fact is not None and (fact.by, fact.source) == ("ledger", "ledger")
        assert "summary from the log, without a model (fork: " in describe_compaction(fact)
        assert "No model took part in it (fork: " in extract_text(fact.summary)
        asked = len(api.ledger) - before
        assert asked == 5 if again and what != "is cut off" else asked <= 2
        api.world.faults.rules = []
        stage.answers()


@pytest.mark.parametrize("said", ["", "word " * 60_000, "<summary>"])
def test_a_summary_that_is_none_is_thrown_away(
    options: Options, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    def sums(prompt: Prompt, state: dict[str, object]) -> list[dict[str, Any]]:
        if ASIDE not in prompt.last_text:
            return works(prompt, state)
        return [text(said)] if said else []

    with lab.server(sums) as api:
        stage = begun(api, options, monkeypatch)
        fact = compacting(stage)
        assert fact is not None and fact.after < fact.before
        stage.answers()


def test_a_draft_that_hangs_holds_nobody_up(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lab.server(works) as api:
        stage = begun(api, options, monkeypatch)

        async def main() -> tuple[str, list[str]]:
            async with LiveSession(stage.options) as session, anyio.create_task_group() as group:
                agent = session.runtime.agent
                agent.runtime.background = group.start_soon
                agent.session.append(User((Text("note"),), origin="note"))
                stage.fault({"stall": {"s": 5}})
                prepare_compaction(agent)
                await anyio.lowlevel.checkpoint()
                said = await session.ask("still there?")
                group.cancel_scope.cancel()
            ends = [e.fact.outcome for e in agent.session.history() if isinstance(e.fact, Finished)]
            return said, ends

        assert anyio.run(main) == ("ok", ["stopped"])
        stage.answers()
        assert stage.facts(Failed) == []
