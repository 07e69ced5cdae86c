"""Read, page after page: every line once, none cut in the middle, each page within its room."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.tools.world import World
from travois.context.tool_results import ResultRoom, count_fitting_parts, estimate_text_tokens
from travois.core.content import Text, extract_text
from travois.core.facts import Result
from travois.core.tokens import estimate_tokens, fact_tokens
from travois.tools import read as module
from travois.tools.read import READ
from travois.tools.text import decode_text, show_invalid_bytes

ONWARD = re.compile(r"continue with offset=(\d+)(?:, column=(\d+))?\]\Z")
NOTE = re.compile(r"\n\[(?:lines? \d|encoding:|mixed line endings:)[^\n]*\]\Z")
ALPHABET = "abc XYZ019_{}();=\t漢é😀…."
LINES = st.lists(
    st.one_of(
        st.text(ALPHABET, max_size=60),
        st.builds(
            lambda text, times: text * times, st.text(ALPHABET, max_size=9), st.integers(0, 900)
        ),
    ),
    min_size=1,
    max_size=80,
)
ENDS = st.sampled_from(["\n", "\r\n", "\r", "mixed"])
CODECS = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252", "broken"])


def encoded(lines: list[str], *, end: str, last: bool, codec: str) -> bytes:
    """A file of these lines; `mixed` has two kinds of line ends."""
    ends = [("\n", "\r\n")[n % 2] if end == "mixed" else end for n in range(len(lines))]
    text = "".join(line + e for line, e in zip(lines, ends, strict=True))
    text = text if last else text[: len(text) - len(ends[-1])]
    if codec == "broken":
        return "Größe Übung ".encode() + text.encode().replace(b"b", b"\xff")
    return text.encode(codec, errors="replace" if codec == "cp1252" else "strict")


def pages(world: World, name: str, *, limit: int) -> tuple[list[str], list[str]]:
    """All lines of a file as pages show them, following what each says; and the pages."""
    lines, found = list[str](), list[str]()
    offset, column, carried = 1, 1, ""
    while True:
        outcome = world.run(READ, file_path=name, offset=offset, column=column, limit=limit)
        text = extract_text(outcome.content)
        found.append(text)
        assert len(found) < 5_000, "no end"
        onward = ONWARD.search(text)
        while NOTE.search(text):
            text = NOTE.sub("", text)
        numbered = [line.partition("\t") for line in text.split("\n")]
        assert [int(number) for number, _, _ in numbered] == list(
            range(offset, offset + len(numbered))
        )
        own = [line for _, _, line in numbered]
        own[0] = carried + own[0]
        carried = own.pop() if onward and onward[2] else ""
        lines += own
        if onward is None:
            return lines, found
        offset, column = int(onward[1]), int(onward[2] or 1)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(LINES, ENDS, st.booleans(), CODECS, st.integers(160, 6_000), st.integers(1, 90))
@example(["x" * 5_000], "\r\n", True, "utf-8", 300, 5)
@example(["", "", ""], "\n", True, "utf-8", 160, 1)
def test_pages_that_follow_each_other_show_every_line_once(
    lines: list[str], end: str, last: bool, codec: str, room: int, limit: int
) -> None:
    data = encoded(lines, end=end, last=last, codec=codec)
    source = decode_text(data)
    if source is None or not source.text or module._is_garbled_text(source.encoding, data):
        return
    with TemporaryDirectory() as folder:
        world = World(Path(folder).resolve())
        world.write("a.txt", data)
        world.room = ResultRoom(cap=room, share=room + room // 4)
        got, found = pages(world, "a.txt", limit=limit)
    feed = "\n" if "\n" in source.text else "\r"
    expected = [line.removesuffix("\r") for line in source.text.removesuffix(feed).split(feed)]
    assert got == [show_invalid_bytes(line) for line in expected]
    for page in found:
        assert fact_tokens(Result("t1", (Text(page),))) <= world.room.share


def test_a_huge_file_is_paged_as_any_other(tmp_path: Path) -> None:
    world = World(tmp_path)
    lines = ["x" * (n % 700) for n in range(200)] + ["y" * 90_000, "end"]
    data = "\n".join(lines).encode()
    world.write("a.txt", data)
    world.room = ResultRoom(cap=2_000, share=2_500)
    before, module.MAX_WHOLE_FILE_BYTES = module.MAX_WHOLE_FILE_BYTES, 1_000
    try:
        got, found = pages(world, "a.txt", limit=2_000)
    finally:
        module.MAX_WHOLE_FILE_BYTES = before
    assert got == lines
    assert max(map(estimate_text_tokens, found)) <= 2_500


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(0, 900))
def test_about_the_most_that_fits_is_found(sizes: list[int], tokens: int) -> None:
    def size(count: int) -> int:
        return sum(sizes[:count])

    found = count_fitting_parts(len(sizes), size, tokens=tokens)
    exact = max(n for n in range(len(sizes) + 1) if size(n) <= tokens)
    assert size(found) <= tokens
    assert exact - found <= 1 + exact // 50


def test_no_module_of_python_is_cut_that_has_no_more_than_the_cap(tmp_path: Path) -> None:
    """In an empty window: what fits 2,000 lines and 25,000 tokens is shown by one call."""
    world = World(tmp_path)
    world.room = ResultRoom(cap=25_000, share=100_000)
    library = Path(re.__file__).parents[1]
    cut = list[str]()
    for path in sorted(library.glob("*.py")):
        data = path.read_bytes()
        source = decode_text(data)
        if source is None or data.count(b"\n") > 2_000 or estimate_tokens(source.text) > 24_500:
            continue
        world.write("a.py", data)
        if ONWARD.search(extract_text(world.run(READ, file_path="a.py").content)):
            cut.append(path.name)
    assert cut == []
