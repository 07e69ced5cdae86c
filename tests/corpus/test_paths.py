"""The paths of the security corpus on a real disk, through the real tools and the real gate."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.corpus.test_security import CORPORA, build, rows
from tests.engine.fakes import RecordingPerson, agent, begun, facts, play
from travois.compose.explain import RuleTexts, find_mode
from travois.compose.options import Options
from travois.compose.session import compose_session
from travois.core.content import extract_text
from travois.core.errors import UserError
from travois.core.facts import Decided, Result
from travois.engine.agent import Agent
from travois.permissions.decide import Permissions
from travois.ports.world import PermissionQuestion, PersonAnswer
from travois.sessions.home import TravoisHome, identify_project
from travois.testing import Scripted, call, say
from travois.tools.catalog import TOOLS

pytestmark = pytest.mark.skipif(
    not CORPORA.is_dir(), reason="the security corpora are not beside this repository"
)
ROWS = rows("paths.jsonl")
OPENED = [row for row in ROWS if row["op"] in ("read", "write", "list")]
ELSEWHERE = {
    "path-0262": "there are no MCP servers yet",
    "path-0263": "there is no memory yet",
    "path-0268": "no tool makes worktrees",
    "path-0290": "there are no MCP servers yet",
    "path-0293": "the sandbox pins the parents of protected paths: tests/sandbox/test_escapes.py",
} | {row["id"]: "nothing is installed from archives" for row in ROWS if row["op"] == "extract"}


class Ground:
    """The folders that a case speaks of."""

    def __init__(self, tmp_path: Path, row: dict[str, Any]) -> None:
        self.top = tmp_path
        self.row = row
        self.places = {name: str(tmp_path / name) for name in ("ws", "wslink", "out", "home")}
        self.places["hh"] = str(tmp_path / "home" / ".local" / "state" / "travois")
        for name in ("ws", "out", "home"):
            os.makedirs(self.places[name])
        for step in row["setup"]:
            target, text = self.at(step.get("target", "")), step.get("text", "")
            build(step["op"], self.at(step["path"]), target, text)

    def at(self, text: str) -> str:
        for name, path in self.places.items():
            text = text.replace(f"${{{name.upper()}}}", path)
        text = text.replace(".HARNESS", ".TRAVOIS").replace(".harneſſ", ".travoiſ")
        return text.replace("${WSNAME}", "ws").replace(".harness", ".travois")

    def agent(self, person: RecordingPerson, *lines: Any) -> Agent:
        rules = RuleTexts(
            **{name: tuple(texts) for name, texts in self.row.get("rules", {}).items()}
        )
        mode = find_mode(self.row.get("mode") or "default")
        guard = Permissions(mode, rules.parse(), (self.places["ws"],), own=(self.places["hh"],))
        folder, tools = Path(self.places["ws"]), TOOLS
        return agent(folder, *lines, tools=tools, session=begun(), guard=guard, person=person)

    def wanted(self) -> Any:
        path = self.at(self.row["path"])
        match self.row["op"]:
            case "read":
                return call("Read", file_path=path)
            case "write":
                return call("Write", file_path=path, content="theirs\n")
            case _:
                return call("Glob", pattern="*", path=path)

    def seen(self) -> dict[str, Any]:
        """Everything on this piece of disk."""
        found: dict[str, Any] = {}
        for folder, folders, names in os.walk(self.top):
            for name in (*folders, *names):
                path = os.path.join(folder, name)
                mode = os.lstat(path).st_mode
                read = Path(path).read_bytes if stat.S_ISREG(mode) else lambda: b""
                found[path] = (mode, read())
        return found


def told(of: Agent) -> Result:
    return facts(of, Result)[-1]


@pytest.mark.parametrize("row", OPENED, ids=lambda row: row["id"])
def test_a_path_is_opened_only_where_it_may_be(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = Ground(tmp_path, row)
    monkeypatch.setenv("HOME", ground.places["home"])
    person = RecordingPerson(PersonAnswer(allow=row["expect"] == "error"))
    ours = ground.agent(person, ground.wanted(), say("done"))
    before = ground.seen()
    play(ours)
    decided, result = facts(ours, Decided)[-1], told(ours)
    match row["expect"]:
        case "allow":
            assert (decided.verdict, person.asked, result.error) == ("allow", [], False)
            assert row["op"] != "write" or ground.seen() != before
            assert row["op"] != "read" or "x" in extract_text(result.content)
        case "error":
            assert result.error
            assert ground.seen() == before
        case expected:
            assert decided.verdict == "deny"
            assert result.error
            assert expected == "ask" or person.asked == []
            assert ground.seen() == before


class Meddler(RecordingPerson):
    """Someone who says yes, after another program has changed the disk."""

    def __init__(self, change: Callable[[], object]) -> None:
        super().__init__(PersonAnswer(allow=True))
        self._change = change

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        self._change()
        return await super().decide(question)


def race(tmp_path: Path, id: str) -> Ground:
    return Ground(tmp_path, next(row for row in ROWS if row["id"] == id))


def test_a_link_that_appears_where_a_file_was_to_be_made_is_not_followed(tmp_path: Path) -> None:
    ground = race(tmp_path, "path-0287")
    new, aim = Path(ground.places["ws"], "new.txt"), Path(ground.places["out"], "aim.txt")
    person = Meddler(partial(new.symlink_to, aim))
    ours = ground.agent(person, call("Write", file_path="new.txt", content="x"), say("done"))
    play(ours)
    assert told(ours).error
    assert "the path changed" in extract_text(told(ours).content)
    assert (len(person.asked), new.is_symlink(), aim.exists()) == (1, True, False)


def test_a_file_that_changes_while_the_person_decides_is_not_overwritten(tmp_path: Path) -> None:
    ground = race(tmp_path, "path-0288")
    path = Path(ground.places["ws"], "a.txt")
    path.write_text("one\n")
    person = Meddler(partial(path.write_text, "theirs\n"))
    read, write = call("Read", file_path="a.txt"), call("Write", file_path="a.txt", content="two\n")
    ours = ground.agent(person, read, write, say("done"))
    play(ours)
    assert told(ours).error
    assert "has changed since you read it" in extract_text(told(ours).content)
    assert (len(person.asked), path.read_text()) == (1, "theirs\n")


def test_a_script_that_was_allowed_once_is_asked_about_again(tmp_path: Path) -> None:
    ground = race(tmp_path, "path-0289")
    script = Path(ground.places["ws"], "script.sh")
    script.write_text("#!/bin/sh\necho harmless\n")
    script.chmod(0o755)
    person = RecordingPerson(PersonAnswer(allow=True), PersonAnswer(allow=False))
    run = call("Bash", command="./script.sh")
    ours = ground.agent(person, run, run, say("done"))
    play(ours)
    assert [result.error for result in facts(ours, Result)] == [False, True]
    assert [question.always for question in person.asked] == [(), ()]


@pytest.mark.parametrize("id", ["path-0256", "path-0257", "path-0259"])
def test_what_names_no_session_opens_none(
    id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = race(tmp_path, id)
    monkeypatch.setenv("TRAVOIS_HOME", ground.places["hh"])
    folder, name = ground.places["ws"], ground.row["path"]

    async def main() -> None:
        for options in (
            Options(cwd=folder, resume=name),
            Options(cwd=folder, session_id=name),
            Options(cwd=folder, resume=name, fork=True),
        ):
            with pytest.raises(UserError):
                await compose_session(options, model=Scripted(say("hello")))

    anyio.run(main)
    assert list(Path(ground.places["hh"], "sessions").iterdir()) == []


def test_no_two_projects_share_a_place(tmp_path: Path) -> None:
    home = TravoisHome(tmp_path / "home")
    names = [row["path"] for row in ROWS if row.get("field", "").startswith("project dir")]
    folders = [tmp_path / name.lstrip("/") for name in names]
    for folder in folders:
        folder.mkdir(parents=True)
    keys = {identify_project(home, str(folder)).key for folder in folders}
    assert len(keys) == len(names) == 3
    assert all("/" not in key and key not in (".", "..") for key in keys)


def test_every_case_is_tried_or_said_to_be_tried_elsewhere() -> None:
    ids = {row["id"] for row in OPENED}
    ids |= {"path-0287", "path-0288", "path-0289", "path-0256", "path-0257", "path-0259"}
    ids |= {row["id"] for row in ROWS if row.get("field", "").startswith("project dir")}
    assert ids.isdisjoint(ELSEWHERE)
    assert ids | set(ELSEWHERE) == {row["id"] for row in ROWS}
