"""The text of a permission question: what it asks, what would be touched, why, the choices."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from travois.core.content import Call
from travois.core.display_text import escape_invisible
from travois.core.facts import Decided
from travois.core.json import encode_json
from travois.core.tool_names import canonical_call, decode_arguments
from travois.diff_rows import DiffRow, build_change_rows
from travois.permissions.danger import DANGER_PREFIX
from travois.ports.tool import ToolError
from travois.ports.world import SANDBOX_OFFER, SANDBOX_OFFER_DETAILS, PermissionQuestion
from travois.ports.world import PersonAnswer as Answer
from travois.presentation import list_named_files
from travois.tools.apply_patch import preview_patch
from travois.tools.diff import FilePatch
from travois.tools.edit import MAX_EDITED_FILE_BYTES, preview_change

EDIT_TOOLS = ("Edit", "MultiEdit", "Write", "ApplyPatch")
CHANGE_VERBS = {"create": "Create", "update": "Edit", "delete": "Delete"}
MAX_TITLE_COMMAND = 60
"""The longest command that is quoted in the sentence itself."""
MODE_REASON = "this permission mode asks before every file change"
ANYWHERE = "yes, and don't ask again in any project"
UNKNOWN_COMMAND = re.compile(r"(.+) is not a known read-only command")
ASKING_AGENT = re.compile(r"\[(.*?)\] ")
"""Begins the summary of a subagent's call."""
REFUSAL = "the user said no"
EXACTLY = "exactly "
SHORT_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Bash\((.+):\*\)"), "`{}`"),
    (re.compile(r"Bash\((.+)\)"), f"{EXACTLY}`{{}}`"),
    (re.compile(r"Edit\(/(.+)\)"), "changes of {}"),
    (re.compile(r"Read\(/(.+)/\*\*\)"), "reading {}/"),
    (re.compile(r"\w+\(domain:(.+)\)"), "{}"),
)
"""How a rule that a question offers is read to the person."""
PATH_ARGUMENTS = ("file_path", "notebook_path")
SENTENCES = {
    "Edit": ("Edit {}?", "file_path"),
    "MultiEdit": ("Edit {}?", "file_path"),
    "NotebookEdit": ("Edit {}?", "notebook_path"),
    "Read": ("Read {}?", "file_path"),
    "WebFetch": ("Fetch {}?", "url"),
    "WebSearch": ("Search the web for “{}”?", "query"),
    "ApplyPatch": ("Apply this patch?", ""),
    "EnterPlanMode": ("Start plan mode?", ""),
}
"""The sentence that asks about a tool, with the argument that it names."""
PATH_RULES = ("Edit(", "Read(")
ChoiceName = Literal["yes", "always", "everywhere", "edits", "sandbox", "no"]


class AnswerChoice(msgspec.Struct, frozen=True):
    """One answer to a permission question: its key, its words and a note."""

    name: ChoiceName
    key: str
    label: str
    note: str = ""


