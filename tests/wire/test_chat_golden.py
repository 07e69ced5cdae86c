from __future__ import annotations

from inline_snapshot import snapshot

from tests.wire import canon
from tests.wire.golden import readable
from travois.kernel.models import Model

GPT = Model("openai", "gpt", "chat", output=8000)
MISTRAL = Model(
    "mistral",
    "large",
    "chat",
    quirks=("short-ids", "no-user-after-tool", "no-stream-options", "max-tokens", "system-role"),
)
DEEPSEEK = Model("deepseek", "v4", "chat", quirks=("echo-reasoning", "text-parts", "system-role"))
OPENROUTER = Model("openrouter", "x/y", "chat", quirks=("usage-include",), params='"top_p":1')


def test_a_whole_request():
    request = canon.tell(GPT, (canon.HELLO,))
    assert (request.path, request.headers, request.pieces) == snapshot(
        ("/chat/completions", (("content-type", "application/json"),), 4)
    )
    assert readable(request.body) == snapshot(
        [
            '{"model":"gpt","max_completion_tokens":8000,',
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
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"}],',
            '"stream":true,"stream_options":{"include_usage":true}}',
        ]
    )


def test_a_whole_request_to_mistral():
    assert readable(canon.tell(MISTRAL, canon.ONE_CALL).body) == snapshot(
        [
            '{"model":"large","max_tokens":32000,',
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
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"I look.",',
            '"tool_calls":[',
            '{"id":"f9a2af9fc","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{\\"path\\": \\"a.py\\"}"}}]},',
            '{"role":"tool","tool_call_id":"f9a2af9fc",',
            '"content":"1 def f():"}],',
            '"stream":true}',
        ]
    )


def test_a_whole_request_to_openrouter():
    assert readable(canon.tell(OPENROUTER, canon.REASONED, system="").body) == snapshot(
        [
            '{"model":"x/y","max_completion_tokens":32000,',
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
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"Hi."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"Hi again.","reasoning_details":[',
            '{"a":1}]},',
            '{"role":"user",',
            '"content":"hello"}],',
            '"stream":true,"stream_options":{"include_usage":true},"usage":{"include":true}',
            ',"top_p":1}',
        ]
    )


def test_mistral_hears_an_assistant_between_tool_and_user():
    assert canon.messages(MISTRAL, *canon.MEDIA) == snapshot(
        [
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"look"},',
            '{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},',
            '{"type":"text","text":"[document a.pdf, application/pdf, 8 bytes: this model c',
            'annot be shown it]"}]},',
            '{"role":"assistant",',
            '"content":null,',
            '"tool_calls":[',
            '{"id":"8170bf832","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{}"}},',
            '{"id":"492d9bac1","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{}"}}]},',
            '{"role":"tool","tool_call_id":"8170bf832",',
            '"content":"[image a.png, image/png, 8 bytes: see below]"},',
            '{"role":"tool","tool_call_id":"492d9bac1",',
            '"content":"lost:\\n[image, image/png, 8 bytes: see below]"},',
            '{"role":"assistant",',
            '"content":"(noted)"},',
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"Shown by the tools above:"},',
            '{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},',
            '{"type":"text","text":"[image, image/png, 8 bytes: its bytes are lost]"}]},',
            '{"role":"user",',
            '"content":"and?"}',
        ]
    )


def test_reasoning_goes_back_where_it_is_asked_for_and_there_always():
    assert canon.messages(DEEPSEEK, *canon.REASONED) == snapshot(
        [
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"Hi.","reasoning_content":""},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"Hi again.","reasoning_content":"so","reasoning_details":[',
            '{"a":1}]},',
            '{"role":"user",',
            '"content":"hello"}',
        ]
    )


def test_reasoning_stays_here_where_it_is_not_asked_for():
    assert canon.messages(GPT, *canon.REASONED) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"Hi."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"Hi again."},',
            '{"role":"user",',
            '"content":"hello"}',
        ]
    )


