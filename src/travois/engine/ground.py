"""Facts of the disk that permissions need: where links lead, what patterns stand for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from glob import iglob
from itertools import islice

import msgspec
from msgspec.structs import replace

from travois.engine.tool import Here, Refusal
from travois.policy.access import Access
from travois.policy.paths import inside
from travois.policy.plan import Plan

STARTS_PROGRAMS = (
    *("fsmonitor", "external", "textconv", "command", "pager", "program", "helper"),
    *("[alias", "[include", "[filter", "[diff "),
)
"""Words in a repository's settings with which git starts programs of its choice."""
HOOKS_AT = re.compile(r"hookspath\s*=\s*(\S+)")
TEMP = "/tmp"  # noqa: S108 - this is about the name
MANY = 500
"""How many files a pattern may stand for before it is judged by its folder alone."""


def home() -> str:
    """What `~` stands for."""
    return os.path.realpath(os.path.expanduser("~"))


def resolved(accesses: tuple[Access, ...], here: Here | None = None) -> tuple[Access, ...]:
    """The same accesses with links followed, so that the judge sees what will be touched."""
    return tuple(found for access in accesses for found in _followed(access, here))


def understood(accesses: tuple[Access, ...], here: Here) -> tuple[Plan, ...]:
    """What the command lines among the accesses will do, with links followed."""
    lines = [access.target for access in accesses if access.kind == "exec"]
    if not lines:
        return ()
    from travois.policy.shell import plan

    around = repository_around(here.cwd)
    foreign = around != repository_around(here.root) or _runs_programs(around)
    plans = (plan(line, cwd=here.cwd, home=home(), foreign=foreign) for line in lines)
    return tuple(one.resolved(lambda access: _followed(access, here)) for one in plans)


def repository_around(folder: str) -> str:
    """The folder whose settings git would obey here."""
    path = real(folder)
    while path != "/":
        if any(os.path.lexists(f"{path}/{name}") for name in (".git", "HEAD")):
            return path
        path = os.path.dirname(path)
    return path


def _runs_programs(repository: str) -> bool:
    """Whether git would start programs that this repository names, even when it only looks."""
    git = _git_folder(repository)
    config = "".join(_text(f"{git}/{name}") for name in ("config", "config.worktree")).lower()
    hooks = [f"{git}/hooks", *(os.path.join(repository, at) for at in HOOKS_AT.findall(config))]
    hooked = any(os.path.lexists(f"{folder}/post-index-change") for folder in hooks)
    return hooked or any(word in config for word in STARTS_PROGRAMS)


def _git_folder(repository: str) -> str:
    """Where the settings lie; a worktree's are those of the repository that it belongs to."""
    git = f"{repository}/.git"
    if not os.path.isfile(git):
        return git if os.path.isdir(git) else repository
    own = os.path.join(repository, _text(git).removeprefix("gitdir:").strip())
    return os.path.join(own, _text(f"{own}/commondir").strip())


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def plain_arguments(text: str) -> tuple[tuple[str, str], ...]:
    """The arguments of a call that are neither lists nor objects, for rules that name them."""
    try:
        found = msgspec.json.decode(text or "{}", type=dict[str, msgspec.Raw], strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ()
    plain = ((name, bytes(raw).decode()) for name, raw in found.items())
    return tuple((name, value.strip('"')) for name, value in plain if value[:1] not in "[{")


def _followed(access: Access, here: Here | None) -> tuple[Access, ...]:
    if access.kind not in ("read", "write"):
        return (access,)
    if access.scope == "many":
        return tuple(_matching(access, here))
    path = real(_private(access.target, here))
    names = _names(path) if access.kind == "write" else 1
    return (replace(access, target=path, spelt=access.target, names=names),)


def _private(path: str, here: Here | None) -> str:
    """Where a path really is for us: what others keep in /tmp is not there."""
    if here is None or not here.temp or not inside(path, TEMP):
        return path
    if any(inside(path, folder) for folder in (here.root, here.temp, *here.apart)):
        return path
    return os.path.normpath(f"{here.temp}/{os.path.relpath(path, TEMP)}")


def _matching(access: Access, here: Here | None) -> Iterator[Access]:
    """Every file that a pattern stands for, besides the folder that it looks in."""
    access = replace(access, target=_private(access.target, here))
    fixed = access.target.split("*")[0].split("?")[0].split("[")[0]
    folder = real(os.path.dirname(fixed))
    yield replace(access, target=folder + access.target[len(os.path.dirname(fixed)) :])
    for path in islice(iglob(access.target), MANY):
        if os.path.islink(path) or access.kind == "write":
            yield from _followed(replace(access, target=path, scope="one"), None)


def _names(path: str) -> int:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return 1
    return 1 if os.path.isdir(path) else found.st_nlink


def real(path: str) -> str:
    """A path with its links followed; raises `Refusal` if it can be none, or is changing."""
    try:
        return "/" + os.path.realpath(path).lstrip("/")
    except (OSError, ValueError) as error:
        raise Refusal(f"{path!r} cannot be the path of a file") from error
