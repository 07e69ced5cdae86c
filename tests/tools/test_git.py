"""The git tools, on real repositories, friendly and hostile."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tools.local import Local
from travois.core.tokens import estimate_tokens
from travois.permissions.access import Access
from travois.ports.tool import ToolError
from travois.tools import git
from travois.tools.git import GIT_BLAME, GIT_DIFF, GIT_LOG, GIT_SHOW, GIT_STATUS

WHO = {
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_AUTHOR_DATE": "2024-05-06T07:08:09Z",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
    "GIT_COMMITTER_DATE": "2024-05-06T07:08:09Z",
}


class Repo(Local):
    """A world whose workspace is a repository."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str, status: int = 0) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.root, env=os.environ | WHO, capture_output=True, text=True
        )
        assert done.returncode == status, done.stderr
        return done.stdout.strip()

    def commit(self, subject: str, **files: str) -> str:
        for name, text in files.items():
            self.write(name.replace("_", "."), text)
        self.git("add", "-A")
        self.git("commit", "-qm", subject)
        return self.git("rev-parse", "--short", "HEAD")


@pytest.fixture(autouse=True)
def _own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of whoever runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path)


# --- GitStatus ------------------------------------------------------------------------------------


def test_outside_a_repository_every_tool_says_so(tmp_path: Path):
    world = Local(tmp_path)
    calls = [
        (GIT_STATUS, {}),
        (GIT_DIFF, {}),
        (GIT_LOG, {}),
        (GIT_SHOW, {"rev": "x"}),
        (GIT_BLAME, {"path": "x"}),
    ]
    for tool, args in calls:
        with pytest.raises(ToolError) as refused:
            world.run(tool, **args)
        assert str(refused.value) == f"{world.root} is not inside a git repository."


def test_a_repository_without_commits_has_a_status(repo: Repo):
    assert repo.say(GIT_STATUS) == "on main (no commit yet)\nclean"
    repo.write("a.txt", "one\n")
    assert repo.say(GIT_STATUS) == "on main (no commit yet)\n?? a.txt"
    assert repo.say(GIT_DIFF) == "No changes (untracked files aside)."
    assert repo.say(GIT_DIFF, staged=True) == "Nothing is staged."
    with pytest.raises(
        ToolError, match="git: your current branch 'main' does not have any commits"
    ):
        repo.run(GIT_LOG)


def test_status_is_short(repo: Repo):
    repo.commit("first", a_txt="one\n", b_txt="two\n", c_txt="three\n")
    first = repo.git("rev-parse", "--short=8", "HEAD")
    repo.write("a.txt", "ONE\n")
    repo.git("add", "a.txt")
    repo.write("a.txt", "one!\n")
    repo.git("mv", "b.txt", "moved.txt")
    repo.git("rm", "-q", "c.txt")
    repo.write("new/x", "")
    assert repo.say(GIT_STATUS) == (
        f"on main ({first})\nMM a.txt\nD  c.txt\nR  b.txt -> moved.txt\n?? new/"
    )


def test_status_tells_where_the_branch_stands(repo: Repo, tmp_path: Path):
    repo.commit("first", a_txt="1\n")
    repo.git("clone", "-q", "--bare", ".", str(tmp_path / "origin"))
    repo.git("remote", "add", "origin", str(tmp_path / "origin"))
    repo.git("fetch", "-q")
    repo.git("branch", "-q", "-u", "origin/main")
    head = repo.git("rev-parse", "--short=8", "HEAD")
    assert repo.say(GIT_STATUS) == f"on main ({head}), up to date with origin/main\nclean"
    repo.commit("second", a_txt="2\n")
    repo.write("a.txt", "3\n")
    repo.git("stash", "-q")
    head = repo.git("rev-parse", "--short=8", "HEAD")
    assert repo.say(GIT_STATUS) == (
        f"on main ({head}), ahead 1, behind 0 of origin/main, 1 stashed\nclean"
    )
    repo.git("checkout", "-q", "--detach")
    assert repo.say(GIT_STATUS) == f"detached at {head}, 1 stashed\nclean"


