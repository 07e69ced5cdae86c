"""The packages that Travois needs at run time, as they are installed here: for NOTICE and SBOM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import NamedTuple

from packaging.requirements import Requirement

CLASSIFIER = "License :: OSI Approved :: "
SPDX = {
    "MIT License": "MIT",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""What older packages call their licence, as an SPDX expression."""
EXPRESSION = re.compile(r"[A-Za-z0-9.+-]+( (?:AND|OR|WITH) [A-Za-z0-9.+-]+)*")


class Package(NamedTuple):
    """One installed package: its normalised name, and the names of what it needs."""

    name: str
    version: str
    licence: str
    """An SPDX expression; empty where its metadata does not say."""
    needs: tuple[str, ...]


def runtime_packages(root: str = "travois") -> dict[str, Package]:
    """Return all packages that this one needs with all its extras, itself included, by name."""
    extras = frozenset(distribution(root).metadata.get_all("Provides-Extra") or ())
    waiting, seen = [(root, extras)], dict[str, frozenset[str]]()
    found: dict[str, Package] = {}
    while waiting:
        name, extras = waiting.pop()
        key = normalised(name)
        if key in seen and extras <= seen[key]:
            continue
        seen[key] = seen.get(key, frozenset()) | extras
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform
        needed = list(_needed(installed, seen[key]))
        waiting += needed
        needs = tuple(sorted({normalised(each) for each, _ in needed}))
        found[key] = Package(key, installed.version, licence(installed), needs)
    return dict(sorted(found.items()))


def licence(installed: Distribution) -> str:
    """Return the licence of an installed package as an SPDX expression; empty if it is not told."""
    told = installed.metadata
    if expression := told.get("License-Expression"):
        return expression
    written = (told.get("License") or "").strip()
    written = SPDX.get(written, written)
    if written and EXPRESSION.fullmatch(written):
        return written
    named = [each for each in told.get_all("Classifier") or () if each.startswith(CLASSIFIER)]
    known = [SPDX.get(each.removeprefix(CLASSIFIER), "") for each in named]
    return " AND ".join(sorted(filter(None, known)))


def normalised(name: str) -> str:
    """Return a package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _needed(
    installed: Distribution, extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    for text in installed.requires or ():
        wanted = Requirement(text)
        marker = wanted.marker
        if marker is None or any(marker.evaluate({"extra": each}) for each in ("", *extras)):
            yield wanted.name, frozenset(wanted.extras)
