"""The README as a package index shows it: relative links point into the repository.

Hatchling runs this when it builds the package (`[tool.hatch.metadata.hooks.custom]`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)")
"""A Markdown link or image whose target is a file of the repository."""


class IndexReadme(MetadataHookInterface):
    """The hook that hatchling asks for the description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README to the metadata."""
        text = Path(self.root, "README.md").read_text("utf-8")
        shown = make_links_absolute(text, repository=metadata["urls"]["Source"], tag="main")
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}


def make_links_absolute(text: str, *, repository: str, tag: str) -> str:
    """Return Markdown whose relative links name the files of a tag of the repository."""

    def replace_link(link: re.Match[str]) -> str:
        mark, title, target = link.groups()
        view = "raw" if mark else "blob"
        return f"{mark}[{title}]({repository}/{view}/{tag}/{target})"

    return LINK.sub(replace_link, text)
