"""Symbols, with the grammars that were installed with us. `sources` has one golden file a language.

Each is a source, a line of equals signs, and its outline.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from random import Random

import pytest

from tests.tools.local import Local
from travois.files.installation import extra_command
from travois.permissions.access import Access
from travois.permissions.decide import Permissions
from travois.permissions.resolve_paths import hidden_path_filter
from travois.permissions.rules import parse_permission_rule
from travois.ports.tool import ToolError
from travois.tools import symbols, syntax
from travois.tools.symbols import SYMBOLS
from travois.tools.syntax import ParseTask, SourceText, SymbolQuery, parse_source

SOURCES = sorted((Path(__file__).parent / "sources").glob("*.txt"))
LEFT = "(1 generated, binary, large or unreadable files were left out)"
HASTY = (
    sys.executable,
    "-c",
    "from travois.tools import syntax as p; p.SOURCE_TIMEOUT_SECONDS = 1.0; p.main()",
)
"""The parser's process, with little patience."""
EACH = pytest.mark.parametrize("golden", SOURCES, ids=lambda path: path.stem)


@pytest.fixture
def world(tmp_path: Path) -> Local:
    return Local(tmp_path)


def parted(golden: Path) -> tuple[str, str]:
    source, _, outline = golden.read_text("utf-8").partition("=====\n")
    return source, outline.rstrip("\n")


# --- every language -------------------------------------------------------------------------------


def test_every_language_has_a_golden_file():
    assert {path.stem for path in SOURCES} <= set(syntax.languages_by_extension())
    assert {syntax.language_of_path(path.stem) for path in SOURCES} == set(syntax.load_grammars())


@EACH
def test_the_outline_of_a_file_is_all_that_it_defines(world: Local, golden: Path):
    source, outline = parted(golden)
    world.write(f"shop.{golden.stem}", source)
    assert world.say(SYMBOLS, path=f"shop.{golden.stem}") == outline


@EACH
def test_whatever_an_outline_shows_is_found_by_its_name_on_a_line_that_has_it(golden: Path):
    text, outline = parted(golden)
    source = SourceText(text.encode(), syntax.language_of_path(golden.stem))
    for row in outline.splitlines()[1:]:
        line, _, name, _ = row.split(" ", 3)
        if name.endswith("<=>"):
            continue  # who asks for an operator is sent to Grep
        assert row in (
            parse_source(ParseTask("definitions", SymbolQuery(name), syntax.SYMBOL_KINDS), source)
            or ()
        )
        assert name.rpartition(".")[2] in text.splitlines()[int(line) - 1]


USES = {
    "py": ("RATE", [11, 41, 49]),
    "js": ("total", [6, 15]),
    "ts": ("State", [18, 29]),
    "tsx": ("Card", [5, 14]),
    "go": ("Item", [15, 22, 27, 29, 30, 31, 35]),
    "rs": ("Item", [8, 20, 26, 29]),
    "java": ("total", [16, 30, 32]),
    "c": ("total", [23, 27]),
    "cpp": ("Name", [26, 36, 38]),
    "cs": ("Name", [18, 22]),
    "rb": ("sku", [7, 10, 11, 17, 18, 28]),
    "php": ("Item", [11, 19, 31, 33]),
    "sh": ("total", [4, 10]),
}


@EACH
def test_strings_and_comments_are_no_uses(world: Local, golden: Path):
    name, lines = USES[golden.stem]
    file = f"shop.{golden.stem}"
    world.write(file, parted(golden)[0])
    uses = world.say(SYMBOLS, name=name, path=file, references=True).splitlines()
    assert [int(line.split(":")[1].split(" ")[0]) for line in uses] == lines


# --- names ----------------------------------------------------------------------------------------


@pytest.fixture
def shop(world: Local) -> Local:
    world.write("a/till.py", "class Till:\n    def open(self): ...\n\n\ndef open_all(): ...\n")
    world.write("b/door.py", "class Door:\n    def open(self): ...\n\n\nOPEN = Door()\n")
    world.write("b/door.go", "package b\n\nfunc Open() {}\n")
    world.write("notes.md", "class Till\n")
    return world


