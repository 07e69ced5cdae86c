"""What a command line may run, read without a parser: exactly to allow, generously to deny."""

from __future__ import annotations

from fnmatch import fnmatchcase

COMPOUND = frozenset(";&|<>$`()\n\r")
"""A command with one of these may do more than its first words say."""
SEPARATORS = str.maketrans(dict.fromkeys(";&|<>$`(){},\n\r\t\v\f", " "))
QUOTES = str.maketrans(dict.fromkeys("'\"\\"))


def allows(what: str, command: str) -> bool:
    """Whether the rule means this command and nothing else could run with it."""
    if COMPOUND.intersection(command):
        return what == command
    command = command.strip()
    if what.endswith(":*"):
        prefix = what[:-2]
        return command == prefix or command.startswith(prefix + " ")
    return _like(what, command) or (what.endswith(" *") and command == what[:-2])


def mentions(what: str, command: str) -> bool:
    """Whether what the rule names stands anywhere in the command, however quoted or chained."""
    if _like(what, command):
        return True
    wanted = _flat(f"{what[:-2]} *" if what.endswith(":*") else what)
    pattern = f"* {wanted}" + ("" if wanted.endswith("*") else " *")
    words = _flat(command)
    bare = " ".join(word.rpartition("/")[2] or word for word in words.split(" "))
    return bool(wanted) and any(_like(pattern, f" {text} ") for text in (words, bare))


def _flat(command: str) -> str:
    """The words of a command with nothing but single spaces between them."""
    joined = command.replace("\\\n", "").translate(QUOTES).translate(SEPARATORS)
    return " ".join(joined.casefold().split())


def _like(pattern: str, text: str) -> bool:
    """Only the star is special: brackets and question marks are part of many commands."""
    return fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))
