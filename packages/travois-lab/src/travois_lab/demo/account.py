"""The account of a tour: what the lab counted, the receipt, and a page to look inside."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from travois.commands.context import pick_session, render_receipt
from travois.context.receipts import list_compaction_receipts
from travois.sessions.log_file import read_history
from travois.terminal import print_line, style_text
from travois_lab.demo.tour import Pace
from travois_lab.server import Api

NEXT = """\
Next: export ANTHROPIC_API_KEY=… or another provider's key (`travois models`
lists all models, local ones too), and run `travois` in a project of yours, or
`make run` in a checkout."""


def give(api: Api, pace: Pace | None) -> None:
    """Print it, and keep the page open until the person has seen it."""
    home, summary = pick_session("")
    _title(f"Session {summary.id}")
    usages = [exchange.usage for exchange in api.ledger]
    read, sent = (sum(getattr(one, kind) for one in usages) for kind in ("read", "prompt"))
    print_line(f"{len(usages)} requests with {sent:,} tokens; the cache read {read:,} of them")
    print_line(f"({read / sent:.0%}), as the lab counted.")
    _title("Receipt of the compaction")
    found = list_compaction_receipts(
        list(read_history(home.session_folder(summary.project, summary.id), []))
    )
    print_line("\n".join(map(render_receipt, found)) or "Nothing was compacted.")
    _title("Inspector")
    with _page(summary.id) as address:
        print_line(f"{address}\n\n{NEXT}")
        sys.stdout.flush()
        _wait(pace)


def _title(text: str) -> None:
    print_line("\n" + style_text(text, "bold"))


def _wait(pace: Pace | None) -> None:
    if pace:
        time.sleep(pace.deciding)
        return
    print_line("\n" + style_text("Press Enter to end the tour.", "dim"))
    sys.stdout.flush()
    sys.stdin.readline()


@contextmanager
def _page(id: str) -> Generator[str]:
    """The inspector in a process of its own; gives its address, or why there is none."""
    command = (sys.executable, "-m", "travois", "inspect", id, "--no-open")
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdout is not None and child.stderr is not None
        try:
            yield (child.stdout.readline() or child.stderr.read()).strip()
        finally:
            child.terminate()
