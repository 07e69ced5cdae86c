"""Host patterns of permission rules, compared with every possible reading of a URL's host."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from urllib.parse import unquote

from travois.permissions.paths import fold_name

PLAIN_URL = r"(?is)https?://([a-z0-9.-]+)(?::\d{1,5})?(?:[/?#].*)?"
"""A URL without a user name, whose host is made of nothing but letters, digits and hyphens."""


def rule_allows_url(what: str, url: str) -> bool:
    """Return whether an allow rule names this URL, or exactly the host of a plain one."""
    if not what.startswith("domain:"):
        return url == what
    found = re.fullmatch(PLAIN_URL, url)
    if found is None:
        return False
    host, wanted = found[1].lower().rstrip("."), what.removeprefix("domain:").lower().rstrip(".")
    if wanted.startswith("*."):
        below = wanted.count(".") + 1
        host, wanted = ".".join(host.split(".")[-below + 1 :]), wanted[2:]
        return _host_fits(host, wanted) and found[1].rstrip(".").count(".") > host.count(".")
    return wanted == "*" or _host_fits(host, wanted)


def rule_mentions_url(what: str, url: str) -> bool:
    """Return whether a URL may lead to the host that a deny or ask rule names."""
    if not what.startswith("domain:"):
        return url == what
    wanted = fold_name(what.removeprefix("domain:")).removeprefix("*.").rstrip(".")
    hosts = _possible_hosts(url)
    return wanted == "*" or any(_host_fits(_last_labels(host, wanted), wanted) for host in hosts)


def _host_fits(host: str, wanted: str) -> bool:
    """Return whether a host matches a rule's pattern label by label; a star stays within one."""
    labels, patterns = host.split("."), wanted.split(".")
    same = len(labels) == len(patterns)
    return same and all(map(fnmatchcase, labels, (p.replace("[", "[[]") for p in patterns)))


def _last_labels(host: str, wanted: str) -> str:
    """Return the last labels of a host name, to compare it with a permission rule."""
    return ".".join(host.split(".")[-wanted.count(".") - 1 :])


def _possible_hosts(url: str) -> set[str]:
    """Return every host that any HTTP client might read in a URL."""
    text = fold_name(re.sub(r"[\x00-\x20\x7f]", "", unquote(url)))
    starts = (text, text.partition(":")[2])
    authorities = (re.split(r"[/\\?#]", start.lstrip("/\\"), maxsplit=1)[0] for start in starts)
    return {
        re.sub(r":\d*$", "", part).rstrip(".") for whole in authorities for part in whole.split("@")
    }
