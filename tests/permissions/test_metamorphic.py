"""A command that asks still asks when it is wrapped, quoted, split or spelt in another way."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable

import pytest

from travois.permissions.access import Access
from travois.permissions.decide import PermissionMode, Permissions, decide_permission
from travois.permissions.rules import ToolUse, parse_permission_rule

SEEDS = (
    "touch /etc/x", "rm -r src", "git push origin main", "curl https://a.example", "npm publish",
    "cat /etc/shadow", "cp a /srv/b", "sort -o x a", "find . -delete", "sed -i s/a/b/ /etc/hosts",
    "git symbolic-ref HEAD refs/heads/x", "tee .git/hooks/pre-commit", "python3 x.py", "make all",
    "awk 'BEGIN{system(\"id\")}'", "git -c core.pager=x log", "xargs rm", "chmod 777 /etc/passwd",
)  # fmt: skip
DENIED = ("rm -rf build", "curl -s https://a.example", "/bin/rm x", "git push --force")
ALLOWING = ("ls", "cat", "echo", "git status", "npm test")
RULES = (
    *(parse_permission_rule(f"Bash({name}:*)", "allow") for name in ALLOWING),
    *(
        parse_permission_rule(f"Bash({name}:*)", "deny")
        for name in ("rm", "curl", "git push --force")
    ),
)


def quoted(text: str) -> str:
    return shlex.quote(text)


def per_word(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: " ".join(map(change, text.split(" ")))


def _split(word: str) -> str:
    return word if len(word) < 2 or not word.isalnum() else f"{word[:1]}''{word[1:]}"


WRAPPED: dict[str, Callable[[str], str]] = {
    "subshell": lambda t: f"({t})",
    "group": lambda t: f"{{ {t}; }}",
    "negated": lambda t: f"! {t}",
    "after": lambda t: f"ls && {t}",
    "before": lambda t: f"{t}; ls",
    "or": lambda t: f"false || {t}",
    "aside": lambda t: f"{t} & ls",
    "pipe": lambda t: f"{t} | cat",
    "piped to": lambda t: f"echo x | {t}",
    "substitution": lambda t: f"echo $({t})",
    "in quotes": lambda t: f'echo "$({t})"',
    "backticks": lambda t: f"echo `{t}`",
    "process": lambda t: f"cat <({t})",
    "output process": lambda t: f"ls > >({t})",
    "assignment": lambda t: f"x=$({t}); echo $x",
    "if": lambda t: f"if true; then {t}; fi",
    "else": lambda t: f"if ls; then pwd; else {t}; fi",
    "condition": lambda t: f"if {t}; then ls; fi",
    "for": lambda t: f"for i in 1 2; do {t}; done",
    "while": lambda t: f"while {t}; do ls; done",
    "case": lambda t: f"case x in x) {t};; esac",
    "function": lambda t: f"f() {{ {t}; }}; f",
    "command": lambda t: f"command {t}",
    "env": lambda t: f"env {t}",
    "env with variable": lambda t: f"env A=1 {t}",
    "nice": lambda t: f"nice -n 5 {t}",
    "timeout": lambda t: f"timeout 5 {t}",
    "nohup": lambda t: f"nohup {t}",
    "time": lambda t: f"time {t}",
    "bash": lambda t: f"bash -c {quoted(t)}",
    "sh in bash": lambda t: f"bash -c {quoted(f'sh -c {quoted(t)}')}",
    "eval": lambda t: f"eval {quoted(t)}",
    "document": lambda t: f"bash <<'E'\n{t}\nE",
    "string": lambda t: f"bash <<< {quoted(t)}",
    "echoed": lambda t: f"echo {quoted(t)} | sh",
    "xargs": lambda t: f"echo x | xargs {t}",
    "find": lambda t: f"find . -exec {t} \\;",
    "trap": lambda t: f"trap {quoted(t)} EXIT",
    "coproc": lambda t: f"coproc {t}",
    "array": lambda t: f"x=($({t}))",
    "arithmetic": lambda t: f"echo $((x[$({t})]))",
    "test": lambda t: f"[[ -v x[$({t})] ]]",
    "default": lambda t: f"echo ${{x:-$({t})}}",
    "prompt": lambda t: f"x={quoted(f'$({t})')}; echo ${{x@P}}",
    "variable": lambda t: f"x={quoted(t.split(' ')[0])}; $x {t.partition(' ')[2]}",
    "line": lambda t: f"ls\n{t}",
    "continued": lambda t: t.replace(" ", " \\\n", 1),
    "redirected": lambda t: f"{t} 2>/dev/null",
    "redirected first": lambda t: f"2>/dev/null {t}",
    "comment": lambda t: f"{t} # ls",
    "set variable": lambda t: f"LANG=C {t}",
    "split word": per_word(_split),
    "backslash": lambda t: f"\\{t}",
    "dollar quotes": lambda t: f"$'{t.partition(' ')[0]}' {t.partition(' ')[2]}",
    "braces": lambda t: f"{{{t.partition(' ')[0]},}} {t.partition(' ')[2]}",
    "moved": lambda t: f"cd src && {t}",
    "moved back": lambda t: f"cd src; cd ..; {t}",
}


def effect(command: str, mode: PermissionMode = "default", *, ruled: bool = False) -> str:
    use = ToolUse("Bash", (Access("exec", command),), "/w", "/home/u")
    return decide_permission(Permissions(mode, RULES if ruled else (), ("/w",)), use).effect


@pytest.mark.parametrize("way", WRAPPED)
def test_no_way_to_write_it_softens_what_asks(way: str) -> None:
    for seed in SEEDS:
        assert effect(seed) == "ask", seed
        assert effect(WRAPPED[way](seed)) != "allow", WRAPPED[way](seed)


@pytest.mark.parametrize("way", WRAPPED)
def test_no_way_to_write_it_softens_what_is_denied(way: str) -> None:
    for seed in DENIED:
        assert effect(seed, ruled=True) == "deny", seed
        found = effect(WRAPPED[way](seed), ruled=True)
        assert found == "deny" or (found == "ask" and way in HIDING), WRAPPED[way](seed)


HIDING = frozenset(("dollar quotes", "braces", "variable"))
"""Ways in which the name of a program is not a word of the text any more."""


@pytest.mark.parametrize("seed", range(4))
def test_ways_on_top_of_each_other_soften_nothing(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        text = chance.choice(SEEDS)
        for way in chance.sample(sorted(WRAPPED), 3):
            text = WRAPPED[way](text)
        assert effect(text) != "allow", text
