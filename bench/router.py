"""How many simple requests become the right call: by the static table, by MiniLM, by words alone.

`python -m bench router`: besides the sets of `tests/corpus/simple_requests`, each example is asked
for without itself and all that have its shape. The examples were chosen to differ, so that is the
harder question.
"""

from __future__ import annotations

import re
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from math import hypot
from pathlib import Path
from time import process_time
from zlib import crc32

from tests.corpus.asked import Call, Outcome, Request, judged, requests

from travois.local_model.request_spans import mask_request_spans
from travois.local_model.router import (
    Example,
    ExampleIndex,
    TextEncoder,
    load_examples,
    route_request,
)
from travois.search import embedder as minilm
from travois.search.embedder import StaticEmbedder
from travois.tools.catalog import TOOLS

NAMES = frozenset(tool.name for tool in TOOLS)
SETS = ("tuned", "seen", "held_out", "beyond", "blind")
MORE = 24


class Words:
    """Texts are near if they have the same words."""

    name, size = "words", 512

    def encode(self, texts: Sequence[str]) -> bytes:
        return b"".join(map(self._row, texts))

    def _row(self, text: str) -> bytes:
        row = [0.0] * self.size
        for word in re.findall(r"\w+", text.casefold()):
            row[crc32(word.encode()) % self.size] += 1
        length = hypot(*row) or 1.0
        return array("f", [value / length for value in row]).tobytes()


class Without(ExampleIndex):
    """Examples that do not know those like the request itself."""

    def find_nearest(self, text: str, *, count: int) -> list[tuple[float, Example]]:
        found = super().find_nearest(text, count=count + MORE)
        return [
            one for one in found if mask_request_spans(one[1].text) != mask_request_spans(text)
        ][:count]


def main() -> None:
    print(f"{'right / wrong / none':<28}" + "".join(f"{name:>16}" for name in (*SETS, "examples")))
    for encoder in _encoders():
        near, apart = ExampleIndex(encoder), Without(encoder)
        sets = [(near, requests(name)) for name in SETS] + [(apart, list(_examples()))]
        start = process_time()
        cells = [_told(near, some) for near, some in sets]
        asked = sum(len(some) for _, some in sets)
        each = (process_time() - start) / asked * 1e3
        print(f"{encoder.name:<28}" + "".join(f"{c:>16}" for c in cells) + f"  {each:.1f} ms each")


def _encoders() -> Iterator[TextEncoder]:
    yield Words()
    yield StaticEmbedder()
    with tempfile.TemporaryDirectory() as scratch:
        found = minilm.find_embedder(Path(scratch, "stamp"))
        if isinstance(found, minilm.MiniLmEmbedder):
            yield found


def _examples() -> Iterator[Request]:
    return (Request(one.text, (Call(one.tool, one.input),)) for one in load_examples() if one.tool)


def _told(near: ExampleIndex, asked: Sequence[Request]) -> str:
    outcomes: Counter[Outcome] = Counter(
        judged(one, route_request(one.text, examples=near, tools=NAMES)) for one in asked
    )
    return f"{outcomes['right']} / {outcomes['wrong']} / {outcomes['none']}"


if __name__ == "__main__":
    main()
