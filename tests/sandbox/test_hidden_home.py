"""Reading a home from the sandbox: secrets in real places, by many readers, in every profile."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Literal

import anyio
import msgspec
import pytest

from tests.sandbox.caged import SECONDS, Mode, walls
from travois.compose.options import Options
from travois.compose.sandbox import compose_sandbox
from travois.compose.session import load_workspace
from travois.permissions.decide import PermissionMode as GuardMode
from travois.permissions.decide import Permissions
from travois.permissions.rules import ToolUse
from travois.permissions.shell.judge import plan_command
from travois.ports.world import Command
from travois.process.local_processes import LocalProcesses
from travois.sandbox import policy as bounds
from travois.sessions.home import locate_home

PLACES = tuple(
    str.split(
        """
    .vault-token .config/sops/age/keys.txt .age/key.txt .git-credentials .config/git/credentials
    .docker/config.json .config/containers/auth.json .claude/.credentials.json .codex/auth.json
    .gemini/oauth_creds.json .local/share/opencode/auth.json .m2/settings.xml .npmrc .pypirc
    .gradle/gradle.properties .cargo/credentials.toml .gem/credentials .composer/auth.json
    .bash_history .zsh_history .python_history .psql_history .ssh/id_ed25519 .aws/credentials
    .kube/config .netrc .config/gh/hosts.yml .config/rclone/rclone.conf Documents/diary.txt
    other-project/.env other-project/src/main.py .config/pip/pip.conf .gitconfig .my-own-tool
    .cache/huggingface/token .cache/some-program/session .local/share/keyrings/login.keyring
    .config/travois/AGENTS.md .cache/travois/index/sessions.db .local/state/travois/history/p
    """
    )
)
"""Where people and programs keep secrets in a home, in folders that are shown in part as well."""
WALK = (
    "import os\n"
    "for top in (os.environ['H'], '/proc/self/root' + os.environ['H']):\n"
    " for f, _, names in os.walk(top):\n"
    "  for n in names:\n"
    "   try: print(open(os.path.join(f, n), errors='replace').read()[:9999])\n"
    "   except OSError: pass\n"
)
EACH = "for p in $PLACES; do {} 2>/dev/null; done"
READERS = {
    "cat": EACH.format('cat "$H/$p"'),
    "a shell": EACH.format('echo "$(< "$H/$p")"'),
    "python": f'{sys.executable} -c "$WALK"',
    "find": 'find "$H" -type f -exec cat {} + 2>/dev/null',
    "grep": 'grep -rsh SECRET "$H"; grep -rsh SECRET "$H"/.*',
    "tar": 'tar cf - -C "$H" . 2>/dev/null | tar xOf - 2>/dev/null',
    "cp": 'cp -r "$H" "$TMPDIR/copy" 2>/dev/null; grep -rsh SECRET "$TMPDIR/copy"',
    "dd": EACH.format('dd if="$H/$p"'),
    "a link in the workspace": 'grep -Rsh SECRET link/; for p in $PLACES; do cat "link/$p"; done',
    "our own root": EACH.format('cat "/proc/self/root$H/$p"'),
    "the root of the first process": EACH.format('cat "/proc/1/root$H/$p"'),
    "the root of the harness": EACH.format('cat "/proc/$HARNESS/root$H/$p"'),
    "the folder of the harness": EACH.format('cat "/proc/$HARNESS/cwd/../$p"'),
    "climbing": EACH.format('cat "../$p"'),
    "a second name": EACH.format('ln "$H/$p" "$TMPDIR/l" && cat "$TMPDIR/l"; rm -f "$TMPDIR/l"'),
    "a move": EACH.format('mv "$H/$p" "$TMPDIR/m" && cat "$TMPDIR/m"'),
    "a program that includes it": EACH.format('git config -f "$H/$p" --list; bash -v "$H/$p"'),
    "another user's name for it": EACH.format('cat /home/*/"$p" /root/"$p"'),
}
XDG_VARIABLES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
HOOKS = """printf '{"hooks": "planted"}'"""
PLANTS = {
    "settings": f"{HOOKS} > .config/travois/settings.json",
    "a skill": f"mkdir -p .config/travois/skills/a; {HOOKS} > .config/travois/skills/a/SKILL.md",
    "a move of the folder": f"mv .config/travois a; mkdir .config/travois; "
    f"{HOOKS} > .config/travois/settings.json",
    "a move of the folder above": f"mv .config a; mkdir -p .config/travois; "
    f"{HOOKS} > .config/travois/settings.json",
    "removal": f"rm -rf .config; mkdir -p .config/travois; {HOOKS} > .config/travois/settings.json",
    "a link in its place": f"mkdir a; {HOOKS} > a/settings.json; rmdir .config/travois;"
    " ln -s ../a .config/travois",
    "an index": f"mkdir -p .cache/travois/index; {HOOKS} > .cache/travois/index/sessions.db",
    "trust": f"mkdir -p .local/state/travois/trust; {HOOKS} > .local/state/travois/trust/a.json",
    "an old place": f"{HOOKS} > .local/state/travois/settings.json",
    "another home above the state": f"mv .local a; mkdir -p .local/state/travois/trust; "
    f"{HOOKS} > .local/state/travois/settings.json",
}
"""Command lines that plant something in the folders of Travois, from a workspace around them."""
SYSTEM = ("/etc/shadow", "/etc/gshadow")
both = pytest.mark.parametrize("mode", ["full", "partial"], ids=["bwrap", "landlock"])
profiles = pytest.mark.parametrize("profile", ["look", "work"])


class Planted(msgspec.Struct, frozen=True):
    """A home with a workspace in it, and the secret in each place."""

    home: Path
    work: Path
    secrets: dict[str, str]


@contextmanager
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Planted]:
    """Plant a secret of its own in each place of a home that is not below /tmp."""
    with tempfile.TemporaryDirectory(prefix=".travois-test-", dir=Path.home()) as name:
        home = Path(name).resolve()
        work = home / "work"
        work.mkdir()
        secrets = {
            place: f"SECRET-{number:03}-{os.urandom(6).hex()}"
            for number, place in enumerate(PLACES)
        }
        for place, secret in secrets.items():
            path = home / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"[a]\n\ttoken = {secret}\n")
        (work / "link").symlink_to(home)
        (work / "seen.txt").write_text("SEEN")
        monkeypatch.setenv("HOME", name)
        for variable in ("TRAVOIS_HOME", *XDG_VARIABLES):
            monkeypatch.delenv(variable, raising=False)
        yield Planted(home, work, secrets)


def run_in(
    place: Planted,
    line: str,
    *,
    mode: Mode,
    profile: Literal["look", "work"] | None,
    guard_mode: GuardMode = "default",
    settings: dict[str, object] | None = None,
) -> str:
    """Run a line as a session does: its bounds, the sandbox for the call, and the program."""
    behind = walls(mode)

    async def main() -> str:
        options = Options(cwd=str(place.work), settings=json.dumps(settings or {}))
        here, loaded = load_workspace(options)
        async with AsyncExitStack() as stack:
            fence = compose_sandbox(loaded, here, stack, attended=True)
            assert fence.bounds is not None
            own = msgspec.structs.replace(fence.bounds, backend=mode)
            home = str(place.home)
            plans = (plan_command(line, cwd=here.cwd, home=home),)
            use = ToolUse("Bash", (), here.cwd, home, plans=plans)
            guard = Permissions(mode=guard_mode, folders=(here.cwd,))
            cage = bounds.build_sandbox_profile(own, guard, use, profile=profile)
            processes = LocalProcesses(support=behind)
            stack.push_async_callback(processes.aclose)
            env = {"H": home, "PLACES": " ".join(PLACES), "WALK": WALK, "HARNESS": str(os.getpid())}
            command = Command(("/bin/bash", "-c", line), here.cwd, sandbox=cage, env=env)
            done = await processes.run(command, timeout=SECONDS)
            return done.output.head_and_tail().decode(errors="replace")

    return anyio.run(main)


@both
@pytest.mark.parametrize("plant", PLANTS)
def test_nothing_is_planted_in_our_folders_where_the_workspace_is_the_home(
    plant: str, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planted(monkeypatch) as place:
        around = msgspec.structs.replace(place, work=place.home)
        (place.home / ".config/travois/AGENTS.md").unlink()  # empty, as before any setting is made
        run_in(around, PLANTS[plant], mode=mode, profile="work")
        ours = locate_home(os.environ)
        files = [one for folder in ours.folders for one in Path(folder).rglob("*") if one.is_file()]
        assert not [str(file) for file in files if b"planted" in file.read_bytes()]


@both
@profiles
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_gets_a_secret_of_the_home(
    reader: str, profile: Literal["look", "work"], mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run is one case for every place in which something is planted."""
    with planted(monkeypatch) as place:
        line = f"cat seen.txt; {READERS[reader]}; cat {' '.join(SYSTEM)}"
        said = run_in(place, line, mode=mode, profile=profile)
        assert "SEEN" in said
        assert {name: one for name, one in place.secrets.items() if one in said} == {}
        assert "root:" not in said
        assert all(one in (place.home / name).read_text() for name, one in place.secrets.items())


