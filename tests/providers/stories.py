"""Stories: random but legal logs, told fact by fact, for the tests of this room."""

from __future__ import annotations

from random import Random

from travois.core.content import AnyBlock, Call, Media, Opaque, Text, TextOrMedia, extract_calls
from travois.core.facts import (
    AnyFact,
    Assistant,
    Cleared,
    Compacted,
    Entry,
    Epoch,
    Failed,
    Offloaded,
    Restored,
    Result,
    Rewound,
    Sent,
    StopReason,
    ToolSpec,
    User,
)
from travois.core.legality import find_send_blocker, find_violation
from travois.core.models import ModelCard
from travois.core.view import View, open_calls, project_view
from travois.providers.request import Request

BLOBS = {"png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF-1.7", "empty": b""}
TOOLS = (
    ToolSpec("Read", "Read a file.", '{"type":"object","properties":{"path":{"type":"string"}}}'),
    ToolSpec("Bash", "Run a command.", '{"type":"object"}'),
)
MODELS = (
    ModelCard("anthropic", "claude-opus-5-5", "anthropic", output=8000),
    ModelCard("anthropic", "claude-haiku-4-5", "anthropic", cache_ttl="1h", betas=("b-1", "b-2")),
    ModelCard("ollama", "m", "anthropic", quirks=("no-cache-markers",), images=False),
    ModelCard("openai", "gpt", "chat", params='"reasoning_effort":"low"'),
    ModelCard(
        "mistral",
        "large",
        "chat",
        quirks=(
            "short-ids",
            "no-user-after-tool",
            "no-stream-options",
            "max-tokens",
            "system-role",
        ),
    ),
    ModelCard("deepseek", "v4", "chat", quirks=("echo-reasoning", "text-parts", "system-role")),
    ModelCard("openai", "gpt-6", "responses", params='"reasoning":{"effort":"low"}'),
    ModelCard("google", "gemini-3", "gemini"),
    ModelCard("ollama", "qwen3", "ollama", window=32_000),
)
TEXTS = ("hello", "", "  \n", 'ünï\u2028\x00\x1f"\\/', "half \ud83d of a pair", "𝄞", "x" * 300)
ARGS = (
    '{"path":"a.py"}',
    ' { "b" : [1.0, 2e3, "\\u00e9"],\n"a":{} } ',
    "{}",
    "",
    "[1]",
    '{"path": "a',
    '{"p":"\\ud800"}',
    '{"p":"\ud800"}',
    '{"p":"tab\there"}',
    "null",
)
NAMES = ("Read", "Bash", "functions.Bash", "", "naïve name", "x" * 90)
OPAQUE = (
    Opaque("anthropic", "thinking", '{"type":"thinking","thinking":"hm","signature":"c2ln"}', "hm"),
    Opaque("anthropic", "thinking", '{"type":"thinking","thinking":"","signature":"c2lo"}'),
    Opaque("anthropic", "redacted_thinking", '{"type":"redacted_thinking","data":"ZGF0"}'),
    Opaque(
        "anthropic",
        "server_tool_use",
        '{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{"q":1}}',
    ),
    Opaque(
        "anthropic",
        "text",
        '{"type":"text","text":"cited","citations":[{"type":"char_location","cited_text":"c",'
        '"document_index":0,"document_title":null,"start_char_index":0,"end_char_index":1}]}',
        "cited",
    ),
    Opaque("chat", "reasoning", '{"reasoning_content":"so","reasoning_details":[{"a":1}]}', "so"),
    Opaque("gemini", "thinking", '{"text":"elsewhere","thought":true}', "elsewhere"),
    Opaque("gemini", "part", '{"thoughtSignature":"c2ln"}'),
    Opaque("responses", "sealed", '{"id":"rs_1","type":"reasoning","summary":[]}'),
    Opaque("responses", "message", '{"phase":"commentary"}'),
)
EXTRAS = (
    "",
    '"caller":{"type":"direct"}',
    '"extra_content":{"g":1}',
    '"gemini":{"thoughtSignature":"c2ln"}',
    '"responses":{"namespace":"n"}',
)
SUMMARY = Opaque("anthropic", "compaction", '{"type":"compaction","content":"was"}', "was")


def fetch(blob: str) -> bytes:
    return BLOBS[blob]


class Story:
    """A log in memory and the view that grew with it."""

    def __init__(self, entries: list[Entry] | None = None) -> None:
        self.entries = list(entries or [])
        self.view = project_view(self.entries)

    def append(self, *facts: AnyFact) -> Story:
        for fact in facts:
            assert not find_violation(self.view, fact), find_violation(self.view, fact)
            entry = Entry(len(self.entries) + 1, 0.0, fact)
            self.entries.append(entry)
            if isinstance(fact, Rewound | Restored):
                self.view = project_view(self.entries)
            else:
                self.view.add(entry)
        return self

    def fork(self) -> Story:
        return Story(self.entries)

    def sent(self, request: Request) -> Story:
        """Record that this request left."""
        made = Sent(request.pieces, request.chain, request.digest, len(request.body))
        return self.append(made)


