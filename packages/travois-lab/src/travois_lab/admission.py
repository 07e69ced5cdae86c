"""The first steps of a Messages request: parsed, let in, and judged before anything is done."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from travois_lab.betas import read_betas
from travois_lab.binding import Chain
from travois_lab.compaction import check_blocks, check_request
from travois_lab.editing import check_edits
from travois_lab.exchange import Exchange
from travois_lab.faults import Rule
from travois_lab.http import Request
from travois_lab.memo import Memo
from travois_lab.objects import Json, is_object, listed
from travois_lab.positions import Position, Survey, survey
from travois_lab.profiles import Profile
from travois_lab.refusal import Refusal
from travois_lab.rules import check_tool_changes, check_version, excuse, unfit
from travois_lab.world import World

BODY_LIMIT = 32 * 1024 * 1024


class Ask(msgspec.Struct):
    """One request on its way through the pipeline."""

    world: World
    exchange: Exchange
    body: Json
    profile: Profile
    headers: dict[str, str]
    found: Survey
    betas: tuple[str, ...] = ()
    rules: list[Rule] = []
    row: list[Position] = []
    rendered: Json = {}
    """The body as the model reads it: after dropped thinking and server-side edits."""
    chain: Chain | None = None
    compact: Json | None = None
    """The compaction edit whose trigger was reached."""
    summary: Json | None = None
    """The compaction block that opens the reply; empty where it did not fit."""
    stopped_by: str | None = None
    """The stop sequence that ended the reply."""

    @property
    def workspace(self) -> str:
        """Whose cache it uses."""
        return self.headers.get("anthropic-workspace-id", self.world.options.workspace)


def admit(
    world: World, request: Request, exchange: Exchange, *, to: Literal["answer", "count"]
) -> Ask:
    """A request that the API would take; raises the refusal of one that it would not."""
    body = _parsed(request, world.memo)
    _authenticate(world, request.headers)
    version = request.headers.get("anthropic-version", "")
    check_version(version)
    strict = world.options.strict
    betas = read_betas(request.headers.get("anthropic-beta", ""), strict=strict)
    exchange.betas = betas
    exchange.model = _model(body)
    profile = world.profile(exchange.model)
    faults = excuse(
        world.memo.faults(request.body, body),
        body,
        profile=profile,
        version=version,
        counting="yes" if to == "count" else "no",
        strict="yes" if strict else "no",
    )
    exchange.invalid = tuple(faults)
    if faults:
        raise Refusal(faults[0])
    found = survey(body)
    exchange.invalid = tuple(unfit(body, profile=profile, betas=betas, found=found))
    if exchange.invalid:
        raise Refusal(exchange.invalid[0])
    _check_features(world, body, found)
    return Ask(world, exchange, body, profile, request.headers, found, betas)


def _parsed(request: Request, memo: Memo) -> Json:
    if len(request.body) > BODY_LIMIT:
        raise Refusal("Request exceeds the maximum size", status=413)
    if request.headers.get("content-encoding", "identity") != "identity":
        details = {"error_code": "request_body_encoding_unsupported"}
        raise Refusal("content-encoding: not supported", details=details)
    try:
        body: Any = memo.decode(request.body)
    except msgspec.DecodeError as error:
        raise Refusal(f"The request body is not valid JSON: {error}") from None
    if not is_object(body):
        raise Refusal("The request body must be a JSON object")
    return body


def _authenticate(world: World, headers: dict[str, str]) -> None:
    bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
    key = headers.get("x-api-key", "") or bearer
    if not key:
        raise Refusal("x-api-key header is required", status=401)
    if world.options.keys and key not in world.options.keys:
        raise Refusal("invalid x-api-key", status=401)


def _model(body: Json) -> str:
    model = body.get("model")
    if not isinstance(model, str):
        raise Refusal("model: Field required")
    if not all(is_object(message) for message in listed(body, "messages")):
        raise Refusal("messages: Input should be a list of objects")
    return model


def _check_features(world: World, body: Json, found: Survey) -> None:
    if "system" in found.roles:
        check_tool_changes(body)
    check_edits(body)
    if "compaction" in found.kinds:
        check_blocks(body, seed=world.options.seed)
    if body.get("compaction"):
        check_request(body)
