"""Vectors of single rules: what templates see, and the rules at the edges of each method."""

import base64
import json
import struct
import zlib

import jinja2

from .contract import Area, error, invalid
from .generate import GENERATE, GREEDY, VOCABULARY, Run, biased
from .oracle import NAME, Oracle
from .render import FUNCTION, RENDER, VALUES, blocks, image_block, talk, text_block, user
from .task import TASK, answered, deltas
from .texts import DETOKENIZE, REGISTRY, VALIDATE

KEPT = {"normalization": "NORMALIZATION_NONE", "adapter": "tokenizer-template"}
ENDLESS = talk({"role": "endless", "text": "a"})


def make(oracle: Oracle) -> list[Area]:
    return [seen(oracle), tools(oracle), named()]


def extend(areas: dict[str, Area], oracle: Oracle) -> None:
    """Adds vectors to the areas of the other modules."""
    render_options(areas["options"], oracle)
    invalid_requests(areas["invalid"])
    render_limits(areas["limits"], oracle)
    validation(areas["validate_template"])
    areas["detokenize"].add(
        "model_not_loaded",
        "many",
        DETOKENIZE,
        {"model": "broken", "tokenIds": [1]},
        error("FAILED_PRECONDITION", "MODEL_NOT_LOADED"),
        "render.proto Detokenize: MODEL_NOT_LOADED",
    )
    one_candidate(areas["greedy"], oracle)
    more_grammars(areas["grammars"], oracle)
    resumed(areas["resume"], oracle)
    image_requests(areas["images"])
    tasks(areas["task"], oracle)


def seen(oracle: Oracle) -> Area:
    """What chat templates see of each kind of block. The model's template writes the list as JSON."""
    area = Area("seen")

    def case(name, block, rule, role="user"):
        conversation = talk(blocks(*block, role=role) if isinstance(block, list) else blocks(block, role=role))
        expected = {"response": {"prompt": {"text": oracle.render(conversation)}}}
        request = {"conversation": conversation, "options": KEPT}
        area.add(name, "render", RENDER, request, expected, f"{NAME}; chat.proto {rule}")

    case("text", text_block("a"), "TextBlock")
    case("other/keys_in_order", {"otherJson": '{"z": 1.0, "type": "text", "10": 1e3, "text": "a"}'}, "Block.other_json")
    use = 'ToolUseBlock: templates see {"type": "tool_use", "id", "name", "input"}'
    for name, value in (("odd_numbers", VALUES["mixed_numbers"]), ("keys_in_order", VALUES["keys_in_order"])):
        block = {"toolUse": {"id": "c1", "name": "f", "inputJson": f'{{"value": {value}}}'}}
        case(f"tool_use/{name}", block, use, "assistant")
    case("tool_use/without_id", {"toolUse": {"name": "f", "inputJson": "{}"}}, use, "assistant")
    empty = "ToolUseBlock.input_json: empty means an empty object"
    case("tool_use/without_input", {"toolUse": {"id": "c1", "name": "f"}}, empty, "assistant")
    result = 'ToolResultBlock: templates see {"type": "tool_result", "tool_use_id", "content", "is_error"}'
    case("tool_result/text", {"toolResult": {"toolUseId": "c1", "text": "4"}}, result)
    case("tool_result/null", {"toolResult": {"toolUseId": "c1"}}, "ToolResultBlock.content: unset is null")
    listed = {"toolUseId": "c1", "blocks": {"blocks": [text_block("a"), text_block("b")]}}
    case("tool_result/blocks", {"toolResult": listed}, result)
    for name, value in (("true", True), ("false", False)):
        block = {"toolResult": {"toolUseId": "c1", "text": "no", "isError": value}}
        case(f"tool_result/is_error/{name}", block, "ToolResultBlock.is_error: templates see the key if it is set")
    rule = "MediaBlock: templates see the kind, the source and mime_type"
    for name, source in (
        ("base64", {"base64": "QUJD"}),
        ("data", {"data": "QUJD", "mimeType": "image/png"}),
        ("location", {"location": "https://host/a.png"}),
        ("attachment_id", {"attachmentId": "cat"}),
    ):
        case(f"image/{name}", [text_block("a"), image_block(**source)], rule)
    return area


