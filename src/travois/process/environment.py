"""What a child may know: our environment without secrets and without what would make it wait."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from travois.permissions.secrets import named as secret

MISLEADING = (
    "BASH_ENV",
    "ENV",
    "CDPATH",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "OLDPWD",
    "PWD",
)
"""Names that would make a shell or git do something else than its command line says."""

UNATTENDED = {
    "TERM": "dumb",
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_MERGE_AUTOEDIT": "no",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PYTHONUNBUFFERED": "1",
}
"""Nobody sits in front of a child: nothing may page, prompt or keep its output back."""


BARE = frozenset(("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"))
"""Names that a program needs to run at all."""


def clean(environ: Mapping[str, str], *, passed: Collection[str] = ()) -> dict[str, str]:
    """The environment that every child gets; `passed` names go through whatever they look like."""
    kept = {
        name: value
        for name, value in environ.items()
        if name in passed or not (name in MISLEADING or secret(name))
    }
    return kept | {name: value for name, value in UNATTENDED.items() if name not in passed}


def bare(environ: Mapping[str, str]) -> dict[str, str]:
    """The little that a server of tools gets: what it needs is said where it is configured."""
    return {name: value for name, value in environ.items() if name in BARE or name[:3] == "LC_"}
