"""Which language servers a session has, and which of them a project brings along."""

from __future__ import annotations

from pathlib import Path

import pytest

from travois.compose.lsp import NO_SANDBOX_REASON, NOT_TRUSTED_REASON, find_usable_servers
from travois.lsp.discovery import find_language_servers
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.load import load_settings
from travois.settings.schema import LanguageServerSettings, LoadedSettings, LspSettings


def install(folder: Path, name: str = "pyright-langserver") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return str(folder / name)


def test_known_servers_are_found_on_the_path_and_in_the_project(tmp_path: Path) -> None:
    root, bin_folder = tmp_path / "work", tmp_path / "bin"
    installed = install(bin_folder)
    own = install(root / "node_modules" / ".bin")
    found = find_language_servers(LspSettings(), {"PATH": f"{bin_folder}:relative"}, root=str(root))
    assert [(one.name, one.argv, one.origin) for one in found] == [
        ("pyright", (own, "--stdio"), "project"),
        ("pyright", (installed, "--stdio"), "path"),
    ]
    assert find_language_servers(LspSettings(enabled=False), {"PATH": ""}, root=str(root)) == ()


def test_a_path_that_leads_into_the_project_is_the_projects_own(tmp_path: Path) -> None:
    own = install(tmp_path / "tools")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "pyright-langserver").symlink_to(own)
    for place in ("tools", "link"):
        path = {"PATH": str(tmp_path / place)}
        (found,) = find_language_servers(LspSettings(), path, root=str(tmp_path))
        assert found.origin == "project"


def test_settings_add_servers_and_change_known_ones(tmp_path: Path) -> None:
    program = install(tmp_path / "bin", "mine")
    asked = LspSettings(
        servers={
            "mine": LanguageServerSettings((program, "-x"), {".toy": "toy"}),
            "pyright": LanguageServerSettings(enabled=False),
            "gopls": LanguageServerSettings(initialization_options={"a": 1}),
        }
    )
    install(tmp_path / "bin", "gopls")
    install(tmp_path / "bin")
    path = {"PATH": str(tmp_path / "bin")}
    mine, gopls = find_language_servers(asked, path, root=str(tmp_path / "work"))
    assert (mine.argv, mine.languages, mine.origin) == (
        (program, "-x"),
        {".toy": "toy"},
        "settings",
    )
    assert (gopls.name, gopls.options, gopls.origin) == ("gopls", {"a": 1}, "path")


@pytest.fixture
def project(tmp_path: Path) -> tuple[TravoisHome, Path]:
    home, root = TravoisHome(tmp_path / "home").prepare(), tmp_path / "work"
    (root / ".git").mkdir(parents=True)
    install(root / ".venv" / "bin")
    return home, root


def load(home: TravoisHome, root: Path, **environ: str) -> LoadedSettings:
    return load_settings(home, str(root), environ={"PATH": "", **environ})


def refusals(
    loaded: LoadedSettings, home: TravoisHome, root: Path, *, is_sandboxed: bool = True
) -> list[str]:
    found = find_usable_servers(loaded, home, root=str(root), is_sandboxed=is_sandboxed)
    return [one.refused for one in found if one.config.name == "pyright"]


def test_a_server_of_the_project_needs_trust_in_exactly_this_program(
    project: tuple[TravoisHome, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root = project
    monkeypatch.setenv("PATH", "")
    loaded = load(home, root)
    (wanted,) = loaded.wanted
    assert wanted.startswith("language server pyright: .venv/bin/pyright-langserver --stdio [")
    assert refusals(loaded, home, root) == [NOT_TRUSTED_REASON]
    trust.trust_folder(home, loaded.root, loaded.wanted)
    assert refusals(load(home, root), home, root) == [""]
    (root / ".venv" / "bin" / "pyright-langserver").write_text("#!/bin/sh\ncurl evil\n")
    assert refusals(load(home, root), home, root) == [NOT_TRUSTED_REASON]


def test_without_a_sandbox_no_server_runs_unless_the_user_switched_it_off_and_trusts_the_folder(
    project: tuple[TravoisHome, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root = project
    monkeypatch.setenv("PATH", "")
    loaded = load(home, root)
    trust.trust_folder(home, loaded.root, loaded.wanted)
    assert refusals(load(home, root), home, root, is_sandboxed=False) == [NO_SANDBOX_REASON]
    off = load(home, root, TRAVOIS_SANDBOX_ENABLED="false")
    assert refusals(off, home, root, is_sandboxed=False) == [NO_SANDBOX_REASON]
    monkeypatch.setenv("PATH", str(Path(install(tmp_path / "bin")).parent))
    assert refusals(off, home, root, is_sandboxed=False) == [""]
    assert refusals(load(home, root), home, root, is_sandboxed=False) == [NO_SANDBOX_REASON]


def test_a_workspace_can_switch_servers_off_and_not_name_others_without_trust(
    tmp_path: Path, project: tuple[TravoisHome, Path]
) -> None:
    home, root = project
    (root / ".travois").mkdir()
    (root / ".travois" / "settings.json").write_text(
        '{"lsp": {"enabled": false, "servers": {"x": {"command": ["./x"]}}}}'
    )
    loaded = load(home, root)
    assert loaded.settings.lsp == LspSettings(enabled=False)
    assert loaded.wanted == ('lsp.servers.x: {"command":["./x"]}',)
