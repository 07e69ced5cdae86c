"""Recall, Remember and Skill: earlier messages, memory and skills."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from travois.core.content import Text
from travois.lazy_imports import lazy_imports
from travois.memory.memory import MemoryDraft, MemoryType
from travois.permissions.access import Access
from travois.ports.tool import CallLocation, Tool, ToolError, ToolOutcome, text_outcome
from travois.ports.world import Env

with lazy_imports():
    from travois.search import database, embedder, in_memory

MAX_RECALL_LINES = 20
"""Maximum lines shown."""
MAX_RECALL_LINE_CHARS = 300
MAX_RANKED_LINES, MAX_RANKED_CHARS = 256, 1_000
"""How many of the lines that match are ranked, and how much of each is looked at."""
MAX_RECALL_FILES = 5_000
MAX_RECALL_FILE_BYTES = 1 << 20


class RecallArgs(msgspec.Struct, frozen=True):
    """A query for the parts of this conversation that left the context window."""

    query: Annotated[str, msgspec.Meta(description="words or names, as they were written")]


class RecallHit(msgspec.Struct, frozen=True):
    """A line that contains some of the words."""

    words: int
    path: str
    number: int
    text: str


async def _run_recall(args: RecallArgs, env: Env, call: str) -> ToolOutcome:
    """Run the Recall tool: search the messages that have left the context window."""
    wanted = {word for word in re.findall(r"[\w./#-]+", args.query.casefold()) if len(word) > 1}
    if not wanted:
        raise ToolError("The query has no words. Give names or words as they were written.")
    if not env.kept or await env.files.stat(env.kept) is None:
        return text_outcome("Nothing has left the context window yet: you see the whole session.")
    hits = [
        hit
        for path in await _list_offloaded_files(env)
        for hit in await _find_recall_hits(path, wanted, env)
    ]
    if not hits:
        return text_outcome(f"No earlier message or result contains {args.query!r}.")
    best = _rank_recall_hits(args.query, hits)[:MAX_RECALL_LINES]
    more = (
        f"\n({len(hits) - MAX_RECALL_LINES} more lines match in part.)"
        if len(hits) > MAX_RECALL_LINES
        else ""
    )
    return text_outcome(
        "\n".join(_render_recall_hits(best))
        + more
        + "\nRead the file at that line for its surroundings."
    )


async def _list_offloaded_files(env: Env) -> list[str]:
    """List the files of offloaded messages that Recall searches, newest first."""
    names = await env.files.list_names(env.kept, limit=MAX_RECALL_FILES)
    paths = [os.path.join(env.kept, name) for name in names if not name.endswith("/")]
    stats = [(await env.files.stat(path), path) for path in paths]
    return [p for s, p in sorted(stats, key=lambda one: -(one[0].modified if one[0] else 0)) if s]


async def _find_recall_hits(path: str, wanted: set[str], env: Env) -> Iterable[RecallHit]:
    """Find the lines of an offloaded file that contain a word of a Recall query."""
    text = (await env.files.read(path, limit=MAX_RECALL_FILE_BYTES)).decode(errors="replace")
    lines = enumerate(text.split("\n"), 1)
    counted = ((sum(w in line.casefold() for w in wanted), n, line) for n, line in lines)
    return [RecallHit(count, path, number, line) for count, number, line in counted if count]


def _rank_recall_hits(query: str, hits: list[RecallHit]) -> list[RecallHit]:
    """Rank lines as sessions and memories are ranked; of very many, those with most words."""
    some = sorted(hits, key=lambda hit: -hit.words)[:MAX_RANKED_LINES]
    documents = [
        database.SearchDocument(str(at), hit.text[:MAX_RANKED_CHARS], hit.path, hit.number)
        for at, hit in enumerate(some)
    ]
    ranked = in_memory.rank_texts(query, documents, embedder=embedder.StaticEmbedder(), now=0.0)
    order = {hit.id: at for at, hit in enumerate(ranked)}
    return [some[at] for at in sorted(range(len(some)), key=lambda at: order[str(at)])]


def _render_recall_hits(hits: Iterable[RecallHit]) -> Iterable[str]:
    """Format the lines found by Recall with their file and line number."""
    for hit in hits:
        cut = (
            hit.text
            if len(hit.text) <= MAX_RECALL_LINE_CHARS
            else f"{hit.text[:MAX_RECALL_LINE_CHARS]} …"
        )
        yield f"{hit.path}:{hit.number}: {cut}"


def _recall_access(args: RecallArgs, here: CallLocation) -> tuple[Access, ...]:
    return ()


RECALL = Tool(
    name="Recall",
    description="Search what no longer fits in the context window.",
    args=RecallArgs,
    access=_recall_access,
    run=_run_recall,
    summary=lambda args: f"Recall {args.query}",
)


# Remember: keeping what the user asks for, for later sessions.


class RememberArgs(msgspec.Struct, frozen=True, omit_defaults=True):
    """A memory to save, or the name of one to forget."""

    text: str = ""
    type: MemoryType = "feedback"
    scope: Annotated[
        Literal["", "project", "user"], msgspec.Meta(description="user: all projects")
    ] = ""
    forget: Annotated[str, msgspec.Meta(description="name of a memory to drop")] = ""


async def _run_remember(args: RememberArgs, env: Env, call: str) -> ToolOutcome:
    """Run the Remember tool: store a memory, or forget one by name."""
    if env.memory is None:
        raise ToolError("Memory is off here. Tell the user.")
    if args.forget:
        return text_outcome(await env.memory.forget(args.forget))
    if not args.text.strip():
        raise ToolError("Give the text to remember, or the name of a memory to forget.")
    return text_outcome(
        await env.memory.remember(MemoryDraft(args.text, args.type, scope=args.scope or None))
    )


REMEMBER = Tool(
    name="Remember",
    description="Save what the user asks to remember for later sessions.",
    args=RememberArgs,
    access=lambda args, here: (),
    run=_run_remember,
    summary=lambda args: f"Forget {args.forget}" if args.forget else f"Remember: {args.text}",
)


# Skill: the model reads how a kind of work is done here, when it comes to it.


class SkillArgs(msgspec.Struct, frozen=True):
    """A skill and its arguments."""

    name: str
    args: str = ""


async def _run_skill(args: SkillArgs, env: Env, call: str) -> ToolOutcome:
    """Run the Skill tool: return the text of a skill with its arguments filled in."""
    if env.skills is None:
        raise ToolError("There are no skills here.")
    used = await env.skills.use(args.name.strip().removeprefix("/"), args.args, call=call)
    return ToolOutcome((Text(used.text),), error=used.error, changes=used.changes)


def _skill_access(args: SkillArgs, here: CallLocation) -> tuple[Access, ...]:
    return (Access("spawn", args.name.strip().removeprefix("/")),)


SKILL = Tool(
    name="Skill",
    description="Use a skill: get its instructions, then follow them.",
    args=SkillArgs,
    access=_skill_access,
    run=_run_skill,
    summary=lambda args: f"Use skill {args.name} {args.args}".rstrip(),
)
