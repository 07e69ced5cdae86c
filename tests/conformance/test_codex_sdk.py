"""`@openai/codex-sdk`, as it is on npm, drives Travois by `codexPathOverride`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import travois_lab as lab
from tests.e2e.program import Program, write_launcher

MODULES = Path(sys.executable).parents[1] / "codex-node/node_modules"
DOCS = Path(__file__).parents[2] / "docs" / "sdk.md"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63606060"
    "f80f0001040100f61738550000000049454e44ae426082"
)
FORM = {"type": "object", "properties": {"files": {"type": "integer"}}, "required": ["files"]}
HOST = """
import { Codex } from "@openai/codex-sdk";
const { folder, model, form } = JSON.parse(process.argv[2]);
const codex = new Codex({ codexPathOverride: "travois", config: { show_raw: true } });
const options = {
  model, workingDirectory: folder, sandboxMode: "workspace-write", skipGitRepoCheck: true,
  approvalPolicy: "never", modelReasoningEffort: "high", additionalDirectories: [folder],
};
const thread = codex.startThread(options);
const first = await thread.run("Write a file.");
const again = codex.resumeThread(thread.id, options);
const image = { type: "local_image", path: folder + "/pixel.png" };
const look = { type: "text", text: "Look." };
const second = await again.run([look, image], { outputSchema: form });
const types = [];
let trouble = "";
for await (const event of (await again.runStreamed("Once more.")).events) {
  types.push(event.type);
  if (event.type === "turn.failed") { trouble = event.error.message; break; }
}
console.log(JSON.stringify({ id: thread.id, first, second, types, trouble }));
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    if not ((MODULES / "@openai/codex-sdk").exists() and shutil.which("node")):
        pytest.skip("@openai/codex-sdk or node is not installed")
    (tmp_path / "work").mkdir()
    return Program(tmp_path / "work", tmp_path / "home")


def hosted(program: Program, host: str, *args: str) -> str:
    """What a host in JavaScript prints; `travois` is on its path."""
    beside = program.folder.parent
    (beside / "node_modules").symlink_to(MODULES)
    (beside / "host.mjs").write_text(host)
    write_launcher(beside / "travois")
    done = subprocess.run(
        ["node", "../host.mjs", *args],
        cwd=program.folder,
        env=program.environment | {"PATH": f"{beside}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_host_runs_turns_goes_on_shows_images_and_hears_of_failure(program: Program) -> None:
    (program.folder / "pixel.png").write_bytes(PIXEL)
    script = [
        {
            "when": {"last_text": "Write a file."},
            "say": [{"tool_use": {"name": "Write", "input": {"file_path": "a", "content": "a"}}}],
        },
        {"when": {"tool_result": {"name": "Write"}}, "say": "Written."},
        {
            "when": {"tool": "StructuredOutput"},
            "say": [{"tool_use": {"name": "StructuredOutput", "input": {"files": 1}}}],
        },
        {"when": {"tool_result": {"name": "StructuredOutput"}}, "say": "One."},
        {"error": {"status": 403, "message": "no such door"}},
    ]
    with lab.server(script) as api:
        program.url = api.url
        given = {"folder": str(program.folder), "model": program.model[1], "form": FORM}
        got = json.loads(hosted(program, HOST, json.dumps(given)))
        api.no_invalid()
        bodies = api.bodies
    (log,) = program.logs()
    assert got["id"] == log.parent.name
    path = str(program.folder / "a")
    change = {"type": "file_change", "changes": [{"path": path, "kind": "add"}]}
    assert got["first"]["items"] == [
        {"id": "item_0", **change, "status": "completed"},
        {"id": "item_1", "type": "agent_message", "text": "Written."},
    ]
    assert got["first"]["finalResponse"] == "Written."
    assert min(got["first"]["usage"][kind] for kind in ("input_tokens", "output_tokens")) > 0
    assert got["second"]["finalResponse"] == '{"files":1}'
    sent = [block for said in bodies[2]["messages"] for block in said["content"]]
    assert "image" in [block["type"] for block in sent]
    assert [block["text"] for block in sent if "Look." in block.get("text", "")] == ["Look."]
    assert got["types"] == ["thread.started", "turn.started", "error", "turn.failed"]
    assert "no such door" in got["trouble"]


def test_the_example_of_the_docs_runs(program: Program) -> None:
    (example,) = re.findall(r"```js\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    with lab.server([{"say": "Hello.", "repeat": True}]) as api:
        program.url = api.url
        assert hosted(program, example) == "Hello. true\n1\n"
        api.append_only()
