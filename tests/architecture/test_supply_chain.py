"""What Travois is made of: locked with hashes, bounded, listed with licences and in an SBOM."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions, requires
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements-dev.lock").read_text()
INSTALLED = {canonicalize_name(one.name) for one in distributions()}
RUNTIME = [
    *PROJECT["project"]["dependencies"],
    *(
        one
        for name, extra in PROJECT["project"]["optional-dependencies"].items()
        if name not in ("all", "lab")  # distributions of our own, of the same version
        for one in extra
    ),
]
ENTRY = re.compile(
    r"^([\w.-]+)(?:\[([\w,.-]+)\])?==(\S+)([^\n]*)\n((?:    --hash=\S+(?: \\)?\n)*)", re.MULTILINE
)


def script(name: str, *args: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "scripts" / name), *args]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("text", RUNTIME)
def test_every_package_that_users_install_has_a_lower_and_an_upper_bound(text: str) -> None:
    assert {one.operator for one in Requirement(text).specifier} == {">=", "<"}


def test_every_package_of_the_lock_has_a_version_and_hashes_and_comes_from_any_index() -> None:
    entries = ENTRY.findall(LOCK)
    assert len(entries) == len(re.findall(r"^[\w.-]+", LOCK, re.MULTILINE)) > 100
    assert all(hashes.count("--hash=sha256:") > 0 for *_, hashes in entries)
    assert not re.search(r"://|^-", LOCK, re.MULTILINE)


def test_the_lock_holds_all_that_the_project_names_within_its_bounds() -> None:
    held: dict[str, list[str]] = {}
    for name, _, version, *_ in ENTRY.findall(LOCK):
        held.setdefault(canonicalize_name(name), []).append(version)
    wanted = [*RUNTIME, *PROJECT["dependency-groups"]["dev"], *PROJECT["build-system"]["requires"]]
    for each in map(Requirement, wanted):
        versions = held.get(canonicalize_name(each.name), [])
        assert versions and all(map(each.specifier.contains, versions)), f"make lock: {each}"


def test_the_lock_pins_each_extra_that_a_package_asks_for() -> None:
    """An extra without a version makes pip look for the newest release, and refuse it."""
    extras: dict[str, set[str]] = {}
    for name, listed, *_ in ENTRY.findall(LOCK):
        extras.setdefault(canonicalize_name(name), set()).update(filter(None, listed.split(",")))
    asked = [
        (name, extra, needed)
        for name in extras
        if name in INSTALLED
        for needed in map(Requirement, requires(name) or ())
        if needed.extras and canonicalize_name(needed.name) in extras
        for extra in (extras[name] or {""})
        if needed.marker is None or needed.marker.evaluate({"extra": extra})
    ]
    assert ("dbos", "", "sqlalchemy") in [(n, e, canonicalize_name(r.name)) for n, e, r in asked]
    for name, _, needed in asked:
        assert needed.extras <= extras[canonicalize_name(needed.name)], f"make lock: {name}"


def test_notice_lists_the_licence_of_every_package() -> None:
    checked = script("notice.py", "--check")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_package_that_notice_lacks_is_told_and_added(tmp_path: Path) -> None:
    for name in ("NOTICE", "requirements-dev.lock"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "scripts").mkdir()
    for name in ("notice.py", "inventory.py"):
        (tmp_path / "scripts" / name).write_text((ROOT / "scripts" / name).read_text())
    notice = tmp_path / "NOTICE"
    whole = notice.read_text()
    foreign = "  gone-package: MIT\n  pywin32: PSF-2.0\n"
    notice.write_text(whole.replace("  anyio: MIT\n", "") + foreign)
    checked = script("notice.py", "--check", folder=tmp_path)
    assert (checked.returncode, "make notice" in checked.stderr) == (1, True)
    assert script("notice.py", folder=tmp_path).returncode == 0
    written = notice.read_text()
    assert "  anyio: MIT\n" in written and "gone-package" not in written
    assert "  pywin32: PSF-2.0\n" in written  # another platform's, and locked


def test_the_sbom_is_valid_cyclonedx_and_the_same_each_time() -> None:
    made = script("sbom.py")
    assert made.stderr == ""
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(made.stdout) is None
    assert script("sbom.py").stdout == made.stdout
    for each in map(Requirement, PROJECT["project"]["dependencies"]):
        assert f'"pkg:pypi/{canonicalize_name(each.name)}@' in made.stdout
