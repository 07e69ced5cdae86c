"""The flags of `travois`, and what they ask for."""

from __future__ import annotations

import os
import re
from argparse import (
    SUPPRESS,
    ArgumentParser,
    ArgumentTypeError,
    HelpFormatter,
    Namespace,
    RawDescriptionHelpFormatter,
)
from pathlib import Path

from travois.compose.options import PICK, Options
from travois.core.display_text import complain
from travois.core.errors import Fault
from travois.permissions.rules import TOOLS, split
from travois.providers.options import LEVELS, worth
from travois.version import __version__

COMMANDS = {
    "sessions": "list, show, compare, export, rename, measure and prune sessions",
    "search": "find a session by what was said in it, also of other agents",
    "memory": "what is remembered, why, and how to change it",
    "dream": "put memories in order between sessions",
    "audit": "prove from its log what a session sent",
    "context": "what is in the window, what was set aside, and how to get it back",
    "notes": "the notes that the model keeps on a session",
    "cost": "what a session cost, and what its cache missed and why",
    "inspect": "look inside a session in the browser",
    "compact": "set the older part of a conversation aside",
    "rewind": "take files and conversation back to an earlier turn",
    "agents": "watch the agents of a session; the kinds there are",
    "mail": "write to other sessions and teams",
    "permissions": "why something may run or not; dry runs of rules",
    "config": "settings, and which file decided them",
    "plugins": "the plugins that count here, and what they bring",
    "mcp": "servers that lend tools: list, test, add, approve, log in",
    "import": "take along what another agent keeps: settings, memories, sessions",
    "trust": "let a folder's own settings hold, or no longer",
    "try": "run a command in a copy, see what it changes, keep that or not",
    "acp": "serve an editor that speaks the Agent Client Protocol",
    "exec": "one task, asked for as programs ask Codex",
    "models": "the models there are, what is known of each, and whether it works",
    "doctor": "what works on this machine, and how to mend the rest",
    "demo": "a tour of a minute: no key, no network",
    "lab": "a local API simulator to test agents with",
}
"""Commands; each has a `register_NAME` in the module of its name, or in that of `MODULES`."""
IDLE = (
    *("advisor", "betas", "debug-file", "resume-drops-turn"),
    *("task-budget", "teammate-mode", "thinking-display"),
)
"""Flags of other agents that mean nothing here; then such that take no value."""
IDLE_SWITCHES = (
    *("allow-dangerously-skip-permissions", "chrome", "no-chrome", "ide"),
    *("prompt-suggestions", "session-mirror"),
)
FORMATS = ("text", "json", "stream-json", "codex-json")
MODULES = {
    "search": "commands.sessions",
    **dict.fromkeys(("cost", "compact", "audit", "notes"), "commands.context"),
    "mail": "commands.agents",
    "trust": "commands.permissions",
    "plugins": "commands.mcp",
    **dict.fromkeys(("doctor", "config"), "commands.models"),
    "import": "commands.import_command",
    "try": "commands.try_command",
    "demo": "cli.lab",
    **{name: f"cli.{name}" for name in ("acp", "exec", "inspect", "lab")},
}

ABOUT = """\
A coding agent in your terminal, with any model.

  travois                             talk, in this folder
  travois -p "fix the failing test"   one task, then exit (for scripts)
  git diff | travois -p "review"      standard input comes before the prompt
  travois -c                          go on with the last session of this folder
  travois -r                          choose the session to go on with

In a conversation, /help lists commands, Tab completes them, Esc stops what runs, Ctrl-D leaves.
"""
ENDING = """\
commands:
{commands}

exit codes:
  0 done   1 the turn failed or hit a limit   2 bad input or settings
  3 done, but a tool call was denied (only with --fail-on-denial)
  129 hung up (SIGHUP)   130 interrupted (SIGINT)   143 terminated (SIGTERM);
  these three leave a session to resume

Models: ANTHROPIC_API_KEY (ANTHROPIC_BASE_URL), OPENAI_API_KEY (OPENAI_BASE_URL).
State lives in TRAVOIS_HOME (default ~/.local/state/travois).
"""


