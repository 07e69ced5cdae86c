"""Searching a large tree through the whole program: what exists is found, what is denied is not."""

from __future__ import annotations

import os

from tests.e2e.glass import use
from tests.e2e.program import Program
from travois.core.content import extract_text
from travois.core.facts import Result

LONG = "a_folder_with_a_long_name_" * 8


def test_a_file_among_nine_megabytes_of_paths_is_found_unless_it_is_denied(
    program: Program,
) -> None:
    for number in range(60):
        folder = program.folder / f"pkg_{number:02}" / LONG
        folder.mkdir(parents=True)
        for file in range(400):
            os.close(os.open(folder / f"{LONG}{file:03}.py", os.O_CREAT | os.O_WRONLY))
    for name in ("old/needle.rs", "secrets/needle.rs"):
        path = program.folder / name
        path.parent.mkdir()
        path.write_text("needle\n" * 100_000)
        os.utime(path, (1, 1))
    script = [
        {
            "say": [
                use("Glob", pattern="**/needle.rs"),
                use("Glob", pattern="**/*.py"),
                use("Grep", pattern="needle", output_mode="content", head_limit=2),
            ]
        },
        {"say": [{"text": "Done."}]},
    ]
    with program.served(script) as api:
        denied = '{"permissions":{"deny":["Read(./secrets/**)"]}}'
        assert program.ask("look", "--settings", denied).out == "Done.\n"
        api.no_invalid()
    results = [entry.fact for entry in program.facts() if isinstance(entry.fact, Result)]
    shown = sorted((extract_text(result.content) for result in results), key=len)
    assert shown[:2] == [
        "old/needle.rs\n(files denied by a permission rule are left out)",
        "old/needle.rs\n1:needle\n2:needle\n"
        "(1-2 of more than 10000; offset=2 shows more; or narrow path, glob or type)",
    ]
    lines = shown[2].split("\n")
    assert lines[:-1] == [f"pkg_00/{LONG}/{LONG}{file:03}.py" for file in range(100)]
    assert lines[-1] == "(100 of more than 20000, by path; narrow the pattern or path)"
