"""How many recorded commands of other agents would be asked about here, and why.

`python bench/asks.py SESSIONS_DIR [--mode default|sandboxed|auto] [--answers once|always]
[--json] [--show REASON]`

Each recorded command goes through the functions of a session (`dispatch.understand`,
`consent.decide`) with the full sandbox; nothing is executed. The workspace of a session is the
folder where it was recorded, made anew below a scratch home so that paths and links resolve: with
the worktrees that recorded output names, what tool chains show of a home, and the temporary folder
of that machine as /tmp. Settings of tool chains count as free of credentials. The person says no
each time, or with `--answers always` takes the rule that a question offers, if it offers one: such
a question counts once for all commands that the rule covers. A command that is denied counts as
asked.

`floor`, where commands run in the sandbox unasked, is what only a rule of the user's could spare:
commands that name a program which connects (told by a pattern of its own, not by the tables of
permissions), or paths in the recorded home or another project. `fails` is an estimate of what the
sandbox would break among what runs in it unasked: commands whose recorded output shows that they
fetched something, and builders in another worktree, which is read-only.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentParser
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

import anyio
import msgspec

from bench.calls import Recorded, recorded_calls
from bench.replay import NoWeb
from travois.core.content import Call
from travois.core.facts import AnyFact, Changed, Entry, Opened
from travois.engine.agent import Agent, AgentPermissions, AgentTools, World
from travois.engine.permission_gate import ParsedCall, build_call_context, decide_call
from travois.engine.tool_calls import parse_call
from travois.files.disk import DiskFiles
from travois.permissions.decide import PermissionMode, Permissions
from travois.permissions.resolve_paths import find_sibling_checkout
from travois.permissions.shell.families import is_builder
from travois.ports.world import ChoiceRequest, PermissionQuestion, PersonAnswer, SnapshotTaken
from travois.process.local_processes import LocalProcesses
from travois.providers.encoder import RequestEncoder
from travois.sandbox.hidden_files import find_covered_places
from travois.sandbox.policy import SECRET_HOME_PATHS, SandboxPolicy
from travois.sandbox.tool_chains import list_tool_chain_paths
from travois.sessions.blobs import BlobStore
from travois.sessions.home import TravoisHome
from travois.sessions.session import Session
from travois.skills.skill_files import list_personal_folders
from travois.testing import Scripted
from travois.tools.catalog import TOOLS

MODES: dict[str, PermissionMode] = {"default": "default", "sandboxed": "default", "auto": "auto"}
SHELLS = ("Bash", "bash", "exec_command", "shell")
"""What recorded agents call the tool that runs a command line in a POSIX shell."""
HOME = re.compile(r"/(?:c/)?(?:Users|home)/[^/]+|/root")
WINDOWS = re.compile(r"\b([A-Za-z]):[\\/]+(?=\w)")
"""`D:\\x` and `D:/x`, which Git Bash also writes `/d/x`."""
TEMPORARY = re.compile(
    r"(?:/private)?/var/folders/\w\w/\w+/T(?![\w.-])|/private/tmp(?![\w.-])"
    r"|/c/Users/[^/]+/AppData/Local/Temp(?![\w.-])"
)
"""Where macOS and Windows keep temporary files: what /tmp is for a session here."""
WORKTREE = re.compile(
    r"^(?:worktree )?((?:[A-Za-z]:)?/\S+)(?:\s+[0-9a-f]{7,40} (?:\[[^\]]+\]|\(detached HEAD\)).*)?$",
    re.MULTILINE,
)
"""A line of `git worktree list`, with `--porcelain` or without."""
NOTED = re.compile(
    r'^\W{0,6}worktree(?:_path)?\W{1,6}(/\S+)__worktrees/([\w.-]+)"?,?$',
    re.MULTILINE | re.IGNORECASE,
)
"""A line that calls a path a worktree, where it lies as workmux places it: in a folder that is
called after the repository, beside it."""
ADDED = re.compile(r"git worktree add (?:(?:-[bB] \S+|-\S+) )*([\w./-]+)")
SHOWN = 20
SHARES = ("asked", "tried", "allowed", "fails")
FETCHED = re.compile(
    r"^(?:go: downloading|Downloading |Downloaded |Fetching |Cloning into|Collecting \S+$|npm warn exec"
    r"|Installing dependencies|added \d+ packages|Saved lockfile|.*Compiling .*registry|Get:\d+ http)",
    re.MULTILINE,
)
"""How tools say that they fetch what is not there yet."""
CONNECTS = re.compile(
    r"(?:^|[;&|(`\n]|\b(?:then|do|else|rtk|time|xargs|timeout \S+)\s)\s*(?:[A-Za-z_]\w*=\S*\s+)*(?:"
    r"gh (?:-R \S+ |--repo \S+ )?(?:api|pr|issue|run|repo|release|search|workflow|auth)\b"
    r"|git (?:-[cC] \S+ |--no-pager )*(?:push|fetch|pull|clone|ls-remote|remote update)\b"
    r"|(?:curl|wget)\b(?!.*(?:localhost|127\.0\.0\.1|--help|--version))"
    r"|(?:npm|pnpm|yarn|bun|pip3?|uv|cargo|brew|apt(?:-get)?) (?:-\S+ )*"
    r"(?:install|i|ci|add|view|owner|access|publish|update|search|sync)\b"
    r"|go (?:get|install|mod download)\b|vale sync\b)"
)
"""Programs that do nothing useful without a network, where a command can stand."""
CATASTROPHES = (
    *("removes ", "overwrites ", "formats ", "stops the ", "kills ", "changes ", "moves "),
    *("may remove ", "may overwrite ", "looks like ", "is too long to check"),
)
REASONS = (
    ("needs the network", "needs the network"),
    ("uses the network", "needs the network"),
    ("reads outside", "reads outside the workspace"),
    ("writes outside", "writes outside the workspace"),
    ("writes a protected", "writes a protected path"),
    ("destroys", "destroys what a rewind cannot restore"),
    *((word, "would destroy the machine, the home or the workspace") for word in CATASTROPHES),
    ("writes", "writes in the workspace"),
    ("runs", "not all that it does is known"),
    ("sets", "not all that it does is known"),
)
"""How the reasons of questions begin, and what they are called here."""


class Judged(msgspec.Struct, frozen=True):
    """What became of one command."""

    agent: str
    command: str
    fate: str
    """`allowed`, `tried`, `asked` or `unfit`."""
    because: str = ""
    fails: bool = False
    """Whether it would lack something in the sandbox, as far as can be told."""
    elsewhere: bool = False
    """Whether what was asked about lies in the recorded home or another project."""

    @property
    def floor(self) -> str:
        """Why it has to ask whatever the rules, if it has to."""
        if self.fate != "asked":
            return ""
        if self.reason == "needs the network" and CONNECTS.search(self.command):
            return "network"
        return "outside" if self.elsewhere else ""

    @property
    def reason(self) -> str:
        """The kind of reason, without the command's own words."""
        return next((why for sign, why in REASONS if self.because.startswith(sign)), "other")


