"""The command-line flags of `travois`, and their translation to session options."""

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

from travois.compose.options import PICK_SESSION, Options
from travois.core.display_text import write_stderr
from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports
from travois.permissions.rules import KNOWN_TOOLS, split_rules
from travois.providers.request import EFFORT_LEVELS, effort_for_thinking_tokens
from travois.version import __version__

with lazy_imports():
    from travois.settings import validate


COMMANDS = {
    "sessions": "list, show, compare, export, rename and prune sessions",
    "search": "search all sessions, including those of other agents",
    "memory": "show, edit and undo long-term memories",
    "dream": "consolidate memories between sessions",
    "audit": "check from the log what a session sent",
    "context": "show what is in the context window, and restore what was compacted",
    "notes": "show the notes the model keeps on a session",
    "cost": "show what a session cost, and its prompt cache misses",
    "inspect": "inspect a session in the browser",
    "compact": "compact a session: replace older messages with a summary",
    "rewind": "restore files and conversation to an earlier turn",
    "agents": "list agent types, and watch the subagents of a session",
    "mail": "send messages to other sessions and teams",
    "permissions": "explain why a tool call is allowed or denied; test rules",
    "config": "show settings, and which file each comes from",
    "skills": "list the skills of this folder, and what is wrong with their files",
    "plugins": "list plugins and packages that extend Travois, and switch packages",
    "mcp": "list, test, add, approve and log in to MCP servers",
    "import": "import settings, memories and sessions from another agent",
    "trust": "trust a folder's own settings, or revoke that trust",
    "try": "run a command on a copy, review the changes, keep or drop them",
    "acp": "serve an editor over the Agent Client Protocol",
    "fleet": "run many tasks unattended, on one machine or many",
    "schedule": "submit tasks to the fleet again and again, such as every night",
    "eval": "run cases against a model and check the answers",
    "exec": "run one task with the command line of `codex exec`",
    "serve": "keep a process ready that runs `travois -p` without the time of a start",
    "models": "list models, show their details, and test them",
    "doctor": "check this machine and explain how to fix problems",
    "completion": "print the completion script of a shell",
    "update": "show how to update Travois, or do it",
    "uninstall": "show what Travois has on this machine, and how to remove it",
    "demo": "a one-minute tour: no key, no network",
    "lab": "a local API simulator for testing agents",
}
"""Commands; each has a `register_NAME` in the module of its name, or as `COMMAND_MODULES` says."""
IGNORED_FLAGS = (
    *("advisor", "betas", "task-budget"),
    *("teammate-mode", "thinking-display"),
)
"""Flags of other agents that mean nothing here; then such that take no value."""
IGNORED_SWITCHES = (
    *("allow-dangerously-skip-permissions", "chrome", "no-chrome", "ide"),
    "prompt-suggestions",
)
OUTPUT_FORMATS = ("text", "json", "stream-json", "codex-json")
COMMAND_MODULES = {
    **dict.fromkeys(("compact", "notes"), "commands.context"),
    "import": "commands.import_command",
    **dict.fromkeys(("uninstall", "update"), "cli.update"),
    "serve": "cli.warm_server",
    "try": "commands.try_command",
    **{
        name: f"cli.{name}"
        for name in (
            *("acp", "completion", "demo", "eval", "exec", "fleet", "inspect", "lab"),
            "schedule",
        )
    },
}

TRAVOIS_HELP = """\
A coding agent in your terminal, with any model.

  travois                             start a conversation in this folder
  travois -p "fix the failing test"   run one task and exit (for scripts)
  git diff | travois -p "review"      standard input is added before the prompt
  travois -c                          continue the last session of this folder
  travois -r                          choose a session to resume

In a conversation: /help lists commands, Tab completes, Esc interrupts, Ctrl-D exits.
"""
TRAVOIS_HELP_EPILOG = """\
commands:
{commands}

exit codes:
  0 done   1 the turn failed   2 bad input or settings
  3 done, but a tool call was denied (only with --fail-on-denial)
  4 reached a limit   5 the model refused   75 the provider failed; try again later
  129 hung up (SIGHUP)   130 interrupted (SIGINT)   143 terminated (SIGTERM);
  after 1, 4, 75 and these three, `travois -p -r ID` goes on with the turn

Models: ANTHROPIC_API_KEY (ANTHROPIC_BASE_URL), OPENAI_API_KEY (OPENAI_BASE_URL).
Settings are in ~/.config/travois, state in ~/.local/state/travois, caches in ~/.cache/travois
(XDG variables are followed); TRAVOIS_HOME names one folder for all of it.
"""


