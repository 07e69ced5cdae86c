"""What is built installs as a user would do it, and a release is only made of a clean tree."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://example.org/travois"
OFFLINE_SIGNS = ("Temporary failure in name resolution", "Network is unreachable", "Max retries")
FILES = {
    "src/travois/version.py": '__version__ = "0.1.0"\n',
    "pyproject.toml": 'lab = ["travois-lab==0.1.0"]\n',
    "packages/travois-lab/pyproject.toml": 'version = "0.1.0"\ndependencies = ["travois==0.1.0"]\n',
    "CHANGELOG.md": "# Changelog\n\n## 0.1.0 (unreleased)\n\n- Something.\n",
}


def load(name: str) -> ModuleType:
    spec = spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small repository with the files that a release changes."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for words in (
        ("init", "-q"),
        ("config", "user.name", "a"),
        ("config", "user.email", "a@b"),
        ("add", "-A"),
        ("commit", "-qm", "a"),
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.slow
def test_the_wheel_installs_offline_in_a_clean_environment_and_runs_a_task() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/test_install.py", "--lean"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if any(sign in done.stdout for sign in OFFLINE_SIGNS):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"ok +Python [\d.]+  wheel  \d+ packages\n", done.stdout)


def test_links_of_the_readme_lead_somewhere_from_a_package_index() -> None:
    text = load("index_readme").make_links_absolute(
        "![a](docs/a.svg) [b](docs/b.md#c) [d](https://e.org) [f](#g)",
        repository=REPOSITORY,
        tag="main",
    )
    assert text == (
        f"![a]({REPOSITORY}/raw/main/docs/a.svg) [b]({REPOSITORY}/blob/main/docs/b.md#c) "
        "[d](https://e.org) [f](#g)"
    )


def test_a_release_writes_the_version_and_the_date_everywhere(checkout: Path) -> None:
    load("release").write_version(checkout, "0.2.0", day="2026-12-01")
    assert "0.1.0" not in "".join((checkout / name).read_text() for name in FILES)
    assert "## 0.2.0 (2026-12-01)" in (checkout / "CHANGELOG.md").read_text()


def test_a_release_of_a_tree_with_changes_is_refused(checkout: Path) -> None:
    release = load("release")
    release.check_tree(checkout, "0.2.0")
    (checkout / "new.txt").write_text("x")
    with pytest.raises(release.Refusal, match="not clean"):
        release.check_tree(checkout, "0.2.0")


def test_a_version_is_released_once_and_with_something_in_the_changelog(checkout: Path) -> None:
    release = load("release")
    subprocess.run(["git", "tag", "v0.2.0"], cwd=checkout, check=True)
    with pytest.raises(release.Refusal, match="tagged already"):
        release.check_tree(checkout, "0.2.0")
    load("release").write_version(checkout, "0.3.0", day="2026-12-01")
    subprocess.run(["git", "commit", "-qam", "b"], cwd=checkout, check=True)
    with pytest.raises(release.Refusal, match="what is new"):
        release.check_tree(checkout, "0.4.0")


@pytest.mark.slow
def test_the_site_is_built_without_a_broken_link_or_anything_from_elsewhere() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/build_docs.py"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    site = Path(done.stdout.strip()).parent
    assert {"index.html", "tutorial.html"} <= {page.name for page in site.iterdir()}
    reference = (site / "reference/commands.html").read_text("utf-8")
    assert "travois sessions export" in reference