def tools(oracle: Oracle) -> Area:
    """Tools in other shapes than FunctionTool's."""
    area = Area("tools")
    schema = '{"type": "object", "z": 1.0, "a": {}}'
    shape = [{"function": {"name": "f", "description": "d", "parametersJson": schema}}]
    expected = {"prompt": {"text": oracle.render(talk(user("a"), tools=shape))}}
    for key in ("input_schema", "inputSchema"):
        given = [{"toolJson": f'{{"name": "f", "description": "d", "{key}": {schema}}}'}]
        conversation = talk(user("a"), tools=given)
        area.add(
            f"{key}/is_rewritten",
            "render",
            RENDER,
            {"conversation": conversation},
            {"response": expected},
            f"{NAME}; chat.proto Tool.tool_json: such a tool is rewritten to the shape of `function`",
        )
        area.add(
            f"{key}/without_normalization",
            "render",
            RENDER,
            {"conversation": conversation, "options": {"normalization": "NORMALIZATION_NONE"}},
            {"response": {"prompt": {"text": oracle.render(conversation)}}},
            f"{NAME}; chat.proto Tool.tool_json: normalization NONE disables the rewriting",
        )
    text = {"role": "assistant", "toolCalls": [{"name": "f", "argumentsJson": '"{\\"z\\": 1.0, \\"a\\": 1}"'}]}
    area.add(
        "arguments/text",
        "render",
        RENDER,
        {"conversation": talk(user("a"), text)},
        {"response": {"prompt": {"text": oracle.render(talk(user("a"), text))}}},
        f"{NAME}; chat.proto ToolCall.arguments_json: JSON text that is a string reaches the template as a string",
    )
    hidden = 'TOOLS {"z": 1.0, "10": 1e3, "2": 123456789012345678901234567890}'
    area.add(
        "description_is_kept",
        "render",
        RENDER,
        {"conversation": talk(user("a"), tools=[{"function": FUNCTION | {"description": hidden}}])},
        {"response": {"prompt": {"text": oracle.render(talk(user("a"), tools=[{"function": FUNCTION | {"description": hidden}}]))}}},
        NAME,
    )
    return area


def named() -> Area:
    """A model with the chat templates `default` and `tool_use`, as servers.json writes it."""
    area = Area("named_templates")
    tool = {"tools": [{"function": {"name": "f"}}]}
    rule = 'render.proto RenderOptions.template: default "tool_use" if the request has tools and the model has that template, otherwise "default"'
    for name, conversation, given, text in (
        ("without_tools", talk(user("a")), {}, "default a"),
        ("with_tools", talk(user("a"), **tool), {}, "tool_use a"),
        ("with_tools/default_by_name", talk(user("a"), **tool), {"template": "default"}, "default a"),
        ("without_tools/tool_use_by_name", talk(user("a")), {"template": "tool_use"}, "tool_use a"),
    ):
        request = {"conversation": conversation, "options": given}
        area.add(name, "named", RENDER, request, {"response": {"prompt": {"text": text}}}, rule)
    area.add(
        "model",
        "named",
        f"{REGISTRY}/GetModel",
        {},
        {"response": {"model": {"templates": ["default", "tool_use", "unclear"]}}},
        "registry.proto ModelInfo.templates: names of the chat templates",
    )
    area.add(
        "control_tokens_unclear",
        "named",
        RENDER,
        {
            "conversation": talk(user("%d<|im_end|>")),
            "options": {"template": "unclear", "controlTokens": "CONTROL_TOKENS_LITERAL"},
        },
        error("INVALID_ARGUMENT", "CONTROL_TOKENS_UNCLEAR"),
        "proto/ERRORS.md CONTROL_TOKENS_UNCLEAR: the template formats with the caller's text, so that the prompt depends on its letters",
    )
    return area


