"""Sources of settings: our files, other agents' files, environment variables, and --settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from travois.compat import config_files
from travois.compat.foreign_agent import CLAUDE
from travois.core.errors import UserError
from travois.sessions.home import Home
from travois.settings import trust
from travois.settings.validate import DEFAULTS, UNITED, Layer, Level, nearest, parsed
from travois.skills.plugins import within

PREFIX = "TRAVOIS_"
THEIRS = {
    "ANTHROPIC_MODEL": "model",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "maxOutputTokens",
    "MAX_MCP_OUTPUT_TOKENS": "maxMcpOutputTokens",
    "CLAUDE_CODE_EFFORT_LEVEL": "effortLevel",
    "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "context.window",
    "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "context.thresholdPercent",
    "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE": "context.hardLimit",
}
"""Variables of other agents that mean a setting of ours."""
SPOKEN_FOR = frozenset(("TRAVOIS_HOME", "TRAVOIS_JOB"))
"""Variables of ours that are no settings."""
SOURCES: tuple[Level, ...] = ("user", "project", "local")
SWITCHES = {
    "DISABLE_COMPACT": "context.compact",
    "DISABLE_AUTO_COMPACT": "context.autoCompact",
    "DISABLE_MICROCOMPACT": "context.clear",
}
"""Variables that other agents know, and what each of them switches off."""
SPOKEN = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
"""Words for yes and no in variables."""
ANSWERS = "your answers in this folder"
KEPT: dict[trust.Kept, str] = {
    "allow": "permissions.allow",
    "ask": "permissions.ask",
    "deny": "permissions.deny",
    "folders": "permissions.additionalDirectories",
}
"""The setting that each kind of answer adds to."""
UNASKED_COMMANDS = "sandbox.autoAllowBashIfSandboxed"


class Where(msgspec.Struct, frozen=True):
    """The places that a session's settings come from."""

    home: Home
    root: str
    cwd: str
    trusted: str
    """The folder that trust is about."""

    @property
    def places(self) -> tuple[str, ...]:
        """The folders of the workspace."""
        return tuple(dict.fromkeys((self.root, self.cwd)))


def levels(named: str) -> tuple[Level, ...]:
    """Return the file levels that count, weakest first: all for an empty text, none for `none`."""
    if named == "none":
        return ()
    picked = [word.strip() for word in named.split(",") if word.strip()]
    if strange := [word for word in picked if word not in SOURCES]:
        fix = "Use user, project and local, separated by commas."
        raise UserError(f"--setting-sources does not know {strange[0]!r}", fix=fix)
    return tuple(level for level in SOURCES if level in picked or not picked)


def files(where: Where, level: Level, environ: Mapping[str, str]) -> Iterator[Layer]:
    """Yield the files of a level: the other agent's, then our own."""
    home = CLAUDE.home(environ)
    theirs = home / "settings.json" if home else None
    person = environ.get("HOME", "") if level == "user" else where.root
    if level != "local" and person.startswith("/"):
        yield from config_files.files(person, environ, level=level)
    if level == "user":
        if theirs is not None:
            yield from read(theirs, level=level, own=False, base=str(theirs.parent))
        yield from read(where.home.settings, level=level, base=str(where.home.path))
        yield from _plugged(where.home.path / "plugins", level)
        kept = (
            (key, trust.remembered(where.home, where.trusted, under=u)) for u, key in KEPT.items()
        )
        answers: dict[str, object] = {key: items for key, items in kept if items}
        if trust.is_sandboxed(where.home, where.trusted):
            answers[UNASKED_COMMANDS] = True
        if answers:
            yield Layer(ANSWERS, answers, level=level, base=where.trusted)
        return
    if level == "project":
        yield from _plugged(Path(where.root, ".agents", "plugins"), level)
    name = "settings.json" if level == "project" else "settings.local.json"
    path = Path(where.cwd if level == "project" else where.trusted, CLAUDE.folder, name)
    if theirs is None or os.path.realpath(path) != os.path.realpath(theirs):
        yield from read(path, level=level, own=False, base=where.cwd)
    base = where.root if level == "project" else where.cwd
    yield from read(Path(where.root, ".travois", name), level=level, base=base)


def _plugged(folder: Path, level: Level) -> Iterator[Layer]:
    """Yield the plugins in a folder, as if its settings named them."""
    if found := within(str(folder)):
        yield Layer(str(folder), {"plugins": found}, level=level)


def read(path: Path, *, level: Level, own: bool = True, base: str = "") -> Iterator[Layer]:
    """Yield the layer of a file, if the file exists."""
    try:
        if not path.exists():
            return
        if not path.is_file():
            raise UserError(f"Settings cannot be read: {path}", why="it is not a regular file")
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"Settings cannot be read: {path}", why=str(error.strerror)) from error
    layer = parsed(data, where=str(path), level=level, foreign=not own, base=base)
    table = layer.values.pop("permission", None) if own else None
    yield layer if table is None else config_files.ordered(layer, table)


def run(
    where: Where, given: str, environ: Mapping[str, str], *, notices: list[str]
) -> Iterator[Layer]:
    """Yield the settings of this run: --settings and environment variables."""
    if given.lstrip().startswith("{"):
        yield parsed(given.encode(errors="replace"), where="--settings", base=where.cwd)
    elif given:
        yield _given(Path(given).expanduser(), given)
    yield from _environment(environ, notices)


def _given(path: Path, text: str) -> Layer:
    try:
        return parsed(path.read_bytes(), where=text, base=str(path.absolute().parent))
    except OSError as error:
        raise UserError(
            f"--settings {text} cannot be read",
            why=str(error.strerror),
            fix="Pass a file, or a JSON object that starts with {.",
        ) from error


def _environment(environ: Mapping[str, str], notices: list[str]) -> Iterator[Layer]:
    """Yield layers from variables such as TRAVOIS_TIMEOUTS_IDLE, one for each single value."""
    names = {_variable(key): key for key in DEFAULTS if key not in UNITED} | THEIRS
    for name, text in sorted(environ.items(), key=lambda each: each[0].startswith(PREFIX)):
        if (switch := SWITCHES.get(name)) and text.lower() not in ("", "0", "false", "no"):
            yield Layer(name, {switch: False})
        elif key := names.get(name):
            yield Layer(name, {key: _typed(text, key=key)}, foreign=name in THEIRS)
        elif name.startswith(PREFIX) and name not in SPOKEN_FOR:
            near = nearest(name.removeprefix(PREFIX), (n.removeprefix(PREFIX) for n in names))
            if near:
                notices.append(f"{name} is not a setting; did you mean {PREFIX}{near}?")


def _variable(key: str) -> str:
    spaced = "".join(f"_{c}" if c.isupper() else c for c in key)
    return PREFIX + spaced.replace(".", "_").upper()


def _typed(text: str, *, key: str) -> object:
    if isinstance(DEFAULTS[key], str):
        return text
    if isinstance(DEFAULTS[key], bool):
        return SPOKEN.get(text.strip().lower(), text)
    try:
        return msgspec.json.decode(text)
    except ValueError:
        return text
