"""The same task on every provider that the lab plays, and what happens when one fails."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

import travois_lab as lab
from tests.e2e.program import Program
from travois.core.facts import Changed, Compacted, Epoch
from travois.sessions.log_file import SessionLog
from travois_lab.dialects import DIALECTS

SCRIPT = [
    {
        "when": {"last_text": "go"},
        "say": [
            {"thinking": "First I look."},
            {"text": "I look."},
            {"tool_use": {"name": "Read", "input": {"file_path": "a.txt"}}},
            {"tool_use": {"name": "Bash", "input": {"command": "echo $((6*7)) > b.txt"}}},
        ],
    },
    {
        "when": {"tool_result": {"regex": ".*"}, "text": "needle"},
        "say": [{"tool_use": {"name": "Read", "input": {"file_path": "b.txt"}}}],
    },
    {"when": {"text": "42"}, "say": "Found the needle."},
    {"say": "I am lost.", "repeat": True},
]
CHAT = {
    "compatible": "llamacpp",
    "openai": "azure",
    "ollama": "llamacpp",
    "gemini": "llamacpp",
    "kimi": "moonshot",
    "glm": "zai",
    "copilot": "groq",
}
"""Providers of the catalogue for dialects that are not called as one."""
KEYS = ("OPENAI", "GEMINI", "DEEPSEEK", "MISTRAL", "GROQ", "XAI", "MOONSHOT", "ZAI", "CEREBRAS",
        "DASHSCOPE", "OPENROUTER", "AZURE_OPENAI", "ANTHROPIC")  # fmt: skip


def task(program: Program, api: lab.Api, provider: str, **entry: object) -> None:
    """Do it, and see that nothing was wrong with what was sent."""
    (program.folder / "a.txt").write_text("needle\n")
    program.extra = {f"{name}_API_KEY": "sk-lab" for name in KEYS}
    settings = {"providers": {provider: entry}}
    model = ("--model", f"{provider}/lab-model")
    done = program.run(
        "-p", "go", *model, "--allowedTools", "Bash", "--settings", json.dumps(settings)
    )
    assert (done.code, done.out) == (0, "Found the needle.\n"), done.err
    api.no_invalid()
    api.append_only()
    api.no_orphans()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_task_is_done_in_every_dialect_of_chat(program: Program, dialect: str) -> None:
    provider = CHAT.get(dialect, dialect)
    entry = {"protocol": "chat", "quirks": []} if dialect == "openai" else {}
    models = {"lab-model": {"family": "openai"}}
    with lab.server(SCRIPT, dialect=dialect, models=models) as api:
        task(program, api, provider, url=f"{api.url}/v1", **entry)


@pytest.mark.parametrize("provider", ["openai", "gemini", "ollama"])
def test_the_task_is_done_in_every_other_protocol(program: Program, provider: str) -> None:
    path = "/v1" if provider == "openai" else ""
    with lab.server(SCRIPT) as api:
        task(program, api, provider, url=f"{api.url}{path}")
        assert {each.path for each in api.ledger} == {
            "openai": {"/v1/responses"},
            "gemini": {"/v1beta/models/lab-model:streamGenerateContent"},
            "ollama": {"/api/chat"},
        }[provider]


CLOUDS = {
    "bedrock/global.anthropic.claude-opus-5-5-v1:0": {
        "ANTHROPIC_BEDROCK_BASE_URL": "{}",
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
    },
    "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0": {
        "ANTHROPIC_BEDROCK_BASE_URL": "{}",
        "AWS_BEARER_TOKEN_BEDROCK": "token",
    },
    "vertex/claude-sonnet-4-5@20250929": {
        "ANTHROPIC_VERTEX_BASE_URL": "{}",
        "VERTEX_ACCESS_TOKEN": "token",
    },
}


@pytest.mark.parametrize("model", CLOUDS)
def test_the_task_is_done_by_anthropics_models_elsewhere(program: Program, model: str) -> None:
    (program.folder / "a.txt").write_text("needle\n")
    with lab.server(SCRIPT) as api:
        program.extra = {name: value.format(api.url) for name, value in CLOUDS[model].items()}
        done = program.run("-p", "go", "--model", model, "--allowedTools", "Bash")
        assert (done.code, done.out) == (0, "Found the needle.\n"), done.err
        api.no_invalid()
        api.append_only()
        api.no_orphans()


def own(api: lab.Api, **more: object) -> str:
    """Settings with a server of one's own, as a user writes them."""
    served = {"protocol": "anthropic", "url": api.url, "keyEnv": ["HOUSE_KEY"]}
    return json.dumps({"providers": {"house": served}, **more})


