"""A reply as the items and events of the Responses API."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from travois.core.models import Usage
from travois_lab.exchange import Exchange
from travois_lab.objects import Json, inner, listed, objects
from travois_lab.plain import args_text
from travois_lab.seal import seal
from travois_lab.stream import Event, cut, sse
from travois_lab.talk import Pace, Reply
from travois_lab.world import World

STOPS = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}


class Output(msgspec.Struct, frozen=True):
    """Everything that an answer is made from."""

    world: World
    exchange: Exchange
    body: Json
    reply: Reply
    usage: Usage

    def items(self) -> list[Json]:
        """The output items of the reply, in order."""
        shown = [b for b in self.reply.blocks if b.get("type") != "web_search_tool_result"]
        return [self._item(block, i) for i, block in enumerate(shown)]

    def _item(self, block: Json, i: int) -> Json:
        name, seed = self.world.name, self.world.options.seed
        match block.get("type"):
            case "thinking":
                words = str(block.get("thinking", ""))
                summary = [{"type": "summary_text", "text": words}] if words else []
                id = name("rs_", self.exchange, i)
                sealed = seal(words, seed=seed)
                return {
                    "id": id,
                    "type": "reasoning",
                    "summary": summary,
                    "encrypted_content": sealed,
                }
            case "tool_use" if isinstance(block.get("input"), str):
                call = {"type": "custom_tool_call", "id": name("ctc_", self.exchange, i)}
                id = block.get("id") or name("call_", self.exchange, i)
                call |= {"call_id": id, "name": block.get("name"), "status": "completed"}
                return {**call, "input": block["input"]}
            case "tool_use":
                call = {"type": "function_call", "id": name("fc_", self.exchange, i)}
                id = block.get("id") or name("call_", self.exchange, i)
                call |= {"call_id": id, "name": block.get("name"), "status": "completed"}
                return {**call, "arguments": args_text(block)}
            case "compaction":
                id, sealed = name("cmp_", self.exchange, i), seal(block["content"], seed=seed)
                return {"type": "compaction", "id": id, "encrypted_content": sealed}
            case "server_tool_use":
                action = {"type": "search", "query": inner(block, "input").get("query")}
                item = {"id": name("ws_", self.exchange, i), "type": "web_search_call"}
                return {**item, "status": "completed", "action": action}
            case _:
                part: Json = {
                    "type": "output_text",
                    "text": block.get("text", ""),
                    "annotations": [
                        {
                            "type": "url_citation",
                            "url": cited.get("url"),
                            "title": cited.get("title"),
                        }
                        for cited in objects(block, "citations")
                    ],
                }
                item: Json = {"id": name("msg_", self.exchange, i), "type": "message"}
                item |= {"role": "assistant", "status": "completed"}
                return {**item, "content": [{**part, "logprobs": []}]}

    def usage_json(self) -> Json:
        """Token counts: input includes what was cached."""
        usage = self.usage
        return {
            "input_tokens": usage.prompt,
            "input_tokens_details": {
                "cached_tokens": usage.read,
                "cache_write_tokens": usage.write,
            },
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.context,
        }


def response_json(output: Output) -> Json:
    """The whole answer."""
    reason = STOPS.get(output.reply.stop)
    return {
        "id": output.world.name("resp_", output.exchange),
        "object": "response",
        "created_at": 1767225600,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "error": None,
        "model": output.exchange.model,
        "output": output.items(),
        "parallel_tool_calls": True,
        "tool_choice": output.body.get("tool_choice", "auto"),
        "tools": listed(output.body, "tools"),
        "usage": output.usage_json(),
    }


def response_events(output: Output, whole: Json) -> list[Event]:
    """The answer as a stream; every event has its number."""
    begun: Json = {**whole, "status": "in_progress", "output": [], "usage": None}
    begun["incomplete_details"] = None
    rows: list[Json] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for i, item in enumerate(whole["output"]):
        rows += _item_events(item, i, output.reply.pace)
    rows.append({"type": f"response.{whole['status']}", "response": whole})
    return [sse(str(row["type"]), {**row, "sequence_number": n}) for n, row in enumerate(rows)]


def _item_events(item: Json, i: int, pace: Pace) -> Iterator[Json]:
    where = {"item_id": item["id"], "output_index": i}
    empty: dict[str, Json] = {
        "message": {"status": "in_progress", "content": []},
        "function_call": {"status": "in_progress", "arguments": ""},
        "custom_tool_call": {"status": "in_progress", "input": ""},
        "reasoning": {"summary": []},
    }
    begun: Json = {**item, **empty.get(item["type"], {})}
    yield {"type": "response.output_item.added", "output_index": i, "item": begun}
    match item["type"]:
        case "message":
            yield from _text_events(item["content"][0], where, pace)
        case "function_call":
            kind = "response.function_call_arguments"
            for piece in cut(item["arguments"], pace):
                yield {"type": f"{kind}.delta", **where, "delta": piece}
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield {"type": f"{kind}.done", **where, **done}
        case "custom_tool_call":
            for piece in cut(item["input"], pace):
                yield {"type": "response.custom_tool_call_input.delta", **where, "delta": piece}
            done = {"input": item["input"]}
            yield {"type": "response.custom_tool_call_input.done", **where, **done}
        case "reasoning":
            for part in item["summary"]:
                yield from _summary_events(part, where, pace)
        case _:
            pass
    yield {"type": "response.output_item.done", "output_index": i, "item": item}


def _text_events(part: Json, where: Json, pace: Pace) -> Iterator[Json]:
    at = {**where, "content_index": 0}
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
    for piece in cut(part["text"], pace):
        yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}


def _summary_events(part: Json, where: Json, pace: Pace) -> Iterator[Json]:
    at = {**where, "summary_index": 0}
    kind = "response.reasoning_summary"
    yield {"type": f"{kind}_part.added", **at, "part": {**part, "text": ""}}
    for piece in cut(part["text"], pace):
        yield {"type": f"{kind}_text.delta", **at, "delta": piece}
    yield {"type": f"{kind}_text.done", **at, "text": part["text"]}
    yield {"type": f"{kind}_part.done", **at, "part": part}
