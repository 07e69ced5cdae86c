"""What docs/architecture.md and the READMEs of packages name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.test_sizes import ROOT, SOURCE

MAP = (ROOT / "docs" / "architecture.md").read_text("utf-8")
ROWS = [row.split("|") for row in re.findall(r"^\| `.*$", MAP, re.MULTILINE) if row.count("|") == 5]
DOCUMENTS = [ROOT / "docs/architecture.md", ROOT / "docs/glossary.md", *SOURCE.glob("*/README.md")]
FILE = re.compile(r"`([a-z_/]+\.py)`")


def test_every_package_is_on_the_map_with_types_that_it_has() -> None:
    named = {package: row for row in ROWS for package in re.findall(r"`([a-z_]+)", row[1])}
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages - {*named} == set()
    for row in ROWS:
        places = [SOURCE / name for name in re.findall(r"`([a-z_.]+)`", row[1])]
        files = [file for place in places for file in (*place.rglob("*.py"), place)]
        text = "\n".join(file.read_text("utf-8") for file in files if file.is_file())
        for name in re.findall(r"`([A-Za-z]+)`", row[3]):
            pattern = rf"^(?:class|def|async def) {name}\b|^{name}(?:: TypeAlias)? = "
            assert re.search(pattern, text, re.MULTILINE), f"{name} is not in{row[1]}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_file_that_is_named_is_there(document: Path) -> None:
    named = {*FILE.findall(document.read_text("utf-8"))}
    inside = [str(path) for path in document.parent.rglob("*.py")]
    missing = [
        name
        for name in sorted(named)
        if not (SOURCE / name).exists()
        and not (ROOT / name).exists()
        and not any(path.endswith(f"/{name}") for path in inside)
    ]
    assert missing == []
