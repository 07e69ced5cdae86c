"""A chat bot over HTTP with server-sent events (extra `web`): POST /chats/NAME with the message.

`uvicorn chat_server:app`; each chat is a session that lives on across restarts.
"""

import json
from collections.abc import AsyncIterator
from uuid import NAMESPACE_URL, uuid5

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from travois import Budget, Options, Session, TextDelta, ToolCallStarted, TurnEnded


def options_for(name: str) -> Options:
    return Options(
        model="anthropic/claude-opus-5-5",
        builtin_tools=["Read", "Grep", "Glob"],
        resume=str(uuid5(NAMESPACE_URL, f"chat:{name}")),
        create_missing=True,
        budget=Budget(turns=20, dollars=5.0),
    )


def encode_event(kind: str, value: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n"


async def answer(name: str, message: str) -> AsyncIterator[str]:
    """Yield the events of one answer; a client that leaves stops the turn."""
    async with Session(options_for(name)) as session:
        async for event in session.stream(message):
            match event:
                case TextDelta():
                    yield encode_event("text", event.text)
                case ToolCallStarted():
                    yield encode_event("tool", event.name)
                case TurnEnded():
                    yield encode_event("end", {"why": event.result.why, "cost": event.result.cost})
                case _:
                    pass


async def chat(request: Request) -> StreamingResponse:
    message = (await request.body()).decode()
    events = answer(request.path_params["name"], message)
    return StreamingResponse(events, media_type="text/event-stream")


app = Starlette(routes=[Route("/chats/{name}", chat, methods=["POST"])])
