"""Protected files in the real program: by file tools and commands, in the modes that ask least."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.glass import use
from tests.e2e.program import Program
from tests.e2e.test_hands import results

AUTO, BYPASS = ("--permission-mode", "auto"), ("--permission-mode", "bypass")
PATHS = (".git/hooks/pre-commit", ".claude/settings.json", ".mcp.json", ".envrc", "AGENTS.md")


@pytest.fixture(autouse=True)
def repository(program: Program) -> None:
    subprocess.run(["git", "init", "-q", str(program.folder)], check=True)


def ask(program: Program, *calls: dict[str, object], flags: tuple[str, ...]) -> list[str]:
    """Let the model make these calls one after the other; returns what it is told of each."""
    with program.served([*({"say": [call]} for call in calls), {"say": [{"text": "ok"}]}]):
        assert program.ask("go", *flags).out == "ok\n"
    return results(program)


def state(folder: Path) -> list[tuple[str, bytes]]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [(str(path.relative_to(folder)), path.read_bytes()) for path in found]


def test_mode_auto_writes_none_of_them(program: Program) -> None:
    before = state(program.folder)
    lines = [f"python3 -c 1; mkdir -p $(dirname {path}); printf x > {path}" for path in PATHS]
    lines += [f"printf x > {path}" for path in PATHS]
    lines += ["git config core.fsmonitor x", "python3 -c 1; git config alias.x '!x'"]
    told = ask(program, *(use("Bash", command=line) for line in lines), flags=AUTO)
    assert state(program.folder) == before
    assert all("protected" in text or "configuration" in text for text in told), told


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that is not below /tmp, which is private or free."""
    with TemporaryDirectory(prefix=".travois-test-", dir=Path.home()) as name:
        yield Path(name)


def test_mode_bypass_writes_no_personal_file_and_nothing_outside(
    program: Program, outside: Path
) -> None:
    hook = str(program.folder / ".git/hooks/pre-commit")
    calls = (
        use("Write", file_path=f"{outside}/.bashrc", content="evil"),
        use("Bash", command=f"echo evil >> {outside}/.bashrc"),
        use("Write", file_path=hook, content="evil"),
        use("Write", file_path=f"{outside}/notes", content="x"),
        use("Bash", command=f"echo x > {outside}/notes"),
    )
    told = ask(program, *calls, flags=BYPASS)
    assert os.listdir(outside) == [] and not os.path.exists(hook)
    assert all("needs approval" in text for text in told[:3]), told
    assert all("--add-dir" in text for text in told[3:]), told
    with program.served([{"say": [calls[-1]]}, {"say": [{"text": "ok"}]}]):
        program.ask("go", *BYPASS, "--add-dir", str(outside))
    assert os.listdir(outside) == ["notes"]


def test_a_nested_repository_is_made_harmless_and_the_model_is_told(program: Program) -> None:
    script = "git init -q sub; git -C sub config core.fsmonitor evil; git -C sub config user.name x"
    (program.folder / "plant.sh").write_text(script)
    (told,) = ask(program, use("Bash", command="sh plant.sh"), flags=BYPASS)
    text = (program.folder / "sub/.git/config").read_text()
    assert ("evil" in text, "name = x" in text) == (False, True)
    assert "sub/.git/config (core.fsmonitor)" in told


def test_a_write_beside_other_code_is_to_be_a_call_of_its_own(program: Program) -> None:
    (program.folder / "a").write_text("{}")
    rules = ("--allowedTools", "Edit(.mcp.json)", "Bash(make:*)")
    line = "make; cp a .mcp.json"
    calls = (use("Bash", command=line), use("Bash", command="cp a .mcp.json"))
    told = ask(program, *calls, flags=("--permission-mode", "accept-edits", *rules))
    assert "make the write a separate call" in told[0]
    assert (program.folder / ".mcp.json").read_text() == "{}"


def test_listings_show_nothing_of_ours(program: Program) -> None:
    (told,) = ask(program, use("Bash", command="touch x; ls -A"), flags=BYPASS)
    assert told.split() == [".git", "x"]


def test_instructions_that_code_changes_are_put_back_and_the_way_is_shown(program: Program) -> None:
    work = program.folder
    (work / "sub").mkdir()
    (work / "AGENTS.md").write_text("be kind\n")
    (work / "sub/CLAUDE.md").write_text("be brief\n")
    recipe = "x:\n\techo evil > AGENTS.md; rm sub/CLAUDE.md; mkdir -p .github/workflows; "
    (work / "Makefile").write_text(f"{recipe}echo evil > .github/workflows/x.yml; echo built\n")
    (told,) = ask(program, use("Bash", command="make x"), flags=AUTO)
    assert "built" in told
    assert "restored: .github/workflows/x.yml, AGENTS.md, sub/CLAUDE.md." in told
    assert "use Edit or Write" in told
    assert (work / "AGENTS.md").read_text() == "be kind\n"
    assert (work / "sub/CLAUDE.md").read_text() == "be brief\n"
    assert not (work / ".github/workflows/x.yml").exists()


def test_another_branch_brings_its_own_instructions(program: Program) -> None:
    def git(*words: str) -> None:
        person = ("-c", "user.name=x", "-c", "user.email=x@y")
        subprocess.run(["git", "-C", program.folder, *person, *words], check=True)

    (program.folder / "AGENTS.md").write_text("one\n")
    git("add", ".")
    git("commit", "-qm", "one")
    git("checkout", "-qb", "other")
    (program.folder / "AGENTS.md").write_text("two\n")
    git("commit", "-qam", "two")
    lines = ("git checkout -q -", "git merge -q other && python3 -c 1")
    told = ask(program, *(use("Bash", command=line) for line in lines), flags=AUTO)
    assert (program.folder / "AGENTS.md").read_text() == "two\n"
    assert not any("were restored" in text for text in told), told
