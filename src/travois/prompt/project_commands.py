"""Project commands: what a repository says about its name, layout, and how to test and run it."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Literal, cast

import msgspec

CommandPurpose = Literal["test", "lint", "build", "run"]
PURPOSES: tuple[CommandPurpose, ...] = ("test", "lint", "build", "run")
MAX_FILE_BYTES = 200_000
MAX_LISTED_ENTRIES = 40
SKIPPED_NAMES = frozenset(
    (".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", "dist", "build", "target")
)
TARGET_NAMES: dict[CommandPurpose, tuple[str, ...]] = {
    "test": ("test", "tests", "check"),
    "lint": ("lint", "format", "fmt", "check"),
    "build": ("build", "compile", "dist"),
    "run": ("run", "start", "dev", "serve"),
}
"""What targets of a Makefile and scripts of a package are usually called, the best name first."""
MAKE_TARGET = re.compile(r"^([A-Za-z][\w.-]*)\s*:(?!=)", re.MULTILINE)
JUST_RECIPE = re.compile(r"^([a-z][\w-]*)(?:\s[^:\n]*)?:(?!=)", re.MULTILINE)
LANGUAGE_COMMANDS: tuple[tuple[str, dict[CommandPurpose, str]], ...] = (
    ("Cargo.toml", {"test": "cargo test", "lint": "cargo clippy", "build": "cargo build"}),
    ("go.mod", {"test": "go test ./...", "lint": "go vet ./...", "build": "go build ./..."}),
    ("mix.exs", {"test": "mix test", "build": "mix compile"}),
    ("spec", {"test": "bundle exec rspec"}),
    ("Rakefile", {"test": "rake test"}),
    ("pom.xml", {"test": "mvn test", "build": "mvn package"}),
    ("gradlew", {"test": "./gradlew test", "build": "./gradlew build"}),
)
"""What a project with such a file is tested, checked and built with."""
LOCK_RUNNERS = (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lockb", "bun"))


class ProjectCommands(msgspec.Struct, frozen=True):
    """The commands of a project, by what they are for; empty where none is known."""

    test: str = ""
    lint: str = ""
    build: str = ""
    run: str = ""


def find_project_commands(folder: str) -> ProjectCommands:
    """Find a project's usual commands, such as test and build, by its own files."""
    found: dict[CommandPurpose, str] = {}
    for source in (_make_commands, _just_commands, _script_commands, _language_commands):
        for purpose, command in source(folder):
            found.setdefault(purpose, command)
    return ProjectCommands(**found)


def _make_commands(folder: str) -> Iterator[tuple[CommandPurpose, str]]:
    text = _read_project_file(folder, "Makefile") or _read_project_file(folder, "makefile")
    return _commands_by_name(MAKE_TARGET.findall(text), "make {}".format)


def _just_commands(folder: str) -> Iterator[tuple[CommandPurpose, str]]:
    text = _read_project_file(folder, "justfile") or _read_project_file(folder, "Justfile")
    return _commands_by_name(JUST_RECIPE.findall(text), "just {}".format)


def _script_commands(folder: str) -> Iterator[tuple[CommandPurpose, str]]:
    """Yield the scripts of a package.json, run with the package manager of the lock file."""
    scripts = _read_project_table(folder, "package.json").get("scripts")
    if not isinstance(scripts, Mapping):
        return iter(())
    locks = (name for lock, name in LOCK_RUNNERS if os.path.exists(os.path.join(folder, lock)))
    runner = next(locks, "npm")
    names = [str(name) for name in cast("Mapping[object, object]", scripts)]
    return _commands_by_name(
        names, lambda name: f"{runner} test" if name == "test" else f"{runner} run {name}"
    )


def _commands_by_name(
    names: list[str], write: Callable[[str], str]
) -> Iterator[tuple[CommandPurpose, str]]:
    for purpose, usual in TARGET_NAMES.items():
        if name := next((one for one in usual if one in names), ""):
            yield purpose, write(name)


def _language_commands(folder: str) -> Iterator[tuple[CommandPurpose, str]]:
    """Yield the test, check and build commands of a project by its language."""
    has = frozenset(os.listdir(folder))
    for marker, commands in LANGUAGE_COMMANDS:
        if marker in has:
            yield from commands.items()
    yield from _python_commands(folder, has)


def _python_commands(folder: str, has: frozenset[str]) -> Iterator[tuple[CommandPurpose, str]]:
    tools = _read_project_table(folder, "pyproject.toml").get("tool")
    known = {str(name) for name in cast("Mapping[object, object]", tools or {})}
    if "pytest" in known or {"pytest.ini", "conftest.py", "tox.ini"} & has or "tests" in has:
        yield "test", "python3 -m pytest"
    if "ruff" in known or "ruff.toml" in has:
        yield "lint", "ruff check ."


def draft_instructions(folder: str) -> str:
    """Draft an AGENTS.md from a project's files and commands, without a model."""
    name, about = _describe_project(folder)
    commands = find_project_commands(folder)
    told = [(purpose, getattr(commands, purpose)) for purpose in PURPOSES]
    rows = [f"- {purpose}: `{command}`" for purpose, command in told if command]
    places = [f"- `{entry}`" for entry in list_top_level(folder)]
    parts = [f"# {name}", about]
    parts += ["## Commands", "\n".join(rows)] if rows else []
    parts += ["## Layout", "\n".join(places)]
    parts += ["## Conventions", "- (Say here what an agent cannot see in the code.)"]
    return "\n\n".join(part for part in parts if part) + "\n"


def list_top_level(folder: str) -> list[str]:
    """List a project's top level, folders first and with a slash, without generated files."""
    with os.scandir(folder) as entries:
        found = [(not one.is_dir(), one.name) for one in entries if one.name not in SKIPPED_NAMES]
    names = (name if is_file else f"{name}/" for is_file, name in sorted(found))
    return list(islice(names, MAX_LISTED_ENTRIES))


def _describe_project(folder: str) -> tuple[str, str]:
    """Return the name of a project and what its files say about it."""
    tables = (
        _read_project_table(folder, "pyproject.toml").get("project"),
        _read_project_table(folder, "Cargo.toml").get("package"),
        _read_project_table(folder, "package.json"),
    )
    for table in tables:
        if isinstance(table, Mapping):
            known = cast("Mapping[str, object]", table)
            if name := known.get("name"):
                return str(name), str(known.get("description", "")) or _first_paragraph(folder)
    return os.path.basename(os.path.abspath(folder)), _first_paragraph(folder)


def _first_paragraph(folder: str) -> str:
    """Return the first paragraph of a project's readme that is no heading or badge."""
    text = _read_project_file(folder, "README.md")
    parts = (part.strip() for part in text.split("\n\n"))
    return next((" ".join(part.split()) for part in parts if part[:1].isalnum()), "")


def _read_project_table(folder: str, name: str) -> Mapping[str, object]:
    text = _read_project_file(folder, name)
    with suppress(ValueError):
        found: object = tomllib.loads(text) if name.endswith(".toml") else json.loads(text or "{}")
        if isinstance(found, dict):
            return cast("dict[str, object]", found)
    return {}


def _read_project_file(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            return file.read(MAX_FILE_BYTES)
    except OSError:
        return ""
