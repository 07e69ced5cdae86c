"""The plan of an import: each item kept, translated, or left out with a reason.

Nothing is written before the whole plan is known. What is already ours stays ours, and a secret is
never copied: the name of a variable replaces it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from travois.compat.sessions.format import object_at
from travois.core.errors import UserError
from travois.mcp import config as mcp
from travois.permissions import secrets
from travois.permissions.leaks import find_leak
from travois.permissions.paths import is_inside
from travois.prompt.instruction_files import MAX_IMPORT_DEPTH, read_plain_text
from travois.prompt.instruction_text import find_imports
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

ImportOutcome = Literal["kept", "translated", "left out"]
ImportPart = Literal[
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
IMPORT_PARTS: tuple[ImportPart, ...] = ImportPart.__args__
NO_EQUIVALENT = "no equivalent in Travois"
ALREADY_THERE = "already there"
VARIABLE_REFERENCE = re.compile(r"\$\{\w+(:-[^}]*)?\}|\{env:\w+\}|\$\w+")
MAX_COPIED_BYTES, MAX_COPIED_FILES = 4 << 20, 500
"""The most bytes of a file and the most files of a folder that are copied."""


class ImportLine(msgspec.Struct, frozen=True):
    """One item of the other agent, and what becomes of it."""

    part: ImportPart
    name: str
    fate: ImportOutcome
    where: str = ""
    """The place in our home that it goes to."""
    why: str = ""


class FileCopy(msgspec.Struct, frozen=True):
    """A file to create in our home: its path, its bytes and its mode."""

    where: str
    data: bytes
    mode: int = 0o600


class ImportPlan:
    """The import plan: its lines for the user, and the files to write."""

    def __init__(self, home: TravoisHome, *, only: Collection[str] = IMPORT_PARTS) -> None:
        self.lines: list[ImportLine] = []
        self.copies: dict[str, FileCopy] = {}
        self._home, self._only = home, only
        self._settings = read_json_object(home.settings)
        self._servers = _get_or_create_object(
            read_json_object(mcp.user_mcp_file(home)), "mcpServers"
        )

    def skip(self, part: ImportPart, name: str, why: str = NO_EQUIVALENT) -> None:
        """Skip an item, with the reason."""
        self._report_line(ImportLine(part, name, "left out", why=why))

    def add_setting(
        self,
        part: ImportPart,
        key: str,
        value: object,
        *,
        fate: ImportOutcome = "kept",
        why: str = "",
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
            self._report_line(ImportLine(part, name, fate, where, ALREADY_THERE))
        elif held is not None and not is_json_array(value):
            self.skip(part, name, f"your value is kept: {msgspec.json.encode(held).decode()}")
        elif part in self._only:
            _merge_into(self._settings, nest_keys({key: value}))
            self._write_json(self._home.settings, self._settings)
            self._report_line(ImportLine(part, name, fate, where, why))

    def add_hooks(self, event: str, groups: list[object], *, why: str = "") -> None:
        """Add the hooks of an event, unless a command contains a secret."""
        if secrets.find_secrets(msgspec.json.encode(groups).decode()):
            self.skip("hooks", event, "it may contain a secret; add it again without the secret")
            return
        held = _get_or_create_object(self._settings, "hooks").get(event)
        mine = held if is_json_array(held) else []
        fresh = [group for group in groups if group not in mine]
        where = self._home.settings.name
        name = f"{event} ({len(groups)})"
        if fresh and "hooks" in self._only:
            _get_or_create_object(self._settings, "hooks")[event] = [*mine, *fresh]
            self._write_json(self._home.settings, self._settings)
        self._report_line(ImportLine("hooks", name, "kept", where, why if fresh else ALREADY_THERE))

    def add_server(self, name: str, tree: Json, *, fate: ImportOutcome = "kept") -> None:
        """Add an MCP server; its secrets become references to environment variables."""
        clean, needed = _replace_secrets(name, tree)
        where = mcp.user_mcp_file(self._home).name
        if "{file:" in msgspec.json.encode(tree).decode():
            self.skip("mcp", name, "it reads a value from a file")
        elif name in self._servers and self._servers[name] != clean:
            self.skip("mcp", name, f"your server in {where} is kept")
        else:
            why = f"secrets are not copied: set {', '.join(needed)}" if needed else ""
            if name in self._servers:
                why = ALREADY_THERE
            elif "mcp" in self._only:
                self._servers[name] = clean
                self._write_json(mcp.user_mcp_file(self._home), {"mcpServers": self._servers})
            self._report_line(ImportLine("mcp", name, "translated" if needed else fate, where, why))

    def add_variable(self, name: str, value: str) -> None:
        """Add an environment variable; a secret one is passed through instead of stored."""
        if not is_secret_value(name, value):
            self.add_setting("settings", f"env.{name}", value)
            return
        why = f"secrets are not copied: set {name} where you start Travois"
        self.add_setting("settings", "envPassthrough", [name], fate="translated", why=why)

    def add_file(
        self, part: ImportPart, where: str, data: bytes, *, fate: ImportOutcome = "kept"
    ) -> None:
        """Add a file, unless one of the user's would be overwritten."""
        self._add_copy(FileCopy(where, data), ImportLine(part, Path(where).name, fate, where))

    def add_folder(self, part: ImportPart, source: Path, where: str) -> None:
        """Add a folder with everything in it."""
        found = [path for path in sorted(source.rglob("*")) if path.is_file()]
        if len(found) > MAX_COPIED_FILES or any(
            path.stat().st_size > MAX_COPIED_BYTES for path in found
        ):
            self.skip(part, source.name, f"it is too large; copy {source} yourself")
            return
        taken = (self._home.config / where).is_dir()
        for path in found:
            place = f"{where}/{path.relative_to(source)}"
            held = self._home.config / place
            if taken and (not held.is_file() or held.read_bytes() != path.read_bytes()):
                self.skip(part, source.name, f"your {where} is kept")
                return
        if part in self._only and not taken:
            for path in found:
                place = f"{where}/{path.relative_to(source)}"
                mode = 0o600 | (path.stat().st_mode & 0o100)
                self.copies[place] = FileCopy(place, path.read_bytes(), mode)
        why = ALREADY_THERE if taken else ""
        self._report_line(ImportLine(part, source.name, "kept", where, why))

    def add_instructions(
        self, agent: str, name: str, text: str, *, base: Path, near: list[str], imported: bool
    ) -> None:
        """Add an instruction file, imported by our own AGENTS.md.

        What it imports itself is found from the folder where it lay, but for files `near` it,
        which come along.
        """
        place, own = f"instructions/{agent}/{name}", "AGENTS.md"
        data = _anchor_imports(text, base, near).encode()
        known = place in self.copies and self.copies[place].data == data
        if not known:
            self._add_copy(FileCopy(place, data), ImportLine("instructions", name, "kept", place))
        if place not in self.copies or imported:
            return
        held = (
            self.copies[own].data
            if own in self.copies
            else _read_bytes_or_empty(self._home.config / own)
        )
        line = f"@{place}\n".encode()
        gap = b"" if held.endswith(b"\n") or not held else b"\n"
        self.copies[own] = FileCopy(own, held if line in held else held + gap + line)

    def _add_copy(self, copy: FileCopy, line: ImportLine) -> None:
        held = self._home.config / copy.where
        if held.is_file() and held.read_bytes() == copy.data:
            self._report_line(msgspec.structs.replace(line, why=ALREADY_THERE))
        elif held.exists() or copy.where in self.copies:
            self.skip(line.part, line.name, f"your {copy.where} is kept")
        else:
            if line.part in self._only:
                self.copies[copy.where] = copy
            self._report_line(line)

    def _write_json(self, path: Path, tree: Json) -> None:
        data = msgspec.json.format(msgspec.json.encode(tree), indent=2) + b"\n"
        self.copies[path.name] = FileCopy(path.name, data)

    def _report_line(self, line: ImportLine) -> None:
        if line.part in self._only:
            self.lines.append(line)


