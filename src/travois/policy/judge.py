"""May this happen: pure, total, and with its reason."""

from __future__ import annotations

from posixpath import dirname
from typing import Literal, get_args

import msgspec

from travois.policy.access import Access
from travois.policy.paths import folded, inside, plain
from travois.policy.rules import Effect, Rule, Use, matches

Mode = Literal["default", "plan", "accept-edits", "auto", "dont-ask", "bypass"]
MODES: tuple[Mode, ...] = get_args(Mode)
ALIASES: dict[str, Mode] = {
    "acceptEdits": "accept-edits",
    "bypassPermissions": "bypass",
    "dontAsk": "dont-ask",
    "yolo": "bypass",
}
PROTECTED = frozenset(
    (
        *(".git", ".gitmodules", ".gitconfig", ".husky", ".ssh", ".npmrc", ".mcp.json"),
        *(".travois", ".claude", ".agents", ".codex", ".cursor", ".gemini", ".opencode"),
        *(".vscode", ".idea", ".devcontainer", ".envrc"),
        *(".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".zprofile"),
    )
)
"""Names whose content decides what runs later: not written without a question or their own rule."""
PLANNING = "plan mode: only reading inside the workspace until the plan is agreed"


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
    """Deny rules, then plan mode, ask rules, bypass, allow rules, and last what is harmless."""
    if rule := _first(guard, use, "deny"):
        return Verdict("deny", f"rule: {rule}", "rule")
    if guard.mode == "plan" and not _only_looks(guard, use):
        return Verdict("deny", PLANNING)
    if rule := _first(guard, use, "ask"):
        return _settle(guard, Verdict("ask", f"rule: {rule}", "rule"))
    if guard.mode == "bypass":
        return Verdict("allow", "mode bypass runs everything that no rule denies")
    if rule := _allowing(guard, use):
        return Verdict("allow", f"rule: {rule}", "rule")
    return _settle(guard, _worst(guard, use))


def _first(guard: Guard, use: Use, effect: Effect) -> Rule | None:
    return next((r for r in guard.rules if r.effect == effect and matches(r, use)), None)


def _allowing(guard: Guard, use: Use) -> Rule | None:
    """The first allow rule; for protected paths, one that names them."""
    written = [access.target for access in use.accesses if access.kind == "write"]
    names = {name for path in written for name in _protected(_local(guard, path))}
    rules = (rule for rule in guard.rules if rule.effect == "allow" and matches(rule, use))
    return next((rule for rule in rules if names <= _protected(rule.what)), None)


def _only_looks(guard: Guard, use: Use) -> bool:
    reads = all(access.kind == "read" for access in use.accesses)
    return reads and _worst(guard, use).effect == "allow"


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
    if _protected(_local(guard, path)):
        return Verdict("ask", f"writes a protected path: {path}")
    if guard.mode in ("accept-edits", "auto"):
        return Verdict("allow", f"mode {guard.mode}: edits inside the workspace are free")
    return Verdict("ask", f"writes {path}")


def _protected(path: str) -> frozenset[str]:
    """The protected names in a path, whatever their case."""
    return PROTECTED.intersection([folded(part) for part in path.split("/")])


def _local(guard: Guard, path: str) -> str:
    """The path from its workspace folder on: what stands above it was chosen by the user."""
    above = [len(dirname(plain(f))) for f in guard.folders if inside(path, f)]
    return plain(path)[max(above, default=0) :]


def _inside(folders: tuple[str, ...], path: str) -> bool:
    return any(inside(path, folder) for folder in folders)