def test_a_name_finds_its_definitions_everywhere_and_in_this_case_only(shop: Local):
    assert shop.say(SYMBOLS, name="open") == (
        "a/till.py:2 method Till.open def open(self)\nb/door.py:2 method Door.open def open(self)"
    )
    assert shop.say(SYMBOLS, name="Open") == "b/door.go:3 function Open func Open()"


@pytest.mark.parametrize("name", ["Till.open", "Till::open", "Till#open"])
def test_a_name_can_say_what_it_is_part_of(shop: Local, name: str):
    assert shop.say(SYMBOLS, name=name) == "a/till.py:2 method Till.open def open(self)"


def test_a_star_stands_for_the_rest_of_a_name(shop: Local):
    assert shop.say(SYMBOLS, name="open_*") == "a/till.py:5 function open_all def open_all()"
    assert shop.say(SYMBOLS, name="*oo*") == "b/door.py:1 class Door class Door"
    assert shop.say(SYMBOLS, name="xy*").startswith("No definition of 'xy*'; ")


def test_what_nothing_is_called_is_looked_for_in_other_names_and_cases(shop: Local):
    assert shop.say(SYMBOLS, name="opena") == ("No definition of 'opena'; Grep searches any file.")
    assert shop.say(SYMBOLS, name="_ALL") == (
        "No symbol is named '_ALL'; similar names:\na/till.py:5 function open_all def open_all()"
    )


def test_a_kind_narrows_and_a_wide_one_means_its_likes(shop: Local):
    assert shop.say(SYMBOLS, name="open*", kind="function").count("\n") == 2
    assert shop.say(SYMBOLS, kind="class") == (
        "a/till.py\n1 class Till class Till\n\nb/door.py\n1 class Door class Door"
    )
    with pytest.raises(ToolError, match=r"There is no kind 'verb'. Kinds: class, "):
        shop.run(SYMBOLS, kind="verb")


def test_uses_say_what_they_stand_in(shop: Local):
    assert shop.say(SYMBOLS, name="Door", references=True) == (
        "b/door.py:1 in Door: class Door:\nb/door.py:5 in OPEN: OPEN = Door()"
    )


