from __future__ import annotations

from inline_snapshot import snapshot

from tests.wire import canon
from tests.wire.golden import readable
from tests.wire.stories import Story, fetch
from travois.kernel.facts import Epoch, Failed
from travois.kernel.models import Model
from travois.wire.encode import Encoder

OPUS = Model("anthropic", "claude-opus-5-5", "anthropic", output=8000)


def test_a_whole_request():
    request = canon.tell(OPUS, (canon.HELLO,))
    assert (request.path, request.headers, request.pieces) == snapshot(
        (
            "/v1/messages",
            (("content-type", "application/json"), ("anthropic-version", "2026-10-21")),
            4,
        )
    )
    assert readable(request.body) == snapshot(
        [
            '{"model":"claude-opus-5-5","max_tokens":8000,',
            '"system":[',
            '{"type":"text","text":"Be brief.",',
            '"cache_control":{"type":"ephemeral"}}],',
            '"tools":[',
            '{"name":"Read","description":"Read a file.",',
            '"input_schema":{"type":"object",',
            '"properties":{',
            '"path":{"type":"string"}}}},',
            '{"name":"Bash","description":"Run a command.",',
            '"input_schema":{"type":"object"}}],',
            '"messages":[',
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello",',
            '"cache_control":{"type":"ephemeral"}}]}],',
            '"stream":true}',
        ]
    )


def test_a_request_with_everything_optional():
    model = Model(
        "anthropic",
        "claude-haiku-4-5",
        "anthropic",
        betas=("one", "two"),
        params='"thinking":{"type":"adaptive"}',
        cache_ttl="1h",
    )
    request = canon.tell(model, (canon.HELLO,), system=" ")
    assert request.headers == snapshot(
        (
            ("content-type", "application/json"),
            ("anthropic-version", "2026-10-21"),
            ("anthropic-beta", "one,two"),
        )
    )
    assert readable(request.body) == snapshot(
        [
            '{"model":"claude-haiku-4-5","max_tokens":32000,',
            '"tools":[',
            '{"name":"Read","description":"Read a file.",',
            '"input_schema":{"type":"object",',
            '"properties":{',
            '"path":{"type":"string"}}}},',
            '{"name":"Bash","description":"Run a command.",',
            '"input_schema":{"type":"object"},',
            '"cache_control":{"type":"ephemeral","ttl":"1h"}}],',
            '"messages":[',
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello",',
            '"cache_control":{"type":"ephemeral","ttl":"1h"}}]}],',
            '"stream":true,',
            '"thinking":{"type":"adaptive"}}',
        ]
    )


def test_a_server_that_takes_no_markers_gets_none():
    model = Model("ollama", "m", "anthropic", quirks=("no-cache-markers",))
    assert readable(canon.tell(model, (canon.HELLO,)).body) == snapshot(
        [
            '{"model":"m","max_tokens":32000,',
            '"system":[',
            '{"type":"text","text":"Be brief."}],',
            '"tools":[',
            '{"name":"Read","description":"Read a file.",',
            '"input_schema":{"type":"object",',
            '"properties":{',
            '"path":{"type":"string"}}}},',
            '{"name":"Bash","description":"Run a command.",',
            '"input_schema":{"type":"object"}}],',
            '"messages":[',
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello"}]}],',
            '"stream":true}',
        ]
    )


def test_the_second_request_also_marks_where_the_first_ended():
    story, encoder = Story().append(Epoch(OPUS, "Be brief."), canon.HELLO), Encoder(fetch)
    story.sent(encoder.request(story.view)).append(canon.ASKED, canon.GIVEN)
    assert readable(encoder.request(story.view).body) == snapshot(
        [
            '{"model":"claude-opus-5-5","max_tokens":8000,',
            '"system":[',
            '{"type":"text","text":"Be brief.",',
            '"cache_control":{"type":"ephemeral"}}],',
            '"messages":[',
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello",',
            '"cache_control":{"type":"ephemeral"}}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"text","text":"I look."},',
            '{"type":"tool_use","id":"toolu_1","name":"Read",',
            '"input":{"path": "a.py"}}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"tool_result","tool_use_id":"toolu_1",',
            '"content":"1 def f():",',
            '"cache_control":{"type":"ephemeral"}}]}],',
            '"stream":true}',
        ]
    )


