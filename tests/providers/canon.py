"""Canonical histories: the ones whose bytes are pinned for every protocol."""

from __future__ import annotations

from tests.providers.stories import OPAQUE, SUMMARY, TOOLS, Story, fetch
from travois.core.content import Call, Media, Opaque, Text
from travois.core.facts import (
    AnyFact,
    Assistant,
    Cleared,
    Compacted,
    Epoch,
    Offloaded,
    Result,
    User,
)
from travois.core.models import ModelCard
from travois.providers.encoder import RequestEncoder
from travois.providers.request import Request

HELLO = User((Text("hello"),))
ASKED = Assistant((Text("I look."), Call("toolu_1", "Read", '{"path": "a.py"}')), stop="calls")
GIVEN = Result("toolu_1", (Text("1 def f():"),))
IMAGE = Media("image", "image/png", "png", 8, "a.png")
PDF = Media("document", "application/pdf", "pdf", 8, "a.pdf")
LOST = Media("image", "image/png", "gone", 8)

ONE_CALL = (HELLO, ASKED, GIVEN)
PARALLEL = (
    HELLO,
    Assistant((Call("c1", "Read", "{}"), Call("c2", "Bash", '{"cmd":"ls"}')), stop="calls"),
    User((Text("hurry"),)),
    Result("c2", (Text("no such file"),), error=True),
    Result("c1", (Text("one"), Text("two"))),
)
BAD_ARGUMENTS = (
    HELLO,
    Assistant((Call("c1", "Read", '{"path": "a'), Call("c2", "Read", "")), stop="calls"),
    Result("c1", (Text("The arguments are not JSON."),), error=True),
    Result("c2", (Text("ok"),)),
)
MEDIA = (
    User((Text("look"), IMAGE, PDF)),
    Assistant((Call("c1", "Read", "{}"), Call("c2", "Read", "{}")), stop="calls"),
    Result("c1", (IMAGE,)),
    Result("c2", (Text("lost:"), LOST)),
    User((Text("and?"),)),
)
OPAQUES = (
    HELLO,
    Assistant((OPAQUE[0], OPAQUE[5], OPAQUE[4], IMAGE, Text("Done.")), stop="end"),
    HELLO,
)
NOTHING = (
    User(()),
    Assistant((Text(" \n"), Call("c1", "Bash", "{}")), stop="calls"),
    Result("c1", (Text(""),)),
    Assistant((), stop="end"),
    Assistant((OPAQUE[0],), stop="length"),
    User((Text(" "), Text("more"))),
)
HALVES = (
    User((Text("half \ud83d, whole \ud83d\ude00"),)),
    Assistant((Call("c1", "Bash", '{"p":"\ud800"}'),), stop="calls"),
    Result("c1", (Text("\udc00"),)),
)
RETOLD = (
    *ONE_CALL,
    Offloaded("toolu_1", "blob", "first lines"),
    Assistant((Call("c2", "Read", "{}"),), stop="calls"),
    Result("c2", (Text("old"),)),
    Cleared(("c2",), "[cleared]"),
)
SUMMARISED = (
    *ONE_CALL,
    Compacted(2, 4, (Text("We looked at a.py."),), by="model"),
    HELLO,
)
PROVIDER_SUMMARISED = (
    *ONE_CALL,
    Compacted(2, 4, (SUMMARY,), by="provider"),
    HELLO,
)
FOREIGN_SUMMARISED = (
    *ONE_CALL,
    Compacted(2, 4, (Opaque("elsewhere", "compaction", "{}", "was"),), by="provider"),
    HELLO,
)
PAUSED = (HELLO, Assistant((OPAQUE[3],), stop="pause"))
PAUSED_IN_WORDS = (HELLO, Assistant((Text("Let me"),), stop="pause"))
STRANGE_NAMES = (
    HELLO,
    Assistant((Call("functions.Bash:0", "functions.Bash", "{}"),), stop="calls"),
    Result("functions.Bash:0", (Text("ok"),)),
)
EXTRAS = (
    HELLO,
    Assistant(
        (
            Call("c1", "Read", "{}", extra='"caller":{"type":"direct"},"new":[1.0]'),
            Call("c2", "Read", "{}", extra='"extra_content":{"google":{"thought_signature":"s"}}'),
        ),
        stop="calls",
    ),
    Result("c1", (Text("one"),)),
    Result("c2", (Text("two"),)),
)
REASONED = (
    HELLO,
    Assistant((Text("Hi."),), stop="end"),
    HELLO,
    Assistant(
        (
            Opaque("chat", "reasoning", '{"reasoning_content":"so","reasoning_details":[{"a":1}]}'),
            Text("Hi again."),
        ),
        stop="end",
    ),
    HELLO,
)
SIGNED = (
    HELLO,
    Assistant(
        (
            Opaque("responses", "sealed", '{"id": "rs_1","type":"reasoning","summary":[]}'),
            Opaque("responses", "message", '{"phase":"commentary"}'),
            Opaque("gemini", "thinking", '{"text":"hm","thought":true}', "hm"),
            Opaque("gemini", "part", '{"thoughtSignature":"czE="}'),
            Text("I look."),
            Call("c1", "Read", '{"path": "a"}', extra='"gemini":{"thoughtSignature":"czI="}'),
            Call("c2", "Bash", "{}", extra='"gemini":{"id":"c2"},"responses":{"namespace":"n"}'),
        ),
        stop="calls",
    ),
    Result("c1", (Text("one"),)),
    Result("c2", (Text("two"), IMAGE), error=True),
    Assistant(
        (Text("So."), Opaque("responses", "sealed", '{"type":"reasoning"}'), OPAQUE[0]),
        stop="length",
    ),
    HELLO,
)
STORIES = {
    "one call and its result": ONE_CALL,
    "parallel results stand in the order asked, before what was said meanwhile": PARALLEL,
    "arguments that are no object are sent all the same": BAD_ARGUMENTS,
    "media are shown where they can be": MEDIA,
    "blocks of this provider go back verbatim, of others in words or not at all": OPAQUES,
    "what is empty is never sent": NOTHING,
    "half characters become replacement characters": HALVES,
    "offloaded and cleared results show other text": RETOLD,
    "a summary is the harness speaking": SUMMARISED,
    "a summary of the provider is its own block": PROVIDER_SUMMARISED,
    "a summary of another provider is said in words": FOREIGN_SUMMARISED,
    "a pause is gone on from as it stands": PAUSED,
    "a pause in words gets a user message": PAUSED_IN_WORDS,
    "strange ids and names become legal ones": STRANGE_NAMES,
    "further members of a call are spliced back": EXTRAS,
    "reasoning goes back where it is asked for, and there always": REASONED,
    "what is signed comes back as it came": SIGNED,
}


def tell(model: ModelCard, facts: tuple[AnyFact, ...], *, system: str = "Be brief.") -> Request:
    """The request for these facts."""
    story = Story().append(Epoch(model, system, TOOLS), *facts)
    return RequestEncoder(fetch).build_request(story.view)
