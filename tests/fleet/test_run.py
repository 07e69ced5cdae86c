"""`travois fleet run`: a fleet on one machine, on SQLite, with everything that can be killed."""

from __future__ import annotations

import os
import signal

import pytest

from tests.e2e.program import sandbox_kind
from tests.fleet.harness import WORK, Fleet, slow_work, wait_until


def test_each_result_is_a_branch_and_nothing_runs_twice(fleet: Fleet) -> None:
    file = fleet.write(*(fleet.task(f"t{n}", f"r{n % 2}") for n in range(4)))
    with fleet.program.served(WORK) as api:
        done = fleet.run("run", file, "--workers", "2")
        assert done.code == 0, done.out + done.err
        assert [fleet.content(f"r{n % 2}", f"t{n}") for n in range(4)] == ["hello\n"] * 4
        again = fleet.run("run", file)
        assert again.code == 0 and "0 tasks submitted, 4 there already" in again.out
        assert len(api.ledger) == 8
    assert [fleet.pushes(f"r{n % 2}", f"t{n}") for n in range(4)] == [1] * 4
    found = fleet.results()
    assert {each["state"] for each in found.values()} == {"done"}
    assert all(each["usd"] > 0 and each["input_tokens"] > 1_000 for each in found.values())


def test_a_killed_fleet_goes_on_where_it_was(fleet: Fleet) -> None:
    file = fleet.write(*(fleet.task(f"t{n}") for n in range(3)))
    with fleet.program.served(slow_work(3.0)) as api:
        first = fleet.start("run", file, "--workers", "2")
        wait_until(lambda: len(api.ledger) >= 3, what="a second request")
        first.kill()
        fleet.finish(first)
        wait_until(lambda: not fleet.runs(), what="the runs end with their parent")
        done = fleet.run("run")
        assert done.code == 0, done.out + done.err
        api.append_only()
        api.no_orphans()
        # Each of the two runs may have lost one request, and one call that is made again.
        assert len(api.ledger) <= 6 + 2 * 2
    assert [fleet.pushes("app", f"t{n}") for n in range(3)] == [1] * 3


@pytest.mark.parametrize("warm", ["1", "0"])
def test_a_killed_run_is_tried_again_and_goes_on(fleet: Fleet, warm: str) -> None:
    fleet.program.extra["TRAVOIS_WARM"] = warm
    with fleet.program.served(slow_work(3.0)) as api:
        child = fleet.start("run", fleet.write(fleet.task("t")), "--workers", "1")
        wait_until(lambda: len(api.ledger) == 2 and fleet.runs(), what="the second request")
        os.kill(fleet.runs()[0], signal.SIGKILL)
        out = fleet.finish(child)
        assert child.returncode == 0, out
        assert len(api.ledger) <= 3
        api.append_only()
    assert fleet.results()["t"]["tries"] == 1
    assert fleet.pushes("app", "t") == 1


def test_ctrl_c_during_gits_work_fails_no_task(fleet: Fleet) -> None:
    """A terminal sends it to all processes of its foreground, such as git."""
    hook, called = fleet.repo("app") / "hooks" / "pre-receive", fleet.folder / "called"
    hook.write_text(f"#!/bin/sh\ntouch {called}; sleep 2\n")
    hook.chmod(0o755)
    with fleet.program.served(WORK):
        child = fleet.start("run", fleet.write(fleet.task("t")))
        wait_until(called.exists, what="the push")
        os.killpg(child.pid, signal.SIGINT)
        fleet.finish(child)
        assert fleet.run("run").code == 0
    assert fleet.states() == {"t": "done"} and fleet.pushes("app", "t") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_fleet_goes_on(fleet: Fleet, number: int) -> None:
    with fleet.program.served(slow_work(5.0)) as api:
        child = fleet.start("run", fleet.write(fleet.task("t")))
        wait_until(lambda: len(api.ledger) == 2, what="the second request")
        child.send_signal(number)
        out = fleet.finish(child)
        assert child.returncode == (130 if number == signal.SIGINT else 0), out
        assert "`travois fleet run` goes on" in out
        assert fleet.runs() == []
        assert fleet.run("run").code == 0
        assert len(api.ledger) <= 3
        api.append_only()
    assert fleet.pushes("app", "t") == 1


def test_a_file_with_a_wrong_line_submits_nothing(fleet: Fleet) -> None:
    wrong = fleet.task("wrong") | {"max_usd": "two"}
    for command in ("submit", "run"):
        done = fleet.run(command, fleet.write(fleet.task("right"), wrong))
        assert done.code == 2
        assert "tasks.jsonl: nothing was submitted" in done.err
        assert "tasks.jsonl:2: max_usd: Expected `float`, got `str`" in done.err
        assert fleet.states() == {}


