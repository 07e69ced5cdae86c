"""Random command lines, run by a real bash whose programs only write down how they were called.

`python -m tests.permissions.fuzz 100000 [seed]` compares what bash ran with what the plan says.
"""

# ruff: noqa: E501 - the fragments read better side by side

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from time import process_time

import msgspec

from travois.permissions.access import Access
from travois.permissions.decide import Permissions, decide_permission
from travois.permissions.rules import ToolUse
from travois.permissions.shell.judge import plan_command
from travois.permissions.shell.plan import CommandPlan, CommandStep, ShellWord

PROGRAMS = ("ls", "cat", "grep", "wc", "sort", "head", "git", "npm", "frob", "make", "ok", "no")
RUNNERS = ("env", "nice", "timeout", "nohup", "xargs", "bash", "sh", "stdbuf")
"""Real programs that run the others."""
FILES = ("f", "g.py", "h.py", "a/f", "a/b/f", "b/g.py", "-n", "s p")
END = "\x01"
BATCH = 2_500
SHIM = f"""#!/bin/sh
printf '%s\\0' "$PWD" "${{0##*/}}" "$@" '{END}' >> "$FUZZ_LOGS/$FUZZ_LINE.$$"
case ${{0##*/}} in no) exit 1;; esac
"""
FUNCTIONS = "".join(
    f"""{name}() {{
  builtin printf '%s\\0' "$PWD" {name} "$@" '{END}' >> "$FUZZ_LOGS/$FUZZ_LINE.$BASHPID"
  builtin return {int(name == "no")}
}}
"""
    for name in PROGRAMS
)
"""The same as functions, which cost no process; `command` still finds the programs."""
DRIVER = (
    FUNCTIONS
    + """
ulimit -f 64
number=0
while IFS= read -r -d '' fuzz_text; do
  number=$((number + 1))
  ( ulimit -t 2; cd "$SCRATCH" && exec >/dev/null 2>&1 </dev/null
    export FUZZ_LINE=$number; unset SCRATCH number; FUNCNEST=20; OLDPWD=
    eval "$fuzz_text" )
done < "$LINES_FILE"
wait
"""
)
OUTSIDE = re.compile(r"[<>&|]\s*[\"'$\\{(]*\s*[/~]|\bkill\b|\bexec\b|\bulimit\b|fuzz_|FUZZ")
NASTY = "'\"\\`$(){}[];&|<>#!~*?=,\n\t -+@%^:"


