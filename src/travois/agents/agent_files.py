"""Agent files: agent types defined by the user, the project and the machine.

What comes with an untrusted folder may describe agents, but these choose neither their model nor a
memory. No file gives an agent more than its parent has, whoever wrote it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

import msgspec
from msgspec.structs import replace

from travois.agents.types import FORK_TYPE, AgentType
from travois.compat import agent_files
from travois.compat.agent_files import HIDDEN_AGENT_KEY
from travois.compat.foreign_agent import CLAUDE, CODEX, OPENCODE
from travois.core.errors import UserError
from travois.core.patterns import compile_lazily
from travois.files import front_matter
from travois.files.front_matter import FrontMatter, parse_nested_value
from travois.permissions.decide import MODE_ALIASES, PERMISSION_MODES, PermissionMode
from travois.permissions.paths import is_inside
from travois.permissions.rules import split_rules
from travois.prompt.instruction_files import (
    SYSTEM_CONFIG_FOLDER,
    find_markdown_files,
    list_folder_chain,
    open_exact_path,
    read_plain_text,
)
from travois.sessions.home import TravoisHome
from travois.settings.schema import Plugin
from travois.settings.trust import MODES_BY_STRICTNESS, describe_hook_request, digest_request
from travois.settings.validate import find_nearest_word
from travois.tools.catalog import TOOLS

# What an agent file says of its kind of agents, and what of that does not count.


BUILT_IN_AGENTS_FOLDER = Path(__file__).parent / "built_in"
MAX_AGENT_PROMPT_CHARS = 100_000
AGENT_NAME_PATTERN = compile_lazily(r"[^\W_][\w .-]{0,63}")
AGENT_SCOPES = ("user", "project", "local")
AGENT_EFFORT_LEVELS = ("low", "medium", "high", "xhigh", "max")
TRUE_WORDS = ("true", "yes", "on", "1")
FALSE_WORDS = ("false", "no", "off", "0", "")
SUPPORTED_KEYS = (
    "name", "description", "tools", "disallowedTools", "model", "permissionMode", "maxTurns",
    "memory", "background", "isolation", "omitClaudeMd", "effort", "skills", "hooks",
    "initialPrompt", "mcpServers",
)  # fmt: skip
IGNORED_KEYS = (
    "autoCompactWindow",
    "observer",
    "observerMessage",
    "criticalSystemReminder_EXPERIMENTAL",
)
"""Keys of other programs' agent files that have no effect here."""