class Author:
    """Chooses what happens next, out of all that may."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.count = 0

    def epoch(self) -> Epoch:
        system = self.chance.choice(("You are a coding agent.", "", "half \udc00 of a pair"))
        tools = self.chance.choice((TOOLS, (), TOOLS[:1]))
        return Epoch(self.chance.choice(MODELS), system, tools)

    def user(self) -> User:
        return User(self.shown(), origin=self.chance.choice(("human", "note", "hook", "mail")))

    def reply(self) -> Assistant:
        content = tuple(self.block() for _ in range(self.chance.choice((0, 1, 1, 2, 3, 5))))
        stops: tuple[StopReason, ...] = ("end", "end", "pause", "length", "refusal", "unknown")
        stop: StopReason = "calls" if extract_calls(content) else self.chance.choice(stops)
        if extract_calls(content) and self.chance.random() < 0.1:
            stop = "pause"
        return Assistant(content, stop=stop)

    def block(self) -> AnyBlock:
        pick = self.chance.random()
        if pick < 0.3:
            return Text(self.chance.choice(TEXTS))
        return self.call() if pick < 0.65 else self.chance.choice(OPAQUE)

    def call(self) -> Call:
        self.count += 1
        shapes = ("toolu_{}", "call_{}", "functions.Bash:{}", "{}" + "y" * 70, "ab12{:05d}")
        id = self.chance.choice(shapes).format(self.count)
        extra = self.chance.choice(EXTRAS)
        return Call(id, self.chance.choice(NAMES), self.chance.choice(ARGS), extra=extra)

    def shown(self) -> tuple[TextOrMedia, ...]:
        return tuple(self.show() for _ in range(self.chance.choice((0, 1, 1, 2))))

    def show(self) -> TextOrMedia:
        if self.chance.random() < 0.75:
            return Text(self.chance.choice(TEXTS))
        media = (
            Media("image", "image/png", "png", 8, "a.png"),
            Media("image", "image/tiff", "png", 8),
            Media("image", "image/png", "lost", 8),
            Media("image", "image/png", "empty", 0),
            Media("document", "application/pdf", "pdf", 8, "a.pdf"),
        )
        return self.chance.choice(media)

    def result(self, view: View) -> Result | None:
        pending = open_calls(view)
        if not pending:
            return None
        call = self.chance.choice(pending)
        return Result(call.id, self.shown(), error=self.chance.random() < 0.3)

    def change(self, view: View) -> AnyFact | None:
        """A fact that changes what is shown; None if this one may not happen now."""
        fact = self.chance.choice((self.offload, self.clear, self.compact, self.restore))(view)
        return fact if fact is not None and not find_violation(view, fact) else None

    def offload(self, view: View) -> AnyFact | None:
        shown = [i.fact.call for i in view.items[view.seen :] if isinstance(i.fact, Result)]
        held = [call for call, answer in view.open.items() if answer is not None]
        known = shown + held
        return Offloaded(self.chance.choice(known), "blob", "preview") if known else None

    def clear(self, view: View) -> AnyFact | None:
        ids = sorted(view.ids)
        if not ids:
            return None
        some = tuple(self.chance.sample(ids, self.chance.randint(1, len(ids))))
        if self.chance.random() < 0.2:
            until = self.chance.choice(view.items).seq if view.items else 0
            return Cleared((), "", what="thinking", until=until)
        what = self.chance.choice(("results", "results", "inputs"))
        where = self.chance.choice(("local", "server"))
        return Cleared(some, "[cleared]", where=where, what=what)

    def compact(self, view: View) -> AnyFact | None:
        if not view.items:
            return None
        first, last = sorted(self.chance.randrange(len(view.items)) for _ in range(2))
        by = self.chance.choice(("model", "notes", "dropped", "provider"))
        summary = (SUMMARY,) if by == "provider" else (Text(self.chance.choice(TEXTS)),)
        return Compacted(view.items[first].seq, view.items[last].seq, summary, by=by)

    def restore(self, view: View) -> AnyFact | None:
        undone = sorted(view.summaries)
        return Restored(self.chance.choice(undone)) if undone else None

    def rewind(self, story: Story) -> Rewound:
        return Rewound(self.chance.randint(1, len(story.entries)))

    def step(self, story: Story) -> None:
        """One thing that happens; nothing is sent here."""
        view, pick = story.view, self.chance.random()
        if view.epoch is None:
            story.append(self.epoch())
        elif view.open and pick < 0.7:
            result = self.result(view)
            assert result is not None
            story.append(result)
        elif pick < 0.85:
            story.append(self.user())
        elif pick < 0.95:
            fact = self.change(view)
            story.append(*((fact,) if fact else ()))
        elif pick < 0.98:
            story.append(self.epoch())
        else:
            story.append(self.rewind(story))

    def answer(self, story: Story) -> None:
        """What the model does with a request that left."""
        if self.chance.random() < 0.15:
            story.append(Failed("server", "no"))
        else:
            story.append(self.reply())


def sendable(view: View) -> bool:
    return not find_send_blocker(view)
