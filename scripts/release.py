"""Builds, checks and tags a release: `make release VERSION=0.2.0`.

The working tree must be clean. The version is written into both packages, the changelog is dated,
and that is committed; the packages are built and installed in a clean environment, and the commit
gets a tag. If a step fails, the commit is taken back. Nothing is uploaded; the last line says how.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
UNRELEASED = re.compile(r"^## (\S+) \(unreleased\)$", re.MULTILINE)


class Refusal(Exception):
    """Why there is no release."""


def main(words: Sequence[str]) -> int:
    """Release the version that the command line names."""
    try:
        if len(words) != 1 or not VERSION.fullmatch(words[0]):
            raise Refusal("name the version: make release VERSION=0.2.0")
        release(ROOT, words[0])
    except Refusal as why:
        sys.stderr.write(f"release: {why}\n")
        return 1
    return 0


def release(root: Path, version: str) -> None:
    """Build, check and tag a version."""
    check_tree(root, version)
    before = run_git(root, "rev-parse", "HEAD").strip()
    write_version(root, version, day=datetime.now(UTC).date().isoformat())
    run_git(root, "commit", "--all", "--quiet", "--message", f"release: {version}")
    try:
        run_step(root, "make", "check")
        for folder in (root, root / "packages" / "travois-lab"):
            run_step(folder, sys.executable, "-m", "hatchling", "build", "-d", str(root / "dist"))
        run_step(root, sys.executable, "scripts/test_install.py", "--lean")
    except Refusal:
        run_git(root, "reset", "--quiet", "--hard", before)
        raise
    run_git(root, "tag", "--annotate", f"v{version}", "--message", f"Travois {version}")
    files = f"dist/travois-{version}* dist/travois_lab-{version}*"
    sys.stdout.write(
        f"Tagged v{version}. To publish: git push --follow-tags && twine upload {files}\n"
    )


def check_tree(root: Path, version: str) -> None:
    """Refuse a tree with changes, a version that was released, and an empty changelog."""
    if changed := run_git(root, "status", "--porcelain"):
        raise Refusal(f"the working tree is not clean; commit or stash:\n{changed.rstrip()}")
    if run_git(root, "tag", "--list", f"v{version}"):
        raise Refusal(f"v{version} has been tagged already")
    if not UNRELEASED.search((root / "CHANGELOG.md").read_text("utf-8")):
        raise Refusal("CHANGELOG.md has no part that is `(unreleased)`: what is new?")


def write_version(root: Path, version: str, *, day: str) -> None:
    """Write the version into both packages, and the date into the changelog."""
    lab = root / "packages" / "travois-lab" / "pyproject.toml"
    for path, pattern, text in (
        (root / "src/travois/version.py", r'(?<=__version__ = ")[^"]+', version),
        (root / "pyproject.toml", r"(?<=travois-lab==)[^\"]+", version),
        (lab, r'(?<=^version = ")[^"]+', version),
        (lab, r'(?<="travois==)[^"]+', version),
        (root / "CHANGELOG.md", UNRELEASED.pattern, f"## {version} ({day})"),
    ):
        found, count = re.subn(pattern, text, path.read_text("utf-8"), count=1, flags=re.MULTILINE)
        if count != 1:
            raise Refusal(f"{path} does not have {pattern}")
        path.write_text(found, "utf-8")


def run_git(root: Path, *words: str) -> str:
    """Run git; return its output."""
    done = subprocess.run(["git", *words], cwd=root, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Refusal(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def run_step(folder: Path, *words: str) -> None:
    """Run a step whose output is shown; refuse the release if it fails."""
    if subprocess.run(words, cwd=folder, check=False).returncode:
        raise Refusal(f"{' '.join(words)} failed; nothing was released")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