class MemoryLog:
    """A log in a list."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def append(self, fact: AnyFact) -> Entry:
        self.entries.append(Entry(len(self.entries) + 1, 0.0, fact))
        return self.entries[-1]

    def sync(self) -> None:
        pass

    def read(self) -> Iterable[Entry]:
        return self.entries


class Recorder:
    """Keeps the question, and says no unless it offers a rule that is wanted."""

    def __init__(self, answers: str) -> None:
        self.asked: list[PermissionQuestion] = []
        self._always = answers == "always"

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        self.asked.append(question)
        always = self._always and bool(question.always)
        return PersonAnswer(allow=always, always=always)

    async def choose(self, inquiry: ChoiceRequest) -> tuple[str, ...] | None:
        return None


class Covered:
    """Snapshots that cover all of the workspace."""

    def prepare(self) -> None:
        pass

    def list_uncovered(self) -> tuple[str, ...]:
        return ()

    async def snapshot_workspace(self, **wanted: object) -> SnapshotTaken:
        raise NotImplementedError("nothing is run")

    async def snapshot_files(
        self, paths: Iterable[str], *, why: str
    ) -> tuple[str, tuple[str, ...]]:
        raise NotImplementedError("nothing is run")


class Scene:
    """A scratch copy of the folders that a recorded session worked in."""

    def __init__(self, recorded: str, scratch: str) -> None:
        self._scratch = scratch
        cwd = _posix(recorded) or "/testbed"
        found = HOME.match(cwd)
        self._home = found[0] if found else "/home/dev"
        self._own = cwd
        self.home = scratch + self._home
        self.root = scratch + cwd
        if not os.path.lexists(f"{self.root}/.git"):
            os.makedirs(f"{self.root}/.git")
        os.makedirs(self.home, exist_ok=True)

    def moved(self, text: str) -> str:
        """The text with the recorded home and workspace in the scratch folder."""
        text = TEMPORARY.sub("/tmp", _posix(text))
        places = sorted({self._home, self._own}, key=len, reverse=True)
        pattern = "|".join(map(re.escape, places))
        return re.sub(rf"(?<![\w.])(?:{pattern})(?![\w.-])", lambda m: self._scratch + m[0], text)


def find_worktrees(calls: Iterable[Recorded]) -> list[list[str]]:
    """The checkouts of each repository of which recorded output lists them, main first."""
    found: dict[str, dict[str, None]] = {}
    for call in calls:
        line = str(call.input.get("command") or call.input.get("cmd") or "")
        where = _posix(str(call.input.get("workdir") or call.cwd))
        if added := ADDED.search(line) if "Preparing worktree" in call.result else None:
            found.setdefault(where, {where: None})[os.path.normpath(f"{where}/{added[1]}")] = None
        for main, name in NOTED.findall(call.result):
            found.setdefault(main, {main: None})[f"{main}__worktrees/{name}"] = None
        if "worktree list" not in line:
            continue
        listed = [_posix(one[1]) for one in WORKTREE.finditer(call.result)]
        if listed:
            found.setdefault(listed[0], {}).update(dict.fromkeys(listed))
    return [list(one) for one in found.values()]


def link_worktrees(scratch: str, checkouts: list[str]) -> None:
    """Make what git makes for the worktrees of a repository, as far as permissions look at it."""
    main, *others = [scratch + path for path in checkouts if not path.startswith("/tmp/")]
    os.makedirs(f"{main}/.git", exist_ok=True)
    Path(f"{main}/.git/HEAD").touch()
    for number, path in enumerate(others):
        own = f"{main}/.git/worktrees/{number}"
        os.makedirs(own, exist_ok=True)
        os.makedirs(path, exist_ok=True)
        Path(f"{own}/HEAD").touch()
        Path(f"{own}/commondir").write_text("../..\n")
        Path(f"{own}/gitdir").write_text(f"{path}/.git\n")
        if not os.path.lexists(f"{path}/.git"):
            Path(f"{path}/.git").write_text(f"gitdir: {own}\n")


def _posix(text: str) -> str:
    def drive(found: re.Match[str]) -> str:
        return f"/{found[1].lower()}/"

    if not WINDOWS.search(text):
        return text
    return re.sub(
        r"(/[a-z]/[^\s'\"]*)", lambda m: m[0].replace("\\", "/"), WINDOWS.sub(drive, text)
    )


def judged(
    calls: Iterable[Recorded], mode: str, scratch: str, *, answers: str = "once"
) -> Iterator[Judged]:
    """What would become of each command, in order."""
    agents: dict[tuple[str, str], tuple[Agent, Scene, Recorder]] = {}
    for call in calls:
        if call.name not in SHELLS:
            continue
        key = (call.agent, call.cwd)
        if key not in agents:
            agents[key] = _agent(call.cwd, mode, scratch, answers=answers)
        agent, scene, person = agents[key]
        os.environ["HOME"] = scene.home
        given = {name: _given(scene, value) for name, value in call.input.items()}
        _make_workdir(given, scene)
        made = Call("recorded", call.name, msgspec.json.encode(given).decode())
        yield anyio.run(_judge, agent, person, call, made)


def _given(scene: Scene, value: Any) -> Any:
    return scene.moved(value) if isinstance(value, str) else value


def _make_workdir(given: dict[str, Any], scene: Scene) -> None:
    folder = str(given.get("workdir") or "")
    if folder.startswith(scene.home) and not os.path.exists(folder):
        os.makedirs(folder)


async def _judge(agent: Agent, person: Recorder, call: Recorded, made: Call) -> Judged:
    command = str(call.input.get("command") or call.input.get("cmd") or "")
    ready = parse_call(agent, made)
    if not isinstance(ready, ParsedCall):
        return Judged(call.agent, command, "unfit", ready.why)
    before = len(person.asked)
    ruling = await decide_call(agent, ready)
    _follow(agent, ready)
    if len(person.asked) > before:
        why = person.asked[-1].because
        return Judged(call.agent, command, "asked", why, elsewhere=_is_elsewhere(agent, why))
    if ruling.decided.verdict == "deny":
        return Judged(call.agent, command, "asked", ruling.decided.because)
    fate = "tried" if ruling.trial else "allowed"
    fails = bool(FETCHED.search(call.result)) or _builds_elsewhere(agent, ready)
    return Judged(call.agent, command, fate, ruling.decided.because, fails=fails)


def _is_elsewhere(agent: Agent, because: str) -> bool:
    """Whether a question is about a path of the recorded machine outside the workspace."""
    found = re.match(r"(?:reads|writes) outside the workspace: (/.*)", because)
    assert agent.bounds is not None
    scratch = agent.bounds.covered[0]
    return found is not None and f"{found[1]}/".startswith(f"{scratch}/")


def _builds_elsewhere(agent: Agent, ready: ParsedCall) -> bool:
    """Whether a builder runs in another worktree, where it can write nothing."""
    moves = [one.target for one in build_call_context(agent, ready).touched if one.kind == "read"]
    apart = (one for one in moves if find_sibling_checkout(one, agent.world.root, home="/nowhere"))
    steps = (step for plan in ready.plans for step in plan.steps)
    return any(apart) and any(map(is_builder, steps))


def _follow(agent: Agent, ready: ParsedCall) -> None:
    """Stand where the last `cd` of a plain line leads, as the shell of a session does."""
    for plan in ready.plans:
        if "(" in plan.text or not plan.text.startswith("cd "):
            continue
        moves = [step for step in plan.steps if step.name == "cd" and step.accesses]
        if moves and moves[-1].accesses[0].target.startswith(agent.world.root):
            agent.session.append(Changed("cwd", moves[-1].accesses[0].target))


def _agent(cwd: str, mode: str, scratch: str, *, answers: str) -> tuple[Agent, Scene, Recorder]:
    scene, person, temp = Scene(cwd, scratch), Recorder(answers), f"{scratch}/tmp"
    os.makedirs(temp, exist_ok=True)
    needed = list_tool_chain_paths(scene.home, {})
    bounds = SandboxPolicy(
        temp,
        free=mode == "sandboxed",
        attended=True,
        offered=True,
        covered=(scratch, *find_covered_places()),
        hidden=(*(f"{scene.home}/{name}" for name in SECRET_HOME_PATHS), *needed.withheld),
        shown=tuple(_brought(scene.home)),
        tools=(*needed.reads, *needed.settings),
        caches=needed.caches,
        home=scene.home,
    )
    guard = Permissions(MODES[mode], folders=(scene.root,), scratch=temp)
    blobs = Path(scratch) / "blobs"
    return make_agent(scene.root, guard, bounds, person=person, blobs=blobs), scene, person


def make_agent(
    root: str, guard: Permissions, bounds: SandboxPolicy, *, person: Recorder, blobs: Path
) -> Agent:
    """A session in a folder whose calls can be judged; it has no model to talk to."""
    session, kept = Session(MemoryLog()), BlobStore(blobs)
    session.append(Opened("asks", root, "bench", "0"))
    return Agent(
        session=session,
        model=Scripted(),
        encoder=RequestEncoder(kept.get),
        tools=AgentTools({tool.name: tool for tool in TOOLS}),
        world=World(
            root, DiskFiles(), LocalProcesses(), NoWeb(), kept, lambda c, d: c, snapshots=Covered()
        ),
        permissions=AgentPermissions(guard, person, sandbox=bounds),
    )


def _brought(home: str) -> Iterator[str]:
    """Where agents keep skills and plugins, which they tell the model to read."""
    for skills in list_personal_folders(TravoisHome(Path(home)), {"HOME": home}):
        yield skills
        yield os.path.join(os.path.dirname(skills), "plugins")


def report(found: list[Judged]) -> dict[str, Any]:
    """Shares of all commands and by source, with the reasons for questions."""
    sources: dict[str, list[Judged]] = defaultdict(list)
    for one in found:
        sources[one.agent].append(one)
    return {"all": _shares(found), **{name: _shares(some) for name, some in sources.items()}}


def _shares(found: list[Judged]) -> dict[str, Any]:
    fates = Counter(one.fate for one in found)
    count = len(found) - fates.pop("unfit", 0)
    reasons = Counter(one.reason for one in found if one.fate == "asked")
    return {
        "commands": count,
        **{fate: round(fates[fate] / max(1, count), 4) for fate in ("asked", "tried", "allowed")},
        "fails": round(sum(o.fails for o in found if o.fate == "allowed") / max(1, count), 4),
        "floor": _floor(found, count),
        "reasons": {why: round(n / max(1, count), 4) for why, n in reasons.most_common(SHOWN)},
    }


def _floor(found: list[Judged], count: int) -> dict[str, float]:
    why = Counter(one.floor for one in found if one.floor)
    return {name: round(why[name] / max(1, count), 4) for name in ("network", "outside")}


def main(args: list[str]) -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("sessions", type=Path)
    parser.add_argument("--mode", choices=MODES, default="sandboxed")
    parser.add_argument("--answers", choices=("once", "always"), default="once")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--show", default="", metavar="REASON", help="print the commands")
    told = parser.parse_args(args)
    # Not below /tmp, which the sandbox replaces by a folder of its own.
    scratch = mkdtemp(prefix=".travois-asks-", dir=os.path.expanduser("~"))
    try:
        for checkouts in find_worktrees(recorded_calls(told.sessions)):
            link_worktrees(os.path.realpath(scratch), checkouts)
        calls = recorded_calls(told.sessions)
        where = os.path.realpath(scratch)
        found = list(judged(calls, told.mode, where, answers=told.answers))
    finally:
        rmtree(scratch)
    if told.show:
        for one in found:
            if one.fate in told.show.split(",") or one.reason.startswith(told.show):
                print(f"{one.because[:160]!r}\n    {one.command[:300]!r}")
    elif told.json:
        print(msgspec.json.format(msgspec.json.encode(report(found)), indent=1).decode())
    else:
        has_floor = told.mode != "default" and told.answers == "once"
        print_report(report(found), floor=has_floor)


def print_report(found: dict[str, Any], *, floor: bool) -> None:
    for source, shares in found.items():
        told = "  ".join(f"{name} {shares[name]:.1%}" for name in SHARES)
        print(f"{source:12} {shares['commands']:5} commands  {told}")
        for why, share in shares["reasons"].items():
            print(f"    {share:6.2%}  {why}")
        if floor:
            least = shares["floor"]
            print(
                f"    floor: {sum(least.values()):.1%} need the network ({least['network']:.1%}) or"
                f" paths outside ({least['outside']:.1%}), whatever the rules but the user's own"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
