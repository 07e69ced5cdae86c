"""Two kinds of subagents that the model can start, and what they may use together."""

import anyio

from travois import AgentDefinition, Budget, Options, Session

AGENTS = {
    "finder": AgentDefinition(
        description="Finds where something is defined or used. Give it one question.",
        prompt="You search code. Answer with paths and line numbers only.",
        tools=["Grep", "Glob", "Read"],
        max_turns=10,
    ),
    "skeptic": AgentDefinition(
        description="Checks a claim about the code before it is reported.",
        prompt="You doubt. Read the code and say whether the claim holds, and why.",
        tools=["Read", "Grep"],
    ),
}


async def main() -> None:
    options = Options(
        model="anthropic/claude-opus-5-5",
        mode="plan",
        agents=AGENTS,
        budget=Budget(dollars=1.0, agents=4),
    )
    async with Session(options) as session:
        result = await session.run("Is the function `parse` used anywhere? Have it checked.")
        print(result.raise_for_error().text)
        print(result.usage.total_tokens, "tokens, those of subagents among them")


anyio.run(main)
