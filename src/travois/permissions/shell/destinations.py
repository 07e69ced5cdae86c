"""Where a program reaches: a rule that names one place on the network means no second one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from travois.core.display_text import listed
from travois.permissions.shell.options import Refused, sort, table
from travois.permissions.shell.plan import Step, Word
from travois.permissions.shell.tables import RULED

FETCHERS = listed("curl wget aria2c fetch lynx w3m links elinks")
"""Programs each of whose operands is a place on the network, even without a scheme."""
URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
LOGIN = re.compile(r"[\w.-]+@[\w.\[\]:-]+|[\w.-]+:(?!\d+$)[\w./~-]*")
"""A user at a host, or a path on one: `git@host:repo`, `host:file`."""
HOST = re.compile(r"(?:[\w-]+\.)+[a-z]{2,}(?::\d+)?(?:/\S*)?", re.IGNORECASE)
REACHING = FETCHERS | listed(
    """
    git pip pip3 uv npm pnpm yarn bun cargo go docker podman gh ssh scp sftp rsync ftp nc ncat
    telnet http https xh helm kubectl ping dig host nslookup psql mysql redis-cli
    """
)


def adds_destination(what: str, step: Step) -> bool:
    """Whether a step reaches a place besides those that a rule with a star names."""
    if not step.argv or step.name not in REACHING:
        return False
    glued = "*" in what.removesuffix(":*") and not what.endswith((" *", ":*"))
    named = what.removesuffix(":*").replace("*", " ").split()[1:]
    if not any(_leads(word, step.name) for word in named):
        return False
    found = list(_destinations(step))
    known = [one for one in found if _is_named(one, named, glued=glued)]
    return len(known) < len(found) or (glued and len(found) > len(named))


def _is_named(place: str, named: list[str], *, glued: bool) -> bool:
    return place in named or (glued and place.startswith(named[-1]))


def _leads(word: str, program: str) -> bool:
    """Whether a word of a rule names a place."""
    if word.startswith("-"):
        return bool(URL.match(word.partition("=")[2]))
    return program in FETCHERS or bool(URL.match(word) or LOGIN.match(word) or HOST.fullmatch(word))


def _destinations(step: Step) -> Iterator[str]:
    if step.name in FETCHERS:
        yield from (word.text for word in _operands(step))
        options = [word.text for word in step.argv[1:] if word.text.startswith("-")]
        yield from (text for text in options if URL.match(text.partition("=")[2]))
        return
    for word in step.argv[1:]:
        value = word.text.partition("=")[2] if word.text.startswith("-") else word.text
        if word.kind == "open" or URL.match(value) or LOGIN.match(value) or HOST.fullmatch(value):
            yield word.text


def _operands(step: Step) -> tuple[Word, ...]:
    """The operands of a program; of one whose options are not known, all that is no option."""
    wanted = table(RULED).get(step.name)
    try:
        if wanted is not None:
            return sort(wanted, step.argv[1:]).operands
    except Refused:
        pass
    return tuple(word for word in step.argv[1:] if not word.text.startswith("-"))
