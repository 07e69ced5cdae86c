"""Questions of the model, plans, and what is remembered, on the screen."""

from __future__ import annotations

from tests.e2e.glass import Glass, use
from tests.e2e.program import Program
from travois.core.facts import Changed

COLOURS = {
    "question": "Which colour?",
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}],
}
SEVERAL = {
    "question": "Which tests?",
    "options": [{"label": "Unit"}, {"label": "End to end"}],
    "multiSelect": True,
}
ASKED = """\
  ? Which colour?

  ❯ 1  Red
       warm
    2  Blue
    0  in your own words
  Esc stop"""


def test_choices_and_plans_are_answered_with_a_key_or_in_words(program: Program) -> None:
    told = "Which colour?\n  Green, please\nWhich tests?\n  Unit, End to end"
    plan = use("ExitPlanMode", plan="1. Make **it**.\n2. Test it.")
    script = [
        {"say": [use("AskUserQuestion", questions=[COLOURS, SEVERAL])]},
        {"when": {"tool_result": {"contains": told}}, "say": [plan]},
        {"when": {"tool_result": {"contains": "approved the plan"}}, "say": "Begun."},
    ]
    with program.served(script) as api:
        glass = Glass(program, *program.model, "--permission-mode", "plan")
        glass.ready()
        glass.type("paint it\r")
        glass.until("in your own words")
        assert ASKED in glass.text
        glass.still()
        glass.type("0")
        glass.until("answer:")
        glass.type("Green, please\r")
        glass.until("Which tests?", "0  done")
        glass.still()
        for key in "120":
            glass.type(key)
        glass.until("Carry out this plan?", "1 Make it.")
        glass.still()
        glass.type("1")
        glass.until("Begun.")
        assert glass.leave() == 0
        api.no_invalid()
    changed = [entry.fact for entry in program.facts() if isinstance(entry.fact, Changed)]
    assert Changed("mode", "default") in changed
