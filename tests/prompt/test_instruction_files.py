"""Instruction files on a real disk: which count, in which order, and which may not be shown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from travois.prompt.instruction_files import InstructionLibrary, InstructionPlaces
from travois.sessions.home import TravoisHome
from travois.settings.load import load_settings


class Disk:
    """A machine with a user, a project and a folder in it."""

    def __init__(self, top: Path) -> None:
        self.top = top.resolve()
        self.cwd = self.top / "code" / "app" / "web"
        self.cwd.mkdir(parents=True)

    def put(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def library(self, **more: Any) -> InstructionLibrary:
        hidden = more.pop("hidden", lambda path: False)
        places = InstructionPlaces(
            str(self.cwd),
            str(self.top / "code" / "app"),
            own=str(self.top / "state"),
            claude=str(self.top / "home" / ".claude"),
            codex=str(self.top / "home" / ".codex"),
            opencode=str(self.top / "home" / ".config" / "opencode"),
            etc=self.top / "etc",
            **more,
        )
        return InstructionLibrary(places, hidden=hidden)

    def names(self, **more: Any) -> list[str]:
        return [self.short(file.path) for file in self.library(**more).load_always().files]

    def short(self, path: str) -> str:
        return os.path.relpath(path, self.top)

    def near(self, *names: str, **more: Any) -> list[tuple[str, str]]:
        paths = [str(self.top / name) for name in names]
        found = self.library(**more).load_for_paths(paths).files
        return [(self.short(file.path), file.reason) for file in found]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_files_count_from_the_machine_to_the_nearest_folder(disk: Disk) -> None:
    names = [
        "etc/claude-code/CLAUDE.md",
        "etc/travois/AGENTS.md",
        "home/.claude/CLAUDE.md",
        "home/.claude/rules/a.md",
        "home/.claude/rules/deep/b.md",
        "home/.codex/AGENTS.md",
        "state/AGENTS.md",
        "code/AGENTS.md",
        "code/app/AGENTS.md",
        "code/app/CLAUDE.md",
        "code/app/.claude/CLAUDE.md",
        "code/app/.claude/rules/style.md",
        "code/app/CLAUDE.local.md",
        "code/app/web/AGENTS.override.md",
        "code/app/web/CLAUDE.md",
    ]
    disk.put({name: f"I am {name}\n" for name in reversed(names)})
    disk.put(
        {
            "code/app/web/AGENTS.md": "overridden",
            "code/app/web/below/AGENTS.md": "below",
            "code/other/AGENTS.md": "beside",
            "code/app/.claude/rules/scoped.md": "---\npaths: src/**\n---\nscoped",
            "code/app/.claude/rules/notes.txt": "not markdown",
        }
    )
    found = disk.library().load_always()
    assert [disk.short(file.path) for file in found.files] == names
    assert [file.text for file in found.files] == [f"I am {name}\n" for name in names]
    kinds = [file.kind for file in found.files]
    assert kinds == ["Managed"] * 2 + ["User"] * 5 + ["Project"] * 5 + ["Local"] + ["Project"] * 2
    assert found.notices == ()


@pytest.mark.parametrize("how", ["link", "import", "copy", "hard link"])
def test_two_names_for_the_same_instructions_count_once(disk: Disk, how: str) -> None:
    disk.put({"code/app/AGENTS.md": "Use tabs.\n"})
    agents, claude = disk.top / "code/app/AGENTS.md", disk.top / "code/app/CLAUDE.md"
    match how:
        case "link":
            claude.symlink_to("AGENTS.md")
        case "import":
            claude.write_text("@AGENTS.md\n")
        case "copy":
            claude.write_bytes(agents.read_bytes())
        case _:
            claude.hardlink_to(agents)
    assert disk.names() == ["code/app/AGENTS.md"]


def test_a_file_that_says_more_than_its_import_counts_too(disk: Disk) -> None:
    disk.put({"code/app/AGENTS.md": "Use tabs.\n", "code/app/CLAUDE.md": "@AGENTS.md\nAnd me.\n"})
    assert disk.names() == ["code/app/AGENTS.md", "code/app/CLAUDE.md"]


def test_imports_are_followed_four_times_and_never_in_a_circle(disk: Disk) -> None:
    chain = {f"code/app/{n}.md": f"file {n}, see @{n + 1}.md." for n in range(1, 7)}
    disk.put({"code/app/AGENTS.md": "start, see @docs/../1.md and @AGENTS.md", **chain})
    disk.put({"code/app/docs/x": ""})
    assert disk.names() == ["code/app/AGENTS.md", *(f"code/app/{n}.md" for n in range(1, 5))]
    disk.put({"code/app/1.md": "one, back to @2.md", "code/app/2.md": "two, back to @1.md"})
    assert disk.names() == ["code/app/AGENTS.md", "code/app/1.md", "code/app/2.md"]


def test_what_is_no_file_is_no_import(disk: Disk) -> None:
    text = "Ask @someone, or me@AGENTS.md about `@in.md` in @web or @no.md.\n```\n@in.md\n```\n"
    disk.put({"code/app/AGENTS.md": text, "code/app/in.md": "not wanted"})
    found = disk.library().load_always()
    assert ([disk.short(f.path) for f in found.files], found.notices) == (
        ["code/app/AGENTS.md"],
        (),
    )


@pytest.mark.parametrize("how", ["import", "absolute import", "link", "linked rule"])
def test_a_project_leads_out_of_its_folder_only_when_it_is_trusted(disk: Disk, how: str) -> None:
    disk.put({"home/.ssh/key": "secret\n", "code/app/x": ""})
    key = disk.top / "home/.ssh/key"
    match how:
        case "import":
            disk.put({"code/app/AGENTS.md": "read @../../home/.ssh/key"})
        case "absolute import":
            disk.put({"code/app/AGENTS.md": f"read @{key}"})
        case "link":
            (disk.top / "code/app/AGENTS.md").symlink_to(key)
        case _:
            (disk.top / "code/app/.claude/rules").mkdir(parents=True)
            (disk.top / "code/app/.claude/rules/key.md").symlink_to(key)
    found = disk.library().load_always()
    assert [file.path for file in found.files if "secret" in file.text] == []
    (notice,) = found.notices
    assert "`travois trust` would allow" in notice
    trusted = disk.library(trusted=True).load_always()
    assert [file.text for file in trusted.files][-1] == "secret\n"
    hidden = disk.library(trusted=True, hidden=lambda path: ".ssh" in path).load_always()
    assert [file.path for file in hidden.files if "secret" in file.text] == []


def test_a_link_that_was_put_there_after_the_check_is_not_followed(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.put({"home/.ssh/AGENTS.md": "secret\n", "code/app/AGENTS.md": "fine\n"})
    app, real = disk.top / "code/app", os.path.realpath

    def late(path: str) -> str:
        found = real(path)
        if path == str(app / "AGENTS.md") and not app.is_symlink():
            app.rename(disk.top / "code/was")
            app.symlink_to(disk.top / "home/.ssh")
        return found

    monkeypatch.setattr(os.path, "realpath", late)
    found = disk.library().load_always()
    assert found.files == ()
    (notice,) = found.notices
    assert notice.startswith(f"{app}/AGENTS.md is ignored: ")


def test_the_users_own_files_may_import_from_anywhere(disk: Disk) -> None:
    disk.put({"home/notes/all.md": "All.\n", "home/.claude/CLAUDE.md": "@../notes/all.md"})
    assert disk.names() == ["home/notes/all.md"]


def test_a_home_that_is_above_the_project_is_read_once_and_as_the_users(disk: Disk) -> None:
    disk.put({"code/.claude/CLAUDE.md": "Mine.\n"})
    library = InstructionLibrary(
        InstructionPlaces(str(disk.cwd), str(disk.cwd), claude=str(disk.top / "code/.claude")),
        hidden=lambda path: False,
    )
    found = [file for file in library.load_always().files if file.path.startswith(str(disk.top))]
    assert [(disk.short(file.path), file.kind) for file in found] == [
        ("code/.claude/CLAUDE.md", "User")
    ]


def test_what_cannot_be_shown_is_told(disk: Disk) -> None:
    disk.put({"code/app/CLAUDE.local.md": "fine\n", "code/app/AGENTS.md": "x" * (4 << 20) + "y"})
    (disk.top / "code/app/CLAUDE.md").write_bytes(b"\0\1")
    os.mkfifo(disk.cwd / "AGENTS.md")
    found = disk.library().load_always()
    assert [disk.short(file.path) for file in found.files] == ["code/app/CLAUDE.local.md"]
    app = disk.top / "code/app"
    assert found.notices == (
        f"{app}/AGENTS.md is ignored: it has 4,194,305 bytes (limit 4,194,304)",
        f"{app}/CLAUDE.md is ignored: it is a binary file",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_strangers_file_above_the_project_is_not_followed(disk: Disk) -> None:
    disk.put({"code/AGENTS.md": "obey\n", "code/app/AGENTS.md": "shared\n"})
    os.chown(disk.top / "code/AGENTS.md", 12345, 12345)
    os.chown(disk.top / "code/app/AGENTS.md", 12345, 12345)
    found = disk.library().load_always()
    assert [disk.short(file.path) for file in found.files] == ["code/app/AGENTS.md"]
    (notice,) = found.notices
    assert notice.endswith("it is above the project and belongs to another user")


def test_excluded_files_are_left_out_unless_the_machine_asks_for_them(disk: Disk) -> None:
    disk.put({name: name for name in ("etc/claude-code/CLAUDE.md", "code/app/CLAUDE.md")})
    disk.put({"code/app/AGENTS.md": "stays"})
    assert disk.names(excluded=("**/CLAUDE.md",)) == [
        "etc/claude-code/CLAUDE.md",
        "code/app/AGENTS.md",
    ]
    assert disk.names(excluded=(f"{disk.top}/code/**",)) == ["etc/claude-code/CLAUDE.md"]


def test_only_the_levels_that_are_wanted_count(disk: Disk) -> None:
    names = ("etc/travois/AGENTS.md", "state/AGENTS.md", "code/app/AGENTS.md")
    disk.put(
        {name: name for name in (*names, "code/app/CLAUDE.local.md", "code/app/web/a/AGENTS.md")}
    )
    disk.put({"code/app/web/a/x.py": ""})
    assert disk.names(levels=("user",)) == ["etc/travois/AGENTS.md", "state/AGENTS.md"]
    assert disk.names(levels=("project",)) == ["etc/travois/AGENTS.md", "code/app/AGENTS.md"]
    assert disk.near("code/app/web/a/x.py", levels=("user",)) == []


def test_files_below_count_once_something_there_is_touched(disk: Disk) -> None:
    disk.put(
        {
            "code/app/AGENTS.md": "top",
            "code/app/web/a/AGENTS.md": "a",
            "code/app/web/a/b/CLAUDE.md": "b, see @more.md",
            "code/app/web/a/b/more.md": "more",
            "code/app/web/a/b/x.py": "",
            "code/app/web/node_modules/dep/AGENTS.md": "not ours",
            "code/app/web/node_modules/dep/x.js": "",
            "code/app/api/AGENTS.md": "api",
            "code/app/api/x.py": "",
            "code/beside/AGENTS.md": "outside",
            "code/beside/x.py": "",
        }
    )
    assert disk.near("code/app/web/a/b/x.py") == [
        ("code/app/web/a/AGENTS.md", "nested_traversal"),
        ("code/app/web/a/b/CLAUDE.md", "nested_traversal"),
        ("code/app/web/a/b/more.md", "include"),
    ]
    assert disk.near("code/app/api/x.py") == [("code/app/api/AGENTS.md", "nested_traversal")]
    assert disk.near("code/app/web/node_modules/dep/x.js", "code/beside/x.py") == []
    assert disk.near("code/app/web/a") == []
    beside = (str(disk.top / "code/beside"),)
    assert disk.near("code/beside/x.py", folders=beside) == [
        ("code/beside/AGENTS.md", "nested_traversal")
    ]


def test_rules_for_some_files_count_once_one_of_them_is_touched(disk: Disk) -> None:
    disk.put(
        {
            "code/app/.claude/rules/ts.md": '---\npaths:\n  - "web/**/*.{ts,tsx}"\n---\nts',
            "code/app/web/.claude/rules/md.md": "---\npaths: *.md, docs/**\n---\nmd",
            "home/.claude/rules/py.md": '---\npaths: ["**/*.py"]\n---\npy',
            "code/app/web/src/a.tsx": "",
            "code/app/web/README.md": "",
            "code/app/web/src/README.md": "",
            "code/app/tool.py": "",
        }
    )
    assert disk.names() == []
    ts = ("code/app/.claude/rules/ts.md", "path_glob_match")
    md = ("code/app/web/.claude/rules/md.md", "path_glob_match")
    assert disk.near("code/app/web/src/a.tsx") == [ts]
    assert disk.near("code/app/web/README.md") == [md]
    assert disk.near("code/app/web/src/README.md") == []
    assert disk.near("code/app/tool.py") == [("home/.claude/rules/py.md", "path_glob_match")]


def test_a_person_has_instructions_for_each_agent_and_may_put_others_in_their_place(
    disk: Disk,
) -> None:
    kept = ("home/.codex/AGENTS.override.md", "home/.config/opencode/AGENTS.md", "state/AGENTS.md")
    disk.put({name: name for name in (*kept, "home/.codex/AGENTS.md")})
    assert disk.names() == list(kept)


def test_an_administrator_may_say_it_in_settings_and_a_project_may_not(disk: Disk) -> None:
    disk.put({"code/app/AGENTS.md": "ours", "etc/travois/AGENTS.md": "the machine's"})
    disk.put({"etc/claude-code/managed-settings.json": '{"claudeMd": "Be kind."}'})
    disk.put({"code/app/.claude/settings.json": '{"claudeMd": "Obey."}'})
    root, etc = str(disk.top / "code/app"), disk.top / "etc"
    loaded = load_settings(TravoisHome(disk.top / "state"), root, environ={}, etc=etc)
    said = (loaded.origin("claudeMd"), loaded.settings.claude_md)
    found = disk.library(said=said).load_always()
    assert "claudeMd (line 1) is ignored: workspace settings may not set it" in (
        "".join(loaded.notices)
    )
    assert [(file.kind, file.text) for file in found.files] == [
        ("Managed", "the machine's"),
        ("Managed", "Be kind."),
        ("Project", "ours"),
    ]


def test_files_of_yet_other_agents_count_once_settings_name_them(disk: Disk) -> None:
    plain = ("GEMINI.md", ".goosehints", ".clinerules/a.md", ".cursor/rules/all.mdc")
    disk.put({f"code/app/{name}": name for name in plain})
    scoped = {
        "code/app/.cursor/rules/ts.mdc": "---\nglobs: web/**/*.ts\nalwaysApply: false\n---\nts",
        "code/app/.github/instructions/py.instructions.md": '---\napplyTo: "**/*.py"\n---\npy',
    }
    disk.put({**scoped, "code/app/web/a.ts": "", "code/app/web/a.py": "", "code/app/web/a.c": ""})
    assert disk.names() == []
    more = (*plain[:2], ".clinerules/*", ".cursor/rules/*.mdc", ".github/instructions/*.md")
    assert disk.names(more=more) == [f"code/app/{name}" for name in plain]
    ts, py = scoped
    touched = ("code/app/web/a.ts", "code/app/web/a.py", "code/app/web/a.c")
    near = [disk.near(name, more=more) for name in touched]
    assert near == [[(ts, "path_glob_match")], [(py, "path_glob_match")], []]


def test_rules_behind_links_in_a_circle_are_found_once(disk: Disk) -> None:
    disk.put({"code/app/.claude/rules/a.md": "a"})
    (disk.top / "code/app/.claude/rules/again").symlink_to(".")
    assert disk.names() == ["code/app/.claude/rules/a.md"]


def test_what_counted_before_is_read_again_by_its_path(disk: Disk) -> None:
    disk.put({"code/app/AGENTS.md": "top", "code/app/web/a/AGENTS.md": "first"})
    below, gone = str(disk.top / "code/app/web/a/AGENTS.md"), str(disk.top / "gone.md")
    disk.put({"code/app/web/a/AGENTS.md": "second"})
    found = disk.library().load_always({below: "Project", gone: "Local"})
    assert [file.text for file in found.files] == ["top", "second"]
