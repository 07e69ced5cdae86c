"""Builds the documentation site into build/site: `make docs`. Nothing is loaded from elsewhere.

The pages are those of docs/, the changelog and the guide for contributors, and a reference that is
written from the command line's parsers, the settings and the docstrings of the public names. Links
that leave the site lead into the repository.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec

import travois
from travois.cli.command_tree import CommandNode, read_command_tree
from travois.cli.manual import spell_flag
from travois.settings.schema import Settings

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
TOP_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md")
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
FIELD_DOC = re.compile(
    r'^    (\w+): [^\n]*(?:\n        [^\n]*)*?\n    """(.*?)"""', re.MULTILINE | re.DOTALL
)
"""A field of a class with the string below it."""
NO_DEFAULTS = (msgspec.NODEFAULT, "", ())
"""Defaults that say nothing in a table."""
TYPE_WORDS = {str: "text", bool: "`true`, `false`", int: "number", float: "number"}
MODULE_PREFIX = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])")
EXTERNAL = re.compile(r"""(?:src|href)=["'](?:https?:)?//[^"']+\.(?:js|css|woff2?|png|svg)["']""")


def main() -> int:
    """Write the pages, build the site, and check that it needs nothing from elsewhere."""
    write_pages()
    # Not --quiet: what mkdocs does not print, it does not count as a warning either.
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.stderr.write(done.stderr)
        return done.returncode
    if loaded := sorted(find_external_assets()):
        sys.stderr.write("docs: loaded from elsewhere:\n" + "\n".join(loaded) + "\n")
        return 1
    sys.stdout.write(f"{SITE / 'index.html'}\n")
    return 0


def write_pages() -> None:
    """Put the pages of the site together."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("*.1", "contexts"))
    for name in TOP_PAGES:
        text = (ROOT / name).read_text("utf-8")
        (PAGES / name).write_text(text.replace("](docs/", "]("), "utf-8")
    (PAGES / "reference").mkdir()
    tree = read_command_tree()
    (PAGES / "reference/commands.md").write_text("\n".join(render_commands(tree)), "utf-8")
    (PAGES / "reference/settings.md").write_text("\n".join(render_settings()), "utf-8")
    (PAGES / "reference/api.md").write_text("\n".join(render_api()), "utf-8")
    repository = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    for page in PAGES.rglob("*.md"):
        page.write_text(link_to_repository(page, repository), "utf-8")


def link_to_repository(page: Path, repository: str) -> str:
    """Return a page whose links to files outside the site lead into the repository."""

    up = "../" * (len(page.relative_to(PAGES).parts) - 1)

    def replace_link(link: re.Match[str]) -> str:
        target, anchor = (page.parent / link[1]).resolve(), link[2] or ""
        if target.is_relative_to(PAGES) and target.is_file():
            return link[0]
        if target.name in TOP_PAGES:
            return f"{up}{target.name}{anchor}"
        is_page = target.is_relative_to(PAGES)
        place = f"docs/{target.relative_to(PAGES)}" if is_page else target.relative_to(PAGES.parent)
        return f"{repository}/blob/main/{place}{anchor}"

    return LINK.sub(replace_link, page.read_text("utf-8"))


def find_external_assets() -> Iterator[str]:
    """Yield the pages that load something from another host, with what they load."""
    for page in SITE.rglob("*.html"):
        for found in EXTERNAL.findall(page.read_text("utf-8")):
            if "github.com" not in found:
                yield f"{page.relative_to(SITE)}: {found}"


def render_commands(tree: CommandNode) -> Iterator[str]:
    """Yield the reference of the command line."""
    yield "# Command line\n"
    yield "Written from the program itself; `travois COMMAND --help` says the same.\n"
    for node in tree.walk():
        yield f"{'##' if len(node.path) < 2 else '###'} {node.name}\n"
        if node.path:
            yield f"{node.what[:1].upper()}{node.what[1:]}.\n"
        yield from _render_flag_table(node)
        if node.more and node.path:
            yield f"\n```text\n{node.more.strip()}\n```\n"


