"""Which files of a workspace a trusted command reaches, beyond the programs that it names.

`python hooks/x.py` imports `hooks/lib.py`, `npm run lint` runs what package.json says, `make fmt`
what the Makefile says. The files are found by what such programs read, without running anything:
imports of Python and JavaScript that lie in the workspace, files that scripts name, and the files
of well-known runners. It is a net with bounds and not a proof: a program can compute what it runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Literal

import msgspec

from travois.permissions.paths import inside
from travois.settings.validate import PROJECT_DIR

FILES, BYTES, LONGEST = 400, 8 << 20, 1 << 20
"""How many files are followed for one command, how many bytes of them, and of one of them."""
SCANNED, WORDS = 1 << 17, 3000
"""How many characters of a file are looked at for names of files, and how many words."""
SEPARATORS = r"[\s\"',\\\]\[]+"
WORD = re.compile(r"[^\s'\"=;|&()<>{},\\`\[\]]+")
HOLDER = re.compile(r"^(?:\$\{?\w+\}?|\.)/+")
MODULE = re.compile(rf"(?:^|[\s\"'])-m{SEPARATORS}([A-Za-z_][\w.]*)")
PYTHON = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+([\w*, \t()]+)|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)
SCRIPTED = re.compile(r"""\b(?:from|import|require)\b\s*\(?\s*['"](\.{1,2}/[^'"]+)""")
JAVASCRIPT = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx")
ENDINGS = ("", *JAVASCRIPT, ".json", *(f"/index{end}" for end in JAVASCRIPT))
CODE = (
    *JAVASCRIPT,
    *(".py", ".sh", ".bash", ".zsh", ".rb", ".pl", ".php", ".lua", ".mk", ".just", ".awk", ".sed"),
)
RUNNERS: dict[str, tuple[str, ...]] = {
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
Words = Literal["all", "paths"]
SHIMS = os.path.join("node_modules", ".bin")


def reached(line: str, places: tuple[str, ...]) -> dict[str, str]:
    """Return the files of a workspace that a command reaches, by path, each with its digest.

    `line` is a command line, or the JSON that holds one; `places` are the folders that its words
    may count from, the workspace first.
    """
    found: dict[str, str] = {}
    waiting, size = list(_named(line, places, bases=places, words="all")), 0
    while waiting and len(found) < FILES and size < BYTES:
        path = os.path.realpath(waiting.pop(0))
        if path in found or not any(inside(path, place) for place in places):
            continue
        text = _read(path)
        if text is None:
            continue
        size += len(text)
        found[path] = _digest(path, text)
        if f"{os.sep}node_modules{os.sep}" not in path:
            waiting += _leading_to(path, text.decode(errors="replace"), places)
    return {os.path.relpath(path, places[0]): told for path, told in sorted(found.items())}


def compare(before: dict[str, str], now: dict[str, str]) -> tuple[str, ...]:
    """Return what became of the files that a command reaches, a line each; none if nothing did."""
    fates = {
        **{path: "changed" for path in before if now.get(path, before[path]) != before[path]},
        **{path: "is gone" for path in before if path not in now},
        **{path: "is new" for path in now if path not in before},
    }
    return tuple(f"{path} {fate}" for path, fate in sorted(fates.items()))


def _leading_to(path: str, text: str, places: tuple[str, ...]) -> Iterator[str]:
    """The files that one file leads to."""
    folder = os.path.dirname(path)
    if path.endswith(".py"):
        yield from _imported(text, folder, places)
    if path.endswith(JAVASCRIPT):
        for word in SCRIPTED.findall(text):
            yield from _existing(os.path.join(folder, word), ENDINGS)
    if os.path.basename(path) == "package.json":
        text = _scripts(text)
    # Words of a program are seldom commands; its paths often are files that it runs.
    words = "paths" if path.endswith((".py", *JAVASCRIPT)) else "all"
    yield from _named(text, places, bases=(folder, *places), words=words)


def _named(
    text: str, places: tuple[str, ...], *, bases: tuple[str, ...], words: Words
) -> Iterator[str]:
    """The programs, modules and recipes that a text names, as far as they are in the workspace."""
    for module in MODULE.findall(text):
        yield from _modules(module, (*bases, *(os.path.join(place, "src") for place in places)))
    named = dict.fromkeys(WORD.findall(PROJECT_DIR.sub("./", text[:SCANNED])))
    chosen = [word for word in named if words == "all" or "/" in word][:WORDS]
    for base in dict.fromkeys(bases):
        for word in chosen:
            yield from _meant(HOLDER.sub("", word), base, places)


def _meant(word: str, base: str, places: tuple[str, ...]) -> Iterator[str]:
    """The files that one word of a command means, if it were run in this folder."""
    for recipe in RUNNERS.get(word, ()):
        yield from _existing(os.path.join(base, recipe))
    if "/" not in word:
        yield from _existing(os.path.join(base, SHIMS, word))
    if word.startswith("/") and not any(inside(word, place) for place in places):
        word = word.lstrip("/")  # what stood before it is computed: "$(dirname "$0")"/lib.sh
    path = os.path.join(base, word)
    if (word.endswith(CODE) or os.access(path, os.X_OK)) and os.path.isfile(path):
        yield path


def _imported(text: str, folder: str, places: tuple[str, ...]) -> Iterator[str]:
    """The modules in the workspace that a Python file imports."""
    roots = (folder, *places, *(os.path.join(place, "src") for place in places))
    for source, names, plain in PYTHON.findall(text):
        for module in re.findall(r"[\w.]+", plain):
            yield from _modules(module, roots)
        dots = len(source) - len(source.lstrip("."))
        base = os.path.normpath(os.path.join(folder, *[".."] * (dots - 1))) if dots else ""
        within = (base,) if dots else roots
        yield from _modules(source.lstrip("."), within)
        for name in re.findall(r"\w+", names):
            yield from _modules(f"{source.lstrip('.')}.{name}".lstrip("."), within)


def _modules(name: str, roots: tuple[str, ...]) -> Iterator[str]:
    """The files that a dotted name may mean below these folders, with those of its packages."""
    parts = [part for part in name.split(".") if part]
    for root in dict.fromkeys(roots):
        for count in range(1, len(parts) + 1):
            path = os.path.join(root, *parts[:count])
            yield from _existing(path, (".py", "/__init__.py"))
        if parts:
            yield from _existing(os.path.join(root, *parts), ("/__main__.py",))


def _existing(path: str, endings: tuple[str, ...] = ("",)) -> Iterator[str]:
    yield from (path + end for end in endings if os.path.isfile(path + end))


def _scripts(text: str) -> str:
    """What package.json says is to be run."""
    try:
        tree = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        return bytes(tree.get("scripts", msgspec.Raw(b""))).decode()
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text


def _digest(path: str, data: bytes) -> str:
    """What a file says about running; the versions in package.json change without that."""
    if os.path.basename(path) == "package.json":
        data = _scripts(data.decode(errors="replace")).encode()
    return sha256(data).hexdigest()


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(LONGEST)
    except OSError:
        return None
