"""`python -m travois_lab`: the lab as a process, for tests that want one."""

from __future__ import annotations

import argparse
import sys

import anyio
import msgspec

from travois.core.errors import UserError
from travois_lab.server import Api, options, serve
from travois_lab.world import World


def main() -> int:
    """Serve a script until interrupted; prints the address as its first line."""
    parser = argparse.ArgumentParser(prog="python -m travois_lab", description=__doc__)
    parser.add_argument("--script", help="a JSON script, or a persona such as lab-echo")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--options", default="{}", help="further options as a JSON object")
    args = parser.parse_args()
    try:
        world = World(args.script, options(**msgspec.json.decode(args.options)))
        anyio.run(_serve, world, args.port)
    except UserError as fault:
        sys.stderr.write(f"{fault}\n")
        return fault.code
    except KeyboardInterrupt:
        return 0
    return 0


async def _serve(world: World, port: int) -> None:
    await serve(world, port=port, started=_announce)


def _announce(api: Api) -> None:
    sys.stdout.write(f"{api.url}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