def test_status_tells_of_an_upstream_that_is_gone(repo: Repo, tmp_path: Path):
    repo.commit("first", a_txt="1\n")
    repo.git("config", "branch.main.remote", "origin")
    repo.git("config", "branch.main.merge", "refs/heads/gone")
    repo.git("remote", "add", "origin", str(tmp_path / "nowhere"))
    head = repo.git("rev-parse", "--short=8", "HEAD")
    assert repo.say(GIT_STATUS) == f"on main ({head}), upstream origin/gone is gone\nclean"


def conflict(repo: Repo) -> None:
    repo.commit("first", a_txt="one\n")
    repo.git("checkout", "-qb", "side")
    repo.commit("side", a_txt="theirs\n")
    repo.git("checkout", "-q", "main")
    repo.commit("main", a_txt="ours\n")
    repo.git("merge", "-q", "side", status=1)


def test_a_conflict_is_shown_with_what_it_interrupts(repo: Repo):
    conflict(repo)
    head = repo.git("rev-parse", "--short=8", "HEAD")
    assert repo.say(GIT_STATUS) == f"on main ({head})\nmerge in progress\nUU a.txt"
    assert repo.say(GIT_DIFF).splitlines()[-5:] == [
        "++<<<<<<< HEAD",
        " +ours",
        "++=======",
        "+ theirs",
        "++>>>>>>> side",
    ]


def test_odd_names_stand_on_one_line_each(repo: Repo):
    for name in ("sp ace", "line\nbreak", "ünï", "-dash", 'quo"te', "tab\tbed"):
        repo.write(name, "x\n")
    names = ["-dash", "line\\nbreak", 'quo"te', "sp ace", "tab\\tbed", "ünï"]
    assert repo.say(GIT_STATUS).splitlines()[1:] == [f"?? {name}" for name in names]
    repo.commit("odd")
    assert repo.say(GIT_SHOW, rev="HEAD", path="line\nbreak") == "x"
    assert repo.say(GIT_BLAME, path="-dash").splitlines()[1:] == ["1 x"]
    repo.git("mv", "sp ace", "sp  ace\n2")
    assert repo.say(GIT_STATUS).splitlines()[1:] == ["R  sp ace -> sp  ace\\n2"]


def test_a_long_status_is_cut(repo: Repo):
    for number in range(230):
        repo.write(f"f{number:03}", "")
    lines = repo.say(GIT_STATUS).splitlines()
    assert lines[1:3] == ["?? f000", "?? f001"]
    assert lines[-1] == "(and 30 more; list a part with Bash: git status FOLDER)"
    assert len(lines) == 1 + git.MAX_STATUS_PATHS + 1


def test_in_a_subfolder_paths_are_said_to_begin_at_the_top(repo: Repo):
    repo.write("sub/a.txt", "x\n")
    repo.cwd = f"{repo.root}/sub"
    assert repo.say(GIT_STATUS) == (
        f"on main (no commit yet)\n?? sub/\n(paths are relative to {repo.root})"
    )


def test_a_workspace_behind_a_link_works_as_any_other(repo: Repo, tmp_path: Path):
    repo.commit("first", a_txt="one\n")
    (tmp_path / "link").symlink_to(repo.root)
    repo.cwd = repo.root = str(tmp_path / "link")
    repo.write("a.txt", "two\n")
    assert repo.say(GIT_DIFF, paths=["a.txt", "."]).splitlines()[-2:] == ["-one", "+two"]
    assert repo.say(GIT_SHOW, rev="HEAD", path="a.txt") == "one"
    assert repo.say(GIT_BLAME, path=f"{repo.root}/a.txt").splitlines() == [
        "(not committed yet)",
        "1 two",
    ]


# --- GitDiff --------------------------------------------------------------------------------------


def test_diff_shows_what_is_unstaged_staged_or_since_a_commit(repo: Repo):
    first = repo.commit("first", a_txt="one\n")
    repo.write("a.txt", "two\n")
    repo.git("add", "a.txt")
    repo.write("a.txt", "three\n")

    def changed(**args: object) -> list[str]:
        return repo.say(GIT_DIFF, **args).splitlines()[-2:]

    assert changed() == ["-two", "+three"]
    assert changed(staged=True) == ["-one", "+two"]
    assert changed(commit="HEAD") == ["-one", "+three"]
    second = repo.commit("second", a_txt="four\n")
    assert changed(commit=f"{first}..{second}") == ["-one", "+four"]
    assert repo.say(GIT_DIFF, commit=first, stat=True).splitlines() == [
        " a.txt | 2 +-",
        " 1 file changed, 1 insertion(+), 1 deletion(-)",
    ]


