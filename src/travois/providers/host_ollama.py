"""Where Ollama listens, by the variable that its users set for it."""

from __future__ import annotations

from collections.abc import Mapping

HOST, PORT = "OLLAMA_HOST", 11434
ANYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - where a server listens, and nobody can be asked


def address(env: Mapping[str, str]) -> str:
    """Its base URL: `host`, `host:port`, `:port` or a whole URL is set; empty if nothing is."""
    from urllib.parse import urlsplit

    said = env.get(HOST, "").strip().strip("\"'")
    if not said:
        return ""
    whole = "://" in said
    parts = urlsplit(said if whole else f"http://{said}")
    place = parts.netloc.rpartition("@")[2]
    name, _, port = place.rpartition(":") if _ported(place) else (place, "", "")
    name = "127.0.0.1" if name.strip("[]") in ANYWHERE else name
    port = port or ("" if whole else str(PORT))
    return f"{parts.scheme}://{name}" + (f":{port}" if port else "") + parts.path.rstrip("/")


def _ported(place: str) -> bool:
    """Whether a port stands behind a name; the colons of an address in brackets are none."""
    return ":" in place.rpartition("]")[2]
