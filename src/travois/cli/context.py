"""`travois context`: what is in the window, what was set aside, and how to get it back."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import msgspec

from travois.cli.sessions import here
from travois.context.app_window import Window, look
from travois.context.layers import Layers
from travois.context.receipts import Receipt, receipts
from travois.context.switch_model import Rehearsal
from travois.context.window import threshold
from travois.core.cache_audit import Cache, clock
from travois.core.errors import Fault
from travois.core.facts import Restored
from travois.core.models import Model
from travois.core.tokens import context_tokens, estimate, stop_at
from travois.sessions.catalog import Summary, find, newest
from travois.sessions.home import Home
from travois.sessions.log_file import Log, history
from travois.sessions.session import Session
from travois.settings.load import load
from travois.terminal.tables import Commands, ago, clean, command, say, say_json, table

MORE = """\
  travois context                      the last session of this folder, in one line
  travois context --all                every block: source, tokens, cache, why it is there
  travois context lost                 what compactions have set aside, and where it can be read
  travois context lost --search WORDS  the lines of it that hold these words
  travois context receipts             what each compaction did and cost
  travois context undo                 take the last compaction back, and keep all said since
  travois context undo 2               compaction 2, if no later one took its summary in

A session may follow: id, beginning of an id, or name. Sizes are estimates, scaled so that their sum
is what the provider counted.
"""
ACTIONS = ("lost", "receipts", "undo")
FOUND = 50


def register(commands: Commands) -> None:
    """Add the command."""
    top = command(commands, "context", what="see and steer what is in the window", more=MORE)
    top.add_argument("words", nargs="*", metavar="lost|receipts|undo|ID", help="see below")
    top.add_argument("--all", action="store_true", help="every block")
    top.add_argument("--search", default="", metavar="WORDS", help="with lost: lines with these")
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_context)


def run_context(args: Namespace) -> int:
    """Show, search or undo."""
    words: list[str] = args.words
    action = words.pop(0) if words and words[0] in ACTIONS else ""
    number = int(words.pop(0)) if action == "undo" and words and _small(words[0]) else 0
    if len(words) > 1:
        raise Fault(f"{words[1]!r} is one word too many", fix="See `travois context --help`.")
    home, summary = picked(words[0] if words else "")
    if action == "undo":
        return _undo(home, summary, number, json=args.json)
    folder = home.session(summary.project, summary.id)
    if action:
        found = receipts(list(history(folder, [])))
        return _lost(found, args) if action == "lost" else _receipts(found, args)
    session = Session(Rehearsal(history(folder, [])))
    return _show(session, layers(home), args)


def picked(text: str) -> tuple[Home, Summary]:
    """The session of this id or name; if none is said, the last one of this folder."""
    home, project = here()
    if text:
        return home, find(home, text, project=project)
    return home, newest(home, project, cwd=os.path.realpath(os.getcwd()))


def layers(home: Home) -> Layers:
    """How the window is kept in bounds in this folder."""
    _, project = here()
    cwd = os.path.realpath(os.getcwd())
    return load(home, project.root, cwd=cwd, environ=os.environ).settings.context.layers


def _small(word: str) -> bool:
    return word.isdecimal() and len(word) < 4


def _show(session: Session, chosen: Layers, args: Namespace) -> int:
    model = _model(session)
    window = look(session.view, session.history(), cache=session.cache, now=time.time())
    if args.json:
        told = {
            "used": window.used,
            "threshold": threshold(model, chosen),
            "window": model.window,
            "measured": window.measured,
            "scale": round(window.scale, 4),
            "parts": window.sizes,
            "cache_seconds": round(session.cache.left(time.time())),
            "blocks": window.portions,
        }
        say(msgspec.json.encode(told).decode())
        return 0
    if args.all:
        say(_blocks(window))
    say(line(session, chosen, window=window))
    return 0


def line(session: Session, chosen: Layers, *, window: Window | None = None) -> str:
    """The window in one line, and what its cache will do."""
    model, now = _model(session), time.time()
    window = window or look(session.view, session.history(), cache=session.cache, now=now)
    limit = threshold(model, chosen)
    parts = " · ".join(f"{kind} {size:,}" for kind, size in window.sizes.items())
    told = f"{window.used:,} of {limit:,} tokens ({model.name}, window {model.window:,}): {parts}"
    counted = (
        f"scaled ×{window.scale:.2f} to the provider's count" if window.measured else "estimated"
    )
    return f"{told} · free {max(0, limit - window.used):,}; {counted}; {life(session.cache, now)}"


def life(cache: Cache, now: float) -> str:
    """How long the provider's cache will live, and what the next request cannot read of it."""
    if not (left := cache.left(now)):
        return "cache cold"
    moved = f", but not beyond the change ({cache.moved[0][0]})" if cache.moved else ""
    return f"cache warm for {clock(left)} more{moved}"


