"""Each way of installing is recognised by its records, and gets commands that work for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from travois.files.installation import Installation, detect_installation

PYTHON = "/env/bin/python"
EDITABLE = json.dumps({"url": "file:///src/my%20travois", "dir_info": {"editable": True}})
PIPX = {"main_package": {"package_or_url": "travois[mcp]"}}
UV_TOOL = '[tool]\nrequirements = [{ name = "travois", extras = ["fleet"] }]\n'


def detect(prefix: Path, *, direct_url: str = "", has_pip: bool = True) -> Installation:
    return detect_installation(prefix, python=PYTHON, direct_url=direct_url, has_pip=has_pip)


def test_pip() -> None:
    found = detect(Path("/env"))
    assert found.extra_command("web") == f"{PYTHON} -m pip install 'travois[web]'"
    assert found.update_command() == f"{PYTHON} -m pip install --upgrade travois"
    assert found.remove_command() == f"{PYTHON} -m pip uninstall travois"


def test_an_environment_of_uv_without_pip() -> None:
    found = detect(Path("/env"), has_pip=False)
    assert found.extra_command("web") == f"uv pip install --python {PYTHON} 'travois[web]'"


def test_pipx_keeps_the_extras_it_has(tmp_path: Path) -> None:
    (tmp_path / "pipx_metadata.json").write_text(json.dumps(PIPX))
    found = detect(tmp_path)
    assert found.extra_command("web") == "pipx install --force 'travois[mcp,web]'"
    assert (
        found.package_command("--no-deps", "a==1") == "pipx runpip travois install --no-deps a==1"
    )
    assert found.update_command() == "pipx upgrade travois"


def test_uv_tool_keeps_the_extras_it_has(tmp_path: Path) -> None:
    (tmp_path / "uv-receipt.toml").write_text(UV_TOOL)
    found = detect(tmp_path, has_pip=False)
    assert found.extra_command("web") == "uv tool install 'travois[fleet,web]'"
    assert found.update_command() == "uv tool upgrade travois"


def test_uvx(tmp_path: Path) -> None:
    (tmp_path / "archive-v0" / "x1y2").mkdir(parents=True)
    found = detect(tmp_path / "archive-v0" / "x1y2", has_pip=False)
    assert found.extra_command("web") == "uvx --from 'travois[web]' travois"
    assert found.update_command() == "uvx travois@latest"


def test_a_checkout() -> None:
    found = detect(Path("/env"), direct_url=EDITABLE)
    assert found.extra_command("web") == f"{PYTHON} -m pip install -e '/src/my travois[web]'"
    assert found.update_command().startswith("git -C '/src/my travois' pull && make ")


@pytest.mark.parametrize("record", ["", "[]", "{"])
def test_a_record_that_cannot_be_read_means_no_extras(record: str, tmp_path: Path) -> None:
    for name in ("pipx_metadata.json", "uv-receipt.toml"):
        (tmp_path / name).write_text(record)
        assert detect(tmp_path).extras == ()
        (tmp_path / name).unlink()
    assert detect(tmp_path, direct_url=record).kind == "pip"
