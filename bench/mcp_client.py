"""`python -m bench.mcp_client URL`: the real program as a client of `@modelcontextprotocol/conformance`.

The suite starts it with the address of a test server and says in `MCP_CONFORMANCE_SCENARIO` and
`MCP_CONFORMANCE_CONTEXT` which test that is and which credentials it gives. As a user would, it
writes the server's entry, logs in with a browser that says yes, and lets a scripted model call
its tool; where the call is refused for its scope, it logs in and calls once more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import travois_lab as lab

SERVER = "judge"
METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""The client id that the suite expects where it tests documents about clients."""
BROWSER = f"""#!{sys.executable}
import sys, urllib.request
urllib.request.urlopen(sys.argv[1]).read()
"""
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "initialize": ("", {}),
    "tools_call": ("add_numbers", {"a": 5, "b": 3}),
    "elicitation-sep1034-client-defaults": ("test_client_elicitation_defaults", {}),
    "sse-retry": ("test_reconnection", {}),
}
AUTH_CALL = ("test-tool", {})
"""The tool that the model calls in each scenario, and its arguments."""
ACCEPT = {"hookSpecificOutput": {"hookEventName": "Elicitation", "action": "accept", "content": {}}}


def main() -> int:
    url, scenario = sys.argv[-1], os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    with tempfile.TemporaryDirectory(prefix="judge-") as folder:
        client = Client(Path(folder), url)
        client.write_entry(describe_login(scenario, url, context))
        if scenario.startswith("auth/") and "grantType" not in client.oauth:
            client.run("mcp", "login", SERVER)
        tool, given = CALLS.get(scenario, AUTH_CALL)
        told = client.call_tool(tool, given)
        if "missing scope" in told:
            client.run("mcp", "login", SERVER)
            client.call_tool(tool, given)
    return 0


class Client:
    """The program in a folder and a home of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url, self.home, self.folder = url, folder / "home", folder / "work"
        self.oauth: dict[str, Any] = {}
        self.home.mkdir()
        self.folder.mkdir()
        browser = folder / "browser"
        browser.write_text(BROWSER)
        browser.chmod(0o755)
        self.environment = os.environ | {
            "TRAVOIS_HOME": str(self.home),
            "HOME": str(folder),
            "BROWSER": str(browser),
            "ANTHROPIC_API_KEY": "sk-lab",
        }

    def write_entry(self, oauth: dict[str, Any]) -> None:
        """Write the server's entry and a hook that accepts its questions."""
        self.oauth = oauth
        entry = {"type": "http", "url": self.url, "oauth": oauth}
        servers = {"mcpServers": {SERVER: {key: value for key, value in entry.items() if value}}}
        (self.home / "mcp.json").write_text(json.dumps(servers))
        answer = self.home / "answer.json"
        answer.write_text(json.dumps(ACCEPT))
        hook = {"hooks": [{"type": "command", "command": f"cat {answer}"}]}
        settings = {"hooks": {"Elicitation": [hook]}}
        (self.home / "settings.json").write_text(json.dumps(settings))

    def run(self, *args: str, url: str = "") -> str:
        """Run the program to its end; return all that it says."""
        program = str(Path(sys.executable).parent / "travois")
        env = self.environment | ({"ANTHROPIC_BASE_URL": url} if url else {})
        done = subprocess.run(
            [program, *args],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
        )
        print(f"$ travois {' '.join(args)}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def call_tool(self, tool: str, given: dict[str, Any]) -> str:
        """Let a model call a tool of the server; return what it is told."""
        if not tool:
            return self.run("mcp", "test", SERVER)
        use = {"tool_use": {"name": f"mcp__{SERVER}__{tool}", "input": given}}
        rules = ("--allowedTools", f"mcp__{SERVER}")
        with lab.server([{"say": [use]}, {"say": "Done."}]) as api:
            self.run("-p", "go", "--model", "anthropic/claude-opus-5-5", *rules, url=api.url)
            told = json.dumps(api.bodies[-1]["messages"][-1])
        print(told)
        return told


def describe_login(scenario: str, url: str, context: dict[str, str]) -> dict[str, Any]:
    """Return what a user would write about the login of the server of a scenario."""
    told: dict[str, Any] = {}
    if scenario == "auth/basic-cimd":
        return {"clientMetadataUrl": METADATA_URL}
    if context.get("client_id"):
        told = {"clientId": context["client_id"], "clientSecret": context.get("client_secret", "")}
    if "client-credentials" in scenario:
        told |= {"grantType": "client_credentials", "issuer": find_issuer(url)}
        told["privateKey"] = context.get("private_key_pem", "")
        told["signingAlgorithm"] = context.get("signing_algorithm", "")
    if "cross-app" in scenario:
        told |= {"grantType": "cross_app_access", "issuer": find_issuer(url)}
        told["identityProvider"] = {
            "clientId": context["idp_client_id"],
            "idToken": context["idp_id_token"],
            "tokenEndpoint": context["idp_token_endpoint"],
        }
    return {key: value for key, value in told.items() if value}


def find_issuer(url: str) -> str:
    """Return the authorization server of a test server, which a user gets from its owner."""
    there = urlsplit(url)
    metadata = f"{there.scheme}://{there.netloc}/.well-known/oauth-protected-resource{there.path}"
    with urllib.request.urlopen(metadata) as answer:
        return json.load(answer)["authorization_servers"][0]


if __name__ == "__main__":
    sys.exit(main())
