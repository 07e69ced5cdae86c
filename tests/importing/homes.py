"""A person's home in which four agents keep what they keep."""

from __future__ import annotations

import json
from pathlib import Path

from tests.compat.sessions import writing
from tests.compat.sessions.writing import TALK, put

KEY = "sk-ant-api03-" + "a1B2c3D4" * 6


def text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def make(person: Path) -> dict[str, str]:
    """Fill a home; returns the environment in which agents find it."""
    _claude(person / ".claude", person)
    _codex(person / ".codex")
    _opencode(person / ".config" / "opencode")
    _gemini(person / ".gemini")
    talk(person)
    return {"HOME": str(person)}


def talk(person: Path) -> None:
    """One session of each agent."""
    writing.opencode_files(person / ".local" / "share", TALK)
    put(person / ".claude/projects/-w/aaa.jsonl", writing.claude(TALK))
    put(person / ".codex/sessions/2026/11/16/rollout-1.jsonl", writing.codex(TALK))
    put(
        person / ".gemini/tmp/p/chats/session-1.json",
        [{"sessionId": "g1", "messages": writing.gemini(TALK)}],
    )


def _claude(folder: Path, person: Path) -> None:
    settings = {
        "model": "opus",
        "cleanupPeriodDays": 30,
        "env": {"EDITOR": "vi", "GITHUB_TOKEN": "ghp_" + "x1Y2" * 9, "ANTHROPIC_API_KEY": KEY},
        "permissions": {
            "allow": ["Bash(git diff:*)", "Read(/notes/**)", "Frobnicate("],
            "deny": ["Read(~/.ssh/**)"],
            "defaultMode": "acceptEdits",
        },
        "hooks": {
            "PostToolUse": [
                {"matcher": "Edit", "hooks": [{"type": "command", "command": "~/.claude/fmt.sh"}]}
            ]
        },
    }
    text(folder / "settings.json", json.dumps(settings))
    servers = {
        "time": {"command": "uvx", "args": ["mcp-server-time"]},
        "docs": {"type": "http", "url": "https://x.example/mcp", "headers": {"X-Api-Key": KEY}},
    }
    state = {"mcpServers": servers, "projects": {"/w": {"mcpServers": {"near": {"command": "n"}}}}}
    text(person / ".claude.json", json.dumps(state))
    text(folder / "CLAUDE.md", "Be brief. See @style.md\n")
    text(folder / "style.md", "Use tabs.\n")
    text(folder / "rules" / "ts.md", "---\npaths: ['*.ts']\n---\nNo any.\n")
    text(folder / "agents" / "tester.md", "---\nname: tester\ndescription: Tests\n---\nTest it.\n")
    text(folder / "commands" / "git" / "sync.md", "Pull and push $ARGUMENTS\n")
    text(folder / "skills" / "pdf" / "SKILL.md", "---\nname: pdf\n---\nRead PDFs.\n")
    text(folder / "skills" / "pdf" / "run.sh", "#!/bin/sh\n").chmod(0o755)
    text(folder / "output-styles" / "terse.md", "---\nname: terse\n---\nFew words.\n")
    text(folder / ".credentials.json", "{}")


def _codex(folder: Path) -> None:
    config = """\
model = "gpt-6.1-sol"
approval_policy = "on-request"
sandbox_mode = "workspace-write"
notify = ["beep"]
[profiles.fast]
model = "gpt-6-luna"
[model_providers.corp]
base_url = "https://llm.corp.example/v1"
env_key = "CORP_KEY"
wire_api = "responses"
[mcp_servers.gh]
command = "gh-mcp"
env = { GH_TOKEN = "ghp_%s" }
[projects."/w"]
trust_level = "trusted"
""" % ("x1Y2" * 9)
    text(folder / "config.toml", config)
    rules = """\
prefix_rule(pattern = ["git", ["status", "log"]], decision = "allow")
prefix_rule(pattern = ["git", "push"], decision = "prompt", justification = "ask first")
prefix_rule(pattern = ["rm"], decision = "forbidden")
prefix_rule(pattern = [HOME])
"""
    text(folder / "rules" / "default.rules", rules)
    text(folder / "prompts" / "review.md", "Review $1\n")
    text(folder / "AGENTS.md", "Write tests first.\n")


def _opencode(folder: Path) -> None:
    config = """\
{ // mine
  "model": "openrouter/some-model", "theme": "system",
  "permission": {"bash": {"*": "ask", "git status*": "allow"}, "edit": "allow"},
  "mcp": {"db": {"type": "local", "command": ["db-mcp"], "environment": {"URL": "{env:DB}"}}},
  "provider": {"corp2": {"npm": "@ai-sdk/openai-compatible",
    "options": {"baseURL": "https://c2.example/v1", "apiKey": "{env:C2}"}}, "near": {}},
  "agent": {"docs": {"description": "Writes docs", "prompt": "Write.", "tools": {"bash": false}},
            "off": {"disable": true}},
  "command": {"lint": {"template": "Lint $1", "description": "Lints"}},
}
"""
    text(folder / "opencode.json", config)
    agent = """\
---
description: Reviews code
mode: subagent
model: anthropic/claude-opus-5-5
temperature: 0.1
permission:
  edit: deny
  bash:
    "git push*": deny
---
Review it.
"""
    text(folder / "agent" / "review.md", agent)


def _gemini(folder: Path) -> None:
    settings = {
        "model": {"name": "gemini-3.1-pro-preview"},
        "tools": {"allowed": ["run_shell_command(git status)", "save_memory"]},
        "excludeTools": ["web_fetch"],
        "mcpServers": {"sse": {"url": "https://s.example/sse", "trust": True}},
        "hooks": {"BeforeTool": [{"hooks": [{"type": "command", "command": "true"}]}]},
        "ui": {"theme": "x"},
    }
    text(folder / "settings.json", json.dumps(settings))
    text(folder / "commands" / "plan.toml", 'prompt = "Plan {{args}}"\n')
    text(folder / "GEMINI.md", "Answer in English.\n")