def parser() -> ArgumentParser:
    """The flags of `travois` itself."""
    listing = "\n".join(f"  {name:<11} {what}" for name, what in COMMANDS.items())
    top = ArgumentParser(
        prog="travois",
        usage="travois [flags] [prompt]   |   travois COMMAND --help",
        description=ABOUT,
        epilog=ENDING.format(commands=listing),
        formatter_class=_formatter,
    )
    top.add_argument("prompt", nargs="?", help="what to do")
    top.add_argument("-p", "--print", action="store_true", help="run one task and exit")
    version = f"{__version__} (Travois)"
    top.add_argument("-v", "--version", action="version", version=version)
    shared(top)
    return top


def _formatter(prog: str) -> HelpFormatter:
    """Help as wide as the terminal; the parser asks for one with every flag, so it is cheap."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
    except (OSError, ValueError):
        columns = 80
    return RawDescriptionHelpFormatter(prog, width=max(columns, 20) - 2)


def shared(top: ArgumentParser) -> None:
    """Add the flags that say how sessions are opened."""
    _talking(top)
    _limits(top)
    _sessions(top)
    _rights(top)
    _elsewhere(top)


def _elsewhere(top: ArgumentParser) -> None:
    """Flags that hosts of other agents pass."""
    add = top.add_argument_group("servers of tools").add_argument
    what = "servers as a file or JSON"
    add("--mcp-config", action="append", nargs="+", default=[], metavar="FILE|JSON", help=what)
    add("--strict-mcp-config", action="store_true", help="no servers but those of --mcp-config")
    for name in IDLE:
        add(f"--{name}", default="", help=SUPPRESS)
    for name in IDLE_SWITCHES:
        add(f"--{name}", action="store_true", help=SUPPRESS)
    add("--debug", nargs="?", const="on", default="", help=SUPPRESS)
    # What it asks for is always so: nothing of the machine stands in the system text.
    add("--exclude-dynamic-system-prompt-sections", action="store_true", help=SUPPRESS)
    add("--thinking", default="", choices=("adaptive", "enabled", "disabled"), help=SUPPRESS)
    add("--max-thinking-tokens", type=int, default=-1, help=SUPPRESS)


def understood(argv: list[str]) -> Namespace:
    """What the words ask for; a program that drives us may pass flags that mean nothing here."""
    top = parser()
    if "stream-json" in argv:
        args, strange = top.parse_known_args(argv)
    else:
        args, strange = top.parse_args(argv), list[str]()
    if (args.input_format, args.output_format) == ("stream-json", "codex-json"):
        top.error("codex-json tells of one task: it takes no --input-format stream-json")
    named = (*IDLE, *IDLE_SWITCHES, "debug")
    given = [name for name in named if getattr(args, name.replace("-", "_"))]
    for name in (*(f"--{name}" for name in given), *strange):
        complain(f"travois: {name} means nothing here and is ignored\n")
    if strange and args.input_format == "stream-json":
        args.prompt = None  # it may be the value of a flag that is not known
    return args


def _talking(top: ArgumentParser) -> None:
    add = top.add_argument_group("model and output").add_argument
    add("--model", default="", metavar="NAME", help="provider/id, or an id of the catalogue")
    add("--fallback-model", default="", metavar="A,B", help="who answers while it cannot")
    what = f"how much it thinks: {', '.join(LEVELS)}"
    add("--effort", default="", choices=LEVELS, metavar="LEVEL", help=what)
    what = "use no more of the window, as in 200k"
    add("--autocompact", type=_size, default=0, metavar="TOKENS", help=what)
    add("--output-format", default="text", choices=FORMATS, help="how headless runs speak")
    add("--input-format", default="text", choices=("text", "stream-json"))
    add("--include-partial-messages", action="store_true", help="stream-json: deltas as they come")
    add("--replay-user-messages", action="store_true", help="stream-json: echo what was read")
    add("--include-hook-events", action="store_true", help="stream-json: tell of hooks")
    add("--forward-subagent-text", action="store_true", help="stream-json: what agents say, too")
    add("--json-schema", default="", metavar="JSON", help="the form that the answer must have")
    for name, what in (("system-prompt", "replace"), ("append-system-prompt", "add to")):
        add(f"--{name}", default="", metavar="TEXT", help=f"{what} the system prompt")
        add(f"--{name}-file", default="", metavar="FILE", help=f"{what} it with that of a file")
    add("--agent", default="", metavar="NAME", help="talk to an agent of this kind")
    add("--agents", default="", metavar="JSON", help="more kinds of agents, by name")
    add("--plugin-dir", action="append", default=[], metavar="DIR", help="a plugin for this run")
    add("--settings", default="", metavar="FILE|JSON", help="more settings for this run")
    add("--setting-sources", metavar="LIST", help="of user, project, local; empty for none")
    what = "nothing that lies about: no instruction files, skills, agents, hooks, memories"
    add("--bare", "--safe-mode", action="store_true", help=what)
    add("--disable-slash-commands", action="store_true", help="no skills and commands of yours")
    what = "lines only, as screen readers like it"
    add("--plain", "--ax-screen-reader", action="store_true", help=what)
    add("--verbose", action="store_true", help=SUPPRESS)


def _limits(top: ArgumentParser) -> None:
    add = top.add_argument_group("limits, for all agents together").add_argument
    add("--max-turns", type=int, default=0, metavar="N", help="stop after N model calls")
    add("--max-budget-usd", type=float, default=0.0, metavar="USD", help="never spend more")
    add("--max-tokens", type=int, default=0, metavar="N", help="never use more, cached or not")
    add("--max-seconds", type=float, default=0.0, metavar="S", help="stop after so long")


def _sessions(top: ArgumentParser) -> None:
    add = top.add_argument_group("sessions").add_argument
    add("-c", "--continue", dest="latest", action="store_true", help="the last one of this folder")
    what = "go on with a session; without a name, choose one from a list"
    add("-r", "--resume", nargs="?", default="", const=PICK, metavar="ID|NAME", help=what)
    add("--fork-session", action="store_true", help="with -c or -r: branch off, leave it as it is")
    add("--resume-session-at", default="", metavar="UUID", help=SUPPRESS)
    add("--session-id", default="", metavar="UUID", help="the id of the new session")
    add("-n", "--name", default="", help="what to call it")
    what = "in a git worktree of its own"
    add("-w", "--worktree", nargs="?", const="", metavar="NAME", help=what)
    what = "work without a terminal: print the id and return"
    add("--bg", "--background", action="store_true", help=what)
    for name in ("init", "maintenance"):
        what = f"let Setup hooks ({name}) run first"
        add(f"--{name}", dest="setup", action="store_const", const=name, default="", help=what)
    add("--init-only", action="store_true", help="let Setup hooks run, and end")
    add("--no-session-persistence", action="store_true", help="keep nothing after the end")


def _rights(top: ArgumentParser) -> None:
    group = top.add_argument_group("permissions")
    modes = "default, plan, accept-edits, auto, dont-ask, bypass"
    group.add_argument("--permission-mode", default="", metavar="MODE", help=modes)
    for names, what, meaning in (
        (("--allowedTools", "--allowed-tools"), "RULE", 'such as "Bash(git diff:*)" Edit'),
        (("--disallowedTools", "--disallowed-tools"), "RULE", "always denied"),
        (("--add-dir",), "DIR", "more folders to work in"),
    ):
        group.add_argument(
            *names, action="append", nargs="+", default=[], metavar=what, help=meaning
        )
    group.add_argument("--tools", metavar="LIST", help='built-in tools, of which "" is none')
    what = (
        "no settings of files, no commands and no web but by --tools, nothing outside the folders"
    )
    group.add_argument("--restricted", action="store_true", help=what)
    what = "none: whatever would be asked about is denied"
    group.add_argument("--permission-prompts", default="", choices=("host", "none"), help=what)
    what = "a tool of a server that answers in place of a person"
    group.add_argument("--permission-prompt-tool", default="", metavar="TOOL", help=what)
    what = "exit with 3 if a tool call was denied (headless)"
    group.add_argument("--fail-on-denial", action="store_true", help=what)
    group.add_argument("--no-sandbox", action="store_true", help="run commands without walls")
    group.add_argument("--dangerously-skip-permissions", action="store_true", help=SUPPRESS)


def flat(groups: list[list[str]]) -> list[str]:
    """What a flag that may be repeated has gathered."""
    return [word for group in groups for word in group]


def _size(text: str) -> int:
    """A number of tokens as people write it; nothing for what the window asks for."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([km]?)", text.lower())
    if found is None and text != "auto":
        raise ArgumentTypeError(f"{text!r} is no number of tokens")
    scale = {"": 1, "k": 1_000, "m": 1_000_000}
    return round(float(found[1]) * scale[found[2]]) if found else 0


