"""The OAuth provider for MCP servers: uses stored tokens and refreshes them.

This module needs the SDK, so only what speaks to a server imports it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import (
    extract_field_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
)
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata, OAuthToken
from pydantic import PrivateAttr

from travois.core.display_text import escape_invisible
from travois.core.json import as_object, as_string
from travois.mcp.oauth import CALLBACK_PORT, ReceiveCode, ShowLoginPage, TokenStore, login_hint
from travois.mcp.tools import McpServerConfig

HTTP_FORBIDDEN = 403
INSUFFICIENT_SCOPE = "insufficient_scope"
MAX_SCOPE_CHARS = 100
TOKEN_POLLS = 20
TOKEN_POLL_SECONDS = 0.1
"""Number of checks for another session's tokens, and seconds between them."""


METADATA_PATH = "/.well-known/oauth-authorization-server"
SECRET_AUTHENTICATION_METHODS = ("client_secret_basic", "client_secret_post")


async def _use_origin_as_issuer(response: httpx2.Response, server: str) -> httpx2.Response:
    """Return metadata of a server that is its own authorization server as later versions want it.

    They take only its origin for the issuer; before, any issuer at that origin was right.
    """
    try:
        told = as_object(msgspec.json.decode(await response.aread()))
    except msgspec.DecodeError:
        return response
    issuer, own = urlsplit(as_string(told.get("issuer"))), urlsplit(server)
    if (issuer.scheme, issuer.netloc) != (own.scheme, own.netloc):
        return response
    same = told | {"issuer": f"{own.scheme}://{own.netloc}"}
    return httpx2.Response(response.status_code, json=same, request=response.request)


class LoginMetadata(OAuthClientMetadata):
    """The client metadata of a login, with scopes that the server refused before."""

    _besides: str = PrivateAttr("")

    def add_scope(self, scope: str) -> None:
        """Add a scope that the server requires to the next login."""
        self._besides = scope

    def __setattr__(self, name: str, value: Any) -> None:
        """Add the required scope when the SDK sets the scope in the middle of a login."""
        wider = union_scopes(value, self._besides or None) if name == "scope" else value
        super().__setattr__(name, wider)


class StoredLoginProvider(OAuthClientProvider):
    """An OAuth provider with stored tokens; if they cannot be refreshed, a new login is needed."""

    def __init__(
        self,
        server: McpServerConfig,
        kept: TokenStore,
        *,
        port: int = CALLBACK_PORT,
        show: ShowLoginPage | None = None,
        code: ReceiveCode | None = None,
    ) -> None:
        about = LoginMetadata.model_validate(
            {"client_name": "Travois", "redirect_uris": [f"http://127.0.0.1:{port}/callback"]}
        )
        about.add_scope(kept.scope)
        super().__init__(
            server.url,
            about,
            kept,
            show or self._refuse_redirect,
            code or self._refuse_callback,
            client_metadata_url=server.metadata_url or None,
        )
        self._attended = show is not None
        self._tried: OAuthToken | None = None
        """The tokens being refreshed; None during a login."""
        self._kept = kept
        self._wanted = login_hint(server)
        self._lost = f"the login has expired; {self._wanted}"

    def check_response(self, response: httpx2.Response) -> None:
        """Raise PermissionError where a login lacks a scope: the user must log in again."""
        lacking = extract_field_from_www_auth(response, "error") == INSUFFICIENT_SCOPE
        if self._attended or response.status_code != HTTP_FORBIDDEN or not lacking:
            return
        scope = extract_scope_from_www_auth(response) or ""
        self._kept.require_scope(scope)
        what = f" (missing scope: {escape_invisible(scope)[:MAX_SCOPE_CHARS]})" if scope else ""
        raise PermissionError(f"the login does not allow this{what}; {self._wanted}")

    async def _refuse_redirect(self, url: str) -> None:
        raise OAuthFlowError(self._lost)

    async def _refuse_callback(self) -> AuthorizationCodeResult:
        raise OAuthFlowError(self._lost)

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Run the flow; servers of the protocol of 2025-03-26 may name an issuer with a path."""
        flow = super()._auth_flow(request)
        async with aclosing(flow):
            sent = await anext(flow)
            while True:
                response = yield sent
                if sent.url.path.startswith(METADATA_PATH) and self.context.auth_server_url is None:
                    response = await _use_origin_as_issuer(response, self.context.server_url)
                try:
                    sent = await flow.asend(response)
                except StopAsyncIteration:
                    return

    async def _perform_authorization(self) -> httpx2.Request:
        """Refresh the stored tokens, unless another session has; else ask the person."""
        kept = None if self._attended else await self.context.storage.get_tokens()
        self.context.current_tokens, self._tried = kept, kept
        if self.context.can_refresh_token():
            return await self._refresh_token()
        self._tried = None
        self._use_supported_client_authentication()
        return await super()._perform_authorization()

    def _use_supported_client_authentication(self) -> None:
        """Send the secret that the user configured in a way that the server says it takes."""
        known, found = self.context.client_info, self.context.oauth_metadata
        methods = found.token_endpoint_auth_methods_supported if found is not None else None
        if known is None or not known.client_secret or not methods:
            return
        if known.token_endpoint_auth_method not in methods:
            usable = (one for one in SECRET_AUTHENTICATION_METHODS if one in methods)
            known.token_endpoint_auth_method = next(usable, known.token_endpoint_auth_method)

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        if self._tried is None:
            await super()._handle_token_response(response)
        elif response.is_server_error:
            raise OAuthFlowError(f"the login cannot be renewed: HTTP {response.status_code}")
        elif not (
            await self._handle_refresh_response(response)
            or await self._adopt_newer_tokens(self._tried)
        ):
            raise OAuthFlowError(self._lost)

    async def _adopt_newer_tokens(self, tried: OAuthToken) -> bool:
        """Return whether another session renewed the tokens first; if so, adopt them."""
        for _ in range(TOKEN_POLLS):
            found = await self.context.storage.get_tokens()
            if found is not None and found != tried:
                self.context.current_tokens = found
                return True
            await anyio.sleep(TOKEN_POLL_SECONDS)
        return False
