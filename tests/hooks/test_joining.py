"""Hooks that come later, that belong to somebody, and what stands in their environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.facts import Hooked
from travois.hooks.config import Hook, parse_hooks, select_matching_hooks
from travois.hooks.events import Stop, SubagentStop
from travois.hooks.fire import add_hooks, fire_hooks
from travois.testing import Scripted, say

STOP: dict[str, Any] = {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return Options(cwd=str(folder), sandbox=False)


def runs(options: Options, *trees: dict[str, Any], effort: str = "") -> list[str]:
    """Which hooks ran in a session that these joined, the first before it said anything."""

    async def main() -> list[str]:
        async with LiveSession(options, model=Scripted(say("done"))) as session:
            agent = session.runtime.agent
            session.exert(effort)
            for tree in trees:
                add_hooks(agent, tree, origin="a skill")
            await session.ask("go")
            facts = [entry.fact for entry in agent.session.history()]
            return [fact.event for fact in facts if isinstance(fact, Hooked)]

    return anyio.run(main)


def test_hooks_may_join_a_session_that_had_none_and_the_same_one_joins_once(
    options: Options,
) -> None:
    assert runs(options) == []
    assert runs(options, STOP, STOP) == ["Stop"]


def test_where_hooks_are_switched_off_none_can_join(options: Options) -> None:
    off = msgspec.structs.replace(options, settings=json.dumps({"disableAllHooks": True}))
    assert runs(off, STOP) == []


def test_hooks_of_a_child_hear_of_it_alone_and_of_its_stop_as_of_a_childs() -> None:
    (hook,) = parse_hooks(STOP, origin="a file", whose="a1").hooks
    assert hook == Hook("command", "true", event="SubagentStop", origin="a file", whose="a1")
    end = SubagentStop("a1", "general", "", stop_hook_active=False)
    assert select_matching_hooks((hook,), end, None, whose="a1") == (hook,)
    assert select_matching_hooks((hook,), end, None, whose="a2") == ()
    assert select_matching_hooks((hook,), Stop(False, "", (), ()), None) == ()


def test_a_hook_of_a_plugin_knows_its_folders_and_every_hook_how_much_is_thought(
    options: Options, tmp_path: Path
) -> None:
    plugin = tmp_path / "plugin"
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / ".claude-plugin" / "plugin.json").write_text('{"name": "tidy"}')
    (plugin / "hooks").mkdir()
    line = 'echo "$CLAUDE_PLUGIN_ROOT|$CLAUDE_PLUGIN_DATA|$CLAUDE_EFFORT" > told; cat > event'
    hooks = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": line}]}]}}
    (plugin / "hooks" / "hooks.json").write_text(json.dumps(hooks))
    assert runs(msgspec.structs.replace(options, plugins=(str(plugin),)), effort="low") == ["Stop"]
    root, data, effort = (Path(options.cwd) / "told").read_text().strip().split("|")
    assert (root, effort, Path(data).is_dir()) == (str(plugin), "low", True)
    assert json.loads((Path(options.cwd) / "event").read_text())["effort"] == {"level": "low"}


def test_nobody_hears_anything_where_nobody_listens(options: Options) -> None:
    async def main() -> None:
        async with LiveSession(options, model=Scripted(say("done"))) as session:
            assert session.runtime.agent.hooks.active is None
            heard = await fire_hooks(session.runtime.agent, Stop(False, "", (), ()))
            assert heard.messages == ()

    anyio.run(main)
