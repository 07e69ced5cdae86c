"""Tool chains in the sandbox: what each needs of a home is there, and real ones work."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.sandbox.caged import Mode
from tests.sandbox.test_hidden_home import Planted, both, planted, profiles, run_in
from travois.sandbox.tool_chains import TOOL_CHAINS, ToolChainName, list_tool_chain_paths

CARGO = '[package]\nname = "thing"\nversion = "0.1.0"\nedition = "2021"\n'
REAL = {
    "git": "git init -q . && git -c user.name=t -c user.email=t@example.com "
    "commit -q --allow-empty -m x && git log --format=%an",
    "python": f"{sys.executable} -m venv --system-site-packages v && v/bin/python -c 'import json'",
    "node": """echo '{"scripts": {"a": "node -e 1"}}' > package.json && npm run -s a && node -v""",
    "rust": "mkdir -p src && echo 'fn main() {}' > src/main.rs && cargo build -q --offline",
    "java": "java -version && mvn -o -q -v",
}
"""What each real tool chain does without a network; the workspace is empty before."""
PROGRAMS = {"node": "npm", "rust": "cargo", "java": "mvn", "git": "git"}


@both
@profiles
@pytest.mark.parametrize("name", TOOL_CHAINS)
def test_a_family_sees_its_files_and_not_its_credentials(
    name: ToolChainName, profile: str, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = TOOL_CHAINS[name]
    with planted(monkeypatch) as place:
        folders = [f"{path}/some/file" for path in (*chain.reads, *chain.caches)]
        for path in (*folders, *chain.settings, *chain.withheld):
            _write(place.home / path, f"LAID {path} END")
        names = (*folders, *chain.settings, *chain.withheld)
        said = run_in(place, _cat(place, names), mode=mode, profile=profile)  # type: ignore[arg-type]
        for path in (*folders, *chain.settings):
            assert (f"LAID {path} END" in said) == (path not in chain.withheld), path
        for path in chain.withheld:
            assert f"LAID {path} END" not in said


def _write(path: Path, text: str) -> None:
    if path.is_dir():
        return
    for folder in reversed(path.parents):
        if folder.is_file():
            folder.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _cat(place: Planted, names: tuple[str, ...]) -> str:
    return "; ".join(f"cat '{place.home}/{name}'" for name in names) + "; true"


@both
def test_a_family_that_the_user_hides_is_hidden(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planted(monkeypatch) as place:
        _write(place.home / ".rustup/toolchains/x", "LAID")
        hides = {"sandbox": {"hiddenToolChains": ["rust"]}}
        line = _cat(place, (".rustup/toolchains/x",))
        assert "LAID" in run_in(place, line, mode=mode, profile="look")
        assert "LAID" not in run_in(place, line, mode=mode, profile="look", settings=hides)


@both
def test_settings_are_shown_only_without_a_credential(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planted(monkeypatch) as place:
        (place.home / ".npmrc").write_text("registry=https://LAID.example/\n")
        (place.home / ".gitconfig").write_text('[url "https://x:LAID2@h/"]\n\tinsteadOf = a\n')
        said = run_in(place, _cat(place, (".npmrc", ".gitconfig")), mode=mode, profile="look")
        assert "LAID.example" in said
        assert "LAID2" not in said


@both
def test_a_cache_can_be_written_where_mounts_allow_it_and_is_unchanged_afterwards(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planted(monkeypatch) as place:
        file = place.home / ".cache/go-build/a"
        _write(file, "LAID")
        said = run_in(
            place, f"echo x > {file}; echo x > {file}2; ls {file}*", mode=mode, profile="work"
        )
        assert (file.read_text(), Path(f"{file}2").exists()) == ("LAID", False)
        assert str(file) in said


@both
@pytest.mark.parametrize("name", REAL)
def test_a_real_tool_chain_works(name: str, mode: Mode) -> None:
    program = PROGRAMS.get(name, "bash")
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    with tempfile.TemporaryDirectory(prefix=".travois-test-", dir=Path.home()) as folder:
        work = Path(folder).resolve() / "work"
        work.mkdir()
        (work / "Cargo.toml").write_text(CARGO)
        place = Planted(Path.home(), work, {})
        said = run_in(place, f"({REAL[name]}) && echo WORKED", mode=mode, profile="work")
        assert "WORKED" in said, said


def test_variables_move_the_folders_of_a_tool_chain_but_never_show_the_home() -> None:
    home = "/home/u"
    moved = list_tool_chain_paths(
        home, {"CARGO_HOME": "/data/cargo", "GOPATH": home, "NVM_DIR": "/"}
    )
    assert "/data/cargo" in moved.reads
    assert "/data/cargo/credentials.toml" in moved.withheld
    assert not {home, "/", f"{home}/bin", "/bin"} & {*moved.reads, *moved.caches}
