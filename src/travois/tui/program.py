"""What the command line answers, at the prompt: /config, /doctor, /search, /dream and /export."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from time import localtime, strftime

import anyio.to_thread

from travois.core.errors import Fault
from travois.terminal.tables import overheard
from travois.tui.slash import Command, Desk

KINDS = {".html": "html", ".htm": "html", ".json": "json"}


async def told(desk: Desk, run: Callable[[], object]) -> str:
    """What is said while something runs, which may take its time."""

    def listen() -> str:
        with overheard(desk.columns) as lines:
            run()
        return "\n".join(lines)

    return await anyio.to_thread.run_sync(listen)


async def _config(desk: Desk, key: str) -> str:
    from travois.cli import models
    from travois.compose.session import prepare

    def explain() -> str:
        loaded = prepare(desk.options)[1]
        found = models.find_settings(
            loaded, "" if key == "all" else key.removeprefix("explain").strip()
        )
        if not key:
            found = {k: v for k, v in found.items() if models.origin(k, loaded) != "default"}
        return models.listing(found, loaded)

    more = "" if key else "\n\nThe rest is as it comes: /config all, or /config KEY."
    return await anyio.to_thread.run_sync(explain) + more


async def _doctor(desk: Desk, _: str) -> str:
    from travois.cli import models

    return await told(desk, partial(models.run_doctor, Namespace(json=False)))


async def _search(desk: Desk, text: str) -> str:
    from travois.cli.sessions import run_search

    flags = dict.fromkeys(("here", "json", "wait", "rebuild", "catch_up"), False)
    args = Namespace(text=[text], agent=None, limit=5, **flags)
    return (await told(desk, partial(run_search, args))).replace("travois --resume", "/resume")


async def _dream(desk: Desk, word: str) -> str:
    from travois.cli import dream
    from travois.compose.dreaming import opened
    from travois.compose.session import prepare

    if word not in ("", "status", "stop"):
        raise Fault(f"/dream does not know {word!r}", fix="It knows: status, stop.")
    nights = opened(*prepare(desk.options))
    show = (
        partial(dream.stop, nights) if word == "stop" else partial(dream.show, nights, json=False)
    )
    return (await told(desk, show)).replace("travois memory", "/memory")


async def _export(desk: Desk, name: str) -> str:
    from travois.cli.sessions import run_export

    path = os.path.expanduser(name) or strftime("travois-%Y%m%d-%H%M%S.md", localtime())
    if os.path.lexists(path):
        raise Fault(f"{path} exists already", fix="Choose another name.")
    kind = KINDS.get(os.path.splitext(path)[1].lower(), "markdown")
    args = Namespace(session=desk.session.id, format=kind, output=path)
    return await told(desk, partial(run_export, args))


COMMANDS = {
    "search": Command(
        "/search TEXT", "find a session by what was said in it", _search, when="ever"
    ),
    "export": Command("/export [FILE]", "the conversation as .md, .html or .json", _export),
    "config": Command(
        "/config [KEY]", "settings, and which file decided them", _config, when="ever"
    ),
    "doctor": Command("/doctor", "what works on this machine", _doctor, when="ever"),
    "dream": Command(
        "/dream [stop]",
        "how memories are put in order",
        _dream,
        lambda desk: ("status", "stop"),
        when="ever",
    ),
}
