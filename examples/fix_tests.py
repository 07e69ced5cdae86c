"""Let the agent work until the tests pass; the tests themselves stay as they are."""

import subprocess

import anyio

from travois import Budget, HookEvent, HookReply, LimitError, Options, Session, hook

COMMAND = ["python", "-m", "unittest", "-q"]


@hook("PreToolUse", matcher="Edit|Write|MultiEdit|ApplyPatch")
def keep_tests(event: HookEvent) -> HookReply | None:
    if "test_" in str(event.input.get("file_path", "")):
        return HookReply(block="The tests stay as they are. Change the code.")
    return None


@hook("Stop")
def demand_green_tests(event: HookEvent) -> HookReply | None:
    done = subprocess.run(COMMAND, capture_output=True, text=True, cwd=event.cwd)
    if done.returncode:
        return HookReply(block=f"The tests still fail:\n{done.stderr[-2000:]}")
    return None


async def main() -> None:
    options = Options(
        model="anthropic/claude-opus-5-5",
        mode="accept-edits",
        allowed=["Bash(python -m unittest:*)"],
        hooks=[keep_tests, demand_green_tests],
        budget=Budget(dollars=2.0, turns=60),
    )
    async with Session(options) as session:
        try:
            print(await session.ask("The tests fail. Find out why and fix the code."))
        except LimitError as error:
            print("gave up:", error)


anyio.run(main)