def test_a_repository_that_cannot_be_cloned_fails_alone(fleet: Fleet) -> None:
    wrong = fleet.task("wrong") | {"repo": str(fleet.folder / "nowhere")}
    missing = fleet.task("missing", ref="no-such-branch")
    with fleet.program.served(WORK):
        done = fleet.run("run", fleet.write(wrong, missing, fleet.task("right")))
    assert done.code == 1
    assert fleet.states() == {"wrong": "failed", "missing": "failed", "right": "done"}
    assert "does not exist" in fleet.results()["wrong"]["why"]


def test_a_full_disk_fails_its_task_alone(fleet: Fleet) -> None:
    """As far as one can be had without mounting: a device that is always full, a blocked folder."""
    tasks = fleet.program.home / "fleet" / "local" / "tasks"
    (tasks / "full" / "0").mkdir(parents=True)
    (tasks / "full" / "0" / "log.jsonl").symlink_to("/dev/full")
    (tasks / "blocked").write_text("")
    names = ("full", "blocked", "right")
    with fleet.program.served(WORK):
        done = fleet.run("run", fleet.write(*map(fleet.task, names)))
        assert fleet.runs() == []
    assert done.code == 1
    assert fleet.states() == {"full": "failed", "blocked": "failed", "right": "done"}
    found = fleet.results()
    assert "No space left on device" in found["full"]["why"]
    assert "cannot be written" in found["blocked"]["why"]


def test_setup_leaves_nothing_in_the_result_and_the_check_decides(fleet: Fleet) -> None:
    setup = "mkdir -p deps && echo x > deps/a && pwd > $HOME/was"
    file = fleet.write(
        fleet.task("good", setup=setup, check="test -f hello.txt"),
        fleet.task("bad", check="echo no such luck; false"),
        fleet.task("broken", setup="echo cannot; exit 7"),
    )
    with fleet.program.served(WORK):
        assert fleet.run("run", file).code == 1
    found = fleet.results()
    assert fleet.states() == {"good": "done", "bad": "failed", "broken": "failed"}
    assert "no such luck" in found["bad"]["why"] and "exit code 7" in found["broken"]["why"]
    assert [fleet.pushes("app", id) for id in ("good", "bad", "broken")] == [1, 0, 0]
    assert "deps" not in fleet.run("show", "good", "--patch").out
    assert "+hello" in fleet.run("show", "bad", "--patch").out
    (was,) = fleet.program.home.glob("fleet/local/tasks/good/0/home/was")
    assert was.read_text().strip() == str(was.parent.parent / "work")


def test_setup_and_check_run_in_the_sandbox_unless_told_otherwise(fleet: Fleet) -> None:
    """They may write to the clone and the task's home, and read no file of the worker's user."""
    if sandbox_kind() == "none":
        pytest.skip("no sandbox here")
    (fleet.folder / "private").write_text("for the user alone\n")
    reach = f"cat {fleet.folder}/private; touch {fleet.folder}/outside"
    told = {"setup": f"{reach}; echo x > $HOME/mine", "check": f"{reach}; cat $HOME/mine; false"}
    with fleet.program.served(WORK):
        fleet.run("run", fleet.write(fleet.task("kept", **told)))
        assert fleet.states() == {"kept": "failed"}
        assert not (fleet.folder / "outside").exists()
        fleet.run("run", fleet.write(fleet.task("free", **told)), "--unsandboxed-commands")
    assert (fleet.folder / "outside").exists()
    found = fleet.results()
    assert "for the user alone" not in found["kept"]["why"] and "\nx" in found["kept"]["why"]
    assert "for the user alone" in found["free"]["why"]


def test_the_best_of_several_runs_is_published(fleet: Fleet) -> None:
    check = "case $PWD in */pick.2/*) echo 9;; *) echo 1;; esac"
    with fleet.program.served(WORK):
        done = fleet.run("run", fleet.write(fleet.task("pick", best_of=3, check=check)))
    assert done.code == 0, done.out + done.err
    result = fleet.results()["pick"]
    assert (result["state"], result["score"]) == ("done", 9.0)
    assert result["why"] == "pick.2 of 3, 3 passed"
    assert result["usd"] > 0 and result["input_tokens"] > 3 * 1_000  # of all three
    assert [fleet.pushes("app", id) for id in ("pick", "pick.1", "pick.2")] == [1, 0, 0]


def test_a_patch_can_be_the_result(fleet: Fleet) -> None:
    with fleet.program.served(WORK):
        assert fleet.run("run", fleet.write(fleet.task("t", publish="patch"))).code == 0
    assert fleet.pushes("app", "t") == 0
    out = fleet.folder / "out"
    assert fleet.run("export", str(out)).code == 0
    assert "+hello" in (out / "t.patch").read_text()
    assert {path.name for path in out.iterdir()} == {"results.json", "t.patch", "t.log.jsonl"}


def test_a_task_can_be_cancelled_and_tried_again(fleet: Fleet) -> None:
    with fleet.program.served(slow_work(4.0)) as api:
        child = fleet.start("run", fleet.write(fleet.task("t"), fleet.task("u")), "--workers", "1")
        wait_until(lambda: len(api.ledger) == 2, what="the second request")
        assert fleet.run("cancel", "t").code == 0
        fleet.finish(child)
        assert fleet.states() == {"t": "cancelled", "u": "done"}
        assert fleet.run("retry", "t").code == 0
        assert fleet.run("run").code == 0
        assert fleet.states()["t"] == "done"
        api.append_only()


