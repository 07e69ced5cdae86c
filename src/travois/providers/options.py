"""How each protocol is asked to think more or less: one of five words, as far as it knows it."""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Callable
from hashlib import blake2b
from typing import assert_never

from msgspec.structs import replace

from travois.core.content import AnyBlock, Media, Opaque, Text
from travois.core.json import utf8
from travois.core.models import Effort, Model
from travois.providers.request import Request

LEVELS: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")
BUDGETS: tuple[tuple[int, Effort], ...] = ((8_000, "low"), (16_000, "medium"), (32_000, "high"))
"""Below how many tokens of thinking, where somebody counts in these, which effort is meant."""
NAMES = ("effort", "outputconfig", "reasoning", "think", "thinkingconfig", "thinkinglevel")
"""What servers call it when they refuse it."""


def refused(field: str) -> bool:
    """Whether a server that does not know this field does not know the effort."""
    bare = field.rpartition(".")[2].lower().replace("_", "").replace(" ", "")
    return bare.removeprefix("reasoning") in ("", *NAMES) and bool(bare)


def worth(tokens: int) -> Effort:
    """The effort that comes nearest to so much thinking."""
    for most, level in BUDGETS:
        if tokens < most:
            return level
    return "max"


def further(model: Model) -> bytes:
    """What stands at the end of a body: the effort, and further members that the model wants."""
    return effort(model) + (b"," + utf8(model.params) if model.params else b"")


def effort(model: Model) -> bytes:
    """The member that asks for the effort, with a comma before it; nothing if none was chosen."""
    if not model.effort:
        return b""
    most = "high" if model.effort in ("xhigh", "max") else model.effort
    match model.protocol:
        case "anthropic":
            return b',"output_config":{"effort":"%s"}' % model.effort.encode()
        case "responses":
            level = "xhigh" if model.effort == "max" else model.effort
            return b',"reasoning":{"effort":"%s"}' % level.encode()
        case "chat":
            return b',"reasoning_effort":"%s"' % most.encode()
        case "gemini":
            return b',"thinkingConfig":{"thinkingLevel":"%s"}' % most.encode()
        case "ollama":
            return b',"think":"%s"' % most.encode()
        case _:
            assert_never(model.protocol)


# A request that asks for a shorter reply than its model could give.


LONGEST = re.compile(
    rb'("(?:max_(?:completion_|output_)?tokens|maxOutputTokens|num_predict)":)(\d+)'
)
"""How long a reply may be: it stands after the model's name, before anything that was said."""


def rationed(request: Request, output: int) -> Request:
    """The same request for a reply of at most so many tokens; nought leaves it as it is.

    The length is no part of what a provider caches.
    """
    if not output:
        return request
    said = blake2b(f"{request.digest} {output}".encode(), digest_size=16)
    body = LONGEST.sub(rb"\g<1>%d" % output, request.body, count=1)
    return replace(request, body=body, digest=said.hexdigest())


# Names that any provider takes, and words where a provider wants some and there are none.


ECHOED = "extra_content"
"""The member of a call that Google's chat endpoint wants back, and no other may see."""
FOREIGN = frozenset((ECHOED, "gemini", "responses"))
"""Members of a call that only the protocol that made it may see."""
NO_OUTPUT = "(no output)"
NO_WORDS = "(empty message)"
GO_ON = "(continue)"
STARTED_BEFORE = "(This conversation began earlier.)"


def spoken(block: AnyBlock) -> str:
    """What of a block is said again as words: another provider's summary stands for history."""
    if isinstance(block, Opaque):
        return block.text if block.kind in ("compaction", "text") else ""
    return block.text if isinstance(block, Text) else ""


def call_id(id: str, *, legal: str = r"[A-Za-z0-9_-]{1,64}", start: str = "toolu_") -> str:
    """A call's id if it is legal; else one made from it, always the same."""
    if re.fullmatch(legal, id):
        return id
    return start + blake2b(utf8(id), digest_size=12).hexdigest()


def tool_name(name: str) -> str:
    """A tool's name, whatever the model called it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unknown"


# Images and documents as a provider takes them, or a line of text where it does not.


IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
PDF = "application/pdf"
HIDDEN = "this model cannot be shown it"


def base64(media: Media, fetch: Callable[[str], bytes]) -> bytes | None:
    """The bytes of it in base64; None if they are lost or none."""
    try:
        return b2a_base64(fetch(media.blob), newline=False) or None
    except KeyError:
        return None


def shown(media: Media, fetch: Callable[[str], bytes], *, taken: bool = True) -> bytes | str:
    """The bytes of it in base64 if they are taken, and there; else the line in its place."""
    if not taken:
        return note(media, HIDDEN)
    return base64(media, fetch) or note(media, "its bytes are lost")


def note(media: Media, why: str) -> str:
    """A line in place of something that cannot be shown."""
    name = f" {media.name}" if media.name else ""
    return f"[{media.kind}{name}, {media.mime}, {media.size} bytes: {why}]"
