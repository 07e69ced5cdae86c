"""Read in the engine: whole files, pages by free room, and results that are never cut again."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from tests.engine.fakes import OPENED, MemoryLog, agent, card, facts, play, with_parts
from travois.context.layers import ContextLayers
from travois.context.window import results_room
from travois.core.content import extract_text
from travois.core.facts import Assistant, Compacted, Epoch, Offloaded, Result
from travois.core.models import Usage
from travois.core.tokens import fact_tokens
from travois.engine.agent import Agent
from travois.engine.tool_definitions import build_tool_specs
from travois.ports.tool import AnyTool, ToolOutcome, text_outcome
from travois.ports.world import Env
from travois.providers.replies import ApiError, Reply
from travois.providers.request import Request
from travois.sessions.session import Session
from travois.testing import calls, say
from travois.tools.catalog import TOOLS
from travois.tools.read import READ
from travois.tools.shell.bash import BASH

Line = Callable[[Request], Reply | ApiError] | Reply | ApiError
CODE = "    result_{0} = compute(argument_{0}, other={0})  # step {0}\n"
ONWARD = re.compile(rb"continue with offset=(\d+)")


def code(lines: int) -> str:
    return "".join(CODE.format(number) for number in range(1, lines + 1))


def reader(
    folder: Path,
    *lines: Line,
    window: int,
    used: int = 0,
    tools: tuple[AnyTool, ...] = (READ, BASH),
) -> Agent:
    """An agent with the real head; `used` is what its provider counts before the first result."""

    def count(line: Line) -> Line:
        return replace(line, usage=Usage(input=used)) if used and isinstance(line, Reply) else line

    session = Session(MemoryLog())
    session.append(OPENED)
    model = card(window=window, output=window // 8)
    session.append(Epoch(model, "Be brief and do the work. " * 40, build_tool_specs(TOOLS)))
    one = agent(folder, *map(count, lines), tools=tools, session=session)
    kept = folder / "kept"
    kept.mkdir(exist_ok=True)

    def spill(call: str, data: bytes) -> str:
        (kept / f"{call}.txt").write_bytes(data)
        return str(kept / f"{call}.txt")

    one.world = replace(one.world, spill=spill, kept=str(kept))
    return one


def results(one: Agent) -> list[str]:
    """What the model sees of the results, in the order asked."""
    return [
        extract_text(i.fact.content) for i in one.session.view.items if isinstance(i.fact, Result)
    ]


def read(**args: Any) -> Reply:
    return calls(("Read", args))


DONE = say("done")


@pytest.mark.parametrize("window", [200_000, 1_000_000])
def test_a_file_of_600_lines_is_shown_whole_in_an_empty_window(tmp_path: Path, window: int) -> None:
    (tmp_path / "a.py").write_text(code(600))
    one = reader(tmp_path, read(file_path="a.py"), DONE, window=window)
    assert play(one) == "end"
    (shown,) = results(one)
    assert re.sub(r"(?m)^\d+\t", "", shown) + "\n" == code(600)
    assert facts(one, Offloaded) == []


def test_offset_and_limit_give_just_the_lines_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(code(600))
    one = reader(tmp_path, read(file_path="a.py", offset=100, limit=450), DONE, window=1_000_000)
    play(one)
    (shown,) = results(one)
    numbers = [line.partition("\t")[0] for line in shown.split("\n")]
    assert numbers[:-1] == [str(number) for number in range(100, 550)]
    assert numbers[-1] == "[lines 100-549 of 600; continue with offset=550]"


def follow(request: Request) -> Reply:
    """Ask for the next page for as long as the last one says that there is one."""
    told = ONWARD.findall(request.body.rpartition(b'"tool_result"')[2])
    return read(file_path="a.py", offset=int(told[-1])) if told else DONE


@pytest.mark.parametrize("window", [8_000, 16_000, 32_000])
def test_a_small_window_reads_a_file_of_200_lines_in_one_or_two_calls(
    tmp_path: Path, window: int
) -> None:
    text = "".join(f"    value_{n} = compute({n}, other)\n" for n in range(200))
    assert 6_500 <= len(text) <= 7_500
    (tmp_path / "a.py").write_text(text)
    one = reader(tmp_path, read(file_path="a.py"), *[follow] * 5, window=window)
    assert play(one) == "end"
    pages = [extract_text(fact.content) for fact in facts(one, Result)]
    assert len(pages) <= (2 if window == 8_000 else 1)
    shown = "\n".join(re.sub(r"\n\[lines .*\]\Z", "", page) for page in pages)
    assert re.sub(r"(?m)^\d+\t", "", shown) + "\n" == text
    assert facts(one, Offloaded) == []


def test_a_page_is_smaller_where_less_is_free(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(code(2_000))
    sizes = list[int]()
    for used in (10_000, 150_000, 170_000):
        one = reader(tmp_path, read(file_path="a.py"), DONE, window=200_000, used=used)
        play(one)
        (result,) = facts(one, Result)
        assert re.search(r"\n\[lines 1-\d+ of 2,000; continue", extract_text(result.content))
        sizes.append(fact_tokens(result))
        assert used + sizes[-1] <= 200_000
        assert facts(one, Offloaded) == []
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 25_000 > sizes[-1]


def delayed(tool: AnyTool, seconds: Callable[[str], float]) -> AnyTool:
    async def run(args: Any, env: Env, call: str) -> ToolOutcome:
        await anyio.sleep(seconds(args.file_path))
        return await tool.run(args, env, call)

    return replace(tool, run=run)


def test_reads_of_one_reply_share_its_room_whatever_ends_first(tmp_path: Path) -> None:
    names = [f"{number}.py" for number in range(5)]
    for name in names:
        (tmp_path / name).write_text(code(900))
    batch = calls(*(("Read", {"file_path": name}) for name in names))
    seen = list[list[str]]()
    for order in (1, -1):
        tool = delayed(READ, lambda path, order=order: 0.02 * (2 + order * (int(path[0]) - 2)))
        one = reader(tmp_path, batch, DONE, window=64_000, used=10_000, tools=(tool,))
        play(one)
        ended = [fact.call for fact in facts(one, Result)]
        assert ended == sorted(ended, reverse=order < 0)
        seen.append(results(one))
        sizes = [fact_tokens(fact) for fact in facts(one, Result)]
        assert 0.8 * 22_000 < sum(sizes) <= 23_000
        assert max(sizes) - min(sizes) < 200
        assert facts(one, Offloaded) == []
    assert seen[0] == seen[1]
    assert all(re.search(r"\n\[lines 1-\d+ of 900; continue", page) for page in seen[0])


def test_small_results_leave_their_room_to_large_ones(tmp_path: Path) -> None:
    async def brief(args: Any, env: Env, call: str) -> ToolOutcome:
        return text_outcome("ok")

    (tmp_path / "a.py").write_text(code(900))
    small = replace(BASH, name="Brief", run=brief)
    batch = calls(("Read", {"file_path": "a.py"}), *[("Brief", {"command": "x"})] * 3)
    one = reader(tmp_path, batch, DONE, window=64_000, used=10_000, tools=(READ, small))
    with_parts(one, layers=ContextLayers(caps={"Brief": 500}))
    play(one)
    assert fact_tokens(facts(one, Result)[0]) > 15_000


def test_the_stored_copy_of_a_result_is_read_by_pages_and_not_stored_again(tmp_path: Path) -> None:
    def onward(request: Request) -> Reply:
        path = re.findall(
            rb"All of it is in ([^;]+); continue with Read offset=(\d+)", request.body
        )
        return read(file_path=path[0][0].decode(), offset=int(path[0][1]))

    command = "seq -f 'a line with the number %.0f' 3000"
    one = reader(tmp_path, calls(("Bash", {"command": command})), onward, DONE, window=200_000)
    one.permissions.guard = replace(one.permissions.guard, mode="bypass")
    assert play(one) == "end"
    first, rest = results(one)
    head = first.partition("\n[")[0]
    assert facts(one, Offloaded) == []
    lines = [line.partition("\t")[2] for line in rest.split("\n")[:-1]]
    start = len(head.splitlines()) + 1
    assert lines == [f"a line with the number {n}" for n in range(start, start + len(lines))]
    assert start + len(lines) - 1 == min(3_000, start + 1_999)


def test_a_shell_result_is_cut_once_and_tells_of_the_whole(tmp_path: Path) -> None:
    command = "seq -f 'a line with quite a few words and the number %.0f' 3000"
    one = reader(tmp_path, calls(("Bash", {"command": command})), DONE, window=200_000)
    one.permissions.guard = replace(one.permissions.guard, mode="bypass")
    play(one)
    (result,) = facts(one, Result)
    (shown,) = results(one)
    whole = "".join(f"a line with quite a few words and the number {n}\n" for n in range(1, 3_001))
    assert shown == extract_text(result.content)
    assert facts(one, Offloaded) == []
    (mark,) = re.findall(r"\[.* left out here\..*\]", shown)
    path = str(tmp_path / "kept" / f"{result.call}.txt")
    assert " of 3,000 lines (" in mark and f" of {len(whole):,} characters)" in mark
    assert f"All of it is in {path};" in mark
    assert Path(path).read_text() == whole
    assert result.lines == 3_000
    assert 3_000 < len(shown) <= 4_000


@pytest.mark.parametrize("window", [8_000, 32_000, 200_000])
def test_what_keeps_to_its_room_is_never_cut_again(tmp_path: Path, window: int) -> None:
    (tmp_path / "a.py").write_text(code(3_000))
    batch = calls(
        ("Read", {"file_path": "a.py"}),
        ("Bash", {"command": "seq 100000"}),
        ("Read", {"file_path": "a.py", "offset": 2_000}),
        ("Bash", {"command": "yes | head -c 3000000"}),
    )
    one = reader(tmp_path, batch, DONE, window=window)
    one.permissions.guard = replace(one.permissions.guard, mode="bypass")
    assert play(one) == "end"
    assert facts(one, Offloaded) == []
    room = results_room(one)
    assert sum(fact_tokens(fact) for fact in facts(one, Result)) <= max(room, 4 * 300)
    assert len(facts(one, Compacted)) <= 1
    assert len(facts(one, Assistant)) == 2


def test_the_caps_are_settings() -> None:
    from travois.settings.schema import Settings

    given = {"context": {"toolTokens": {"Bash": 300, "Read": 0}, "resultTokens": 70}}
    layers = msgspec.convert(given, Settings).context.layers
    assert [layers.result_cap(name) for name in ("Bash", "Grep", "WebFetch")] == [300, 70, 12_000]
    assert layers.result_cap("Read") > 1_000_000
    assert Settings().context.layers.result_cap("Read") == 25_000
