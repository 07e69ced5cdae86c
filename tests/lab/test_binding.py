"""Thinking binding: which changes of a history break it, and what then happens."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.lab.client import CC, Client, Json, assistant, told, user
from travois_lab.talk import Reply, call, text, thinking

BETA = {"anthropic_beta": "thinking-binding-controls-2026-08-01"}
TOOL: Json = {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}
OTHER: Json = {"name": "list", "description": "List.", "input_schema": {"type": "object"}}


def speak(prompt: object, state: dict[str, int]) -> Reply:
    """Thinks and calls at first, then thinks and answers."""
    state["said"] = state.get("said", 0) + 1
    if state["said"] == 1:
        return Reply((thinking("plan"), call("read", path="a.py", limit=2)))
    return Reply((thinking(f"thought {state['said']}"), text(f"answer {state['said']}")))


class Talk:
    """A conversation in which the model has thought twice, ready to be sent once more."""

    def __init__(self, **options: object) -> None:
        self.lab = Client(speak, **options)
        self.fields: Json = {"system": [told("You help.")], "tools": [TOOL, OTHER]}
        self.messages: list[Json] = [user(told("open a.py"))]
        self.say()
        id = self.messages[-1]["content"][1]["id"]
        result = {"type": "tool_result", "tool_use_id": id, "content": "x = 1"}
        self.messages.append(user(result))
        self.say()
        self.messages.append(user(told("and now?")))

    def say(self) -> None:
        self.lab.ask(self.messages, **self.fields)
        assert self.lab.status == 200, self.lab.body
        self.messages.append(assistant(*self.lab.body["content"]))

    def send(self, behaviour: str, **extra: object) -> tuple[int, list[str], str]:
        """The status, the paths of dropped thinking, and the error."""
        control = {"block_binding": {"prefix_mismatch_behavior": behaviour}}
        mode = {"type": "adaptive", **control}
        fields = {**self.fields, "thinking": mode, "headers": BETA, **extra}
        exchange = self.lab.ask(copy.deepcopy(self.messages), **fields)
        dropped = [t["path"] for t in exchange.transformed]
        return self.lab.status, dropped, "" if self.lab.status == 200 else self.lab.error()


def nothing(_: Talk) -> None:
    pass


def move_markers(talk: Talk) -> None:
    talk.messages[0]["content"][0]["cache_control"] = CC
    talk.fields["system"][0]["cache_control"] = CC


def reorder_tools(talk: Talk) -> None:
    talk.fields["tools"] = [OTHER, TOOL]


def add_deferred_tool(talk: Talk) -> None:
    talk.fields["tools"] = [TOOL, OTHER, {**OTHER, "name": "late", "defer_loading": True}]


def add_tool(talk: Talk) -> None:
    talk.fields["tools"] = [TOOL, OTHER, {**OTHER, "name": "new"}]


def edit_tool(talk: Talk) -> None:
    talk.fields["tools"] = [{**TOOL, "description": "Read!"}, OTHER]


def edit_system(talk: Talk) -> None:
    talk.fields["system"] = [told("You help much.")]


def space_system(talk: Talk) -> None:
    talk.fields["system"] = "You help.  \n"


def string_to_block(talk: Talk) -> None:
    talk.messages[0]["content"] = "open a.py"


def reorder_keys(talk: Talk) -> None:
    use = talk.messages[1]["content"][1]
    use["input"] = dict(reversed(use["input"].items()))
    use["input"]["limit"] = 2.0


def edit_first_user(talk: Talk) -> None:
    talk.messages[0]["content"][0]["text"] = "open b.py"


def blank_result(talk: Talk) -> None:
    talk.messages[2]["content"][0]["content"] = "[cleared]"


def insert_reminder(talk: Talk) -> None:
    talk.messages[2]["content"].append(told("remember"))


def drop_oldest(talk: Talk) -> None:
    del talk.messages[1]["content"][0]


def drop_all(talk: Talk) -> None:
    del talk.messages[1]["content"][0], talk.messages[3]["content"][0]


def edit_newest(talk: Talk) -> None:
    talk.messages[-1]["content"][0]["text"] = "something else"


def append_system(talk: Talk) -> None:
    talk.messages.append({"role": "system", "content": "Be brief."})


Change = Callable[[Talk], None]
SAME: dict[str, Change] = {
    "B0": nothing,
    "B1": move_markers,
    "B2": reorder_tools,
    "B3": add_deferred_tool,
    "B7": space_system,
    "B8": string_to_block,
    "B10": reorder_keys,
    "B12": drop_oldest,
    "B13": drop_all,
    "B14": edit_newest,
    "B15": append_system,
}
FIRST, SECOND = "messages.1.content.0", "messages.3.content.0"
BROKEN: dict[str, tuple[Change, list[str]]] = {
    "B4": (add_tool, [FIRST, SECOND]),
    "B5": (edit_tool, [FIRST, SECOND]),
    "B6": (edit_system, [FIRST, SECOND]),
    "B9": (edit_first_user, [FIRST, SECOND]),
    "B11": (blank_result, [SECOND]),
    "B16": (insert_reminder, [SECOND]),
}


@pytest.mark.parametrize("behaviour", ["error", "drop_block"])
@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_what_leaves_the_bond_whole(change: Change, behaviour: str) -> None:
    talk = Talk()
    change(talk)
    assert talk.send(behaviour) == (200, [], "")


@pytest.mark.parametrize(("change", "dropped"), BROKEN.values(), ids=BROKEN)
def test_what_breaks_the_bond(change: Change, dropped: list[str]) -> None:
    talk = Talk()
    change(talk)
    status, _, error = talk.send("error")
    assert (status, error.startswith(dropped[0])) == (400, True)
    assert "bound to a different conversation" in error
    assert talk.send("drop_block") == (200, dropped, "")


@pytest.mark.parametrize("change", [blank_result, edit_system])
def test_an_account_that_is_not_enforced_is_only_told(change: Change) -> None:
    talk = Talk(enforced_binding=False)
    change(talk)
    talk.lab.ask(talk.messages, **talk.fields, headers=BETA)
    told = talk.lab.body["input_transformations"]
    assert talk.lab.status == 200 and {t["type"] for t in told} == {"thinking_mismatch_allowed"}


def test_an_enforced_account_is_refused_without_asking_for_it() -> None:
    talk = Talk()
    blank_result(talk)
    talk.lab.ask(talk.messages, **talk.fields)
    assert talk.lab.status == 400


def three_thoughts() -> Talk:
    talk = Talk()
    talk.say()
    talk.messages.append(user(told("go on")))
    return talk


def test_b17_a_gap_in_the_middle_of_the_thinking_breaks_what_follows() -> None:
    talk = three_thoughts()
    del talk.messages[3]["content"][0]
    status, _, error = talk.send("error")
    assert (status, error.startswith("messages.5.content.0")) == (400, True)
    assert talk.send("drop_block") == (200, ["messages.5.content.0"], "")


def test_b18_an_older_model_drops_all_thinking_and_never_refuses() -> None:
    talk = three_thoughts()
    exchange = talk.lab.ask(talk.messages, **talk.fields, model="claude-opus-5", headers=BETA)
    reasons = [t["reason"] for t in exchange.transformed]
    assert (talk.lab.status, reasons) == (200, ["model_binding_mismatch"] * 3)


def test_a_newer_model_reads_older_thinking() -> None:
    talk = Talk()
    assert talk.send("error", model="claude-fable-5-2") == (200, [], "")


def test_another_organisation_s_thinking_is_dropped() -> None:
    talk = Talk()
    stranger = Client(speak, organization="org_other")
    exchange = stranger.ask(talk.messages, **talk.fields)
    reasons = {t["reason"] for t in exchange.transformed}
    assert (stranger.status, reasons) == (200, {"organization_binding_mismatch"})


def test_thinking_dropped_once_is_dropped_alike_on_every_later_request() -> None:
    talk = Talk()
    blank_result(talk)
    assert talk.send("drop_block") == (200, [SECOND], "")
    talk.messages += [assistant(*talk.lab.body["content"]), user(told("more"))]
    assert talk.send("drop_block") == (200, [SECOND], "")


def compacted(talk: Talk) -> Json:
    headers = {"anthropic_beta": "compact-2026-09-04"}
    fields = {**talk.fields, "compaction": {"type": "summarize"}, "headers": headers}
    talk.lab.ask(talk.messages[:3], **fields)
    assert talk.lab.body["stop_reason"] == "compaction", talk.lab.body
    (block,) = talk.lab.body["content"]
    return block


def test_b19_the_tail_behind_a_signed_compaction_keeps_its_thinking() -> None:
    talk = three_thoughts()
    block = compacted(talk)
    talk.messages[:3] = [assistant(block)]
    assert talk.send("error") == (200, [], "")


def test_b20_the_tail_behind_a_client_s_own_summary_loses_it() -> None:
    talk = three_thoughts()
    talk.messages[:3] = [user(told("What we did so far: opened a.py."))]
    status, _, error = talk.send("error")
    assert status == 400 and "bound to a different conversation" in error
    assert talk.send("drop_block")[:2] == (200, ["messages.1.content.0", "messages.3.content.0"])


def test_changed_thinking_in_the_latest_reply_is_refused() -> None:
    lab = Client(lambda prompt, state: [thinking("deep"), call("read")])
    shown = {"thinking": {"type": "adaptive", "display": "summarized"}, "tools": [TOOL]}
    lab.ask([user(told("hi"))], **shown)
    thought, use = lab.body["content"]
    assert thought["thinking"] == "deep"
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "x"}
    changed = assistant({**thought, "thinking": "shallow"}, use)
    lab.ask([user(told("hi")), changed, user(result)], **shown)
    assert lab.status == 400 and "cannot be modified" in lab.error()


def test_thinking_is_hidden_unless_asked_for_on_models_that_hide_it() -> None:
    lab = Client(lambda prompt, state: [thinking("deep"), text("ok")])
    lab.ask([user(told("hi"))])
    assert lab.body["content"][0]["thinking"] == ""


def test_a_signature_that_nobody_made_is_refused() -> None:
    talk = Talk()
    talk.messages[1]["content"][0]["signature"] = "AAAA"
    assert talk.send("error")[2] == f"{FIRST}: Invalid `signature` in `thinking` block"


def test_count_tokens_runs_the_same_check() -> None:
    talk = Talk()
    blank_result(talk)
    body = {"model": "claude-opus-5-5", "messages": talk.messages, **talk.fields}
    status, answer = talk.lab.post("/v1/messages/count_tokens", body)
    assert status == 400 and "bound to a different" in answer["error"]["message"]


def test_a_call_with_broken_arguments_may_come_back_mended() -> None:
    said = [{"type": "tool_use", "name": "read", "args": '{"path": "ha'}]
    replies = iter([said, [thinking("hm"), text("ok")], "end"])
    lab = Client(lambda prompt, state: next(replies))
    history = [user(told("hi"))]
    lab.ask(history, tools=[TOOL])
    use = lab.body["content"][0] | {"input": {"raw": "ha"}}
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "bad", "is_error": True}
    history += [assistant(use), user(result)]
    lab.ask(history, tools=[TOOL])
    history += [assistant(*lab.body["content"]), user(told("next"))]
    history[1]["content"][0]["input"] = {}
    lab.ask(history, tools=[TOOL])
    assert lab.status == 200
