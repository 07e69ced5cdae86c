"""The lines that a program which drives us writes: messages, requests, and answers to ours."""

from __future__ import annotations

from typing import Any

import msgspec

NOTHING = msgspec.Raw(b"{}")


class Matcher(msgspec.Struct, frozen=True, rename="camel"):
    """Callbacks that hear of an event under one condition."""

    hook_callback_ids: tuple[str, ...] = ()
    matcher: str | None = None
    timeout: float | None = None
    on_failure: str | None = None


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """Something that the host wants; which members count depends on `subtype`."""

    subtype: str
    hooks: dict[str, tuple[Matcher, ...]] | None = None
    sdk_mcp_servers: tuple[str, ...] | None = None
    system_prompt: str | tuple[str, ...] | None = None
    append_system_prompt: str | None = None
    agents: dict[str, Any] | None = None
    json_schema: dict[str, Any] | None = None
    forward_subagent_text: bool | None = None
    mode: str = ""
    model: str | None = None
    user_message_id: str = msgspec.field(default="", name="user_message_id")
    dry_run: bool | None = msgspec.field(default=None, name="dry_run")
    task_id: str = msgspec.field(default="", name="task_id")
    server_name: str = ""
    enabled: bool = True
    title: str = ""
    servers: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    source: str = ""
    """The file that settings are to be kept in; empty if they hold for the session."""
    speaker: str = msgspec.field(default="", name="server_name")
    message: dict[str, Any] | None = None
    """What a server that lives in the host has to say, and which one it is."""
    skills: tuple[str, ...] | None = None
    path: str = ""
    max_bytes: int | None = msgspec.field(default=None, name="max_bytes")
    encoding: str | None = None
    mtime: float = 0
    """When a host saw a file last, in milliseconds."""
    max_thinking_tokens: int | None = msgspec.field(default=None, name="max_thinking_tokens")


class Response(msgspec.Struct, frozen=True):
    """The host's answer to a request of ours."""

    request_id: str
    subtype: str = "success"
    response: msgspec.Raw = NOTHING
    error: str = ""


class Line(msgspec.Struct, frozen=True):
    """One line, as far as all have the same shape."""

    type: str
    message: msgspec.Raw = NOTHING
    request_id: str = ""
    request: msgspec.Raw = NOTHING
    response: msgspec.Raw = NOTHING
    uuid: str | None = ""
    client_composed: bool = False
    """Whether the words are to be taken as they stand, files that they mention included."""
