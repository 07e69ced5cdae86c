"""Files of tasks: what is read, and how wrong lines are told."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.core.errors import UserError
from travois.fleet.task import FleetTask, derive_task_id, expand_template, load_tasks

HERE = Path("/work")


def load(text: str, path: str = "t.jsonl") -> tuple[FleetTask, ...]:
    return load_tasks(path, text, folder=HERE)


def test_jsonl_and_yaml_mean_the_same() -> None:
    json = (
        '{"id": "a", "repo": "x", "prompt": "p", "max_usd": 1.5}\n\n{"repo": "y", "prompt": "q"}\n'
    )
    yaml = "- id: a\n  repo: x\n  prompt: p\n  max_usd: 1.5\n- repo: y\n  prompt: q\n"
    first, second = load(json)
    assert (first, second) == load(yaml, "t.yaml")
    assert first == FleetTask(id="a", repo="/work/x", prompt="p", max_usd=1.5)
    assert second.id == derive_task_id(second) and second.branch == f"travois/{second.id}"


def test_every_problem_is_told_with_file_line_and_field() -> None:
    text = "\n".join(
        [
            '{"id": "a", "repo": "x", "prompt": "p"}',
            '{"id": "b", "repo": "x"}',
            '{"id": "c", "repo": "x", "prompt": "p", "max_usd": "two"}',
            '{"id": "../d", "repo": "x", "prompt": " "}',
            '{"id": "e", "repo": "x", "prompt": "p", "modle": "m"}',
            "[1]",
            "{",
            '{"id": "a", "repo": "y", "prompt": "p"}',
            '{"id": "f", "repo": "x", "prompt": "p", "key": "sk-ant-123", "best_of": 3}',
        ]
    )
    with pytest.raises(UserError) as told:
        load(text)
    said = str(told.value)
    for wanted in (
        *("t.jsonl:2: prompt:", "t.jsonl:3: max_usd:", "t.jsonl:4: id:", "t.jsonl:4: prompt:"),
        *("t.jsonl:5: modle:", "t.jsonl:6:", "t.jsonl:7:", "t.jsonl:8: id:"),
        *("t.jsonl:9: key:", "t.jsonl:9: check:"),
    ):
        assert wanted in said, said
    assert "t.jsonl:1:" not in said and "nothing was submitted" in said


@pytest.mark.parametrize("text", ["a: 1\n", "- id: [\n", "", "# nothing\n"])
def test_what_is_no_list_of_tasks_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        load(text, "t.yml")


@pytest.mark.parametrize("repo", ["ext::sh -c touch% x", "a\nb", ""])
def test_addresses_that_run_commands_are_refused(repo: str) -> None:
    text = msgspec.json.encode({"id": "a", "repo": repo, "prompt": "p"}).decode()
    with pytest.raises(UserError, match="repo"):
        load_tasks("t.jsonl", text, folder=Path(""))


def test_a_template_becomes_a_task_for_each_repository() -> None:
    template = FleetTask(prompt="fix", repo="")
    repos = "git@host:a.git\n# comment\nhttps://host/b.git v1\n./c\n"
    found = expand_template(template, repos, path="repos.txt", folder=HERE)
    assert [(task.repo, task.ref) for task in found] == [
        ("git@host:a.git", ""),
        ("https://host/b.git", "v1"),
        ("/work/c", ""),
    ]
    assert len({task.id for task in found}) == 3
    again = expand_template(template, repos, path="repos.txt", folder=HERE)
    assert again == found
    with pytest.raises(UserError, match=r"repos.txt:1"):
        expand_template(template, "a b c\n", path="repos.txt", folder=HERE)


@given(st.text(max_size=40))
def test_ids_are_safe_as_folders_and_branches(id: str) -> None:
    text = msgspec.json.encode({"id": id, "repo": "/x", "prompt": "p"}).decode()
    try:
        (task,) = load(text)
    except UserError:
        return
    assert "/" not in task.id and ".." not in task.id and task.id not in ("", ".")
    assert not task.id.endswith((".lock", ".")) and task.id.isascii()
