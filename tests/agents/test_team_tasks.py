"""The task list of a team: processes that change one file at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from travois.agents.team_tasks import TeamTaskFile
from travois.core.errors import UserError
from travois.core.tasks import Task, TaskError, TaskList, read_tasks

WORKER = """
import sys
from pathlib import Path
from travois.core.tasks import Task, add_task, claim_task, TaskError
from travois.agents.team_tasks import TeamTaskFile
file, me = TeamTaskFile(Path(sys.argv[1])), sys.argv[2]
for n in range(20):
    file.change(lambda tasks: add_task(tasks, Task(content=f"{me} {n}", status="pending"))[0])
for id in range(1, 41):
    try:
        file.change(lambda tasks: claim_task(tasks, str(id), by=me))
    except TaskError:
        pass
"""


def test_processes_that_change_the_list_at_once_lose_nothing_and_share_no_id(tmp_path: Path):
    args = (sys.executable, "-c", WORKER, str(tmp_path))
    workers = [subprocess.Popen([*args, name]) for name in ("ada", "bob")]
    assert [worker.wait() for worker in workers] == [0, 0]
    tasks = read_tasks(TeamTaskFile(tmp_path).read())
    assert [task.id for task in tasks] == [str(n) for n in range(1, 41)]
    wanted = {f"{name} {n}" for name in ("ada", "bob") for n in range(20)}
    assert {task.content for task in tasks} == wanted
    begun = [task for task in tasks if task.status == "in_progress"]
    assert begun
    assert {task.owner for task in begun} <= {"ada", "bob"}


def test_an_edit_that_fails_leaves_the_file_as_it_was(tmp_path: Path):
    file = TeamTaskFile(tmp_path)
    value = file.change(lambda tasks: (*tasks, Task(id="1", content="a", status="pending")))

    def fail(tasks: TaskList) -> TaskList:
        raise TaskError("no")

    with pytest.raises(TaskError):
        file.change(fail)
    assert file.read() == value


def test_a_damaged_file_says_what_to_do_and_is_not_overwritten(tmp_path: Path):
    (tmp_path / "tasks.json").write_text("[{")
    with pytest.raises(UserError, match="damaged") as caught:
        TeamTaskFile(tmp_path).change(lambda tasks: tasks)
    assert "Repair or delete" in caught.value.fix
    assert (tmp_path / "tasks.json").read_text() == "[{"
