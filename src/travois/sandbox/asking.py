"""What a caged program asks the proxy for: by CONNECT, by plain HTTP, or by SOCKS5."""

from __future__ import annotations

import re
from hmac import compare_digest
from typing import Literal

import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from travois.providers.http.client import Tcp

HEAD = 64 * 1024
LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
HOST = re.compile(rf"(?=.{{1,253}}\Z)(?:{LABEL}\.)*(?!\d+\Z|0x[0-9a-f]*\Z){LABEL}")
"""A name of letters, digits and hyphens; what ends in a number would be an address."""
PLACE = re.compile(rb"(.*?)(?::(\d{1,5}))?", re.DOTALL)
OURS = (b"host", b"connection", b"keep-alive", b"te", b"trailer", b"upgrade")
"""Headers that are about one connection; those that begin with `proxy-` are too."""
DONE = {"denied": (b"\2", b"403 Forbidden"), "failed": (b"\4", b"502 Bad Gateway")}
USER = "travois"
"""Whom the password of a proxy belongs to; programs want a name with it."""
UNKNOWN = (
    b"HTTP/1.1 407 Proxy Authentication Required\r\n"
    b'Proxy-Authenticate: Basic realm="travois"\r\n'
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
SOCKS_END = b"\0\1\0\0\0\0\0\0"


class Asked(msgspec.Struct, frozen=True):
    """One wish to reach a host. `first` is what to tell the host, `granted` what to answer."""

    style: Literal["http", "socks"]
    host: bytes
    port: int
    first: bytes = b""
    granted: bytes = b""

    def no(self, why: Literal["denied", "failed"], words: str) -> bytes:
        """How to say no in this style."""
        code, status = DONE[why]
        if self.style == "socks":
            return b"\5" + code + SOCKS_END
        text = f"{words}\n".encode()
        size = str(len(text)).encode()
        kind = b"Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
        return b"HTTP/1.1 %b\r\n%bContent-Length: %b\r\n\r\n%b" % (status, kind, size, text)


def canonical(name: str) -> str:
    """A host, or a rule for hosts, in the letters that it is looked up by."""
    import idna

    labels = name.lower().removesuffix(".").split(".")
    try:
        return ".".join(p if p.isascii() else idna.encode(p, uts46=True).decode() for p in labels)
    except idna.IDNAError:
        return ""


def plain(host: bytes) -> str:
    """The name of a host; empty if it is an address or holds what no name can."""
    name = canonical(host.decode("utf-8", "replace"))
    return name if HOST.fullmatch(name) else ""


async def heard(inlet: BufferedByteReceiveStream, client: Tcp, *, password: str = "") -> Asked:
    """What the client asks for; raises ValueError if that is nothing that we do.

    With a password given, only who knows it is heard.
    """
    first = await inlet.receive_exactly(1)
    if first == b"\5":
        return await _socks(inlet, client, password)
    head = first + await inlet.receive_until(b"\r\n\r\n", HEAD)
    line, *headers = head.split(b"\r\n")
    if password and not any(_proves(header, password) for header in headers):
        await client.send(UNKNOWN)
        raise ValueError("not by who may use this proxy")
    method, _, rest = line.partition(b" ")
    target, _, version = rest.rpartition(b" ")
    if method == b"CONNECT":
        host, port = _place(target, 443)
        return Asked("http", host, port, granted=b"HTTP/1.1 200 Connection established\r\n\r\n")
    if not target.lower().startswith(b"http://"):
        raise ValueError("neither CONNECT nor http://")
    authority, path = re.fullmatch(rb"([^/?#]*)(.*)", target[7:], re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess] - it matches everything
    host, port = _place(authority, 80)
    path = path if path.startswith(b"/") else b"/" + path
    kept = [line for line in headers if line and not _hop(line)]
    lines = [b"%b %b %b" % (method, path, version), b"Host: " + authority, *kept]
    return Asked("http", host, port, b"\r\n".join([*lines, b"Connection: close", b"", b""]))


def _proves(header: bytes, password: str) -> bool:
    """Whether a header tells the password, in the one way that all programs know."""
    from base64 import b64encode

    name, _, value = header.partition(b":")
    told = value.strip().removeprefix(b"Basic ").strip()
    right = b64encode(f"{USER}:{password}".encode())
    return name.strip().lower() == b"proxy-authorization" and compare_digest(told, right)


def _hop(line: bytes) -> bool:
    name = line.partition(b":")[0].strip().lower()
    return name in OURS or name.startswith(b"proxy-")


def _place(text: bytes, port: int) -> tuple[bytes, int]:
    found = PLACE.fullmatch(text)
    assert found is not None
    return found[1], int(found[2] or port)


async def _socks(inlet: BufferedByteReceiveStream, client: Tcp, password: str) -> Asked:
    """SOCKS5: with a name and a password, or without where the proxy has none."""
    count = await inlet.receive_exactly(1)
    way = b"\2" if password else b"\0"
    if way not in await inlet.receive_exactly(count[0]):
        await client.send(b"\5\xff")
        raise ValueError("no method in common")
    await client.send(b"\5" + way)
    if password:
        await _check_socks_password(inlet, client, password)
    _, command, _, kind = await inlet.receive_exactly(4)
    size = {1: 4, 4: 16}.get(kind) or (await inlet.receive_exactly(1))[0]
    host, port = await inlet.receive_exactly(size), await inlet.receive_exactly(2)
    if command != 1 or kind not in (1, 3, 4):
        await client.send(b"\5\7" + SOCKS_END)
        raise ValueError("only CONNECT is done")
    name = host if kind == 3 else _literal(host)
    number = int.from_bytes(port, "big")
    return Asked("socks", name, number, granted=b"\5\0" + SOCKS_END)


async def _check_socks_password(
    inlet: BufferedByteReceiveStream, client: Tcp, password: str
) -> None:
    _, size = await inlet.receive_exactly(2)
    user = await inlet.receive_exactly(size)
    told = await inlet.receive_exactly((await inlet.receive_exactly(1))[0])
    right = compare_digest(user + b":" + told, f"{USER}:{password}".encode())
    await client.send(b"\1\0" if right else b"\1\1")
    if not right:
        raise ValueError("not by who may use this proxy")


def _literal(address: bytes) -> bytes:
    from ipaddress import ip_address

    return str(ip_address(address)).encode()
