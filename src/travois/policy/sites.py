"""Which host a URL leads to: compared whole, after everything that could disguise it is gone."""

from __future__ import annotations

import re

from travois.policy.paths import folded

PLAIN = re.compile(r"https?://([a-z0-9.-]+)(?::\d{1,5})?(?:[/?#].*)?", re.IGNORECASE | re.DOTALL)
"""A URL without a user name, whose host is made of nothing but letters, digits and hyphens."""


def allows(what: str, url: str) -> bool:
    """Whether the rule means this URL, or exactly the host of a plain one."""
    if not what.startswith("domain:"):
        return url == what
    found = PLAIN.fullmatch(url)
    if found is None:
        return False
    host, wanted = found[1].lower().rstrip("."), what.removeprefix("domain:").lower().rstrip(".")
    return wanted in ("*", host) or (wanted.startswith("*.") and host.endswith(wanted[1:]))


def mentions(what: str, url: str) -> bool:
    """Whether the URL may lead to the rule's host or to one below it, however it is written."""
    if not what.startswith("domain:"):
        return url == what
    wanted = folded(what.removeprefix("domain:")).removeprefix("*.").rstrip(".")
    hosts = _hosts(url)
    return wanted == "*" or any(h == wanted or h.endswith(f".{wanted}") for h in hosts)


def _hosts(url: str) -> set[str]:
    """Every reading of the URL that some client could have."""
    from urllib.parse import unquote

    text = folded(re.sub(r"[\x00-\x20\x7f]", "", unquote(url)))
    starts = (text, text.partition(":")[2])
    authorities = (re.split(r"[/\\?#]", start.lstrip("/\\"), maxsplit=1)[0] for start in starts)
    return {
        re.sub(r":\d*$", "", part).rstrip(".") for whole in authorities for part in whole.split("@")
    }