def apply_import_plan(home: TravoisHome, luggage: ImportPlan, *, stamp: str) -> Path | None:
    """Write the files of an import plan, each atomically; return the folder of old versions.

    If interrupted, the same import continues where it stopped.
    """
    kept = home.path / "imports" / stamp
    try:
        for copy in luggage.copies.values():
            path = home.config / copy.where
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


def is_secret_value(name: str, value: str) -> bool:
    """Return whether an imported value is a secret, by its name or appearance."""
    if VARIABLE_REFERENCE.search(value):
        return False
    return (
        secrets.is_secret_name(name)
        or bool(secrets.find_secrets(value))
        or bool(find_leak(f"{name}: {value}"))
    )


def read_json_object(path: Path) -> Json:
    """Read a JSON object to import or to extend; empty if there is no file."""
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


def _get_or_create_object(tree: Json, key: str) -> Json:
    """Return the object under a key of the settings to import into, created if missing."""
    found = tree.setdefault(key, {})
    if not is_settings_tree(found):
        raise UserError(
            f"{key} is not a JSON object", fix="Fix it and try again; nothing was imported."
        )
    return found


def _merge_into(tree: Json, more: Json) -> None:
    """Merge imported settings into a settings tree, nested objects included."""
    for key, value in more.items():
        if is_settings_tree(value) and is_settings_tree(held := tree.setdefault(key, {})):
            _merge_into(held, value)
        else:
            tree[key] = value


