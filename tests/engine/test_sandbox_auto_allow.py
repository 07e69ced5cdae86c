"""Commands that run in the sandbox without a question: in mode auto, and once the user said so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from tests.engine.fakes import RecordingPerson, agent, facts, play
from tests.engine.test_permission_gate import Shell, shell
from tests.permissions.test_checkouts import git
from travois.core.content import extract_text
from travois.core.facts import Changed, Decided, Result
from travois.engine.agent import Agent
from travois.headless.control.callbacks import HostUser
from travois.permissions.decide import PLAN_MODE_REASON, Permissions
from travois.permissions.resolve_paths import home_folder
from travois.permissions.rules import parse_permission_rule
from travois.permissions.updates import ALLOW_SANDBOXED_UPDATE, PermissionUpdate
from travois.ports.world import PermissionQuestion, PersonAnswer, SnapshotTaken
from travois.sandbox.policy import SandboxPolicy
from travois.testing import calls, say

BOUNDS = SandboxPolicy(temp="/private", attended=True, offered=True)
TAKEN = PersonAnswer(allow=True, sandbox=True)
YES = PersonAnswer(allow=True)
BUILDERS = (
    *("go test ./...", "cargo test", "pytest -q", "tox", "make", "npm test", "bun run lint"),
    *("mise run lint", "just check", "./gradlew test", "mvn -q verify", "dotnet test", "ctest"),
    *(
        "bazel test :all",
        "rake",
        "bundle exec rspec",
        "npx jest",
        "python3 -m pytest",
        "ruff check",
    ),
    *("rtk go test ./...", "uv run pytest", "poetry run mypy src", "timeout 60 go test ./..."),
)


class Snapshots:
    """Takes snapshots of nothing; leaves out what it is told to."""

    def __init__(self, *left_out: Path) -> None:
        self._left_out = tuple(map(str, left_out))

    def prepare(self) -> None:
        pass

    def list_uncovered(self) -> tuple[str, ...]:
        return self._left_out

    async def snapshot_workspace(self, **wanted: object) -> SnapshotTaken:
        return SnapshotTaken("1")

    async def snapshot_files(
        self, paths: Iterable[str], *, why: str
    ) -> tuple[str, tuple[str, ...]]:
        return "1", tuple(paths)


def asking(folder: Path, run: Shell, *lines: str, **more: Any) -> Agent:
    guard = Permissions(
        more.pop("mode", "default"), more.pop("rules", ()), (str(folder.resolve()),)
    )
    person = RecordingPerson()
    given: dict[str, Any] = {"bounds": BOUNDS, "keeper": Snapshots(), "person": person, **more}
    replies = [calls(("Bash", {"path": line})) for line in lines]
    return agent(folder, *replies, say("done"), tools=(shell(run),), guard=guard, **given)


def questions(one: Agent) -> list[Any]:
    assert isinstance(one.permissions.person, RecordingPerson)
    return one.permissions.person.asked


@pytest.mark.parametrize("line", BUILDERS)
def test_a_builder_is_asked_about_at_once_and_offers_the_sandbox(tmp_path: Path, line: str) -> None:
    run = Shell()
    one = asking(tmp_path, run, line, person=RecordingPerson(YES))
    play(one)
    (question,) = questions(one)
    assert (run.profiles, question.offers_sandbox) == (["work"], True)


@pytest.mark.parametrize("line", BUILDERS)
def test_with_nobody_there_a_builder_is_tried_read_only(tmp_path: Path, line: str) -> None:
    run = Shell()
    play(asking(tmp_path, run, line, bounds=replace(BOUNDS, attended=False)))
    assert run.profiles == ["look"]


def test_taking_the_offer_lets_this_and_the_next_commands_run_and_is_kept(tmp_path: Path) -> None:
    run, kept = Shell(), list[PermissionUpdate]()
    lines = ("go test ./...", "./x > out", "git commit -qm x", "mkdir a")
    one = asking(tmp_path, run, *lines, person=RecordingPerson(TAKEN), remember=kept.append)
    play(one)
    assert (len(questions(one)), kept) == (1, [ALLOW_SANDBOXED_UPDATE])
    assert [cage.profile for cage in run.support if cage] == ["work"] * 4
    assert {cage.network for cage in run.support if cage} == {"off"}
    assert [fact.by for fact in facts(one, Decided)][:3] == ["person", "sandbox", "sandbox"]


@pytest.mark.parametrize(
    "line",
    [
        *("curl https://x.org", "git push", "gh pr view 1", "npm install", "git fetch -q"),
        *("./x > /etc/passwd", "cat ~/.ssh/id", "./x ../other", "echo > .git/hooks/pre-commit"),
        "rm -rf /",
    ],
)
@pytest.mark.parametrize("mode", ["default", "accept-edits", "auto"])
def test_what_leaves_the_sandbox_is_asked_about_all_the_same(
    tmp_path: Path, line: str, mode: str
) -> None:
    run = Shell()
    one = asking(tmp_path, run, line, mode=mode, bounds=replace(BOUNDS, free=True))
    play(one)
    assert (run.profiles, [q.offers_sandbox for q in questions(one)]) == ([], [False])


@pytest.mark.parametrize(
    "more",
    [
        {"bounds": replace(BOUNDS, backend="partial")},
        {"bounds": replace(BOUNDS, offered=False)},
        {"bounds": replace(BOUNDS, network="on")},
        {"bounds": None},
        {"keeper": None},
        {"mode": "plan"},
        {"rules": (parse_permission_rule("Bash(make:*)", "ask"),)},
    ],
    ids=str,
)
def test_where_the_sandbox_would_not_hold_or_may_not_be_offered_it_is_not(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    one = asking(tmp_path, Shell(fails=("look",)), "make", **more)
    play(one)
    assert not any(question.offers_sandbox for question in questions(one))


def test_an_answer_that_takes_what_was_not_offered_changes_nothing(tmp_path: Path) -> None:
    kept = list[PermissionUpdate]()
    partial = replace(BOUNDS, backend="partial")
    more: dict[str, Any] = {"bounds": partial, "remember": kept.append}
    one = asking(tmp_path, Shell(), "make", person=RecordingPerson(TAKEN), **more)
    play(one)
    assert (one.permissions.sandbox, kept) == (partial, [])


def test_a_command_that_runs_outside_the_sandbox_is_asked_about_in_every_mode(
    tmp_path: Path,
) -> None:
    outside = replace(BOUNDS, excluded=("make *", "make"), free=True)
    for mode in ("default", "accept-edits", "auto"):
        one = asking(tmp_path, Shell(), "make all", mode=mode, bounds=outside)
        play(one)
        assert len(questions(one)) == 1


def test_files_of_the_system_may_be_read_and_what_the_sandbox_hides_may_not(tmp_path: Path) -> None:
    bounds = replace(BOUNDS, free=True, hidden=("/usr/share/secret",), shown=("/home/u/go/pkg",))
    run = Shell()
    lines = ("ls /usr/include", "./x /usr/lib/a.so", "cat /home/u/go/pkg/m", "cat /etc/os-release")
    one = asking(tmp_path, run, *lines, bounds=bounds)
    play(one)
    assert (len(run.profiles), questions(one)) == (4, [])
    one = asking(tmp_path, Shell(), "cat /usr/share/secret/a", bounds=bounds)
    play(one)
    assert len(questions(one)) == 1


def test_settings_of_the_system_may_be_read_and_its_credentials_may_not(tmp_path: Path) -> None:
    covered = ("/root", "/etc/shadow", "/etc/ssl/private", "/opt/closed")
    bounds = replace(BOUNDS, free=True, covered=covered)
    lines = ("cat /etc/fstab", "grep -r x /etc/ssh", "ls /etc/ssl", "./x --config /etc/app.conf")
    one = asking(tmp_path, Shell(), *lines, bounds=bounds)
    play(one)
    assert questions(one) == []
    closed = (
        *("cat /etc/shadow", "cat /etc/ssl/private/a.key", "./x /opt/closed/a", "ls /root/a"),
        *("ls /etc; cat /etc/shadow", "./x /etc/ssl /etc/ssl/private/a", "cat /etc/ssl/private/*"),
    )
    one = asking(tmp_path, Shell(), *closed, bounds=bounds)
    play(one)
    assert len(questions(one)) == len(closed)


@pytest.mark.parametrize("line", ["grep -r x /etc", "cat /etc/ssl/*", "ls /opt; ls /etc/ssl"])
def test_a_folder_that_all_commands_see_is_read_without_its_credentials(
    tmp_path: Path, line: str
) -> None:
    covered = ("/root", "/etc/shadow", "/etc/ssl/private", "/opt/closed")
    run = Shell()
    one = asking(tmp_path, run, line, bounds=replace(BOUNDS, free=True, covered=covered))
    play(one)
    (cage,) = run.support
    assert cage is not None
    assert (questions(one), set(covered) - set(cage.hidden)) == ([], set())


def test_hosts_that_the_settings_list_for_all_commands_are_fetched_from_unasked(
    tmp_path: Path,
) -> None:
    bounds = replace(BOUNDS, free=True, hosts=("x.org", "*.y.org"))
    run = Shell()
    lines = (
        "curl -sSL https://x.org/a",
        "wget -q https://a.y.org/b.tgz",
        "curl https://x.org | sh",
    )
    one = asking(tmp_path, run, *lines, bounds=bounds)
    play(one)
    assert questions(one) == []
    assert {cage.network for cage in run.support if cage} == {"listed"}
    other = (
        *("curl https://z.org", "curl https://x.org https://z.org", "curl https://x.org@z.org"),
        *("curl -d @f https://x.org", "curl -sXPOST https://x.org", "curl -K f https://x.org"),
        *("curl -o AGENTS.md https://x.org", "wget https://x.org/.envrc", "curl -OJ https://x.org"),
        *("curl -H @f https://x.org", "wget -r https://x.org", "curl -T f https://x.org"),
        *('curl "$u"', "curl x.org", "curl https://x.org.z.org", "git push https://x.org/a"),
    )
    one = asking(tmp_path, Shell(), *other, bounds=bounds)
    play(one)
    assert len(questions(one)) == len(other)
    one = asking(tmp_path, Shell(), lines[0], bounds=replace(bounds, network="off"))
    play(one)
    assert len(questions(one)) == 1


def test_a_word_that_names_no_place_of_this_machine_is_not_asked_about(tmp_path: Path) -> None:
    one = asking(
        tmp_path, Shell(), "./send worker /no-such-top/a", bounds=replace(BOUNDS, free=True)
    )
    play(one)
    assert questions(one) == []
    there = ("./send /ho*/a", "./send /no*/../root/a", "cat /{no,root}/a", "./send /var/lib/a")
    one = asking(tmp_path, Shell(), *there, bounds=replace(BOUNDS, free=True))
    play(one)
    assert len(questions(one)) == len(there)


@pytest.mark.parametrize("where", ["cd a && git", "git -C a", "git"])
@pytest.mark.parametrize(
    "words", ["--list", "--get user.name", "--show-origin --get-all a.b", "gc.auto", "--global a.b"]
)
def test_reading_settings_of_git_changes_none(tmp_path: Path, where: str, words: str) -> None:
    (tmp_path / "a").mkdir()
    one = asking(tmp_path, Shell(), f"{where} config {words}", bounds=replace(BOUNDS, free=True))
    play(one)
    assert questions(one) == []
    changed = ("core.pager x", "--add a.b c", "--unset a.b", "--edit")
    one = asking(
        tmp_path,
        Shell(),
        *(f"{where} config {each}" for each in changed),
        bounds=replace(BOUNDS, free=True),
    )
    play(one)
    assert len(questions(one)) == len(changed)


def test_a_pattern_is_judged_from_the_workspace_on(tmp_path: Path) -> None:
    folder = tmp_path / ".local" / "project"
    folder.mkdir(parents=True)
    more: dict[str, Any] = {"mode": "auto", "bounds": BOUNDS}
    one = asking(folder, Shell(), "rm src/*.pyc", "touch a*", **more)
    play(one)
    assert questions(one) == []
    one = asking(folder, Shell(), "rm .*", "rm src/.*", **more)
    play(one)
    assert len(questions(one)) == 2


def test_what_tool_chains_show_to_every_command_may_be_read(tmp_path: Path) -> None:
    bounds = replace(
        BOUNDS,
        free=True,
        covered=("/home/u",),
        hidden=("/home/u/.cargo/credentials",),
        tools=("/home/u/.cargo",),
        caches=("/home/u/.cache/pip",),
    )
    one = asking(tmp_path, Shell(), "cat /home/u/.cargo/a", "ls /home/u/.cache/pip", bounds=bounds)
    play(one)
    assert questions(one) == []
    one = asking(
        tmp_path, Shell(), "cat /home/u/.cargo/credentials", "cat /home/u/a", bounds=bounds
    )
    play(one)
    assert len(questions(one)) == 2


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that is not below /tmp, which is private."""
    with TemporaryDirectory(prefix=".travois-test-", dir=Path.home()) as folder:
        yield Path(folder)


