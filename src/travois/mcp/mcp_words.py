"""What an entry that names a server means, whoever's words it is in."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from travois.prompt.instruction_files import plain_text
from travois.settings.schema import Json
from travois.settings.sources import Where
from travois.settings.validate import Level, is_list, is_tree

if TYPE_CHECKING:
    from travois.mcp.lenders import Server, Standing

SEARCHED, SHARE = "ENABLE_TOOL_SEARCH", 0.1
SOCKETS = ("ws://", "wss://")
SOCKET = "WebSockets are no part of MCP, and its SDK does not speak them; most servers speak http"
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}|\$?\{env:(\w+)\}|\{file:([^}]+)\}")
BARE = re.compile(r"\$(\w+)")
"""A variable as Gemini may write it, too."""
Filler = Callable[[object], str]


class Entry(msgspec.Struct, frozen=True):
    """A server as it is written somewhere."""

    name: str
    tree: Json
    origin: str
    level: Level

    @property
    def text(self) -> str:
        """All of it, as a person is shown it."""
        return f"mcp server {self.name}: {msgspec.json.encode(self.tree, order='sorted').decode()}"


def server(entry: Entry, where: Where, environ: Mapping[str, str], notices: list[str]) -> Server:
    """What an entry means, whoever's words it is in; raises ValueError if that is nothing."""
    from travois.mcp.lenders import Server

    tree = entry.tree

    place = {"CLAUDE_PROJECT_DIR": where.root, "workspaceFolder": where.root}
    known = {**place, "userHome": environ.get("HOME", ""), **environ}

    def text(value: object) -> str:
        said = BARE.sub(r"${\1}", str(value)) if _gemini(entry.origin) else str(value)
        return _filled(said, known, entry, notices)

    argv = tuple(text(word) for word in _argv(tree))
    url = text(tree.get("httpUrl") or tree.get("url") or "")
    if not argv and (tree.get("type") == "ws" or url.startswith(SOCKETS)):
        raise ValueError(SOCKET)
    if not argv and not url.startswith(("http://", "https://")):
        raise ValueError("it has neither a command nor an http address")
    if tree.get("required") is True:
        notices.append(
            f"{entry.origin}: server {entry.name} is required, but no prompt waits for it"
        )
    base = where.home.path if entry.level == "user" else where.cwd
    start, limit = _patience(tree, environ)
    return Server(
        entry.name,
        "stdio" if argv else _kind(tree, entry.origin),
        origin=entry.origin,
        level=entry.level,
        argv=argv,
        env={key: text(value) for key, value in _words(tree, "env", "environment")},
        cwd=os.path.join(base, text(tree["cwd"])) if tree.get("cwd") else where.cwd,
        url=url,
        headers=dict(_headers(tree, environ, text)),
        helper=str(tree.get("headersHelper") or ""),
        client=dict(_client(tree, text)),
        port=_port(tree),
        standing="all" if tree.get("alwaysLoad") else _standing(environ),
        start=_seconds(tree, "startup_timeout_sec", start),
        limit=_seconds(tree, "tool_timeout_sec", limit),
        free=tuple(_free(tree)) if entry.level in ("user", "local", "run") else (),
        sandbox=_sandboxed(tree, entry.level),
        only=_names(tree, "enabled_tools", "includeTools"),
        without=_names(tree, "disabled_tools", "excludeTools"),
    )


def _sandboxed(tree: Json, level: Level) -> bool | None:
    """Whether it says that it runs in the sandbox; a workspace's may not say that it does not."""
    said = tree.get("sandbox")
    return said if isinstance(said, bool) and (said or level != "project") else None


def _standing(environ: Mapping[str, str]) -> Standing:
    """What a word for all servers says, as other agents know it."""
    known: dict[str, Standing] = {"false": "all", "auto": "fitting"}
    return known.get(environ.get(SEARCHED, "").partition(":")[0], "some")


def share(environ: Mapping[str, str]) -> float:
    """The part of the window that tools may take which stand in the head only if they fit."""
    percent = environ.get(SEARCHED, "").partition(":")[2]
    return min(100, int(percent)) / 100 if percent.isdecimal() else SHARE


def _argv(tree: Json) -> tuple[object, ...]:
    command, args = tree.get("command"), tree.get("args")
    if is_list(command):
        return tuple(command)
    return (command, *(args if is_list(args) else ())) if command else ()


