"""Questions of the model and plans, in the plain prompt loop and headless."""

from __future__ import annotations

from typing import Any

from tests.e2e.program import Program
from tests.e2e.test_terminal import Screen
from travois.core.facts import Changed

COLOURS = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}],
}
SEVERAL = {
    "question": "Which tests?",
    "options": [{"label": "Unit"}, {"label": "End to end"}, {"label": "None"}],
    "multiSelect": True,
}


def use(name: str, **args: Any) -> dict[str, Any]:
    return {"tool_use": {"name": name, "input": args}}


def test_choices_are_made_by_number_or_in_words(program: Program) -> None:
    asked = "Which colour?\n  Green, please\nWhich tests?\n  Unit, End to end"
    script = [
        {"say": [use("AskUserQuestion", questions=[COLOURS, SEVERAL])]},
        {"when": {"tool_result": {"contains": asked}}, "say": "Green it is."},
    ]
    with program.served(script) as api:
        screen = Screen(program, *program.model, "--plain")
        screen.until("> ")
        screen.type("paint it\n")
        shown = screen.until("Number, or your own words: ")
        assert "Which colour?" in shown and "1. Red: warm" in shown and "2. Blue" in shown
        screen.type("Green, please\n")
        assert "several" in screen.until("Number, or your own words: ")
        screen.type("1, 2\n")
        screen.until("Green it is.")
        assert screen.leave() == 0
        api.no_invalid()


def test_a_plan_holds_everything_back_until_it_is_agreed_to(program: Program) -> None:
    write = use("Write", file_path=str(program.folder / "made.txt"), content="made\n")
    script = [
        {"say": [write]},
        {
            "when": {"tool_result": {"contains": "plan mode"}},
            "say": [use("ExitPlanMode", plan="1. Make the file.")],
        },
        {
            "when": {"tool_result": {"contains": "They said: and test it"}},
            "say": [use("ExitPlanMode", plan="1. Make the file.\n2. Test it.")],
        },
        {
            "when": {"tool_result": {"contains": "The permission mode is accept-edits"}},
            "say": [write],
        },
        {"when": {"tool_result": {"is_error": False}}, "say": "All done."},
    ]
    with program.served(script) as api:
        kept = ("--settings", '{"plansDirectory": "plans"}')
        screen = Screen(program, *program.model, "--plain", "--permission-mode", "plan", *kept)
        screen.until("> ")
        screen.type("make it\n")
        assert "1. Make the file." in screen.until("Number, or your own words: ")
        screen.type("and test it\n")
        assert "2. Test it." in screen.until("Number, or your own words: ")
        assert not (program.folder / "made.txt").exists()
        screen.type("2\n")
        screen.until("All done.")
        assert (program.folder / "made.txt").read_text() == "made\n"
        (plan,) = (program.folder / "plans").iterdir()
        assert plan.name.startswith("1-make-the-file-2-test-it-")
        assert plan.read_text() == "1. Make the file.\n2. Test it.\n"
        assert screen.leave() == 0
        changed = [e.fact for e in program.facts() if isinstance(e.fact, Changed)]
        assert Changed("mode", "accept-edits") in changed
        said = str(api.requests(1)[0].body)
        assert "Mode: plan" in said and "ExitPlanMode" in said
        api.no_invalid()


def test_headless_nobody_answers_and_the_model_is_told(program: Program) -> None:
    script = [
        {"say": [use("AskUserQuestion", questions=[COLOURS])]},
        {
            "when": {"tool_result": {"contains": "Decide yourself", "is_error": True}},
            "say": [use("ExitPlanMode", plan="1. Paint.")],
        },
        {
            "when": {
                "tool_result": {"contains": "No one is available to approve", "is_error": True}
            },
            "say": "My plan: 1. Paint.",
        },
    ]
    with program.served(script) as api:
        done = program.ask("paint it", "--permission-mode", "plan")
        assert (done.code, done.out) == (0, "My plan: 1. Paint.\n")
        api.no_invalid()


def test_outside_plan_mode_there_is_no_plan_to_agree_to(program: Program) -> None:
    script = [
        {"say": [use("ExitPlanMode", plan="1. Paint.")]},
        {
            "when": {"tool_result": {"contains": "Plan mode is not on", "is_error": True}},
            "say": "On.",
        },
    ]
    with program.served(script) as api:
        assert program.ask("paint it").out == "On.\n"
        api.no_invalid()
