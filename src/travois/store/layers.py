"""Settings from many places, laid over each other: the later wins, and what is denied stays so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeGuard

import msgspec

from travois.kernel.faults import Fault
from travois.policy import rules
from travois.store.home import Home
from travois.store.settings import Loaded, Settings

MANAGED = Path("/etc/travois/settings.json")
PREFIX = "TRAVOIS_"
SPOKEN_FOR = frozenset(("TRAVOIS_HOME", "TRAVOIS_JOB"))
"""Variables of ours that are no settings."""
UNITED = frozenset(
    (
        "permissions.allow",
        "permissions.ask",
        "permissions.deny",
        "permissions.additionalDirectories",
        "permissions.examples",
        "envPassthrough",
    )
)
"""Lists to which every layer adds; anything else is taken whole from the last layer that has it."""
TIGHT = frozenset(("default", "plan", "dont-ask", "dontAsk"))
"""Modes that give no right that was not there before."""
WIDENING = frozenset(
    ("permissions.allow", "permissions.additionalDirectories", "envPassthrough", "maxBudgetUsd")
)

Value = str | int | float | bool | tuple[str, ...]
Tree = dict[str, object]


class Layer(msgspec.Struct, frozen=True):
    """The settings of one place, by key; `text` is what the user wrote there."""

    where: str
    values: Tree
    text: str = ""
    ours: bool = True
    """Whether the user wrote it; what comes with a workspace may only tighten."""


def load(
    home: Home,
    root: str,
    *,
    environ: Mapping[str, str],
    given: str = "",
    chosen: Mapping[str, Value] | None = None,
    managed: Path = MANAGED,
) -> Loaded:
    """The settings in force in a workspace.

    `given` is a file or a JSON object for this run; `chosen` are flags, by key. What the machine's
    administrator wrote is laid on last: nothing overrides it.
    """
    stack = _Stack()
    own = Path(root) / ".travois"
    stack.read(home.settings)
    stack.read(own / "settings.json", ours=False)
    stack.read(own / "settings.local.json", ours=False)
    if given:
        stack.lay(_given(given))
    for layer in _environment(environ, stack.notices):
        stack.lay(layer)
    for key, value in (chosen or {}).items():
        stack.lay(Layer("command line", {key: value}))
    stack.read(managed)
    return stack.loaded()


class _Stack:
    """Layers, merged as they are laid on."""

    def __init__(self) -> None:
        self.values: Tree = dict(DEFAULTS)
        self.origins: dict[str, str] = dict.fromkeys(DEFAULTS, "default")
        self.notices: list[str] = []

    def read(self, path: Path, *, ours: bool = True) -> None:
        """Lay on a file, if it is there."""
        try:
            text = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise Fault(f"Settings cannot be read: {path}", why=str(error.strerror)) from error
        self.lay(_parsed(text, where=str(path), ours=ours))

    def lay(self, layer: Layer) -> None:
        """Put one more layer on top."""
        _check(layer)
        for key, value in layer.values.items():
            if not _known(key):
                self.notices.append(f"{layer.where}: {_stray(key)}")
            elif not layer.ours and _widens(key, value):
                self.notices.append(
                    f"{layer.where}: {key} is ignored: files of a workspace may only tighten"
                )
            else:
                self._set(key, value, where=layer.where)

    def _set(self, key: str, value: object, *, where: str) -> None:
        if key not in UNITED:
            self.values[key], self.origins[key] = value, where
            return
        held = _words(self.values[key])
        fresh = [word for word in dict.fromkeys(_words(value)) if word not in held]
        self.values[key] = [*held, *fresh]
        self.origins |= {f"{key}[{word}]": where for word in fresh}
        if fresh:
            earlier = self.origins[key] if held else ""
            self.origins[key] = f"{earlier}, {where}" if earlier else where

    def loaded(self) -> Loaded:
        """What they come to."""
        settings = msgspec.convert(_nested(self.values), Settings)
        return Loaded(settings, self.origins, tuple(self.notices))


# --- where layers come from ----------------------------------------------------------------------


def _given(text: str) -> Layer:
    if text.lstrip().startswith("{"):
        return _parsed(text.encode(errors="replace"), where="--settings")
    try:
        return _parsed(Path(text).expanduser().read_bytes(), where=text)
    except OSError as error:
        raise Fault(
            f"--settings {text} cannot be read",
            why=str(error.strerror),
            fix="Give a file, or a JSON object that begins with {.",
        ) from error


def _environment(environ: Mapping[str, str], notices: list[str]) -> Iterator[Layer]:
    """Variables such as TRAVOIS_TIMEOUTS_IDLE, one for each setting that is a single value."""
    names = {_variable(key): key for key in DEFAULTS if key not in UNITED}
    for name, text in environ.items():
        if key := names.get(name):
            yield Layer(name, {key: _typed(text, key=key)})
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
    try:
        return msgspec.json.decode(text.lower())
    except ValueError:
        return text


# --- reading one layer ---------------------------------------------------------------------------


def _parsed(data: bytes, *, where: str, ours: bool = True) -> Layer:
    text = data.decode("utf-8-sig", errors="replace")
    try:
        tree: object = msgspec.json.decode(text) if text.strip() else {}
    except msgspec.DecodeError as error:
        raise Fault(
            f"{where} is not valid JSON",
            why=_flaw(text) or str(error),
            fix="Settings are one JSON object, without comments or trailing commas.",
        ) from None
    if not _is_tree(tree):
        raise Fault(f"{where} is not a JSON object", fix='It should look like {"model": "..."}.')
    return Layer(where, _flat(tree), text, ours)


def _flaw(text: str) -> str:
    """Where a text stops being JSON, and what should have stood there."""
    import json

    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    return ""


def _check(layer: Layer) -> None:
    """See that every value is of the kind that its key asks for."""
    known = {key: value for key, value in layer.values.items() if _known(key)}
    try:
        settings = msgspec.convert(_nested(known), Settings)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$.")
        key = place.rstrip("`").partition("[")[0]
        spot = _spot(layer.text, key)
        raise Fault(f"{layer.where}: {key or 'a key'}{spot} is wrong", why=problem) from None
    for effect in ("allow", "ask", "deny"):
        for rule in getattr(settings.permissions, effect):
            _check_rule(rule, where=f"{layer.where}: permissions.{effect}")
    if settings.permissions.examples:
        _check_examples(settings, where=layer.where)


def _check_examples(settings: Settings, *, where: str) -> None:
    """See that the rules of this layer mean what their examples say."""
    from travois.policy.examples import wrong

    rights = settings.permissions
    texts = {"deny": rights.deny, "ask": rights.ask, "allow": rights.allow}
    known = tuple(rules.parse(text, effect) for effect in rules.EFFECTS for text in texts[effect])
    for example in rights.examples:
        if why := wrong(example, known):
            fix = "Change the rule or the example; `travois permissions why` explains decisions."
            raise Fault(f"{where}: permissions.examples", why=why, fix=fix)


def _check_rule(rule: str, *, where: str) -> None:
    try:
        rules.parse(rule, "deny")
    except ValueError as error:
        raise Fault(
            f"{where} has a rule that cannot be understood",
            why=str(error),
            fix="Rules look like Bash, Bash(git diff:*) or Read(~/.ssh/**).",
        ) from None


def _spot(text: str, key: str) -> str:
    """The line of a key, as far as looking for its name tells."""
    found = text.find(f'"{key.rpartition(".")[2]}"')
    return f" (line {text.count(chr(10), 0, found) + 1})" if found >= 0 else ""


def _flat(tree: Tree) -> Tree:
    """By key, as in `timeouts.idle`."""
    flat: Tree = {}
    for name, value in tree.items():
        if name in BRANCHES and _is_tree(value):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat


def _nested(flat: Tree) -> Tree:
    tree: Tree = {}
    for key, value in flat.items():
        head, dot, rest = key.partition(".")
        branch = tree.setdefault(head, {}) if dot else None
        if _is_tree(branch):
            branch[rest] = value
        else:
            tree[head] = value
    return tree


def flatten(settings: Settings) -> Tree:
    """All settings by key."""
    return _flat(msgspec.to_builtins(settings))


def _is_tree(value: object) -> TypeGuard[Tree]:
    return isinstance(value, dict)


def _words(value: object) -> tuple[str, ...]:
    return msgspec.convert(value, tuple[str, ...])


def _known(key: str) -> bool:
    return key in DEFAULTS or key in BRANCHES or key.startswith("env.")


def _widens(key: str, value: object) -> bool:
    if key == "permissions.defaultMode":
        return value not in TIGHT
    return key in WIDENING or key.startswith("env.")


def _stray(key: str) -> str:
    near = nearest(key, DEFAULTS)
    return f"{key} is not a setting" + (f"; did you mean {near}?" if near else "")


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant; empty if none is like it."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=0.75)), "")


_TREE: Tree = msgspec.to_builtins(Settings())
BRANCHES = frozenset(name for name, value in _TREE.items() if _is_tree(value))
DEFAULTS = flatten(Settings())
