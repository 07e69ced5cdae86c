"""The environment variables of child processes: without secrets, and set up never to prompt."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from travois.permissions.secrets import is_secret_variable

MISLEADING_VARIABLES = (
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
"""Variables that make a shell or git do something other than its command line says."""

UNATTENDED_VARIABLES = {
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
"""Settings against pagers, prompts and buffered output: no person is at a child's terminal."""


ESSENTIAL_VARIABLES = frozenset(
    ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
)
"""Variables that a program needs to run at all."""


def build_child_environment(
    environ: Mapping[str, str], *, passed: Collection[str] = ()
) -> dict[str, str]:
    """Return every child's environment variables; `passed` names skip the secret filter."""
    kept = {
        name: value
        for name, value in environ.items()
        if name in passed or not (name in MISLEADING_VARIABLES or is_secret_variable(name, value))
    }
    return kept | {
        name: value for name, value in UNATTENDED_VARIABLES.items() if name not in passed
    }


def build_minimal_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an MCP server's minimal environment variables; its configuration adds others."""
    return {
        name: value
        for name, value in environ.items()
        if name in ESSENTIAL_VARIABLES or name[:3] == "LC_"
    }