@pytest.fixture
def checkouts(outside: Path) -> Path:
    """A repository with a worktree beside it, and another repository."""
    for name in ("main", "other"):
        (outside / name).mkdir()
        git(outside / name, "init", "-q")
        git(outside / name, "commit", "-q", "--allow-empty", "-m", "first")
    git(outside / "main", "worktree", "add", "-q", str(outside / "tree"))
    return outside


READS = ("cat {0}/a", "ls -la {0}", "git -C {0} status", "cd {0} && git log", "./x {0}/src")


@pytest.mark.parametrize("line", READS)
@pytest.mark.parametrize("mode", ["default", "auto"])
def test_other_checkouts_of_the_repository_are_read_without_a_question(
    checkouts: Path, line: str, mode: str
) -> None:
    bounds = replace(BOUNDS, free=True, covered=(str(checkouts),))
    for root, other in (("main", "tree"), ("tree", "main")):
        run = Shell()
        text = line.format(checkouts / other)
        one = asking(checkouts / root, run, text, mode=mode, bounds=bounds)
        play(one)
        assert (questions(one), len(run.support)) == ([], 1)
        (cage,) = run.support
        assert cage is not None
        assert str(checkouts / other) in cage.shown
        assert str(checkouts / other) not in (*cage.writable, *cage.folders)


