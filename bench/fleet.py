"""The fleet: nothing lost, nothing published twice, and what it costs beside `xargs -P`.

    python -m bench fleet [--tasks 200] [--repos 10] [--workers 1,4,8] [--databases sqlite,postgres]
                          [--rounds 5] [--overhead-tasks 20] [--listed 1000] [--plot throughput.svg]

Each task is a clone, a run of two requests that writes a file, a commit and a push. The same in a
shell script under `xargs -P` is the comparison: rounds are interleaved, and CPU seconds are those
of all processes that were started. The provider is the lab, in this process. The fleet starts runs
in a warm server of its own, which the script does not have: so it is measured without one, too.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.fleet.harness import MODEL, WORK, git
from tests.fleet.postgres import Postgres, find_postgres

import travois_lab as lab
from travois.fleet.child import session_id
from travois.fleet.manage import open_store
from travois.fleet.store import locate_database
from travois.fleet.task import FleetTask, locate_fleet_folder
from travois.inspector.fleet import read_fleet_page
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import LOG_FILE_NAME

TRAVOIS = (sys.executable, "-m", "travois")
SCRIPT = """\
set -e
id=$1 repo=$2 top={top}/x-$1
mkdir -p $top/home
git clone -q $repo $top/work
cd $top/work
HOME=$top/home TRAVOIS_HOME=$top/home/travois {travois} -p "Say hello $id" --model {model} \\
  --permission-mode auto --output-format stream-json > $top/log.jsonl < /dev/null
git add -A
git -c user.name=Travois -c user.email=t@localhost commit -q -m "travois: Say hello $id"
git push -q origin HEAD:refs/heads/travois/$id
"""
WANTED_OVERHEAD = 0.05


class Ground:
    """Repositories, a home and the environment of one measurement."""

    def __init__(self, folder: Path, url: str, *, repos: int) -> None:
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_URL"))}
        self.env |= {"TRAVOIS_HOME": str(folder / "home"), "ANTHROPIC_BASE_URL": url}
        self.env |= {"ANTHROPIC_API_KEY": "bench", "PYTHONDONTWRITEBYTECODE": ""}
        self.repos = [self._create_repo(f"r{n}") for n in range(repos)]

    def _create_repo(self, name: str) -> Path:
        bare, clone = self.folder / f"{name}.git", self.folder / name
        git("init", "-q", "--bare", "-b", "main", str(bare), cwd=self.folder)
        git("config", "core.logAllRefUpdates", "true", cwd=bare)
        git("clone", "-q", str(bare), str(clone), cwd=self.folder)
        (clone / "README").write_text("hi\n")
        git("add", ".", cwd=clone)
        git("commit", "-qm", "init", cwd=clone)
        git("push", "-q", "origin", "HEAD:main", cwd=clone)
        return bare

    def tasks(self, count: int) -> Path:
        path = self.folder / "tasks.jsonl"
        rows = [
            {
                "id": f"t{n}",
                "repo": str(self.repo_of(n)),
                "prompt": f"Say hello t{n}",
                "model": MODEL,
            }
            for n in range(count)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def repo_of(self, number: int) -> Path:
        return self.repos[number % len(self.repos)]

    def run(self, *words: str) -> str:
        done = subprocess.run(words, cwd=self.folder, env=self.env, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(
                f"{shlex.join(words)} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        return done.stdout

    def pushes(self, number: int) -> int:
        log = self.repo_of(number) / "logs/refs/heads/travois" / f"t{number}"
        return len(log.read_text().splitlines()) if log.exists() else 0


def main(argv: Sequence[str]) -> None:
    args = _parse(argv)
    if args.listed:
        _measure_listing(args.listed)
    with lab.server(WORK) as api:
        rows = [
            _run_once(api.url, kind, workers, args)
            for kind in args.databases
            for workers in args.workers
        ]
        if args.plot:
            Path(args.plot).write_text(draw_plot(rows))
            print(f"  plot: {args.plot}")
        if args.rounds:
            _compare_overhead(api.url, args)


def _parse(argv: Sequence[str]) -> Namespace:
    top = ArgumentParser(prog="python -m bench fleet")
    top.add_argument("--tasks", type=int, default=200)
    top.add_argument("--repos", type=int, default=10)
    top.add_argument("--workers", type=lambda s: [int(n) for n in s.split(",")], default=[1, 4, 8])
    kinds = ["sqlite", "postgres"]
    top.add_argument("--databases", type=lambda s: [k for k in s.split(",") if k], default=kinds)
    top.add_argument("--rounds", type=int, default=5)
    top.add_argument("--overhead-tasks", type=int, default=20)
    top.add_argument("--overhead-workers", type=int, default=2)
    top.add_argument("--listed", type=int, default=1_000, help="tasks of the list that is timed")
    top.add_argument("--plot", default="")
    return top.parse_args(argv)


def _measure_listing(count: int) -> None:
    """Measure `fleet ls` and the inspector's page of so many tasks whose sessions are all here."""
    with tempfile.TemporaryDirectory(prefix="travois-bench-") as name:
        home = TravoisHome(Path(name))
        folder = locate_fleet_folder(home.path, "")
        store = open_store(locate_database("", folder))
        store.submit_tasks([FleetTask(id=f"t{n}", repo="/x", prompt="Fix") for n in range(count)])
        for n in range(count):
            place = TravoisHome(folder / "tasks" / f"t{n}" / "0" / "home" / "travois").sessions
            session = place / "project" / str(session_id(f"t{n}", fresh=0))
            session.mkdir(parents=True)
            (session / LOG_FILE_NAME).touch()
        empty = os.environ | {"TRAVOIS_HOME": str(Path(name, "empty"))}
        found: dict[str, list[float]] = {"fleet ls, no tasks": [], "fleet ls": [], "page": []}
        for _ in range(5):
            for what, env in (
                ("fleet ls, no tasks", empty),
                ("fleet ls", empty | {"TRAVOIS_HOME": name}),
            ):
                before = _child_cpu()
                subprocess.run((*TRAVOIS, "fleet", "ls"), env=env, capture_output=True, check=True)
                found[what].append(_child_cpu() - before)
            before = time.process_time()
            page = read_fleet_page(home)
            found["page"].append(time.process_time() - before)
            assert sum(bool(line.session) for line in page.tasks) == count
        print(f"  CPU seconds for a fleet of {count} sessions, median of 5")
        for what, times in found.items():
            spread = f"({min(times):.2f} to {max(times):.2f})"
            print(f"    {what:22} {statistics.median(times):.2f} s {spread}")