def test_diff_narrows_to_paths_taken_literally(repo: Repo):
    repo.commit("first", a_txt="one\n", b_txt="one\n")
    repo.write("a.txt", "two\n")
    repo.write("b.txt", "two\n")
    assert repo.say(GIT_DIFF, paths=["b.txt"]).splitlines()[0] == "diff --git a/b.txt b/b.txt"
    assert repo.say(GIT_DIFF, paths=["*.txt"]) == "No changes (untracked files aside)."
    assert repo.say(GIT_DIFF, paths=[":(exclude)b.txt"]) == "No changes (untracked files aside)."


def test_diff_compares_nothing_outside_the_repository(repo: Repo, tmp_path: Path):
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "other").write_text("other\n")
    outside = [str(tmp_path / "secret"), "../other"]
    with pytest.raises(ToolError) as refused:
        repo.run(GIT_DIFF, paths=outside)
    assert str(refused.value) == f"{outside[0]} is outside the repository at {repo.root}."
    assert Access("read", str(tmp_path / "other")) in repo.access(GIT_DIFF, paths=outside)


def test_a_large_diff_is_bounded_and_kept_whole(repo: Repo):
    repo.commit("first", a_txt="")
    repo.write("a.txt", "".join(f"line {n}\n" for n in range(50_000)))
    shown = repo.say(GIT_DIFF)
    assert 0.8 * 8_000 < estimate_tokens(shown) <= 8_000
    note = re.fullmatch(
        r"\([\d,]+ of 50,005 lines; stat=true lists files, paths narrows; full output: Read (.*)\)",
        shown.splitlines()[-1],
    )
    assert note
    assert Path(note[1]).read_text().splitlines()[-1] == "+line 49999"


def test_a_long_line_is_cut_and_kept_whole(repo: Repo):
    repo.commit("first", a_txt="")
    repo.write("a.txt", "x" * 10_000 + "\n")
    line, note = repo.say(GIT_DIFF).splitlines()[-2:]
    assert (
        line
        == f"+{'x' * (git.MAX_GIT_LINE_CHARS - 1)}… (+{10_001 - git.MAX_GIT_LINE_CHARS} characters)"
    )
    assert "full output: Read " in note


# --- GitLog, GitShow, GitBlame --------------------------------------------------------------------


def test_log_is_one_line_a_commit(repo: Repo):
    first = repo.commit("first", a_txt="1\n")
    second = repo.commit("Second: über", a_txt="2\n", b_txt="x\n")
    third = repo.commit("third", a_txt="3\n")
    lines = [
        f"{third} 2024-05-06 Ann: (HEAD -> main) third",
        f"{second} 2024-05-06 Ann: Second: über",
        f"{first} 2024-05-06 Ann: first",
    ]
    assert repo.say(GIT_LOG).splitlines() == lines
    assert repo.say(GIT_LOG, n=1).splitlines() == [lines[0], f"(older commits: rev={second})"]
    assert repo.say(GIT_LOG, rev="HEAD~1").splitlines() == lines[1:]
    assert repo.say(GIT_LOG, path="b.txt").splitlines() == lines[1:2]
    assert repo.say(GIT_LOG, grep="SECOND").splitlines() == lines[1:2]
    assert repo.say(GIT_LOG, author="ann").splitlines() == lines
    assert repo.say(GIT_LOG, author="bob") == "No commit matches."


