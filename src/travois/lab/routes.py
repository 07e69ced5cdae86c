"""Which request goes where."""

from __future__ import annotations

from travois.lab.anthropic import count_tokens, create_message
from travois.lab.chat import create_completion
from travois.lab.http import Request, Response, reply_json
from travois.lab.models import list_models, show_model
from travois.lab.world import World


def answer(world: World, request: Request) -> Response:
    """The lab's answer to any request."""
    path = request.path.rstrip("/")
    match request.method, path:
        case "POST", "/v1/messages":
            return create_message(world, request)
        case "POST", "/v1/messages/count_tokens":
            return count_tokens(world, request)
        case "POST", "/v1/chat/completions" | "/chat/completions":
            return create_completion(world, request)
        case "GET", "/v1/models":
            return list_models(world, request)
        case "GET", _ if path.startswith("/v1/models/"):
            return show_model(world, request)
        case _:
            return _missing(request)


def _missing(request: Request) -> Response:
    message = f"lab: nothing is served at {request.method} {request.path}"
    error = {"type": "not_found_error", "message": message}
    return reply_json({"type": "error", "error": error, "request_id": "req_lab"}, status=404)
