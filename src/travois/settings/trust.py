"""Workspace trust: what the user approved for a folder, and permission answers kept for it.

Trust is bound to what was shown. Each request of a folder is approved by its digest, so later
requests are asked about again, and what was approved stays.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b, file_digest
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.patterns import compile_lazily
from travois.permissions.paths import is_inside
from travois.permissions.updates import SANDBOX_MODE, PermissionUpdate
from travois.sessions import blobs
from travois.sessions.home import TravoisHome
from travois.settings.edit import add_to_user_setting
from travois.settings.reached_files import compare_reached_files, find_reached_files
from travois.settings.schema import Json, PermissionSettings, TrustStatus
from travois.settings.validate import (
    MERGED_LISTS,
    PROJECT_DIR_VARIABLE,
    SettingsLayer,
    as_text_list,
    is_json_array,
)

# Which files of a workspace a trusted command reaches, beyond the programs that it names.


AnswerKind = Literal["allow", "ask", "deny", "folders"]
COMMAND_REQUESTS = ("hook ", "hooks: ", "mcp server ", "statusLine.command", "language server ")
"""Beginnings of request lines that run a command."""
MAX_DIGESTS = 1000
"""The most digests that are kept for a folder; the oldest are dropped."""


class FolderTrust(msgspec.Struct, frozen=True):
    """The user's decisions about one folder."""

    path: str
    trusted: bool = False
    agreed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Digests of what it asks for."""
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    """Rules that their answers made there."""
    folders: tuple[str, ...] = ()
    """More folders that may be worked in from there."""
    reached: dict[str, dict[str, str]] = {}
    """The files that an approved request reached then, with their digests, by the request's
    digest."""
    sandboxed: bool = False
    """True if sandboxed commands run there without asking."""

    def answers(self, under: AnswerKind) -> tuple[str, ...]:
        """Return their answers of one kind."""
        match under:
            case "allow":
                return self.allow
            case "ask":
                return self.ask
            case "deny":
                return self.deny
            case "folders":
                return self.folders


def trust_root(folder: str) -> str:
    """Return the folder that trust in this one applies to: its repository, if it is in one.

    A worktree is part of its main checkout if that one knows of it: a folder's own claims may be
    forged, so they count only if the other end agrees.
    """
    here = top = os.path.realpath(folder)
    while not os.path.lexists(os.path.join(top, ".git")):
        parent = os.path.dirname(top)
        if parent == top:
            return here
        top = parent
    return _main_checkout(top) or top


def trust_status(home: TravoisHome, root: str, wanted: Iterable[str]) -> TrustStatus:
    """Return how far the user trusts what a folder asks for."""
    said, asked = _load_folder_trust(home, root), set(map(digest_request, wanted))
    if said.trusted and asked <= set(said.agreed):
        return "trusted"
    if asked and asked <= {*said.agreed, *said.refused}:
        return "refused"
    return "changed" if said.trusted else "unknown"


def list_agreed_digests(home: TravoisHome, root: str) -> frozenset[str]:
    """Return the digests of all requests that the user approved in a trusted folder."""
    said = _load_folder_trust(home, root)
    return frozenset(said.agreed) if said.trusted else frozenset()


def trust_folder(
    home: TravoisHome, root: str, wanted: Iterable[str], *, places: tuple[str, ...] = ()
) -> None:
    """Trust a folder with its requests, and with the files that they reach now.

    `places` are the folders that its commands run in.
    """
    lines = tuple(wanted)
    asked, reached = tuple(map(digest_request, lines)), _trace_commands(lines, places)
    with _edit_folder_trust(home, root) as (said, save):
        left = tuple(each for each in said.refused if each not in asked)
        agreed = _append_unique(said.agreed, asked)
        kept = {key: files for key, files in said.reached.items() if key in agreed}
        save(replace(said, trusted=True, agreed=agreed, refused=left, reached={**kept, **reached}))


def find_changed_files(
    home: TravoisHome, root: str, wanted: Iterable[str], *, places: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """Return the changed files behind trusted commands, by the approved line."""
    said = _load_folder_trust(home, root)
    lines = (
        [line for line in wanted if digest_request(line) in said.reached] if said.trusted else []
    )
    if not lines:
        return {}

    found = {
        line: compare_reached_files(
            said.reached[digest_request(line)], find_reached_files(line, places)
        )
        for line in lines
    }
    return {line: files for line, files in found.items() if files}


def _trace_commands(lines: tuple[str, ...], places: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return the files in the workspace that each command of the settings may run, with digests."""
    running = [line for line in lines if line.startswith(COMMAND_REQUESTS)] if places else []
    if not running:
        return {}

    return {digest_request(line): find_reached_files(line, places) for line in running}


