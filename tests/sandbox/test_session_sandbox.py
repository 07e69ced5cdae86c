"""What a session's sandbox hides: exactly what deny rules name."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from travois.compose import sandbox as fencing
from travois.compose.open_session import open_log
from travois.compose.options import Options
from travois.compose.sandbox import compose_sandbox
from travois.compose.session import load_workspace
from travois.permissions.decide import Permissions
from travois.permissions.rules import ToolUse
from travois.permissions.shell.judge import plan_command
from travois.sandbox.hidden_files import find_covered_places
from travois.sandbox.policy import SandboxPolicy, build_sandbox_profile


def bounds(folder: Path, settings: dict[str, object]) -> SandboxPolicy:
    options = Options(cwd=str(folder), settings=json.dumps(settings))
    place, loaded = load_workspace(options)
    stack = AsyncExitStack()
    fence = compose_sandbox(loaded, place, stack, attended=True)
    anyio.run(stack.aclose)
    if fence.bounds is None:
        pytest.skip(fence.line)
    return fence.bounds


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    for name in (".env", "a/.env", "a/b.pem", "keys/b.pem", "keys/c.txt", "env"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return folder


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        ("Read(.env)", [".env", "a/.env"]),
        ("Read(./a/.env)", ["a/.env"]),
        ("Read(keys/*.pem)", ["keys/b.pem"]),
        ("Read(keys/**)", ["keys"]),
        ("Read(**/*.pem)", ["a/b.pem", "keys/b.pem"]),
        ("Read(//elsewhere/*.pem)", []),
    ],
)
def test_a_deny_rule_hides_what_it_names_and_nothing_else(
    work: Path, rule: str, names: list[str]
) -> None:
    made = bounds(work, {"permissions": {"deny": [rule]}})
    found = [path for path in made.hidden if path.startswith(f"{work}/")]
    assert sorted(found) == [f"{work}/{name}" for name in names]


def test_a_deny_rule_hides_places_outside_the_workspace_too(work: Path) -> None:
    made = bounds(work, {"permissions": {"deny": ["Read(//srv/secret/**)"]}})
    assert "/srv/secret" in made.hidden


def test_barred_hosts_reach_the_walls(work: Path) -> None:
    network = {"allowedDomains": ["*.example.org"], "deniedDomains": ["ads.example.org"]}
    made = bounds(work, {"sandbox": {"network": network}})
    assert (made.hosts, made.barred) == (("*.example.org",), ("ads.example.org",))


def test_a_private_folder_without_a_session_is_for_its_owner_alone_and_goes(work: Path) -> None:
    async def main() -> None:
        place, loaded = load_workspace(Options(cwd=str(work)))
        async with AsyncExitStack() as stack:
            fence = compose_sandbox(loaded, place, stack, attended=True)
            if fence.bounds is None:
                pytest.skip(fence.line)
            temp = Path(fence.bounds.temp)
            assert temp.stat().st_mode & 0o777 == 0o700
            (temp / "left").write_text("x")
        assert not temp.exists()

    anyio.run(main)


def test_the_private_folder_of_a_session_stays_with_what_is_in_it(work: Path) -> None:
    async def main(write: str) -> Path:
        options = Options(cwd=str(work), session_id="6a3b6a80-3f9e-4a52-9d7e-0c2a52a10a51")
        place, loaded = load_workspace(options)
        async with AsyncExitStack() as stack:
            found = open_log(place, options, stack)
            fence = compose_sandbox(loaded, place, stack, attended=True, session=found)
            if fence.bounds is None:
                pytest.skip(fence.line)
            temp = Path(fence.bounds.temp)
            assert temp == place.home.session_tmp(found.id).resolve()
            assert temp.stat().st_mode & 0o777 == 0o700
            (temp / "mounted/on").mkdir(parents=True)
            if write:
                (temp / write).write_text("x")
        return temp

    assert not anyio.run(main, "").exists()
    assert (anyio.run(main, "left") / "left").read_text() == "x"


def test_a_start_does_not_look_for_what_commands_may_not_see(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked for once, when a command first needs it; then all of it is there."""
    looked: list[str] = []

    def find() -> tuple[str, ...]:
        looked.append("covered")
        return find_covered_places()

    monkeypatch.setattr(fencing, "find_covered_places", find)
    made = bounds(work, {})
    assert looked == []
    guard = Permissions(folders=(str(work),))
    use = ToolUse("Bash", (), str(work), plans=(plan_command("./x", cwd=str(work), home="/h"),))
    seen = [build_sandbox_profile(made, guard, use, profile="look") for _ in range(2)]
    assert looked == ["covered"]
    expected = replace(made, covered=find_covered_places(), tools=tuple(made.tools))
    assert seen == [build_sandbox_profile(expected, guard, use, profile="look")] * 2
