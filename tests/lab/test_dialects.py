"""Chat completions in many accents, Gemini and Ollama: what each says, and what each refuses."""

from __future__ import annotations

import msgspec
import pytest

from tests.lab.client import Client, Json
from travois.core.errors import UserError
from travois_lab.dialects import DIALECTS, dialect
from travois_lab.talk import Reply, call, text, thinking

CHAT = "/v1/chat/completions"
SAID = Reply((thinking("hm"), text("Hi é."), call("read", path="a.py")))
HI: list[Json] = [{"role": "user", "content": "hi"}]


def lab(name: str, reply: object = SAID, **options: object) -> Client:
    return Client(lambda prompt, state: reply, dialect=name, **options)


def streamed(client: Client, body: Json, path: str = CHAT) -> list[Json]:
    client.post(path, {"model": "m", "messages": HI, "stream": True, **body})
    lines = [line.removeprefix(b"data: ") for line in client.raw.split(b"\n")]
    return [msgspec.json.decode(line) for line in lines if line.startswith(b"{")]


def history(call_: Json, *after: Json, **assistant: object) -> list[Json]:
    said = {"role": "assistant", "content": None, "tool_calls": [call_], **assistant}
    result = {"role": "tool", "tool_call_id": call_.get("id"), "content": "x"}
    return [*HI, said, result, *after]


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_streams_what_it_says_whole(name: str) -> None:
    client = lab(name)
    model = {"model": "gpt-6.1-sol"}
    status, whole = client.post(CHAT, {"messages": HI, **model})
    assert status == 200
    chunks = streamed(client, model)
    deltas = [c["choices"][0]["delta"] for c in chunks if c.get("choices")]
    message = whole["choices"][0]["message"]
    assert "".join(d.get("content") or "" for d in deltas) == (message["content"] or "")
    assert client.raw.endswith(b"data: [DONE]\n\n")


def test_f21_usage_stands_where_each_server_puts_it() -> None:
    seen = {}
    for name in ("openai", "openrouter", "kimi", "groq"):
        chunks = streamed(lab(name), {"model": "gpt-6.1-sol"})
        seen[name] = [
            "top" if "usage" in c else "groq" if "x_groq" in c else "choice"
            for c in chunks
            if "usage" in c or "x_groq" in c or "usage" in (c["choices"] or [{}])[0]
        ]
    assert seen == {"openai": [], "openrouter": ["top"], "kimi": ["choice"], "groq": ["groq"]}


def test_f23_ollama_finishes_with_stop_in_spite_of_calls() -> None:
    chunks = streamed(lab("ollama"), {})
    finishes = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]]
    assert finishes[-1] == "stop"


def test_openrouter_sends_comments_and_reasoning_details() -> None:
    client = lab("openrouter")
    deltas = [c["choices"][0]["delta"] for c in streamed(client, {}) if c["choices"]]
    assert client.raw.startswith(b": OPENROUTER PROCESSING\n\n")
    assert any(d.get("reasoning_details", [{}])[0].get("text") == "hm" for d in deltas)


def test_gemini_s_parallel_calls_all_have_index_zero_and_the_first_is_signed() -> None:
    chunks = streamed(lab("gemini", [call("a"), call("b")]), {})
    calls = [
        c
        for k in chunks
        for c in (k["choices"] or [{"delta": {}}])[0]["delta"].get("tool_calls", [])
    ]
    assert {c["index"] for c in calls} == {0}
    assert [("extra_content" in c) for c in calls if "id" in c] == [True, False]


def test_lm_studio_may_say_its_calls_as_text() -> None:
    _, whole = lab("lmstudio").post(CHAT, {"model": "m", "messages": HI})
    assert "<tool_call>" in whole["choices"][0]["message"]["content"]


NINE = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": "{}"}}
LONG = {**NINE, "id": "call_0123456789abcdefghi"}
REFUSED = [
    ("F24 deepseek", "deepseek", {"messages": history(NINE)}, "reasoning_content"),
    ("kimi", "kimi", {"messages": history(NINE)}, "reasoning_content"),
    ("F25 id", "mistral", {"messages": history(LONG)}, "a length of 9"),
    ("F25 user", "mistral", {"messages": history(NINE, *HI)}, "'user' after role 'tool'"),
    ("mistral field", "mistral", {"messages": HI, "stream_options": {}}, "stream_options"),
    ("F26", "gemini", {"messages": history(NINE)}, "missing a thought_signature"),
    (
        "vllm parts",
        "vllm",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
        "string",
    ),
    ("orphan", "compatible", {"messages": history(NINE)[:2]}, "must be followed by tool messages"),
    ("unknown field", "openai", {"messages": HI, "model": "gpt-6.1-sol", "colour": 1}, "colour"),
]


