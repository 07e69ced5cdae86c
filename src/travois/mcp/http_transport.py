"""MCP servers at an address: HTTP transports, headers, and questions to the user."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import msgspec

from travois.core.display_text import escape_invisible
from travois.core.json import as_list, as_object, as_string
from travois.hooks.events import Elicitation, ElicitationResult
from travois.hooks.output import HookDecision
from travois.lazy_imports import lazy_imports
from travois.mcp.oauth import login_hint
from travois.mcp.tools import McpServerConfig
from travois.ports.world import Choice, ChoiceOption, Command, Env, Processes, UnansweredQuestion

if TYPE_CHECKING:
    import httpx2
    from anyio.streams.memory import MemoryObjectReceiveStream
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage
    from mcp_types import ElicitRequestParams, ElicitResult

    from travois.mcp.oauth_provider import StoredLoginProvider

    ElicitedValue = str | int | float | bool | list[str] | None

with lazy_imports():
    import mcp_types
    from mcp.client import sse as client_sse
    from mcp.client import streamable_http
    from mcp.shared import _httpx_utils


REFUSED_STATUSES = frozenset((401, 403))
SESSION_UNKNOWN_STATUS = 404
AUTHORIZATION_REFUSED = "it rejects the configured Authorization header"
SESSION_HEADER = "mcp-session-id"
HEADERS_TIMEOUT_SECONDS = 10.0
"""Seconds that a headers command may take."""


@asynccontextmanager
async def connect_remote(
    server: McpServerConfig,
    *,
    auth: StoredLoginProvider | None = None,
    headers: dict[str, str] | None = None,
    forgotten: Callable[[], None] = lambda: None,
    ended: Callable[[], None] = lambda: None,
) -> AsyncGenerator[TransportStreams]:
    """Connect to a remote MCP server by HTTP.

    `forgotten` is called when the server no longer knows our session, `ended` when its stream ends.
    """
    told = {**server.headers, **(headers or {})}

    async def check_status(response: httpx2.Response) -> None:
        if auth is None and response.status_code in REFUSED_STATUSES:
            ours = "authorization" in map(str.lower, told)
            raise PermissionError(AUTHORIZATION_REFUSED if ours else login_hint(server))
        if auth is not None:
            auth.check_response(response)
        if (
            response.status_code == SESSION_UNKNOWN_STATUS
            and SESSION_HEADER in response.request.headers
        ):
            forgotten()

    def create_client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        made = _httpx_utils.create_mcp_http_client(headers, timeout, auth)
        made.event_hooks = {"response": [check_status]}
        return made

    if server.kind == "sse":
        sse = client_sse.sse_client(server.url, told, httpx_client_factory=create_client, auth=auth)
        async with sse as (read, write), _watch_stream_end(read, ended) as heard:
            yield heard, write
        return
    async with (
        create_client(told, auth=auth) as http,
        streamable_http.streamable_http_client(server.url, http_client=http) as (read, write),
    ):
        yield read, write


@asynccontextmanager
async def _watch_stream_end(
    read: ReadStream[SessionMessage | Exception], ended: Callable[[], None]
) -> AsyncGenerator[MemoryObjectReceiveStream[SessionMessage | Exception]]:
    """Forward a remote MCP server's messages, and report the end of its stream."""
    bring, heard = anyio.create_memory_object_stream["SessionMessage | Exception"](0)

    async def pass_on() -> None:
        async with bring:
            async for message in read:
                await bring.send(message)
        ended()

    async with heard, anyio.create_task_group() as group:
        group.start_soon(pass_on)
        yield heard
        group.cancel_scope.cancel()


async def run_headers_helper(server: McpServerConfig, processes: Processes) -> dict[str, str]:
    """Run the user's command that prints HTTP headers for an MCP server; raises OSError if none."""
    known = {"MCP_SERVER_NAME": server.name, "MCP_SERVER_URL": server.url}
    env = known | {f"CLAUDE_CODE_{name}": value for name, value in known.items()}
    command = Command(("/bin/sh", "-c", server.helper), server.cwd, env, stderr="apart")
    done = await processes.run(command, timeout=HEADERS_TIMEOUT_SECONDS)
    try:
        return msgspec.json.decode(done.output.head_and_tail(), type=dict[str, str])
    except msgspec.DecodeError:
        why = f"its headersHelper did not print headers as JSON (exit code {done.status})"
        raise OSError(why) from None


