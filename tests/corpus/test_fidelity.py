"""The fidelity bench measures what it says: small sessions whose figures are known."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from bench.billing import HEAD, Bill, Seen, seen, tokens
from bench.fidelity import KEEP_ALL, Task, keep_all, measure, total
from bench.replay import Player, Setting, Watcher, replay
from bench.steps import Step, script

from tests.corpus.recorded import FOLDER, needed
from travois.context.layers import ContextLayers
from travois.core.content import Call, Text
from travois.core.facts import User

PROBE = FOLDER.parent / "fidelity" / "fidelity.py"
NO_FILES = ContextLayers(restore=False, pressure=False)
LINE = "the quick brown fox jumps over the lazy dog number {}\n"


def message(role: str, origin: str, at: float, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "origin": origin, "t": at, "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def session(rounds: int, *, pause: float = 10.0, size: int = 50) -> list[dict[str, Any]]:
    """A person asks once, and the model reads file after file."""
    said = [message("user", "human", 0.0, text("Please read all the files."))]
    for n in range(rounds):
        use = {"type": "tool_use", "id": "again", "name": "Read", "input": {"file_path": f"f{n}"}}
        thought = {"type": "thinking", "thinking": "hm"}
        given = "".join(LINE.format(n * size + i) for i in range(size))
        answer = {"type": "tool_result", "tool_use_id": "again", "content": given}
        said.append(message("assistant", "model", 1 + n * pause, thought, text(f"No. {n}."), use))
        said.append(message("user", "tool", 2 + n * pause, answer))
    said.append(message("assistant", "model", 1 + rounds * pause, text("Done.")))
    return said


def recording(folder: Path, told: list[dict[str, Any]]) -> Path:
    path = folder / "long.jsonl.gz"
    head = {"type": "session", "id": "long", "agent": "none", "cwd": "/w"}
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for row in (head, *({"type": "message", **message} for message in told)):
            print(json.dumps(row), file=file)
    return path


def played(folder: Path, steps: list[Step], **more: Any) -> tuple[Player, str, list[Seen]]:
    requests: list[Seen] = []
    watcher = Watcher(lambda step, request, compactions: requests.append(request))
    setting = Setting(**({"window": 200_000, "layers": KEEP_ALL} | more))
    return *replay(steps, folder / "s", setting=setting, watcher=watcher), requests


def test_recorded_messages_become_steps_without_thinking() -> None:
    told = session(2)
    told.insert(3, message("user", "meta", 2.5, text("a reminder")))
    first, second, last = script(told)
    assert first.said == (User((Text("Please read all the files."),)),)
    assert first.content == (Text("No. 0."), Call("again", "Read", '{"file_path": "f0"}'))
    assert second.said == (User((Text("a reminder"),), origin="note"),)
    assert [*second.results] == ["again_1"]
    assert (last.index, last.content, last.said) == (6, (Text("Done."),), ())


def test_with_every_layer_off_the_engine_sends_all_and_costs_what_keeping_all_costs(
    tmp_path: Path,
) -> None:
    steps = script(session(5))
    player, died, requests = played(tmp_path, steps)
    assert died == ""
    sizes = [HEAD + sum(map(tokens, request.texts)) for request in requests]
    assert (player.bill.calls, player.bill.breaks, player.bill.over) == (6, 0, 0)
    assert player.bill.read == sum(sizes[:-1])
    assert player.bill.write == sizes[-1]
    assert player.bill.billed == pytest.approx(keep_all(script(session(5))))
    assert all(LINE.format(n).strip() in requests[-1].text for n in range(250))


def test_a_pause_longer_than_the_cache_lives_is_paid_for(tmp_path: Path) -> None:
    steps = script(session(3, pause=301.0))
    player, _, _ = played(tmp_path, steps)
    assert player.bill.read == 0
    assert player.bill.billed == pytest.approx(keep_all(steps))


def test_requests_over_the_window_are_counted(tmp_path: Path) -> None:
    player, died, _ = played(tmp_path, script(session(5)), window=HEAD + 3_000)
    assert (died, player.bill.over) == ("", 3)


def test_the_layers_of_the_program_keep_a_long_session_in_its_window(tmp_path: Path) -> None:
    player, died, requests = played(
        tmp_path, script(session(40, size=80)), window=48_000, layers=ContextLayers(pressure=False)
    )
    assert (died, player.bill.over) == ("", 0)
    assert player.counts["Compacted"] >= 1
    assert "Please read all the files." in requests[-1].text


def test_the_bill_knows_a_changed_prefix_and_a_changed_head() -> None:
    bill = Bill(window=100_000)
    one, other = "x" * 275_000, "y" * 275
    assert bill.charge(Seen(b"h", (one,)), at=0.0) == (0, HEAD + 100_001)
    assert bill.charge(Seen(b"h", (one, other)), at=300.0) == (HEAD + 100_001, 101)
    assert bill.charge(Seen(b"h", (other, one)), at=300.0) == (HEAD, 100_102)
    assert bill.charge(Seen(b"i", (other, one)), at=300.0) == (0, HEAD + 100_102)
    assert bill.charge(Seen(b"i", (other, one)), at=900.0) == (0, HEAD + 100_102)
    assert (bill.breaks, bill.over) == (2, 5)
    assert bill.aside(Seen(b"i", (other,)), output=10) == HEAD + 101
    assert bill.extra == pytest.approx(0.1 * (HEAD + 101) + 50)


def test_what_a_request_shows_is_read_from_its_bytes() -> None:
    body = json.dumps(
        {
            "system": "s",
            "messages": [
                {"role": "user", "content": [text("hello")]},
                {"content": [{"type": "tool_use", "id": "a", "name": "Read", "input": {"p": "ü"}}]},
                {"content": [{"type": "tool_result", "tool_use_id": "a", "content": [text("x")]}]},
            ],
        },
        ensure_ascii=False,
    )
    assert seen(body.encode()) == Seen(b'"s"', ("hello", 'Read {"p": "ü"}', "x"))


@needed
def test_a_long_session_that_keeps_all_has_full_marks_at_full_price(tmp_path: Path) -> None:
    path = recording(tmp_path, session(60, size=100))
    row = measure(Task(str(path), str(PROBE), 200_000, KEEP_ALL))
    assert row is not None and not row.died
    found = total([row], window=200_000, seconds=0.0)
    assert set(found["fidelity"].values()) == {1.0}
    assert found["billed_ratio"] == pytest.approx(1.0)
    assert (found["sessions"], found["over_window"], found["breaks_per_100_calls"]) == (1, 0, 0.0)


@needed
def test_an_edit_whose_text_is_out_of_sight_lowers_the_share_of_edits(tmp_path: Path) -> None:
    """With everything kept the edit could be written; after compactions it is one read away."""
    told = session(70, size=100)
    change = {"file_path": "f0", "old_string": LINE.format(3).strip(), "new_string": "x"}
    use = {"type": "tool_use", "id": "e", "name": "Edit", "input": change}
    done = {"type": "tool_result", "tool_use_id": "e", "content": "ok"}
    told[-1:] = [message("assistant", "model", 701.0, use), message("user", "tool", 702.0, done)]
    told.append(message("assistant", "model", 703.0, text("Done.")))
    path = recording(tmp_path, told)
    whole, less = (
        measure(Task(str(path), str(PROBE), 60_000, layers)) for layers in (KEEP_ALL, NO_FILES)
    )
    assert whole is not None and less is not None
    shares = [total([row], window=0, seconds=0.0) for row in (whole, less)]
    assert [found["edit"] for found in shares] == [1.0, 0.0]
    assert [found["edit_of_keep_all"] for found in shares] == [1.0, 0.0]
    assert [shares[0]["continuation"], shares[0]["stale"], shares[0]["judged"]] == [None, 0, 0]
    assert shares[1]["judged"] > 0


@needed
@pytest.mark.slow
def test_a_recorded_session_goes_through_the_program_and_stays_in_its_window() -> None:
    path = FOLDER / "claude-code-0780117d7671.jsonl.gz"
    row = measure(Task(str(path), str(PROBE), 100_000, ContextLayers()))
    assert row is not None and not row.died
    assert row.figures["over"] == 0
    assert row.figures["billed"] < row.figures["keep_all"]
    assert all(score["all"]["F"] > 0.8 for score in row.scores)


def test_each_lost_prefix_is_told_with_its_cause(tmp_path: Path) -> None:
    steps = script(session(60, size=400, pause=10.0))
    player, died, _ = played(tmp_path, steps, window=60_000, layers=ContextLayers(clear=False))
    assert died == ""
    assert sum(player.causes.values()) == player.bill.breaks > 0
    assert set(player.causes) <= {"compaction (auto)", "compaction (overflow)"}


def test_old_results_are_cleared_before_anything_is_compacted(tmp_path: Path) -> None:
    steps = script(session(60, size=80, pause=10.0))
    compacted, _, _ = played(
        tmp_path / "a", steps, window=60_000, layers=ContextLayers(clear=False)
    )
    cleared, died, _ = played(tmp_path / "b", steps, window=60_000, layers=ContextLayers())
    assert (died, cleared.bill.over) == ("", 0)
    assert cleared.counts["Cleared"] > 0
    assert cleared.counts.get("Compacted", 0) < compacted.counts["Compacted"]
