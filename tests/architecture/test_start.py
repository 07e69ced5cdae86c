"""I11: what starting the program does not import."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

HEAVY = ("httpx2", "rich", "prompt_toolkit", "mcp", "tree_sitter", "sqlite3", "pypdf", "bs4")
HEAVY += ("opentelemetry",)
LATER = (
    *("json", "shlex", "shutil", "tempfile", "tomllib", "h11", "html"),
    *(
        "travois.engine.tool_calls",
        "travois.context.compaction.compact",
        "travois.permissions.shell.parse",
    ),
    *("travois.providers.stream_reader", "travois.providers.errors"),
    *("travois.providers.openai_chat", "travois.providers.openai_responses"),
    *("travois.providers.gemini", "travois.providers.ollama"),
    *("travois.mcp.tools", "travois.mcp.connection", "travois.tools.shell.denied_command"),
    *("travois.tools.web.html", "travois.process.job", "travois.agents.team_tasks"),
)
"""What a session can do without until its first request is out: it comes with its first use."""
MODULES = 500
"""How many modules there may be by then, those of Python and of libraries among them."""
UNTIL_THE_FIRST_REQUEST = """
import os, socket, sys
def send(*_):
    print(*sys.modules, flush=True)
    os._exit(0)
socket.socket.send = send
sys.argv = ["travois", "-p", "go", "--model", "anthropic/claude-opus-5-5"]
from travois.__main__ import main
main()
"""


def loaded(code: str) -> set[str]:
    script = f"{code}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_the_command_line_imports_nothing_heavy() -> None:
    assert loaded("import travois.cli.main").isdisjoint({*HEAVY, "asyncio", "h11"})


def test_a_headless_run_imports_nothing_heavy() -> None:
    assert loaded("import travois.headless.print_mode").isdisjoint(HEAVY)


def test_the_version_imports_nothing() -> None:
    script = (
        "import sys; before = set(sys.modules); sys.argv = ['travois', '--version'];"
        "from travois.__main__ import run_program; run_program();"
        "print(sorted(n for n in set(sys.modules) - before if not n.startswith('travois')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[1] == "['__future__']"


def test_a_first_request_waits_for_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        url = f"http://127.0.0.1:{there.getsockname()[1]}"
        own = {"HOME": str(tmp_path), "TRAVOIS_HOME": str(tmp_path / "home")}
        own |= {"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": url}
        for _ in range(2):  # the first one ever also tries what the machine can do
            done = subprocess.run(
                [sys.executable, "-c", UNTIL_THE_FIRST_REQUEST],
                cwd=tmp_path,
                env=os.environ | own,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
    modules = {*done.stdout.split()}
    assert "travois.providers.http.client" in modules and modules & {*LATER} == set()
    assert len(modules) <= MODULES
