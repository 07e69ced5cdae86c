"""Memories as text: what is written is read again, and what we do not know stays."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from travois.memory.memory import Evidence, FileAnchor, Memory
from travois.memory.text import (
    MemoryPage,
    make_slug,
    parse_memory_file,
    render_memory_diff,
    render_memory_file,
    tidy_memory,
)

TEXT = st.text(st.characters(exclude_categories=()), max_size=60) | st.sampled_from(
    (
        "---",
        "a: b # c",
        "\"quoted\" 'twice'",
        "null",
        "~",
        "- [a](b.md): c",
        "\r\n---\r\n",
        "ü\u2028\x85é",
    )
)
TIME = st.floats(0, 4e9) | st.just(0.0)
EVIDENCE = st.builds(
    Evidence, TEXT, st.integers(0, 9**9), st.sampled_from(("user", "model", "tool")), TEXT, TIME
)
ANCHOR = st.builds(
    FileAnchor,
    TEXT.map(lambda text: " ".join(text.split()) or "a"),
    st.text("0123456789abcdef", min_size=64, max_size=64),
)
MEMORY = st.builds(
    Memory,
    name=st.from_regex(r"[a-z0-9]{1,9}(-[a-z0-9]{1,9}){0,3}", fullmatch=True),
    description=TEXT,
    type=st.sampled_from(("user", "feedback", "project", "reference")),
    body=TEXT,
    author=st.sampled_from(("user", "model", "tool")),
    created=TIME,
    modified=TIME,
    verified=TIME,
    evidence=st.lists(EVIDENCE, max_size=3).map(tuple),
    anchors=st.lists(ANCHOR, max_size=3).map(tuple),
)
SAMPLE = Memory(
    "use-uv",
    "Use uv: never pip",
    "feedback",
    "Packages are installed with uv.\n\nWhy: the lock file.",
    author="user",
    created=1.5,
    modified=1_800_000_000.25,
    evidence=(Evidence("s1", 4, "user", "no, it's uv # always", 1.5),),
    anchors=(FileAnchor("pyproject.toml", "ab" * 32),),
)


@given(MEMORY)
def test_a_memory_that_was_written_is_read_again(memory: Memory) -> None:
    text = render_memory_file(memory)
    assert text.encode().decode() == text
    assert parse_memory_file(memory.name, text) == MemoryPage(tidy_memory(memory))
    assert tidy_memory(tidy_memory(memory)) == tidy_memory(memory)
    assert render_memory_file(parse_memory_file(memory.name, text).memory, text) == text


def test_the_file_is_one_that_people_and_other_agents_read() -> None:
    assert render_memory_file(SAMPLE) == snapshot("""\
---
name: use-uv
description: "Use uv: never pip"
type: feedback
modified: 2027-01-15T08:00:00.250Z
author: user
created: 1970-01-01T00:00:01.500Z
evidence:
  - '{"session":"s1","seq":4,"who":"user","words":"no, it''s uv # always","at":1.5}'
anchors:
  - 'abababababababababababababababababababababababababababababababab pyproject.toml'
checksum: 82e4dba0d1cde4cf
---

Packages are installed with uv.

Why: the lock file.
""")


def test_keys_that_we_do_not_know_stay_with_their_comments() -> None:
    head = "name: Packages\nmetadata:\n  node: 7\n# mine\nevidence:\n  - x\ntags: [a, b]\n"
    theirs = f"---\n{head}---\nUse uv.\n"
    page = parse_memory_file("use-uv", theirs)
    assert page.memory == Memory("use-uv", "Use uv.", "project", "Use uv.")
    assert page.flaws == ("evidence has an item that cannot be read",)
    again = render_memory_file(page.memory, theirs)
    assert "metadata:\n  node: 7\n# mine\ntags: [a, b]\nchecksum:" in again
    assert parse_memory_file("use-uv", again).memory == page.memory
    assert render_memory_file(page.memory, again) == again


def test_what_another_agent_wrote_is_understood() -> None:
    head = "name: Testing habits\ndescription: Run tests with -n 2\ntype: feedback\n"
    text = f"---\n{head}modified: 2026-01-31\n---\n\nTwo cores.\n"
    assert parse_memory_file("feedback_testing", text) == MemoryPage(
        Memory(
            "feedback_testing",
            "Run tests with -n 2",
            "feedback",
            "Two cores.",
            modified=1769817600.0,
        )
    )


def test_a_file_without_front_matter_is_a_persons_note() -> None:
    assert parse_memory_file("a", "# Ports\n\nThe API is on 8080.\n") == MemoryPage(
        Memory("a", "Ports", "project", "# Ports\n\nThe API is on 8080.")
    )


def test_bad_front_matter_is_told_and_its_text_is_kept() -> None:
    page = parse_memory_file(
        "a", "---\ntype: wish\nmodified: soon\nauthor: me\nBody without an end"
    )
    assert page.flaws == ("the front matter is not closed; add a line with --- below it",)
    assert page.memory.body == "---\ntype: wish\nmodified: soon\nauthor: me\nBody without an end"
    page = parse_memory_file(
        "a", "---\ntype: wish\nmodified: soon\nauthor: me\nanchors: [x]\n---\nB"
    )
    assert page == MemoryPage(
        Memory("a", "B", "project", "B", author="tool"),
        (
            "type 'wish' is not one of user, feedback, project, reference",
            "author 'me' is not one of user, model, tool",
            "modified is not a time such as 2026-01-31T12:00:00Z",
            "anchors has an item that is not `sha256 path`",
        ),
    )


def test_a_file_states_the_checksum_of_all_the_rest() -> None:
    text = render_memory_file(SAMPLE)
    (line,) = (line for line in text.splitlines(keepends=True) if line.startswith("checksum: "))
    rest = sha256(text.replace(line, "").encode()).hexdigest()
    assert rest.startswith(line.removeprefix("checksum: ").strip())


def test_long_evidence_keeps_the_first_and_the_latest() -> None:
    many = tuple(Evidence("s", n, "user", "w" * 5000) for n in range(50))
    kept = tidy_memory(Memory("a", "b", "user", evidence=many)).evidence
    assert [one.seq for one in kept] == [0, *range(31, 50)]
    assert {len(one.words) for one in kept} == {1000}


def test_a_name_is_made_of_words() -> None:
    assert [
        make_slug(text) for text in ("Use UV, always!", "../../etc/passwd", "日本", "a" * 99)
    ] == [
        "use-uv-always",
        "etc-passwd",
        "",
        "a" * 60,
    ]


def test_a_change_is_shown_as_a_short_diff() -> None:
    later = Memory("use-uv", "Use uv: never pip", "feedback", "Packages are installed with uv.")
    assert render_memory_diff(None, SAMPLE) == snapshot("""\
--- /dev/null
+++ use-uv.md
+Use uv: never pip (feedback, said by user)
+Packages are installed with uv.
+
+Why: the lock file.\
""")
    assert render_memory_diff(SAMPLE, later) == snapshot("""\
--- use-uv.md
+++ use-uv.md
-
-Why: the lock file.\
""")
    assert render_memory_diff(SAMPLE, None).startswith(
        "--- use-uv.md\n+++ /dev/null\n-Use uv: never pip"
    )
    long = Memory("a", "b", "user", "\n".join(map(str, range(100))))
    assert render_memory_diff(None, long).splitlines()[-1] == "… 79 more lines"
