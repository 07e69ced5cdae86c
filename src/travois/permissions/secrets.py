"""Secrets: detecting variable names and texts that look like them, redaction and masking.

The exact values of our own secrets are taken out of what is recorded. Texts that merely look like
keys stay in results: a model that is to rotate a key or fix a test must see it, and whoever could
read the file could read the key. What is kept for longer goes through `leaks.find_leak` first.

Settings are masked before they are shown or written to a file that people share: by the name that a
value stands under, by its shape, and where it equals a known secret. Variables and headers are
masked whatever their name: that is where people put secrets, and nobody needs their values to see
which file decided.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from travois.core.content import Text, TextOrMedia
from travois.core.display_text import split_names
from travois.core.facts import AnyFact, Ended, Failed, Finished, Hooked, Noted, Result, User
from travois.core.patterns import compile_lazily

SECRET_WORDS = split_names(
    "TOKEN SECRET SECRETS PASSWORD PASSWD PASSPHRASE PASS CREDENTIAL CREDENTIALS DSN WEBHOOK"
)
"""Words that make a name one of a secret, wherever they stand in it."""
SECRET_WORD_ENDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "PASSFILE")
"""The same at the end of a word, as in PGPASSWORD."""
SECRET_NAME_ENDS = (
    *("KEY", "AUTH", "KEY_ID", "KEY_BASE", "KEY_B64", "KEY_FILE", "KEY_PATH", "KEY_JSON"),
    *("AUTH_CONFIG", "AUTHORIZATION", "PAT", "HEADERS", "COOKIE", "BW_SESSION", "MYSQL_PWD"),
    "CONNECTION_STRING",
    *("DATABASE_URL", "DATABASE_URI", "REDIS_URL", "MONGODB_URI", "MONGO_URL", "AMQP_URL"),
)
"""The same at the end of a name."""
KEY_WORDS = split_names(
    "API ACCESS PRIVATE SECRET SERVICE ACCOUNT SIGNING ENCRYPTION LICENSE MASTER"
)
"""Words that make a KEY after them a secret's wherever they stand, as in ACME_API_KEY_TEAM_B."""
HARMLESS_NAME_ENDS = split_names(
    "DIR LIMIT COUNT LENGTH TYPE NAME SIZE TTL ENABLED PROMPT TIMEOUT EXPIRY VERSION HOST PORT"
)
"""A name that ends so speaks about a secret and does not hold it."""
MIN_SECRET_CHARS = 8
MIN_SECRET_WORD_CHARS = 16
"""Fewer characters, or a mere word such as `postgres`, stand in too many innocent texts."""
SECRET_SHAPES = (
    ("private key", r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    ("Anthropic key", r"\bsk-ant-[\w-]{20,}"),
    ("API key", r"\bsk-(?:proj-|or-v1-)?[A-Za-z0-9_-]{32,}"),
    ("GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{40,})"),
    ("GitLab token", r"\bglpat-[\w-]{20,}"),
    ("AWS key", r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b"),
    ("Google key", r"\bAIza[\w-]{35}"),
    ("Slack token", r"\bxox[abprs]-[\w-]{10,}"),
    ("Stripe key", r"\b[rs]k_live_[A-Za-z0-9]{16,}"),
    ("npm token", r"\bnpm_[A-Za-z0-9]{36}"),
    ("Hugging Face token", r"\bhf_[A-Za-z]{30,}"),
    ("web token", r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
    ("password in a URL", r"\b[a-z][a-z0-9+.-]*://[^\s/:@]*:[^\s/:@$<{]{3,}@"),
)
DATABASE_URL_PATTERN = re.compile(
    r"\b(?!https?:|socks\w*:|git\+)[a-z][a-z0-9+.-]*://[^\s/:@]*:[^\s/@]+@"
)
"""An address with a password. Those of proxies and package indexes are for commands to use."""
MASK_TEXT = "[masked]"
FULLY_MASKED_SETTINGS = frozenset(("env", "headers", "client", "http_headers"))
"""Settings below which every value is masked."""
UNMASKED_VALUES = frozenset(("", "0", "1", "true", "false", "yes", "no", "on", "off"))
"""Values that tell nothing."""
ASSIGNMENT_PATTERN = compile_lazily(
    r"\b([A-Za-z_][\w-]*)(=|\s*:\s*)(\"[^\"]*\"|'[^']*'|[^\s\"';|&)]+)"
)
VARIABLE_NAME_PATTERN = compile_lazily(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
AUTH_HEADER_PATTERN = compile_lazily(r"(?i)\b(bearer|basic)\s+([\w.~+/=-]{6,})")
SECRET_FLAG_NAME = r"--?[\w-]*(?:token|secret|password|passwd|api-?key|auth)"
SECRET_FLAG_PATTERN = compile_lazily(rf"({SECRET_FLAG_NAME})(=|\s+)(\S+)", re.IGNORECASE)
SECRET_FLAG_NAME_PATTERN = compile_lazily(SECRET_FLAG_NAME, re.IGNORECASE)
RANDOM_VALUE_PATTERN = compile_lazily(r"(?=.*\d)(?=.*[A-Za-z])[\w.~+=-]{16,}")
"""Letters and digits in a row, as keys are."""

_known_secrets: dict[str, str] = {}


class FoundSecret(msgspec.Struct, frozen=True):
    """A place in a text that looks like a secret."""

    kind: str
    start: int
    end: int


def find_secrets(text: str) -> tuple[FoundSecret, ...]:
    """Return the places where a text has what looks like a well-known kind of secret."""
    found = (
        (SECRET_SHAPES[(one.lastindex or 1) - 1][0], one)
        for one in _secret_pattern().finditer(text)
    )
    return tuple(FoundSecret(kind, one.start(), one.end()) for kind, one in found)


@cache
def _secret_pattern() -> re.Pattern[str]:
    return re.compile("|".join(f"({shape})" for _, shape in SECRET_SHAPES))


def is_secret_name(name: str) -> bool:
    """Return whether a variable or header of this name probably holds a secret."""
    words = [word for word in re.split(r"[^A-Z0-9]+", name.upper()) if word]
    if not words or words[-1] in HARMLESS_NAME_ENDS or "PUBLIC" in words:
        return False
    if any(word in SECRET_WORDS or word.endswith(SECRET_WORD_ENDS) for word in words):
        return True
    if any(one in KEY_WORDS and next_one == "KEY" for one, next_one in pairwise(words)):
        return True
    whole = "_" + "_".join(words)
    return any(whole.endswith(f"_{last}") for last in SECRET_NAME_ENDS)


def is_secret_variable(name: str, value: str) -> bool:
    """Return whether a variable holds a secret: by its name, or as a database's password."""
    return is_secret_name(name) or ("://" in value and bool(DATABASE_URL_PATTERN.search(value)))


class Secrets(msgspec.Struct, frozen=True):
    """Secret values that are kept out of files, each with the name that replaces it."""

    values: tuple[tuple[str, str], ...] = ()

    def redact(self, text: str) -> str:
        """Return the text with each secret value replaced by its name."""
        for name, value in self.values:
            if value in text:
                text = text.replace(value, f"[redacted: {name}]")
        return text

    def redact_bytes(self, data: bytes) -> bytes:
        """Return bytes that may not be text with each secret value replaced by its name."""
        for name, value in self.values:
            if (found := value.encode(errors="surrogateescape")) in data:
                data = data.replace(found, f"[redacted: {name}]".encode())
        return data

    def redact_fact(self, fact: AnyFact) -> AnyFact:
        """Return a fact as it may be logged; what people and the model wrote stays."""
        if not self.values:
            return fact
        match fact:
            case Result():
                content = self._redact_content(fact.content)
                return replace(fact, content=content, detail=self.redact(fact.detail))
            case User() if fact.origin != "human":
                return replace(fact, content=self._redact_content(fact.content))
            case Failed():
                return replace(fact, message=self.redact(fact.message))
            case Noted():
                return replace(fact, text=self.redact(fact.text))
            case Hooked() | Finished():
                return replace(fact, outcome=self.redact(fact.outcome))
            case Ended():
                return replace(fact, detail=self.redact(fact.detail))
            case _:
                return fact

    def _redact_content(self, content: tuple[TextOrMedia, ...]) -> tuple[TextOrMedia, ...]:
        return tuple(
            replace(block, text=self.redact(block.text)) if isinstance(block, Text) else block
            for block in content
        )


def collect_secrets(
    named_values: Iterable[tuple[str, str]], *, listed: Iterable[tuple[str, str]] = ()
) -> Secrets:
    """Return the secrets among variables or headers; longer first, as one may contain another.

    Those that are `listed` count whatever their name, URLs too: a webhook is one.
    """
    found = {
        value.removeprefix("Bearer "): name
        for name, value in named_values
        if is_secret_variable(name, value)
    }
    kept = [(name, value) for value, name in found.items() if _is_secret_value(value)]
    kept += [(name, value) for name, value in listed if len(value) >= MIN_SECRET_CHARS]
    return Secrets(tuple(sorted(kept, key=lambda pair: -len(pair[1]))))


def _is_secret_value(value: str) -> bool:
    """Return whether a value is a secret, not a path, a word or a URL without a password."""
    if value.startswith(("/", "~")) or ("://" in value and not _secret_pattern().search(value)):
        return False
    return len(value) >= (
        MIN_SECRET_WORD_CHARS if value.isalpha() or value.isdigit() else MIN_SECRET_CHARS
    )


def register_secrets(values: Iterable[tuple[str, str]]) -> None:
    """Register secret values with their names, to mask them in everything shown from then on."""
    for name, value in values:
        bare = value.removeprefix("Bearer ")
        if len(bare) >= 8 and not bare.startswith(("/", "~")):
            _known_secrets[bare] = name
            _known_secrets[msgspec.json.encode(bare).decode()[1:-1]] = name


def find_likely_secrets(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the environment variables that hold secrets, by name or by value, for masking."""
    for name, value in pairs:
        if is_secret_name(name) or find_secrets(value) or RANDOM_VALUE_PATTERN.fullmatch(value):
            yield name, value


def registered_secrets() -> Secrets:
    """Return the secret values registered for masking; longer first, as one may contain another."""
    pairs = ((name, value) for value, name in _known_secrets.items())
    return Secrets(tuple(sorted(pairs, key=lambda pair: -len(pair[1]))))


def mask_text(text: str) -> str:
    """Mask what looks like a secret in a command line, URL or message."""
    text = registered_secrets().redact(text)
    text = AUTH_HEADER_PATTERN.sub(rf"\1 {MASK_TEXT}", text)
    text = SECRET_FLAG_PATTERN.sub(rf"\1\2{MASK_TEXT}", text)
    text = ASSIGNMENT_PATTERN.sub(_mask_assignment, text)
    for found in reversed(find_secrets(text)):
        text = f"{text[: found.start]}[masked: {found.kind}]{text[found.end :]}"
    return text


def mask_value(key: str, value: object) -> object:
    """Mask secrets in a settings value for display; `key` is its dotted name."""
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
    """Mask the value of a matched `NAME=value` or `name: value` if the name suggests a secret."""
    name, between, value = found.groups()
    # Our own messages have placeholders (`KEY=…`) and names of variables (`key: API_KEY`).
    tells = any(char.isalnum() for char in value) and not VARIABLE_NAME_PATTERN.fullmatch(value)
    return f"{name}{between}{MASK_TEXT}" if is_secret_name(name) and tells else found[0]
