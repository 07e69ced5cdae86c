"""`travois completion`: scripts by which shells complete commands, flags and their values."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator

from travois.cli.command_tree import CommandFlag, CommandNode, read_command_tree
from travois.terminal import CommandParsers, add_command

COMPLETION_HELP = """\
examples:
  travois completion bash > ~/.local/share/bash-completion/completions/travois
  travois completion zsh > ~/.zfunc/_travois      with fpath+=~/.zfunc before compinit
  travois completion fish > ~/.config/fish/completions/travois.fish
"""


def register_completion(commands: CommandParsers) -> None:
    """Add the `travois completion` command."""
    what = "print the completion script of a shell"
    top = add_command(commands, "completion", what=what, more=COMPLETION_HELP)
    top.add_argument("shell", choices=tuple(SHELLS), help="the shell that is to complete")
    top.set_defaults(run=run_completion)


def run_completion(args: Namespace) -> int:
    """Print the completion script of a shell."""
    # Not `print_line`: it would mask what looks like a secret, and a script must stay as it is.
    print(SHELLS[args.shell](read_command_tree()))  # noqa: T201
    return 0


def build_bash_completion(tree: CommandNode) -> str:
    """Build the completion script of bash."""
    return BASH_SCRIPT.format(
        paths="|".join(_quote_path(node) for node in tree.walk() if node.path),
        words="\n".join(
            f"    {_quote_path(node)}) words='{_words(node)}' ;;" for node in tree.walk()
        ),
        values="\n".join(_value_cases(tree, "      {case}) words='{words}' ;;")),
    )


def build_zsh_completion(tree: CommandNode) -> str:
    """Build the completion script of zsh, with a description beside each word."""
    words = (
        f"    {_quote_path(node)}) found=({' '.join(map(_zsh_word, _described(node)))}) ;;"
        for node in tree.walk()
    )
    return ZSH_SCRIPT.format(
        paths="|".join(_quote_path(node) for node in tree.walk() if node.path),
        words="\n".join(words),
        values="\n".join(_value_cases(tree, "      {case}) found=({words}) ;;")),
    )


def build_fish_completion(tree: CommandNode) -> str:
    """Build the completion script of fish."""
    paths = " ".join(_quote_path(node) for node in tree.walk() if node.path)
    lines = [line for node in tree.walk() for line in _fish_lines(node)]
    return FISH_SCRIPT.format(paths=paths, lines="\n".join(lines))


def _fish_lines(node: CommandNode) -> Iterator[str]:
    """Yield the lines of one command for fish."""
    start = f"complete -c travois -n '__travois_at \"{' '.join(node.path)}\"'"
    for child in node.commands:
        yield f"{start} -f -a {child.path[-1]} -d '{_plain(child.what)}'"
    for flag in node.flags:
        if not flag.is_option:
            if flag.choices:
                yield f"{start} -f -a '{' '.join(flag.choices)}'"
            continue
        names = " ".join(_fish_name(name) for name in flag.names)
        yield f"{start} {names}{_fish_value(flag)} -d '{_plain(flag.what)}'"


def _fish_value(flag: CommandFlag) -> str:
    """Return what fish must know of a flag's value."""
    if flag.choices:
        return f" -x -a '{' '.join(flag.choices)}'"
    return " -r" if flag.value else ""


def _fish_name(name: str) -> str:
    return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"


def _value_cases(tree: CommandNode, line: str) -> Iterator[str]:
    """Yield a line for each flag whose values are known, in each command that has it."""
    for node in tree.walk():
        for flag in node.flags:
            if flag.choices and flag.is_option:
                case = "|".join(f'"{" ".join(node.path)} {name}"' for name in flag.names)
                yield line.format(case=case, words=" ".join(flag.choices))


def _words(node: CommandNode) -> str:
    return " ".join(word for word, _ in _described(node))


def _described(node: CommandNode) -> Iterator[tuple[str, str]]:
    """Yield the words that can follow a command, each with what it means."""
    yield from ((child.path[-1], child.what) for child in node.commands)
    for flag in node.flags:
        yield from ((word, flag.what) for word in _written_forms(flag))


def _written_forms(flag: CommandFlag) -> tuple[str, ...]:
    return flag.names if flag.is_option else flag.choices


def _zsh_word(word: tuple[str, str]) -> str:
    name, what = word
    return f"'{name}:{_plain(what).replace(':', chr(92) + ':')}'"


def _quote_path(node: CommandNode) -> str:
    return f"'{' '.join(node.path)}'"


def _plain(text: str) -> str:
    """Return a description that can stand in single quotes."""
    return text.replace("'", "’").replace("\\", "")


BASH_SCRIPT = """\
# bash completion for travois
_travois() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} path='' words='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${{path:+$path }}${{COMP_WORDS[i]}}" in
      {paths}) path="${{path:+$path }}${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path" in
{words}
  esac
  case "$before" in
    -*) case "$at $before" in
{values}
    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _travois travois"""
ZSH_SCRIPT = """\
#compdef travois
# zsh completion for travois
_travois() {{
  local at='' word before=$words[CURRENT-1]
  for word in ${{words[2,CURRENT-1]}}; do
    case "${{at:+$at }}$word" in
      {paths}) at="${{at:+$at }}$word" ;;
    esac
  done
  local -a found
  case "$at" in
{words}
  esac
  case "$before" in
    -*) case "$at $before" in
{values}
    esac ;;
  esac
  _describe 'travois' found || _files
}}
if [ "$funcstack[1]" = _travois ]; then _travois "$@"; else compdef _travois travois; fi"""
FISH_SCRIPT = """\
# fish completion for travois
function __travois_at
    set -l path
    for word in (commandline -opc)[2..-1]
        if contains -- (string join ' ' -- $path $word) {paths}
            set path $path $word
        end
    end
    set -l at (string join ' ' -- $path)
    test "$at" = "$argv[1]"
end
{lines}"""
SHELLS: dict[str, Callable[[CommandNode], str]] = {
    "bash": build_bash_completion,
    "zsh": build_zsh_completion,
    "fish": build_fish_completion,
}
