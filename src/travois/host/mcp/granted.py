"""What a login gave us: shown at the door, renewed where it can be, and kept for its owner only.

This module needs the SDK, so only what speaks to a server imports it.
"""

from __future__ import annotations

import anyio
import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata, OAuthToken

from travois.host.mcp.tokens import PORT, Code, Show, Tokens, wanted
from travois.tools.lenders import Server

LOOKS, PAUSE = 20, 0.1
"""How often, and after how many seconds each, it is seen what another session got."""


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
        self._tried: OAuthToken | None = None
        """What is to be renewed; none if a person is asked."""
        self._lost = f"its login no longer holds; {wanted(server)}"

    async def _refuse(self, url: str) -> None:
        raise OAuthFlowError(self._lost)

    async def _never(self) -> AuthorizationCodeResult:
        raise OAuthFlowError(self._lost)

    async def _perform_authorization(self) -> httpx2.Request:
        """Renew what is kept, which another session may have done already; else ask the person."""
        kept = None if self._attended else await self.context.storage.get_tokens()
        self.context.current_tokens, self._tried = kept, kept
        if self.context.can_refresh_token():
            return await self._refresh_token()
        self._tried = None
        return await super()._perform_authorization()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        if self._tried is None:
            await super()._handle_token_response(response)
        elif response.is_server_error:
            raise OAuthFlowError(f"its login cannot be renewed: HTTP {response.status_code}")
        elif not (await self._handle_refresh_response(response) or await self._found(self._tried)):
            raise OAuthFlowError(self._lost)

    async def _found(self, tried: OAuthToken) -> bool:
        """Whether another session was quicker to renew it: what that one got is ours, too."""
        for _ in range(LOOKS):
            found = await self.context.storage.get_tokens()
            if found is not None and found != tried:
                self.context.current_tokens = found
                return True
            await anyio.sleep(PAUSE)
        return False