@pytest.mark.parametrize(("id", "name", "body", "said"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_each_server_refuses(id: str, name: str, body: Json, said: str) -> None:
    status, answer = lab(name).post(CHAT, {"model": "m", **body})
    assert (status, said in answer["error"]["message"]) == (400, True), answer


OVERFLOWS = [d for d in DIALECTS.values() if d.overflow.strip()]


@pytest.mark.parametrize("accent", OVERFLOWS, ids=lambda d: d.name)
def test_each_server_says_overflow_in_its_own_words(accent: object) -> None:
    name = accent.name
    long = [{"role": "user", "content": "{{tok:922001}}"}]
    status, answer = lab(name).post(CHAT, {"model": "gpt-6.1-sol", "messages": long})
    expected = accent.overflow.format(tokens=922001, limit=922000)
    assert (status, answer["error"]["message"]) == (accent.overflow_status, expected)


def test_cerebras_says_nothing_at_all_on_overflow() -> None:
    client = lab("cerebras")
    long = [{"role": "user", "content": "{{tok:922001}}"}]
    status, _ = client.post(CHAT, {"model": "gpt-6.1-sol", "messages": long})
    assert (status, client.raw) == (413, b"")


def test_glm_takes_a_prompt_beyond_its_window_in_silence() -> None:
    long = [{"role": "user", "content": "{{tok:922001}}"}]
    status, answer = lab("glm").post(CHAT, {"model": "gpt-6.1-sol", "messages": long})
    assert (status, answer["usage"]["prompt_tokens"]) == (200, 922001)


def test_deepseek_counts_hits_and_misses() -> None:
    client = lab("deepseek")
    long = [{"role": "user", "content": "{{tok:2000}}"}]
    for _ in range(2):
        _, answer = client.post(CHAT, {"model": "m", "messages": long})
    usage = answer["usage"]
    assert (usage["prompt_cache_hit_tokens"], usage["prompt_cache_miss_tokens"]) == (2000, 0)


def test_an_unknown_dialect_is_named() -> None:
    with pytest.raises(UserError, match="no dialect 'klingon'"):
        dialect("klingon")


# --- Ollama ---------------------------------------------------------------------------------------


def test_f22_ollama_s_calls_have_objects_and_no_ids() -> None:
    rows = streamed(lab("ollama"), {}, "/api/chat")
    calls = [c for row in rows for c in row["message"].get("tool_calls", [])]
    assert calls == [{"function": {"name": "read", "arguments": {"path": "a.py"}}}]
    assert (rows[-1]["done"], rows[-1]["done_reason"]) == (True, "stop")


def test_f27_ollama_cuts_a_long_prompt_in_silence() -> None:
    client = Client("lab-forgetful")
    messages = [
        {"role": "user", "content": "The code is 4711. {{tok:9000}}"},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "What is the code?"},
    ]
    ask: Json = {"model": "m", "messages": messages, "stream": False}
    status, answer = client.post("/api/chat", {**ask, "options": {"num_ctx": 4096}})
    assert (status, answer["prompt_eval_count"]) == (200, 4096)
    assert answer["message"]["content"] == "I do not know."
    _, answer = client.post("/api/chat", {**ask, "options": {"num_ctx": 16384}})
    assert "4711" in answer["message"]["content"]


def test_ollama_reads_results_by_the_tool_s_name() -> None:
    client = Client([{"when": {"tool_result": {"name": "read"}}, "say": "got it"}])
    use = {"function": {"name": "read", "arguments": {}}}
    messages = [
        *HI,
        {"role": "assistant", "content": "", "tool_calls": [use]},
        {"role": "tool", "tool_name": "read", "content": "x"},
    ]
    _, answer = client.post("/api/chat", {"model": "m", "messages": messages, "stream": False})
    assert answer["message"]["content"] == "got it"


# --- Gemini ---------------------------------------------------------------------------------------

GEMINI = "/v1beta/models/gemini-3-pro"
ASKED = {"role": "user", "parts": [{"text": "hi"}]}


def test_gemini_signs_the_first_call_and_wants_the_signature_back() -> None:
    client = lab("compatible", [thinking("hm"), call("read", p=1), call("read", p=2)])
    _, answer = client.post(f"{GEMINI}:generateContent", {"contents": [ASKED]})
    parts = answer["candidates"][0]["content"]["parts"]
    assert [p.get("thoughtSignature", "") != "" for p in parts] == [False, True, False]
    result = {"functionResponse": {"name": "read", "response": {"x": 1}}}
    said = {"role": "model", "parts": parts}
    good = {"contents": [ASKED, said, {"role": "user", "parts": [result, result]}]}
    status, _ = client.post(f"{GEMINI}:generateContent", good)
    assert status == 200
    del parts[1]["thoughtSignature"]
    status, answer = client.post(f"{GEMINI}:generateContent", good)
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert "missing a thought_signature" in answer["error"]["message"]


def test_gemini_streams_whole_responses() -> None:
    client = lab("compatible", "Hello.")
    client.post(f"{GEMINI}:streamGenerateContent", {"contents": [ASKED]})
    (row,) = msgspec.json.decode(client.raw)
    assert row["candidates"][0]["finishReason"] == "STOP"
    assert row["usageMetadata"]["promptTokenCount"] == 1


def test_gemini_streams_as_events_when_asked_to() -> None:
    client = lab("compatible", Reply((text("Hello."), call("read"))))
    client.post(f"{GEMINI}:streamGenerateContent?alt=sse", {"contents": [ASKED]})
    rows = [msgspec.json.decode(line[6:]) for line in client.raw.split(b"\n") if line]
    parts = [row["candidates"][0]["content"]["parts"][0] for row in rows]
    finishes = [row["candidates"][0].get("finishReason") for row in rows]
    assert (parts[0], "functionCall" in parts[1]) == ({"text": "Hello."}, True)
    assert finishes == [None, "STOP"]


def test_gemini_says_overflow_with_both_numbers() -> None:
    client = lab("compatible", "Hello.")
    long = {"role": "user", "parts": [{"text": "{{tok:200001}}"}]}
    _, answer = client.post(f"{GEMINI}:generateContent", {"contents": [long]})
    said = "The input token count (200001) exceeds the maximum number of tokens allowed (200000)."
    assert answer["error"]["message"] == said
    _, counted = client.post(f"{GEMINI}:countTokens", {"contents": [long]})
    assert counted == {"totalTokens": 200001}
