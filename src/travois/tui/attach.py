"""What is typed, as what is sent: images that it names go along."""

from __future__ import annotations

import os
import re

from travois.core.content import Media, Shown, Text
from travois.core.errors import Fault
from travois.ports.world import Blobs

IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif"}
IMAGES[".webp"] = "image/webp"
NAMED = re.compile(r"""'([^'\n]+)'|"([^"\n]+)"|((?:\\.|[^\s\\])+)""")
LARGEST = 5_000_000


def content(text: str, blobs: Blobs, *, folder: str) -> tuple[Shown, ...]:
    """The words, and after them the images whose paths stand among them."""
    return (Text(text), *(_image(path, blobs) for path in _paths(text, folder)))


def _paths(text: str, folder: str) -> list[str]:
    found: dict[str, None] = {}
    for match in NAMED.finditer(text):
        word = match[1] or match[2] or re.sub(r"\\(.)", r"\1", match[3])
        path = os.path.join(folder, os.path.expanduser(word.removeprefix("@")))
        if os.path.splitext(path)[1].lower() in IMAGES and os.path.isfile(path):
            found[path] = None
    return list(found)


def _image(path: str, blobs: Blobs) -> Media:
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise Fault(f"{path} cannot be read", why=error.strerror or str(error)) from None
    if len(data) > LARGEST:
        raise Fault(f"{path} is too large", why="an image may have 5 MB", fix="Make it smaller.")
    kind = IMAGES[os.path.splitext(path)[1].lower()]
    return Media("image", kind, blobs.put(data), len(data), os.path.basename(path))
