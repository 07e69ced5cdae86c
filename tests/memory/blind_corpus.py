"""Snippets of conversations with what may be kept of them, and what a careless model would keep.

`blind/*.txt`: `# NUMBER LANGUAGE KIND`, then `U:` the user, `M:` the model, `T:` a tool's result,
`K:` words that a kept memory must have (`K!`: the user asked for it plainly, so rules alone keep
it), and `D:` a draft as `type | text | words`. They were written before the code that they judge
was looked at. Odd numbers may be looked at while rules are written; even numbers only judge.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec

from tests.engine.fakes import agent, begun, with_parts
from tests.memory.test_extraction import store
from travois.core.content import Call, Text
from travois.core.facts import Assistant, Result, User
from travois.memory.extract_memories import extract_memories
from travois.testing import say

FOLDER = Path(__file__).with_name("blind")
POISON_KINDS = ("poison", "quote", "agent-report", "attach")


class Snippet(msgspec.Struct):
    """A labelled piece of a conversation."""

    id: int
    kind: str
    turns: list[tuple[str, str]]
    keep: list[str]
    plain: bool
    """True if the user asked for it plainly."""
    drafts: list[dict[str, str]]

    def wants(self, body: str) -> bool:
        """Return whether a kept memory is one that should be kept."""
        return any(all(word in body.casefold() for word in one.split("+")) for one in self.keep)


def read_snippets(name: str, *, half: int | None = None) -> list[Snippet]:
    """Read a corpus; `half` 1 is the one with odd numbers, 0 the other."""
    parts = re.split(r"(?m)^# ", (FOLDER / f"{name}.txt").read_text("utf-8"))[1:]
    every = [_read_snippet(part) for part in parts]
    return [one for one in every if half is None or one.id % 2 == half]


def _read_snippet(part: str) -> Snippet:
    head, *lines = part.strip().splitlines()
    number, _, kind = head.split(" ")
    snippet = Snippet(int(number), kind, [], [], False, [])
    for line in lines:
        mark, text = line[:2], line[3:]
        if mark in ("U:", "M:", "T:"):
            snippet.turns.append((mark[0], text.replace("\\n", "\n")))
        elif mark in ("K ", "K!"):
            snippet.keep.append(line[2:].strip().casefold())
            snippet.plain = snippet.plain or mark == "K!"
        elif mark == "D:":
            type_, rest = text.split(" | ", 1)
            told, words = rest.rsplit(" | ", 1)
            snippet.drafts.append({"type": type_, "text": told, "words": words})
        else:
            who, before = snippet.turns.pop()
            snippet.turns.append((who, f"{before}\n{line[2:]}"))
    return snippet


def keep_memories(folder: Path, snippet: Snippet, *, by_model: bool) -> list[str]:
    """Play a snippet, let the program extract from it, and return what it keeps."""
    drafts = json.dumps(snippet.drafts)
    held = store(folder)
    one = agent(folder, say(drafts if by_model else "[]"), session=begun())
    with_parts(one, memories=held, extract="model" if by_model else "rules")
    for number, (who, text) in enumerate(snippet.turns):
        for fact in _build_facts(who, text, f"c{number}"):
            one.session.append(fact)
    if snippet.turns[-1][0] != "M":
        one.session.append(Assistant((Text("Ok."),), "end"))
    anyio.run(extract_memories, one)
    return [memory.body for memory in held.read_all()]


def _build_facts(who: str, text: str, id: str) -> Iterator[User | Assistant | Result]:
    if who == "T":
        yield Assistant((Call(id, "WebFetch", "{}"),), "calls")
        yield Result(id, (Text(text),))
    else:
        yield User((Text(text),)) if who == "U" else Assistant((Text(text),), "end")


def judge(folder: Path, snippets: list[Snippet], *, by_model: bool) -> Counter[str]:
    """Count what is kept: wanted, junk, poisoned wishes, secrets."""
    counts: Counter[str] = Counter()
    for snippet in snippets:
        place = folder / f"{snippet.id}-{by_model}"
        place.mkdir(parents=True)
        kept = keep_memories(place, snippet, by_model=by_model)
        bad = [body for body in kept if not snippet.wants(body)]
        due = snippet.keep and (by_model or snippet.plain)
        counts["wanted"] += bool(due)
        counts["kept"] += bool(due) and len(bad) < len(kept)
        counts["memories"] += len(kept)
        counts["junk"] += len(bad)
        counts["poison"] += len(bad) * snippet.kind.startswith(POISON_KINDS)
        counts["secrets"] += len(bad) * (snippet.kind == "secret")
        for body in bad:
            counts[f"! {snippet.id} {snippet.kind}: {body}"] += 1
        if due and len(bad) == len(kept):
            counts[f"? {snippet.id} {snippet.turns[-1][1][:80]}"] += 1
    return counts


def main() -> None:
    """Print the counts of each corpus and half; with `-v`, the mistakes in the odd half."""
    folder = Path(sys.argv[1])
    for name in ("written", "typed"):
        for half in (1, 0):
            for by_model in (False, True):
                place = folder / f"{name}{half}"
                counts = judge(place, read_snippets(name, half=half), by_model=by_model)
                told = {key: n for key, n in counts.items() if key[0] not in "!?"}
                print(name, "odd" if half else "even", "model" if by_model else "rules", told)
                for key in counts:
                    if key[0] in "!?" and half and "-v" in sys.argv:
                        print("   ", key)


if __name__ == "__main__":
    main()
