"""Secrets in every place of the settings, and every command that could show them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio
import pytest

from tests.e2e.program import Program
from travois.cli.main import write_crash_report
from travois.permissions.secrets import mask_text, mask_value
from travois.providers.client import ApiKeyCommand

SECRETS = {
    "named variable": "nv-plum-77-orchid",
    "any variable": "Zk4tQ9vLmWx2RbYp",
    "environment": "env-quartz-31-lily",
    "server variable": "sv-maple-52-heron",
    "server header": "sh-cedar-90-finch",
    "server argument": "sa-birch-64-robin",
    "server url": "su-aspen-15-crane",
    "hook header": "hh-willow-28-eagle",
    "hook command": "hc-poplar-73-stork",
    "provider header": "ph-linden-46-raven",
    "provider url": "pu-spruce-81-egret",
    "helper command": "kh-walnut-39-swift",
    "telemetry header": "th-laurel-57-goose",
}


def plant(program: Program) -> None:
    """Put a secret into each place that can hold one."""
    settings = {
        "env": {"DEPLOY_TOKEN": SECRETS["named variable"], "MY_LOGIN": SECRETS["any variable"]},
        "apiKeyHelper": f"printf %s --token {SECRETS['helper command']}",
        "providers": {
            "mine": {
                "protocol": "chat",
                "url": f"https://user:{SECRETS['provider url']}@models.example/v1",
                "headers": {"X-Api-Key": SECRETS["provider header"]},
            }
        },
        "hooks": {
            "Stop": [
                {
                    "hooks": [
                        {
                            "type": "http",
                            "url": "https://hooks.example/",
                            "headers": {"X-Any": SECRETS["hook header"]},
                        },
                        {
                            "type": "command",
                            "command": "curl -H 'Authorization: Bearer "
                            f"{SECRETS['hook command']}' https://hooks.example/",
                        },
                    ]
                }
            ]
        },
    }
    servers = {
        "local": {
            "command": "true",
            "args": ["--api-key", SECRETS["server argument"]],
            "env": {"SERVER_TOKEN": SECRETS["server variable"]},
        },
        "far": {
            "type": "http",
            "url": f"https://u:{SECRETS['server url']}@mcp.example/",
            "headers": {"Authorization": f"Bearer {SECRETS['server header']}"},
        },
    }
    program.home.mkdir(parents=True, exist_ok=True)
    (program.home / "settings.json").write_text(json.dumps(settings))
    (program.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    program.extra |= {
        "GH_TOKEN": SECRETS["environment"],
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={SECRETS['telemetry header']}",
    }


COMMANDS = (
    ("config", "explain"),
    ("config", "explain", "--json"),
    ("config", "explain", "env"),
    ("config", "explain", "hooks"),
    ("config", "explain", "mcpServers"),
    ("config", "explain", "mcpServers", "--json"),
    ("doctor",),
    ("doctor", "--json"),
    ("mcp",),
    ("mcp", "list"),
    ("mcp", "show", "local"),
    ("mcp", "show", "far"),
    ("models",),
    ("trust", "--list"),
    ("permissions", "why", "ls"),
)


def leaked(text: str) -> list[str]:
    return [place for place, secret in SECRETS.items() if secret in text]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_shows_a_secret(program: Program, words: tuple[str, ...]) -> None:
    plant(program)
    done = program.run(*words)
    assert leaked(done.out + done.err) == []
    assert done.out


def test_what_is_masked_is_still_named_with_its_origin(program: Program) -> None:
    plant(program)
    told = json.loads(program.run("config", "explain", "env", "--json").out)
    origin = str(program.home / "settings.json")
    masked = {"value": "[masked]", "origin": origin}
    assert told == {"env.DEPLOY_TOKEN": masked, "env.MY_LOGIN": masked}


@pytest.mark.parametrize("form", ["markdown", "html", "json", "claude"])
def test_an_export_shows_no_secret_of_settings_or_environment(program: Program, form: str) -> None:
    plant(program)
    (program.home / "settings.json").write_text(
        json.dumps({"env": {"DEPLOY_TOKEN": SECRETS["named variable"]}})
    )
    said = f"use {SECRETS['named variable']} and {SECRETS['environment']}"
    with program.served([said]):
        assert program.ask(said).code == 0
    done = program.run("sessions", "export", program.logs()[0].parent.name, "--format", form)
    assert (done.code, leaked(done.out)) == (0, []), done.err
    assert "[redacted: DEPLOY_TOKEN]" in done.out


CRASHING = """
import sys
from travois.commands import config
def broken(*args):
    raise RuntimeError(sys.argv[-1])
config.render_settings_table = broken
from travois.cli.main import run_command_line as main
sys.exit(main(["config", "explain"]))
"""


def test_a_crash_shows_no_secret_on_the_screen_or_in_its_file(program: Program) -> None:
    plant(program)
    program.launcher = (sys.executable, "-c", CRASHING)
    known = ("named variable", "any variable", "environment", "provider header")
    done = program.run(" and ".join(SECRETS[place] for place in known))
    assert "a bug in Travois" in done.err, done
    (file,) = (program.home / "crashes").iterdir()
    written = file.read_text()
    assert "RuntimeError" in written and "broken" in written
    assert leaked(written + done.out + done.err) == []


def test_a_key_that_a_command_printed_is_in_no_crash_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path))
    key = ApiKeyCommand("echo printed-key-of-ours-12", lambda headers: None)
    anyio.run(key.auth_headers)
    said = write_crash_report(error := RuntimeError("printed-key-of-ours-12"), cause=error)
    (file,) = (tmp_path / "crashes").iterdir()
    assert "printed-key-of-ours-12" not in said + file.read_text()
    assert os.stat(file).st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("curl --token abc123 x", "curl --token [masked] x"),
        ("API_KEY=abc make", "API_KEY=[masked] make"),
        ("-H 'X-Api-Key: abc'", "-H 'X-Api-Key: [masked]'"),
        ("make test TARGET=unit", "make test TARGET=unit"),
        ("export API_KEY=…, or else", "export API_KEY=…, or else"),
        ("python hooks/guard.py --mode strict", "python hooks/guard.py --mode strict"),
    ],
)
def test_secrets_in_a_command_line_are_masked_and_nothing_else(text: str, masked: str) -> None:
    assert mask_text(text) == masked


def test_a_bearer_token_is_masked() -> None:
    assert "abc.def" not in mask_text("curl -H 'Authorization: Bearer abc.def' x")


def test_values_that_tell_nothing_and_other_settings_stay() -> None:
    tree = {"env": {"CI": "1", "LOGIN": "x y"}, "timeout": 5, "list": ["a", "b"]}
    shown = {"env": {"CI": "1", "LOGIN": "[masked]"}, "timeout": 5, "list": ["a", "b"]}
    assert mask_value("mine", tree) == shown