def test_show_gives_a_commit_or_a_file_as_it_was(repo: Repo):
    first = repo.commit("first\n\nwith a body", a_txt="one\n")
    repo.commit("second", a_txt="two\n")
    assert repo.say(GIT_SHOW, rev="HEAD~1").splitlines() == [
        f"{first} 2024-05-06 07:08:09 +0000 Ann <ann@example.org>",
        "",
        "first",
        "",
        "with a body",
        "",
        "---",
        " a.txt | 1 +",
        " 1 file changed, 1 insertion(+)",
        "",
        "diff --git a/a.txt b/a.txt",
        "new file mode 100644",
        "index 0000000..5626abf",
        "--- /dev/null",
        "+++ b/a.txt",
        "@@ -0,0 +1 @@",
        "+one",
    ]
    assert repo.say(GIT_SHOW, rev=first, path="a.txt") == "one"
    assert repo.say(GIT_SHOW, rev=first, path=f"{repo.root}/a.txt") == "one"
    repo.write("sub/x", "")
    repo.cwd = f"{repo.root}/sub"
    assert repo.say(GIT_SHOW, rev=first, path="../a.txt") == "one"


def test_show_says_what_it_cannot_show(repo: Repo):
    repo.write("data.bin", b"a\0b")
    repo.write("empty", b"")
    repo.commit("binary")
    for args, words in (
        ({"path": "gone.txt"}, "git: path 'gone.txt' does not exist in 'HEAD'"),
        ({"path": "data.bin"}, r"HEAD:./data.bin is binary \(3 bytes\); only text is shown."),
        ({"rev": "nope"}, "git: bad revision 'nope'"),
        ({"rev": "HEAD\0"}, "The arguments contain a NUL character; remove it."),
        ({"path": "../outside"}, "../outside is outside the repository at .*"),
    ):
        with pytest.raises(ToolError) as refused:
            repo.run(GIT_SHOW, **({"rev": "HEAD"} | args))
        assert re.fullmatch(words, str(refused.value))
    assert repo.say(GIT_SHOW, rev="HEAD", path="empty") == "HEAD:./empty is empty."


def test_blame_names_each_commit_once_above_its_lines(repo: Repo):
    repo.commit("first", a_txt="one\ntwo\nthree\n")
    repo.commit("second", a_txt="one\nTWO\nthree\n")
    repo.write("a.txt", "one\nTWO\nthree\nfour\n")
    first, second = (repo.git("rev-parse", "--short=8", rev) for rev in ("HEAD~1", "HEAD"))
    assert repo.say(GIT_BLAME, path="a.txt").splitlines() == [
        f"{first} 2024-05-06 Ann: first",
        "1 one",
        f"{second} 2024-05-06 Ann: second",
        "2 TWO",
        f"{first} 2024-05-06 Ann: first",
        "3 three",
        "(not committed yet)",
        "4 four",
    ]
    assert repo.say(GIT_BLAME, path="a.txt", start=2, end=2).splitlines()[1:] == ["2 TWO"]
    with pytest.raises(ToolError, match="has only 4 lines"):
        repo.run(GIT_BLAME, path="a.txt", start=9)
    with pytest.raises(ToolError, match="no such path 'gone' in HEAD"):
        repo.run(GIT_BLAME, path="gone")


@pytest.mark.parametrize("option", ["--output=stolen", "-O./evil", "--ext-diff", "-p"])
def test_a_revision_is_never_an_option(repo: Repo, option: str):
    repo.commit("first", a_txt="1\n")
    for tool, args in (
        (GIT_DIFF, {"commit": option}),
        (GIT_LOG, {"rev": option}),
        (GIT_SHOW, {"rev": option}),
    ):
        with pytest.raises(ToolError, match="is an option, not a revision"):
            repo.run(tool, **args)
    assert sorted(os.listdir(repo.root)) == [".git", "a.txt"]


def test_reading_is_all_that_git_tools_ask_for(repo: Repo):
    root = Access("read", repo.root)
    assert repo.access(GIT_STATUS) == (root,)
    assert repo.access(GIT_DIFF, paths=["a"]) == (root, Access("read", f"{repo.root}/a"))
    assert repo.access(GIT_BLAME, path="/etc/x") == (root, Access("read", "/etc/x"))
    repo.cwd = "/elsewhere"
    assert repo.access(GIT_LOG) == (root, Access("read", "/elsewhere"))


# --- repositories that would like to run something ------------------------------------------------

Trap = Callable[[Repo, str], None]
"""Makes a repository run a program (its command line is given) whenever it is looked at."""


def monitor(repo: Repo, program: str) -> None:
    repo.git("config", "core.fsmonitor", program)


