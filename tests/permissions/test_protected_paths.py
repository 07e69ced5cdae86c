"""No mode, tool, spelling or place in a line lets a protected path be written unasked.

The cases are generated: paths x spellings x ways to write x places in a line x modes. A verdict
that is a mere doubt counts as a hole, because the sandbox answers doubts in mode auto.
"""

from __future__ import annotations

import pytest

from travois.permissions.access import Access
from travois.permissions.decide import (
    PermissionDecision,
    PermissionMode,
    Permissions,
    decide_permission,
)
from travois.permissions.rules import ToolUse, parse_permission_rule
from travois.permissions.shell.judge import plan_command
from travois.sandbox.policy import (
    SandboxPolicy,
    build_sandbox_profile,
    find_held_back_path,
    is_contained,
)

ROOT, HOME = "/w/proj", "/home/u"
PERSONAL = (
    *(".git/hooks/pre-commit", ".git/config", ".git/config.worktree", ".git/commondir", ".git"),
    *(".git/info/attributes", ".git/modules/sub/config", ".git/worktrees/tree/commondir"),
    *("sub/.git/config", "sub/.git/hooks/post-checkout", "sub/.git", ".husky/pre-commit"),
    *(".travois/settings.json", ".claude/settings.json", ".codex/config.toml", ".cursor/mcp.json"),
    *(".gemini/settings.json", ".opencode/agent/x.md", ".mcp.json", ".windsurf/x", ".qwen/x"),
    *(".bashrc", ".zshrc", ".profile", ".ssh/authorized_keys", ".gnupg/gpg.conf", ".aws/config"),
)
PROJECT = (
    *(".vscode/tasks.json", ".idea/workspace.xml", ".envrc", ".gitmodules", ".gitattributes"),
    *("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", "QWEN.md", "deep/er/AGENTS.md"),
    *(".github/copilot-instructions.md", ".github/workflows/ci.yml", ".github/actions/a/x.yml"),
    *(".gitlab-ci.yml", ".circleci/config.yml", "Jenkinsfile", "azure-pipelines.yml"),
    *(".cursorrules", ".windsurfrules", ".clinerules", ".pre-commit-config.yaml", ".npmrc"),
)
OUTSIDE = ("~/.bashrc", "~/.travois/settings.json", "~/.claude/settings.json", "/etc/zzz", "/srv/x")
WRITES = (
    *("printf x > {}", "printf x >> {}", "printf x | tee {}", "cp a {}", "mv a {}", "rm -f {}"),
    *(
        "sed -i s/a/b/ {}",
        "ln -sf a {}",
        "touch {}",
        "install -m 755 a {}",
        "dd if=a of={}",
        "rsync a {}",
        "cat <<'E' > {}\nx\nE\n",
        "cat a >| {}",
    ),
)
UNSEEN = ("ln", "install", "dd", "rsync")
"""Programs that are not understood so well that paths outside would be seen."""
SPELLINGS = (
    *("{}", "./{}", "'{}'", '"{}"', "x/../{}", f"{ROOT}/{{}}", "$PWD/{}", "\\{}"),
    *("upper", "double slashes"),
)
PLACES = (
    *("{}", "python3 -c 1; {}", "make && {}", "make || {}", "({})", "{{ {}; }}", "echo a; {}; ls"),
    *(
        "if true; then {}; fi",
        "for i in 1 2; do {}; done",
        "npm test; {}; make",
        "git commit -m x; {}",
    ),
    *("bash -c 'true'; {}", "make & {}"),
)
MODES: tuple[PermissionMode, ...] = ("default", "accept-edits", "auto", "dont-ask", "plan")
TOOLS = ("Write", "Edit", "MultiEdit", "NotebookEdit", "ApplyPatch")


def spell(path: str, how: str) -> str:
    match how:
        case "upper":
            return path.upper()
        case "double slashes":
            return path.replace("/", "//")
        case _:
            return how.format(path)


def use(line: str) -> ToolUse:
    made = plan_command(line, cwd=ROOT, home=HOME)
    return ToolUse("Bash", (Access("exec", line),), ROOT, HOME, plans=(made,))


def ruled(mode: PermissionMode, line: str, *rules: str) -> PermissionDecision:
    parsed = tuple(parse_permission_rule(rule, "allow") for rule in rules)
    return decide_permission(
        Permissions(mode, parsed, (ROOT,), own=(f"{HOME}/.travois",)), use(line)
    )


def certain(verdict: PermissionDecision) -> bool:
    """Whether only a person can let it happen."""
    return verdict.effect != "allow" and not verdict.doubt


