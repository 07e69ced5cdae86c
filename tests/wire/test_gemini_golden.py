from __future__ import annotations

from inline_snapshot import snapshot

from tests.wire import canon
from tests.wire.golden import readable
from travois.kernel.models import Model

GEMINI = Model("google", "gemini-3 pro", "gemini", output=8000)


def test_a_whole_request():
    request = canon.tell(GEMINI, (canon.HELLO,))
    assert (request.path, request.headers, request.pieces) == snapshot(
        (
            "/v1beta/models/gemini-3%20pro:streamGenerateContent?alt=sse",
            (("content-type", "application/json"),),
            4,
        )
    )
    assert readable(request.body) == snapshot(
        [
            '{"generationConfig":{"maxOutputTokens":8000},"systemInstruction":{"parts":[',
            '{"text":"Be brief."}]},',
            '"tools":[',
            '{"functionDeclarations":[',
            '{"name":"Read","description":"Read a file.",',
            '"parametersJsonSchema":{"type":"object",',
            '"properties":{',
            '"path":{"type":"string"}}}},',
            '{"name":"Bash","description":"Run a command.",',
            '"parametersJsonSchema":{"type":"object"}}]}],"contents":[',
            '{"role":"user","parts":[',
            '{"text":"hello"}]}]}',
        ]
    )


def test_reasoning_and_signatures_come_back_as_they_came():
    assert canon.contents(GEMINI, *canon.SIGNED) == snapshot(
        [
            '{"role":"user","parts":[',
            '{"text":"hello"}]},',
            '{"role":"model","parts":[',
            '{"text":"hm","thought":true},',
            '{"text":"I look.","thoughtSignature":"czE="},',
            '{"functionCall":{"name":"Read","args":{"path": "a"}},"thoughtSignature":"czI="',
            "},",
            '{"functionCall":{"id":"c2","name":"Bash","args":{}}}]},',
            '{"role":"user","parts":[',
            '{"functionResponse":{"name":"Read","response":{"output":"one"}}},',
            '{"functionResponse":{"id":"c2","name":"Bash","response":{"error":"two\\n[image ',
            'a.png, image/png, 8 bytes: see below]"}}},',
            '{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="}}]},',
            '{"role":"model","parts":[',
            '{"text":"So."}]},',
            '{"role":"user","parts":[',
            '{"text":"hello"}]}',
        ]
    )


def test_parallel_results_stand_in_the_order_asked():
    assert canon.contents(GEMINI, *canon.PARALLEL) == snapshot(
        [
            '{"role":"user","parts":[',
            '{"text":"hello"}]},',
            '{"role":"model","parts":[',
            '{"functionCall":{"name":"Read","args":{}},"thoughtSignature":"skip_thought_sig',
            'nature_validator"},',
            '{"functionCall":{"name":"Bash","args":{"cmd":"ls"}}}]},',
            '{"role":"user","parts":[',
            '{"functionResponse":{"name":"Read","response":{"output":"one\\ntwo"}}},',
            '{"functionResponse":{"name":"Bash","response":{"error":"no such file"}}},',
            '{"text":"hurry"}]}',
        ]
    )


def test_media_are_shown_where_they_can_be():
    assert canon.contents(GEMINI, *canon.MEDIA) == snapshot(
        [
            '{"role":"user","parts":[',
            '{"text":"look"},',
            '{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="}},',
            '{"inlineData":{"mimeType":"application/pdf","data":"JVBERi0xLjc="}}]},',
            '{"role":"model","parts":[',
            '{"functionCall":{"name":"Read","args":{}},"thoughtSignature":"skip_thought_sig',
            'nature_validator"},',
            '{"functionCall":{"name":"Read","args":{}}}]},',
            '{"role":"user","parts":[',
            '{"functionResponse":{"name":"Read","response":{"output":"[image a.png, image/p',
            'ng, 8 bytes: see below]"}}},',
            '{"functionResponse":{"name":"Read","response":{"output":"lost:\\n[image, image/',
            'png, 8 bytes: see below]"}}},',
            '{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="}},',
            '{"text":"[image, image/png, 8 bytes: its bytes are lost]"},',
            '{"text":"and?"}]}',
        ]
    )


