"""Trust in folders: bound to what was shown, to a real place, and kept by the user alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sessions.test_project import git, repository
from travois.core.errors import UserError
from travois.sessions.home import TravoisHome
from travois.settings import trust

ROOT = "/somewhere"


@pytest.fixture
def home(tmp_path: Path) -> TravoisHome:
    return TravoisHome(tmp_path / "home").prepare()


def test_a_folder_is_trusted_with_what_was_shown_and_nothing_else(home: TravoisHome) -> None:
    assert trust.trust_status(home, ROOT, ("a", "b")) == "unknown"
    trust.trust_folder(home, ROOT, ("a", "b"))
    found = {
        wanted: trust.trust_status(home, ROOT, wanted)
        for wanted in ((), ("a",), ("b", "a"), ("a", "c"))
    }
    assert found == {(): "trusted", ("a",): "trusted", ("b", "a"): "trusted", ("a", "c"): "changed"}
    assert trust.list_agreed_digests(home, ROOT) == {
        trust.digest_request("a"),
        trust.digest_request("b"),
    }
    assert trust.trust_status(home, "/somewhere/else", ("a",)) == "unknown"


def test_a_refusal_is_remembered_until_something_else_is_asked_for(home: TravoisHome) -> None:
    trust.refuse_requests(home, ROOT, ("a",))
    assert trust.trust_status(home, ROOT, ("a",)) == "refused"
    assert trust.trust_status(home, ROOT, ()) == "unknown"
    assert trust.trust_status(home, ROOT, ("a", "b")) == "unknown"
    assert trust.list_agreed_digests(home, ROOT) == frozenset()
    trust.trust_folder(home, ROOT, ("a",))
    assert trust.trust_status(home, ROOT, ("a",)) == "trusted"


def test_refusing_a_change_leaves_what_was_agreed_to(home: TravoisHome) -> None:
    trust.trust_folder(home, ROOT, ("a",))
    trust.refuse_requests(home, ROOT, ("a", "b"))
    assert trust.trust_status(home, ROOT, ("a", "b")) == "refused"
    assert trust.list_agreed_digests(home, ROOT) == {trust.digest_request("a")}


def test_trust_can_be_taken_back_and_listed(home: TravoisHome) -> None:
    trust.trust_folder(home, "/b", ("x",))
    trust.trust_folder(home, "/a", ())
    assert [(said.path, said.trusted) for said in trust.list_folder_trust(home)] == [
        ("/a", True),
        ("/b", True),
    ]
    trust.remember_answer(home, "/b", "Bash(ls)")
    assert trust.revoke_trust(home, "/b") is True
    assert trust.revoke_trust(home, "/b") is False
    assert trust.trust_status(home, "/b", ("x",)) == "unknown"
    assert trust.list_folder_trust(home) == (
        trust.FolderTrust("/a", trusted=True),
        trust.FolderTrust("/b", allow=("Bash(ls)",)),
    )


def test_what_is_always_allowed_is_kept_once_and_can_be_forgotten(home: TravoisHome) -> None:
    for rule in ("Bash(ls)", "Edit(//a)", "Bash(ls)"):
        trust.remember_answer(home, ROOT, rule)
    assert trust.list_answers(home, ROOT) == ("Bash(ls)", "Edit(//a)")
    assert trust.forget_answer(home, ROOT, "Bash(ls)") is True
    assert trust.forget_answer(home, ROOT, "Bash(ls)") is False
    assert trust.list_answers(home, ROOT) == ("Edit(//a)",)
    assert trust.list_answers(home, "/elsewhere") == ()


def test_only_the_owner_can_read_it(home: TravoisHome) -> None:
    trust.trust_folder(home, ROOT, ("a",))
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (home.path / "trust").iterdir()}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((home.path / "trust").stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"path":"/other","trusted":true}', b"\xff"])
def test_a_damaged_record_trusts_nothing(home: TravoisHome, damage: bytes) -> None:
    trust.trust_folder(home, ROOT, ("a",))
    (record,) = (home.path / "trust").glob("*.json")
    record.write_bytes(damage)
    assert trust.trust_status(home, ROOT, ("a",)) == "unknown"
    assert trust.list_agreed_digests(home, ROOT) == frozenset()


def test_a_home_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(UserError, match="Your answer cannot be saved"):
        trust.trust_folder(TravoisHome(tmp_path / "home"), ROOT, ())


def test_answers_of_many_processes_are_all_kept(home: TravoisHome) -> None:
    code = (
        "import sys; from pathlib import Path; from travois.settings import trust;"
        "from travois.sessions.home import TravoisHome\n"
        "for n in range(20):\n"
        "  home = TravoisHome(Path(sys.argv[1]))\n"
        "  trust.remember_answer(home, '/x', f'Bash(echo {sys.argv[2]}{n})')"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(home.path), name]) for name in "abc"
    ]
    assert [child.wait(300) for child in running] == [0, 0, 0]
    expected = {f"Bash(echo {name}{n})" for name in "abc" for n in range(20)}
    assert set(trust.list_answers(home, "/x")) == expected


def test_trust_is_about_the_repository_or_the_folder(tmp_path: Path) -> None:
    main = repository(tmp_path / "main")
    (main / "src" / "deep").mkdir(parents=True)
    (tmp_path / "plain" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to(main / "src")
    folders = [main, main / "src" / "deep", tmp_path / "link", tmp_path / "plain" / "sub"]
    found = [trust.trust_root(str(folder)) for folder in folders]
    assert found == [str(main), str(main), str(main), str(tmp_path / "plain" / "sub")]


@pytest.mark.parametrize("links", ["absolute", "relative"])
def test_a_worktree_is_part_of_its_main_checkout(tmp_path: Path, links: str) -> None:
    main = repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", str(tmp_path / "tree"))
    if links == "relative":
        back = main / ".git" / "worktrees" / "tree" / "gitdir"
        back.write_text(os.path.relpath(tmp_path / "tree" / ".git", back.parent) + "\n")
        (tmp_path / "tree" / ".git").write_text("gitdir: ../main/.git/worktrees/tree\n")
    assert trust.trust_root(str(tmp_path / "tree")) == str(main)


def forged(kind: str, evil: Path, main: Path) -> None:
    """Make a folder claim to be part of another repository."""
    own = main / ".git" / "worktrees" / "tree"
    match kind:
        case "points at a worktree of it":
            (evil / ".git").write_text(f"gitdir: {own}\n")
        case "points at the repository":
            (evil / ".git").write_text(f"gitdir: {main / '.git'}\n")
        case "has a git folder that names it":
            (evil / ".git").mkdir()
            (evil / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
            (evil / ".git" / "commondir").write_text(f"{main / '.git'}\n")
        case "keeps a worktree of its own making":
            made = evil / "x" / "worktrees" / "tree"
            made.mkdir(parents=True)
            (made / "HEAD").write_text("ref: refs/heads/main\n")
            (made / "commondir").write_text(f"{main / '.git'}\n")
            (made / "gitdir").write_text(f"{evil / '.git'}\n")
            (evil / ".git").write_text(f"gitdir: {made}\n")
        case "links to a worktree's file":
            (evil / ".git").symlink_to(main.parent / "tree" / ".git")
        case _:
            (evil / ".git").symlink_to(main / ".git")


@pytest.mark.parametrize(
    "kind",
    [
        "points at a worktree of it",
        "points at the repository",
        "has a git folder that names it",
        "keeps a worktree of its own making",
        "links to a worktree's file",
        "links to its git folder",
    ],
)
def test_a_folder_that_forges_its_belonging_inherits_no_trust(tmp_path: Path, kind: str) -> None:
    main = repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", str(tmp_path / "tree"))
    evil = tmp_path / "evil"
    evil.mkdir()
    forged(kind, evil, main)
    assert trust.trust_root(str(evil)) not in (
        str(main),
        str(tmp_path / "tree"),
        str(main / ".git"),
    )
