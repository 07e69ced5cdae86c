"""The plan of an import: each item kept, translated, or left out with a reason.

Nothing is written before the whole plan is known. What is ours already stays ours, and a secret is
never copied: where one stood, the name of a variable stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from travois.compat.sessions.format import inner
from travois.core.errors import UserError
from travois.mcp import config as mcp
from travois.permissions import secrets
from travois.permissions.paths import is_inside
from travois.permissions.secrets import find_leak
from travois.prompt.instruction_files import HOPS, plain_text
from travois.prompt.instruction_text import imports
from travois.sessions import blobs
from travois.sessions.home import TravoisHome
from travois.settings.schema import Json
from travois.settings.validate import (
    MERGED_LISTS,
    flatten_tree,
    is_json_array,
    is_settings_tree,
    nest_keys,
)

Fate = Literal["kept", "translated", "left out"]
Part = Literal[
    "settings",
    "permissions",
    "hooks",
    "mcp",
    "agents",
    "commands",
    "skills",
    "styles",
    "instructions",
    "memory",
    "sessions",
]
PARTS: tuple[Part, ...] = Part.__args__
NOWHERE = "no equivalent in Travois"
THERE = "already there"
REFERENCE = re.compile(r"\$\{\w+(:-[^}]*)?\}|\{env:\w+\}|\$\w+")
LARGEST, MOST = 4 << 20, 500
"""The most bytes of a file and the most files of a folder that are copied."""


class Line(msgspec.Struct, frozen=True):
    """One item of the other agent, and what becomes of it."""

    part: Part
    name: str
    fate: Fate
    where: str = ""
    """The place in our home that it goes to."""
    why: str = ""


class Copy(msgspec.Struct, frozen=True):
    """A file to create in our home: its path, its bytes and its mode."""

    where: str
    data: bytes
    mode: int = 0o600


class Luggage:
    """The import plan: its lines for the user, and the files to write."""

    def __init__(self, home: TravoisHome, *, only: Collection[str] = PARTS) -> None:
        self.lines: list[Line] = []
        self.copies: dict[str, Copy] = {}
        self._home, self._only = home, only
        self._settings = tree_of(home.settings)
        self._servers = _inner(tree_of(mcp.user_mcp_file(home)), "mcpServers")

    def leave(self, part: Part, name: str, why: str = NOWHERE) -> None:
        """Skip an item, with the reason."""
        self._tell(Line(part, name, "left out", why=why))

    def setting(
        self, part: Part, key: str, value: object, *, fate: Fate = "kept", why: str = ""
    ) -> None:
        """Add a setting; a list gets the entries it does not have yet."""
        held = flatten_tree(self._settings).get(key)
        where = self._home.settings.name
        if is_json_array(value) and key in MERGED_LISTS:
            mine = held if is_json_array(held) else []
            fresh = [one for one in value if one not in mine]
            if not value:
                return
            name = f"{key} ({len(value)})"
            value, same = [*mine, *fresh], not fresh
        else:
            name, same = key, held == value
        if same:
            self._tell(Line(part, name, fate, where, THERE))
        elif held is not None and not is_json_array(value):
            self.leave(part, name, f"your value is kept: {msgspec.json.encode(held).decode()}")
        elif part in self._only:
            _lay(self._settings, nest_keys({key: value}))
            self._write(self._home.settings, self._settings)
            self._tell(Line(part, name, fate, where, why))

    def hooks(self, event: str, groups: list[object], *, why: str = "") -> None:
        """Add the hooks of an event, unless a command contains a secret."""
        if secrets.find_secrets(msgspec.json.encode(groups).decode()):
            self.leave("hooks", event, "it may contain a secret; add it again without the secret")
            return
        held = _inner(self._settings, "hooks").get(event)
        mine = held if is_json_array(held) else []
        fresh = [group for group in groups if group not in mine]
        where = self._home.settings.name
        name = f"{event} ({len(groups)})"
        if fresh and "hooks" in self._only:
            _inner(self._settings, "hooks")[event] = [*mine, *fresh]
            self._write(self._home.settings, self._settings)
        self._tell(Line("hooks", name, "kept", where, why if fresh else THERE))

    def server(self, name: str, tree: Json, *, fate: Fate = "kept") -> None:
        """Add an MCP server; its secrets become references to environment variables."""
        clean, needed = _unsecret(name, tree)
        where = mcp.user_mcp_file(self._home).name
        if "{file:" in msgspec.json.encode(tree).decode():
            self.leave("mcp", name, "it reads a value from a file")
        elif name in self._servers and self._servers[name] != clean:
            self.leave("mcp", name, f"your server in {where} is kept")
        else:
            why = f"secrets are not copied: set {', '.join(needed)}" if needed else ""
            if name in self._servers:
                why = THERE
            elif "mcp" in self._only:
                self._servers[name] = clean
                self._write(mcp.user_mcp_file(self._home), {"mcpServers": self._servers})
            self._tell(Line("mcp", name, "translated" if needed else fate, where, why))

    def variable(self, name: str, value: str) -> None:
        """Add an environment variable; a secret one is passed through instead of stored."""
        if not secret(name, value):
            self.setting("settings", f"env.{name}", value)
            return
        why = f"secrets are not copied: set {name} where you start Travois"
        self.setting("settings", "envPassthrough", [name], fate="translated", why=why)

    def file(self, part: Part, where: str, data: bytes, *, fate: Fate = "kept") -> None:
        """Add a file, unless one of the user's would be overwritten."""
        self._copy(Copy(where, data), Line(part, Path(where).name, fate, where))

    def folder(self, part: Part, source: Path, where: str) -> None:
        """Add a folder with everything in it."""
        found = [path for path in sorted(source.rglob("*")) if path.is_file()]
        if len(found) > MOST or any(path.stat().st_size > LARGEST for path in found):
            self.leave(part, source.name, f"it is too large; copy {source} yourself")
            return
        taken = (self._home.path / where).is_dir()
        for path in found:
            place = f"{where}/{path.relative_to(source)}"
            held = self._home.path / place
            if taken and (not held.is_file() or held.read_bytes() != path.read_bytes()):
                self.leave(part, source.name, f"your {where} is kept")
                return
        if part in self._only and not taken:
            for path in found:
                place = f"{where}/{path.relative_to(source)}"
                mode = 0o600 | (path.stat().st_mode & 0o100)
                self.copies[place] = Copy(place, path.read_bytes(), mode)
        why = THERE if taken else ""
        self._tell(Line(part, source.name, "kept", where, why))

    def instructions(
        self, agent: str, name: str, text: str, *, base: Path, near: list[str], imported: bool
    ) -> None:
        """Add an instruction file, imported by our own AGENTS.md.

        What it imports itself is found from the folder where it lay, but for files `near` it,
        which come along.
        """
        place, own = f"instructions/{agent}/{name}", "AGENTS.md"
        data = _rooted(text, base, near).encode()
        known = place in self.copies and self.copies[place].data == data
        if not known:
            self._copy(Copy(place, data), Line("instructions", name, "kept", place))
        if place not in self.copies or imported:
            return
        held = self.copies[own].data if own in self.copies else _bytes(self._home.path / own)
        line = f"@{place}\n".encode()
        gap = b"" if held.endswith(b"\n") or not held else b"\n"
        self.copies[own] = Copy(own, held if line in held else held + gap + line)

    def _copy(self, copy: Copy, line: Line) -> None:
        held = self._home.path / copy.where
        if held.is_file() and held.read_bytes() == copy.data:
            self._tell(msgspec.structs.replace(line, why=THERE))
        elif held.exists() or copy.where in self.copies:
            self.leave(line.part, line.name, f"your {copy.where} is kept")
        else:
            if line.part in self._only:
                self.copies[copy.where] = copy
            self._tell(line)

    def _write(self, path: Path, tree: Json) -> None:
        data = msgspec.json.format(msgspec.json.encode(tree), indent=2) + b"\n"
        self.copies[path.name] = Copy(path.name, data)

    def _tell(self, line: Line) -> None:
        if line.part in self._only:
            self.lines.append(line)


