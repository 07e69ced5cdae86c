"""Sources of settings: our files, other agents' files, environment variables, and --settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from travois.compat import config_files
from travois.compat.foreign_agent import CLAUDE
from travois.core.errors import UserError
from travois.sessions.home import TravoisHome
from travois.settings import trust
from travois.settings.validate import (
    DEFAULT_VALUES,
    MERGED_LISTS,
    SettingsLayer,
    SettingsLevel,
    find_nearest_word,
    parse_settings,
)
from travois.skills.plugins import list_plugin_folders

VARIABLE_PREFIX = "TRAVOIS_"
FOREIGN_VARIABLES = {
    "ANTHROPIC_MODEL": "model",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "maxOutputTokens",
    "MAX_MCP_OUTPUT_TOKENS": "maxMcpOutputTokens",
    "CLAUDE_CODE_EFFORT_LEVEL": "effortLevel",
    "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "context.window",
    "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "context.thresholdPercent",
    "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE": "context.hardLimit",
}
"""Variables of other agents that mean a setting of ours."""
RESERVED_VARIABLES = frozenset(("TRAVOIS_HOME", "TRAVOIS_JOB"))
"""Variables of ours that are no settings."""
FILE_LEVELS: tuple[SettingsLevel, ...] = ("user", "project", "local")
FOREIGN_SWITCHES = {
    "DISABLE_COMPACT": "context.compact",
    "DISABLE_AUTO_COMPACT": "context.autoCompact",
    "DISABLE_MICROCOMPACT": "context.clear",
}
"""Variables that other agents know, and what each of them switches off."""
BOOLEAN_WORDS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
"""Words for yes and no in variables."""
ANSWERS_SOURCE = "your answers in this folder"
ANSWER_KEYS: dict[trust.AnswerKind, str] = {
    "allow": "permissions.allow",
    "ask": "permissions.ask",
    "deny": "permissions.deny",
    "folders": "permissions.additionalDirectories",
}
"""The setting that each kind of answer adds to."""
AUTO_ALLOW_BASH_KEY = "sandbox.autoAllowBashIfSandboxed"


class SettingsPlaces(msgspec.Struct, frozen=True):
    """The places that a session's settings come from."""

    home: TravoisHome
    root: str
    cwd: str
    trusted: str
    """The folder that trust is about."""

    @property
    def places(self) -> tuple[str, ...]:
        """The folders of the workspace."""
        return tuple(dict.fromkeys((self.root, self.cwd)))


def parse_setting_sources(named: str) -> tuple[SettingsLevel, ...]:
    """Parse which settings levels count, weakest first: empty means all, `none` none."""
    if named == "none":
        return ()
    picked = [word.strip() for word in named.split(",") if word.strip()]
    if strange := [word for word in picked if word not in FILE_LEVELS]:
        fix = "Use user, project and local, separated by commas."
        raise UserError(f"--setting-sources does not know {strange[0]!r}", fix=fix)
    return tuple(level for level in FILE_LEVELS if level in picked or not picked)


def read_level_files(
    where: SettingsPlaces, level: SettingsLevel, environ: Mapping[str, str]
) -> Iterator[SettingsLayer]:
    """Yield the settings files of a level: the other agents', then our own."""
    home = CLAUDE.find_home(environ)
    theirs = home / "settings.json" if home else None
    person = environ.get("HOME", "") if level == "user" else where.root
    if level != "local" and person.startswith("/"):
        yield from config_files.read_foreign_config_files(person, environ, level=level)
    if level == "user":
        if theirs is not None:
            yield from read_settings_file(theirs, level=level, own=False, base=str(theirs.parent))
        yield from read_settings_file(where.home.settings, level=level, base=str(where.home.config))
        yield from _plugin_layer(where.home.config / "plugins", level)
        kept = (
            (key, trust.list_answers(where.home, where.trusted, under=u))
            for u, key in ANSWER_KEYS.items()
        )
        answers: dict[str, object] = {key: items for key, items in kept if items}
        if trust.is_sandboxed(where.home, where.trusted):
            answers[AUTO_ALLOW_BASH_KEY] = True
        if answers:
            yield SettingsLayer(ANSWERS_SOURCE, answers, level=level, base=where.trusted)
        return
    if level == "project":
        yield from _plugin_layer(Path(where.root, ".agents", "plugins"), level)
    name = "settings.json" if level == "project" else "settings.local.json"
    path = Path(where.cwd if level == "project" else where.trusted, CLAUDE.folder, name)
    if theirs is None or os.path.realpath(path) != os.path.realpath(theirs):
        yield from read_settings_file(path, level=level, own=False, base=where.cwd)
    base = where.root if level == "project" else where.cwd
    yield from read_settings_file(Path(where.root, ".travois", name), level=level, base=base)


