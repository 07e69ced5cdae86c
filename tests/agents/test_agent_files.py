"""Agent files on a real disk: which count, what of them holds, and what is told of the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from travois.agents.agent_files import (
    limit_permission_mode,
    list_agent_hook_requests,
    load_agent_types,
)
from travois.agents.types import (
    BACKGROUND_JOB_TOOLS,
    MAIN_AGENT_TOOLS,
    AgentType,
    select_agent_tools,
)
from travois.core.errors import UserError
from travois.permissions.decide import PERMISSION_MODES, PermissionMode
from travois.sessions.home import TravoisHome
from travois.settings.trust import MODES_BY_STRICTNESS, digest_request
from travois.tools.catalog import TOOLS

OURS = ("explore", "general", "plan")


class Disk:
    """A machine with a user, a project and a folder in it."""

    def __init__(self, top: Path) -> None:
        self.top = top.resolve()
        (self.top / "code" / "web").mkdir(parents=True)

    def put(self, name: str, text: str) -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def agent(self, name: str, *, called: str = "tester", lines: str = "") -> Path:
        return self.put(name, f"---\nname: {called}\ndescription: It is {name}.\n{lines}---\nTest.")

    def kinds(
        self, *, given: str = "", trusted: bool = True, agreed: frozenset[str] = frozenset()
    ) -> tuple[tuple[AgentType, ...], tuple[str, ...]]:
        return load_agent_types(
            TravoisHome(self.top / "state"),
            str(self.top / "code"),
            str(self.top / "code" / "web"),
            trusted=trusted,
            given=given,
            agreed=agreed,
            environ={"HOME": str(self.top / "me")},
            etc=self.top / "etc",
        )

    def one(self, *, trusted: bool = True) -> AgentType:
        found, notices = self.kinds(trusted=trusted)
        assert notices == ()
        (kind,) = (kind for kind in found if kind.origin != "built-in")
        return kind

    def notices(self, *, trusted: bool = True) -> list[str]:
        found, notices = self.kinds(trusted=trusted)
        assert tuple(kind.name for kind in found) == OURS
        return [notice.removeprefix(f"{self.top}/") for notice in notices]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_a_file_says_everything_about_its_kind(disk: Disk) -> None:
    lines = (
        "tools: Read, Task(a, b), mcp__db__*\ndisallowedTools: [Bash]\nmodel: haiku\n"
        "permissionMode: acceptEdits\nmaxTurns: 7\nbackground: on\nisolation: worktree\n"
        "memory: project\nomitClaudeMd: 1\ncolor: red\neffort: high\nskills: [tidy, kit:plan]\n"
        "initialPrompt: Begin.\nmcpServers: [db]\nhooks:\n  Stop:\n    - hooks:\n"
        "        - {type: command, command: ./done.sh, timeout: 5}\n"
    )
    path = disk.agent("me/.claude/agents/deep/er/x.md", called="My-Tester", lines=lines)
    assert disk.one() == AgentType(
        name="My-Tester",
        description="It is me/.claude/agents/deep/er/x.md.",
        prompt="Test.",
        tools=("Read", "Agent", "mcp__db__*"),
        denied=("Bash",),
        model="haiku",
        effort="high",
        skills=("tidy", "kit:plan"),
        spawns=("a", "b"),
        hooks={"Stop": [{"hooks": [{"type": "command", "command": "./done.sh", "timeout": 5}]}]},
        greeting="Begin.",
        mode="accept-edits",
        max_turns=7,
        background=True,
        worktree=True,
        memory="project",
        instructions=False,
        origin=str(path),
    )


def test_what_is_left_out_is_as_the_parent_has_it(disk: Disk) -> None:
    path = disk.agent("state/agents/x.md", lines='model: inherit\ntools: "*"\n')
    assert disk.one() == AgentType("tester", "It is state/agents/x.md.", "Test.", origin=str(path))


def test_of_several_with_one_name_the_strongest_counts(disk: Disk) -> None:
    order = [
        "etc/travois/agents/a.md",
        "etc/claude-code/.claude/agents/a.md",
        "--agents tester",
        "code/web/.travois/agents/a.md",
        "code/web/.claude/agents/a.md",
        "code/web/.agents/agents/a.md",
        "code/.travois/agents/a.md",
        "code/.claude/agents/a.md",
        "code/.agents/agents/a.md",
        "state/agents/a.md",
        "me/.claude/agents/a.md",
        "me/.agents/agents/a.md",
    ]
    flag = json.dumps({"tester": {"description": "d", "prompt": "p"}})
    for number in reversed(range(len(order))):
        if not order[number].startswith("--"):
            disk.agent(order[number], called="Tester" if number % 2 else "tester")
        found, notices = disk.kinds(given=flag if number <= 2 else "")
        mine = [kind.origin for kind in found if kind.origin != "built-in"]
        assert [origin.removeprefix(f"{disk.top}/") for origin in mine] == [order[number]]
        assert notices == ()


def test_a_file_may_take_the_place_of_ours(disk: Disk) -> None:
    disk.agent("code/.claude/agents/x.md", called="Explore")
    assert disk.one().name == "Explore"
    assert len(disk.kinds()[0]) == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Just words.", "1: the front matter is missing; put it between two lines with ---"),
        ("---\nname: a\n", "1: the front matter is not closed; add a line with --- below it"),
        ("---\nname: a\nwords\n---\n", "3: this line is not `key: value`; indent it or fix it"),
        ("---\ndescription: d\n---\nx", "1: name is missing; add a line `name: …`"),
        ("---\nname: a\n---\nx", "1: description is missing; add a line `description: …`"),
        (
            "---\nname: a\ndescription: d\n---\n",
            "1: the agent has no instructions; write them below the front matter",
        ),
        (
            f"---\nname: a\ndescription: d\n---\n{'x' * 100_001}",
            "1: the instructions have 100,001 characters; the limit is 100,000",
        ),
        (
            "---\ndescription: d\nname: -a\n---\nx",
            "3: '-a' is not a valid name; use letters, digits, spaces, -_.",
        ),
        (
            "---\nname: p:a\ndescription: d\n---\nx",
            "2: 'p:a' is not a valid name; use letters, digits, spaces, -_.",
        ),
        (
            "---\nname: ../a\ndescription: d\n---\nx",
            "2: '../a' is not a valid name; use letters, digits, spaces, -_.",
        ),
        (
            "---\nname: Fork\ndescription: d\n---\nx",
            "2: fork is a reserved name; choose another one",
        ),
        (
            "---\nname: a\ndescription: d\npermissionMode: plna\n---\nx",
            "4: permissionMode cannot be 'plna'; "
            "use one of default, plan, accept-edits, auto, dont-ask, bypass",
        ),
        (
            "---\nname: a\ndescription: d\nmaxTurns: 0\n---\nx",
            "4: maxTurns cannot be '0'; use a whole number, 1 or more",
        ),
        (
            "---\nname: a\ndescription: d\nbackground: maybe\n---\nx",
            "4: background cannot be 'maybe'; use true or false",
        ),
        (
            "---\nname: a\ndescription: d\nmemory: all\n---\nx",
            "4: memory cannot be 'all'; use one of user, project, local",
        ),
        (
            "---\nname: a\ndescription: d\nisolation: vm\n---\nx",
            "4: isolation cannot be 'vm'; use one of worktree",
        ),
    ],
)
def test_a_flawed_file_is_told_with_its_line_and_left_out(disk: Disk, text: str, told: str) -> None:
    disk.put("code/.claude/agents/a.md", text)
    assert disk.notices() == [f"code/.claude/agents/a.md:{told}"]


def test_what_of_a_file_does_not_count_is_told(disk: Disk) -> None:
    lines = "tool: Read\nobserver: x\neffort: 9\nwhatever: 1\n"
    lines += "tools: Read, Bash(git *), Nope\ndisallowedTools: Edit(/x)\n"
    disk.agent("code/.claude/agents/a.md", lines=lines)
    found, notices = disk.kinds()
    (mine,) = (kind for kind in found if kind.name == "tester")
    assert (mine.tools, mine.denied) == (("Read", "Nope"), ("Edit",))
    assert [notice.partition("a.md:")[2] for notice in notices] == [
        "6: effort cannot be '9'; use one of low, medium, high, xhigh, max",
        "4: tool is not a key of agent files; did you mean tools?",
        "5: observer is not supported here and is ignored",
        "7: whatever is not a key of agent files",
        "8: unknown tool Nope; ignored",
        "8: Bash(git *): a tool cannot be given in part; it is left out",
        "9: Edit(/x): a tool cannot be given in part; it is denied entirely",
    ]


def test_two_files_of_a_folder_with_one_name_are_told(disk: Disk) -> None:
    first = disk.agent("state/agents/a.md")
    second = disk.agent("state/agents/b.md")
    found, notices = disk.kinds()
    assert [kind.origin for kind in found if kind.name == "tester"] == [str(first)]
    assert notices == (f"{second}:2: {first} uses the same name; rename one",)


def test_a_folder_without_trust_chooses_no_model_and_no_memory(disk: Disk) -> None:
    disk.agent("code/.claude/agents/a.md", lines="model: opus\nmemory: user\nbackground: yes\n")
    found, notices = disk.kinds(trusted=False)
    (mine,) = (kind for kind in found if kind.name == "tester")
    assert (mine.model, mine.memory, mine.background) == ("", "", True)
    assert [notice.partition("a.md:")[2] for notice in notices] == [
        "4: model is ignored: it needs a folder trusted with `travois trust`",
        "5: memory is ignored: it needs a folder trusted with `travois trust`",
    ]
    assert disk.one().model == "opus"
    disk.agent("code/.claude/agents/a.md", lines="model: inherit\n")
    assert disk.kinds(trusted=False)[1] == ()


def test_the_hooks_of_a_projects_file_count_once_the_user_agreed_to_exactly_these(
    disk: Disk,
) -> None:
    lines = "hooks:\n  Stop:\n    - hooks: [{type: command, command: ./done.sh}]\n"
    disk.agent("code/.claude/agents/a.md", lines=lines)
    root, script = str(disk.top / "code"), disk.top / "code/done.sh"
    (wish,) = list_agent_hook_requests(root, root)
    text = '{"Stop":[{"hooks":[{"type":"command","command":"./done.sh"}]}]}'
    assert wish == f"hooks: .claude/agents/a.md listens with {text}"

    def hooks(*agreed: str) -> dict[str, object]:
        found, _ = disk.kinds(agreed=frozenset(map(digest_request, agreed)))
        return next(kind.hooks for kind in found if kind.name == "tester")

    assert (hooks(), list(hooks(wish))) == ({}, ["Stop"])
    script.write_text("exit 0")
    assert hooks(wish) == {}
    assert list(hooks(*list_agent_hook_requests(root, root))) == ["Stop"]


def test_the_users_own_files_need_no_trust_even_where_the_project_is_their_home(
    disk: Disk,
) -> None:
    disk.agent("me/.claude/agents/a.md", lines="model: opus\n")
    me = str(disk.top / "me")
    found, notices = load_agent_types(
        TravoisHome(disk.top / "state"), me, me, trusted=False, environ={"HOME": me}, etc=disk.top
    )
    assert [kind.model for kind in found if kind.name == "tester"] == ["opus"]
    assert notices == ()


def test_a_link_may_not_lead_out_of_a_folder_without_trust(disk: Disk) -> None:
    secret = disk.agent("elsewhere/a.md")
    link = disk.top / "code" / ".claude" / "agents" / "a.md"
    link.parent.mkdir(parents=True)
    link.symlink_to(secret)
    why = f"cannot be read: it leads outside {disk.top}/code; run `travois trust` to allow that"
    assert disk.notices(trusted=False) == [f"code/.claude/agents/a.md:1: {why}"]
    assert disk.one().prompt == "Test."


def test_what_is_no_agent_file_is_not_told(disk: Disk) -> None:
    disk.put("code/.claude/agents/README.md", "About these agents.")
    disk.put("code/.claude/agents/notes.txt", "x")
    assert disk.notices() == []


def test_agents_can_be_given_as_json(disk: Disk) -> None:
    fields = {"description": "d", "prompt": "p", "tools": ["Read"], "background": True}
    flag = {"a": {**fields, "maxTurns": 3, "model": None}, "b": {"prompt": "p"}}
    found, notices = disk.kinds(given=json.dumps(flag), trusted=False)
    assert [kind for kind in found if kind.origin != "built-in"] == [
        AgentType("a", "d", "p", tools=("Read",), background=True, max_turns=3, origin="--agents a")
    ]
    assert notices == ("--agents b: description is missing; add a line `description: …`",)


@pytest.mark.parametrize("given", ["{", "[]", '{"a": 1}', '"\\ud800"'])
def test_what_is_no_object_of_agents_is_a_fault(disk: Disk, given: str) -> None:
    with pytest.raises(UserError, match=r"--agents (is not valid JSON|must be a JSON object)"):
        disk.kinds(given=given)


def test_no_kind_is_given_a_wider_mode_than_its_parent_has() -> None:
    def mode(own: str, parent: PermissionMode) -> PermissionMode:
        return limit_permission_mode(AgentType("a", "d", "p", mode=own), parent)

    for parent in PERMISSION_MODES:
        assert mode("", parent) == parent
        for own in PERMISSION_MODES:
            assert MODES_BY_STRICTNESS.index(mode(own, parent)) <= MODES_BY_STRICTNESS.index(parent)
    assert mode("plan", "bypass") == "plan"
    assert mode("bypass", "default") == "default"


def test_ours_are_there_and_only_general_can_change_things(disk: Disk) -> None:
    found, notices = disk.kinds()
    assert notices == ()
    names = [tool.name for tool in TOOLS]
    looking = tuple(
        name
        for name in names
        if name in ("Bash", "Read", "Grep", "Glob", "Symbols", "Recall", *BACKGROUND_JOB_TOOLS)
        or name.startswith("Git")
    )
    assert [(k.name, k.mode, k.instructions, select_agent_tools(k, names)) for k in found] == [
        ("explore", "plan", False, looking),
        ("general", "", True, tuple(name for name in names if name not in MAIN_AGENT_TOOLS)),
        ("plan", "plan", True, looking),
    ]


def test_agents_of_opencode_are_read_in_its_own_words(disk: Disk) -> None:
    head = "---\ndescription: Reviews.\nmode: subagent\nmodel: openai/gpt-6.1-sol\nsteps: 7\n"
    rights = 'permission:\n  edit: deny\n  bash:\n    "*": ask\n    "git push*": deny\n'
    disk.put("code/.opencode/agent/review.md", f"{head}temperature: 0.1\n{rights}---\nReview.\n")
    disk.put("me/.config/opencode/agents/off.md", "---\ndescription: x\ndisable: true\n---\nNo.\n")
    table = {
        "docs": {
            "description": "Docs.",
            "mode": "primary",
            "prompt": "{file:./docs.txt}",
            "tools": {"*": False},
        },
        "build": {"model": "a/b"},
        "review": {"description": "Not this one.", "prompt": "No."},
    }
    disk.put("me/.config/opencode/opencode.json", json.dumps({"agent": table}))
    disk.put("me/.config/opencode/docs.txt", "Write docs.")
    found, notices = disk.kinds()
    assert notices == ()
    review, docs = sorted(
        (kind for kind in found if kind.origin != "built-in"), key=lambda kind: kind.prompt
    )
    edits = ("Edit", "Write", "MultiEdit", "NotebookEdit", "ApplyPatch")
    assert (review.name, review.description, review.prompt) == ("review", "Reviews.", "Review.")
    assert (review.model, review.max_turns) == ("openai/gpt-6.1-sol", 7)
    assert review.denied == (*edits, "Bash")
    assert (docs.name, docs.prompt) == ("docs", "Write docs.")
    assert (review.apart, docs.apart) == (False, True)
    assert {"Read", "Bash", *edits} <= set(docs.denied)


def test_roles_of_codex_are_read_in_its_own_words(disk: Disk) -> None:
    table = "[agents]\nmax_threads = 4\n[agents.scout]\ndescription = 'Looks.'\n"
    disk.put("me/.codex/config.toml", f"{table}config_file = 'scout.toml'\n")
    role = "developer_instructions = 'Scout.'\nmodel = 'gpt-6.1-sol'\nsandbox_mode = 'read-only'\n"
    disk.put("me/.codex/scout.toml", f"{role}model_reasoning_effort = 'minimal'\n")
    file = disk.put("code/.codex/agents/b.toml", "name = 'tidy'\ndescription = 'Tidies.'\n")
    disk.put("code/.codex/agents/bad.toml", "name = ")
    found, notices = disk.kinds()
    mine = {kind.name: kind for kind in found if kind.origin != "built-in"}
    assert (notices, list(mine)) == ((), ["scout", "tidy"])
    assert mine["tidy"] == AgentType("tidy", "Tidies.", "Tidies.", origin=str(file))
    assert mine["scout"] == AgentType(
        "scout",
        "Looks.",
        "Scout.",
        model="openai/gpt-6.1-sol",
        effort="low",
        mode="plan",
        origin=str(disk.top / "me/.codex/config.toml"),
    )
