"""Leaks: texts that seem to hold a secret, and must not be kept for longer than a session."""

from __future__ import annotations

import math
import re
from collections import Counter

from travois.permissions.secrets import find_secrets

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
