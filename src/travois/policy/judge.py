"""May this happen: pure, total, and with its reason."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from travois.policy.access import Access
from travois.policy.rules import Effect, Rule, Use, matches

Mode = Literal["default", "plan", "accept-edits", "auto", "dont-ask", "bypass"]
MODES: tuple[Mode, ...] = get_args(Mode)
ALIASES: dict[str, Mode] = {
    "acceptEdits": "accept-edits",
    "bypassPermissions": "bypass",
    "dontAsk": "dont-ask",
    "yolo": "bypass",
}
PROTECTED = (".git", ".travois", ".claude", ".agents", ".codex", ".vscode", ".idea", ".mcp.json")
"""Names whose content decides what runs later: never written without a question."""


class Verdict(msgspec.Struct, frozen=True):
    """What may happen, why, and what decided it."""

    effect: Effect
    because: str
    by: Literal["rule", "mode"] = "mode"


class Guard(msgspec.Struct, frozen=True):
    """What a session may do: its mode, its rules, and the folders it may work in."""

    mode: Mode = "default"
    rules: tuple[Rule, ...] = ()
    folders: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    """Folders that may be read but not written: where large outputs are kept."""


def judge(guard: Guard, use: Use) -> Verdict:
    """Deny rules, then ask rules, then the mode, then allow rules, then what is harmless."""
    for effect in ("deny", "ask"):
        if rule := _first(guard, use, effect):
            return _settle(guard, Verdict(effect, f"rule: {rule}", "rule"))
    if guard.mode == "plan":
        return _plan(guard, use)
    if guard.mode == "bypass":
        return Verdict("allow", "mode bypass runs everything that no rule denies")
    if rule := _first(guard, use, "allow"):
        return Verdict("allow", f"rule: {rule}", "rule")
    return _settle(guard, _worst(guard, use))


def _first(guard: Guard, use: Use, effect: str) -> Rule | None:
    return next((r for r in guard.rules if r.effect == effect and matches(r, use)), None)


def _plan(guard: Guard, use: Use) -> Verdict:
    verdict = _worst(guard, use)
    if verdict.effect == "allow" and all(access.kind == "read" for access in use.accesses):
        return verdict
    return Verdict("deny", "plan mode: only reading inside the workspace until the plan is agreed")


def _settle(guard: Guard, verdict: Verdict) -> Verdict:
    if verdict.effect == "ask" and guard.mode == "dont-ask":
        return Verdict("deny", f"mode dont-ask: {verdict.because}")
    return verdict


def _worst(guard: Guard, use: Use) -> Verdict:
    verdicts = [_access(guard, access) for access in use.accesses]
    asks = [verdict for verdict in verdicts if verdict.effect == "ask"]
    if asks:
        return asks[0]
    return verdicts[0] if verdicts else Verdict("allow", "touches nothing outside the session")


def _access(guard: Guard, access: Access) -> Verdict:
    match access.kind:
        case "read":
            if _inside((*guard.folders, *guard.readable), access.target):
                return Verdict("allow", "reads inside the workspace are free")
            return Verdict("ask", f"reads outside the workspace: {access.target}")
        case "write":
            return _write(guard, access.target)
        case "exec":
            return Verdict("ask", "runs a command")
        case "net":
            return Verdict("ask", f"uses the network: {access.target}")
        case "spawn":
            return Verdict("ask", f"starts {access.target}")


def _write(guard: Guard, path: str) -> Verdict:
    if not _inside(guard.folders, path):
        return Verdict("ask", f"writes outside the workspace: {path}")
    if any(part.casefold() in PROTECTED for part in path.split("/")):
        return Verdict("ask", f"writes a protected path: {path}")
    if guard.mode in ("accept-edits", "auto"):
        return Verdict("allow", f"mode {guard.mode}: edits inside the workspace are free")
    return Verdict("ask", f"writes {path}")


def _inside(folders: tuple[str, ...], path: str) -> bool:
    return any(path == f or path.startswith(f.rstrip("/") + "/") for f in folders)
