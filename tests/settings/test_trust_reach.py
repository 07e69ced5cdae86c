"""What trusted commands reach beyond the programs that they name, and that its change is told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.load import load_settings
from travois.settings.reached_files import MAX_REACHED_BYTES, MAX_REACHED_FILES, find_reached_files
from travois.settings.schema import LoadedSettings

TREE = {
    "hooks/x.py": "import os\nfrom lib import y\nimport pkg.deep\nfrom . import beside\n",
    "hooks/lib.py": "import json\n",
    "hooks/beside.py": "",
    "pkg/__init__.py": "",
    "pkg/deep.py": "from .deeper import z\n",
    "pkg/deeper.py": "import subprocess\nsubprocess.run(['tools/helper'])\n",
    "pkg/server.py": "import pkg.deep\n",
    "src/mypkg/__init__.py": "",
    "src/mypkg/__main__.py": "from mypkg.inner import go\n",
    "src/mypkg/inner.py": "",
    "unrelated.py": "",
    "run.sh": '. "$(dirname "$0")/common.sh"\n./tools/y --fast\nmake fmt\n',
    "common.sh": "echo hi\n",
    "tools/y": "#!/bin/sh\necho y\n",
    "tools/helper": "#!/bin/sh\necho helper\n",
    "Makefile": "include rules.mk\nfmt:\n\tpython hooks/lib.py\n",
    "rules.mk": "all:\n\ttrue\n",
    "package.json": '{"version": "1", "scripts": {"lint": "eslint . && node scripts/check.js"}}',
    "node_modules/.bin/eslint": "#!/usr/bin/env node\nrequire('../eslint/x')\n",
    "scripts/check.js": "const a = require('./part');\nimport b from '../server/lib'\n",
    "scripts/part.js": "",
    "server/index.js": "import { a } from './lib'\n",
    "server/lib.ts": "",
    "tox.ini": "[testenv]\ncommands = python hooks/lib.py\n",
}
CASES = {
    "python hooks/x.py": [
        *("hooks/beside.py", "hooks/lib.py", "hooks/x.py", "pkg/__init__.py", "pkg/deep.py"),
        *("pkg/deeper.py", "tools/helper"),
    ],
    "./run.sh": [
        *("Makefile", "common.sh", "hooks/lib.py", "rules.mk", "run.sh", "tools/y"),
    ],
    'bash "$CLAUDE_PROJECT_DIR"/run.sh': [
        *("Makefile", "common.sh", "hooks/lib.py", "rules.mk", "run.sh", "tools/y"),
    ],
    "make fmt": ["Makefile", "hooks/lib.py", "rules.mk"],
    "npm run lint": [
        *("node_modules/.bin/eslint", "package.json", "scripts/check.js", "scripts/part.js"),
        "server/lib.ts",
    ],
    "tox -e lint": ["hooks/lib.py", "tox.ini"],
    "node server/index.js": ["server/index.js", "server/lib.ts"],
    "python -m pkg.server": [
        *("pkg/__init__.py", "pkg/deep.py", "pkg/deeper.py", "pkg/server.py", "tools/helper"),
    ],
    "python3 -m mypkg": ["src/mypkg/__init__.py", "src/mypkg/__main__.py", "src/mypkg/inner.py"],
    "echo hello": [],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    for name, text in TREE.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if text.startswith("#!") or name == "run.sh":
            path.chmod(0o755)
    (root / ".git").mkdir()
    return root


@pytest.mark.parametrize("command", CASES)
def test_a_command_reaches_what_it_imports_calls_and_configures(root: Path, command: str) -> None:
    assert list(find_reached_files(command, (str(root),))) == CASES[command]
    as_json = json.dumps({"type": "command", "command": command})
    assert list(find_reached_files(as_json, (str(root),))) == CASES[command]
    argv = json.dumps({"command": command.split()[0], "args": command.split()[1:]})
    if '"' not in command:
        assert list(find_reached_files(argv, (str(root),))) == CASES[command]


def test_nothing_outside_the_workspace_is_followed(root: Path) -> None:
    outside = root.parent / "outside.py"
    outside.write_text("")
    os.symlink(outside, root / "hooks" / "link.py")
    assert find_reached_files("python hooks/link.py ../outside.py", (str(root),)) == {}


def test_the_search_is_bounded_in_files_and_bytes(root: Path) -> None:
    for number in range(MAX_REACHED_FILES + 50):
        (root / f"m{number}.py").write_text(f"import m{number + 1}\n")
    assert len(find_reached_files("python m0.py", (str(root),))) == MAX_REACHED_FILES
    large = b"#" * (1 << 20)
    for number in range(12):
        (root / f"big{number}.py").write_bytes(f"import big{number + 1}\n".encode() + large)
    assert (
        len(find_reached_files("python big0.py", (str(root),)))
        <= MAX_REACHED_BYTES // len(large) + 1
    )


def test_files_that_import_each_other_end(root: Path) -> None:
    (root / "a.py").write_text("import b\n")
    (root / "b.py").write_text("import a\n")
    assert list(find_reached_files("python a.py", (str(root),))) == ["a.py", "b.py"]


# --- what is told ---------------------------------------------------------------------------------


def settings(root: Path, command: str) -> None:
    hook = {"hooks": [{"type": "command", "command": command}]}
    (root / ".travois").mkdir(exist_ok=True)
    (root / ".travois" / "settings.json").write_text(json.dumps({"hooks": {"Stop": [hook]}}))


def loaded(root: Path) -> LoadedSettings:
    home = TravoisHome(root.parent / "home").prepare()
    return load_settings(
        home, str(root), environ={"HOME": str(root.parent)}, etc=root.parent / "etc"
    )


def agree(root: Path) -> None:
    found = loaded(root)
    home = TravoisHome(root.parent / "home")
    trust.trust_folder(home, found.root, found.wanted, places=found.places)


def told(root: Path) -> list[str]:
    return [
        notice for notice in loaded(root).notices if "have changed since you trusted them" in notice
    ]


@pytest.mark.parametrize(
    ("command", "behind"),
    [
        ("python hooks/x.py", "pkg/deeper.py"),
        ("npm run lint", "scripts/part.js"),
        ("make fmt", "rules.mk"),
        ("./run.sh", "tools/y"),
    ],
)
def test_a_change_behind_a_trusted_hook_is_told_until_it_is_accepted(
    root: Path, command: str, behind: str
) -> None:
    settings(root, command)
    agree(root)
    assert (loaded(root).trust, told(root)) == ("trusted", [])
    (root / behind).write_text("# not what it was\n")
    found = loaded(root)
    assert (found.trust, len(found.hooks)) == ("trusted", 1)  # told, and still in force
    (notice,) = told(root)
    assert f"{behind} changed" in notice and "travois trust --changed" in notice
    agree(root)
    assert told(root) == []


def test_a_changed_script_of_package_json_is_told_and_a_version_is_not(root: Path) -> None:
    settings(root, "npm run lint")
    agree(root)
    text = TREE["package.json"]
    (root / "package.json").write_text(text.replace('"1"', '"2"'))
    assert told(root) == []
    (root / "package.json").write_text(text.replace("eslint .", "curl evil.example"))
    assert len(told(root)) == 1


def test_a_module_that_shadows_another_one_is_told(root: Path) -> None:
    settings(root, "python hooks/x.py")
    agree(root)
    (root / "hooks" / "json.py").write_text("")
    (notice,) = told(root)
    assert "hooks/json.py is new" in notice


def test_a_change_behind_a_trusted_server_is_told(root: Path) -> None:
    servers = {"mine": {"command": "python", "args": ["-m", "pkg.server"]}}
    (root / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    agree(root)
    assert told(root) == []
    (root / "pkg" / "deep.py").write_text("# other\n")
    assert len(told(root)) == 1


def test_a_folder_that_was_trusted_before_files_were_kept_is_not_told_of(root: Path) -> None:
    settings(root, "python hooks/x.py")
    found = loaded(root)
    trust.trust_folder(TravoisHome(root.parent / "home"), found.root, found.wanted)
    (root / "hooks" / "lib.py").write_text("# other\n")
    assert told(root) == []