class AskedCall:
    """The call that a question is about, as a person reads it."""

    def __init__(self, question: PermissionQuestion, folder: str) -> None:
        call = canonical_call(Call(question.call, question.tool, question.args))
        self.question = question
        self.name = call.name
        self._folder = folder
        self._args = decode_arguments(call.args) or {}
        self._named = list_named_files(call)
        self.patches = tuple(self._preview_edit(call.args)) if self.name in EDIT_TOOLS else ()
        """What an edit would change; nothing if that cannot be told."""

    @property
    def sentence(self) -> str:
        """The sentence that asks."""
        return escape_invisible(self._phrase())

    @property
    def command(self) -> str:
        """The shell command; empty for other tools."""
        return self._argument_text("command").strip() if self.name == "Bash" else ""

    @property
    def is_told_by_sentence(self) -> bool:
        """True if the sentence says all that the arguments do."""
        return set(self._args) - {"description"} == {"command"} and self.command in self.sentence

    @property
    def diff_rows(self) -> list[DiffRow]:
        """The rows of what would change; none if that cannot be told, or is too long."""
        if any(patch.truncated for patch in self.patches):
            return []
        return build_change_rows(self.patches, self._named)

    def describe_call(self) -> Iterator[str]:
        """Yield what would run or change, one plain line each, where the sentence does not say."""
        if self.is_told_by_sentence:
            return
        if rows := self.diff_rows:
            yield from _describe_rows(rows)
            return
        if not self._args:
            yield escape_invisible(self.question.args)
        for name, value in self._args.items():
            text = value if isinstance(value, str) else encode_json(value).decode()
            first, *more = text.split("\n")
            yield escape_invisible(f"{name}: {first}")
            yield from (escape_invisible(f"  {line}") for line in more)

    @property
    def agent(self) -> str:
        """The activity of the subagent that asks; empty for the main agent."""
        found = ASKING_AGENT.match(self.question.summary)
        return escape_invisible(found[1]) if found else ""

    @property
    def dangers(self) -> list[str]:
        """The dangers of the call."""
        effects = self.question.effects
        return [escape_invisible(one) for one in effects if one.startswith(DANGER_PREFIX)]

    @property
    def effects(self) -> list[str]:
        """The effects that neither the sentence nor the reason mentions."""
        said = [f"changes {self._shown_path()}"]
        if found := UNKNOWN_COMMAND.fullmatch(self.reason):
            said.append(f"runs {found[1]} (effects unknown)")
        if len(self.patches) > 1:  # the diff names them
            said = [f"changes {self._shorten_path(path)}" for path in self._named]
        return [
            escape_invisible(self._shorten_paths(one))
            for one in self.question.effects
            if not one.startswith(DANGER_PREFIX) and one not in said
        ]

    @property
    def reason(self) -> str:
        """The reason for the question."""
        because = self.question.because
        if self.patches and because.startswith("writes ") and ";" not in because:
            return MODE_REASON if because.endswith(self._argument_text("file_path")) else because
        change = self._shorten_paths(because).replace("writes ", "changes ", 1)
        if change.startswith("changes ") and change in self.question.effects:
            return MODE_REASON
        ran = re.match(r"runs (.+?): (?=.)", because)
        told = ran is not None and self.command.startswith(ran[1])
        because = because[ran.end() :] if ran and told else because
        return escape_invisible(self._shorten_paths(because))

    def _phrase(self) -> str:
        if self.name == "Bash":
            short = len(self.command) <= MAX_TITLE_COMMAND and self.command.isprintable()
            return f"Run `{self.command}`?" if short else "Run this command?"
        if self.name == "Write":
            made = self.patches and self.patches[0].type == "create"
            return f"{'Create' if made else 'Overwrite'} {self._shown_path()}?"
        if self.name == "ApplyPatch" and self.patches:
            only, *more = self.patches
            path = self._shorten_path(only.file_path)
            verb = CHANGE_VERBS[only.type]
            return f"Change {len(more) + 1} files?" if more else f"{verb} {path}?"
        if self.name in SENTENCES:
            sentence, argument = SENTENCES[self.name]
            is_path = argument in PATH_ARGUMENTS
            return sentence.format(self._shown_path() if is_path else self._argument_text(argument))
        if self.name.startswith("mcp__"):
            server, _, tool = self.name.removeprefix("mcp__").partition("__")
            return f"Use {tool} of the MCP server {server}?"
        return f"{ASKING_AGENT.sub('', self.question.summary, count=1)}?"

    def _preview_edit(self, args: str) -> Iterator[FilePatch]:
        path = os.path.join(self._folder, os.path.expanduser(self._argument_text("file_path")))
        try:
            if self.name == "ApplyPatch":
                patch = self._argument_text("input")
                yield from preview_patch(patch, self._folder, _read_for_preview)
            elif found := preview_change(self.name, args, path=path, data=_read_for_preview(path)):
                yield found
        except (OSError, ToolError, msgspec.DecodeError):
            return

    def _argument_text(self, name: str) -> str:
        value = self._args.get(name)
        return value if isinstance(value, str) else ""

    def _shown_path(self) -> str:
        """Return the path of the file, relative to the folder if it lies there."""
        return self._shorten_path(
            self._argument_text("file_path") or self._argument_text("notebook_path")
        )

    def _shorten_path(self, path: str) -> str:
        whole = os.path.normpath(os.path.join(self._folder, path))
        return whole.removeprefix(self._folder.rstrip("/") + "/")

    def _shorten_paths(self, text: str) -> str:
        """Return a sentence with the paths in it relative to the folder."""
        return text.replace(f" {self._folder.rstrip('/')}/", " ")

    def shorten_rules(self) -> str:
        """Return the rules that are offered, in the words of a person."""
        rules = [
            _shorten_rule(rule).replace(f"{self._folder.rstrip('/')}/", "")
            for rule in self.question.always
        ]
        exact = [rule.removeprefix(EXACTLY) for rule in rules if rule.startswith(EXACTLY)]
        if exact:  # said once, before all that it holds for
            exact[0] = EXACTLY + exact[0]
        *most, last = *(rule for rule in rules if not rule.startswith(EXACTLY)), *exact
        return escape_invisible(f"{', '.join(most)} and {last}" if most else last)


