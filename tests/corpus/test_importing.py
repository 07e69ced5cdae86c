"""Every recorded session of real agents, imported: each can be gone on with, at any provider."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.corpus.recorded import FOLDER, needed, sessions
from travois.compose.open_session import SYSTEM_PROMPT_FILE
from travois.core.content import Text
from travois.core.facts import Entry, Epoch, User
from travois.core.legality import find_send_blocker, find_violation
from travois.core.models import ApiProtocol, ModelCard
from travois.core.view import View
from travois.engine.tool_definitions import build_tool_specs
from travois.importing.sessions import import_session, lock_staging_folder, recognize_session_file
from travois.providers.encoder import RequestEncoder
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import LOG_FILE_NAME, read_entries
from travois.tools.catalog import TOOLS
from travois_lab.validate import anthropic_faults
from travois_lab.validate_chat import chat_faults
from travois_lab.validate_items import gemini_faults, responses_faults

pytestmark = needed
JUDGES: dict[ApiProtocol, Callable[[bytes], list[str]]] = {
    "anthropic": anthropic_faults,
    "chat": chat_faults,
    "responses": responses_faults,
    "gemini": gemini_faults,
}


def nothing(name: str) -> bytes:
    raise KeyError(name)


def entered(log: Path) -> tuple[View, int]:
    """The view of a log, each of whose facts was legal where it stands; and its last number."""
    view, skipped, last = View(), list[object](), 0
    for entry in read_entries(log, skipped):  # type: ignore[arg-type]
        assert not find_violation(view, entry.fact), entry
        view.add(entry)
        last = entry.seq
    assert skipped == []
    return view, last


@pytest.mark.parametrize("shard", range(4))
def test_every_recorded_session_resumes_with_a_request_that_each_provider_takes(
    tmp_path: Path, shard: int
) -> None:
    home, head = (
        TravoisHome(tmp_path).prepare(),
        (SYSTEM_PROMPT_FILE.read_text("utf-8"), build_tool_specs(TOOLS)),
    )
    with lock_staging_folder(home) as folder:
        for name in sessions()[shard::4]:
            id = import_session(home, recognize_session_file(FOLDER / name), folder, environ={})
            (log,) = home.sessions.glob(f"*/{id}/{LOG_FILE_NAME}")
            view, last = entered(log)
            for number, protocol in enumerate(JUDGES, last + 1):
                view.add(Entry(number, 0.0, Epoch(ModelCard("p", "m", protocol), *head)))
                if number == last + 1:
                    view.add(Entry(number, 0.0, User((Text("go on"),))))
                assert find_send_blocker(view) == ""
                request = RequestEncoder(nothing).build_request(view)
                assert JUDGES[protocol](request.body) == [], (name, protocol)