@contextmanager
def _database(kind: str) -> Iterator[tuple[str, ...]]:
    """Give the flags that name a fresh database."""
    if kind == "sqlite":
        yield ()
        return
    programs = find_postgres()
    if programs is None:
        raise SystemExit("Postgres is not installed; --databases sqlite does without")
    server = Postgres(programs)
    try:
        server.start()
        yield ("--db", server.create_database())
    finally:
        server.remove()


def _run_once(
    url: str, kind: str, workers: int, args: Namespace
) -> tuple[str, list[float], list[float]]:
    """Run all tasks once; return a label, and when each ended and what it had cost by then."""
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="travois-bench-"))
        ground = Ground(Path(name), url, repos=args.repos)
        flags = stack.enter_context(_database(kind))
        if flags:
            ground.run(*TRAVOIS, "fleet", "migrate", *flags)
        began = time.time()
        file = str(ground.tasks(args.tasks))
        ground.run(*TRAVOIS, "fleet", "run", file, "--workers", str(workers), *flags)
        seconds = time.time() - began
        found = json.loads(ground.run(*TRAVOIS, "fleet", "results", "--format", "json", *flags))
        pushes = [ground.pushes(number) for number in range(args.tasks)]
        lost, twice = sum(n == 0 for n in pushes), sum(n > 1 for n in pushes)
        label = f"{kind}, {workers} worker{'s' * (workers > 1)}"
        pace = args.tasks / seconds * 60
        print(f"  {label:22} {args.tasks} tasks {seconds:7.1f} s {pace:7.1f}/min", end="")
        print(f"  {lost} lost, {twice} published twice, ${sum(r['usd'] for r in found):.4f}")
        ends = sorted((each["ended"] - began, each["usd"]) for each in found)
        costs = [sum(usd for _, usd in ends[: n + 1]) for n in range(len(ends))]
        return label, [end for end, _ in ends], costs