def test_a_request_that_failed_is_sent_again_byte_for_byte():
    story, encoder = Story().append(Epoch(OPUS, "Be brief."), *canon.ONE_CALL), Encoder(fetch)
    first = encoder.request(story.view)
    story.sent(first).append(Failed("server", "no"))
    assert encoder.request(story.view) == first


def test_a_model_without_eyes_is_told_what_it_misses():
    model = Model("ollama", "m", "anthropic", images=False)
    assert canon.messages(model, *canon.MEDIA) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"look"},',
            '{"type":"text","text":"[image a.png, image/png, 8 bytes: this model cannot be ',
            'shown it]"},',
            '{"type":"text","text":"[document a.pdf, application/pdf, 8 bytes: this model c',
            'annot be shown it]"}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"tool_use","id":"c1","name":"Read",',
            '"input":{}},',
            '{"type":"tool_use","id":"c2","name":"Read",',
            '"input":{}}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"tool_result","tool_use_id":"c1",',
            '"content":[',
            '{"type":"text","text":"[image a.png, image/png, 8 bytes: this model cannot be ',
            'shown it]"}]},',
            '{"type":"tool_result","tool_use_id":"c2",',
            '"content":[',
            '{"type":"text","text":"lost:"},',
            '{"type":"text","text":"[image, image/png, 8 bytes: this model cannot be shown ',
            'it]"}]},',
            '{"type":"text","text":"and?",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_one_call_and_its_result():
    assert canon.messages(OPUS, *canon.ONE_CALL) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello"}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"text","text":"I look."},',
            '{"type":"tool_use","id":"toolu_1","name":"Read",',
            '"input":{"path": "a.py"}}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"tool_result","tool_use_id":"toolu_1",',
            '"content":"1 def f():",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_parallel_results_stand_in_the_order_asked_before_what_was_said_meanwhile():
    assert canon.messages(OPUS, *canon.PARALLEL) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello"}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"tool_use","id":"c1","name":"Read",',
            '"input":{}},',
            '{"type":"tool_use","id":"c2","name":"Bash",',
            '"input":{"cmd":"ls"}}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"tool_result","tool_use_id":"c1",',
            '"content":[',
            '{"type":"text","text":"one"},',
            '{"type":"text","text":"two"}]},',
            '{"type":"tool_result","tool_use_id":"c2",',
            '"content":"no such file","is_error":true},',
            '{"type":"text","text":"hurry",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_arguments_that_are_no_object_are_sent_as_text():
    assert canon.messages(OPUS, *canon.BAD_ARGUMENTS) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello"}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"tool_use","id":"c1","name":"Read",',
            '"input":{"_invalid_arguments":"{\\"path\\": \\"a"}},',
            '{"type":"tool_use","id":"c2","name":"Read",',
            '"input":{"_invalid_arguments":""}}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"tool_result","tool_use_id":"c1",',
            '"content":"The arguments are not JSON.","is_error":true},',
            '{"type":"tool_result","tool_use_id":"c2",',
            '"content":"ok",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_images_and_documents():
    assert canon.messages(OPUS, *canon.MEDIA) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"look"},',
            '{"type":"image",',
            '"source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}},',
            '{"type":"document",',
            '"source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0xLjc="',
            "}}]},",
            '{"role":"assistant",',
            '"content":[',
            '{"type":"tool_use","id":"c1","name":"Read",',
            '"input":{}},',
            '{"type":"tool_use","id":"c2","name":"Read",',
            '"input":{}}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"tool_result","tool_use_id":"c1",',
            '"content":[',
            '{"type":"image",',
            '"source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]},',
            '{"type":"tool_result","tool_use_id":"c2",',
            '"content":[',
            '{"type":"text","text":"lost:"},',
            '{"type":"text","text":"[image, image/png, 8 bytes: its bytes are lost]"}]},',
            '{"type":"text","text":"and?",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_blocks_of_this_provider_go_back_verbatim_and_others_do_not():
    assert canon.messages(OPUS, *canon.OPAQUES) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello"}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"thinking","thinking":"hm","signature":"c2ln"},',
            '{"type":"text","text":"cited","citations":[',
            '{"type":"char_location","cited_text":"c","document_index":0,"document_title":n',
            'ull,"start_char_index":0,"end_char_index":1}]},',
            '{"type":"text","text":"Done."}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_what_is_empty_is_never_sent():
    assert canon.messages(OPUS, *canon.NOTHING) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"(empty message)"}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"tool_use","id":"c1","name":"Bash",',
            '"input":{}}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"tool_result","tool_use_id":"c1",',
            '"content":"(no output)"},',
            '{"type":"text","text":"more",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_half_characters_become_replacement_characters():
    assert canon.messages(OPUS, *canon.HALVES) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"half �, whole 😀"}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"tool_use","id":"c1","name":"Bash",',
            '"input":{"_invalid_arguments":"{\\"p\\":\\"�\\"}"}}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"tool_result","tool_use_id":"c1",',
            '"content":"�",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_offloaded_and_cleared_results_show_other_text():
    assert canon.messages(OPUS, *canon.RETOLD) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello"}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"text","text":"I look."},',
            '{"type":"tool_use","id":"toolu_1","name":"Read",',
            '"input":{"path": "a.py"}}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"tool_result","tool_use_id":"toolu_1",',
            '"content":"first lines"}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"tool_use","id":"c2","name":"Read",',
            '"input":{}}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"tool_result","tool_use_id":"c2",',
            '"content":"[cleared]",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_a_summary_is_the_harness_speaking():
    assert canon.messages(OPUS, *canon.SUMMARISED) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"We looked at a.py."},',
            '{"type":"text","text":"hello",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_a_summary_of_the_provider_is_its_own_block():
    assert canon.messages(OPUS, *canon.PROVIDER_SUMMARISED) == snapshot(
        [
            '{"role":"assistant",',
            '"content":[',
            '{"type":"compaction",',
            '"content":"was"}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_a_pause_is_gone_on_from_as_it_stands():
    assert canon.messages(OPUS, *canon.PAUSED) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello",',
            '"cache_control":{"type":"ephemeral"}}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"server_tool_use","id":"srv_1","name":"web_search",',
            '"input":{"q":1}}]}',
        ]
    )


