"""Record and replay: through a proxy to a file, and from a file to an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic
import anyio
import msgspec
import pytest

import travois_lab as lab
from tests.lab.client import OPUS, Client, Json, assistant, told, user
from travois.core.errors import UserError
from travois_lab.http import Request
from travois_lab.recording import Recorder, Replay, Took, difference, load_recording
from travois_lab.server import replaying
from travois_lab.trajectory import Trajectory, load_trajectory

SESSIONS = Path(__file__).parents[2].parent / "shared" / "lab" / "trajectories"


def ask(words: str) -> bytes:
    body = {"model": OPUS, "max_tokens": 9, "stream": True, "messages": [user(told(words))]}
    return msgspec.json.encode(body)


def recorded(out: Path) -> list[bytes]:
    """Two exchanges, passed through a recorder to a lab that plays the provider."""
    headers = {"x-api-key": "secret", "anthropic-version": "2026-10-21", "host": "here"}

    async def main(url: str) -> list[bytes]:
        recorder = Recorder(url, out)
        answers = []
        for words in ("one", "two é"):
            live = await recorder.answer(Request("POST", "/v1/messages", {}, headers, ask(words)))
            answers.append(b"".join([chunk async for chunk in live.chunks]))
        return answers

    with lab.server("lab-echo") as api:
        return anyio.run(main, api.url)


def test_a_recording_holds_what_passed_and_no_credentials(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    answers = recorded(out)
    took = load_recording(out)
    assert [t.request for t in took] == [ask("one"), ask("two é")]
    assert [t.response_status for t in took] == [200, 200]
    assert b"message_stop" in answers[0] and b"secret" not in out.read_bytes()


@pytest.mark.parametrize("mode", ["sequence", "canonical", "bytes"])
def test_a_replay_gives_each_request_what_it_got(tmp_path: Path, mode: Any) -> None:
    out = tmp_path / "r.jsonl"
    answers = recorded(out)
    replay = Replay(load_recording(out), mode=mode)
    said = [
        replay.answer(Request("POST", "/v1/messages", {}, {}, ask(w))) for w in ("one", "two é")
    ]
    assert [b"".join(r.steps) for r in said] == answers


def took(body: Json) -> Took:
    raw = msgspec.json.encode(body)
    from base64 import b64encode

    return Took(1, 0.0, "POST", "/v1/messages", b64encode(raw).decode(), "", 200, {}, ((0.0, ""),))


def status(mode: Any, old: Json, new: Json) -> tuple[int, str]:
    replay = Replay([took(old)], mode=mode)
    raw = msgspec.json.encode(new)
    response = replay.answer(Request("POST", "/v1/messages", {}, {}, raw))
    return response.status, replay.world.ledger[0].error


A = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
B = {"messages": [{"content": "a", "role": "user"}], "model": "m"}
C = {"model": "m", "messages": [{"role": "user", "content": "b"}]}


def test_the_three_ways_to_match() -> None:
    assert status("sequence", A, C) == (200, "")
    assert status("canonical", A, B) == (200, "")
    assert status("bytes", A, A) == (200, "")
    assert status("canonical", A, C)[0] == 409
    code, why = status("bytes", A, C)
    assert (code, "messages[0].content changed (byte" in why) == (409, True)
    assert "only in spacing or order of keys" in status("bytes", A, B)[1]


@pytest.mark.parametrize(
    ("new", "where"),
    [
        ({"model": "m"}, "messages is missing"),
        ({**A, "x": 1}, "x was added"),
        ({**A, "messages": []}, "messages has 0 items, not 1"),
    ],
)
def test_a_difference_is_told_by_path(new: Json, where: str) -> None:
    assert difference(msgspec.json.encode(A), msgspec.json.encode(new)).startswith(where)


def test_a_recording_that_has_run_out_says_so() -> None:
    replay = Replay([], mode="sequence")
    assert replay.answer(Request("POST", "/v1/messages", {}, {}, b"{}")).status == 409
    assert replay.world.ledger[0].error == "the recording ends after 0 requests"


def test_a_torn_recording_is_told_by_line(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    out.write_text("{}\n")
    with pytest.raises(UserError, match=r"r.jsonl: line 1"):
        load_recording(out)


def test_the_official_package_cannot_tell_a_replay_from_the_real_thing(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    recorded(out)
    replay = Replay(load_recording(out))
    with (
        replaying(replay) as api,
        anthropic.Anthropic(api_key="k", base_url=api.url) as sdk,
        sdk.messages.stream(
            model=OPUS, max_tokens=9, messages=[{"role": "user", "content": "x"}]
        ) as stream,
    ):
        assert stream.get_final_message().content[0].text == "one"


# --- recorded sessions ----------------------------------------------------------------------------


def play(session: Trajectory, *, humans: int) -> Client:
    """An agent whose tools give the recorded results, and whose people say what they said."""
    lab = Client(session, models={OPUS: {"window": 10_000_000}})
    history: list[Json] = []
    for words in session.humans[:humans]:
        history.append(user(told(words)))
        for _ in range(200):
            lab.ask(history, cache_control={"type": "ephemeral"}, max_tokens=100_000)
            assert lab.status == 200, lab.body
            content = lab.body["content"]
            history.append(assistant(*content))
            calls = [block["id"] for block in content if block["type"] == "tool_use"]
            if not calls:
                break
            kept = ("type", "tool_use_id", "content", "is_error")
            results = [session.result(call) for call in calls]
            history.append(user(*({k: r[k] for k in kept if k in r} for r in results)))
    return lab


@pytest.mark.skipif(
    not SESSIONS.is_dir(), reason="the recorded sessions are not beside the project"
)
def test_a_recorded_session_is_played_word_for_word() -> None:
    session = load_trajectory(SESSIONS / "claude-code-01caa511424b.jsonl.gz")
    lab = play(session, humans=5)
    said = [
        block["input"]
        for exchange in lab.world.ledger
        for block in exchange.reply
        if block["type"] == "tool_use"
    ]
    recorded_ = [
        block["input"]
        for message in session.messages
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
    assert len(said) > 30 and said == recorded_[: len(said)]
    lab.world.ledger.append_only()
    lab.world.ledger.no_orphans()
    assert lab.world.ledger.cache_hit_ratio() > 0.8


def short_sessions() -> list[str]:
    if not SESSIONS.is_dir():
        return []
    rows = [msgspec.json.decode(line) for line in (SESSIONS / "INDEX.jsonl").open("rb")]
    claude = [row["id"] for row in rows if row["agent"] == "claude-code" and row["n_messages"] < 40]
    return sorted(claude)[:12]


@pytest.mark.skipif(
    not SESSIONS.is_dir(), reason="the recorded sessions are not beside the project"
)
@pytest.mark.parametrize("id", short_sessions())
def test_recorded_sessions_make_requests_that_the_api_would_take(id: str) -> None:
    lab = play(load_trajectory(SESSIONS / f"{id}.jsonl.gz"), humans=3)
    lab.world.ledger.append_only()
    lab.world.ledger.no_invalid()


def test_what_was_said_while_the_model_worked_opens_no_turn() -> None:
    def message(role: str, origin: str, words: str) -> Json:
        return {"role": role, "origin": origin, "content": [told(words)]}

    session = Trajectory(
        {},
        (
            message("user", "human", "one"),
            message("user", "human", "and this"),
            message("assistant", "model", "ok"),
            message("user", "tool", "result"),
            message("user", "human", "hurry"),
            message("assistant", "model", "done"),
            message("user", "human", "two"),
        ),
    )
    assert session.humans == ["one\nand this", "two"]


def test_an_aside_is_answered_by_a_summary(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    rows = [
        {"type": "session", "id": "s"},
        {"type": "message", "role": "user", "origin": "human", "content": [told("hello")]},
        {"type": "message", "role": "assistant", "content": [told("hi")]},
    ]
    file.write_bytes(b"\n".join(msgspec.json.encode(row) for row in rows))
    lab = Client(load_trajectory(file))
    lab.ask([user(told("hello"))])
    assert lab.body["content"][0]["text"] == "hi"
    lab.ask([user(told("Summarise what we know of src/a.py"))])
    assert lab.body["content"][0]["text"] == "<summary>\n- src/a.py\n</summary>"


@pytest.mark.parametrize(
    ("content", "said"), [(b"{", "line 1"), (b"{}", "not a recorded"), (b"\x1f\x8bx", "")]
)
def test_a_bad_session_file_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(content)
    with pytest.raises(UserError, match=f"bad.jsonl.*{said}"):
        load_trajectory(file)
