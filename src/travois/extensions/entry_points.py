"""Installed packages that extend Travois by entry points: found without importing any of them.

`importlib.metadata` would take longer than most of a start. Here, each folder of `sys.path` is
looked through again only when it has changed; what was found is kept in a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Literal, TypeGuard, get_args

import msgspec

from travois.core.errors import UserError
from travois.sessions import blobs

EntryPointGroup = Literal["tools", "hooks", "layers", "providers", "commands"]
ENTRY_POINT_GROUPS: tuple[EntryPointGroup, ...] = get_args(EntryPointGroup)
GROUP_PREFIX = "travois."
METADATA_SUFFIXES = (".dist-info", ".egg-info")
SECTION_LINE = re.compile(r"^\[([^\]]+)\]$")
POINT_LINE = re.compile(r"^([^=#;]+?)\s*=\s*([\w.]+)(?:\s*:\s*([\w.]+))?")
IMPORT_ERRORS = (
    *(ImportError, AttributeError, SyntaxError, TypeError, ValueError),
    *(LookupError, OSError, RuntimeError, UserError),
)
"""What a package that cannot be used raises when it is imported."""


class EntryPoint(msgspec.Struct, frozen=True):
    """A name in a package that extends Travois."""

    group: EntryPointGroup
    name: str
    module: str
    attribute: str


class Package(msgspec.Struct, frozen=True):
    """An installed package that extends Travois."""

    name: str
    version: str
    folder: str
    """The folder that it is installed in."""
    digest: str
    """Of the list of its files."""
    points: tuple[EntryPoint, ...]

    @property
    def summary(self) -> str:
        """What it provides, in words."""
        named: dict[EntryPointGroup, list[str]] = {}
        for point in self.points:
            named.setdefault(point.group, []).append(point.name)
        return "; ".join(f"{group}: {', '.join(names)}" for group, names in named.items())

    @property
    def request(self) -> str:
        """What somebody agrees to who trusts a folder that it is a part of."""
        return f"python package {self.name} {self.version} ({self.digest[:12]}): {self.summary}"

    def select_points(self, group: EntryPointGroup) -> Iterator[EntryPoint]:
        """Yield the entry points of one group."""
        return (point for point in self.points if point.group == group)


class ScannedFolder(msgspec.Struct, frozen=True):
    """The packages in a folder, and when it had last changed."""

    changed: int
    packages: tuple[Package, ...] = ()


def find_packages(folders: Iterable[str], *, cache: Path) -> tuple[Package, ...]:
    """Find the packages that extend Travois, each once, in the order of the folders."""
    known = _read_scans(cache)
    scans: dict[str, ScannedFolder] = {}
    for folder in dict.fromkeys(map(os.path.abspath, filter(None, folders))):
        try:
            changed = os.stat(folder).st_mtime_ns
        except OSError:
            continue
        held = known.get(folder)
        scans[folder] = (
            held if held and held.changed == changed else _scan_packages(folder, changed)
        )
    if any(known.get(folder) != scan for folder, scan in scans.items()):
        _save_scans(cache, known | scans)
    found: dict[str, Package] = {}
    for package in (one for scan in scans.values() for one in scan.packages):
        found.setdefault(package.name.lower(), package)
    return tuple(found.values())


def _read_scans(cache: Path) -> dict[str, ScannedFolder]:
    try:
        return msgspec.json.decode(cache.read_bytes(), type=dict[str, ScannedFolder])
    except (OSError, msgspec.DecodeError):
        return {}


def _save_scans(cache: Path, scans: dict[str, ScannedFolder]) -> None:
    """Keep what was found; where that is impossible, the next start looks again."""
    there = {
        folder: scan
        for folder, scan in scans.items()
        if _can_be_json(folder) and os.path.isdir(folder)
    }
    try:
        blobs.replace_file(cache, msgspec.json.encode(there), sync="whenever")
    except OSError:
        return


def _can_be_json(folder: str) -> bool:
    """Return whether a folder's name is text; the packages of another are looked for each time."""
    try:
        folder.encode()
    except UnicodeEncodeError:
        return False
    return True


def _scan_packages(folder: str, changed: int) -> ScannedFolder:
    """Look through a folder's installed packages."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(METADATA_SUFFIXES))
    except OSError:
        return ScannedFolder(changed)
    found = (_read_package_metadata(folder, name) for name in names)
    return ScannedFolder(changed, tuple(filter(None, found)))


def _read_package_metadata(folder: str, metadata: str) -> Package | None:
    """Read a package's entry points; None if it has none for Travois."""
    place = Path(folder, metadata)
    try:
        text = (place / "entry_points.txt").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if f"[{GROUP_PREFIX}" not in text or not (points := tuple(parse_entry_points(text))):
        return None
    files = place / "RECORD"
    listed = files.read_bytes() if files.is_file() else text.encode()
    stem = metadata.removesuffix(".dist-info").removesuffix(".egg-info")
    name, _, version = stem.partition("-")
    digest = blake2b(listed, digest_size=16).hexdigest()
    return Package(name.replace("_", "-"), version.partition("-")[0], folder, digest, points)


def parse_entry_points(text: str) -> Iterator[EntryPoint]:
    """Parse the entry points of Travois in a package's `entry_points.txt`."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if found := SECTION_LINE.match(line):
            section = found[1].removeprefix(GROUP_PREFIX) if GROUP_PREFIX in found[1] else ""
        elif is_entry_point_group(section) and (point := POINT_LINE.match(line)):
            yield EntryPoint(section, point[1], point[2], point[3] or "")


def is_entry_point_group(name: str) -> TypeGuard[EntryPointGroup]:
    """Return whether a name is one of the groups of entry points."""
    return name in ENTRY_POINT_GROUPS


def load_entry_point(package: Package, point: EntryPoint) -> object:
    """Import what an entry point names; raises `UserError` if that fails."""
    try:
        found: object = import_module(point.module)
        for attribute in filter(None, point.attribute.split(".")):
            found = getattr(found, attribute)
    except IMPORT_ERRORS as error:
        raise UserError(
            f"{point.name} of the package {package.name} cannot be loaded",
            why=f"{type(error).__name__}: {error}",
            fix=f"Update the package, or switch it off: travois plugins disable {package.name}",
        ) from error
    return found
