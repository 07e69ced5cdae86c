"""Logins of MCP servers without a person: client credentials, and access across applications.

This module needs the SDK, so only what speaks to a server imports it.
"""

from __future__ import annotations

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider

from travois.core.json import as_string
from travois.mcp.oauth import TokenStore
from travois.mcp.tools import MachineLogin, McpServerConfig

TOKEN_EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:id_token"
ID_JAG_TYPE = "urn:ietf:params:oauth:token-type:id-jag"
"""The type of the assertion that an identity provider gives for another application."""


def create_machine_login(
    server: McpServerConfig, login: MachineLogin, tokens: TokenStore
) -> httpx2.Auth:
    """Create the login of a server that the user configured with credentials of our own.

    They are sent only to the authorization server that the configuration names.
    """
    if login.id_token:
        return IdentityAssertionOAuthProvider(
            server.url,
            tokens,
            login.client_id,
            login.client_secret,
            login.issuer,
            IdentityProvider(login).request_assertion,
            login.scope or None,
            "client_secret_basic",
        )
    if login.private_key:
        signed = SignedJWTParameters(
            issuer=login.client_id,
            subject=login.client_id,
            signing_key=login.private_key,
            signing_algorithm=login.algorithm,
        )
        return PrivateKeyJWTOAuthProvider(
            server.url,
            tokens,
            login.client_id,
            signed.create_assertion_provider(),
            login.scope or None,
            login.issuer,
        )
    return ClientCredentialsOAuthProvider(
        server.url,
        tokens,
        login.client_id,
        login.client_secret,
        scope=login.scope or None,
        issuer=login.issuer,
    )


class IdentityProvider:
    """The identity provider of a company, which vouches for its user at other applications."""

    def __init__(self, login: MachineLogin) -> None:
        self._login = login

    async def request_assertion(self, audience: str, resource: str) -> str:
        """Exchange the user's ID token for an assertion to this authorization server."""
        asked = {
            "grant_type": TOKEN_EXCHANGE_GRANT,
            "requested_token_type": ID_JAG_TYPE,
            "subject_token": self._login.id_token,
            "subject_token_type": ID_TOKEN_TYPE,
            "audience": audience,
            "resource": resource,
            "client_id": self._login.idp_client_id,
        }
        if self._login.scope:
            asked["scope"] = self._login.scope
        async with httpx2.AsyncClient() as http:
            response = await http.post(self._login.idp_token_endpoint, data=asked)
        if response.is_error:
            raise OAuthFlowError(
                f"the identity provider gave no assertion: HTTP {response.status_code}"
            )
        assertion = as_string(response.json().get("access_token"))
        if not assertion:
            raise OAuthFlowError("the identity provider answered without an assertion")
        return assertion