def _effort(args: Namespace) -> str:
    """How much is to be thought, however that was said."""
    if args.effort or args.max_thinking_tokens < 0:
        return args.effort or ("low" if args.thinking == "disabled" else "")
    return worth(args.max_thinking_tokens)


def _mode(args: Namespace) -> str:
    if args.dangerously_skip_permissions:
        return "bypass"
    return args.permission_mode or ("dont-ask" if args.permission_prompts == "none" else "")


def _tools(given: str) -> tuple[str, ...]:
    """The tools of a list; `Task` is what others call `Agent`."""
    from travois.settings.validate import nearest

    names = tuple("Agent" if name == "Task" else name for name in split(given))
    for name in names:
        if name not in TOOLS and "_" not in name:
            near = nearest(name, TOOLS)
            fix = f"Did you mean {near}?" if near else "`travois context` lists those there are."
            raise Fault(f"--tools: there is no tool {name!r}", fix=fix)
    return names


def _told(text: str, path: str, *, flag: str) -> str:
    """What is to stand in the system text: said as it is, or in a file."""
    if not path:
        return text
    if text:
        raise Fault(f"--{flag} and --{flag}-file exclude each other", fix="Use one of them.")
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Fault(f"--{flag}-file {path} cannot be read", why=str(error)) from None