class Lines:
    """A grammar for command lines that are hard to read."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = 0
        self.calm = False

    def line(self) -> str:
        """One more line; every third is damaged."""
        self.number += 1
        self.calm = self.random.random() < 0.6
        text = self.script(3)
        if self.random.random() < 0.35:
            for _ in range(self.random.randint(1, 3)):
                text = self.damaged(text)
        return text

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def damaged(self, text: str) -> str:
        at = self.random.randint(0, len(text))
        match self.random.randint(0, 3):
            case 0:
                return text[:at] + text[at + 1 :]
            case 1:
                return text[:at] + self.random.choice(NASTY) + text[at:]
            case 2:
                other = self.random.randint(0, len(text))
                return text[:at] + text[min(at, other) : max(at, other)] + text[at:]
            case _:
                return (
                    text[:at] + self.pick("\\\n", "\\ ", "$(ok)", "`ok`", " # ", "''") + text[at:]
                )

    def script(self, depth: int) -> str:
        parts = [self.statement(depth) for _ in range(self.random.choice((1, 1, 1, 2, 2, 3)))]
        text = parts[0]
        for part in parts[1:]:
            text += (
                self.pick(
                    "; ", ";", " && ", "&&", " || ", " | ", "|", "\n", " & ", " |& ", ";\n", " &&\n"
                )
                + part
            )
        return text

    def statement(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.6:
            return self.command(depth)
        inner = self.script(depth - 1)
        if self.calm:
            return self.pick(
                f"({inner})", f"{{ {inner}; }}", f"! {self.command(depth)}", f"{inner} {self.redirect()}",
                f"if {self.command(0)}; then {inner}; else {self.script(depth - 1)}; fi",
                f"for x in {self.words(depth)}; do {inner}; done", f"while no; do {inner}; done",
                f"x={self.word(depth)}; {inner}", f"[ -f f ] && {inner}", f"{inner} # {self.word(0)}",
                f"cd {self.pick('a', 'b', 'a/b', '..', 'nowhere', 'a/..')} {self.pick('&&', ';', '||')} {inner}",
                f"cd {self.pick('a', 'b', '..')} {self.pick('&&', '||')} {self.command(0)} {self.redirect()} | {inner}; cat f",
                self.runner(inner, depth),
                f"case {self.word(0)} in f|g*) {inner};; *) {self.command(0)};; esac", f"command {self.command(0)}",
            )  # fmt: skip
        return self.pick(
            f"({inner})", f"( {inner} )", f"{{ {inner}; }}", f"{{ {inner}\n}}", f"! {self.command(depth)}",
            f"if {self.command(0)}; then {inner}; fi",
            f"if {self.command(0)}; then {inner}; else {self.script(depth - 1)}; fi",
            f"if no; then {inner}; elif ok; then {self.command(0)}; fi",
            f"for x in {self.words(depth)}; do {inner}; done",
            f"for x in {self.word(depth)}\ndo\n{inner}\ndone",
            f"while no; do {inner}; done", f"until ok; do {inner}; done",
            f"while read -r y; do {inner}; done",
            f"case {self.word(0)} in f|g*) {inner};; *) {self.command(0)};; esac",
            f"[ -f f ] && {inner}", f"[[ -n {self.word(0)} ]] && {inner}",
            f"x={self.word(depth)}; {inner}", f"y={self.word(depth)}\n{inner}",
            f"fun() {{ {inner}; }}; fun", f"function fun {{ {inner}; }}; fun {self.word(0)}",
            f"cd {self.pick('a', 'b', 'a/b', '..', '.', 'nowhere', 'a/..', '$x')} {self.pick('&&', ';', '||')} {inner}",
            f"{inner} {self.redirect()}", f"time {self.command(depth)}", f"eval {self.quoted(inner)}",
            f"bash -c {self.quoted(inner)}", f"command {self.command(0)}", f"x=(a b); {inner}",
            f"((1+1)) && {inner}", f"select x in a; do {inner}; break; done", f"coproc {self.command(0)}",
            f"trap {self.quoted(self.command(0))} EXIT; {inner}", f"set -- {self.words(0)}; {inner}",
            f"{inner} # {self.word(0)}", f"alias ok=no; {inner}", f"export x=1; {inner}",
            self.builtin(inner), self.builtin(inner), self.runner(inner, depth), self.runner(inner, depth),
            f"shopt -s extglob; {inner}", f"x+=a; {inner}", f"a[1]=2; {inner}", f"IFS=f; {inner}",
        )  # fmt: skip

    def builtin(self, inner: str) -> str:
        """Builtins that set variables, evaluate text or change what later words mean."""
        hidden = self.pick("x[$(ok)]", "a[$(no f)]", "x", "y")
        return self.pick(
            f"read -r y <<< {self.word(0)}; {inner}", f"read x y < f; {inner}", f"printf -v x %s {self.word(0)}; {inner}",
            f"printf -v '{hidden}' %s f; {inner}", f"mapfile -t x < f; {inner}", f"readarray -C 'ok f' -c 1 x < f; {inner}",
            f"declare x={self.word(0)}; {inner}", f"declare -n x=y; y={self.word(0)}; {inner}", f"local x=1; {inner}",
            f"declare -a x=($(ok)); {inner}", f"typeset x=f; {inner}", f"readonly y={self.word(0)}; {inner}",
            f". ./f; {inner}", f"source f; {inner}", f"(( {hidden} )); {inner}", f"let '{hidden}=1'; {inner}",
            f"[[ -v {hidden} ]] && {inner}", f"[[ {hidden} -eq 1 ]] || {inner}", f"test -v '{hidden}' || {inner}",
            f"[ -v '{hidden}' ] || {inner}", f"y='$(ok)'; ls ${{y@P}}; {inner}", f"x=y; ls ${{!x}}; {inner}",
            f"unset '{hidden}'; {inner}", f"x=f; ls ${{x/f/$(ok)}} ${{x:{hidden}}} ${{x^^}}; {inner}", f"ls $(( {hidden} ))",
            f"coproc x {{ {inner}; }}", f"coproc {inner}", f"ls <({inner}) >(ok)", f"{inner} 0<&1 1>&2", f"{inner} <&-",
            f"while read -r x; do {inner}; done < f", f"hash -p ./f ok; {inner}", f"builtin eval {self.quoted(inner)}",
            f"getopts ab x; {inner}", f"pushd a; {inner}; popd", f"set -f; {inner}", f"set -- f g; ls $1 $@; {inner}",
            f"enable -n test; {inner}", f"PATH=a:$PATH; {inner}", f"BASH_ENV=f; {inner}", f"IFS=x ls $x; {inner}",
            f"for ((i=0; i<2; i++)); do {inner}; done", f"case f in {self.word(0)}) {inner};& *) ok;; esac",
            f"ls() {{ ok f; }}; {inner}", f"function git {{ {inner}; }}; git f", f"unset -f ls; {inner}", "x=$'ok\\nno'; $x",
        )  # fmt: skip

    def runner(self, inner: str, depth: int) -> str:
        """Programs that run the rest of their words, and texts that are handed to a shell."""
        command = self.command(0)
        return self.pick(
            f"env {command}", f"env FOO=f {command}", f"env -i {command}", f"env -S {self.quoted(command)}", f"nice {command}",
            f"nice -n 5 {command}", f"timeout 2 {command}", f"timeout -k 1 2s {command}", f"nohup {command}", f"command {command}",
            f"builtin {command}", f"echo {self.words(0)} | xargs {command}", f"xargs -n 1 {command} < f", f"xargs -I % {command} % < f",
            f"bash -c {self.quoted(inner)}", f"sh -c {self.quoted(command)}", f"bash -c {self.quoted(inner)} x {self.word(0)}",
            f"bash <<'E'\n{inner}\nE", f"bash <<< {self.quoted(command)}", f"echo {self.quoted(command)} | bash", f"eval {self.quoted(inner)}",
            f"eval {command}", f"stdbuf -o0 {command}", f"env nice timeout 2 {command}", f"bash -c 'ok \"$@\"' x {self.words(0)}",
            f"exec {command}", f"time -p {command}", f"env x=1 bash -c {self.quoted(command)}", f"bash f; {inner}",
        )  # fmt: skip

    def command(self, depth: int) -> str:
        name = self.random.choice(PROGRAMS)
        if self.random.random() < 0.08:
            name = self.pick(
                f'"{name}"',
                f"'{name}'",
                f"\\{name}",
                f"{name[0]}''{name[1:]}",
                "$x",
                f"{name[:1]}\\\n{name[1:]}",
                "{ok,f}",
            )
        text = f"{name} {self.words(depth)}" if self.random.random() < 0.9 else name
        if self.random.random() < 0.12:
            text = f"{text} {self.redirect()}"
        if self.random.random() < 0.04:
            text = f"{self.redirect()} {text}"
        if self.random.random() < 0.06:
            text = f"{self.pick('x', 'LANG', 'FOO')}={self.word(0)} {text}"
        if self.random.random() < 0.06:
            quote = self.pick("", "'", '"', "\\")
            end = quote if quote != "\\" else ""
            body = self.pick("plain", "$(ok)", "`ok`", "$x", "a\\\nb", "E\n", "\tE", "'", '"')
            text = f"{text} <<{self.pick('', '', '-')}{quote}E{end}{self.pick('', ' | ok', '; ok', ' >f', ' && ok', ' &')}\n{body}\nE"
        return text

    def redirect(self) -> str:
        out = f"OUT{self.number:06}X"
        return self.pick(
            f">{out}", f"> {out}", f">>{out}", f"2>{out}", f"&>{out}", f">|{out}", f">& {out}", "<f", "< f", "2>&1", ">&2",
            f"<>{out}", f"1>{out}", '<<<"$x"', "<<< f", f'>"{out}"', f">O'UT{self.number:06}X'", f"> {out} f", "2>/dev/null",
        )  # fmt: skip

    def words(self, depth: int) -> str:
        count = self.random.choice((1, 1, 2, 2, 3))
        return self.pick(" ", " ", " ", "  ", "\t", " \\\n").join(
            self.word(depth) for _ in range(count)
        )

    def word(self, depth: int) -> str:
        return "".join(self.piece(depth) for _ in range(self.random.choice((1, 1, 1, 1, 2, 3))))

    def piece(self, depth: int) -> str:
        if self.calm and self.random.random() < 0.8:
            return self.pick(
                "f", "g.py", "a", "-n", "--all", "x=1", "s\\ p", "'s p'", '"s p"', '"a;b"', "'a|b'", "$x", '"$x"',
                "${x}", '"${y}z"', "a/*", "*.py", "{a,b}", "~/f", "$'a\\nb'", '"\\""', "'\\'", "\\$x", "\\;", '""', "$?",
                "$((1+2))", "a#b", "1", "é", '"a\\\nb"', "'a\nb'", "'{a,b}'", "f{a,b}", "{}", "\\\\", '"$(ok f)"', "$(ok)",
            )  # fmt: skip
        if depth > 0 and self.random.random() < 0.15:
            inner = self.script(depth - 2)
            return self.pick(
                f"$({inner})",
                f"`{inner}`",
                f'"$({inner})"',
                f"<({inner})",
                f"$(( $({inner}) ))",
                f"${{x:-$({inner})}}",
                f">({inner})",
            )
        return self.pick(
            "f", "g.py", "a", "-n", "--all", "x=1", "s\\ p", "'s p'", '"s p"', '"a;b"', "'a|b'", "$x", '"$x"', "${x}", '"${y}z"', "${x:-f}",
            "*", "*.py", "a/*", "?", "[fg]*", "{a,b}", "{1..3}", "f{a,b}", "{}", "{a", "a}", "~", "~/f", "a~", "$'a\\nb'", "$'\\x66'", "$'\\''",
            '"\\""', "'\\'", '"\\$x"', "\\$x", "\\\\", "\\'", "$((1+2))", "$?", "$#", "$@", '"$@"', "$1", "$$", "$", "#", "a#b", "!", "!x", "if",
            "then", "do", "done", "in", "time", "{", "}", "[", "]", "]]", "=", "==", "%", "^", "@", "+(f)", "@(f|g)", '$"f"', '""', "''", "\\a", "-", "--",
            '"a\\\nb"', "'a\nb'", "\\*", '"*"', "'{a,b}'", '{"a",b}', "$[1+1]", "${#x}", "${!x}", "1", "2", "é", "ü", "{é", "ü=1", "$é", "😀",
        )  # fmt: skip

    def quoted(self, text: str) -> str:
        return "'" + text.replace("'", "'\\''") + "'"


def run(lines: list[str], folder: Path) -> tuple[list[list[tuple[str, list[str]]]], set[str]]:
    """What bash called for each line, with where it stood; and the files it made."""
    shims, logs, scratch = folder / "shims", folder / "logs", folder / "deep" / "er" / "scratch"
    for path in (shims, logs, scratch):
        path.mkdir(parents=True)
    for name in PROGRAMS:
        (shims / name).write_text(SHIM)
        (shims / name).chmod(0o755)
    for name in RUNNERS:
        if (program := shutil.which(name)) and not (shims / name).exists():
            (shims / name).symlink_to(program)
    for name in FILES:
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).write_text("x\n")
    (folder / "lines").write_bytes(b"".join(line.encode() + b"\0" for line in lines))
    environ = {
        "PATH": str(shims), "FUZZ_LOGS": str(logs), "SCRATCH": str(scratch), "HOME": str(scratch),
        "LINES_FILE": str(folder / "lines"), "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    bash = shutil.which("bash") or "/bin/bash"
    subprocess.run(
        [bash, "--norc", "-c", DRIVER],
        env=environ,
        cwd=scratch,
        check=False,
        capture_output=True,
        start_new_session=True,  # an interactive shell would stop everything on our terminal
    )
    made = {path.name for path in scratch.rglob("OUT*")}
    found: list[list[tuple[str, list[str]]]] = [[] for _ in lines]
    for log in logs.iterdir():
        found[int(log.name.partition(".")[0]) - 1] += _calls(log)
    return found, made


def _calls(log: Path) -> Iterator[tuple[str, list[str]]]:
    for record in log.read_bytes().decode(errors="surrogateescape").split(f"\0{END}\0")[:-1]:
        cwd, *argv = record.split("\0")
        yield cwd, argv


def fits(words: tuple[ShellWord, ...], argv: list[str]) -> bool:
    """Whether a call is what these words can become."""
    if not words:
        return not argv
    first, rest = words[0], words[1:]
    most = 1 if first.single else len(argv)
    least = 1 if first.single or first.kind == "glob" else 0
    return any(
        all(_one(first, word, at) for at, word in enumerate(argv[:count]))
        and fits(rest, argv[count:])
        for count in range(least, min(most, len(argv)) + 1)
    )


def _one(word: ShellWord, given: str, at: int) -> bool:
    if word.kind == "plain":
        pipes = word.text == "/dev/fd/63" and re.fullmatch(r"/dev/fd/\d+", given)
        return word.text == given or bool(pipes)
    if word.kind == "glob":
        return given == word.text or fnmatchcase(given, word.text)
    return at > 0 or given.startswith(word.text)


def accepted(found: CommandPlan) -> bool:
    """Whether the plan claims to know all that runs; a program of ours may need its own rule."""
    return not found.unclear and all(
        step.needs != "exact" or (step.argv[:1] and step.argv[0].value in PROGRAMS)
        for step in found.steps
    )


def unsound(found: CommandPlan, calls: list[tuple[str, list[str]]]) -> str:
    """What ran that the plan does not know of, or knows to be elsewhere."""
    for cwd, argv in calls:
        steps = [step for step in found.steps if fits(step.argv, argv)]
        if not steps:
            return f"ran {argv}"
        if argv[0] == "cat" and not any(_placed(step, argv, cwd) for step in steps):
            return f"ran {argv} in {cwd}"
    return ""


def _placed(step: CommandStep, argv: list[str], cwd: str) -> bool:
    """Whether the plan has each plain operand of `cat` where the program really stood."""
    if step.needs != "nothing" or any(word.kind != "plain" for word in step.argv):
        return True
    targets = {os.path.realpath(access.target) for access in step.accesses}
    operands = [word for word in argv[1:] if word and not word.startswith(("-", "/dev/"))]
    return all(os.path.realpath(os.path.join(cwd, word)) in targets for word in operands)


class Compared(msgspec.Struct):
    """What a comparison found."""

    lines: int = 0
    accepted: int = 0
    wrong: list[tuple[str, str]] = msgspec.field(default_factory=list[tuple[str, str]])
    """Lines that did more than their plan says, and what."""
    slowest: tuple[float, str] = (0.0, "")
    """The most processor time that judging one line took, in seconds, and the line."""


def compare(count: int, seed: int, folder: Path) -> Compared:
    """Judge lines and run them with bash: which did more than their plan says."""
    grammar = Lines(seed)
    lines = [line for line in (grammar.line() for _ in range(count)) if not OUTSIDE.search(line)]
    lines = [line for line in lines if "\0" not in line]
    called, made = run(lines, folder)
    scratch = str(folder / "deep" / "er" / "scratch")
    found = Compared(len(lines))
    for line, calls in zip(lines, called, strict=True):
        begun = process_time()
        made_plan = plan_command(line, cwd=scratch, home=scratch)
        decide_permission(
            Permissions(folders=(scratch,)),
            ToolUse("Bash", (Access("exec", line),), scratch, scratch),
        )
        found.slowest = max(found.slowest, (process_time() - begun, line))
        if not accepted(made_plan):
            continue
        found.accepted += 1
        if why := unsound(made_plan, calls) or _wrote(line, made_plan, made):
            found.wrong.append((line, why))
    return found


def _wrote(line: str, found: CommandPlan, made: set[str]) -> str:
    """A file that the line made and the plan does not know of."""
    mine = set(re.findall(r"OUT\d{6}X", line.replace("'", "").replace('"', ""))) & made
    known = {
        access.target.rpartition("/")[2] for access in found.accesses if access.kind == "write"
    }
    return f"wrote {mine - known}" if mine - known else ""


def main(count: int, seed: int) -> int:
    """Compare in batches, so that a long run shows what it found on the way."""
    total = Compared()
    done = 0
    plan_command("ls", cwd="/", home="/")  # loads the grammar
    while done < count:
        batch = min(BATCH, count - done)
        with tempfile.TemporaryDirectory() as folder:
            found = compare(batch, seed + done, Path(folder).resolve())
        done += batch
        total.accepted += found.accepted
        total.wrong += found.wrong
        total.slowest = max(total.slowest, found.slowest)
        worst, line = total.slowest
        print(
            f"{done} lines, {total.accepted} accepted, {len(total.wrong)} unsound,"
            f" worst {1000 * worst:.2f} ms CPU ({len(line)} characters)",
            flush=True,
        )
        for line, why in found.wrong[:40]:
            print(f"  {line!r}\n    {why}", flush=True)
    return 1 if total.wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
