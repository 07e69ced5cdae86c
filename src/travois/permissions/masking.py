"""Masking settings before they are shown or written to a file that people send around.

Values are masked by the name that they stand under, by their shape, and where they are the same as
a value that is known to be secret. Variables and headers are masked whatever they are called: that
is where people put secrets, and nobody needs their values to see which file decided.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from travois.permissions.secrets import Secrets, find_secrets, is_secret_name

MASK_TEXT = "[masked]"
FULLY_MASKED_SETTINGS = frozenset(("env", "headers", "client", "http_headers"))
"""Settings below which every value is masked."""
UNMASKED_VALUES = frozenset(("", "0", "1", "true", "false", "yes", "no", "on", "off"))
"""Values that tell nothing."""
ASSIGNMENT_PATTERN = re.compile(r"\b([A-Za-z_][\w-]*)(=|\s*:\s*)(\"[^\"]*\"|'[^']*'|[^\s\"';|&)]+)")
VARIABLE_NAME_PATTERN = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
AUTH_HEADER_PATTERN = re.compile(r"(?i)\b(bearer|basic)\s+([\w.~+/=-]{6,})")
SECRET_FLAG_NAME = r"--?[\w-]*(?:token|secret|password|passwd|api-?key|auth)"
SECRET_FLAG_PATTERN = re.compile(rf"({SECRET_FLAG_NAME})(=|\s+)(\S+)", re.IGNORECASE)
SECRET_FLAG_NAME_PATTERN = re.compile(SECRET_FLAG_NAME, re.IGNORECASE)
RANDOM_VALUE_PATTERN = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w.~+=-]{16,}")
"""Letters and digits in a row, as keys are."""

_known_secrets: dict[str, str] = {}


def register_secrets(values: Iterable[tuple[str, str]]) -> None:
    """Register secret values with their names, to mask them in everything shown from now on."""
    for name, value in values:
        bare = value.removeprefix("Bearer ")
        if len(bare) >= 8 and not bare.startswith(("/", "~")):
            _known_secrets[bare] = name
            _known_secrets[msgspec.json.encode(bare).decode()[1:-1]] = name


def find_likely_secrets(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the variables that hold secrets, by name or by value."""
    for name, value in pairs:
        if is_secret_name(name) or find_secrets(value) or RANDOM_VALUE_PATTERN.fullmatch(value):
            yield name, value


def registered_secrets() -> Secrets:
    """Return the values that were registered; longer ones first, as one may hold another."""
    pairs = ((name, value) for value, name in _known_secrets.items())
    return Secrets(tuple(sorted(pairs, key=lambda pair: -len(pair[1]))))


def mask_text(text: str) -> str:
    """Mask what looks like a secret in a command line, an address or a message."""
    text = registered_secrets().redact(text)
    text = AUTH_HEADER_PATTERN.sub(rf"\1 {MASK_TEXT}", text)
    text = SECRET_FLAG_PATTERN.sub(rf"\1\2{MASK_TEXT}", text)
    text = ASSIGNMENT_PATTERN.sub(_mask_assignment, text)
    for found in reversed(find_secrets(text)):
        text = f"{text[: found.start]}[masked: {found.kind}]{text[found.end :]}"
    return text


def mask_value(key: str, value: object) -> object:
    """Mask a setting as it is shown; `key` is its dotted name, and decides about what is below."""
    parts = key.split(".")
    whole = any(part in FULLY_MASKED_SETTINGS for part in parts[:-1]) or (
        parts[-1] in FULLY_MASKED_SETTINGS
    )
    if isinstance(value, Mapping):
        tree: Mapping[str, object] = msgspec.convert(value, dict[str, object])
        return {name: mask_value(f"{key}.{name}", below) for name, below in tree.items()}
    if isinstance(value, list | tuple):
        items = msgspec.convert(value, list[object])
        flags = [bool(SECRET_FLAG_NAME_PATTERN.fullmatch(str(one))) for one in items]
        pairs = zip(items, [False, *flags], strict=False)
        return [MASK_TEXT if secret else mask_value(key, item) for item, secret in pairs]
    if isinstance(value, str):
        secret = (whole or is_secret_name(parts[-1])) and value.lower() not in UNMASKED_VALUES
        return MASK_TEXT if secret else mask_text(value)
    return value


def _mask_assignment(found: re.Match[str]) -> str:
    """Mask the value of a matched `NAME=value` or `name: value` if the name is that of a secret."""
    name, between, value = found.groups()
    # Our own messages have placeholders (`KEY=…`) and names of variables (`key: API_KEY`).
    tells = any(char.isalnum() for char in value) and not VARIABLE_NAME_PATTERN.fullmatch(value)
    return f"{name}{between}{MASK_TEXT}" if is_secret_name(name) and tells else found[0]