class AgentFileError(ValueError):
    """An invalid agent file: at which key, and why."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key = key


def parse_agent_file(
    front_matter: FrontMatter, origin: str, notices: list[str], *, trusted: bool
) -> AgentType | None:
    """Parse an agent file; None, with a notice for the user, if it is invalid."""
    if front_matter.flaws:
        notices += (f"{origin}:{line}: {why}" for line, why in front_matter.flaws)
        return None
    try:
        kind = _build_agent_type(front_matter, origin)
    except AgentFileError as flaw:
        notices.append(f"{locate_key(origin, front_matter, flaw.key)}: {flaw}")
        return None
    notices += (
        f"{locate_key(origin, front_matter, key)}: {why}"
        for key, why in _find_ignored_values(front_matter)
    )
    if trusted:
        return kind
    for key, value in (("model", kind.model), ("memory", kind.memory)):
        if value:
            why = f"{key} is ignored: it needs a folder trusted with `travois trust`"
            notices.append(f"{locate_key(origin, front_matter, key)}: {why}")
    return replace(kind, model="", memory="")


def _build_agent_type(front_matter: FrontMatter, origin: str) -> AgentType:
    """Build an agent type from the front matter and text of an agent file."""
    model = _read_text(front_matter, "model")
    return AgentType(
        name=_parse_agent_name(front_matter),
        description=_require_text(front_matter, "description"),
        prompt=_parse_agent_prompt(front_matter),
        tools=_parse_allowed_tools(front_matter),
        denied=tuple(
            _parse_tool_word(word)[0] for word in _read_word_list(front_matter, "disallowedTools")
        ),
        model="" if model.lower() == "inherit" else model,
        effort=effort
        if (effort := _read_text(front_matter, "effort").lower()) in AGENT_EFFORT_LEVELS
        else "",
        skills=tuple(_read_word_list(front_matter, "skills")),
        spawns=tuple(_parse_spawnable_types(front_matter)),
        greeting=_read_text(front_matter, "initialPrompt"),
        apart=_parse_boolean(front_matter, HIDDEN_AGENT_KEY),
        mode=_parse_permission_mode(front_matter),
        max_turns=_parse_count(front_matter, "maxTurns"),
        background=_parse_boolean(front_matter, "background"),
        worktree=_parse_choice(front_matter, "isolation", ("worktree",)) == "worktree",
        memory=_parse_choice(front_matter, "memory", AGENT_SCOPES),
        instructions=not _parse_boolean(front_matter, "omitClaudeMd"),
        origin="built-in" if origin.startswith(str(BUILT_IN_AGENTS_FOLDER)) else origin,
    )


def _parse_agent_name(front_matter: FrontMatter) -> str:
    """Return the name of an agent file; raise `AgentFileError` if it is invalid or reserved."""
    name = _require_text(front_matter, "name")
    if not AGENT_NAME_PATTERN.fullmatch(name):
        raise AgentFileError(
            "name", f"{name!r} is not a valid name; use letters, digits, spaces, -_."
        )
    if name.casefold() == FORK_TYPE:
        raise AgentFileError("name", f"{FORK_TYPE} is a reserved name; choose another one")
    return name


def _require_text(front_matter: FrontMatter, key: str) -> str:
    """Return a required text of an agent file; raise `AgentFileError` if it is missing."""
    if text := _read_text(front_matter, key):
        return text
    raise AgentFileError(key, f"{key} is missing; add a line `{key}: …`")


def _parse_agent_prompt(front_matter: FrontMatter) -> str:
    """Return the instructions of an agent file; refuse empty and very long ones."""
    text = front_matter.body.strip()
    if not text:
        raise AgentFileError("", "the agent has no instructions; write them below the front matter")
    if len(text) > MAX_AGENT_PROMPT_CHARS:
        raise AgentFileError(
            "",
            f"the instructions have {len(text):,} characters; "
            f"the limit is {MAX_AGENT_PROMPT_CHARS:,}",
        )
    return text


def _parse_permission_mode(front_matter: FrontMatter) -> str:
    mode = _read_text(front_matter, "permissionMode")
    return MODE_ALIASES.get(mode) or _parse_choice(front_matter, "permissionMode", PERMISSION_MODES)


def _parse_choice(front_matter: FrontMatter, key: str, among: Sequence[str]) -> str:
    """Return a value of an agent file that must be one of a few words."""
    word = _read_text(front_matter, key)
    if word and word not in among:
        raise AgentFileError(key, f"{key} cannot be {word!r}; use one of {', '.join(among)}")
    return word


def _parse_boolean(front_matter: FrontMatter, key: str) -> bool:
    """Parse a true or false value of an agent file."""
    word = _read_text(front_matter, key).lower()
    if word not in TRUE_WORDS and word not in FALSE_WORDS:
        raise AgentFileError(key, f"{key} cannot be {word!r}; use true or false")
    return word in TRUE_WORDS


def _parse_count(front_matter: FrontMatter, key: str) -> int:
    """Parse a positive number of an agent file; 0 if it is not given."""
    word = _read_text(front_matter, key)
    if word and not (word.isdecimal() and int(word)):
        raise AgentFileError(key, f"{key} cannot be {word!r}; use a whole number, 1 or more")
    return int(word or 0)


def _parse_allowed_tools(front_matter: FrontMatter) -> tuple[str, ...] | None:
    """Return the tools that an agent file allows as a whole; None if all are."""
    words = _read_word_list(front_matter, "tools")
    if "tools" not in front_matter.values or "*" in words:
        return None
    return tuple(name for name, whole in map(_parse_tool_word, words) if whole)


def _parse_spawnable_types(told: FrontMatter) -> Iterator[str]:
    """Return the agent types that `Agent(a, b)` in an agent file names."""
    for word in _read_word_list(told, "tools"):
        name, _, among = word.rstrip(")").partition("(")
        if name in ("Agent", "Task"):
            yield from (one for one in front_matter.split_on_commas(among) if one != "*")


def _parse_tool_word(word: str) -> tuple[str, bool]:
    """Split a tool rule of an agent file into its name and whether it means all uses."""
    name, _, use = word.partition("(")
    name = "Agent" if name == "Task" else name
    return name, name == "Agent" or use in ("", "*)")


def _read_word_list(front_matter: FrontMatter, key: str) -> list[str]:
    value = front_matter.values.get(key, ())
    return split_rules(value) if isinstance(value, str) else [word.strip() for word in value]


def _read_text(front_matter: FrontMatter, key: str) -> str:
    value = front_matter.values.get(key, "")
    return value.strip() if isinstance(value, str) else ", ".join(value)


def _find_ignored_values(front_matter: FrontMatter) -> Iterator[tuple[str, str]]:
    """List the keys of an agent file that have no effect, with the reason."""
    if (effort := _read_text(front_matter, "effort")) and effort.lower() not in AGENT_EFFORT_LEVELS:
        yield "effort", f"effort cannot be {effort!r}; use one of {', '.join(AGENT_EFFORT_LEVELS)}"
    if any(":" in word for word in _read_word_list(front_matter, "mcpServers")):
        yield "mcpServers", "MCP servers defined here are ignored; define them in .mcp.json"
    for key in front_matter.values:
        if key in IGNORED_KEYS:
            yield key, f"{key} is not supported here and is ignored"
        elif key not in (*SUPPORTED_KEYS, "color", HIDDEN_AGENT_KEY):
            near = find_nearest_word(key, SUPPORTED_KEYS)
            yield (
                key,
                f"{key} is not a key of agent files" + (f"; did you mean {near}?" if near else ""),
            )
    for key in ("tools", "disallowedTools"):
        words = _read_word_list(front_matter, key)
        if strange := [word for word in words if not _is_known_tool(_parse_tool_word(word)[0])]:
            yield key, f"unknown tool {', '.join(strange)}; ignored"
        if parts := [word for word in words if not _parse_tool_word(word)[1]]:
            what = "left out" if key == "tools" else "denied entirely"
            yield (
                key,
                f"{', '.join(parts)}: a tool cannot be given in part; it is {what}",
            )


def _is_known_tool(name: str) -> bool:
    return name in ("*", "Agent") or name.startswith("mcp__") or any(t.name == name for t in TOOLS)


def locate_key(origin: str, front_matter: FrontMatter, key: str) -> str:
    """Return the place of a key in an agent file for messages; the command line has no lines."""
    return f"{origin}:{front_matter.lines.get(key, 1)}" if front_matter.lines else origin


AGENTS_FLAG = "--agents"
MAX_AGENT_FILES = 200
"""Maximum files read from one folder."""


class AgentFolder(msgspec.Struct, frozen=True):
    """A folder of agent files."""

    folder: str
    held: str = ""
    """The folder that its files may not lead out of; empty if they may."""
    trusted: bool = True
    prefix: str = ""
    """The prefix of its names: the plugin's."""
    opencode: bool = False
    """True if its files use opencode's keys."""
    places: tuple[str, ...] = ()
    """The workspace that it came with; none for the user's own."""
    agreed: frozenset[str] | None = None
    """The approved requests of the workspace; None where all are."""