def place(line: str, where: str) -> str:
    """Put a line into a larger one; a here-document ends with a line of its own."""
    return where.format(line) if not line.endswith("\n") else where.format(f"{line}:")


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("path", [*PERSONAL, *PROJECT])
def test_commands_ask_wherever_the_write_stands(path: str, write: str) -> None:
    line = write.format(path)
    holes = [
        (mode, place(line, where))
        for mode in MODES
        for where in PLACES
        if not certain(ruled(mode, place(line, where)))
    ]
    assert holes == []


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("path", [*PERSONAL, *PROJECT])
def test_commands_ask_however_the_path_is_spelt(path: str, spelling: str) -> None:
    named = spell(path, spelling)
    lines = [write.format(named) for write in WRITES]
    modes: tuple[PermissionMode, ...] = (
        "accept-edits",
        "auto",
        *(("bypass",) if path in PERSONAL else ()),
    )
    holes = [(mode, one) for mode in modes for one in lines if not certain(ruled(mode, one))]
    assert holes == []


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("path", [*PERSONAL, *OUTSIDE])
def test_mode_bypass_asks_for_what_takes_a_person(path: str, write: str) -> None:
    line = write.format(path)
    found = [place(line, where) for where in PLACES]
    free = [one for one in found if ruled("bypass", one).effect == "allow"]
    if path in PERSONAL or not line.startswith(UNSEEN):
        assert free == []
    for one in free:  # not known as a write, so the sandbox holds it
        made = build_sandbox_profile(
            SandboxPolicy(temp="/private"), Permissions("bypass", folders=(ROOT,)), use(one)
        )
        assert made is not None and made.writable == ()


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("path", [*PERSONAL, *PROJECT])
def test_file_tools_have_the_same_border(path: str, tool: str) -> None:
    access = Access("write", f"{ROOT}/{path}")
    modes: tuple[PermissionMode, ...] = (*MODES, *(("bypass",) if path in PERSONAL else ()))
    for mode in modes:
        verdict = decide_permission(
            Permissions(mode, (), (ROOT,)), ToolUse(tool, (access,), ROOT, HOME)
        )
        assert certain(verdict), mode


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("path", ["/etc/zzz", f"{HOME}/.bashrc", f"{HOME}/notes.txt", "/srv/x"])
def test_file_tools_stay_inside_in_mode_bypass(path: str, tool: str) -> None:
    wanted = ToolUse(tool, (Access("write", path),), ROOT, HOME)
    verdict = decide_permission(Permissions("bypass", (), (ROOT,)), wanted)
    assert certain(verdict)
    assert "--add-dir" in verdict.because or "needs approval" in verdict.because
    added = Permissions("bypass", (), (ROOT, "/srv", "/etc"), writable=(HOME,))
    expected = "ask" if path.endswith(".bashrc") else "allow"
    assert decide_permission(added, wanted).effect == expected
    assert (
        decide_permission(Permissions("bypass", (), (ROOT,), no_sandbox=True), wanted).effect
        == expected
    )


@pytest.mark.parametrize("path", PROJECT)
def test_mode_bypass_writes_what_belongs_to_the_project(path: str) -> None:
    wanted = ToolUse("Write", (Access("write", f"{ROOT}/{path}"),), ROOT, HOME)
    assert decide_permission(Permissions("bypass", (), (ROOT,)), wanted).effect == "allow"


@pytest.mark.parametrize(
    "line",
    [
        *("git config core.fsmonitor x", "git config --local alias.st '!x'", "git config -e"),
        *("git -C sub config core.hooksPath h", "git config filter.a.clean x", "git config $k v"),
        *("git config --global core.pager x", "git config -f .git/config a.b c"),
        "git config set core.editor x",
        *("git config --replace-all include.path ../x", "git config credential.helper '!x'"),
        *("git config remote.o.url ext::sh", "git config --edit", "git config CORE.FSMonitor x"),
    ],
)  # fmt: skip
def test_keys_that_run_programs_ask(line: str) -> None:
    modes: tuple[PermissionMode, ...] = ("accept-edits", "auto", "bypass")
    for text in (line, f"python3 -c 1; {line}", f"{line}; make"):
        assert [mode for mode in modes if not certain(ruled(mode, text))] == []
        assert ruled("auto", text, "Bash(git:*)", "Bash(make)", "Bash(python3:*)").effect == "ask"


@pytest.mark.parametrize(
    "line",
    ["git config user.name me", "git config --add remote.o.fetch x", "git config pull.ff only"],
)
def test_other_keys_are_as_free_as_git_itself(line: str) -> None:
    assert ruled("bypass", line).effect == "allow"
    assert ruled("auto", line).doubt