def test_a_server_of_plain_strings_gets_no_parts():
    assert canon.messages(DEEPSEEK, *canon.MEDIA) == snapshot(
        [
            '{"role":"system",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"look\\n[image a.png, image/png, 8 bytes: this model cannot be shown ',
            "it]\\n[document a.pdf, application/pdf, 8 bytes: this model cannot be shown it]",
            '"},',
            '{"role":"assistant",',
            '"content":"","reasoning_content":"",',
            '"tool_calls":[',
            '{"id":"c1","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{}"}},',
            '{"id":"c2","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{}"}}]},',
            '{"role":"tool","tool_call_id":"c1",',
            '"content":"[image a.png, image/png, 8 bytes: this model cannot be shown it]"},',
            '{"role":"tool","tool_call_id":"c2",',
            '"content":"lost:\\n[image, image/png, 8 bytes: this model cannot be shown it]"}',
            ",",
            '{"role":"user",',
            '"content":"and?"}',
        ]
    )


def test_one_call_and_its_result():
    assert canon.messages(GPT, *canon.ONE_CALL) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"I look.",',
            '"tool_calls":[',
            '{"id":"toolu_1","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{\\"path\\": \\"a.py\\"}"}}]},',
            '{"role":"tool","tool_call_id":"toolu_1",',
            '"content":"1 def f():"}',
        ]
    )


def test_parallel_results_stand_in_the_order_asked_before_what_was_said_meanwhile():
    assert canon.messages(GPT, *canon.PARALLEL) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":null,',
            '"tool_calls":[',
            '{"id":"c1","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{}"}},',
            '{"id":"c2","type":"function",',
            '"function":{"name":"Bash",',
            '"arguments":"{\\"cmd\\":\\"ls\\"}"}}]},',
            '{"role":"tool","tool_call_id":"c1",',
            '"content":"one\\ntwo"},',
            '{"role":"tool","tool_call_id":"c2",',
            '"content":"Error: no such file"},',
            '{"role":"user",',
            '"content":"hurry"}',
        ]
    )


def test_arguments_that_are_no_object_are_sent_as_text():
    assert canon.messages(GPT, *canon.BAD_ARGUMENTS) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":null,',
            '"tool_calls":[',
            '{"id":"c1","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{\\"path\\": \\"a"}},',
            '{"id":"c2","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":""}}]},',
            '{"role":"tool","tool_call_id":"c1",',
            '"content":"Error: The arguments are not JSON."},',
            '{"role":"tool","tool_call_id":"c2",',
            '"content":"ok"}',
        ]
    )


def test_images_and_documents():
    assert canon.messages(GPT, *canon.MEDIA) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"look"},',
            '{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},',
            '{"type":"text","text":"[document a.pdf, application/pdf, 8 bytes: this model c',
            'annot be shown it]"}]},',
            '{"role":"assistant",',
            '"content":null,',
            '"tool_calls":[',
            '{"id":"c1","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{}"}},',
            '{"id":"c2","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{}"}}]},',
            '{"role":"tool","tool_call_id":"c1",',
            '"content":"[image a.png, image/png, 8 bytes: see below]"},',
            '{"role":"tool","tool_call_id":"c2",',
            '"content":"lost:\\n[image, image/png, 8 bytes: see below]"},',
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"Shown by the tools above:"},',
            '{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},',
            '{"type":"text","text":"[image, image/png, 8 bytes: its bytes are lost]"}]},',
            '{"role":"user",',
            '"content":"and?"}',
        ]
    )


def test_blocks_of_this_provider_go_back_verbatim_and_others_do_not():
    assert canon.messages(GPT, *canon.OPAQUES) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"cited\\nDone."},',
            '{"role":"user",',
            '"content":"hello"}',
        ]
    )


