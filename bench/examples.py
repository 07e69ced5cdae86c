"""What the router keeps of its examples: `python -m bench.examples`, whenever they change."""

from __future__ import annotations

from pathlib import Path

import msgspec

from travois.local_model import router
from travois.search.embedder import StaticEmbedder


def main() -> None:
    made = router.build_stored_examples(StaticEmbedder())
    file = Path(router.__file__).with_name(router.STORED_EXAMPLES_FILE)
    file.write_bytes(msgspec.msgpack.encode(made))
    print(f"{len(made.shapes)} examples, {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