def test_a_pause_in_words_gets_a_user_message():
    assert canon.messages(OPUS, *canon.PAUSED_IN_WORDS) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello"}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"text","text":"Let me"}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"(continue)",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_strange_ids_and_names_become_legal_ones():
    assert canon.messages(OPUS, *canon.STRANGE_NAMES) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello"}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"tool_use","id":"toolu_0c9f9b86a6414a36666b0d63","name":"functions_Bas',
            'h",',
            '"input":{}}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"tool_result","tool_use_id":"toolu_0c9f9b86a6414a36666b0d63",',
            '"content":"ok",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_further_members_of_a_call_are_spliced_back():
    assert canon.messages(OPUS, *canon.EXTRAS) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello"}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"tool_use","id":"c1","name":"Read",',
            '"input":{},',
            '"caller":{"type":"direct"},"new":[1.0]},',
            '{"type":"tool_use","id":"c2","name":"Read",',
            '"input":{}}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"tool_result","tool_use_id":"c1",',
            '"content":"one"},',
            '{"type":"tool_result","tool_use_id":"c2",',
            '"content":"two",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )


def test_a_summary_of_another_provider_is_said_in_words():
    assert canon.messages(OPUS, *canon.FOREIGN_SUMMARISED) == snapshot(
        [
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"(This conversation began earlier.)"}]},',
            '{"role":"assistant",',
            '"content":[',
            '{"type":"text","text":"was"}]},',
            '{"role":"user",',
            '"content":[',
            '{"type":"text","text":"hello",',
            '"cache_control":{"type":"ephemeral"}}]}',
        ]
    )
