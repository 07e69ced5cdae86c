"""`travois lab`: a local simulator of model providers that shows what an agent really sends."""

from __future__ import annotations

import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import anyio
import msgspec

from travois.core.errors import UserError
from travois.terminal import CommandParsers, add_command, print_line
from travois_lab.dialects import DIALECTS
from travois_lab.recording import Recorder, Replay, load_recording
from travois_lab.report import broken, ledger_json, render, summary
from travois_lab.server import options, serving
from travois_lab.trajectory import load_trajectory
from travois_lab.world import World

if TYPE_CHECKING:
    from travois_lab.http import Answer
    from travois_lab.server import Api


DEFAULT_LAB_PORT = 8899
LAB_HELP = """\
  travois lab serve                      start an echo model on port 8899
  ANTHROPIC_BASE_URL=http://127.0.0.1:8899 your-agent
  travois lab report                     show cost per request, and prompt cache breaks

docs/lab.md is a five-minute introduction.
"""
LAB_SERVE_HELP = """\
Without a script the model echoes the prompt. A script is a JSON list of turns, or a persona:
lab-echo, lab-tool-loop:N, lab-parallel:K, lab-summarizer, lab-forgetful, lab-adversary, lab-lazy,
lab-refuser. A request for a model with such a name always gets that persona.

Profiles: strict (like the real API), lenient (accepts unknown fields and changed histories), or the
server whose chat completions to imitate: openai, openrouter, mistral, deepseek, groq, ollama,
llamacpp, vllm, lmstudio, gemini, xai, kimi, glm, cerebras, qwen, copilot.

When stopped, it prints the report. Exit code 1: a request was invalid or changed its history.
"""
LAB_REPORT_HELP = """\
Reads the ledger of a running lab, or a file written by `serve --ledger`. Each line is one request:
bytes; tokens read from the cache, written to it, and uncached; cost; and whether it extends the
request before it. Below, each cache break is located to the byte. Exit code 1: something broke.
"""
LAB_REPLAY_HELP = """\
FILE is a recording from `travois lab record`, or a recorded session (traj/1) whose assistant turns
are replayed to any agent.

Matching: sequence (the nth request gets the nth answer), canonical (the request that is equal as
JSON), bytes (the nth request must match byte for byte; the first difference is reported).
"""


def register_lab(commands: CommandParsers) -> None:
    """Add the `travois lab` command and its subcommands."""
    top = add_command(
        commands, "lab", what="a local API simulator for testing agents", more=LAB_HELP
    )
    below = top.add_subparsers(metavar="command", title="commands", required=True)
    _add_serve_flags(
        add_command(below, "serve", what="simulate a provider on this machine", more=LAB_SERVE_HELP)
    )
    _add_report_flags(
        add_command(
            below,
            "report",
            what="report the requests of a lab and their cost",
            more=LAB_REPORT_HELP,
        )
    )
    _add_record_flags(
        add_command(below, "record", what="forward requests to a provider and record them")
    )
    _add_replay_flags(add_command(below, "replay", what="replay a recording", more=LAB_REPLAY_HELP))


def _add_serve_flags(parser: ArgumentParser) -> None:
    """Add the flags of `travois lab serve`."""
    parser.add_argument(
        "--script", default=None, metavar="FILE|PERSONA", help="what the model answers"
    )
    parser.add_argument("--profile", default="strict", metavar="NAME", help="API to imitate")
    parser.add_argument("--faults", default="", metavar="FILE", help="a JSON list of fault rules")
    parser.add_argument(
        "--ledger", default="", metavar="FILE", help="write the ledger to this file at the end"
    )
    parser.add_argument(
        "--port", type=int, default=DEFAULT_LAB_PORT, metavar="N", help="0 for any free port"
    )
    parser.set_defaults(run=run_lab_serve)


def _add_report_flags(parser: ArgumentParser) -> None:
    """Add the arguments of `travois lab report`."""
    default = f"http://127.0.0.1:{DEFAULT_LAB_PORT}"
    parser.add_argument(
        "source",
        nargs="?",
        default=default,
        metavar="URL|FILE",
        help="a running lab, or a ledger file",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run_lab_report)


def _add_record_flags(parser: ArgumentParser) -> None:
    """Add the flags of `travois lab record`."""
    parser.add_argument("--upstream", required=True, metavar="URL", help="URL of the provider")
    parser.add_argument("--out", default="recording.jsonl", metavar="FILE", help="file to write")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_LAB_PORT, metavar="N", help="0 for any free port"
    )
    parser.set_defaults(run=run_lab_record)


def _add_replay_flags(parser: ArgumentParser) -> None:
    """Add the flags of `travois lab replay`."""
    modes = ("sequence", "canonical", "bytes")
    parser.add_argument("file", metavar="FILE", help="a recording or a recorded session")
    parser.add_argument(
        "--match", default="sequence", choices=modes, help="how to choose the answer"
    )
    parser.add_argument("--timing", action="store_true", help="reproduce the recorded delays")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_LAB_PORT, metavar="N", help="0 for any free port"
    )
    parser.set_defaults(run=run_lab_replay)


# --- serving --------------------------------------------------------------------------------------


