"""Modules that are imported at first use: what loads them, what they become, what is refused."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.architecture.test_sizes import files

HEADER = "from travois.lazy_imports import lazy_imports\n"


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "sample"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "late.py").write_text("print('late loaded')\nVALUE = 7\n")
    (folder / "other.py").write_text("from sample import late\nprint('other loaded', late.VALUE)\n")
    monkeypatch.chdir(tmp_path)
    return folder


def run(code: str) -> subprocess.CompletedProcess[str]:
    script = HEADER + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )


def test_a_module_is_loaded_when_one_of_its_names_is_used() -> None:
    done = run(
        """
        with lazy_imports():
            from sample import late
        print("before")
        print(late.VALUE)
        import sample.late as real
        print(late is real)
        """
    )
    assert done.stdout.split("\n") == ["before", "late loaded", "7", "True", ""]


def test_a_module_that_is_loaded_already_is_used_as_it_is() -> None:
    done = run(
        """
        import sample.late as real
        with lazy_imports():
            from sample import late as again
        print(again is real)
        """
    )
    assert done.stdout.split("\n") == ["late loaded", "True", ""]


def test_other_modules_import_as_always_inside_a_block() -> None:
    done = run(
        """
        with lazy_imports():
            __import__("importlib").import_module("sample.other")
        """
    )
    assert done.stdout == "late loaded\nother loaded 7\n"


def test_imports_after_a_block_are_not_postponed() -> None:
    done = run(
        """
        try:
            with lazy_imports():
                import json
                raise ValueError
        except ValueError:
            from sample import late
        """
    )
    assert done.stdout == "late loaded\n"


def test_setting_a_name_sets_it_in_the_module() -> None:
    done = run(
        """
        with lazy_imports():
            from sample import late
        late.VALUE = 8
        import sample.late
        print(sample.late.VALUE)
        """
    )
    assert done.stdout == "late loaded\n8\n"


def test_a_dotted_import_is_refused_with_what_to_write() -> None:
    done = run("with lazy_imports():\n    import sample.late\n")
    assert "Write `from package import module` for sample.late" in done.stderr


def test_every_lazy_import_of_ours_names_a_module() -> None:
    wrong = [
        f"{name}:{statement.lineno} {full}"
        for name, tree in files().items()
        for block in tree.body
        if isinstance(block, ast.With) and ast.unparse(block.items[0]) == "lazy_imports()"
        for statement in block.body
        for full in _imported_names(statement)
        if full.startswith("travois") and find_spec(full) is None
    ]
    assert wrong == []


def _imported_names(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.Import():
            return [alias.name for alias in statement.names]
        case ast.ImportFrom():
            return [f"{statement.module}.{alias.name}" for alias in statement.names]
        case _:
            raise AssertionError(f"not an import: {ast.unparse(statement)}")