def hooks(repo: Repo, program: str) -> None:
    folder = Path(repo.root, ".git/hooks")
    for name in ("post-index-change", "fsmonitor-watchman", "post-checkout"):
        shutil.copy(program, folder / name)


def moved_hooks(repo: Repo, program: str) -> None:
    hooks(repo, program)
    repo.git("config", "core.hooksPath", ".git/hooks")


def external_diff(repo: Repo, program: str) -> None:
    repo.git("config", "diff.external", program)
    repo.git("config", "diff.trap.command", program)
    repo.write(".gitattributes", "*.txt diff=trap\n")


def text_conversion(repo: Repo, program: str) -> None:
    repo.git("config", "diff.trap.textconv", program)
    repo.write(".gitattributes", "*.txt diff=trap\n")


def clean_filter(repo: Repo, program: str) -> None:
    repo.git("config", "filter.tr=ap.x.clean", program)
    repo.git("config", "filter.tr=ap.x.required", "true")
    repo.write(".git/info/attributes", "*.txt filter=tr=ap.x\n")


def process_filter(repo: Repo, program: str) -> None:
    repo.write(".git/evil", f'[filter "trap"]\n\tprocess = {program}\n\tsmudge = {program}\n')
    repo.git("config", "include.path", "evil")
    repo.write(".gitattributes", "*.txt filter=trap\n")


def pagers(repo: Repo, program: str) -> None:
    for name in ("core.pager", "pager.diff", "pager.log", "pager.show", "pager.status"):
        repo.git("config", name, program)


def aliases(repo: Repo, program: str) -> None:
    for name in ("status", "diff", "log", "show", "blame", "rev-parse"):
        repo.git("config", f"alias.{name}", f"!{program}")


def signatures(repo: Repo, program: str) -> None:
    repo.git("config", "log.showSignature", "true")
    repo.git("config", "gpg.program", program)
    commit = repo.git("cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n", 1
    )
    repo.write(".git/signed", commit + "\n")
    signed = repo.git("hash-object", "-t", "commit", "-w", ".git/signed")
    repo.git("update-ref", "HEAD", signed)


def missing_objects(repo: Repo, program: str) -> None:
    """A partial clone that would fetch what is missing through a program of its choice."""
    repo.git("config", "remote.origin.url", f"ext::{program}")
    repo.git("config", "remote.origin.promisor", "true")
    repo.git("config", "remote.origin.uploadpack", program)
    repo.git("config", "extensions.partialClone", "origin")
    repo.git("config", "core.repositoryFormatVersion", "1")
    repo.git("config", "protocol.ext.allow", "always")
    repo.git("config", "protocol.allow", "always")
    blob = repo.git("rev-parse", "HEAD:a.txt")
    Path(repo.root, ".git/objects", blob[:2], blob[2:]).unlink()


def submodule(repo: Repo, program: str) -> None:
    inner = Path(repo.root, "inner")
    inner.mkdir()
    where = {"cwd": inner, "env": os.environ | WHO, "check": True}
    subprocess.run(["git", "init", "-q"], **where)
    (inner / "a.txt").write_text("x\n")
    subprocess.run(["git", "add", "a.txt"], **where)
    subprocess.run(["git", "commit", "-qm", "inner"], **where)
    repo.git("-c", "advice.addEmbeddedRepo=false", "add", "inner")
    repo.git("commit", "-qm", "outer")
    (inner / "a.txt").write_text("y\n")
    (inner / ".git/info/attributes").write_text("*.txt filter=trap\n")
    subprocess.run(["git", "config", "filter.trap.clean", program], **where)
    repo.git("config", "diff.submodule", "diff")


TRAPS: list[Trap] = [
    monitor,
    hooks,
    moved_hooks,
    external_diff,
    text_conversion,
    clean_filter,
    process_filter,
    pagers,
    aliases,
    signatures,
    missing_objects,
    submodule,
]


