"""How Travois was installed, and the commands that add to, update and remove that installation."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from travois.lazy_imports import lazy_imports

with lazy_imports():
    import json
    import tomllib
    from importlib import metadata


InstallKind = Literal["source", "pipx", "uv tool", "uvx", "uv pip", "pip"]
PACKAGE = "travois"
PIPX_RECORD = "pipx_metadata.json"
UV_TOOL_RECORD = "uv-receipt.toml"


class Installation(NamedTuple):
    """The way in which Travois was installed."""

    kind: InstallKind
    python: str
    """The interpreter whose packages are used."""
    source: str = ""
    """The checkout that an editable installation runs."""
    extras: tuple[str, ...] = ()
    """Extras that pipx or uv has on record: their commands replace the whole environment."""

    def extra_command(self, *extras: str) -> str:
        """Return the command that adds extras, such as `web`, to this installation."""
        wanted = shlex.quote(f"{PACKAGE}[{','.join(sorted({*self.extras, *extras}))}]")
        match self.kind:
            case "source":
                place = shlex.quote(f"{self.source}[{','.join(extras)}]")
                return f"{self._install_words()} -e {place}"
            case "pipx":
                return f"pipx install --force {wanted}"
            case "uv tool":
                return f"uv tool install {wanted}"
            case "uvx":
                return f"uvx --from {wanted} {PACKAGE}"
            case "uv pip" | "pip":
                return f"{self._install_words()} {wanted}"

    def package_command(self, *words: str) -> str:
        """Return the command that puts another package beside Travois."""
        if self.kind == "pipx":
            return f"pipx runpip {PACKAGE} install {shlex.join(words)}"
        return f"{self._install_words()} {shlex.join(words)}"

    def update_command(self) -> str:
        """Return the command that installs the newest version in the same way."""
        match self.kind:
            case "source":
                place = shlex.quote(self.source)
                return f"git -C {place} pull && make -C {place} run ARGS=--version"
            case "pipx":
                return f"pipx upgrade {PACKAGE}"
            case "uv tool":
                return f"uv tool upgrade {PACKAGE}"
            case "uvx":
                return f"uvx {PACKAGE}@latest"
            case "uv pip" | "pip":
                return f"{self._install_words()} --upgrade {PACKAGE}"

    def remove_command(self) -> str:
        """Return the command that removes the program; its files are not part of it."""
        match self.kind:
            case "pipx":
                return f"pipx uninstall {PACKAGE}"
            case "uv tool":
                return f"uv tool uninstall {PACKAGE}"
            case "uvx":
                return f"uv cache clean {PACKAGE}"
            case "uv pip":
                return f"uv pip uninstall --python {shlex.quote(self.python)} {PACKAGE}"
            case "source" | "pip":
                return f"{shlex.quote(self.python)} -m pip uninstall {PACKAGE}"

    def _install_words(self) -> str:
        """Return the words that install into the environment of this interpreter."""
        python = shlex.quote(self.python)
        without_pip = self.kind in ("uv tool", "uvx", "uv pip")
        return f"uv pip install --python {python}" if without_pip else f"{python} -m pip install"


@lru_cache(maxsize=1)
def find_installation() -> Installation:
    """Find out how the running Travois was installed."""
    return detect_installation(
        Path(sys.prefix),
        python=sys.executable,
        direct_url=_read_direct_url(),
        has_pip=find_spec("pip") is not None,
    )


def detect_installation(
    prefix: Path, *, python: str, direct_url: str, has_pip: bool
) -> Installation:
    """Tell the ways of installing apart by the records that each leaves in its environment."""
    if (prefix / PIPX_RECORD).exists():
        return Installation("pipx", python, extras=_read_pipx_extras(prefix / PIPX_RECORD))
    if (prefix / UV_TOOL_RECORD).exists():
        return Installation("uv tool", python, extras=_read_uv_extras(prefix / UV_TOOL_RECORD))
    if source := _find_checkout(direct_url):
        return Installation("source", python, source)
    if prefix.parent.name.startswith(("archive-v", "environments-v")):  # folders of uv's cache
        return Installation("uvx", python)
    return Installation("pip" if has_pip else "uv pip", python)


def extra_command(*extras: str) -> str:
    """Return the command that adds extras to the running Travois."""
    return find_installation().extra_command(*extras)


def _read_direct_url() -> str:
    """Read where the package came from, if not from an index; empty if it did or is no package."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.distribution(PACKAGE).read_text("direct_url.json") or ""
    return ""


def _find_checkout(direct_url: str) -> str:
    """Return the folder of an editable installation; empty for any other."""
    with suppress(ValueError, KeyError, TypeError):
        record = json.loads(direct_url or "{}")
        if record["dir_info"].get("editable"):
            return unquote(urlsplit(str(record["url"])).path)
    return ""


def _read_pipx_extras(record: Path) -> tuple[str, ...]:
    """Read the extras with which pipx installed Travois."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return _extras_in(str(json.loads(record.read_bytes())["main_package"]["package_or_url"]))
    return ()


def _read_uv_extras(record: Path) -> tuple[str, ...]:
    """Read the extras with which `uv tool` installed Travois."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        wanted = tomllib.loads(record.read_text("utf-8"))["tool"]["requirements"]
        own = next(one for one in wanted if one["name"] == PACKAGE)
        return tuple(map(str, cast("list[object]", own.get("extras", ()))))
    return ()


def _extras_in(requirement: str) -> tuple[str, ...]:
    """Return the extras of a requirement such as `travois[mcp,web]`."""
    _, mark, rest = os.path.basename(requirement).partition("[")
    return tuple(rest.partition("]")[0].replace(" ", "").split(",")) if mark else ()
