"""Choosing the HTTP transport for a URL: direct, or through the proxy in the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address, ip_network

from msgspec.structs import replace

from travois.lazy_imports import lazy_imports
from travois.providers.catalog import is_local_url
from travois.providers.http.client import DirectTransport, Timeouts, Transport
from travois.providers.http.tls import ConnectionTarget, parse_target

with lazy_imports():
    from travois.providers.http import proxy


def create_transport(
    url: str, env: Mapping[str, str], timeouts: Timeouts | None = None
) -> Transport:
    """Create the HTTP transport for a URL; a local server has no proxy and may be slow."""
    limits = timeouts_for(url, timeouts or Timeouts())
    if is_local_url(url):
        return DirectTransport(limits, env=env)
    if through := find_proxy(url, env):
        return proxy.ProxyTransport(limits, proxy=through, env=env)
    return DirectTransport(limits, env=env)


def timeouts_for(url: str, limits: Timeouts) -> Timeouts:
    """Return the HTTP timeouts for a model server.

    A local one may read a long prompt for minutes, and hold a tool call back until it is complete;
    a limit between events that somebody configured applies all the same.
    """
    if not is_local_url(url):
        return limits
    idle = limits.idle if limits.is_idle_chosen else max(limits.idle, limits.local)
    return replace(limits, first_byte=limits.local, idle=idle)


def find_proxy(url: str, env: Mapping[str, str]) -> str:
    """Return the proxy for a URL from the environment, with a scheme; empty if none."""
    to = parse_target(url)
    named = _read_variable_any_case(env, f"{to.scheme}_proxy") or _read_variable_any_case(
        env, "all_proxy"
    )
    if (
        not named
        or is_local_url(url)
        or _is_proxy_exempt(to, _read_variable_any_case(env, "no_proxy"))
    ):
        return ""
    return named if "://" in named else f"http://{named}"


def _read_variable_any_case(env: Mapping[str, str], name: str) -> str:
    """Read a proxy variable in lower case or, as most people write it, in upper case."""
    return (env.get(name) or env.get(name.upper(), "")).strip()


def _is_proxy_exempt(to: ConnectionTarget, exceptions: str) -> bool:
    return any(_no_proxy_covers(entry, to) for entry in re.split(r"[,\s]+", exceptions) if entry)


def _no_proxy_covers(entry: str, to: ConnectionTarget) -> bool:
    """Return whether a `no_proxy` entry covers a host: `*`, domain, network or `:port`."""
    if entry == "*":
        return True
    if found := re.fullmatch(r"(.+?):(\d+)", entry):
        host, port = found[1], int(found[2])
        if ":" not in host or host.endswith("]"):
            return port == to.port and _no_proxy_covers(host, to)
    name = entry.lower().strip("[]").lstrip("*.")
    return to.host == name or to.host.endswith(f".{name}") or _is_in_network(name, to.host)


def _is_in_network(network: str, host: str) -> bool:
    """Return whether a host is an address in a network of `no_proxy`."""
    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
