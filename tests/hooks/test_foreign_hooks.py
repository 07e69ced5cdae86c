"""Hooks that were written for Codex and for Gemini CLI, where they lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.content import extract_text
from travois.core.facts import Hooked, Result, User
from travois.testing import Scripted, calls, say


class Home:
    """A person with files of other agents, and what their hooks were told."""

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, path / "work"
        self.folder.mkdir()
        self.notices = ""

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def script(self, name: str, then: str = "") -> str:
        """A program that keeps what it hears, and then does as it is asked."""
        self.write(f"{name}.sh", f"cat >> {self.path}/{name}.jsonl; {then}\n")
        return f"sh {self.path}/{name}.sh"

    def told(self, name: str) -> dict[str, Any]:
        return json.loads((self.path / f"{name}.jsonl").read_text())

    def run(self, *uses: tuple[str, dict[str, Any]]) -> list[Any]:
        model = Scripted(*((calls(*uses),) if uses else ()), say("Done."))
        options = Options(cwd=str(self.folder), allowed=("Bash", "Edit"), sandbox=False)

        async def main() -> list[Any]:
            async with LiveSession(options, model=model) as session:
                assert await session.ask("go") == "Done."
                self.notices = "\n".join(session.runtime.notices)
                return [entry.fact for entry in session.runtime.agent.session.history()]

        return anyio.run(main)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(name, raising=False)
    return Home(tmp_path)


def results(facts: list[Any]) -> list[str]:
    return [extract_text(fact.content) for fact in facts if isinstance(fact, Result)]


def test_hooks_of_codex_run_from_both_of_its_files_with_the_fields_that_it_adds(
    home: Home,
) -> None:
    file = {"type": "command", "command": home.script("file")}
    home.write(".codex/hooks.json", json.dumps({"hooks": {"SessionStart": [{"hooks": [file]}]}}))
    home.write(
        ".codex/config.toml",
        '[[hooks.PreToolUse]]\nmatcher = "^apply_patch$"\n[[hooks.PreToolUse.hooks]]\n'
        f'type = "command"\ncommand = "{home.script("table")}"\nstatusMessage = "looking"\n'
        "[hooks.state]\ntrusted = 1\n",
    )
    home.run(("Write", {"file_path": "b.txt", "content": "b"}), ("Bash", {"command": "true"}))
    assert home.told("file")["source"] == "startup"
    told = home.told("table")
    assert (told["tool_name"], told["model"]) == ("Write", "scripted")
    assert told["turn_id"] == told["prompt_id"] != ""
    assert "hooks." not in home.notices


def test_codex_hooks_that_are_switched_off_stay_off(home: Home) -> None:
    hook = f'[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype="command"\ncommand="{home.script("x")}"\n'
    home.write(".codex/config.toml", f"[features]\nhooks = false\n{hook}")
    assert [fact for fact in home.run() if isinstance(fact, Hooked)] == []


def gemini(home: Home, **events: Any) -> None:
    groups = {name: [group] for name, group in events.items()}
    home.write(".gemini/settings.json", json.dumps({"hooks": groups}))


def hook(command: str, **more: Any) -> dict[str, Any]:
    return {"type": "command", "command": command, **more}


def test_hooks_of_gemini_hear_and_speak_as_they_are_used_to(home: Home) -> None:
    merged = {"hookSpecificOutput": {"tool_input": {"content": "changed"}}}
    before = home.script("before", f"echo '{json.dumps(merged)}'")
    after = home.script("after", """echo '{"decision":"deny","reason":"hidden"}'""")
    prompt = home.script("prompt", """echo '{"hookSpecificOutput":{"additionalContext":"hi"}}'""")
    gemini(
        home,
        BeforeTool={"matcher": "write_.*|replace", "hooks": [hook(before, timeout=9000)]},
        AfterTool={"matcher": "run_shell_command", "hooks": [hook(after, name="hide")]},
        BeforeAgent={"hooks": [hook(prompt)]},
        BeforeModel={"hooks": [hook("true")]},
    )
    facts = home.run(
        ("Write", {"file_path": f"{home.folder}/b.txt", "content": "b"}),
        ("Bash", {"command": "echo secret"}),
    )
    assert (home.folder / "b.txt").read_text() == "changed"
    assert "hidden" in results(facts)
    assert "<hook>\nhi\n</hook>" in [extract_text(f.content) for f in facts if isinstance(f, User)]
    told = home.told("before")
    assert (told["hook_event_name"], told["tool_name"]) == ("BeforeTool", "write_file")
    assert told["timestamp"].endswith("+00:00")
    told = home.told("after")
    assert (told["hook_event_name"], told["tool_name"]) == ("AfterTool", "run_shell_command")
    assert "secret" in told["tool_response"]["llmContent"]
    assert home.told("prompt")["prompt"] == "go"
    assert "hooks.BeforeModel is ignored: unknown event" in home.notices


def test_a_hook_of_gemini_blocks_with_exit_2_and_with_deny(home: Home) -> None:
    deny = home.script("deny", """echo '{"decision":"deny","reason":"not that"}'""")
    shut = home.script("shut", "echo 'not this' >&2; exit 2")
    gemini(home, BeforeTool={"hooks": [hook(f'{deny} "$GEMINI_PROJECT_DIR"'), hook(shut)]})
    facts = home.run(("Bash", {"command": "true"}))
    assert results(facts) == ["Permission denied: not that\nnot this. Nothing was run."]


def test_hooks_of_gemini_that_are_switched_off_stay_off(home: Home) -> None:
    groups = {"AfterAgent": [{"hooks": [hook("true", name="tidy"), hook("false")]}]}
    off = {"hooks": groups, "hooksConfig": {"disabled": ["tidy", "false"]}}
    home.write(".gemini/settings.json", json.dumps(off))
    assert [fact for fact in home.run() if isinstance(fact, Hooked)] == []


def test_what_a_folder_brings_for_gemini_runs_only_by_trust(home: Home) -> None:
    folder = Path(home.folder, ".gemini")
    folder.mkdir()
    groups = {"AfterAgent": [{"hooks": [hook("true")]}]}
    (folder / "settings.json").write_text(json.dumps({"hooks": groups}))
    assert [fact for fact in home.run() if isinstance(fact, Hooked)] == []
    assert "is not trusted with 1 of its settings, which are ignored (hook Stop)" in home.notices