def render_options(area: Area, oracle: Oracle) -> None:
    def case(name, conversation, given, expected, because, **more):
        response = {"prompt": {"text": expected}, **more}
        area.add(name, "render", RENDER, {"conversation": conversation, "options": given}, {"response": response}, because)

    clock = talk(user("hi"), templateArgsJson='{"date": true}')
    shown = oracle.render(talk(user("hi"))).replace("<s>", "<s>2025-07-04 09:05:03\n")
    for name, fraction in (("one_digit", ".5"), ("six_digits", ".250001")):
        time = f"2025-07-04T09:05:03{fraction}"
        rule = "render.proto RenderOptions.render_time: a fraction of a second may follow, one to six digits"
        case(f"render_time/fraction/{name}", clock, {"renderTime": time}, shown, rule)
    every = ["SYSTEM_ROLE", "TOOL_CALLS", "REASONING"]
    systems = talk({"role": "system", "text": "a"}, user("b"), user("c"))
    case(
        "capabilities/without_effect",
        systems,
        {"capabilities": {"capabilities": [f"CAPABILITY_SUPPORTS_{name}" for name in every]}},
        oracle.render(systems),
        f"{NAME}; render.proto RenderOptions.capabilities: the other capabilities have no effect",
        warnings=[],
    )
    strict = {"capabilities": ["CAPABILITY_SUPPORTS_SYSTEM_ROLE", "CAPABILITY_REQUIRES_STRICT_TURNS"]}
    answers = [{"role": "assistant", "text": text} for text in ("a", "b")]
    case(
        "capabilities/strict_turns/answers",
        talk(user("q"), *answers),
        {"capabilities": strict},
        oracle.render(talk(user("q"), {"role": "assistant", "text": "a\n\nb"})),
        f"{NAME}; render.proto NORMALIZATION_CAPABILITY: consecutive assistant messages become one message",
        warnings=[{"code": "WARNING_CODE_MESSAGES_MERGED", "path": "conversation.messages[1]"}],
    )
    case(
        "capabilities/strict_turns/none",
        talk(user("a"), user("b")),
        {"capabilities": strict, "normalization": "NORMALIZATION_NONE"},
        oracle.render(talk(user("a"), user("b"))),
        f"{NAME}; render.proto NORMALIZATION_NONE: do not rewrite messages",
        warnings=[],
    )
    area.add(
        "adapter/family_without_messages",
        "render",
        RENDER,
        {"conversation": {}, "options": {"adapter": "deepseek-v4"}},
        {"response": {"resolution": {"adapter": "deepseek-v4"}}},
        "chat.proto Conversation.messages: at least one, unless a family adapter renders the conversation",
    )
    area.add(
        "deadline",
        "render",
        RENDER,
        {"conversation": ENDLESS},
        {"error": {"code": "DEADLINE_EXCEEDED"}},
        "render.proto RenderService: a call whose deadline passes before its response fails with DEADLINE_EXCEEDED",
        deadline_ms=20,
    )


def invalid_requests(area: Area) -> None:
    extra, rule = "conversation.messages[0].extra_json", "chat.proto ChatMessage.extra_json: a key that another field sets"
    for name, given in (
        ("name", user("a", name="Ann", extraJson='{"name": "Bob"}')),
        ("reasoning_content", {"role": "assistant", "text": "a", "reasoningContent": "b", "extraJson": '{"reasoning_content": "c"}'}),
        ("tool_call_id", {"role": "tool", "text": "a", "toolCallId": "c1", "extraJson": '{"tool_call_id": "c2"}'}),
    ):
        area.add(f"extra_json/{name}", "render", RENDER, {"conversation": talk(given)}, invalid(extra), rule)
    for name, time in (
        ("seven_digits", "2025-07-04T09:05:03.1234567"),
        ("point", "2025-07-04T09:05:03."),
        ("date", "2025-07-04"),
        ("empty", ""),
    ):
        area.add(
            f"options/render_time/{name}",
            "render",
            RENDER,
            {"conversation": talk(user("a")), "options": {"renderTime": time}},
            invalid("options.render_time"),
            "render.proto RenderOptions.render_time: text in another form is INVALID_ARGUMENT",
        )


