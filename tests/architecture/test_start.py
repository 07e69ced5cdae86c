"""I11: what starting the program does not import."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("httpx2", "rich", "prompt_toolkit", "mcp", "tree_sitter", "sqlite3", "pypdf", "bs4")
HEAVY += ("opentelemetry",)


def loaded(code: str) -> set[str]:
    script = f"{code}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_the_command_line_imports_nothing_heavy() -> None:
    assert loaded("import travois.app.cli").isdisjoint({*HEAVY, "asyncio", "h11"})


def test_a_headless_run_imports_nothing_heavy() -> None:
    assert loaded("import travois.app.once").isdisjoint(HEAVY)


def test_the_version_imports_nothing() -> None:
    script = (
        "import sys; before = set(sys.modules); sys.argv = ['travois', '--version'];"
        "from travois.__main__ import main; main();"
        "print(sorted(n for n in set(sys.modules) - before if not n.startswith('travois')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[1] == "['__future__']"
