"""Review the changes since a commit; findings are data. `python code_reviewer.py [REF]`"""

import sys
from typing import Literal

import anyio
import msgspec

from travois import Budget, Options, Session

PROMPT = "Review `git diff {ref}`. Report bugs only, no style. Read the files where you must."


class Finding(msgspec.Struct):
    file: str
    line: int
    severity: Literal["low", "high"]
    problem: str


async def main(ref: str) -> int:
    options = Options(
        model="anthropic/claude-opus-5-5",
        mode="plan",  # it may read and run what changes nothing
        budget=Budget(dollars=1.0, turns=40),
    )
    async with Session(options) as session:
        result = await session.run(PROMPT.format(ref=ref), output=list[Finding])
    findings = result.raise_for_error().output
    for one in findings:
        print(f"{one.file}:{one.line}: {one.severity}: {one.problem}")
    return 1 if any(one.severity == "high" for one in findings) else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1] if sys.argv[1:] else "HEAD"))