def _kind(tree: Json, origin: str) -> Literal["http", "sse"]:
    """How an address is spoken to; Gemini and its kin mean events by a plain one."""
    events = _gemini(origin) and "httpUrl" not in tree and "type" not in tree
    old = tree.get("type") == "sse" or events
    return "sse" if old else "http"


def _gemini(origin: str) -> bool:
    return ".gemini" in origin or ".qwen" in origin


def _headers(tree: Json, environ: Mapping[str, str], text: Filler) -> Iterator[tuple[str, str]]:
    for name, value in _words(tree, "headers", "http_headers"):
        yield name, text(value)
    for name, variable in _words(tree, "env_http_headers"):
        yield name, environ.get(str(variable), "")
    if bearer := tree.get("bearer_token_env_var"):
        yield "Authorization", f"Bearer {environ.get(str(bearer), '')}"


def _client(tree: Json, text: Filler) -> Iterator[tuple[str, str]]:
    """Who we are to a server, in the words of the protocol, where an entry says so."""
    oauth = tree.get("oauth")
    if not is_tree(oauth) or not oauth.get("clientId"):
        return
    secret = oauth.get("clientSecret")
    yield "client_id", text(oauth["clientId"])
    yield "token_endpoint_auth_method", "client_secret_post" if secret else "none"
    if secret:
        yield "client_secret", text(secret)


def _port(tree: Json) -> int:
    oauth = tree.get("oauth")
    port = oauth.get("callbackPort") if is_tree(oauth) else 0
    return port if isinstance(port, int) and 0 < port < 65536 else 0


def _words(tree: Json, *keys: str) -> Iterator[tuple[str, object]]:
    for key in keys:
        inner = tree.get(key)
        yield from (inner if is_tree(inner) else {}).items()


def _names(tree: Json, *keys: str) -> tuple[str, ...]:
    lists = (tree.get(key) for key in keys)
    return tuple(str(name) for each in lists if is_list(each) for name in each)


def _seconds(tree: Json, key: str, default: float) -> float:
    value = tree.get(key)
    return max(1.0, float(value)) if isinstance(value, int | float) else default


def _patience(tree: Json, environ: Mapping[str, str]) -> tuple[float, float]:
    """How many seconds a start and a call may take; `timeout` is of a start for opencode only."""
    said, starts = tree.get("timeout"), tree.get("type") in ("local", "remote")
    start = said if starts else environ.get("MCP_TIMEOUT")
    limit = environ.get("MCP_TOOL_TIMEOUT") if starts or said is None else said
    return _milliseconds(start, 30.0), _milliseconds(limit, 300.0)


def _milliseconds(said: object, default: float) -> float:
    text = str(said)
    return max(1.0, int(text) / 1000) if text.isdecimal() else default


def _free(tree: Json) -> Iterator[str]:
    """The tools that Gemini trusts and Codex approves."""
    if tree.get("trust") is True or tree.get("default_tools_approval_mode") == "approve":
        yield "*"
    for name, said in _words(tree, "tools"):
        if is_tree(said) and said.get("approval_mode") == "approve":
            yield name


def _filled(text: str, environ: Mapping[str, str], entry: Entry, notices: list[str]) -> str:
    """A text with its variables; one that is not set stays as it is written, and that is said."""

    def value(found: re.Match[str]) -> str:
        if found[4]:
            return _content(found[4], entry, notices) or found[0]
        name = found[1] or found[3]
        if name not in environ and found[2] is None:
            notices.append(f"{entry.origin}: server {entry.name} wants {name}, which is not set")
        return environ.get(name, found[0] if found[2] is None else found[2])

    return VARIABLE.sub(value, text)


def _content(name: str, entry: Entry, notices: list[str]) -> str:
    """What a file says whose name stands for it; empty if it may not be read, and that is said."""
    try:
        if entry.level == "project":
            raise OSError("only your own files may name it")
        path = os.path.join(os.path.dirname(entry.origin), os.path.expanduser(name))
        return plain_text(path).strip()
    except OSError as error:
        why = error.strerror or error
        notices.append(f"{entry.origin}: server {entry.name} wants the file {name}: {why}")
        return ""
