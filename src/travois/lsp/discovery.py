"""Which language servers there are: known ones that are installed, and those of the settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from travois.permissions.paths import is_inside
from travois.settings.schema import LanguageServerSettings, LspSettings
from travois.settings.trust import hash_scripts

PROJECT_PROGRAM_FOLDERS = (".venv/bin", "venv/bin", "node_modules/.bin")
"""Folders of a project in which its own programs are installed."""
KNOWN_SERVERS: dict[str, LanguageServerSettings] = {
    "basedpyright": LanguageServerSettings(
        ("basedpyright-langserver", "--stdio"), {".py": "python", ".pyi": "python"}
    ),
    "pyright": LanguageServerSettings(
        ("pyright-langserver", "--stdio"), {".py": "python", ".pyi": "python"}
    ),
    "typescript": LanguageServerSettings(
        ("typescript-language-server", "--stdio"),
        {
            **dict.fromkeys((".ts", ".mts", ".cts"), "typescript"),
            **dict.fromkeys((".js", ".mjs", ".cjs"), "javascript"),
            ".tsx": "typescriptreact",
            ".jsx": "javascriptreact",
        },
        {"disableAutomaticTypingAcquisition": True},
    ),
    "gopls": LanguageServerSettings(("gopls",), {".go": "go"}),
    "rust-analyzer": LanguageServerSettings(("rust-analyzer",), {".rs": "rust"}),
    "clangd": LanguageServerSettings(
        ("clangd", "--background-index=false"),
        {
            **dict.fromkeys((".c", ".h"), "c"),
            **dict.fromkeys((".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"), "cpp"),
        },
    ),
}
"""Servers that need no settings, by name; of two for a file, the first is used."""
PYTHON_PROGRAMS = (".venv/bin/python", "venv/bin/python")
ServerOrigin = Literal["settings", "path", "project"]


class LanguageServerConfig(msgspec.Struct, frozen=True):
    """A language server that is installed, and how to start it."""

    name: str
    argv: tuple[str, ...]
    languages: Mapping[str, str]
    """The protocol's name of the language by file suffix."""
    origin: ServerOrigin
    """Who chose the program: the settings, the PATH, or the project that it lies in."""
    options: Mapping[str, object] = {}
    settings: Mapping[str, object] = {}

    def language_of_file(self, path: str) -> str:
        """Return the protocol's name of a file's language; empty if the server is not for it."""
        return next((name for end, name in self.languages.items() if path.endswith(end)), "")


def find_language_servers(
    asked: LspSettings, environ: Mapping[str, str], *, root: str
) -> tuple[LanguageServerConfig, ...]:
    """Find the language servers for a project: the settings' first, then known ones."""
    if not asked.enabled:
        return ()
    wanted = {**asked.servers, **{k: v for k, v in KNOWN_SERVERS.items() if k not in asked.servers}}
    return tuple(
        found
        for name, server in wanted.items()
        for found in _locate_server(
            name, _complete_server_settings(name, server), environ, root=root
        )
    )


def _complete_server_settings(name: str, given: LanguageServerSettings) -> LanguageServerSettings:
    """Complete a language server's settings with what is known of a server of this name."""
    known = KNOWN_SERVERS.get(name, LanguageServerSettings())
    return msgspec.structs.replace(
        given,
        command=given.command or known.command,
        extensions=given.extensions or known.extensions,
        initialization_options={**known.initialization_options, **given.initialization_options},
    )


def _locate_server(
    name: str, server: LanguageServerSettings, environ: Mapping[str, str], *, root: str
) -> Iterator[LanguageServerConfig]:
    """Yield each installed program of a language server, the project's own first."""
    if not server.enabled or not server.command or not server.extensions:
        return
    program, *rest = server.command
    for path in _find_server_programs(program, environ, root=root):
        own = is_inside(path, root) or is_inside(os.path.realpath(path), root)
        usual: LanguageServerSettings | None = KNOWN_SERVERS.get(name)
        chosen = usual is None or server.command != usual.command
        yield LanguageServerConfig(
            name,
            (path, *rest),
            server.extensions,
            "project" if own else "settings" if chosen else "path",
            server.initialization_options,
            {**_python_settings(server, root), **server.settings},
        )


def _find_server_programs(program: str, environ: Mapping[str, str], *, root: str) -> Iterator[str]:
    """Yield where a program is installed: in the project, then on the PATH."""
    if "/" in program:
        path = os.path.join(root, os.path.expanduser(program))
        yield from (one for one in (path,) if _is_runnable_file(one))
        return
    places = [os.path.join(root, folder) for folder in PROJECT_PROGRAM_FOLDERS]
    places += (one for one in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(one))
    found = (os.path.join(place, program) for place in places)
    yield from dict.fromkeys(path for path in found if _is_runnable_file(path))


def _is_runnable_file(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _python_settings(server: LanguageServerSettings, root: str) -> dict[str, object]:
    """Return a Python server's setting that names the interpreter of the project."""
    if "python" not in server.extensions.values():
        return {}
    paths = (os.path.join(root, name) for name in PYTHON_PROGRAMS)
    found = next((path for path in paths if _is_runnable_file(path)), "")
    return {"python": {"pythonPath": found}} if found else {}


def describe_project_server(server: LanguageServerConfig, root: str) -> str:
    """Describe a project's own language server for the trust question, with its digest."""
    path = os.path.relpath(server.argv[0], root)
    words = " ".join((path, *server.argv[1:]))
    return f"language server {server.name}: {words}{hash_scripts({'': path}, (root,))}"


def describe_project_servers(
    asked: LspSettings, environ: Mapping[str, str], *, root: str
) -> tuple[str, ...]:
    """Describe the language servers that a project brings along."""
    found = find_language_servers(asked, environ, root=root)
    return tuple(
        describe_project_server(server, root) for server in found if server.origin == "project"
    )
