"""Write: a whole file at once.

What stands there is only overwritten if the model has read it as it is. Its encoding, its byte
order mark and its line ends stay in use, where they can hold the content.
"""

from __future__ import annotations

import msgspec

from travois.core.facts import Changed
from travois.ports.tool import Outcome, Refusal, Tool, said
from travois.ports.world import Env, Stale, digest
from travois.tools.diff import Patch, compare
from travois.tools.paths import absolute, existing, linked, plain, short, writes
from travois.tools.text import Decoded, Encoding, decode, endings

LIMIT = 50_000_000


class WriteArgs(msgspec.Struct, frozen=True):
    """A file and what it shall hold."""

    file_path: str
    content: str


async def _write(args: WriteArgs, env: Env, call: str) -> Outcome:
    path = absolute(args.file_path, env.cwd)
    async with env.files.queue(path):
        try:
            return await _put(path, args.content, env=env)
        except Stale as stale:
            raise Refusal(
                f"{short(path, env)} was changed by another program just now; nothing was written. "
                "Read it and decide again."
            ) from stale


async def _put(path: str, content: str, *, env: Env) -> Outcome:
    stat = await env.files.stat(path)
    if stat is None:
        digested = await env.files.replace(path, content.encode(), expect=None)
        return _told(compare(path, None, content), short(path, env), digested=digested)
    stat = await existing(path, env)
    data = await env.files.read(path, limit=LIMIT)
    _check(path, digest(data) if len(data) < LIMIT else "", known=not data, env=env)
    old = decode(data)
    made, kept = _encoded(content, old)
    digested = await env.files.replace(path, made, expect=digest(data))
    patch = compare(path, old.text if old else "", content)
    return _told(patch, short(path, env) + linked(stat) + kept, digested=digested)


def _check(path: str, is_now: str, *, known: bool, env: Env) -> None:
    seen = env.state.get(f"seen:{path}")
    if known or seen == is_now:
        return
    why = "has changed since you read it" if seen else "exists and you have not read it"
    advice = "Read it first, so that nothing in it gets lost; to change a part of it, use Edit."
    raise Refusal(f"{short(path, env)} {why}; nothing was written. {advice}")


def _encoded(content: str, old: Decoded | None) -> tuple[bytes, str]:
    """The content as the old file would hold it, and a remark on that."""
    encoding = Encoding(old.encoding.codec, old.encoding.bom) if old else Encoding("utf-8")
    kinds = endings(old.text) if old else []
    remark = encoding.label
    if len(kinds) == 1 and kinds != ["\n"] and "\r" not in content:
        content = content.replace("\n", kinds[0])
        remark += " CRLF" if kinds == ["\r\n"] else " CR"
    try:
        data = encoding.bom + encoding.encode(content)
    except UnicodeEncodeError:
        return content.encode(), f" (as UTF-8; it was {encoding.label})"
    return data, f" (kept {remark.strip()})" if remark else ""


def _told(patch: Patch, name: str, *, digested: str) -> Outcome:
    lines = f"{patch.added} lines" if patch.type == "create" else f"+{patch.added} -{patch.removed}"
    return said(
        f"{'Created' if patch.type == 'create' else 'Wrote'} {name}: {lines}.",
        detail=patch.json(),
        changes=(Changed(f"seen:{patch.file_path}", digested),),
    )


WRITE = Tool(
    name="Write",
    description=(
        "Create a file, with its folders, or replace all of it. An existing file must have been "
        "Read. Prefer Edit for changes."
    ),
    args=WriteArgs,
    access=lambda args, here: writes(args.file_path, here),
    run=_write,
    summary=lambda args: f"Write {plain(args.file_path)} ({len(args.content)} characters)",
)