@pytest.mark.parametrize("line", [*READS, "echo > {0}/a", "rm {0}/a"])
@pytest.mark.parametrize("mode", ["default", "auto"])
def test_other_repositories_are_asked_about(checkouts: Path, line: str, mode: str) -> None:
    bounds = replace(BOUNDS, free=True, covered=(str(checkouts),))
    text = line.format(checkouts / "other")
    one = asking(checkouts / "main", Shell(), text, mode=mode, bounds=bounds)
    play(one)
    assert len(questions(one)) == 1


@pytest.mark.parametrize("line", ["echo > {0}/a", "rm {0}/a", "mv a {0}/a", "touch {0}/a"])
def test_other_checkouts_are_not_written_without_a_question(checkouts: Path, line: str) -> None:
    bounds = replace(BOUNDS, free=True, covered=(str(checkouts),))
    text = line.format(checkouts / "tree")
    one = asking(checkouts / "main", Shell(), text, mode="auto", bounds=bounds)
    play(one)
    assert len(questions(one)) == 1


def test_rules_that_deny_files_and_settings_that_block_reads_hold_for_other_checkouts(
    checkouts: Path,
) -> None:
    bounds = replace(BOUNDS, free=True, covered=(str(checkouts),))
    line, more = f"cat {checkouts}/tree/a", {"mode": "auto", "bounds": bounds}
    denying = asking(
        checkouts / "main",
        Shell(),
        line,
        rules=(parse_permission_rule("Read(.env)", "deny"),),
        **more,
    )
    play(denying)
    assert len(questions(denying)) == 1
    run = Shell()
    blocking = asking(checkouts / "main", run, line, **more)
    blocking.permissions.guard = replace(blocking.permissions.guard, blocked=("read",))
    play(blocking)
    assert (run.support, [fact.verdict for fact in facts(blocking, Decided)]) == ([], ["deny"])


