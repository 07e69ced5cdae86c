"""The browser's way out: which addresses it dials, and for whom."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import anyio
import pytest

from tests.providers.raw import serve
from travois.sandbox.network import ProxyRequest
from travois.tools.web.browser_proxy import BrowserProxy


def test_the_gate_dials_only_what_it_judged() -> None:
    async def addresses(host: str, port: int) -> Sequence[str]:
        return {"rebound.test": ("127.0.0.1", "10.0.0.7"), "metadata.test": ("168.63.129.16",)}[
            host
        ]

    async def main() -> None:
        open_ = {"local": False}
        gate = BrowserProxy(lambda: open_["local"], addresses=addresses)
        with serve(lambda peer: None) as server:
            for host in (b"rebound.test", b"metadata.test", b"[::ffff:127.0.0.1]", b"localhost"):
                with pytest.raises(PermissionError):
                    await gate._connect(ProxyRequest("http", host, server.port))
            open_["local"] = True
            for host in (b"rebound.test", b"metadata.test", b"evil.localhost.test\0"):
                with pytest.raises((PermissionError, KeyError)):
                    await gate._connect(ProxyRequest("http", host, server.port))
            for host in (b"localhost", b"127.0.0.1", b"app.localhost"):
                async with await gate._connect(ProxyRequest("http", host, server.port)):
                    pass

    anyio.run(main)


def test_connections_to_this_machine_end_when_a_stranger_comes() -> None:
    async def main() -> None:
        gate = BrowserProxy(lambda: True)
        with serve(lambda peer: peer.stay()) as server:
            async with await gate._connect(
                ProxyRequest("socks", b"localhost", server.port)
            ) as kept:
                gate.close_local_connections()
                with pytest.raises(anyio.EndOfStream):
                    await kept.receive()
            assert server.deserted()

    anyio.run(main)


def test_a_server_of_the_session_is_met_before_one_of_the_machine() -> None:

    async def main() -> None:
        asked: list[int] = []

        def session(family: int) -> socket.socket | None:
            asked.append(family)
            return socket.socket(family, socket.SOCK_STREAM)

        with serve(lambda peer: None) as server:
            gate = BrowserProxy(lambda: True, session=session)
            async with await gate._connect(ProxyRequest("socks", b"localhost", server.port)):
                assert asked == [socket.AF_INET]
            closed = BrowserProxy(lambda: False, session=session)
            with pytest.raises(PermissionError):
                await closed._connect(ProxyRequest("socks", b"localhost", server.port))
            assert asked == [socket.AF_INET]
        with pytest.raises(OSError, match="does not answer"):
            await gate._connect(ProxyRequest("socks", b"localhost", server.port))

    anyio.run(main)
