"""`python -m bench [NAME …]`: run benchmarks and print what they found.

`python -m bench tokens|fidelity|memory|calls|asks FOLDER [OPTION …]` runs one over recorded data.
`python -m bench fleet [OPTION …]` runs a fleet against the lab.
`python -m bench conformance [SUITE …] [--write]` runs suites of npm and PyPI (docs/conformance.md).
`python -m bench permissions --fuzz COUNT` compares verdicts on random lines with a real bash.
"""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = (
    *("start", "turns", "resume", "output", "transport", "lab", "permissions", "cage"),
    *("snapshots", "cache", "agents", "recall", "screen", "offline", "router", "symbols"),
    *("search", "floods", "soak", "scale", "walks", "typed", "beside", "lsp"),
)

RECORDED = ("tokens", "fidelity", "memory", "calls", "asks")


def main() -> int:
    if sys.argv[1:2] and sys.argv[1] in RECORDED:
        import_module(f"bench.{sys.argv[1]}").main(sys.argv[2:])
        return 0
    if sys.argv[1:2] == ["permissions"]:
        import_module("bench.permissions").main(sys.argv[2:])
        return 0
    if sys.argv[1:2] == ["conformance"]:
        import_module("bench.conformance").main()
        return 0
    if sys.argv[1:2] == ["fleet"]:
        import_module("bench.fleet").main(sys.argv[2:])
        return 0
    names = [word for word in sys.argv[1:] if not word.startswith("-")] or list(NAMES)
    for name in names:
        if name not in NAMES:
            print(f"There is no benchmark {name!r}; there are: {', '.join(NAMES)}.")
            return 2
        print(f"== {name}")
        import_module(f"bench.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