def refuse_requests(home: TravoisHome, root: str, wanted: Iterable[str]) -> None:
    """Record that the user refuses to trust these requests, so that they are not asked again."""
    asked = tuple(map(digest_request, wanted))
    with _edit_folder_trust(home, root) as (said, save):
        fresh = tuple(each for each in asked if each not in said.agreed)
        save(replace(said, refused=_append_unique(said.refused, fresh)))


def revoke_trust(home: TravoisHome, root: str) -> bool:
    """Remove all trust in a folder; return whether there was any."""
    with _edit_folder_trust(home, root) as (said, save):
        save(replace(said, trusted=False, agreed=(), refused=(), reached={}))
        return said.trusted


def list_folder_trust(home: TravoisHome) -> tuple[FolderTrust, ...]:
    """Return the user's trust decisions about all folders."""
    folder = home.path / "trust"
    files = folder.glob("*.json") if folder.is_dir() else ()
    said = (_decode_folder_trust(file.read_bytes()) for file in files)
    return tuple(sorted((each for each in said if each.path), key=lambda each: each.path))


def remember_answer(
    home: TravoisHome, root: str, item: str, *, under: AnswerKind = "allow"
) -> None:
    """Remember a permission answer for a trusted folder: a rule, or an additional folder."""
    with _edit_folder_trust(home, root) as (said, save):
        save(replace(said, **{under: _append_unique(said.answers(under), (item,))}))


def save_permission_update(home: TravoisHome, root: str, update: PermissionUpdate) -> None:
    """Save a permission answer for later sessions of this folder or of the user."""
    if update.destination == "userSettings" and update.type == "addRules":
        for spec in update.rules:
            add_to_user_setting(home, f"permissions.{update.behavior}", spec.text)
        return
    if update.type == "setMode" and update.mode == SANDBOX_MODE:
        set_sandboxed(home, root, allowed=True)
    change = forget_answer if update.type.startswith("remove") else remember_answer
    for spec in update.rules:
        change(home, root, spec.text, under=update.behavior)
    for folder in update.directories:
        change(home, root, folder, under="folders")


def forget_answer(home: TravoisHome, root: str, item: str, *, under: AnswerKind = "allow") -> bool:
    """Forget a permission answer kept for a folder; return whether there was one."""
    with _edit_folder_trust(home, root) as (said, save):
        left = tuple(each for each in said.answers(under) if each != item)
        save(replace(said, **{under: left}))
        return item in said.answers(under)


def list_answers(home: TravoisHome, root: str, *, under: AnswerKind = "allow") -> tuple[str, ...]:
    """Return the permission answers of one kind that are kept for a folder."""
    return _load_folder_trust(home, root).answers(under)


def set_sandboxed(home: TravoisHome, root: str, *, allowed: bool) -> bool:
    """Remember whether sandboxed commands run without asking in a folder; return the old choice."""
    with _edit_folder_trust(home, root) as (said, save):
        save(replace(said, sandboxed=allowed))
        return said.sandboxed


def is_sandboxed(home: TravoisHome, root: str) -> bool:
    """Return whether sandboxed commands run without asking in a folder."""
    return _load_folder_trust(home, root).sandboxed


def digest_request(text: str) -> str:
    """Return the digest by which the user's answer to a trust request is remembered."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


def _main_checkout(top: str) -> str:
    """Return a worktree's main checkout for trust; empty if there is none that knows it."""
    git = os.path.join(top, ".git")
    where = _read_git_file(git).removeprefix("gitdir:").strip()
    if not where:
        return ""
    own = os.path.realpath(os.path.join(top, where))
    trees = os.path.dirname(own)
    back = os.path.join(own, _read_git_file(os.path.join(own, "gitdir")).strip())
    known_there = os.path.basename(trees) == "worktrees" and os.path.realpath(back) == git
    return _checkout_of_git_folder(os.path.dirname(trees)) if known_there else ""


def _checkout_of_git_folder(common: str) -> str:
    return os.path.dirname(common) if os.path.basename(common) == ".git" else common


def _read_git_file(path: str) -> str:
    """Read a regular `.git` file that leads to a repository; empty for anything else."""
    if not os.path.isfile(path) or os.path.islink(path):
        return ""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(4096)
    except OSError:
        return ""


def _append_unique(old: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *more)))[-MAX_DIGESTS:]