def test_what_is_empty_is_never_sent():
    assert canon.contents(GEMINI, *canon.NOTHING) == snapshot(
        [
            '{"role":"user","parts":[',
            '{"text":"(empty message)"}]},',
            '{"role":"model","parts":[',
            '{"functionCall":{"name":"Bash","args":{}},"thoughtSignature":"skip_thought_sig',
            'nature_validator"}]},',
            '{"role":"user","parts":[',
            '{"functionResponse":{"name":"Bash","response":{"output":"(no output)"}}},',
            '{"text":"more"}]}',
        ]
    )


def test_what_other_providers_made_is_told_in_words_or_not_at_all():
    assert canon.contents(GEMINI, *canon.OPAQUES) == snapshot(
        [
            '{"role":"user","parts":[',
            '{"text":"hello"}]},',
            '{"role":"model","parts":[',
            '{"text":"cited"},',
            '{"text":"Done."}]},',
            '{"role":"user","parts":[',
            '{"text":"hello"}]}',
        ]
    )


def test_arguments_that_are_no_object_are_sent_all_the_same():
    assert canon.contents(GEMINI, *canon.BAD_ARGUMENTS) == snapshot(
        [
            '{"role":"user","parts":[',
            '{"text":"hello"}]},',
            '{"role":"model","parts":[',
            '{"functionCall":{"name":"Read","args":{"_invalid_arguments":"{\\"path\\": \\"a"}}',
            ',"thoughtSignature":"skip_thought_signature_validator"},',
            '{"functionCall":{"name":"Read","args":{"_invalid_arguments":""}}}]},',
            '{"role":"user","parts":[',
            '{"functionResponse":{"name":"Read","response":{"error":"The arguments are not ',
            'JSON."}}},',
            '{"functionResponse":{"name":"Read","response":{"output":"ok"}}}]}',
        ]
    )


def test_a_summary_of_another_provider_is_said_in_words():
    assert canon.contents(GEMINI, *canon.PROVIDER_SUMMARISED) == snapshot(
        [
            '{"role":"user","parts":[',
            '{"text":"(This conversation began earlier.)"}]},',
            '{"role":"model","parts":[',
            '{"text":"was"}]},',
            '{"role":"user","parts":[',
            '{"text":"hello"}]}',
        ]
    )


def test_a_pause_in_words_gets_a_user_message():
    assert canon.contents(GEMINI, *canon.PAUSED_IN_WORDS) == snapshot(
        [
            '{"role":"user","parts":[',
            '{"text":"hello"}]},',
            '{"role":"model","parts":[',
            '{"text":"Let me"}]},',
            '{"role":"user","parts":[',
            '{"text":"(continue)"}]}',
        ]
    )


def test_strange_ids_and_names_become_legal_ones():
    assert canon.contents(GEMINI, *canon.STRANGE_NAMES) == snapshot(
        [
            '{"role":"user","parts":[',
            '{"text":"hello"}]},',
            '{"role":"model","parts":[',
            '{"functionCall":{"name":"functions_Bash","args":{}},"thoughtSignature":"skip_t',
            'hought_signature_validator"}]},',
            '{"role":"user","parts":[',
            '{"functionResponse":{"name":"functions_Bash","response":{"output":"ok"}}}]}',
        ]
    )


def test_half_characters_become_replacement_characters():
    assert canon.contents(GEMINI, *canon.HALVES) == snapshot(
        [
            '{"role":"user","parts":[',
            '{"text":"half �, whole 😀"}]},',
            '{"role":"model","parts":[',
            '{"functionCall":{"name":"Bash","args":{"_invalid_arguments":"{\\"p\\":\\"�\\"}"}},',
            '"thoughtSignature":"skip_thought_signature_validator"}]},',
            '{"role":"user","parts":[',
            '{"functionResponse":{"name":"Bash","response":{"output":"�"}}}]}',
        ]
    )
