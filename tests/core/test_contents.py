"""The estimate agrees with public vocabularies about every kind of content, to a factor of two.

`contents.json` has what each vocabulary counts for the texts of `bench.contents`
(`python -m bench tokens SESSIONS_DIR --judges NODE_MODULES --write` makes it).
"""

from __future__ import annotations

import json
from pathlib import Path
from zlib import crc32

import pytest
from bench.contents import KINDS, RUNS, made
from bench.tokens import JUDGES

from travois.core.tokens import estimate_tokens

COUNTED: dict[str, dict[str, int]] = json.loads(
    Path(__file__).with_name("contents.json").read_text()
)


def counts(kind: str) -> list[float]:
    """What the judges count for a text, as tokens of the estimate."""
    told, text = COUNTED[kind], made(kind)
    assert told["crc32"] == crc32(text.encode()), "the text is not the one that was counted"
    return [told[name] / ratio for name, ratio in JUDGES.items()]


def test_every_kind_was_counted() -> None:
    assert set(COUNTED) == {*KINDS, *RUNS}


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_of_content_is_off_by_more_than_two(kind: str) -> None:
    guess = estimate_tokens(made(kind))
    for count in counts(kind):
        assert count / 2 <= guess <= count * 2


@pytest.mark.parametrize("kind", RUNS)
def test_what_says_nothing_stays_within_two_of_what_vocabularies_make_of_it(kind: str) -> None:
    guess = estimate_tokens(made(kind))
    assert min(counts(kind)) / 2 <= guess <= max(counts(kind)) * 2


@pytest.mark.parametrize("sign", [".", "-", "=", "*", "#", "_", "~", "\n", "\r\n", " ", "\t", "─"])
def test_a_megabyte_of_one_sign_is_next_to_nothing(sign: str) -> None:
    text = sign * (1_000_000 // len(sign.encode()))
    assert estimate_tokens(text) <= 85_000  # a tenth of what it was, or less
    assert estimate_tokens(f"before {text} after") <= 85_010