def heads(program: Program) -> list[tuple[str, str]]:
    facts = [entry.fact for entry in program.facts()]
    return [(f.model.id, f.why.partition(":")[0]) for f in facts if isinstance(f, Epoch)]


def test_other_models_stand_in_until_the_next_turn(program: Program) -> None:
    program.extra = {"HOUSE_KEY": "k"}
    with lab.server([{"say": "Hi.", "repeat": True}]) as api:
        quick = {"retry": {"attempts": 2, "maxWait": 0.01}}
        given = ("--settings", own(api, **quick), "--model", "house/claude-opus-5-5")
        chain = ("--fallback-model", "house/claude-gone, house/claude-haiku-5-5")
        api.fault({"http": {"status": 529}}, model="claude-opus-5-5", n=[1, 2])
        done = program.run("-p", "hello", *given, *chain)
        assert (done.code, done.out) == (0, "Hi.\n"), done.err
        told = "using house/claude-haiku-5-5 until the next turn"
        assert told in done.err
        assert program.run("-p", "again", "-c", "--settings", own(api), *chain).code == 0
        models = [exchange.model for exchange in api.ledger]
    opus = "claude-opus-5-5"
    assert models == [opus, opus, "claude-gone", "claude-haiku-5-5", opus]
    assert heads(program) == [
        ("claude-opus-5-5", "start"),
        ("claude-gone", "fallback"),
        ("claude-haiku-5-5", "fallback"),
        ("claude-opus-5-5", "the chosen model is tried again"),
    ]
    states = [e.fact.value for e in program.facts() if isinstance(e.fact, Changed)]
    assert states[-2:] == ["house/claude-opus-5-5", ""]


def test_the_chain_may_stand_in_settings_and_one_that_has_no_key_is_told(program: Program) -> None:
    program.extra = {"HOUSE_KEY": "k"}
    with lab.server([{"say": "Hi.", "repeat": True}]) as api:
        settings = own(api, fallbackModels=["gpt-6-sol", "house/claude-haiku-5-5"])
        given = ("--settings", settings, "--model", "house/claude-opus-5-5")
        api.fault({"http": {"status": 402}}, n=1)
        done = program.run("-p", "hello", *given)
        assert (done.code, done.out) == (0, "Hi.\n"), done.err
    assert "gpt-6-sol is no fallback for house/claude-opus-5-5: No API key" in done.err


def test_when_nobody_can_answer_the_session_can_go_on_later(program: Program) -> None:
    program.extra = {"HOUSE_KEY": "k"}
    with lab.server([{"say": "Hi.", "repeat": True}]) as api:
        settings = own(api, retry={"attempts": 2, "maxWait": 0.01})
        given = ("--settings", settings, "--fallback-model", "house/claude-haiku-5-5")
        api.fault({"http": {"status": 529}}, n=[1, 2, 3, 4])
        failed = program.run("-p", "hello", "--model", "house/claude-opus-5-5", *given)
        assert failed.code == 75
        done = program.run("-p", "again", "-c", *given)
        assert (done.code, done.out) == (0, "Hi.\n"), done.err
    assert heads(program)[-1][0] == "claude-opus-5-5"


def test_a_field_that_a_server_refuses_is_left_out_from_then_on(program: Program) -> None:
    refused = {"status": 400, "message": "Unknown parameter: 'prompt_cache_key'."}
    with lab.server([{"say": "Hi.", "repeat": True}]) as api:
        api.fault({"http": refused}, n=1)
        task_free(program, api)
        keys = [set(body) & {"prompt_cache_key"} for body in api.bodies]
    assert keys == [{"prompt_cache_key"}, set()]
    assert [why for _, why in heads(program)] == ["start", "Unknown parameter"]


def task_free(program: Program, api: lab.Api) -> None:
    program.extra = {"OPENAI_API_KEY": "k"}
    settings = json.dumps({"providers": {"openai": {"url": f"{api.url}/v1"}}})
    done = program.run("-p", "hello", "--model", "gpt-6-sol", "--settings", settings)
    assert (done.code, done.out) == (0, "Hi.\n"), done.err


