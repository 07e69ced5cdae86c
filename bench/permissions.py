"""How long a decision on a command takes: the corpus, and made-up lines of up to 4 kB."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter

from travois.policy import shell
from travois.policy.access import Access
from travois.policy.judge import Guard, judge
from travois.policy.rules import Use, parse

CORPUS = Path(__file__).parents[2] / "shared" / "lab" / "security" / "commands.jsonl"
RULES = tuple(
    parse(text, effect)
    for effect, texts in {
        "allow": ("Bash(npm test:*)", "Bash(git commit:*)", "Bash(make:*)", "Edit(src/**)"),
        "ask": ("Bash(git push:*)",),
        "deny": ("Bash(curl:*)", "Read(.env)", "Read(~/.ssh/**)"),
    }.items()
    for text in texts
)
LONG = {
    "words": "echo " + "word " * 790,
    "parts": "ls src && " * 380 + "pwd",
    "nested": "echo " + "$(echo " * 50 + "x" + ")" * 50,
    "one word": "echo '" + "x" * 3900 + "'",
    "script": "for f in a b c; do\n  if [ -f $f ]; then cat $f | grep -v x | sort; fi\ndone\n" * 48,
    "document": "cat <<'END'\n" + "some text with $(things) in it\n" * 120 + "END",
}


def main() -> None:
    commands = (
        [json.loads(line)["command"] for line in CORPUS.read_text().splitlines()]
        if CORPUS.exists()
        else ["ls -la", "git diff | head -50", "rg foo src | sort | uniq -c"] * 100
    )
    spent("ls | head -3")
    times = sorted(
        spent(command) for command in commands if len(command.encode("utf-8", "replace")) < 4096
    )
    told = {
        name: times[min(int(len(times) * part), len(times) - 1)]
        for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("worst", 1.0))
    }
    print(
        f"{len(times)} commands       "
        + "   ".join(f"{name} {1000 * value:.3f} ms" for name, value in told.items())
    )
    for name, text in LONG.items():
        print(f"{name:<12} {len(text):5} B  {1000 * spent(text):6.2f} ms")


def spent(command: str) -> float:
    """The best of three, with nothing remembered from before."""
    return min(once(command) for _ in range(3))


def once(command: str) -> float:
    shell.plan.cache_clear()
    use = Use("Bash", (Access("exec", command),), "/w/proj", "/home/u")
    begun = perf_counter()
    judge(Guard("default", RULES, ("/w/proj",)), use)
    return perf_counter() - begun
