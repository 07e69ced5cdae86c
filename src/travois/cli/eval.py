"""`travois eval`: run cases against a scripted, recorded or real model, and check the answers."""

from __future__ import annotations

from argparse import Namespace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import anyio

from travois.core.display_text import write_stderr
from travois.core.errors import UserError
from travois.evals.cases import load_eval_file
from travois.evals.report import render_eval_table, render_junit
from travois.evals.run_cases import CaseOutcome, EvalRun, run_cases
from travois.sessions import blobs
from travois.terminal import CommandParsers, add_command, print_json, print_line

EVAL_HELP = """\
A file of cases, in YAML or JSON:

  cases:
    - name: greeting
      prompt: Write "hello" to hello.txt.
      model: anthropic/claude-opus-5-5       # or script: [...], or recording: file.jsonl
      checks:
        - {file: hello.txt, contains: hello}
        - {command: "test -s hello.txt"}

docs/evals.md describes all fields. Exit code 1: a case failed; 2: the file has an error.
"""


def register_eval(commands: CommandParsers) -> None:
    """Add the `travois eval` command."""
    top = add_command(commands, "eval", what="run cases and check the answers", more=EVAL_HELP)
    top.add_argument("file", help="the cases")
    top.add_argument("--model", default="", help="ask this model in all cases, scripted ones too")
    top.add_argument("--only", default="*", metavar="NAME", help="cases to run; `*` is a wildcard")
    top.add_argument("--parallel", type=int, default=4, metavar="N", help="cases at once (4)")
    top.add_argument("--junit", default="", metavar="FILE", help="write a JUnit report")
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_eval)


def run_eval(args: Namespace) -> int:
    """Run the cases of a file; exit code 1 if one failed."""
    path = Path(args.file)
    file = load_eval_file(path)
    cases = tuple(case for case in file.cases if fnmatch(case.name, args.only))
    if not cases:
        names = ", ".join(case.name for case in file.cases)
        raise UserError(f"No case is called {args.only!r}", fix=f"There are: {names}.")
    if args.parallel < 1:
        raise UserError("--parallel must be 1 or more")
    run = EvalRun(file, path.resolve().parent, args.model, args.parallel)
    outcomes = anyio.run(partial(run_cases, run, cases, report=_show_case_progress))
    if args.json:
        print_json(outcomes)
    else:
        print_line(render_eval_table(outcomes))
    if args.junit:
        report = render_junit(outcomes, name=path.stem)
        try:
            blobs.replace_file(Path(args.junit).absolute(), report)
        except OSError as error:
            raise UserError(f"{args.junit} cannot be written", why=str(error)) from None
    return 0 if all(one.passed for one in outcomes) else 1


def _show_case_progress(one: CaseOutcome) -> None:
    write_stderr(f"travois: {one.name} {'passed' if one.passed else 'FAILED'}\n")