def test_sealed_reasoning_that_is_refused_is_let_go(program: Program) -> None:
    words = "The encrypted content for item rs_1 could not be verified."
    refused = {"status": 400, "message": words}
    (program.folder / "a.txt").write_text("needle\n")
    with lab.server([SCRIPT[0], {"say": "Hi.", "repeat": True}]) as api:
        api.fault({"http": refused}, n=2)
        program.extra = {"OPENAI_API_KEY": "k"}
        settings = json.dumps({"providers": {"openai": {"url": f"{api.url}/v1"}}})
        done = program.run("-p", "go", "--model", "gpt-6-sol", "--settings", settings)
        assert (done.code, done.out) == (0, "Hi.\n"), done.err
        kinds = [[item["type"] for item in body["input"]] for body in api.bodies]
    assert [("reasoning" in each, "function_call" in each) for each in kinds] == [
        (False, False),
        (True, True),
        (False, True),
    ]


def test_a_prompt_that_ollama_cuts_in_silence_is_noticed(program: Program) -> None:
    words = b"some words to read\n" * 6_000
    script = [{"say": "Read.", "repeat": True}]
    with lab.server(script, models={"lab-model": {"family": "openai", "window": 9000}}) as api:
        program.extra = {"OLLAMA_BASE_URL": api.url}
        done = program.run("-p", "go", "--model", "ollama/lab-model[64k]", stdin=words)
        assert (done.code, done.out) == (0, "Read.\n"), done.err
        assert api.bodies[0]["options"]["num_ctx"] == 64_000
    told = "ollama/lab-model truncates long prompts: it counts at most 9,000 tokens"
    assert told in done.err
    assert windows(program) == [64_000, 9_000]


def test_a_conversation_that_ollama_begins_to_forget_is_noticed(program: Program) -> None:
    """No prompt is long by itself: the count stops growing while the conversation does."""
    (program.folder / "a.txt").write_text("def f(x): return x + 1\n" * 200)
    script = [*map(cat, range(14)), {"say": "Done.", "repeat": True}]
    with lab.server(script, models={"lab-model": {"family": "openai", "window": 12_000}}) as api:
        program.extra = {"OLLAMA_BASE_URL": api.url}
        given = ("--model", "ollama/lab-model[64k]", "--allowedTools", "Bash")
        done = program.run("-p", "go", *given)
        assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert "ollama/lab-model truncates long prompts" in done.err
    assert done.err.count("truncates") == 1
    first, *later = windows(program)
    assert first == 64_000
    assert later[-1] <= 12_000


DOTS = {
    "dots": "." * 200_000,
    "lines of dots": ("." * 80 + "\n") * 2_500,
    "dashes": ("-" * 79 + "\n") * 2_500,
    "blank lines": "\n" * 200_000,
    "spaces": " " * 1_000_000,
}


@pytest.mark.parametrize("content", DOTS)
def test_dots_and_blank_lines_cost_neither_the_window_nor_the_conversation(
    program: Program, content: str
) -> None:
    """Providers count next to nothing for them; that is no sign of a prompt that was cut."""
    (program.folder / "a.txt").write_text(DOTS[content])
    script = [cat(n) | {"usage": counted(30_000 + 200 * n)} for n in range(4)]
    last = {"say": "Done.", "usage": counted(30_900), "repeat": True}
    with program.served([*script, last]) as api:
        given = ("--model", "anthropic/claude-haiku-4-5", "--allowedTools", "Bash")
        done = program.run("-p", "go", *given)
        assert (done.code, done.out) == (0, "Done.\n"), done.err
        again = program.run("-p", "and?", "-c", *given)
        assert (again.code, again.out) == (0, "Done.\n"), again.err
        api.append_only()
    assert "leaves out" not in done.err + again.err
    assert windows(program) == [200_000]
    assert not [entry for entry in program.facts() if isinstance(entry.fact, Compacted)]


