"""Codex's command rules: `prefix_rule(pattern = [...], decision = "...")` in a file."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from itertools import product

from travois.permissions.rules import RuleEffect
from travois.settings.validate import is_json_array

CODEX_DECISIONS: dict[object, RuleEffect] = {"allow": "allow", "prompt": "ask", "forbidden": "deny"}
MAX_COMMANDS_PER_PATTERN = 64
"""The most commands that one pattern may expand to."""


def parse_codex_prefix_rules(text: str) -> tuple[dict[RuleEffect, list[str]], list[str]]:
    """Parse prefix rules as our permission rules, by effect, with notices about the rest.

    The strictest that fits counts there as here. Raises ValueError if the text is none of theirs.
    """
    found: dict[RuleEffect, list[str]] = {}
    notices: list[str] = []
    for call in _find_prefix_rule_calls(text):
        said = {word.arg: _literal_value(word.value) for word in call.keywords}
        effect = CODEX_DECISIONS.get(said.get("decision", "allow"))
        commands = list(_expand_command_pattern(said.get("pattern")))
        exact = effect != "allow" or not any("*" in command for command in commands)
        if not _matches_own_examples(commands, said):
            notices.append(f"line {call.lineno}: prefix_rule does not match its own examples")
            effect = "ask" if effect == "allow" else effect
        if effect is None or not commands or not exact:
            notices.append(f"line {call.lineno}: prefix_rule has no equivalent permission rule")
            continue
        found.setdefault(effect, []).extend(f"Bash({command}:*)" for command in commands)
    return found, notices


def _matches_own_examples(commands: list[str], said: dict[str | None, object]) -> bool:
    """Return whether a Codex command rule matches the examples in it, and no counterexamples."""

    def matches_example(example: object) -> bool:
        words = (
            [str(word) for word in example] if is_json_array(example) else shlex.split(str(example))
        )
        begun = (shlex.split(command) for command in commands)
        return any(words[: len(start)] == start for start in begun)

    right, wrong = said.get("match"), said.get("not_match")
    fine = all(matches_example(one) for one in right) if is_json_array(right) else True
    return fine and not (is_json_array(wrong) and any(matches_example(one) for one in wrong))


def _find_prefix_rule_calls(text: str) -> Iterator[ast.Call]:
    """Yield the `prefix_rule(...)` calls in a Codex rules file; raise ValueError if invalid."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="prefix_rule")):
                yield node
            case _:
                pass


def _literal_value(node: ast.expr) -> object:
    """Evaluate a literal in a Codex rules file; None if it is anything else."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _expand_command_pattern(pattern: object) -> Iterator[str]:
    """Yield the command prefixes of a pattern; a nested list holds alternatives."""
    if not is_json_array(pattern) or not pattern:
        return
    words = [one if is_json_array(one) else [one] for one in pattern]
    for number, chosen in enumerate(product(*words)):
        if number >= MAX_COMMANDS_PER_PATTERN or not all(
            isinstance(word, str) and word for word in chosen
        ):
            return
        yield shlex.join(str(word) for word in chosen)
