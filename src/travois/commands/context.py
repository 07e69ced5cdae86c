"""`travois context`, `compact` and `notes`: the context window of a session."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

import anyio
import msgspec

from travois.commands.sessions import locate_home_and_project
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.context.layers import ContextLayers
from travois.context.receipts import CompactionReceipt, list_compaction_receipts
from travois.context.session_memory.notes import decode_notes
from travois.context.switch_model import TrialLog
from travois.context.window import WindowBreakdown, break_down_window, threshold_for_model
from travois.core.cache_audit import PromptCache, format_duration
from travois.core.errors import UserError
from travois.core.facts import (
    Changed,
    Entry,
    Noted,
    Restored,
    Sent,
)
from travois.core.models import ModelCard
from travois.core.tokens import context_tokens, estimate_tokens, stop_threshold
from travois.core.view import View, keep_live_entries
from travois.providers.encoder import RequestEncoder
from travois.providers.request import Request, limit_reply_tokens
from travois.sessions.catalog import SessionSummary, find_newest_session, find_session
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import SessionLog, read_history
from travois.sessions.session import Session
from travois.settings.load import load_settings
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_age,
    format_table,
    print_json,
    print_line,
)

CONTEXT_HELP = """\
  travois context                      summarize the last session of this folder in one line
  travois context --all                list every block: source, tokens, cache, reason
  travois context lost                 list what compactions removed, and the files that hold it
  travois context lost --search WORDS  search those files
  travois context receipts             show what each compaction did and cost
  travois context undo                 undo the last compaction; later messages are kept
  travois context undo 2               undo compaction 2, unless a later one includes its summary

Add a session id, id prefix or name for another session. Sizes are estimates, scaled so that their
sum matches the provider's count.
"""
CONTEXT_ACTIONS = ("lost", "receipts", "undo")
MAX_SEARCH_HITS = 50
WINDOW_BAR_CELLS = 20


def register_context(commands: CommandParsers) -> None:
    """Add the `travois context` command."""
    top = add_command(
        commands,
        "context",
        what="show what is in the context window, and restore what was compacted",
        more=CONTEXT_HELP,
    )
    top.add_argument("words", nargs="*", metavar="lost|receipts|undo|ID", help="see below")
    top.add_argument("--all", action="store_true", help="list every block")
    top.add_argument(
        "--search", default="", metavar="WORDS", help="with lost: only lines with these words"
    )
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_context)


def run_context(args: Namespace) -> int:
    """Show the context window of a session, list its compactions, or undo one."""
    words: list[str] = args.words
    action = words.pop(0) if words and words[0] in CONTEXT_ACTIONS else ""
    number = (
        int(words.pop(0)) if action == "undo" and words and _is_compaction_number(words[0]) else 0
    )
    if len(words) > 1:
        raise UserError(f"Unexpected argument {words[1]!r}", fix="See `travois context --help`.")
    home, summary = pick_session(words[0] if words else "")
    if action == "undo":
        return _undo_compaction(home, summary, number, json=args.json)
    folder = home.session_folder(summary.project, summary.id)
    if action:
        found = list_compaction_receipts(list(read_history(folder, [])))
        return (
            _show_compacted_spans(found, args) if action == "lost" else _show_receipts(found, args)
        )
    session = Session(TrialLog(read_history(folder, [])))
    return _show_window(session, load_layers(home), args)


def pick_session(text: str) -> tuple[TravoisHome, SessionSummary]:
    """Return the session whose context to show, by ID or name; by default the last one here."""
    home, project = locate_home_and_project()
    if text:
        return home, find_session(home, text, project=project)
    return home, find_newest_session(home, project, cwd=os.path.realpath(os.getcwd()))


def load_layers(home: TravoisHome) -> ContextLayers:
    """Load the context layers that the settings choose for `travois context`."""
    _, project = locate_home_and_project()
    cwd = os.path.realpath(os.getcwd())
    return load_settings(home, project.root, cwd=cwd, environ=os.environ).settings.context.layers


def _is_compaction_number(word: str) -> bool:
    return word.isdecimal() and len(word) < 4


def _show_window(session: Session, layers: ContextLayers, args: Namespace) -> int:
    """Print the use of a session's context window, for `travois context`."""
    model = _model_of_session(session)
    window = break_down_window(
        session.view, session.history(), cache=session.cache, now=time.time()
    )
    if args.json:
        told = {
            "used": window.total_tokens,
            "threshold": threshold_for_model(model, layers),
            "window": model.window,
            "measured": window.measured,
            "scale": round(window.scale, 4),
            "parts": window.tokens_by_kind,
            "cache_seconds": round(session.cache.seconds_left(time.time())),
            "blocks": window.portions,
        }
        print_line(msgspec.json.encode(told).decode())
        return 0
    if args.all:
        print_line(_block_table(window))
    print_line(describe_window(session, layers, window=window))
    return 0