def _render_flag_table(node: CommandNode) -> Iterator[str]:
    flags = [flag for flag in node.flags if flag.names[0] != "-h"]
    if flags:
        yield "| flag | meaning |\n|---|---|"
        yield from (f"| `{_cell(spell_flag(flag))}` | {_cell(flag.what)} |" for flag in flags)
        yield ""


def render_settings() -> Iterator[str]:
    """Yield the reference of the settings: each key with its type, default and meaning."""
    yield "# Settings reference\n"
    yield "Every key of `settings.json`. [Settings](../settings.md) has the files and examples.\n"
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    yield from _render_setting_rows(Settings, "")


def _render_setting_rows(struct: type[msgspec.Struct], prefix: str) -> Iterator[str]:
    """Yield a row for each key of a group of settings."""
    hints, told = get_type_hints(struct), read_field_docs(struct)
    for field in msgspec.structs.fields(struct):
        shape = hints[field.name]
        inner = next((one for one in (shape, *get_args(shape)) if _is_struct(one)), None)
        key = f"{prefix}{field.encode_name}"
        if inner is shape:
            yield from _render_setting_rows(inner, f"{key}.")
            continue
        default = f"`{_cell(str(field.default))}`" if field.default not in NO_DEFAULTS else ""
        kind, meaning = _cell(_name_type(shape)), _cell(told.get(field.name, ""))
        yield f"| `{key}` | {kind} | {default} | {meaning} |"


def _name_type(shape: object) -> str:
    """Name a type in the words of a person who writes JSON."""
    inner = get_args(shape)
    match get_origin(shape) or shape:
        case origin if origin is Literal:
            return ", ".join(f"`{one}`" for one in inner if one != "")
        case origin if origin in TYPE_WORDS:
            return TYPE_WORDS[origin]
        case origin if origin in (tuple, list):
            return f"list of {_name_type(inner[0])}" if inner else "list"
        case origin if origin is dict:
            return f"object of {_name_type(inner[1])}" if inner else "object"
        case _ if inner:
            return " or ".join(_name_type(one) for one in inner if one is not type(None))
        case _:
            return "object"


def _is_struct(shape: object) -> bool:
    return inspect.isclass(shape) and issubclass(shape, msgspec.Struct)


def read_field_docs(struct: type) -> dict[str, str]:
    """Read the strings that stand below the fields of a class."""
    source = inspect.getsource(struct)
    return {name: " ".join(text.split()) for name, text in FIELD_DOC.findall(source)}


def render_api() -> Iterator[str]:
    """Yield the reference of the public names of the package."""
    yield "# Python reference\n"
    yield "What `from travois import …` offers; [library](../sdk.md) explains it by examples.\n"
    for name in sorted(travois.__all__, key=str.lower):
        found = getattr(travois, name)
        if name.startswith("__"):
            continue
        yield f"## {name}\n"
        yield f"```python\n{_signature(name, found)}\n```\n"
        yield f"{inspect.getdoc(found) or ''}\n"
        if inspect.isclass(found):
            yield from _render_members(found)


def _signature(name: str, found: object) -> str:
    """Return how something is called, with a line for each parameter if there are many."""
    if not callable(found):
        return name
    try:
        whole = inspect.signature(found)
    except ValueError:
        return name
    words = [MODULE_PREFIX.sub("", str(each)) for each in whole.parameters.values()]
    line = f"{name}({', '.join(words)})"
    return line if len(line) < 90 else f"{name}(\n    " + ",\n    ".join(words) + ",\n)"


def _render_members(found: type) -> Iterator[str]:
    """Yield the fields and methods of a class, each with what its docstring says."""
    for name, text in read_field_docs(found).items():
        yield f"- `{name}`: {text}"
    for name, member in vars(found).items():
        told = inspect.getdoc(member) if not name.startswith("_") else ""
        function = member.fget if isinstance(member, property) else member
        if told and inspect.isfunction(function):
            shown = name if isinstance(member, property) else _signature(name, function)
            yield f"- `{shown}`: {' '.join(told.split())}"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


if __name__ == "__main__":
    raise SystemExit(main())
