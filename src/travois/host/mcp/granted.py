"""What a login gave us: shown at the door, renewed where it can be, and kept for its owner only.

This module needs the SDK, so only what speaks to a server imports it.
"""

from __future__ import annotations

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

from travois.host.mcp.tokens import PORT, Code, Show, Tokens, wanted
from travois.tools.lenders import Server


class Granted(OAuthClientProvider):
    """Lets us in with what is kept; where that cannot be renewed, a person must log in again."""

    def __init__(
        self,
        server: Server,
        kept: Tokens,
        *,
        port: int = PORT,
        show: Show | None = None,
        code: Code | None = None,
    ) -> None:
        about = OAuthClientMetadata.model_validate(
            {"client_name": "Travois", "redirect_uris": [f"http://127.0.0.1:{port}/callback"]}
        )
        super().__init__(server.url, about, kept, show or self._refuse, code or self._never)
        self._attended = show is not None
        self._renewing = False
        self._lost = f"its login no longer holds; {wanted(server)}"

    async def _refuse(self, url: str) -> None:
        raise OAuthFlowError(self._lost)

    async def _never(self) -> AuthorizationCodeResult:
        raise OAuthFlowError(self._lost)

    async def _perform_authorization(self) -> httpx2.Request:
        """Renew what is kept, which another session may have done already; else ask the person."""
        if not self._attended:
            self.context.current_tokens = await self.context.storage.get_tokens()
        self._renewing = not self._attended and self.context.can_refresh_token()
        if self._renewing:
            return await self._refresh_token()
        return await super()._perform_authorization()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        if not self._renewing:
            await super()._handle_token_response(response)
        elif response.is_server_error:
            raise OAuthFlowError(f"its login cannot be renewed: HTTP {response.status_code}")
        elif not await self._handle_refresh_response(response):
            raise OAuthFlowError(self._lost)