def describe_window(
    session: Session, layers: ContextLayers, *, window: WindowBreakdown | None = None
) -> str:
    """Describe the use of the context window, and the state of the prompt cache."""
    model, now = _model_of_session(session), time.time()
    window = window or break_down_window(
        session.view, session.history(), cache=session.cache, now=now
    )
    limit = threshold_for_model(model, layers)
    parts = " · ".join(f"{kind} {size:,}" for kind, size in window.tokens_by_kind.items())
    told = (
        f"{window.total_tokens:,} of {limit:,} tokens "
        f"({model.name}, window {model.window:,}): {parts}"
    )
    counted = (
        f"scaled ×{window.scale:.2f} to the provider's count" if window.measured else "estimated"
    )
    free = max(0, limit - window.total_tokens)
    lifetime = describe_cache_lifetime(session.cache, now)
    return f"{told} · free {free:,}; {counted}; {lifetime}"


def render_window_table(session: Session, layers: ContextLayers) -> str:
    """Render what fills the context window, one line for each kind."""
    model, now = _model_of_session(session), time.time()
    window = break_down_window(session.view, session.history(), cache=session.cache, now=now)
    limit = threshold_for_model(model, layers)
    sizes = {**window.tokens_by_kind, "free": max(0, limit - window.total_tokens)}
    rows = [("PART", "TOKENS", "SHARE", "")]
    for kind, size in sizes.items():
        share = size / limit
        rows.append((kind, f"{size:,}", f"{share:.0%}", "━" * round(share * WINDOW_BAR_CELLS)))
    counted = "scaled to the provider's count" if window.measured else "estimated"
    told = f"{model.name} takes {model.window:,} tokens; compaction begins at {limit:,}."
    lifetime = describe_cache_lifetime(session.cache, now)
    return f"{format_table(rows, right=(1, 2))}\n\n{told}\nSizes are {counted}; {lifetime}."


def describe_cache_lifetime(cache: PromptCache, now: float) -> str:
    """Describe how long the prompt cache lives, and what the next request cannot read of it."""
    if not (left := cache.seconds_left(now)):
        return "cache cold"
    moved = f", up to the change ({cache.moved[0][0]})" if cache.moved else ""
    return f"cache warm for {format_duration(left)}{moved}"


def _block_table(window: WindowBreakdown) -> str:
    """Format the parts of the context window as a table, for `travois context --all`."""
    rows = [("ENTRY", "KIND", "TOKENS", "CACHE", "SOURCE", "WHY")]
    for one in window.portions:
        source = escape_controls(one.source, lines="show")
        number = str(one.entry or "")
        rows.append(
            (number, one.kind, f"{one.tokens:,}", one.cache, source, escape_controls(one.why))
        )
    return format_table(rows, right=(0, 2))


def _model_of_session(session: Session) -> ModelCard:
    """Return the model of a session; raises `UserError` if none has answered yet."""
    if session.view.epoch is None:
        why = "it was imported and has not been resumed yet" if session.view.items else ""
        raise UserError("No model has answered in this session", why=why)
    return session.view.epoch.model


def _show_receipts(found: list[CompactionReceipt], args: Namespace) -> int:
    """Print the receipts of a session's compactions."""
    if args.json:
        print_line(msgspec.json.encode(found).decode())
        return 0
    for one in found:
        print_line(render_receipt(one))
    if not found:
        print_line("This session has no compactions.")
    return 0


def render_receipt(receipt: CompactionReceipt) -> str:
    """Format the receipt of a compaction as text."""
    measured = f"{receipt.measured:,} measured" if receipt.measured else "not measured yet"
    restored = (
        ", ".join(escape_controls(path, lines="show") for path in receipt.restored) or "nothing"
    )
    spent = f"${receipt.dollars:.4f} for the summary, ${receipt.rewritten:.4f} to resend the rest"
    state = (
        "open until your next prompt"
        if receipt.breaker
        else f"closed, {receipt.useless} ineffective in a row"
    )
    age = format_age(time.time() - receipt.at)
    return "\n".join(
        (
            f"{receipt.number}. {receipt.trigger or receipt.by}, {age}, {receipt.state}",
            f"   {receipt.before:,} tokens → {receipt.planned:,} planned, {measured}",
            f"   {len(receipt.spans)} spans removed; restored: {restored}",
            f"   {spent}; {receipt.seconds:.1f} s",
            f"   threshold {receipt.threshold:,} ({receipt.set_by}); circuit breaker {state}",
        )
    )


