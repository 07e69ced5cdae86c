"""CodebaseSearch: files of the repository by what they are about, where Grep needs the words.

The index lies in the Travois home and is kept by `travois search --code`, which also answers here:
in a process of its own, so that neither the index nor a bad file weighs on the session.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import msgspec

from travois.core.display_text import escape_path
from travois.ports.tool import Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Command, Env
from travois.sessions.home import locate_home
from travois.tools.paths import absolute_path, read_access
from travois.tools.search import HIDDEN_FILES_NOTE

CODEBASE_SEARCH_SECONDS = 60.0
"""The first search in a repository reads it."""
MAX_MATCHES_BYTES = 1 << 20
MAX_TELLING_LINE_CHARS = 160
SPARE_RESULTS = 10
"""How many more are asked for than shown, for those that a rule hides."""


class CodeMatch(msgspec.Struct, frozen=True):
    """A file that matches, with the line where its best part begins."""

    path: str
    score: float
    line: int = 0
    lines: tuple[str, ...] = ()
    """The lines of that part with most of the words, in order."""


decode_matches = msgspec.json.Decoder(list[CodeMatch]).decode


class CodebaseSearchArgs(msgspec.Struct, frozen=True):
    """A question about the code, and how many files to return."""

    query: Annotated[str, msgspec.Meta(description="what the code does, in words")]
    limit: Annotated[int, msgspec.Meta(ge=1, le=50)] = 10


async def _run_codebase_search(args: CodebaseSearchArgs, env: Env, call: str) -> ToolOutcome:
    """Run the CodebaseSearch tool: ask the index of the repository."""
    query = args.query.strip()
    if not query:
        raise ToolError("The query is empty. Say in words what the code does.")
    limit = f"--limit={args.limit + SPARE_RESULTS}"
    command = Command(
        (sys.executable, "-P", "-m", "travois", "search", "--code", "--json", limit, "--", query),
        cwd=env.root,
        env=locate_home(os.environ).environment,
        keep=MAX_MATCHES_BYTES,
        stderr="apart",
    )
    done = await env.processes.run(command, timeout=CODEBASE_SEARCH_SECONDS)
    errors = done.errors.head_and_tail().decode(errors="replace").strip()
    if done.timed_out or done.status not in (0, 1):
        raise ToolError(f"The search failed; use Grep. {errors[-500:]}")
    found = decode_matches(done.output.head_and_tail() or b"[]")
    shown = [one for one in found if not env.hidden(absolute_path(one.path, env.root))]
    note = HIDDEN_FILES_NOTE if len(shown) < len(found) else ""
    note += f"\n({errors})" if errors else ""
    if not shown:
        return text_outcome(f"No file matches {args.query!r}; Grep finds exact text.{note}")
    return text_outcome("\n".join(map(_render_file_match, shown[: args.limit])) + note)


def _render_file_match(match: CodeMatch) -> str:
    """Render a file with the telling lines of its best part."""
    place = escape_path(match.path) + (f":{match.line}" if match.line else "")
    lines = (line[:MAX_TELLING_LINE_CHARS] for line in match.lines)
    return "\n".join((place, *(f"    {line}" for line in lines)))


CODEBASE_SEARCH = Tool(
    name="CodebaseSearch",
    description="Find files by what their code is about, when the words to grep for are unknown.",
    args=CodebaseSearchArgs,
    access=lambda args, here: read_access("", here),
    run=_run_codebase_search,
    summary=lambda args: f"Search code for {args.query}",
    deferred=True,
)
