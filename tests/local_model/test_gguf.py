"""What a file of weights says of its model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local_model.small import HERE, needs_engine
from travois.core.errors import UserError
from travois.core.models import ModelCard, Price
from travois.local_model import gguf
from travois.local_model.gguf import GgufHeader
from travois.local_model.llamacpp import fit_model_to_file
from travois.local_model.serve import CHATML_TEMPLATE, choose_chat_template


@needs_engine
def test_the_head_tells_what_the_model_is() -> None:
    assert gguf.read_gguf_header(HERE) == GgufHeader(
        "llama", window=8_192, remembered=30 * 3 * 64 * 2 * 2
    )
    assert "<|im_start|>" in gguf.read_chat_template(HERE)


@needs_engine
@pytest.mark.parametrize("size", [3, 20, 200, 60_000])
def test_a_head_that_is_cut_anywhere_is_no_head(tmp_path: Path, size: int) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(HERE.read_bytes()[:size])
    with pytest.raises(UserError, match=r"cut\.gguf is not a GGUF file"):
        gguf.read_chat_template(path)


@pytest.mark.parametrize("content", [b"", b"hello, world, this is text", b"GGUF" + b"\xff" * 60])
def test_what_is_no_gguf_file_is_a_fault(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(content)
    with pytest.raises(UserError, match="is not a GGUF file: its header is not valid") as caught:
        gguf.read_gguf_header(path)
    assert caught.value.fix


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Cannot read .*none\.gguf: no such file"):
        fit_model_to_file(ModelCard("local", str(tmp_path / "none.gguf"), "chat"))


def test_a_window_is_what_was_trained_what_was_asked_and_what_memory_holds() -> None:
    assert gguf.usable_window(GgufHeader("a", 8_192, 0), asked=32_768) == 8_192
    assert gguf.usable_window(GgufHeader("a", 131_072, 0), asked=32_768) == 32_768
    assert gguf.usable_window(GgufHeader("a", 131_072, 0), asked=64_000) == 64_000
    assert gguf.usable_window(GgufHeader("a", 0, 0)) == gguf.DEFAULT_WINDOW_TOKENS
    assert 0 < gguf.usable_window(GgufHeader("a", 1 << 20, 1 << 22), asked=1 << 20) < 1 << 20


@needs_engine
def test_a_model_of_a_file_has_the_window_of_the_file_and_no_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(HERE.parent)
    asked = ModelCard("local", HERE.name, "chat", window=32_768, price=Price(1, 2))
    assert fit_model_to_file(asked) == ModelCard(
        "local", str(HERE), "chat", window=8_192, output=2_048, images=False
    )


def test_only_a_template_that_knows_no_tools_and_has_the_same_marks_gives_way_to_ours() -> None:
    ours = CHATML_TEMPLATE.read_text()
    assert choose_chat_template("") == ours
    assert choose_chat_template("<|im_start|>{{ messages }}") == ours
    assert choose_chat_template("<|im_start|>{% if tools %}") == ""
    assert choose_chat_template("[INST] {{ messages }}") == ""
