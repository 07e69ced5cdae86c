"""A session that is kept in a store, and goes on elsewhere."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import travois_lab as lab
from tests.e2e.program import Program, kinds, read
from tests.e2e.test_faults import wait_for
from travois.sessions.blobs import BlobStore
from travois.sessions.stores import open_store
from travois_lab import call

ID = "11111111-2222-4333-8444-555555555555"
OK = {"say": [{"text": "ok"}], "repeat": True}
WRITE = {"say": [{"tool_use": {"name": "Write", "input": {"file_path": "w.txt", "content": "hi"}}}]}
TOOLS = ("--allowedTools", "Bash", "Write", "Edit")
GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@x")


def sleeping(seconds: float) -> dict[str, object]:
    command = f"touch up; sleep {seconds}"
    return {"say": [{"tool_use": {"name": "Bash", "input": {"command": command}}}]}


def git(folder: Path, *words: str) -> str:
    done = subprocess.run([*GIT, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def here(program: Program, store: Path) -> Program:
    """One machine, with a repository."""
    program.extra = {"TRAVOIS_SESSION_STORE": str(store)}
    git(program.folder, "init", "-q", "-b", "main")
    (program.folder / "f.txt").write_text("one\n")
    (program.folder / ".gitignore").write_text("up\n*.log\n")
    git(program.folder, "add", ".")
    git(program.folder, "commit", "-qm", "first")
    return program


@pytest.fixture
def there(here: Program, tmp_path: Path) -> Program:
    """Another machine: another home, and a clone in another folder."""
    folder = tmp_path / "elsewhere" / "clone"
    git(tmp_path, "clone", "-q", str(here.folder), str(folder))
    return Program(
        folder,
        tmp_path / "elsewhere" / "home",
        extra=here.extra,
        launcher=here.launcher,
        is_limited=here.is_limited,
    )


def begin(program: Program, number: int, *, before: Callable[[], object] = lambda: None) -> None:
    """Start a run and kill it while its command runs."""
    child = program.start("-p", "the task", *program.model, "--session-id", ID, *TOOLS)
    wait_for(program.folder / "up")
    before()
    child.send_signal(number)
    child.communicate(timeout=300)


def wait_until_stored(program: Program, store: Path) -> None:
    """Wait until the store has the last decision of the log, and the files as they are."""
    for _ in range(1000):
        (log,) = program.logs()
        kept, there = open_store(str(store)), b""
        if kept.list_stored_logs(ID):
            there = kept.read_stored_log(ID, "log.jsonl")
        done = there.count(b'"decided"') == log.read_bytes().count(b'"decided"')
        if done and "work.bundle" in kept.list_stored_files(ID):
            bundle = store.parent / "seen.bundle"
            bundle.write_bytes(kept.read_stored_file(ID, "work.bundle"))
            git(program.folder, "fetch", "-q", str(bundle), f"+refs/travois/wip/{ID}:refs/seen")
            if "w.txt" in git(program.folder, "ls-tree", "--name-only", "refs/seen"):
                return
        time.sleep(0.01)
    raise AssertionError("the log never came")


def test_a_killed_session_goes_on_elsewhere_from_the_cache(
    here: Program, there: Program, store: Path
) -> None:
    with here.served([WRITE, sleeping(59.41), OK]) as api:
        there.url = here.url
        begin(here, signal.SIGKILL, before=lambda: wait_until_stored(here, store))
        done = there.run("-p", "-r", ID, *there.model, "--output-format", "json")
        assert (done.code, done.result["result"]) == (0, "ok"), done.err
        api.append_only()  # the prefix is the same to the byte
        api.no_orphans()
        usage = done.result["usage"]
        prompt = sum(usage[f"{kind}_input_tokens"] for kind in ("cache_read", "cache_creation"))
        assert usage["cache_read_input_tokens"] >= 0.95 * (prompt + usage["input_tokens"])
        assert len(api.ledger) == 3  # nothing was asked twice
    assert (there.folder / "w.txt").read_text() == "hi"
    assert git(there.folder, "status", "--porcelain") == "?? w.txt"
    assert "1 uncommitted files came with the session" in done.err


def test_both_machines_in_turn(here: Program, there: Program) -> None:
    with here.served([OK]) as api:
        there.url = here.url
        assert here.ask("one", "--session-id", ID).code == 0
        for number, machine in enumerate((there, here, there)):
            done = machine.ask(f"more {number}", "-r", ID)
            assert (done.code, done.out) == (0, "ok\n"), done.err
        api.append_only()
        assert len(api.ledger) == 4
    assert kinds(read(there.logs()[0])).count("Assistant") == 4
    newest = there.run("-p", "-c", *there.model)
    assert newest.out == "ok\n" and "nothing was interrupted" in newest.err


def test_the_newest_session_of_a_repository_is_continued_elsewhere(
    here: Program, there: Program
) -> None:
    with here.served([OK]) as api:
        there.url = here.url
        assert here.ask("one").code == 0
        assert there.ask("two", "-c").code == 0
        assert "one" in str(api.bodies[-1]["messages"])
    assert [path.parent.name for path in here.logs()] == [p.parent.name for p in there.logs()]


def test_who_was_superseded_can_neither_ask_nor_append(
    here: Program, there: Program, store: Path
) -> None:
    """A stopped machine wakes up after its session went on elsewhere."""
    command = "touch up; while [ ! -e go ]; do sleep 0.05; done"
    waiting = {"say": [{"tool_use": {"name": "Bash", "input": {"command": command}}}]}
    with here.served([WRITE, waiting, OK]) as api:
        there.url = here.url
        words = ("-p", "go", *here.model, "--session-id", ID, *TOOLS, "--output-format", "json")
        child = here.start(*words)
        wait_for(here.folder / "up")
        wait_until_stored(here, store)
        child.send_signal(signal.SIGSTOP)
        assert there.run("-p", "-r", ID, *there.model).out == "ok\n"
        sent = len(api.ledger)
        kept = open_store(str(store)).read_stored_log(ID, "log.jsonl")
        (here.folder / "go").touch()
        child.send_signal(signal.SIGCONT)
        out, err = child.communicate(timeout=300)
        assert b"goes on elsewhere" in err, (out, err)
        assert child.returncode == 130 and b'"outcome":"interrupted"' in out
        assert open_store(str(store)).read_stored_log(ID, "log.jsonl") == kept
        assert len(api.ledger) == sent  # not even asked
        back = here.ask("back here", "-r", ID)
        assert (back.code, back.out) == (0, "ok\n"), back.err
        assert "went on elsewhere" in back.err
        api.no_orphans()
    assert "What only this machine had was saved" in back.err
    assert list(here.home.glob(f"sessions/*/{ID}/log.superseded-1"))


def test_an_older_lease_may_not_begin(here: Program, there: Program) -> None:
    with here.served([OK]) as api:
        there.url = here.url
        here.extra = {**here.extra, "TRAVOIS_LEASE_EPOCH": "3"}
        there.extra = {**there.extra, "TRAVOIS_LEASE_EPOCH": "4"}
        assert here.ask("one", "--session-id", ID).code == 0
        assert there.ask("two", "-r", ID).code == 0
        late = here.ask("late", "-r", ID)
        assert late.code == 130 and "goes on elsewhere" in late.err
        assert there.ask("three", "-r", ID).code == 0  # the same lease again
        assert len(api.ledger) == 3


def test_blobs_and_results_travel(here: Program, there: Program, store: Path) -> None:
    long = {"say": [{"tool_use": {"name": "Bash", "input": {"command": "seq 1 60000"}}}]}
    with here.served([long, OK]) as api:
        there.url = here.url
        assert here.ask("go", "--session-id", ID, *TOOLS).code == 0
        assert there.ask("more", "-r", ID).code == 0
        api.append_only()
    (mine,), (theirs,) = (one.home.glob(f"sessions/*/{ID}") for one in (here, there))
    saved = [path.relative_to(mine) for path in mine.rglob("tool-results/*")]
    assert saved and all((mine / one).read_bytes() == (theirs / one).read_bytes() for one in saved)
    blobs = list((here.home / "blobs").glob("??/*"))
    kept = BlobStore(there.home / "blobs")
    assert all(kept.get(path.parent.name + path.name) for path in blobs)


def test_forks_and_subagents_travel(here: Program, there: Program) -> None:
    def model(prompt: lab.Prompt, state: object) -> list[object]:
        if "delegate" in str(prompt.messages[-1]):
            return [call("Agent", description="look", prompt="part of it")]
        return [lab.text("fine")]

    with here.served(model):
        there.url = here.url
        assert here.ask("delegate", "--session-id", ID).code == 0
        assert here.ask("another way", "-r", ID, "--fork-session", "-n", "Bertha").code == 0
        (fork,) = [path.parent.name for path in here.logs() if path.parent.name != ID]
        done = there.ask("and?", "-r", fork)
        assert done.code == 0, done.err
        child = there.ask("again", "-r", ID)
        assert child.code == 0
    agents = [path.name for path in here.home.glob(f"sessions/*/{ID}/*/log.jsonl")]
    assert len(agents) == len(list(there.home.glob(f"sessions/*/{ID}/*/log.jsonl")))


def test_the_agents_own_commits_travel(here: Program, there: Program, store: Path) -> None:
    command = (
        "git checkout -qb fix && echo two >> f.txt && git -c user.name=x -c user.email=x@x "
        "commit -qam second && echo three >> f.txt"
    )
    commit = {"say": [{"tool_use": {"name": "Bash", "input": {"command": command}}}]}
    with here.served([commit, OK]):
        there.url = here.url
        assert here.ask("go", "--session-id", ID, *TOOLS).code == 0
        assert there.ask("more", "-r", ID).code == 0
    assert git(there.folder, "rev-parse", "--abbrev-ref", "HEAD") == "fix"
    assert git(there.folder, "log", "-1", "--format=%s") == "second"
    assert (there.folder / "f.txt").read_text() == "one\ntwo\nthree\n"


def test_a_clone_with_changes_of_its_own_keeps_them(here: Program, there: Program) -> None:
    with here.served([WRITE, OK]):
        there.url = here.url
        (there.folder / "f.txt").write_text("mine\n")
        assert here.ask("go", "--session-id", ID, *TOOLS).code == 0
        done = there.ask("more", "-r", ID)
    assert done.code == 0 and "this folder has changes of its own" in done.err
    assert (there.folder / "f.txt").read_text() == "mine\n"
    assert git(there.folder, "show", f"refs/travois/kept/{ID}:w.txt") == "hi"


def test_without_a_store_no_ref_is_made(here: Program) -> None:
    with here.served([WRITE, OK]):
        assert here.ask("go", "--session-store", "none", *TOOLS).code == 0
    assert git(here.folder, "for-each-ref", "refs/travois") == ""


def test_filters_of_the_repository_do_not_run(here: Program) -> None:
    """What a command may have written into the configuration must not run outside the sandbox."""
    marks = here.folder.parent / "ran"
    git(here.folder, "config", "filter.evil.clean", f"sh -c 'touch {marks}; cat'")
    (here.folder / ".git" / "info").mkdir(exist_ok=True)
    (here.folder / ".git" / "info" / "attributes").write_text("*.txt filter=evil\n")
    with here.served([WRITE, OK]):
        assert here.ask("go", "--session-id", ID, *TOOLS).code == 0
    assert git(here.folder, "for-each-ref", "refs/travois")
    assert not marks.exists()


def test_a_store_that_cannot_be_used_is_an_error_before_anything_is_asked(here: Program) -> None:
    with here.served([OK]) as api:
        for address in ("postgresql://nobody@127.0.0.1:9/none", "s4://x"):
            done = here.ask("go", "--resume-or-create", ID, "--session-store", address)
            assert done.code == 2 and "stor" in done.err
        assert len(api.ledger) == 0
        assert here.ask("go", "--session-store", "none").code == 0


def test_while_the_store_is_away_the_session_goes_on(
    here: Program, there: Program, store: Path
) -> None:
    away = store.with_name("away")
    swap = f"mv {store} {away}; touch {store}; touch up; sleep 2.5; rm {store}; mv {away} {store}"
    with here.served([{"say": [{"tool_use": {"name": "Bash", "input": {"command": swap}}}]}, OK]):
        there.url = here.url
        words = ("--session-id", ID, "--no-sandbox", "--permission-mode", "bypass")
        done = here.ask("go", *words)
        assert (done.code, done.out) == (0, "ok\n"), done.err
        assert there.ask("more", "-r", ID).out == "ok\n"
    assert kinds(read(there.logs()[0])).count("Assistant") == 3


def test_a_session_that_never_reached_the_store_is_sent_by_the_next_run(
    here: Program, there: Program, store: Path
) -> None:
    with here.served([OK]):
        there.url = here.url
        assert here.ask("go", "--session-id", ID, "--session-store", "none").code == 0
        assert there.ask("x", "-r", ID).code == 2
        assert here.ask("more", "-r", ID).code == 0
        assert there.ask("and more", "-r", ID).code == 0
    assert kinds(read(there.logs()[0])).count("Assistant") == 3
