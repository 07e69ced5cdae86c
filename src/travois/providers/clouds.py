"""Clouds: Anthropic models on Amazon Bedrock and Google Vertex AI, and AWS event streams."""

from __future__ import annotations

import re
from binascii import Error, a2b_base64
from struct import unpack_from
from typing import Literal, assert_never
from urllib.parse import quote as escaped
from zlib import crc32

import msgspec
from msgspec.structs import replace

from travois.core.json import quote_json
from travois.core.models import ModelCard
from travois.providers.anthropic import BETA_HEADER, STREAM_MEMBER
from travois.providers.http.sse import SseEvent
from travois.providers.replies import ApiError
from travois.providers.request import Request

CloudPlatform = Literal["", "bedrock", "vertex"]
PRELUDE_BYTES = 12
STRING_HEADER_TYPE = 7
"""The type of a header that is a string."""
MAX_EVENT_BYTES = 1 << 24
"""No event is larger: what says so is not an event stream."""


def adapt_request_for_cloud(request: Request, model: ModelCard, surface: CloudPlatform) -> Request:
    """Adapt an Anthropic request to Bedrock or Vertex AI, where the model is hosted."""
    match surface:
        case "":
            return request
        case "bedrock":
            return _to_bedrock_request(request, model)
        case "vertex":
            return _to_vertex_request(request, model)
        case _:
            assert_never(surface)


def _to_bedrock_request(request: Request, model: ModelCard) -> Request:
    """Adapt a request for Bedrock: the model goes in the path, betas in the body."""
    betas = [
        beta for name, value in request.headers if name == BETA_HEADER for beta in value.split(",")
    ]
    named = b',"anthropic_beta":[' + b",".join(map(quote_json, betas)) + b"]" if betas else b""
    body = _replace_model_with_version(request.body, model, b"bedrock-2023-05-31", named)
    at = body.rindex(STREAM_MEMBER)
    return replace(
        request,
        path=f"/model/{escaped(model.id, safe='')}/invoke-with-response-stream",
        headers=(("content-type", "application/json"), ("accept", "*/*")),
        body=body[: at + 1] + body[at + len(STREAM_MEMBER) :],
    )


def _to_vertex_request(request: Request, model: ModelCard) -> Request:
    """Adapt a request for Vertex AI: the model goes in the path, the version in the body."""
    path = f"/publishers/anthropic/models/{escaped(model.id, safe='@')}:streamRawPredict"
    kept = tuple(header for header in request.headers if header[0] != "anthropic-version")
    body = _replace_model_with_version(request.body, model, b"vertex-2023-10-16")
    return replace(request, path=path, headers=kept, body=body)


def _replace_model_with_version(
    body: bytes, model: ModelCard, version: bytes, more: bytes = b""
) -> bytes:
    """Replace the model in a Bedrock or Vertex request body by the cloud's API version."""
    start = b'{"model":' + quote_json(model.id)
    assert body.startswith(start), body[:80]
    return b'{"anthropic_version":"' + version + b'"' + more + body[len(start) :]


class AwsEventStreamDecoder:
    """A decoder of AWS event streams into the model's own events."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that these bytes complete; raises `ApiError`."""
        self._partial += chunk
        events: list[SseEvent] = []
        while len(self._partial) >= PRELUDE_BYTES:
            size = _read_message_size(self._partial)
            if len(self._partial) < size:
                break
            message, self._partial = self._partial[:size], self._partial[size:]
            events += _decode_aws_message(message)
        return events

    def finish(self) -> list[SseEvent]:
        """Return nothing: half a message means that the reply is incomplete."""
        return []


def _read_message_size(data: bytes) -> int:
    """Read the size of the next AWS event stream message; check its prelude."""
    size, _, check = unpack_from(">III", data)
    if crc32(data[:8]) != check or not PRELUDE_BYTES < size <= MAX_EVENT_BYTES:
        raise ApiError("garbled", "The stream is not an AWS event stream.")
    return size


def _decode_aws_message(message: bytes) -> list[SseEvent]:
    """Decode an AWS event stream message from Bedrock; raise `ApiError` for an error."""
    (check,) = unpack_from(">I", message, len(message) - 4)
    if crc32(message[:-4]) != check:
        raise ApiError("garbled", "A message in the AWS event stream is damaged.")
    (length,) = unpack_from(">I", message, 4)
    headers = _decode_aws_headers(message[PRELUDE_BYTES : PRELUDE_BYTES + length])
    payload = message[PRELUDE_BYTES + length : -4]
    if headers.get(":message-type") in ("exception", "error"):
        raise _error_of_exception(headers, payload)
    try:
        told = msgspec.json.decode(payload, type=dict[str, object])
        data = a2b_base64(str(told["bytes"])) if "bytes" in told else b""
    except (msgspec.DecodeError, Error) as error:
        raise ApiError(
            "garbled", f"A message in the AWS event stream is not valid: {error}"
        ) from None
    return [SseEvent("", data)] if data else []


def _decode_aws_headers(data: bytes) -> dict[str, str]:
    """Decode the string headers of an AWS event stream message; other types do not matter."""
    found, at = dict[str, str](), 0
    while at < len(data):
        name = data[at + 1 : at + 1 + data[at]].decode("utf-8", "replace")
        at += 1 + data[at]
        if data[at] != STRING_HEADER_TYPE:
            break
        (length,) = unpack_from(">H", data, at + 1)
        found[name] = data[at + 3 : at + 3 + length].decode("utf-8", "replace")
        at += 3 + length
    return found


def _error_of_exception(headers: dict[str, str], payload: bytes) -> ApiError:
    """Convert an exception message in Bedrock's event stream to an `ApiError`."""
    name = headers.get(":exception-type") or headers.get(":error-code", "")
    words = re.sub(r'^\{"message":"(.*)"\}$', r"\1", payload.decode("utf-8", "replace"))
    said = words or headers.get(":error-message", "")
    if name == "throttlingException":
        return ApiError("rate", said)
    if name == "validationException":
        return ApiError("overflow" if "too long" in said.lower() else "invalid", said)
    return ApiError("server", said or name)