def _compare_overhead(url: str, args: Namespace) -> None:
    """Compare CPU seconds per task with those of `xargs -P`, in interleaved rounds."""
    count, workers = args.overhead_tasks, args.overhead_workers
    kinds: dict[str, Callable[[], float]] = {
        "xargs -P": lambda: _measure_xargs(url, count, workers, repos=args.repos),
        "fleet": lambda: _measure_fleet(url, count, workers, repos=args.repos, warm="1"),
        "fleet, TRAVOIS_WARM=0": lambda: _measure_fleet(
            url, count, workers, repos=args.repos, warm="0"
        ),
    }
    used: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(args.rounds):
        turn = number % len(kinds)
        for name in (*[*kinds][turn:], *[*kinds][:turn]):
            used[name].append(kinds[name]() / count)
    print(f"  CPU per task, {count} tasks, {workers} at once, median of {args.rounds} rounds")
    base = used["xargs -P"]
    for name, found in used.items():
        ratios = [one / other - 1 for one, other in zip(found, base, strict=True)]
        spread = f"{min(ratios):+.1%} to {max(ratios):+.1%}"
        print(
            f"    {name:22} {statistics.median(found):.3f} s ({min(found):.3f} to {max(found):.3f})"
            f"  {statistics.median(ratios):+.1%} ({spread})"
        )
    middle = statistics.median([a / b - 1 for a, b in zip(used["fleet"], base, strict=True)])
    print(
        f"    {'enough' if middle <= WANTED_OVERHEAD else 'TOO MUCH'}: +{WANTED_OVERHEAD:.0%} is wanted"
    )


def _measure_fleet(url: str, count: int, workers: int, *, repos: int, warm: str) -> float:
    with tempfile.TemporaryDirectory(prefix="travois-bench-") as name:
        ground = Ground(Path(name), url, repos=repos)
        ground.env["TRAVOIS_WARM"] = warm
        file, before = str(ground.tasks(count)), _child_cpu()
        ground.run(*TRAVOIS, "fleet", "run", file, "--workers", str(workers))
        return _child_cpu() - before


def _measure_xargs(url: str, count: int, workers: int, *, repos: int) -> float:
    with tempfile.TemporaryDirectory(prefix="travois-bench-") as name:
        ground = Ground(Path(name), url, repos=repos)
        script = Path(name, "task.sh")
        script.write_text(
            SCRIPT.format(top=shlex.quote(name), travois=shlex.join(TRAVOIS), model=MODEL)
        )
        listing = "".join(f"t{n} {ground.repo_of(n)}\n" for n in range(count))
        before = _child_cpu()
        subprocess.run(
            ("xargs", "-P", str(workers), "-L", "1", "sh", str(script)),
            input=listing,
            cwd=ground.folder,
            env=ground.env,
            text=True,
            check=True,
            capture_output=True,
        )
        assert all(ground.pushes(n) == 1 for n in range(count))
        return _child_cpu() - before


def _child_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


PLOT_COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b")
WIDTH, HEIGHT, MARGIN = 720, 320, 48


def draw_plot(rows: Sequence[tuple[str, list[float], list[float]]]) -> str:
    """Draw finished tasks and cost over time, one line for each run, as SVG."""
    charts = [
        _draw_chart(
            "tasks done", [(label, ends, range(1, len(ends) + 1)) for label, ends, _ in rows]
        ),
        _draw_chart("US dollars", rows),
    ]
    body = "".join(
        f'<g transform="translate(0 {n * HEIGHT})">{chart}</g>' for n, chart in enumerate(charts)
    )
    size = f'width="{WIDTH}" height="{HEIGHT * 2}"'
    style = "<style>text{font:12px sans-serif}polyline{fill:none;stroke-width:2}</style>"
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{paper}{body}</svg>\n'


def _draw_chart(title: str, lines: Sequence[tuple[str, Sequence[float], Sequence[float]]]) -> str:
    longest = max(max(ends, default=1.0) for _, ends, _ in lines)
    highest = max(max(values, default=1.0) for _, _, values in lines)
    room, tall = WIDTH - 2 * MARGIN - 140, HEIGHT - 2 * MARGIN
    parts = [f'<text x="{MARGIN}" y="{MARGIN - 12}">{title} over seconds</text>']
    for share in (0.0, 0.5, 1.0):
        x, y = MARGIN + share * room, MARGIN + tall - share * tall
        parts.append(f'<text x="{x}" y="{MARGIN + tall + 16}">{share * longest:.0f}</text>')
        parts.append(f'<text x="4" y="{y}">{share * highest:.3g}</text>')
    parts.append(f'<path d="M{MARGIN} {MARGIN}v{tall}h{room}" stroke="#888" fill="none"/>')
    for number, (label, ends, values) in enumerate(lines):
        points = " ".join(
            f"{MARGIN + end / longest * room:.1f},{MARGIN + tall - value / highest * tall:.1f}"
            for end, value in zip((0.0, *ends), (0.0, *values), strict=True)
        )
        color = PLOT_COLORS[number % len(PLOT_COLORS)]
        parts.append(f'<polyline points="{points}" stroke="{color}"/>')
        y = MARGIN + 16 * number
        parts.append(f'<text x="{WIDTH - MARGIN - 120}" y="{y}" fill="{color}">{label}</text>')
    return "".join(parts)
