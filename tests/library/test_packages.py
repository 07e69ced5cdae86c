"""A real package, installed with pip, extends the program and the library by entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import travois_lab as lab
from travois.extensions.entry_points import find_packages

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "acme-tools"
version = "1.2"
[project.entry-points."travois.tools"]
dice = "acme_tools:TOOLS"
[project.entry-points."travois.hooks"]
guard = "acme_tools:guard"
[project.entry-points."travois.layers"]
forget = "acme_tools:FORGET"
[project.entry-points."travois.providers"]
acme = "acme_tools:make_model"
[project.entry-points."travois.commands"]
acme-hello = "acme_tools:say_hello"
[tool.hatch.build.targets.wheel]
only-include = ["acme_tools.py"]
"""
MODULE = '''
from pathlib import Path
from travois import ClearResult, HookReply, ModelReply, hook, tool

Path(__file__).with_suffix(".imported").touch()

@tool(safe=True)
def dice(sides: int) -> str:
    """Roll a die."""
    return f"You rolled {sides // 2}."

TOOLS = [dice]

@hook("PreToolUse", matcher="Bash")
def guard(event):
    return HookReply(block="acme forbids it")

class Forget:
    def plan(self, window):
        return [ClearResult(r.call_id, "forgotten") for r in window.results if r.age > 1]

FORGET = Forget()

class Echo:
    async def reply(self, request):
        yield "echo of "
        yield request.messages[-1]["content"][-1]["text"]
        yield ModelReply(input_tokens=3, output_tokens=4)

def make_model(id):
    return Echo()

def say_hello(words):
    print("hello", *words)
    return 7
'''
SCRIPT = [
    {"say": [{"tool_use": {"name": "dice", "input": {"sides": 6}}}]},
    {"say": [{"tool_use": {"name": "Bash", "input": {"command": "ls"}}}]},
    {"say": [{"tool_use": {"name": "dice", "input": {"sides": 8}}}]},
    {"say": "Done."},
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that `pip install --target` put the package into."""
    source = tmp_path_factory.mktemp("acme")
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "acme_tools.py").write_text(MODULE)
    target = tmp_path_factory.mktemp("target")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--disable-pip-version-check", "--no-build-isolation", "--target", str(target)]
    subprocess.run([*command, str(source)], check=True)
    return target


class Program:
    """The real program with a folder on its path."""

    def __init__(self, folder: Path, installed: Path) -> None:
        self.cwd = folder / "work"
        self.cwd.mkdir()
        self.imported = installed / "acme_tools.imported"
        self.imported.unlink(missing_ok=True)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TRAVOIS_HOME": str(folder / "home"),
            "PYTHONPATH": str(installed),
        }

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "travois", *args],
            cwd=self.cwd,
            env=self.env | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture
def program(tmp_path: Path, installed: Path) -> Program:
    return Program(tmp_path, installed)


def test_a_package_brings_tools_hooks_and_layers(program: Program) -> None:
    with lab.server(SCRIPT) as api:
        done = program.run(
            *("-p", "go", "--model", "anthropic/claude-opus-5-5"),
            ANTHROPIC_BASE_URL=api.url,
            ANTHROPIC_API_KEY="sk-lab",
        )
        assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
        last = json.dumps(api.bodies[-1]["messages"])
        assert "acme forbids it" in last and "You rolled 4." in last
        assert "You rolled 3." in json.dumps(api.bodies[1]["messages"]) and "forgotten" in last


def test_a_package_brings_a_provider(program: Program) -> None:
    done = program.run("-p", "say this", "--model", "acme/any")
    assert done.returncode == 0 and done.stdout.startswith("echo of "), done.stderr
    assert "say this" in done.stdout


def test_a_package_brings_a_command(program: Program) -> None:
    done = program.run("acme-hello", "you", "there")
    assert (done.returncode, done.stdout) == (7, "hello you there\n"), done.stderr


def test_packages_are_listed_and_switched_and_not_imported_for_that(program: Program) -> None:
    def state() -> list[tuple[str, str, str]]:
        rows = json.loads(program.run("plugins", "--json").stdout)
        return [(row["name"], row["version"], row["state"]) for row in rows]

    assert state() == [("acme-tools", "1.2", "on")]
    assert (
        "hooks: guard; layers: forget; providers: acme; tools: dice"
        in program.run("plugins").stdout
    )
    assert program.run("plugins", "disable", "acme-tools").returncode == 0
    assert state() == [("acme-tools", "1.2", "off")]
    assert "hello" not in program.run("acme-hello").stdout
    assert program.run("plugins", "enable", "Acme-Tools").returncode == 0
    assert state() == [("acme-tools", "1.2", "on")]
    unknown = program.run("plugins", "disable", "nothing")
    assert unknown.returncode == 2 and "Installed here: acme-tools" in unknown.stderr
    assert not program.imported.exists()


def state(program: Program, env: dict[str, str]) -> str:
    return json.loads(program.run("plugins", "--json", **env).stdout)[0]["state"]


def test_a_package_in_the_workspace_needs_trust(program: Program, installed: Path) -> None:
    place = program.cwd / ".packages"
    place.symlink_to(installed)
    within = {"PYTHONPATH": str(place)}
    assert state(program, within) == "on"  # a link to a folder outside is outside
    place.unlink()
    subprocess.run(["cp", "-r", str(installed), str(place)], check=True)
    assert state(program, within) == "needs trust"
    asked = program.run("acme-hello", **within)
    assert "hello" not in asked.stdout
    trusted = program.run("trust", **within)
    assert trusted.returncode == 0 and "python package acme-tools 1.2" in trusted.stdout
    assert program.run("acme-hello", **within).returncode == 7


def test_a_package_that_fails_is_a_notice_and_stops_nothing(
    program: Program, installed: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    subprocess.run(["cp", "-r", str(installed), str(broken)], check=True)
    (broken / "acme_tools.py").write_text("raise RuntimeError('out of order')")
    with lab.server(["Fine."]) as api:
        done = program.run(
            *("-p", "go", "--model", "anthropic/claude-opus-5-5"),
            ANTHROPIC_BASE_URL=api.url,
            ANTHROPIC_API_KEY="x",
            PYTHONPATH=str(broken),
        )
    assert (done.returncode, done.stdout) == (0, "Fine.\n")
    assert "travois plugins disable acme-tools" in done.stderr


def test_a_folder_is_looked_through_again_once_it_has_changed(
    installed: Path, tmp_path: Path
) -> None:
    folder, cache = tmp_path / "site", tmp_path / "packages.json"
    folder.mkdir()
    assert find_packages([str(folder)], cache=cache) == ()
    for entry in installed.iterdir():
        if entry.name.endswith(".dist-info"):
            subprocess.run(["cp", "-r", str(entry), str(folder)], check=True)
    (found,) = find_packages([str(folder)], cache=cache)
    assert (found.name, found.version, len(found.points)) == ("acme-tools", "1.2", 5)
    cache.write_text("not JSON")
    assert find_packages([str(folder)], cache=cache) == (found,)
