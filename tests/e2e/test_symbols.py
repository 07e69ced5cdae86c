"""The model finds a definition by its name, in the real program."""

from __future__ import annotations

from tests.e2e.program import Program


def test_a_definition_is_found_and_a_denied_file_is_not(program: Program) -> None:
    (program.folder / "till.py").write_text("class Till:\n    def open(self) -> None: ...\n")
    (program.folder / "secret.py").write_text("def open() -> None: ...\n")
    found = "till.py:2 method Till.open def open(self) -> None\n(files denied by a permission rule"
    script = [
        {"say": [{"tool_use": {"name": "Symbols", "input": {"name": "open"}}}]},
        {"when": {"tool_result": {"name": "Symbols", "contains": found}}, "say": "Line 2."},
    ]
    with program.served(script) as api:
        done = program.ask("where is open defined?", "--disallowedTools", "Read(secret.py)")
        assert (done.code, done.out) == (0, "Line 2.\n"), done.err
        api.no_invalid()


def test_in_a_small_window_it_is_there_only_if_asked_for(program: Program) -> None:
    small = ("--model", "anthropic/claude-opus-5-5[12k]")
    with program.served([{"say": "Hi.", "repeat": True}]) as api:
        for flags in ((), small, (*small, "--tools", "Symbols,Read")):
            assert program.ask("hi", *flags).code == 0
        told = [{tool["name"] for tool in body["tools"]} for body in api.bodies]
    assert ["Symbols" in names for names in told] == [True, False, True]