def test_a_window_that_an_earlier_version_took_away_is_given_back(program: Program) -> None:
    with program.served([{"say": "Hi.", "repeat": True}]) as api:
        model = ("--model", "anthropic/claude-haiku-4-5")
        assert program.run("-p", "hello", *model).code == 0
        (path,) = program.logs()
        log = SessionLog.open(path.parent)
        head = next(entry.fact for entry in program.facts() if isinstance(entry.fact, Epoch))
        log.append(Changed(f"cuts:{head.model.name}", "33420"))
        card = replace(head.model, window=33_420, output=8_355)
        log.append(replace(head, model=card, why="the server counts 33,420 tokens at most"))
        log.close()
        done = program.run("-p", "again", "-c")
        assert (done.code, done.out) == (0, "Hi.\n"), done.err
        api.append_only()
    assert "anthropic/claude-haiku-4-5 has its window of 200,000 tokens again" in done.err
    assert windows(program) == [200_000, 33_420, 200_000]


def counted(tokens: int) -> dict[str, object]:
    """What a provider claims that counts runs as tokenizers do, which the lab does not."""
    cached = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    return {"input_tokens": tokens, "cache_creation": None, **cached}


def cat(number: int) -> dict[str, object]:
    """A turn of the model that looks at the file once more."""
    command = f"cat a.txt # {number}"
    return {"say": [{"tool_use": {"name": "Bash", "input": {"command": command}}}]}


def windows(program: Program) -> list[int]:
    return [e.fact.model.window for e in program.facts() if isinstance(e.fact, Epoch)]


WRONG = [
    (
        {"providers": {"house": {"protocol": "smoke", "url": "x"}}},
        "--settings: providers.house.protocol is not valid",
    ),
    ({"models": {"house/x.1": {"windw": 5}}}, "--settings: models.house/x.1 is not valid"),
    ({"providers": 7}, "--settings: providers (line 1) is invalid: Expected `object`"),
    ({}, "Unknown model 'house/x'"),
]


@pytest.mark.parametrize(("settings", "what"), WRONG)
def test_an_entry_that_makes_no_sense_names_its_file_and_field(
    program: Program, settings: dict[str, object], what: str
) -> None:
    done = program.run("-p", "x", "--model", "house/x", "--settings", json.dumps(settings))
    assert (done.code, done.out) == (2, "")
    assert what in done.err


def test_a_session_outlives_a_model_that_nobody_knows(program: Program) -> None:
    with program.served([{"say": "Hi.", "repeat": True}]) as api:
        assert program.ask("one").code == 0
        (log,) = program.logs()
        before, program.url = log.read_bytes(), ""
        for settings, what in (WRONG[0], WRONG[-1]):
            given = ("--model", "house/x", "--settings", json.dumps(settings))
            done = program.run("-p", "two", "-c", *given)
            assert (done.code, what in done.err) == (2, True), done.err
        assert log.read_bytes() == before
        program.url = api.url
        assert program.ask("three", "-c").out == "Hi.\n"
        assert len(api.ledger) == 2
        api.append_only()


def test_a_workspace_may_not_say_where_keys_are_sent(program: Program) -> None:
    with lab.server([{"say": "Hi.", "repeat": True}]) as evil:
        path = program.folder / ".travois" / "settings.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"providers": {"anthropic": {"url": evil.url}}, "models": {}}))
        with program.served([{"say": "Hi.", "repeat": True}]) as api:
            done = program.ask("hello")
            assert (done.code, len(api.ledger), len(evil.ledger)) == (0, 1, 0)
    assert "workspace settings may not set it" in done.err


@pytest.mark.parametrize("protocol", ["responses", "gemini", "ollama"])
def test_a_server_that_speaks_garbage_ends_the_turn_and_not_the_session(
    program: Program, protocol: str
) -> None:
    served = {"protocol": protocol, "keyEnv": ["HOUSE_KEY"]}
    program.extra = {"HOUSE_KEY": "k"}
    with lab.server([{"say": "Hi.", "repeat": True}]) as api:
        entry = {**served, "url": api.url + ("/v1" if protocol == "responses" else "")}
        settings = {"providers": {"house": entry}, "retry": {"attempts": 1}}
        given = ("--settings", json.dumps(settings), "--model", "house/lab-model")
        api.fault("bad_json_event", n=1, after={"events": 0})
        failed = program.run("-p", "hello", *given)
        assert (failed.code, failed.out) == (75, ""), failed.err
        assert "garbled" in failed.err
        done = program.run("-p", "again", "-c", *given)
        assert (done.code, done.out) == (0, "Hi.\n"), done.err
        api.no_invalid()
