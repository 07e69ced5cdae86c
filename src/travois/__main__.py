"""`travois` and `python -m travois`."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Start; `--version` imports nothing."""
    if sys.argv[1:] in (["--version"], ["-v"]):
        from travois.version import __version__

        sys.stdout.write(f"{__version__} (Travois)\n")
        return 0
    from travois.app.tui import start

    if start.early(sys.argv[1:], os.environ):
        start.paint(os.environ)
    from travois.app.cli import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
