"""How long a decision on a command takes: the corpus, and made-up lines of up to 4 kB.

`python -m bench permissions --fuzz 100000 [--seed N]` judges random lines, runs them with a real
bash whose programs only write down how they were called, and prints how many did more than their
plan says, the worst processor time for one line, and the time for texts of growing length.
`python -m bench permissions --recorded SESSIONS_DIR` prints how many recorded commands would be
asked about in mode default, and how many reach a limit of judging, by agent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, process_time

from travois.permissions import catastrophic as ruin
from travois.permissions import paths
from travois.permissions.access import Access
from travois.permissions.decide import Permissions, decide_permission
from travois.permissions.rules import RuleEffect, ToolUse, parse_permission_rule
from travois.permissions.shell import judge as shell
from travois.permissions.shell import rough as loose

CORPUS = Path(__file__).parents[2] / "shared" / "lab" / "security" / "commands.jsonl"
TEXTS: dict[RuleEffect, tuple[str, ...]] = {
    "allow": ("Bash(npm test:*)", "Bash(git commit:*)", "Bash(make:*)", "Edit(src/**)"),
    "ask": ("Bash(git push:*)",),
    "deny": ("Bash(curl:*)", "Read(.env)", "Read(~/.ssh/**)"),
}
RULES = tuple(
    parse_permission_rule(text, effect) for effect, texts in TEXTS.items() for text in texts
)
LONG = {
    "words": "echo " + "word " * 790,
    "parts": "ls src && " * 380 + "pwd",
    "nested": "echo " + "$(echo " * 50 + "x" + ")" * 50,
    "one word": "echo '" + "x" * 3900 + "'",
    "script": "for f in a b c; do\n  if [ -f $f ]; then cat $f | grep -v x | sort; fi\ndone\n" * 48,
    "document": "cat <<'END'\n" + "some text with $(things) in it\n" * 120 + "END",
}


GROWING: dict[str, Callable[[int], str]] = {
    "words": lambda n: "echo " + "ab " * (n // 3),
    "statements": lambda n: "ls; " * (n // 4),
    "quotes": lambda n: 'echo "' + 'a b\\" ' * (n // 6) + '"',
    "substitutions": lambda n: "echo " + "$(" * (n // 3) + ")" * (n // 3),
    "paths": lambda n: "cat " + "a/b.c " * (n // 6),
    "other scripts": lambda n: "cat " + "\u6f22\u5b57 " * (n // 7),
}
SIZES = (1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000)
SHELL_TOOLS = ("bash", "shell", "exec_command", "shell_command", "local_shell")
LIMITS = ("too complex", "too long")


def main(args: list[str] | None = None) -> None:
    args = args or []
    if "--fuzz" in args:
        fuzz(int(_value(args, "--fuzz", "10000")), int(_value(args, "--seed", "1")))
    elif "--recorded" in args:
        print_recorded(Path(_value(args, "--recorded", "")))
    else:
        print_times()


def _value(args: list[str], name: str, default: str) -> str:
    at = args.index(name) + 1 if name in args else len(args)
    return args[at] if at < len(args) else default


def fuzz(count: int, seed: int) -> None:
    """Compare random lines with what bash does, then show how time grows with the text."""
    from tests.permissions.fuzz import main as compare

    failed = compare(count, seed)
    print("CPU ms for texts of", ", ".join(f"{size:,}" for size in SIZES), "bytes:")
    for name, make in GROWING.items():
        times = (1000 * min(cpu(make(size)) for _ in range(3)) for size in SIZES)
        print(f"  {name:14}", "  ".join(f"{value:7.2f}" for value in times))
    if failed:
        raise SystemExit(1)


def cpu(command: str) -> float:
    """Processor time for one verdict, with nothing remembered from before."""
    for function in (
        shell.plan_command,
        loose.flatten_command,
        loose.command_vocabulary,
        paths._fold_words,
        ruin._catastrophe_in_text,
    ):
        function.cache_clear()
    use = ToolUse("Bash", (Access("exec", command),), "/w/proj", "/home/u")
    begun = process_time()
    decide_permission(Permissions("default", RULES, ("/w/proj",)), use)
    return process_time() - begun


def print_recorded(folder: Path) -> None:
    """How many recorded commands ask in mode default, and how many reach a limit."""
    made, asked, limited = Counter[str](), Counter[str](), Counter[str]()
    for agent, command, cwd in recorded_commands(folder):
        use = ToolUse("Bash", (Access("exec", command),), cwd, "/home/u")
        made[agent] += 1
        asked[agent] += decide_permission(Permissions(folders=(cwd,)), use).effect != "allow"
        why = shell.plan_command(command, cwd=cwd, home="/home/u").unclear
        limited[agent] += any(limit in why for limit in LIMITS)
    for agent, count in made.most_common():
        share = asked[agent] / count
        print(f"{agent:14} {count:6} commands  {share:6.1%} asked  {limited[agent]:3} at a limit")


def recorded_commands(folder: Path) -> Iterator[tuple[str, str, str]]:
    """The agent, command line and folder of each recorded shell call."""
    from bench.calls import recorded_calls

    for call in recorded_calls(folder):
        line = call.input.get("command") or call.input.get("cmd")
        words = line[-1:] if isinstance(line, list) else [line]
        if words and isinstance(words[0], str) and call.name.casefold() in SHELL_TOOLS:
            yield call.agent, words[0], call.cwd or "/w"


def print_times() -> None:
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
    shell.plan_command.cache_clear()
    use = ToolUse("Bash", (Access("exec", command),), "/w/proj", "/home/u")
    begun = perf_counter()
    decide_permission(Permissions("default", RULES, ("/w/proj",)), use)
    return perf_counter() - begun
