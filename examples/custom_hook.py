"""Hooks and a permission callback: log every call, rewrite one, ask about the rest."""

import anyio

from travois import HookEvent, HookReply, Options, PermissionRequest, Session, hook


@hook("PostToolUse")
def log_call(event: HookEvent) -> None:
    print(f"used {event.tool} with {sorted(event.input)}")


@hook("PreToolUse", matcher="Bash")
def limit_time(event: HookEvent) -> HookReply | None:
    command = str(event.input.get("command", ""))
    if command.startswith("rm "):
        return HookReply(block="Nothing is deleted here.")
    return HookReply(input={**event.input, "timeout": 60_000})


@hook("UserPromptSubmit")
async def add_ticket(event: HookEvent) -> HookReply:
    return HookReply(context="The ticket of this work is SHOP-12.")


def ask_person(request: PermissionRequest) -> bool:
    print(f"may it? {request.summary}: {request.reason}")
    return request.tool == "Bash" and "mkdir" in str(request.input["command"])


async def main() -> None:
    options = Options(
        model="anthropic/claude-opus-5-5",
        hooks=[log_call, limit_time, add_ticket],
        on_permission=ask_person,
    )
    async with Session(options) as session:
        result = await session.run("Delete old/, then make the folder new/.")
        print(result.text)
        for denial in result.denials:
            print(f"denied: {denial.tool}: {denial.reason}")


anyio.run(main)
