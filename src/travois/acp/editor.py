"""The person in front of the editor: questions become its dialogs."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import msgspec

from travois.acp import calls
from travois.acp.peer import Ask
from travois.acp.protocol import Capabilities, Filled, Permission
from travois.core.content import Call
from travois.core.display_text import visible
from travois.headless.control.messages import Declined
from travois.headless.json_shapes import Json, Object
from travois.ports.person import OFFER, Answer, Choice, Inquiry, Question
from travois.tui.line_mode import shown

ONCE: Json = {"optionId": "once", "name": "Yes, this once", "kind": "allow_once"}
SANDBOX: Json = {"optionId": "sandbox", "name": f"Yes, and {OFFER}", "kind": "allow_always"}
NO: Json = {"optionId": "no", "name": "No", "kind": "reject_once"}
NONE: Json = {"optionId": "none", "name": "None of these", "kind": "reject_once"}
TAKEN_BACK = "the question was taken back in the editor"
PLANS = ("allow_once", "allow_always", "reject_once")


class Editor:
    """Puts questions to the person through the editor, each after what led to it."""

    def __init__(self, ask: Ask, capabilities: Capabilities) -> None:
        self._ask = ask
        self._capabilities = capabilities
        self._told: dict[str, anyio.Event] = {}
        self.session = ""
        self.describe: Callable[[Call], Object] = lambda call: {"toolCallId": call.id}
        """How a call is shown."""

    def told(self, call: str) -> anyio.Event:
        """Set when all that led to a question about this call was shown."""
        return self._told.setdefault(call, anyio.Event())

    async def _shown(self, call: str) -> None:
        await self.told(call).wait()
        self._told.pop(call, None)

    async def decide(self, question: Question) -> Answer:
        """Show exactly what would run, and ask."""
        await self._shown(question.call)
        rules = f"Yes, always: {visible(', '.join(question.always))}"
        always: Json = {"optionId": "always", "name": rules, "kind": "allow_always"}
        offer = [SANDBOX] if question.offers_sandbox else []
        options = [ONCE, *([always] if question.always else []), *offer, NO]
        try:
            picked = await self._pick(_asked(self.describe, question), options)
        except Declined as declined:
            return Answer(allow=False, reason=str(declined))
        match picked:
            case "once":
                return Answer(allow=True, reason="the user said yes", digest=question.digest)
            case "always" if question.always:
                said = "the user said always"
                return Answer(allow=True, reason=said, always=True, digest=question.digest)
            case "sandbox" if question.offers_sandbox:
                said = "the user said yes"
                return Answer(allow=True, reason=said, sandbox=True, digest=question.digest)
            case None:
                return Answer(allow=False, reason=TAKEN_BACK, stop=TAKEN_BACK)
            case _:
                return Answer(allow=False, reason="the user said no")

    async def choose(self, inquiry: Inquiry) -> tuple[str, ...] | None:
        """Put choices together as a form, or one after the other."""
        await self._shown(inquiry.call)
        try:
            if self._capabilities.forms and not inquiry.plan:
                return await self._form(inquiry)
            answers = [await self._choice(inquiry, choice) for choice in inquiry.choices]
        except (Declined, msgspec.DecodeError):
            return None
        found = tuple(answer for answer in answers if answer is not None)
        return found if len(found) == len(inquiry.choices) else None

    async def _pick(self, call: Object, options: list[Json]) -> str | None:
        """The option that was chosen; none if the question was taken back."""
        body: Object = {"sessionId": self.session, "toolCall": call, "options": options}
        found = await self._ask("session/request_permission", body)
        try:
            outcome = msgspec.json.decode(found, type=Permission).outcome
        except msgspec.DecodeError as error:
            raise Declined(f"the editor's answer cannot be used: {error}") from None
        return outcome.option_id if outcome.outcome == "selected" else None

    async def _choice(self, inquiry: Inquiry, choice: Choice) -> str | None:
        """One choice as a question of its own: only one of its options can be picked."""
        kinds = PLANS if inquiry.plan else ("allow_once",) * len(choice.options)
        options: list[Json] = [
            _option(number, _told(one.label, one.description), kind=kind)
            for number, (one, kind) in enumerate(zip(choice.options, kinds, strict=True))
        ]
        call: Object = {
            "toolCallId": inquiry.call,
            "title": visible(choice.question),
            "kind": "switch_mode" if inquiry.plan else "other",
            "content": [calls.text(inquiry.plan)] if inquiry.plan else [],
        }
        picked = await self._pick(call, options if inquiry.plan else [*options, NONE])
        if not picked or not picked.isdecimal() or int(picked) >= len(options):
            return None
        return choice.options[int(picked)].label

    async def _form(self, inquiry: Inquiry) -> tuple[str, ...] | None:
        names = [f"q{number}" for number, _ in enumerate(inquiry.choices, 1)]
        fields: Object = {n: _field(one) for n, one in zip(names, inquiry.choices, strict=True)}
        schema: Object = {"type": "object", "properties": fields, "required": list[Json](names)}
        body: Object = {"sessionId": self.session, "toolCallId": inquiry.call, "mode": "form"}
        asked = "\n".join(visible(one.question) for one in inquiry.choices)
        answer = await self._ask(
            "elicitation/create", {**body, "message": asked, "requestedSchema": schema}
        )
        filled = msgspec.json.decode(answer, type=Filled)
        if filled.action != "accept" or filled.content is None:
            return None
        told = (filled.content.get(name, "") for name in names)
        said = tuple(", ".join(one) if isinstance(one, tuple) else str(one) for one in told)
        return said if all(said) else None


def _asked(describe: Callable[[Call], Object], question: Question) -> Object:
    """The call as it would run, with what it does and why it is asked about; nothing is cut."""
    told = describe(Call(question.call, question.tool, question.args))
    planned = told.get("content")
    lines = calls.text(calls.fenced("\n".join(shown(question))))
    content: list[Json] = [*(planned if isinstance(planned, list) else []), lines]
    return {**told, "status": "pending", "content": content}


def _option(number: int, name: str, *, kind: str = "allow_once") -> Json:
    return {"optionId": str(number), "name": visible(name), "kind": kind}


def _told(label: str, description: str) -> str:
    return f"{label}: {description}" if description else label


def _field(choice: Choice) -> Json:
    """One choice as a field of a form."""
    options: list[Json] = [
        {"const": one.label, "title": visible(_told(one.label, one.description))}
        for one in choice.options
    ]
    about: Object = {"title": visible(choice.header or choice.question)}
    about["description"] = visible(choice.question)
    if choice.several:
        return {**about, "type": "array", "items": {"anyOf": options}}
    return {**about, "type": "string", "oneOf": options}
