"""Write the README section on usage, and show the work as it happens."""

import anyio

from travois import (
    Options,
    PermissionDenied,
    Session,
    TextDelta,
    ToolCallStarted,
    TurnEnded,
)

PROMPT = "Write the section `## Usage` of README.md from what the code does. Keep it short."


async def main() -> None:
    options = Options(
        model="anthropic/claude-opus-5-5",
        mode="accept-edits",
        disallowed=["Bash"],
        append_system="Documents are plain English, with examples that run.",
    )
    async with Session(options) as session:
        async for event in session.stream(PROMPT):
            match event:
                case TextDelta():
                    print(event.text, end="", flush=True)
                case ToolCallStarted():
                    print(f"[{event.name} {event.input.get('file_path', '')}]")
                case PermissionDenied():
                    print(f"[{event.name} was denied: {event.reason}]")
                case TurnEnded():
                    print(f"\n{event.result.why}, {event.result.usage.total_tokens} tokens")
                case _:
                    pass


anyio.run(main)
