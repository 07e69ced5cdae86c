"""Reading with the real program: whole files, one honest cut, and counts that are true."""

from __future__ import annotations

import re

import pytest

from tests.e2e.glass import Glass, use
from tests.e2e.program import Program
from travois.core.content import extract_text
from travois.core.facts import Offloaded, Result


def shown(program: Program) -> list[str]:
    facts = [entry.fact for entry in program.facts()]
    assert [fact for fact in facts if isinstance(fact, Offloaded)] == []
    return [extract_text(fact.content) for fact in facts if isinstance(fact, Result)]


def audited(program: Program) -> bool:
    return program.run("audit", program.logs()[0].parent.name).code == 0


def test_files_and_parts_of_them_are_shown_as_asked(program: Program) -> None:
    lines = [f"    result_{n} = compute(argument_{n}, other={n})  # step {n}" for n in range(600)]
    (program.folder / "a.py").write_text("\n".join(lines) + "\n")
    script = [
        {"say": [use("Read", file_path="a.py")]},
        {"say": [use("Read", file_path="a.py", offset=100, limit=450)]},
        {"say": "ok"},
    ]
    with program.served(script) as api:
        assert program.ask("read it").out == "ok\n"
        sent = api.bodies[2]["messages"]
    whole, part = shown(program)
    assert whole == "\n".join(f"{n}\t{line}" for n, line in enumerate(lines, 1))
    asked = [f"{n}\t{line}" for n, line in enumerate(lines, 1)][99:549]
    assert part == "\n".join((*asked, "[lines 100-549 of 600; continue with offset=550]"))
    assert whole in str(next(b["content"] for m in sent for b in m["content"] if "content" in b))
    assert audited(program)


def test_output_is_cut_once_and_the_copy_is_read_by_pages(program: Program) -> None:
    command = "seq -f 'a line with quite a few words and the number %.0f' 3000"
    with program.served([{"say": [use("Bash", command=command)]}, {"say": "ok"}]):
        program.ask("run it", "--permission-mode", "bypass")
    (first,) = shown(program)
    whole = "".join(f"a line with quite a few words and the number {n}\n" for n in range(1, 3_001))
    (told,) = re.findall(
        r"\[([\d,]+) of 3,000 lines \(([\d,]+) of ([\d,]+) characters\) are left out here\. "
        r"All of it is in (\S+); continue with Read offset=(\d+), or use Grep\.\]\n",
        first,
    )
    head, tail = re.split(r"\[.* left out here.*\]\n", first)
    assert int(told[0].replace(",", "")) == 3_000 - head.count("\n") - tail.count("\n") - 1
    assert told[1:3] == (f"{len(whole) - len(head) - len(tail) - 1:,}", f"{len(whole):,}")
    script = [{"say": [use("Read", file_path=told[3], offset=int(told[4]))]}, {"say": "ok"}]
    with program.served(script):
        program.ask("read on", "-c")
    _, page = shown(program)
    numbers = [int(line.partition("\t")[0]) for line in page.split("\n") if "\t" in line]
    assert numbers == list(range(int(told[4]), numbers[-1] + 1))
    assert page.endswith(
        f"\n[lines {numbers[0]}-{numbers[-1]} of 3,000; continue with offset={numbers[-1] + 1}]"
    )
    assert len(numbers) > 1_500
    assert all(f"{n}\ta line with quite a few words and the number {n}" in page for n in numbers)
    assert audited(program)


@pytest.mark.parametrize(("window", "calls"), [("8k", 2), ("16k", 1), ("32k", 1)])
def test_a_small_window_reads_a_file_of_200_lines(
    program: Program, window: str, calls: int
) -> None:
    text = "".join(f"    value_{n} = compute({n}, other)\n" for n in range(200))
    (program.folder / "a.py").write_text(text)
    program.protocol = "openai"
    model = ("--model", f"openai/lab-model[{window}]")
    offset, lines = 1, list[str]()
    for number in range(calls):
        script = [{"say": [use("Read", file_path="a.py", offset=offset)]}, {"say": "ok"}]
        with program.served(script):
            program.run("-p", "read it", *model, *(("-c",) if number else ()))
        page = shown(program)[-1].split("\n")
        lines += [line.partition("\t")[2] for line in page if "\t" in line]
        offset = len(lines) + 1
    assert "\n".join(lines) + "\n" == text


def test_the_screen_counts_the_lines_that_there_were(program: Program) -> None:
    (program.folder / "a.txt").write_text("word\n" * 2_500)
    script = [
        {"say": [use("Bash", command="seq 1 5000")]},
        {"say": [use("Bash", command="seq 1 300000")]},
        {"say": [use("Read", file_path="a.txt")]},
        {"say": "All done."},
    ]
    with program.served(script):
        glass = Glass(program, *program.model, "--permission-mode", "bypass")
        glass.ready()
        glass.type("go\r")
        glass.until("All done.")
        story = glass.story
        assert "✓ $ seq 1 5000  5,000 lines" in story
        assert "✓ $ seq 1 300000  300,000 lines" in story
        assert "✓ Read a.txt  2,000 lines" in story
        assert glass.leave() == 0
