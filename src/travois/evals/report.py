"""Reports of an eval: a table for people, JUnit for build servers."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, tostring

from travois.core.display_text import escape_invisible
from travois.evals.run_cases import CaseOutcome
from travois.terminal import format_table

EVAL_COLUMNS = ("CASE", "RESULT", "TURNS", "TOKENS", "COST", "SECONDS", "MODEL")


def render_eval_table(outcomes: Iterable[CaseOutcome]) -> str:
    """Render a row for each run, and below it what failed."""
    found = tuple(outcomes)
    rows = [EVAL_COLUMNS, *map(_eval_table_row, found)]
    lines = [format_table(rows)]
    for one in found:
        lines += [f"{one.name}: {escape_invisible(problem)}" for problem in one.problems]
    passed = sum(one.passed for one in found)
    dollars = sum(one.dollars for one in found)
    lines.append(f"{passed} of {len(found)} passed, ${dollars:.4f}")
    return "\n".join(lines)


def _eval_table_row(one: CaseOutcome) -> tuple[str, ...]:
    used = (str(one.turns), f"{one.tokens:,}", f"${one.dollars:.4f}", f"{one.seconds:.1f}")
    return (one.name, "passed" if one.passed else "FAILED", *used, one.model)


def render_junit(outcomes: Iterable[CaseOutcome], *, name: str) -> bytes:
    """Render the outcomes as JUnit XML."""
    found = tuple(outcomes)
    failed = sum(not one.passed for one in found)
    seconds = f"{sum(one.seconds for one in found):.2f}"
    suite = Element("testsuite", name=name, tests=str(len(found)), failures=str(failed))
    suite.set("time", seconds)
    for one in found:
        case = SubElement(suite, "testcase", classname=name, name=one.name)
        case.set("time", f"{one.seconds:.2f}")
        if one.problems:
            problem = SubElement(case, "failure", message=_drop_xml_controls(one.problems[0]))
            problem.text = _drop_xml_controls("\n".join(one.problems))
        SubElement(case, "system-out").text = _drop_xml_controls(one.text)
    return tostring(suite, encoding="utf-8", xml_declaration=True)


def _drop_xml_controls(text: str) -> str:
    """Drop characters that XML cannot hold."""
    return "".join(char for char in text if char in "\t\n" or char.isprintable())
