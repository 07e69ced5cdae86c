"""Scripts: what the simulated model says, turn by turn, and to what."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from travois.core.errors import UserError
from travois_lab.objects import Json, is_list, is_object
from travois_lab.refusal import Refusal
from travois_lab.talk import Pace, Program, Prompt, Reply, State, as_reply, text

TEXT_FIELDS = ("last_text", "system", "model", "text", "protocol", "purpose")
WHEN = (*TEXT_FIELDS, "tool_result", "tool", "n")
TURN = ("when", "say", "stop", "stop_details", "usage", "chunks", "repeat", "error", "program")
SAY = ("text", "thinking", "tool_use", "raw")
TESTS = ("contains", "regex", "equals", "absent")
RESULT_TESTS = (*TESTS, "name", "is_error")


class Turn(msgspec.Struct):
    """One thing to say, once or again and again, when a request matches."""

    when: Json
    reply: Reply
    repeat: bool = False
    program: Program | None = None
    spent: bool = False


class Script:
    """The turns of a scripted model; each request takes the first unspent turn that matches."""

    def __init__(self, turns: list[Turn]) -> None:
        self.turns = turns
        self.state: State = {}

    def answer(self, prompt: Prompt) -> Reply:
        """What the script says to this request."""
        found = self.find(prompt)
        if found is not None:
            return found
        raise Refusal(
            f"lab: the script has no turn for request {prompt.n}; "
            f"unspent turns: {sum(not t.spent for t in self.turns)} of {len(self.turns)}; "
            f"it ends with {_tail(prompt)!r}",
            status=400,
        )

    def find(self, prompt: Prompt) -> Reply | None:
        """What the first turn that matches says; it is spent by that."""
        for turn in self.turns:
            if turn.spent or not matches(turn.when, prompt):
                continue
            turn.spent = not turn.repeat
            return as_reply(turn.program(prompt, self.state)) if turn.program else turn.reply
        return None

    @property
    def left(self) -> int:
        """How many turns have not been said and were meant to be."""
        return sum(not turn.spent and not turn.repeat for turn in self.turns)


def _tail(prompt: Prompt) -> str:
    results = [f"[{name}] {said}" for name, said, _ in prompt.results]
    return "\n".join([*results, prompt.last_text])[-200:]


# --- matching -------------------------------------------------------------------------------------


def matches(when: Json, prompt: Prompt) -> bool:
    """Whether a request is what a turn waits for."""
    if when.get("purpose", "reply") != prompt.purpose:
        return False
    return all(_matches_one(field, wanted, prompt) for field, wanted in when.items())


def _matches_one(field: str, wanted: Any, prompt: Prompt) -> bool:
    if field == "tool_result":
        return any(_result_matches(wanted, *result) for result in prompt.results)
    if field == "tool":
        return any(_text_matches(wanted, name) for name in prompt.tool_names)
    if field == "n":
        return prompt.n == wanted
    return _text_matches(wanted, str(getattr(prompt, field)))


CHECKS: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda want, said: want in said,
    "regex": lambda want, said: re.search(want, said) is not None,
    "equals": lambda want, said: want == said,
    "absent": lambda want, said: want not in said,
}


def _text_matches(wanted: Any, said: str) -> bool:
    if isinstance(wanted, str):
        return wanted in said
    return all(CHECKS[test](want, said) for test, want in wanted.items() if test in CHECKS)


def _result_matches(wanted: Any, name: str, said: str, block: Json) -> bool:
    if isinstance(wanted, str):
        return wanted in said
    if "name" in wanted and wanted["name"] != name:
        return False
    if "is_error" in wanted and bool(wanted["is_error"]) != bool(block.get("is_error")):
        return False
    return _text_matches(wanted, said)


# --- reading --------------------------------------------------------------------------------------


def load(path: str) -> Script:
    """The script in a JSON file."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot read the script {path}", why=error.strerror or str(error)
        ) from None
    if path.endswith((".yaml", ".yml")):
        raise UserError(
            f"{path} is YAML",
            why="the lab reads scripts as JSON, to need no parser beyond the core",
            fix="convert it once: python -c 'import json,yaml,sys; "
            "json.dump(yaml.safe_load(sys.stdin), sys.stdout)'",
        )
    try:
        turns: Any = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise UserError(f"{path}: {_where(raw, error)}", why=str(error)) from None
    return parse(turns, where=path)


def _where(raw: bytes, error: Exception) -> str:
    found = re.search(r"byte (\d+)", str(error))
    at = int(found[1]) if found else len(raw)
    line = raw.count(b"\n", 0, at) + 1
    return f"line {line}" if raw else "the file is empty"


def parse(turns: Any, *, where: str = "script") -> Script:
    """A script from decoded JSON or Python values; Python turns may be functions."""
    if not is_list(turns):
        raise UserError(f"{where}: a script is a list of turns", why=f"got {type(turns).__name__}")
    return Script([_turn(row, f"{where}: turn {i + 1}") for i, row in enumerate(turns)])


def _turn(row: Any, where: str) -> Turn:
    if callable(row):
        return Turn({}, Reply(), program=cast("Program", row))
    if isinstance(row, str):
        return Turn({}, Reply((text(row),)))
    if isinstance(row, Reply):
        return Turn({}, row)
    _known(row, TURN, where)
    program = row.get("program")
    if not {"say", "error", "program"} & row.keys():
        raise UserError(f"{where}: says nothing", fix="give it `say`, `error` or `program`")
    when = _when(row.get("when") or {}, f"{where}.when")
    return Turn(when, _reply(row, where), bool(row.get("repeat")), program)


def _reply(row: Json, where: str) -> Reply:
    try:
        pace = msgspec.convert(row.get("chunks") or {}, Pace)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}.chunks", why=str(error)) from None
    said = row.get("say", [])
    blocks: list[Any] = said if is_list(said) else [said]
    return Reply(
        tuple(_block(block, f"{where}.say[{i}]") for i, block in enumerate(blocks)),
        stop=row.get("stop", ""),
        usage=row.get("usage") or {},
        pace=pace,
        details=row.get("stop_details"),
        error=row.get("error"),
    )


def _block(block: Any, where: str) -> Json:
    if isinstance(block, str):
        return text(block)
    if is_object(block) and "type" in block:
        return block
    _known(block, SAY, where)
    if len(block) != 1:
        raise UserError(f"{where}: one block has one of {', '.join(SAY)}", why=f"got {list(block)}")
    kind, value = next(iter(block.items()))
    if kind == "tool_use":
        _known(value, ("name", "input", "args", "id"), f"{where}.tool_use")
        return {"type": "tool_use", **value}
    return value if kind == "raw" else {"type": kind, kind: value}


def _when(when: Any, where: str) -> Json:
    _known(when, WHEN, where)
    for field, wanted in when.items():
        if is_object(wanted):
            _known(wanted, RESULT_TESTS if field == "tool_result" else TESTS, f"{where}.{field}")
            _check_regex(wanted, f"{where}.{field}.regex")
    return when


def _check_regex(wanted: Json, where: str) -> None:
    try:
        re.compile(wanted.get("regex", ""))
    except re.error as error:
        raise UserError(f"{where}: not a regular expression", why=str(error)) from None


def _known(row: Any, names: tuple[str, ...], where: str) -> None:
    if not is_object(row):
        raise UserError(f"{where}: an object is needed", why=f"got {type(row).__name__}")
    unknown = [name for name in row if name not in names]
    if unknown:
        raise UserError(
            f"{where}: unknown field {unknown[0]!r}", fix=f"known fields: {', '.join(names)}"
        )
