"""The control plane: `/lab/...` looks into a running lab and steers it."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from travois.core.errors import UserError
from travois_lab.exchange import Exchange
from travois_lab.faults import parse_rules
from travois_lab.http import Request, Response, reply_json
from travois_lab.objects import Json, listed
from travois_lab.report import ledger_json, summary
from travois_lab.script import parse
from travois_lab.world import Options, World


def control(world: World, request: Request) -> Response:
    """Answer one request to the control plane."""
    path = request.path.removeprefix("/lab").rstrip("/")
    try:
        if request.method == "GET":
            return _look(world, path, request.query)
        given: Any = msgspec.json.decode(request.body) if request.body else {}
        return _steer(world, path, given)
    except UserError as fault:
        return reply_json({"error": str(fault)}, status=400)
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        return reply_json({"error": f"lab: {error}"}, status=400)


def _look(world: World, path: str, query: dict[str, str]) -> Response:
    if path == "/ledger":
        return reply_json({"exchanges": ledger_json(world.ledger), **summary(world.ledger)})
    if path == "/cache":
        return reply_json({"entries": _entries(world)})
    if path == "/diff":
        return reply_json(_diff(world, int(query["a"]), int(query["b"])))
    found = re.fullmatch(r"/requests/(\d+)", path)
    if found:
        return reply_json(_exchange_json(world.ledger[int(found[1]) - 1]))
    return _unknown("GET", path)


def _steer(world: World, path: str, given: Any) -> Response:
    match path:
        case "/scenario":
            world.script = parse(given if isinstance(given, list) else listed(given, "turns"))
            world.speak = world.script.answer
        case "/reset":
            world.reset()
        case "/clock":
            return reply_json({"now": world.clock.advance(float(given.get("advance", 0)))})
        case "/faults":
            world.faults.rules[:] = parse_rules(listed({"rules": given}, "rules"))
        case "/config":
            kept = msgspec.to_builtins(world.options)
            world.options = msgspec.convert({**kept, **given}, Options)
        case _:
            return _unknown("POST", path)
    return reply_json({"ok": True})


def _unknown(verb: str, path: str) -> Response:
    known = "GET ledger, requests/{n}, cache, diff; POST scenario, reset, clock, faults, config"
    return reply_json({"error": f"no {verb} /lab{path}; known: {known}"}, status=404)


def _entries(world: World) -> list[Json]:
    now = world.clock.now()
    return [
        {
            "name": name.hex(),
            "tokens": entry.tokens,
            "expires_in": round(entry.expires - now, 3),
            "live": world.cache.live(name, now),
        }
        for name, entry in world.cache.entries.items()
    ]


def _exchange_json(exchange: Exchange) -> Json:
    return {
        "n": exchange.n,
        "at": exchange.at,
        "path": exchange.path,
        "headers": exchange.public_headers(),
        "body": exchange.json,
        "status": exchange.status,
        "error": exchange.error,
        "reply": list(exchange.reply),
    }


def _diff(world: World, a: int, b: int) -> Json:
    """Where two requests first differ, position by position."""
    old, new = world.ledger[a - 1], world.ledger[b - 1]
    pairs = zip(old.kin.digests, new.kin.digests, strict=False)
    shared = 0
    for was, now in pairs:
        if was != now:
            break
        shared += 1
    row = new.row if shared < len(new.row) else old.row
    where = row[shared].path if shared < len(row) else None
    return {"a": a, "b": b, "shared": shared, "first_difference": where}
