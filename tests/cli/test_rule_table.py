"""Permission rules as other agents write them: what each row says is what happens to the call.

A row is a mode or a rule or both, a call (a command line where no tool is named), and the verdict.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from travois.compose.explain import PermissionCase, RuleTexts, decide_case
from travois.permissions.decide import MODE_ALIASES, PERMISSION_MODES

KEYS = {
    "Read": "file_path",
    "Edit": "file_path",
    "Write": "file_path",
    "NotebookEdit": "notebook_path",
    "Grep": "path",
    "Glob": "path",
    "WebFetch": "url",
    "WebSearch": "query",
    "Skill": "name",
    "Agent": "subagent_type",
}
MORE = {
    "Edit": {"old_string": "a", "new_string": "b"},
    "Write": {"content": ""},
    "Grep": {"pattern": "x"},
    "Glob": {"pattern": "*"},
    "WebFetch": {"prompt": "x"},
    "Agent": {"description": "x", "prompt": "x"},
}
TABLE = {
    "a command is meant exactly, or with stars for any run of characters": r"""
        allow Bash(npm test)        :: npm test              :: allow
        allow Bash(npm test)        :: npm test a            :: ask
        allow Bash(frob *)          :: frob                  :: allow
        allow Bash(frob *)          :: frob -la x            :: allow
        allow Bash(frob *)          :: frobnicate            :: ask
        allow Bash(frob:*)          :: frob                  :: allow
        allow Bash(frob:*)          :: frob -la              :: allow
        allow Bash(frob:*)          :: frobnicate            :: ask
        allow Bash(frob*)           :: frobnicate x          :: allow
        allow Bash(* --version)     :: frob --version        :: allow
        allow Bash(* --version)     :: frob --versions       :: ask
        allow Bash(git * main)      :: git push origin main  :: allow
        allow Bash(git * main)      :: git push origin dev   :: ask
        allow Bash(frob:* x)        :: frob y x              :: ask
        allow Bash(frob:* x)        :: frob:1 x              :: allow
        allow Bash(*)               :: frob                  :: allow
        allow Bash                  :: frob x; frob y        :: allow
        deny Bash(*)                :: ls                    :: deny
        allow Bash(node -e "f\(1\)")   :: node -e "f(1)"      :: allow
        allow Bash(frob "f\(1\)" *)    :: frob "f(1)" x       :: allow
        deny Bash(grep "f\(1\)" *)     :: grep "f(1)" x       :: deny
        allow Bash(frob \\\(x\\\))    :: frob \(x\)         :: allow
        allow Bash(gh pr create *)  :: gh pr create --title x --body y --draft :: allow
    """,
    "what makes a program another one has to stand in the rule itself": r"""
        allow Bash(python:*)           :: python a.py                  :: allow
        allow Bash(python:*)           :: python -c "print(1)"         :: ask
        allow Bash(python -c:*)        :: python -c "print(1)"         :: allow
        allow Bash(python -c:*)        :: python -c "$X"               :: ask
        allow Bash(python -c:*)        :: python -c x --config y       :: ask
        allow Bash(* -c *)             :: python -c "print(1)"         :: ask
        allow Bash(python:*)           :: PYTHONPATH=. python a.py     :: ask
        allow Bash(PYTHONPATH=. python:*) :: PYTHONPATH=. python a.py  :: allow
        allow Bash(PYTHONPATH=. python:*) :: PYTHONPATH=/x python a.py :: ask
        allow Bash(PYTHONPATH=. python:*) :: PYTHONPATH=. python -c x  :: ask
        allow Bash(A=1 frob:*)         :: A=1 LD_PRELOAD=x frob        :: ask
        allow Bash(A=1 frob:*)         :: A=1 frob "$X"                :: ask
    """,
    "every part of a line must be allowed, and any part may be denied": r"""
        allow Bash(npm test:*)      :: npm test && npm test  :: allow
        allow Bash(npm test:*)      :: npm test | head -3    :: allow
        allow Bash(npm test:*)      :: npm test && frob      :: ask
        allow Bash(npm test:*)      :: npm test || frob      :: ask
        allow Bash(npm test:*)      :: npm test; frob        :: ask
        allow Bash(npm test:*)      :: npm test |& frob      :: ask
        allow Bash(npm test:*)      :: npm test & frob       :: ask
        allow Bash(npm test:*)      :: npm test\nfrob        :: ask
        allow Bash(npm test:*)      :: npm test $(frob)      :: ask
        allow Bash(npm test:*)      :: npm test `frob`       :: ask
        deny Bash(frob *)           :: ls && frob x          :: deny
        deny Bash(frob *)           :: ls\nfrob x            :: deny
        deny Bash(frob *)           :: echo $(frob x)        :: deny
        deny Bash(frob *)           :: echo `frob x`         :: deny
        deny Bash(frob *)           :: cat <(frob x)         :: deny
        ask Bash(ls *)              :: pwd; ls               :: ask
    """,
    "what only runs another program is taken off": r"""
        allow Bash(npm test:*)      :: timeout 5 npm test        :: allow
        allow Bash(npm test:*)      :: timeout -k 3 5s npm test  :: allow
        allow Bash(npm test:*)      :: time npm test             :: allow
        allow Bash(npm test:*)      :: nice -n 5 npm test        :: allow
        allow Bash(npm test:*)      :: nohup npm test            :: allow
        allow Bash(npm test:*)      :: stdbuf -oL npm test       :: allow
        allow Bash(npm test:*)      :: command npm test          :: allow
        deny Bash(npm test:*)       :: timeout 5 npm test        :: deny
        deny Bash(npm test:*)       :: noglob npm test           :: deny
        deny Bash(npm test:*)       :: xargs npm test            :: deny
        deny Bash(timeout *)        :: timeout 5 npm test        :: deny
        allow Bash(npm test:*)      :: NODE_ENV=test npm test    :: allow
        allow Bash(npm test:*)      :: LANG=C NO_COLOR=1 npm test :: allow
        allow Bash(npm test:*)      :: FOO=1 npm test            :: ask
        allow Bash(npm test:*)      :: PATH=x npm test           :: ask
        deny Bash(npm test:*)       :: FOO=1 npm test            :: deny
        allow Bash(watch:*)         :: watch ls                  :: ask
        allow Bash(setsid:*)        :: setsid frob               :: ask
        allow Bash(ionice:*)        :: ionice frob               :: ask
        allow Bash(flock:*)         :: flock x frob              :: ask
        allow Bash(find:*)          :: find . -exec frob {} +    :: ask
        allow Bash(find:*)          :: find . -delete            :: ask
        allow Bash(watch ls)        :: watch ls                  :: allow
        allow Bash(find . -exec frob {} +) :: find . -exec frob {} + :: allow
    """,
    "what only looks runs by itself, and what is not understood is asked about": r"""
        default :: ls -la               :: allow
        default :: cat a | grep x | wc  :: allow
        default :: head a; tail a       :: allow
        default :: echo x               :: allow
        default :: find . -name x       :: allow
        default :: diff a b             :: allow
        default :: stat a; du -sh .     :: allow
        default :: which ls; pwd        :: allow
        default :: cd src               :: allow
        default :: cd /etc              :: ask
        default :: git status           :: allow
        default :: git log -3           :: allow
        default :: cd . && git status   :: allow
        default :: cd src && git status :: ask
        default :: ls *                 :: allow
        default :: sort *               :: ask
        default :: cat /etc/hosts       :: ask
        default :: "never closed        :: ask
        default :: make                 :: ask
    """,
    "where output goes is a file that is written": r"""
        default                  :: echo x > /dev/null  :: allow
        default                  :: echo x > out        :: ask
        acceptEdits              :: echo x > out        :: allow
        acceptEdits              :: echo x >> .git/config :: ask
        acceptEdits              :: echo x > /etc/motd  :: ask
        allow Bash(echo *)       :: echo x > out        :: ask
        allow Edit(/out)         :: echo x > out        :: allow
        deny Edit(out)           :: echo x > out        :: deny
        allow Bash(sed -i *)     :: sed -i s/a/b/ a     :: allow
        allow Bash(sed -i *)     :: sed -i s/a/b/ /etc/motd :: ask
        allow Bash(sed -n *)     :: sed -n -i p a       :: ask
        bypassPermissions deny Edit(out) :: echo x | tee out :: deny
    """,
    "paths have anchors, and an allow is narrower than a deny": r"""
        allow Edit(src/**)       :: Edit src/a.py            :: allow
        allow Edit(src/**)       :: Write src/b/c.py         :: allow
        allow Edit(src/**)       :: NotebookEdit src/n.ipynb :: allow
        allow Edit(src/**)       :: Edit other/src/a.py      :: ask
        deny Edit(src/**)        :: Edit other/src/a.py      :: deny
        deny Edit(src/**)        :: Read src/a.py            :: allow
        deny Read(src/**)        :: Edit src/a.py            :: deny
        deny Read(src/**)        :: Write src/c.py           :: deny
        deny Read(src/**)        :: Glob src                 :: deny
        deny Read(src/**)        :: cat src/a.py             :: deny
        deny Read(.env)          :: Read other/.env          :: deny
        deny Read(.env)          :: Grep other/.env          :: deny
        deny Read(./.env)        :: Read .env                :: deny
        deny Read(./.env)        :: Read other/.env          :: allow
        deny Read(*.py)          :: Read src/a.py            :: deny
        deny Read(**/*.py)       :: Read src/a.py            :: deny
        deny Read(**/*.{pem,key}) :: Read src/a.key           :: deny
        deny Read({a,b}/{c,d})   :: Read b/c                 :: deny
        deny Read({a,b}/{c,d})   :: Read b/e                 :: allow
        deny Read(./{src/c,b}/**) :: grep -rn x src          :: ask
        allow Edit({a,b}/**)     :: Edit a/c                 :: ask
        deny Read(/src/*.py)     :: Read src/a.py            :: deny
        deny Read(/src/*.py)     :: Read src/deep/b.py       :: allow
        deny Read(src/\(a\)/**) :: Read src/(a)/b           :: deny
        allow Edit(src/\(a\)/**) :: Edit src/(a)/b          :: allow
        default                  :: Read /etc/hosts          :: ask
        allow Read(//etc/hosts)  :: Read /etc/hosts          :: allow
        allow Read(//etc/hosts)  :: Read /etc/passwd         :: ask
        allow Read(/etc/hosts)   :: Read /etc/hosts          :: ask
        allow Read(~/notes/**)   :: Read HOME/notes/a        :: allow
        allow Read(~/notes/**)   :: Read HOME/other          :: ask
        allow Edit(//etc/**)     :: Read /etc/hosts          :: allow
        allow Read(//etc/**)     :: Edit /etc/hosts          :: ask
    """,
    "a link is allowed with what it leads to, and denied with either": r"""
        allow Edit(/link.py)     :: Edit link.py  :: ask
        allow Edit(src/**)       :: Edit link.py  :: ask
        allow Edit(*.py)         :: Edit link.py  :: allow
        deny Edit(/link.py)      :: Edit link.py  :: deny
        deny Edit(src/**)        :: Edit link.py  :: deny
        default                  :: Read src/out  :: ask
        deny Read(//etc/**)      :: Read src/out  :: deny
    """,
    "sites, servers, agents, skills and arguments": r"""
        allow WebFetch(domain:example.com)    :: WebFetch https://Example.com./x  :: allow
        allow WebFetch(domain:example.com)    :: WebFetch https://a.example.com/  :: ask
        allow WebFetch(domain:*.example.com)  :: WebFetch https://a.b.example.com/ :: allow
        allow WebFetch(domain:*.example.com)  :: WebFetch https://example.com/    :: ask
        allow WebFetch(domain:*)              :: WebFetch https://example.com/    :: allow
        allow WebFetch(domain:api-*.x.org)    :: WebFetch https://api-1.x.org/    :: allow
        allow WebFetch(domain:api-*.x.org)    :: WebFetch https://api-1.y.x.org/  :: ask
        allow WebSearch          :: WebSearch herons      :: allow
        allow WebSearch(herons)  :: WebSearch herons      :: ask
        allow mcp__a             :: mcp__a__get           :: allow
        allow mcp__a__*          :: mcp__a__get           :: allow
        allow mcp__a__get        :: mcp__a__get           :: allow
        allow mcp__a__get        :: mcp__a__set           :: ask
        allow mcp__a             :: mcp__ab__get          :: ask
        allow mcp__a__g*         :: mcp__a__get           :: allow
        allow mcp__*             :: mcp__a__get           :: ask
        allow mcp__plugin_p_s__t :: mcp__plugin_p_s__t    :: allow
        deny mcp__*              :: mcp__a__get           :: deny
        deny mcp__a*             :: mcp__ab__get          :: deny
        deny *                   :: mcp__a__get           :: deny
        deny Agent(Explore)      :: Agent Explore         :: deny
        deny Task(Explore)       :: Agent Explore         :: deny
        deny Task(Explore)       :: Agent Plan            :: allow
        deny Skill(deploy)       :: Skill deploy          :: deny
        deny Skill(deploy)       :: Skill deployed        :: allow
        deny Skill(deploy *)     :: Skill deploy          :: deny
        deny Skill(deploy:*)     :: Skill deploy          :: deny
        deny Skill(deploy *)     :: Skill deployed        :: allow
        deny Agent(prompt:x*)    :: Agent Explore         :: deny
        deny Agent(prompt:y*)    :: Agent Explore         :: allow
        deny Bash(command:ls)    :: ls                    :: allow
    """,
    "modes": r"""
        manual                   :: Edit src/a.py        :: ask
        acceptEdits              :: Edit src/a.py        :: allow
        acceptEdits              :: Edit /etc/hosts      :: ask
        acceptEdits              :: mkdir x && touch x/y :: allow
        acceptEdits              :: cp a b; mv b c; rm c :: allow
        acceptEdits              :: rmdir x              :: allow
        acceptEdits              :: sed -i s/a/b/ a      :: allow
        acceptEdits              :: rm /etc/hosts        :: ask
        acceptEdits              :: make                 :: ask
        plan                     :: ls                   :: allow
        plan                     :: rm a                 :: deny
        plan allow Bash          :: make                 :: allow
        plan                     :: Edit src/a.py        :: deny
        dontAsk                  :: ls                   :: allow
        dontAsk                  :: make                 :: deny
        dontAsk allow Bash(make:*) :: make               :: allow
        dontAsk ask Bash(ls)     :: ls                   :: deny
        bypassPermissions        :: make                 :: allow
        bypassPermissions ask Bash(make:*)  :: make      :: ask
        bypassPermissions deny Bash(make:*) :: make      :: deny
        bypassPermissions        :: rm -rf /             :: ask
        bypassPermissions        :: rm -rf /usr          :: ask
        bypassPermissions        :: rm -rf ~             :: ask
        bypassPermissions        :: rm -rf ..            :: ask
        bypassPermissions        :: rm -rf ./*           :: ask
        bypassPermissions        :: rm -rf "$X"/*        :: ask
        bypassPermissions        :: rm -rf src           :: allow
        allow Bash               :: rm -rf ~             :: ask
    """,
    "what decides what runs later is not changed by the way": r"""
        acceptEdits       :: Edit .git/hooks/x          :: ask
        acceptEdits       :: Edit .vscode/tasks.json    :: ask
        acceptEdits       :: Edit .claude/settings.json :: ask
        acceptEdits       :: Edit .claude/worktrees/x/a.py :: allow
        acceptEdits       :: Edit .claude/worktrees/x/.git :: ask
        acceptEdits       :: Edit .claude/worktrees/x   :: ask
        acceptEdits       :: Edit sub/.mcp.json         :: ask
        acceptEdits       :: Edit .bashrc               :: ask
        acceptEdits       :: Edit .yarnrc.yml           :: ask
        acceptEdits       :: Edit pyrightconfig.json    :: ask
        allow Edit        :: Edit .git/hooks/x          :: ask
        allow Edit(**)    :: Edit .npmrc                :: ask
        bypassPermissions :: Edit .git/hooks/x          :: ask
        bypassPermissions :: Edit .vscode/tasks.json    :: allow
        acceptEdits       :: Edit sub/AGENTS.md         :: ask
        acceptEdits       :: Edit .github/workflows/x.yml :: ask
    """,
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / "src" / "a.py").write_text("a")
    (work / "link.py").symlink_to("src/a.py")
    (work / "src" / "out").symlink_to("/etc/hosts")
    return work


def verdict(said: str, call: str, place: Path) -> str:
    mode, rule = "default", said
    if said.partition(" ")[0] in (*PERMISSION_MODES, *MODE_ALIASES):
        mode, _, rule = said.partition(" ")
    effect, _, text = rule.partition(" ")
    tool, _, subject = call.partition(" ")
    if tool not in KEYS and not tool.startswith("mcp__"):
        tool, subject = "Bash", call.replace("\\n", "\n")
    subject = subject.replace("HOME", str(place.parent))
    given = {KEYS.get(tool, "command"): subject, **MORE.get(tool, {})}
    case = PermissionCase(
        tool=tool,
        input=msgspec.Raw(msgspec.json.encode(given)),
        mode=mode,
        rules=msgspec.convert({effect: [text]} if rule else {}, RuleTexts),
        workspace=str(place),
    )
    found = decide_case(case, own=(str(place.parent / "own"),))
    assert not found.because.startswith("it cannot run"), call
    return found.effect


@pytest.mark.parametrize("section", TABLE)
def test_a_rule_means_what_it_means_elsewhere(section: str, place: Path) -> None:
    lines = (line for line in TABLE[section].splitlines() if line.strip())
    rows = [[cell.strip() for cell in line.split("::")] for line in lines]
    assert [[said, call, verdict(said, call, place)] for said, call, _ in rows] == rows


def test_a_command_that_nobody_can_read_whole_is_asked_about(place: Path) -> None:
    assert verdict("allow Bash(echo *)", f"echo {'x' * 16_001}", place) == "ask"
