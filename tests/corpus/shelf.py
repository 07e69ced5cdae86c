"""A small repository that the requests of `typed.jsonl` are about."""

from __future__ import annotations

import subprocess
from pathlib import Path

LOANS = '''"""Who has which book."""

from datetime import date

MAX_LOANS = 5
DUE_DAYS = 14


class Loan:
    """One book in the hands of one reader."""

    def __init__(self, reader: str, due: date) -> None:
        self.reader = reader
        self.due = due

    def is_overdue(self, today: date) -> bool:
        return today > self.due
'''
CATALOG = '''"""The books of a library."""


class Catalog:
    """Books by their ISBN."""

    def __init__(self) -> None:
        self.books: dict[str, str] = {}

    def add_book(self, isbn: str, title: str) -> None:
        self.books[isbn] = title

    def find_by_isbn(self, isbn: str) -> str | None:
        return self.books.get(isbn)
'''
STORAGE = '''"""JSON files on disk."""

import json
from pathlib import Path


def load_json(path: Path) -> dict[str, str]:
    return json.loads(path.read_text())

# TODO: lock the file
def save_json(path: Path, value: dict[str, str]) -> None:
    path.write_text(json.dumps(value))
'''
CLI = '''"""`shelf add ISBN TITLE`."""

import sys
from pathlib import Path

from shelf.storage import load_json, save_json

CATALOG = Path("data/books.json")


def main() -> None:
    books = load_json(CATALOG)
    books[sys.argv[2]] = sys.argv[3]
    save_json(CATALOG, books)
'''
README = """# Shelf

A small library catalogue.

## Install

    pip install -e .

## Use

See [docs/usage.md](docs/usage.md).
"""
USAGE = """# Using Shelf

To borow a book, scan its ISBN. A loan is overdue after two weeks.
"""
PYPROJECT = """[project]
name = "shelf"
version = "0.4.1"
requires-python = ">=3.11"
dependencies = ["click>=8.1"]

[tool.pytest.ini_options]
pythonpath = ["src"]
testpaths = ["tests"]
"""
TEST_CATALOG = """from shelf.catalog import Catalog


def test_a_book_is_found() -> None:
    catalog = Catalog()
    catalog.add_book("1", "Emma")
    assert catalog.find_by_isbn("1") == "Emma"


def test_no_book_is_none() -> None:
    assert Catalog().find_by_isbn("2") is None
"""
TEST_LOANS = """from datetime import date

from shelf.loans import Loan


def test_a_loan_is_overdue_after_its_day() -> None:
    assert Loan("Ana", date(2026, 1, 1)).is_overdue(date(2026, 1, 2))
"""
MAKEFILE = "lint:\n\t@echo lint is clean\n"
COMMITS = (
    (
        "Begin a catalogue",
        "Ana Ruiz",
        {
            "README.md": README,
            "pyproject.toml": PYPROJECT,
            "Makefile": MAKEFILE,
            "src/shelf/__init__.py": "",
            "src/shelf/storage.py": STORAGE,
            "data/books.json": "{}\n",
        },
    ),
    (
        "Find books by ISBN",
        "Ana Ruiz",
        {"src/shelf/catalog.py": CATALOG, "tests/test_catalog.py": TEST_CATALOG},
    ),
    (
        "Keep loans in their own file",
        "Piet Mol",
        {
            "src/shelf/loans.py": LOANS,
            "src/shelf/cli.py": CLI,
            "tests/test_loans.py": TEST_LOANS,
            "docs/usage.md": USAGE,
        },
    ),
)


def build_shelf(folder: Path) -> Path:
    """Make the repository with three commits, a change and a file that git does not know."""
    _git(folder, "init", "-qb", "due-dates")
    for subject, author, files in COMMITS:
        for name, text in files.items():
            write(folder / name, text)
        _git(folder, "add", "-A")
        _git(folder, *_as(author), "commit", "-qm", subject)
    write(folder / "src/shelf/loans.py", LOANS.replace("DUE_DAYS = 14", "DUE_DAYS = 21"))
    write(folder / "scratch.txt", "late fees?\n")
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _as(author: str) -> tuple[str, ...]:
    email = author.split()[0].lower() + "@shelf.example"
    return ("-c", f"user.name={author}", "-c", f"user.email={email}")


def _git(folder: Path, *args: str) -> None:
    subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True)
