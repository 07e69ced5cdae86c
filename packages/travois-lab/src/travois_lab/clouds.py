"""Anthropic's models as Amazon and Google serve them: the same messages in other envelopes."""

from __future__ import annotations

import re
from binascii import b2a_base64
from struct import pack
from urllib.parse import unquote
from zlib import crc32

import msgspec
from msgspec.structs import replace

from travois_lab.anthropic import create_message
from travois_lab.http import Request, Response, Step, reply_json
from travois_lab.objects import Json, listed
from travois_lab.plain import parse
from travois_lab.refusal import Refusal
from travois_lab.world import World

CLAUDE = re.compile(r"claude-[a-z]+-\d+(?:-\d)?(?!\d)")
PROOF = re.compile(
    r"AWS4-HMAC-SHA256 Credential=\w+/\d{8}/[\w-]+/bedrock/aws4_request, "
    r"SignedHeaders=[a-z0-9;-]*host;[a-z0-9;-]*x-amz-date[a-z0-9;-]*, Signature=[0-9a-f]{64}"
    r"|Bearer .+"
)
VERSION = "2026-10-21"


def invoke_model(world: World, request: Request) -> Response:
    """`POST /model/{id}/invoke-with-response-stream`."""
    try:
        if not PROOF.fullmatch(request.headers.get("authorization", "")):
            raise Refusal("The request signature is not as it should be.", status=403)
        plain = _plain(request, request.path.split("/")[2], version="bedrock-2023-05-31")
    except Refusal as refusal:
        return reply_json({"message": refusal.message}, status=refusal.status)
    answer = create_message(world, plain)
    if answer.status != 200:
        return answer
    headers = (("content-type", "application/vnd.amazon.eventstream"),)
    return replace(answer, headers=headers, steps=tuple(map(_framed, answer.steps)))


def raw_predict(world: World, request: Request) -> Response:
    """`POST …/publishers/anthropic/models/{id}:streamRawPredict`."""
    try:
        if not request.headers.get("authorization", "").startswith("Bearer "):
            raise Refusal("Request is missing required authentication credential.", status=401)
        id = request.path.rpartition("/")[2].partition(":")[0]
        return create_message(world, _plain(request, id, version="vertex-2023-10-16"))
    except Refusal as refusal:
        return reply_json({"error": {"message": refusal.message}}, status=refusal.status)


def _plain(request: Request, id: str, *, version: str) -> Request:
    """The request as Anthropic itself would get it."""
    body, named = parse(request), CLAUDE.search(unquote(id))
    if body.pop("anthropic_version", "") != version:
        raise Refusal("anthropic_version: Field required")
    if "model" in body or (version.startswith("bedrock") and "stream" in body):
        raise Refusal("model: Extra inputs are not permitted")
    if named is None:
        raise Refusal("The provided model identifier is invalid.")
    betas = [str(beta) for beta in listed(body, "anthropic_beta")]
    body.pop("anthropic_beta", None)
    headers = {**request.headers, "x-api-key": "cloud", "anthropic-version": VERSION}
    headers |= {"anthropic-beta": ",".join(betas)} if betas else {}
    inside: Json = {"model": named[0], **body, "stream": True}
    return replace(request, path="/v1/messages", headers=headers, body=msgspec.json.encode(inside))


def _framed(step: Step) -> Step:
    """Each event in a message of Amazon's event stream."""
    if not isinstance(step, bytes):
        return step
    events = re.findall(rb"^data: (.*)$", step, re.MULTILINE)
    return b"".join(map(_message, events))


def _message(event: bytes) -> bytes:
    headers = b"".join(
        pack(">B", len(name)) + name + b"\x07" + pack(">H", len(value)) + value
        for name, value in (
            (b":event-type", b"chunk"),
            (b":content-type", b"application/json"),
            (b":message-type", b"event"),
        )
    )
    payload = b'{"bytes":"' + b2a_base64(event, newline=False) + b'"}'
    prelude = pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + pack(">I", crc32(prelude)) + headers + payload
    return message + pack(">I", crc32(message))