def _load_folder_trust(home: TravoisHome, root: str) -> FolderTrust:
    """Load the user's trust in a workspace folder; empty if nothing was decided."""
    path = root.encode("utf-8", "backslashreplace").decode()
    try:
        found = _decode_folder_trust(
            (home.path / "trust" / f"{digest_request(root)}.json").read_bytes()
        )
    except OSError:
        return FolderTrust(path)
    return found if found.path == path else FolderTrust(path)


def _decode_folder_trust(data: bytes) -> FolderTrust:
    """Decode a trust file; one that cannot be decoded grants nothing."""
    try:
        return msgspec.json.decode(data, type=FolderTrust)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return FolderTrust("")


@contextmanager
def _edit_folder_trust(
    home: TravoisHome, root: str
) -> Generator[tuple[FolderTrust, Callable[[FolderTrust], None]]]:
    """Yield the trust decisions about a folder, and a function to replace them, under a lock."""
    folder = home.path / "trust"
    path = folder / f"{digest_request(root)}.json"
    try:
        blobs.make_folders(folder)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield (
                _load_folder_trust(home, root),
                lambda said: blobs.replace_file(path, msgspec.json.encode(said)),
            )
        finally:
            os.close(lock)
    except OSError as error:
        raise blobs.make_storage_error("Your answer cannot be saved", error, path=folder) from error


# What comes with a workspace: it may tighten at once; anything else only by the user's trust.


MODES_BY_STRICTNESS = ("plan", "dont-ask", "default", "accept-edits", "auto", "bypass")
"""Modes, the strictest first."""
TIGHTENING_KEYS = frozenset(
    (
        "permissions.deny",
        "permissions.ask",
        "permissions.examples",
        "instructions",
        "outputStyle",
        "permissions.disableBypassPermissionsMode",
        "permissions.disableAutoMode",
        "deniedModels",
        "deniedMcpServers",
        "disabledMcpjsonServers",
        "sandbox.network.deniedDomains",
        "sandbox.filesystem.denyWrite",
        "sandbox.filesystem.denyRead",
        "sandbox.hiddenToolChains",
    )
)
TIGHTENING_VALUES: Json = {
    "permissions.blockReadsOutsideWorkingDirectories": True,
    "permissions.blockWritesOutsideWorkingDirectories": True,
    "permissions.denyInsteadOfPrompting": True,
    "sandbox.enabled": True,
    "sandbox.required": True,
    "sandbox.hooks": True,
    "sandbox.mcpServers": True,
    "sandbox.lookFirst": False,
    "sandbox.allowUnsandboxedCommands": False,
    "sandbox.network.mode": "off",
    "lsp.enabled": False,
}
LIMIT_KEYS = frozenset(
    (
        "maxTurns",
        "maxBudgetUsd",
        "maxTokens",
        "maxSeconds",
        "maxDepth",
        "maxAgents",
        "maxOutputTokens",
    )
)
FORBIDDEN_KEYS = frozenset(
    (
        *(
            *LIMIT_KEYS,
            *TIGHTENING_VALUES,
            "envPassthrough",
            "disableAllHooks",
            "httpHookAllowedEnvVars",
        ),
        *("claudeMd", "agentProgressSeconds", "limits", "sessionStore"),
        *("cleanupPeriodDays", "fileCheckpointingEnabled", "allowedMcpServers"),
        *("enableAllProjectMcpServers", "enabledMcpjsonServers"),
    )
)
STEERING_KEYS = (
    r"(?is)env\.(.*_proxy|.*_base_url|anthropic_.*|openai_.*|claude_.*|travois_.*)"
    r"|(providers|models|webSearch|browser|telemetry|otelHeadersHelper)(\..*)?"
    r"|apiKeyHelper|(modelOverrides|modelPricing)(\..*)?"
)
"""Settings that decide where requests go, with whose key, or what Travois itself does."""
SCRIPT_SUFFIXES = (
    ".sh",
    ".bash",
    ".py",
    ".js",
    ".mjs",
    ".cjs",
    ".ts",
    ".rb",
    ".pl",
    ".php",
    ".lua",
)
STATUS_LINE_KEY = "statusLine.command"
RECIPE_FILES = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
}
"""Programs that run what a file in the workspace says, and the files."""
HOOK_COMMAND_WORD = compile_lazily(r"[^\s'\"=;|&()<>{},\\]+")


class RestrictedLayer(msgspec.Struct):
    """A workspace's layer: what holds, what needs trust, and what no trust can give."""

    values: Json
    hooks: Json
    wanted: list[str]
    never: list[str]


