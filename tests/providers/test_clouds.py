"""Anthropic's models at Amazon and at Google: envelopes, signatures, frames."""

from __future__ import annotations

import json
from base64 import b64encode
from struct import pack
from zlib import crc32

import pytest

from tests.providers import canon
from travois.core.content import Text
from travois.core.models import ModelCard, Usage
from travois.providers.clouds import adapt_request_for_cloud
from travois.providers.replies import ApiError
from travois.providers.request import Request
from travois.providers.sigv4 import (
    AwsCredentials,
    SigningScope,
    read_aws_credentials,
    sign_aws_request,
)
from travois.providers.stream_reader import create_reply_reader

CLAUDE = ModelCard("bedrock", "anthropic.claude-opus-5-5-v1:0", "anthropic", output=8000)
BETA = ModelCard(
    "vertex", "claude-opus-5-5@20261001", "anthropic", output=8000, betas=("b-1", "b-2")
)

# --- signatures: the vectors that Amazon published ------------------------------------------------

EXAMPLE = AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
SCOPE = SigningScope("us-east-1", "service")
THEN = 1440938160.0
FORM = (("content-type", "application/x-www-form-urlencoded"),)
VECTORS = [
    ("GET", "/", (), b"", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    ("POST", "/", (), b"", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    (
        "GET",
        "/?Param2=value2&Param1=value1",
        (),
        b"",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    (
        "POST",
        "/",
        FORM,
        b"Param1=value1",
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
]


@pytest.mark.parametrize(("method", "path", "headers", "body", "signature"), VECTORS)
def test_requests_are_signed_as_published(
    method: str, path: str, headers: tuple[tuple[str, str], ...], body: bytes, signature: str
) -> None:
    url = f"https://example.amazonaws.com{path}"
    made = sign_aws_request(
        url, headers, body=body, by=EXAMPLE, scope=SCOPE, now=THEN, method=method
    )
    names = "content-type;host;x-amz-date" if headers else "host;x-amz-date"
    assert made == (
        *headers,
        ("x-amz-date", "20150830T123600Z"),
        (
            "authorization",
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
            f"SignedHeaders={names}, Signature={signature}",
        ),
    )


def test_a_session_token_is_signed_with_the_rest() -> None:
    by = AwsCredentials("k", "s", "t")
    made = dict(sign_aws_request("https://h.test/", (), body=b"", by=by, scope=SCOPE, now=THEN))
    assert made["x-amz-security-token"] == "t"
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token," in made["authorization"]


def test_credentials_are_those_of_the_environment() -> None:
    named = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": " s\n"}
    assert read_aws_credentials(named) == AwsCredentials("k", "s")
    assert read_aws_credentials({**named, "AWS_SESSION_TOKEN": "t"}) == AwsCredentials(
        "k", "s", "t"
    )
    assert read_aws_credentials({**named, "AWS_REGION": "eu-west-1"}) == AwsCredentials(
        "k", "s", "", "eu-west-1"
    )
    assert read_aws_credentials({"AWS_ACCESS_KEY_ID": "k"}) is None


# --- envelopes ------------------------------------------------------------------------------------


def told(request: Request) -> dict[str, object]:
    body = json.loads(request.body)
    return {name: value for name, value in body.items() if name not in ("tools", "messages")}


def test_bedrock_has_the_model_in_the_path_and_betas_in_the_body() -> None:
    plain = canon.tell(CLAUDE, (canon.HELLO,))
    request = adapt_request_for_cloud(plain, CLAUDE, "bedrock")
    assert request.path == ("/model/anthropic.claude-opus-5-5-v1%3A0/invoke-with-response-stream")
    assert request.headers == (("content-type", "application/json"), ("accept", "*/*"))
    assert request.body.startswith(b'{"anthropic_version":"bedrock-2023-05-31","max_tokens":8000,')
    assert (
        plain.body.partition(b'"max_tokens"')[2]
        == request.body.partition(b'"max_tokens"')[2][:-1] + b',"stream":true}'
    )
    betas = adapt_request_for_cloud(canon.tell(BETA, (canon.HELLO,)), BETA, "bedrock")
    assert told(betas)["anthropic_beta"] == ["b-1", "b-2"]


def test_vertex_has_the_model_in_the_path_and_betas_in_a_header() -> None:
    request = adapt_request_for_cloud(canon.tell(BETA, (canon.HELLO,)), BETA, "vertex")
    assert request.path == (
        "/publishers/anthropic/models/claude-opus-5-5@20261001:streamRawPredict"
    )
    assert request.headers == (
        ("content-type", "application/json"),
        ("anthropic-beta", "b-1,b-2"),
    )
    assert told(request) == {
        "anthropic_version": "vertex-2023-10-16",
        "max_tokens": 8000,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "stream": True,
    }


# --- frames ---------------------------------------------------------------------------------------


def frame(payload: bytes, **headers: str) -> bytes:
    named = b"".join(
        pack(">B", len(name) + 1) + b":" + name.replace("_", "-").encode() + b"\x07"
        + pack(">H", len(value)) + value.encode()
        for name, value in headers.items()
    )  # fmt: skip
    start = pack(">II", 16 + len(named) + len(payload), len(named))
    rest = start + pack(">I", crc32(start)) + named + payload
    return rest + pack(">I", crc32(rest))


def event(**members: object) -> bytes:
    inside = b64encode(json.dumps(members).encode()).decode()
    payload = json.dumps({"bytes": inside, "p": "abc"}).encode()
    return frame(payload, event_type="chunk", message_type="event")


STREAM = b"".join(
    (
        event(
            type="message_start", message={"id": "m", "model": "c", "usage": {"input_tokens": 7}}
        ),
        event(type="content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "Grüße"}),
        event(type="content_block_stop", index=0),
        event(type="message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}),
        event(type="message_stop"),
    )
)


@pytest.mark.parametrize("step", [1, 5, 10_000])
def test_an_event_stream_is_heard_however_it_is_cut(step: int) -> None:
    reading = create_reply_reader(CLAUDE, surface="bedrock")
    for at in range(0, len(STREAM), step):
        reading.feed(STREAM[at : at + step])
    reply = reading.finish()
    assert reply.content == (Text("Grüße"),)
    assert (reply.stop, reply.usage) == ("end", Usage(input=7, output=3))


BROKEN = [
    (STREAM[:-30], "garbled", True),
    (STREAM[:60] + b"\x00" + STREAM[61:], "garbled", True),
    (b"data: {}\n\n" * 9, "garbled", True),
    (
        frame(
            b'{"message":"slow down"}',
            message_type="exception",
            exception_type="throttlingException",
        ),
        "rate",
        True,
    ),
    (
        frame(
            b'{"message":"Input is too long."}',
            message_type="exception",
            exception_type="validationException",
        ),
        "overflow",
        False,
    ),
    (frame(b"{}", message_type="error", error_code="internal"), "server", True),
]


@pytest.mark.parametrize(("body", "kind", "retry"), BROKEN)
def test_an_event_stream_that_breaks_is_a_problem(body: bytes, kind: str, retry: bool) -> None:
    reading = create_reply_reader(CLAUDE, surface="bedrock")
    with pytest.raises(ApiError) as caught:
        _ = (reading.feed(body), reading.finish())
    assert (caught.value.kind, caught.value.retry) == (kind, retry)
