from __future__ import annotations

from inline_snapshot import snapshot

from tests.wire import canon
from tests.wire.golden import readable
from travois.kernel.models import Model

QWEN = Model("ollama", "qwen3", "ollama", window=32_000, output=8000)


def test_a_whole_request():
    request = canon.tell(QWEN, (canon.HELLO,))
    assert (request.path, request.headers, request.pieces) == snapshot(
        ("/api/chat", (("content-type", "application/json"),), 4)
    )
    assert readable(request.body) == snapshot(
        [
            '{"model":"qwen3","options":{"num_ctx":32000,"num_predict":8000},',
            '"tools":[',
            '{"type":"function",',
            '"function":{"name":"Read","description":"Read a file.",',
            '"parameters":{"type":"object",',
            '"properties":{',
            '"path":{"type":"string"}}}}},',
            '{"type":"function",',
            '"function":{"name":"Bash","description":"Run a command.",',
            '"parameters":{"type":"object"}}}],',
            '"messages":[',
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"}],',
            '"stream":true}',
        ]
    )


def test_reasoning_and_signatures_come_back_as_they_came():
    assert canon.messages(QWEN, *canon.SIGNED) == snapshot(
        [
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"I look.",',
            '"tool_calls":[',
            "{",
            '"function":{"name":"Read",',
            '"arguments":{"path": "a"}}},',
            "{",
            '"function":{"name":"Bash",',
            '"arguments":{}}}]},',
            '{"role":"tool","tool_name":"Read",',
            '"content":"one"},',
            '{"role":"tool","tool_name":"Bash",',
            '"content":"Error: two\\n[image a.png, image/png, 8 bytes: see below]"},',
            '{"role":"user",',
            '"content":"Shown by the tools above:","images":["iVBORw0KGgo="]},',
            '{"role":"assistant",',
            '"content":"So."},',
            '{"role":"user",',
            '"content":"hello"}',
        ]
    )


def test_parallel_results_stand_in_the_order_asked():
    assert canon.messages(QWEN, *canon.PARALLEL) == snapshot(
        [
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"",',
            '"tool_calls":[',
            "{",
            '"function":{"name":"Read",',
            '"arguments":{}}},',
            "{",
            '"function":{"name":"Bash",',
            '"arguments":{"cmd":"ls"}}}]},',
            '{"role":"tool","tool_name":"Read",',
            '"content":"one\\ntwo"},',
            '{"role":"tool","tool_name":"Bash",',
            '"content":"Error: no such file"},',
            '{"role":"user",',
            '"content":"hurry"}',
        ]
    )


def test_media_are_shown_where_they_can_be():
    assert canon.messages(QWEN, *canon.MEDIA) == snapshot(
        [
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"look\\n[document a.pdf, application/pdf, 8 bytes: this model cannot ',
            'be shown it]","images":["iVBORw0KGgo="]},',
            '{"role":"assistant",',
            '"content":"",',
            '"tool_calls":[',
            "{",
            '"function":{"name":"Read",',
            '"arguments":{}}},',
            "{",
            '"function":{"name":"Read",',
            '"arguments":{}}}]},',
            '{"role":"tool","tool_name":"Read",',
            '"content":"[image a.png, image/png, 8 bytes: see below]"},',
            '{"role":"tool","tool_name":"Read",',
            '"content":"lost:\\n[image, image/png, 8 bytes: see below]"},',
            '{"role":"user",',
            '"content":"Shown by the tools above:\\n[image, image/png, 8 bytes: it is lost]"',
            ',"images":["iVBORw0KGgo="]},',
            '{"role":"user",',
            '"content":"and?"}',
        ]
    )


def test_what_is_empty_is_never_sent():
    assert canon.messages(QWEN, *canon.NOTHING) == snapshot(
        [
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"(empty message)"},',
            '{"role":"assistant",',
            '"content":"",',
            '"tool_calls":[',
            "{",
            '"function":{"name":"Bash",',
            '"arguments":{}}}]},',
            '{"role":"tool","tool_name":"Bash",',
            '"content":"(no output)"},',
            '{"role":"user",',
            '"content":" \\nmore"}',
        ]
    )


def test_what_other_providers_made_is_told_in_words_or_not_at_all():
    assert canon.messages(QWEN, *canon.OPAQUES) == snapshot(
        [
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"cited\\nDone.","thinking":"so"},',
            '{"role":"user",',
            '"content":"hello"}',
        ]
    )


def test_arguments_that_are_no_object_are_sent_all_the_same():
    assert canon.messages(QWEN, *canon.BAD_ARGUMENTS) == snapshot(
        [
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"",',
            '"tool_calls":[',
            "{",
            '"function":{"name":"Read",',
            '"arguments":{"_invalid_arguments":"{\\"path\\": \\"a"}}},',
            "{",
            '"function":{"name":"Read",',
            '"arguments":{"_invalid_arguments":""}}}]},',
            '{"role":"tool","tool_name":"Read",',
            '"content":"Error: The arguments are not JSON."},',
            '{"role":"tool","tool_name":"Read",',
            '"content":"ok"}',
        ]
    )


def test_a_summary_of_another_provider_is_said_in_words():
    assert canon.messages(QWEN, *canon.PROVIDER_SUMMARISED) == snapshot(
        [
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"(This conversation began earlier.)"},',
            '{"role":"assistant",',
            '"content":"was"},',
            '{"role":"user",',
            '"content":"hello"}',
        ]
    )


def test_a_pause_in_words_gets_a_user_message():
    assert canon.messages(QWEN, *canon.PAUSED_IN_WORDS) == snapshot(
        [
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"Let me"},',
            '{"role":"user",',
            '"content":"(continue)"}',
        ]
    )


def test_strange_ids_and_names_become_legal_ones():
    assert canon.messages(QWEN, *canon.STRANGE_NAMES) == snapshot(
        [
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"",',
            '"tool_calls":[',
            "{",
            '"function":{"name":"functions_Bash",',
            '"arguments":{}}}]},',
            '{"role":"tool","tool_name":"functions_Bash",',
            '"content":"ok"}',
        ]
    )


def test_half_characters_become_replacement_characters():
    assert canon.messages(QWEN, *canon.HALVES) == snapshot(
        [
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"half �, whole 😀"},',
            '{"role":"assistant",',
            '"content":"",',
            '"tool_calls":[',
            "{",
            '"function":{"name":"Bash",',
            '"arguments":{"_invalid_arguments":"{\\"p\\":\\"�\\"}"}}}]},',
            '{"role":"tool","tool_name":"Bash",',
            '"content":"�"}',
        ]
    )