def _plugin_layer(folder: Path, level: SettingsLevel) -> Iterator[SettingsLayer]:
    """Yield the plugins in a folder, as if settings named them."""
    if found := list_plugin_folders(str(folder)):
        yield SettingsLayer(str(folder), {"plugins": found}, level=level)


def read_settings_file(
    path: Path, *, level: SettingsLevel, own: bool = True, base: str = ""
) -> Iterator[SettingsLayer]:
    """Yield the settings layer of a file, if the file exists."""
    try:
        if not path.exists():
            return
        if not path.is_file():
            raise UserError(f"Settings cannot be read: {path}", why="it is not a regular file")
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"Settings cannot be read: {path}", why=str(error.strerror)) from error
    layer = parse_settings(data, where=str(path), level=level, foreign=not own, base=base)
    table = layer.values.pop("permission", None) if own else None
    yield layer if table is None else config_files.add_opencode_permissions(layer, table)


def read_run_settings(
    where: SettingsPlaces, given: str, environ: Mapping[str, str], *, notices: list[str]
) -> Iterator[SettingsLayer]:
    """Yield the settings of this run: --settings and environment variables."""
    if given.lstrip().startswith("{"):
        yield parse_settings(given.encode(errors="replace"), where="--settings", base=where.cwd)
    elif given:
        yield _read_given_file(Path(given).expanduser(), given)
    yield from _layers_from_environment(environ, notices)


def _read_given_file(path: Path, text: str) -> SettingsLayer:
    """Read the settings file that `--settings` names; raise a user error if it is unreadable."""
    try:
        return parse_settings(path.read_bytes(), where=text, base=str(path.absolute().parent))
    except OSError as error:
        raise UserError(
            f"--settings {text} cannot be read",
            why=str(error.strerror),
            fix="Pass a file, or a JSON object that starts with {.",
        ) from error


def _layers_from_environment(
    environ: Mapping[str, str], notices: list[str]
) -> Iterator[SettingsLayer]:
    """Yield layers from variables such as TRAVOIS_TIMEOUTS_IDLE, one for each single value."""
    names = {
        _variable_name(key): key for key in DEFAULT_VALUES if key not in MERGED_LISTS
    } | FOREIGN_VARIABLES
    for name, text in sorted(environ.items(), key=lambda each: each[0].startswith(VARIABLE_PREFIX)):
        if (switch := FOREIGN_SWITCHES.get(name)) and text.lower() not in ("", "0", "false", "no"):
            yield SettingsLayer(name, {switch: False})
        elif key := names.get(name):
            yield SettingsLayer(
                name, {key: _parse_variable(text, key=key)}, foreign=name in FOREIGN_VARIABLES
            )
        elif name.startswith(VARIABLE_PREFIX) and name not in RESERVED_VARIABLES:
            near = find_nearest_word(
                name.removeprefix(VARIABLE_PREFIX), (n.removeprefix(VARIABLE_PREFIX) for n in names)
            )
            if near:
                notices.append(f"{name} is not a setting; did you mean {VARIABLE_PREFIX}{near}?")


def _variable_name(key: str) -> str:
    spaced = "".join(f"_{c}" if c.isupper() else c for c in key)
    return VARIABLE_PREFIX + spaced.replace(".", "_").upper()


def _parse_variable(text: str, *, key: str) -> object:
    """Parse a settings variable's value by the type of its setting."""
    if isinstance(DEFAULT_VALUES[key], str):
        return text
    if isinstance(DEFAULT_VALUES[key], bool):
        return BOOLEAN_WORDS.get(text.strip().lower(), text)
    try:
        return msgspec.json.decode(text)
    except ValueError:
        return text
