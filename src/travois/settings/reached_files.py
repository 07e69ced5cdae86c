"""The files of a workspace that a trusted command reaches, beyond the programs that it names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Literal

import msgspec

from travois.core.patterns import compile_lazily
from travois.permissions.paths import is_inside
from travois.settings.validate import PROJECT_DIR_VARIABLE

MAX_SCRIPT_BYTES = 1 << 20
"""The most bytes that are read of one file."""
MAX_SCANNED_CHARS = 1 << 17
"""The most characters of a file that are searched for names of other files."""
MAX_SCANNED_WORDS = 3000
"""The most words of a file that are tried as file names."""
MODULE_SEPARATORS = r"[\s\"',\\\]\[]+"
COMMAND_WORD = compile_lazily(r"[^\s'\"=;|&()<>{},\\`\[\]]+")
FOLDER_VARIABLE = compile_lazily(r"^(?:\$\{?\w+\}?|\.)/+")
PYTHON_MODULE_OPTION = compile_lazily(rf"(?:^|[\s\"'])-m{MODULE_SEPARATORS}([A-Za-z_][\w.]*)")
PYTHON_IMPORT = compile_lazily(
    r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+([\w*, \t()]+)|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)
JAVASCRIPT_IMPORT = compile_lazily(r"""\b(?:from|import|require)\b\s*\(?\s*['"](\.{1,2}/[^'"]+)""")
JAVASCRIPT_SUFFIXES = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx")
IMPORT_SUFFIXES = (
    "",
    *JAVASCRIPT_SUFFIXES,
    ".json",
    *(f"/index{end}" for end in JAVASCRIPT_SUFFIXES),
)
CODE_SUFFIXES = (
    *JAVASCRIPT_SUFFIXES,
    *(".py", ".sh", ".bash", ".zsh", ".rb", ".pl", ".php", ".lua", ".mk", ".just", ".awk", ".sed"),
)
RUNNER_FILES: dict[str, tuple[str, ...]] = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "gmake": ("GNUmakefile", "makefile", "Makefile"),
    "npm": ("package.json", ".npmrc"),
    "pnpm": ("package.json", ".npmrc", ".pnpmfile.cjs"),
    "yarn": ("package.json", ".yarnrc.yml"),
    "bun": ("package.json", "bunfig.toml"),
    "npx": ("package.json",),
    "deno": ("deno.json", "deno.jsonc"),
    "tox": ("tox.ini", "tox.toml", "pyproject.toml", "setup.cfg"),
    "nox": ("noxfile.py",),
    "pytest": ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "conftest.py"),
    "pre-commit": (".pre-commit-config.yaml",),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile",),
    "cargo": ("Cargo.toml", "build.rs", ".cargo/config.toml"),
    "mise": ("mise.toml", ".mise.toml"),
    "uv": ("pyproject.toml",),
    "poetry": ("pyproject.toml",),
    "hatch": ("pyproject.toml", "hatch.toml"),
    "invoke": ("tasks.py",),
    "gradle": ("build.gradle", "build.gradle.kts"),
    "mvn": ("pom.xml",),
    "eslint": ("eslint.config.js", "eslint.config.mjs", ".eslintrc.js", ".eslintrc.json"),
    "prettier": (".prettierrc", "prettier.config.js"),
}
"""Programs, and the files of a project that say what they run."""
WordChoice = Literal["all", "paths"]
NODE_BIN = os.path.join("node_modules", ".bin")


MAX_REACHED_FILES = 400
"""The most files that are followed for one command."""
MAX_REACHED_BYTES = 8 << 20
"""The most bytes of all these files together."""


def find_reached_files(line: str, places: tuple[str, ...]) -> dict[str, str]:
    """Return the workspace files that a command to trust reaches, by path, with digests.

    `line` is a command line, or the JSON that contains one; `places` are the folders that its words
    may be relative to, the workspace first.
    """
    found: dict[str, str] = {}
    waiting, size = list(_files_named_in(line, places, bases=places, words="all")), 0
    while waiting and len(found) < MAX_REACHED_FILES and size < MAX_REACHED_BYTES:
        path = os.path.realpath(waiting.pop(0))
        if path in found or not any(is_inside(path, place) for place in places):
            continue
        text = _read_script(path)
        if text is None:
            continue
        size += len(text)
        found[path] = _digest_script(path, text)
        if f"{os.sep}node_modules{os.sep}" not in path:
            waiting += _files_named_by_file(path, text.decode(errors="replace"), places)
    return {os.path.relpath(path, places[0]): told for path, told in sorted(found.items())}