def test_what_is_empty_is_never_sent():
    assert canon.messages(GPT, *canon.NOTHING) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"(empty message)"},',
            '{"role":"assistant",',
            '"content":null,',
            '"tool_calls":[',
            '{"id":"c1","type":"function",',
            '"function":{"name":"Bash",',
            '"arguments":"{}"}}]},',
            '{"role":"tool","tool_call_id":"c1",',
            '"content":"(no output)"},',
            '{"role":"user",',
            '"content":" \\nmore"}',
        ]
    )


def test_half_characters_become_replacement_characters():
    assert canon.messages(GPT, *canon.HALVES) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"half �, whole 😀"},',
            '{"role":"assistant",',
            '"content":null,',
            '"tool_calls":[',
            '{"id":"c1","type":"function",',
            '"function":{"name":"Bash",',
            '"arguments":"{\\"p\\":\\"�\\"}"}}]},',
            '{"role":"tool","tool_call_id":"c1",',
            '"content":"�"}',
        ]
    )


def test_offloaded_and_cleared_results_show_other_text():
    assert canon.messages(GPT, *canon.RETOLD) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":"I look.",',
            '"tool_calls":[',
            '{"id":"toolu_1","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{\\"path\\": \\"a.py\\"}"}}]},',
            '{"role":"tool","tool_call_id":"toolu_1",',
            '"content":"first lines"},',
            '{"role":"assistant",',
            '"content":null,',
            '"tool_calls":[',
            '{"id":"c2","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{}"}}]},',
            '{"role":"tool","tool_call_id":"c2",',
            '"content":"[cleared]"}',
        ]
    )


def test_a_summary_is_the_harness_speaking():
    assert canon.messages(GPT, *canon.SUMMARISED) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"We looked at a.py."},',
            '{"role":"user",',
            '"content":"hello"}',
        ]
    )


def test_a_summary_of_the_provider_is_its_own_block():
    assert canon.messages(GPT, *canon.PROVIDER_SUMMARISED) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"(This conversation began earlier.)"},',
            '{"role":"assistant",',
            '"content":"was"},',
            '{"role":"user",',
            '"content":"hello"}',
        ]
    )


def test_a_pause_is_gone_on_from_as_it_stands():
    assert canon.messages(GPT, *canon.PAUSED) == snapshot(
        ['{"role":"developer",', '"content":"Be brief."},', '{"role":"user",', '"content":"hello"}']
    )


def test_a_pause_in_words_gets_a_user_message():
    assert canon.messages(GPT, *canon.PAUSED_IN_WORDS) == snapshot(
        [
            '{"role":"developer",',
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
    assert canon.messages(GPT, *canon.STRANGE_NAMES) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":null,',
            '"tool_calls":[',
            '{"id":"functions.Bash:0","type":"function",',
            '"function":{"name":"functions_Bash",',
            '"arguments":"{}"}}]},',
            '{"role":"tool","tool_call_id":"functions.Bash:0",',
            '"content":"ok"}',
        ]
    )


def test_further_members_of_a_call_are_spliced_back():
    assert canon.messages(GPT, *canon.EXTRAS) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"hello"},',
            '{"role":"assistant",',
            '"content":null,',
            '"tool_calls":[',
            '{"id":"c1","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{}"}},',
            '{"id":"c2","type":"function",',
            '"function":{"name":"Read",',
            '"arguments":"{}"},"extra_content":{"google":{"thought_signature":"s"}}}]},',
            '{"role":"tool","tool_call_id":"c1",',
            '"content":"one"},',
            '{"role":"tool","tool_call_id":"c2",',
            '"content":"two"}',
        ]
    )


def test_a_summary_of_another_provider_is_said_in_words():
    assert canon.messages(GPT, *canon.FOREIGN_SUMMARISED) == snapshot(
        [
            '{"role":"developer",',
            '"content":"Be brief."},',
            '{"role":"user",',
            '"content":"(This conversation began earlier.)"},',
            '{"role":"assistant",',
            '"content":"was"},',
            '{"role":"user",',
            '"content":"hello"}',
        ]
    )