def build_parser() -> ArgumentParser:
    """Build the parser for the flags of `travois` itself."""
    listing = "\n".join(f"  {name:<11} {what}" for name, what in COMMANDS.items())
    top = ArgumentParser(
        prog="travois",
        usage="travois [flags] [prompt]   |   travois COMMAND --help",
        description=TRAVOIS_HELP,
        epilog=TRAVOIS_HELP_EPILOG.format(commands=listing),
        formatter_class=_build_help_formatter,
    )
    top.add_argument("prompt", nargs="?", help="the task")
    top.add_argument("-p", "--print", action="store_true", help="run one task and exit")
    version = f"{__version__} (Travois)"
    top.add_argument("-v", "--version", action="version", version=version)
    add_session_flags(top)
    return top


def _build_help_formatter(prog: str) -> HelpFormatter:
    """Build the --help formatter, as wide as the terminal; argparse calls it per flag."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
    except (OSError, ValueError):
        columns = 80
    return RawDescriptionHelpFormatter(prog, width=max(columns, 20) - 2)


def add_session_flags(top: ArgumentParser) -> None:
    """Add the flags that say how sessions are opened."""
    _add_model_flags(top)
    _add_behaviour_flags(top)
    _add_limit_flags(top)
    _add_resume_flags(top)
    _add_permission_flags(top)
    _add_compatibility_flags(top)


def _add_compatibility_flags(top: ArgumentParser) -> None:
    """Add flags that hosts of other agents pass."""
    add = top.add_argument_group("MCP servers").add_argument
    what = "load MCP servers from a file or JSON"
    add("--mcp-config", action="append", nargs="+", default=[], metavar="FILE|JSON", help=what)
    add("--strict-mcp-config", action="store_true", help="use only the servers of --mcp-config")
    for name in IGNORED_FLAGS:
        add(f"--{name}", default="", help=SUPPRESS)
    for name in IGNORED_SWITCHES:
        add(f"--{name}", action="store_true", help=SUPPRESS)
    what = "write what happens to a log file in the folder of the state, and name it"
    add("--debug", nargs="?", const="on", default="", metavar="TOPICS", help=what)
    add("--debug-file", default="", metavar="FILE", help="the log file of --debug")
    # What it asks for is always so: nothing of the machine stands in the system text.
    add("--session-mirror", action="store_true", help=SUPPRESS)
    add("--exclude-dynamic-system-prompt-sections", action="store_true", help=SUPPRESS)
    add("--thinking", default="", choices=("adaptive", "enabled", "disabled"), help=SUPPRESS)
    add("--max-thinking-tokens", type=int, default=-1, help=SUPPRESS)


def parse_command_line(argv: list[str]) -> Namespace:
    """Parse the command line; with stream-json, unknown flags are ignored with a warning."""
    top = build_parser()
    if "stream-json" in argv:
        args, strange = top.parse_known_args(argv)
    else:
        args, strange = top.parse_args(argv), list[str]()
    if (args.input_format, args.output_format) == ("stream-json", "codex-json"):
        top.error("codex-json reports one task: it cannot be used with --input-format stream-json")
    given = [
        name
        for name in (*IGNORED_FLAGS, *IGNORED_SWITCHES)
        if getattr(args, name.replace("-", "_"))
    ]
    for name in (*(f"--{name}" for name in given), *strange):
        write_stderr(f"travois: {name} has no effect in Travois and is ignored\n")
    if strange and args.input_format == "stream-json":
        args.prompt = None  # it may be the value of a flag that is not known
    return args


def _add_model_flags(top: ArgumentParser) -> None:
    """Add the flags for the model and the output format."""
    add = top.add_argument_group("model and output").add_argument
    add("--model", default="", metavar="NAME", help="provider/id, or an id from `travois models`")
    add(
        "--fallback-model",
        default="",
        metavar="A,B",
        help="models to use while the main one is unavailable",
    )
    what = f"reasoning effort: {', '.join(EFFORT_LEVELS)}"
    add("--effort", default="", choices=EFFORT_LEVELS, metavar="LEVEL", help=what)
    what = "compact before the context exceeds this, e.g. 200k"
    add("--autocompact", type=_parse_token_count, default=0, metavar="TOKENS", help=what)
    add("--output-format", default="text", choices=OUTPUT_FORMATS, help="output format with -p")
    add(
        "--input-format",
        default="text",
        choices=("text", "stream-json"),
        help="input format with -p",
    )
    add(
        "--include-partial-messages",
        action="store_true",
        help="stream-json: include partial messages",
    )
    add("--replay-user-messages", action="store_true", help="stream-json: echo user messages")
    add("--include-hook-events", action="store_true", help="stream-json: include hook events")
    add("--forward-subagent-text", action="store_true", help="stream-json: include subagents' text")
    add("--json-schema", default="", metavar="JSON", help="JSON schema of the final answer")


def _add_behaviour_flags(top: ArgumentParser) -> None:
    """Add the flags for system prompts, agent types, plugins and settings."""
    add = top.add_argument_group("instructions, agents and settings").add_argument
    for name, what in (("system-prompt", "replace"), ("append-system-prompt", "append to")):
        add(f"--{name}", default="", metavar="TEXT", help=f"{what} the system prompt")
        add(
            f"--{name}-file",
            default="",
            metavar="FILE",
            help=f"{what} the system prompt from a file",
        )
    add("--agent", default="", metavar="NAME", help="talk to this agent type")
    add("--agents", default="", metavar="JSON", help="define more agent types, by name")
    add(
        "--plugin-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="load a plugin for this run",
    )
    add("--settings", default="", metavar="FILE|JSON", help="extra settings for this run")
    add(
        "--setting-sources",
        metavar="LIST",
        help="settings to read: user, project, local; empty for none",
    )
    what = "ignore instruction files, skills, agents, hooks and memories"
    add("--bare", "--safe-mode", action="store_true", help=what)
    add("--disable-slash-commands", action="store_true", help="disable skills and custom commands")
    what = "plain lines, for screen readers"
    add("--plain", "--ax-screen-reader", action="store_true", help=what)
    add("--verbose", action="store_true", help=SUPPRESS)


def _add_limit_flags(top: ArgumentParser) -> None:
    """Add the flags that limit turns, tokens, cost and time."""
    add = top.add_argument_group("limits (all agents together)").add_argument
    add("--max-turns", type=int, default=0, metavar="N", help="stop after N model calls")
    add("--max-budget-usd", type=float, default=0.0, metavar="USD", help="spend at most this much")
    add(
        "--max-tokens", type=int, default=0, metavar="N", help="use at most N tokens, cached or not"
    )
    add("--max-seconds", type=float, default=0.0, metavar="S", help="stop after S seconds")
    what = "what these hold for; by default turns and seconds per run, the others per session"
    add("--limits", default="", choices=("run", "session"), help=what)


def _add_resume_flags(top: ArgumentParser) -> None:
    """Add the flags that resume, fork or name sessions."""
    add = top.add_argument_group("sessions").add_argument
    add(
        "-c",
        "--continue",
        dest="latest",
        action="store_true",
        help="continue the last session of this folder",
    )
    what = "resume a session; without a name, choose from a list"
    add("-r", "--resume", nargs="?", default="", const=PICK_SESSION, metavar="ID|NAME", help=what)
    add("--fork-session", action="store_true", help="with -c or -r: continue in a copy")
    add("--resume-session-at", default="", metavar="UUID", help=SUPPRESS)
    add("--resume-drops-turn", metavar="UUID", help=SUPPRESS)
    add("--session-id", default="", metavar="UUID", help="id for the new session")
    what = "resume the session with this id, or create it"
    add("--resume-or-create", default="", metavar="UUID", help=what)
    what = "send the prompt only once per session, however often this is run (with -p)"
    add("--prompt-id", default="", metavar="NAME", help=what)
    what = "end, with all commands, when the parent process ends"
    add("--die-with-parent", action="store_true", help=what)
    what = "end when the Unix time in this file is over, or the file is removed"
    add("--lease", default="", metavar="FILE", help=what)
    add("-n", "--name", default="", help="name the session")
    what = "work in a separate git worktree"
    add("-w", "--worktree", nargs="?", const="", metavar="NAME", help=what)
    what = "run in the background: print the session id and return"
    add("--bg", "--background", action="store_true", help=what)
    for name in ("init", "maintenance"):
        what = f"run Setup hooks ({name}) first"
        add(f"--{name}", dest="setup", action="store_const", const=name, default="", help=what)
    add("--init-only", action="store_true", help="run Setup hooks and exit")
    what = "keep the session in a store, too: a folder, postgresql://…, s3://… (none: do not)"
    add("--session-store", default="", metavar="URL", help=what)
    add("--no-session-persistence", action="store_true", help="do not save the session")


def _add_permission_flags(top: ArgumentParser) -> None:
    """Add the flags for permissions, tools and the sandbox."""
    group = top.add_argument_group("permissions")
    modes = "default, plan, accept-edits, auto, dont-ask, bypass"
    group.add_argument("--permission-mode", default="", metavar="MODE", help=modes)
    for names, what, meaning in (
        (("--allowedTools", "--allowed-tools"), "RULE", 'allow, e.g. "Bash(git diff:*)" Edit'),
        (("--disallowedTools", "--disallowed-tools"), "RULE", "always deny"),
        (("--add-dir",), "DIR", "more folders the agent may work in"),
    ):
        group.add_argument(
            *names, action="append", nargs="+", default=[], metavar=what, help=meaning
        )
    group.add_argument("--tools", metavar="LIST", help='built-in tools to offer; "" for none')
    what = (
        "ignore settings files; no commands or web unless in --tools; no access outside the folders"
    )
    group.add_argument("--restricted", action="store_true", help=what)
    what = "none: deny whatever would need approval"
    group.add_argument("--permission-prompts", default="", choices=("host", "none"), help=what)
    what = "MCP tool that answers permission questions"
    group.add_argument("--permission-prompt-tool", default="", metavar="TOOL", help=what)
    what = "exit with code 3 if a tool call was denied (with -p)"
    group.add_argument("--fail-on-denial", action="store_true", help=what)
    group.add_argument("--no-sandbox", action="store_true", help="run commands without the sandbox")
    group.add_argument("--dangerously-skip-permissions", action="store_true", help=SUPPRESS)


def flatten_values(groups: list[list[str]]) -> list[str]:
    """Flatten the values of a repeatable command-line flag."""
    return [word for group in groups for word in group]


def _parse_token_count(text: str) -> int:
    """Parse the token count of --autocompact, such as 200k; zero for `auto`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([km]?)", text.lower())
    if found is None and text != "auto":
        raise ArgumentTypeError(f"{text!r} is not a number of tokens")
    scale = {"": 1, "k": 1_000, "m": 1_000_000}
    return round(float(found[1]) * scale[found[2]]) if found else 0