# What a server wants to know from the person: shown as its question, answered by them alone.


DECLINE_LABEL = "Decline"
DONE_LABEL = "Done"
AGREE_LABEL = "Agree"
MAX_QUESTION_CHARS = 1_000
MAX_QUESTIONS_AT_ONCE = 4
"""Maximum questions asked at once."""
ELICITATION_WARNING = "This question comes from an MCP server: do not enter keys or passwords."


async def answer_elicitation(server: str, params: ElicitRequestParams, env: Env) -> ElicitResult:
    """Answer an MCP server's question by a hook, else by the user; hooks may change it."""
    schema, url, id = None, "", ""
    if params.mode == "url":
        url, id = params.url, params.elicitation_id or ""
    else:
        schema = params.requested_schema
    mode = params.mode or "form"
    heard = await env.fire_hooks(Elicitation(server, params.message, mode, schema, url, id))
    if answer := _answer_from_hooks(heard):
        return answer
    given = await _ask_person(server, params, env)
    told = ElicitationResult(server, given.action, mode, given.content, id)
    return _answer_from_hooks(await env.fire_hooks(told)) or given


def _answer_from_hooks(decision: HookDecision) -> mcp_types.ElicitResult | None:
    """Return the elicitation answer that hooks give in the user's place, if any."""
    if decision.block:
        return mcp_types.ElicitResult(action="decline")
    content = msgspec.json.decode(decision.content) if decision.content else None
    return (
        mcp_types.ElicitResult(action=decision.action, content=content) if decision.action else None
    )


async def _ask_person(server: str, params: ElicitRequestParams, env: Env) -> mcp_types.ElicitResult:
    """Show an MCP elicitation to the user; without an answer it counts as cancelled."""
    fields = (
        {}
        if params.mode == "url"
        else as_object(as_object(params.requested_schema).get("properties"))
    )
    head = f"{server} asks: {_clean_question_text(params.message)}\n{ELICITATION_WARNING}"
    if params.mode == "url":
        choices = [
            Choice(
                f"{head}\nOpen {_clean_question_text(params.url)}",
                (ChoiceOption(DONE_LABEL), ChoiceOption(DECLINE_LABEL)),
            )
        ]
    elif not fields:
        choices = [Choice(head, (ChoiceOption(AGREE_LABEL), ChoiceOption(DECLINE_LABEL)))]
    else:
        choices = [_field_choice(head, name, as_object(shape)) for name, shape in fields.items()]
    try:
        answers: list[str] = []
        for start in range(0, len(choices), MAX_QUESTIONS_AT_ONCE):
            answers += await env.choose(tuple(choices[start : start + MAX_QUESTIONS_AT_ONCE]))
    except UnansweredQuestion:
        return mcp_types.ElicitResult(action="cancel")
    if DECLINE_LABEL in answers:
        return mcp_types.ElicitResult(action="decline")
    pairs = zip(fields.items(), answers, strict=False)
    values = {name: _convert_answer(as_object(shape), answer) for (name, shape), answer in pairs}
    return mcp_types.ElicitResult(action="accept", content=values if params.mode != "url" else None)


def _field_choice(head: str, name: str, shape: dict[str, object]) -> Choice:
    """Build the choice for one field of an elicitation, with the answers its schema lists."""
    label = _clean_question_text(as_string(shape.get("title")) or name)
    about = _clean_question_text(as_string(shape.get("description")))
    named = [str(one) for one in as_list(shape.get("enum"))]
    named = named or (["yes", "no"] if shape.get("type") == "boolean" else [])
    options = (
        *(ChoiceOption(_clean_question_text(one)) for one in named),
        ChoiceOption(DECLINE_LABEL),
    )
    return Choice(f"{head}\n{label}: {about}", options, header=label[:20])


def _convert_answer(shape: dict[str, object], answer: str) -> ElicitedValue:
    """Convert the user's answer to the type of an elicitation field."""
    match shape.get("type"):
        case "boolean":
            return answer.strip().lower() in ("yes", "true", "y", "1")
        case "integer" | "number" if _parse_number(answer) is not None:
            return _parse_number(answer)
        case "array":
            return [part.strip() for part in answer.split(",")]
        case _:
            return answer


def _parse_number(text: str) -> int | float | None:
    """Parse a number in the answer to an elicitation; None if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() else value


def _clean_question_text(text: str) -> str:
    return escape_invisible(" ".join(text.split()))[:MAX_QUESTION_CHARS]
