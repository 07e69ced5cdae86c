"""A request that a simulated provider refuses, before it is dressed in that provider's shape."""

from __future__ import annotations

from travois_lab.objects import Json

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Refusal(Exception):
    """The provider's no: status, kind, words, and what else it says about it."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "",
        details: Json | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind or KINDS.get(status, "api_error")
        self.details = details
        self.headers = headers
        self.param = param


def coded(message: str, code: str, **more: object) -> Refusal:
    """A 400 whose details carry an error code."""
    return Refusal(message, details={"error_code": code, **more})
