"""Many questions at once, each in a session of its own, within one budget for all."""

import anyio

from travois import Budget, Options, Result, Session

QUESTIONS = ["What does main.py do?", "Which files are tests?", "What is missing in the README?"]
DOLLARS = 0.60
AT_ONCE = 2


async def answer_questions(questions: list[str]) -> dict[str, Result]:
    """Answer all questions; a failure of one does not affect the others."""
    share = Budget(dollars=DOLLARS / len(questions), turns=20)
    options = Options(model="anthropic/claude-opus-5-5", mode="plan", budget=share)
    found: dict[str, Result] = {}
    places = anyio.Semaphore(AT_ONCE)

    async def answer(question: str) -> None:
        async with places, Session(options) as session:
            found[question] = await session.run(question)

    async with anyio.create_task_group() as group:
        for question in questions:
            group.start_soon(answer, question)
    return found


async def main() -> None:
    found = await answer_questions(QUESTIONS)
    for question in QUESTIONS:
        result = found[question]
        print(f"{question} {result.text if result.ok else result.error}")
    print(f"${sum(result.cost for result in found.values()):.2f}")


anyio.run(main)
