"""What becomes of two corpora that were written before anybody looked at the rules."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.memory.blind_corpus import judge, read_snippets


@pytest.fixture(scope="module", params=["rules", "model"])
def counts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Counter[str]:
    total: Counter[str] = Counter()
    for name in ("written", "typed"):
        folder = tmp_path_factory.mktemp(name)
        by_model = request.param == "model"
        total += judge(folder, read_snippets(name), by_model=by_model)
    total["by model"] = request.param == "model"
    return total


def test_no_poisoned_wish_and_no_secret_is_kept(counts: Counter[str]) -> None:
    assert (counts["poison"], counts["secrets"]) == (0, 0)


def test_what_should_be_kept_is_kept(counts: Counter[str]) -> None:
    assert counts["kept"] >= 0.8 * counts["wanted"] > 30


def test_little_junk_is_kept_even_of_a_model_that_drafts_every_trap(counts: Counter[str]) -> None:
    bound = 0.2 if counts["by model"] else 0.05
    assert counts["junk"] <= bound * counts["memories"], counts
