"""Session stores; the address says which."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from travois.ports.session_store import SessionStore

with lazy_imports():
    from travois.files import installation
    from travois.sessions.stores import folder, objects, postgres

POSTGRES_SCHEMES = ("postgresql", "postgres")
PACKAGES = {"psycopg": "fleet", "fsspec": "store"}
"""Packages that stores need, and the extras that bring them."""


def open_store(address: str) -> SessionStore:
    """Open the session store at an address: a folder, a database, or a URL of `fsspec`."""
    scheme, mark, rest = address.partition("://")
    try:
        if not mark or scheme == "file":
            return folder.FolderStore(Path(rest or scheme).expanduser().absolute())
        if scheme in POSTGRES_SCHEMES:
            return postgres.PostgresStore(address)
        return objects.ObjectStore(address)
    except ModuleNotFoundError as error:
        own = installation.find_installation()
        extra = PACKAGES.get(error.name or "")
        fix = own.extra_command(extra) if extra else own.package_command(error.name or "")
        raise UserError(f"The session store needs {error.name}", fix=fix) from None
    except (ImportError, ValueError) as error:  # fsspec: an unknown scheme, or a driver is missing
        raise UserError(f"Cannot use the session store {scheme}://", why=str(error)) from None