def render_limits(area: Area, oracle: Oracle) -> None:
    """The limits of the server `small`: 100 bytes of a prompt, and 100 pixels of an image."""
    room = 100 - len(oracle.render(talk(user(""))).encode())
    for name, length, expected in (
        ("largest_prompt", room, None),
        ("prompt_too_large", room + 1, error("INVALID_ARGUMENT", "PROMPT_TOO_LARGE")),
    ):
        conversation = talk(user("a" * length))
        if expected is None:
            expected = {"response": {"prompt": {"text": oracle.render(conversation)}}}
        rule = "proto/ERRORS.md PROMPT_TOO_LARGE: more bytes than --max-prompt-bytes"
        area.add(name, "small", RENDER, {"conversation": conversation}, expected, rule)
    path = "conversation.messages[0].blocks.blocks[0].image"
    for name, width, expected in (
        ("largest_image", 10, {"response": {"hfMessages": {"addGenerationPrompt": True}}}),
        ("image_too_large", 11, invalid(path, "IMAGE_TOO_LARGE")),
    ):
        conversation = talk(blocks(image_block(base64=base64.b64encode(png(width, 10)).decode())))
        rule = "proto/ERRORS.md IMAGE_TOO_LARGE: more pixels than --max-image-pixels"
        area.add(name, "small", RENDER, {"conversation": conversation}, expected, rule)


