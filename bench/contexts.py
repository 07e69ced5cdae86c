"""`python bench/contexts.py SESSION.jsonl.gz --window N`: the context after a compaction, whole.

Plays a recorded session through the engine up to its Nth compaction and prints, as Markdown, every
block that the model is then given: the summary, the files that are shown again and the messages
that were kept. The head (system prompt and tools) is left out. `docs/contexts` is made with it.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from bench.billing import Seen, tokens
from bench.fidelity import load, probe_beside, without_thinking
from bench.replay import Moment, Setting, Watcher, replay
from bench.steps import script
from travois.context.layers import ContextLayers

NOTES = {
    "# Summary of what was set aside": "Says when it was made, who wrote what, and where it ends.",
    "## 1.": "What the person asks for. Rules are their own words, found in the log.",
    "## 2.": "Ideas and techniques of the work, by the model.",
    "## 3.": "Files that were changed or read, and declarations by file and line: what an edit needs.",
    "## 4.": "Commands that failed, with the lines that say why; fixes are by the model.",
    "## 5.": "Findings, and what the model last answered.",
    "## 6.": "The person's messages, word for word; the first and the newest are never shortened.",
    "## 7.": "The task list as it is in the log.",
    "## 8.": "Checks that ran with their outcome, commands, commits: where the work stands.",
    "## 9.": "The next step, with a quotation of who asked for it.",
    "## Where what was set aside": "Everything that was taken out is in these files, and how to search them.",
}
"""What each part is for, by how its heading begins."""
LONGEST = 2_000
"""Of a kept message as much is printed, and how long it is."""


class Reached(BaseException):
    """The compaction that is to be shown; no part of the engine may take it for a fault."""


def main(args: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("session", type=Path)
    parser.add_argument("--window", type=int, default=200_000)
    parser.add_argument("--nth", type=int, default=1, help="which compaction (1)")
    parser.add_argument("--probe", type=Path, help="the fidelity probe, which reads sessions")
    chosen = parser.parse_args(args)
    probe = load(str(chosen.probe or probe_beside(chosen.session.parent)))
    session = probe.Traj(str(chosen.session))
    without_thinking(session)
    found: list[tuple[Seen, Moment]] = []

    def compacted(request: Seen, moment: Moment) -> None:
        found.append((request, moment))
        if len(found) == chosen.nth:
            raise Reached

    steps = script(session.msgs, thinking=False)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve() / session.id
        cwd = session.head.get("cwd") or "/"
        setting = Setting(chosen.window, ContextLayers(), cwd=cwd, edits=False)
        try:
            replay(steps, folder, setting=setting, watcher=Watcher(compacted=compacted))
        except BaseExceptionGroup as stopped:
            if stopped.split(Reached)[1] is not None:
                raise
        except Reached:
            pass
    if len(found) < chosen.nth:
        raise SystemExit(f"This session is compacted {len(found)} times only.")
    request, moment = found[chosen.nth - 1]
    page = "\n".join(_page(session, request, moment, window=chosen.window))
    print(page.replace(str(folder), "~session"))


def _page(session: object, request: Seen, moment: Moment, *, window: int) -> list[str]:
    head = session.head  # pyright: ignore[reportAttributeAccessIssue]
    source, fact = head["source"], moment.fact
    total = sum(tokens(text) for text in request.texts)
    lines = [
        f"# {head['agent']}, {window:,} tokens: after {moment.at} calls",
        "",
        f"A session of [{source['repo']}](https://github.com/{source['repo']}) "
        f"({source['licence']}, commit {source['commit'][:12]}, `{source['path']}`), played through "
        "the engine up to this compaction. What stands in a block is what the model is given, word "
        "for word (the session's own folder as `~session`); what stands between blocks are remarks. "
        "The recorded model was never asked for a summary, so a stand-in plays its part: it repeats "
        "the person's messages and says where the work stands.",
        "",
        f"Before: {fact.before:,} tokens. After: {total:,} by the bill of the bench, in "
        f"{len(request.texts)} blocks. Summary: {fact.source or fact.by}.",
        "",
    ]
    for number, text in enumerate(request.texts):
        lines += _block(text) if number == 0 or _is_ours(text) else _kept(text)
    return lines


def _is_ours(text: str) -> bool:
    return text.startswith("# Summary of what was set aside") or "shown again" in text[:300]


def _block(text: str) -> list[str]:
    """A block that the engine wrote, cut at its headings."""
    lines: list[str] = []
    for part in re.split(r"\n(?=##? )", text):
        note = next((n for begin, n in NOTES.items() if part.startswith(begin)), "")
        lines += [f"**{tokens(part):,} tokens.** {note}".rstrip(), ""]
        lines += ["````", part.strip("\n"), "````", ""]
    return lines


def _kept(text: str) -> list[str]:
    if text.startswith("<files>"):
        note = (
            "Files that were worked with last, read again from disk: what the next edit replaces."
        )
        return [f"**{tokens(text):,} tokens.** {note}", "", "````", text.strip("\n"), "````", ""]
    rest = len(text) - LONGEST
    shown = text if rest <= 0 else f"{text[:LONGEST]}\n[… {rest:,} more characters in the request]"
    return [f"Kept, {tokens(text):,} tokens:", "", "````", shown.strip("\n"), "````", ""]


if __name__ == "__main__":
    main(sys.argv[1:])