def _show_compacted_spans(found: list[CompactionReceipt], args: Namespace) -> int:
    """List what compactions removed and the files that hold it, or search these files."""
    if args.search:
        return _search_compacted_spans(found, args)
    spans = [
        {
            "compaction": one.number,
            "title": span.title,
            "file": span.file,
            "tokens": _estimate_file_tokens(span.file),
        }
        for one in found
        for span in one.spans
    ]
    if args.json:
        print_line(msgspec.json.encode(spans).decode())
        return 0
    rows = [("#", "TOKENS", "FILE", "TITLE")]
    for span in spans:
        title, file = (escape_controls(str(span[key]), lines="show") for key in ("title", "file"))
        rows.append((str(span["compaction"]), f"{span['tokens']:,}", file, title))
    print_line(
        format_table(rows, right=(0, 1))
        if spans
        else "Compactions removed nothing from this session."
    )
    return 0


def _search_compacted_spans(found: list[CompactionReceipt], args: Namespace) -> int:
    """Search the compacted text for lines with all words, newest first."""
    wanted = args.search.casefold().split()
    files = dict.fromkeys(span.file for one in reversed(found) for span in one.spans)
    hits = [hit for path in files for hit in _matching_lines(path, wanted)]
    if args.json:
        print_line(
            msgspec.json.encode([{"file": f, "line": n, "text": t} for f, n, t in hits]).decode()
        )
        return 0 if hits else 1
    for path, number, text in hits[:MAX_SEARCH_HITS]:
        print_line(f"{path}:{number}: {escape_controls(text, lines='show')}")
    if not hits:
        print_line(f"No line of the compacted text contains {args.search!r}.")
    elif len(hits) > MAX_SEARCH_HITS:
        print_line(f"… and {len(hits) - MAX_SEARCH_HITS} more lines")
    return 0 if hits else 1


def _matching_lines(path: str, wanted: list[str]) -> Iterator[tuple[str, int, str]]:
    """Yield a compacted span's lines that contain all searched words."""
    for number, text in enumerate(_read_span_file(path).split("\n"), 1):
        if all(word in text.casefold() for word in wanted):
            yield path, number, text


def _estimate_file_tokens(path: str) -> int:
    return estimate_tokens(_read_span_file(path))


def _read_span_file(path: str) -> str:
    """Read the file of a compacted span; empty if it cannot be read."""
    try:
        return Path(path).read_text("utf-8", errors="replace")
    except OSError:
        return ""


def _undo_compaction(home: TravoisHome, summary: SessionSummary, number: int, *, json: bool) -> int:
    """Undo a compaction, unless the conversation would then exceed the context window."""
    with SessionLog.open(home.session_folder(summary.project, summary.id)) as log:
        session = Session(log)
        one = _find_undoable(list_compaction_receipts(list(log.read())), number)
        trial = Session(TrialLog(log.read()))
        trial.append(Restored(one.entry))
        size, model = context_tokens(trial.view), _model_of_session(session)
        if size >= stop_threshold(model):
            raise UserError(
                f"Compaction {one.number} cannot be undone",
                why=f"the conversation would take about {size:,} tokens, more than the "
                f"{stop_threshold(model):,} that can be used of {model.window:,}",
                fix="`travois context lost` lists the files with the full text.",
            )
        session.append(Restored(one.entry))
        session.sync()
    if json:
        print_json({"undone": one.number, "tokens": size, "window": model.window})
        return 0
    print_line(f"Undid compaction {one.number}: about {size:,} of {model.window:,} tokens in use.")
    if size >= (limit := threshold_for_model(model, load_layers(home))):
        print_line(f"Above the threshold of {limit:,}: compacted again unless autoCompact is off.")
    return 0


def _find_undoable(found: list[CompactionReceipt], number: int) -> CompactionReceipt:
    """Find the compaction to undo, by number or the last; raises if that is impossible."""
    standing = [one for one in found if one.state == "stands"]
    if not number and standing:
        return standing[-1]
    one = next((one for one in found if one.number == number), None)
    if one is None:
        raise UserError("No such compaction", fix="See `travois context receipts`.")
    if one.state != "stands":
        fix = "Undo the later one first; see `travois context receipts`."
        raise UserError(f"Compaction {number} cannot be undone", why=f"it is {one.state}", fix=fix)
    return one


# `travois compact`: set the older part of a conversation aside, all of it or what is named.


COMPACT_HELP = """\
  travois compact                     compact the last session of this folder
  travois compact 3f2a --focus "the parser"
  travois compact 3f2a --from 120     summarize from entry 120 on; earlier entries and their prompt
                                      cache stay
  travois compact 3f2a --up-to 120    summarize up to entry 120

`travois context --all` shows entry numbers. Nothing is lost: the summary names the files with the
removed text, and `travois context undo` restores it. If the session is open elsewhere, type
/compact there instead.
"""


