"""The unmodified `claude-agent-sdk`, with our program in the place of the one that it bundles."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, Message, ResultMessage, query

import travois_lab as lab
from tests.e2e.program import LIMITED, write_launcher

Script = list[dict[str, Any]]


class House:
    """A folder, a home, a launcher, and a lab that answers; `claude` is Claude Code's folder."""

    def __init__(self, folder: Path, *, claude: str = os.devnull) -> None:
        self.claude = claude
        self.folder = folder / "work"
        self.folder.mkdir()
        self.home = folder / "home"
        self.launcher = folder / "launch"
        write_launcher(self.launcher)
        self.api: Any = None
        self.errors: list[str] = []

    def options(self, **chosen: Any) -> ClaudeAgentOptions:
        env = {
            "ANTHROPIC_BASE_URL": self.api.url,
            "ANTHROPIC_API_KEY": "sk-lab",
            "TRAVOIS_HOME": str(self.home),
            "HOME": str(self.home.parent),
            "CLAUDE_CONFIG_DIR": self.claude,
        }
        return ClaudeAgentOptions(
            cli_path=self.launcher,
            cwd=self.folder,
            env=env | chosen.pop("env", {}),
            stderr=self.errors.append,
            **{"model": "anthropic/claude-opus-5-5"} | chosen,
        )

    def unexpected_errors(self) -> list[str]:
        """Return the lines on standard error, without the one about a limited sandbox."""
        return [line for line in self.errors if not line.startswith(LIMITED)]

    async def ask(
        self, prompt: Any, *, seen: list[Message] | None = None, **chosen: Any
    ) -> list[Message]:
        """All messages of one query; `seen` has those that came before it failed."""
        messages: list[Message] = [] if seen is None else seen
        async for message in query(prompt=prompt, options=self.options(**chosen)):
            messages.append(message)  # noqa: PERF401 - of a query that fails, these are left
        return messages

    def client(self, **chosen: Any) -> ClaudeSDKClient:
        return ClaudeSDKClient(self.options(**chosen))

    def run(self, script: Script | Any, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with lab.server(script) as self.api:
            anyio.run(main)
            self.api.no_invalid()


def use(name: str, /, **given: Any) -> dict[str, Any]:
    """A reply that is one call."""
    return {"say": [{"tool_use": {"name": name, "input": given}}]}


def said(text: str) -> dict[str, Any]:
    return {"say": [{"text": text}]}


async def response(client: ClaudeSDKClient) -> list[Message]:
    return [message async for message in client.receive_response()]


def result(messages: list[Message]) -> ResultMessage:
    last = messages[-1]
    assert isinstance(last, ResultMessage)
    return last