def _effort_of(args: Namespace) -> str:
    """Return the reasoning effort from any of the command-line flags for it."""
    if args.effort or args.max_thinking_tokens < 0:
        return args.effort or ("low" if args.thinking == "disabled" else "")
    return effort_for_thinking_tokens(args.max_thinking_tokens)


def _permission_mode_of(args: Namespace) -> str:
    """Return the permission mode of the command-line flags; empty if they set none."""
    if args.dangerously_skip_permissions:
        return "bypass"
    return args.permission_mode or ("dont-ask" if args.permission_prompts == "none" else "")


def _parse_tool_list(given: str) -> tuple[str, ...]:
    """Parse a flag's list of tools; `Task` is what others call `Agent`."""
    names = tuple("Agent" if name == "Task" else name for name in split_rules(given))
    for name in names:
        if name not in KNOWN_TOOLS and "_" not in name:
            near = validate.find_nearest_word(name, KNOWN_TOOLS)
            fix = f"Did you mean {near}?" if near else "`travois context` lists those there are."
            raise UserError(f"--tools: there is no tool {name!r}", fix=fix)
    return names


def _read_text_flag(text: str, path: str, *, flag: str) -> str:
    """Return the system prompt of a flag, given directly or in a file."""
    if not path:
        return text
    if text:
        raise UserError(f"--{flag} and --{flag}-file exclude each other", fix="Use one of them.")
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--{flag}-file {path} cannot be read", why=str(error)) from None