def load_agent_types(
    home: TravoisHome,
    root: str,
    cwd: str,
    *,
    trusted: bool,
    given: str = "",
    levels: Sequence[str] = AGENT_SCOPES,
    plugins: Sequence[Plugin] = (),
    agreed: frozenset[str] = frozenset(),
    environ: Mapping[str, str] = os.environ,
    etc: Path = SYSTEM_CONFIG_FOLDER,
) -> tuple[tuple[AgentType, ...], tuple[str, ...]]:
    """Load all agent types by name, and notices about invalid agent files.

    Of several with one name the first counts: the machine's, those of the command line (`given`, as
    JSON), the project's with the nearest folder first, the user's, those of plugins, ours.
    """
    found, notices = dict[str, AgentType](), list[str]()
    own = [*_user_agent_folders(home, environ)]
    folders = (
        [*_project_agent_folders(root, cwd, trusted=trusted, agreed=agreed)]
        if "project" in levels
        else []
    )
    known = {os.path.realpath(each.folder) for each in own}
    folders = [each for each in folders if os.path.realpath(each.folder) not in known]
    managed = (
        AgentFolder(str(etc / "travois/agents")),
        AgentFolder(str(etc / "claude-code/.claude/agents")),
    )
    for each in managed:
        _add_missing_types(found, _read_agent_folder(each, notices))
    _add_missing_types(found, _parse_agents_flag(given, notices))
    plugged = [
        AgentFolder(folder, one.folder, not is_inside(one.folder, root), f"{one.name}:")
        for one in plugins
        for folder in one.agents
    ]
    for each in (*folders, *(own if "user" in levels else ())):
        _add_missing_types(found, _read_agent_folder(each, notices))
    theirs = {
        "project": (root, os.path.join(root, CODEX.folder)),
        "user": (OPENCODE.find_home(environ), CODEX.find_home(environ)),
    }
    for level in (level for level in theirs if level in levels):
        own_word, (opencode_place, codex_place) = trusted or level == "user", theirs[level]
        tables = (
            *(agent_files.read_opencode_agents(str(opencode_place)) if opencode_place else ()),
            *(agent_files.read_codex_roles(str(codex_place)) if codex_place else ()),
        )
        _add_missing_types(found, _parse_settings_agents(tables, notices, trusted=own_word))
    for each in (*plugged, AgentFolder(str(BUILT_IN_AGENTS_FOLDER))):
        _add_missing_types(found, _read_agent_folder(each, notices))
    return tuple(sorted(found.values(), key=lambda kind: kind.name.casefold())), tuple(notices)