def test_a_folder_is_outlined_without_fields(world: Local):
    world.write("one.py", "class A:\n    x: int\n\n    def f(self): ...\n")
    assert world.say(SYMBOLS) == "one.py\n1 class A class A\n4 method A.f def f(self)"
    assert "2 field A.x x: int" in world.say(SYMBOLS, path="one.py")


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"name": "*"}, "Give at least part of a name"),
        ({"name": "a b"}, "A name has no spaces"),
        ({"name": "a*", "references": True}, "references needs one complete name"),
        ({"references": True}, "references needs one complete name"),
        ({"path": "notes.md"}, r"notes\.md is not in a supported language"),
        ({"path": "nowhere"}, "does not exist"),
        ({"name": "a\0b"}, "NUL"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_way_out(
    shop: Local, args: dict[str, object], why: str
):
    with pytest.raises(ToolError, match=why):
        shop.run(SYMBOLS, **args)


# --- what is seen ---------------------------------------------------------------------------------


def test_a_file_that_a_rule_denies_is_never_shown(shop: Local):
    rules = (parse_permission_rule("Read(b/**)", "deny"),)
    shop.hidden = hidden_path_filter(Permissions(rules=rules), "Symbols", root=shop.root)  # type: ignore[method-assign]
    kept = "(files denied by a permission rule are left out)"
    assert shop.say(SYMBOLS, name="open") == f"a/till.py:2 method Till.open def open(self)\n{kept}"
    assert "Door" not in shop.say(SYMBOLS, name="Door", references=True).partition(";")[2]
    assert "door" not in shop.say(SYMBOLS)
    assert shop.access(SYMBOLS, path="b") == (Access("read", f"{shop.root}/b"),)


def test_ignored_files_are_not_seen_and_hidden_ones_are(shop: Local):
    shop.write(".gitignore", "b/\n")
    shop.write(".tools/run.py", "def open(): ...\n")
    assert shop.say(SYMBOLS, name="open") == (
        ".tools/run.py:1 function open def open()\na/till.py:2 method Till.open def open(self)"
    )


def test_generated_large_and_binary_files_are_left_out_unless_they_are_asked_for(shop: Local):
    shop.write("b/door.py", "# Generated. DO NOT EDIT.\ndef open(): ...\n")
    shop.write("wide.py", f"def open(): ...\nx = '{'x' * 20_000}'\n")
    shop.write("large.py", "def open(): ...\n" + "#\n" * 600_000)
    shop.write("binary.py", b"\0\0\ndef open(): ...\n")
    assert shop.say(SYMBOLS, name="open") == (
        f"a/till.py:2 method Till.open def open(self)\n{LEFT.replace('1', '3')}"
    )
    assert shop.say(SYMBOLS, path="b/door.py") == "b/door.py\n2 function open def open()"


def test_without_a_grammar_words_are_shown_and_what_to_install(
    shop: Local, monkeypatch: pytest.MonkeyPatch
):
    without = "from travois.tools import syntax; syntax.is_grammar_installed = lambda l: l != 'go'"
    monkeypatch.setattr(
        symbols, "PARSER_COMMAND", (sys.executable, "-c", f"{without}; syntax.main()")
    )
    monkeypatch.setattr(syntax, "is_grammar_installed", lambda language: language != "go")
    missing = f"no grammar for go ({extra_command('code')})"
    shop.write("b/more.go", "package b\n// Open it\n")
    assert shop.say(SYMBOLS, name="Open") == (
        "b/door.go:3: func Open() {}\nb/more.go:2: // Open it\n"
        f"({missing}; for these, any line with the word is shown)"
    )
    with pytest.raises(ToolError, match=re.escape(missing)):
        shop.run(SYMBOLS, path="b/door.go")


def test_long_answers_come_in_pages(world: Local):
    world.write("many.py", "".join(f"def f{n}(): ...\n" for n in range(600)))
    first = world.say(SYMBOLS, name="f*").splitlines()
    assert (len(first), first[-1]) == (251, "(1-250 of 600; offset=250 shows more)")
    last = world.say(SYMBOLS, name="f*", offset=500).splitlines()
    assert (len(last), last[0]) == (100, "many.py:501 function f500 def f500()")
    assert world.say(SYMBOLS, name="f*", offset=600) == (
        "There are only 600 results; offset 600 is past the last."
    )
    world.write("wide.py", "".join(f"def g{n}({'a' * 150}): ...\n" for n in range(250)))
    assert len(world.say(SYMBOLS, path="wide.py").encode()) < symbols.MAX_SYMBOL_BYTES + 200


def test_time_that_runs_out_is_said(shop: Local, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(symbols, "SYMBOLS_TIMEOUT_SECONDS", 0.0)
    assert shop.say(SYMBOLS, name="open", references=True).endswith(
        "\n(only 0 of 2 files in 0 s; narrow path)"
    )


# --- nasty input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "row"),
    [
        ("broken.py", "class A(:\n  def f(self:\n\ndef g(): ...\n", "4 function g def g()"),
        ("crlf.py", b"x = 1\r\ndef g():\r\n    pass\r\n", "2 function g def g()"),
        ("bom.py", b"\xef\xbb\xbfdef g(): ...\n", "1 function g def g()"),
        ("latin.py", b"# \xe9\xff\ndef g(): ...\n", "2 function g def g()"),
        ("deep.py", "x = " + "(" * 3000 + ")" * 3000 + "\ndef g(): ...", "2 function g def g()"),
        ("deep.c", "int g(void)\n" + "{" * 20_000 + "}" * 20_000, "1 function g int g(void)"),
        ("open.js", "function g() {}\n" + "[" * 5_000, "1 function g function g()"),
        ("open.ts", "function g() {}\n" + "[" * 500_000, LEFT),
        ("narrow.ts", "function g() {}\n" + "a<" * 3000, "1 function g function g()"),
        ("line.py", "def g(): ...\nx = [" + "1," * 40_000 + "]\n", "1 function g def g()"),
        ("empty.py", "", "No definition in empty.py; Grep searches any file."),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 12 else "",
)
def test_nasty_sources_break_nothing(world: Local, name: str, data: bytes | str, row: str):
    world.write(name, data)
    assert row in world.say(SYMBOLS, path=name).splitlines()


def test_a_source_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(syntax, "PARSE_TIMEOUT_SECONDS", 0.1)
    with pytest.raises(syntax.ParseTimeout):
        syntax.find_symbols(b"def f(" * 30_000, "python")


def test_a_parser_that_never_ends_takes_nobody_with_it(
    shop: Local, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(symbols, "PARSER_COMMAND", HASTY)
    shop.write("a/hangs.js", 'open\nm(g=("")[%w[->e:')
    assert shop.say(SYMBOLS, name="open").splitlines() == [
        "a/till.py:2 method Till.open def open(self)",
        "b/door.py:2 method Door.open def open(self)",
        LEFT,
    ]


def test_a_line_of_five_megabytes_is_left_out(world: Local):
    world.write("huge.js", "function g(){}" + ";" * 5_000_000)
    assert world.say(SYMBOLS, path="huge.js") == (
        f"No definition in huge.js; Grep searches any file.\n{LEFT}"
    )


def test_a_thousand_nested_definitions_have_all_their_parents():
    source = "".join(f"function f{n}() {{\n" for n in range(1_000)) + "}" * 1_000
    found = syntax.find_symbols(source.encode(), "javascript")
    assert found[-1].name == ".".join(f"f{n}" for n in range(1_000))
    assert [one.line for one in found] == list(range(1, 1_001))


def test_names_of_any_script_are_found_whole(world: Local):
    world.write("größe.py", "class Größe:\n    def прочитать(self): ...\n\n\nGrößer = Größe()\n")
    assert world.say(SYMBOLS, name="Größe") == "größe.py:1 class Größe class Größe"
    assert world.say(SYMBOLS, name="Größe.прочитать") == (
        "größe.py:2 method Größe.прочитать def прочитать(self)"
    )
    assert world.say(SYMBOLS, name="Größe", references=True).splitlines() == [
        "größe.py:1 in Größe: class Größe:",
        "größe.py:5 in Größer: Größer = Größe()",
    ]


def spoilt(chance: Random, source: bytes) -> bytes:
    for _ in range(chance.randrange(4)):
        at, size = chance.randrange(len(source) + 1), chance.randrange(40)
        source = source[:at] + chance.randbytes(chance.randrange(6)) + source[at + size :]
    return source


def test_whatever_a_source_is_each_line_that_is_told_has_the_name(
    world: Local, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(symbols, "PARSER_COMMAND", HASTY)
    monkeypatch.setattr(symbols, "MAX_SYMBOL_LINES", 100_000)
    monkeypatch.setattr(symbols, "MAX_SYMBOL_BYTES", 10_000_000)
    chance, lines = Random(0), dict[str, list[bytes]]()
    for number in range(200):
        golden = chance.choice(SOURCES)
        data = spoilt(chance, parted(golden)[0].encode())
        world.write(f"s{number}.{golden.stem}", data)
        lines[f"s{number}.{golden.stem}"] = data.split(b"\n")
    count, file = 0, ""
    for row in world.say(SYMBOLS).split("\n"):
        file = row if row in lines else file
        if row and row[0].isdigit():
            line, kind, name, _ = row.split(" ", 3)
            last = re.split(r"[.<]", name)[-1]
            assert last in lines[file][int(line) - 1].decode(errors="replace").replace(" ", "")
            assert kind in syntax.SYMBOL_KINDS
            count += 1
    assert count > 1_500
