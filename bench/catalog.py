"""What the program reads of the catalogue, made of what people write.

`python -m bench.catalog` after each change of `providers/catalog.toml`; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from travois.providers import catalog

HOST = Path(catalog.__file__).parent


def made() -> bytes:
    """The catalogue as JSON, a line for each entry."""
    told = msgspec.toml.decode((HOST / "catalog.toml").read_bytes())
    return msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n"


if __name__ == "__main__":
    (HOST / "catalog.json").write_bytes(made())
