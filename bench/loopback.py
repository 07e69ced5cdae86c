"""A model server for measuring: it says what it is told at once and notes the time of everything.

It is far simpler than the lab, so that it is never what is being measured.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

Event = dict[str, object]


@dataclass
class Seen:
    """When each request's header came, how big its body was, when its answer was out."""

    asked: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def gaps(self) -> list[float]:
        """From the last byte of each answer to the header of the next request, in ms."""
        return [(b - a) * 1000 for a, b in zip(self.answered, self.asked[1:], strict=False)]


def sse(*events: Event) -> bytes:
    return b"".join(
        b"event: %s\ndata: %s\n\n" % (str(e["type"]).encode(), json.dumps(e).encode())
        for e in events
    )


def reply(block: Event, delta: Event, *, stop: str, number: int, prompt: int = 0) -> bytes:
    """One streamed message with one block; `prompt` tokens of its request came from the cache."""
    usage = {"input_tokens": 10, "cache_read_input_tokens": prompt, "output_tokens": 5}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m"}
    return sse(
        {"type": "message_start", "message": {**message, "content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage},
        {"type": "message_stop"},
    )


def shell(number: int, command: str = "") -> bytes:
    """The model asks for one shell command: each time another, for the same would be a circle."""
    return call(number, "Bash", {"command": command or f"echo {number}"})


def call(number: int, name: str, args: Event, *, prompt: int = 0) -> bytes:
    """The model calls a tool."""
    block = {"type": "tool_use", "id": f"toolu_{number:06}", "name": name, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(args)}
    return reply(block, delta, stop="tool_use", number=number, prompt=prompt)


def words(number: int, text: str = "Done.") -> bytes:
    """The model says its last word."""
    block = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": text}
    return reply(block, delta, stop="end_turn", number=number)


@contextmanager
def server(
    answer: Callable[[int], bytes], *, keep_bodies: bool = False, by_connection: bool = False
) -> Iterator[tuple[str, Seen]]:
    """Serve `answer(n)` to request n; gives the base URL and what was seen.

    With `by_connection`, n counts the requests of each connection, and so of each client.
    """
    seen, loop, ready = Seen(), asyncio.new_event_loop(), threading.Event()
    port: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count = 0
        while header := await _header(reader):
            count += 1
            seen.asked.append(perf_counter())
            body = await reader.readexactly(_length(header))
            seen.sizes.append(len(body))
            if keep_bodies:
                seen.bodies.append(body)
            data = answer(count if by_connection else len(seen.asked))
            head = (
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
            )
            writer.write(head % len(data) + data)
            await writer.drain()
            seen.answered.append(perf_counter())
        writer.close()

    async def start() -> None:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 24)
        port.append(listening.sockets[0].getsockname()[1])
        ready.set()

    loop.create_task(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield f"http://127.0.0.1:{port[0]}", seen
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _header(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


def _length(header: bytes) -> int:
    for line in header.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0
