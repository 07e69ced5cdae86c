"""Every recorded session, through our own log: I2, I4 and I8 on reality."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.corpus.recorded import facts, needed, sessions
from travois.core.facts import Assistant, Opened, Sent
from travois.core.legality import find_send_blocker
from travois.core.models import ApiProtocol
from travois.core.view import View
from travois.providers.encoder import RequestEncoder
from travois.sessions.log_file import SessionLog
from travois.sessions.session import Session
from travois_lab.validate import anthropic_faults
from travois_lab.validate_chat import chat_faults

pytestmark = needed


def nothing(name: str) -> bytes:
    raise KeyError(name)


def judged(protocol: ApiProtocol, body: bytes) -> list[str]:
    return anthropic_faults(body) if protocol == "anthropic" else chat_faults(body)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["anthropic", "chat"])
@pytest.mark.parametrize("shard", range(4))
def test_recorded_sessions_are_sent_append_only_and_derived_again(
    tmp_path: Path, protocol: ApiProtocol, shard: int
) -> None:
    for name in sessions(every=2)[shard::4]:
        folder = tmp_path / name
        opened = Opened(name, cwd="/", project="corpus", version="0")
        with SessionLog.create(folder, opened) as log:
            last = live(Session(log), protocol, name)
        assert last == [], name
        again(folder)


def live(session: Session, protocol: ApiProtocol, name: str) -> list[str]:
    """Run the session as it was recorded; the prefix is asserted before each request leaves."""
    encoder, faults = RequestEncoder(nothing), list[str]()
    for fact in facts(name, protocol):
        if isinstance(fact, Assistant) and not find_send_blocker(session.view):
            request = encoder.build_request(session.view)
            size = len(request.body)
            session.append(Sent(request.pieces, request.chain, digest=request.digest, size=size))
            if session.view.replied < 40:
                faults += judged(protocol, request.body)
        session.append(fact)
    assert session.view.sent is not None
    return faults


def again(folder: Path) -> None:
    """A cold encoder makes the same requests out of the log alone."""
    view, encoder, count = View(), RequestEncoder(nothing), 0
    with SessionLog.open(folder) as log:
        for entry in log.read():
            if isinstance(entry.fact, Sent):
                request = encoder.build_request(view)
                assert (request.digest, request.chain) == (entry.fact.digest, entry.fact.chain)
                count += 1
            view.add(entry)
    assert count
