"""`python -m bench conformance [SUITE …] [--write]`: judges that nobody here wrote.

Each suite is a package of a registry at a pinned version, installed below `.venv` on first use. One
that cannot be had is skipped with the reason. `--write` puts the results into docs/conformance.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.program import write_launcher

import travois_lab as lab

ROOT = Path(__file__).parents[1]
PACKAGES = Path(sys.executable).parents[1] / "conformance"
PAGE = ROOT / "docs" / "conformance.md"
MCP_SUITE = "@modelcontextprotocol/conformance@0.1.16"
NODE = "node@22.23.3"
"""The Node that the suite of MCP needs; machines often have an older one."""
TYPESCRIPT_SDK = ("@anthropic-ai/claude-agent-sdk@0.3.328", "zod@4.6.7")
SKILLS_REF = "skills-ref==0.1.1"
LITELLM = "litellm[proxy]==1.106.2"
MCP_SCENARIO = re.compile(r"^  - (\S+) \[", re.MULTILINE)
CASES = re.compile(r"(\d+) (passed|failed|error|skipped)")


class Skipped(Exception):
    """A suite that cannot be run here, and why."""


@dataclass
class Verdict:
    """What a suite found: how many cases passed of how many, and which did not."""

    passed: int
    total: int
    failed: list[str] = field(default_factory=list)


@dataclass
class Suite:
    """One judge: what it is, and how it is run."""

    name: str
    package: str
    about: str
    run: Callable[[], Verdict]


def main() -> None:
    named = [word for word in sys.argv[2:] if not word.startswith("-")]
    rows: list[tuple[Suite, str]] = []
    worst = 0
    for suite in SUITES:
        if named and suite.name not in named:
            continue
        try:
            verdict = suite.run()
        except Skipped as skipped:
            told = f"skipped: {skipped}"
        else:
            told = f"{verdict.passed} of {verdict.total}"
            worst = max(worst, verdict.total - verdict.passed)
            for one in verdict.failed:
                print(f"  failed: {one}")
        print(f"{suite.name}: {told}", flush=True)
        rows.append((suite, told))
    if "--write" in sys.argv:
        write_page(rows)
    if worst:
        sys.exit(1)


def write_page(rows: list[tuple[Suite, str]]) -> None:
    """Replace the table of docs/conformance.md; rows of suites that did not run stay."""
    head, _, rest = PAGE.read_text().partition("| suite |")
    kept = {line.split("`")[1]: line for line in rest.splitlines() if line.startswith("| `")}
    for suite, told in rows:
        kept[suite.name] = f"| `{suite.name}` | {suite.about} | {suite.package} | {told} |"
    lines = [kept[suite.name] for suite in SUITES if suite.name in kept]
    table = "\n".join(
        ("| suite | what it checks | package | passed |", "|---|---|---|---|", *lines)
    )
    PAGE.write_text(f"{head}{table}\n")


def run_tests(*paths: str) -> Verdict:
    """Run test files of ours that use a package of the lock file."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", *paths],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    counts = {word: int(number) for number, word in CASES.findall(done.stdout.splitlines()[-1])}
    failed = re.findall(r"^(?:FAILED|ERROR) \S+::(\S+)", done.stdout, re.MULTILINE)
    if counts.keys() == {"skipped"}:
        raise Skipped("its package is not installed")
    passed = counts.get("passed", 0)
    return Verdict(passed, passed + counts.get("failed", 0) + counts.get("error", 0), failed)


def install_node_packages(*packages: str) -> Path:
    """Install packages of npm; return the folder of their modules."""
    if shutil.which("npm") is None:
        raise Skipped("npm is not installed")
    folder = PACKAGES / re.sub(r"[^\w.-]", "_", packages[0])
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["npm", "install", "--silent", "--no-audit", "--no-fund", "--omit=optional",
             "--prefix", str(folder), *packages],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise Skipped(f"{packages[0]} could not be installed from npm")
        (folder / "done").touch()
    return folder / "node_modules"


def install_python_package(package: str) -> Path:
    """Install a package of PyPI into an environment of its own; return its programs' folder."""
    folder = PACKAGES / re.sub(r"[^\w.-]", "_", package)
    if not (folder / "done").exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", package]
        if subprocess.run(pip, capture_output=True).returncode:
            raise Skipped(f"{package} could not be installed from PyPI")
        (folder / "done").touch()
    return folder / "bin"


# The suite of MCP, with the program as its client.


def judge_mcp() -> Verdict:
    """Run every client scenario of the suite of MCP."""
    modules = install_node_packages(MCP_SUITE, NODE)
    suite = [
        str(modules / ".bin/node"),
        str(modules / "@modelcontextprotocol/conformance/dist/index.js"),
    ]
    listed = subprocess.run([*suite, "list", "--client"], capture_output=True, text=True)
    if listed.returncode:
        raise Skipped(f"the suite does not start: {listed.stderr.strip()[-200:]}")
    names = MCP_SCENARIO.findall(listed.stdout)
    failed = [name for name in names if not passes_scenario(suite, name)]
    return Verdict(len(names) - len(failed), len(names), failed)