def look(repo: Repo) -> list[str]:
    """Use every tool in every way that could spring a trap; returns what was refused."""
    outcomes = repo.each(
        (GIT_STATUS, {}),
        (GIT_DIFF, {}),
        (GIT_DIFF, {"staged": True}),
        (GIT_DIFF, {"commit": "HEAD"}),
        (GIT_DIFF, {"commit": "HEAD~1..HEAD", "stat": True}),
        (GIT_LOG, {"path": "a.txt"}),
        (GIT_SHOW, {"rev": "HEAD"}),
        (GIT_SHOW, {"rev": "HEAD~1", "path": "a.txt"}),
        (GIT_BLAME, {"path": "a.txt"}),
    )
    return [str(outcome) for outcome in outcomes if isinstance(outcome, ToolError)]


def trapped(repo: Repo, trap: Trap, tmp_path: Path) -> Path:
    """Set the trap; returns the file that it leaves when it is sprung."""
    program, canary = tmp_path / "evil", tmp_path / "sprung"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {canary}\nexit 1\n')
    program.chmod(0o755)
    repo.commit("first", a_txt="one\n")
    repo.commit("second", a_txt="two\n")
    trap(repo, str(program))
    repo.write("a.txt", "changed\n")
    return canary


@pytest.mark.parametrize("trap", TRAPS)
def test_looking_at_a_hostile_repository_runs_nothing_of_it(repo: Repo, trap: Trap, tmp_path: Path):
    canary = trapped(repo, trap, tmp_path)
    refused = look(repo)
    assert not canary.exists(), canary.read_text()
    partial = [words for words in refused if words.endswith("fetch the missing objects with Bash)")]
    assert refused == partial
    assert bool(refused) == (trap is missing_objects)


@pytest.mark.parametrize("trap", [t for t in TRAPS if t not in (aliases, hooks, pagers)])
def test_the_traps_are_real(repo: Repo, trap: Trap, tmp_path: Path):
    canary = trapped(repo, trap, tmp_path)
    for words in ("status", "diff", "show", "blame a.txt", "show HEAD:a.txt", "log -p"):
        subprocess.run(["git", *words.split()], cwd=repo.root, capture_output=True, check=False)
    assert canary.exists()


def test_filters_that_were_not_run_are_named(repo: Repo, tmp_path: Path):
    trapped(repo, clean_filter, tmp_path)
    assert repo.say(GIT_STATUS).splitlines()[-1] == (
        "(filters of this repository not run: tr=ap.x)"
    )


def test_filters_that_the_user_set_up_are_run(repo: Repo, tmp_path: Path):
    (tmp_path / ".gitconfig").write_text('[filter "upper"]\n\tclean = tr a-z A-Z\n')
    repo.write(".gitattributes", "*.txt filter=upper\n")
    repo.commit("first", a_txt="one\n")
    repo.write("a.txt", "two\n")
    assert repo.say(GIT_DIFF).splitlines()[-2:] == ["-ONE", "+TWO"]


def test_a_repository_that_claims_files_elsewhere_is_not_read(repo: Repo, tmp_path: Path):
    (tmp_path / "secret").write_text("secret\n")
    repo.commit("first", a_txt="one\n")
    repo.git("config", "core.worktree", str(tmp_path))
    with pytest.raises(ToolError, match="point at files in"):
        repo.run(GIT_DIFF)


def test_a_bare_repository_hidden_in_the_workspace_is_not_entered(repo: Repo, tmp_path: Path):
    canary = tmp_path / "sprung"
    repo.git("init", "-q", "--bare", "docs")
    repo.git("-C", "docs", "config", "core.bare", "false")
    repo.git("-C", "docs", "config", "core.worktree", ".")
    repo.git("-C", "docs", "config", "core.fsmonitor", f"touch {canary}; false")
    repo.cwd = f"{repo.root}/docs"
    with pytest.raises(ToolError, match="bare repository"):
        repo.run(GIT_STATUS)
    assert not canary.exists()


def test_looking_changes_nothing_but_what_the_index_knows_of_times(repo: Repo):
    def held() -> dict[str, bytes]:
        files = [path for path in Path(repo.root).rglob("*") if path.is_file()]
        kept = {str(path): path.read_bytes() for path in files if path.name != "index"}
        return kept | {"index": repo.git("ls-files", "--stage").encode()}

    repo.commit("first", a_txt="one\n")
    repo.commit("second", a_txt="two\n")
    os.utime(Path(repo.root, "a.txt"), (1, 1))
    before = held()
    assert look(repo) == []
    assert held() == before
