"""A request that asks for a shorter reply than its model could give."""

from __future__ import annotations

import re
from hashlib import blake2b

from msgspec.structs import replace

from travois.providers.request import Request

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
