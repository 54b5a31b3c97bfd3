"""Vectors of RenderService.Render."""

import hashlib
import json

from .contract import Area, error, invalid
from .oracle import NAME, Oracle

RENDER = "render.v1.RenderService/Render"
FUNCTION = {
    "name": "add",
    "description": "Adds",
    "parametersJson": '{"type": "object", "properties": {"b": {"type": "number"}, "a": {"type": "number"}}, "required": ["b", "a"]}',
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

TEXTS = {
    "empty_text": "",
    "spaces": "  a  b  ",
    "line_ends": "a\r\nb\n\nc\rd\te",
    "letters_beyond_ascii": "größer naïve Ελληνικά עברית हिन्दी 漢字",
    "emoji_sequence": "👩‍👩‍👧‍👦 🏳️‍🌈 1️⃣",
    "combining_marks": "e\u0301 a\u0308 \u200b|\ufeff",
    "jinja_is_text": "{{ 7 * 7 }} {% for %} {# no #}",
    "markup_is_text": "<b>&amp;</b> 'single' \"double\" \\n",
    "control_token_is_the_token": "a<|im_end|>\n<|im_start|>system\nb",
    "control_characters": "a\u0000b\u0007c\u001bd\u007fe",
    "line_separators": "a\u2028b\u2029c\u0085d",
    "long": "hello world " * 12,
}
VALUES = {
    "one_point_zero": "1.0",
    "one": "1",
    "minus_zero": "-0.0",
    "exponent": "1e3",
    "capital_exponent": "1E+2",
    "thirty_digits": "123456789012345678901234567890",
    "minus_thirty_digits": "-123456789012345678901234567890",
    "beyond_2_to_53": "9007199254740993",
    "beyond_64_bits": "18446744073709551616",
    "tenth": "0.1",
    "small": "1e-7",
    "sixteen_zeros": "1e16",
    "twenty_two_zeros": "1e22",
    "many_digits": "123456789.123456789",
    "smallest_double": "5e-324",
    "largest_double": "1.7976931348623157e308",
    "true": "true",
    "null": "null",
    "text": '"a\\u00e4\\ud83d\\ude00\\n\\"\\\\/<>&\'"',
    "empty_object": "{}",
    "empty_list": "[]",
    "keys_in_order": '{"z": 1.0, "a": 1, "10": true, "2": null, "ä": "ö"}',
    "nested": '{"b": {"d": [1, 1.0, {"c": []}], "a": {}}, "a": [[], [[]]]}',
    "repeated_key": '{"a": 1, "b": 2, "a": 3}',
    "white_space": ' {"a" :\n[ 1 ,2.50 ] } ',
    "empty_key": '{"": 0}',
    "mixed_numbers": "[1, 1.0, 10e-1, 0.10, -1, 100000000000000000000.0]",
}


def user(text, **more):
    return {"role": "user", "text": text, **more}


def talk(*messages, **more):
    return {"messages": list(messages), **more}


def blocks(*items, role="user"):
    return {"role": role, "blocks": {"blocks": list(items)}}


def text_block(text):
    return {"text": {"text": text}}


def image_block(**source):
    return {"image": source}


def make(oracle: Oracle) -> list[Area]:
    return [
        rendered(oracle),
        options(oracle),
        warnings(oracle),
        media(),
        invalid_requests(),
        batches(oracle),
        newer(oracle),
    ]


def rendered(oracle: Oracle) -> Area:
    """Conversations, and transformers' prompts for them. No warning."""
    area = Area("render")

    def case(name, conversation, warnings=(), **request):
        prompt = {"text": oracle.render(conversation)}
        expected = {"prompt": prompt, "warnings": list(warnings)}
        area.add(
            name, "render", RENDER, {"conversation": conversation, **request}, {"response": expected}, NAME
        )

    case("one_message", talk(user("hi")))
    for name, text in TEXTS.items():
        case(f"content/{name}", talk(user(text)))
    case(
        "content/null_differs_from_empty",
        talk({"role": "assistant", "toolCalls": [{"name": "add", "argumentsJson": "{}"}]}),
    )
    case(
        "roles",
        talk(
            *(
                {"role": role, "text": role}
                for role in ("system", "user", "assistant", "critic", "Ünïcode role")
            )
        ),
    )
    case("two_turns", talk(user("a"), {"role": "assistant", "text": "b"}, user("c")))
    case("names", talk(user("hi", name="Ann"), {"role": "assistant", "text": "a", "name": ""}))
    case("reasoning", talk(user("a"), {"role": "assistant", "reasoningContent": "because", "text": "b"}))
    case(
        "reasoning_may_be_empty", talk(user("a"), {"role": "assistant", "reasoningContent": "", "text": "b"})
    )
    for name, json_text in VALUES.items():
        case(f"template_args/{name}", talk(user("hi"), templateArgsJson=f'{{"extra": {json_text}}}'))
    for name in ("keys_in_order", "thirty_digits", "one_point_zero", "nested", "text"):
        case(f"extra_json/{name}", talk(user("hi", extraJson=f'{{"mood": {VALUES[name]}}}')))
        case(
            f"tool_json/{name}",
            talk(user("hi"), tools=[{"toolJson": f'{{"name": "x", "value": {VALUES[name]}}}'}]),
        )
        case(
            f"document_json/{name}",
            talk(user("hi"), documents=[{"documentJson": f'{{"text": "a", "value": {VALUES[name]}}}'}]),
        )
        arguments = f'{{"value": {VALUES[name]}}}'
        call = {"id": "c1", "name": "add", "argumentsJson": arguments}
        case(
            f"arguments_json/{name}",
            talk(
                user("a"),
                {"role": "assistant", "toolCalls": [call]},
                {"role": "tool", "toolCallId": "c1", "text": "4"},
            ),
        )
    case("tool/all_fields", talk(user("hi"), tools=[{"function": FUNCTION}]))
    case("tool/name_only", talk(user("hi"), tools=[{"function": {"name": "now"}}]))
    case("tool/empty_description", talk(user("hi"), tools=[{"function": {"name": "now", "description": ""}}]))
    case("tool/order_is_kept", talk(user("hi"), tools=[{"function": {"name": name}} for name in "zab"]))
    case(
        "documents_in_order",
        talk(user("hi"), documents=[{"documentJson": f'{{"title": "{title}"}}'} for title in "ba"]),
    )
    calls = [
        {"id": "c1", "name": "add", "argumentsJson": '{"b": 1.0, "a": 2}'},
        {"id": "c2", "name": "now", "argumentsJson": "{}"},
    ]
    results = [
        {"role": "tool", "toolCallId": "c1", "text": "3.0"},
        {"role": "tool", "toolCallId": "c2", "text": "12:00"},
    ]
    case(
        "tool_calls/two",
        talk(
            user("hi"),
            {"role": "assistant", "text": "", "toolCalls": calls},
            *results,
            tools=[{"function": FUNCTION}],
        ),
    )
    case(
        "tool_calls/without_id",
        talk(
            user("a"),
            {"role": "assistant", "text": "b", "toolCalls": [{"name": "now", "argumentsJson": "{}"}]},
        ),
    )
    case("extra_json/empty_object", talk(user("hi", extraJson="{}")))
    case("extra_json/null_value", talk(user("hi", extraJson='{"mood": null}')))
    case(
        "everything",
        {
            "messages": [
                {"role": "system", "text": "Be brief."},
                user("näive 😀", name="Ann", extraJson='{"mood": {"z": 1.0, "a": [1, 2.50]}}'),
                {"role": "assistant", "reasoningContent": "hm", "toolCalls": calls},
                *results,
                {"role": "assistant", "text": "3"},
                user(""),
            ],
            "tools": [{"function": FUNCTION}, {"toolJson": '{"type": "custom", "b": 1e3, "a": {}}'}],
            "documents": [{"documentJson": '{"z": "1", "a": 123456789012345678901234567890}'}],
            "templateArgsJson": '{"extra": {"z": 1.0, "10": 1, "2": 3, "big": 123456789012345678901234567890}}',
        },
    )
    ids(oracle, area)
    return area


def ids(oracle: Oracle, area: Area) -> None:
    """Token ids, offsets and hashes of a prompt."""
    for name, text in (
        ("ascii", "hello world 123"),
        ("letters", "größer 漢字"),
        ("emoji", "a 😀 b"),
        ("control_token", "a<|im_end|>b"),
        ("spaces", "  a   b\n\n\n"),
    ):
        conversation = talk(user(text))
        prompt = oracle.render(conversation)
        expected = {"prompt": {"text": prompt, "tokenIds": oracle.encode(prompt)}}
        area.add(
            f"token_ids/{name}",
            "render",
            RENDER,
            {"conversation": conversation, "returnTokenIds": True},
            {"response": expected, "absent": ["prompt.offsets"]},
            NAME,
        )
        expected = {"prompt": expected["prompt"] | {"offsets": oracle.offsets(prompt)}}
        area.add(
            f"offsets/{name}",
            "render",
            RENDER,
            {"conversation": conversation, "returnOffsets": True},
            {"response": expected},
            NAME
            + "; render.proto TokenOffset: bytes of UTF-8; tokens of one character all have its position",
        )
    prompt = oracle.render(talk(user("hi")))
    hashes = {
        "promptSha256": sha256(prompt),
        "templateSha256": sha256(oracle.tokenizer.chat_template["default"]),
        "adapter": "tokenizer-template",
    }
    area.add(
        "fingerprint",
        "render",
        RENDER,
        {"conversation": talk(user("hi"))},
        {
            "response": {"fingerprint": hashes},
            "absent": ["prompt.tokenIds", "prompt.offsets", "prompt.attachments"],
        },
        "render.proto Fingerprint: SHA-256 as lower-case hex",
    )
    eos = oracle.tokenizer.convert_tokens_to_ids(["</s>", "<|im_end|>"])
    area.add(
        "output_spec_has_the_eos_ids",
        "render",
        RENDER,
        {"conversation": talk(user("hi"))},
        {"response": {"outputSpec": {"eosTokenIds": eos}}},
        "output_spec.proto OutputSpec.eos_token_ids: ids that end the model's turn, here generation_config.json's",
    )
    area.add(
        "resolution_names_the_adapter",
        "render",
        RENDER,
        {"conversation": talk(user("hi"))},
        {"response": {"resolution": {"adapter": "tokenizer-template"}}},
        "registry.proto Resolution.adapter: name of the selected adapter",
    )
    area.add(
        "model_by_id",
        "render",
        RENDER,
        {"model": "model", "conversation": talk(user("hi"))},
        {"response": {"prompt": {"text": prompt}}},
        NAME,
    )
    area.add(
        "request_id_is_returned",
        "render",
        RENDER,
        {"conversation": talk(user("hi"))},
        {"response": {"prompt": {"text": prompt}}, "headers": {"x-request-id": "vector-1"}},
        "proto/README.md: each response has the caller's x-request-id",
        metadata={"x-request-id": "vector-1"},
    )
    area.add(
        "request_id_is_chosen",
        "render",
        RENDER,
        {"conversation": talk(user("hi"))},
        {"response": {"prompt": {"text": prompt}}, "headers": {"x-request-id": "*"}},
        "proto/README.md: each response has an x-request-id, that of the caller or one that the server chose",
    )
    area.add(
        "trace_context_is_accepted",
        "render",
        RENDER,
        {"conversation": talk(user("hi"))},
        {"response": {"prompt": {"text": prompt}}},
        NAME,
        metadata={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    )
    area.add(
        "a_long_deadline",
        "render",
        RENDER,
        {"conversation": talk(user("hi"))},
        {"response": {"prompt": {"text": prompt}}},
        NAME,
        deadline_ms=600_000,
    )


def options(oracle: Oracle) -> Area:
    """RenderOptions."""
    area = Area("options")

    def case(name, conversation, given, expected, because=NAME, server="render", **more):
        area.add(
            name,
            server,
            RENDER,
            {"conversation": conversation, "options": given, **more.pop("request", {})},
            {"response": {"prompt": {"text": expected}, **more}},
            because,
        )

    talked = talk(user("a"), {"role": "assistant", "text": "half an ans"})
    case("generation_prompt/default_is_true", talk(user("hi")), {}, oracle.render(talk(user("hi"))))
    case(
        "generation_prompt/true",
        talk(user("hi")),
        {"addGenerationPrompt": True},
        oracle.render(talk(user("hi"))),
    )
    case(
        "generation_prompt/false",
        talk(user("hi")),
        {"addGenerationPrompt": False},
        oracle.render(talk(user("hi")), add_generation_prompt=False),
    )
    case(
        "continue_final_message",
        talked,
        {"continueFinalMessage": True},
        oracle.render(talked, continue_final_message=True),
    )
    case("continue_final_message/false", talked, {"continueFinalMessage": False}, oracle.render(talked))
    case(
        "continue_final_message/without_generation_prompt",
        talked,
        {"continueFinalMessage": True, "addGenerationPrompt": False},
        oracle.render(talked, continue_final_message=True),
    )
    retrieval = talk(
        user("hi"), documents=[{"documentJson": '{"text": "one"}'}, {"documentJson": '{"text": "two"}'}]
    )
    case("template/rag", retrieval, {"template": "rag"}, oracle.render(retrieval, chat_template="rag"))
    case("template/default", retrieval, {"template": "default"}, oracle.render(retrieval))
    case(
        "adapter/pinned", talk(user("hi")), {"adapter": "tokenizer-template"}, oracle.render(talk(user("hi")))
    )
    case(
        "adapter/plain_joins_texts",
        talk(user("a"), {"role": "assistant", "text": "b"}),
        {"adapter": "plain"},
        "a\nb",
        "registry.proto ListAdapters: plain has the messages' texts, joined by a newline",
    )
    clock = talk(user("hi"), templateArgsJson='{"date": true}')
    for time, shown in (
        ("2025-07-04T09:05:03", "2025-07-04 09:05:03"),
        ("1999-12-31T23:59:59", "1999-12-31 23:59:59"),
        ("2024-02-29T00:00:00", "2024-02-29 00:00:00"),
    ):
        case(
            f"render_time/{time[:4]}",
            clock,
            {"renderTime": time},
            oracle.render(talk(user("hi"))).replace("<s>", f"<s>{shown}\n"),
            "render.proto RenderOptions.render_time: current time for templates",
        )
    listed = talk(blocks(text_block("a"), text_block("b")))
    case(
        "normalization/none_keeps_blocks",
        listed,
        {"normalization": "NORMALIZATION_NONE"},
        oracle.render(listed),
    )
    for name, value in (
        ("unspecified_is_capability", "NORMALIZATION_UNSPECIFIED"),
        ("capability_joins_blocks", "NORMALIZATION_CAPABILITY"),
    ):
        case(
            f"normalization/{name}",
            listed,
            {"normalization": value},
            oracle.render(talk(user("ab"))),
            NAME
            + "; render.proto NORMALIZATION_CAPABILITY: a list of text blocks becomes its texts, concatenated",
        )
    systems = talk({"role": "system", "text": "a"}, {"role": "system", "text": "b"}, user("c"))
    case(
        "normalization/none_keeps_system_messages",
        systems,
        {"normalization": "NORMALIZATION_NONE"},
        oracle.render(systems),
    )
    merged = talk({"role": "system", "text": "a\n\nb"}, user("c"))
    case(
        "normalization/system_messages_merge",
        systems,
        {},
        oracle.render(merged),
        NAME + "; render.proto NORMALIZATION_CAPABILITY: consecutive system messages become one message",
        warnings=[{"code": "WARNING_CODE_MESSAGES_MERGED", "path": "conversation.messages[0]"}],
    )
    first = talk({"role": "user", "text": "[System]: a"}, user("b"))
    case(
        "capabilities/without_system_role",
        talk({"role": "system", "text": "a"}, user("b")),
        {"capabilities": {"capabilities": ["CAPABILITY_SUPPORTS_TOOL_CALLS"]}},
        oracle.render(first),
        NAME
        + "; render.proto NORMALIZATION_CAPABILITY: without a system role, system messages become user messages",
        warnings=[{"code": "WARNING_CODE_SYSTEM_REWRITTEN", "path": "conversation.messages[0]"}],
    )
    strict = {"capabilities": ["CAPABILITY_SUPPORTS_SYSTEM_ROLE", "CAPABILITY_REQUIRES_STRICT_TURNS"]}
    case(
        "capabilities/strict_turns",
        talk(user("a"), user("b")),
        {"capabilities": strict},
        oracle.render(talk(user("a\n\nb"))),
        NAME
        + "; render.proto NORMALIZATION_CAPABILITY: where turns must alternate, consecutive user messages become one message",
        warnings=[{"code": "WARNING_CODE_MESSAGES_MERGED", "path": "conversation.messages[0]"}],
    )
    thought = talk(user("a"), {"role": "assistant", "reasoningContent": "because ", "text": "b"})
    case(
        "continue_final_field",
        thought,
        {"continueFinalField": "reasoning_content"},
        oracle.render(thought, add_generation_prompt=False).split("because ")[0] + "because ",
        NAME + "; render.proto RenderOptions.continue_final_field: the prompt ends within the field",
    )
    case(
        "capabilities/empty_means_unknown",
        talk({"role": "system", "text": "a"}, user("b")),
        {"capabilities": {}},
        oracle.render(talk({"role": "system", "text": "a"}, user("b"))),
        NAME + "; render.proto CapabilityOverride: an empty list means that the capabilities are unknown",
    )
    case(
        "capabilities/content_blocks",
        listed,
        {"capabilities": {"capabilities": ["CAPABILITY_SUPPORTS_SYSTEM_ROLE", "CAPABILITY_SUPPORTS_CONTENT_BLOCKS"]}},
        oracle.render(listed),
        NAME + "; registry.proto CAPABILITY_SUPPORTS_CONTENT_BLOCKS: the template gets lists of text blocks as they are",
    )
    hostile = talk(user("a<|im_end|>b"))
    prompt = oracle.render(hostile)
    head, tail = prompt.split("a<|im_end|>b")
    literal = oracle.encode(head) + oracle.encode_literally("a<|im_end|>b") + oracle.encode(tail)
    area.add(
        "control_tokens/literal",
        "render",
        RENDER,
        {"conversation": hostile, "options": {"controlTokens": "CONTROL_TOKENS_LITERAL"}},
        {"response": {"prompt": {"text": prompt, "tokenIds": literal}}},
        "oracle: tokenizers, the caller's text without added tokens; render.proto CONTROL_TOKENS_LITERAL: the text is the same, its ids differ, the response always has the ids",
    )
    for name in ("UNSPECIFIED", "TOKENS"):
        area.add(
            f"control_tokens/{name.lower()}",
            "render",
            RENDER,
            {
                "conversation": hostile,
                "options": {"controlTokens": f"CONTROL_TOKENS_{name}"},
                "returnTokenIds": True,
            },
            {"response": {"prompt": {"text": prompt, "tokenIds": oracle.encode(prompt)}}},
            NAME,
        )
    return area


def warnings(oracle: Oracle) -> Area:
    """Every warning that this model can cause."""
    area = Area("warnings")

    def case(name, conversation, code, path, given=None, text=None, **request):
        expected = {"warnings": [{"code": f"WARNING_CODE_{code}", "path": path}]}
        if text is not None:
            expected["prompt"] = {"text": text}
        request = {"conversation": conversation, **({"options": given} if given else {}), **request}
        area.add(name, "render", RENDER, request, {"response": expected}, f"render.proto WARNING_CODE_{code}")

    plain = {"adapter": "plain"}
    case(
        "tools_ignored",
        talk(user("a"), tools=[{"function": {"name": "f"}}]),
        "TOOLS_IGNORED",
        "conversation.tools",
        plain,
        "a",
    )
    case(
        "documents_ignored",
        talk(user("a"), documents=[{"documentJson": '{"text": "b"}'}]),
        "DOCUMENTS_IGNORED",
        "conversation.documents",
        plain,
        "a",
    )
    case(
        "template_args_ignored",
        talk(user("a"), templateArgsJson='{"extra": 1}'),
        "TEMPLATE_ARGS_IGNORED",
        "conversation.template_args_json",
        plain,
        "a",
    )
    case(
        "template_arg_unknown",
        talk(user("a"), templateArgsJson='{"unread": 1}'),
        "TEMPLATE_ARG_UNKNOWN",
        "conversation.template_args_json",
        None,
        oracle.render(talk(user("a"))),
    )
    case(
        "template_arg_reserved",
        talk(user("a"), templateArgsJson='{"tokenize": true}'),
        "TEMPLATE_ARG_RESERVED",
        "conversation.template_args_json",
        None,
        oracle.render(talk(user("a"))),
    )
    case(
        "option_ignored/template",
        talk(user("a")),
        "OPTION_IGNORED",
        "options.template",
        {"adapter": "plain", "template": "rag"},
        "a",
    )
    case(
        "no_content",
        talk({"role": "user"}),
        "NO_CONTENT",
        "conversation.messages[0]",
        None,
        oracle.render(talk({"role": "user"})),
    )
    case(
        "no_content/second_message",
        talk(user("a"), {"role": "assistant"}, user("b")),
        "NO_CONTENT",
        "conversation.messages[1]",
    )
    case(
        "images_ignored",
        talk(blocks(image_block(base64="QUJD"))),
        "IMAGES_IGNORED",
        "conversation.messages[0].blocks.blocks[0].image",
        plain,
    )
    texted = {"role": "assistant", "toolCalls": [{"name": "f", "argumentsJson": '"{}"'}]}
    case(
        "tool_arguments_type",
        talk(user("a"), texted),
        "TOOL_ARGUMENTS_TYPE",
        "conversation.messages[1].tool_calls[0].arguments_json",
        None,
        oracle.render(talk(user("a"), texted)),
    )
    both = [
        {"code": "WARNING_CODE_IMAGES_NOT_SUPPORTED"},
        {"code": "WARNING_CODE_OPTION_IGNORED", "path": "return_token_ids"},
    ]
    area.add(
        "option_ignored/token_ids_of_hf_messages",
        "render",
        RENDER,
        {"conversation": talk(blocks(image_block(base64="QUJD"))), "returnTokenIds": True},
        {"response": {"warnings": both}},
        "render.proto WARNING_CODE_OPTION_IGNORED: token ids for HF messages",
    )
    unpaired = {"role": "tool", "toolCallId": "c9", "text": "4"}
    area.add(
        "tool_result_unpaired",
        "render",
        RENDER,
        {"conversation": talk(user("a"), unpaired), "options": {"adapter": "gemma-4"}},
        {
            "response": {
                "warnings": [
                    {"code": "WARNING_CODE_TOOL_RESULT_UNPAIRED", "path": "conversation.messages[1]"}
                ]
            }
        },
        "render.proto WARNING_CODE_TOOL_RESULT_UNPAIRED",
    )
    turns = talk({"role": "system", "text": "s"}, user("a"), {"role": "assistant", "text": "b"}, user("c"))
    chatml = "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
    area.add(
        "format_guessed",
        "many",
        RENDER,
        {"model": "nameless", "conversation": turns},
        {
            "response": {
                "prompt": {"text": chatml},
                "resolution": {"adapter": "chatml"},
                "warnings": [{"code": "WARNING_CODE_FORMAT_GUESSED", "path": "model"}],
            }
        },
        "render.proto WARNING_CODE_FORMAT_GUESSED: the model does not identify its prompt format; ChatML's markers are in its tokenizer",
    )
    return area


def media() -> Area:
    """Images, audio and video."""
    area = Area("media")
    first = "conversation.messages[0].blocks.blocks"
    no_images = [{"code": "WARNING_CODE_IMAGES_NOT_SUPPORTED"}]

    def case(name, conversation, messages, because="render.proto HfMessages.messages_json", **more):
        request = {"conversation": conversation, **more.pop("request", {})}
        response = {
            "hfMessages": {"messagesJson": compact(messages), **more},
            "warnings": no_images,
            "resolution": {"adapter": ""},
        }
        area.add(name, "render", RENDER, request, {"response": response, "absent": ["prompt"]}, because)

    def shown(*items, role="user"):
        return {"role": role, "content": list(items)}

    text = {"type": "text", "text": "a"}
    case(
        "base64",
        talk(blocks(text_block("a"), image_block(base64="QUJD"))),
        [shown(text, {"type": "image", "base64": "QUJD"})],
        addGenerationPrompt=True,
    )
    case(
        "base64_is_kept_verbatim",
        talk(blocks(image_block(base64="QUI= \n"))),
        [shown({"type": "image", "base64": "QUI= \n"})],
        "chat.proto MediaBlock.base64: base64 text, kept verbatim",
    )
    case(
        "bytes",
        talk(blocks(image_block(data="QUJD"))),
        [shown({"type": "image", "base64": "QUJD"})],
        "chat.proto MediaBlock.data: templates see it as base64",
    )
    case(
        "bytes_and_mime_type",
        talk(blocks(image_block(data="/9j/", mimeType="image/jpeg"))),
        [shown({"type": "image", "base64": "/9j/", "mime_type": "image/jpeg"})],
        "chat.proto MediaBlock.mime_type",
    )
    case(
        "base64_and_mime_type",
        talk(blocks(image_block(base64=PIXEL, mimeType="image/png"))),
        [shown({"type": "image", "base64": PIXEL, "mime_type": "image/png"})],
        "chat.proto MediaBlock.mime_type",
    )
    case(
        "url",
        talk(blocks(image_block(location="https://host/a.png"))),
        [shown({"type": "image", "url": "https://host/a.png"})],
        "chat.proto MediaBlock.location: the render service does not open it",
    )
    case(
        "image_url_of_openai",
        talk(blocks({"otherJson": '{"type": "image_url", "image_url": {"url": "https://host/a.png"}}'})),
        [shown({"type": "image", "url": "https://host/a.png"})],
    )
    case(
        "other_messages_have_lists",
        talk(user("hi"), blocks(image_block(base64="QUJD"))),
        [{"role": "user", "content": "hi"}, shown({"type": "image", "base64": "QUJD"})],
    )
    case(
        "in_a_tool_result",
        talk(blocks({"toolResult": {"toolUseId": "c", "blocks": {"blocks": [image_block(base64="QUJD")]}}})),
        [{"role": "tool", "tool_call_id": "c", "content": [{"type": "image", "base64": "QUJD"}]}],
        "chat.proto ToolResultBlock: templates see it as a message with the role tool",
    )
    case(
        "generation_prompt_false",
        talk(blocks(image_block(base64="QUJD"))),
        [shown({"type": "image", "base64": "QUJD"})],
        request={"options": {"addGenerationPrompt": False}},
        addGenerationPrompt=False,
    )
    case(
        "the_parts_of_the_conversation",
        talk(
            blocks(image_block(base64="QUJD")),
            documents=[{"documentJson": '{"text": 1.0}'}],
            tools=[{"toolJson": '{"type": "function", "function": {"name": "f"}}'}],
            templateArgsJson='{"extra": {"z": 1.0, "a": 1}}',
        ),
        [shown({"type": "image", "base64": "QUJD"})],
        documentsJson='[{"text":1.0}]',
        toolsJson='[{"type":"function","function":{"name":"f"}}]',
        templateArgsJson='{"extra":{"z":1.0,"a":1}}',
    )
    case(
        "render_time",
        talk(blocks(image_block(base64="QUJD"))),
        [shown({"type": "image", "base64": "QUJD"})],
        request={"options": {"renderTime": "2025-07-04T09:05:03.250000"}},
        renderTime="2025-07-04T09:05:03.250000",
    )
    case(
        "omit_media",
        talk(blocks(text_block("a"), image_block(base64="QUJD"))),
        [shown(text, {"type": "image", "field": f"{first}[1].image"})],
        "render.proto RenderRequest.omit_media: a media block has the key field in place of base64",
        request={"omitMedia": True},
    )
    area.add(
        "attachments",
        "render",
        RENDER,
        {
            "conversation": talk(
                blocks(
                    text_block("a"),
                    image_block(base64="QUJD", mimeType="image/png"),
                    image_block(location="b.png"),
                )
            ),
            "options": {"adapter": "gemma-4"},
        },
        {
            "response": {
                "prompt": {
                    "attachments": [
                        {
                            "kind": "MEDIA_KIND_IMAGE",
                            "path": f"{first}[1].image",
                            "base64": "QUJD",
                            "mimeType": "image/png",
                        },
                        {"kind": "MEDIA_KIND_IMAGE", "path": f"{first}[2].image", "location": "b.png"},
                    ]
                }
            }
        },
        "render.proto Prompt.attachments: media files that markers represent, in the order of the markers",
    )
    area.add(
        "attachments_without_data",
        "render",
        RENDER,
        {
            "conversation": talk(blocks(image_block(base64="QUJD"))),
            "options": {"adapter": "gemma-4"},
            "omitMedia": True,
        },
        {
            "response": {
                "prompt": {"attachments": [{"kind": "MEDIA_KIND_IMAGE", "path": f"{first}[0].image"}]}
            },
            "absent": ["prompt.attachments[0].base64"],
        },
        "render.proto RenderRequest.omit_media: an attachment has no source",
    )
    area.add(
        "dangling_attachment",
        "render",
        RENDER,
        {"conversation": talk(blocks(image_block(attachmentId="cat"))), "options": {"adapter": "gemma-4"}},
        invalid(f"{first}[0].image.attachment_id", "DANGLING_ATTACHMENT"),
        "chat.proto MediaBlock.attachment_id: an id without an entry is DANGLING_ATTACHMENT",
    )
    area.add(
        "declared_attachment",
        "render",
        RENDER,
        {
            "conversation": talk(
                blocks(image_block(attachmentId="cat")),
                templateArgsJson='{"attachments": [{"id": "cat", "type": "image", "base64": "QUJD"}]}',
            ),
            "options": {"adapter": "gemma-4"},
        },
        {"response": {"prompt": {"attachments": [{"kind": "MEDIA_KIND_IMAGE", "attachmentId": "cat"}]}}},
        "render.proto Attachment.attachment_id: id of an entry of template_args.attachments",
    )
    many = talk(blocks(*[image_block(base64="QUJD")] * 3))
    area.add(
        "too_many_images",
        "limits",
        RENDER,
        {"conversation": many},
        error("INVALID_ARGUMENT", "TOO_MANY_IMAGES", f"{first}[2].image"),
        "proto/ERRORS.md TOO_MANY_IMAGES: more images than --max-images",
    )
    area.add(
        "as_many_images_as_allowed",
        "limits",
        RENDER,
        {"conversation": talk(blocks(*[image_block(base64="QUJD")] * 2))},
        {
            "response": {
                "hfMessages": {"messagesJson": compact([shown(*[{"type": "image", "base64": "QUJD"}] * 2)])}
            }
        },
        "proto/ERRORS.md TOO_MANY_IMAGES",
    )
    area.add(
        "omit_media/url_stays",
        "render",
        RENDER,
        {"conversation": talk(blocks(image_block(location="https://host/a.png"))), "omitMedia": True},
        {
            "response": {
                "hfMessages": {
                    "messagesJson": compact([shown({"type": "image", "url": "https://host/a.png"})])
                }
            }
        },
        "render.proto RenderRequest.omit_media: leaves base64 data out",
    )
    return area


def invalid_requests() -> Area:
    """Requests that are refused, each with the path of its field."""
    area = Area("invalid")

    def case(name, conversation, expect, because, server="render", **request):
        area.add(name, server, RENDER, {"conversation": conversation, **request}, expect, because)

    root = "conversation.messages[0]"
    block = f"{root}.blocks.blocks[0]"
    area.add(
        "no_conversation",
        "render",
        RENDER,
        {},
        invalid("conversation.messages"),
        "chat.proto Conversation.messages: at least one",
    )
    case(
        "no_messages", {}, invalid("conversation.messages"), "chat.proto Conversation.messages: at least one"
    )
    case(
        "empty_role",
        talk({"role": "", "text": "a"}),
        invalid(f"{root}.role"),
        "chat.proto ChatMessage.role: not empty",
    )
    case(
        "empty_role_of_third_message",
        talk(user("a"), user("b"), {"text": "c"}),
        invalid("conversation.messages[2].role"),
        "chat.proto ChatMessage.role: not empty",
    )
    for name, text in (
        ("not_json", "{"),
        ("not_an_object", "[]"),
        ("number", "1"),
        ("empty", ""),
        ("single_quotes", "{'a': 1}"),
        ("trailing_comma", '{"a": 1,}'),
        ("nan", '{"a": NaN}'),
    ):
        case(
            f"template_args_json/{name}",
            talk(user("a"), templateArgsJson=text),
            invalid("conversation.template_args_json"),
            "chat.proto Conversation.template_args_json: a JSON object",
        )
    for name, text in (("not_json", "{"), ("not_an_object", '"a"')):
        case(
            f"extra_json/{name}",
            talk(user("a", extraJson=text)),
            invalid(f"{root}.extra_json"),
            "chat.proto ChatMessage.extra_json: a JSON object",
        )
        case(
            f"document_json/{name}",
            talk(user("a"), documents=[{"documentJson": text}]),
            invalid("conversation.documents[0].document_json"),
            "chat.proto Document.document_json: a JSON object",
        )
        case(
            f"tool_json/{name}",
            talk(user("a"), tools=[{"toolJson": text}]),
            invalid("conversation.tools[0].tool_json"),
            "chat.proto Tool.tool_json: a JSON object",
        )
        case(
            f"parameters_json/{name}",
            talk(
                user("a"),
                tools=[{"function": {"name": "f"}}, {"function": {"name": "g", "parametersJson": text}}],
            ),
            invalid("conversation.tools[1].function.parameters_json"),
            "chat.proto FunctionTool.parameters_json: a JSON Schema object",
        )
        case(
            f"input_json/{name}",
            talk(blocks({"toolUse": {"name": "f", "inputJson": text}})),
            invalid(f"{block}.tool_use.input_json"),
            "chat.proto ToolUseBlock.input_json: a JSON object",
        )
        case(
            f"other_json/{name}",
            talk(blocks({"otherJson": text})),
            invalid(f"{block}.other_json"),
            "chat.proto Block.other_json: a JSON object",
        )
    case(
        "extra_json/role",
        talk(user("a", extraJson='{"role": "x"}')),
        invalid(f"{root}.extra_json"),
        "chat.proto ChatMessage.extra_json: a key that another field sets",
    )
    case(
        "extra_json/content",
        talk(user("a", extraJson='{"content": "x"}')),
        invalid(f"{root}.extra_json"),
        "chat.proto ChatMessage.extra_json: a key that another field sets",
    )
    case(
        "document_json/empty",
        talk(user("a"), documents=[{}]),
        invalid("conversation.documents[0].document_json"),
        "chat.proto Document.document_json: a JSON object",
    )
    case(
        "tool/without_kind",
        talk(user("a"), tools=[{}]),
        invalid("conversation.tools[0]"),
        "chat.proto Tool.kind: exactly one kind",
    )
    case(
        "tool/without_name",
        talk(user("a"), tools=[{"function": {}}]),
        invalid("conversation.tools[0].function.name"),
        "chat.proto FunctionTool.name: not empty",
    )
    for name, text in (("not_json", "{"), ("empty", "")):
        case(
            f"arguments_json/{name}",
            talk({"role": "assistant", "toolCalls": [{"name": "f", "argumentsJson": text}]}),
            invalid(f"{root}.tool_calls[0].arguments_json"),
            "chat.proto ToolCall.arguments_json: JSON text, not empty",
        )
    case(
        "tool_call/without_name",
        talk(
            {
                "role": "assistant",
                "toolCalls": [{"name": "f", "argumentsJson": "{}"}, {"argumentsJson": "{}"}],
            }
        ),
        invalid(f"{root}.tool_calls[1].name"),
        "chat.proto ToolCall.name: not empty",
    )
    case("block/without_kind", talk(blocks({})), invalid(block), "chat.proto Block.kind: exactly one kind")
    case(
        "block/unknown_type",
        talk(blocks({"otherJson": '{"type": "hologram"}'})),
        invalid(block, "UNKNOWN_BLOCK"),
        "proto/ERRORS.md UNKNOWN_BLOCK: a content block has an unknown type",
    )
    case(
        "block/other_without_type",
        talk(blocks({"otherJson": "{}"})),
        invalid(f"{block}.other_json"),
        "chat.proto Block.other_json: a JSON object with a type key",
    )
    case(
        "block/other_type_is_no_text",
        talk(blocks({"otherJson": '{"type": 1}'})),
        invalid(f"{block}.other_json"),
        "chat.proto Block.other_json: whose value is a string",
    )
    for kind in ("image", "audio", "video"):
        case(
            f"{kind}/without_source",
            talk(blocks({kind: {}})),
            invalid(f"{block}.{kind}"),
            "chat.proto MediaBlock.source: exactly one, not empty",
        )
        case(
            f"{kind}/empty_source",
            talk(blocks({kind: {"base64": ""}})),
            invalid(f"{block}.{kind}"),
            "chat.proto MediaBlock.source: exactly one, not empty",
        )
    case(
        "image/empty_location",
        talk(blocks({"image": {"location": ""}})),
        invalid(f"{block}.image"),
        "chat.proto MediaBlock.source: exactly one, not empty",
    )
    case(
        "tool_use/without_name",
        talk(blocks({"toolUse": {"inputJson": "{}"}})),
        invalid(f"{block}.tool_use.name"),
        "chat.proto ToolUseBlock.name: not empty",
    )
    nested = {"toolResult": {"blocks": {"blocks": [text_block("a"), {}]}}}
    case(
        "tool_result/block_without_kind",
        talk(blocks(nested)),
        invalid(f"{block}.tool_result.blocks.blocks[1]"),
        "chat.proto Block.kind: exactly one kind",
    )
    hi = talk(user("a"))
    case(
        "options/both_ends",
        hi,
        invalid("options.add_generation_prompt"),
        "render.proto RenderOptions.continue_final_message: not together with add_generation_prompt",
        options={"addGenerationPrompt": True, "continueFinalMessage": True},
    )
    for name, time in (
        ("text", "yesterday"),
        ("month", "2025-13-04T09:05:03"),
        ("zone", "2025-07-04T09:05:03Z"),
        ("day", "2025-02-29T00:00:00"),
    ):
        case(
            f"options/render_time/{name}",
            hi,
            invalid("options.render_time"),
            "render.proto RenderOptions.render_time: text in another form is INVALID_ARGUMENT",
            options={"renderTime": time},
        )
    case(
        "options/unspecified_capability",
        hi,
        invalid("options.capabilities.capabilities[0]"),
        "render.proto CapabilityOverride: CAPABILITY_UNSPECIFIED is INVALID_ARGUMENT",
        options={"capabilities": {"capabilities": ["CAPABILITY_UNSPECIFIED"]}},
    )
    case(
        "model_not_found",
        hi,
        error("NOT_FOUND", "MODEL_NOT_FOUND", "model", resource=("model", "none")),
        "proto/ERRORS.md MODEL_NOT_FOUND",
        model="none",
    )
    case(
        "adapter_not_found",
        hi,
        error("NOT_FOUND", "ADAPTER_NOT_FOUND", "options.adapter", resource=("adapter", "none")),
        "proto/ERRORS.md ADAPTER_NOT_FOUND",
        options={"adapter": "none"},
    )
    case(
        "template_not_found",
        hi,
        error("NOT_FOUND", "TEMPLATE_NOT_FOUND", "options.template", resource=("template", "none")),
        "proto/ERRORS.md TEMPLATE_NOT_FOUND",
        options={"template": "none"},
    )
    case(
        "adapter_not_applicable",
        hi,
        error("FAILED_PRECONDITION", "ADAPTER_NOT_APPLICABLE"),
        "proto/ERRORS.md ADAPTER_NOT_APPLICABLE",
        "many",
        model="plain",
        options={"adapter": "tokenizer-template"},
    )
    case(
        "template_raised",
        talk({"role": "forbidden", "text": "a"}),
        error("INVALID_ARGUMENT", "TEMPLATE_RAISED", message="the role forbidden is not allowed"),
        "render.proto Render: TEMPLATE_RAISED with the template's own message",
    )
    case(
        "template_failed",
        talk({"role": "broken", "text": "a"}),
        error("INVALID_ARGUMENT", "TEMPLATE_FAILED"),
        "render.proto Render: TEMPLATE_FAILED",
    )
    case(
        "template_limit",
        talk({"role": "endless", "text": "a"}),
        error("INVALID_ARGUMENT", "TEMPLATE_LIMIT"),
        "render.proto Render: TEMPLATE_LIMIT",
    )
    case(
        "several_models",
        hi,
        invalid("model"),
        "render.proto RenderRequest.model: with several models, an empty id is INVALID_ARGUMENT",
        "many",
    )
    case(
        "no_tokenizer",
        hi,
        error("FAILED_PRECONDITION", "NO_TOKENIZER"),
        "proto/ERRORS.md NO_TOKENIZER",
        "many",
        model="bare",
        returnTokenIds=True,
    )
    case(
        "model_not_loaded",
        hi,
        error("FAILED_PRECONDITION", "MODEL_NOT_LOADED"),
        "proto/ERRORS.md MODEL_NOT_LOADED",
        "many",
        model="broken",
    )
    return area


def batches(oracle: Oracle) -> Area:
    area = Area("batch")
    batch = "render.v1.RenderService/BatchRender"
    hi = {"conversation": talk(user("hi"))}
    prompt = {"response": {"prompt": {"text": oracle.render(hi["conversation"])}}}
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "tandem"}

    def failure(code):
        return {"failure": {"code": code}}

    area.add(
        "empty",
        "render",
        batch,
        {},
        {"response": {"results": []}},
        "render.proto BatchRenderResponse.results: in the order of the requests",
    )
    area.add(
        "two",
        "render",
        batch,
        {"requests": [hi, {"conversation": talk(user("b"))}]},
        {
            "response": {
                "results": [prompt, {"response": {"prompt": {"text": oracle.render(talk(user("b")))}}}]
            }
        },
        NAME,
    )
    area.add(
        "one_failure_leaves_the_others",
        "render",
        batch,
        {"requests": [hi, {"model": "none", **hi}, hi]},
        {"response": {"results": [prompt, failure(5), prompt]}},
        "render.proto BatchRender: one failure does not affect the others; RenderResult.failure: code 5 is NOT_FOUND",
    )
    area.add(
        "failure_has_the_details_of_a_status",
        "render",
        batch,
        {"requests": [{"conversation": talk({"text": "a"})}]},
        {
            "response": {
                "results": [
                    {
                        "failure": {
                            "code": 3,
                            "details": [
                                info | {"reason": "INVALID_REQUEST"},
                                {
                                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                                    "fieldViolations": [
                                        {"field": "requests[0].conversation.messages[0].role"}
                                    ],
                                },
                            ],
                        }
                    }
                ]
            }
        },
        "render.proto RenderResult.failure: the status of a separate call, whose path begins with requests[0]",
    )
    area.add(
        "template_failure_has_its_line",
        "render",
        batch,
        {"requests": [{"conversation": talk({"role": "forbidden", "text": "a"})}]},
        {"response": {"results": [{"failure": {"code": 3, "message": "the role forbidden is not allowed"}}]}},
        "render.proto RenderResult.failure",
    )
    area.add(
        "ids_of_each",
        "render",
        batch,
        {"requests": [{**hi, "returnTokenIds": True}]},
        {
            "response": {
                "results": [
                    {"response": {"prompt": {"tokenIds": oracle.encode(oracle.render(hi["conversation"]))}}}
                ]
            }
        },
        NAME,
    )
    area.add(
        "as_many_as_allowed",
        "render",
        batch,
        {"requests": [{}] * 1024},
        {"response": {"results": [failure(3)] * 1024}},
        "render.proto BatchRenderRequest.requests: at most 1,024",
    )
    area.add(
        "too_many",
        "render",
        batch,
        {"requests": [{}] * 1025},
        invalid("requests"),
        "render.proto BatchRenderRequest.requests: at most 1,024",
    )
    return area


def newer(oracle: Oracle) -> Area:
    """Requests of a newer client: fields and enum numbers that this version does not define."""
    area = Area("newer")
    hi = {"conversation": talk(user("hi"))}
    prompt = {"response": {"prompt": {"text": oracle.render(hi["conversation"])}}}
    message = bytes([10, 4]) + b"user" + bytes([18, 2]) + b"hi"
    unknown = bytes([0xFA, 0x3E, 3]) + b"new"  # field 1007, text

    def field(number, content):
        return bytes([number << 3 | 2, len(content)]) + content

    conversation = field(1, message)
    because = "proto/README.md: a server ignores fields that it does not define"
    area.add(
        "unknown_field/request",
        "render",
        RENDER,
        hi,
        prompt,
        because,
        binary=field(2, conversation) + unknown,
    )
    area.add(
        "unknown_field/conversation",
        "render",
        RENDER,
        hi,
        prompt,
        because,
        binary=field(2, conversation + unknown),
    )
    area.add(
        "unknown_field/message",
        "render",
        RENDER,
        hi,
        prompt,
        because,
        binary=field(2, field(1, message + unknown)),
    )
    area.add(
        "unknown_field/number",
        "render",
        RENDER,
        hi,
        prompt,
        because,
        binary=field(2, conversation) + bytes([0xF8, 0x3E, 7]),
    )
    area.add(
        "unknown_block_kind",
        "render",
        RENDER,
        {},
        invalid("conversation.messages[0].blocks.blocks[0]"),
        "chat.proto Block.kind: a kind that the server does not support is INVALID_ARGUMENT",
        binary=field(2, field(1, bytes([10, 4]) + b"user" + field(3, field(1, unknown)))),
    )
    area.add(
        "unknown_tool_kind",
        "render",
        RENDER,
        {},
        invalid("conversation.tools[0]"),
        "chat.proto Tool.kind: exactly one kind",
        binary=field(2, conversation + field(2, unknown)),
    )
    because = "proto/README.md: an enum number that the server does not define is INVALID_ARGUMENT"
    for name, number in (("normalization", 5), ("control_tokens", 7)):
        for value in (99, 3):
            area.add(
                f"unknown_enum/{name}/{value}",
                "render",
                RENDER,
                hi,
                invalid(f"options.{name}"),
                because,
                binary=field(2, conversation) + field(3, bytes([number << 3, value])),
            )
    area.add(
        "unknown_enum/capability",
        "render",
        RENDER,
        hi,
        invalid("options.capabilities.capabilities[1]"),
        because,
        binary=field(2, conversation) + field(3, field(8, field(1, bytes([1, 99])))),
    )
    area.add(
        "unknown_enum/negative",
        "render",
        RENDER,
        hi,
        invalid("options.normalization"),
        because,
        binary=field(2, conversation) + field(3, bytes([5 << 3]) + b"\xff" * 9 + b"\x01"),
    )
    area.add(
        "last_value_of_a_field_wins",
        "render",
        RENDER,
        {"model": "model", **hi},
        prompt,
        "protobuf: the last value of a field wins",
        binary=field(1, b"none") + field(2, conversation) + field(1, b"model"),
    )
    return area


def compact(value) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
