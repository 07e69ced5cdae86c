"""Renames: planned by a language server, shown to the model, and applied as an edit of each file.

A plan is only read from the server. To apply it is a call of its own, which names every file that
it changes, so that permissions, snapshots and protected paths hold for it as for any edit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from travois.core.display_text import escape_path
from travois.lsp.protocol import (
    TextEdit,
    WorkspaceEdit,
    character_to_column,
    document_line_starts,
    path_of_uri,
    split_document_lines,
)
from travois.permissions.access import Access
from travois.ports.tool import CallLocation, Tool, ToolError, ToolOutcome
from travois.ports.world import Env, content_digest
from travois.tools.apply_patch import PatchedFile, write_patched_files
from travois.tools.diff import compare_texts
from travois.tools.paths import display_path
from travois.tools.text import DecodedText, TextSplice, apply_splices, decode_text

MAX_RENAMED_FILES = 200
MAX_KEPT_PLANS = 20
APPLY_RENAME_NAME = "ApplyRename"


class RenamedFile(msgspec.Struct, frozen=True):
    """A file before and after a rename."""

    path: str
    before: bytes
    after: bytes
    places: tuple[int, ...]
    """The lines that it changes, from 1."""


class RenamePlan(msgspec.Struct, frozen=True):
    """A rename that was planned and shown."""

    what: str
    files: tuple[RenamedFile, ...]

    @property
    def changed_lines(self) -> int:
        """The number of places that it changes."""
        return sum(len(file.places) for file in self.files)


class ApplyRenameArgs(msgspec.Struct, frozen=True):
    """The plan that LSP has shown."""

    plan: str


class RenamePlans:
    """The renames that were planned in a session, by the name that the model knows."""

    def __init__(self) -> None:
        self._plans: dict[str, RenamePlan] = {}
        self._count = 0

    def remember_plan(self, plan: RenamePlan) -> str:
        """Keep a plan; return its name."""
        self._count += 1
        name = f"rename-{self._count}"
        self._plans[name] = plan
        while len(self._plans) > MAX_KEPT_PLANS:
            self._plans.pop(next(iter(self._plans)))
        return name

    def find_plan(self, name: str) -> RenamePlan:
        """Return a plan; raises `ToolError` if there is none of this name."""
        if name not in self._plans:
            raise ToolError(
                f"There is no plan {name!r}. Call LSP with operation: rename first; plans are "
                "forgotten when Travois ends."
            )
        return self._plans[name]


def list_text_edits(edit: WorkspaceEdit) -> dict[str, tuple[TextEdit, ...]]:
    """Return the edits of a rename by file; raises `ToolError` for more than texts."""
    found = dict[str, tuple[TextEdit, ...]]()
    for uri, edits in (edit.changes or {}).items():
        found[path_of_uri(uri)] = edits
    for change in edit.document_changes or ():
        if change.kind or change.text_document is None:
            raise ToolError("This rename also moves files, which LSP cannot do; nothing was done.")
        path = path_of_uri(change.text_document.uri)
        found[path] = (*found.get(path, ()), *change.edits)
    if "" in found:
        raise ToolError("This rename changes something that is not a file; nothing was changed.")
    if len(found) > MAX_RENAMED_FILES:
        raise ToolError(f"This rename changes {len(found)} files, which is too many to show.")
    return found


async def plan_renamed_file(path: str, edits: Sequence[TextEdit], env: Env) -> RenamedFile:
    """Compute what a rename makes of a file; raises `ToolError` if that cannot be done."""
    name = display_path(path, env)
    if env.hidden(path):
        raise ToolError("This rename changes a file that a permission rule hides; nothing was done")
    data = await env.files.read(path)
    source = decode_text(data)
    if source is None:
        raise ToolError(f"{name} is not a text file, and cannot be changed by a rename.")
    splices = _turn_edits_into_splices(source, edits)
    starts = {edit.range.start.line + 1 for edit in edits}
    after = apply_splices(source, splices).data
    return RenamedFile(path, data, after, tuple(sorted(starts)))


def _turn_edits_into_splices(
    source: DecodedText, edits: Sequence[TextEdit]
) -> tuple[TextSplice, ...]:
    """Turn a language server's edits into replacements of a text; they may not overlap."""
    lines, starts = split_document_lines(source.text), document_line_starts(source.text)

    def offset(line: int, character: int) -> int:
        if not 0 <= line < len(lines):
            raise ToolError("The server's edits do not fit the file; call again.")
        return starts[line] + character_to_column(lines[line], character)

    found = sorted(
        TextSplice(
            offset(edit.range.start.line, edit.range.start.character),
            offset(edit.range.end.line, edit.range.end.character),
            edit.new_text,
        )
        for edit in edits
    )
    if any(one.end > other.start for one, other in pairwise(found)):
        raise ToolError("The server's edits overlap; nothing was done.")
    return tuple(found)


def create_apply_rename(plans: RenamePlans) -> Tool[ApplyRenameArgs]:
    """Create the ApplyRename tool, which makes a rename that LSP has planned."""

    def list_accesses(args: ApplyRenameArgs, here: CallLocation) -> tuple[Access, ...]:
        return tuple(Access("write", file.path) for file in plans.find_plan(args.plan).files)

    async def run_rename(args: ApplyRenameArgs, env: Env, call: str) -> ToolOutcome:
        plan = plans.find_plan(args.plan)
        steps = [_build_step(file, env.state) for file in plan.files]
        return await write_patched_files(steps, env)

    def summarize(args: ApplyRenameArgs) -> str:
        try:
            plan = plans.find_plan(args.plan)
        except ToolError:
            return "Apply a rename"
        names = ", ".join(escape_path(os.path.basename(file.path)) for file in plan.files)
        return f"{plan.what} in {names}"

    return Tool(
        name=APPLY_RENAME_NAME,
        description="Make a rename that LSP has planned.",
        args=ApplyRenameArgs,
        access=list_accesses,
        run=run_rename,
        summary=summarize,
        deferred=True,
        judged_as="Edit",
    )


def _build_step(file: RenamedFile, state: Mapping[str, str]) -> PatchedFile:
    """Return a file's change by a rename, as a patch would make it."""
    before, after = decode_text(file.before), decode_text(file.after)
    texts = (before.text if before else "", after.text if after else "")
    known = state.get(f"seen:{file.path}") == content_digest(file.before)
    patch = compare_texts(file.path, *texts)
    return PatchedFile("M", file.path, file.before, file.after, patch, known)
