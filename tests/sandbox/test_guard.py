"""Protected files that a command can write are as they were once it and all its children ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from tests.process.test_processes import children, nap, sleepers, until
from tests.processes import run_past_timeout
from tests.sandbox.caged import SECONDS, Mode, Scene, play, scene, walls
from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.world import Command
from travois.process.local_processes import LocalProcesses
from travois.sandbox.guard.guard import GuardJournal, find_guarded_paths

__all__ = ["nap"]
BACKENDS = pytest.mark.parametrize("mode", ["full", "partial"], ids=["bwrap", "landlock"])
NAMES = (".git/hooks", ".git/config", ".claude", ".mcp.json", ".husky", "deep/er/pinned")
EVIL = "[core]\n\tfsmonitor = evil\n"


@pytest.fixture
def place() -> Iterator[Scene]:
    with scene() as bare:
        work = bare.work
        subprocess.run(["git", "init", "-q", work], check=True)
        (work / ".git/hooks/pre-commit").write_text("#!/bin/sh\necho mine\n")
        (work / ".git/hooks/pre-commit").chmod(0o755)
        (work / ".claude/agents").mkdir(parents=True)
        (work / ".claude/settings.json").write_text("{}")
        (work / ".claude/link").symlink_to("settings.json")
        (work / "deep/er").mkdir(parents=True)
        (work / "deep/er/pinned").write_text("as it was\n")
        (work / "kept").write_text("kept\n")
        yield Scene(work, bare.outside, bare.but(pinned=tuple(f"{work}/{n}" for n in NAMES)))


def look(work: Path) -> dict[str, tuple[int, str]]:
    """Everything that is at the protected names."""
    found: dict[str, tuple[int, str]] = {}
    for root in (work / name for name in NAMES):
        for path in (root, *sorted(root.rglob("*"))) if os.path.lexists(root) else ():
            text = os.readlink(path) if path.is_symlink() else ""
            text = text or (path.read_text() if path.is_file() else "")
            found[str(path.relative_to(work))] = (path.lstat().st_mode, text)
    return found


def act(
    place: Scene, text: str, *, mode: Mode = "partial", sandbox: SandboxProfile | None = None
) -> list[str]:
    """Run a line; returns what is told of it."""
    told = list[str]()

    async def one(processes: LocalProcesses) -> None:
        done = await processes.run(
            place.sh(text, sandbox=sandbox or place.sandbox), timeout=SECONDS
        )
        told.extend((done.output.head_and_tail().decode(), *processes.take_notices()))

    play(mode, one)
    return told


DEEDS = {
    "a changed hook": ("echo evil >> .git/hooks/pre-commit", ".git/hooks/pre-commit"),
    "a new hook": ("echo evil > .git/hooks/post-merge", ".git/hooks/post-merge"),
    "a removed hook": ("rm .git/hooks/pre-commit", ".git/hooks/pre-commit"),
    "a mode": ("chmod 644 .git/hooks/pre-commit", ".git/hooks/pre-commit"),
    "a link in its place": ("ln -sf /etc/passwd .mcp.json", ".mcp.json"),
    "a folder in its place": ("rm .git/config; mkdir .git/config", ".git/config"),
    "a full folder in its place": ("rm .git/config; mkdir -p .git/config/a/b", ".git/config"),
    "a pipe in its place": ("rm .git/config; mkfifo .git/config", ".git/config"),
    "a pipe that is new": ("mkfifo .mcp.json", ".mcp.json"),
    "a folder that is new": ("mkdir -p .husky/_; echo evil > .husky/_/pre-commit", ".husky"),
    "a changed link": ("ln -sfn /etc .claude/link", ".claude/link"),
    "all of a folder": ("rm -r .claude; mkdir .claude; echo x > .claude/settings.json", ".claude"),
    "a folder replaced by a link": ("mv .claude c; ln -s c .claude", ".claude"),
    "a parent renamed": ("mv deep d; mkdir -p deep/er; echo x > deep/er/pinned", "deep"),
    "a parent replaced by a link": ("mv deep d; ln -s d deep; echo x > d/er/pinned", "deep"),
    "a parent replaced by a file": ("mv deep d; echo x > deep", "deep"),
    "a parent that is gone": ("rm -r deep", "deep/er/pinned"),
    "the repository moved away": ("mv .git g; git init -q; echo evil > .git/hooks/h", ".git"),
    "the repository closed to us": ("echo x > .git/hooks/h; chmod 000 .git", ".git/hooks/h"),
    "a second name": ("ln deep/er/pinned mine", "deep/er/pinned"),
    "a write by a second name": ("ln .git/config mine; echo '[x]' >> mine", ".git/config"),
    "a setting of git": ("git config core.fsmonitor evil", ".git/config"),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_landlock_restores_and_says_so(place: Scene, deed: str) -> None:
    before, (text, name) = look(place.work), DEEDS[deed]
    said, *told = act(place, text)
    assert look(place.work) == before, said
    assert len(told) == 1 and name in told[0], told
    assert (place.work / "kept").read_text() == "kept\n"


def test_landlock_keeps_what_was_put_in_their_place(place: Scene) -> None:
    with LocalJournal(place) as folder:
        (_, told) = run_with(place, "echo evil > .mcp.json; rm -r .claude; ln -s / .claude", folder)
        kept = Path(told.rpartition(" in ")[2].removesuffix("."))
        assert (kept / ".mcp.json").read_text() == "evil\n"
        assert (kept / ".claude").readlink() == Path("/")


def test_landlock_writes_nothing_through_what_was_planted(place: Scene) -> None:
    (place.outside / "config").write_text("outside\n")
    (place.outside / "hooks").mkdir()
    (place.outside / "er").mkdir()
    plant = f"mv .git g; ln -s {place.outside} .git; ln -sf {place.outside}/config .mcp.json"
    act(place, f"{plant}; mv deep d; ln -s {place.outside} deep; echo x > d/er/pinned")
    assert os.listdir(place.outside / "er") == []
    assert (place.outside / "config").read_text() == "outside\n"
    assert os.listdir(place.outside / "hooks") == []
    assert (place.work / ".git/HEAD").is_file()


@pytest.mark.parametrize(
    "text",
    [
        "touch made; mkdir build; mv kept moved; sed -i s/kept/x/ moved; rm moved",
        "python3 -m venv --without-pip .venv",
        "git add kept && git -c user.name=a -c user.email=a commit -nqm one && git checkout -qb x",
    ],
)
def test_landlock_lets_ordinary_work_happen_and_says_nothing(place: Scene, text: str) -> None:
    async def one(processes: LocalProcesses) -> None:
        done = await processes.run(place.sh(text), timeout=300)
        assert (done.status, processes.take_notices()) == (0, ()), done.output.head_and_tail()

    play("partial", one)


class LocalJournal:
    """A journal that outlives who made it, outside of what commands can write."""

    def __init__(self, place: Scene) -> None:
        self._path = place.outside.parent / "journal"

    def __enter__(self) -> str:
        return str(self._path)

    def __exit__(self, *_: object) -> None:
        pass


def run_with(place: Scene, text: str, journal: str, mode: Mode = "partial") -> tuple[str, ...]:
    told = list[str]()

    async def main() -> None:
        processes = LocalProcesses(support=walls(mode), journal=journal)
        done = await processes.run(place.sh(text), timeout=SECONDS)
        told.extend((done.output.head_and_tail().decode(), *processes.take_notices()))
        await processes.aclose()

    anyio.run(main)
    return tuple(told)


# --- what git may write ---------------------------------------------------------------------------


def by_git(place: Scene) -> SandboxProfile:
    config = f"{place.work}/.git/config"
    pinned = tuple(path for path in place.sandbox.pinned if path != config)
    return place.but(pinned=pinned, git_written=(config,))


@BACKENDS
def test_git_may_set_branches_and_remotes(place: Scene, mode: Mode) -> None:
    text = "git remote add up ../up && git config branch.main.remote up && git remote -v"
    said, *told = act(place, text, mode=mode, sandbox=by_git(place))
    assert ("up\t../up (fetch)" in said, told) == (True, [])
    assert '[remote "up"]' in (place.work / ".git/config").read_text()


@BACKENDS
def test_git_may_not_set_what_runs_programs(place: Scene, mode: Mode) -> None:
    text = "git remote add up ../up; git config core.fsmonitor evil; git config alias.x '!evil'"
    _, *told = act(place, text, mode=mode, sandbox=by_git(place))
    assert len(told) == 1 and ".git/config (alias.x, core.fsmonitor)" in told[0]
    text = (place.work / ".git/config").read_text()
    assert ('[remote "up"]' in text, "evil" in text) == (True, False)


@BACKENDS
def test_what_was_allowed_by_name_stays(place: Scene, mode: Mode) -> None:
    config = f"{place.work}/.git/config"
    pinned = tuple(path for path in place.sandbox.pinned if path != config)
    sandbox = place.but(pinned=pinned, lifted=(config,))
    _, *told = act(place, "git config core.editor vim", mode=mode, sandbox=sandbox)
    assert ("editor = vim" in (place.work / ".git/config").read_text(), told) == (True, [])


@BACKENDS
def test_a_new_repository_has_the_samples_of_git_and_no_hook_of_another(mode: Mode) -> None:
    with scene() as place:
        names = (".git/hooks", ".git/config", ".git/info/attributes")
        sandbox = place.but(git_written=tuple(f"{place.work}/{name}" for name in names))
        text = f"git init -q; echo x > .git/hooks/pre-commit; printf '{EVIL}' >> .git/config"
        _, *told = act(
            place, text.replace("\n", "\\n").replace("\t", " "), mode=mode, sandbox=sandbox
        )
        assert ".git/hooks/pre-commit" in told[0] and "core.fsmonitor" in told[0]
        hooks = os.listdir(place.work / ".git/hooks")
        assert hooks and all(name.endswith(".sample") for name in hooks)
        status = subprocess.run(["git", "status"], cwd=place.work, capture_output=True, text=True)
        assert status.returncode == 0
        assert "evil" not in (place.work / ".git/config").read_text()


# --- more than one at a time ----------------------------------------------------------------------


async def waiting(
    processes: LocalProcesses,
    place: Scene,
    text: str,
    id: str,
    sandbox: SandboxProfile | None = None,
) -> Callable[[], None]:
    """A job that does something and then waits until it is let go; returns what lets it."""
    go = place.work / f"go-{id}"
    line = f"{text}; touch ready-{id}; until [ -e {go} ]; do sleep 0.01; done"
    await processes.start(place.sh(line, sandbox=sandbox or place.sandbox), id=id)
    await until((place.work / f"ready-{id}").exists)
    return go.touch


def test_the_first_of_several_saves_and_what_it_saved_holds(place: Scene) -> None:
    async def one(processes: LocalProcesses) -> None:
        before = look(place.work)
        go = await waiting(processes, place, "echo evil > .mcp.json", "first")
        assert (place.work / ".mcp.json").exists()
        done = await processes.run(place.sh("cat .mcp.json"), timeout=SECONDS)
        assert done.output.head_and_tail() == b"evil\n"
        assert look(place.work) == before
        assert ".mcp.json" in processes.take_notices()[0]
        (place.work / ".mcp.json").write_text("evil again")
        go()
        await processes.jobs()["first"].wait()
        await until(lambda: look(place.work) == before)
        assert len(processes.take_notices()) == 1

    play("partial", one)


def test_what_git_sets_beside_another_command_stays(place: Scene) -> None:
    async def one(processes: LocalProcesses) -> None:
        go = await waiting(
            processes, place, "printf '[core]\\n fsmonitor=x\\n' >> .git/config", "a"
        )
        line = place.sh("git remote add up ../up", sandbox=by_git(place))
        assert (await processes.run(line, timeout=SECONDS)).status == 0
        text = (place.work / ".git/config").read_text()
        assert ('[remote "up"]' in text, "fsmonitor" in text) == (True, False)
        go()
        await processes.jobs()["a"].wait()
        processes.take_notices()
        assert (place.work / ".git/config").read_text() == text

    play("partial", one)


def test_a_leave_does_not_count_beside_a_command_that_has_none(place: Scene) -> None:
    async def one(processes: LocalProcesses) -> None:
        go = await waiting(processes, place, "true", "a")
        path = f"{place.work}/.mcp.json"
        pinned = tuple(each for each in place.sandbox.pinned if each != path)
        line = place.sh("echo {} > .mcp.json", sandbox=place.but(pinned=pinned, lifted=(path,)))
        await processes.run(line, timeout=SECONDS)
        assert "another running command may not change it" in processes.take_notices()[0]
        assert not os.path.exists(path)
        go()
        await processes.jobs()["a"].wait()
        await processes.run(line, timeout=SECONDS)
        assert (processes.take_notices(), Path(path).read_text()) == ((), "{}\n")

    play("partial", one)


def test_what_we_write_ourselves_beside_a_command_stays(place: Scene) -> None:
    async def one(processes: LocalProcesses) -> None:
        go = await waiting(processes, place, "echo evil > .claude/evil", "a")
        path = place.work / ".claude/agents/one.md"
        path.write_bytes(b"mine")
        processes.accept_change(str(path), b"mine")
        go()
        await processes.jobs()["a"].wait()
        await until(lambda: not (place.work / ".claude/evil").exists())
        assert path.read_bytes() == b"mine"
        assert "evil" in processes.take_notices()[0]

    play("partial", one)


def test_checkouts_of_agents_are_no_settings(place: Scene) -> None:
    sandbox = place.but(pinned=(*place.sandbox.pinned, f"{place.work}/.travois"))
    line = "mkdir -p .travois/worktrees/a .claude/worktrees/b; echo x > .travois/worktrees/a/f"
    _, *told = act(place, f"{line}; echo x > .travois/settings.json", sandbox=sandbox)
    assert ".travois" in told[0]
    assert os.listdir(place.work / ".travois") == ["worktrees"]
    assert (place.work / ".travois/worktrees/a/f").read_text() == "x\n"
    assert (place.work / ".claude/worktrees/b").is_dir()
    _, *told = act(place, "true", sandbox=sandbox)
    assert told == []


@BACKENDS
def test_a_program_of_ours_is_in_walls_while_a_command_could_mislead_it(
    place: Scene, mode: Mode
) -> None:
    subprocess.run(["git", "add", "kept"], cwd=place.work, check=True)

    async def one(processes: LocalProcesses) -> None:
        evil, out = place.outside / "evil", place.outside / "out"
        evil.write_text(f"#!/bin/sh\ntouch {out}\n")
        evil.chmod(0o755)
        argv = ("git", "-c", f"diff.external={evil}", "diff")
        looks = place.but(profile="look", pinned=())
        ours = Command(argv, str(place.work), wary=looks)
        (place.work / "kept").write_text("other\n")
        go = await waiting(processes, place, "true", "a", sandbox=by_git(place))
        assert (await processes.run(ours, timeout=SECONDS)).output.head_and_tail()
        assert not out.exists()
        go()
        await processes.jobs()["a"].wait()
        assert (await processes.run(ours, timeout=SECONDS)).status == 0 or mode == "partial"
        assert out.exists() == (mode == "full")  # nothing could have been planted by then

    play(mode, one)


# --- the end of a command -------------------------------------------------------------------------

LATE = {
    "a child": "({}) &",
    "a daemon": "setsid sh -c '{}' >/dev/null 2>&1 < /dev/null &",
    "a daemon that shed its environment": "(env -i setsid sh -c '{}' >/dev/null 2>&1 &)",
}


@pytest.mark.parametrize("way", LATE)
def test_what_is_left_running_is_checked_when_it_is_gone(place: Scene, way: str) -> None:
    async def one(processes: LocalProcesses) -> None:
        before = look(place.work)
        late = "until [ -e go ]; do /bin/sleep 0.02; done; echo evil > .mcp.json; touch done"
        await processes.run(place.sh(LATE[way].format(late)), timeout=SECONDS)
        assert (processes.take_notices(), look(place.work)) == ((), before)
        (place.work / "go").touch()
        await until((place.work / "done").exists)
        await until(lambda: ".mcp.json" in "".join(processes.take_notices()))
        assert look(place.work) == before
        await processes.aclose()
        assert look(place.work) == before

    play("partial", one)


def test_a_command_that_times_out_is_checked_too(place: Scene) -> None:
    async def one(processes: LocalProcesses) -> None:
        before = look(place.work)
        line = "trap '' TERM; while :; do echo evil > .mcp.json; echo up; done"
        done = await run_past_timeout(
            lambda seconds: processes.run(place.sh(line), timeout=seconds), said=b"up\n"
        )
        assert done.timed_out
        assert look(place.work) == before
        assert ".mcp.json" in processes.take_notices()[0]

    play("partial", one)


KILLED = """
import anyio, sys
from travois.ports.world import Command
from travois.process.local_processes import LocalProcesses
from travois.sandbox.probe import find_sandbox_support
from msgspec.structs import replace
from travois.permissions.sandbox_profile import SandboxProfile

