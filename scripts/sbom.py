"""Prints a software bill of materials of Travois and all that it needs at run time.

The form is CycloneDX 1.6 JSON. The same packages give the same text: the serial number is made of
them, and the time is left out.
"""

from __future__ import annotations

import json
import sys
from uuid import NAMESPACE_URL, uuid5

from inventory import Package, runtime_packages


def main() -> int:
    """Print the document to standard output."""
    sys.stdout.write(json.dumps(document(runtime_packages()), indent=2) + "\n")
    return 0


def document(packages: dict[str, Package]) -> dict[str, object]:
    """Return the bill of materials of these packages; `travois` is what it is about."""
    own = packages["travois"]
    parts = [each for each in packages.values() if each is not own]
    digest = uuid5(NAMESPACE_URL, " ".join(purl(each) for each in packages.values()))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{digest}",
        "version": 1,
        "metadata": {"component": component(own, kind="application")},
        "components": [component(each, kind="library") for each in parts],
        "dependencies": [
            {
                "ref": purl(each),
                "dependsOn": [purl(packages[name]) for name in each.needs if name in packages],
            }
            for each in packages.values()
        ],
    }


def component(package: Package, *, kind: str) -> dict[str, object]:
    """Return one package as CycloneDX describes it."""
    licences = [{"expression": package.licence}] if package.licence else []
    return {
        "type": kind,
        "bom-ref": purl(package),
        "name": package.name,
        "version": package.version,
        "purl": purl(package),
        "licenses": licences,
    }


def purl(package: Package) -> str:
    """Return the address of a package that tools look vulnerabilities up by."""
    return f"pkg:pypi/{package.name}@{package.version}"


if __name__ == "__main__":
    raise SystemExit(main())