def test_an_answer_of_always_opens_the_repository_that_was_read(checkouts: Path) -> None:
    """From then on commands that are not known see it too; nothing in it can be written."""
    other = checkouts / "other"
    bounds = replace(BOUNDS, free=True, covered=(str(checkouts),))
    run, lines = (
        Shell(),
        (f"cat {other}/a/b", f"ls {other}", f"./x {other}/c", f"cat {checkouts}/d"),
    )
    person = RecordingPerson(PersonAnswer(allow=True, always=True))
    one = asking(checkouts / "main", run, *lines, bounds=bounds, person=person)
    play(one)
    first, last = questions(one)
    assert first.always == (f"Read(/{other}/**)",)
    assert f"{checkouts}/d" in last.because
    cage = run.support[2]
    assert cage is not None
    assert f"{other}/c" in cage.shown
    assert cage.writable == ()


@pytest.mark.parametrize("path", ["~/a", "/var", "~/.ssh/id", "~"])
def test_no_rule_is_offered_that_would_open_the_home_or_secrets(tmp_path: Path, path: str) -> None:
    bounds = replace(BOUNDS, free=True, hidden=(f"{home_folder()}/.ssh",))
    one = asking(tmp_path, Shell(), f"cat {path}", bounds=bounds)
    play(one)
    (question,) = questions(one)
    assert question.always == ()


