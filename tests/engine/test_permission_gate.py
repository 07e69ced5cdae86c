"""The gate before a call: what is tried first, what is asked, and what an answer holds for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.engine.fakes import RecordingPerson, agent, facts, play, small
from travois.core.content import Text, extract_text
from travois.core.facts import Asked, Decided, Result
from travois.engine.agent import Agent
from travois.engine.tool_calls import RAN_READ_ONLY
from travois.permissions.decide import Permissions
from travois.permissions.rules import PermissionRule, parse_permission_rule
from travois.permissions.sandbox_profile import SandboxProfile
from travois.permissions.updates import PermissionUpdate, suggest_updates
from travois.ports.tool import AnyTool, ToolOutcome, text_outcome
from travois.ports.world import Env, PersonAnswer
from travois.sandbox.policy import SandboxPolicy
from travois.testing import calls, say

BOUNDS = SandboxPolicy(temp="/private")
YES = PersonAnswer(allow=True, reason="fine")
TRIED = "its effects are unknown, so it runs read-only and without network first"


class Shell:
    """Runs nothing; fails where `fails` says so, and remembers the walls of each run."""

    def __init__(
        self, *, fails: tuple[str, ...] = (), saying: str = "Read-only file system"
    ) -> None:
        self.support: list[SandboxProfile | None] = []
        self._saying = saying
        self._fails = fails

    async def run(self, args: Any, env: Env, call: str) -> ToolOutcome:
        self.support.append(env.sandbox)
        profile = env.sandbox.profile if env.sandbox else "bare"
        if profile in self._fails:
            return ToolOutcome((Text(self._saying),), error=True)
        return text_outcome(f"ran: {profile}")

    @property
    def profiles(self) -> list[str]:
        return [cage.profile if cage else "bare" for cage in self.support]


def shell(run: Shell) -> AnyTool:
    return small("Bash", run.run, kind="exec")


def asking(folder: Path, line: str, run: Shell, **more: Any) -> Agent:
    guard = Permissions(more.pop("mode", "default"), folders=(str(folder.resolve()),))
    given = {"tools": (shell(run),), "guard": guard, "bounds": BOUNDS} | more
    return agent(folder, calls(("Bash", {"path": line})), say("done"), **given)


def told(one: Agent) -> str:
    (result,) = facts(one, Result)
    return extract_text(result.content)


def test_an_unproven_command_runs_read_only_without_a_question(tmp_path: Path) -> None:
    run, person = Shell(), RecordingPerson()
    one = asking(tmp_path, "./check", run, person=person)
    play(one)
    assert (run.profiles, person.asked) == (["look"], [])
    assert told(one) == f"ran: look\n[{RAN_READ_ONLY}]"
    (decided,) = facts(one, Decided)
    assert (decided.verdict, decided.because, decided.by) == ("allow", TRIED, "sandbox")


def test_if_that_fails_the_person_is_asked_with_the_reason(tmp_path: Path) -> None:
    run, person = Shell(fails=("look",)), RecordingPerson(YES)
    one = asking(tmp_path, "./check", run, person=person)
    play(one)
    assert (run.profiles, told(one)) == (["look", "work"], "ran: work")
    (question,) = person.asked
    assert question.because == "failed read-only and without network: Read-only file system"
    assert [d.by for d in facts(one, Decided)] == ["sandbox", "person"]


def test_what_fails_for_another_reason_is_not_asked_about(tmp_path: Path) -> None:
    run, person = Shell(fails=("look",), saying="no such file"), RecordingPerson()
    one = asking(tmp_path, "./check", run, person=person)
    play(one)
    assert (run.profiles, person.asked) == (["look"], [])
    hint = "If it failed because of that, call again with sandbox: write."
    assert told(one) == f"no such file\n[{RAN_READ_ONLY} {hint}]"


def test_if_they_say_no_the_model_has_what_was_seen(tmp_path: Path) -> None:
    run = Shell(fails=("look",))
    one = asking(tmp_path, "./check", run)
    play(one)
    assert run.profiles == ["look"]
    assert (
        told(one)
        == f"Read-only file system\n[{RAN_READ_ONLY} More was not permitted: nobody is here]"
    )


@pytest.mark.parametrize("line", ["./x > out", "cat /etc/passwd && ./x", "npm install"])
def test_what_is_known_to_need_more_is_asked_about_at_once(tmp_path: Path, line: str) -> None:
    run, person = Shell(), RecordingPerson(YES)
    play(asking(tmp_path, line, run, person=person))
    assert (run.profiles, len(person.asked)) == (["work"], 1)


@pytest.mark.parametrize(
    ("line", "profiles", "questions"),
    [
        ("./check", ["work"], 0),
        ("./x > out", ["work"], 0),
        ("npm test", ["work"], 0),
        ("npm install", [], 1),
        ("rm -rf /", [], 1),
    ],
)
def test_in_mode_auto_what_walls_hold_runs_unasked_and_what_they_do_not_asks(
    tmp_path: Path, line: str, profiles: list[str], questions: int
) -> None:
    run, person = Shell(), RecordingPerson()
    play(asking(tmp_path, line, run, person=person, mode="auto"))
    assert (run.profiles, len(person.asked)) == (profiles, questions)
    (tmp_path / "walled").mkdir()
    walled, person = Shell(), RecordingPerson()
    play(
        asking(tmp_path / "walled", line, walled, person=person, bounds=replace(BOUNDS, free=True))
    )
    assert (walled.profiles, len(person.asked)) == (profiles, questions)


def test_without_a_sandbox_it_is_asked_about(tmp_path: Path) -> None:
    run, person = Shell(), RecordingPerson(YES)
    play(asking(tmp_path, "./check", run, person=person, bounds=None))
    assert (run.profiles, len(person.asked)) == (["bare"], 1)


def test_what_only_looks_runs_where_it_can_only_look(tmp_path: Path) -> None:
    run = Shell()
    one = asking(tmp_path, "ls", run)
    play(one)
    assert (run.profiles, told(one)) == (["look"], "ran: look")


def test_unattended_and_unwalled_nothing_unproven_runs(tmp_path: Path) -> None:
    run = Shell()
    more = {"mode": "bypass", "bounds": None, "unwalled": "there is no sandbox"}
    one = asking(tmp_path, "./check", run, **more)
    play(one)
    assert run.profiles == []
    assert told(one) == "Permission denied: there is no sandbox. Nothing was run."
    looking = asking(tmp_path, "ls", run, **more)
    play(looking)
    assert run.profiles == ["bare"]


def test_always_leaves_a_rule_that_answers_the_next_time(tmp_path: Path) -> None:
    run, kept = Shell(), list[PermissionUpdate]()
    person = RecordingPerson(PersonAnswer(allow=True, always=True))
    line = {"path": "./deploy --now"}
    one = agent(
        tmp_path,
        calls(("Bash", line)),
        calls(("Bash", line)),
        say("done"),
        tools=(shell(run),),
        guard=Permissions(folders=(str(tmp_path.resolve()),)),
        person=person,
        bounds=SandboxPolicy(temp="/private", look_first=False),
        remember=kept.append,
    )
    play(one)
    assert (len(person.asked), len(run.support)) == (1, 2)
    assert kept == list(suggest_updates((parse_permission_rule("Bash(./deploy --now)", "allow"),)))
    assert one.permissions.guard.rules == (
        PermissionRule("Bash", "./deploy --now", "allow", "your answer"),
    )


def test_an_answer_to_another_question_is_no_answer(tmp_path: Path) -> None:
    run = Shell()
    person = RecordingPerson(PersonAnswer(allow=True, digest="another"))
    one = asking(tmp_path, "./x > y", run, person=person)
    play(one)
    assert run.profiles == []
    (decided,) = facts(one, Decided)
    assert (decided.verdict, decided.because) == ("deny", "the answer was for another question")


def test_the_digest_names_the_tool_its_arguments_and_the_place(tmp_path: Path) -> None:
    def digest(line: str, **state: str) -> str:
        person = RecordingPerson()
        one = asking(tmp_path, line, Shell(), person=person, bounds=None)
        one.session.state |= state
        play(one)
        (fact,) = facts(one, Asked)
        assert fact.digest == person.asked[0].digest
        return fact.digest

    first = digest("./x")
    assert first == digest("./x")
    assert len({first, digest("./y"), digest("./x", cwd="/elsewhere")}) == 3
