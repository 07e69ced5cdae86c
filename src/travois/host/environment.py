"""What a child may know: our environment without secrets and without what would make it wait."""

from __future__ import annotations

from collections.abc import Collection, Mapping

SECRET_PARTS = (
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
)
SECRET_STARTS = ("ANTHROPIC_", "OPENAI_", "GEMINI_", "OPENROUTER_", "AWS_", "AZURE_", "OTEL_")
SECRET_ENDS = ("_KEY", "_KEY_ID", "_AUTH", "_PAT", "_DSN", "DATABASE_URL", "PGPASSFILE")
"""What the name of a secret holds, begins or ends with; children get none that do."""

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


def clean(environ: Mapping[str, str], *, passed: Collection[str] = ()) -> dict[str, str]:
    """The environment that every child gets; `passed` names go through whatever they look like."""
    kept = {
        name: value
        for name, value in environ.items()
        if name in passed or not (name in MISLEADING or secret(name))
    }
    return kept | {name: value for name, value in UNATTENDED.items() if name not in passed}


def secret(name: str) -> bool:
    """Whether a variable of this name would be a secret."""
    upper = name.upper()
    if upper.startswith(SECRET_STARTS) or upper.endswith(SECRET_ENDS):
        return True
    return any(part in upper for part in SECRET_PARTS)