def compare_reached_files(before: dict[str, str], now: dict[str, str]) -> tuple[str, ...]:
    """Describe how the files behind a trusted command have changed, one line each."""
    fates = {
        **{path: "changed" for path in before if now.get(path, before[path]) != before[path]},
        **{path: "was deleted" for path in before if path not in now},
        **{path: "is new" for path in now if path not in before},
    }
    return tuple(f"{path} {fate}" for path, fate in sorted(fates.items()))


def _files_named_by_file(path: str, text: str, places: tuple[str, ...]) -> Iterator[str]:
    """Yield the workspace files that a script runs or imports, to notice changes to them."""
    folder = os.path.dirname(path)
    if path.endswith(".py"):
        yield from _python_imports(text, folder, places)
    if path.endswith(JAVASCRIPT_SUFFIXES):
        for word in JAVASCRIPT_IMPORT.findall(text):
            yield from _filter_existing(os.path.join(folder, word), IMPORT_SUFFIXES)
    if os.path.basename(path) == "package.json":
        text = _package_scripts(text)
    # Words of a program are seldom commands; its paths often are files that it runs.
    words = "paths" if path.endswith((".py", *JAVASCRIPT_SUFFIXES)) else "all"
    yield from _files_named_in(text, places, bases=(folder, *places), words=words)


def _files_named_in(
    text: str, places: tuple[str, ...], *, bases: tuple[str, ...], words: WordChoice
) -> Iterator[str]:
    """Yield the workspace programs, modules and recipes that a command to trust names."""
    for module in PYTHON_MODULE_OPTION.findall(text):
        yield from _module_files(
            module, (*bases, *(os.path.join(place, "src") for place in places))
        )
    named = dict.fromkeys(
        COMMAND_WORD.findall(PROJECT_DIR_VARIABLE.sub("./", text[:MAX_SCANNED_CHARS]))
    )
    chosen = [word for word in named if words == "all" or "/" in word][:MAX_SCANNED_WORDS]
    for base in dict.fromkeys(bases):
        for word in chosen:
            yield from _files_of_word(FOLDER_VARIABLE.sub("", word), base, places)


def _files_of_word(word: str, base: str, places: tuple[str, ...]) -> Iterator[str]:
    """Yield the files that one word of a command to trust may mean in this folder."""
    for recipe in RUNNER_FILES.get(word, ()):
        yield from _filter_existing(os.path.join(base, recipe))
    if "/" not in word:
        yield from _filter_existing(os.path.join(base, NODE_BIN, word))
    if word.startswith("/") and not any(is_inside(word, place) for place in places):
        word = word.lstrip("/")  # what stood before it is computed: "$(dirname "$0")"/lib.sh
    path = os.path.join(base, word)
    if (word.endswith(CODE_SUFFIXES) or os.access(path, os.X_OK)) and os.path.isfile(path):
        yield path


def _python_imports(text: str, folder: str, places: tuple[str, ...]) -> Iterator[str]:
    """Yield the workspace modules that a trusted Python file imports."""
    roots = (folder, *places, *(os.path.join(place, "src") for place in places))
    for source, names, plain in PYTHON_IMPORT.findall(text):
        for module in re.findall(r"[\w.]+", plain):
            yield from _module_files(module, roots)
        dots = len(source) - len(source.lstrip("."))
        base = os.path.normpath(os.path.join(folder, *[".."] * (dots - 1))) if dots else ""
        within = (base,) if dots else roots
        yield from _module_files(source.lstrip("."), within)
        for name in re.findall(r"\w+", names):
            yield from _module_files(f"{source.lstrip('.')}.{name}".lstrip("."), within)


def _module_files(name: str, roots: tuple[str, ...]) -> Iterator[str]:
    """Yield the files that a trusted command's dotted Python module name may mean."""
    parts = [part for part in name.split(".") if part]
    for root in dict.fromkeys(roots):
        for count in range(1, len(parts) + 1):
            path = os.path.join(root, *parts[:count])
            yield from _filter_existing(path, (".py", "/__init__.py"))
        if parts:
            yield from _filter_existing(os.path.join(root, *parts), ("/__main__.py",))


def _filter_existing(path: str, endings: tuple[str, ...] = ("",)) -> Iterator[str]:
    yield from (path + end for end in endings if os.path.isfile(path + end))


def _package_scripts(text: str) -> str:
    """Return the `scripts` of package.json, for the digest of a trusted command."""
    try:
        tree = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        return bytes(tree.get("scripts", msgspec.Raw(b""))).decode()
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text


def _digest_script(path: str, data: bytes) -> str:
    """Return the digest of a file that a trusted command runs; of package.json only its scripts."""
    if os.path.basename(path) == "package.json":
        data = _package_scripts(data.decode(errors="replace")).encode()
    return sha256(data).hexdigest()


def _read_script(path: str) -> bytes | None:
    """Read a script that the user is asked to trust; None if it is unreadable."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_SCRIPT_BYTES)
    except OSError:
        return None