def test_the_suite_is_large_and_every_reader_works_without_a_sandbox(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import subprocess

    assert len(READERS) * len(PLACES) * 4 >= 2_000
    # These depend on who runs the tests and where, or change what the next reader would find.
    needs_more = {"another user's name for it", "the folder of the harness", "a move"}
    needs_more |= {"the root of the first process"}
    with planted(monkeypatch) as place:
        env = os.environ | {
            "H": str(place.home),
            "PLACES": " ".join(PLACES),
            "WALK": WALK,
            "HARNESS": str(os.getpid()),
        }
        for reader in READERS.keys() - needs_more:
            done = subprocess.run(
                ("/bin/bash", "-c", READERS[reader]),
                cwd=place.work,
                # A folder cannot be copied into itself; a second name needs the same disk.
                env=env | {"TMPDIR": str(tmp_path if reader == "cp" else place.work)},
                capture_output=True,
                check=False,
            )
            said = done.stdout + done.stderr
            assert any(one.encode() in said for one in place.secrets.values()), reader


@both
@pytest.mark.parametrize("guard_mode", ["default", "auto", "bypass"])
def test_what_a_call_was_allowed_to_read_by_name_is_shown_unless_nobody_was_asked(
    guard_mode: GuardMode, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planted(monkeypatch) as place:
        line = "cat ~/Documents/diary.txt ~/.ssh/id_ed25519; true"
        line = line.replace("~", str(place.home))
        said = run_in(place, line, mode=mode, profile=None, guard_mode=guard_mode)
        assert (place.secrets["Documents/diary.txt"] in said) == (guard_mode != "bypass")
        assert place.secrets[".ssh/id_ed25519"] not in said


@both
def test_a_setting_shows_a_folder_of_the_home_but_not_the_secrets_in_it(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planted(monkeypatch) as place:
        shown = {"sandbox": {"filesystem": {"allowRead": ["~"]}}}
        said = run_in(place, READERS["cat"], mode=mode, profile="look", settings=shown)
        assert place.secrets["Documents/diary.txt"] in said
        assert place.secrets[".ssh/id_ed25519"] not in said
        assert place.secrets[".vault-token"] not in said
