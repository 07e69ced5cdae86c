"""Session stores of claude-agent-sdk: written by us, and resumed from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk", reason="needs claude-agent-sdk")

from claude_agent_sdk import (
    InMemorySessionStore,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
)

from tests.conformance.driver import House, result, said, use


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_a_session_goes_on_elsewhere_from_the_hosts_store(house: House) -> None:
    store: Any = InMemorySessionStore()

    async def main() -> None:
        # No real folder of Claude Code is needed: the store gets everything over the pipe.
        env = {"CLAUDE_CONFIG_DIR": str(house.home / "claude")}
        first = result(await house.ask("look", session_store=store, env=env))
        key = {"project_key": project_key_for_directory(house.folder)}
        entries = await store.load({**key, "session_id": first.session_id})
        assert entries
        assert len({one["uuid"] for one in entries}) == len(entries)
        read = await get_session_messages_from_store(store, first.session_id, str(house.folder))
        assert [one.type for one in read][-3:] == ["assistant", "user", "assistant"]
        (listed,) = await list_sessions_from_store(store, str(house.folder))
        assert listed.session_id == first.session_id

        shutil.rmtree(house.home)  # another machine
        again = result(
            await house.ask("more", session_store=store, resume=first.session_id, env=env)
        )
        assert again.session_id == first.session_id and again.result == "done"
        house.api.append_only()
        assert again.usage["cache_read_input_tokens"] > 0.9 * len(str(house.api.bodies[0])) / 8

        last = result(await house.ask("end", session_store=store, resume=first.session_id, env=env))
        assert last.result == "done"  # from the log on this machine, which the store agrees with
        house.api.append_only()
        entries = await store.load({**key, "session_id": first.session_id})
        assert len({one["uuid"] for one in entries}) == len(entries)

    house.run([use("Glob", pattern="*"), *(said("done") for _ in range(3))], main)
    assert house.unexpected_errors() == []


def test_without_a_store_no_frames_are_sent(house: House) -> None:
    async def main() -> None:
        assert result(await house.ask("look")).result == "done"

    house.run([said("done")], main)
