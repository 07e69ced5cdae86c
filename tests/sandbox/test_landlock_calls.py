"""What Landlock has no rules about, refused by the call filter; and ordinary work, which is not."""

from __future__ import annotations

import os
import sys

import pytest

from tests.sandbox.caged import run, scene

SHMGET, PRLIMIT = {"x86_64": (29, 302), "aarch64": (194, 261)}[os.uname().machine]
PYTHON = f"{sys.executable} -c 'import ctypes, os; buffer = ctypes.create_string_buffer(16); {{}}'"
CALL = PYTHON.format("print(ctypes.CDLL(None).syscall({}) >= 0)")
OTHER = 'int(os.environ["HARNESS"])'
ABOUT_OTHERS = {
    "shared memory": CALL.format(f"{SHMGET}, 0, 4096, 0o1600"),
    "limits of another": CALL.format(f"{PRLIMIT}, {OTHER}, 7, None, buffer"),
    "the processors of another": "taskset -p ffff $HARNESS && echo True",
    "the priority of another": "renice -n 1 -p $HARNESS && echo True",
    "the priority of all": "renice -n 1 -u $(id -u) && echo True",
}
KEPT = 'os.environ["OUT"] + "/kept"'
METADATA = {
    "mode": "chmod 700 $OUT/kept",
    "mode by descriptor": PYTHON.format(f"os.fchmod(os.open({KEPT}, 0), 0o700)"),
    "times": "touch -d 2001-01-01 $OUT/kept",
    "attributes": PYTHON.format(f'os.setxattr({KEPT}, "user.x", b"1")'),
}
ORDINARY = (
    "touch -d 2001-01-01 a && chmod +x a && cp -p a b && tar cf t.tar a b && mkdir out"
    " && tar xpf t.tar -C out && test -x out/b && test out/a -ot t.tar",
    f"{sys.executable} -m venv --without-pip v && v/bin/python -c 1",
    "nice -n 5 true && (ulimit -n 64; true) && mktemp",
)


def state(path: str) -> tuple[int, int, list[str]]:
    found = os.stat(path)
    return found.st_mode, found.st_mtime_ns, os.listxattr(path)


@pytest.mark.parametrize("profile", ["look", "work"])
@pytest.mark.parametrize("way", ABOUT_OTHERS)
def test_no_program_reaches_others_by_what_all_share(way: str, profile: str) -> None:
    with scene() as place:
        (place.outside / "kept").write_text("x")
        env = {"HARNESS": str(os.getpid()), "OUT": str(place.outside)}
        command = place.sh(ABOUT_OTHERS[way], env=env, sandbox=place.but(profile=profile))
        said = run("partial", command).output.head_and_tail()
        assert b"True" not in said
        assert b"Traceback" not in said


@pytest.mark.parametrize("way", METADATA)
def test_a_read_only_program_changes_nothing_about_files_outside(way: str) -> None:
    with scene() as place:
        kept = place.outside / "kept"
        kept.write_text("x")
        kept.chmod(0o644)
        before = state(str(kept))
        command = place.sh(
            METADATA[way], env={"OUT": str(place.outside)}, sandbox=place.but(profile="look")
        )
        assert run("partial", command).status != 0
        assert state(str(kept)) == before


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_work_in_the_workspace_succeeds(line: str) -> None:
    with scene() as place:
        done = run("partial", place.sh(line))
        assert done.status == 0, done.output.head_and_tail().decode()