def passes_scenario(suite: list[str], name: str) -> bool:
    """Return whether the suite passes a scenario without a failure or a warning."""
    client = f"{sys.executable} -m bench.mcp_client"
    with tempfile.TemporaryDirectory() as results:
        done = subprocess.run(
            [*suite, "client", "--command", client, "--scenario", name, "--timeout", "240000",
             "-o", results],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
    return done.returncode == 0 and "0 failed, 0 warnings" in done.stdout


# The SDK of Claude Code for TypeScript.


WORDS = {
    "hello": "Hello.",
    "again": "Again.",
}


def script_probes() -> list[dict[str, Any]]:
    """Return what the model says to each prompt of the probes."""

    def use(word: str, name: str, **given: Any) -> dict[str, Any]:
        return {
            "when": {"last_text": word},
            "say": [{"tool_use": {"name": name, "input": given}}],
            "repeat": True,
        }

    return [
        *({"when": {"last_text": word}, "say": said, "repeat": True} for word, said in WORDS.items()),
        use("write", "Write", file_path="a.txt", content="a"),
        use("list", "Glob", pattern="*"),
        use("add", "mcp__calc__add", a=2, b=3),
        use("count", "StructuredOutput", n=4),
        {"when": {"last_text": "slow"}, "say": "1 2 3 " * 2000, "chunks": {"by": "char", "delay_ms": 20}},
        {"say": "Done.", "repeat": True},
    ]  # fmt: skip


def judge_typescript() -> Verdict:
    """Run the probes of the SDK for TypeScript."""
    modules = install_node_packages(*TYPESCRIPT_SDK)
    with tempfile.TemporaryDirectory() as name, lab.server(script_probes()) as api:
        folder = Path(name)
        (folder / "work").mkdir()
        launcher = folder / "launch"
        write_launcher(launcher)
        env = os.environ | {
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "sk-lab",
            "TRAVOIS_HOME": str(folder / "home"),
            "HOME": name,
            "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        }
        probes = str(ROOT / "bench/typescript_probes.mjs")
        done = subprocess.run(
            ["node", probes, str(modules), str(launcher), str(folder / "work")],
            env=env, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    failed = [f"{one['name']}: {one['why']}" for one in told if not one["ok"]]
    if not told:
        raise Skipped(f"the SDK does not load: {done.stderr.strip()[-300:]}")
    return Verdict(len(told) - len(failed), len(told), failed)


# The reference of the format of skills.


def write_skills(folder: Path) -> Iterator[str]:
    """Write skills, valid and not, as people write them; yield the name of each one's folder."""
    good = "name: {}\ndescription: Does it. Use it when asked.\n"
    heads = {
        "plain": good.format("plain"),
        "with-all": good.format("with-all") + "license: MIT\ncompatibility: needs git\n"
        "allowed-tools: Bash(git:*)\nmetadata:\n  author: me\n",
        "größe": good.format("größe"),
        "lower-file": good.format("lower-file"),
        "no-name": "description: Does it.\n",
        "no-description": "name: no-description\n",
        "empty-description": 'name: empty-description\ndescription: ""\n',
        "Capital": good.format("Capital"),
        "-lead": good.format("-lead"),
        "two--hyphens": good.format("two--hyphens"),
        "with_line": good.format("with_line"),
        "other-folder": good.format("other-name"),
        "n" * 70: good.format("n" * 70),
        "long-text": "name: long-text\ndescription: " + "word " * 300 + "\n",
        "long-needs": good.format("long-needs") + "compatibility: " + "x" * 501 + "\n",
        "more-fields": good.format("more-fields") + "version: 1\n",
        "colons": "name: colons\ndescription: Use when: asked\n",
    }
    for name, head in heads.items():
        (folder / name).mkdir(parents=True)
        file = "skill.md" if name == "lower-file" else "SKILL.md"
        (folder / name / file).write_text(f"---\n{head}---\nDo it.\n")
        yield name
    for name, text in {"unclosed": "---\nname: unclosed\n", "bare": "Do it.\n"}.items():
        (folder / name).mkdir()
        (folder / name / "SKILL.md").write_text(text)
        yield name


def judge_skills() -> Verdict:
    """Compare which skills count as valid here and for skills-ref."""
    reference = install_python_package(SKILLS_REF) / "agentskills"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "home/skills"
        names = [*write_skills(folder)]
        env = os.environ | {"TRAVOIS_HOME": str(folder.parent), "HOME": name}
        program = str(Path(sys.executable).parent / "travois")
        done = subprocess.run(
            [program, "skills", "--json"], env=env, cwd=name, capture_output=True, text=True
        )
        listed = {Path(one["origin"]).parent.name: one for one in json.loads(done.stdout)}
        failed: list[str] = []
        for one in names:
            valid = subprocess.run([reference, "validate", folder / one], capture_output=True)
            here = one in listed and not listed[one]["flaws"]
            named = one in listed or one in done.stderr
            if here != (valid.returncode == 0) or not named:
                failed.append(one)
    return Verdict(len(names) - len(failed), len(names), failed)


# LiteLLM as a proxy that speaks OpenAI's format, between the program and the lab.


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def judge_litellm() -> Verdict:
    """Answer, call a tool and resume through a proxy of LiteLLM."""
    proxy = install_python_package(LITELLM) / "litellm"
    use = {"tool_use": {"name": "Write", "input": {"file_path": "a.txt", "content": "a"}}}
    script = [{"say": "Hello."}, {"say": [use]}, {"say": "Written."}, {"say": "Again."}]
    with tempfile.TemporaryDirectory() as name, lab.server(script) as api:
        folder, port = Path(name), free_port()
        params = {"model": "openai/gpt-5.1", "api_base": f"{api.url}/v1", "api_key": "sk-lab"}
        config = {"model_list": [{"model_name": "large", "litellm_params": params}]}
        (folder / "config.yaml").write_text(json.dumps(config))
        provider = {
            "protocol": "chat",
            "url": f"http://127.0.0.1:{port}/v1",
            "keyEnv": ["HOUSE_KEY"],
        }
        models = {"house/large": {"window": 128_000, "output": 16_000}}
        (folder / "home").mkdir()
        settings = {"providers": {"house": provider}, "models": models}
        (folder / "home/settings.json").write_text(json.dumps(settings))
        env = os.environ | {
            "TRAVOIS_HOME": str(folder / "home"),
            "HOME": name,
            "HOUSE_KEY": "sk-house",
            "LITELLM_MASTER_KEY": "sk-house",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        (folder / "work").mkdir()
        running = subprocess.Popen(
            [proxy, "--config", folder / "config.yaml", "--host", "127.0.0.1", "--port", str(port)],
            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_for_port(port)
            failed = [word for word, told in ask_through_proxy(folder / "work", env) if not told]
        finally:
            running.terminate()
            running.wait()
    return Verdict(3 - len(failed), 3, failed)


def wait_for_port(port: int) -> None:
    """Wait until a program listens on a port; skip if it never does."""
    for _ in range(1200):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise Skipped("the proxy did not start within four minutes")


def ask_through_proxy(folder: Path, env: dict[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield what was tried through the proxy, and whether it worked."""

    def ask(*args: str) -> str:
        program = str(Path(sys.executable).parent / "travois")
        done = subprocess.run(
            [program, "-p", "go", "--model", "house/large", *args],
            cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        return done.stdout.strip()

    yield "an answer", ask() == "Hello."
    written = ask("--allowedTools", "Write", "Edit")
    yield "a tool call", written == "Written." and (folder / "a.txt").exists()
    yield "a resumed session", ask("--continue") == "Again."


SUITES = (
    Suite("claude-sdk", "claude-agent-sdk (PyPI)", "the 42 cases of the Python SDK's own suite, in our words",
          lambda: run_tests("tests/conformance/test_claude_sdk_suite.py")),
    Suite("claude-sdk-more", "claude-agent-sdk (PyPI)", "more of the Python SDK: stores, control requests",
          lambda: run_tests("tests/conformance/test_claude_sdk.py", "tests/conformance/test_claude_store.py",
                            "tests/conformance/test_control.py")),
    Suite("typescript", " ".join(TYPESCRIPT_SDK[:1]), "the SDK for TypeScript: probes", judge_typescript),
    Suite("mcp", MCP_SUITE, "the MCP suite, every client scenario", judge_mcp),
    Suite("skills", SKILLS_REF, "valid and invalid skills, compared with the reference", judge_skills),
    Suite("acp", "agent-client-protocol (PyPI)", "an editor over the Agent Client Protocol",
          lambda: run_tests("tests/conformance/test_acp.py", "tests/conformance/test_acp_files.py",
                            "tests/conformance/test_acp_sessions.py")),
    Suite("codex-sdk", "@openai/codex-sdk@0.163.0", "the SDK of Codex",
          lambda: run_tests("tests/conformance/test_codex_sdk.py")),
    Suite("litellm", LITELLM, "a proxy in OpenAI's format in front of the model", judge_litellm),
    Suite("otlp", "opentelemetry-exporter-otlp-proto-http (PyPI)", "traces and metrics over OTLP",
          lambda: run_tests("tests/e2e/test_telemetry.py")),
)  # fmt: skip
