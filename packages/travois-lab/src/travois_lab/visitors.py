"""Which requests the lab answers: those of programs on this machine, never those of web pages.

The lab has no key to check, so a page in the user's browser could read prompts and change the
script. A page gives itself away: by a foreign `Origin`, by `Sec-Fetch-Site`, or, where its name was
made to resolve to this machine (DNS rebinding), by a `Host` that is not a loopback name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial

from travois_lab.http import Answer, Live, Request, Response, reply_json

NAMES = ("127.0.0.1", "localhost", "[::1]")
OWN_SITES = ("", "none", "same-origin")


def guard(answer: Answer, *, port: int) -> Answer:
    """Answer only requests that come from programs on this machine to this very address."""
    return partial(_answer_checked, answer, port)


def find_objection(headers: Mapping[str, str], *, port: int) -> str:
    """Say why a request is refused; empty if it may pass."""
    hosts = _addresses(port)
    if headers.get("host", "").lower() not in hosts:
        return (
            f"the Host header must be {hosts[0]} or {hosts[1]}, not {headers.get('host', '')!r}: "
            "another name may be a web page that was made to point to this machine"
        )
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in [f"http://{host}" for host in hosts]:
        return f"the Origin {origin!r} is another site, and the lab answers no web page"
    if headers.get("sec-fetch-mode", "navigate") != "navigate" and (
        headers.get("sec-fetch-site", "") not in OWN_SITES
    ):
        return "the request comes from another site's page, and the lab answers no web page"
    return ""


def _answer_checked(answer: Answer, port: int, request: Request) -> Response | Awaitable[Live]:
    why = find_objection(request.headers, port=port)
    if why:
        error = {"type": "permission_error", "message": f"lab: refused: {why}"}
        return reply_json({"type": "error", "error": error, "request_id": "req_lab"}, status=403)
    return answer(request)


def _addresses(port: int) -> tuple[str, ...]:
    """The loopback names with the port; clients leave the port of HTTP out."""
    bare = NAMES if port == 80 else ()
    return (*(f"{name}:{port}" for name in NAMES), *bare)
