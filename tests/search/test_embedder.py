"""The model of meaning: its word pieces, its vectors, and what it says where it cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from travois.search import embedder as minilm
from travois.search import embedder as weights
from travois.search.embedder import MiniLmEmbedder, NoEmbedder
from travois.search.wordpiece import WordPieceTokenizer, normalize_for_bert

PIECES = ["[PAD]", *(f"[unused{n}]" for n in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

KNOWN = [-0.03, 0.02, 0.035, -0.01]


def test_words_are_divided_into_the_longest_pieces_that_have_a_name() -> None:
    known = WordPieceTokenizer([*PIECES, "un", "##want", "##ed", "##wan", "!", "日"])
    assert known.encode("Unwanted! 日本", limit=20) == [101, 104, 105, 106, 108, 109, 100, 102]
    assert known.encode("unx " + "un" * 51, limit=20) == [101, 100, 100, 102]
    assert known.encode("un " * 99, limit=5) == [101, 104, 104, 104, 102]
    assert known.encode("", limit=5) == [101, 102]


def test_a_text_is_folded_as_the_vocabulary_expects() -> None:
    assert normalize_for_bert("Crème\tBRÛLÉE, naïve").split() == ["creme", "brulee", ",", "naive"]
    assert normalize_for_bert("a_b→c日本\u200bd\0e\ufffdf").split() == [
        "a",
        "_",
        "b→c",
        "日",
        "本",
        "def",
    ]
    assert normalize_for_bert("Σίσυφος ΣΑΣ İ").split() == ["σισυφος", "σασ", "i"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MiniLmEmbedder:
    found = minilm.find_embedder(tmp_path_factory.mktemp("embedder") / "stamp")
    if isinstance(found, NoEmbedder):
        pytest.skip(found.why)
    return found


def cosines(model: MiniLmEmbedder, *texts: str) -> list[float]:
    import numpy as np

    rows = np.frombuffer(model.encode(texts), np.float32).reshape(len(texts), model.size)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    return [float(round(value, 2)) for value in rows[1:] @ rows[0]]


def test_texts_of_like_meaning_are_near(model: MiniLmEmbedder) -> None:
    near, far = cosines(
        *(model, "How do we store sessions?", "Session data lives in Redis."),
        "The cat sat on the mat.",
    )
    assert near > 0.4 > 0.15 > far


def test_a_text_has_the_same_vector_in_any_company(model: MiniLmEmbedder) -> None:
    texts = ["", "x", "a longer text " * 30, "日本語", "y" * 300, "\ud800\0", "word " * 5000]
    import numpy as np

    together = np.frombuffer(model.encode(texts), np.float32).reshape(len(texts), -1)
    alone = [np.frombuffer(model.encode([text]), np.float32) for text in texts]
    assert np.allclose(together, alone, atol=1e-5)
    assert model.encode([]) == b""


def test_known_vectors(model: MiniLmEmbedder) -> None:
    """As another tokenizer and another forward pass over the same weights have them."""
    import numpy as np

    row = np.frombuffer(model.encode(["naïve Café 日本 unbelievable-ness!"]), np.float32)
    assert row[:4].round(3).tolist() == pytest.approx(KNOWN, abs=0.0011)


def test_other_weights_are_not_used(tmp_path: Path) -> None:
    for name in weights.MINILM_CHECKSUMS:
        (tmp_path / name).write_bytes(b"other")
    stamp = tmp_path / "stamp"
    assert "does not have the expected checksum" in weights.find_weights_problem(
        tmp_path, stamp=stamp
    )
    assert not stamp.exists()
    (tmp_path / "vocab.txt").unlink()
    assert weights.find_weights_problem(tmp_path, stamp=stamp).endswith(
        "vocab.txt: no such file or directory"
    )


def test_files_that_were_found_right_are_not_read_again_until_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    monkeypatch.setattr(weights, "MINILM_CHECKSUMS", {"vocab.txt": right})
    path, stamp = tmp_path / "vocab.txt", tmp_path / "deep" / "stamp"
    path.write_bytes(b"x")
    assert weights.find_weights_problem(tmp_path, stamp=stamp) == ""
    monkeypatch.setattr(weights, "MINILM_CHECKSUMS", {"vocab.txt": "another"})
    assert weights.find_weights_problem(tmp_path, stamp=stamp) == ""
    path.write_bytes(b"yy")
    assert weights.find_weights_problem(tmp_path, stamp=stamp) != ""


@pytest.mark.parametrize(
    ("here", "why"), [((), "numpy is not installed"), (("numpy",), "weights are not")]
)
def test_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: tuple[str, ...], why: str
) -> None:
    monkeypatch.setattr(minilm, "find_spec", lambda name: object() if name in here else None)
    found = minilm.find_embedder(tmp_path / "stamp")
    assert isinstance(found, NoEmbedder) and why in found.why