def png(width: int, height: int) -> bytes:
    """Returns a black image in grey."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes((width + 1) * height), 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def validation(area: Area) -> None:
    source = "a\n{{ 'b' | urlize }}"
    jinja2.Environment().parse(source)
    jinja2.Environment().compile(source)
    area.add(
        "unsupported_filter",
        "render",
        VALIDATE,
        {"template": source},
        {"response": {"problem": {"kind": "TEMPLATE_PROBLEM_KIND_UNSUPPORTED", "line": 2}}, "absent": ["template"]},
        f"oracle: jinja2 {jinja2.__version__} accepts the template; render.proto TEMPLATE_PROBLEM_KIND_UNSUPPORTED: this service does not",
    )
    area.add(
        "too_deep",
        "render",
        VALIDATE,
        {"template": "{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}"},
        {"response": {"problem": {"kind": "TEMPLATE_PROBLEM_KIND_TOO_COMPLEX", "line": 1}}, "absent": ["template"]},
        "render.proto TEMPLATE_PROBLEM_KIND_TOO_COMPLEX: more deeply nested than any real one",
    )


def one_candidate(area: Area, oracle: Oracle) -> None:
    """Settings that leave one token to sample: the likeliest one."""
    run = Run(oracle, "hello world", 8)
    for name, sampling in (
        ("top_k", {"temperature": 1, "topK": 1}),
        ("top_p", {"temperature": 1, "topP": 0.001}),
        ("min_p", {"temperature": 1, "minP": 1}),
        ("hot", {"temperature": 100, "topK": 1}),
    ):
        area.add(
            f"one_candidate/{name}",
            "generate",
            GENERATE,
            {"prompt": "hello world", "sampling": sampling | {"seed": "7"}, "stop": {"maxNewTokens": 8}},
            run.events(),
            f"{NAME}; generate.proto Sampling: the likeliest token is always kept, and here alone",
        )


def more_grammars(area: Area, oracle: Oracle) -> None:
    def case(name, grammar, text, finished, because, **more):
        request = {"prompt": "hello world", "sampling": GREEDY, "grammar": grammar} | more
        parts = [{"delta": {"text": text}}] if text else []
        area.add(
            name, "generate", GENERATE, request, {"events": [{"accepted": {}}, *parts, {"finished": finished}, {"summary": {}}]}, because
        )

    case(
        "truncated",
        {"regex": "a{10}"},
        "aaa",
        {"reason": "FINISH_REASON_LENGTH"},
        "generate.proto Grammar: an output that reaches max_new_tokens first is truncated",
        stop={"maxNewTokens": 3},
    )
    (eos, *_) = sorted(oracle.eos)
    case(
        "eos_where_the_end_is_allowed",
        {"regex": "(ab)*"},
        "",
        {"reason": "FINISH_REASON_STOP"},
        "generate.proto Grammar: the output ends when the model chooses an eos id at a point where the grammar allows the end",
        sampling={"temperature": 0, "logitBias": {str(eos): 100}},
    )
    case(
        "eos_where_the_end_is_not_allowed",
        {"regex": "abab"},
        "abab",
        {"reason": "FINISH_REASON_STOP"},
        "generate.proto Grammar: the output ends when it is complete and the grammar allows no further token",
        sampling={"temperature": 0, "logitBias": {str(eos): 100}},
    )
    digit = "٣".encode()
    case(
        "digits_of_all_scripts",
        {"regex": r"\d"},
        "٣",
        {"reason": "FINISH_REASON_STOP"},
        r"generate.proto Grammar.regex: \d matches the digits of all scripts",
        sampling={"temperature": 0, "logitBias": {str(byte): 100 for byte in digit}},
    )
    for name, grammar, field in (
        ("regex/back_reference", {"regex": r"(a)\1"}, "grammar.regex"),
        ("json_schema/other_document", {"jsonSchema": '{"$ref": "https://example.com/a.json"}'}, "grammar.json_schema"),
        ("lark/too_many_rules", {"lark": "start: r0\n" + "".join(f'r{i}: "a"\n' for i in range(2048))}, "grammar.lark"),
    ):
        area.add(
            name,
            "generate",
            GENERATE,
            {"prompt": "hello world", "grammar": grammar},
            invalid(field),
            "generate.proto Grammar: an invalid or too complex grammar is INVALID_ARGUMENT with the path of its field",
        )


def resumed(area: Area, oracle: Oracle) -> None:
    ids = oracle.encode("hello world")
    (eos, *_) = sorted(oracle.eos)
    for name, request, field, rule in (
        (
            "complete",
            {"tokenIds": {"ids": [*ids, 65, eos]}, "resume": {"generatedTokens": 2}},
            "resume.generated_tokens",
            "Resume.generated_tokens: they must not complete the output",
        ),
        (
            "complete/stop_id",
            {"tokenIds": {"ids": [*ids, 65, 66]}, "resume": {"generatedTokens": 2}, "stop": {"stopTokenIds": [66]}},
            "resume.generated_tokens",
            "Resume.generated_tokens: they must not complete the output",
        ),
        (
            "token_ids_twice",
            {"tokenIds": {"ids": [*ids, 65]}, "resume": {"generatedTokens": 1, "tokenIds": [65]}},
            "resume.token_ids",
            "Resume.token_ids: empty with `token_ids`, which end with them",
        ),
    ):
        area.add(name, "generate", GENERATE, request | {"sampling": GREEDY}, invalid(field), f"generate.proto {rule}")


def image_requests(area: Area) -> None:
    messages = json.dumps([{"role": "user", "content": "a"}])
    for key, value in (
        ("renderTime", "2025-07-04"),
        ("toolsJson", "["),
        ("documentsJson", "{"),
        ("templateArgsJson", "[]"),
    ):
        field = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
        area.add(
            f"hf_template/{field}",
            "vision",
            GENERATE,
            {"hfMessagesJson": messages, "hfTemplate": {key: value}},
            invalid(f"hf_template.{field}"),
            f"generate.proto HfTemplate.{field}: a value outside its stated form is INVALID_ARGUMENT with the path of the field",
        )
    area.add(
        "messages/not_json",
        "vision",
        GENERATE,
        {"hfMessagesJson": "{"},
        invalid("hf_messages_json"),
        "generate.proto GenerateRequest.hf_messages_json: JSON text",
    )
    rule = "task.proto RunTaskRequest.conversation: "
    other = "audio and video are UNKNOWN_BLOCK, or INVALID_REQUEST if the model's format has such blocks"
    for name, block, adapter, reason, because in (
        ("attachment_id", image_block(attachmentId="cat"), None, "INVALID_REQUEST", "an image by attachment_id is INVALID_ARGUMENT (INVALID_REQUEST)"),
        ("audio", {"audio": {"base64": "QUJD"}}, None, "UNKNOWN_BLOCK", other),
        ("video", {"video": {"base64": "QUJD"}}, None, "UNKNOWN_BLOCK", other),
        ("audio/of_the_format", {"audio": {"base64": "QUJD"}}, "gemma-4", "INVALID_REQUEST", other),
        ("video/of_the_format", {"video": {"base64": "QUJD"}}, "gemma-4", "INVALID_REQUEST", other),
    ):
        options = {"options": {"adapter": adapter}} if adapter else {}
        request = {"conversation": talk(blocks(block))} | options
        area.add(f"task/{name}", "vision_task", TASK, request, error("INVALID_ARGUMENT", reason), rule + because)


def tasks(area: Area, oracle: Oracle) -> None:
    run = Run(oracle, oracle.render(talk(user("hi"))), 10)
    request = {"conversation": talk(user("hi")), "sampling": GREEDY, "stop": {"maxNewTokens": 10}}
    for name, given, field in (
        ("cache_salt", {"cacheSalt": "a" * 1025}, "cache_salt"),
        ("grammar", {"grammar": {"regex": "("}}, "grammar.regex"),
        ("logprobs", {"returnOptions": {"logprobs": 21}}, "return_options.logprobs"),
        ("output_spec", {"outputSpec": {"eosTokenIds": [VOCABULARY]}}, "output_spec.eos_token_ids[0]"),
        ("render_time", {"options": {"renderTime": "now"}}, "options.render_time"),
    ):
        area.add(
            f"invalid/{name}",
            "task",
            TASK,
            request | given,
            invalid(field),
            "task.proto RunTask: the errors of RenderService.Render and GenerateService.Generate; proto/CHANGELOG.md: RunTask never names a field of a generation request",
        )
    expected = answered(run)
    expected["events"][0] = {"rendered": {"outputSpec": {"stopStrings": ["zzz"], "eosTokenIds": sorted(oracle.eos)}}}
    area.add(
        "output_spec_without_eos_ids",
        "task",
        TASK,
        request | {"outputSpec": {"stopStrings": ["zzz"]}},
        {"events": [expected["events"][0], {"accepted": {}}, {"delta": {"text": run.text()}}, {"finished": {"message": {"text": run.text()}}}]},
        f"{NAME}; task.proto RunTaskRequest.output_spec: an empty eos_token_ids gets the ids from Render",
    )
    answer = answered(run)
    answer["events"][-1] = {"finished": answer["events"][-1]["finished"] | {"seed": "7"}}
    area.add(
        "seed",
        "task",
        TASK,
        request | {"sampling": {"temperature": 1, "topK": 1, "seed": "7"}},
        answer,
        f"{NAME}; task.proto TaskFinished.seed: seed that reproduces this answer",
    )
    head, tail = answered(run)["events"][:2], answered(run)["events"][2:]
    area.add(
        "prompt_logprobs",
        "prompt_task",
        TASK,
        request | {"returnOptions": {"promptLogprobs": 0}},
        {"events": [*head, {"promptLogprobs": {"tokens": [{"id": id} for id in run.ids[1:]]}}, *tail]},
        f"{NAME}; task.proto RunTask: events in order: rendered, accepted, prompt_logprobs if requested, delta, finished",
    )
    spec = {"extraction": {"cutHead": "one", "stripLines": ["role"]}}
    area.add(
        "extracted_text",
        "task",
        TASK,
        request
        | {
            "stop": {"maxNewTokens": 40},
            "grammar": {"choice": {"values": ["one\nrole\ntwo"]}},
            "outputSpec": spec,
            "returnOptions": {"extractedText": True},
        },
        {
            "events": [
                {"rendered": {"outputSpec": spec}},
                {"accepted": {}},
                {"delta": {"text": "one\nrole\ntwo"}},
                {"finished": {"message": {"text": "one\nrole\ntwo"}, "finish": {"extractedText": "two"}}},
            ]
        },
        "task.proto TaskFinished.message: the text is that of all deltas; with extracted_text, finish.extracted_text has the text that extraction leaves",
    )