def limit_permission_mode(kind: AgentType, parent: PermissionMode) -> PermissionMode:
    """Return an agent type's permission mode, but no wider than its parent's."""
    modes: dict[str, PermissionMode] = {mode: mode for mode in PERMISSION_MODES}
    wanted = modes.get(kind.mode, parent)
    return (
        wanted if MODES_BY_STRICTNESS.index(wanted) <= MODES_BY_STRICTNESS.index(parent) else parent
    )


def _user_agent_folders(home: TravoisHome, environ: Mapping[str, str]) -> Iterator[AgentFolder]:
    """List the user's folders of agent files, ours and those of other harnesses."""
    yield AgentFolder(str(home.config / "agents"))
    yield from map(AgentFolder, CLAUDE.home_paths(environ, *CLAUDE.agents))
    if person := environ.get("HOME"):
        yield AgentFolder(os.path.join(person, ".agents", "agents"))
    for path in OPENCODE.home_paths(environ, *OPENCODE.agents):
        yield AgentFolder(path, opencode=True)


def list_agent_hook_requests(root: str, cwd: str) -> Iterator[str]:
    """List the hooks in a project's agent files that need trust, a line each."""
    for folder in _project_agent_folders(root, cwd, trusted=False):
        for kind in _read_agent_folder(folder, []) if os.path.isdir(folder.folder) else ():
            if kind.hooks:
                yield describe_hook_request(kind.origin, kind.hooks, folder.places)


def _project_agent_folders(
    root: str, cwd: str, *, trusted: bool, agreed: frozenset[str] | None = None
) -> Iterator[AgentFolder]:
    """List a project's folders of agent files, the nearest folder first."""
    held = "" if trusted else root
    for folder in reversed(list_folder_chain(cwd, root)):
        for name in (".travois", CLAUDE.folder, ".agents"):
            path = os.path.join(folder, name, "agents")
            yield AgentFolder(path, held=held, trusted=trusted, places=(root,), agreed=agreed)
        for path in OPENCODE.project_paths(folder, *OPENCODE.agents):
            yield AgentFolder(path, held=held, trusted=trusted, opencode=True)


def _add_missing_types(found: dict[str, AgentType], more: Iterator[AgentType]) -> None:
    for kind in more:
        found.setdefault(kind.name.casefold(), kind)