def run_lab_serve(args: Namespace) -> int:
    """Simulate a provider until interrupted, then print the report."""
    given = {
        "time": "real",
        **profile_options(args.profile),
        "faults": _load_fault_rules(args.faults),
    }
    world = World(args.script, options(**given))
    _run_server(world, port=args.port)
    return _finish_with_report(world, args.ledger)


def profile_options(name: str) -> dict[str, object]:
    """Return the options of a lab profile, the API to imitate."""
    if name == "strict":
        return {}
    if name == "lenient":
        return {"strict": False, "enforced_binding": False}
    if name not in DIALECTS:
        known = ", ".join(("strict", "lenient", *DIALECTS))
        raise UserError(f"Unknown profile {name!r}", fix=f"Use one of: {known}.")
    return {"dialect": name}


def _load_fault_rules(path: str) -> list[Any]:
    """Read the fault rules of the simulated provider from a JSON file."""
    if not path:
        return []
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=list[Any])
    except OSError as error:
        raise UserError(f"Cannot read {path}", why=error.strerror or "") from None
    except msgspec.MsgspecError as error:
        raise UserError(f"{path} is not a JSON list of fault rules", why=str(error)) from None


def _run_server(world: World, *, port: int, reply: Answer | None = None) -> None:
    anyio.run(_serve_until_interrupted, world, port, reply)


async def _serve_until_interrupted(world: World, port: int, reply: Answer | None) -> None:
    """Serve the simulated provider until Ctrl-C or SIGTERM."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with serving(world, port=port, reply=reply) as api:
            _print_server_addresses(api)
            async for _ in signals:
                break


def _print_server_addresses(api: Api) -> None:
    """Print the address of the running lab and the variables that point agents to it."""
    print_line(f"{api.url}")
    print_line(f"  ANTHROPIC_BASE_URL={api.url}")
    print_line(f"  OPENAI_BASE_URL={api.url}/v1")
    print_line(f"  travois lab report {api.url}")
    sys.stdout.flush()


def _finish_with_report(world: World, out: str) -> int:
    """Write the lab's ledger to a file if wanted, and print its report."""
    told = {"exchanges": ledger_json(world.ledger), **summary(world.ledger)}
    if out:
        Path(out).write_bytes(msgspec.json.encode(told))
    return _print_lab_report(told) if len(world.ledger) else 0


# --- reporting ------------------------------------------------------------------------------------


def run_lab_report(args: Namespace) -> int:
    """Print the report of a running lab or of a ledger file."""
    told = _fetch_ledger(args.source) if "://" in args.source else _read_ledger_file(args.source)
    if args.json:
        print_line(msgspec.json.encode(told).decode())
        return 0
    return _print_lab_report(told)


def _print_lab_report(told: dict[str, Any]) -> int:
    """Print the report of a lab ledger; exit code 1 if a request broke an invariant."""
    rows: list[dict[str, Any]] = told["exchanges"]
    for line in render(rows, told):
        print_line(line)
    return 1 if broken(rows) else 0


def _fetch_ledger(url: str) -> dict[str, Any]:
    """Fetch the ledger from a running lab."""
    try:
        # A lab is on this machine: no proxy stands between it and us.
        with build_opener(ProxyHandler({})).open(f"{url.rstrip('/')}/lab/ledger") as answer:
            return msgspec.json.decode(answer.read())
    except (URLError, ValueError, msgspec.DecodeError) as error:
        why = str(getattr(error, "reason", error))
        raise UserError(
            f"No lab answers at {url}", why=why, fix="Start one: travois lab serve"
        ) from None


def _read_ledger_file(path: str) -> dict[str, Any]:
    """Read a ledger of the lab from a file."""
    try:
        return msgspec.json.decode(Path(path).read_bytes())
    except OSError as error:
        raise UserError(f"Cannot read {path}", why=error.strerror or "") from None
    except msgspec.DecodeError as error:
        raise UserError(f"{path} is not a ledger", why=str(error)) from None


# --- recording and replaying ----------------------------------------------------------------------


def run_lab_record(args: Namespace) -> int:
    """Forward requests to a provider and record them until interrupted."""
    recorder = Recorder(args.upstream, Path(args.out))
    _run_server(World(), port=args.port, reply=recorder.answer)
    print_line(f"{recorder.n} requests written to {args.out}")
    return 0


def run_lab_replay(args: Namespace) -> int:
    """Answer requests from a recording until interrupted."""
    if args.file.endswith(".gz") or _is_recorded_session(args.file):
        world = World(load_trajectory(args.file), options(time="real"))
        _run_server(world, port=args.port)
        return _finish_with_report(world, "")
    timing = "recorded" if args.timing else "none"
    replay = Replay(load_recording(args.file), mode=args.match, timing=timing)
    _run_server(replay.world, port=args.port, reply=replay.answer)
    missed = [f"request {e.n}: {e.error}" for e in replay.world.ledger if e.status == 409]
    for line in missed:
        print_line(line)
    return 1 if missed else 0


def _is_recorded_session(path: str) -> bool:
    """Return whether a file is a recorded session to replay, by its first line."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return b'"type":"session"' in file.readline()[:200]