def walls(line: str, mode: PermissionMode = "default") -> tuple[frozenset[str], frozenset[str]]:
    made = build_sandbox_profile(
        SandboxPolicy(temp="/private"), Permissions(mode, folders=(ROOT,)), use(line)
    )
    assert made is not None
    return frozenset(made.pinned), frozenset(made.lifted)


@pytest.mark.parametrize(
    "code", ["make", "python3 -m pytest", "npm test", "./x", "git commit -m x"]
)
@pytest.mark.parametrize("path", [".mcp.json", ".git/hooks/pre-commit", ".claude/settings.json"])
def test_a_pin_is_never_lifted_for_other_code(path: str, code: str) -> None:
    for line in (f"{code}; cp a {path}", f"cp a {path} && {code}", f"{code} > {path}"):
        pinned, lifted = walls(line)
        assert lifted == frozenset()
        assert any(f"{ROOT}/{path}".startswith(one) for one in pinned)
        assert find_held_back_path(
            SandboxPolicy(temp="/t"), Permissions(folders=(ROOT,)), use(line)
        ).startswith(ROOT)
    pinned, lifted = walls(f"mkdir -p x && cp a {path}; chmod +x {path}")
    assert f"{ROOT}/{path}" in lifted
    assert not any(f"{ROOT}/{path}".startswith(one) for one in pinned)


@pytest.mark.parametrize("code", ["make", "python3 -m pytest", "npm test"])
def test_git_beside_other_code_writes_its_settings_key_by_key(code: str) -> None:
    made = build_sandbox_profile(
        SandboxPolicy(temp="/t"), Permissions(folders=(ROOT,)), use(f"git commit -m x; {code}")
    )
    assert made is not None and made.lifted == ()
    assert f"{ROOT}/.git/config" in made.git_written
    made = build_sandbox_profile(
        SandboxPolicy(temp="/t"), Permissions(folders=(ROOT,)), use(f"git config alias.x y; {code}")
    )
    assert made is not None and made.lifted == ()


@pytest.mark.parametrize(
    "rule", ["Bash(cp:*)", "Bash(git:*)", "Edit(**)", "Write(**)", "Bash(tee:*)"]
)
@pytest.mark.parametrize("path", [*PERSONAL, *PROJECT])
def test_a_rule_that_does_not_name_the_path_is_not_enough(path: str, rule: str) -> None:
    for line in (f"cp a {path}", f"echo x | tee {path}"):
        assert certain(ruled("accept-edits", line, rule))


RUIN = (
    *("rm -rf .git", "rm -r ./.git/", "rm -rf .git/*", "mv .git /tmp/x", "rm -rf $PWD/.git"),
    *("$(echo rm) -rf /", "`echo rm` -rf ~", "x=$(echo rm); $x -rf /", 'eval "$(echo rm) -rf /"'),
    *(
        "r$(echo m) -rf /",
        "sudo $(echo rm) -rf /",
        '"$(command -v rm)" -rf /*',
        "find .git -delete",
    ),
    *("$(echo dd) if=/dev/zero of=/dev/sda", "cd sub && rm -rf ../.git", "rm -rf .GIT"),
)


@pytest.mark.parametrize("line", RUIN)
def test_the_history_and_the_disk_are_never_lost_unasked(line: str) -> None:
    modes: tuple[PermissionMode, ...] = (*MODES, "bypass")
    rules = ("Bash(rm:*)", "Bash(mv:*)", "Bash(find:*)", "Bash")
    for where in PLACES:
        found = [
            mode for mode in modes if ruled(mode, place(line, where), *rules).effect == "allow"
        ]
        assert found == []


def test_a_file_that_a_trusted_hook_runs_is_protected() -> None:
    guard = Permissions("accept-edits", (), (ROOT,), pinned=(f"{ROOT}/Makefile",))
    wanted = ToolUse("Edit", (Access("write", f"{ROOT}/Makefile"),), ROOT, HOME)
    assert decide_permission(guard, wanted).effect == "ask"
    assert (
        decide_permission(Permissions("bypass", (), (ROOT,), pinned=guard.pinned), wanted).effect
        == "ask"
    )
    assert decide_permission(Permissions("accept-edits", (), (ROOT,)), wanted).effect == "allow"


def test_unproven_code_alone_stays_a_doubt_for_the_sandbox() -> None:
    verdict = ruled("auto", "python3 -m pytest; make")
    assert verdict.effect == "ask" and verdict.doubt
    assert is_contained(Permissions("auto", (), (ROOT,)), use("python3 -m pytest; make"))