def restrict_workspace_layer(
    layer: SettingsLayer, held: Json, *, agreed: frozenset[str], places: tuple[str, ...]
) -> RestrictedLayer:
    """Split a workspace's settings by trust; `held` are the user's own values."""
    found = RestrictedLayer({}, {}, [], [])
    for key, value in layer.values.items():
        if _mode_of_value(key, value) == "bypass":
            found.never.append(key)
        elif tightens_setting(key, value, held.get(key)):
            found.values[key] = value
        elif key in FORBIDDEN_KEYS or re.fullmatch(STEERING_KEYS, key):
            found.never.append(key)
        elif key in MERGED_LISTS:
            found.values[key] = [
                w for w in as_text_list(value) if _record_request(found, f"{key}: {w}", agreed)
            ]
        elif _record_request(found, _describe_setting(key, value, places), agreed):
            found.values[key] = value
    for event, group in _hook_groups(layer.hooks):
        if _record_request(found, _describe_hook_group(event, group, places), agreed):
            kept = found.hooks.get(event, [])
            found.hooks[event] = [*(kept if is_json_array(kept) else ()), group]
    return found


def tightens_setting(key: str, value: object, held: object) -> bool:
    """Return whether a workspace's value only takes rights away and so needs no trust."""
    if key in TIGHTENING_KEYS or value == held or (key.startswith("enabledPlugins.") and not value):
        return True
    if mode := _mode_of_value(key, value):
        return MODES_BY_STRICTNESS.index(mode) <= MODES_BY_STRICTNESS.index(
            _mode_of_value(key, held) or "default"
        )
    if key in LIMIT_KEYS and isinstance(value, int | float) and isinstance(held, int | float):
        return 0 < value < (held or float("inf"))
    return key in TIGHTENING_VALUES and value == TIGHTENING_VALUES[key]


def script_paths(hooks: Json, places: tuple[str, ...]) -> Iterator[str]:
    """Yield the workspace programs that hooks to trust name: changing one changes the hook."""
    text = PROJECT_DIR_VARIABLE.sub("./", msgspec.json.encode(hooks).decode())
    for word in HOOK_COMMAND_WORD.findall(text):
        for place in places:
            path = os.path.realpath(os.path.join(place, word))
            if is_inside(path, place) and os.path.isfile(path) and _is_runnable_script(path):
                yield path
        for name in RECIPE_FILES.get(word, ()):
            yield from filter(os.path.isfile, (os.path.join(place, name) for place in places))


def _is_runnable_script(path: str) -> bool:
    """Return whether a file that a trusted command names is a program, not its output."""
    return path.endswith(SCRIPT_SUFFIXES) or os.access(path, os.X_OK)


def _record_request(found: RestrictedLayer, text: str, agreed: frozenset[str]) -> bool:
    found.wanted.append(text)
    return digest_request(text) in agreed


def _mode_of_value(key: str, value: object) -> str:
    """Return the permission mode that a workspace setting names; empty for other keys."""
    if key != "permissions.defaultMode":
        return ""
    return msgspec.convert({"defaultMode": value}, PermissionSettings).mode


def _hook_groups(hooks: Json) -> Iterator[tuple[str, object]]:
    for event, groups in hooks.items():
        yield from ((event, group) for group in (groups if is_json_array(groups) else (groups,)))


def _describe_hook_group(event: str, group: object, places: tuple[str, ...]) -> str:
    """Describe a hook group for the trust question, with the digests of its files."""
    return (
        f"hook {event}: {msgspec.json.encode(group).decode()}{hash_scripts({event: group}, places)}"
    )


def describe_hook_request(origin: str, hooks: Json, places: tuple[str, ...]) -> str:
    """Describe the hooks of a skill or agent file for the trust question."""
    path, text = os.path.relpath(origin, places[0]), msgspec.json.encode(hooks).decode()
    return f"hooks: {path} listens with {text}{hash_scripts(hooks, places)}"


def _describe_setting(key: str, value: object, places: tuple[str, ...]) -> str:
    """Describe a setting for the trust question, with the digests of its files."""
    files = hash_scripts({key: value}, places) if _names_program(key) else ""
    return f"{key}: {msgspec.json.encode(value).decode()}{files}"


def _names_program(key: str) -> bool:
    """Return whether the value of a workspace setting names programs that would run."""
    return key == STATUS_LINE_KEY or key.startswith("lsp.servers.")


def hash_scripts(named: Json, places: tuple[str, ...]) -> str:
    """List the workspace programs that a request for trust names, each with its digest."""
    files = dict.fromkeys(script_paths(named, places))
    return "".join(f" [{os.path.relpath(path, places[0])} is {_hash_file(path)}]" for path in files)


def _hash_file(path: str) -> str:
    """Return a trusted file's SHA-256 digest; `unreadable` if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError:
        return "unreadable"
