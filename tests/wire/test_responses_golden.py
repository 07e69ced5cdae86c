from __future__ import annotations

from inline_snapshot import snapshot

from tests.wire import canon
from tests.wire.golden import readable
from travois.kernel.models import Model

GPT = Model("openai", "gpt-6", "responses", output=8000)


def test_a_whole_request():
    request = canon.tell(GPT, (canon.HELLO,))
    assert (request.path, request.headers, request.pieces) == snapshot(
        ("/responses", (("content-type", "application/json"),), 4)
    )
    assert readable(request.body) == snapshot(
        [
            '{"model":"gpt-6","max_output_tokens":8000,"instructions":"Be brief.",',
            '"tools":[',
            '{"type":"function","name":"Read","description":"Read a file.",',
            '"parameters":{"type":"object",',
            '"properties":{',
            '"path":{"type":"string"}}},"strict":false},',
            '{"type":"function","name":"Bash","description":"Run a command.",',
            '"parameters":{"type":"object"},"strict":false}],',
            '"input":[',
            '{"type":"message","role":"user",',
            '"content":"hello"}],',
            '"stream":true,"store":false,"include":["reasoning.encrypted_content"],"stream_',
            'options":{"include_obfuscation":false},"prompt_cache_key":"d79dab56a5b9573c"}',
        ]
    )


def test_reasoning_and_signatures_come_back_as_they_came():
    assert canon.contents(GPT, *canon.SIGNED) == snapshot(
        [
            '{"type":"message","role":"user",',
            '"content":"hello"},',
            '{"id": "rs_1","type":"reasoning","summary":[]},',
            '{"type":"message","role":"assistant",',
            '"content":"I look.","phase":"commentary"},',
            '{"type":"function_call","call_id":"c1","name":"Read",',
            '"arguments":"{\\"path\\": \\"a\\"}"},',
            '{"type":"function_call","call_id":"c2","name":"Bash",',
            '"arguments":"{}","namespace":"n"},',
            '{"type":"function_call_output","call_id":"c1","output":"one"},',
            '{"type":"function_call_output","call_id":"c2","output":[',
            '{"type":"input_text","text":"Error:"},',
            '{"type":"input_text","text":"two"},',
            '{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,iVBOR',
            'w0KGgo="}]},',
            '{"type":"message","role":"assistant",',
            '"content":"So."},',
            '{"type":"message","role":"user",',
            '"content":"hello"}',
        ]
    )


def test_parallel_results_stand_in_the_order_asked():
    assert canon.contents(GPT, *canon.PARALLEL) == snapshot(
        [
            '{"type":"message","role":"user",',
            '"content":"hello"},',
            '{"type":"function_call","call_id":"c1","name":"Read",',
            '"arguments":"{}"},',
            '{"type":"function_call","call_id":"c2","name":"Bash",',
            '"arguments":"{\\"cmd\\":\\"ls\\"}"},',
            '{"type":"function_call_output","call_id":"c1","output":"one\\ntwo"},',
            '{"type":"function_call_output","call_id":"c2","output":"Error:\\nno such file"}',
            ",",
            '{"type":"message","role":"user",',
            '"content":"hurry"}',
        ]
    )


def test_media_are_shown_where_they_can_be():
    assert canon.contents(GPT, *canon.MEDIA) == snapshot(
        [
            '{"type":"message","role":"user",',
            '"content":[',
            '{"type":"input_text","text":"look"},',
            '{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,iVBOR',
            'w0KGgo="},',
            '{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base',
            '64,JVBERi0xLjc="}]},',
            '{"type":"function_call","call_id":"c1","name":"Read",',
            '"arguments":"{}"},',
            '{"type":"function_call","call_id":"c2","name":"Read",',
            '"arguments":"{}"},',
            '{"type":"function_call_output","call_id":"c1","output":[',
            '{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,iVBOR',
            'w0KGgo="}]},',
            '{"type":"function_call_output","call_id":"c2","output":[',
            '{"type":"input_text","text":"lost:"},',
            '{"type":"input_text","text":"[image, image/png, 8 bytes: its bytes are lost]"}',
            "]},",
            '{"type":"message","role":"user",',
            '"content":"and?"}',
        ]
    )


def test_what_is_empty_is_never_sent():
    assert canon.contents(GPT, *canon.NOTHING) == snapshot(
        [
            '{"type":"message","role":"user",',
            '"content":"(empty message)"},',
            '{"type":"function_call","call_id":"c1","name":"Bash",',
            '"arguments":"{}"},',
            '{"type":"function_call_output","call_id":"c1","output":"(no output)"},',
            '{"type":"message","role":"user",',
            '"content":" \\nmore"}',
        ]
    )


def test_what_other_providers_made_is_told_in_words_or_not_at_all():
    assert canon.contents(GPT, *canon.OPAQUES) == snapshot(
        [
            '{"type":"message","role":"user",',
            '"content":"hello"},',
            '{"type":"message","role":"assistant",',
            '"content":"cited"},',
            '{"type":"message","role":"assistant",',
            '"content":"Done."},',
            '{"type":"message","role":"user",',
            '"content":"hello"}',
        ]
    )


def test_arguments_that_are_no_object_are_sent_all_the_same():
    assert canon.contents(GPT, *canon.BAD_ARGUMENTS) == snapshot(
        [
            '{"type":"message","role":"user",',
            '"content":"hello"},',
            '{"type":"function_call","call_id":"c1","name":"Read",',
            '"arguments":"{\\"path\\": \\"a"},',
            '{"type":"function_call","call_id":"c2","name":"Read",',
            '"arguments":""},',
            '{"type":"function_call_output","call_id":"c1","output":"Error:\\nThe arguments ',
            'are not JSON."},',
            '{"type":"function_call_output","call_id":"c2","output":"ok"}',
        ]
    )


def test_a_summary_of_another_provider_is_said_in_words():
    assert canon.contents(GPT, *canon.PROVIDER_SUMMARISED) == snapshot(
        [
            '{"type":"message","role":"user",',
            '"content":"(This conversation began earlier.)"},',
            '{"type":"message","role":"assistant",',
            '"content":"was"},',
            '{"type":"message","role":"user",',
            '"content":"hello"}',
        ]
    )


def test_a_pause_in_words_gets_a_user_message():
    assert canon.contents(GPT, *canon.PAUSED_IN_WORDS) == snapshot(
        [
            '{"type":"message","role":"user",',
            '"content":"hello"},',
            '{"type":"message","role":"assistant",',
            '"content":"Let me"},',
            '{"type":"message","role":"user",',
            '"content":"(continue)"}',
        ]
    )


def test_strange_ids_and_names_become_legal_ones():
    assert canon.contents(GPT, *canon.STRANGE_NAMES) == snapshot(
        [
            '{"type":"message","role":"user",',
            '"content":"hello"},',
            '{"type":"function_call","call_id":"functions.Bash:0","name":"functions_Bash",',
            '"arguments":"{}"},',
            '{"type":"function_call_output","call_id":"functions.Bash:0","output":"ok"}',
        ]
    )


def test_half_characters_become_replacement_characters():
    assert canon.contents(GPT, *canon.HALVES) == snapshot(
        [
            '{"type":"message","role":"user",',
            '"content":"half �, whole 😀"},',
            '{"type":"function_call","call_id":"c1","name":"Bash",',
            '"arguments":"{\\"p\\":\\"�\\"}"},',
            '{"type":"function_call_output","call_id":"c1","output":"�"}',
        ]
    )
