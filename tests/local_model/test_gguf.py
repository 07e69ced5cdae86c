"""What a file of weights says of its model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local_model.small import HERE, needs_engine
from travois.core.errors import UserError
from travois.core.models import ModelCard, Price
from travois.local_model import gguf
from travois.local_model.gguf import Head
from travois.local_model.llamacpp import sized
from travois.local_model.serve import CHATML, suited


@needs_engine
def test_the_head_tells_what_the_model_is() -> None:
    assert gguf.head(HERE) == Head("llama", window=8_192, remembered=30 * 3 * 64 * 2 * 2)
    assert "<|im_start|>" in gguf.template(HERE)


@needs_engine
@pytest.mark.parametrize("size", [3, 20, 200, 60_000])
def test_a_head_that_is_cut_anywhere_is_no_head(tmp_path: Path, size: int) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(HERE.read_bytes()[:size])
    with pytest.raises(UserError, match=r"cut\.gguf is not a GGUF file"):
        gguf.template(path)


@pytest.mark.parametrize("content", [b"", b"hello, world, this is text", b"GGUF" + b"\xff" * 60])
def test_what_is_no_gguf_file_is_a_fault(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(content)
    with pytest.raises(UserError, match="is not a GGUF file: its header is not valid") as caught:
        gguf.head(path)
    assert caught.value.fix


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Cannot read .*none\.gguf: no such file"):
        sized(ModelCard("local", str(tmp_path / "none.gguf"), "chat"))


def test_a_window_is_what_was_trained_what_was_asked_and_what_memory_holds() -> None:
    assert gguf.usable_window(Head("a", 8_192, 0), asked=32_768) == 8_192
    assert gguf.usable_window(Head("a", 131_072, 0), asked=32_768) == 32_768
    assert gguf.usable_window(Head("a", 131_072, 0), asked=64_000) == 64_000
    assert gguf.usable_window(Head("a", 0, 0)) == gguf.USUAL
    assert 0 < gguf.usable_window(Head("a", 1 << 20, 1 << 22), asked=1 << 20) < 1 << 20


@needs_engine
def test_a_model_of_a_file_has_the_window_of_the_file_and_no_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(HERE.parent)
    asked = ModelCard("local", HERE.name, "chat", window=32_768, price=Price(1, 2))
    assert sized(asked) == ModelCard(
        "local", str(HERE), "chat", window=8_192, output=2_048, images=False
    )


def test_only_a_template_that_knows_no_tools_and_has_the_same_marks_gives_way_to_ours() -> None:
    ours = CHATML.read_text()
    assert suited("") == ours
    assert suited("<|im_start|>{{ messages }}") == ours
    assert suited("<|im_start|>{% if tools %}") == ""
    assert suited("[INST] {{ messages }}") == ""
