"""A model of one's own and a context layer of one's own: each is a class with one method."""

from collections.abc import AsyncIterator, Iterator

import anyio

from travois import (
    ClearResult,
    ModelReply,
    ModelRequest,
    ModelToolCall,
    Options,
    Session,
    WindowState,
)


class ListsFiles:
    """A model that lists the files once, and then says that it has."""

    async def reply(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        if any("tool_result" in str(message["content"]) for message in request.messages):
            yield "These are "
            yield "the files."
        else:
            yield ModelReply((ModelToolCall("Glob", {"pattern": "*"}),), input_tokens=100)


class ForgetListings:
    """A context layer that clears listings once they are two replies old."""

    def plan(self, window: WindowState) -> Iterator[ClearResult]:
        for result in window.results:
            if result.tool == "Glob" and result.age >= 2:
                yield ClearResult(result.call_id, "[An old listing.]")


async def main() -> None:
    options = Options(model=ListsFiles(), layers=[ForgetListings()], persist=False)
    async with Session(options) as session:
        async for text in session.stream("What is here?").text_stream():
            print(text, end="", flush=True)
        print()


anyio.run(main)
