"""Trees of 100,000 files and of 120,001 long paths: searched, guarded, completed and taken back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from tests.e2e.glass import use
from tests.e2e.program import Program, sandbox_kind
from travois.core.content import extract_text
from travois.core.facts import Result
from travois.tui.keys import InputCompleter

EACH = 400
"""The files of one folder."""
HOOK = ".git/hooks/pre-commit"
WRITE_HOOK = f"import os; os.makedirs('.git/hooks', exist_ok=True); open({HOOK!r}, 'w').write('x')"
CHANGE = (
    "rm -r package_001; echo changed > package_002/*/*_800.py; touch new.py;"
    f' python3 -c "{WRITE_HOOK}"'
)


def grow(root: Path, count: int, word: str) -> None:
    for number in range(count):
        folder = root / f"package_{number // EACH:03}" / word
        if number % EACH == 0:
            folder.mkdir(parents=True)
        file = os.open(folder / f"{word}_{number}.py", os.O_CREAT | os.O_WRONLY)
        os.write(file, b"needle\n" if number == count - 1 else b"%d\n" % number)
        os.close(file)


def listed(root: Path) -> list[str]:
    """Every file outside of git's folder, with its size."""
    return sorted(
        f"{folder}/{name} {os.stat(f'{folder}/{name}').st_size}"
        for folder, _, names in os.walk(root)
        for name in names
        if "/.git" not in folder
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("count", "word"), [(100_000, "module"), (120_001, "a_rather_long_name_" * 7)]
)
def test_a_large_tree_is_searched_guarded_and_taken_back(
    program: Program, count: int, word: str
) -> None:
    grow(program.folder, count, word)
    before, last = listed(program.folder), f"package_{(count - 1) // EACH:03}/{word}"
    script = [
        {
            "say": [
                use("Glob", pattern=f"**/{word}_{count - 1}.py"),
                use("Grep", pattern="needle"),
            ]
        },
        {"say": [use("Bash", command=CHANGE)]},
        {"say": [{"text": "Done."}]},
    ]
    with program.served(script) as api:
        assert program.ask("look", "--permission-mode", "bypass").out == "Done.\n"
        api.no_invalid()
    found = [extract_text(e.fact.content) for e in program.facts() if isinstance(e.fact, Result)]
    assert found[:2] == [f"{last}/{word}_{count - 1}.py"] * 2
    assert not (program.folder / "package_001").exists()
    if sandbox_kind() != "none":
        assert not (program.folder / HOOK).exists()
    assert program.run("rewind", "--to", "0", "--yes").code == 0
    assert listed(program.folder) == before
    document = Document(f"look at @package_{(count - 1) // EACH:03}/")
    completer = InputCompleter(str(program.folder), lambda name, word: [])
    (shown, *_) = completer.get_completions(document, CompleteEvent())
    assert shown.text == f"{last}/"