def _replace_secrets(server: str, tree: Json) -> tuple[Json, list[str]]:
    """Replace the secrets of an imported MCP server by variable references, and list these."""
    clean, needed = dict(tree), list[str]()
    for key in ("env", "environment", "headers", "http_headers"):
        if is_settings_tree(inner := tree.get(key)):
            clean[key] = dict(_replace_secret_values(server, inner, key, needed))
    for key in ("args", "command", "url", "httpUrl"):
        words = clean.get(key)
        name = _variable_name(server, "secret")
        if is_json_array(words):
            clean[key] = [_mask_secrets_with_variable(str(word), name, needed) for word in words]
        elif isinstance(words, str):
            clean[key] = _mask_secrets_with_variable(words, name, needed)
    return clean, list(dict.fromkeys(needed))


def _replace_secret_values(
    server: str, values: Json, key: str, needed: list[str]
) -> Iterator[tuple[str, object]]:
    """Yield an MCP server's variables or headers, with secrets replaced by variable names."""
    for name, value in values.items():
        if not isinstance(value, str) or not is_secret_value(name, value):
            yield name, value
            continue
        variable = name if key.startswith("env") else _variable_name(server, name)
        bearer = "Bearer " if value.startswith("Bearer ") else ""
        needed.append(variable)
        yield name, f"{bearer}${{{variable}}}"


def _mask_secrets_with_variable(text: str, variable: str, needed: list[str]) -> str:
    """Replace the secrets in a text of an MCP server's settings with a variable."""
    for found in reversed(secrets.find_secrets(text)):
        needed.append(variable)
        text = f"{text[: found.start]}${{{variable}}}{text[found.end :]}"
    return text


def _variable_name(*words: str) -> str:
    return re.sub(r"\W+", "_", "_".join(words)).strip("_").upper()


def _anchor_imports(text: str, base: Path, near: list[str]) -> str:
    """Rewrite an instruction file's relative imports as absolute paths in its old folder."""

    def anchor_import(found: re.Match[str]) -> str:
        path = base / found[1]
        return f"@{path}" if found[1] not in near and path.is_file() else found[0]

    return re.sub(r"(?<!\S)@((?![/~])[\w./-]*\w)", anchor_import, text)


def _read_bytes_or_empty(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


# What agents keep alike: files of commands and the like, texts on how to work, servers.


SKILL_FILE = "SKILL.md"


def plan_files(
    luggage: ImportPlan, part: ImportPart, folder: Path, *, where: str, ends: str = ".md"
) -> None:
    """Plan importing all files of a folder and its subfolders under their own names."""
    found = sorted(path for path in folder.rglob(f"*{ends}") if path.is_file())
    for path in found[:MAX_COPIED_FILES]:
        if path.stat().st_size > MAX_COPIED_BYTES:
            luggage.skip(part, path.name, f"it is too large; copy {path} yourself")
        else:
            luggage.add_file(part, f"{where}/{path.relative_to(folder)}", path.read_bytes())


def plan_skills(luggage: ImportPlan, folder: Path) -> None:
    """Plan importing all skills of a folder, each with the files beside it."""
    for path in sorted(folder.glob(f"*/{SKILL_FILE}")):
        if not path.parent.name.startswith("."):
            luggage.add_folder("skills", path.parent, f"skills/{path.parent.name}")


def plan_instructions(
    luggage: ImportPlan, agent: str, path: Path, *, folder: Path, hops: int = 0
) -> None:
    """Plan importing an instruction file, and those beside it that it imports."""
    if not path.is_file():
        return
    name = str(path.relative_to(folder))
    try:
        text = read_plain_text(str(path))
    except OSError as error:
        luggage.skip("instructions", name, str(error))
        return
    near = [one for one in find_imports(text) if _is_file_within(path.parent / one, folder)]
    if text.strip():
        luggage.add_instructions(agent, name, text, base=path.parent, imported=hops > 0, near=near)
    for one in near if hops < MAX_IMPORT_DEPTH else ():
        found = Path(os.path.normpath(path.parent / one))
        plan_instructions(luggage, agent, found, folder=folder, hops=hops + 1)


def _is_file_within(path: Path, folder: Path) -> bool:
    """Return whether a file lies in the folder to import from."""
    return path.is_file() and is_inside(os.path.normpath(path), str(folder))


def plan_servers(luggage: ImportPlan, tree: Json, key: str) -> None:
    """Plan importing the MCP servers of a settings file."""
    for name, server in object_at(tree, key).items():
        if is_settings_tree(server):
            luggage.add_server(name, server)