def carry_out(home: TravoisHome, luggage: Luggage, *, stamp: str) -> Path | None:
    """Write the files of a plan, each atomically; returns the folder of the old versions.

    If it is stopped in between, the same import goes on where it stopped.
    """
    kept = home.path / "imports" / stamp
    try:
        for copy in luggage.copies.values():
            path = home.path / copy.where
            if path.exists():
                blobs.make_folders((kept / copy.where).parent)
                blobs.replace_file(kept / copy.where, path.read_bytes())
            blobs.make_folders(path.parent)
            blobs.replace_file(path, copy.data)
            path.chmod(copy.mode)
    except OSError as error:
        raise blobs.make_storage_error("The import stopped", error, path=home.path) from error
    if luggage.copies:
        blobs.make_folders(kept)
        made = "".join(f"{where}\n" for where in luggage.copies)
        blobs.replace_file(kept / "made.txt", made.encode())
    return kept if luggage.copies else None


def secret(name: str, value: str) -> bool:
    """Return whether a value is a secret, by its name or by its look."""
    if REFERENCE.search(value):
        return False
    return (
        secrets.is_secret_name(name)
        or bool(secrets.find_secrets(value))
        or bool(find_leak(f"{name}: {value}"))
    )


def tree_of(path: Path) -> Json:
    """Read a JSON object from a file; an empty one if there is no file."""
    try:
        found: object = msgspec.json.decode(path.read_bytes()) if path.is_file() else {}
    except (OSError, msgspec.DecodeError) as error:
        why, fix = str(error), "Fix it and try again; nothing was imported."
        raise UserError(f"Cannot parse {path}", why=why, fix=fix) from None
    if not is_settings_tree(found):
        raise UserError(
            f"{path} is not a JSON object", fix="Fix it and try again; nothing was imported."
        )
    return found