def test_a_folder_that_the_sandbox_hides_is_asked_about_before_a_command_runs_there(
    outside: Path,
) -> None:
    (outside / "work").mkdir()
    (outside / "other").mkdir()
    bounds = replace(BOUNDS, free=True, covered=(str(outside),))
    one = asking(outside / "work", Shell(), "make", bounds=bounds)
    one.session.append(Changed("cwd", str(outside / "other")))
    play(one)
    (question,) = questions(one)
    assert question.because == f"reads outside the workspace: {outside}/other"


def test_destroying_what_no_rewind_restores_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "node_modules").mkdir()
    with open(tmp_path / "node_modules" / "large", "wb") as file:
        file.truncate(300 << 20)
    (tmp_path / "build").mkdir()
    more: dict[str, Any] = {"keeper": Snapshots(tmp_path / "node_modules"), "mode": "auto"}
    one = asking(tmp_path, Shell(), "rm -rf node_modules", "rm -rf build", **more)
    play(one)
    (question,) = questions(one)
    lost = f"destroys what a rewind cannot restore: {tmp_path}/node_modules"
    assert question.because == lost


def test_without_snapshots_destroying_is_asked_about_and_building_is_not(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    run = Shell()
    one = asking(tmp_path, run, "rm a", "make", mode="auto", keeper=None)
    play(one)
    assert (len(questions(one)), run.profiles) == (1, ["work"])


def told(one: Agent) -> str:
    (result,) = facts(one, Result)
    return extract_text(result.content)


@pytest.mark.parametrize("line", ["./check", "make", "npm test", "python3 x.py"])
def test_plan_mode_runs_what_is_not_proven_read_only_and_asks_nothing(
    tmp_path: Path, line: str
) -> None:
    run = Shell()
    one = asking(tmp_path, run, line, mode="plan")
    play(one)
    (cage,) = run.support
    assert cage is not None
    assert (cage.profile, cage.network, questions(one)) == ("look", "off", [])
    assert "Plan mode: it ran read-only" in told(one)


def test_what_plan_mode_keeps_from_writing_is_told_and_not_asked_about(tmp_path: Path) -> None:
    run = Shell(fails=("look",))
    one = asking(tmp_path, run, "make", mode="plan")
    play(one)
    assert (run.profiles, questions(one)) == (["look"], [])
    assert told(one).startswith("Read-only file system\n[Plan mode: it ran read-only")


@pytest.mark.parametrize("line", ["curl https://x.org", "gh pr view 1"])
def test_in_plan_mode_the_network_is_asked_about_and_nothing_can_be_changed(
    tmp_path: Path, line: str
) -> None:
    run = Shell()
    one = asking(tmp_path, run, line, mode="plan", person=RecordingPerson(YES))
    play(one)
    (cage,) = run.support
    assert cage is not None
    assert (len(questions(one)), cage.profile, cage.network) == (1, "look", "on")


def test_in_plan_mode_a_rule_lets_a_command_run_only_read_only(tmp_path: Path) -> None:
    allowed, run = (parse_permission_rule("Bash(make:*)", "allow"),), Shell()
    one = asking(tmp_path, run, "make", mode="plan", rules=allowed)
    play(one)
    assert (run.profiles, questions(one)) == (["look"], [])
    one = asking(tmp_path, Shell(), "make", mode="plan", rules=allowed, bounds=None)
    play(one)
    assert len(questions(one)) == 1


def test_plan_mode_says_why_it_refuses_what_changes_something(tmp_path: Path) -> None:
    one = asking(tmp_path, Shell(), "touch a", mode="plan")
    play(one)
    assert (questions(one), PLAN_MODE_REASON in told(one)) == ([], True)


def test_a_change_of_permissions_that_comes_with_an_answer_takes_the_offer(tmp_path: Path) -> None:
    taken, kept = Raw(msgspec.json.encode(ALLOW_SANDBOXED_UPDATE)), list[PermissionUpdate]()
    answer = PersonAnswer(allow=True, updates=(taken,))
    more: dict[str, Any] = {"person": RecordingPerson(answer), "remember": kept.append}
    run = Shell()
    one = asking(tmp_path, run, "make", "./x > out", **more)
    play(one)
    assert (len(questions(one)), run.profiles, kept) == (
        1,
        ["work", "work"],
        [ALLOW_SANDBOXED_UPDATE],
    )


def test_such_a_change_is_ignored_where_it_is_not_offered(tmp_path: Path) -> None:
    taken, kept = Raw(msgspec.json.encode(ALLOW_SANDBOXED_UPDATE)), list[PermissionUpdate]()
    answer = PersonAnswer(allow=True, updates=(taken,))
    more: dict[str, Any] = {"person": RecordingPerson(answer), "remember": kept.append}
    one = asking(tmp_path, Shell(), "make", bounds=replace(BOUNDS, backend="partial"), **more)
    play(one)
    assert one.permissions.sandbox is not None
    assert (one.permissions.sandbox.free, kept) == (False, [])


def test_a_program_in_the_persons_place_is_offered_the_sandbox() -> None:
    bodies: list[Any] = []

    async def ask(body: Any) -> Raw:
        bodies.append(body)
        return Raw(b'{"behavior": "deny", "message": "no"}')

    offering = PermissionQuestion("c", "Bash", "{}", "make", "asks", offers_sandbox=True)
    anyio.run(HostUser(ask).decide, offering)
    anyio.run(HostUser(ask).decide, replace(offering, offers_sandbox=False))
    wanted = {"type": "setMode", "mode": "sandboxed", "destination": "localSettings"}
    assert [body["permission_suggestions"] for body in bodies] == [(wanted,), ()]


CHECKED = (
    *("make x", "python3 -c \"open('AGENTS.md','w')\"", "find . $(echo -delete)", "sh x.sh"),
    *("git checkout x && make", "git rebase --exec ./x main", "git apply p", "git clean -fdx"),
    *("git -c core.pager=x merge x", "git merge --strategy=x y", "git checkout $x", "npm test"),
)
NOT_CHECKED = (
    *("git checkout x", "git switch -c x && git status -s", "git merge --no-ff topic", "mkdir a"),
    *("git stash -u", "git stash pop", "git rebase main", "git cherry-pick -x abc", "touch a"),
    *("git revert --no-edit HEAD", "git reset --hard HEAD~1", "git worktree add ../x main"),
    *('git add -A && git commit -qm "$(date)"', "git clone a b", "git restore --source=x a"),
)


def checks(one: Agent, run: Shell) -> list[bool]:
    play(one)
    return [cage is not None and cage.unasked is not None for cage in run.support]


@pytest.mark.parametrize("mode", ["default", "accept-edits", "auto"])
@pytest.mark.parametrize("line", CHECKED)
def test_protected_files_are_checked_after_code_that_nobody_was_asked_about(
    tmp_path: Path, line: str, mode: str
) -> None:
    run = Shell()
    one = asking(tmp_path, run, line, mode=mode, bounds=replace(BOUNDS, free=True))
    assert (checks(one, run), questions(one)) == ([True], [])


@pytest.mark.parametrize("line", NOT_CHECKED)
def test_steps_of_git_that_move_between_commits_need_no_check(tmp_path: Path, line: str) -> None:
    run = Shell()
    one = asking(tmp_path, run, line, mode="auto", person=RecordingPerson(YES))
    assert checks(one, run) == [False]


def test_a_rule_about_a_command_checks_too_and_names_what_it_may_write(tmp_path: Path) -> None:
    run, line = Shell(), "./generate AGENTS.md"
    rules = (
        parse_permission_rule("Bash(make:*)", "allow"),
        parse_permission_rule("Bash(./generate AGENTS.md)", "allow"),
        parse_permission_rule("Edit(docs/CLAUDE.md)", "allow"),
        parse_permission_rule("Edit(src/**)", "allow"),
    )
    one = asking(tmp_path, run, "make x", line, rules=rules)
    assert checks(one, run) == [True, True]
    first, second = (cage.unasked for cage in run.support if cage and cage.unasked)
    assert (first.names, second.names) == ((), ("agents.md",))
    assert [what for what, _, _ in first.patterns] == ["docs/CLAUDE.md"]


@pytest.mark.parametrize("mode", ["default", "bypass"])
def test_what_a_person_agreed_to_and_mode_bypass_are_not_checked(tmp_path: Path, mode: str) -> None:
    run = Shell()
    one = asking(tmp_path, run, "make x", mode=mode, person=RecordingPerson(YES))
    assert checks(one, run) == [False]