async def main():
    work, temp, journal, nap = sys.argv[1:]
    walls = replace(find_sandbox_support(None), kind="partial")
    processes = LocalProcesses(support=walls, journal=journal)
    pinned = (work + "/.mcp.json", work + "/.git/hooks")
    cage = SandboxProfile("work", (work,), temp, pinned=pinned)
    text = f"echo evil > .mcp.json; echo x > .git/hooks/h; exec sleep {nap}"
    await processes.start(Command(("/bin/sh", "-c", text), work, sandbox=cage), id="job")
    await anyio.sleep(60)

anyio.run(main)
"""


def test_what_a_killed_session_left_is_restored_by_the_next(place: Scene, nap: str) -> None:
    walls("partial")
    with LocalJournal(place) as journal:
        before, others = look(place.work), {one.pid for one in children(os.getpid())}
        argv = [sys.executable, "-c", KILLED, place.work, place.sandbox.temp, journal, nap]
        with subprocess.Popen(argv) as harness:
            anyio.run(until, lambda: sleepers(nap))
            harness.kill()
        assert look(place.work) != before
        anyio.run(until, lambda: not sleepers(nap))
        for one in children(os.getpid()):  # its orphans are ours, if we have adopted any before
            if one.pid not in others:
                os.waitpid(one.pid, 0)
        processes = LocalProcesses(journal=journal)
        processes.recover()
        (told,) = processes.take_notices()
        assert "whose session was killed" in told and ".mcp.json" in told
        assert look(place.work) == before
        processes.recover()
        assert processes.take_notices() == ()


def test_a_session_beside_a_killed_one_does_not_take_its_state_for_good(place: Scene) -> None:
    with LocalJournal(place) as folder:
        before = look(place.work)
        journal = GuardJournal(folder)
        guard = journal.open_guard(find_guarded_paths(place.sandbox, held=False), mark="")
        os.close(guard._lock)  # pyright: ignore[reportPrivateUsage] - as a kill does
        (place.work / ".mcp.json").write_text("evil")
        _, *told = run_with(place, "cat .mcp.json", folder)
        assert (look(place.work), len(told)) == (before, 1)


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (
            "git init -q new && printf '#!/bin/sh\\n' > new/.git/hooks/pre-commit",
            "hooks/pre-commit",
        ),
        ("git init -q new && git -C new config core.fsmonitor x", "config (core.fsmonitor)"),
        ("git init -q a/new && git -C a/new config alias.x '!y'", "config (alias.x)"),
        ("git init -q new && git -C new config user.name me", ""),
        ("git init -q --bare new && git -C new config core.pager x", "config (core.pager)"),
    ],
)
def test_repositories_that_appeared_since_a_session_was_killed_are_told_and_kept(
    place: Scene, made: str, names: str
) -> None:
    with LocalJournal(place) as folder:
        roots = (str(place.work),)
        guard = GuardJournal(folder).open_guard(
            find_guarded_paths(place.sandbox, held=False), mark="", roots=roots
        )
        os.close(guard._lock)  # pyright: ignore[reportPrivateUsage] - as a kill does
        subprocess.run(["bash", "-c", f"mkdir -p a; {made}"], cwd=place.work, check=True)
        before = look(place.work)
        processes = LocalProcesses(journal=folder)
        processes.recover()
        told = processes.take_notices()
        assert look(place.work) == before
        assert len(told) == bool(names)
        assert all(f"new/.git: {names}" in one or f"new: {names}" in one for one in told)
        processes.recover()
        assert processes.take_notices() == ()


def test_two_processes_share_what_was_saved(place: Scene) -> None:
    with LocalJournal(place) as folder:
        before = look(place.work)
        guard = GuardJournal(folder).open_guard(
            find_guarded_paths(place.sandbox, held=False), mark=""
        )
        (place.work / ".mcp.json").write_text("evil")
        other = GuardJournal(folder).open_guard(
            find_guarded_paths(place.sandbox, held=False), mark=""
        )
        assert other.close() != ()
        assert look(place.work) == before
        assert guard.close() == ()


def test_what_is_too_large_to_save_is_told(place: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    from travois.sandbox.guard import saved

    monkeypatch.setattr(saved, "MAX_SAVED_BYTES", 10)
    _, *told = act(place, "echo more >> deep/er/pinned; echo more >> .git/config")
    assert "could NOT be restored: .git/config" in told[-1]