def _blocks(window: Window) -> str:
    rows = [("ENTRY", "KIND", "TOKENS", "CACHE", "SOURCE", "WHY")]
    for one in window.portions:
        source = clean(one.source, lines="show")
        number = str(one.entry or "")
        rows.append((number, one.kind, f"{one.tokens:,}", one.cache, source, clean(one.why)))
    return table(rows, right=(0, 2))


def _model(session: Session) -> Model:
    if session.view.epoch is None:
        why = "it was imported, and is not gone on with yet" if session.view.items else ""
        raise Fault("No model has answered in this session", why=why)
    return session.view.epoch.model


def _receipts(found: list[Receipt], args: Namespace) -> int:
    if args.json:
        say(msgspec.json.encode(found).decode())
        return 0
    for one in found:
        say(told(one))
    if not found:
        say("Nothing was compacted in this session.")
    return 0


def told(one: Receipt) -> str:
    """A receipt for people."""
    measured = f"{one.measured:,} measured" if one.measured else "not measured yet"
    restored = ", ".join(clean(path, lines="show") for path in one.restored) or "nothing"
    spent = f"${one.dollars:.4f} for the summary, ${one.rewritten:.4f} for sending the rest again"
    state = "out until you speak" if one.breaker else f"in, {one.useless} useless in a row"
    return "\n".join(
        (
            f"{one.number}. {one.trigger or one.by}, {ago(time.time() - one.at)}, {one.state}",
            f"   {one.before:,} tokens, {one.planned:,} planned, {measured}",
            f"   {len(one.spans)} spans set aside; shown again: {restored}",
            f"   {spent}; {one.seconds:.1f} s",
            f"   starts at {one.threshold:,} ({one.set_by}); breaker {state}",
        )
    )


def _lost(found: list[Receipt], args: Namespace) -> int:
    if args.search:
        return _search(found, args)
    spans = [
        {
            "compaction": one.number,
            "title": span.title,
            "file": span.file,
            "tokens": _size(span.file),
        }
        for one in found
        for span in one.spans
    ]
    if args.json:
        say(msgspec.json.encode(spans).decode())
        return 0
    rows = [("#", "TOKENS", "FILE", "TITLE")]
    for span in spans:
        title, file = (clean(str(span[key]), lines="show") for key in ("title", "file"))
        rows.append((str(span["compaction"]), f"{span['tokens']:,}", file, title))
    say(table(rows, right=(0, 1)) if spans else "Nothing was set aside in this session.")
    return 0


def _search(found: list[Receipt], args: Namespace) -> int:
    """Lines with all of the words, the newest first."""
    wanted = args.search.casefold().split()
    files = dict.fromkeys(span.file for one in reversed(found) for span in one.spans)
    hits = [hit for path in files for hit in _lines(path, wanted)]
    if args.json:
        say(msgspec.json.encode([{"file": f, "line": n, "text": t} for f, n, t in hits]).decode())
        return 0 if hits else 1
    for path, number, text in hits[:FOUND]:
        say(f"{path}:{number}: {clean(text, lines='show')}")
    if not hits:
        say(f"Nothing that was set aside holds {args.search!r} on one line.")
    elif len(hits) > FOUND:
        say(f"… and {len(hits) - FOUND} more lines")
    return 0 if hits else 1


def _lines(path: str, wanted: list[str]) -> Iterator[tuple[str, int, str]]:
    for number, text in enumerate(_text(path).split("\n"), 1):
        if all(word in text.casefold() for word in wanted):
            yield path, number, text


def _size(path: str) -> int:
    return estimate(_text(path))


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", errors="replace")
    except OSError:
        return ""


def _undo(home: Home, summary: Summary, number: int, *, json: bool) -> int:
    with Log.open(home.session(summary.project, summary.id)) as log:
        session = Session(log)
        one = _standing(receipts(list(log.read())), number)
        trial = Session(Rehearsal(log.read()))
        trial.append(Restored(one.entry))
        size, model = context_tokens(trial.view), _model(session)
        if size >= stop_at(model):
            raise Fault(
                f"Compaction {one.number} cannot be undone",
                why=f"the conversation would be about {size:,} tokens, and {stop_at(model):,} of "
                f"{model.window:,} may be used",
                fix="`travois context lost` names the files where all of it can be read.",
            )
        session.append(Restored(one.entry))
        session.sync()
    if json:
        say_json({"undone": one.number, "tokens": size, "window": model.window})
        return 0
    say(f"Compaction {one.number} is undone: about {size:,} of {model.window:,} tokens in use.")
    if size >= (limit := threshold(model, layers(home))):
        say(f"That is over {limit:,}, so it will be compacted again unless autoCompact is off.")
    return 0


def _standing(found: list[Receipt], number: int) -> Receipt:
    standing = [one for one in found if one.state == "stands"]
    if not number and standing:
        return standing[-1]
    one = next((one for one in found if one.number == number), None)
    if one is None:
        raise Fault("There is no such compaction", fix="See `travois context receipts`.")
    if one.state != "stands":
        fix = "Undo the later one first; see `travois context receipts`."
        raise Fault(f"Compaction {number} cannot be undone", why=f"it is {one.state}", fix=fix)
    return one
