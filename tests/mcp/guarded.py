"""A server of tools that lets nobody in without a login, and the server that grants one.

They stand at two addresses of this machine, as in life. `guarded.py PORT GRANTS FOLDER`: files in
the folder say what happens next: `expired` ends all tokens that there are, `stubborn` is that none
is renewed, `unkind` that the person says no, `strict` that a login has to grant `more`. The file
`journal` is what was asked for.
"""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.responses import Response

PORT, GRANTS, FOLDER = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
ISSUER, HERE = f"http://127.0.0.1:{GRANTS}", f"http://127.0.0.1:{PORT}/mcp"


def note(what: str) -> None:
    with (FOLDER / "journal").open("a") as journal:
        journal.write(f"{what}\n")


class Grants:
    """Whoever asks is let in; the person is asked by files."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.held: dict[str, AccessToken] = {}
        self.renewable: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        note(f"register {client_info.client_name} {client_info.redirect_uris}")
        assert client_info.client_id
        self.clients[client_info.client_id] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        note(" ".join(("authorize", str(params.resource), *(params.scopes or ()))))
        back = str(params.redirect_uri)
        if (FOLDER / "unkind").exists():
            return construct_redirect_uri(back, error="access_denied", state=params.state)
        code = f"code-{secrets.token_hex(20)}"
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            **params.model_dump(include=set(AuthorizationCode.model_fields) - {"scopes"}),
        )
        return construct_redirect_uri(back, code=code, state=params.state)

    async def load_authorization_code(self, client: Any, code: str) -> AuthorizationCode | None:
        return self.codes.get(code)

    async def exchange_authorization_code(self, client: Any, code: AuthorizationCode) -> OAuthToken:
        note("code")
        del self.codes[code.code]
        return self._granted(client, code.scopes)

    async def load_refresh_token(self, client: Any, token: str) -> RefreshToken | None:
        return self.renewable.get(token)

    async def exchange_refresh_token(
        self, client: Any, token: RefreshToken, scopes: Any
    ) -> OAuthToken:
        note("refresh")
        if (FOLDER / "stubborn").exists():
            raise TokenError("invalid_grant", "it was taken back")
        del self.renewable[token.token]
        return self._granted(client, token.scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        if (FOLDER / "expired").exists():
            self.held.clear()
            (FOLDER / "expired").unlink()
        return self.held.get(token)

    async def verify_token(self, token: str) -> AccessToken | None:
        return await self.load_access_token(token)

    def _granted(self, client: Any, scopes: list[str]) -> OAuthToken:
        token, more = f"secret-{secrets.token_hex(20)}", f"secret-{secrets.token_hex(20)}"
        id = client.client_id
        self.held[token] = AccessToken(token=token, client_id=id, scopes=scopes)
        self.renewable[more] = RefreshToken(token=more, client_id=id, scopes=scopes)
        return OAuthToken(access_token=token, refresh_token=more, expires_in=3600)


class Strict:
    """Lets in only who was granted more, once it is told to."""

    def __init__(self, app: Any, grants: Grants) -> None:
        self._app, self._grants = app, grants

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        shown = dict(scope.get("headers", ())).get(b"authorization", b"").decode()
        held = self._grants.held.get(shown.removeprefix("Bearer "))
        app = self._app
        if held is not None and "more" not in held.scopes and (FOLDER / "strict").exists():
            lacking = 'Bearer error="insufficient_scope", scope="more"'
            app = Response(status_code=403, headers={"WWW-Authenticate": lacking})
        await app(scope, receive, send)


def main() -> None:
    grants: Any = Grants()
    auth = AuthSettings(
        issuer_url=AnyHttpUrl(ISSUER),
        resource_server_url=AnyHttpUrl(HERE),
        validate_token_resource=False,
    )
    server = MCPServer("guarded", log_level="ERROR", auth=auth, token_verifier=grants)

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    registration = ClientRegistrationOptions(enabled=True)
    routes = create_auth_routes(grants, auth.issuer_url, client_registration_options=registration)

    async def both() -> None:
        async with anyio.create_task_group() as group:
            for app, port in (
                (Strict(server.streamable_http_app(), grants), PORT),
                (Starlette(routes=routes), GRANTS),
            ):
                config = uvicorn.Config(app, port=port, log_level="error")
                group.start_soon(uvicorn.Server(config).serve)

    anyio.run(both)


if __name__ == "__main__":
    main()
