"""Which walls a call gets."""

from __future__ import annotations

import pytest

from travois.permissions.access import Access
from travois.permissions.decide import PermissionMode, Permissions
from travois.permissions.rules import ToolUse
from travois.permissions.sandbox_profile import SandboxProfile
from travois.permissions.shell.judge import plan_command
from travois.sandbox.policy import (
    SandboxPolicy,
    build_program_profile,
    build_sandbox_profile,
    can_try_read_only,
)

BOUNDS = SandboxPolicy(temp="/private", hidden=("/home/u/.ssh",))


def use(line: str, *more: Access) -> ToolUse:
    made = plan_command(line, cwd="/w", home="/home/u")
    return ToolUse("Bash", (Access("exec", line), *more), "/w", "/home/u", plans=(made,))


def walls(
    line: str, *more: Access, bounds: SandboxPolicy = BOUNDS, mode: PermissionMode = "default"
) -> SandboxProfile:
    made = build_sandbox_profile(
        bounds, Permissions(mode, folders=("/w",), scratch="/private"), use(line, *more)
    )
    assert made is not None
    return made


def test_what_only_looks_can_change_and_reach_nothing() -> None:
    assert walls("cat a.txt") == SandboxProfile(
        "look", ("/w",), "/private", hidden=("/home/u/.ssh",)
    )


def test_what_works_may_change_the_workspace_but_not_what_runs_later() -> None:
    made = walls("make")
    assert (made.profile, made.network, made.writable) == ("work", "off", ())
    assert {"/w/.git/hooks", "/w/.git/config", "/w/.travois", "/w/.mcp.json"} <= set(made.pinned)


@pytest.mark.parametrize(
    "line", ["git push", "npm install left-pad", "cd x && curl a.b", "pip list"]
)
def test_a_program_that_is_there_to_reach_others_may_once_it_may_run(line: str) -> None:
    assert walls(line).network == "on"


@pytest.mark.parametrize("line", ["make", "git commit -m push", "git log", "./run npm"])
def test_any_other_program_may_not(line: str) -> None:
    assert walls(line).network == "off"


def test_hosts_that_the_user_listed_may_be_reached_by_all() -> None:
    made = walls("make", bounds=SandboxPolicy(temp="/private", hosts=("a.org",)))
    assert (made.network, made.hosts) == ("listed", ("a.org",))


def test_what_the_user_says_of_the_network_holds_for_every_command() -> None:
    assert walls("git push", bounds=SandboxPolicy(temp="/t", network="off")).network == "off"
    assert walls("make", bounds=SandboxPolicy(temp="/t", network="on")).network == "on"


def test_a_host_that_is_barred_is_so_for_all_and_so_all_go_through_the_list() -> None:
    made = walls("git push", bounds=SandboxPolicy(temp="/t", barred=("a.org",)))
    assert (made.network, made.hosts, made.barred) == ("listed", ("*",), ("a.org",))
    made = walls("make", bounds=SandboxPolicy(temp="/t", hosts=("*.b.org",), barred=("a.b.org",)))
    assert (made.network, made.hosts, made.barred) == ("listed", ("*.b.org",), ("a.b.org",))


def test_a_call_that_asked_for_the_network_has_it() -> None:
    assert walls("make", Access("net", "any host")).network == "on"


def test_bypass_has_the_network_and_keeps_the_walls() -> None:
    made = walls("make", mode="bypass")
    assert (made.profile, made.network) == ("work", "on")
    assert "/w/.git/hooks" in made.pinned


def test_what_was_allowed_to_be_written_outside_can_be() -> None:
    assert walls("cp a /srv/b").writable == ("/srv",)
    assert walls("rm -r /srv/a/b /srv/a/c").writable == ("/srv/a",)
    assert walls("touch ~/new").writable == ("/home/u/new",)


def test_a_pin_gives_way_to_what_was_allowed_by_name() -> None:
    assert "/w/.mcp.json" not in walls("cp a .mcp.json").pinned
    assert "/w/.git/config" not in walls("git remote add up there").pinned
    assert "/w/.git/hooks" in walls("git remote add up there").pinned


def test_what_is_only_tried_gets_nothing_beyond_the_workspace() -> None:
    guard = Permissions("bypass", folders=("/w",))
    made = build_sandbox_profile(BOUNDS, guard, use("curl a.b > /srv/b; rm x"), profile="try")
    assert made is not None
    assert (made.profile, made.writable, made.network) == ("try", (), "off")


def test_leaving_is_leaving() -> None:
    line = "make"
    assert (
        build_sandbox_profile(
            BOUNDS, Permissions(folders=("/w",)), use(line, Access("leave", line))
        )
        is None
    )


def test_only_a_line_that_is_excluded_as_a_whole_runs_outside() -> None:
    bounds = SandboxPolicy(temp="/t", excluded=("docker", "make deploy"))
    guard = Permissions(folders=("/w",))
    assert build_sandbox_profile(bounds, guard, use("docker ps")) is None
    assert build_sandbox_profile(bounds, guard, use("make deploy")) is None
    assert build_sandbox_profile(bounds, guard, use("docker ps && make")) is not None
    assert build_sandbox_profile(bounds, guard, use("dockerish")) is not None
    assert build_sandbox_profile(bounds, guard, use('docker "$(cat x)" `y`')) is not None


@pytest.mark.parametrize(
    ("line", "may"),
    [
        ("./check.sh", True),
        ("python3 -c 'print(1)'", True),
        ("make | tee out.txt", False),
        ("cat /etc/passwd; ./x", False),
        ("npm install", False),
        ("./x > out", False),
        ("git commit -m x", False),
    ],
)
def test_a_command_is_tried_only_where_the_try_could_succeed(line: str, may: bool) -> None:
    assert can_try_read_only(Permissions(folders=("/w",)), use(line)) is may


def test_files_of_a_program_in_the_workspace_do_not_make_it_read_only() -> None:
    bounds = SandboxPolicy(temp="/private", writable=("/srv/cache",))
    shown = ("/w", "/w/tools", "/srv/cache/x", "/home/u/hooks")
    walls = build_program_profile(bounds, Permissions(folders=("/w",)), shown=shown)
    assert walls.shown == ("/home/u/hooks",)
