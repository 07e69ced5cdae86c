from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commanding import run
from tests.sessions.sample import EPOCH, clock, entries, opened, recorded, turns
from travois.commands import audit
from travois.commands.audit import RequestCheck, check_requests, check_requests_from_scratch
from travois.core.facts import Assistant, Rewound, Sent
from travois.core.view import project_view
from travois.providers.encoder import RequestEncoder
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import LOG_FILE_NAME, SessionLog


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TravoisHome:
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    return TravoisHome(tmp_path / "home").prepare()


def fetch(name: str) -> bytes:
    raise KeyError(name)


def test_every_request_of_a_sound_session_is_derived_again(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(home.session_folder("p", "s1"), 5)
    for words in ((), ("--cold",)):
        assert run(audit, "audit", "s1", *words) == 0
        out = capsys.readouterr().out
        assert out == "10 requests checked, 0 differ from what was sent\n"


def test_a_request_that_is_not_what_the_log_says_is_named(
    home: TravoisHome, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = home.session_folder("p", "s1")
    with SessionLog.create(folder, opened(), clock=clock()) as log:
        for fact in (EPOCH, *turns(1)):
            if isinstance(fact, Assistant):
                asked = RequestEncoder(fetch).build_request(project_view(log.read()))
                digest = "0" * 32 if fact.stop == "end" else asked.digest
                log.append(Sent(asked.pieces, asked.chain, digest, len(asked.body)))
            log.append(fact)
    wrong = next(e.seq for e in entries(folder) if isinstance(e.fact, Sent) and e.seq > 5)
    assert run(audit, "audit", "s1") == 1
    out = capsys.readouterr().out
    assert out.startswith(f"entry {wrong}: digest: sent '{'0' * 32}', derived '")
    assert out.endswith("2 requests checked, 1 differ from what was sent\n")


def test_a_damaged_log_does_not_pass(home: TravoisHome, capsys: pytest.CaptureFixture[str]) -> None:
    path = home.session_folder("p", "s1") / LOG_FILE_NAME
    recorded(path.parent, 3)
    path.write_bytes(path.read_bytes().replace(b"question 0", b"question X", 1))
    assert run(audit, "audit", "s1", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["session"], found["requests"], len(found["lost"])) == ("s1", 6, 1)
    assert len(found["wrong"]) >= 1


def test_a_lost_result_is_said_not_crashed_on(home: TravoisHome) -> None:
    path = home.session_folder("p", "s1") / LOG_FILE_NAME
    recorded(path.parent, 2)
    path.write_bytes(path.read_bytes().replace(b"line two 0", b"line two X", 1))
    found = [request.problem for request in check_requests(entries(path.parent), fetch)]
    assert found[0] == ""
    assert found[1] == "could not have been sent: calls without a result: ['call-0']"


def test_warm_and_cold_agree_also_after_a_rewind_and_in_a_fork(home: TravoisHome) -> None:
    recorded(home.session_folder("p", "s1"), 4)
    with SessionLog.open(home.session_folder("p", "s1")) as log:
        log.append(Rewound(11))
        for fact in turns(2, start=10):
            if isinstance(fact, Assistant):
                asked = RequestEncoder(fetch).build_request(project_view(log.read()))
                log.append(Sent(asked.pieces, asked.chain, asked.digest, len(asked.body)))
            log.append(fact)
    parent = entries(home.session_folder("p", "s1"))
    recorded(home.session_folder("p", "s2"), 2, first=opened("s2", parent="s1", at=parent[-1].seq))
    for id, count in (("s1", 12), ("s2", 16)):
        found = entries(home.session_folder("p", id))
        seqs = [entry.seq for entry in found if isinstance(entry.fact, Sent)]
        assert list(check_requests(found, fetch)) == [RequestCheck(seq, "") for seq in seqs]
        assert list(check_requests_from_scratch(found, fetch)) == list(check_requests(found, fetch))
        assert len(seqs) == count