def register_compact(commands: CommandParsers) -> None:
    """Add the `travois compact` command."""
    top = add_command(
        commands,
        "compact",
        what="compact a session: replace older messages with a summary",
        more=COMPACT_HELP,
    )
    about = "session id, id prefix or name (default: the last one of this folder)"
    top.add_argument("session", nargs="?", default="", metavar="ID", help=about)
    top.add_argument("--focus", default="", metavar="TEXT", help="what the summary should focus on")
    part = top.add_mutually_exclusive_group()
    part.add_argument(
        "--from", dest="first", type=int, default=0, metavar="N", help="start at entry N"
    )
    part.add_argument(
        "--up-to", dest="last", type=int, default=0, metavar="N", help="stop at entry N"
    )
    top.add_argument("--settings", default="", metavar="FILE|JSON", help="extra settings")
    top.add_argument("--json", action="store_true", help="print the receipt as JSON")
    top.set_defaults(run=run_compact)


def run_compact(args: Namespace) -> int:
    """Compact one session and print the receipt."""
    home, summary = pick_session(args.session)
    anyio.run(_compact_session, args, summary.id)
    one = list_compaction_receipts(
        list(read_history(home.session_folder(summary.project, summary.id), []))
    )[-1]
    print_line(msgspec.json.encode(one).decode() if args.json else render_receipt(one))
    return 0


async def _compact_session(args: Namespace, id: str) -> None:
    async with LiveSession(Options(resume=id, settings=args.settings)) as session:
        await session.compact(args.focus, first=args.first, last=args.last)


# `travois audit`: derive every request of a session again, and compare it with what was sent.


def derive_request(view: View, sent: Sent, encoder: RequestEncoder) -> Request:
    """Rebuild the request for a view to audit it, with the output limit from the log."""
    return limit_reply_tokens(encoder.build_request(view), sent.output)


# `travois notes`: the notes that the model keeps on a session while it works.


NOTES_HELP = """\
  travois notes            notes of the last session of this folder
  travois notes 3f2a       notes of another session: id, id prefix or name
  travois notes --history  list each update, and the log entry it covers

A compaction uses the notes as its summary, so it needs no model call.
Settings: context.notes (auto, true, false), context.notesTemplate, context.notesPrompt.
"""
NO_NOTES_MESSAGE = "This session has no notes yet."


class NotesVersion(msgspec.Struct, frozen=True):
    """The notes as one update left them."""

    entry: int
    at: float
    covers: int
    tokens: int
    text: str


def register_notes(commands: CommandParsers) -> None:
    """Add the `travois notes` command."""
    top = add_command(
        commands, "notes", what="show the notes the model keeps on a session", more=NOTES_HELP
    )
    about = "session id, id prefix or name (default: the last one of this folder)"
    top.add_argument("session", nargs="?", default="", metavar="ID", help=about)
    top.add_argument("--history", action="store_true", help="list updates without their text")
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_notes)


def run_notes(args: Namespace) -> int:
    """Print the notes of a session."""
    home, summary = pick_session(args.session)
    found = list_notes_versions(read_history(home.session_folder(summary.project, summary.id), []))
    if args.json:
        print_json(found if args.history else found[-1:])
    elif args.history:
        print_line("\n".join(map(_describe_notes_version, found)) or NO_NOTES_MESSAGE)
    else:
        print_line(render_latest_notes(found))
    return 0


def list_notes_versions(entries: Iterable[Entry]) -> list[NotesVersion]:
    """Return every update of the notes that no rewind took back, the oldest first."""
    found: list[NotesVersion] = []
    for entry in keep_live_entries(list(entries)):
        match entry.fact:
            case Noted(what="notes", text=text):
                held = decode_notes(text)
                size = estimate_tokens(held.text)
                found.append(NotesVersion(entry.seq, entry.at, held.covers, size, held.text))
            case Changed(what="fork"):  # what was noted before was on the task of its original
                found = []
            case _:
                pass
    return found


def render_latest_notes(found: list[NotesVersion]) -> str:
    """Format the newest notes of a session as text."""
    if not found:
        return NO_NOTES_MESSAGE
    text = escape_controls(found[-1].text, lines="keep").strip()
    return f"{text}\n\n{_describe_notes_version(found[-1])}"


def _describe_notes_version(version: NotesVersion) -> str:
    when = format_age(time.time() - version.at)
    return f"{when}: {version.tokens:,} tokens, covers the log up to entry {version.covers}"
