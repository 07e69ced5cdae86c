"""Commands that verified something, and how they ended."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from travois.context.ledger.extractors import Act
from travois.context.ledger.shell import Part, parts

LAST = 15
LONGEST = 200
LOOKS = re.compile(
    r"(?:echo|printf|grep|rg|cat|ls|find|sed|awk|head|tail|wc|nl|jq|git|gh|cd|export|which|type|test|"
    r"mkdir|rm|cp|mv|ln|chmod|sleep|for|if|while|touch|open|code|tree|stat|file|diff|env)\b|\["
)
"""Programs that verify nothing, whatever their arguments mention."""
MANAGES = (
    "view|info|show|pack|install|i|add|remove|rm|uninstall|init|config|ls|list|outdated|why|publish|"
    "cache|login|whoami|search|link|update|upgrade|create|pip|sync|lock|python|tool|venv"
)
"""What package managers do besides running things."""
VERIFIES = re.compile(
    rf"(?:(?:rtk|poetry run|pdm run|hatch run|pipenv run|bundle exec) )?(?:[\w.~-]*/)*(?:"
    rf"go (?:test|build|vet|run|generate)|py\.?test\b|tox|nox|"
    rf"(?:npm|pnpm|yarn|bun|deno|uvx?|cargo) (?!(?:{MANAGES})\b)|npx |bunx |"
    r"make\b|just |task |mise |rake\b|bundle |"
    r"gradlew?\b|mvnw?\b|sbt |bazel |cmake |ctest|ninja\b|tsc\b|vue-tsc|eslint|biome|prettier|"
    r"ruff|black |flake8|mypy|(?:based)?pyright|golangci-lint|staticcheck|gofmt|shellcheck|nx |"
    r"turbo |oxlint|"
    r"jest|vitest|playwright|cypress|python[\d.]* -m |dotnet |phpunit|composer |rspec|swift |"
    r"xcodebuild|flutter |mix |zig |terraform |hugo\b|docker |pre-commit)"
)
CODE = re.compile(r"(?i)\bexit(?:ed with)?(?: code| status)?:? (\d+)")
FAILS = re.compile(
    r"(?m)^(?:FAIL\b|FAILED\b|--- FAIL|make: \*\*\*|error(?:\[|:)|ERROR\b|Traceback \(|panic: |"
    r"fatal: |(?:\w+\.)*\w*(?:Error|Exception): |\[[\w:.-]+\] ERROR\b|"
    r"(?:[\w.-]+: )?[^\s:]+\.\w{1,5}:\d+:\d+: |"
    r"[^\n]{0,200}: (?:No such file or directory|command not found)$)"
    r"|\b[1-9]\d* (?:failed|errors?)\b"
)

Outcome = Literal["passed", "failed", "started"]


class Check(msgspec.Struct, frozen=True):
    """A test, build or lint command as it went the last time."""

    command: str
    outcome: Outcome
    code: int | None = None
    seq: int = 0


def checks(acts: Iterable[Act]) -> tuple[Check, ...]:
    """The last distinct ones, newest first."""
    found: dict[str, Check] = {}
    for act in acts:
        if act.kind != "shell" or act.refused is not None:
            continue
        ran = [part for part in parts(act.command) if verifies(part)]
        if ran:
            check = _check(" && ".join(part.text for part in ran), act, ran[-1])
            found.pop(check.command, None)
            found[check.command] = check
    return tuple(reversed(found.values()))[:LAST]


def verifies(part: Part) -> bool:
    """Whether a command tests, builds or lints."""
    text = part.text
    return len(text) <= LONGEST and not LOOKS.match(text) and bool(VERIFIES.match(text))


def hides_status(command: str) -> bool:
    """Whether the exit code of a line may be that of another command than the one that matters."""
    return "||" in command or ";" in command or any(part.piped for part in parts(command))


def exit_code(act: Act) -> int | None:
    """The exit code, as the result's detail or its first or last lines tell it."""
    if act.detail:
        told = re.search(r'"exit_?[cC]ode":\s*(\d+)', act.detail)
        if told:
            return int(told[1])
    found = CODE.search(act.text[:300]) or CODE.search(act.text[-200:])
    return int(found[1]) if found else None


def _check(command: str, act: Act, last: Part) -> Check:
    if act.args.get("run_in_background"):
        return Check(command, "started", None, act.seq)
    code = exit_code(act)
    failed = act.error or bool(code)
    hidden = last.piped or "||" in act.command or ";" in act.command
    if not failed and hidden:
        failed = bool(FAILS.search(act.text))
    return Check(command, "failed" if failed else "passed", code, act.seq)