def test_what_the_agent_wrote_into_the_clones_git_folder_is_never_run(fleet: Fleet) -> None:
    """Even a setup command that tampers as an agent might: filters, hooks, addresses."""
    trap = fleet.folder / "trapped"
    setup = (
        f"git config filter.x.clean 'touch {trap}; cat' && echo '* filter=x' > .gitattributes"
        f" && git config core.fsmonitor 'touch {trap}' && git config remote.origin.url /nowhere"
        f" && printf '#!/bin/sh\\ntouch {trap}\\n' > .git/hooks/pre-push"
        " && chmod +x .git/hooks/pre-push && cp .git/hooks/pre-push .git/hooks/pre-commit"
    )
    with fleet.program.served(WORK):
        done = fleet.run("run", fleet.write(fleet.task("t", setup=setup)))
    assert done.code == 0, done.out + done.err
    assert fleet.pushes("app", "t") == 1
    assert not trap.exists()


def test_a_rate_limit_is_waiting_and_other_keys_go_on(fleet: Fleet) -> None:
    """A storm of 429 on one key: none of its tasks fails, and each frees its slot meanwhile."""
    refused = {"status": 429, "headers": {"retry-after": "6"}}
    storm = [{"when": {"text": "Say hello a"}, "error": refused} for _ in range(8)]
    names = ("ANTHROPIC_API_KEY_A", "ANTHROPIC_API_KEY_B")
    fleet.program.extra |= {name: f"sk-{name[-1]}-0123456789abcdef" for name in names}
    tasks = [fleet.task(f"a{n}", key=names[0], priority=1) for n in range(8)]
    tasks += [fleet.task(f"b{n}", key=names[1]) for n in range(2)]
    with fleet.program.served([*storm, *WORK]) as api:
        done = fleet.run("run", fleet.write(*tasks), "--workers", "8")
        assert done.code == 0, done.out + done.err
        keys = {exchange.headers.get("x-api-key") for exchange in api.ledger}
    found = fleet.results()
    assert {each["state"] for each in found.values()} == {"done"}
    assert sum(found[f"a{n}"]["waits"] for n in range(8)) > 0
    assert all(each["tries"] == 0 for each in found.values())
    assert max(found[f"b{n}"]["ended"] for n in range(2)) < max(
        found[f"a{n}"]["ended"] for n in range(8)
    )
    assert keys == {"sk-A-0123456789abcdef", "sk-B-0123456789abcdef"}


def test_a_limit_ends_a_task_before_the_request(fleet: Fleet) -> None:
    with fleet.program.served(WORK) as api:
        file = fleet.write(fleet.task("t", max_usd=0.001), fleet.task("u"))
        assert fleet.run("run", file, "--workers", "1").code == 1
        assert fleet.states() == {"t": "limit", "u": "done"}
        assert len(api.ledger) == 2
        assert fleet.run("run", "--max-usd", "0.001").code == 1
        assert fleet.run("submit", fleet.write(fleet.task("v"))).code == 0
        assert fleet.run("run").code == 1
        assert fleet.states()["v"] == "limit"
        assert len(api.ledger) == 2


def test_no_secret_is_in_the_queue_or_in_a_log(fleet: Fleet) -> None:
    fleet.program.extra["ANTHROPIC_API_KEY_A"] = "sk-hush-0123456789abcdef"
    task = fleet.task("t", key="ANTHROPIC_API_KEY_A", setup="env", check="env; false")
    with fleet.program.served(WORK):
        fleet.run("run", fleet.write(task))
    assert fleet.states() == {"t": "failed"}
    held = [path for path in fleet.program.home.rglob("*") if path.is_file()]
    assert len(held) > 10
    assert [path for path in held if b"sk-hush-0123456789abcdef" in path.read_bytes()] == []


def test_runs_wait_for_a_rate_limit_before_they_run_into_it(fleet: Fleet) -> None:
    rates = {"requests": 2}
    with fleet.program.served(WORK, rates=rates) as api:
        file = fleet.write(fleet.task("first", priority=1), fleet.task("second"))
        fleet.start("run", file, "--workers", "1")
        wait_until(lambda: fleet.states().get("second") == "waiting", what="the second waits")
        assert [one.status for one in api.ledger] == [200, 200]
    assert "rate limit" in fleet.results()["second"]["why"]


def test_a_missing_key_is_told_and_not_tried_again(fleet: Fleet) -> None:
    with fleet.program.served(WORK) as api:
        fleet.run("run", fleet.write(fleet.task("t", key="ANTHROPIC_API_KEY_NONE")))
        assert len(api.ledger) == 0
    result = fleet.results()["t"]
    assert (result["state"], result["tries"]) == ("failed", 0)
    assert "ANTHROPIC_API_KEY_NONE" in result["why"]
