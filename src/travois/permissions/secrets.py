"""Secrets: detecting variable names and texts that look like them, redaction and masking.

The exact values of our own secrets are taken out of what is recorded. Texts that merely look like
keys stay in results: a model that is to rotate a key or fix a test must see it, and whoever could
read the file could read the key. What is kept for longer goes through `find_leak` first.

Settings are masked before they are shown or written to a file that people share: by the name that a
value stands under, by its shape, and where it equals a known secret. Variables and headers are
masked whatever their name: that is where people put secrets, and nobody needs their values to see
which file decided.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import msgspec
from msgspec.structs import replace

from travois.core.content import Text, TextOrMedia
from travois.core.display_text import split_names
from travois.core.facts import AnyFact, Ended, Failed, Finished, Hooked, Noted, Result, User

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
    whole = "_" + "_".join(words)
    return any(whole.endswith(f"_{last}") for last in SECRET_NAME_ENDS)


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
        value.removeprefix("Bearer "): name for name, value in named_values if is_secret_name(name)
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


# What must not be kept for longer than a session: texts that seem to hold a secret.


TOLD_SECRET = re.compile(
    r"(?i)(?<![a-z])(?:pass(?:word|wd|phrase|code)?|pwd|pin|otp|secret|token|(?:api|access|"
    r"private|signing|"
    r"encryption|deploy|license)[ _-]?keys?|credentials?|client[ _-]?secret|recovery code|"
    r"(?:unseal|recovery|seed|backup|secret|magic)[ -](?:word|phrase|code)|"
    r"connection string|seed phrase)s?\b[^.\n]{0,40}?(?:\bis\b|\bare\b|changed to|[:=]|→|->|"
    r"\bwas\b)\s*"
    r"[\"'`(]*(?!in\b|on\b|at\b|the\b|an?\b|stored|kept|set\b|from\b|read\b|not\b|never\b|rotated|"
    r"expired|required|optional|missing|invalid|wrong|managed|injected|called|named|handled|shared|"
    r"under\b|via\b|by\b|to\b|only\b|always\b|found|defined|needed|encrypted|hashed|checked|valid)"
    r"(\S{3,})"
)
SPOKEN_SECRET = re.compile(
    r"(?i)(?<![a-z])(?:password|passwd|passphrase|passcode|pin|token|secret)\s+"
    r"(?:[\"'`][^\"'`\n]{3,}[\"'`]|(?=\S*\d)(?=\S*[a-z])\S{5,})"
)
LOGIN_WITH_SECRET = re.compile(
    r"(?i)\b(?:log ?in|sign ?in|creds?|credentials?|account|user(?:name)?|admin|root)\b[^\n]{0,40}?"
    r"\b\w+\s*[/:=]\s*(?=\S*\d)(?=\S*[a-z])\S{6,}"
)
PASSWORD_FLAG = re.compile(
    r"(?i)\buser(?:name)? \w+\b[^.\n]{0,12}\b(?:type|enter|then|and) \w{5,}$|"
    r"(?<!\S)(?:-u|--user)[ =]\S+:\S{3,}|--pass(?:word|phrase)?[ =]\S{3,}"
    r"|\b(?:mysql\w*|mariadb\w*|sshpass|mongo\w*|redis-cli|smbclient|ldapsearch|psql)\b[^\n]*"
    r"\s-[paw] ?(?=\S{4,})\S*[A-Za-z]\S*"
)
"""A password as programs take it."""
AUTHORIZATION_VALUE = re.compile(r"(?i)\b(?:bearer|basic|authorization:?)\s+[\w.~+/=-]{12,}")
CHARACTER_RUN = re.compile(r"[A-Za-z0-9+/=_-]{20,}")
SECRET_NOUN = re.compile(
    r"(?i)(?<![a-z])(?:pass(?:word|wd|phrase|code)|pwd|pin|otp|secret|token|creds?|credentials?|"
    r"recovery codes?|pass|pw|(?:\w+[ _-])?keys?|log ?in|basic auth|wi-?fi|wlan|cookie|signature|"
    r"(?:door|access|entry|alarm|gate|backup|security|unlock)[ -]?codes?|"
    r"passw[oö]rt|kennwort|schlüssel|zugangsdaten|contraseña|clave|mot de passe|senha|wachtwoord|"
    r"hasło|пароль|密码|パスワード)s?(?![a-z])"
)
MIXED_VALUE = re.compile(
    r"(?<!\S)(?!https?://)(?=\S*[A-Za-z])(?=\S*\d)\S{5,}|(?<![\d.])\d{4,}(?:[ -]\d{3,})*(?![\d.])"
)
"""A possible value: letters and digits together, or many digits."""
STRONG_PASSWORD = re.compile(r"(?=\S*[a-z])(?=\S*[A-Z])(?=\S*\d)\S*[!$%^&*]\S*")
RECOVERY_CODE = re.compile(r"\b[A-Z0-9]{4,5}(?:-[A-Z0-9]{4,5}){2,}\b")
CARD_NUMBER = re.compile(r"\b\d(?:[ -]?\d){12,18}\b")
PERSONAL_NUMBER = re.compile(r"\b\d{3}-\d{2}-\d{4}\b|\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}\b")
HARMLESS_RUN = re.compile(
    r"[0-9a-f]{40}|[0-9a-f]{64}|[a-z]+(?:[-_/][a-z0-9]+)*|[A-Z]+(?:_[A-Z0-9]+)*"
)
"""Digests of commits and files, and names: long, and no secrets."""
MIN_RANDOM_ENTROPY = 3.6
"""Bits for each character from which on a long run of them was made by chance."""


def find_leak(text: str) -> str:
    """Return the kind of secret that a text seems to contain; empty if none."""
    if found := find_secrets(text):
        return found[0].kind
    if any(
        shape.search(text)
        for shape in (TOLD_SECRET, SPOKEN_SECRET, LOGIN_WITH_SECRET, PASSWORD_FLAG)
    ):
        return "password or key"
    if (
        (SECRET_NOUN.search(text) and MIXED_VALUE.search(text))
        or RECOVERY_CODE.search(text)
        or STRONG_PASSWORD.search(text)
    ):
        return "password or key"
    if AUTHORIZATION_VALUE.search(text):
        return "authorization header"
    if PERSONAL_NUMBER.search(text) or any(
        _is_card_number(one[0]) for one in CARD_NUMBER.finditer(text)
    ):
        return "personal number"
    return (
        "random value"
        if any(_is_random_value(one[0]) for one in CHARACTER_RUN.finditer(text))
        else ""
    )


def _is_card_number(digits: str) -> bool:
    """Return whether digits have a payment card's check digit, so that they count as a secret."""
    values = [int(c) for c in reversed(digits) if c.isdigit()]
    doubled = (v if i % 2 == 0 else v * 2 - 9 * (v > 4) for i, v in enumerate(values))
    return len(values) >= 13 and sum(doubled) % 10 == 0


def _is_random_value(run: str) -> bool:
    """Return whether a string looks like a random key, by its character classes and entropy."""
    if HARMLESS_RUN.fullmatch(run) or not any(c.isdigit() for c in run):
        return False
    kinds = sum(any(test(c) for c in run) for test in (str.isdigit, str.islower, str.isupper))
    if kinds < 2 or run.count("-") + run.count("_") + run.count("/") > len(run) // 6:
        return False
    counts = Counter(run).values()
    return -sum(n / len(run) * math.log2(n / len(run)) for n in counts) >= MIN_RANDOM_ENTROPY


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
