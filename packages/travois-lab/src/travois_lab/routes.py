"""Which request goes where."""

from __future__ import annotations

from collections.abc import Callable

from travois_lab.anthropic import count_tokens, create_message
from travois_lab.chat import create_completion
from travois_lab.clouds import invoke_model, raw_predict
from travois_lab.control import control
from travois_lab.gemini import generate_content
from travois_lab.http import Request, Response, reply_json
from travois_lab.models import list_models, show_model
from travois_lab.ollama import chat, show, tags
from travois_lab.responses import compact_response, create_response, show_response
from travois_lab.world import World

Route = Callable[[World, Request], Response]
EXACT: dict[tuple[str, str], Route] = {
    ("POST", "/v1/messages"): create_message,
    ("POST", "/v1/messages/count_tokens"): count_tokens,
    ("POST", "/v1/chat/completions"): create_completion,
    ("POST", "/chat/completions"): create_completion,
    ("POST", "/v1/responses"): create_response,
    ("POST", "/v1/responses/compact"): compact_response,
    ("GET", "/v1/models"): list_models,
    ("POST", "/api/chat"): chat,
    ("GET", "/api/tags"): tags,
    ("POST", "/api/show"): show,
}
PREFIXES: tuple[tuple[str, str, Route], ...] = (
    ("GET", "/v1/models/", show_model),
    ("GET", "/v1/responses/", show_response),
    ("POST", "/v1beta/models/", generate_content),
    ("POST", "/model/", invoke_model),
    ("POST", "/publishers/anthropic/models/", raw_predict),
    ("GET", "/lab/", control),
    ("POST", "/lab/", control),
)


def answer(world: World, request: Request) -> Response:
    """The lab's answer to any request."""
    path = request.path.rstrip("/")
    route = EXACT.get((request.method, path)) or _by_prefix(request.method, path)
    if route is not None:
        return route(world, request)
    message = f"lab: nothing is served at {request.method} {request.path}"
    error = {"type": "not_found_error", "message": message}
    return reply_json({"type": "error", "error": error, "request_id": "req_lab"}, status=404)


def _by_prefix(method: str, path: str) -> Route | None:
    fitting = (
        route for verb, start, route in PREFIXES if verb == method and path.startswith(start)
    )
    return next(fitting, None)
