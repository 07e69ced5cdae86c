"""Telemetry of the real program, as a real collector gets it."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

import travois_lab as lab
from tests.e2e.collector import Collector, collector
from tests.e2e.program import Program, read
from travois.core.cache_audit import SessionSpending
from travois.core.facts import Epoch
from travois.settings.schema import Settings
from travois.telemetry import (
    CAPTURE_CONTENT_VARIABLE,
    OTLP_ENDPOINT_VARIABLE,
    SessionTrace,
    TelemetryOptions,
    read_telemetry_options,
)
from travois_lab import Prompt, call, text
from travois_lab.objects import Json

SECRET = "sk-ant-" + "abcdefgh" * 4
WORDS = ("say the magic word", "open sesame", "needle in a haystack", "part of the work")
"""What was asked, answered, read and passed on."""


def model(prompt: Prompt, state: object) -> list[Json]:
    if WORDS[3] in str(prompt.messages):
        child = "trace.txt" not in str(prompt.messages)
        return [text("nothing found" if child else WORDS[1])]
    if "trace.txt" in str(prompt.messages):
        return [call("Agent", description="look around", prompt=WORDS[3])]
    return [
        call("Read", file_path="a.txt"),
        call("Bash", command="echo $TRACEPARENT > trace.txt"),
        call("Write", file_path="b.txt", content="x"),
    ]


def go(program: Program, got: Collector, *args: str, **more: str) -> Any:
    (program.folder / "a.txt").write_text(f"{WORDS[2]}\n{SECRET}\nkept-in-a-variable\n")
    with program.served(model):
        program.extra = {
            OTLP_ENDPOINT_VARIABLE: got.url,
            "SOME_TOKEN": "kept-in-a-variable",
            **more,
        }
        done = program.ask(WORDS[0], "--allowedTools", "Bash", *args)
        assert (done.code, done.out) == (0, f"{WORDS[1]}\n")
        assert done.err.startswith("travois: a tool call was denied\n  Write: ")
    return done


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, Collector]:
    """One run of which a collector was told."""
    place = tmp_path_factory.mktemp("told")
    (place / "work").mkdir()
    program = Program(place / "work", place / "home")
    with collector() as got:
        go(program, got, TRAVOIS_TASK_ID="fix-17")
    return program, got


def test_a_collector_gets_the_tree_of_what_happened_and_none_of_its_words(
    told: tuple[Program, Collector],
) -> None:
    program, got = told
    chat = "chat claude-opus-5-5"
    assert got.tree() == [
        "session",
        "  turn",
        f"    {chat}",
        "    execute_tool Read",
        "    execute_tool Bash",
        "    execute_tool Write",
        f"    {chat}",
        "    execute_tool Agent",
        "      invoke_agent general",
        "        turn",
        f"          {chat}",
        f"    {chat}",
    ]
    for word in (*WORDS, "trace.txt", "b.txt", SECRET, "kept-in-a-variable"):
        assert word.encode() not in got.raw
    session = got.one("session")
    assert {span.trace for span in got.spans} == {session.trace}
    seen = (program.folder / "trace.txt").read_text().strip()
    assert seen == f"00-{session.trace}-{session.id}-01"
    assert {span.attributes["travois.task.id"] for span in got.spans} == {"fix-17"}
    about = got.resources[0]
    assert about["service.name"] == "travois"
    assert about["session.id"] == session.attributes["gen_ai.conversation.id"]
    denied = got.one("execute_tool Write")
    assert (denied.failed, denied.attributes["travois.outcome"]) == (True, "denied")


def test_what_was_measured_is_what_the_log_says(told: tuple[Program, Collector]) -> None:
    program, got = told
    (log,) = program.logs()
    spent = SessionSpending()
    for entry in read(log):
        spent = spent.after_entry(entry)
    usage = spent.usage
    for kind, tokens in {
        "input": usage.input,
        "output": usage.output,
        "cache_read": usage.read,
        "cache_write": usage.write + usage.write_1h,
    }.items():
        assert got.total("travois.tokens", **{"gen_ai.token.type": kind}) == tokens
    assert usage.read > 0
    assert got.total("travois.cost") == pytest.approx(spent.dollars)
    requests = [span for span in got.spans if span.name.startswith("chat ")]
    assert got.total("travois.requests") == len(requests) == 4
    (most,) = {entry.fact.model.output for entry in read(log) if isinstance(entry.fact, Epoch)}
    assert {span.attributes["gen_ai.request.max_tokens"] for span in requests} == {most}
    prompts = sum(span.attributes["gen_ai.usage.input_tokens"] for span in requests)
    assert prompts == got.total("gen_ai.client.token.usage", **{"gen_ai.token.type": "input"})
    for name, outcome in {"Read": "done", "Bash": "done", "Write": "denied"}.items():
        wanted = {"gen_ai.tool.name": name, "travois.outcome": outcome}
        assert got.total("travois.tool.calls", **wanted) == 1
    assert got.total("travois.permission.decisions", **{"travois.verdict": "deny"}) == 1
    first, whole = "gen_ai.client.operation.time_to_first_chunk", "gen_ai.client.operation.duration"
    assert 0 < got.total(first) <= got.total(whole)


def test_words_are_told_where_the_user_asked_for_that_and_secrets_never(program: Program) -> None:
    with collector() as got:
        go(program, got, **{CAPTURE_CONTENT_VARIABLE: "true"})
    for word in (*WORDS, "trace.txt"):
        assert word.encode() in got.raw
    assert SECRET.encode() not in got.raw
    assert b"kept-in-a-variable" not in got.raw
    read = got.one("execute_tool Read").attributes
    assert json.loads(read["gen_ai.tool.call.arguments"]) == {"file_path": "a.txt"}
    assert "[redacted: Anthropic key]" in read["gen_ai.tool.call.result"]


def test_failures_hooks_and_compactions_are_told(program: Program) -> None:
    hook = {"hooks": [{"type": "command", "command": "true"}]}
    given: dict[str, Any] = {"hooks": {"UserPromptSubmit": [hook]}, "retry": {"maxWait": 0.01}}
    given["context"] = {"threshold": 9_000, "tailTokens": 1_000, "offload": False, "draft": False}
    (program.folder / "long.txt").write_text("a line of words\n" * 1_500)

    def reads(prompt: Prompt, state: dict[str, int]) -> list[Json]:
        state["n"] = state.get("n", 0) + 1
        return (
            [call("Read", file_path="long.txt", offset=state["n"])]
            if state["n"] < 4
            else [text("ok")]
        )

    with lab.server(reads) as api, collector() as got:
        api.fault({"http": {"status": 529}}, n=1)
        program.url, program.extra = api.url, {OTLP_ENDPOINT_VARIABLE: got.url}
        done = program.ask("read it", "--settings", json.dumps(given))
        assert done.code == 0, done.err
    assert got.one("hook UserPromptSubmit").attributes["travois.hook.event"] == "UserPromptSubmit"
    failed = [span for span in got.spans if span.failed]
    assert [(span.name, span.attributes["error.type"]) for span in failed] == [
        ("chat claude-opus-5-5", "overloaded")
    ]
    assert got.total("travois.retries", **{"error.type": "overloaded"}) == 1
    assert got.total("travois.requests", **{"error.type": "overloaded"}) == 1
    cuts = [span for span in got.spans if span.name == "compact"]
    assert len(cuts) == got.total("travois.compactions") > 0
    assert cuts[0].attributes["travois.tokens.before"] > cuts[0].attributes["travois.tokens.after"]


def test_a_dead_collector_costs_one_line(program: Program) -> None:
    with lab.server([{"say": "Four."}]) as api:
        program.url, program.extra = api.url, {OTLP_ENDPOINT_VARIABLE: "http://127.0.0.1:9"}
        done = program.ask("2 + 2?")
    assert (done.code, done.out) == (0, "Four.\n")
    assert done.err == "travois: telemetry was not delivered: Connection refused\n"


def test_a_session_belongs_to_the_trace_that_started_it_and_headers_come_from_a_command(
    program: Program,
) -> None:
    above = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    given = json.dumps({"otelHeadersHelper": 'echo \'{"x-pass": "sesame"}\''})
    with lab.server([{"say": "ok"}]) as api, collector() as got:
        program.url, program.extra = (
            api.url,
            {OTLP_ENDPOINT_VARIABLE: got.url, "TRACEPARENT": above},
        )
        done = program.ask("hi", "--settings", given)
        assert (done.code, done.err) == (0, "")
    session = got.one("session")
    assert f"00-{session.trace}-{session.parent}-01" == above
    assert {headers["x-pass"] for headers in got.headers} == {"sesame"}


def test_unless_it_is_asked_for_nothing_of_it_is_loaded(program: Program) -> None:
    program.launcher = (sys.executable, "-X", "importtime", "-m", "travois")
    with program.served([{"say": "ok"}]):
        done = program.ask("hi")
    assert done.code == 0
    assert "travois.telemetry" in done.err
    assert not re.search(r"opentelemetry|telemetry\.(observing|pipe|telling)", done.err)


@pytest.mark.parametrize(
    ("settings", "environ", "wish"),
    [
        (Settings(), {}, None),
        (Settings(telemetry=True), {}, TelemetryOptions()),
        (Settings(), {OTLP_ENDPOINT_VARIABLE: "http://x"}, TelemetryOptions()),
        (Settings(), {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, TelemetryOptions()),
        (
            Settings(),
            {OTLP_ENDPOINT_VARIABLE: "http://x", CAPTURE_CONTENT_VARIABLE: "True"},
            TelemetryOptions(content=True),
        ),
        (Settings(telemetry=True), {"OTEL_SDK_DISABLED": "true"}, None),
    ],
)
def test_who_asks_for_it(
    settings: Settings, environ: dict[str, str], wish: TelemetryOptions | None
) -> None:
    assert read_telemetry_options(settings, environ) == wish


@pytest.mark.parametrize("above", ["", "nonsense", "00-xyz-b7ad6b7169203331-01"])
def test_without_a_trace_above_a_session_begins_its_own(above: str) -> None:
    place = SessionTrace(above)
    assert place.above == ""
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", place.traceparent)