def _inner(tree: Json, key: str) -> Json:
    """Return the object under a key, created if it is not there."""
    found = tree.setdefault(key, {})
    if not is_settings_tree(found):
        raise UserError(
            f"{key} is not a JSON object", fix="Fix it and try again; nothing was imported."
        )
    return found


def _lay(tree: Json, more: Json) -> None:
    for key, value in more.items():
        if is_settings_tree(value) and is_settings_tree(held := tree.setdefault(key, {})):
            _lay(held, value)
        else:
            tree[key] = value


def _unsecret(server: str, tree: Json) -> tuple[Json, list[str]]:
    """Replace secrets by variable references; returns the new table and the variables."""
    clean, needed = dict(tree), list[str]()
    for key in ("env", "environment", "headers", "http_headers"):
        if is_settings_tree(inner := tree.get(key)):
            clean[key] = dict(_references(server, inner, key, needed))
    for key in ("args", "command", "url", "httpUrl"):
        words = clean.get(key)
        name = _variable(server, "secret")
        if is_json_array(words):
            clean[key] = [_masked(str(word), name, needed) for word in words]
        elif isinstance(words, str):
            clean[key] = _masked(words, name, needed)
    return clean, list(dict.fromkeys(needed))


def _references(
    server: str, values: Json, key: str, needed: list[str]
) -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if not isinstance(value, str) or not secret(name, value):
            yield name, value
            continue
        variable = name if key.startswith("env") else _variable(server, name)
        bearer = "Bearer " if value.startswith("Bearer ") else ""
        needed.append(variable)
        yield name, f"{bearer}${{{variable}}}"


def _masked(text: str, variable: str, needed: list[str]) -> str:
    for found in reversed(secrets.find_secrets(text)):
        needed.append(variable)
        text = f"{text[: found.start]}${{{variable}}}{text[found.end :]}"
    return text


def _variable(*words: str) -> str:
    return re.sub(r"\W+", "_", "_".join(words)).strip("_").upper()


def _rooted(text: str, base: Path, near: list[str]) -> str:
    """Rewrite relative imports as absolute paths below the original folder."""

    def put(found: re.Match[str]) -> str:
        path = base / found[1]
        return f"@{path}" if found[1] not in near and path.is_file() else found[0]

    return re.sub(r"(?<!\S)@((?![/~])[\w./-]*\w)", put, text)


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


# What agents keep alike: files of commands and the like, texts on how to work, servers.


SKILL = "SKILL.md"


def files(luggage: Luggage, part: Part, folder: Path, *, where: str, ends: str = ".md") -> None:
    """Plan all files of a folder and its subfolders under their own names."""
    found = sorted(path for path in folder.rglob(f"*{ends}") if path.is_file())
    for path in found[:MOST]:
        if path.stat().st_size > LARGEST:
            luggage.leave(part, path.name, f"it is too large; copy {path} yourself")
        else:
            luggage.file(part, f"{where}/{path.relative_to(folder)}", path.read_bytes())


def skills(luggage: Luggage, folder: Path) -> None:
    """Plan all skills of a folder, each with the files beside it."""
    for path in sorted(folder.glob(f"*/{SKILL}")):
        if not path.parent.name.startswith("."):
            luggage.folder("skills", path.parent, f"skills/{path.parent.name}")


def instructions(luggage: Luggage, agent: str, path: Path, *, folder: Path, hops: int = 0) -> None:
    """Plan an instruction file, and those beside it that it imports."""
    if not path.is_file():
        return
    name = str(path.relative_to(folder))
    try:
        text = plain_text(str(path))
    except OSError as error:
        luggage.leave("instructions", name, str(error))
        return
    near = [one for one in imports(text) if _beside(path.parent / one, folder)]
    if text.strip():
        luggage.instructions(agent, name, text, base=path.parent, imported=hops > 0, near=near)
    for one in near if hops < HOPS else ():
        found = Path(os.path.normpath(path.parent / one))
        instructions(luggage, agent, found, folder=folder, hops=hops + 1)


def _beside(path: Path, folder: Path) -> bool:
    """Return whether a file lies in the folder that is imported from."""
    return path.is_file() and is_inside(os.path.normpath(path), str(folder))


def servers(luggage: Luggage, tree: Json, key: str) -> None:
    """Plan the MCP servers of a settings file."""
    for name, server in inner(tree, key).items():
        if is_settings_tree(server):
            luggage.server(name, server)
