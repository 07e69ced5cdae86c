"""The flags of `travois`, and what they ask for."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter

from travois.app.options import PICK, Options
from travois.policy.rules import split
from travois.version import __version__

COMMANDS = {
    "sessions": "list, show, export, rename, measure and prune sessions",
    "search": "find a session by what was said in it, also of other agents",
    "memory": "what is remembered, why, and how to change it",
    "dream": "put memories in order between sessions",
    "audit": "prove from its log what a session sent",
    "context": "what is in the window, what was set aside, and how to get it back",
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
"""Commands; each has a module of `app.commands`, by its name or by that in `MODULES`."""
IDLE = (
    *("betas", "effort", "max-thinking-tokens", "resume-drops-turn"),
    *("resume-session-at", "task-budget", "thinking", "thinking-display"),
)
"""Flags of other agents that mean nothing here."""
FORMATS = ("text", "json", "stream-json", "codex-json")
MODULES = {"import": "importing", "try": "attempt"}

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
  130 interrupted (SIGINT)   143 terminated (SIGTERM); both leave a session to resume

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
        formatter_class=RawDescriptionHelpFormatter,
    )
    top.add_argument("prompt", nargs="?", help="what to do")
    top.add_argument("-p", "--print", action="store_true", help="run one task and exit")
    version = f"{__version__} (Travois)"
    top.add_argument("-v", "--version", action="version", version=version)
    shared(top)
    return top


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
    add("--permission-prompt-tool", default="", help=SUPPRESS)
    for name in IDLE:
        add(f"--{name}", default="", help=SUPPRESS)


def understood(argv: list[str]) -> Namespace:
    """What the words ask for; a program that drives us may pass flags that mean nothing here."""
    top = parser()
    if "stream-json" not in argv:
        return top.parse_args(argv)
    args, strange = top.parse_known_args(argv)
    if (args.input_format, args.output_format) == ("stream-json", "codex-json"):
        top.error("codex-json tells of one task: it takes no --input-format stream-json")
    given = [name for name in IDLE if getattr(args, name.replace("-", "_"))]
    for name in (*(f"--{name}" for name in given), *strange):
        sys.stderr.write(f"travois: {name} means nothing here and is ignored\n")
    if strange and args.input_format == "stream-json":
        args.prompt = None  # it may be the value of a flag that is not known
    return args


def _talking(top: ArgumentParser) -> None:
    add = top.add_argument_group("model and output").add_argument
    add("--model", default="", metavar="NAME", help="provider/id, or an id of the catalogue")
    add("--fallback-model", default="", metavar="A,B", help="who answers while it cannot")
    add("--output-format", default="text", choices=FORMATS, help="how headless runs speak")
    add("--input-format", default="text", choices=("text", "stream-json"))
    add("--include-partial-messages", action="store_true", help="stream-json: deltas as they come")
    add("--replay-user-messages", action="store_true", help="stream-json: echo what was read")
    add("--include-hook-events", action="store_true", help="stream-json: tell of hooks")
    add("--forward-subagent-text", action="store_true", help="stream-json: what agents say, too")
    add("--json-schema", default="", metavar="JSON", help="the form that the answer must have")
    add("--system-prompt", default="", metavar="TEXT", help="replace the system prompt")
    add("--append-system-prompt", default="", metavar="TEXT", help="add to the system prompt")
    add("--agents", default="", metavar="JSON", help="more kinds of agents, by name")
    add("--plugin-dir", action="append", default=[], metavar="DIR", help="a plugin for this run")
    add("--settings", default="", metavar="FILE|JSON", help="more settings for this run")
    add("--setting-sources", metavar="LIST", help="of user, project, local; empty for none")
    add("--plain", action="store_true", help="lines only, as screen readers like it")
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
    add("--session-id", default="", metavar="UUID", help="the id of the new session")
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
    group.add_argument("--no-sandbox", action="store_true", help="run commands without walls")
    group.add_argument("--dangerously-skip-permissions", action="store_true", help=SUPPRESS)


def flat(groups: list[list[str]]) -> list[str]:
    """What a flag that may be repeated has gathered."""
    return [word for group in groups for word in group]


def chosen(args: Namespace) -> Options:
    """The namespace as options of a session."""
    mode = "bypass" if args.dangerously_skip_permissions else args.permission_mode
    return Options(
        cwd=os.getcwd(),
        model=args.model,
        fallback=tuple(filter(None, map(str.strip, args.fallback_model.split(",")))),
        mode=mode,
        allowed=tuple(r for word in flat(args.allowedTools) for r in split(word)),
        disallowed=tuple(r for word in flat(args.disallowedTools) for r in split(word)),
        folders=tuple(flat(args.add_dir)),
        tools=None if args.tools in (None, "default") else tuple(split(args.tools)),
        mcp=tuple(flat(args.mcp_config)),
        strict_mcp=args.strict_mcp_config,
        agents=args.agents,
        plugins=tuple(os.path.abspath(folder) for folder in args.plugin_dir),
        settings=args.settings,
        sources="none" if args.setting_sources == "" else args.setting_sources or "",
        system=args.system_prompt,
        append_system=args.append_system_prompt,
        max_turns=args.max_turns,
        max_dollars=args.max_budget_usd,
        max_tokens=args.max_tokens,
        max_seconds=args.max_seconds,
        session_id=args.session_id,
        resume=args.resume,
        latest=args.latest,
        fork=args.fork_session,
        persist=not args.no_session_persistence,
        sandbox=not args.no_sandbox,
    )
