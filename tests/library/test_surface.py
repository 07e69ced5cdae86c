"""The public surface is what `surface.txt` says: names, signatures and fields."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import travois
import travois.testing

SURFACE = Path(__file__).parent / "surface.txt"


def describe_public_names() -> str:
    """Return the public surface as text, one name after the other."""
    lines: list[str] = []
    for module in (travois, travois.testing):
        for name in sorted(module.__all__):
            lines += describe_name(f"{module.__name__}.{name}", getattr(module, name))
    return "\n".join(lines) + "\n"


def describe_name(name: str, value: Any) -> list[str]:
    if not isinstance(value, type):
        return [f"{name}{describe_signature(value) if callable(value) else ''}"]
    lines = [f"{name}({', '.join(base.__name__ for base in value.__bases__)})"]
    if issubclass(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        hints = inspect.get_annotations(value)
        lines += [f"    {field.name}: {hints.get(field.name)}" for field in fields]
    members = {**vars(value)}
    if "__init__" in members and not issubclass(value, msgspec.Struct):
        lines.append(f"    __init__{describe_signature(value.__init__)}")
    for member, found in sorted(members.items()):
        if member.startswith("_") or member in getattr(value, "__struct_fields__", ()):
            continue
        if inspect.isfunction(found):
            lines.append(f"    {member}{describe_signature(found)}")
        elif isinstance(found, property):
            lines.append(f"    {member}: {inspect.get_annotations(found.fget)['return']}")
    return lines


def describe_signature(function: Any) -> str:
    try:
        return str(inspect.signature(function)).replace("'", "")
    except (TypeError, ValueError):
        return ""


def test_the_surface_is_what_the_file_says() -> None:
    found = describe_public_names()
    assert found == SURFACE.read_text("utf-8"), (
        "The public surface changed. If that is meant: python -m tests.library.test_surface, "
        "a line in CHANGELOG.md, and a deprecated alias for whatever went (docs/sdk.md, Versions)"
    )


def test_every_public_name_has_a_docstring() -> None:
    for name in travois.__all__:
        value = getattr(travois, name)
        assert not callable(value) or value.__doc__, name


def test_the_first_names_still_work_and_say_that_they_will_go() -> None:
    for name in ("Listener", "Tool"):
        with pytest.warns(DeprecationWarning, match="goes with 0.2"):
            assert getattr(travois, name).__name__ == name


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Sesion"):
        _ = travois.Sesion  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing_of_it() -> None:
    script = "import sys, travois; print([m for m in sys.modules if m.startswith('travois.')])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['travois.version']"


if __name__ == "__main__":
    SURFACE.write_text(describe_public_names(), "utf-8")
