"""`GET /v1/models`, in the shape of whoever is asked."""

from __future__ import annotations

from travois_lab.http import Request, Response, reply_json
from travois_lab.message import refused
from travois_lab.objects import Json
from travois_lab.profiles import EFFORTS, Profile
from travois_lab.refusal import Refusal
from travois_lab.world import World

BORN = "2026-01-01T00:00:00Z"


def list_models(world: World, request: Request) -> Response:
    """All models."""
    if "anthropic-version" not in request.headers:
        rows = [_openai(profile) for profile in world.profiles.values()]
        return reply_json({"object": "list", "data": rows})
    rows = [_anthropic(p) for p in world.profiles.values() if p.family == "anthropic"]
    ends = {"first_id": rows[0]["id"], "last_id": rows[-1]["id"]}
    return reply_json({"data": rows, "has_more": False, **ends})


def show_model(world: World, request: Request) -> Response:
    """One model."""
    try:
        profile = world.profile(request.path.rpartition("/")[2])
    except Refusal as refusal:
        return refused(refusal, "req_lab")
    shape = _anthropic if "anthropic-version" in request.headers else _openai
    return reply_json(shape(profile))


def _openai(profile: Profile) -> Json:
    return {"id": profile.id, "object": "model", "created": 1767225600, "owned_by": profile.family}


def _supported(flag: bool) -> Json:
    return {"supported": flag}


def _anthropic(profile: Profile) -> Json:
    words = profile.id.split("-")
    lines = ("haiku", "sonnet", "opus", "fable", "mythos")
    return {
        "type": "model",
        "id": profile.id,
        "display_name": " ".join(word.capitalize() for word in words),
        "created_at": BORN,
        "lifecycle": "active",
        "line": next((word for word in words if word in lines), None),
        "deprecated_at": None,
        "retires_at": None,
        "max_input_tokens": profile.window,
        "max_tokens": profile.output,
        "capabilities": _capabilities(profile),
    }


def _capabilities(profile: Profile) -> Json:
    kinds = ("adaptive", "enabled", "disabled", "between_tools")
    return {
        "effort": {
            "supported": True,
            **{effort: _supported(True) for effort in EFFORTS},
        },
        "thinking": {
            "supported": True,
            "types": {kind: _supported(kind in profile.thinking) for kind in kinds},
        },
        **{name: _supported(True) for name in ("image_input", "pdf_input", "structured_outputs")},
        **{name: _supported(True) for name in ("batch", "citations", "code_execution")},
        "context_management": {"supported": True},
    }