def _check_session_flags(args: Namespace) -> None:
    """Refuse command-line flags that name the session in two ways."""
    others = (
        ("--resume", args.resume),
        ("--continue", args.latest),
        ("--session-id", args.session_id),
    )
    if args.resume_or_create and (named := [flag for flag, value in others if value]):
        raise UserError(f"--resume-or-create and {named[0]} cannot be combined", fix="Use one.")


def options_from_args(args: Namespace) -> Options:
    """Translate parsed command-line flags to session options."""
    _check_session_flags(args)
    system, more = args.system_prompt, args.append_system_prompt
    return Options(
        cwd=os.getcwd(),
        model=args.model,
        fallback=tuple(filter(None, map(str.strip, args.fallback_model.split(",")))),
        effort=_effort_of(args),
        window=args.autocompact,
        mode=_permission_mode_of(args),
        allowed=tuple(r for word in flatten_values(args.allowedTools) for r in split_rules(word)),
        disallowed=tuple(
            r for word in flatten_values(args.disallowedTools) for r in split_rules(word)
        ),
        folders=tuple(flatten_values(args.add_dir)),
        tools=None if args.tools in (None, "default") else _parse_tool_list(args.tools),
        mcp=tuple(flatten_values(args.mcp_config)),
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
        system=_read_text_flag(system, args.system_prompt_file, flag="system-prompt"),
        append_system=_read_text_flag(
            more, args.append_system_prompt_file, flag="append-system-prompt"
        ),
        max_turns=args.max_turns,
        max_dollars=args.max_budget_usd,
        max_tokens=args.max_tokens,
        max_seconds=args.max_seconds,
        limits=args.limits,
        session_id=args.session_id,
        resume=args.resume_or_create or args.resume,
        create_missing=bool(args.resume_or_create),
        latest=args.latest,
        fork=args.fork_session,
        upto=args.resume_session_at,
        drops=args.resume_drops_turn,
        setup=args.setup or ("init" if args.init_only else ""),
        session_store=args.session_store,
        persist=not args.no_session_persistence,
        sandbox=not args.no_sandbox,
    )