def _read_agent_folder(folder: AgentFolder, notices: list[str]) -> Iterator[AgentType]:
    """Read the agent types of a folder; flawed files are reported as notices."""
    paths, names = sorted(find_markdown_files(folder.folder, set())), dict[str, str]()
    paths = [folder.folder] if os.path.isfile(folder.folder) else paths
    if len(paths) > MAX_AGENT_FILES:
        notices.append(
            f"{folder.folder} has {len(paths)} agent files; only {MAX_AGENT_FILES} are read"
        )
    for path in paths[:MAX_AGENT_FILES]:
        try:
            text = _read_agent_text(path, folder.held)
        except OSError as error:
            notices.append(f"{path}:1: cannot be read: {error.strerror or error}")
            continue
        told = front_matter.parse_front_matter(text)
        if folder.opencode and told.lines:
            name = os.path.relpath(path, folder.folder).removesuffix(".md").replace("/", "-")
            told = agent_files.adapt_opencode_agent(told, name)
        if told is None:
            continue
        if not told.lines and os.path.basename(path).casefold() == "readme.md":
            continue
        kind = parse_agent_file(told, path, notices, trusted=folder.trusted)
        if kind is not None and names.setdefault(kind.name.casefold(), path) != path:
            also = names[kind.name.casefold()]
            notices.append(
                f"{locate_key(path, told, 'name')}: {also} uses the same name; rename one"
            )
        elif kind is not None:
            hooks = (
                _filter_hooks(parse_nested_value(text, "hooks"), path, folder)
                if "hooks" in told.lines
                else {}
            )
            yield replace(kind, name=f"{folder.prefix}{kind.name}", hooks=hooks)


def _filter_hooks(tree: object, path: str, folder: AgentFolder) -> dict[str, object]:
    """Return the hooks of an agent file that the user has approved."""
    if not _is_object(tree) or not tree:
        return {}
    agreed = (
        folder.agreed is None
        or digest_request(describe_hook_request(path, tree, folder.places)) in folder.agreed
    )
    return tree if agreed else {}


def _parse_settings_agents(
    tables: Iterable[tuple[str, FrontMatter]], notices: list[str], *, trusted: bool
) -> Iterator[AgentType]:
    """Parse the agent types in the settings of other harnesses."""
    for path, told in tables:
        if told.body.strip() and (kind := parse_agent_file(told, path, notices, trusted=trusted)):
            yield kind


def _read_agent_text(path: str, held: str) -> str:
    """Read an agent file; refuse one that leads outside an untrusted project."""
    real = os.path.realpath(path)
    if held and not is_inside(real, held):
        raise OSError(f"it leads outside {held}; run `travois trust` to allow that")
    return read_plain_text(real, opener=open_exact_path)


def _parse_agents_flag(given: str, notices: list[str]) -> Iterator[AgentType]:
    """Parse the agent types given on the command line as JSON."""
    if not given:
        return
    try:
        tree: object = msgspec.json.decode(given)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise UserError(f"{AGENTS_FLAG} is not valid JSON", why=str(error)) from None
    if not _is_object(tree) or not all(map(_is_object, tree.values())):
        fix = f'For example: {AGENTS_FLAG} \'{{"tester": {{"description": "…", "prompt": "…"}}}}\''
        raise UserError(f"{AGENTS_FLAG} must be a JSON object of agents by name", fix=fix)
    for name, fields in tree.items():
        assert _is_object(fields)
        values = {
            key: _to_front_matter_value(value) for key, value in fields.items() if value is not None
        }
        prompt = values.pop("prompt", "")
        body = prompt if isinstance(prompt, str) else " ".join(prompt)
        told = FrontMatter({**values, "name": name}, body=body)
        kind = parse_agent_file(told, f"{AGENTS_FLAG} {name}", notices, trusted=True)
        if kind is not None:
            yield replace(kind, hooks=hooks if _is_object(hooks := fields.get("hooks")) else {})


def _to_front_matter_value(value: object) -> front_matter.FrontMatterValue:
    """Convert a JSON value of an agent type to what front matter would hold."""
    if isinstance(value, list):
        return tuple(str(item) for item in msgspec.convert(value, list[object]))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)
