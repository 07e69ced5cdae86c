"""The cases of an eval file: what is asked, of which model, and how the answer is checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, cast

import msgspec

from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports
from travois.library.options import Budget
from travois.library.results import WhyEnded
from travois.permissions.decide import PermissionMode

with lazy_imports():
    import yaml

MAX_RUNS = 100
YAML_MISSING = "Reading YAML needs PyYAML"


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One check of a run; each field that is given must hold."""

    file: str = ""
    """The file to look at, in the case's folder; without one, the answer's text is looked at."""
    contains: str = ""
    absent: str = ""
    matches: str = ""
    """A regular expression that must be found."""
    equals: str | None = None
    command: str = ""
    """A shell command that must succeed in the case's folder."""
    calls: str = ""
    """A tool that must have been called."""
    never_calls: str = ""
    max_turns: int = 0
    max_tokens: int = 0
    max_dollars: float = 0.0
    output: Any = None
    """What the structured output must contain."""


class EvalCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One case."""

    name: str
    prompt: str
    checks: tuple[Check, ...] = ()
    files: dict[str, str] = {}
    """Texts of files in the folder of the run, by path."""
    folder: str = ""
    """A folder that is copied for the run; relative to the eval file."""
    model: str = ""
    script: Any = None
    """What a scripted model says (docs/lab.md); no request leaves the machine."""
    recording: str = ""
    """A recording of `travois lab record`, which is replayed."""
    schema: dict[str, Any] = {}
    """The JSON schema of the structured output."""
    ends: WhyEnded = "finished"
    """How the run must end."""
    mode: PermissionMode = "accept-edits"
    allowed: tuple[str, ...] = ()
    system: str = ""
    budget: Budget = Budget(turns=50, seconds=600.0)
    runs: int = 1
    """How often the case is run; each run must pass."""


class EvalFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An eval file: the cases, and the model of those that name none."""

    cases: tuple[EvalCase, ...]
    model: str = ""


def load_eval_file(path: Path) -> EvalFile:
    """Load an eval file in YAML or JSON; raises `UserError` that says what is wrong with it."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read", why=str(error)) from None
    tree = (
        _parse_eval_yaml(path, text)
        if path.suffix in (".yaml", ".yml")
        else _parse_eval_json(path, text)
    )
    try:
        found = msgspec.convert({"cases": tree} if isinstance(tree, list) else tree, EvalFile)
    except msgspec.ValidationError as error:
        raise UserError(f"{path} is not an eval file", why=str(error)) from None
    _refuse_unusable_cases(path, found)
    return found


def _parse_eval_json(path: Path, text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UserError(f"{path} is not valid JSON", why=str(error)) from None


def _parse_eval_yaml(path: Path, text: str) -> object:
    try:
        load = cast("Callable[[str], object]", yaml.safe_load)
        return load(text)
    except ImportError:
        fix = "Install it: pip install 'travois[eval]'. Or write the cases in JSON."
        raise UserError(YAML_MISSING, fix=fix) from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML", why=str(error)) from None


def _refuse_unusable_cases(path: Path, found: EvalFile) -> None:
    """Refuse cases that cannot be run, before any of them is."""
    problems: list[str] = []
    names = [case.name for case in found.cases]
    for case in found.cases:
        problems += [f"{case.name}: {why}" for why in _find_case_problems(case, path.parent)]
    problems += [f"{name}: the name is used twice" for name in {*names} if names.count(name) > 1]
    if not found.cases:
        problems.append("it has no cases")
    if problems:
        raise UserError(f"{path}: no case was run", fix="\n  ".join(problems))


def _find_case_problems(case: EvalCase, folder: Path) -> list[str]:
    """Return what is wrong with one case."""
    problems: list[str] = []
    if case.script is not None and case.recording:
        problems.append("script and recording exclude each other")
    if case.folder and not (folder / case.folder).is_dir():
        problems.append(f"there is no folder {case.folder}")
    if case.recording and not (folder / case.recording).is_file():
        problems.append(f"there is no recording {case.recording}")
    if not 1 <= case.runs <= MAX_RUNS:
        problems.append(f"runs must be 1 to {MAX_RUNS}")
    named = (*case.files, *(check.file for check in case.checks))
    problems += [
        f"{name} leads out of its folder" for name in named if not _is_path_inside_case(name)
    ]
    for check in case.checks:
        if check == Check():
            problems.append("a check without anything to check")
        try:
            re.compile(check.matches)
        except re.error as error:
            problems.append(f"{check.matches!r} is not a regular expression: {error}")
    return problems


def _is_path_inside_case(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def select_case_model(case: EvalCase, file: EvalFile, *, override: str) -> str:
    """Return the name of the model that answers a case; `override` asks a real one instead."""
    return override or case.model or file.model


def find_missing_parts(found: object, wanted: object, at: str = "output") -> list[str]:
    """Return where a value lacks what is wanted of it; an object may have more."""
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping):
            return [f"{at} is not an object"]
        inner = cast("Mapping[str, object]", found)
        return [
            problem
            for key, value in cast("Mapping[str, object]", wanted).items()
            for problem in find_missing_parts(inner.get(key), value, f"{at}.{key}")
        ]
    return [] if found == wanted else [f"{at} is {found!r}, not {wanted!r}"]