def chosen(args: Namespace) -> Options:
    """The namespace as options of a session."""
    system, more = args.system_prompt, args.append_system_prompt
    return Options(
        cwd=os.getcwd(),
        model=args.model,
        fallback=tuple(filter(None, map(str.strip, args.fallback_model.split(",")))),
        effort=_effort(args),
        window=args.autocompact,
        mode=_mode(args),
        allowed=tuple(r for word in flat(args.allowedTools) for r in split(word)),
        disallowed=tuple(r for word in flat(args.disallowedTools) for r in split(word)),
        folders=tuple(flat(args.add_dir)),
        tools=None if args.tools in (None, "default") else _tools(args.tools),
        mcp=tuple(flat(args.mcp_config)),
        strict_mcp=args.strict_mcp_config,
        agent=args.agent,
        agents=args.agents,
        plugins=tuple(os.path.abspath(folder) for folder in args.plugin_dir),
        settings=args.settings,
        sources="none" if args.setting_sources == "" else args.setting_sources or "",
        bare=args.bare,
        restricted=args.restricted,
        commands=not args.disable_slash_commands,
        name=args.name,
        system=_told(system, args.system_prompt_file, flag="system-prompt"),
        append_system=_told(more, args.append_system_prompt_file, flag="append-system-prompt"),
        max_turns=args.max_turns,
        max_dollars=args.max_budget_usd,
        max_tokens=args.max_tokens,
        max_seconds=args.max_seconds,
        session_id=args.session_id,
        resume=args.resume,
        latest=args.latest,
        fork=args.fork_session,
        upto=args.resume_session_at,
        setup=args.setup or ("init" if args.init_only else ""),
        persist=not args.no_session_persistence,
        sandbox=not args.no_sandbox,
    )