def _read_for_preview(path: str) -> bytes | None:
    """Read a file for a permission question's preview; None if there is none."""
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        data = file.read(MAX_EDITED_FILE_BYTES + 1)
    if len(data) > MAX_EDITED_FILE_BYTES:
        raise OSError("too large for a preview")
    return data


def _shorten_rule(rule: str) -> str:
    for pattern, words in SHORT_RULES:
        if found := pattern.fullmatch(rule):
            return words.format(found[1])
    return rule


def _describe_rows(rows: Sequence[DiffRow]) -> Iterator[str]:
    """Yield the lines that a change removes and adds in words, with numbers unless all are new."""
    has_numbers = any(row.kind in (" ", "-") for row in rows)
    for row in rows:
        if row.kind == "file":
            yield f"{row.text}:"
        elif row.kind == "-":
            yield f"line {row.old}, remove: {row.text}"
        elif row.kind == "+":
            yield f"line {row.new}, add: {row.text}" if has_numbers else f"add: {row.text}"


def list_answers(asked: AskedCall) -> Iterator[AnswerChoice]:
    """Yield the answers to a permission question, in the order of their rows."""
    question = asked.question
    edits = AnswerChoice("edits", "e", "yes, and accept all edits of this session")
    has_edits = "accept-edits" in question.modes
    yield AnswerChoice("yes", "y", "yes")
    if has_edits and asked.name in EDIT_TOOLS:
        yield edits
    if question.always:
        again = f"yes, and don't ask again for {asked.shorten_rules()}"
        yield AnswerChoice("always", "a", f"{again} in this project")
        if not any(rule.startswith(PATH_RULES) for rule in question.always):
            yield AnswerChoice("everywhere", "u", ANYWHERE)
    if has_edits and asked.name not in EDIT_TOOLS:
        yield edits
    if question.offers_sandbox:
        yield AnswerChoice("sandbox", "s", f"yes, and {SANDBOX_OFFER}", SANDBOX_OFFER_DETAILS)
    yield AnswerChoice("no", "n", "no, and tell it why")


def build_answer(question: PermissionQuestion, name: ChoiceName, *, why: str = "") -> Answer:
    """Build the permission answer that a choice stands for; `why` explains a no."""
    digest = question.digest
    match name:
        case "yes":
            return Answer(allow=True, reason="the user said yes", digest=digest)
        case "always" | "everywhere":
            return Answer(
                allow=True,
                reason="the user said always",
                always=True,
                everywhere=name == "everywhere",
                digest=digest,
            )
        case "edits":
            return Answer(
                allow=True, reason="the user said yes", mode="accept-edits", digest=digest
            )
        case "sandbox":
            return Answer(allow=True, reason="the user said yes", sandbox=True, digest=digest)
        case "no":
            return Answer(allow=False, reason=f"{REFUSAL}{': ' + why if why else ''}")


def is_refused_by_person(decided: Decided | None) -> bool:
    """Return whether a call did not run because a person said no to it."""
    return decided is not None and decided.by == "person" and decided.because.startswith(REFUSAL)
