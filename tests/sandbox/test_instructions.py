"""Instructions and workflows stay as they are after commands that nobody was asked about."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.sandbox.caged import SECONDS, Mode, Scene, play, scene, walls
from travois.permissions.sandbox_profile import SandboxProfile, UnapprovedChanges
from travois.process.local_processes import LocalProcesses
from travois.sandbox.guard.guard import GuardJournal

BACKENDS = pytest.mark.parametrize("mode", ["full", "partial"], ids=["bwrap", "landlock"])
FILES = (
    "AGENTS.md",
    "CLAUDE.md",
    "sub/deep/er/GEMINI.md",
    "sub/AGENTS.override.md",
    ".github/copilot-instructions.md",
    ".github/workflows/ci.yml",
    "sub/.github/workflows/release.yml",
    ".gitattributes",
    ".gitlab-ci.yml",
    "sub/.claude/settings.json",
    "sub/.cursor/rules/style.mdc",
)
ABSENT = ("QWEN.md", "new/CLAUDE.md", "new/.github/workflows/x.yml", ".circleci/config.yml")
GIT = "git -c user.name=x -c user.email=x"
WRITES = {
    "python": "python3 -c \"open('{0}','w').write('evil')\"",
    "a script": "echo 'printf evil > {0}' > s.sh; sh s.sh",
    "through a variable": "f={0}; printf evil > $f",
    "by rename": "printf evil > t; mv t {0}",
    "by a second name": "ln -f {0} other; printf evil > other",
    "a link in its place": "ln -sf /etc/passwd {0}",
    "a pipe in its place": "rm -f {0}; mkfifo {0}",
    "a folder in its place": "rm -f {0}; mkdir {0}; touch {0}/x",
    "removed": "rm {0}",
    "removed with its folder": 'rm -rf "$(dirname {0})/x" {0}; cd "$(dirname {0})" && rmdir "$PWD"',
    "closed": "printf evil > {0}; chmod 000 {0}",
    "in a closed folder": "printf evil > {0}; d=$(dirname {0}); [ $d = . ] || chmod 000 $d",
    "put in the index": "printf evil > {0}; git add -f {0}",
    "committed": f"printf evil > {{0}}; git add -f {{0}}; {GIT} commit -qm x",
    "a link on the way": 'd=$(dirname {0}); [ "$d" = . ] || (mv "$d" $RANDOM; ln -s /etc "$d")',
}
CREATES = {
    "python": "mkdir -p $(dirname {0}); python3 -c \"open('{0}','w').write('evil')\"",
    "a link": "mkdir -p $(dirname {0}); ln -s ../README {0}",
    "committed": "mkdir -p $(dirname {0}); printf evil > {0}; git add {0}",
    "its own repository": "git init -q new; cd new; printf e > AGENTS.md; git add .",
}
UNASKED = UnapprovedChanges()


@pytest.fixture
def place() -> Iterator[Scene]:
    with scene(unasked=UNASKED) as bare:
        git(bare, "init", "-q", "-b", "main")
        for name in FILES:
            (bare.work / name).parent.mkdir(parents=True, exist_ok=True)
            (bare.work / name).write_text(f"{name} as it was\n")
        (bare.work / "README").write_text("read me\n")
        git(bare, "add", ".")
        git(bare, "commit", "-qm", "all")
        yield bare


def git(place: Scene, *words: str) -> str:
    person = ("-c", "user.name=x", "-c", "user.email=x@y")
    ran = subprocess.run(["git", *person, *words], cwd=place.work, capture_output=True, check=True)
    return ran.stdout.decode()


def act(
    place: Scene, *lines: str, mode: Mode = "full", sandbox: SandboxProfile | None = None
) -> list[str]:
    """Run lines one after the other; returns what is told of them."""
    told = list[str]()

    async def all_of_them(processes: LocalProcesses) -> None:
        for line in lines:
            await processes.run(place.sh(line, sandbox=sandbox or place.sandbox), timeout=SECONDS)
        told.extend(processes.take_notices())

    play(mode, all_of_them)
    return told


def in_turn(way: str, names: tuple[str, ...]) -> str:
    """One line that does the same to each of these files, in a shell of its own."""
    return "\n".join(f"( {way.format(name)} )" for name in names)


def look(work: Path) -> dict[str, str]:
    """The protected files that there are, with their content."""
    found = (path for path in sorted(work.rglob("*")) if ".git" not in path.relative_to(work).parts)
    files = (path for path in found if path.is_symlink() or path.is_file())
    names = {path: str(path.relative_to(work)) for path in files}
    wanted = {path: name for path, name in names.items() if name in (*FILES, *ABSENT)}
    return {n: "a link" if p.is_symlink() else p.read_text() for p, n in wanted.items()}


@BACKENDS
@pytest.mark.parametrize("way", WRITES)
def test_no_way_of_writing_changes_one(place: Scene, way: str, mode: Mode) -> None:
    before = look(place.work)
    told = act(place, in_turn(WRITES[way], FILES), mode=mode)
    assert look(place.work) == before
    assert len(told) == 1 and "were restored" in told[0], told


def test_none_is_removed_where_the_index_is_in_two_files(place: Scene) -> None:
    git(place, "update-index", "--split-index")
    before = look(place.work)
    told = act(place, "rm AGENTS.md sub/deep/er/GEMINI.md")
    assert look(place.work) == before
    assert len(told) == 1 and "were restored" in told[0], told


@BACKENDS
@pytest.mark.parametrize("way", CREATES)
def test_no_way_of_writing_adds_one(place: Scene, way: str, mode: Mode) -> None:
    before = look(place.work)
    told = act(place, in_turn(CREATES[way], ABSENT), mode=mode)
    assert look(place.work) == before and told


@BACKENDS
def test_the_message_says_what_to_do_and_where_the_content_is(place: Scene, mode: Mode) -> None:
    walls(mode)
    kept = place.outside / "journal"

    async def main() -> tuple[str, ...]:
        processes = LocalProcesses(support=walls(mode), journal=str(kept))
        await processes.run(place.sh("printf mine > AGENTS.md"), timeout=SECONDS)
        told = processes.take_notices()
        await processes.aclose()
        return told

    (told,) = anyio.run(main)
    (copy,) = kept.glob("replaced/*/AGENTS.md")
    assert "restored: AGENTS.md. The command's versions are in" in told
    assert str(copy.parent) in told and "use Edit or Write" in told and "Edit(AGENTS.md)" in told
    assert copy.read_text() == "mine"


@BACKENDS
def test_what_git_takes_out_of_commits_stays(place: Scene, mode: Mode) -> None:
    git(place, "checkout", "-qb", "other")
    (place.work / "AGENTS.md").write_text("of the other branch\n")
    (place.work / "sub/CLAUDE.md").write_text("only here\n")
    git(place, "rm", "-q", ".gitattributes")
    git(place, "add", ".")
    git(place, "commit", "-qm", "other")
    other = place.work / "AGENTS.md"
    assert act(place, "git checkout -q main; python3 -c 1", mode=mode) == []
    assert other.read_text() == "AGENTS.md as it was\n"
    assert not (place.work / "sub/CLAUDE.md").exists() and (place.work / ".gitattributes").exists()
    assert act(place, "git gc -q", "git merge -q other; python3 -c 1", mode=mode) == []
    assert other.read_text() == "of the other branch\n"
    assert (place.work / "sub/CLAUDE.md").exists() and not (place.work / ".gitattributes").exists()
    assert act(place, "git worktree add -q tree other; python3 -c 1", mode=mode) == []
    assert (place.work / "tree/AGENTS.md").read_text() == "of the other branch\n"


@BACKENDS
def test_a_stash_takes_a_change_of_the_users_and_gives_it_back(place: Scene, mode: Mode) -> None:
    (place.work / "AGENTS.md").write_text("my own words\n")
    line = f"{GIT} stash -q; python3 -c 1"
    assert act(place, line, mode=mode) == []
    assert (place.work / "AGENTS.md").read_text() == "AGENTS.md as it was\n"
    assert act(place, "git stash pop -q", mode=mode, sandbox=place.but(unasked=None)) == []
    assert (place.work / "AGENTS.md").read_text() == "my own words\n"
    whole = f"{line}; git stash pop -q"
    assert act(place, whole, mode=mode) == []
    assert (place.work / "AGENTS.md").read_text() == "my own words\n"


@BACKENDS
def test_a_folder_takes_its_instructions_along(place: Scene, mode: Mode) -> None:
    assert act(place, "python3 -c \"import os; os.rename('sub', 'moved')\"", mode=mode) == []
    assert (place.work / "moved/deep/er/GEMINI.md").exists()
    assert not (place.work / "sub").exists()
    told = act(place, "mv moved/.github/workflows/release.yml .github/workflows/", mode=mode)
    assert len(told) == 1 and not (place.work / ".github/workflows/release.yml").exists()


RULES = {
    "a path": UnapprovedChanges(patterns=(("AGENTS.md", "@", "/nowhere"),)),
    "a name in a command": UnapprovedChanges(names=("agents.md",)),
}


@pytest.mark.parametrize("rule", RULES)
def test_what_a_rule_names_may_change_and_nothing_else(place: Scene, rule: str) -> None:
    known = RULES[rule]
    patterns = tuple((what, str(place.work), home) for what, _, home in known.patterns)
    sandbox = place.but(unasked=UnapprovedChanges(patterns, known.names))
    (told,) = act(place, "printf new | tee AGENTS.md CLAUDE.md", sandbox=sandbox)
    assert (place.work / "AGENTS.md").read_text() == "new"
    assert "restored: CLAUDE.md." in told


@BACKENDS
def test_what_somebody_agreed_to_stays(place: Scene, mode: Mode) -> None:
    agreed = place.but(unasked=None)
    assert act(place, "printf yes > AGENTS.md", mode=mode, sandbox=agreed) == []
    assert act(place, "python3 -c 1", mode=mode) == []
    assert (place.work / "AGENTS.md").read_text() == "yes"


@BACKENDS
def test_ordinary_work_is_not_touched(place: Scene, mode: Mode) -> None:
    lines = (
        "mkdir -p node_modules/x; printf x > node_modules/x/AGENTS.md; touch agents.md.bak",
        "touch AGENTS.md; chmod 600 AGENTS.md; cp README notes; printf x > .github/CODEOWNERS",
        "mkdir -p .claude/worktrees/a; printf x > .claude/worktrees/a/main.py",
    )
    assert act(place, *lines, mode=mode) == []
    assert (place.work / "node_modules/x/AGENTS.md").exists()


@BACKENDS
def test_a_command_in_the_background_is_held_too_and_agreed_changes_stay(
    place: Scene, mode: Mode
) -> None:
    async def one(processes: LocalProcesses) -> None:
        line = (
            "while ! [ -e go ]; do sleep 0.02; done; printf evil > AGENTS.md; touch went; sleep 60"
        )
        job = await processes.start(place.sh(line), id="one")
        agreed = place.sh("printf yes > CLAUDE.md", sandbox=place.but(unasked=None))
        await processes.run(agreed, timeout=SECONDS)
        (place.work / ".gitattributes").write_text("* text\n")  # as a file tool does
        processes.accept_change(str(place.work / ".gitattributes"), b"* text\n")
        wait = "touch go; while ! [ -e went ]; do sleep 0.02; done"
        await processes.run(place.sh(wait), timeout=SECONDS)
        told = processes.take_notices()  # where mounts hold it, there was nothing to put back
        assert any("AGENTS.md" in text for text in told) is (mode == "partial")
        await job.kill()
        assert processes.take_notices() == ()

    play(mode, one)
    assert (place.work / "AGENTS.md").read_text() == "AGENTS.md as it was\n"
    assert (place.work / "CLAUDE.md").read_text() == "yes"
    assert (place.work / ".gitattributes").read_text() == "* text\n"


def test_instructions_that_are_a_link_are_held_with_what_it_leads_to(place: Scene) -> None:
    (place.work / "docs").mkdir()
    (place.work / "docs/guide.md").write_text("be kind\n")
    os.symlink("docs/guide.md", place.work / "QWEN.md")
    told = act(place, "python3 -c \"open('QWEN.md','w').write('be evil')\"")
    assert (place.work / "docs/guide.md").read_text() == "be kind\n"
    assert "docs/guide.md" in told[0]


def test_what_a_user_edits_beside_a_program_in_the_background_stays(place: Scene) -> None:
    async def one(processes: LocalProcesses) -> None:
        line = "printf evil > AGENTS.md; mv sub x; printf e > QWEN.md; touch went; sleep 60"
        job = await processes.start(place.sh(line), id="one")
        while not (place.work / "went").exists():  # noqa: ASYNC110 - another program makes it
            await anyio.sleep(0.02)
        (place.work / "mine").write_text("mine\n")
        os.replace(place.work / "mine", place.work / "AGENTS.md")  # as editors do
        (place.work / "sub/deep/er/GEMINI.md").write_text("mine\n")
        await processes.run(place.sh("true", sandbox=place.but(unasked=None)), timeout=SECONDS)
        await job.kill()
        (told,) = processes.take_notices()
        assert "restored: QWEN.md." in told

    play("full", one)
    assert (place.work / "AGENTS.md").read_text() == "mine\n"
    assert (place.work / "sub/deep/er/GEMINI.md").read_text() == "mine\n"
    assert not (place.work / "QWEN.md").exists()


def journal(place: Scene) -> GuardJournal:
    return GuardJournal(str(place.outside / "journal"))


def test_what_a_file_tool_of_another_process_writes_stays(place: Scene) -> None:
    roots, path = (str(place.work),), place.work / "AGENTS.md"
    ours, theirs = journal(place), journal(place)
    guard = ours.open_guard((), mark="", roots=roots, unasked=UNASKED)
    path.write_text("agreed\n")
    theirs.accept_change(str(path), b"agreed\n")
    assert guard.check() == ()
    path.write_text("not agreed\n")
    assert len(guard.close()) == 1
    assert path.read_text() == "agreed\n"


def test_what_differs_after_a_session_was_killed_is_told_and_stays(place: Scene) -> None:
    line = (
        "import os, sys; from travois.sandbox.guard.guard import GuardJournal; "
        "from travois.permissions.sandbox_profile import UnapprovedChanges; "
        "GuardJournal(sys.argv[1]).open_guard((), mark='', roots=(sys.argv[2],), "
        "unasked=UnapprovedChanges()); "
        "os._exit(9)"
    )
    words = (sys.executable, "-c", line, str(place.outside / "journal"), str(place.work))
    subprocess.run(words, check=False)
    (place.work / "CLAUDE.md").write_text("by whom?\n")
    later = journal(place)
    later.recover()
    (told,) = later.notices
    assert "CLAUDE.md" in told and "AGENTS.md" not in told and "was killed" in told
    assert (place.work / "CLAUDE.md").read_text() == "by whom?\n"
