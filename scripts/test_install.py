"""Installs the built packages as users do, in clean environments, and runs what was installed.

    python scripts/test_install.py [--lean] [--ways] [--python EXECUTABLE]... [--extra NAME]...
                                   [--from COMMIT]

For each Python from 3.11 on that this machine has, and for each extra: packages are downloaded to a
folder and installed from there without a network, and `travois` runs a task against the lab. Root
does so as a user without rights. `--from` names a version that is upgraded with its sessions and
settings, `--ways` also installs with pipx, `uv tool` and `uvx`, `--lean` tests one Python without
extras.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import travois_lab as lab

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = (ROOT, ROOT / "packages" / "travois-lab")
NOBODY = 65534
MODULES = {
    "browser": ("playwright",),
    "code": ("tree_sitter_go", "tree_sitter_typescript"),
    "embed": ("numpy",),
    "fleet": ("travois.fleet.store", "travois.fleet.worker"),
    "lab": ("travois_lab",),
    "local": ("xllamacpp",),
    "mcp": ("mcp", "travois.mcp.oauth_provider"),
    "otel": ("travois.telemetry.otel",),
    "store": ("travois.sessions.stores.objects", "travois.sessions.stores.postgres"),
    "web": ("travois.inspector.server",),
}
"""What must be importable with each extra; `all` is all of it."""
FROM_FOLDER = ("--no-index", "--find-links", "FOLDER")
WAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "uv tool": (
        ("uv", "tool", "install", "--python", "PYTHON", *FROM_FOLDER, "travois"),
        ("HOME/.local/bin/travois",),
        "uv tool upgrade travois",
    ),
    "uvx": (
        ("uvx", "--python", "PYTHON", *FROM_FOLDER, "travois", "--version"),
        ("uvx", "--python", "PYTHON", *FROM_FOLDER, "travois"),
        "uvx travois@latest",
    ),
    "pipx": (
        ("pipx", "install", "--python", "PYTHON", f"--pip-args={' '.join(FROM_FOLDER)}", "travois"),
        ("HOME/.local/bin/travois",),
        "pipx upgrade travois",
    ),
}
"""Other ways of installing: the command, how the program starts then, and what updates it."""
SCRIPT = [{"say": "The task is done.", "repeat": True}]


class Failure(Exception):
    """What did not work, with what the program said."""


class Place(NamedTuple):
    """Where one environment is made, and the user that it belongs to."""

    folder: Path
    user: int | None
    libraries: str = ""
    """Where a copied Python has its shared library: it names the folder it was built for."""

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the caller's but how package registries are reached."""
        kept = ("PIP_", "SSL_CERT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
        passed = {key: text for key, text in os.environ.items() if key.upper().startswith(kept)}
        own = {"HOME": str(self.folder), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        return passed | own | ({"LD_LIBRARY_PATH": self.libraries} if self.libraries else {})

    def run(self, *words: str | Path, **variables: str) -> str:
        """Run a program as the place's user; return its output, or raise `Failure`."""
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.folder,
            env=self.environment | variables,
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
            stdin=subprocess.DEVNULL,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            shown = " ".join(map(str, words))
            raise Failure(f"{shown}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout


def main(words: Sequence[str]) -> int:
    """Test what the command line asks for; return 1 if anything failed."""
    args = read_arguments(words)
    pythons = [Path(one) for one in args.python] or list(find_pythons(only_first=args.lean))
    extras = args.extra or ([] if args.lean else [*MODULES, "all"])
    failed = 0
    with tempfile.TemporaryDirectory(prefix="travois-install-") as name, lab.server(SCRIPT) as api:
        work = Path(name)
        work.chmod(0o755)
        built = work / "dist"
        build(ROOT, built)
        for python in pythons:
            tester = InstallTest(work, python, url=api.url)
            failed += tester.attempt("wheel", lambda t=tester: t.test_extra("", built))
            if not args.lean:
                failed += tester.attempt("sdist", lambda t=tester: t.test_sdist(built))
            for extra in extras:
                failed += tester.attempt(
                    f"[{extra}]", lambda t=tester, e=extra: t.test_extra(e, built)
                )
            for way in WAYS if args.ways else ():
                failed += tester.attempt(way, lambda t=tester, w=way: t.test_way(w, built))
            if args.commit:
                older = build_commit(args.commit, work)
                failed += tester.attempt(
                    f"upgrade from {args.commit}",
                    lambda t=tester, o=older: t.test_upgrade(o, built),
                )
            tester.clean()
    return 1 if failed else 0


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--lean", action="store_true")
    parser.add_argument("--ways", action="store_true")
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--extra", action="append", default=[])
    parser.add_argument("--from", dest="commit", default="")
    return parser.parse_args(words)


def find_pythons(*, only_first: bool) -> Iterator[Path]:
    """Yield the Pythons that can be had: this one, then others that start."""
    yield Path(sys.executable).resolve()
    for minor in range(11, 20):
        found = shutil.which(f"python3.{minor}")
        if only_first or not found or sys.version_info[:2] == (3, minor):
            continue
        asked = subprocess.run(
            [found, "-c", "import sys; print(sys.executable)"],
            check=False,
            capture_output=True,
            text=True,
        )
        if asked.returncode == 0:  # a shim of pyenv may name a Python that is not there
            yield Path(asked.stdout.strip())


def build(root: Path, goal: Path) -> None:
    """Build the wheels and source distributions of both packages."""
    for folder in (root, root / "packages" / "travois-lab"):
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", str(goal)],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def build_commit(commit: str, work: Path) -> Path:
    """Build the packages as they were at a commit."""
    goal = work / "older"
    if goal.exists():
        return goal
    checkout = work / "checkout"
    checkout.mkdir()
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(checkout)], input=packed.stdout, check=True)
    build(checkout, goal)
    return goal


class InstallTest:
    """The tests on one Python."""

    def __init__(self, work: Path, python: Path, *, url: str) -> None:
        self.url = url
        self.work = Path(tempfile.mkdtemp(prefix="python-", dir=work))
        self.work.chmod(0o755)
        self.user = NOBODY if os.geteuid() == 0 else None
        self.python = self._share(python) if self.user is not None else python
        place, wanted = self._new_place(), "import sys; print('%d.%d.%d' % sys.version_info[:3])"
        self.version = place.run(self.python, "-c", wanted).strip()

    def attempt(self, what: str, test: object) -> int:
        """Run one test and say how it ended; return how many failed."""
        try:
            assert callable(test)
            told = test()
        except Failure as failure:
            say(f"FAILED  Python {self.version}  {what}\n{failure}")
            return 1
        say(f"ok      Python {self.version}  {what}  {told}")
        return 0

    def test_extra(self, extra: str, built: Path) -> str:
        """Install the wheel with an extra, offline, and use it."""
        place, folder = self._new_place(), self._download(extra, built)
        wanted = f"travois[{extra}]" if extra else "travois"
        self._install(place, folder, wanted)
        modules = MODULES.get(extra, ()) if extra != "all" else sum(MODULES.values(), ())
        if modules:
            place.run(place.folder / "venv/bin/python", "-c", f"import {', '.join(modules)}")
        self._use(place)
        return f"{len([*folder.iterdir()])} packages"

    def test_sdist(self, built: Path) -> str:
        """Install from the source distribution, which needs its build backend."""
        place = self._new_place()
        source = next(built.glob("travois-*.tar.gz"))
        place.run(place.folder / "venv/bin/python", "-m", "pip", "install", "--quiet", source)
        self._use(place)
        return ""

    def test_upgrade(self, older: Path, built: Path) -> str:
        """Install an older version, use it, install this one, and find everything again."""
        place = self._new_place()
        self._install(place, self._download("", older), "travois")
        self._use(place)
        settings = self._locate_settings(place)
        settings.write_text('{"tui": {"theme": "light"}}')
        if self.user is not None:
            os.chown(settings, self.user, self.user)
        before = self._list_sessions(place)
        wheel = next(built.glob("travois-*.whl"))
        python = place.folder / "venv/bin/python"
        place.run(
            *(python, "-m", "pip", "install", "--quiet", "--no-index", "--force-reinstall"),
            *("--no-deps", wheel),
        )
        if self._list_sessions(place) != before:
            raise Failure(f"the sessions {before} are not listed after the upgrade")
        program = place.folder / "venv/bin/travois"
        if "light" not in place.run(program, "config", "explain", "tui.theme"):
            raise Failure("the settings are not read after the upgrade")
        self._use(place, "-c")
        return f"{len(before)} session and the settings kept"

    def test_way(self, way: str, built: Path) -> str:
        """Install with another tool, from a folder, and use what it installed."""
        install, program, update = WAYS[way]
        place, folder = self._new_place(), self._download("", built)
        tools = self._install_tools()
        meant = {"PYTHON": self.python, "FOLDER": folder, "HOME": place.folder}

        def fill_in(word: str) -> str:
            for name, path in meant.items():
                word = word.replace(name, str(path))
            return str(tools / word) if (tools / word).exists() else word

        started = [fill_in(word) for word in program]
        place.run(*map(fill_in, install))
        place.run(*started, "--version")
        self._ask(place, *started)
        told = place.run(*started, "update")
        if update not in told:
            raise Failure(f"travois update said {told!r}")
        return update

    def _install_tools(self) -> Path:
        """Install uv and pipx once; return the folder of their programs."""
        folder = self.work / "tools"
        if not folder.exists():
            place = self._new_place()
            place.run(self.python, "-m", "venv", place.folder / "tools")
            (place.folder / "tools").rename(folder)
            caller = place._replace(folder=Path.home(), user=None)
            caller.run(folder / "bin/python", "-m", "pip", "install", "--quiet", "uv", "pipx")
        return folder / "bin"

    def clean(self) -> None:
        """Remove what was installed for this Python."""
        shutil.rmtree(self.work)

    def _share(self, python: Path) -> Path:
        """Return the interpreter, or a copy where another user cannot reach it."""
        if self._is_reachable(python):
            return python
        told = [str(python), "-c", "import sys; print(sys.base_prefix)"]
        prefix = subprocess.run(told, check=True, capture_output=True, text=True).stdout.strip()
        copy = self.work / "python"
        ignored = shutil.ignore_patterns("test", "__pycache__", "*.a", "site-packages")
        shutil.copytree(prefix, copy, symlinks=True, ignore=ignored)
        return copy / "bin" / python.name

    def _is_reachable(self, path: Path) -> bool:
        """Return whether everybody may enter the folders around a file."""
        return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)

    def _new_place(self) -> Place:
        """Make a home with a virtual environment in it."""
        folder = Path(tempfile.mkdtemp(prefix="home-", dir=self.work))
        if self.user is not None:
            os.chown(folder, self.user, self.user)
        copied = self.python.is_relative_to(self.work)
        libraries = str(self.python.parents[1] / "lib") if copied else ""
        place = Place(folder, self.user, libraries)
        place.run(self.python, "-m", "venv", folder / "venv")
        return place

    def _download(self, extra: str, built: Path) -> Path:
        """Download what an installation needs to a folder, beside the packages that were built."""
        folder = self.work / f"wheels-{built.name}-{extra}"
        folder.mkdir(exist_ok=True)
        for wheel in built.glob("*.whl"):
            shutil.copy(wheel, folder)
        own = next(folder.glob("travois-*.whl"))
        place = self._new_place()
        # As the caller, whose cache of downloads saves the time.
        caller = place._replace(folder=Path.home(), user=None)
        caller.run(
            *(place.folder / "venv/bin/python", "-m", "pip", "download", "--quiet"),
            *("--only-binary", ":all:", "--find-links", folder, "--dest", folder),
            f"{own}[{extra}]" if extra else own,
        )
        return folder

    def _install(self, place: Place, folder: Path, wanted: str) -> None:
        """Install from a folder, without any index."""
        place.run(
            *(place.folder / "venv/bin/python", "-m", "pip", "install", "--quiet"),
            *("--no-index", "--find-links", folder, wanted),
            PIP_CONFIG_FILE=os.devnull,
        )

    def _use(self, place: Place, *more: str) -> None:
        """Run the installed program: its version, then a task against the lab."""
        program = place.folder / "venv/bin/travois"
        place.run(program, "--version")
        self._ask(place, program, *more)

    def _ask(self, place: Place, *program: str | Path) -> None:
        """Run a task with a program that was installed."""
        told = place.run(
            *(*program, "-p", "Say that it is done."),
            ANTHROPIC_BASE_URL=self.url,
            ANTHROPIC_API_KEY="sk-lab",
        )
        if "The task is done." not in told:
            raise Failure(f"travois -p said {told!r}")

    def _list_sessions(self, place: Place) -> list[str]:
        """Return the ids of the sessions that the installed program knows."""
        told = place.run(place.folder / "venv/bin/travois", "sessions", "--json")
        return sorted(one["id"] for one in json.loads(told))

    def _locate_settings(self, place: Place) -> Path:
        """Return the settings file of the version before settings had a folder of their own."""
        return place.folder / ".local/state/travois/settings.json"


def say(line: str) -> None:
    """Tell whoever waits."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
