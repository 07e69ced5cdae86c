"""AWS Signature Version 4 for requests to Bedrock."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from time import gmtime, strftime
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

SIGNING_ALGORITHM = "AWS4-HMAC-SHA256"
Headers = tuple[tuple[str, str], ...]


class AwsCredentials(msgspec.Struct, frozen=True):
    """AWS credentials; never written to a log."""

    key: str
    secret: str
    token: str = ""
    region: str = "us-east-1"


class SigningScope(msgspec.Struct, frozen=True):
    """The region and the service that a signature is valid for."""

    region: str
    service: str


def read_aws_credentials(environ: Mapping[str, str]) -> AwsCredentials | None:
    """Read AWS credentials from the environment; None if there are none."""

    def read_aws_variable(*names: str) -> str:
        return next((value for n in names if (value := environ.get(f"AWS_{n}", "").strip())), "")

    key, secret = read_aws_variable("ACCESS_KEY_ID"), read_aws_variable("SECRET_ACCESS_KEY")
    region = read_aws_variable("REGION", "DEFAULT_REGION") or "us-east-1"
    return (
        AwsCredentials(key, secret, read_aws_variable("SESSION_TOKEN"), region)
        if key and secret
        else None
    )


def sign_aws_request(
    url: str,
    headers: Headers,
    *,
    body: bytes,
    by: AwsCredentials,
    scope: SigningScope,
    now: float,
    method: str = "POST",
) -> Headers:
    """Return request headers with the date and the AWS signature of the whole request."""
    date = strftime("%Y%m%dT%H%M%SZ", gmtime(now))
    token = (("x-amz-security-token", by.token),) if by.token else ()
    dated = (*headers, ("x-amz-date", date), *token)
    host = urlsplit(url).netloc.rpartition("@")[2]
    told = sorted(
        (name.lower(), " ".join(value.split())) for name, value in (*dated, ("host", host))
    )
    names = ";".join(name for name, _ in told)
    canonical = "\n".join(
        (
            method,
            _canonical_path(url),
            _canonical_query(url),
            *(f"{name}:{value}" for name, value in told),
            "",
            names,
            sha256(body).hexdigest(),
        )
    )
    where = f"{date[:8]}/{scope.region}/{scope.service}/aws4_request"
    text = "\n".join((SIGNING_ALGORITHM, date, where, sha256(canonical.encode()).hexdigest()))
    signature = hmac.new(_signing_key(by, date[:8], scope), text.encode(), sha256).hexdigest()
    proof = (
        f"{SIGNING_ALGORITHM} Credential={by.key}/{where}, SignedHeaders={names}, "
        f"Signature={signature}"
    )
    return (*dated, ("authorization", proof))


def _canonical_path(url: str) -> str:
    """Escape each path segment a second time for the AWS signature, as all but S3 require."""
    return quote(urlsplit(url).path or "/", safe="/-_.~")


def _canonical_query(url: str) -> str:
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    return "&".join(sorted(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in pairs))


def _signing_key(by: AwsCredentials, day: str, scope: SigningScope) -> bytes:
    """Derive the AWS signing key for a day, region and service."""
    key = f"AWS4{by.secret}".encode()
    for word in (day, scope.region, scope.service, "aws4_request"):
        key = hmac.new(key, word.encode(), sha256).digest()
    return key
