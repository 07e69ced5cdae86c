"""Decoded JSON, and how to reach into it without being surprised."""

from __future__ import annotations

from typing import Any, TypeGuard

Json = dict[str, Any]
"""A decoded JSON object of some provider's wire format."""


def is_object(value: object) -> TypeGuard[Json]:
    """Whether a decoded JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a decoded JSON value is a list."""
    return isinstance(value, list)


def inner(value: Json, name: str) -> Json:
    """The object under a name; empty where there is none."""
    found = value.get(name)
    return found if is_object(found) else {}


def listed(value: Json, name: str) -> list[Any]:
    """The list under a name; empty where there is none."""
    found = value.get(name)
    return found if is_list(found) else []


def objects(value: Json, name: str) -> list[Json]:
    """The objects in the list under a name."""
    return [one for one in listed(value, name) if is_object(one)]
