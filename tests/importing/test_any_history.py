"""Whatever was recorded, in whatever order: what comes of it can be sent."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from travois.compat.sessions.format import (
    RecordedCompaction,
    RecordedMedia,
    RecordedSession,
    RecordedTurn,
)
from travois.context.switch_model import TrialLog
from travois.core.content import Call, Text
from travois.core.facts import Entry, Epoch, Opened, User
from travois.core.legality import find_send_blocker
from travois.core.models import ModelCard
from travois.importing.sessions import append_recorded_session
from travois.providers.encoder import RequestEncoder
from travois.sessions.session import Session
from travois_lab.validate import anthropic_faults
from travois_lab.validate_items import responses_faults

TEXTS = st.sampled_from(("", " ", "word", "\ud800", "\0 x"))
IDS = st.sampled_from(("", "a", "b", "a b/c", "a_1"))
CALLS = st.builds(
    Call,
    IDS,
    st.sampled_from(("Bash", "shell", "", "mcp.x/y")),
    st.sampled_from(("{}", "[]", "{", '{"command":["ls"]}', '{"command":"ls"}')),
)
PICTURES = st.builds(
    RecordedMedia,
    st.sampled_from(("image/png", "application/pdf")),
    st.sampled_from(("AAAA", "A", "!")),
)
TURNS = st.lists(
    st.builds(
        RecordedTurn,
        st.sampled_from(("user", "model", "tool", "note")),
        TEXTS,
        calls=st.lists(CALLS, max_size=2).map(tuple),
        answers=IDS,
        error=st.booleans(),
        pictures=st.lists(PICTURES, max_size=1).map(tuple),
    ),
    max_size=12,
)


@st.composite
def histories(draw: st.DrawFn) -> RecordedSession:
    turns = tuple(draw(TURNS))
    places = draw(st.lists(st.integers(0, len(turns)), max_size=3, unique=True))
    shorter = tuple(
        RecordedCompaction(at, draw(TEXTS), kept=draw(st.integers(0, at))) for at in sorted(places)
    )
    return RecordedSession("x", "id", Path("f"), "/", 0.0, "", turns, shorter)


@settings(max_examples=150, deadline=None)
@given(histories())
def test_any_history_can_be_gone_on_with(history: RecordedSession) -> None:
    blobs: dict[str, bytes] = {}

    def keep(data: bytes) -> str:
        return blobs.setdefault(data.hex(), data).hex()

    session = Session(TrialLog([Entry(1, 0.0, Opened("s", "/", "p", "0"))]))
    append_recorded_session(history, session, keep=keep, tell=lambda at: None)
    session.append(Epoch(ModelCard("p", "m", "anthropic"), "system"))
    session.append(User((Text("go on"),)))
    assert find_send_blocker(session.view) == ""
    assert (
        anthropic_faults(RequestEncoder(blobs.__getitem__).build_request(session.view).body) == []
    )
    session.append(Epoch(ModelCard("p", "m", "responses"), "system"))
    assert (
        responses_faults(RequestEncoder(blobs.__getitem__).build_request(session.view).body) == []
    )
